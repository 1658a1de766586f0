"""The same answer for every pixel: what no probe should be below."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from dense_pairs import Pairs

from raptor.config.data import DataConfig, Splits
from raptor.config.dense import DepthProbe, ScenesConfig, SegmentationProbe
from raptor.data.dense import DenseTask
from raptor.data.pairs import IGNORE
from raptor.probes.constant import measure_constant
from raptor.tables.files import read_table

DATA = DataConfig(splits=Splits(train=60, val=20, test=30), mean=[0.13], std=[0.31])
SCENES = ScenesConfig(image_size=48, digits=3, train=9, test=5)
SEGMENTATION = DenseTask(DATA, SegmentationProbe(source="scenes", image_size=24), SCENES)
DEPTH = DenseTask(DATA, DepthProbe(source="scenes", image_size=[24, 24], crop="none"), SCENES)


def measured(task, folder):
    measure_constant(task=task, output=folder / "constant.csv")
    return read_table(folder / "constant.csv").iloc[0]


def targets(task, split, images=None):
    pairs = task.split(split)
    return np.stack([pairs.pair(index)[1].numpy() for index in range(images or len(pairs))])


def test_the_commonest_class(tmp_path):
    """The background: its IoU is its share of the pixels, that of the other classes is 0."""
    row, true = measured(SEGMENTATION, tmp_path), targets(SEGMENTATION, "test")
    share = np.mean(true == 0)
    assert (row["model"], row["answer"]) == ("constant", "background")
    assert (row["n_train"], row["n_test"]) == (9, 5)
    assert row["pixel_accuracy"] == pytest.approx(share)
    assert row["miou"] == pytest.approx(share / len(np.unique(true)))
    small = true[:, 1::2, 1::2]  # the pixel below and right of the middle
    assert row["miou_authors"] == pytest.approx(np.mean(small == 0) / 11)


def test_the_mean_depth_of_the_images_trained_on(tmp_path):
    few = replace(DEPTH, probe=DEPTH.probe.model_copy(update={"train_images": 4}))
    row, true = measured(few, tmp_path), targets(few, "test").astype(float)
    said = targets(few, "train", 4).astype(float).mean()
    assert row["answer"] == f"{said:.2f} m"
    assert row["n_train"] == 4
    assert row["rmse_m"] == pytest.approx(np.sqrt(((true - said) ** 2).mean(axis=(1, 2))).mean())
    assert row["rmse_pooled_m"] == pytest.approx(np.sqrt(((true - said) ** 2).mean()))
    assert row["abs_rel"] == pytest.approx((abs(true - said) / true).mean())
    ratio = np.maximum(true / said, said / true)
    assert row["delta1"] == pytest.approx((ratio < 1.25).mean())


@pytest.mark.parametrize("task", [SEGMENTATION, DEPTH])
def test_pixels_without_a_truth_do_not_count(task, tmp_path, monkeypatch):
    known, unknown = (1, IGNORE) if task is SEGMENTATION else (2.0, 0.0)
    target = torch.full((24, 24), unknown)
    target[3:9] = known
    pairs = Pairs([torch.zeros(3, 24, 24)] * 2, [target] * 2, ["none", "one", "two"])
    monkeypatch.setattr(DenseTask, "split", lambda *_: pairs)
    row = measured(task, tmp_path)
    if task is SEGMENTATION:
        assert (row["answer"], row["miou"], row["pixel_accuracy"]) == ("one", 1, 1)
    else:
        assert (row["answer"], row["rmse_m"], row["delta1"]) == ("2.00 m", 0, 1)
