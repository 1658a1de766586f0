"""`[cls ; mean patch]` after the final norm."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from raptor.errors import RaptorError
from raptor.probes.features import pooled_features
from raptor.teachers.build import assemble


@pytest.fixture
def teacher():
    names = {"depth": 2, "width": 8, "heads": 2, "mlp_ratio": 2.0, "patch_size": 4}
    rest = {"image_size": 8, "channels": 1, "num_classes": 3, "registers": 1}
    model = assemble(
        {**names, **rest, "layer_scale": None, "stochastic_depth": 0.0, "stem": "patch"}, seed=0
    )
    return model.eval().requires_grad_(False)


def test_pooled_puts_cls_before_the_mean_patch_and_leaves_registers_out(teacher):
    teacher.model.norm = torch.nn.Identity()
    tokens = torch.randn(2, teacher.layout.total, teacher.width)
    expected = np.concatenate([tokens[:, 0], tokens[:, 2:].numpy().mean(axis=1)], axis=1)
    np.testing.assert_allclose(teacher.pooled(tokens), expected, rtol=1e-5)


def test_pooled_without_cls_is_the_mean_patch():
    name = "vit_medium_patch16_reg4_gap_256"
    keys = {"model": name, "image_size": 32, "channels": 3, "num_classes": 0}
    teacher = assemble(keys, seed=0)
    teacher.model.norm = torch.nn.Identity()
    tokens = torch.randn(2, 8, teacher.width)
    torch.testing.assert_close(teacher.pooled(tokens), tokens[:, 4:].mean(dim=1))


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
