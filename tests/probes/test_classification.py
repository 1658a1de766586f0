"""The linear probe on features whose answer is known."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from raptor.config.analysis import ClassificationProbe
from raptor.probes.classification import Features, fit_probe, initial_probe, predict, top1

CLASSES, WIDTH = 4, 6
CONFIG = ClassificationProbe(epochs=8, batch_size=32, lr=5e-2, warmup_steps=5)


def separable(images: int, seed: int) -> Features:
    """One planted direction per class, far beyond the noise; features count 2 × WIDTH."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(CLASSES, size=images)
    centres = 3 * np.eye(CLASSES, 2 * WIDTH)
    inputs = centres[labels] + 0.2 * rng.normal(size=(images, 2 * WIDTH))
    return Features.of(inputs.astype(np.float32), labels)


@pytest.fixture
def blank() -> nn.Linear:
    return initial_probe(None, width=WIDTH, features=2 * WIDTH, classes=CLASSES)


def fit(start: nn.Linear, *, seed: int = 0, **overrides) -> nn.Linear:
    arguments = {"train": separable(200, 1), "val": separable(80, 2), "config": CONFIG}
    return fit_probe(start=start, seed=seed, **{**arguments, **overrides})


def test_separable_classes_are_all_found(blank):
    test = separable(300, 3)
    assert top1(predict(blank, test), test.labels) < 0.5
    assert top1(predict(fit(blank), test), test.labels) == 1.0


def test_same_seed_same_probe_and_the_start_is_left_alone(blank):
    first, second, other = fit(blank), fit(blank), fit(blank, seed=1)
    assert torch.equal(first.weight, second.weight)
    assert not torch.equal(first.weight, other.weight)
    assert not blank.weight.any()


def test_the_epoch_kept_is_the_best_on_val_with_the_start_as_epoch_zero(blank):
    good = fit(blank)
    shuffled = separable(200, 1)
    wrong = Features(shuffled.inputs, (shuffled.labels + 1) % CLASSES)
    kept = fit(good, train=wrong)
    assert torch.equal(kept.weight, good.weight)  # training on wrong labels only made it worse


def test_a_single_step_is_that_of_adamw_by_hand(blank):
    train = separable(32, 4)
    config = ClassificationProbe(epochs=1, batch_size=32, lr=1e-2, warmup_steps=1, weight_decay=0.1)
    start = initial_probe(
        nn.Linear(WIDTH, CLASSES), width=WIDTH, features=2 * WIDTH, classes=CLASSES
    )
    probe = fit(start, train=train, val=train, config=config)
    weight = start.weight.detach().clone().requires_grad_()
    bias = start.bias.detach().clone().requires_grad_()
    F.cross_entropy(train.inputs @ weight.T + bias, train.labels).backward()
    for found, value in ((probe.weight, weight), (probe.bias, bias)):
        # First step of Adam: both moments reduce to the gradient, so it moves by lr · sign.
        move = value.grad / (value.grad.abs() + 1e-8)
        expected = value.detach() * (1 - 1e-2 * 0.1) - 1e-2 * move
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-6)


def test_the_initial_probe_computes_what_the_head_does():
    head = nn.Linear(WIDTH, CLASSES)
    probe = initial_probe(head, width=WIDTH, features=2 * WIDTH, classes=CLASSES)
    features = torch.randn(9, 2 * WIDTH)
    torch.testing.assert_close(probe(features), head(features[:, :WIDTH]))


@pytest.mark.parametrize("head", [None, nn.Identity(), nn.Linear(WIDTH + 1, CLASSES)])
def test_a_head_of_another_shape_gives_zeros(head):
    probe = initial_probe(head, width=WIDTH, features=2 * WIDTH, classes=CLASSES)
    assert not probe.weight.any()
    assert not probe.bias.any()


def test_top1_counts_hits():
    logits = torch.tensor([[2.0, 1.0], [0.0, 3.0], [5.0, 4.0], [0.0, 1.0]])
    assert top1(logits, torch.tensor([0, 1, 1, 1])) == 0.75
