"""Rule similarity: snakemake object -> raptor.similarity.write_similarity."""

from pathlib import Path

from raptor.config.analysis import SimilarityConfig
from raptor.job import job
from raptor.similarity import write_similarity

with job(snakemake) as run:
    write_similarity(
        activations=Path(snakemake.input[0]),
        config=SimilarityConfig.model_validate(snakemake.params.config),
        output=Path(snakemake.output.table),
        matrices=Path(snakemake.output.matrices),
        # Read from a store, states need no device.
        device=run.device if snakemake.params.streamed else "cpu",
    )
