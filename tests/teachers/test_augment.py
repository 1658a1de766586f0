"""Augmentation against pictures whose images under the maps are known."""

import math

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from raptor.config.teachers import Augmentation
from raptor.teachers.augment import affine, augment


def apply(images, **draws):
    zero = torch.zeros(len(images))
    draws = {
        "angle": zero, "scale": zero + 1, "shear": zero, "shift": torch.zeros(len(images), 2),
        "flip": zero > 0, **draws,
    }  # fmt: skip
    grid = F.affine_grid(affine(**draws), list(images.shape), align_corners=False)
    return F.grid_sample(images, grid, padding_mode="border", align_corners=False)


@pytest.fixture
def images():
    return torch.rand(3, 2, 8, 8, generator=torch.Generator().manual_seed(0))


def test_no_map_is_the_identity(images):
    torch.testing.assert_close(apply(images), images)
    generator = torch.Generator()
    before = generator.get_state()
    assert augment(images, Augmentation(), generator) is images
    assert torch.equal(generator.get_state(), before)


def test_shift_moves_whole_pixels(images):
    shift = torch.tensor([[1, 0], [0, -2], [3, 2]])  # x to the right, y down
    moved = apply(images, shift=shift * 2.0 / 8)
    for image, out, (x, y) in zip(images, moved, shift.tolist(), strict=True):
        rows, columns = (np.clip(np.arange(8) - d, 0, 7) for d in (y, x))
        torch.testing.assert_close(out, image[:, rows][:, :, columns])


def test_quarter_turns_and_flip(images):
    turned = apply(images, angle=torch.full((3,), math.pi / 2))
    torch.testing.assert_close(turned, images.rot90(-1, (2, 3)), atol=1e-5, rtol=1e-4)
    flipped = apply(images, flip=torch.tensor([True, False, True]))
    torch.testing.assert_close(flipped[[0, 2]], images[[0, 2]].flip(3), atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(flipped[1], images[1])


def test_the_map_is_the_inverse_of_its_parts():
    random = np.random.default_rng(0)
    angle, shear = random.uniform(-1, 1, (2, 4))
    scale, shift = random.uniform(0.5, 1.5, 4), random.uniform(-0.5, 0.5, (4, 2))
    flip = np.array([True, False, True, False])
    got = affine(
        angle=torch.from_numpy(angle), scale=torch.from_numpy(scale), flip=torch.from_numpy(flip),
        shear=torch.from_numpy(shear), shift=torch.from_numpy(shift),
    ).double()  # fmt: skip
    for i in range(4):
        cos, sin = np.cos(angle[i]), np.sin(angle[i])
        mirror = np.diag([-1.0 if flip[i] else 1.0, 1.0])
        forward = scale[i] * np.array([[cos, -sin], [sin, cos]])
        forward = forward @ np.array([[1, np.tan(shear[i])], [0, 1]]) @ mirror
        inverse = np.linalg.inv(forward)
        expected = np.column_stack([inverse, -inverse @ shift[i]])
        np.testing.assert_allclose(got[i].numpy(), expected, atol=1e-6)


def test_enlarging_keeps_the_middle(images):
    # A factor of 2 shows the middle half: output pixel centres fall at input x/2 + size/4.
    out = apply(images, scale=torch.full((3,), 2.0))
    middle = F.interpolate(images, scale_factor=2, mode="bilinear", align_corners=False)
    torch.testing.assert_close(out, middle[:, :, 4:12, 4:12], atol=1e-5, rtol=1e-4)


def test_draws_stay_in_their_range_and_follow_from_the_generator(images):
    config = Augmentation(shift_px=2)
    ramp = torch.arange(16.0).expand(
        500, 1, 16, 16
    )  # value = column, so the middle shows the shift
    moved = augment(ramp, config, torch.Generator().manual_seed(1))
    shifts = (8 - moved[:, 0, 8, 8]).round().long()
    assert sorted(set(shifts.tolist())) == [-2, -1, 0, 1, 2]
    config = Augmentation(shift_px=2, rotate_deg=15, scale=0.15, shear_deg=8, flip=True)
    first, again, other = (
        augment(images, config, torch.Generator().manual_seed(seed)) for seed in (1, 1, 2)
    )
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert first.shape == images.shape
    assert first.min() >= images.min()
    assert first.max() <= images.max()


def test_half_of_the_images_are_flipped():
    ramp = torch.arange(4.0).expand(2000, 1, 4, 4)
    out = augment(ramp, Augmentation(flip=True), torch.Generator().manual_seed(0))
    flipped = (out[:, 0, 0, 0] > 1.5).float().mean().item()
    assert flipped == pytest.approx(0.5, abs=5 * 0.5 / 2000**0.5)
