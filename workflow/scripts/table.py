"""Table rules: snakemake object -> the function of raptor.tables that has the target's name."""

from pathlib import Path

from raptor import tables
from raptor.job import job


def paths(value):
    """A named input as Path, or as a list of them."""
    return Path(value) if isinstance(value, str) else [Path(part) for part in value]


with job(snakemake):
    getattr(tables, snakemake.params.target)(
        **{name: paths(value) for name, value in snakemake.input.items()},
        **snakemake.params.extra,
        output=Path(snakemake.output[0]),
    )
