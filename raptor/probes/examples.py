"""Examples of what a teacher's and a Raptor's dense probes say, for the eye."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from torch import Tensor

from raptor.data.pairs import IGNORE, UNMEASURED, DenseSplit
from raptor.qualitative import NO_CLASS, Example, Examples

Predict = Callable[[Sequence[Tensor]], list[Tensor]]  # images (3, H, W) -> maps (H, W)


def collect_examples(
    *,
    split: DenseSplit,
    images: int,
    teacher: Predict,
    raptor: Predict,
    model: Mapping[str, str | int],
) -> Examples:
    """As many as `images`, evenly spread over `split`: its neighbours are often alike.

    `model` says which Raptor it is, as in `Examples`.
    """
    last = len(split) - 1
    chosen = sorted(set(np.linspace(0, last, min(images, len(split))).round().astype(int).tolist()))
    examples = []
    for index in chosen:
        image_CHW, truth_HW = split.pair(index)
        maps = [truth_HW, *(predict([image_CHW])[0] for predict in (teacher, raptor))]
        known = [_known(map_HW.numpy(), bool(split.class_names)) for map_HW in maps]
        examples.append(Example(image_CHW.permute(1, 2, 0).numpy(), *known))
    names = [split.sample_ids[index] for index in chosen]
    return Examples(names, examples, split.class_names, model)


def _known(map_HW: np.ndarray, classes: bool) -> np.ndarray:
    if classes:
        return np.where(map_HW == IGNORE, NO_CLASS, map_HW).astype(np.int16)
    return np.where(map_HW == UNMEASURED, np.nan, map_HW).astype(np.float32)
