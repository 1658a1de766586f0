"""ADE20K: 0 is ignored, 1 to 150 become 0 to 149."""

import numpy as np
import pytest
import torch
from official import picture, write_ade20k
from PIL import Image

from raptor.config.data import DataConfig, Splits
from raptor.data.dense import IGNORE, open_dense
from raptor.errors import RaptorError


def config(root):
    splits = Splits(train=2, val=2, test=2)
    return DataConfig(root={"ade20k": str(root)}, splits=splits, mean=[0.0], std=[1.0])


def test_pairs(tmp_path):
    write_ade20k(tmp_path)
    train = open_dense(config(tmp_path), "ade20k", "train")
    assert train.sample_ids == [f"images/training/ADE_train_0000000{i}.jpg" for i in (1, 2)]
    assert (len(train), len(train.class_names)) == (2, 150)
    assert (train.class_names[0], train.class_names[149]) == (
        "class 1, also 1x",
        "class 150, also 150x",
    )
    image, target = train.pair(0)
    assert (image.dtype, image.shape) == (torch.uint8, (3, 2, 3))
    assert (image.float().mean(dim=(1, 2)) - torch.tensor([200.0, 100, 50])).abs().max() < 4
    assert target.dtype == torch.int64
    assert target.tolist() == [[255, 0, 1], [149, 149, 12]]
    assert train.pair(1)[1].unique().tolist() == [6]
    test = open_dense(config(tmp_path), "ade20k", "test")
    assert test.sample_ids == ["images/validation/ADE_val_00000001.jpg"]
    assert test.pair(0)[1].tolist() == [[2, IGNORE]]


def test_a_palette_or_a_grey_photograph_changes_no_class(tmp_path):
    write_ade20k(tmp_path)
    path = tmp_path / "annotations/validation/ADE_val_00000001.png"
    coloured = Image.open(path).convert("P")
    coloured.putpalette(list(range(256)) * 3)
    coloured.putdata([3, 0])
    coloured.save(path)
    Image.new("L", (2, 1), 80).save(tmp_path / "images/validation/ADE_val_00000001.jpg")
    image, target = open_dense(config(tmp_path), "ade20k", "test").pair(0)
    assert target.tolist() == [[2, IGNORE]]
    assert image.tolist() == [[[80, 80]]] * 3


def save(array, path):
    Image.fromarray(array).save(path)


MAP, INFO = "annotations/training/ADE_train_00000001.png", "objectInfo150.txt"


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda r: (r / MAP).unlink(), "ADE_train_00000001 is in one of them only"),
        (
            lambda r: picture(r / "images/training/new.jpg", (0, 0, 0)),
            "images/training and .*annotations/training.*new is in one of them only",
        ),
        (lambda r: (r / "images/training").rename(r / "gone"), "images/training: cannot be listed"),
        (lambda r: (r / INFO).unlink(), "objectInfo150.txt: cannot be read as the table"),
        (lambda r: (r / INFO).write_text("head\n1\tone\n"), "does not list the classes 1 to 150"),
        (lambda r: (r / INFO).write_text("head\none\n"), "objectInfo150.txt: cannot be read"),
    ],
)
def test_faults_of_the_folder(tmp_path, damage, message):
    damage(write_ade20k(tmp_path))
    with pytest.raises(RaptorError, match=message) as error:
        open_dense(config(tmp_path), "ade20k", "train")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda p: p.write_bytes(p.read_bytes()[:50]), "cannot be decoded as an image"),
        (lambda p: p.write_bytes(b""), "is empty"),
        (lambda p: save(np.full((2, 3), 151, np.uint8), p), "is no map of classes 0 to 150"),
        (lambda p: save(np.zeros((2, 3, 3), np.uint8), p), "is no map of classes"),
        (lambda p: save(np.zeros((2, 3), np.uint16), p), "is no map of classes"),
        (lambda p: save(np.zeros((3, 2), np.uint8), p), "is 2 × 3 pixels, its image .* 3 × 2"),
    ],
)
def test_faults_of_a_map(tmp_path, damage, message):
    path = write_ade20k(tmp_path) / MAP
    damage(path)
    split = open_dense(config(tmp_path), "ade20k", "train")
    with pytest.raises(RaptorError, match=message) as error:
        split.pair(0)
    assert str(error.value).startswith(f"{path}: ")


def test_no_folder(tmp_path):
    with pytest.raises(RaptorError, match=r"nowhere does not exist; give the one of ade20k there"):
        open_dense(config(tmp_path / "nowhere"), "ade20k", "train")
