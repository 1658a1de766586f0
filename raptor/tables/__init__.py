"""From the results of each stage to the tidy tables behind every figure (pandas only)."""

from raptor.tables.branches import branch_similarity
from raptor.tables.cost import table_cost
from raptor.tables.dense import depth_panels, segmentation_panels, table_dense
from raptor.tables.dynamics import (
    angular_speed,
    directional_convergence,
    dmd_spectrum,
    low_rank_updates,
    perturbation,
)
from raptor.tables.gather import fidelity, layers, teachers
from raptor.tables.phases import maxcut_partitions, similarity_matrices, table_partitions
from raptor.tables.recipes import table_ablations, training_paradigms
from raptor.tables.side_by_side import overfitting, stochastic_depth
from raptor.tables.students import (
    fidelity_by_k,
    partition_comparison,
    saturation,
    table_probes,
    training_curves,
)
from raptor.tables.swaps import layer_swaps

__all__ = [
    "angular_speed",
    "branch_similarity",
    "depth_panels",
    "directional_convergence",
    "dmd_spectrum",
    "fidelity",
    "fidelity_by_k",
    "layer_swaps",
    "layers",
    "low_rank_updates",
    "maxcut_partitions",
    "overfitting",
    "partition_comparison",
    "perturbation",
    "saturation",
    "segmentation_panels",
    "similarity_matrices",
    "stochastic_depth",
    "table_ablations",
    "table_cost",
    "table_dense",
    "table_partitions",
    "table_probes",
    "teachers",
    "training_curves",
    "training_paradigms",
]
