"""Rule dense_examples: snakemake object -> raptor.dense_examples.show_examples."""

from pathlib import Path

from raptor.data.dense import DenseTask
from raptor.dense import Model
from raptor.dense_examples import show_examples
from raptor.job import job, optional
from raptor.student import Student

with job(snakemake) as run:
    weights = Path(snakemake.input.weights)
    student = Student(*snakemake.params.student)
    teacher_head, raptor_head = map(Path, snakemake.input.heads)
    show_examples(
        teacher=(Model(weights), teacher_head),
        raptor=(Model(weights, student, optional(snakemake.input.students)), raptor_head),
        task=DenseTask.of(**snakemake.params.task),
        images=snakemake.params.images,
        output=Path(snakemake.output[0]),
        device=run.device,
    )
