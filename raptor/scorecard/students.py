"""Claims about Raptors: partitions, accuracy kept, what each part of the training adds, cost."""

from __future__ import annotations

import numpy as np
import pandas as pd

from raptor.partition import contiguous_count
from raptor.scorecard.evidence import METHOD, Evidence
from raptor.scorecard.intervals import mean, standardised, with_images
from raptor.scorecard.thresholds import (
    APPLICATIONS,
    COLLAPSE,
    KEPT_AT_LEAST,
    PARAMETERS,
    PARTITIONS,
    REPAIR,
    SEEDS,
    SIGMAS,
)
from raptor.scorecard.tidy import STEPS
from raptor.scorecard.verdicts import Estimate, Finding, NotTested, Part

# Steps of the ablation: a recipe each, with one thing more than the one before.
FORCED, AUTOREGRESSIVE = STEPS["teacher_forcing"], STEPS["autoregressive"]
HELPING = {
    STEPS["depth_scaling"]: "depth scaling",
    STEPS["token_weights"]: "cls weighting",
    STEPS["stage2"]: "stage 2",
}


def maxcut_beats_random(evidence: Evidence) -> Finding:
    """Claim 2: accuracy kept by Max-Cut phases, in sd of random contiguous ones above their mean.

    A random partition drawn twice is one partition with two seeds. A k counts with at least
    PARTITIONS distinct ones and SEEDS Max-Cut students: a member of a smaller set, as Max-Cut's
    is where all are drawn, cannot stand out by more than a sigma for certain. The interval allows
    for the choice of partitions, for their sd being an estimate, and for the Max-Cut seeds
    (`standardised`); all students share their test images.
    """
    table = evidence.of_teacher("comparison")
    parts, left_out, n = [], [], 0
    several = len(set(table["recipe"])) > 1
    for (recipe, k), some in table.groupby(["recipe", "k"], sort=True):
        name = f"{recipe}, k = {k}" if several else f"k = {k}"
        chosen = some.loc[some["partition"] == METHOD, "recovered"].dropna().to_numpy()
        drawn = _by_partition(evidence, some[some["partition"] == "random"], k)
        if len(chosen) < SEEDS:
            left_out.append(f"{name}: {len(chosen)} Max-Cut students, at least {SEEDS} are needed")
        elif len(drawn) < PARTITIONS:
            possible = contiguous_count(evidence.depth, k, evidence.min_size)
            left_out.append(
                f"{name}: {len(drawn)} distinct random partitions of {possible}, "
                f"at least {PARTITIONS} are needed"
            )
        else:
            distance = _sigmas(chosen, drawn, k)
            parts.append(Part(f"{name}, {len(drawn)} partitions,", distance, SIGMAS))
            n += len(drawn)
    if not parts:
        raise NotTested(f"too little to compare: {'; '.join(left_out)}")
    return Finding(
        "accuracy kept by Max-Cut phases, in sd of random contiguous ones above their mean, with "
        "the noncentral t interval over partitions and Max-Cut seeds",
        tuple(parts),
        n,
        "distinct random partitions",
        f"left out: {'; '.join(left_out)}" if left_out else "",
    )


def accuracy_is_kept(evidence: Evidence) -> Finding:
    """Claim 3: k = 2 and k = 3 keep these shares of the teacher's probe accuracy.

    The interval joins the t interval over seeds with the binomial error of the student's
    accuracy on the test images; the teacher's, on the same images, is the yardstick.
    """
    table = evidence.of_teacher("fidelity")
    table = table[(table["recipe"] == evidence.recipe) & (table["partition"] == METHOD)]
    parts, seeds = [], []
    for k, least in sorted(KEPT_AT_LEAST.items()):
        some = table[table["k"] == k]
        kept = mean(some["recovered"], SEEDS, f"students with k = {k}")
        accuracy, n_test = some["accuracy"].mean(), int(some["n_test"].min())
        scale = 1 / some["accuracy_teacher"].mean()
        kept = with_images(kept, accuracy, n_test, scale)
        parts.append(Part(f"k = {k}", kept, least, unit="%"))
        seeds.append(len(some))
    return Finding(
        f"share of the teacher's probe accuracy, t interval over {min(seeds)} seeds joined with "
        "the binomial error of the student's accuracy on the test images",
        tuple(parts),
        n_test,
        "test images",
    )


def forcing_collapses(evidence: Evidence) -> Finding:
    """Claim 4: teacher forcing alone collapses, autoregression repairs it.

    With the teacher's own head: (a) the share of the teacher's accuracy that is lost; (b) the
    share of that loss regained, paired by seed. t intervals over seeds.
    """
    steps = _by_step(evidence)
    teacher = float(evidence.of_teacher("teachers")["accuracy_head"].iloc[0])
    forced, repaired = (_step(steps, step) for step in (FORCED, AUTOREGRESSIVE))
    lost = mean(1 - forced / teacher, SEEDS, "seeds with teacher forcing alone")
    parts = [Part("share of the teacher's accuracy lost", lost, COLLAPSE, unit="%")]
    loss = (teacher - forced).reindex(repaired.index)
    note = ""
    if (loss > 0).all():
        regained = mean((repaired - forced) / loss, SEEDS, "seeds with both")
        parts.append(Part("share of the loss regained", regained, REPAIR, unit="%"))
    else:
        note = "with nothing lost there is nothing to regain"
    return Finding(
        "accuracy with the teacher's own head, t intervals over seeds, which leave out the choice "
        "of test images",
        tuple(parts),
        len(forced),
        "seeds",
        note,
    )


def each_step_helps(evidence: Evidence) -> Finding:
    """Claim 5: depth scaling, cls weighting and stage 2 each raise the accuracy.

    With the teacher's own head; each step minus the one before, paired by seed, t intervals.
    """
    steps = _by_step(evidence)
    parts, seeds = [], []
    for step, name in HELPING.items():
        gain = (_step(steps, step) - _step(steps, step - 1)).dropna()
        found = mean(gain, SEEDS, f"pairs of seeds for {name}")
        parts.append(Part(f"gain by {name}", found, unit="points"))
        seeds.append(len(gain))
    return Finding(
        "accuracy with the teacher's own head against the step before, paired by seed, t intervals "
        "over seeds, which leave out the choice of test images",
        tuple(parts),
        min(seeds),
        "seeds",
    )


def cost_is_k_over_depth(evidence: Evidence) -> Finding:
    """Claim 18: as many block applications as the teacher, and k / L of its block parameters.

    Counted, so without an interval. `blocks_parameters` are compared where the table has them.
    """
    table = evidence.table("cost")
    if "teacher" in table:
        table = evidence.of_teacher("cost")
    teachers, raptors = (table[table["model"] == model] for model in ("teacher", "raptor"))
    if teachers.empty or raptors.empty:
        raise NotTested("the table of costs lacks the teacher or its Raptors")
    column = "blocks_parameters" if "blocks_parameters" in table else "parameters"
    teacher, parts = teachers.iloc[0], []
    for raptor in raptors.sort_values("k", kind="stable").drop_duplicates("k").itertuples():
        k = int(raptor.k)
        runs = abs(raptor.block_applications / teacher["block_applications"] - 1)
        share = getattr(raptor, column) / teacher[column] / (k / teacher["depth"])
        parts += [
            _counted(f"k = {k}: difference in block applications", runs, APPLICATIONS),
            _counted(f"k = {k}: distance of the parameters from k/L", abs(share - 1), PARAMETERS),
        ]
    return Finding("counted exactly", tuple(parts), raptors["k"].nunique(), "values of k")


def _counted(name: str, value: float, most: float) -> Part:
    return Part(name, Estimate(value, value, value), most, above=False, unit="%")


# --- partitions ---------------------------------------------------------------------------------


def _by_partition(evidence: Evidence, students: pd.DataFrame, k: int) -> list[np.ndarray]:
    """Accuracy kept by the students of each distinct random partition."""
    cuts = evidence.of_teacher("partitions")
    cuts = cuts[(cuts["method"] == "random") & (cuts["k"] == k)]
    both = students.merge(cuts[["seed", "labels"]], on="seed").dropna(subset=["recovered"])
    return [group.to_numpy() for _, group in both.groupby("labels", sort=True)["recovered"]]


def _sigmas(chosen: np.ndarray, drawn: list[np.ndarray], k: int) -> Estimate:
    """(mean of Max-Cut - mean of the partitions) / sd of the partitions."""
    means = np.array([group.mean() for group in drawn])
    if means.std() == 0:
        raise NotTested(f"k = {k}: all random partitions keep the same accuracy")
    return standardised(chosen, means)


# --- ablations ----------------------------------------------------------------------------------


def _by_step(evidence: Evidence) -> pd.DataFrame:
    """Accuracy with the teacher's head, a row per seed and a column per step."""
    table = evidence.of_teacher("ablations")
    return table.pivot_table(index="seed", columns="step", values="accuracy_head")


def _step(steps: pd.DataFrame, step: int) -> pd.Series:
    if step not in steps:
        raise NotTested(f"no recipe of the ablations adds {list(STEPS)[step].replace('_', ' ')}")
    return steps[step].dropna()
