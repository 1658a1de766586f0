"""Rule dense_samples: snakemake object -> raptor.data.dense, raptor.probes.constant."""

from pathlib import Path

from raptor.data.dense import DenseTask, write_pairs
from raptor.job import job
from raptor.probes.constant import measure_constant

with job(snakemake):
    task = DenseTask.of(**snakemake.params.task)
    write_pairs(task=task, output=Path(snakemake.output.samples))
    measure_constant(task=task, output=Path(snakemake.output.constant))
