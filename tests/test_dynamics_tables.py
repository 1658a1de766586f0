"""The tables of the dynamics: every value against one worked out apart."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from raptor import tables
from raptor.errors import RaptorError
from raptor.tables.files import read_table

RANKS = ["stable_rank", "effective_rank", "participation_ratio"]
IMAGES, LAYERS = 7, 4


@pytest.fixture
def save(tmp_path):
    def write(name: str, rows: list[dict] | pd.DataFrame) -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        pd.DataFrame(rows).to_csv(path, index=False)
        return path

    return write


@pytest.fixture
def cut(save) -> list[Path]:
    """Of the two teachers, `vit` with a second seed that is not the one measured."""
    rows = {"method": "random", "k": 2, "labels": "[1, 2, 2]", "cut_weight": 1, "cut_fraction": 1}
    seeds = [{"seed": 1, "segments": "1-2 3-3"}, {"seed": 0, "segments": "1-1 2-3"}]
    return [
        save("cuts/vit.csv", [{"teacher": "vit"} | rows | seed for seed in seeds]),
        save("cuts/bare.csv", [{"teacher": "bare"} | rows | seeds[1]]),
    ]


@pytest.fixture
def images(save) -> tuple[list[Path], dict[str, np.ndarray]]:
    """Paths, and by teacher, model and token type the values (column, image, layer)."""
    rng, paths, truth = np.random.default_rng(0), [], {}
    columns = ["direction", "norm", "speed", "coherence", *RANKS]
    for teacher, models in (("vit", ("teacher", "raptor")), ("bare", ("teacher",))):
        rows = []
        for model in models:
            for tokens in ("all", "cls", "patches"):
                values = rng.uniform(1, 2, (len(columns), IMAGES, LAYERS))
                values[2:, :, 0] = np.nan  # no update leads to the embedding
                if tokens == "cls":
                    values[4:] = np.nan  # one token has no rank
                truth[teacher, model, tokens] = dict(zip(columns, values, strict=True))
                rows += [
                    {"teacher": teacher, "model": model, "image": image, "label": 0}
                    | {"layer": layer, "tokens": tokens}
                    | {c: values[i, image, layer] for i, c in enumerate(columns)}
                    for image in range(IMAGES)
                    for layer in range(LAYERS)
                ]
        paths.append(save(f"{teacher}/images.csv", rows))
    return paths, truth


def assert_profiles(table: pd.DataFrame, truth: dict, metrics: list[str], first: int) -> None:
    """Every mean, sd and interval, against numpy and scipy; and no row more."""
    found = table[table["part"] == "profile"]
    count = 0
    for (teacher, model, tokens), values in truth.items():
        for metric in metrics:
            here = values[metric][:, first:]
            if np.isnan(here).all():
                continue
            rows = found[(found["teacher"] == teacher) & (found["model"] == model)]
            rows = rows[(rows["tokens"] == tokens) & (rows["metric"] == metric)]
            assert rows["layer"].tolist() == list(range(first, LAYERS))
            mean, error = here.mean(axis=0), stats.sem(here, axis=0)
            low, high = stats.t.interval(0.95, IMAGES - 1, loc=mean, scale=error)
            expected = np.stack([mean, here.std(axis=0, ddof=1), low, high], axis=1)
            np.testing.assert_allclose(rows[["mean", "sd", "ci_low", "ci_high"]], expected)
            assert set(rows["n"]) == {IMAGES}
            count += len(rows)
    assert len(found) == count
    assert dict(zip(table["teacher"], table["trained"], strict=True)) == {"vit": 1, "bare": 0}


def assert_segments(table: pd.DataFrame) -> None:
    found = table[table["part"] == "segment"]
    for teacher in ("vit", "bare"):
        spans = found.loc[found["teacher"] == teacher, ["first", "last"]]
        assert spans.to_numpy().tolist() == [[1, 1], [2, 3]]  # of seed 0
    assert set(found["method"]) == {"random"}


def test_speeds(images, cut, tmp_path):
    paths, truth = images
    output = tmp_path / "table.csv"
    tables.angular_speed(images=paths, partitions=cut, untrained=["bare"], output=output)
    table = read_table(output)
    assert_profiles(table, truth, ["speed"], first=1)
    assert_segments(table)


def test_directions_norms_and_basins(images, cut, save, tmp_path):
    paths, truth = images
    basin = {"teacher": "vit", "model": "teacher", "n_train": 9, "n_test": 5}
    angles = {"within_angle": 0.1, "between_angle": 0.9, "nearest_centroid_accuracy": 0.7}
    basins = [basin | angles | {"layer": layer} for layer in range(LAYERS)]
    path = {"teacher": "vit", "model": "teacher", "label": 3, "layer": 2, "x": 0.5, "y": -0.5}
    output = tmp_path / "table.csv"
    tables.directional_convergence(
        images=paths,
        basins=[save("basins.csv", basins)],
        trajectories=[save("trajectories.csv", [path | {"n": 4}])],
        partitions=cut,
        untrained=["bare"],
        output=output,
    )
    table = read_table(output)
    assert_profiles(table, truth, ["direction", "norm"], first=0)
    assert_segments(table)
    found = table[table["part"] == "basin"]
    assert found.groupby("metric")["value"].apply(list).to_dict() == {
        metric: [value] * LAYERS for metric, value in angles.items()
    }
    assert set(found["n"]) == {5}
    (kept,) = table[table["part"] == "trajectory"][[*path, "n"]].to_dict("records")
    assert kept == path | {"n": 4}


def test_ranks_and_coherence(images, cut, save, tmp_path):
    paths, truth = images
    pooled = {"teacher": "vit", "model": "teacher", "layer": 1, "tokens": "cls", "n": 5}
    pooled |= dict(zip(RANKS, (1.5, 2.5, 2.0), strict=True))
    output = tmp_path / "table.csv"
    tables.low_rank_updates(
        images=paths,
        pooled=[save("pooled.csv", [pooled])],
        partitions=cut,
        untrained=["bare"],
        output=output,
    )
    table = read_table(output)
    assert_profiles(table, truth, ["coherence", *RANKS], first=1)
    found = table[table["part"] == "pooled"]
    assert dict(zip(found["metric"], found["value"], strict=True)) == {
        "stable_rank": 1.5,
        "effective_rank": 2.5,
        "participation_ratio": 2.0,
    }


def noise(deviation, sources=(0, 1), sizes=(0.01, 0.1)) -> pd.DataFrame:
    """`deviation(image, source, layer, size)` after noise at each source, up to layer 4."""
    rows = [
        {"teacher": "vit", "model": "teacher", "image": image, "source_layer": source}
        | {"layer": layer, "relative_size": size, "tokens": "cls"}
        | {"deviation": deviation(image, source, layer, size)}
        for image in range(30)
        for source in sources
        for layer in range(source, 5)
        for size in sizes
    ]
    return pd.DataFrame(rows)


def rates(table: pd.DataFrame, save, tmp_path, cut) -> pd.DataFrame:
    output = tmp_path / "table.csv"
    tables.perturbation(
        perturbation=[save("perturbation.csv", table)],
        partitions=cut,
        untrained=["bare"],
        output=output,
    )
    return read_table(output)


def test_noise_that_decays_exponentially_has_its_rate(save, tmp_path, cut):
    table = rates(noise(lambda i, s, l, e: e * np.exp(-0.3 * (l - s))), save, tmp_path, cut)  # noqa: E741
    found = table[table["part"] == "rate"]
    assert found["relative_size"].tolist() == [0.01, 0.1]
    assert found["n"].tolist() == [30, 30]
    np.testing.assert_allclose(found[["mean", "ci_low", "ci_high"]], -0.3)
    curve = table[(table["part"] == "profile") & (table["relative_size"] == 0.1)]
    curve = curve[curve["source_layer"] == 1]
    np.testing.assert_allclose(curve["mean"], 0.1 * np.exp(-0.3 * np.arange(4)))


def test_the_rate_is_the_mean_slope_and_its_interval_that_of_the_mean(save, tmp_path, cut):
    rng = np.random.default_rng(1)
    table = noise(lambda *_: rng.lognormal(-3, 0.5))
    (found,) = (
        rates(table, save, tmp_path, cut)
        .query("part == 'rate' and relative_size == 0.1")
        .to_dict("records")
    )
    slopes = [
        np.mean(
            [
                np.polyfit(one["layer"], np.log(one["deviation"]), 1)[0]
                for _, one in here.groupby("source_layer")
            ]
        )
        for _, here in table[table["relative_size"] == 0.1].groupby("image")
    ]
    assert found["mean"] == pytest.approx(np.mean(slopes))
    half = 1.96 * np.std(slopes) / np.sqrt(len(slopes))
    assert found["mean"] - found["ci_low"] == pytest.approx(half, rel=0.15)
    assert found["ci_high"] - found["mean"] == pytest.approx(half, rel=0.15)


def test_a_single_image_has_no_interval(save, tmp_path, cut):
    table = noise(lambda i, s, l, e: e * np.exp(-0.3 * (l - s)))  # noqa: E741
    found = rates(table[table["image"] == 0], save, tmp_path, cut)
    found = found[found["part"] == "rate"]
    assert found["ci_low"].isna().all()
    np.testing.assert_allclose(found["mean"], -0.3)


def test_without_a_partition_there_are_no_segments_but_their_columns(images, tmp_path):
    output = tmp_path / "table.csv"
    tables.angular_speed(images=images[0], partitions=[], untrained=[], output=output)
    table = read_table(output)
    assert "segment" not in set(table["part"])
    assert {"method", "k", "first", "last"} <= set(table)
    assert set(table["trained"]) == {1}


def test_each_fit_of_the_modes_is_told_once(save, tmp_path):
    same = {"teacher": "vit", "model": "teacher", "residual": 0.1, "rank": 2}
    same |= {"n_train": 9, "n_test": 5, "imag": 0.0}
    rows = [
        same
        | {"tokens": tokens, "phase": phase, "first": phase, "last": phase, "mode": mode}
        | {"real": value, "modulus": value, "half_life": np.inf if value >= 1 else 1.0}
        | {"spectral_radius": 1.5, "nearest_to_one": 0.5, "residual_persistence": 0.2 * phase}
        for tokens in ("cls", "patches")
        for phase in (1, 2)
        for mode, value in ((1, 1.5), (2, 0.5))
    ]
    output = tmp_path / "table.csv"
    tables.dmd_spectrum(dmd=[save("dmd.csv", rows)], untrained=[], output=output)
    table = read_table(output)
    modes, fits = table[table["part"] == "mode"], table[table["part"] == "fit"]
    assert modes["real"].tolist() == [1.5, 0.5] * 4
    assert modes["half_life"].tolist() == [np.inf, 1.0] * 4
    assert fits[["tokens", "phase", "residual_persistence", "n"]].to_numpy().tolist() == [
        ["cls", 1, 0.2, 5],
        ["cls", 2, 0.4, 5],
        ["patches", 1, 0.2, 5],
        ["patches", 2, 0.4, 5],
    ]


def test_a_table_of_another_stage_is_refused(save, tmp_path):
    path = save("images.csv", [{"teacher": "vit", "model": "teacher"}])
    with pytest.raises(RaptorError, match="has no column image, layer, tokens, speed"):
        tables.angular_speed(
            images=[path], partitions=[], untrained=[], output=tmp_path / "table.csv"
        )
