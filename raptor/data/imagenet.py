"""ImageNet-1k (ILSVRC 2012), as its archives unpack.

    train/n01440764/*.JPEG             a folder for each class, named by its WordNet id (wnid)
    val/n01440764/*.JPEG               the same, or
    val/ILSVRC2012_val_00000001.JPEG   as published: no folders, and labels in the devkit
    ILSVRC2012_devkit_t12/data/        needed in that case; otherwise it only names the classes

The label of a class is the rank of its wnid, which is what published heads use. The devkit numbers
its classes (`ILSVRC2012_ID`) in another order.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

import numpy as np

from raptor.data.files import list_folders, list_images
from raptor.data.folders import class_folders
from raptor.data.matlab import read_mat
from raptor.data.pools import FilePool
from raptor.errors import RaptorError

_DEVKIT = Path("ILSVRC2012_devkit_t12", "data")


class Synset(NamedTuple):
    """A class: its wnid, and the words for it."""

    wnid: str
    words: str


def imagenet(root: Path, name: str) -> FilePool:
    """The pool `train`, or `test`: the official validation images, which are the benchmark."""
    training = root / "train"
    wnids = _wnids(training)
    folder = training if name == "train" else _there(root / "val", "ILSVRC2012_img_val.tar")
    if list_folders(folder):
        pool = class_folders(root, folder, wnids, training)
    else:
        pool = _official_val(root, folder, wnids)
    return FilePool(pool.origin, root, pool.labels, pool.sample_ids, _class_names(root, wnids))


def _there(folder: Path, archive: str) -> Path:
    if not folder.is_dir():
        raise RaptorError(f"{folder}: no such folder; unpack {archive} there")
    return folder


def _wnids(training: Path) -> list[str]:
    """The class folders of the training images; the rank of each is its label."""
    folders = list_folders(_there(training, "ILSVRC2012_img_train.tar"))
    if not folders:
        raise RaptorError(
            f"{training}: has no class folders; unpack ILSVRC2012_img_train.tar there, and each "
            "n*.tar of it into a folder of its name"
        )
    strange = [name for name in folders if not re.fullmatch(r"n\d{8}", name)]
    if strange:
        raise RaptorError(
            f"{training / strange[0]}: is no class of ImageNet (n and 8 digits), and would shift "
            "the labels of the others; move it away"
        )
    return folders


def _class_names(root: Path, wnids: list[str]) -> list[str]:
    """`n01440764 tench, Tinca tinca`; the wnid alone without a devkit, or for a class not in it."""
    path = root / _DEVKIT / "meta.mat"
    words = dict(_synsets(path).values()) if path.is_file() else {}
    return [f"{wnid} {words[wnid]}" if wnid in words else wnid for wnid in wnids]


def _official_val(root: Path, folder: Path, wnids: list[str]) -> FilePool:
    """Images without folders; the i-th line of the ground truth is of image i, from 1."""
    truth = root / _DEVKIT / "ILSVRC2012_validation_ground_truth.txt"
    synsets, ids = _synsets(root / _DEVKIT / "meta.mat"), _ground_truth(truth)
    images = list_images(folder, nested=False)
    expected = [f"ILSVRC2012_val_{number:08d}.JPEG" for number in range(1, len(ids) + 1)]
    if images != expected:
        one = min(set(images) ^ set(expected))
        what = "is no image that it labels" if one in images else "is missing"
        raise RaptorError(
            f"{folder / one}: {what}, {truth.name} labels {len(ids)} images; unpack "
            "ILSVRC2012_img_val.tar into a folder of its own"
        )
    label_of = {wnid: label for label, wnid in enumerate(wnids)}
    labels = []
    for line, one in enumerate(ids, start=1):
        if one not in synsets:
            raise RaptorError(
                f"{truth}: line {line} says class {one}, which meta.mat does not have; "
                "replace both with the originals"
            )
        wnid = synsets[one].wnid
        if wnid not in label_of:
            raise RaptorError(
                f"{root / 'train' / wnid}: no such class folder, image {expected[line - 1]} is of "
                "that class; unpack all of ILSVRC2012_img_train.tar"
            )
        labels.append(label_of[wnid])
    sample_ids = [f"{folder.name}/{image}" for image in images]
    return FilePool(str(folder), root, np.array(labels, dtype=np.int64), sample_ids, wnids)


def _synsets(path: Path) -> dict[int, Synset]:
    """ILSVRC2012_ID -> class, of those with images: the leaves of the hierarchy in meta.mat."""
    (table,) = read_mat(path, "synsets")
    try:
        rows = np.atleast_1d(table)[["ILSVRC2012_ID", "WNID", "words", "num_children"]]
        return {
            int(number): Synset(str(wnid), str(words))
            for number, wnid, words, children in rows
            if not children
        }
    except (KeyError, IndexError, TypeError, ValueError):
        raise RaptorError(
            f"{path}: synsets lacks ILSVRC2012_ID, WNID, words or num_children; replace it with "
            "the one of ILSVRC2012_devkit_t12.tar.gz"
        ) from None


def _ground_truth(path: Path) -> list[int]:
    try:
        return [int(line) for line in path.read_text().split()]
    except OSError as error:
        reason = error.strerror
    except ValueError as error:  # text that is no number, or bytes that are no text
        reason = str(error)
    raise RaptorError(
        f"{path}: cannot be read as one number a line ({reason}); unpack "
        "ILSVRC2012_devkit_t12.tar.gz beside the images, or sort them into class folders"
    )
