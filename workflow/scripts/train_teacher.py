"""Rule train_teacher: snakemake object -> raptor.teachers.train.train_teacher."""

from pathlib import Path

from raptor.config.data import DataConfig
from raptor.config.teachers import TrainedTeacher
from raptor.job import job
from raptor.teachers.train import train_teacher

with job(snakemake) as run:
    run.train(
        train_teacher,
        spec=TrainedTeacher.model_validate(snakemake.params.spec),
        data=DataConfig.model_validate(snakemake.params.data),
        output=Path(snakemake.output.weights),
        history=Path(snakemake.output.history),
        state=Path(snakemake.params.state),
        identity=run.identity,
        autocast=snakemake.params.autocast,
    )
