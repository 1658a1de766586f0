"""Rule swaps: snakemake object -> raptor.interventions.swap_layers."""

from pathlib import Path

from raptor.config.analysis import SwapsConfig
from raptor.interventions import swap_layers
from raptor.job import job, optional

with job(snakemake) as run:
    swap_layers(
        teacher=Path(snakemake.input.weights),
        activations=Path(snakemake.input.activations),
        partition=Path(snakemake.input.partition),
        head=optional(snakemake.input.head),
        config=SwapsConfig.model_validate(snakemake.params.config),
        output=Path(snakemake.output[0]),
        device=run.device,
        seed=snakemake.params.seed,
    )
