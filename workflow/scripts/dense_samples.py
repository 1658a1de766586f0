"""Rule dense_samples: snakemake object -> raptor.data.dense.write_pairs."""

from pathlib import Path

from raptor.data.dense import DenseTask, write_pairs
from raptor.job import job

with job(snakemake):
    write_pairs(
        task=DenseTask.of(**snakemake.params.task),
        output=Path(snakemake.output[0]),
    )
