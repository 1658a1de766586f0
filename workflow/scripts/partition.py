"""Rule partition: snakemake object -> raptor.phases.write_partitions."""

from itertools import product
from pathlib import Path

from raptor.config.analysis import PartitionConfig
from raptor.job import job
from raptor.phases import write_partitions

with job(snakemake):
    config = PartitionConfig.model_validate(snakemake.params.config)
    cuts = product(config.methods, config.k)
    write_partitions(
        matrices=Path(snakemake.input[0]),
        config=config,
        teacher=snakemake.wildcards.teacher,
        outputs=dict(zip(cuts, map(Path, snakemake.output.partitions), strict=True)),
        stability=Path(snakemake.output.stability),
        epsilon=Path(snakemake.output.epsilon),
        seed=snakemake.params.seed,
    )
