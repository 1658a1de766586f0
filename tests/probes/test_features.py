"""`[cls ; mean patch]` after the final norm."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from raptor.errors import RaptorError
from raptor.probes.classification import initial_probe
from raptor.probes.features import pooled_features
from raptor.teachers.build import assemble
from raptor.teachers.heads import feature_width


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


def test_pooled_without_cls_is_what_timm_pools_and_then_norms():
    name = "vit_medium_patch16_reg4_gap_256"
    keys = {"model": name, "image_size": 32, "channels": 3, "num_classes": 0}
    teacher = assemble(keys, seed=0).eval()
    tokens = torch.randn(2, 8, teacher.width)
    mean = tokens[:, 4:].mean(dim=1)
    expected = (mean - mean.mean(-1, keepdim=True)) / mean.std(-1, correction=0, keepdim=True)
    torch.testing.assert_close(teacher.pooled(tokens), expected, atol=1e-4, rtol=1e-4)
    whole = teacher.model.forward_head(tokens, pre_logits=True)
    torch.testing.assert_close(teacher.pooled(tokens), whole)


def test_a_model_that_norms_after_pooling_has_cls_and_mean_patch_normed():
    keys = {"model": "eva02_tiny_patch14_224", "image_size": 28, "channels": 3, "num_classes": 0}
    teacher = assemble(keys, seed=0).eval()
    tokens = 5 + 3 * torch.randn(2, teacher.layout.total, teacher.width)
    cls, patches = teacher.pooled(tokens).chunk(2, dim=1)
    torch.testing.assert_close(patches, teacher.model.forward_head(tokens, pre_logits=True))
    assert cls.mean(dim=1).abs().max() < 1e-5
    torch.testing.assert_close(cls.std(dim=1, correction=0), torch.ones(2), atol=1e-4, rtol=0)


@pytest.mark.parametrize(
    ("name", "size"),
    [("test_vit", 32), ("vit_medium_patch16_reg4_gap_256", 32), ("eva02_tiny_patch14_224", 28)],
)
def test_a_probe_starts_as_the_models_own_head(name, size):
    """On cls, on the mean patch where there is no cls, on the mean patch beside cls."""
    keys = {"model": name, "image_size": size, "channels": 3, "num_classes": 5}
    teacher = assemble(keys, seed=0).eval()
    torch.nn.init.normal_(teacher.model.head.weight)
    start = initial_probe(
        teacher.model.head,
        width=teacher.width,
        features=feature_width(teacher),
        classes=5,
        first=teacher.width if teacher.layout.cls and teacher.pools_patches else 0,
    )
    images = torch.randn(2, 3, size, size)
    last = teacher.continue_from(teacher.embed(images), 0)
    torch.testing.assert_close(
        start(teacher.pooled(last)), teacher.model(images), atol=1e-4, rtol=1e-4
    )


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
