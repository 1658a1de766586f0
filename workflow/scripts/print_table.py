"""Printed-table rules: snakemake object -> raptor.figures.print_table."""

from pathlib import Path

from raptor.figures import print_table
from raptor.job import job

with job(snakemake):
    print_table(
        target=snakemake.params.target,
        table=Path(snakemake.input.table),
        template=Path(snakemake.input.template),
        html=Path(snakemake.output.html),
        caption=Path(snakemake.output.caption),
    )
