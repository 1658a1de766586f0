"""Dense probes from files to files: which model, which images, and the table of all."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors.torch import load_file

from raptor.config.data import DataConfig, Splits
from raptor.config.dense import DepthProbe, ScenesConfig, SegmentationProbe
from raptor.data.dense import DenseTask, write_pairs
from raptor.dense import Model, probe_models
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


def probe(models: list[Model], task: DenseTask, folder: Path, **changes) -> pd.DataFrame:
    """The table of a job; heads are beside it."""
    samples = folder / "samples.csv"
    samples.write_text("split,index,sample_id\n")
    arguments = {"seed": 0, "code": "x", "output": folder / "heads-1.csv"} | changes
    probe_models(
        models=models, task=task, samples=samples, state=folder / "state", device=CPU, **arguments
    )
    return read_table(arguments["output"])


@pytest.fixture
def both(planted, teacher):
    """A teacher and a Raptor of it."""
    index = planted.index(planted.student([0, 0, 1, 1]))
    return [Model(teacher), Model(teacher, STUDENT, (index,))]


@pytest.mark.parametrize("name", PROBES)
def test_a_row_is_what_the_head_in_its_file_reaches(name, planted, both, tmp_path):
    """Measured again from the files, by the backbone put together here."""
    task = task_of(name)
    own = {"teacher": None, STUDENT.path: planted.student([0, 0, 1, 1])}
    rows = probe(both, task, tmp_path).replace({np.nan: None})
    size = {"segmentation": (48, 48), "depth": (48, 44)}[name]
    values = []
    for (path, raptor), (_, row) in zip(own.items(), rows.iterrows(), strict=True):
        weights = load_file(tmp_path / f"{path}.safetensors")
        head = linear_head(*reversed(weights["weight"].shape[:2]))
        head.load_state_dict(weights)
        assert head.weight.abs().sum() > 0
        backbone = Backbone(planted.teacher.at_size(*size), DATA.mean, DATA.std, raptor)
        module = {"segmentation": segmentation, "depth": depth}[name]
        found = module.evaluate(
            backbone=backbone, head=head, test=task.split("test"), config=task.probe, title="t"
        )
        assert {key: row[key] for key in found} == pytest.approx(found)
        assert (row["teacher"], row["n_train"]) == ("vit", 12)
        values.append(list(found.values()))
    assert values[0] != values[1]
    assert list(rows["model"]) == ["teacher", "raptor"]
    named = rows[["recipe", "partition", "k", "seed"]]
    assert list(map(tuple, named.to_numpy())) == [(None,) * 4, tuple(STUDENT)]


def test_a_head_that_is_there_is_kept(both, tmp_path, caplog):
    """Of the model alone or with others, in whichever job; not one of another training."""
    task, head = task_of("depth"), tmp_path / "teacher.safetensors"
    whole = probe(both, task, tmp_path)
    assert not (tmp_path / "state").exists()
    made = head.stat().st_mtime_ns
    one = probe(both[1:], task, tmp_path, output=tmp_path / "heads-2.csv")
    pd.testing.assert_frame_equal(probe(both, task, tmp_path), whole)
    same = {"check_dtype": False, "check_like": True}
    pd.testing.assert_frame_equal(one, whole[1:].reset_index(drop=True), **same)
    assert head.stat().st_mtime_ns == made
    other = replace(task, probe=task.probe.model_copy(update={"lr": 0.5}))
    for changes in ({"task": other}, {"task": task, "seed": 1}, {"task": task, "code": "y"}):
        before = head.read_bytes(), head.stat().st_mtime_ns
        probe(both[:1], folder=tmp_path, **changes)
        assert head.stat().st_mtime_ns > before[1]
    found = probe(both, task, tmp_path, code="y")
    head.write_bytes(head.read_bytes()[:-1] + b"\xff")
    pd.testing.assert_frame_equal(probe(both, task, tmp_path, code="y"), found)
    assert "damaged" in caplog.text


def test_a_head_follows_from_its_student(planted, teacher, tmp_path):
    """Trained again where the Raptor of that name has other weights."""
    tables = []
    for blocks in ([0, 0, 1, 1], [0, 1, 1, 1]):
        index = planted.index(planted.student(blocks))
        model = Model(teacher, STUDENT, (index,))
        tables.append(probe([model], task_of("depth"), tmp_path))
    assert tables[0]["rmse_m"][0] != tables[1]["rmse_m"][0]


def test_examples_are_what_the_two_heads_say(both, tmp_path):
    task = task_of("depth")
    rows = probe(both, task, tmp_path)
    show_examples(
        teacher=both[0],
        raptor=both[1],
        heads=tmp_path,
        task=task,
        images=99,
        output=tmp_path / "examples.npz",
        device=CPU,
    )
    shown = Examples.load(tmp_path / "examples.npz")
    assert shown.model == both[1].facts
    assert list(shown.sample_ids) == list(task.split("test").sample_ids)
    for value, model in zip(rows["rmse_m"], ("teacher", "raptor"), strict=True):
        errors = [agreement(example, model) for example in shown.examples]
        assert np.mean(errors) == pytest.approx(value, rel=1e-5)


def test_a_student_that_is_not_in_the_index_is_named(planted, teacher, tmp_path):
    index = planted.index(planted.student([0, 0, 1, 1]))
    model = Model(teacher, Student("mean", "maxcut", 3, 0), (index,))
    with pytest.raises(RaptorError, match=r"lists no student mean/maxcut-k3/seed0"):
        probe([model], task_of("depth"), tmp_path)


def test_a_head_that_was_edited_is_refused(both, tmp_path):
    task, facts = task_of("segmentation"), tmp_path / "teacher.json"
    probe(both, task, tmp_path)
    facts.write_text(json.dumps(json.loads(facts.read_text()) | {"outputs": 3}))
    with pytest.raises(RaptorError, match=r"damaged or edited.*dense_probe.*heads-\*\.csv"):
        show_examples(
            teacher=both[0],
            raptor=both[1],
            heads=tmp_path,
            task=task,
            images=1,
            output=tmp_path / "x",
            device=CPU,
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
    assert DenseTask.of(**json.loads(json.dumps(task.plain()))) == task
    assert task.name == name
