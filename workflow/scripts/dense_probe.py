"""Rule dense_probe: snakemake object -> raptor.dense.probe_model."""

from pathlib import Path

from raptor.data.dense import DenseTask
from raptor.dense import Model, probe_model
from raptor.job import job, optional
from raptor.student import Student

with job(snakemake) as run:
    named = snakemake.params.student
    probe_model(
        model=Model(
            Path(snakemake.input.weights),
            Student(*named) if named else None,
            optional(snakemake.input.students),
        ),
        task=DenseTask.of(**snakemake.params.task),
        seed=snakemake.params.seed,
        output=Path(snakemake.output.table),
        head=Path(snakemake.output.head),
        state=Path(snakemake.params.state),
        identity=run.identity,
        device=run.device,
    )
