"""The dynamics stage on a real store: against numpy, against a perfect student, block by block."""

from __future__ import annotations

import dataclasses
import gc
import json
import weakref

import numpy as np
import pandas as pd
import pytest
import torch

from raptor.activations.read import Activations
from raptor.config.dynamics import DynamicsConfig
from raptor.data.pools import UNLABELLED
from raptor.dynamics.contraction import contraction_rate
from raptor.dynamics.measure import COLUMNS, measure_dynamics
from raptor.errors import RaptorError
from raptor.stored import open_teacher

DEPTH, WIDTH = 4, 8
TYPES = {"all": slice(0, 6), "cls": slice(0, 1), "registers": slice(1, 2), "patches": slice(2, 6)}
SEGMENTS = [(1, 3), (4, 4)]
LABELS = [0, 0, 0, 1]  # of the student: the mean of three blocks of the teacher, and its last
NAN = float("nan")
KEYS = {"model", "image", "label", "layer", "tokens", "source_layer", "relative_size"}
KEYS |= {"phase", "mode"}


def settings(**changes) -> DynamicsConfig:
    raw = {"teachers": ["tiny"], "recipe": "mean", "k": 2, "images": 50, "train_images": 120}
    raw |= {"batch_images": 32, "perturbation": {"relative_sizes": [0.01, 0.1], "images": 12}}
    return DynamicsConfig.model_validate(raw | {"dmd": {"modes": 5}} | changes)


def run(planted, *students, config=None, cut=True, seed=0, name="out") -> dict[str, pd.DataFrame]:
    folder = planted.folder / name
    outputs = {table: folder / f"{table}.csv" for table in COLUMNS}
    partition = planted.folder / "maxcut-k2.csv"
    row = {"method": "maxcut", "k": 2, "seed": 0, "labels": json.dumps([1, 1, 1, 2])}
    pd.DataFrame([row | {"cut_weight": 1.0, "cut_fraction": 0.5}]).to_csv(partition, index=False)
    measure_dynamics(
        teacher=planted.path, activations=planted.activations, config=config or settings(),
        students=planted.index(*students) if students else None,
        partition=partition if cut else None, outputs=outputs,
        device=torch.device("cpu"), seed=seed,
    )  # fmt: skip
    return {table: pd.read_csv(path) for table, path in outputs.items()}


def states_of(planted, model: str, split: str, images: int) -> tuple[np.ndarray, np.ndarray]:
    """States (N, S, T, D) in float64 and labels: as stored, or made by `LABELS` from a_0."""
    store = Activations(planted.activations)
    first, last = store.splits[split]
    last = min(last, first + images)
    states = store.read(first, last)
    if model == "raptor":
        with torch.no_grad():
            states[:, 1:] = planted.student(LABELS)(torch.from_numpy(states[:, 0]))
    return states.astype(np.float64), store.labels[first:last]


@pytest.fixture(scope="module")
def measured(_stored, tmp_path_factory) -> dict[str, pd.DataFrame]:
    """The tables of a run with the student `LABELS`, without ridge."""
    planted = dataclasses.replace(_stored, folder=tmp_path_factory.mktemp("measured"))
    config = settings(dmd={"ridge": 0.0, "modes": 5})
    return run(planted, planted.student(LABELS), config=config)


def rows_of(tables: dict[str, pd.DataFrame], table: str, model: str) -> pd.DataFrame:
    return tables[table].query("model == @model").reset_index(drop=True)


both_models = pytest.mark.parametrize("model", ["teacher", "raptor"])


def hat(x: np.ndarray) -> np.ndarray:
    return x / np.linalg.norm(x, axis=-1, keepdims=True)


def ranks(matrix: np.ndarray) -> list[float]:
    squares = np.linalg.svd(matrix, compute_uv=False) ** 2
    p = squares[squares > 1e-14 * squares.max()] / squares.sum()
    return [1 / p.max(), float(np.exp(-(p * np.log(p)).sum())), 1 / (p**2).sum()]


def test_columns_keys_and_models(measured):
    tables = measured
    for table, columns in COLUMNS.items():
        assert list(tables[table]) == columns.split()
        assert set(tables[table]["teacher"]) == {"tiny"}
        assert list(tables[table]["model"].unique()) == ["teacher", "raptor"]
        keys = [c for c in columns.split() if c in KEYS]
        assert not tables[table].duplicated(keys).any()
    assert len(tables["images"]) == 2 * 50 * 5 * 4
    assert len(tables["pooled"]) == 2 * 4 * 4
    assert len(tables["basins"]) == 2 * 5
    assert len(tables["trajectories"]) == 2 * 3 * 5
    assert len(tables["perturbation"]) == 2 * 12 * (5 + 4 + 3 + 2) * 2 * 3
    assert len(tables["dmd"]) == 2 * 3 * 2 * 5
    first_state = tables["images"].query("layer == 0")
    assert first_state[["speed", "coherence", "stable_rank"]].isna().all(axis=None)


@both_models
def test_images_against_numpy(planted, measured, model):
    table = rows_of(measured, "images", model)
    states, labels = states_of(planted, model, "test", 50)
    assert (table.groupby("image")["label"].first().to_numpy() == labels).all()
    rows = table.sample(120, random_state=0)
    for row in rows.itertuples():
        now = states[row.image, row.layer, TYPES[row.tokens]]
        last = states[row.image, -1, TYPES[row.tokens]]
        expected = [(hat(now) * hat(last)).sum(axis=-1).mean(), np.linalg.norm(now, axis=-1).mean()]
        if row.layer == 0:
            expected += [NAN] * 5
        else:
            before = states[row.image, row.layer - 1, TYPES[row.tokens]]
            speed = np.arccos(np.clip((hat(now) * hat(before)).sum(axis=-1), -1, 1)).mean()
            change = states[row.image, row.layer] - states[row.image, row.layer - 1]
            own = change[TYPES[row.tokens]]
            peers = own if len(own) > 1 else change[TYPES["patches"]]
            coherence = (hat(own) @ hat(peers.mean(axis=0))).mean()
            expected += [speed, coherence, *(ranks(own) if len(own) > 1 else [NAN] * 3)]
        np.testing.assert_allclose(row[7:], expected, rtol=5e-5, atol=1e-5)


@both_models
def test_pooled_against_numpy(planted, measured, model):
    table = rows_of(measured, "pooled", model)
    states, _ = states_of(planted, model, "test", 50)
    for row in table.itertuples():
        change = (states[:, row.layer] - states[:, row.layer - 1])[:, TYPES[row.tokens]]
        found = [row.stable_rank, row.effective_rank, row.participation_ratio]
        np.testing.assert_allclose(found, ranks(change.reshape(-1, WIDTH)), rtol=1e-5)
        assert row.n == 50


@both_models
def test_basins_against_numpy(planted, measured, model):
    table = rows_of(measured, "basins", model)
    train, y = states_of(planted, model, "train", 120)
    test, z = states_of(planted, model, "test", 50)
    train, test, own = hat(train[:, :, 0]), hat(test[:, :, 0]), np.eye(3, dtype=bool)[z]
    for row in table[1:].itertuples():
        centroids = hat(np.stack([train[y == c, row.layer].sum(axis=0) for c in range(3)]))
        angles = np.arccos(test[:, row.layer] @ centroids.T)
        expected = [angles[own].mean(), angles[~own].mean(), (angles.argmin(axis=1) == z).mean()]
        found = [row.within_angle, row.between_angle, row.nearest_centroid_accuracy]
        np.testing.assert_allclose(found, expected, rtol=1e-5)
        assert (row.n_train, row.n_test) == (120, 50)
    # All cls tokens are the same before the first block.
    assert table["nearest_centroid_accuracy"][0] == pytest.approx(1 / 3)


@both_models
def test_trajectories_lie_in_the_plane_of_the_teacher(planted, measured, model):
    points = rows_of(measured, "trajectories", model)
    train, y = states_of(planted, "teacher", "train", 120)
    test, z = states_of(planted, model, "test", 50)
    means = np.stack([hat(train[y == c, -1, 0]).mean(axis=0) for c in range(3)])
    axes = np.linalg.svd(means - means.mean(axis=0))[2][:2]
    for row in points.itertuples():
        mean = hat(test[z == row.label, row.layer, 0]).mean(axis=0)
        expected = np.abs(axes @ (mean - means.mean(axis=0)))  # up to the signs of the axes
        np.testing.assert_allclose(np.abs([row.x, row.y]), expected, rtol=1e-5, atol=1e-6)
        assert row.n == (z == row.label).sum()


@both_models
def test_dmd_against_least_squares(planted, measured, model):
    table = rows_of(measured, "dmd", model)
    train, _ = states_of(planted, model, "train", 120)
    test, _ = states_of(planted, model, "test", 50)
    for tokens in ("registers", "patches"):
        for phase, (first, last) in enumerate(SEGMENTS, start=1):
            (x, y), (x_test, y_test) = (
                [
                    hat(s[:, a:b, TYPES[tokens]]).reshape(-1, WIDTH)
                    for a, b in ((first - 1, last), (first, last + 1))
                ]
                for s in (train, test)
            )
            operator = np.linalg.lstsq(x, y, rcond=None)[0].T
            rows = table[(table["tokens"] == tokens) & (table["phase"] == phase)]
            modulus = np.sort(np.abs(np.linalg.eigvals(operator)))[::-1]
            np.testing.assert_allclose(rows["modulus"], modulus[:5], rtol=1e-3)
            error = ((y_test - x_test @ operator.T) ** 2).sum()
            row = rows.iloc[0]
            assert row["residual"] == pytest.approx(error / len(y_test), rel=1e-3)
            moved = ((y_test - x_test) ** 2).sum()
            assert row["residual_persistence"] == pytest.approx(error / moved, rel=1e-3)
            assert row["spectral_radius"] == pytest.approx(modulus[0], rel=1e-4)
            assert (row["first"], row["last"]) == (first, last)
            assert (row["rank"], row["n_train"], row["n_test"]) == (WIDTH, 120, 50)


def test_a_student_of_the_teachers_own_blocks_moves_as_the_teacher(planted):
    config = settings(k=4)
    tables = run(planted, planted.student([0, 1, 2, 3]), config=config)
    for table, rows in tables.items():
        both = [rows[rows["model"] == model] for model in ("teacher", "raptor")]
        numbers = [one.select_dtypes("number").to_numpy(float) for one in both]
        # Batches of another size differ in the last bits of float32.
        np.testing.assert_allclose(*numbers, rtol=2e-3, atol=2e-5, err_msg=table)


def test_a_student_with_one_block_does_not(planted):
    images = run(planted, planted.student([0, 0, 1, 1]))["images"]
    speed = images[images["layer"] > 0].groupby(["model", "layer"])["speed"].mean()
    assert ((speed["raptor"] - speed["teacher"]).abs() > 1e-3).all()


def test_perturbations_start_at_their_size_and_are_the_same_for_both(measured):
    table = measured["perturbation"]
    start = table[table["layer"] == table["source_layer"]]
    means = start.groupby("relative_size")["deviation"].mean()
    # Of a small push the part across the token counts: E|sin| of a random direction in D = 8.
    across = np.linalg.norm(hat(np.random.default_rng(0).normal(size=(10**5, 8)))[:, 1:], axis=1)
    assert means[0.01] == pytest.approx(0.01 * across.mean(), rel=0.03)
    assert (table["layer"] >= table["source_layer"]).all()
    at_0 = start[start["source_layer"] == 0]
    at_0 = at_0.set_index(["model", "image", "tokens", "relative_size"])
    pd.testing.assert_series_equal(
        at_0.loc["teacher"]["deviation"], at_0.loc["raptor"]["deviation"], rtol=1e-5
    )
    one = table.query("model == 'teacher' and source_layer == 1 and relative_size == 0.01")
    curve = one.groupby("layer")["deviation"].mean().to_numpy()
    assert np.isfinite(contraction_rate(curve))


def test_a_perturbation_by_hand(planted, monkeypatch):
    """Noise at layer 2 of one image, put on and followed through the teacher's blocks."""
    drawn = {}
    from raptor.dynamics import measure

    def note(seeds, tokens, width):
        drawn[len(drawn)] = noise = draw(seeds, tokens, width)
        return noise

    draw = measure.noise_directions
    monkeypatch.setattr(measure, "noise_directions", note)
    config = settings(perturbation={"relative_sizes": [0.1], "source_layers": [2], "images": 3})
    table = run(planted, config=config)["perturbation"]
    states, _ = states_of(planted, "teacher", "test", 3)
    state = torch.from_numpy(states[:, 2]).float()
    moved = state + 0.1 * state.norm(dim=-1, keepdim=True) * drawn[0]
    for layer in (2, 3, 4):
        cosine = torch.nn.functional.cosine_similarity(state.double(), moved.double(), dim=-1)
        expected = cosine.clamp(-1, 1).arccos()[:, TYPES["patches"]].mean(dim=1)
        rows = table[(table["layer"] == layer) & (table["tokens"] == "patches")]
        np.testing.assert_allclose(rows["deviation"], expected, rtol=1e-4)
        if layer < DEPTH:
            state, moved = (planted.teacher.blocks[layer](s) for s in (state, moved))


def test_blocks_of_images_change_nothing(planted):
    student = planted.student(LABELS)
    small = {"perturbation": {"relative_sizes": [0.1], "source_layers": [1], "images": 12}}
    tables = [
        run(planted, student, config=settings(batch_images=size, **small), name=f"of{size}")
        for size in (11, 64)
    ]
    for table in COLUMNS:
        one, other = (t[table].select_dtypes("number").to_numpy(float) for t in tables)
        np.testing.assert_allclose(one, other, rtol=1e-3, atol=1e-5, err_msg=table)


def test_twice_is_the_same_and_another_seed_draws_other_noise(planted):
    files = {}
    for name, seed in (("a", 0), ("b", 0), ("c", 1)):
        run(planted, seed=seed, name=name)
        files[name] = {t: (planted.folder / name / f"{t}.csv").read_bytes() for t in COLUMNS}
    assert files["a"] == files["b"]
    assert {t for t in COLUMNS if files["a"][t] != files["c"][t]} == {"perturbation"}


def test_without_students_and_phases(planted):
    tables = run(planted, cut=False)
    assert all(set(rows["model"]) == {"teacher"} for rows in tables.values())
    assert set(zip(tables["dmd"]["first"], tables["dmd"]["last"], strict=True)) == {(1, DEPTH)}


def test_images_asked_for_are_a_limit(planted):
    tables = run(planted, config=settings(images=10**6, train_images=10**6, batch_images=17))
    assert tables["images"]["image"].nunique() == 60
    assert set(tables["basins"]["n_train"]) == {150}


def test_what_does_not_fit_is_refused_and_nothing_is_written(planted):
    with pytest.raises(RaptorError, match=r"lists no student .*-k3/seed0"):
        run(planted, planted.student(LABELS), config=settings(k=3))
    broken = planted.student(LABELS)
    with torch.no_grad():
        broken.blocks[1].mlp.fc2.bias.fill_(float("inf"))
    with pytest.raises(RaptorError, match="raptor: the state of layer 4 of image 0 of train"):
        run(planted, broken)
    assert not list(planted.folder.glob("out/*"))


def test_images_without_labels_are_one_class(planted, monkeypatch):
    """And are said to have none."""

    def opened(*arguments):
        model, store = open_teacher(*arguments)
        store.labels[:] = UNLABELLED
        return model, store

    monkeypatch.setattr("raptor.dynamics.measure.open_teacher", opened)
    found = run(planted)
    assert (found["images"]["label"] == UNLABELLED).all()
    assert list(found["trajectories"]["label"].unique()) == [0]
    assert found["basins"]["nearest_centroid_accuracy"].isna().all()


def tensor_bytes() -> int:
    """Of all tensors that live, apart from what `gc.freeze` has put aside."""
    storages = [o.untyped_storage() for o in gc.get_objects() if type(o) is torch.Tensor]
    return sum({storage.data_ptr(): storage.nbytes() for storage in storages}.values())


def test_memory_does_not_grow_with_the_images(planted, monkeypatch):
    """No block of states outlives its turn, nor does a tensor made from each of them."""
    alive, blocks, passes = [], Activations.blocks, []

    def watched(self, split, size, layers=None, images=None):
        passes.append([])
        for start, states, labels in blocks(self, split, size, layers, images):
            assert sum(one() is not None for one in alive) <= 1
            alive.append(weakref.ref(states))
            passes[-1].append(tensor_bytes())
            yield start, states, labels
            del states

    monkeypatch.setattr(Activations, "blocks", watched)
    student = planted.student(LABELS)
    gc.freeze()
    try:
        whole = {"relative_sizes": [0.01, 0.1], "images": 20}  # blocks of one size
        sizes = {"batch_images": 10, "train_images": 1000, "images": 1000, "perturbation": whole}
        run(planted, student, config=settings(**sizes))
    finally:
        gc.unfreeze()
    assert [len(sizes) for sizes in passes] == [15, 6, 2] * 2
    for sizes in passes:
        assert max(sizes) == sizes[1]  # every sum is there after the first block
