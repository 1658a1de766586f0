"""How similar the layers are in what their two branches add, not only in the state after them.

Most of a state is what the layers before it have left there, so that states resemble each other
whatever the blocks do. The output of the attention branch and that of the MLP branch (LayerScale
included) are what a block adds by itself: if blocks of one phase compute the same, it shows here
too. Asked for by the paper's reviewers; the measures are those of `raptor.similarity`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch

from raptor.config.analysis import SimilarityConfig
from raptor.similarity import SimilarityStream, logged, save_similarity
from raptor.stored import open_teacher
from raptor.teachers.adapter import Teacher

BRANCHES = ("attention", "mlp")


def write_branches(
    *,
    teacher: Path,
    activations: Path,
    config: SimilarityConfig,
    outputs: Mapping[str, tuple[Path, Path]],
    device: torch.device,
) -> None:
    """All measures between the branch outputs of every two layers of one teacher.

    The branches are computed again from the stored states, on the images, in the batches and with
    the resamples of the similarity stage, so that its matrices stand beside these. `outputs`:
    each of `BRANCHES` -> CSV and npz as `raptor.similarity.save_similarity` writes them.
    Memory does not grow with the number of images.
    """
    model, store = open_teacher(teacher, activations, device)
    streams = {
        branch: SimilarityStream(store.layout, bootstrap=config.bootstrap, seed=config.seed)
        for branch in BRANCHES
    }
    first, last = store.splits[config.split]
    blocks = store.blocks(config.split, config.batch_images, range(model.depth))
    for start, states_BLTD, _ in logged(blocks, last - first, "branches"):
        for branch, added_BLTD in branch_outputs(model, states_BLTD, device).items():
            streams[branch].add(start, added_BLTD)
    for branch, (table, matrices) in outputs.items():
        save_similarity(streams[branch].result(), store.teacher, table, matrices)


@torch.inference_mode()
def branch_outputs(
    teacher: Teacher, states_BLTD: np.ndarray, device: torch.device
) -> dict[str, np.ndarray]:
    """Branch -> what it adds in each layer 1..L, (B, L, T, D), from the states 0..L-1."""
    added = {branch: np.empty_like(states_BLTD) for branch in BRANCHES}
    for layer in range(1, teacher.depth + 1):
        before_BTD = torch.from_numpy(states_BLTD[:, layer - 1]).to(device)
        for branch, output_BTD in zip(BRANCHES, teacher.branches(before_BTD, layer), strict=True):
            added[branch][:, layer - 1] = output_BTD.cpu().numpy()
    return added
