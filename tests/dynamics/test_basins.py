"""Class basins of planted clusters on the sphere."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from raptor.dynamics.basins import Basins, ClassSums, Plane, class_token
from raptor.tokens import TokenLayout

CLASSES, WIDTH = 3, 5


def clusters(
    images: int, spread: float, seed: int, classes: int = CLASSES
) -> tuple[torch.Tensor, torch.Tensor]:
    """Unit tokens (B, 2, D): scattered at random at state 0, round their class's axis at 1."""
    rng = np.random.default_rng(seed)
    labels = np.arange(images) % classes
    tokens = np.stack(
        [
            rng.normal(size=(images, WIDTH)),
            np.eye(WIDTH)[labels] + spread * rng.normal(size=(images, WIDTH)),
        ],
        axis=1,
    )
    tokens /= np.linalg.norm(tokens, axis=-1, keepdims=True)
    return torch.from_numpy(tokens), torch.from_numpy(labels)


def sums_of(tokens: torch.Tensor, labels: torch.Tensor, size: int = 1000) -> ClassSums:
    sums = ClassSums(CLASSES)
    for part, label in zip(tokens.split(size), labels.split(size), strict=True):
        sums.add(part, label)
    return sums


def measured(train, test, size: int = 1000):
    basins = Basins(sums_of(*train, size=size).centroids())
    for part, label in zip(test[0].split(size), test[1].split(size), strict=True):
        basins.add(part, label)
    return basins.table()


def test_exact_clusters_have_right_angles_between_and_none_within():
    train, test = clusters(30, 0.0, 0), clusters(12, 0.0, 1)
    row = measured(train, test).iloc[1]
    assert row["within_angle"] == pytest.approx(0, abs=1e-7)
    assert row["between_angle"] == pytest.approx(np.pi / 2)
    assert row["nearest_centroid_accuracy"] == 1


def test_against_a_loop_over_images_and_classes():
    train, test = clusters(90, 0.3, 0), clusters(40, 0.3, 1)
    table = measured(train, test)
    for state in (0, 1):
        x, y = train[0][:, state].numpy(), train[1].numpy()
        centroids = np.stack([x[y == c].sum(axis=0) for c in range(CLASSES)])
        centroids /= np.linalg.norm(centroids, axis=1, keepdims=True)
        within, between, hits = [], [], []
        for token, label in zip(test[0][:, state].numpy(), test[1].tolist(), strict=True):
            angles = np.arccos(centroids @ token)
            within.append(angles[label])
            between.append(np.delete(angles, label).mean())
            hits.append(angles.argmin() == label)
        expected = [state, np.mean(within), np.mean(between), np.mean(hits)]
        np.testing.assert_allclose(table.iloc[state], expected, rtol=1e-12)
    assert table["nearest_centroid_accuracy"][0] < 0.7 < table["nearest_centroid_accuracy"][1]
    assert list(table) == ["layer", "within_angle", "between_angle", "nearest_centroid_accuracy"]


def test_the_block_size_changes_nothing():
    train, test = clusters(90, 0.3, 0), clusters(40, 0.3, 1)
    np.testing.assert_allclose(measured(train, test, 7), measured(train, test), rtol=1e-12)


@pytest.mark.parametrize("size", [1, 3, 100])
def test_tokens_that_are_all_the_same_are_right_by_chance_only(size):
    """The cls token of the embedding: rounding of the sums must not decide who is nearest."""
    drawn = torch.from_numpy(np.random.default_rng(0).normal(size=(20, WIDTH)))
    tokens = torch.nn.functional.normalize(drawn, dim=1)
    same = tokens.expand(31, 20, WIDTH).contiguous(), torch.arange(31) % CLASSES
    found = measured(same, same, size)["nearest_centroid_accuracy"]
    np.testing.assert_allclose(found, 1 / CLASSES)


def test_a_class_without_training_images_has_no_centroid():
    train, test = clusters(30, 0.0, 0, classes=2), clusters(12, 0.0, 1)
    row = measured(train, test).iloc[1]
    assert row["nearest_centroid_accuracy"] == pytest.approx(2 / 3)
    assert row["within_angle"] == pytest.approx(0, abs=1e-7)
    assert row["between_angle"] == pytest.approx(np.pi / 2)


def test_the_token_is_cls_or_else_the_mean_patch():
    states = torch.randn(2, 3, 5, 4, generator=torch.Generator().manual_seed(0))
    cls = class_token(states, TokenLayout(1, 1, 3))
    torch.testing.assert_close(cls.float(), torch.nn.functional.normalize(states[:, :, 0], dim=-1))
    patch = class_token(states, TokenLayout(0, 2, 3)).float()
    expected = torch.nn.functional.normalize(states[:, :, 2:].mean(dim=2), dim=-1)
    torch.testing.assert_close(patch, expected)


def test_the_plane_holds_the_class_means_of_its_layer():
    tokens, labels = clusters(60, 0.1, 0)
    sums = sums_of(tokens, labels)
    means = sums.means()[:, 1]
    plane = Plane(means)
    torch.testing.assert_close(plane.axes_D2.mT @ plane.axes_D2, torch.eye(2).double())
    points = plane.trajectories(sums)
    assert list(points) == ["label", "layer", "x", "y", "n"]
    assert set(points["n"]) == {20}
    last = points[points["layer"] == 1][["x", "y"]].to_numpy()
    # Three means lie in one plane: nothing is lost in it.
    distances = torch.cdist(means, means).numpy()
    np.testing.assert_allclose(
        np.linalg.norm(last[:, None] - last, axis=-1), distances, rtol=1e-9, atol=1e-9
    )
    np.testing.assert_allclose(last.mean(axis=0), 0, atol=1e-12)
    assert last[:, 0].var() >= last[:, 1].var()


def test_the_plane_leaves_out_classes_without_images():
    tokens, labels = clusters(20, 0.1, 0, classes=2)
    sums = sums_of(tokens, labels)
    points = Plane(sums.means()[:, 1]).trajectories(sums)
    assert set(points["label"]) == {0, 1}
    assert points.notna().all(axis=None)
