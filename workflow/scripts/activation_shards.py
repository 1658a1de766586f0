"""Rule activation_shards: snakemake object -> raptor.activations.extract_part."""

from pathlib import Path

from raptor.activations.write import extract_part
from raptor.config.activations import ActivationsConfig
from raptor.config.data import DataConfig
from raptor.job import job

with job(snakemake) as run:
    extract_part(
        teacher=Path(snakemake.input.weights),
        data=DataConfig.model_validate(snakemake.params.data),
        config=ActivationsConfig.model_validate(snakemake.params.config),
        manifest=Path(snakemake.params.manifest),
        part=int(snakemake.wildcards.part),
        parts=int(snakemake.wildcards.parts),
        output=Path(snakemake.output[0]),
        device=run.device,
        store=snakemake.params.store,
        samples=Path(snakemake.input.samples),
    )
