"""ADE20K as in ADEChallengeData2016: 150 classes of pixels.

images/{training,validation}/*.jpg
annotations/{training,validation}/*.png   of the same names: 1..150 a class, 0 anything else
objectInfo150.txt                         a header, then a line for each class
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from raptor.data.files import list_images, opened
from raptor.data.pairs import IGNORE, DenseName, FilePairs
from raptor.errors import RaptorError

CLASSES = 150
_FOLDERS = {"train": "training", "test": "validation"}


def ade20k(root: Path, split: DenseName) -> FilePairs:
    """The official training images, or as `test` the official validation images."""
    images, annotations = (root / kind / _FOLDERS[split] for kind in ("images", "annotations"))
    names, maps = list_images(images), list_images(annotations)
    alone = set(_stems(names)) ^ set(_stems(maps))
    if alone or not names:
        where = f"{min(alone)} is in one of them only" if alone else "there are none"
        raise RaptorError(
            f"{images} and {annotations}: should hold an image and a map of each name, {where}; "
            "unpack ADEChallengeData2016.zip again"
        )
    return FilePairs(
        origin=str(images),
        root=root,
        sample_ids=[f"images/{images.name}/{name}" for name in names],
        targets=[f"annotations/{annotations.name}/{name}" for name in maps],
        read_target=read_classes,
        class_names=_class_names(root / "objectInfo150.txt"),
    )


def _stems(names: list[str]) -> list[str]:
    return [name.rsplit(".", 1)[0] for name in names]


def read_classes(path: Path) -> torch.Tensor:
    """(H, W) int64: 1..150 of the file become 0..149, and 0 becomes `IGNORE`."""
    with opened(path) as image:
        mode, values = image.mode, np.array(image)
    if mode not in ("L", "P") or values.max(initial=0) > CLASSES:
        raise RaptorError(
            f"{path}: is no map of classes 0 to {CLASSES}, one byte a pixel; replace it with the "
            "one of ADEChallengeData2016"
        )
    classes = torch.from_numpy(values.astype(np.int64))
    return torch.where(classes == 0, IGNORE, classes - 1)


def _class_names(path: Path) -> list[str]:
    """The last column of a table whose first is the number of the class, columns split by tabs."""
    try:
        rows = [line.split("\t") for line in path.read_text().splitlines()[1:] if line.strip()]
        numbers = [int(row[0]) for row in rows]
    except (OSError, ValueError) as error:
        raise RaptorError(
            f"{path}: cannot be read as the table of the classes ({error}); unpack "
            "ADEChallengeData2016.zip again"
        ) from None
    if numbers != list(range(1, CLASSES + 1)):
        raise RaptorError(
            f"{path}: does not list the classes 1 to {CLASSES} in order; unpack "
            "ADEChallengeData2016.zip again"
        )
    return [row[-1].strip() for row in rows]
