"""Rule raptor: snakemake object -> raptor.training.raptor.train_raptors."""

from pathlib import Path

from raptor.config.students import Recipe
from raptor.job import job
from raptor.training.raptor import train_raptors

first, last = map(int, snakemake.wildcards.seeds.split("-"))

with job(snakemake) as run:
    train_raptors(
        teacher=Path(snakemake.input.weights),
        activations=Path(snakemake.input.activations),
        partition=Path(snakemake.input.partition),
        recipe=Recipe.model_validate(snakemake.params.recipe),
        recipe_name=snakemake.wildcards.recipe,
        seeds=list(range(first, last + 1)),
        output=Path(snakemake.output[0]),
        state=Path(snakemake.params.state),
        identity=run.identity,
        device=run.device,
        seed=snakemake.params.seed,
    )
