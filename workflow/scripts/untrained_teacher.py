"""Rule untrained_teacher: snakemake object -> raptor.teachers.train.make_untrained."""

from pathlib import Path

from raptor.config.data import DataConfig
from raptor.config.teachers import Architecture
from raptor.job import job
from raptor.teachers.train import make_untrained

with job(snakemake) as run:
    make_untrained(
        spec=Architecture.model_validate(snakemake.params.spec),
        data=DataConfig.model_validate(snakemake.params.data),
        output=Path(snakemake.output.weights),
        device=run.device,
    )
