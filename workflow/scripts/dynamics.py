"""Rule dynamics: snakemake object -> raptor.dynamics.measure.measure_dynamics."""

from pathlib import Path

from raptor.config.dynamics import DynamicsConfig
from raptor.dynamics.measure import measure_dynamics
from raptor.job import job, optional

with job(snakemake) as run:
    measure_dynamics(
        teacher=Path(snakemake.input.weights),
        activations=Path(snakemake.input.activations),
        students=optional(snakemake.input.students),
        partition=optional(snakemake.input.partition),
        config=DynamicsConfig.model_validate(snakemake.params.config),
        outputs={name: Path(path) for name, path in snakemake.output.items()},
        device=run.device,
        seed=snakemake.params.seed,
    )
