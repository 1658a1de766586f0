"""Table 2 of dense probes: from their rows to the table, its print and its caption."""

from __future__ import annotations

from pathlib import Path

import docutils.core
import numpy as np
import pandas as pd
import pytest

from raptor import tables
from raptor.captions import render
from raptor.figures import table_dense
from raptor.tables.files import read_table

ROOT = Path(__file__).parents[1]
MIOU = {
    ("vit", None, None): [0.5],
    ("vit", 2, "maxcut"): [0.30, 0.40, 0.35],
    ("vit", 3, "maxcut"): [0.45, 0.47, 0.46],
    ("untrained", None, None): [0.2],
    ("small", None, None): [0.44],
}
SHARES = {"miou": 1.1, "miou_authors": 1, "pixel_accuracy": 1}
LENGTHS = {"rmse_m": 0.09, "rmse_pooled_m": 0.1, "abs_rel": 0.1, "delta1": 0.1}


def write_rows(folder: Path, values: dict, **metrics) -> list[Path]:
    paths = []
    for (teacher, k, partition), some in values.items():
        for seed, value in enumerate(some):
            row = {"teacher": teacher, "model": "teacher", "n_train": 40, "n_test": 9}
            if k:
                row |= {"model": "raptor", "recipe": "start", "partition": partition}
                row |= {"k": k, "seed": seed}
            row |= {name: scale * value for name, scale in metrics.items()}
            paths.append(folder / f"{len(paths)}-{teacher}-{min(metrics)}.csv")
            pd.DataFrame([row]).to_csv(paths[-1], index=False)
    return paths


def write_constant(path: Path, answer: str, value: float, metrics: dict) -> None:
    row = {"model": "constant", "answer": answer, "n_train": 40, "n_test": 9}
    row |= {name: scale * value for name, scale in metrics.items()}
    pd.DataFrame([row]).to_csv(path, index=False)


@pytest.fixture
def table(tmp_path):
    def make(values=MIOU, tasks=("segmentation", "depth"), untrained=None, constant=None):
        inverse = {name: [1 / value for value in some] for name, some in values.items()}
        rows = {
            "segmentation": write_rows(tmp_path, values, **SHARES),
            "depth": write_rows(tmp_path, inverse, **LENGTHS),
        }
        if constant:
            shares, metres = (tmp_path / f"{task}.constant.csv" for task in rows)
            write_constant(shares, "background", constant, SHARES)
            write_constant(metres, "2.34 m", 1 / constant, LENGTHS)
            rows["segmentation"].insert(0, shares)
            rows["depth"].insert(0, metres)
        tables.table_dense(
            **{task: rows[task] for task in tasks},
            untrained={"untrained": "vit"} if untrained is None else untrained,
            reference="small",
            output=tmp_path / "all.csv",
        )
        return read_table(tmp_path / "all.csv")

    return make


def one(table, metric, teacher, k=None) -> pd.Series:
    rows = table[(table["metric"] == metric) & (table["teacher"] == teacher)]
    rows = rows[rows["k"].isna() if k is None else rows["k"] == k]
    assert len(rows) == 1
    return rows.iloc[0]


def caption(table: pd.DataFrame) -> str:
    """In one line, once it is known to be reST without a fault."""
    text = render(ROOT / "workflow/report/table_dense.rst", table_dense.numbers(table))
    docutils.core.publish_parts(text, writer="html", settings_overrides={"halt_level": 2})
    assert "nan" not in text
    return text.replace("\n", " ")


def test_mean_spread_and_share_of_the_teacher(table):
    found = one(table(), "miou_authors", "vit", 2)
    assert found["value"] == pytest.approx(0.35)
    assert found["value_sd"] == pytest.approx(0.05)
    assert found["of_teacher"] == pytest.approx(0.7)
    half = 4.302652729911275 * 0.05 / 3**0.5  # Student's t of two degrees of freedom
    assert found["value_high"] - found["value"] == pytest.approx(half)
    assert (found["n_seeds"], found["n_train"], found["n_test"]) == (3, 40, 9)


def test_the_papers_numbers_stand_beside_ours(table):
    """Table 2 of the paper, typed here from it, beside what the authors' code computes."""
    found = table()
    for metric, teacher, k, mean, sd in (
        ("miou_authors", "vit", 2, 0.396, 0.006),
        ("miou_authors", "vit", 3, 0.430, 0.003),
        ("miou_authors", "vit", None, 0.475, None),
        ("miou_authors", "small", None, 0.446, None),
        ("rmse_pooled_m", "vit", 2, 0.648, 0.003),
        ("rmse_pooled_m", "vit", 3, 0.618, 0.006),
        ("rmse_pooled_m", "vit", None, 0.578, None),
        ("rmse_pooled_m", "small", None, 0.600, None),
    ):
        row = one(found, metric, teacher, k)
        assert row["paper"] == mean
        assert row["paper_sd"] == sd if sd else np.isnan(row["paper_sd"])
    assert set(found.dropna(subset="paper")["metric"]) == {"miou_authors", "rmse_pooled_m"}


def test_an_untrained_teacher_has_no_number_in_the_paper(table):
    values = MIOU | {("untrained", 2, "maxcut"): [0.1]}
    found = table(values)
    assert found[found["teacher"] == "untrained"]["paper"].isna().all()


def test_another_partition_than_max_cut_has_no_number_in_the_paper(table):
    values = {("vit", None, None): [0.5], ("vit", 2, "uniform"): [0.4]}
    assert np.isnan(one(table(values), "miou_authors", "vit", 2)["paper"])


def test_an_untrained_teacher_stands_beside_the_one_it_is_like(table):
    found = table()
    control = found["teacher"] == "untrained"
    assert (found["untrained"] == control).all()
    assert (found.loc[control, "like"] == "vit").all()
    assert found.loc[~control, "like"].isna().all()


def test_printed(table):
    rows = table_dense.rows(table()).set_index(["teacher", "model"])
    found = rows.loc[("vit", "Raptor, k = 2")]
    assert found["mIoU"] == "38.5 ± 5.5\u00a0%"
    assert found["mIoU as the authors"] == "35.0 ± 5.0\u00a0%"
    assert found["mIoU as the authors: of the teacher's"] == "70.0\u00a0%"
    assert found["mIoU as the authors: paper"] == "39.6 ± 0.6\u00a0%"
    assert found["RMSE as the authors, m: paper"] == "0.648 ± 0.003"
    assert found["partition"] == "Max-Cut"
    assert rows.loc[("untrained", "teacher"), "mIoU as the authors: paper"] == "–"
    assert rows.loc[("vit", "teacher"), "RMSE, m"] == "0.180"
    assert rows.loc[("vit", "teacher"), "RMSE as the authors, m"] == "0.200"
    assert not {"mIoU: paper", "RMSE, m: paper"} & set(rows)


@pytest.mark.parametrize(("untrained", "gains"), [(0.2, True), (0.5, False), (0.6, False)])
def test_whether_training_gains_anything(untrained, gains, table):
    found = table(MIOU | {("untrained", None, None): [untrained]})
    tasks = table_dense.numbers(found)["tasks"]
    for task in ("segmentation", "depth"):  # a smaller error is better
        (control,) = tasks[task]["controls"]
        assert control["title"] == "vit"
        assert control["no_gain"] != gains
    assert [one["title"] for one in tasks["depth"]["raptors"]] == ["vit, k = 2", "vit, k = 3"]
    text = caption(found)
    assert ("training gains nothing here" in text) != gains
    assert f"Untrained, vit has {100 * untrained:.1f}\u00a0% and trained 50.0\u00a0%" in text
    assert "mIoU 35.0 ± 5.0\u00a0% where its teacher has 50.0\u00a0%" in text
    assert "(70.0\u00a0% of it; in the paper 83.4\u00a0%)" in text


def test_each_teacher_is_judged_by_its_own_architecture(table):
    """The untrained `vit` beats the trained `small`, which says nothing of `small`."""
    values = MIOU | {
        ("untrained", None, None): [0.45],
        ("untrained_small", None, None): [0.1],
        ("other", None, None): [0.3],
    }
    both = {"untrained": "vit", "untrained_small": "small"}
    found = table(values, untrained=both)
    controls = table_dense.numbers(found)["tasks"]["segmentation"]["controls"]
    assert [(one["title"], one["untrained"]) for one in controls] == [("vit", 0.45), ("small", 0.1)]
    text = caption(found)
    assert "training gains nothing" not in text
    assert text.count("Untrained, vit has") == text.count("Untrained, small has") == 2
    values |= {("untrained_small", None, None): [0.46]}
    controls = table_dense.numbers(table(values, untrained=both))["tasks"]["depth"]["controls"]
    assert [one["no_gain"] for one in controls] == [False, True]


@pytest.mark.parametrize(("value", "beaten"), [(0.1, True), (0.5, False), (0.6, False)])
def test_the_same_answer_everywhere(value, beaten, table):
    """Beside it stand the trained teachers that are no better; a smaller error is better."""
    found = table(constant=value)
    constant = found[found["model"] == "constant"].set_index("metric")
    assert constant.loc["miou_authors", "value"] == value
    assert constant[["of_teacher", "paper", "k", "teacher"]].isna().all(axis=None)
    assert table_dense.rows(found)["model"][0] == "the same answer everywhere"
    for one in table_dense.numbers(found)["tasks"].values():
        assert one["constant"]["no_better"] == ([] if beaten else ["vit", "small"])
    text = caption(found)
    assert f"everywhere (background, the commonest class) has {100 * value:.1f}\u00a0%" in text
    assert f"everywhere (2.34 m, the mean depth) has {0.1 / value:.3f} m" in text
    assert ("**no better is vit and small**" in text) != beaten


@pytest.mark.parametrize("task", ["segmentation", "depth"])
def test_the_caption_explains_the_tasks_that_are_there(task, table):
    text = caption(table(tasks=[task]))
    segmentation = ("mIoU", "classes of pixels", "ADE20K", "Segmentation (")
    depth = ("RMSE", "and cls where the teacher has one", "NYU Depth v2", "Depth (")
    for words in (segmentation, depth):
        for word in words:
            assert (word in text) == ((words is segmentation) == (task == "segmentation")), word


def test_the_caption_says_whose_convention_it_is(table):
    text = caption(table())
    assert "absent counted as zero" in text
    assert "as the authors' code has it, over the pixels of all images together" in text
    assert "ADE20K and NYU Depth v2" in text
    assert "models, trained alike on each: classes of pixels from patch tokens; depth from" in text


@pytest.mark.parametrize(
    ("seeds", "said"),
    [
        ((3, 3), "mean ± sd over 3 seeds. "),
        ((2, 3), "mean ± sd over 2 to 3 seeds. "),
        ((3, 1), "mean ± sd over 3 seeds, but of a single seed vit, k = 3. "),
        ((1, 1), "Each Raptor is of a single seed. "),
    ],
)
def test_over_how_many_seeds(seeds, said, table):
    values = {("vit", None, None): [0.5]} | {
        ("vit", k, "maxcut"): [0.3, 0.4, 0.35][:n] for k, n in zip((2, 3), seeds, strict=True)
    }
    text = caption(table(values))
    assert said in text
    assert text.count("±") == (max(seeds) > 1) + 2 * sum(n > 1 for n in seeds)


@pytest.mark.parametrize("bad", [0.0, float("nan")])
def test_no_share_of_a_teacher_that_reaches_nothing(bad, tmp_path):
    values = {("vit", None, None): [bad], ("vit", 2, "maxcut"): [0.4]}
    output = tmp_path / "all.csv"
    paths = write_rows(tmp_path, values, **SHARES)
    tables.table_dense(segmentation=paths, untrained={}, reference=None, output=output)
    found = read_table(output)
    assert np.isnan(one(found, "miou_authors", "vit", 2)["of_teacher"])
    text = caption(found)
    assert "of it" not in text
    assert "(40 images" in text
    shares = table_dense.rows(found)["mIoU as the authors: of the teacher's"]
    assert list(shares) == ["–", "–"]


def test_one_task_one_seed_and_no_untrained_teacher(tmp_path):
    values = {("vit", None, None): [0.5], ("vit", 6, "maxcut"): [0.4]}
    paths = write_rows(tmp_path, values, **SHARES)
    output = tmp_path / "all.csv"
    tables.table_dense(segmentation=paths, untrained={}, reference=None, output=output)
    text = caption(read_table(output))
    assert "ntrained" not in text
    assert "±" not in text
    assert "(80.0\u00a0% of it)" in text
    paper = table_dense.rows(read_table(output))["mIoU as the authors: paper"]
    assert list(paper) == ["47.5\u00a0%", "–"]
