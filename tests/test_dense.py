"""Dense probes from files to files: which model, which images, and the table of all."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors.torch import load_file

from raptor.config.data import DataConfig, Splits
from raptor.config.dense import DepthProbe, ScenesConfig, SegmentationProbe
from raptor.data.dense import DenseTask, write_pairs
from raptor.dense import Model, probe_model
from raptor.dense_examples import show_examples
from raptor.errors import RaptorError
from raptor.probes import depth, segmentation
from raptor.probes.backbone import Backbone
from raptor.probes.dense import linear_head
from raptor.qualitative import Examples, agreement
from raptor.student import Student
from raptor.tables.files import read_table
from raptor.teachers.files import save_teacher

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
    assert shown.model == models[1].facts
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
    assert DenseTask.of(name, **json.loads(json.dumps(plain))) == task
    assert task.name == name
