"""Splits: their sizes, order, normalisation, and that they never overlap."""

import numpy as np
import pytest
import torch
from PIL import Image
from torchvision.transforms import v2
from torchvision.transforms.v2 import functional as transform

from raptor.config.data import DataConfig, Splits
from raptor.data import open_split
from raptor.errors import RaptorError

NAMES = ("train", "val", "test")


def digits(train=40, val=15, test=15, **keys):
    keys = {"mean": [0.1307], "std": [0.3081], **keys}
    return DataConfig(splits=Splits(train=train, val=val, test=test), **keys)


def ids(config):
    return {name: open_split(config, name).sample_ids for name in NAMES}


def test_splits_do_not_overlap_and_do_not_change():
    first, again = ids(digits()), ids(digits())
    assert first == again
    assert [len(first[name]) for name in NAMES] == [40, 15, 15]
    assert len(set().union(*first.values())) == 70
    assert ids(digits(seed=1)) != first


def test_more_training_images_move_no_other():
    few, many = ids(digits(train=40)), ids(digits(train=400))
    assert (few["val"], few["test"]) == (many["val"], many["test"])
    assert many["train"][:40] == few["train"]


def test_every_class_is_drawn():
    split = open_split(digits(train=400), "train")
    assert np.bincount(split.labels, minlength=10).min() > 20  # 40 expected, the file is sorted


def test_an_item_is_the_normalised_image_and_its_label():
    config = digits()
    raw = open_split(digits(mean=[0.0], std=[1.0]), "val")
    split = open_split(config, "val")
    image, label = split[3]
    assert image.shape == (1, 28, 28)
    assert image.dtype == torch.float32
    assert type(label) is int
    assert label == split.labels[3]
    assert split.labels.dtype == np.int64
    torch.testing.assert_close(image, (raw[3][0] - 0.1307) / 0.3081)
    batch = split.images([5, 3, 3])
    assert batch.shape == (3, 1, 28, 28)
    assert torch.equal(batch[1], image)
    assert torch.equal(split.images(np.array([5, 3, 3])), batch)
    assert torch.equal(split.images(torch.tensor([5, 3, 3])), batch)
    assert torch.equal(torch.stack([image for image, _ in split]), split.images(range(15)))


def test_channels_and_size():
    grey = open_split(digits(mean=[0.0], std=[1.0]), "val").images([0, 1])
    colour = digits(channels=3, mean=[0.1, 0.2, 0.3], std=[0.5, 0.6, 0.7], image_size=56)
    images = open_split(colour, "val").images([0, 1])
    pixels = transform.resize((grey * 255).round().to(torch.uint8), [56], antialias=True)
    assert images.shape == (2, 3, 56, 56)
    for channel, (mean, std) in enumerate(zip(colour.mean, colour.std, strict=True)):
        torch.testing.assert_close(images[:, channel], (pixels[:, 0] / 255 - mean) / std)


def test_resize_comes_before_the_crop():
    """224 of 256, as ImageNet is evaluated, at an eighth: 28 of 32 cuts 2 pixels off each side."""

    def images(**keys):
        return open_split(digits(mean=[0.0], std=[1.0], **keys), "val").images([0, 1])

    cut = images(image_size=28, resize=32)
    assert torch.equal(cut, images(image_size=32)[:, :, 2:30, 2:30])
    assert not torch.equal(cut, images(image_size=28))
    assert torch.equal(images(image_size=28, resize=28), images(image_size=28))


def test_first_images():
    split = open_split(digits(), "train")
    first = split.first(7)
    assert len(first) == 7
    assert first.sample_ids == split.sample_ids[:7]
    assert torch.equal(first.images(range(7)), split.images(range(7)))


def test_too_few_images():
    message = (
        r"data\.splits\.train \+ data\.splits\.val \+ data\.splits\.test: 5030 images asked "
        r"for, there are 5000 \(all\) in the embedded digits"
    )
    with pytest.raises(RaptorError, match=message):
        open_split(digits(train=5000), "val")


def test_random_crops_are_torchvisions_by_the_seed_of_each_image():
    config = digits(mean=[0.0], std=[1.0], channels=3, image_size=24)
    config = config.model_copy(update={"mean": [0.0] * 3, "std": [1.0] * 3})
    split, whole = open_split(config, "train"), open_split(digits(mean=[0.0], std=[1.0]), "train")
    torch.manual_seed(5)
    expected_next = torch.rand(3)
    torch.manual_seed(5)
    found = split.images([4, 7, 4], seeds=[1, 2, 1])
    assert torch.equal(torch.rand(3), expected_next)  # torch's own generator is where it was
    assert torch.equal(found[0], found[2])
    assert torch.equal(found[1], split.images([7], seeds=[2])[0])  # whatever stands beside it
    assert not torch.equal(found[0], split.images([4], seeds=[3])[0])
    pixels = (whole.images([4])[0] * 255).round().to(torch.uint8).expand(3, -1, -1)
    torch.manual_seed(1)
    cropped = v2.RandomHorizontalFlip()(v2.RandomResizedCrop(24)(pixels))
    torch.testing.assert_close(found[0], cropped / 255)


def test_random_crops_reach_the_corners_and_half_are_flipped(tmp_path):
    """Of an image that is dark on the left, by files: which side is dark says what was done."""
    (tmp_path / "a").mkdir()
    for name in range(8):
        pixels = np.zeros((60, 90, 3), dtype=np.uint8)
        pixels[:, 45:] = 255
        Image.fromarray(pixels).save(tmp_path / "a" / f"{name}.png")
    splits = Splits(train=4, val=2, test=2)
    config = DataConfig(
        source="image_folder", root=str(tmp_path), image_size=30, channels=3, splits=splits,
        mean=[0.0] * 3, std=[1.0] * 3,
    )  # fmt: skip
    split = open_split(config, "train")
    crops = split.images([0, 1, 2, 3] * 100, seeds=range(400))
    rows = crops.mean(dim=(1, 2))  # (400, 30)
    both = (rows.amin(dim=1) < 0.1) & (rows.amax(dim=1) > 0.9)
    flipped = (rows[:, 0] > rows[:, -1])[both].double().mean()
    assert 0.4 < flipped < 0.6
    assert (rows.mean(dim=1) < 0.01).any()  # from one side alone, as small crops are
    assert (rows.mean(dim=1) > 0.99).any()
    assert torch.equal(split.images([0])[0], split.images([1])[0])  # without seeds: the centre
