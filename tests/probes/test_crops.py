"""A probe trained on random crops: which crops it sees, and that it goes on where it was."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pytest
import torch
from dense_pairs import StopAt
from torch import Tensor, nn

from raptor.config.analysis import ClassificationProbe
from raptor.data.ahead import Ahead
from raptor.probes.classification import Features, fit_probe
from raptor.probes.crops import RandomCrops
from raptor.training import loop
from raptor.training.checkpoint import Checkpoint
from raptor.training.epochs import Batch

CONFIG = ClassificationProbe(crops="random", epochs=3, batch_size=16, lr=1e-2, warmup_steps=2)
IMAGES, WIDTH, CLASSES = 40, 6, 3


@dataclass
class Images:
    """In place of a split: image i is i, and its crop is i and a number that its seed gives."""

    labels: np.ndarray
    asked: list[tuple[int, int]] = field(default_factory=list)

    def images(self, indices, seeds) -> Tensor:
        self.asked += zip(indices, seeds, strict=True)
        drawn = [np.random.default_rng(seed).normal() for seed in seeds]
        return torch.tensor([[index, draw] for index, draw in zip(indices, drawn, strict=True)])


def split() -> Images:
    return Images(np.random.default_rng(0).integers(CLASSES, size=IMAGES))


def features(pixels: Tensor) -> np.ndarray:
    """As of a model: a vector for each image, moved by its crop."""
    centres = np.random.default_rng(1).normal(size=(IMAGES, WIDTH))
    moved = centres[pixels[:, 0].long()] + 0.1 * pixels[:, 1:].numpy()
    return moved.astype(np.float32)


def start() -> nn.Linear:
    torch.manual_seed(0)
    return nn.Linear(WIDTH, CLASSES)


VAL = Features.of(
    np.random.default_rng(2).normal(size=(9, WIDTH)).astype(np.float32), np.arange(9) % 3
)


def trained(read=features, checkpoint=None) -> tuple[nn.Linear, Images]:
    images = split()
    crops = RandomCrops(images, read, seed=4)
    probe = fit_probe(
        start=start(), train=crops, val=VAL, config=CONFIG, seed=0, checkpoint=checkpoint
    )
    return probe, images


def test_each_image_shows_another_crop_in_each_epoch():
    _, images = trained()
    assert len(images.asked) == 3 * IMAGES
    assert len({seed for _, seed in images.asked}) == 3 * IMAGES
    epochs = [images.asked[first : first + IMAGES] for first in (0, IMAGES, 2 * IMAGES)]
    assert all(sorted(index for index, _ in epoch) == list(range(IMAGES)) for epoch in epochs)


def test_a_crop_follows_from_seed_image_and_epoch():
    one, other = (RandomCrops(split(), features, seed) for seed in (4, 5))
    both, alone = Batch(1, [3, 8]), Batch(1, [8])
    assert torch.equal(one.batch(both)[1:], one.batch(alone))
    assert not torch.equal(one.batch(both), other.batch(both))
    assert not torch.equal(one.batch(both), one.batch(Batch(2, [3, 8])))


def test_the_same_crops_are_learnt_as_kept_features_are():
    """Where every crop of an image is the same, the probe is the one trained on features."""
    still = lambda pixels: features(torch.stack([pixels[:, 0], torch.zeros(len(pixels))], dim=1))
    probe, images = trained(still)
    everything = torch.arange(IMAGES).double()
    inputs = still(torch.stack([everything, everything], dim=1))
    kept = Features.of(inputs, images.labels)
    expected = fit_probe(start=start(), train=kept, val=VAL, config=CONFIG, seed=0)
    assert torch.equal(probe.weight, expected.weight)
    assert not torch.equal(probe.weight, trained()[0].weight)


@pytest.mark.parametrize("call", [1, 4, 8])  # of 9 steps, in the first epoch and later
def test_an_interrupted_training_goes_on_to_the_same_probe(tmp_path, monkeypatch, call):
    monkeypatch.setattr(loop, "SAVE_SECONDS", 0.0)
    checkpoint = Checkpoint(tmp_path, "one")
    with pytest.raises(SystemExit):
        trained(StopAt(features, call), checkpoint)
    probe, images = trained(features, checkpoint)
    assert 0 < len(images.asked) < 3 * IMAGES
    expected, _ = trained()
    assert torch.equal(probe.weight, expected.weight)
    assert torch.equal(probe.bias, expected.bias)


def test_what_follows_is_made_while_the_present_is_used():
    made = []
    ahead = Ahead(lambda request: made.append(request) or 10 * request)
    assert ahead.take(1, 2) == 10
    assert ahead.take(2, 3) == 20
    assert ahead.take(5, None) == 50  # another one than was said: 3 was made for nothing
    assert ahead.take(6, None) == 60
    assert made == [1, 2, 3, 5, 6]


def test_what_goes_wrong_ahead_is_said_when_it_is_asked_for():
    def make(request):
        if request == 2:
            raise ValueError("two")
        return request

    ahead = Ahead(make)
    assert ahead.take(1, 2) == 1
    with pytest.raises(ValueError, match="two"):
        ahead.take(2, 3)
