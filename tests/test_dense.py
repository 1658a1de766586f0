"""Dense probes from files to files: which model, which images, and the table of all."""

from __future__ import annotations

import json
from pathlib import Path

import docutils.core
import numpy as np
import pandas as pd
import pytest
import torch
from safetensors.torch import load_file

from raptor import tables
from raptor.captions import render
from raptor.config.data import DataConfig, Splits
from raptor.config.dense import DepthProbe, ScenesConfig, SegmentationProbe
from raptor.data.dense import DenseTask, write_pairs
from raptor.dense import Model, probe_model, show_examples
from raptor.errors import RaptorError
from raptor.figures import table_dense
from raptor.probes import depth, segmentation
from raptor.probes.backbone import Backbone
from raptor.probes.dense import linear_head
from raptor.qualitative import Examples, agreement
from raptor.student import Student
from raptor.tables.files import read_table
from raptor.teachers.files import save_teacher

ROOT = Path(__file__).parents[1]
CPU = torch.device("cpu")
DATA = DataConfig(splits=Splits(train=60, val=20, test=30), mean=[0.13], std=[0.31])
SCENES = ScenesConfig(image_size=48, digits=3, train=12, test=5)
SHARED = {"source": "scenes", "epochs": 2, "batch_size": 4, "warmup_steps": 1}
PROBES = {
    "segmentation": SegmentationProbe(**SHARED, image_size=48),
    "depth": DepthProbe(**SHARED, image_size=[48, 44], bins=8, crop="none"),
}
STUDENT = Student("mean", "maxcut", 2, 0)


def task_of(name: str) -> DenseTask:
    return DenseTask(DATA, PROBES[name], SCENES)


@pytest.fixture
def teacher(planted):
    """The planted teacher, with the facts of one that was trained on `DATA`."""
    path = planted.folder / "vit.safetensors"
    save_teacher(planted.teacher, path, data=DATA.model_dump(mode="json"), class_names=[])
    return path


def probed(model: Model, task: DenseTask, folder: Path) -> tuple[pd.Series, Path]:
    name = "teacher" if model.student is None else "raptor"
    head = folder / f"{task.name}-{name}.safetensors"
    output = head.with_suffix(".csv")
    probe_model(
        model=model,
        task=task,
        seed=0,
        output=output,
        head=head,
        state=folder / "state",
        identity="x",
        device=CPU,
    )
    return read_table(output).iloc[0], head


@pytest.mark.parametrize("name", PROBES)
def test_a_row_is_what_the_head_in_its_file_reaches(name, planted, teacher, tmp_path):
    """Measured again from the files, by the backbone put together here."""
    task = task_of(name)
    raptor = planted.student([0, 0, 1, 1])
    models = {
        "teacher": (Model(teacher), None),
        "raptor": (Model(teacher, STUDENT, planted.index(raptor)), raptor),
    }
    size = {"segmentation": (48, 48), "depth": (48, 44)}[name]
    values = {}
    for kind, (model, own) in models.items():
        row, path = probed(model, task, tmp_path)
        weights = load_file(path)
        head = linear_head(*reversed(weights["weight"].shape[:2]))
        head.load_state_dict(weights)
        assert head.weight.abs().sum() > 0
        backbone = Backbone(planted.teacher.at_size(*size), DATA.mean, DATA.std, own)
        module = {"segmentation": segmentation, "depth": depth}[name]
        found = module.evaluate(
            backbone=backbone, head=head, test=task.split("test"), config=task.probe, title="t"
        )
        assert {key: row[key] for key in found} == pytest.approx(found)
        assert (row["teacher"], row["model"], row["n_train"]) == ("vit", kind, 12)
        values[kind] = list(found.values())
    assert values["teacher"] != values["raptor"]
    assert tuple(row[["recipe", "partition", "k", "seed"]]) == tuple(STUDENT)
    assert not (tmp_path / "state").exists()


def test_examples_are_what_the_two_heads_say(planted, teacher, tmp_path):
    task = task_of("depth")
    models = [
        Model(teacher),
        Model(teacher, STUDENT, planted.index(planted.student([0, 0, 1, 1]))),
    ]
    heads = [probed(model, task, tmp_path)[1] for model in models]
    rows = [read_table(head.with_suffix(".csv")).iloc[0] for head in heads]
    show_examples(
        teacher=(models[0], heads[0]),
        raptor=(models[1], heads[1]),
        task=task,
        images=99,
        output=tmp_path / "examples.npz",
        device=CPU,
    )
    shown = Examples.load(tmp_path / "examples.npz")
    assert list(shown.sample_ids) == list(task.split("test").sample_ids)
    for row, model in zip(rows, ("teacher", "raptor"), strict=True):
        errors = [agreement(example, model) for example in shown.examples]
        assert np.mean(errors) == pytest.approx(row["rmse_m"], rel=1e-5)


def test_a_student_that_is_not_in_the_index_is_named(planted, teacher, tmp_path):
    index = planted.index(planted.student([0, 0, 1, 1]))
    model = Model(teacher, Student("mean", "maxcut", 3, 0), index)
    with pytest.raises(RaptorError, match=r"lists no student mean/maxcut-k3/seed0"):
        probed(model, task_of("depth"), tmp_path)


def test_a_head_that_was_edited_is_refused(planted, teacher, tmp_path):
    task = task_of("segmentation")
    _, head = probed(Model(teacher), task, tmp_path)
    facts = json.loads(head.with_suffix(".json").read_text())
    head.with_suffix(".json").write_text(json.dumps(facts | {"outputs": 3}))
    both = (Model(teacher), head)
    with pytest.raises(RaptorError, match=r"damaged or edited.*dense_probe"):
        show_examples(
            teacher=both, raptor=both, task=task, images=1, output=tmp_path / "x", device=CPU
        )


@pytest.mark.parametrize("name", PROBES)
def test_pairs_are_listed(name, tmp_path):
    write_pairs(task=task_of(name), output=tmp_path / "pairs.csv")
    table = pd.read_csv(tmp_path / "pairs.csv")
    assert list(table["split"]) == ["train"] * 12 + ["test"] * 5
    assert list(table["sample_id"][12:]) == list(task_of(name).split("test").sample_ids)


@pytest.mark.parametrize("name", PROBES)
def test_a_task_comes_back_from_plain_values(name):
    task = task_of(name)
    plain = {key: getattr(task, key).model_dump(mode="json") for key in ("data", "probe", "scenes")}
    assert DenseTask.of(**json.loads(json.dumps(plain))) == task
    assert task.name == name


# --- the table -----------------------------------------------------------------------------------

MIOU = {
    ("vit", None, None): [0.5],
    ("vit", 2, "maxcut"): [0.30, 0.40, 0.35],
    ("vit", 3, "maxcut"): [0.45, 0.47, 0.46],
    ("untrained", None, None): [0.2],
    ("small", None, None): [0.44],
}


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


@pytest.fixture
def table(tmp_path):
    def make(values=MIOU, reference="small"):
        inverse = {name: [1 / value for value in some] for name, some in values.items()}
        shares = dict.fromkeys(("miou", "miou_absent_as_zero", "pixel_accuracy"), 1)
        lengths = dict.fromkeys(("rmse_m", "rmse_pooled_m", "abs_rel", "delta1"), 0.1)
        paths = {
            "segmentation": write_rows(tmp_path, values, **shares),
            "depth": write_rows(tmp_path, inverse, **lengths),
        }
        shared = {"untrained": ["untrained"], "reference": reference}
        tables.table_dense(**paths, **shared, output=tmp_path / "all.csv")
        return read_table(tmp_path / "all.csv")

    return make


def one(table, metric, teacher, k=None) -> pd.Series:
    rows = table[(table["metric"] == metric) & (table["teacher"] == teacher)]
    rows = rows[rows["k"].isna() if k is None else rows["k"] == k]
    assert len(rows) == 1
    return rows.iloc[0]


def test_mean_spread_and_share_of_the_teacher(table):
    found = one(table(), "miou", "vit", 2)
    assert found["value"] == pytest.approx(0.35)
    assert found["value_sd"] == pytest.approx(0.05)
    assert found["of_teacher"] == pytest.approx(0.7)
    half = 4.302652729911275 * 0.05 / 3**0.5  # Student's t of two degrees of freedom
    assert found["value_high"] - found["value"] == pytest.approx(half)
    assert (found["n_seeds"], found["n_train"], found["n_test"]) == (3, 40, 9)


def test_the_papers_numbers_stand_beside_ours(table):
    """Table 2 of the paper, typed here from it."""
    found = table()
    for metric, teacher, k, mean, sd in (
        ("miou", "vit", 2, 0.396, 0.006),
        ("miou", "vit", 3, 0.430, 0.003),
        ("miou", "vit", None, 0.475, None),
        ("miou", "small", None, 0.446, None),
        ("rmse_m", "vit", 2, 0.648, 0.003),
        ("rmse_m", "vit", 3, 0.618, 0.006),
        ("rmse_m", "vit", None, 0.578, None),
        ("rmse_m", "small", None, 0.600, None),
    ):
        row = one(found, metric, teacher, k)
        assert row["paper"] == mean
        assert row["paper_sd"] == sd if sd else np.isnan(row["paper_sd"])
    assert np.isnan(one(found, "miou", "untrained")["paper"])
    assert np.isnan(one(found, "delta1", "vit", 2)["paper"])


def test_another_partition_than_max_cut_has_no_number_in_the_paper(table):
    values = {("vit", None, None): [0.5], ("vit", 2, "uniform"): [0.4]}
    assert np.isnan(one(table(values), "miou", "vit", 2)["paper"])


def test_printed(table):
    rows = table_dense.rows(table()).set_index(["teacher", "model"])
    found = rows.loc[("vit", "Raptor, k = 2")]
    assert found["mIoU"] == "35.0 ± 5.0\u00a0%"
    assert found["mIoU: of the teacher's"] == "70.0\u00a0%"
    assert found["mIoU: paper"] == "39.6 ± 0.6\u00a0%"
    assert found["RMSE, m: paper"] == "0.648 ± 0.003"
    assert found["partition"] == "Max-Cut"
    assert rows.loc[("untrained", "teacher"), "mIoU: paper"] == "–"
    assert rows.loc[("vit", "teacher"), "RMSE, m"] == "0.200"


@pytest.mark.parametrize(("untrained", "gains"), [(0.2, True), (0.5, False), (0.6, False)])
def test_whether_training_gains_anything(untrained, gains, table):
    found = table_dense.numbers(table(MIOU | {("untrained", None, None): [untrained]}))
    for task in ("segmentation", "depth"):  # a smaller error is better
        assert found["tasks"][task]["no_gain"] != gains
    raptors = found["tasks"]["depth"]["raptors"]
    assert [one["title"] for one in raptors] == ["vit, k = 2", "vit, k = 3"]
    text = render(ROOT / "workflow/report/table_dense.rst", found).replace("\n", " ")
    assert "nan" not in text
    assert ("training gains nothing here" in text) != gains
    assert "mIoU 35.0\u00a0% where its teacher has 50.0\u00a0%" in text
    assert "(70.0\u00a0% of it; in the paper 83.4\u00a0%)" in text
    docutils.core.publish_parts(text, writer="html", settings_overrides={"halt_level": 2})


def test_one_task_one_seed_and_no_untrained_teacher(tmp_path):
    values = {("vit", None, None): [0.5], ("vit", 6, "maxcut"): [0.4]}
    paths = write_rows(tmp_path, values, miou=1, miou_absent_as_zero=1, pixel_accuracy=1)
    output = tmp_path / "all.csv"
    tables.table_dense(segmentation=paths, untrained=[], reference=None, output=output)
    found = table_dense.numbers(read_table(output))
    text = render(ROOT / "workflow/report/table_dense.rst", found)
    assert "nan" not in text
    assert "untrained" not in text
    assert "±" not in text
    assert list(table_dense.rows(read_table(output))["mIoU: paper"]) == ["47.5\u00a0%", "–"]
