"""Teachers and recipes side by side: every value against one worked out apart."""

from __future__ import annotations

import json
import re
import statistics
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from raptor import tables
from raptor.errors import RaptorError
from raptor.tables import published
from raptor.tables.files import read_table

PAPER = Path(__file__).parents[2] / "shared/paper.md"
KEYS = ["teacher", "recipe", "partition", "k", "seed"]
MATRIX = np.array([[1.0, 0.9, 0.1], [0.9, 1.0, 0.2], [0.1, 0.2, 1.0]])  # mean of pairs 0.4


def student(teacher="vit", recipe="r", seed=0, **changes) -> dict:
    row = {"teacher": teacher, "recipe": recipe, "partition": "maxcut", "k": 2, "seed": seed}
    row |= {"segments": "1-2 3-3", "parameters": 60, "steps": 100, "r2_mean": 0.9, "r2_cls": 0.8}
    row |= {"r2_registers": np.nan, "r2_patch": 0.95, "accuracy": 0.9, "accuracy_head": 0.7}
    row |= {"accuracy_teacher": 0.96, "accuracy_teacher_head": 0.95, "recovered": 0.9375}
    return row | {"recovered_head": 0.7 / 0.95, "n_test": 100} | changes


def layer_rows(one: dict, r2: list[float]) -> list[dict]:
    return [
        {key: one[key] for key in KEYS}
        | {"layer": layer, "tokens": tokens, "r2": value - (tokens == "cls") * 0.1}
        | {"epsilon": 2.0 * layer, "norm": 8.0}
        for layer, value in enumerate(r2, start=1)
        for tokens in ("all", "cls", "patches")
    ]


def study(rows: list[dict]) -> list[list]:
    return [[row[key] for key in KEYS] for row in rows]


@pytest.fixture
def save(tmp_path):
    def write(name: str, rows: list[dict]) -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        pd.DataFrame(rows).to_csv(path, index=False)
        return path

    return write


def teacher_files(save, tmp_path, teacher: str, matrix: np.ndarray) -> dict[str, Path]:
    rows = [
        {"teacher": teacher, "measure": measure, "layer_a": a + 1, "layer_b": b + 1}
        | {"value": value + (measure == "cka"), "ci_low": 0, "ci_high": 1, "n": 50}
        for measure in ("cosine", "cka")
        for (a, b), value in np.ndenumerate(matrix)
    ]
    resamples = np.stack([matrix, matrix - 0.1 * (1 - np.eye(3))])
    np.savez(tmp_path / f"{teacher}.npz", cosine_bootstrap=resamples)
    cut = {"teacher": teacher, "method": "maxcut", "k": 2, "seed": 0, "segments": "1-2 3-3"}
    cut |= {"labels": "[1, 1, 2]", "cut_weight": 1.0, "cut_fraction": 0.5}
    probe = {"teacher": teacher, "accuracy": 0.96, "accuracy_head": 0.95, "n_test": 100}
    probe |= {"r2_identity": -1.0, "r2_layer_mean": 0.25, "r2_linear": 0.5}
    return {
        "similarity": save(f"{teacher}.similarity.csv", rows),
        "matrices": tmp_path / f"{teacher}.npz",
        "partitions": save(f"{teacher}.cut.csv", [cut, cut | {"seed": 1, "labels": "[1, 2, 2]"}]),
        "probes": save(f"{teacher}.probe.csv", [probe | {"blocks_parameters": 240}]),
    }


def gathered(save, tmp_path, **teachers: np.ndarray) -> dict[str, list[Path]]:
    files = [teacher_files(save, tmp_path, name, matrix) for name, matrix in teachers.items()]
    return {name: [one[name] for one in files] for name in files[0]}


def test_stochastic_depth_has_every_part(save, tmp_path):
    rows = [student(), student(seed=1, r2_mean=0.8), student("bare", r2_mean=0.99)]
    layers = [row for one in rows for row in layer_rows(one, [0.9, 0.8, 0.7])]
    other = student(recipe="other", r2_mean=0.1)
    tables.stochastic_depth(
        **gathered(save, tmp_path, vit=MATRIX, bare=0.5 + MATRIX / 2),
        students=[save("s.csv", [*rows, other])],
        layers=[save("l.csv", layers + layer_rows(other, [0.0] * 3))],
        study=study(rows),
        p={"vit": 0.3, "bare": 0.0},
        untrained=["bare"],
        output=tmp_path / "out.csv",
    )
    found = read_table(tmp_path / "out.csv")
    assert set(zip(found["teacher"], found["p"], found["trained"], strict=True)) == {
        ("vit", 0.3, 1),
        ("bare", 0.0, 0),
    }
    parts = {name: some.dropna(axis=1, how="all") for name, some in found.groupby("part")}
    assert set(parts) == {
        *("matrix", "segment", "layer", "similarity", "probe", "student", "baseline")
    }
    entry = parts["matrix"].set_index(["teacher", "layer", "layer_b"])["value"]
    assert len(entry) == 18
    assert entry["vit", 1, 3] == 0.1
    assert parts["segment"][["teacher", "first", "last"]].to_numpy().tolist() == [
        [teacher, *segment] for teacher in ("bare", "vit") for segment in ((1, 2), (3, 3))
    ]
    r2 = parts["layer"].set_index(["teacher", "seed", "layer", "tokens"])["value"]
    assert len(r2) == 27
    assert r2["vit", 1, 2, "cls"] == pytest.approx(0.7)
    similar = parts["similarity"].set_index(["teacher", "metric"])
    values = similar[["value", "low", "high"]]
    # Pairs 0.9, 0.1, 0.2: mean 0.4, and 0.3 in the other resample; percentiles between the two.
    assert values.loc["vit", "similarity"].tolist() == pytest.approx([0.4, 0.3025, 0.3975])
    assert values.loc["bare", "similarity"].tolist() == pytest.approx([0.7, 0.6025, 0.6975])
    # 0.9 inside, (0.1 + 0.2) / 2 across, in both resamples alike.
    assert values.loc["vit", "contrast"].tolist() == pytest.approx([0.75] * 3)
    assert set(similar["n"]) == {50}
    mean = parts["student"].query("metric == 'r2_mean'").groupby("teacher")["value"]
    assert mean.apply(list).to_dict() == {"vit": [0.9, 0.8], "bare": [0.99]}
    trivial = parts["baseline"].query("teacher == 'vit'").set_index("metric")["value"]
    assert trivial.to_dict() == {"identity": -1.0, "layer_mean": 0.25, "linear": 0.5}
    own = parts["probe"].query("teacher == 'vit'").set_index("metric")["value"]
    assert own.to_dict() == {"accuracy": 0.96, "accuracy_head": 0.95}


def test_similarity_of_too_few_images_has_no_interval(save, tmp_path):
    files = gathered(save, tmp_path, vit=MATRIX)
    table = pd.read_csv(files["similarity"][0]).assign(ci_low=np.nan)
    table.to_csv(files["similarity"][0], index=False)
    tables.stochastic_depth(
        **files,
        students=[save("s.csv", [student()])],
        layers=[save("l.csv", layer_rows(student(), [0.9]))],
        study=study([student()]),
        p={"vit": 0.0},
        untrained=[],
        output=tmp_path / "out.csv",
    )
    found = read_table(tmp_path / "out.csv").query("part == 'similarity'").set_index("metric")
    assert found["value"].to_dict() == pytest.approx({"similarity": 0.4, "contrast": 0.75})
    assert found[["low", "high"]].isna().all(axis=None)


def test_overfitting_sets_the_epochs_beside_all_that_is_measured(save, tmp_path):
    facts = []
    for teacher, epoch in (("early", 5), ("vit", 20)):
        splits = {"train": 1.0 / epoch, "val": 2.0, "test": 3.0}
        found = {"epoch": epoch, "loss": splits, "accuracy": {"train": 0.5}}
        found["images"] = {"train": 300, "val": 250, "test": 1000}
        facts.append(tmp_path / f"{teacher}.json")
        facts[-1].write_text(json.dumps(found))
    history = save(
        "vit.history.csv",
        [{"step": 8, "epoch": 2, "loss": 0.7, "val_loss": 0.9, "val_accuracy": 0.6}],
    )
    rows = [student(), student("early", r2_mean=0.8)]
    given = gathered(save, tmp_path, vit=MATRIX, early=MATRIX)
    given |= {"students": [save("s.csv", rows)], "study": study(rows), "history": history}
    tables.overfitting(facts=facts, **given, output=tmp_path / "out.csv")
    found = read_table(tmp_path / "out.csv")
    curve = found[found["part"] == "curve"].set_index("metric")
    assert curve["value"].to_dict() == {"loss": 0.7, "val_loss": 0.9, "val_accuracy": 0.6}
    assert set(curve["epoch"]) == {2}
    loss = found.query("part == 'teacher' and metric == 'loss'").set_index(["epoch", "split"])
    assert loss.loc[(5, "train"), "value"] == 0.2
    assert loss.loc[(20, "train"), ["value", "n"]].tolist() == [0.05, 300]
    r2 = found.query("part == 'student' and metric == 'r2_mean'").set_index("epoch")["value"]
    assert r2.to_dict() == {20: 0.9, 5: 0.8}
    assert found["epoch"].notna().all()
    facts[0].write_text("{}")
    with pytest.raises(RaptorError, match=r"early\.json: not the facts of a teacher"):
        tables.overfitting(facts=facts, **given, output=tmp_path / "out.csv")


def ladder(save, tmp_path) -> pd.DataFrame:
    head = {"first": [0.1, 0.3], "second": [0.5, 0.6], "third": [0.55, 0.65], "mean": [0.7, 0.9]}
    rows = [
        student(recipe=name, seed=seed, accuracy_head=value, accuracy=value + 0.01 * (seed + 1))
        for name, values in head.items()
        for seed, value in enumerate(values)
    ]
    tables.table_ablations(
        students=[save("s.csv", rows)],
        study=study(rows),
        ingredients={
            "first": [],
            "second": ["autoregressive"],
            "third": ["autoregressive", "stage2"],
            "mean": ["autoregressive", "depth_scaling", "stage2"],
        },
        starts=["mean"],
        output=tmp_path / "out.csv",
    )
    return read_table(tmp_path / "out.csv")


def test_each_row_of_the_ablations_has_one_thing_more(save, tmp_path):
    found = ladder(save, tmp_path)
    assert found["added"].tolist() == [
        *("teacher_forcing", "autoregressive", "stage2", "probe"),
        *("phase_mean", "probe"),
    ]
    assert found["recipe"].tolist() == ["first", "second", "third", "third", "mean", "mean"]
    assert found["head"].tolist() == ["own", "own", "own", "probe", "own", "probe"]
    assert found["accuracy"].tolist() == pytest.approx([0.2, 0.55, 0.6, 0.615, 0.8, 0.815])
    assert found["accuracy_sd"].iloc[1] == pytest.approx(statistics.stdev([0.5, 0.6]))
    change, sd = found["change"].tolist(), found["change_sd"].tolist()
    assert change[1:4] == pytest.approx([0.35, 0.05, 0.015])
    assert change[5] == pytest.approx(0.015)
    assert np.isnan([change[0], change[4]]).all()
    variances = [statistics.variance(v) for v in ([0.1, 0.3], [0.5, 0.6], [0.55, 0.65])]
    assert sd[1] == pytest.approx((variances[0] + variances[1]) ** 0.5)
    assert sd[2] == pytest.approx((variances[1] + variances[2]) ** 0.5)
    assert sd[3] == pytest.approx(statistics.stdev([0.01, 0.02]))  # the same students
    assert found["accuracy_teacher"].tolist() == [0.95] * 3 + [0.96, 0.95, 0.96]


def test_the_papers_numbers_stand_beside_the_recipe_and_not_beside_another_start(save, tmp_path):
    found = ladder(save, tmp_path)
    assert found["paper_top1"].tolist()[:4] == [0.039, 0.727, 0.824, 0.83]
    assert found["paper_top1"].isna().tolist()[4:] == [True, True]
    # The paper adds stage 2 to a row that is not here.
    change = found["paper_change"].tolist()
    assert [change[1], change[3]] == pytest.approx([0.688, 0.006])
    assert np.isnan([change[0], change[2], change[4], change[5]]).all()


@pytest.mark.skipif(not PAPER.is_file(), reason="the paper's numbers are not here (../shared)")
def test_published_ablations_are_the_papers():
    text = PAPER.read_text(encoding="utf-8").split("| ablation, k=3")[1].split("\n\n")[0]
    given = [float(number) / 100 for number in re.findall(r"\| (\d+\.\d+) \|", text)]
    assert list(published.ABLATIONS.values()) == pytest.approx(given)


def test_paradigms_have_errors_by_layer(save, tmp_path):
    rows = [student(recipe="a"), student(recipe="b", recovered=0.5)]
    layers = layer_rows(rows[0], [0.9, 0.8]) + layer_rows(rows[1], [0.5, 0.4])
    baseline = {"teacher": "vit", "baseline": "linear", "layer": 1, "r2": 0.3}
    tables.training_paradigms(
        students=[save("s.csv", rows)],
        layers=[save("l.csv", layers)],
        baselines=save(
            "b.csv", [baseline | {"tokens": "all"}, baseline | {"tokens": "cls", "r2": 0.1}]
        ),
        study=study(rows),
        paradigms={"a": "output", "b": "teacher_forcing"},
        output=tmp_path / "out.csv",
    )
    found = read_table(tmp_path / "out.csv")
    layer = found[found["part"] == "layer"].set_index(["paradigm", "metric", "layer"])
    values = layer["value"].sort_index()
    assert len(values) == 8
    assert values["output", "r2"].to_dict() == {1: 0.9, 2: 0.8}
    assert values["teacher_forcing", "relative"].to_dict() == {1: 0.25, 2: 0.5}  # 2 l / 8
    kept = found.query("part == 'student' and metric == 'recovered'").set_index("paradigm")
    assert kept["value"].to_dict() == {"output": 0.9375, "teacher_forcing": 0.5}
    trivial = found[found["part"] == "baseline"]
    assert trivial[["metric", "layer", "value"]].to_numpy().tolist() == [["linear", 1, 0.3]]


def test_saturation_counts_parameters_beside_the_teachers_blocks(save, tmp_path):
    rows = [student(k=1, parameters=60), student(k=4, parameters=250)]
    files = gathered(save, tmp_path, vit=MATRIX)
    given = {"students": [save("s.csv", rows)], "study": study(rows), "reference": None}
    given |= {"probes": files["probes"]}
    tables.saturation(**given, output=tmp_path / "out.csv")
    tables.fidelity_by_k(**given, output=tmp_path / "fidelity.csv")
    found = read_table(tmp_path / "out.csv")
    shares = found[found["metric"] == "parameters"].set_index("k")["value"]
    assert shares.to_dict() == pytest.approx({1: 60 / 240, 4: 250 / 240})
    rest = found[found["metric"] != "parameters"].reset_index(drop=True)
    pd.testing.assert_frame_equal(rest, read_table(tmp_path / "fidelity.csv"))
