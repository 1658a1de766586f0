"""Ranks and coherence of updates that were planted."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import ortho_group

from raptor.dynamics.directions import token_types
from raptor.dynamics.updates import (
    RANKS,
    PooledUpdates,
    coherence,
    rank_measures,
    squared_singular_values,
    updates,
)
from raptor.tokens import TokenLayout

LAYOUT = TokenLayout(cls=1, registers=2, patches=9)
K = {name: index for index, name in enumerate(token_types(LAYOUT))}


def ranks(matrix: np.ndarray) -> np.ndarray:
    return rank_measures(squared_singular_values(torch.from_numpy(matrix))).numpy()


def from_svd(matrix: np.ndarray) -> list[float]:
    squares = np.linalg.svd(matrix, compute_uv=False) ** 2
    p = squares[squares > 0] / squares.sum()
    return [1 / p.max(), np.exp(-(p * np.log(p)).sum()), 1 / (p**2).sum()]


def random_states(images: int = 5, depth: int = 3, width: int = 6, seed: int = 0) -> torch.Tensor:
    shape = (images, depth + 1, LAYOUT.total, width)
    return torch.from_numpy(np.random.default_rng(seed).normal(size=shape))


@pytest.mark.parametrize("rank", [1, 2, 5])
@pytest.mark.parametrize("shape", [(9, 6), (6, 9)])
def test_equal_singular_values_count_themselves(rank, shape):
    left, right = (ortho_group.rvs(n, random_state=n) for n in shape)
    found = ranks(3.0 * left[:, :rank] @ right[:rank])
    np.testing.assert_allclose(found, rank, rtol=1e-9)


def test_known_singular_values():
    found = ranks(np.diag([2.0, 1.0, 1.0, 0.0]))
    entropy = -(4 / 6 * np.log(4 / 6) + 2 / 6 * np.log(1 / 6))
    np.testing.assert_allclose(found, [6 / 4, np.exp(entropy), 36 / 18])


def test_a_zero_update_has_no_rank():
    assert np.isnan(ranks(np.zeros((4, 3)))).all()


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    rows=st.integers(2, 8),
    columns=st.integers(2, 8),
    scale=st.floats(1e-3, 1e3),
)
def test_laws_of_the_ranks(seed, rows, columns, scale):
    """Unmoved by rotations and scaling; 1 ≤ stable ≤ participation ≤ effective ≤ min(T, D)."""
    rng = np.random.default_rng(seed)
    matrix = rng.normal(size=(rows, columns)) * rng.uniform(0.01, 1, size=columns)
    stable, effective, participation = ranks(matrix)
    assert 1 - 1e-9 <= stable <= participation * (1 + 1e-9)
    assert participation <= effective * (1 + 1e-9) <= min(rows, columns) * (1 + 1e-8)
    np.testing.assert_allclose([stable, effective, participation], from_svd(matrix), rtol=1e-8)
    left, right = (ortho_group.rvs(n, random_state=rng) for n in (rows, columns))
    np.testing.assert_allclose(ranks(scale * left @ matrix @ right), ranks(matrix), rtol=1e-8)


def test_updates_describe_what_a_block_adds():
    states = random_states()
    found = updates(states, LAYOUT)
    assert all(np.isnan(values[:, 0]).all() for values in found.values())
    for tokens, span in token_types(LAYOUT).items():
        for layer in (1, 3):
            change = (states[2, layer, span] - states[2, layer - 1, span]).numpy()
            values = [found[name][2, layer, K[tokens]] for name in RANKS]
            if tokens == "cls":
                assert np.isnan(values).all()
            else:
                np.testing.assert_allclose(values, from_svd(change), rtol=1e-9)


def test_tokens_that_move_together_are_coherent():
    states = torch.zeros(1, 2, LAYOUT.total, 4, dtype=torch.float64)
    states[0, 1, :, 0] = torch.arange(1, LAYOUT.total + 1)  # one direction, any length
    np.testing.assert_allclose(updates(states, LAYOUT)["coherence"][0, 1], 1)
    np.testing.assert_allclose(updates(states, LAYOUT)["stable_rank"][0, 1, K["patches"]], 1)


def test_each_type_has_its_own_reference_and_cls_the_patches():
    update = torch.zeros(1, LAYOUT.total, 3, dtype=torch.float64)
    update[0, 0, 1] = 1.0  # cls across the patches
    update[0, 1:3] = torch.tensor([[0.0, 0, 2**0.5], [0, 1, 1]])  # registers, 45° apart
    update[0, 3:, 0] = 2.0
    found = coherence(update, LAYOUT)[0].numpy()
    assert found[0] == 0
    np.testing.assert_allclose(found[1:3], np.cos(np.pi / 8))
    np.testing.assert_allclose(found[3:], 1)
    mean = update[0].mean(dim=0)
    cosines = torch.nn.functional.cosine_similarity(update[0], mean[None], dim=-1)
    whole = updates(torch.stack([torch.zeros_like(update), update], dim=1), LAYOUT)["coherence"]
    assert whole[0, 1, K["all"]] == pytest.approx(float(cosines.mean()))


def test_pooled_equals_the_svd_of_all_rows_whatever_the_blocks():
    states = random_states()
    tables = []
    for size in (1, 2, 5):
        pooled = PooledUpdates(LAYOUT)
        for block in states.split(size):
            pooled.add(block)
        tables.append(pooled.table())
        np.testing.assert_allclose(tables[-1][list(RANKS)], tables[0][list(RANKS)], rtol=1e-10)
    assert list(tables[0]) == ["layer", "tokens", *RANKS, "n"]
    assert set(tables[0]["n"]) == {5}
    assert len(tables[0]) == 3 * len(K)
    for row in tables[0].itertuples():
        span = token_types(LAYOUT)[row.tokens]
        change = (states[:, row.layer, span] - states[:, row.layer - 1, span]).reshape(-1, 6)
        found = [getattr(row, name) for name in RANKS]
        np.testing.assert_allclose(found, from_svd(change.numpy()), rtol=1e-9)


def test_images_that_move_in_planes_of_their_own_pool_to_a_higher_rank():
    states = torch.zeros(2, 2, LAYOUT.total, 4, dtype=torch.float64)
    states[0, 1, :, 0] = 1.0
    states[1, 1, :, 1] = 1.0
    pooled = PooledUpdates(LAYOUT)
    pooled.add(states)
    assert updates(states, LAYOUT)["stable_rank"][:, 1, K["patches"]] == pytest.approx(1)
    np.testing.assert_allclose(pooled.table()[list(RANKS)], 2)
