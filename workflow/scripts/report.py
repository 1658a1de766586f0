"""Rule report_page: snakemake object -> raptor.report.write_report."""

from pathlib import Path

from raptor.job import job
from raptor.report import write_report

with job(snakemake):
    write_report(
        figures=[Path(path) for path in snakemake.input.figures],
        tables=[Path(path) for path in snakemake.input.tables],
        experiment=snakemake.params.experiment,
        front=Path(snakemake.input.front),
        template=Path(snakemake.input.template),
        output=Path(snakemake.output[0]),
    )
