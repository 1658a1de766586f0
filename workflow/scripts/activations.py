"""Rule activations: snakemake object -> raptor.activations.extract."""

from pathlib import Path

from raptor.activations.write import extract
from raptor.config.activations import ActivationsConfig
from raptor.config.data import DataConfig
from raptor.job import job

with job(snakemake) as run:
    extract(
        teacher=Path(snakemake.input.weights),
        data=DataConfig.model_validate(snakemake.params.data),
        config=ActivationsConfig.model_validate(snakemake.params.config),
        output=Path(snakemake.output[0]),
        device=run.device,
        store=snakemake.params.store,
        samples=Path(snakemake.input.samples),
    )
