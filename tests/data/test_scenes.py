"""Scenes of digits: what is where, how far, and of which digits."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from raptor.config.data import DataConfig, Splits
from raptor.config.dense import ScenesConfig
from raptor.data.scenes import (
    BACKGROUND,
    FAR_M,
    NEAR_M,
    PLANE_BOTTOM_M,
    PLANE_TOP_M,
    Placed,
    open_scenes,
)
from raptor.data.split import open_split

DATA = DataConfig(splits=Splits(train=60, val=20, test=30), mean=[0.13], std=[0.31])
CONFIG = ScenesConfig(image_size=64, digits=5, train=12, test=4)


def scenes(split="train", target="classes", **keys):
    return open_scenes(DATA, CONFIG.model_copy(update=keys), split, target)


def test_what_a_pair_is():
    found = scenes()
    image, classes = found.pair(3)
    depth = scenes(target="depth").pair(3)[1]
    assert (len(found), len(scenes("test"))) == (12, 4)
    assert (image.dtype, image.shape) == (torch.uint8, (3, 64, 64))
    assert (classes.dtype, depth.dtype) == (torch.int64, torch.float32)
    assert classes.shape == depth.shape == (64, 64)
    assert found.class_names == ["background", *"0123456789"]
    assert scenes(target="depth").class_names == []
    assert len(set(found.sample_ids)) == 12


def test_the_same_scene_whenever_asked_for_and_another_one_otherwise():
    again, other = scenes(), scenes(seed=1)
    again.pair(5)
    for one, same in zip(scenes().pair(3), again.pair(3), strict=True):
        assert torch.equal(one, same)
    assert not torch.equal(again.pair(3)[0], again.pair(4)[0])
    assert not torch.equal(again.pair(3)[0], other.pair(3)[0])
    assert not torch.equal(again.pair(3)[0], scenes("test").pair(3)[0])


def test_a_scene_has_digits_of_its_own_split_alone():
    """Against the splits as a teacher sees them, at its own size and normalisation."""
    used = {}
    for split in ("train", "test"):
        found, own = scenes(split), open_split(DATA, split)
        indices = {one.digit for i in range(len(found)) for one in found.placed(i)}
        assert found.digits.sample_ids == own.sample_ids
        used[split] = {found.digits.sample_ids[index] for index in indices}
        assert len(used[split]) > 5
    assert not used["train"] & used["test"]


def test_classes_and_depths_are_those_of_the_digits_and_the_plane():
    found, depths = scenes(), scenes(target="depth")
    plane = 1 / np.linspace(1 / PLANE_TOP_M, 1 / PLANE_BOTTOM_M, 64)
    for index in range(len(found)):
        classes, depth = found.pair(index)[1].numpy(), depths.pair(index)[1].numpy()
        label_at = {
            np.float32(one.depth_m): 1 + int(found.digits.labels[one.digit])
            for one in found.placed(index)
        }
        background = classes == BACKGROUND
        expected = np.broadcast_to(plane[:, None], classes.shape)
        np.testing.assert_allclose(depth[background], expected[background], rtol=1e-5)
        assert ((depth[~background] >= NEAR_M) & (depth[~background] < FAR_M)).all()
        for label, metres in zip(classes[~background], depth[~background], strict=True):
            assert label_at[metres] == label
    assert depths.pair(0)[1][0, 0] == PLANE_TOP_M


def test_the_nearer_card_hides_the_farther_and_is_larger_and_brighter():
    found = scenes()
    labels = found.digits.labels
    other = int(np.flatnonzero(labels != labels[0])[0])
    far, near = Placed(0, 2.8, 10, 30, 20), Placed(other, 1.5, 4, 4, 37)
    image, classes, depth = found.render([far, near])
    alone, _, _ = found.render([near])
    hidden = (slice(4, 41), slice(4, 41))
    assert torch.equal(image[hidden], alone[hidden])
    assert (classes[hidden] == 1 + labels[other]).all()
    assert (depth[hidden] == 1.5).all()
    seen = (slice(10, 30), slice(41, 50))  # 9 of its 20 columns
    assert (classes[seen] == 1 + labels[0]).all()
    assert (classes == 1 + labels[0]).sum() == 20 * 9
    assert image[hidden].max() == 255
    assert found.render([far])[0][10:30, 30:50].max() == pytest.approx(255 * 1.5 / 2.8, abs=3)
    for index in range(len(found)):
        ordered = [(-one.depth_m, one.side) for one in found.placed(index)]
        assert ordered == sorted(ordered)
        assert all(one.side == round(28 * 2.0 / one.depth_m) for one in found.placed(index))


def test_a_digit_at_the_distance_of_reference_is_as_it_is():
    found = scenes()
    image, _, _ = found.render([Placed(7, 2.0, 30, 1, 28)])
    number = int(found.digits.sample_ids[7].split("/")[1])  # in the pool
    raw = open_split(DATA, "train").pool.images[number, 0]
    expected = raw.double() * 1.5 / 2.0
    assert (image[30:58, 1:29] - expected).abs().max() <= 0.5 + 1e-4
    empty, _, _ = found.render([])
    image[30:58, 1:29] = empty[30:58, 1:29]
    assert torch.equal(image, empty)
    assert (empty[0] == round(0.3 * 255 * 1.5 / 8.0)).all()


def test_whatever_the_data_scenes_are_of_embedded_digits():
    data = DATA.model_copy(update={"source": "cifar10", "channels": 3, "image_size": 32})
    train, test = (open_scenes(data, CONFIG, split, "depth") for split in ("train", "test"))
    assert (len(train.digits), len(test.digits)) == (3750, 1000)
    assert not set(train.digits.sample_ids) & set(test.digits.sample_ids)
    assert train.pair(0)[0].shape == (3, 64, 64)
