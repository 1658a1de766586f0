"""Training Raptors from files: both stages, resumed, skipped, repeated."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

import raptor
from raptor.activations.read import Activations
from raptor.activations.write import extract
from raptor.config.activations import ActivationsConfig
from raptor.config.data import DataConfig, Splits
from raptor.config.students import Recipe
from raptor.config.teachers import TeacherTraining, TrainedTeacher
from raptor.errors import RaptorError
from raptor.files import sha256
from raptor.models.initialise import build_raptor
from raptor.student import Student
from raptor.teachers.build import build_teacher
from raptor.teachers.files import load_teacher, save_teacher
from raptor.training import stages
from raptor.training.raptor import train_raptors

CPU = torch.device("cpu")
DATA = DataConfig(splits=Splits(train=40, val=12, test=8), mean=[0.13], std=[0.31])
TEACHER = TrainedTeacher(
    depth=4, width=16, heads=2, mlp_ratio=2, patch_size=14, registers=1,
    training=TeacherTraining(epochs=1),
)  # fmt: skip
STAGE = {"steps": 10, "batch_size": 8, "lr": 1e-2, "warmup_steps": 2, "validate_every": 4}
METRICS = {"loss", "lambda", "gradient_norm", "r2", "error"}
WEIGHTS = {"cls": 0.34, "registers": 0.33, "patches": 0.33}
PAPER = Recipe(
    layer_scale=0.1,
    stage1={**STAGE, "token_weights": WEIGHTS, "teacher_forcing": {"anneal": 0.5}},
    stage2={**STAGE, "token_weights": WEIGHTS},
)
PHASE_MEAN = Recipe(
    initialisation="phase_mean", block="teacher", loss_scale="layer_mean_square", stage2=STAGE
)


@pytest.fixture(scope="module")
def inputs(tmp_path_factory) -> dict[str, Path]:
    """An untrained teacher with lively weights, its states, and a partition into two blocks."""
    folder = tmp_path_factory.mktemp("inputs")
    paths = {name: folder / name for name in ("vit.safetensors", "vit.json", "random-k2.csv")}
    teacher = build_teacher(TEACHER, DATA, num_classes=10)
    torch.manual_seed(0)
    for parameter in teacher.parameters():
        torch.nn.init.normal_(parameter, std=0.15)
    save_teacher(teacher, paths["vit.safetensors"])
    store = folder / "activations" / "vit.json"
    extract(
        teacher=paths["vit.safetensors"], data=DATA, output=store, device=CPU,
        config=ActivationsConfig(dtype="float32", chunk_images=8, shard_images=32),
    )  # fmt: skip
    row = {"teacher": "vit", "method": "random", "k": 2, "cut_weight": 1.0, "cut_fraction": 0.5}
    rows = [
        {**row, "seed": 0, "segments": "1-2 3-4", "labels": "[1, 1, 2, 2]"},
        {**row, "seed": 1, "segments": "1-1 2-3 4-4", "labels": "[1, 2, 2, 1]"},
    ]
    pd.DataFrame(rows).to_csv(paths["random-k2.csv"], index=False)
    return {
        "teacher": paths["vit.safetensors"],
        "activations": store,
        "partitions": [paths["random-k2.csv"]],
    }


def train(inputs, folder: Path, recipe=PAPER, seeds=(0,), code="one", part=1) -> Path:
    output = folder / "students" / f"part{part}.json"
    train_raptors(
        **inputs, recipes={"paper": recipe}, output=output,
        students=[Student("paper", "random", 2, seed) for seed in seeds],
        state=folder / ".state", code=code, device=CPU, seed=0,
    )  # fmt: skip
    return output


def own_files(folder: Path) -> Path:
    return folder / "students" / "paper" / "random-k2"


def results(folder: Path) -> dict[str, object]:
    """Everything that is written, without the time it took and the digests that cover it."""
    found: dict[str, object] = {}
    for path in sorted(p for p in (folder / "students").rglob("*") if p.is_file()):
        if path.suffix == ".json":
            text = json.loads(path.read_text())
            for entry in text.get("students", [text]):
                assert entry.pop("seconds") > 0
                entry.pop("digest", None)
            found[path.name] = text
        else:
            found[path.name] = path.read_bytes()
    return found


@pytest.fixture(scope="module")
def trained(inputs, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("trained")
    train(inputs, folder, seeds=(0, 1))
    return folder


def test_index_says_what_was_trained(trained):
    folder = trained / "students"
    students = json.loads((folder / "part1.json").read_text())["students"]
    assert [student["seed"] for student in students] == [0, 1]
    assert [student["labels"] for student in students] == [[1, 1, 2, 2], [1, 2, 2, 1]]
    assert [student["segments"] for student in students] == ["1-2 3-4", "1-1 2-3 4-4"]
    for student in students:
        model = raptor.load(folder / student["file"])
        assert student["sha256"] == sha256(folder / student["file"])
        assert student["parameters"] == sum(p.numel() for p in model.parameters())
        assert student["steps"] == 20
        names = [student[key] for key in ("teacher", "recipe", "method", "k")]
        assert names == ["vit", "paper", "random", 2]
        assert [label + 1 for label in model.labels] == student["labels"]
    assert not (trained / ".state").exists()


def test_history_ends_with_the_student_that_is_saved(trained, inputs):
    """R² and errors of the last row, computed again from the files."""
    table = pd.read_csv(own_files(trained) / "seed1.history.csv")
    store = Activations(inputs["activations"])
    true = store.read(*store.splits["val"])
    with torch.no_grad():
        model = raptor.load(own_files(trained) / "seed1.safetensors")
        predicted = model(torch.from_numpy(true[:, 0])).double().numpy()
    true = true[:, 1:].astype(float)
    sse = ((predicted - true) ** 2).sum(axis=(0, 2, 3))
    sst = ((true - true.mean(axis=(0, 2), keepdims=True)) ** 2).sum(axis=(0, 2, 3))
    last = table[(table["stage"] == "stage2") & (table["step"] == 10)]
    r2 = last.loc[last["metric"] == "r2", "value"].item()
    assert r2 == pytest.approx((1 - sse / sst).mean(), abs=1e-5)
    errors = last[last["metric"] == "error"].set_index(["tokens", "layer"])["value"]
    assert len(errors) == 12
    spans = {"cls": slice(0, 1), "registers": slice(1, 2), "patches": slice(2, 6)}
    for (tokens, layer), value in errors.items():
        part = (predicted - true)[:, int(layer) - 1, spans[tokens]]
        assert value == pytest.approx((part**2).mean(), rel=1e-4)


def test_history_has_both_stages(trained):
    table = pd.read_csv(own_files(trained) / "seed0.history.csv")
    assert sorted(table["step"].unique()) == [4, 8, 10]
    stage1, stage2 = (table[table["stage"] == stage] for stage in ("stage1", "stage2"))
    lambdas = stage1.loc[stage1["metric"] == "lambda", "value"]
    np.testing.assert_allclose(lambdas, [np.mean([1.0, 0.8, 0.6, 0.4]), 0.2 / 4, 0.0])
    assert not stage2.loc[stage2["metric"] == "lambda", "value"].any()
    assert set(stage1["metric"]) == METRICS | {"r2_open"}
    assert set(stage2["metric"]) == METRICS


def test_training_lowers_the_loss_and_seeds_differ(inputs, tmp_path):
    longer = PHASE_MEAN.stage2.model_copy(update={"steps": 40, "validate_every": 10})
    recipe = PHASE_MEAN.model_copy(update={"stage2": longer})
    train(inputs, tmp_path, recipe)
    table = pd.read_csv(own_files(tmp_path) / "seed0.history.csv")
    loss, r2 = (table.loc[table["metric"] == name, "value"].tolist() for name in ("loss", "r2"))
    assert loss[-1] < 0.8 * loss[0]
    assert r2[-1] > r2[0]


def test_seeds_give_different_students(trained):
    one, two = (raptor.load(own_files(trained) / f"seed{s}.safetensors") for s in (0, 1))
    weights = [model.blocks[0].attn.qkv.weight for model in (one, two)]
    assert not torch.equal(*weights)


@pytest.mark.parametrize(("stage", "at"), [("Segment", 5), ("ClosedLoop", 0), ("ClosedLoop", 5)])
def test_interrupted_is_the_same_as_not_bit_for_bit(
    inputs, trained, tmp_path, monkeypatch, stage, at
):
    trainer = getattr(stages, f"{stage}Training")
    accumulate, ran = trainer.accumulate, []

    def terminated(self, states_BSTD, index):
        if index == at:
            os.kill(os.getpid(), signal.SIGTERM)
        return accumulate(self, states_BSTD, index)

    with monkeypatch.context() as patch:
        patch.setattr(trainer, "accumulate", terminated)
        with pytest.raises(SystemExit):
            train(inputs, tmp_path, seeds=(0, 1))
    for name in ("SegmentTraining", "ClosedLoopTraining"):
        own = getattr(stages, name).accumulate
        note = lambda self, states, index, own=own, name=name: (
            ran.append((name, index)) or own(self, states, index)
        )
        monkeypatch.setattr(getattr(stages, name), "accumulate", note)
    train(inputs, tmp_path, seeds=(0, 1))
    assert results(tmp_path) == results(trained)
    assert not (tmp_path / ".state").exists()
    assert ran[0] == (f"{stage}Training", at + 1)  # a finished stage 1 is not run again
    assert len(ran) == (40 - at - 1 if stage == "Segment" else 30 - at - 1)


def test_students_that_are_there_are_kept(inputs, tmp_path, monkeypatch):
    train(inputs, tmp_path, seeds=(0,))
    first = own_files(tmp_path) / "seed0.safetensors"
    before = first.stat().st_mtime_ns
    train(inputs, tmp_path, seeds=(0, 1))
    assert first.stat().st_mtime_ns == before
    index = json.loads((tmp_path / "students" / "part1.json").read_text())
    assert len(index["students"]) == 2
    monkeypatch.setattr(stages.Training, "step", lambda *_: pytest.fail("trained again"))
    train(inputs, tmp_path, seeds=(0, 1))


def test_another_identity_or_damage_trains_again(inputs, tmp_path):
    train(inputs, tmp_path)
    path = own_files(tmp_path) / "seed0.safetensors"
    whole = results(tmp_path)
    path.write_bytes(path.read_bytes()[:-8])
    train(inputs, tmp_path)
    assert results(tmp_path) == whole
    path.with_name("seed0.history.csv").unlink()
    train(inputs, tmp_path)
    assert results(tmp_path) == whole
    train(inputs, tmp_path, code="two")
    entry = json.loads((tmp_path / "students" / "part1.json").read_text())["students"][0]
    assert entry["identity"] != whole["part1.json"]["students"][0]["identity"]


def test_a_student_is_kept_whichever_job_made_it(inputs, tmp_path, monkeypatch):
    """And though other rows of its partition's file have changed."""
    train(inputs, tmp_path, seeds=(0, 1))
    longer = tmp_path / "random-k2.csv"
    table = pd.read_csv(inputs["partitions"][0])
    pd.concat([table, table.iloc[[1]].assign(seed=2)]).to_csv(longer, index=False)
    monkeypatch.setattr(stages.Training, "step", lambda *_: pytest.fail("trained again"))
    index = train(inputs | {"partitions": [longer]}, tmp_path, seeds=(1,), part=2)
    (entry,) = json.loads(index.read_text())["students"]
    assert entry["seed"] == 1
    table.assign(labels="[1, 2, 2, 2]", segments="1-1 2-4").to_csv(longer, index=False)
    with pytest.raises(pytest.fail.Exception, match="trained again"):
        train(inputs | {"partitions": [longer]}, tmp_path, seeds=(1,), part=2)


def test_a_loss_that_is_not_finite_names_student_and_step(inputs, tmp_path):
    stage = PAPER.stage2.model_copy(update={"lr": 1e30, "warmup_steps": 0})
    recipe = PAPER.model_copy(update={"stage1": None, "stage2": stage})
    with pytest.raises(RaptorError, match=r"vit paper random k=2 seed 0 stage2: the loss is not"):
        train(inputs, tmp_path, recipe)
    assert not (tmp_path / "students").exists()


def test_a_seed_without_a_partition_is_an_error(inputs, tmp_path):
    with pytest.raises(RaptorError, match="seed 7"):
        train(inputs, tmp_path, seeds=(7,))


def test_gradients_are_clipped_block_by_block_in_stage1_and_together_in_stage2(
    inputs, tmp_path, monkeypatch
):
    clipped, clip = [], stages.Training._clip

    def note(self, module):
        gradients = [p.grad for p in module.parameters()]
        before = clip(self, module)
        norm = torch.cat([gradient.flatten() for gradient in gradients]).norm().item()
        clipped.append((type(module).__name__, norm))
        return before

    monkeypatch.setattr(stages.Training, "_clip", note)
    small = {"steps": 1, "clip_norm": 1e-6}
    recipe = PAPER.model_copy(
        update={
            name: getattr(PAPER, name).model_copy(update=small) for name in ("stage1", "stage2")
        }
    )
    train(inputs, tmp_path, recipe)
    assert [name for name, _ in clipped] == ["RecurrentBlock"] * 2 + ["Raptor"]
    assert [norm for _, norm in clipped] == pytest.approx([1e-6] * 3, rel=0.05)


def test_optimiser_follows_schedule_and_weight_decay(inputs, tmp_path, monkeypatch):
    """Linear over two steps, then half a cosine over the other eight, to the last one."""
    seen, step = [], torch.optim.AdamW.step

    def note(self, *arguments):
        seen.extend((group["lr"], group["weight_decay"]) for group in self.param_groups)
        return step(self, *arguments)

    monkeypatch.setattr(torch.optim.AdamW, "step", note)
    settings = PHASE_MEAN.stage2.model_copy(update={"weight_decay": 0.25, "min_lr": 2e-3})
    train(inputs, tmp_path, PHASE_MEAN.model_copy(update={"stage2": settings}))
    rates, decays = zip(*seen, strict=True)
    cosine = 2e-3 + 4e-3 * (1 + np.cos(np.pi * np.arange(8) / 7))
    np.testing.assert_allclose(rates, [5e-3, 1e-2, *cosine])
    assert set(decays) == {0.25}


def test_first_loss_is_the_error_over_the_mean_square_of_the_states(inputs, tmp_path):
    """One batch of the whole training split, and a start that no seed has a part in."""
    stage = PHASE_MEAN.stage2.model_copy(update={"steps": 1, "batch_size": 40})
    recipe = PHASE_MEAN.model_copy(update={"depth_scaling": False, "stage2": stage})
    train(inputs, tmp_path, recipe)
    table = pd.read_csv(own_files(tmp_path) / "seed0.history.csv")
    store, teacher = Activations(inputs["activations"]), load_teacher(inputs["teacher"])
    states = store.read(*store.splits["train"])
    with torch.no_grad():
        start = build_raptor(recipe, [0, 0, 1, 1], teacher, seed=5)
        predicted = start(torch.from_numpy(states[:, 0])).numpy()
    error = ((predicted - states[:, 1:]) ** 2).mean(axis=(0, 2, 3))
    expected = (error / (states[:, 1:] ** 2).mean(axis=(0, 2, 3))).mean()
    assert table.loc[table["metric"] == "loss", "value"].item() == pytest.approx(expected, rel=1e-4)
