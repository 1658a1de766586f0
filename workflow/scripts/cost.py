"""Rule cost: snakemake object -> raptor.cost.measure_cost."""

from pathlib import Path

from raptor.config.analysis import CostConfig
from raptor.cost import measure_cost
from raptor.job import job

with job(snakemake) as run:
    measure_cost(
        teacher=Path(snakemake.input.weights),
        activations=Path(snakemake.input.activations),
        students=[Path(path) for path in snakemake.input.students],
        config=CostConfig.model_validate(snakemake.params.config),
        output=Path(snakemake.output.table),
        timing=Path(snakemake.output.timing),
        device=run.device,
    )
