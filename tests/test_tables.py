"""Tidy tables: what is in them, against numbers worked out by hand or by another library."""

from __future__ import annotations

import json
import re
import statistics
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from raptor import tables
from raptor.errors import RaptorError
from raptor.files import sha256
from raptor.tables import published
from raptor.tables.files import read_table, read_tables
from raptor.tables.summary import sigmas, summarise, summarise_by

PAPER = Path(__file__).parents[2] / "shared/paper.md"
LABELS = {"1-2 3-3": [1, 1, 2], "1-1 2-3": [1, 2, 2], "1-1 2-2 3-3": [1, 2, 3]}


@pytest.fixture
def save(tmp_path):
    """Write rows as a CSV of that name and return its path."""

    def write(name: str, rows: list[dict]) -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        pd.DataFrame(rows).to_csv(path, index=False)
        return path

    return write


def student(seed: int = 0, **changes) -> dict:
    row = {"teacher": "vit", "recipe": "r", "partition": "maxcut", "k": 3, "seed": seed}
    row |= {"segments": "[[1, 3]]", "r2_mean": 0.9, "r2_cls": 0.8, "r2_registers": np.nan}
    row |= {"r2_patch": 0.95, "accuracy": 0.9, "accuracy_head": 0.7, "accuracy_teacher": 0.96}
    row |= {"accuracy_teacher_head": 0.95, "recovered": 0.9375, "recovered_head": 0.7 / 0.95}
    return row | {"n_test": 100} | changes


def probe(teacher: str = "vit", accuracy: float = 0.96) -> dict:
    row = {"teacher": teacher, "accuracy": accuracy, "accuracy_head": accuracy - 0.01}
    return row | {"n_test": 100, "r2_identity": -1.0, "r2_layer_mean": 0.25, "r2_linear": 0.5}


# --- summaries ---------------------------------------------------------------------------------


def test_summary_agrees_with_scipy_and_the_standard_library():
    values = [0.91, 0.95, 0.93, 0.99]
    found = summarise([*values, np.nan])
    assert found.n == 4
    assert found.mean == pytest.approx(statistics.mean(values))
    assert found.sd == pytest.approx(statistics.stdev(values))
    interval = stats.t.interval(0.95, 3, loc=np.mean(values), scale=stats.sem(values))
    assert (found.ci_low, found.ci_high) == pytest.approx(interval)


def test_one_value_has_no_spread():
    assert summarise([0.5])[:2] == (1, 0.5)
    assert np.isnan(summarise([0.5])[2:]).all()
    assert summarise([]).n == 0


def test_summary_by_group():
    table = pd.DataFrame({"k": [3, 2, 3], "value": [1.0, 5.0, 2.0]})
    found = summarise_by(table, ["k"], "value")
    assert found[["k", "n", "mean"]].to_numpy().tolist() == [[3, 2, 1.5], [2, 1, 5.0]]


def test_sigmas_count_in_the_spread_of_the_reference():
    assert sigmas(0.95, summarise([0.90, 0.92, 0.94])) == pytest.approx(1.5)
    assert np.isnan(sigmas(0.95, summarise([0.9])))
    assert np.isnan(sigmas(0.95, summarise([0.9, 0.9])))


# --- reading -----------------------------------------------------------------------------------


def test_names_that_look_like_something_else_stay_names(save):
    path = save("a.csv", [{"teacher": "007", "k": 2}, {"teacher": "NA", "k": 3}])
    assert read_table(path)["teacher"].tolist() == ["007", "NA"]


def test_numbers_survive_the_file(save):
    values = np.random.default_rng(0).random(100)
    path = save("a.csv", [{"value": value} for value in values])
    np.testing.assert_allclose(read_table(path)["value"], values, rtol=1e-15)


def test_a_missing_column_is_named_with_its_file(save):
    path = save("a.csv", [{"teacher": "vit"}])
    with pytest.raises(
        RaptorError, match=r"a\.csv: has no column k, seed; delete it and run again"
    ):
        read_table(path, "teacher k seed")


def test_no_file_or_no_row_is_an_error(save, tmp_path):
    with pytest.raises(RaptorError, match="no file given"):
        read_tables([])
    (tmp_path / "header.csv").write_text("teacher,k\n")
    with pytest.raises(RaptorError, match=r"header\.csv"):
        read_tables([tmp_path / "header.csv"])
    (tmp_path / "empty.csv").write_text("")
    with pytest.raises(RaptorError, match=r"empty\.csv: not a readable table"):
        read_tables([tmp_path / "empty.csv"])


# --- over the whole experiment -----------------------------------------------------------------


def test_fidelity_has_its_columns_first_and_is_sorted(save, tmp_path):
    files = [
        save("b.csv", [student(k=10), student(k=9, seed=1), student(k=9)]),
        save("a.csv", [student(partition="random")]),
    ]
    tables.fidelity(students=files, output=tmp_path / "out.csv")
    header = (tmp_path / "out.csv").read_text().splitlines()[0].split(",")
    first = "teacher recipe partition k seed r2_mean r2_cls r2_patch "
    assert " ".join(header[:11]) == first + "accuracy accuracy_teacher recovered"
    assert {"r2_registers", "n_test", "segments"} <= set(header[11:])
    found = read_table(tmp_path / "out.csv")
    rows = found[["partition", "k", "seed"]].to_numpy().tolist()
    assert rows == [["maxcut", 9, 0], ["maxcut", 9, 1], ["maxcut", 10, 0], ["random", 3, 0]]
    assert found["recovered"].tolist() == [0.9375] * 4


def test_layers_hold_students_and_baselines(save, tmp_path):
    keys = {key: student()[key] for key in ("teacher", "recipe", "partition", "k", "seed")}
    own = save("s.csv", [keys | {"layer": 2, "tokens": "cls", "r2": 0.7, "epsilon": 3.0}])
    base = {"teacher": "vit", "baseline": "identity", "layer": 1, "tokens": "all", "r2": -1.0}
    trivial = save("b.csv", [base])
    tables.layers(students=[own], baselines=[trivial], output=tmp_path / "out.csv")
    found = read_table(tmp_path / "out.csv").set_index("r2")
    assert found.loc[-1.0, "baseline"] == "identity"
    assert pd.isna(found.loc[-1.0, "recipe"])
    assert found.loc[0.7, "partition"] == "maxcut"
    assert found.loc[0.7, "epsilon"] == 3.0
    assert ",3,0,2," in (tmp_path / "out.csv").read_text()  # whole numbers stay whole


def test_teachers_are_sorted(save, tmp_path):
    files = [save("b.csv", [probe("vit")]), save("a.csv", [probe("shallow")])]
    tables.teachers(probes=files, output=tmp_path / "out.csv")
    assert read_table(tmp_path / "out.csv")["teacher"].tolist() == ["shallow", "vit"]


# --- phases ------------------------------------------------------------------------------------

MATRIX = np.array([[1.0, 0.9, 0.1], [0.9, 1.0, 0.2], [0.1, 0.2, 1.0]])


def similarity_rows(teacher: str, matrix: np.ndarray, measure: str = "cosine") -> list[dict]:
    return [
        {"teacher": teacher, "measure": measure, "layer_a": a + 1, "layer_b": b + 1}
        | {"value": value, "ci_low": value, "ci_high": value, "n": 50}
        for (a, b), value in np.ndenumerate(matrix)
    ]


def partition_row(method: str, segments: str, seed: int = 0, fraction: float = 0.5) -> dict:
    row = {"teacher": "vit", "method": method, "k": 2, "seed": seed, "segments": segments}
    labels = json.dumps(LABELS[segments])
    return row | {"labels": labels, "cut_weight": 2 * fraction, "cut_fraction": fraction}


def stability_rows(method: str, frequency: tuple[float, float], chosen: int) -> list[dict]:
    return [
        {"teacher": "vit", "method": method, "k": 2, "boundary": boundary}
        | {"chosen": int(boundary == chosen), "frequency": share}
        | {"exact_share": frequency[chosen - 1], "n_resamples": 40}
        for boundary, share in enumerate(frequency, start=1)
    ]


def test_contrast_of_a_matrix_worked_out_by_hand(save, tmp_path):
    rows = similarity_rows("vit", MATRIX)
    rows += similarity_rows("vit", 1 - MATRIX, "mean_squared_difference")
    files = [save("vit.csv", rows), save("bare.csv", similarity_rows("bare", MATRIX))]
    wider = MATRIX - 0.1 * np.eye(3)[[1, 0, 2]] * (1 - np.eye(3))  # the pair (1, 2) at 0.8
    resamples = {
        f"{name}_bootstrap": np.stack([sign * MATRIX, sign * wider])
        for name, sign in (("cosine", 1), ("mean_squared_difference", -1))
    }
    np.savez(tmp_path / "vit.npz", **resamples)
    tables.similarity_matrices(
        similarity=files,
        matrices=[tmp_path / "vit.npz"],
        partitions=[save("cut.csv", [partition_row("maxcut", "1-2 3-3")])],
        untrained=["bare"],
        output=tmp_path / "out.csv",
    )
    found = read_table(tmp_path / "out.csv")
    assert len(found) == 27
    contrast = found.drop_duplicates(["teacher", "measure"]).set_index(["teacher", "measure"])
    for measure in ("cosine", "mean_squared_difference"):  # 0.9 within, (0.1 + 0.2) / 2 across
        assert contrast.loc[("vit", measure), "contrast"] == pytest.approx(0.75)
        assert contrast.loc[("vit", measure), "contrast_low"] == pytest.approx(0.6525)
        assert contrast.loc[("vit", measure), "contrast_high"] == pytest.approx(0.7475)
    assert np.isnan(contrast.loc[("bare", "cosine"), "contrast"])
    assert contrast["trained"].tolist() == [1, 1, 0]


def test_contrast_has_no_interval_where_the_entries_have_none(save, tmp_path):
    rows = [row | {"ci_low": np.nan} for row in similarity_rows("vit", MATRIX)]
    np.savez(tmp_path / "vit.npz", cosine_bootstrap=np.stack([MATRIX, MATRIX]))
    tables.similarity_matrices(
        similarity=[save("vit.csv", rows)],
        matrices=[tmp_path / "vit.npz"],
        partitions=[save("cut.csv", [partition_row("maxcut", "1-2 3-3")])],
        untrained=[],
        output=tmp_path / "out.csv",
    )
    found = read_table(tmp_path / "out.csv").iloc[0]
    assert found["contrast"] == pytest.approx(0.75)
    assert np.isnan(found["contrast_low"])


def test_a_teacher_cut_into_single_layers_has_no_contrast(save, tmp_path):
    tables.similarity_matrices(
        similarity=[save("vit.csv", similarity_rows("vit", MATRIX))],
        matrices=[],
        partitions=[save("cut.csv", [partition_row("maxcut", "1-1 2-2 3-3")])],
        untrained=[],
        output=tmp_path / "out.csv",
    )
    assert read_table(tmp_path / "out.csv")["contrast"].isna().all()


def test_partitions_figure_has_every_part(save, tmp_path):
    stable = stability_rows("maxcut", (0.1, 0.9), chosen=2)
    stop = {"teacher": "vit", "epsilon": 0.2, "k": 2, "segments": "1-2 3-3"}
    partitions = [
        save("m.csv", [partition_row("maxcut", "1-2 3-3", seed) for seed in range(3)]),
        save("e.csv", [partition_row("maxcut_exact", "1-1 2-3")]),
        save("r.csv", [partition_row("random", "1-1 2-3")]),
    ]
    tables.maxcut_partitions(
        similarity=[save("s.csv", similarity_rows("vit", MATRIX))],
        partitions=partitions,
        stability=[save("stable.csv", stable)],
        epsilon=[save("stop.csv", [stop])],
        measure="cosine",
        output=tmp_path / "out.csv",
    )
    parts = dict(list(read_table(tmp_path / "out.csv").groupby("part")))
    entry = parts["matrix"].set_index(["layer_a", "layer_b"])["value"]
    assert entry[(1, 3)] == pytest.approx(0.9)
    cuts = parts["segment"][["method", "first", "last"]].to_numpy().tolist()
    assert cuts == [
        ["maxcut", 1, 2],
        ["maxcut", 3, 3],
        ["maxcut_exact", 1, 1],
        ["maxcut_exact", 2, 3],
    ]
    assert parts["boundary"]["frequency"].tolist() == [0.1, 0.9]
    assert parts["epsilon"][["epsilon", "k"]].to_numpy().tolist() == [[0.2, 2]]


def test_table_of_partitions(save, tmp_path):
    draws = [("1-2 3-3", 0.4), ("1-1 2-3", 0.5), ("1-2 3-3", 0.9)]
    partitions = [
        save("m.csv", [partition_row("maxcut", "1-2 3-3")]),
        save("r.csv", [partition_row("random", text, s, f) for s, (text, f) in enumerate(draws)]),
    ]
    stops = [
        {"teacher": "vit", "epsilon": e, "k": k, "segments": ""} for e, k in ((0.2, 2), (0.1, 3))
    ]
    tables.table_partitions(
        partitions=partitions,
        stability=[save("stable.csv", stability_rows("maxcut", (0.1, 0.9), chosen=2))],
        epsilon=[save("stop.csv", stops)],
        output=tmp_path / "out.csv",
    )
    found = read_table(tmp_path / "out.csv").set_index("method")
    assert found.loc["maxcut", "segments"] == "1-2 3-3"
    assert found.loc["maxcut", "n_draws"] == 1
    assert found.loc["maxcut", "exact_share"] == 0.9
    assert found.loc["maxcut", "boundary_frequency"] == "2:0.90"
    assert found.loc["maxcut", "epsilon"] == 0.2
    assert pd.isna(found.loc["maxcut", "cut_fraction_sd"])
    assert pd.isna(found.loc["random", "segments"])
    assert found.loc["random", "n_partitions"] == 2
    assert found.loc["random", "n_draws"] == 3
    assert found.loc["random", "cut_fraction"] == pytest.approx(0.6)
    assert found.loc["random", "cut_fraction_sd"] == pytest.approx(
        statistics.stdev([0.4, 0.5, 0.9])
    )


# --- students ----------------------------------------------------------------------------------


def study(*rows) -> list[list]:
    return [[row[key] for key in ("teacher", "recipe", "partition", "k", "seed")] for row in rows]


def test_only_the_students_of_a_study_are_compared(save, tmp_path):
    """A file holds what one job trained, for this study and others."""
    rows = [student(0), student(0, partition="random"), student(1)]
    out = tmp_path / "out.csv"
    tables.partition_comparison(students=[save("s.csv", rows)], study=study(rows[2]), output=out)
    assert read_table(out)[["partition", "seed"]].to_numpy().tolist() == [["maxcut", 1]]
    with pytest.raises(RaptorError, match=r"'seed': 5\} is in none of the tables"):
        tables.partition_comparison(
            students=[save("s.csv", rows)], study=study(student(5)), output=out
        )


def test_fidelity_by_k_sets_students_beside_baselines_and_a_smaller_teacher(save, tmp_path):
    tables.fidelity_by_k(
        students=[save("s.csv", [student(0), student(1, recovered=0.95)])],
        study=study(student(0), student(1)),
        probes=[save("p.csv", [probe(), probe("unrelated")])],
        reference=save("small.csv", [probe("shallow", accuracy=0.72)]),
        output=tmp_path / "out.csv",
    )
    parts = dict(list(read_table(tmp_path / "out.csv").groupby("part")))
    recovered = parts["student"][parts["student"]["metric"] == "recovered"]
    assert recovered["value"].tolist() == [0.9375, 0.95]
    assert parts["student"].groupby("metric").size().eq(2).all()
    baselines = parts["baseline"].set_index("partition")["value"].to_dict()
    assert baselines == {"identity": -1.0, "layer_mean": 0.25, "linear": 0.5}
    share = parts["reference"].set_index("metric")["value"]
    assert share["recovered"] == pytest.approx(0.75)
    assert share["recovered_head"] == pytest.approx(0.71 / 0.95)
    assert set(parts["reference"]["partition"]) == {"shallow"}


def test_fidelity_by_k_without_a_smaller_teacher(save, tmp_path):
    tables.fidelity_by_k(
        students=[save("s.csv", [student()])],
        study=study(student()),
        probes=[save("p.csv", [probe()])],
        reference=None,
        output=tmp_path / "out.csv",
    )
    assert set(read_table(tmp_path / "out.csv")["part"]) == {"student", "baseline"}


def test_table_of_probes(save, tmp_path):
    recovered = [0.96, 0.97, 0.99]
    rows = [student(seed, recovered=share) for seed, share in enumerate(recovered)]
    rows += [student(0, partition="random"), student(0, k=7)]
    tables.table_probes(
        students=[save("s.csv", rows)],
        study=study(*rows),
        probes=[save("p.csv", [probe()])],
        reference=save("small.csv", [probe("shallow", 0.72)]),
        output=tmp_path / "out.csv",
    )
    found = read_table(tmp_path / "out.csv")
    assert found["model"].tolist() == ["raptor"] * 3 + ["teacher", "smaller teacher"]
    best = found[(found["partition"] == "maxcut") & (found["k"] == 3)].iloc[0]
    assert best["n_seeds"] == 3
    assert best["recovered"] == pytest.approx(statistics.mean(recovered))
    assert best["recovered_sd"] == pytest.approx(statistics.stdev(recovered))
    low, high = stats.t.interval(0.95, 2, statistics.mean(recovered), stats.sem(recovered))
    assert (best["recovered_low"], best["recovered_high"]) == pytest.approx((low, high))
    assert best["paper_recovered"] == pytest.approx(83.0 / 84.5)
    others = found[
        (found["model"] == "raptor") & ~((found["partition"] == "maxcut") & (found["k"] == 3))
    ]
    assert others["paper_top1"].isna().all()  # the paper has neither random cuts nor k = 7


def test_training_curves_read_the_history_beside_the_index(save, tmp_path):
    history = [
        {"stage": "stage2", "step": 10, "metric": metric, "layer": layer, "tokens": tokens}
        | {"value": value}
        for metric, layer, tokens, value in [
            ("loss", "", "", 0.3),
            ("r2", "", "", 0.8),
            ("error", 1, "cls", 9.0),
        ]
    ]
    path = save("vit/r/maxcut-k2/seed4.history.csv", history)
    entry = {"file": "maxcut-k2/seed4.safetensors", "teacher": "vit", "recipe": "r", "k": 2}
    entry |= {"method": "maxcut", "seed": 4, "history_sha256": sha256(path)}
    index = tmp_path / "vit/r/part1.json"
    index.write_text(json.dumps({"students": [entry, entry | {"seed": 5, "file": "absent"}]}))
    tables.training_curves(
        students=[index], study=[["vit", "r", "maxcut", 2, 4]], output=tmp_path / "out.csv"
    )
    found = read_table(tmp_path / "out.csv").set_index("metric")
    assert found["value"].to_dict() == {"loss": 0.3, "r2": 0.8}
    assert found.loc["r2", ["teacher", "partition", "seed", "tokens"]].tolist() == [
        "vit", "maxcut", 4, "all",
    ]  # fmt: skip
    path.write_text(path.read_text().replace("0.8", "0.9"))
    with pytest.raises(RaptorError, match=r"seed4\.history\.csv: missing, damaged or edited"):
        tables.training_curves(
            students=[index], study=[["vit", "r", "maxcut", 2, 4]], output=tmp_path / "out.csv"
        )


def test_a_broken_index_is_named(tmp_path):
    index = tmp_path / "part1.json"
    index.write_text("{}")
    with pytest.raises(RaptorError, match=r"part1\.json: no index of students"):
        tables.training_curves(students=[index], study=[], output=tmp_path / "out.csv")


def test_chance_is_the_commonest_class_of_the_split(save, tmp_path):
    swap = {"teacher": "vit", "partition": "maxcut", "k": 2, "segments": "1-2 3-3", "size": 1}
    swap |= {"kind": "intra", "targets": "[1]", "sources": "[2]", "accuracy": 0.8}
    swap |= {"accuracy_teacher": 0.9, "drop": 0.1, "relative_error": 0.2, "distance": 1.0, "n": 4}
    labels = [("test", 0), ("test", 1), ("test", 1), ("test", 2), ("train", 0), ("train", 0)]
    samples = save("samples.csv", [{"split": s, "label": label} for s, label in labels])
    given = {"swaps": [save("swaps.csv", [swap])], "samples": samples}
    tables.layer_swaps(**given, split="test", output=tmp_path / "out.csv")
    assert read_table(tmp_path / "out.csv")["chance"].tolist() == [0.5]
    with pytest.raises(RaptorError, match=r"samples\.csv: has no image of the split val"):
        tables.layer_swaps(**given, split="val", output=tmp_path / "out.csv")


# --- the paper's numbers -----------------------------------------------------------------------


@pytest.mark.skipif(not PAPER.is_file(), reason="the paper's numbers are not here (../shared)")
def test_published_numbers_are_the_papers():
    text = PAPER.read_text(encoding="utf-8")
    line = next(row for row in text.splitlines() if row.startswith("| ImageNet-1k top-1"))
    given = [float(number) / 100 for number in re.findall(r"\d+\.\d+", line)]
    ours = [number for k in (2, 3, 4) for number in published.TOP1[k]]
    ours += [published.TOP1_SMALLER_TEACHER, published.TOP1_TEACHER]
    assert ours == pytest.approx(given)
    for k, segments in published.SEGMENTS.items():
        written = "".join(f"[{part.replace('-', '–')}]" for part in segments.split())
        assert f"k={k} `{written}`" in text
    for segments in published.EXACT_SEGMENTS.values():
        assert "".join(f"[{part.replace('-', '–')}]" for part in segments.split()) in text
    assert f"{published.STEPS:,} steps" in text
