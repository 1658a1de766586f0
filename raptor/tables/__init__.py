"""From the results of each stage to the tidy tables behind every figure (pandas only)."""

from raptor.tables.branches import branch_similarity
from raptor.tables.cost import table_cost
from raptor.tables.gather import fidelity, layers, teachers
from raptor.tables.phases import maxcut_partitions, similarity_matrices, table_partitions
from raptor.tables.students import (
    fidelity_by_k,
    partition_comparison,
    table_probes,
    training_curves,
)
from raptor.tables.swaps import layer_swaps

__all__ = [
    "branch_similarity",
    "fidelity",
    "fidelity_by_k",
    "layer_swaps",
    "layers",
    "maxcut_partitions",
    "partition_comparison",
    "similarity_matrices",
    "table_cost",
    "table_partitions",
    "table_probes",
    "teachers",
    "training_curves",
]
