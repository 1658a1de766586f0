"""Rule checkpoint_teacher: snakemake object -> raptor.teachers.train.make_checkpoint."""

from pathlib import Path

from raptor.job import job
from raptor.teachers.train import make_checkpoint

with job(snakemake):
    make_checkpoint(
        source=Path(snakemake.input[0]),
        epoch=snakemake.params.epoch,
        output=Path(snakemake.output.weights),
    )
