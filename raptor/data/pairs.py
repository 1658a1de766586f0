"""Pairs of an image and a target for each of its pixels: its class, or its depth."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Protocol

import torch

from raptor.data.files import decode, in_threads
from raptor.errors import RaptorError

log = logging.getLogger(__name__)

LOG_SECONDS = 5.0
TOGETHER = 16  # images of a pass in order that are in memory at a time

Pair = tuple[torch.Tensor, torch.Tensor]  # an image and its target
IGNORE = 255  # the class of pixels that neither train nor test a probe
UNMEASURED = 0.0  # the depth, in metres, of pixels where none was measured

DenseName = Literal["train", "test"]  # the official splits; none of these sets has a third


class DenseSplit(Protocol):
    """A fixed list of images, each with a target of its own height and width.

    `pair(i)` is `(image, target)`: uint8 RGB (3, H, W), and (H, W) either int64 classes in
    [0, len(class_names)) or `IGNORE`, or float32 metres or `UNMEASURED`. `class_names` is empty
    for depth. Images differ in size; a probe resizes them.
    """

    origin: str  # where the images are, for error messages
    sample_ids: Sequence[str]
    class_names: list[str]

    def __len__(self) -> int: ...

    def pair(self, index: int) -> Pair: ...


@dataclass(frozen=True)
class FilePairs:
    """Pairs of image files below `root`, read when asked for; `read_target` gives (H, W)."""

    origin: str
    root: Path
    sample_ids: Sequence[str]
    targets: Sequence[str]
    read_target: Callable[[Path], torch.Tensor]
    class_names: list[str] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.sample_ids)

    def pair(self, index: int) -> Pair:
        image_CHW = decode(self.root / self.sample_ids[index], channels=3)
        path = self.root / self.targets[index]
        target_HW = self.read_target(path)
        if target_HW.shape != image_CHW.shape[1:]:
            raise RaptorError(
                f"{path}: is {_size(target_HW)} pixels, its image {self.sample_ids[index]} "
                f"{_size(image_CHW)}; replace both with the originals"
            )
        return image_CHW, target_HW


def in_order(split: DenseSplit, title: str, images: int | None = None) -> Iterator[list[Pair]]:
    """The pairs of the first `images` images (all by default), `TOGETHER` at a time."""
    total, logged = images or len(split), time.monotonic()
    for start in range(0, total, TOGETHER):
        stop = min(start + TOGETHER, total)
        yield list(in_threads(split.pair, range(start, stop)))
        if time.monotonic() - logged > LOG_SECONDS:
            log.info("%s: %d of %d images", title, stop, total)
            logged = time.monotonic()


def _size(pixels: torch.Tensor) -> str:
    height, width = pixels.shape[-2:]
    return f"{width} × {height}"
