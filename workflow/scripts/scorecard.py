"""Scorecard rule: snakemake object -> raptor.scorecard.scorecard."""

from pathlib import Path

from raptor.job import job
from raptor.scorecard import scorecard

with job(snakemake):
    tables = {
        name: Path(value) if isinstance(value, str) else [Path(part) for part in value]
        for name, value in snakemake.input.items()
    }
    matrices = tables.pop("matrices")
    scorecard(
        **snakemake.params.subject,
        matrices=matrices,
        tables=tables,
        output=Path(snakemake.output[0]),
    )
