"""Rule probe_students: snakemake object -> raptor.probes.evaluate.probe_students."""

from pathlib import Path

from raptor.config.analysis import ProbesConfig
from raptor.job import job, optional
from raptor.probes.evaluate import probe_students

with job(snakemake) as run:
    probe_students(
        teacher=Path(snakemake.input.weights),
        activations=Path(snakemake.input.activations),
        students=Path(snakemake.input.students),
        probe=Path(snakemake.input.probe),
        head=optional(snakemake.input.head),
        config=ProbesConfig.model_validate(snakemake.params.config),
        output=Path(snakemake.output.table),
        layers=Path(snakemake.output.layers),
        code=snakemake.params.code,
        state=Path(snakemake.params.state),
        device=run.device,
    )
