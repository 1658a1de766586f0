"""Layer swaps (paper Fig. 15): run other layers' weights in some layers and see what is lost.

If the phases are real, weights from inside the phase do little harm and weights from another
phase do much.
"""

from __future__ import annotations

import json
import logging
import random
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from raptor.activations.read import Activations
from raptor.config.analysis import SwapsConfig
from raptor.errors import RaptorError
from raptor.files import replacing
from raptor.partition import Partition, format_segments
from raptor.phases import read_partition
from raptor.seeds import derive_seed
from raptor.stored import open_teacher
from raptor.teachers.adapter import Teacher

log = logging.getLogger(__name__)

KINDS = ("intra", "inter")
IMAGES = 128  # images in memory at a time, with all their states
LOG_SECONDS = 5.0


@dataclass(frozen=True)
class Swap:
    """Layer `targets[i]` runs the weights of layer `sources[i]`; layers are 1-based, ascending."""

    kind: str
    targets: tuple[int, ...]
    sources: tuple[int, ...]

    @property
    def distance(self) -> float:
        """Mean |source − target| in layers: swaps across phases also reach further."""
        return float(np.mean([abs(s - t) for s, t in zip(self.sources, self.targets, strict=True)]))

    def layers_run(self, depth: int) -> tuple[int, ...]:
        """For each layer 1..`depth` the layer whose weights it runs."""
        sources = dict(zip(self.targets, self.sources, strict=True))
        return tuple(sources.get(layer, layer) for layer in range(1, depth + 1))


def list_swaps(
    labels: Sequence[int], *, size: int, kind: str, samples: int, seed: int
) -> list[Swap]:
    """Swaps of `size` layers: all of them for one layer or where there are few, else `samples`.

    `labels[l - 1]` is the phase of layer l. `intra`: every source lies in the phase of its
    target; `inter`: every source lies in another. Draws are uniform over all such swaps,
    without repetition.
    """
    layers = range(1, len(labels) + 1)
    sources = {
        target: [
            source
            for source in layers
            if source != target and (labels[source - 1] == labels[target - 1]) == (kind == "intra")
        ]
        for target in layers
    }
    total = _ways(sources, size)[1][size]
    ranks = range(total)
    if size > 1 and total > samples:
        ranks = sorted(random.Random(seed).sample(ranks, samples))
    return [_swap_of_rank(rank, sources, size, kind) for rank in ranks]


def _ways(sources: dict[int, list[int]], size: int) -> dict[int, list[int]]:
    """`ways[l][m]`: the number of swaps of m layers whose targets are all ≥ l."""
    ways = {len(sources) + 1: [1] + [0] * size}
    for target in range(len(sources), 0, -1):
        after = ways[target + 1]
        ways[target] = [1] + [
            after[m] + len(sources[target]) * after[m - 1] for m in range(1, size + 1)
        ]
    return ways


def _swap_of_rank(rank: int, sources: dict[int, list[int]], size: int, kind: str) -> Swap:
    """The swap that stands at `rank` when all swaps of `size` are counted (combinatorial rank)."""
    ways, pairs = _ways(sources, size), []
    for target in sources:
        missing = size - len(pairs)
        if not missing:
            break
        without = ways[target + 1][missing]
        if rank < without:
            continue
        choice, rank = divmod(rank - without, ways[target + 1][missing - 1])
        pairs.append((target, sources[target][choice]))
    targets, chosen = zip(*pairs, strict=True)
    return Swap(kind, targets, chosen)


def run_swaps(
    teacher: Teacher, states_BSTD: Tensor, swaps: Sequence[Swap]
) -> Iterator[tuple[int, Tensor]]:
    """The last state (B, T, D) under each swap, with its index in `swaps`, in any order.

    `states_BSTD` are the teacher's own states a_0..a_L: a swap starts from the stored state
    before its first layer, or further up where it shares its first layers with the swap before.
    """
    order = sorted((swap.layers_run(teacher.depth), index) for index, swap in enumerate(swaps))
    before: tuple[int, ...] = ()
    trail: list[Tensor] = []  # trail[l]: the state of layer l under the swap at hand
    for layers, index in order:
        first = swaps[index].targets[0]
        shared = len(
            list(takewhile(lambda pair: pair[0] == pair[1], zip(layers, before, strict=False)))
        )
        if first > shared:
            trail = list(states_BSTD[:, :first].unbind(dim=1))
        else:
            del trail[shared + 1 :]
        for layer in layers[len(trail) - 1 :]:
            trail.append(teacher.block(trail[-1], layer))
        before = layers
        yield index, trail[-1]


def swap_layers(
    *,
    teacher: Path,
    activations: Path,
    partition: Path,
    config: SwapsConfig,
    output: Path,
    device: torch.device,
    seed: int,
    head: Path | None = None,
) -> None:
    """Accuracy, with the teacher's own head or else `head`, of every swap of the sizes in `config`.

    Phases are those of the first row of the table `partition`. Writes one row per swap:
    `accuracy` and `accuracy_teacher` in [0, 1] on `n` images of `config.split`, `drop` their
    difference, `relative_error` the mean over images of ‖ã_L − a_L‖_F / ‖a_L‖_F, and
    `distance`, the mean number of layers between source and target.
    """
    model, store = open_teacher(teacher, activations, device, head=head)
    name, cut = Path(teacher).stem, _read_phases(partition, model.depth)
    swaps = [
        swap
        for size in config.sizes
        for kind in KINDS
        for swap in list_swaps(
            cut.labels,
            size=size,
            kind=kind,
            samples=config.samples,
            seed=derive_seed(seed, "swaps", config.seed, name, size, kind),
        )
    ]
    found, reference = measure_swaps(model, store, config.split, swaps, device, config.images)
    table = pd.DataFrame(
        {
            "teacher": name,
            "partition": cut.method,
            "k": cut.k,
            "segments": format_segments(cut.segments),
            "size": [len(swap.targets) for swap in swaps],
            "kind": [swap.kind for swap in swaps],
            "targets": [json.dumps(swap.targets) for swap in swaps],
            "sources": [json.dumps(swap.sources) for swap in swaps],
            "accuracy": found["accuracy"],
            "accuracy_teacher": reference["accuracy"],
            "drop": reference["accuracy"] - found["accuracy"],
            "relative_error": found["relative_error"],
            "distance": [swap.distance for swap in swaps],
            "n": reference["n"],
        }
    )
    with replacing(output) as temporary:
        table.to_csv(temporary, index=False)


@torch.inference_mode()
def measure_swaps(
    teacher: Teacher,
    store: Activations,
    split: str,
    swaps: Sequence[Swap],
    device: torch.device | str = "cpu",
    most: int | None = None,
) -> tuple[dict[str, np.ndarray], dict[str, float]]:
    """`accuracy` and `relative_error` (one entry per swap), and the teacher's `accuracy` on `n`.

    One pass over the stored states of `split`, of its first `most` images if given; every swap
    runs on each block of images.
    """
    hits, error = np.zeros(len(swaps)), np.zeros(len(swaps))
    images, hits_teacher, logged = 0, 0.0, time.monotonic()
    for _, block_BSTD, labels in store.blocks(split, IMAGES, None, most):
        states_BSTD = torch.from_numpy(block_BSTD).to(device)
        labels_B = torch.as_tensor(labels, device=device)
        last_BTD = states_BSTD[:, -1]
        images += len(labels_B)
        hits_teacher += _hits(teacher, last_BTD, labels_B)
        for done, (index, state_BTD) in enumerate(run_swaps(teacher, states_BSTD, swaps), start=1):
            hits[index] += _hits(teacher, state_BTD, labels_B)
            change_B = torch.linalg.vector_norm(state_BTD - last_BTD, dim=(1, 2))
            norm_B = torch.linalg.vector_norm(last_BTD, dim=(1, 2))
            error[index] += float((change_B / norm_B).sum())
            if time.monotonic() - logged > LOG_SECONDS:
                log.info("%s, images to %d: swap %d of %d", split, images, done, len(swaps))
                logged = time.monotonic()
    return (
        {"accuracy": hits / images, "relative_error": error / images},
        {"accuracy": hits_teacher / images, "n": images},
    )


def _hits(teacher: Teacher, last_BTD: Tensor, labels_B: Tensor) -> float:
    """How many images are classified right; NaN where there are no classes."""
    if not teacher.num_classes:
        return float("nan")
    return int((teacher.logits(last_BTD).argmax(dim=1) == labels_B).sum())


def _read_phases(path: Path, depth: int) -> Partition:
    cut = read_partition(path)
    if len(cut.labels) != depth:
        raise RaptorError(
            f"{path}: labels {len(cut.labels)} layers, the teacher has {depth}; give a partition "
            "of this teacher"
        )
    return cut
