"""Rule probe_teacher: snakemake object -> raptor.probes.evaluate.probe_teacher."""

from pathlib import Path

from raptor.config.analysis import ProbesConfig
from raptor.job import job, optional
from raptor.probes.evaluate import probe_teacher

with job(snakemake) as run:
    probe_teacher(
        teacher=Path(snakemake.input.weights),
        activations=Path(snakemake.input.activations),
        head=optional(snakemake.input.head),
        config=ProbesConfig.model_validate(snakemake.params.config),
        output=Path(snakemake.output.table),
        layers=Path(snakemake.output.layers),
        weights=Path(snakemake.output.weights),
        state=Path(snakemake.params.state),
        identity=run.identity,
        device=run.device,
    )
