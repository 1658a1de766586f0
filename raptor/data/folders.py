"""Images in folders: one for each class, or one that holds images without labels."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from raptor.data.files import SUFFIXES, list_folders, list_images
from raptor.data.pools import UNLABELLED, FilePool
from raptor.errors import RaptorError

_OFFICIAL = {"train", "val", "test"}
_SPLITS = ("train", "val", "test")


def folder_pools(root: Path) -> dict[str, str]:
    """Split -> name of the pool it is drawn from: the folders `train`, `val`, `test`, or `all`."""
    folders = set(list_folders(root))
    # A class may be called train: then it holds images, and has other classes beside it.
    if "train" not in folders or not (list_folders(root / "train") or folders <= _OFFICIAL):
        return dict.fromkeys(_SPLITS, "all")
    held_out = [name for name in ("val", "test") if name in folders]
    match held_out:
        case []:
            return dict.fromkeys(_SPLITS, "train")
        case [only]:
            return {"train": "train", "val": "train", "test": only}
    return {"train": "train", "val": "val", "test": "test"}


def image_folder(root: Path, name: str) -> FilePool:
    """The pool `name`: class folders, or images without labels that lie in the folder itself."""
    folder, training = (root, root) if name == "all" else (root / name, root / "train")
    class_names = list_folders(training)
    if class_names or list_folders(folder):
        return class_folders(root, folder, class_names, training)
    images = list_images(folder, nested=False)
    if not images:
        raise RaptorError(
            f"{folder}: has no class folders and no images ({SUFFIXES}); put the images of each "
            "class in a folder of its own, or all of them there if they have no labels"
        )
    labels = np.full(len(images), UNLABELLED, dtype=np.int64)
    return FilePool(str(folder), root, labels, _below(root, folder, images), [])


def class_folders(root: Path, folder: Path, class_names: list[str], training: Path) -> FilePool:
    """The images of `folder`, in class folders that are among `class_names`.

    The training folder decided which classes there are, and which label each has.
    """
    present = list_folders(folder)
    if not present:
        raise RaptorError(
            f"{folder}: has no class folders; put the images of each class in a folder of its own, "
            f"as in {training}"
        )
    label_of = {name: label for label, name in enumerate(class_names)}
    images: list[str] = []
    labels: list[int] = []
    for name in present:
        if name not in label_of:
            raise RaptorError(
                f"{folder / name}: class folder {name} is not among those of {training}; "
                "use the same class folders in both"
            )
        found = list_images(folder / name)
        if not found:
            raise RaptorError(
                f"{folder / name}: class folder with no images ({SUFFIXES}); "
                "add some or remove the folder"
            )
        images += (f"{name}/{image}" for image in found)
        labels += [label_of[name]] * len(found)
    sample_ids = _below(root, folder, images)
    return FilePool(str(folder), root, np.array(labels, dtype=np.int64), sample_ids, class_names)


def _below(root: Path, folder: Path, images: list[str]) -> list[str]:
    """Paths relative to `folder` -> relative to `root`."""
    return images if folder == root else [f"{folder.name}/{image}" for image in images]
