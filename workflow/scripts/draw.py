"""Figure rules: snakemake object -> raptor.figures.draw."""

from pathlib import Path

from raptor.figures import draw
from raptor.job import job, optional

with job(snakemake):
    draw(
        target=snakemake.params.target,
        table=Path(snakemake.input.table),
        settings=snakemake.params.settings,
        palette=snakemake.params.palette,
        template=Path(snakemake.input.template),
        pdf=Path(snakemake.output.pdf),
        png=Path(snakemake.output.png),
        caption=Path(snakemake.output.caption),
        examples=optional(snakemake.input.examples),
    )
