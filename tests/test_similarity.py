"""Similarities against formulas written out over the whole array, and laws of CKA."""

from __future__ import annotations

import sys
import tracemalloc
from itertools import permutations
from types import ModuleType, SimpleNamespace
from typing import get_args

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raptor.config.analysis import Measure, SimilarityConfig
from raptor.errors import RaptorError
from raptor.similarity import (
    MEASURES,
    BootstrapMean,
    similarity,
    unbiased_cka,
    unbiased_hsic,
    write_similarity,
)
from raptor.tokens import TokenLayout

LAYOUT = TokenLayout(cls=1, registers=2, patches=4)
DEPTH, WIDTH = 3, 5


def states(n=22, layout=LAYOUT, seed=0):
    """A trajectory with common structure between layers and a large mean, fp16 like a store."""
    rng = np.random.default_rng(seed)
    steps = rng.normal(size=(n, DEPTH + 1, layout.total, WIDTH))
    return (steps.cumsum(axis=1) + 3).astype(np.float16).astype(np.float32)


def blocks(states_NSTD, size):
    for start in range(0, len(states_NSTD), size):
        part = states_NSTD[start : start + size]
        yield start, part, np.zeros(len(part), int)


def measured(states_NSTD, size=8, layout=LAYOUT, bootstrap=20, seed=0):
    return similarity(blocks(states_NSTD, size), layout, bootstrap=bootstrap, seed=seed)


# --- independent formulas ------------------------------------------------------------------------


def cosine(a, b):
    return a @ b / np.sqrt((a @ a) * (b @ b))


def naive(measure, states_NSTD, layout):
    """(N, L, L) by loops over images and layers."""
    x = states_NSTD.astype(np.float64)
    out = np.zeros((len(x), DEPTH, DEPTH))
    for n, a, b in np.ndindex(out.shape):
        one, two = x[n, a + 1], x[n, b + 1]
        if measure == "cosine":
            first = layout.cls + layout.registers
            values = [cosine(one[first:].mean(0), two[first:].mean(0))]
            values += [cosine(one[0], two[0])] * layout.cls
        elif measure == "cosine_all_tokens":
            values = [cosine(s, t) for s, t in zip(one, two, strict=True)]
        else:
            values = (one - two) ** 2
        out[n, a, b] = np.mean(values)
    return out


def u_centred(gram):
    """The U-centring of Székely & Rizzo: an inner product of two of these is n (n-3) HSIC_1."""
    n = len(gram)
    hollow = gram - np.diag(np.diag(gram))
    rows = hollow.sum(0) / (n - 2)
    centred = hollow - rows[:, None] - rows + hollow.sum() / ((n - 1) * (n - 2))
    return centred - np.diag(np.diag(centred))


def naive_cka(states_NSTD, size):
    x = states_NSTD[:, 1:].astype(np.float64)
    products, n_images = np.zeros((DEPTH, DEPTH)), 0
    for start in range(0, len(x), size):
        batch = x[start : start + size].reshape(-1, DEPTH, x[0, 0].size)
        n = len(batch)
        if n >= 4:
            centred = [u_centred(batch[:, i] @ batch[:, i].T) for i in range(DEPTH)]
            hsic = [[(p * q).sum() / (n * (n - 3)) for q in centred] for p in centred]
            products += n * np.array(hsic)
            n_images += n
    own = np.diag(products / n_images)
    return products / n_images / np.sqrt(np.outer(own, own))


# --- the measures --------------------------------------------------------------------------------


@pytest.mark.parametrize("layout", [LAYOUT, TokenLayout(0, 0, 5), TokenLayout(0, 3, 2)])
@pytest.mark.parametrize("measure", MEASURES[:3])
def test_image_measures_by_loops(measure, layout):
    x = states(layout=layout)
    expected = naive(measure, x, layout)
    result = measured(x, layout=layout)
    np.testing.assert_allclose(result.matrices[measure], expected.mean(0), rtol=1e-10, atol=1e-12)
    assert (result.n_images, result.n_units[measure]) == (22, 22)


@pytest.mark.parametrize(("size", "units"), [(8, 3), (10, 2), (7, 3), (22, 1)])
def test_cka_by_u_centring(size, units):
    """Of 22 images, blocks of 10 and 7 leave 2 and 1 images, too few for HSIC_1."""
    result = measured(states(), size)
    np.testing.assert_allclose(result.matrices["cka"], naive_cka(states(), size), rtol=1e-9)
    assert result.n_units["cka"] == units


def test_hsic_is_the_u_statistic_of_four_images():
    rng = np.random.default_rng(0)
    k, m = (z @ z.T for z in rng.normal(size=(2, 6, 3)))
    quadruples = list(permutations(range(6), 4))
    terms = [k[i, j] * (m[i, j] + m[q, r] - 2 * m[i, q]) for i, j, q, r in quadruples]
    assert unbiased_hsic(np.stack([k, m]))[0, 1] == pytest.approx(np.mean(terms))


def test_zero_tokens_have_cosine_zero():
    x = states()
    x[:, 2, 0] = 0  # cls after layer 2: of the published pair only the mean patch is left
    values = measured(x).matrices["cosine"]
    patch = states()[:, 1:, 3:].astype(float).mean(2)
    expected = np.mean([cosine(p[0], p[1]) for p in patch]) / 2
    assert values[0, 1] == pytest.approx(expected)
    assert values[1, 1] == pytest.approx(0.5)


def test_small_parts_and_one_part_agree(monkeypatch):
    whole = measured(states())
    monkeypatch.setattr("raptor.similarity.WORK_BYTES", 3000)
    parts = measured(states())
    for measure in MEASURES:
        np.testing.assert_allclose(parts.matrices[measure], whole.matrices[measure], rtol=1e-10)


@pytest.mark.parametrize("size", [1, 5, 7, 22])
def test_streaming_equals_one_block(size):
    """Values and bootstrap alike; CKA alone is defined by its batches."""
    x = states()
    padded = [*blocks(x, size)]
    if size == 1:  # one batch large enough for CKA must be there
        padded = [*blocks(x[:18], 1), (18, x[18:], np.zeros(4, int))]
    streamed = similarity(padded, LAYOUT, bootstrap=20, seed=0)
    whole = measured(x, 22)
    for measure in MEASURES[:3]:
        np.testing.assert_allclose(streamed.matrices[measure], whole.matrices[measure], rtol=1e-12)
        np.testing.assert_allclose(
            streamed.resamples[measure], whole.resamples[measure], rtol=1e-10, atol=1e-12
        )


# --- CKA -----------------------------------------------------------------------------------------


@given(
    seed=st.integers(0, 10_000),
    n=st.integers(5, 12),
    widths=st.tuples(st.integers(1, 8), st.integers(1, 8)),
    scale=st.floats(1e-3, 1e3),
    shift=st.floats(-100, 100),
)
@settings(max_examples=80, deadline=None)
def test_cka_laws(seed, n, widths, scale, shift):
    rng = np.random.default_rng(seed)
    x, y = (rng.normal(size=(n, width)) for width in widths)
    rotation, _ = np.linalg.qr(rng.normal(size=(widths[0], widths[0])))
    value = unbiased_cka(x, y)
    assert -1 - 1e-9 <= value <= 1 + 1e-9
    assert unbiased_cka(y, x) == pytest.approx(value, abs=1e-9)
    assert unbiased_cka(x, x) == pytest.approx(1)
    assert unbiased_cka(scale * x @ rotation + shift, y) == pytest.approx(value, abs=1e-6)
    order = rng.permutation(n)
    assert unbiased_cka(x[order], y[order]) == pytest.approx(value, abs=1e-9)


def test_cka_of_independent_features_is_near_zero_unlike_the_biased_one():
    rng = np.random.default_rng(0)

    def biased(x, y):
        x, y = x - x.mean(0), y - y.mean(0)
        hsic = [np.sum((a.T @ b) ** 2) for a, b in ((x, y), (x, x), (y, y))]
        return hsic[0] / np.sqrt(hsic[1] * hsic[2])

    pairs = [rng.normal(size=(2, 16, 100)) for _ in range(100)]
    assert abs(np.mean([unbiased_cka(x, y) for x, y in pairs])) < 0.03
    assert np.mean([biased(x, y) for x, y in pairs]) > 0.8


def test_cka_of_a_constant_layer_is_nan():
    assert np.isnan(unbiased_cka(np.ones((6, 2)), np.eye(6)))


def test_cka_is_exact_beside_a_large_common_mean():
    x = states().astype(np.float64)
    moved = measured(x + 1e6).matrices["cka"]
    np.testing.assert_allclose(moved, measured(x).matrices["cka"], rtol=1e-6)


# --- bootstrap -----------------------------------------------------------------------------------


def test_bootstrap_mean_by_explicit_repetition():
    """A resample is the mean of the data in which every unit stands as often as it was drawn."""
    values = np.random.default_rng(1).normal(size=(9, 2))
    stream = BootstrapMean(n_resamples=15, seed=4)
    stream.add(0, values[:4])
    stream.add(4, values[4:], weight=2.0)
    for resample in range(15):
        counts = [np.random.default_rng([4, u]).poisson(1.0, 15)[resample] for u in range(9)]
        repeats = np.array(counts) * ([1] * 4 + [2] * 5)
        expected = np.repeat(values, repeats, axis=0).mean(axis=0)
        np.testing.assert_allclose(stream.resamples()[resample], expected)
    np.testing.assert_allclose(stream.mean(), np.repeat(values, [1] * 4 + [2] * 5, 0).mean(0))


def test_bootstrap_spread_is_the_standard_error():
    values = np.random.default_rng(2).exponential(size=(300, 1))
    stream = BootstrapMean(n_resamples=1000, seed=0)
    stream.add(0, values)
    assert stream.resamples().std() == pytest.approx(values.std() / np.sqrt(300), rel=0.1)


def test_empty_resamples_are_left_out():
    stream = BootstrapMean(n_resamples=400, seed=0)
    stream.add(0, np.ones((1, 1)))
    drawn = stream.resamples()
    assert (drawn == 1).all()
    assert len(drawn) == pytest.approx(400 * (1 - np.exp(-1)), abs=4 * np.sqrt(400 * 0.37 * 0.63))


def test_interval_covers_the_planted_cosine():
    """Two layers at an angle ~ N(0, 0.5²): the mean cosine is exp(-0.5² / 2) exactly."""
    layout, truth, inside, repeats = TokenLayout(0, 0, 1), np.exp(-0.125), 0, 150
    rng = np.random.default_rng(0)
    for repeat in range(repeats):
        angle = rng.normal(0, 0.5, size=50)
        x = np.zeros((50, 3, 1, 2))
        x[:, 1, 0, 0] = 1 + rng.random(50)  # cosine does not see the norm
        x[:, 2, 0] = np.stack([np.cos(angle), np.sin(angle)], axis=1)
        result = similarity(blocks(x, 50), layout, bootstrap=100, seed=repeat)
        low, high = result.interval("cosine")
        inside += low[0, 1] <= truth <= high[0, 1]
    assert 0.85 <= inside / repeats <= 0.995  # binomial spread of 150 draws about 0.95, and skew


def test_one_batch_has_no_interval():
    low, high = measured(states(), 22).interval("cka")
    assert np.isnan(low).all()
    assert np.isnan(high).all()


def test_cka_is_resampled_by_batches():
    """Batches that are all alike leave no spread, whatever the spread between images."""
    x = np.concatenate([states(6)] * 5)
    result = measured(x, 6)
    assert np.ptp(result.resamples["cka"], axis=0).max() < 1e-12
    assert np.ptp(result.resamples["cosine"], axis=0)[0, 1] > 1e-3


def test_seed_decides_the_resamples():
    first, again, other = (measured(states(), seed=s).resamples["cosine"] for s in (0, 0, 1))
    assert (first == again).all()
    assert (first != other)[:, 0, 1].any()


# --- memory, errors, files -----------------------------------------------------------------------


def peak_bytes(n_images):
    rng = np.random.default_rng(0)
    shape = (50, DEPTH + 1, LAYOUT.total, 16)
    stream = ((i, rng.normal(size=shape), None) for i in range(0, n_images, 50))
    tracemalloc.start()
    similarity(stream, LAYOUT, bootstrap=20, seed=0)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak


def test_memory_does_not_grow_with_the_images():
    peak_bytes(100)  # what is allocated once per process
    assert peak_bytes(5000) == pytest.approx(peak_bytes(1000), rel=0.15)


def test_nonfinite_states_are_named():
    x = states()
    x[13, 2, 3, 1] = np.inf
    with pytest.raises(RaptorError, match="image 13 after layer 2 holds NaN or infinity"):
        measured(x)


def test_a_foreign_layout_is_refused():
    with pytest.raises(RaptorError, match="have 7 tokens, the layout counts 6"):
        measured(states(), layout=TokenLayout(1, 1, 4))


def test_too_few_images():
    with pytest.raises(RaptorError, match="too few"):
        measured(states(3))
    with pytest.raises(RaptorError, match="3 images; give at least 4"):
        unbiased_cka(np.eye(3), np.eye(3))
    with pytest.raises(RaptorError, match="6 and 5 rows"):
        unbiased_cka(np.ones((6, 2)), np.ones((5, 2)))


def test_measures_are_those_of_the_configuration():
    assert get_args(Measure) == MEASURES


@pytest.fixture
def store(monkeypatch):
    """A store in memory with the interface of `raptor.activations.read.Activations`."""
    data = {"train": states(30), "test": states(9, seed=1)}

    def opened(path, device):
        return SimpleNamespace(
            layout=LAYOUT,
            teacher=path.stem,
            splits={"train": (0, 30), "test": (30, 39)},
            blocks=lambda split, size: blocks(data[split], size),
        )

    module = ModuleType("raptor.activations.read")
    module.Activations = opened
    monkeypatch.setitem(sys.modules, "raptor.activations.read", module)
    return data


def test_written_files(tmp_path, store):
    config = SimilarityConfig(split="train", batch_images=10, bootstrap=25, seed=3)
    out, npz = tmp_path / "s" / "vit_a.csv", tmp_path / "s" / "vit_a.npz"
    manifest = tmp_path / "activations" / "vit_a.json"
    write_similarity(activations=manifest, config=config, output=out, matrices=npz)
    expected = measured(store["train"], 10, bootstrap=25, seed=3)
    df = pd.read_csv(out)
    assert list(df.columns) == [
        "teacher", "measure", "layer_a", "layer_b", "value", "ci_low", "ci_high", "n", "n_units",
    ]  # fmt: skip
    assert set(df["teacher"]) == {"vit_a"}
    assert set(df["n"]) == {30}
    with np.load(npz) as arrays:
        assert set(arrays) == {*MEASURES, *(f"{m}_bootstrap" for m in MEASURES)}
        for measure in MEASURES:
            rows = df[df["measure"] == measure]
            assert len(rows) == DEPTH**2
            assert set(rows["n_units"]) == {3 if measure == "cka" else 30}
            for column, matrix in zip(
                ("value", "ci_low", "ci_high"),
                (arrays[measure], *expected.interval(measure)),
                strict=True,
            ):
                listed = np.zeros((DEPTH, DEPTH))
                listed[rows["layer_a"] - 1, rows["layer_b"] - 1] = rows[column]
                np.testing.assert_array_equal(listed, matrix)
            np.testing.assert_array_equal(
                arrays[f"{measure}_bootstrap"], expected.resamples[measure]
            )
    before = out.read_bytes(), npz.read_bytes()
    write_similarity(activations=manifest, config=config, output=out, matrices=npz)
    assert (out.read_bytes(), npz.read_bytes()) == before
