"""Maps of features: the right token at the right place, of the teacher or of its Raptor."""

from __future__ import annotations

import pytest
import torch

from raptor.errors import RaptorError
from raptor.probes.backbone import Backbone
from raptor.teachers.build import assemble

HEIGHT, WIDTH = 12, 20  # 3 × 5 patches of 4


@pytest.fixture
def teacher(planted):
    return planted.teacher.at_size(HEIGHT, WIDTH)


def by_hand(teacher, state_BTD):
    """Maps from the tokens, one by one: cls, one register, then patches row by row."""
    normed = teacher.model.norm(state_BTD)
    maps = torch.zeros(len(normed), teacher.width, 3, 5)
    for token in range(15):
        maps[:, :, token // 5, token % 5] = normed[:, 2 + token]
    return maps, normed[:, 0]


def test_maps_of_the_teacher_and_of_its_raptor(planted, teacher):
    images = torch.randn(3, 1, HEIGHT, WIDTH)
    raptor = planted.student([0, 0, 1, 1])
    with torch.no_grad():
        states = teacher.states(images)
        predicted = raptor(states[:, 0])
    for backbone, state in (
        (Backbone(teacher, [0.5], [0.25]), states[:, -1]),
        (Backbone(teacher, [0.5], [0.25], raptor), predicted[:, -1]),
    ):
        found = backbone.features(images)
        patches, cls = by_hand(teacher, state)
        torch.testing.assert_close(found.patches, patches)
        torch.testing.assert_close(found.cls, cls)
        joined = found.joined()
        assert joined.shape == (3, backbone.joined_width, 3, 5) == (3, 16, 3, 5)
        torch.testing.assert_close(joined[:, :8], patches)
        torch.testing.assert_close(joined[1, 8:, 2, 4], cls[1])
    assert not torch.allclose(predicted[:, -1], states[:, -1], atol=1e-2)


def test_without_cls_features_are_patches_alone():
    keys = {"model": "vit_medium_patch16_reg4_gap_256", "image_size": 32, "channels": 3}
    teacher = assemble(keys | {"num_classes": 0}, seed=0).eval()
    backbone = Backbone(teacher, [0.5], [0.5])
    found = backbone.features(torch.randn(1, 3, 32, 32))
    assert found.cls is None
    assert found.joined().shape == (1, backbone.joined_width, 2, 2)
    assert backbone.joined_width == teacher.width


def test_pixels_are_normalised_and_made_grey_where_the_teacher_is(teacher):
    pixels = torch.tensor([255, 0, 0], dtype=torch.uint8).view(3, 1, 1).repeat(1, 2, 2)
    grey = Backbone(teacher, [0.5], [0.25]).normalised(pixels)
    assert grey.shape == (1, 2, 2)
    torch.testing.assert_close(grey[0, 0, 0], torch.tensor((0.2989 - 0.5) / 0.25))
    coloured = assemble({**teacher.architecture, "channels": 3}, seed=0)
    found = Backbone(coloured, [0.1, 0.2, 0.3], [0.5, 0.5, 1.0]).normalised(pixels)
    torch.testing.assert_close(found[:, 1, 1], torch.tensor([1.8, -0.4, -0.3]))


def test_a_state_that_is_not_finite_is_an_error(teacher):
    images = torch.full((1, 1, HEIGHT, WIDTH), torch.nan)
    with pytest.raises(RaptorError, match="not finite"):
        Backbone(teacher, [0.5], [0.25]).features(images)
