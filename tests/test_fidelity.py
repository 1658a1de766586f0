"""R² and ε against whole-array numpy derivations and known answers."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from raptor.errors import RaptorError
from raptor.fidelity import Fidelity, Moments, bootstrap_mean
from raptor.tokens import TokenLayout

LAYOUT = TokenLayout(cls=1, registers=2, patches=4)
SPANS = {"all": slice(0, 7), "cls": slice(0, 1), "registers": slice(1, 3), "patches": slice(3, 7)}
DEPTH, WIDTH = 3, 5


def planted(images: int = 40, offset: float = 0.0) -> tuple[np.ndarray, np.ndarray]:
    """True and predicted states (N, L, T, D); spread and error differ by layer."""
    rng = np.random.default_rng(0)
    scale = np.array([1.0, 3.0, 9.0])[:, None, None]
    states = rng.normal(size=(images, DEPTH, LAYOUT.total, WIDTH)) * scale + offset
    error = rng.normal(size=states.shape) * np.array([0.1, 0.5, 4.0])[:, None, None]
    return states, states + error


def accumulate(states: np.ndarray, predicted: np.ndarray, sizes=(40,)) -> Fidelity:
    fidelity, start = Fidelity(LAYOUT, DEPTH), 0
    for size in sizes:
        part = slice(start, start + size)
        fidelity.update(torch.from_numpy(states[part]), torch.from_numpy(predicted[part]))
        start += size
    return fidelity


def r2_of_rows(true: np.ndarray, predicted: np.ndarray) -> float:
    true, predicted = true.reshape(-1, WIDTH), predicted.reshape(-1, WIDTH)
    return 1 - ((true - predicted) ** 2).sum() / ((true - true.mean(axis=0)) ** 2).sum()


@pytest.mark.parametrize("tokens", SPANS)
def test_r2_is_one_minus_sse_over_sst_of_the_whole_arrays(tokens):
    states, predicted = planted()
    found = accumulate(states, predicted, sizes=(7, 13, 20)).r2()[tokens]
    span = SPANS[tokens]
    expected = [r2_of_rows(states[:, i, span], predicted[:, i, span]) for i in range(DEPTH)]
    np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_a_mean_a_million_times_the_spread_costs_no_precision():
    states, predicted = planted(offset=1e6)
    centred, centred_predicted = planted()
    np.testing.assert_allclose(
        accumulate(states, predicted, sizes=(3, 17, 20)).r2()["all"],
        accumulate(centred, centred_predicted).r2()["all"],
        rtol=1e-6,
    )


@settings(max_examples=20, deadline=None)
@given(st.lists(st.integers(1, 20), min_size=1, max_size=6))
def test_moments_do_not_depend_on_how_the_rows_were_cut(sizes):
    rows = torch.from_numpy(np.random.default_rng(1).normal(3.0, 2.0, size=(sum(sizes), 4)))
    merged = Moments()
    for block in rows.split(sizes):
        merged = merged.merge(Moments.of(block))
    assert merged.count == len(rows)
    np.testing.assert_allclose(merged.mean_D, rows.mean(0), rtol=1e-12)
    np.testing.assert_allclose(merged.deviation, ((rows - rows.mean(0)) ** 2).sum(), rtol=1e-10)


def test_errors_by_token_type():
    states, predicted = planted()
    found = accumulate(states, predicted, sizes=(7, 13, 20)).mean_squared_errors()
    assert list(found) == ["cls", "registers", "patches"]
    for tokens, errors_L in found.items():
        error = (predicted - states)[:, :, SPANS[tokens]]
        np.testing.assert_allclose(errors_L, (error**2).mean(axis=(0, 2, 3)))


def test_a_perfect_student_has_r2_one_and_epsilon_zero():
    states, _ = planted()
    table = accumulate(states, states).table(resamples=20, seed=0)
    assert (table["r2"] == 1).all()
    assert (table[["epsilon", "epsilon_low", "epsilon_high"]] == 0).all(axis=None)


def test_predicting_the_mean_state_has_r2_zero():
    states, _ = planted()
    mean = np.broadcast_to(states.mean(axis=(0, 2), keepdims=True), states.shape)
    np.testing.assert_allclose(accumulate(states, mean.copy()).r2()["all"], 0, atol=1e-12)


def test_r2_of_states_that_do_not_vary_is_not_a_number():
    states = np.ones((4, DEPTH, LAYOUT.total, WIDTH))
    assert np.isnan(accumulate(states, states, sizes=(4,)).r2()["all"]).all()


@pytest.mark.parametrize("tokens", SPANS)
def test_epsilon_is_the_mean_frobenius_norm_of_the_error(tokens):
    states, predicted = planted()
    table = accumulate(states, predicted, sizes=(15, 25)).table(resamples=50, seed=0)
    rows = table[table["tokens"] == tokens].sort_values("layer")
    for index, row in enumerate(rows.itertuples()):
        true, guess = states[:, index, SPANS[tokens]], predicted[:, index, SPANS[tokens]]
        norms = [np.linalg.norm(difference) for difference in guess - true]
        assert row.layer == index + 1
        assert row.epsilon == pytest.approx(np.mean(norms), rel=1e-12)
        assert row.norm == pytest.approx(np.mean([np.linalg.norm(a) for a in true]), rel=1e-12)
        assert row.epsilon_low < row.epsilon < row.epsilon_high


def test_bootstrap_interval_is_that_of_the_normal_theory_and_seeded():
    values = np.random.default_rng(2).normal(5.0, 2.0, size=(2000, 1))
    low, high = bootstrap_mean({"x": values}, resamples=2000, seed=3)["x"][:, 0]
    half = 1.96 * values.std() / np.sqrt(len(values))
    assert low == pytest.approx(values.mean() - half, abs=0.15 * half)
    assert high == pytest.approx(values.mean() + half, abs=0.15 * half)
    again = bootstrap_mean({"x": values}, resamples=2000, seed=3)["x"][:, 0]
    assert (again == [low, high]).all()


def test_layout_without_cls_and_registers_has_patches_alone():
    fidelity = Fidelity(TokenLayout(cls=0, registers=0, patches=6), 1)
    states = torch.randn(9, 1, 6, 3, generator=torch.Generator().manual_seed(0))
    fidelity.update(states, states * 0.9)
    r2 = fidelity.r2()
    assert set(r2) == {"all", "patches"}
    np.testing.assert_allclose(r2["all"], r2["patches"])


def test_a_prediction_that_is_not_finite_is_an_error_naming_the_layer():
    states, predicted = planted()
    predicted[3, 1, 0, 0] = np.inf
    with pytest.raises(RaptorError, match="layer 2"):
        accumulate(states, predicted)
