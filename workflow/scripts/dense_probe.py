"""Rule dense_probe: snakemake object -> raptor.dense.probe_models."""

from pathlib import Path

from raptor.data.dense import DenseTask
from raptor.dense import Model, probe_models
from raptor.job import job
from raptor.student import Student

with job(snakemake) as run:
    indices = tuple(map(Path, snakemake.input.students))
    probe_models(
        models=[
            Model(Path(snakemake.input.weights), Student(*named) if named else None, indices)
            for named in snakemake.params.models
        ],
        task=DenseTask.of(**snakemake.params.task),
        samples=Path(snakemake.input.samples),
        seed=snakemake.params.seed,
        output=Path(snakemake.output[0]),
        state=Path(snakemake.params.state),
        code=snakemake.params.code,
        device=run.device,
    )
