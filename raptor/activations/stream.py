"""States computed when they are asked for, where a store of them would not fit on the disk."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

from raptor.activations.images import images_of
from raptor.activations.manifest import Manifest
from raptor.activations.precision import Rounder
from raptor.errors import RaptorError
from raptor.files import sha256
from raptor.teachers.files import load_teacher


class Streamed:
    """What `raptor.activations.shards.Shards` is for a store, without one.

    The teacher runs on the images that are asked for, as far as the last layer wanted, and its
    states are rounded to the manifest's dtype as extraction would: a reader sees the numbers of a
    store, but for float32 sums that depend on which images share a batch (less than a unit in
    the last place of 16 bits). An entry that the dtype cannot hold is an error here too.
    """

    def __init__(self, path: Path, manifest: Manifest, device: torch.device | str) -> None:
        weights = path.parent / manifest.teacher.path
        if not weights.is_file() or sha256(weights) != manifest.teacher.sha256:
            raise RaptorError(
                f"{weights}: missing, or not the weights whose states {path} streams; delete "
                f"{path} and run again"
            )
        self.grid, self._device, self._spans = manifest.grid, device, manifest.splits
        self._teacher = load_teacher(weights, device)
        self._rounder = Rounder(manifest.dtype)
        self._sample_ids = manifest.sample_ids
        self._splits = {name: images_of(manifest, path, name) for name in self._spans}

    @torch.inference_mode()
    def gather(self, images: np.ndarray, layers: Sequence[int], out: torch.Tensor) -> None:
        """Put the states of `images` (k, n) into float32 `out` (k, n, S', T, D)."""
        for row, place in zip(images, out, strict=True):
            states = self._states(self._pixels(row).to(self._device), max(layers))
            names = [self._sample_ids[image] for image in row]
            self._rounder.clear()  # what rounding costs is measured where states are stored
            place.copy_(self._rounder(states[:, layers], names))

    def _states(self, images_BCHW: torch.Tensor, last: int) -> torch.Tensor:
        """States 0..`last`, (B, last + 1, T, D)."""
        states = [self._teacher.embed(images_BCHW)]
        for layer in range(1, last + 1):
            states.append(self._teacher.block(states[-1], layer))
        return torch.stack(states, dim=1)

    def _pixels(self, images: np.ndarray) -> torch.Tensor:
        """(B, C, H, W) of the images with these numbers, in this order."""
        parts = torch.empty(0)
        for name, (first, last) in self._spans.items():
            inside = np.flatnonzero((images >= first) & (images < last))
            if len(inside):
                some = self._splits[name].images(images[inside] - first)
                if not parts.numel():
                    parts = some.new_empty(len(images), *some.shape[1:])
                parts[torch.from_numpy(inside)] = some
        return parts
