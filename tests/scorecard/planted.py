"""Tables in which each claim is true, false, or drowned in noise."""

from __future__ import annotations

import json
from itertools import combinations

import numpy as np
import pandas as pd

from raptor.partition import partition
from raptor.scorecard.evidence import Evidence

DEPTH, IMAGES = 12, 60
LABELS = (1, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3)
TRUE, FALSE, NOISY = "true", "false", "noisy"
RNG = np.random.default_rng


def evidence(distances=None, **tables: pd.DataFrame) -> Evidence:
    return Evidence(
        "vit", "bare", "r", 3, 1, "cosine", distances=distances or {}, tables=tables
    )  # fmt: skip


def cuts(*labels, teacher="vit", method="maxcut", k=3) -> pd.DataFrame:
    rows = [
        {"teacher": teacher, "method": method, "k": k, "seed": seed, "labels": json.dumps(one)}
        for seed, one in enumerate(labels or [LABELS])
    ]
    return pd.DataFrame(rows)


# --- similarity ---------------------------------------------------------------------------------


def resampled(base_LL, noise, seed, n=IMAGES, resamples=100):
    """Mean over images of `base` + noise, and Poisson resamples of it."""
    rng = RNG(seed)
    errors = rng.normal(0, noise, (n, *base_LL.shape))
    images = base_LL + (errors + errors.swapaxes(1, 2)) / 2
    counts = rng.poisson(1, (resamples, n))
    draws = np.einsum("rn,nlm->rlm", counts, images) / counts.sum(axis=1)[:, None, None]
    return images.mean(axis=0), draws


def toeplitz(step=0.05, depth=DEPTH):
    """No phases: the distance follows from how far apart two layers are."""
    layer = np.arange(depth)
    return step * np.abs(layer - layer[:, None]).astype(float)


def phases(inside=0.02, jump=0.3, labels=LABELS):
    """Small steps inside phases, large ones between them."""
    walked = np.cumsum([0, *np.where(np.diff(labels) != 0, jump, inside)])
    return np.abs(walked - walked[:, None])


def similar(trained, untrained=None) -> Evidence:
    """Each (distance, resamples); cut by Max-Cut as the partition stage would."""
    matrices = {"vit": trained} | ({"bare": untrained} if untrained else {})
    found = [
        cuts(partition(distance, 3, min_size=1).labels, teacher=name)
        for name, (distance, _) in matrices.items()
    ]
    n = pd.DataFrame({"teacher": list(matrices), "measure": "cosine", "n": IMAGES})
    return evidence(matrices, similarity=n, partitions=pd.concat(found))


def blocks(kind):
    if kind == FALSE:  # the states jump in the middle of the phases, and rest at their boundaries
        distance = resampled(phases(labels=(1, 1, 2, 2, 2, 2, 2, 3, 3, 3, 3, 4)), 0.01, 0)
        table = pd.DataFrame({"teacher": ["vit"], "measure": "cosine", "n": IMAGES})
        return evidence({"vit": distance}, similarity=table, partitions=cuts())
    base, noise = (phases(), 0.01) if kind == TRUE else (toeplitz(), 0.05)
    return similar(resampled(base, noise, 1))


def training_makes_phases(kind):
    pair = [resampled(phases(), 0.01, 0), resampled(toeplitz(0.01), 0.01, 1)]
    if kind == NOISY:
        pair = [resampled(toeplitz(), 0.3, seed) for seed in (0, 1)]
    return similar(*(pair[::-1] if kind == FALSE else pair))


# --- students -----------------------------------------------------------------------------------


def students(values, partition="maxcut", k=3, **more) -> pd.DataFrame:
    table = pd.DataFrame({"recovered": values, "seed": range(len(values))})
    return table.assign(teacher="vit", recipe="r", partition=partition, k=k, **more)


def maxcut_beats_random(kind, draws=14, seeds=4, k=3):
    rng = RNG(5)
    middle, spread = {TRUE: (0.99, 0.001), FALSE: (0.87, 0.001), NOISY: (0.92, 0.01)}[kind]
    places = list(combinations(range(1, DEPTH), k - 1))
    chosen = rng.choice(len(places), draws, replace=False)
    labels = [
        np.repeat(range(1, k + 1), np.diff([0, *places[i], DEPTH])).tolist() for i in chosen
    ]  # fmt: skip
    table = [students(rng.normal(middle, spread, seeds), k=k),
             students(rng.normal(0.9, 0.02, draws), "random", k=k)]  # fmt: skip
    return evidence(
        comparison=pd.concat(table), partitions=cuts(*labels, method="random", k=k)
    )  # fmt: skip


def accuracy_is_kept(kind, seeds=3, n_test=4000):
    rng = RNG(2)
    two, three = {TRUE: (0.985, 0.999), FALSE: (0.985, 0.95), NOISY: (0.985, 0.982)}[kind]
    tables = [
        students(kept, k=k, accuracy=0.97 * kept, accuracy_teacher=0.97, n_test=n_test)
        for k, mean in ((2, two), (3, three))
        for kept in [rng.normal(mean, 0.001, seeds)]
    ]
    return evidence(fidelity=pd.concat(tables))


def ablations(means, spread=0.002, seeds=3) -> pd.DataFrame:
    rng = RNG(3)
    rows = [
        {"teacher": "vit", "step": step, "seed": seed, "accuracy_head": rng.normal(mean, spread)}
        for step, mean in enumerate(means)
        for seed in range(seeds)
    ]
    return pd.DataFrame(rows)


PROBE = pd.DataFrame({"teacher": ["vit"], "accuracy_head": [0.9], "n_test": [1000]})


def forcing_collapses(kind):
    means = {TRUE: (0.1, 0.8), FALSE: (0.85, 0.8), NOISY: (0.45, 0.8)}[kind]
    return evidence(ablations=ablations(means, 0.05 if kind == NOISY else 0.002), teachers=PROBE)


def each_step_helps(kind):
    means = {
        TRUE: (0.1, 0.7, 0.73, 0.76, 0.85, 0.9),
        FALSE: (0.1, 0.7, 0.73, 0.70, 0.85, 0.9),
        NOISY: (0.1, 0.7, 0.73, 0.731, 0.85, 0.9),
    }[kind]
    return evidence(ablations=ablations(means, 0.01 if kind == NOISY else 0.001))


def cost_is_k_over_depth(kind):
    rows = [("teacher", np.nan, 12, 1200, 12)]
    runs, spare = (12, 3) if kind == TRUE else (9, 3)  # fewer applications are another model
    rows += [("raptor", k, 12, 100 * k + spare, runs) for k in (2, 3)]
    columns = ["model", "k", "depth", "parameters", "block_applications"]
    return evidence(cost=pd.DataFrame(rows, columns=columns))


# --- training of the teacher --------------------------------------------------------------------


def stochastic_depth_helps(kind, rates=(0.0, 0.1, 0.2, 0.3, 0.4, 0.5)):
    rows = []
    for rank, p in enumerate(rates):
        slope = {TRUE: 0.3, FALSE: -0.3, NOISY: 0.0}[kind]
        value = 0.6 + slope * p + (0.1 * (-1) ** rank if kind == NOISY else 0)
        rows += [("vit", p, seed, value + 0.001 * seed, value) for seed in range(3)]
    columns = ["teacher", "p", "seed", "r2_mean", "mean_similarity"]
    return evidence(stochastic_depth=pd.DataFrame(rows, columns=columns))


def overfitting_lowers_r2(kind, last_loss=1.4):
    rows, rng = [], RNG(4)
    for epoch, loss in ((0, 2.3), (5, 0.9), (20, last_loss)):
        end = {TRUE: 0.7, FALSE: 0.98, NOISY: 0.899}[kind]
        mean = {0: 0.99, 5: 0.9, 20: end}[epoch]
        rows += [("vit", epoch, 0.1, loss, s, rng.normal(mean, 0.01)) for s in range(3)]
    columns = ["teacher", "epoch", "train_loss", "val_loss", "seed", "r2_mean"]
    return evidence(overfitting=pd.DataFrame(rows, columns=columns))


# --- dynamics -----------------------------------------------------------------------------------

LAYERS = np.arange(DEPTH + 1)
TOKENS = ("all", "cls", "registers", "patches")


def images(profiles: dict, noise=0.01, seed=6, n=IMAGES) -> pd.DataFrame:
    """`profiles[column][tokens]`: the mean by layer 0..L; what is not given is flat."""
    rng, parts = RNG(seed), []
    for tokens in TOKENS:
        part = {"image": np.repeat(range(n), DEPTH + 1), "layer": np.tile(LAYERS, n)}
        for column in ("direction", "norm", "speed", "coherence", "effective_rank"):
            given = profiles.get(column, {})
            mean = np.broadcast_to(given.get(tokens, given.get("*", 0.5)), DEPTH + 1)
            part[column] = np.tile(mean, n) + rng.normal(0, noise, n * (DEPTH + 1))
        parts.append(pd.DataFrame(part).assign(tokens=tokens))
    table = pd.concat(parts).assign(teacher="vit", model="teacher", label=0)
    table.loc[table["layer"] == 0, ["speed", "coherence", "effective_rank"]] = np.nan
    return table


def moving(**given) -> Evidence:
    noise, n = given.pop("noise", 0.01), given.pop("n", IMAGES)
    return evidence(images=images(given, noise, n=n), partitions=cuts())


LINE = LAYERS / DEPTH
LOGISTIC = 1 / (1 + np.exp(-(LAYERS - 6) / 1.0))
GROWING = {"*": 2.0 + 0.2 * LAYERS}


def converges_in_s_curve(kind):
    if kind == NOISY:
        return moving(direction={"*": LOGISTIC}, norm=GROWING, noise=1.0)
    return moving(direction={"*": LOGISTIC if kind == TRUE else LINE}, norm=GROWING, noise=0.001)


LAST = np.concatenate([[0], np.array(LABELS) == 3]).astype(float)


def cls_turns_last(kind):
    late = {TRUE: 0.5, FALSE: 0.0, NOISY: 0.001}[kind]
    other = 0.3 if kind == FALSE else 0.0
    speed = {"cls": 0.3 + late * LAST, "patches": 0.3 + other * LAST}
    return moving(speed=speed, noise=0.1 if kind == NOISY else 0.01)


def registers_move_slowly(kind):
    wavy = 0.4 + 0.1 * np.sin(LAYERS)
    slow = {TRUE: 0.1 + 0.0 * LAYERS, FALSE: 0.6 + 0.3 * np.sin(LAYERS), NOISY: wavy}[kind]
    return moving(speed={"cls": wavy, "patches": wavy, "registers": slow})


def speed_jumps(kind):
    boundary = np.concatenate([[0, 0], np.diff(LABELS) != 0]).astype(float)
    jump = {TRUE: 0.5, FALSE: -0.2, NOISY: 0.001}[kind]
    return moving(speed={"all": 0.3 + jump * boundary}, noise=0.1 if kind == NOISY else 0.01)


THIRD = (LAYERS > 8).astype(float)


def updates_become_coherent(kind):
    late = {TRUE: 0.3, FALSE: -0.3, NOISY: 0.0}[kind]
    return moving(coherence={"patches": 0.4 + late * THIRD}, noise=0.1)


def update_rank_falls(kind):
    late = {TRUE: -5, FALSE: 5, NOISY: 0.0}[kind]
    return moving(effective_rank={"patches": 12 + late * THIRD}, noise=1.0)


def perturbations_shrink(kind):
    rate = {TRUE: -0.1, FALSE: 0.1, NOISY: 0.0}[kind]
    rng, rows = RNG(8), []
    for image in range(20):
        for source in (0, 4):
            for layer in range(source, DEPTH + 1):
                size = 0.1 * np.exp(rate * (layer - source) + rng.normal(0, 0.05))
                rows.append((image, source, layer, size))
    table = pd.DataFrame(rows, columns=["image", "source_layer", "layer", "deviation"])
    table = table.assign(teacher="vit", model="teacher", tokens="cls", relative_size=0.1)
    large = table.assign(relative_size=1.0, deviation=1 / table["deviation"])  # must not count
    return evidence(perturbation=pd.concat([table, large]))


def swaps_inside_are_harmless(kind):
    inside, across = {TRUE: (0.01, 0.4), FALSE: (0.5, 0.2), NOISY: (0.08, 0.1)}[kind]
    rng, rows = RNG(9), []
    for target in range(1, DEPTH + 1):
        for source in range(1, DEPTH + 1):
            same = LABELS[target - 1] == LABELS[source - 1]
            if source != target:
                far = abs(source - target)
                drop = (inside if same else across) + rng.normal(0, 0.02 if kind != NOISY else 0.1)
                rows.append(("intra" if same else "inter", str([target]), float(far), drop))
    table = pd.DataFrame(rows, columns=["kind", "targets", "distance", "drop"])
    fixed = {"teacher": "vit", "size": 1, "accuracy_teacher": 0.95, "chance": 0.1}
    return evidence(swaps=table.assign(**fixed))


def modes_are_stable(kind):
    rng, rows = RNG(10), []
    for phase in (1, 2, 3):
        for tokens in TOKENS[1:]:
            near = {TRUE: 0.99, FALSE: 0.7, NOISY: 0.9}[kind] if tokens == "cls" else 0.9
            near += rng.normal(0, 0.002 if kind != NOISY else 0.02)
            rows.append(("vit", "teacher", tokens, phase, abs(near), abs(1 - near)))
    columns = ["teacher", "model", "tokens", "phase", "spectral_radius", "nearest_to_one"]
    return evidence(dmd=pd.DataFrame(rows, columns=columns))


CLAIMS = (
    blocks,
    maxcut_beats_random,
    accuracy_is_kept,
    forcing_collapses,
    each_step_helps,
    stochastic_depth_helps,
    overfitting_lowers_r2,
    training_makes_phases,
    converges_in_s_curve,
    cls_turns_last,
    registers_move_slowly,
    speed_jumps,
    updates_become_coherent,
    update_rank_falls,
    perturbations_shrink,
    swaps_inside_are_harmless,
    modes_are_stable,
    cost_is_k_over_depth,
)
