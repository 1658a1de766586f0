"""`[cls ; mean patch]` after the final norm."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from raptor.errors import RaptorError
from raptor.probes.features import pool, pooled_features
from raptor.teachers.build import assemble
from raptor.tokens import TokenLayout


def test_pool_puts_cls_before_the_mean_patch_and_leaves_registers_out():
    tokens = torch.arange(2 * 6 * 3, dtype=torch.float32).reshape(2, 6, 3)
    found = pool(tokens, TokenLayout(cls=1, registers=2, patches=3))
    expected = np.concatenate([tokens[:, 0], tokens[:, 3:].numpy().mean(axis=1)], axis=1)
    np.testing.assert_allclose(found, expected)


def test_pool_without_cls_is_the_mean_patch():
    tokens = torch.randn(2, 5, 3)
    found = pool(tokens, TokenLayout(cls=0, registers=1, patches=4))
    torch.testing.assert_close(found, tokens[:, 1:].mean(dim=1))


@pytest.fixture
def teacher():
    names = {"depth": 2, "width": 8, "heads": 2, "mlp_ratio": 2.0, "patch_size": 4}
    rest = {"image_size": 8, "channels": 1, "num_classes": 3, "registers": 1}
    model = assemble(
        {**names, **rest, "layer_scale": None, "stochastic_depth": 0.0, "stem": "patch"}, seed=0
    )
    return model.eval().requires_grad_(False)


def test_features_are_layer_normed_by_hand(teacher):
    state = 5 + 3 * torch.randn(4, teacher.layout.total, teacher.width)
    norm = teacher.model.norm
    x = state.numpy().astype(np.float64)
    x = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + norm.eps)
    x = x * norm.weight.numpy() + norm.bias.numpy()
    expected = np.concatenate([x[:, 0], x[:, 2:].mean(axis=1)], axis=1)
    np.testing.assert_allclose(pooled_features(teacher, state), expected, atol=1e-5)


def test_a_state_that_is_not_finite_is_an_error(teacher):
    state = torch.zeros(1, teacher.layout.total, teacher.width)
    state[0, 0, 0] = float("nan")
    with pytest.raises(RaptorError, match="not finite"):
        pooled_features(teacher, state)
