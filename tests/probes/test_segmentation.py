"""The segmentation probe: its metric, its loss, and heads on features whose answer is known."""

from __future__ import annotations

import math

import pytest
import torch
from dense_pairs import LEVELS, PATCH, Oracle, Pairs, StopAt, painted

from raptor.config.data import DataConfig, Splits
from raptor.config.dense import ScenesConfig, SegmentationProbe
from raptor.data.pairs import IGNORE
from raptor.data.scenes import open_scenes
from raptor.probes import dense, segmentation
from raptor.probes.backbone import Backbone
from raptor.probes.dense import linear_head
from raptor.probes.dense_scores import confusion, iou, resized_classes
from raptor.teachers.build import assemble
from raptor.training.checkpoint import Checkpoint

DATA = DataConfig(splits=Splits(train=60, val=20, test=30), mean=[0.13], std=[0.31])
SCENES = ScenesConfig(image_size=48, digits=3, train=24, test=8)
NAMES = [f"level {level}" for level in range(LEVELS)]


def config(**keys):
    keys = {"image_size": 4 * PATCH, "epochs": 30, "batch_size": 4, "lr": 0.1, **keys}
    return SegmentationProbe(**{"warmup_steps": 2, **keys})


def halves(count: int, seed: int = 0) -> Pairs:
    """Left half of one level, right half of another, the edge between two patches."""
    random = torch.Generator().manual_seed(seed)
    targets = []
    for _ in range(count):
        left, right = torch.randint(LEVELS, (2,), generator=random).tolist()
        classes = torch.full((4 * PATCH, 4 * PATCH), left)
        classes[:, 2 * PATCH :] = right
        targets.append(classes)
    return Pairs([painted(classes) for classes in targets], targets, NAMES)


# --- the metric ----------------------------------------------------------------------------------


def slow_ious(pairs, classes):
    """Class -> IoU by sets of pixels, None where neither truth nor prediction has it."""
    found = {}
    for one in range(classes):
        predicted, true = set(), set()
        for number, (predicted_HW, classes_HW) in enumerate(pairs):
            for row in range(classes_HW.shape[0]):
                for column in range(classes_HW.shape[1]):
                    if classes_HW[row, column] == IGNORE:
                        continue
                    place = (number, row, column)
                    if predicted_HW[row, column] == one:
                        predicted.add(place)
                    if classes_HW[row, column] == one:
                        true.add(place)
        both = predicted | true
        found[one] = len(predicted & true) / len(both) if both else None
    return found


def test_iou_against_sets_of_pixels():
    random = torch.Generator().manual_seed(0)
    pairs = []
    for height, width in ((7, 5), (3, 9), (6, 6)):
        true = torch.randint(4, (height, width), generator=random)
        predicted = torch.where(
            torch.rand(height, width, generator=random) < 0.6, true, (true + 1) % 5
        )
        true[torch.rand(height, width, generator=random) < 0.2] = IGNORE
        pairs.append((predicted, true))
    ious = slow_ious(pairs, 7)  # 4 is predicted alone, 5 and 6 are nowhere
    assert [one for one, iou in ious.items() if iou is None] == [5, 6]
    assert ious[4] == 0
    found = iou(sum(confusion(*pair, 7) for pair in pairs))
    expected = [math.nan if ious[one] is None else ious[one] for one in range(7)]
    assert found.tolist() == pytest.approx(expected, nan_ok=True)


def test_rows_of_the_confusion_are_the_truth():
    predicted, true = torch.tensor([[1, 1, 0]]), torch.tensor([[0, 1, IGNORE]])
    assert confusion(predicted, true, 2).tolist() == [[0, 1], [0, 1]]


def test_without_a_pixel_there_is_no_iou():
    assert iou(torch.zeros(3, 3)).isnan().all()


# --- the loss ------------------------------------------------------------------------------------


def test_cross_entropy_of_the_pixels_that_count():
    logits = torch.randn(2, 3, 2, 2)
    classes = torch.tensor([[[0, IGNORE], [2, IGNORE]], [[1, 1], [IGNORE, IGNORE]]])
    picked = [
        -logits[b, :, i, j].log_softmax(0)[classes[b, i, j]]
        for b in range(2)
        for i in range(2)
        for j in range(2)
        if classes[b, i, j] != IGNORE
    ]
    assert len(picked) == 4
    torch.testing.assert_close(segmentation.cross_entropy(logits, classes), sum(picked) / 4)
    assert segmentation.cross_entropy(logits, torch.full_like(classes, IGNORE)) == 0


def test_classes_are_resized_to_the_nearest_and_never_mixed():
    classes = torch.tensor([[0, 7], [IGNORE, 149]])
    resized = resized_classes(classes, [4, 6])
    assert resized.dtype == torch.int64
    expected = classes.repeat_interleave(2, dim=0).repeat_interleave(3, dim=1)
    assert torch.equal(resized, expected)


# --- heads ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def on_oracle():
    return segmentation.fit(
        backbone=Oracle(), train=halves(16), config=config(), seed=0, title="oracle"
    )


def evaluated(head, test, **keys):
    return segmentation.evaluate(
        backbone=Oracle(), head=head, test=test, config=config(**keys), title="oracle"
    )


def test_features_that_hold_the_answer_give_it(on_oracle):
    """But for a column of pixels where two levels meet, of which one is larger."""
    found = evaluated(on_oracle, halves(20, seed=1))
    assert min(found["miou"], found["miou_authors"], found["pixel_accuracy"]) > 0.99
    assert found["n_test"] == 20


def test_the_authors_measure_at_the_size_of_the_input(on_oracle):
    small, large = halves(12, seed=1), halves(12, seed=1)
    large.targets = [one.repeat_interleave(3, 0).repeat_interleave(3, 1) for one in large.targets]
    large.images = [painted(one) for one in large.targets]
    found, other = evaluated(on_oracle, small), evaluated(on_oracle, large)
    assert other["miou_authors"] == found["miou_authors"]
    assert other["miou"] != found["miou"]


def test_what_is_ignored_neither_trains_nor_counts(on_oracle):
    """A level whose every pixel is ignored: wrong classes there would be learned otherwise."""
    test, train = halves(20, seed=1), halves(16)
    for classes in (*train.targets, *test.targets):
        classes[classes == 2] = IGNORE
    found = evaluated(on_oracle, test)
    assert min(found["miou"], found["pixel_accuracy"]) > 0.99
    # The same size as the input's: an absent class is all that differs.
    assert found["miou_authors"] == pytest.approx(found["miou"] * (LEVELS - 1) / LEVELS)
    head = segmentation.fit(
        backbone=Oracle(), train=train, config=config(), seed=0, title="ignoring"
    )
    blind = Pairs([painted(torch.full((32, 32), 2))], [torch.full((32, 32), 2)], NAMES)
    assert evaluated(on_oracle, blind)["pixel_accuracy"] == 1
    assert evaluated(head, blind)["pixel_accuracy"] == 0


def test_predictions_are_at_the_size_of_each_image(on_oracle):
    levels = torch.tensor([[0, 1], [3, 4]])
    sizes = [(32, 32), (64, 48), (20, 90)]
    images = [painted(resized_classes(levels, size)) for size in sizes]
    found = segmentation.predict(Oracle(), on_oracle, images, config=config())
    for predicted, (height, width) in zip(found, sizes, strict=True):
        assert predicted.shape == (height, width)
        corners = predicted[:: height - 1, :: width - 1]
        assert torch.equal(corners, levels)


@pytest.mark.parametrize("kept_bytes", [0, 2**30])  # features computed each epoch, or once
def test_interrupted_is_the_same_as_not_bit_for_bit(planted, tmp_path, monkeypatch, kept_bytes):
    monkeypatch.setattr(dense, "KEPT_BYTES", kept_bytes)
    counted = StopAt(segmentation.cross_entropy, 15)  # the fifth step of the second run
    monkeypatch.setattr(segmentation, "cross_entropy", counted)
    backbone = Backbone(planted.teacher.at_size(16, 16), [0.5], [0.25], planted.student([0] * 4))
    random = torch.Generator().manual_seed(0)
    images = [torch.randint(256, (3, 16, 16), generator=random).byte() for _ in range(20)]
    targets = [torch.randint(3, (16, 16), generator=random) for _ in range(20)]
    settings = config(image_size=16, epochs=2)  # 10 steps of 4 images

    def fit(checkpoint=None):
        train = Pairs(images, targets, NAMES[:3])
        head = segmentation.fit(
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


def test_the_order_follows_from_the_seed():
    keys = {"backbone": Oracle(), "train": halves(16), "config": config(epochs=1), "title": "t"}
    one, same, other = (segmentation.fit(seed=seed, **keys) for seed in (0, 0, 1))
    assert torch.equal(one.weight, same.weight)
    assert not torch.equal(one.weight, other.weight)


def test_a_head_on_a_small_teacher_learns_scenes():
    """Random features tell digits apart a little: more than the background is found."""
    keys = {"depth": 2, "width": 48, "heads": 2, "mlp_ratio": 2.0, "patch_size": 4}
    keys |= {"image_size": 24, "channels": 1, "num_classes": 0, "registers": 1, "stem": "patch"}
    teacher = assemble({**keys, "layer_scale": None, "stochastic_depth": 0.0}, seed=0)
    backbone = Backbone(teacher.eval().at_size(48, 48), DATA.mean, DATA.std)
    scenes = open_scenes(DATA, SCENES, "train", "classes")
    settings = config(image_size=48, batch_size=8, epochs=40)
    head = segmentation.fit(backbone=backbone, train=scenes, config=settings, seed=0, title="t")
    keys = {"backbone": backbone, "test": scenes, "config": settings, "title": "t"}
    found = segmentation.evaluate(head=head, **keys)
    blank = segmentation.evaluate(head=linear_head(48, 11), **keys)  # the first class, everywhere
    assert found["miou"] > 2 * blank["miou"] > 0.05
