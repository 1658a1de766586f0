"""The convolutional stem: shape, order of the patches, and when it is possible."""

import pytest
import torch

from raptor.config.teachers import conv_stem_layers
from raptor.teachers.stem import ConvStem


@pytest.mark.parametrize(
    ("image", "patch", "layers"), [(28, 7, 3), (28, 14, 4), (32, 4, 2), (32, 8, 3), (28, 3, 0)]
)
def test_how_many_layers(image, patch, layers):
    assert conv_stem_layers(image, patch) == layers


def test_patches_stand_row_by_row_where_their_pixels_are():
    stem = ConvStem(28, 7, 1, 48)
    images = torch.zeros(1, 1, 28, 28)
    blank = stem(images)
    images[0, 0, 3, 24] = 5.0  # first row of patches, last column
    changed = (stem(images) - blank).norm(dim=-1)[0]
    assert blank.shape == (1, 16, 48) == (1, stem.num_patches, 48)
    # Patches are centred 8 px apart and see 7 px to each side: rows 0 and 1, last column.
    assert (changed > 1e-6).nonzero().flatten().tolist() == [3, 7]


def test_gradients_reach_every_parameter():
    stem = ConvStem(28, 7, 3, 16)
    stem(torch.randn(2, 3, 28, 28)).square().sum().backward()
    assert all(parameter.grad.abs().sum() > 0 for parameter in stem.parameters())
