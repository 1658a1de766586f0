"""Rule samples: snakemake object -> raptor.data.write_samples."""

from pathlib import Path

from raptor.config.data import DataConfig
from raptor.data import write_samples
from raptor.job import job

with job(snakemake):
    write_samples(
        data=DataConfig.model_validate(snakemake.params.data),
        output=Path(snakemake.output[0]),
    )
