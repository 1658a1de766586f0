"""Rule branches: snakemake object -> raptor.branches.write_branches."""

from pathlib import Path

from raptor.branches import BRANCHES, write_branches
from raptor.config.analysis import SimilarityConfig
from raptor.job import job

with job(snakemake) as run:
    write_branches(
        teacher=Path(snakemake.input.weights),
        activations=Path(snakemake.input.activations),
        config=SimilarityConfig.model_validate(snakemake.params.config),
        outputs={
            branch: (Path(snakemake.output[branch]), Path(snakemake.output[f"{branch}_matrices"]))
            for branch in BRANCHES
        },
        device=run.device,
    )
