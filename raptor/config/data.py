"""`data`: which images, how many, and how they are normalised."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

from pydantic import BeforeValidator, Field

from raptor.config.fields import (
    NonNegativeInt,
    PositiveInt,
    PositiveReal,
    Real,
    Section,
    did_you_mean,
    given_path,
)

Several = Annotated[int, Field(ge=2)]  # one image has no spread, and no R²


class Splits(Section):
    """Number of images in each split, drawn without overlap by a seeded shuffle."""

    train: Several
    val: Several
    test: Several

    @property
    def total(self) -> int:
        return self.train + self.val + self.test


# Of the embedded digits, where they serve beside other images.
EMBEDDED = Splits(train=3750, val=250, test=1000)

FileSource = Literal[
    "fashion_mnist", "cifar10", "cifar100", "image_folder", "imagenet", "ade20k", "nyuv2"
]  # fmt: skip

# Where each source lies below the folder that RAPTOR_DATA names; `image_folder` is a user's own.
FOLDERS: dict[str, str] = {
    "fashion_mnist": "fashion-mnist",
    "cifar10": "cifar-10",
    "cifar100": "cifar-100",
    "imagenet": "imagenet",
    "ade20k": "ADEChallengeData2016",
    "nyuv2": "nyuv2",
}


def _paths(root: Any) -> Any:
    """ValueError, one sentence, where pydantic would explain each type of a union."""
    if root is None:
        return root
    if isinstance(root, str):
        return given_path(root)
    if not isinstance(root, dict):
        raise ValueError(f"{root!r}: give a path, or a map of source: path")
    for source, path in root.items():
        known = get_args(FileSource)
        if source not in known:
            hint = did_you_mean(source, known, f"choose from {list(known)}")
            raise ValueError(f"{source!r} is no source that reads files; {hint}")
        if not isinstance(path, str):
            raise ValueError(f"{source}: {path!r} is not a path")
        given_path(path)
    return root


class DataConfig(Section):
    """Images and labels.

    `digits` needs no file. The others read a folder: `fashion_mnist` one of the four IDX files,
    `cifar10`/`cifar100` torchvision's, `imagenet` one with `train` and `val`, `image_folder` one
    subfolder per class, or images without labels. `root` is that folder, or a map from sources to
    folders; a source that it does not give lies below the folder that RAPTOR_DATA names.
    """

    source: Literal[
        "digits", "fashion_mnist", "cifar10", "cifar100", "image_folder", "imagenet"
    ] = "digits"  # fmt: skip
    root: Annotated[str | dict[FileSource, str] | None, BeforeValidator(_paths)] = None
    image_size: PositiveInt = 28
    resize: PositiveInt | None = None  # the shorter side before the centre crop, else image_size
    channels: Literal[1, 3] = 1
    splits: Splits
    mean: list[Real] = Field(min_length=1, max_length=3)
    std: list[PositiveReal] = Field(min_length=1, max_length=3)
    seed: NonNegativeInt = 0

    def given(self, source: str) -> str | None:
        """The folder that `root` gives for `source`, if any."""
        if isinstance(self.root, dict):
            return self.root.get(source)
        return self.root if source == self.source else None

    def folder(self, source: FileSource) -> Path:
        """The folder of `source`: given by `root`, or below RAPTOR_DATA, or else below `data`."""
        below = Path(os.environ.get("RAPTOR_DATA") or "data", FOLDERS.get(source, ""))
        return Path(self.given(source) or below).expanduser()

    def only(self, source: str) -> DataConfig:
        """Which images of `source` there are and where, with all else at one value.

        So that what reads these alone follows from nothing else.
        """
        plain = {"mean": [0.0], "std": [1.0]}
        if source == "digits":
            own = self.source == "digits"
            return DataConfig(splits=self.splits if own else EMBEDDED, seed=self.seed, **plain)
        given = self.given(source)
        return DataConfig(splits=EMBEDDED, root={source: given} if given else None, **plain)
