"""The trivial answer to a dense probe: the same for every pixel, whatever the image."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import torch

from raptor.config.dense import DepthProbe, SegmentationProbe
from raptor.data.dense import DenseTask
from raptor.data.pairs import IGNORE, UNMEASURED, DenseSplit, in_order
from raptor.files import replacing
from raptor.probes.dense_scores import DepthScores, SegmentationScores

TITLE = "the same answer everywhere"


def measure_constant(*, task: DenseTask, output: Path) -> None:
    """Write one row: what a probe that has seen no image reaches on the test split.

    `answer`, `n_train` and the measures of the probe. Its answer is the class that most pixels
    have, or the mean depth of all measured pixels, of the images that the probe is trained on.
    """
    train, test = task.split("train"), task.split("test")
    images = task.probe.trained_on(len(train))
    measure = _class if isinstance(task.probe, SegmentationProbe) else _depth
    row = {"model": "constant", "n_train": images, **measure(train, images, test, task.probe)}
    with replacing(output) as temporary:
        table = pd.DataFrame([row])
        table.to_csv(temporary, index=False, lineterminator="\n", float_format="%.12g")


def _class(
    train: DenseSplit, images: int, test: DenseSplit, config: SegmentationProbe
) -> dict[str, object]:
    classes = len(test.class_names)
    pixels_C = torch.zeros(classes, dtype=torch.int64)
    for pairs in in_order(train, TITLE, images):
        for _, classes_HW in pairs:
            pixels_C += torch.bincount(classes_HW[classes_HW != IGNORE], minlength=classes)
    answer = int(pixels_C.argmax())
    scores = SegmentationScores(classes, config)
    for pairs in in_order(test, TITLE):
        for _, classes_HW in pairs:
            scores.add(lambda size: torch.full(tuple(size), answer), classes_HW)
    return {"answer": test.class_names[answer], **scores.summary()}


def _depth(
    train: DenseSplit, images: int, test: DenseSplit, config: DepthProbe
) -> dict[str, object]:
    metres = pixels = 0.0
    for pairs in in_order(train, TITLE, images):
        for _, depth_HW in pairs:
            measured = depth_HW[depth_HW > UNMEASURED].double()
            metres, pixels = metres + float(measured.sum()), pixels + len(measured)
    answer = metres / pixels if pixels else float("nan")
    scores = DepthScores(test.origin, config)
    for pairs in in_order(test, TITLE):
        for _, depth_HW in pairs:
            scores.add(lambda size: torch.full(tuple(size), answer), depth_HW)
    return {"answer": f"{answer:.2f} m", **scores.summary()}
