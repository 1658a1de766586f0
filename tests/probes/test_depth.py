"""The depth probe: bins, losses, errors and the Eigen crop against hand-made numbers."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from dense_pairs import LEVELS, PATCH, Oracle, Pairs, StopAt, painted
from pydantic import ValidationError
from torch.nn import functional as F

from raptor.config.data import DataConfig, Splits
from raptor.config.dense import DepthProbe, ScenesConfig
from raptor.data.scenes import open_scenes
from raptor.errors import RaptorError
from raptor.probes import dense, depth
from raptor.probes.backbone import Backbone
from raptor.probes.dense import linear_head
from raptor.probes.dense_scores import depth_errors, eigen_crop
from raptor.training.checkpoint import Checkpoint

METRES = torch.tensor([0.5, 2.0, 3.5, 6.0, 9.0])  # of each level
PAPER = DepthProbe()


def config(**keys):
    keys = {"image_size": [4 * PATCH, 5 * PATCH], "epochs": 40, "batch_size": 5, "lr": 0.5, **keys}
    return DepthProbe(**{"warmup_steps": 2, "crop": "none", **keys})


def walls(height=4 * PATCH, width=5 * PATCH) -> Pairs:
    """Each image one wall, as far as its level says; a quarter is not measured."""
    images, targets = [], []
    for level in range(LEVELS):
        images.append(painted(torch.full((height, width), level)))
        target = torch.full((height, width), float(METRES[level]))
        target[: height // 2, : width // 2] = 0.0
        targets.append(target)
    return Pairs(images, targets)


# --- bins ----------------------------------------------------------------------------------------


def test_bins_and_the_nearest_of_them():
    settings = config(bins=4, min_m=1.0, max_m=4.0)
    assert depth.depth_bins(settings).tolist() == [1, 2, 3, 4]
    metres = torch.tensor([0.2, 1.0, 1.49, 1.51, 3.4, 3.6, 4.0, 9.9])
    assert depth.nearest_bin(metres, settings).tolist() == [0, 0, 0, 1, 2, 3, 3, 3]


def test_the_papers_bins():
    bins = depth.depth_bins(PAPER)
    assert (len(bins), bins[0].item(), bins[-1].item()) == (256, pytest.approx(0.001), 10)
    metres = torch.rand(500) * 10
    distances = (metres[:, None] - bins).abs()
    found = distances.gather(1, depth.nearest_bin(metres, PAPER)[:, None])[:, 0]
    torch.testing.assert_close(found, distances.amin(dim=1), rtol=0, atol=1e-5)  # halfway, either


def test_the_expected_depth():
    logits = torch.tensor([0.25, 0.25, 0.5]).log().view(1, 3, 1, 1)
    expected = 0.25 * 1 + 0.25 * 2 + 0.5 * 6
    found = depth.expected_depth(logits + 3.0, torch.tensor([1.0, 2.0, 6.0]))
    torch.testing.assert_close(found, torch.tensor([[[expected]]]))


def test_far_must_be_beyond_near():
    with pytest.raises(ValidationError, match=r"max_m 1\.0 is not above min_m 2\.0"):
        config(min_m=2.0, max_m=1.0)


# --- losses --------------------------------------------------------------------------------------


def test_si_log_against_its_formula():
    rng = np.random.default_rng(0)
    predicted, true = rng.uniform(0.5, 9, (2, 2, 4, 5))
    true[0, 1:3] = 0
    g = [
        math.log(predicted[place]) - math.log(true[place])
        for place in np.ndindex(true.shape)
        if true[place] > 0
    ]
    expected = np.mean(np.square(g)) - 0.85 * np.mean(g) ** 2
    found = depth.si_log(torch.from_numpy(predicted), torch.from_numpy(true), 0.85)
    assert float(found) == pytest.approx(expected, rel=1e-9)
    scaled = depth.si_log(torch.from_numpy(3 * true + (true == 0)), torch.from_numpy(true), 1.0)
    assert float(scaled) == pytest.approx(0, abs=1e-12)  # λ = 1 asks for no scale


def test_losses_without_a_measured_pixel_are_zero_and_have_a_slope_of_zero():
    logits = torch.randn(1, 256, 2, 2, requires_grad=True)
    expected = depth.expected_depth(logits, depth.depth_bins(PAPER))
    nothing = torch.zeros(1, 2, 2)
    whole = depth.si_log(expected, nothing, 0.85) + depth.bin_cross_entropy(logits, nothing, PAPER)
    whole.backward()
    assert whole.item() == 0
    assert not logits.grad.any()


def test_a_prediction_that_is_right_has_a_finite_slope():
    predicted = torch.full((1, 2, 2), 3.0, requires_grad=True)
    depth.si_log(predicted, torch.full((1, 2, 2), 3.0), 0.85).backward()
    assert predicted.grad.isfinite().all()


def test_cross_entropy_with_the_nearest_bin_of_measured_pixels():
    settings = config(bins=3, min_m=1.0, max_m=3.0)
    logits = torch.randn(1, 3, 1, 3)
    true = torch.tensor([[[2.2, 0.0, 8.0]]])
    expected = -(logits[0, :, 0, 0].log_softmax(0)[1] + logits[0, :, 0, 2].log_softmax(0)[2])
    found = depth.bin_cross_entropy(logits, true, settings)
    torch.testing.assert_close(found, expected / 2)


def test_the_head_after_upsampling_is_the_head_before_it(planted):
    """The paper upsamples features; four times as many rows and columns, then 1×1."""
    backbone = Backbone(planted.teacher.at_size(8, 12), [0.5], [0.25])
    head = torch.nn.Conv2d(backbone.joined_width, 7, 1)
    images = torch.randn(2, 1, 8, 12)
    features = backbone.features(images).joined()
    fine = F.interpolate(features, size=(8, 12), mode="bilinear", align_corners=False)
    torch.testing.assert_close(depth.bin_logits(head, features), head(fine))


# --- sizes ---------------------------------------------------------------------------------------


def test_the_papers_input_is_padded_to_patches_of_14():
    assert depth.input_size(PAPER, (14, 14)) == (490, 644)
    window = depth.Window.of((480, 640), (14, 14))
    assert window.padding == (2, 2, 5, 5)
    image = torch.rand(1, 480, 640)
    padded = F.pad(image, window.padding)
    assert padded.shape == (1, 490, 644)
    assert torch.equal(window.cut(padded), image)


def test_an_odd_pixel_is_padded_below_and_to_the_right():
    window = depth.Window.of((5, 7), (4, 5))
    assert window.padding == (1, 2, 1, 2)
    image = torch.rand(1, 5, 7)
    assert torch.equal(window.cut(F.pad(image, window.padding)), image)
    assert depth.input_size(config(image_size=[16, 24]), (8, 8)) == (16, 24)


# --- errors --------------------------------------------------------------------------------------


def test_errors_by_hand_over_measured_pixels():
    predicted = torch.tensor([[1.0, 2.6], [5.0, 4.0]])
    true = torch.tensor([[1.2, 2.0], [0.0, 5.0]])
    found = depth_errors(predicted, true)
    assert found["pixels"] == 3
    assert found["mse"] == pytest.approx((0.2**2 + 0.6**2 + 1) / 3)
    assert found["abs_rel"] == pytest.approx((0.2 / 1.2 + 0.3 + 0.2) / 3)
    # 1.2/1 = 1.2 is near, 2.6/2 = 1.3 is not, 5/4 = 1.25 is at the limit, which is not below it.
    assert found["delta1"] == pytest.approx(1 / 3)


@pytest.mark.parametrize(
    ("row", "column", "counts"),
    [
        (44, 300, False), (45, 300, True), (470, 300, True), (471, 300, False),
        (200, 40, False), (200, 41, True), (200, 600, True), (200, 601, False),
    ],
)  # fmt: skip
def test_the_eigen_crop(row, column, counts):
    true = torch.full((480, 640), 3.0)
    predicted = true.clone()
    predicted[row, column] = 9.0
    found = depth_errors(eigen_crop(predicted), eigen_crop(true))
    assert found["pixels"] == 426 * 560
    assert (found["mse"] > 0) == counts


def test_another_size_has_no_eigen_crop():
    with pytest.raises(RaptorError, match=r"made-up: the Eigen crop .* here are 240 × 320"):
        eigen_crop(torch.zeros(240, 320), "made-up")


def test_evaluation_counts_pixels_inside_the_crop_alone():
    """A head of zeros says the mean of all bins, everywhere."""
    middle = float(depth.depth_bins(PAPER).mean())
    truth = torch.ones(480, 640)
    truth[45:471, 41:601] = middle - 0.5
    test = Pairs([torch.zeros(3, 480, 640, dtype=torch.uint8)], [truth])
    head = linear_head(LEVELS, 256)
    keys = {"backbone": Oracle(), "head": head, "test": test, "title": "t"}
    inside = depth.evaluate(config=config(crop="eigen", image_size=[480, 640]), **keys)
    assert inside["rmse_m"] == inside["rmse_pooled_m"] == pytest.approx(0.5, abs=1e-4)
    assert inside["abs_rel"] == pytest.approx(0.5 / (middle - 0.5), rel=1e-3)
    whole = depth.evaluate(config=config(image_size=[480, 640]), **keys)
    assert whole["rmse_m"] > 1


def test_the_mean_over_images_and_the_one_over_pixels():
    middle = float(depth.depth_bins(PAPER).mean())
    off_by = [0.5, 2.0, 1.0]  # of which 16, 4 and no pixels are measured
    truths = [torch.full((4, 4), middle - error) for error in off_by]
    truths[1][1:] = 0.0
    truths[2][:] = 0.0
    test = Pairs([torch.zeros(3, 4, 4, dtype=torch.uint8)] * 3, truths)
    keys = {"backbone": Oracle(), "head": linear_head(LEVELS, 256), "config": config()}
    found = depth.evaluate(test=test, title="t", **keys)
    assert found["rmse_m"] == pytest.approx((0.5 + 2.0) / 2, rel=1e-4)
    assert found["rmse_pooled_m"] == pytest.approx(math.sqrt((16 * 0.25 + 4 * 4) / 20), rel=1e-4)
    assert found["n_test"] == 3
    alone = depth.evaluate(test=Pairs(test.images[2:], truths[2:]), title="t", **keys)
    assert math.isnan(alone["rmse_m"])


# --- heads ---------------------------------------------------------------------------------------


def test_features_that_hold_the_answer_give_it():
    """Trained and tested at other sizes than the probe's own, on depths with gaps."""
    keys = {"backbone": Oracle(), "config": config(), "title": "oracle"}
    train = walls(8 * PATCH, 10 * PATCH)
    for target in train.targets:
        target[::2] = 0.0  # a mean of neighbours would be half the depth
    head = depth.fit(train=train, seed=0, **keys)
    found = depth.evaluate(head=head, test=walls(50, 70), **keys)
    assert found["rmse_m"] < 0.05
    assert found["delta1"] == 1
    blank = depth.evaluate(head=linear_head(LEVELS, 256), test=walls(), **keys)
    assert blank["rmse_m"] > 2


@pytest.mark.parametrize("size", [[16, 24], [14, 21]])  # whole patches, and padded
def test_predictions_are_where_the_pixels_are(size):
    """Near above, far below: also where the input is padded, at the size of each image."""
    settings = config(image_size=[2 * side for side in size], epochs=40)
    image = torch.full((2 * size[0], 2 * size[1]), 1)
    image[size[0] :] = 3
    target = METRES[image]
    train = Pairs([painted(image)], [target])
    head = depth.fit(backbone=Oracle(), train=train, config=settings, seed=0, title="t")
    large = [painted(image.repeat_interleave(3, dim=0))]
    (found,) = depth.predict(Oracle(), head, large, config=settings)
    assert found.shape == (6 * size[0], 2 * size[1])
    assert found[: 2 * size[0]].mean() == pytest.approx(2.0, abs=0.3)
    assert found[-2 * size[0] :].mean() == pytest.approx(6.0, abs=0.5)


@pytest.mark.parametrize("kept_bytes", [0, 2**30])  # features computed each epoch, or once
def test_interrupted_is_the_same_as_not_bit_for_bit(planted, tmp_path, monkeypatch, kept_bytes):
    monkeypatch.setattr(dense, "KEPT_BYTES", kept_bytes)
    counted = StopAt(depth.si_log, 15)  # the fifth step of the second run
    monkeypatch.setattr(depth, "si_log", counted)
    backbone = Backbone(planted.teacher.at_size(12, 20), [0.5], [0.25], planted.student([0] * 4))
    random = torch.Generator().manual_seed(0)
    images = [torch.randint(256, (3, 10, 20), generator=random).byte() for _ in range(20)]
    targets = [torch.rand(10, 20, generator=random) * 9 + 0.5 for _ in range(20)]
    settings = config(image_size=[10, 20], epochs=2, batch_size=4, bins=16)  # 10 steps

    def fit(checkpoint=None):
        train = Pairs(images, targets)
        head = depth.fit(
            backbone=backbone, train=train, config=settings, seed=3, title="t",
            checkpoint=checkpoint,
        )  # fmt: skip
        return head, train.read

    whole, read = fit()
    assert (counted.calls, read) == (10, 1 + (20 if kept_bytes else 40))
    with pytest.raises(SystemExit):
        fit(Checkpoint(tmp_path, "x"))
    assert counted.calls == 15
    torch.manual_seed(99)
    again, _ = fit(Checkpoint(tmp_path, "x"))
    assert counted.calls == 20
    assert torch.equal(again.weight, whole.weight)
    assert torch.equal(again.bias, whole.bias)
    assert whole.weight.abs().sum() > 0


def test_a_small_teacher_on_scenes_sees_more_than_a_constant(planted):
    data = DataConfig(splits=Splits(train=60, val=20, test=30), mean=[0.13], std=[0.31])
    scenes = ScenesConfig(image_size=48, digits=3, train=24, test=8)
    backbone = Backbone(planted.teacher.at_size(48, 48), data.mean, data.std)
    train, test = (open_scenes(data, scenes, split, "depth") for split in ("train", "test"))
    settings = config(image_size=[48, 48], batch_size=8, epochs=20, bins=32)
    head = depth.fit(backbone=backbone, train=train, config=settings, seed=0, title="t")
    found = depth.evaluate(backbone=backbone, head=head, test=test, config=settings, title="t")
    pixels = torch.cat([test.pair(index)[1].flatten() for index in range(len(test))])
    assert found["rmse_pooled_m"] < 0.8 * pixels.std()
