"""Rule raptor: snakemake object -> raptor.training.raptor.train_raptors."""

from pathlib import Path

from raptor.config.students import Recipe
from raptor.job import job
from raptor.student import Student
from raptor.training.raptor import train_raptors

with job(snakemake) as run:
    run.train(
        train_raptors,
        teacher=Path(snakemake.input.weights),
        activations=Path(snakemake.input.activations),
        partitions=[Path(path) for path in snakemake.input.partitions],
        recipes={
            name: Recipe.model_validate(recipe) for name, recipe in snakemake.params.recipes.items()
        },
        students=[Student(*student) for student in snakemake.params.students],
        output=Path(snakemake.output[0]),
        state=Path(snakemake.params.state),
        code=snakemake.params.code,
        autocast=snakemake.params.autocast,
        seed=snakemake.params.seed,
    )
