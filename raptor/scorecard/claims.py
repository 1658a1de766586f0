"""The 18 claims, in the paper's order: what each says, and the function that tests it."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from raptor.scorecard import dynamics, phases, students, training
from raptor.scorecard.evidence import Evidence
from raptor.scorecard.thresholds import KEPT_AT_LEAST, SIGMAS
from raptor.scorecard.verdicts import Finding
from raptor.tables import published


class Claim(NamedTuple):
    """`paper`: what the paper reports, mostly for DINOv2 ViT-B, and where."""

    title: str
    paper: str
    test: Callable[[Evidence], Finding]


def _kept() -> str:
    return ", ".join(
        f"{100 * least:.0f} % at k = {k} (reports {100 * published.recovered(k):.1f} %)"
        for k, least in sorted(KEPT_AT_LEAST.items())
    )


CLAIMS = (
    Claim(
        "Layers form blocks",
        "similarity within a phase exceeds that across phases (Fig. 1)",
        phases.blocks,
    ),
    Claim(
        "Max-Cut phases beat random partitions",
        f"accuracy more than {SIGMAS:.0f} σ above random contiguous partitions (Fig. 3)",
        students.maxcut_beats_random,
    ),
    Claim(
        "Two or three blocks keep the accuracy",
        f"at least {_kept()} (Table 2)",
        students.accuracy_is_kept,
    ),
    Claim(
        "Teacher forcing alone collapses",
        "top-1 3.9 % with teacher forcing alone, 72.7 % with autoregression",
        students.forcing_collapses,
    ),
    Claim(
        "Each part of the training helps",
        "top-1 75.2 % with depth scaling (from 72.7 %), 76.7 % with cls weighting, 82.4 % with "
        "stage 2",
        students.each_step_helps,
    ),
    Claim(
        "Stochastic depth makes layers alike",
        "more stochastic depth, more similarity of layers and higher R² (Fig. 4)",
        training.stochastic_depth_helps,
    ),
    Claim(
        "Overfitting lowers R²",
        "R² of Raptors falls as the teacher overfits (Fig. 13)",
        training.overfitting_lowers_r2,
    ),
    Claim(
        "Training makes the phases",
        "block contrast of trained teachers exceeds that of untrained ones (Fig. 1)",
        phases.training_makes_phases,
    ),
    Claim(
        "Directions converge in an S-curve",
        "γ rises to 1 along the depth in an S-curve, norms keep growing (Fig. 6)",
        dynamics.converges_in_s_curve,
    ),
    Claim(
        "cls turns in the last phase",
        "cls turns sharply in the last phase, patches do not (Fig. 7)",
        dynamics.cls_turns_last,
    ),
    Claim(
        "Registers move slowly and steadily",
        "registers move slowly and steadily (Fig. 7)",
        dynamics.registers_move_slowly,
    ),
    Claim(
        "Speed jumps at phase boundaries",
        "angular speed is near-stationary inside a phase and jumps at its boundaries (Fig. 7)",
        phases.speed_jumps,
    ),
    Claim(
        "Patch updates become coherent",
        "updates of patches become coherent late (Fig. 8)",
        dynamics.updates_become_coherent,
    ),
    Claim(
        "Update rank falls late",
        "the rank of the update falls late, to about 6 (Fig. 8)",
        dynamics.update_rank_falls,
    ),
    Claim(
        "Small perturbations shrink",
        "trajectories bend back after a small perturbation (§5)",
        dynamics.perturbations_shrink,
    ),
    Claim(
        "Swaps inside a phase are harmless",
        "swaps inside a phase are harmless, across phases destructive (Fig. 15)",
        phases.swaps_inside_are_harmless,
    ),
    Claim(
        "Linear modes are stable, cls slowest",
        "eigenvalues inside the unit circle, those of cls closest to +1 (Fig. 9)",
        dynamics.modes_are_stable,
    ),
    Claim(
        "Same runtime, k/L of the parameters",
        "as many block applications as the teacher, about k/L of its parameters",
        students.cost_is_k_over_depth,
    ),
)
