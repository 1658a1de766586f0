"""Rule timm_teacher: snakemake object -> raptor.teachers.pretrained.make_timm."""

from pathlib import Path

from raptor.config.data import DataConfig
from raptor.config.teachers import TimmTeacher
from raptor.job import job
from raptor.teachers.pretrained import make_timm

with job(snakemake):
    make_timm(
        spec=TimmTeacher.model_validate(snakemake.params.spec),
        data=DataConfig.model_validate(snakemake.params.data),
        output=Path(snakemake.output.weights),
    )
