"""Rule dense_examples: snakemake object -> raptor.dense_examples.show_examples."""

from pathlib import Path

from raptor.data.dense import DenseTask
from raptor.dense import Model
from raptor.dense_examples import show_examples
from raptor.job import job
from raptor.student import Student

with job(snakemake) as run:
    weights = Path(snakemake.input.weights)
    student = Student(*snakemake.params.student)
    show_examples(
        teacher=Model(weights),
        raptor=Model(weights, student, tuple(map(Path, snakemake.input.students))),
        heads=Path(snakemake.input.heads[0]).parent,
        task=DenseTask.of(**snakemake.params.task),
        images=snakemake.params.images,
        output=Path(snakemake.output[0]),
        device=run.device,
    )
