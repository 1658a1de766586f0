"""NYU Depth v2, in either of two layouts: pairs of files, or the labelled set in one.

    data/nyu2_train.csv, data/nyu2_test.csv        two paths a line, image and depth, from the
                                                   folder that holds data/
    nyu_depth_v2_labeled.mat and splits.mat        1,449 images, 795 to train and 654 to test

Where both are there, the files are read: they have 50,688 training images. Their depth is scaled
in two ways, 8 bits for 0 to 10 m in training, 16 bits in mm in the test set.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from raptor.data.files import opened
from raptor.data.matlab import read_mat
from raptor.data.pairs import UNMEASURED, DenseName, DenseSplit, FilePairs
from raptor.errors import RaptorError, first_line

_METRES_OF_A_BYTE = 10 / 255
_METRES_OF_A_MILLIMETRE = 1 / 1000
_MATLAB, _INDICES = "nyu_depth_v2_labeled.mat", {"train": "trainNdxs", "test": "testNdxs"}


def nyuv2(root: Path, split: DenseName) -> DenseSplit:
    """The official training or test images with their depth."""
    table = root / "data" / f"nyu2_{split}.csv"
    if table.is_file():
        return _listed(root, table, read_byte_depth if split == "train" else read_mm_depth)
    if (root / _MATLAB).is_file():
        (numbers,) = read_mat(root / "splits.mat", _INDICES[split])
        return LabelledPairs.open(root / _MATLAB, np.atleast_1d(numbers))
    raise RaptorError(
        f"{root}: holds neither data/{table.name} nor {_MATLAB}; put one of them there, with the "
        "images of the first or the splits.mat of the second"
    )


# --- image files ---------------------------------------------------------------------------------


def _listed(root: Path, table: Path, read_depth: Callable[[Path], torch.Tensor]) -> FilePairs:
    try:
        rows = [
            [cell.strip() for cell in row] for row in csv.reader(table.read_text().splitlines())
        ]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise RaptorError(f"{table}: cannot be read ({error}); download it again") from None
    for line, row in enumerate(rows, start=1):
        if len(row) != 2 or not all(row):
            raise RaptorError(
                f"{table}: line {line} is not the path of an image and the path of its depth; "
                "replace it with the original"
            )
    if not rows:
        raise RaptorError(f"{table}: is empty; download it again")
    images, depths = zip(*rows, strict=True)
    return FilePairs(str(table), root, images, depths, read_depth)


def read_byte_depth(path: Path) -> torch.Tensor:
    """(H, W) float32 metres of a training map: 255 stands for 10 m."""
    return _metres(path, _METRES_OF_A_BYTE, "8 bits", ["L"])


def read_mm_depth(path: Path) -> torch.Tensor:
    """(H, W) float32 metres of a test map, in mm."""
    # Pillow before 11 gives 16 bits as 32.
    return _metres(path, _METRES_OF_A_MILLIMETRE, "16 bits", ["I;16", "I"])


def _metres(path: Path, unit: float, bits: str, modes: list[str]) -> torch.Tensor:
    with opened(path) as image:
        mode, values = image.mode, np.array(image)
    if mode not in modes:
        raise RaptorError(
            f"{path}: is no map of depth in {bits}, as this split has them; replace it with the "
            "original"
        )
    return torch.from_numpy(values.astype(np.float32) * np.float32(unit))


# --- the labelled set ----------------------------------------------------------------------------


@dataclass(frozen=True)
class LabelledPairs:
    """Pairs in the labelled .mat; MATLAB stores it column by column, so that axes are reversed."""

    path: Path
    rows: np.ndarray  # (N,) of the images, from 0
    sample_ids: Sequence[str]
    class_names: list[str] = field(default_factory=list)

    @property
    def origin(self) -> str:
        return str(self.path)

    @classmethod
    def open(cls, path: Path, numbers: np.ndarray) -> LabelledPairs:
        """Of the images with these numbers, which count from 1."""
        with _variables(path) as (images, depths):
            shape, depth_shape = images.shape, depths.shape
            count = len(images)
        if shape[1:2] != (3,) or depth_shape != shape[:1] + shape[2:]:
            raise RaptorError(
                f"{path}: images is {shape} and depths {depth_shape}, not (N, 3, W, H) and "
                "(N, W, H); replace it with the original"
            )
        rows = numbers.astype(np.int64) - 1
        if not len(rows) or rows.min() < 0 or rows.max() >= count:
            raise RaptorError(
                f"{path.with_name('splits.mat')}: does not number images 1 to {count}, which "
                f"{path.name} has; replace both with the originals"
            )
        return cls(path, rows, [f"{path.stem}/{row + 1:04d}" for row in rows])

    def __len__(self) -> int:
        return len(self.rows)

    def pair(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        row = int(self.rows[index])
        with _variables(self.path) as (images, depths):
            image_CWH, depth_WH = images[row], depths[row]
        image_CHW = torch.from_numpy(image_CWH.astype(np.uint8)).mT.contiguous()
        depth_HW = torch.from_numpy(depth_WH.astype(np.float32)).mT.contiguous()
        measured = torch.isfinite(depth_HW) & (depth_HW > 0)
        return image_CHW, torch.where(measured, depth_HW, UNMEASURED)


@contextmanager
def _variables(path: Path) -> Iterator[list[Any]]:
    """`images` and `depths` of the file while it is open; damage is a `RaptorError` naming it."""
    import h5py  # scipy does not read MATLAB's version 7.3, which is HDF5

    try:
        # Opened for each pair: an open file must not be handed on to another process.
        with h5py.File(path, "r") as file:
            yield [file[name] for name in ("images", "depths")]
    except (OSError, KeyError) as error:
        raise RaptorError(
            f"{path}: cannot be read as the labelled NYU Depth v2 ({first_line(error)}); "
            "download it again"
        ) from None
