"""What is said of every pixel, set beside the truth: measures of the dense probes (paper §6)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor
from torchvision.transforms.v2 import InterpolationMode
from torchvision.transforms.v2 import functional as transform

from raptor.config.dense import DepthProbe, SegmentationProbe
from raptor.data.pairs import IGNORE, UNMEASURED
from raptor.errors import RaptorError

NATIVE = (480, 640)  # height and width of NYU Depth v2
EIGEN_ROWS, EIGEN_COLUMNS = slice(45, 471), slice(41, 601)  # the ends are not in it
DELTA1 = 1.25

Said = Callable[[Sequence[int]], Tensor]  # height and width -> what is said of each pixel, (H, W)


class SegmentationScores:
    """`miou`, `miou_authors`, `pixel_accuracy` in [0, 1], and `n_test` images.

    Over the pixels of all images together. `miou` and `pixel_accuracy` at each image's own size,
    `miou` over the classes that are in the truth or in what is said. `miou_authors` as the
    authors' code has it: at the size of the input, against classes resized to it, and over all
    classes, one that is in neither counted as 0. The paper does not say (§Method 6); on the whole
    test split of ADE20K every class is there.
    """

    def __init__(self, classes: int, config: SegmentationProbe) -> None:
        self._own_CC, self._resized_CC = torch.zeros(2, classes, classes, dtype=torch.int64)
        self._size = [config.image_size, config.image_size]
        self._images = 0

    def add(self, said: Said, classes_HW: Tensor) -> None:
        """One image, and the class that is said of each pixel."""
        classes = len(self._own_CC)
        self._own_CC += confusion(said(classes_HW.shape), classes_HW, classes)
        small_HW = resized_classes(classes_HW, self._size)
        self._resized_CC += confusion(said(self._size), small_HW, classes)
        self._images += 1

    def summary(self) -> dict[str, float]:
        right, pixels = int(self._own_CC.diagonal().sum()), int(self._own_CC.sum())
        return {
            "miou": float(iou(self._own_CC).nanmean()),
            "miou_authors": float(iou(self._resized_CC).nan_to_num(nan=0.0).mean()),
            "pixel_accuracy": right / max(pixels, 1),
            "n_test": self._images,
        }


class DepthScores:
    """`rmse_m`, `rmse_pooled_m`, `abs_rel`, `delta1` and `n_test` images.

    At each image's own size, over measured pixels inside `config.crop`. `rmse_pooled_m` is over
    the pixels of all images together, as the authors' code has it; the others are means over
    images, as numbers of NYU Depth v2 are often given. An image without a measured pixel is left
    out.
    """

    def __init__(self, origin: str, config: DepthProbe) -> None:
        self._origin, self._eigen = origin, config.crop == "eigen"
        self._rows: list[dict[str, float]] = []

    def add(self, said: Said, depth_HW: Tensor) -> None:
        """One image, and the metres that are said of each pixel."""
        predicted_HW = said(depth_HW.shape)
        if self._eigen:
            predicted_HW, depth_HW = (
                eigen_crop(depth, self._origin) for depth in (predicted_HW, depth_HW)
            )
        self._rows.append(depth_errors(predicted_HW, depth_HW))

    def summary(self) -> dict[str, float]:
        table = {name: np.array([row[name] for row in self._rows]) for name in self._rows[0]}
        measured = table["pixels"] > 0
        means = dict.fromkeys(("rmse_m", "rmse_pooled_m", "abs_rel", "delta1"), float("nan"))
        if measured.any():
            table = {name: values[measured] for name, values in table.items()}
            means = {
                "rmse_m": float(np.sqrt(table["mse"]).mean()),
                "rmse_pooled_m": float(np.sqrt(np.average(table["mse"], weights=table["pixels"]))),
                "abs_rel": float(table["abs_rel"].mean()),
                "delta1": float(table["delta1"].mean()),
            }
        return {**means, "n_test": len(self._rows)}


def confusion(predicted_HW: Tensor, classes_HW: Tensor, classes: int) -> Tensor:
    """Pixels (C, C) by true class (row) and predicted class (column), without those of `IGNORE`."""
    counted = classes_HW != IGNORE
    cells = classes * classes_HW[counted] + predicted_HW[counted]
    return torch.bincount(cells, minlength=classes**2).view(classes, classes)


def iou(confusion_CC: Tensor) -> Tensor:
    """(C,) float64 in [0, 1], pixels of both over pixels of either; NaN of a class in neither."""
    inter_C = confusion_CC.diagonal().double()
    return inter_C / (confusion_CC.sum(dim=0) + confusion_CC.sum(dim=1) - inter_C)


def resized_classes(classes_HW: Tensor, size: Sequence[int]) -> Tensor:
    """The nearest pixel's class."""
    nearest = InterpolationMode.NEAREST_EXACT
    return transform.resize(classes_HW[None], list(size), interpolation=nearest)[0]


def eigen_crop(depth_HW: Tensor, origin: str = "a depth map") -> Tensor:
    """Rows 45 to 470, columns 41 to 600 (Eigen et al. 2014); RaptorError for another size."""
    if depth_HW.shape != NATIVE:
        raise RaptorError(
            f"{origin}: the Eigen crop is of 480 × 640 pixels, here are "
            f"{depth_HW.shape[0]} × {depth_HW.shape[1]}; give crop: none"
        )
    return depth_HW[EIGEN_ROWS, EIGEN_COLUMNS]


def depth_errors(predicted_HW: Tensor, depth_HW: Tensor) -> dict[str, float]:
    """Of one image, over its measured `pixels`: `mse` (m²), `abs_rel`, `delta1` in [0, 1].

    `delta1`: the share of pixels where the larger depth is less than 1.25 times the smaller.
    """
    measured = depth_HW > UNMEASURED
    found, true = predicted_HW[measured].double(), depth_HW[measured].double()
    ratio = torch.maximum(found / true, true / found)
    return {
        "pixels": len(true),
        "mse": float((found - true).square().mean()),
        "abs_rel": float(((found - true).abs() / true).mean()),
        "delta1": float((ratio < DELTA1).double().mean()),
    }
