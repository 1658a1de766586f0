"""Two processes (gloo, on the CPU) train what one does, and go on where two had stopped."""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from test_train_raptors import DATA, PAPER, PHASE_MEAN, inputs  # noqa: F401

import raptor.teachers.train
from raptor.activations.read import Activations
from raptor.config.teachers import Augmentation, TeacherTraining, TrainedTeacher
from raptor.device import autocasting, compile_modules
from raptor.errors import RaptorError
from raptor.models.initialise import build_raptor
from raptor.student import Student
from raptor.teachers.files import load_teacher
from raptor.teachers.train import train_teacher
from raptor.training import distributed
from raptor.training.raptor import train_raptors
from raptor.training.stages import ClosedLoopTraining, SegmentTraining, Training

CPU = torch.device("cpu")
RECIPES = {"paper": PAPER, "phase_mean": PHASE_MEAN}
STOP_AT = 5  # steps done
STAGES = {"stage1": SegmentTraining, "stage2": ClosedLoopTraining}


def spec(stochastic_depth: float) -> TrainedTeacher:
    training = TeacherTraining(
        epochs=2, batch_size=8, lr=3e-3, warmup_steps=2, checkpoint_epochs=[1],
        augmentation=Augmentation(shift_px=2, rotate_deg=10.0),
    )  # fmt: skip
    return TrainedTeacher(
        depth=2, width=16, heads=2, mlp_ratio=2.0, patch_size=14, registers=1,
        stochastic_depth=stochastic_depth, training=training,
    )  # fmt: skip


def students(inputs, folder: Path) -> dict[str, Any]:  # noqa: F811
    return {
        **inputs,
        "recipes": RECIPES,
        "students": [Student("paper", "random", 2, 0), Student("phase_mean", "random", 2, 1)],
        "output": folder / "students/part1.json",
        "state": folder / ".state",
        "code": "one",
        "seed": 0,
    }


def teacher(folder: Path, stochastic_depth: float) -> dict[str, Any]:
    return {
        "spec": spec(stochastic_depth),
        "data": DATA,
        "output": folder / "small.safetensors",
        "history": folder / "small.history.csv",
        "state": folder / ".state/small",
        "identity": "one",
    }


def begin(rank: int) -> None:
    torch.rand(rank + 1)  # no two processes have the random state of each other, or of the test


def launch(function: Callable[..., None], **arguments: Any) -> None:
    distributed.launch(function, {**arguments, "device": CPU}, processes=2, begin=begin)


def several(device: torch.device, calls: list[tuple[Callable[..., None], dict]]) -> None:
    for function, arguments in calls:
        function(**arguments, device=device)


def stopped(device: torch.device, training: Callable[..., None], arguments: dict) -> None:
    """The second process is told to stop in the middle of the fifth step."""

    def told(original: Callable, seen: list) -> Callable:
        def call(*given: Any, **named: Any) -> Any:
            seen.append(1)
            if len(seen) == STOP_AT and distributed.rank() == 1:
                os.kill(os.getpid(), signal.SIGTERM)
            return original(*given, **named)

        return call

    Training.step = told(Training.step, [])
    raptor.teachers.train.augment = told(raptor.teachers.train.augment, [])
    training(**arguments, device=device)


def gradients(device: torch.device, store: Path, weights: Path, output: Path) -> None:
    """The largest difference from the gradient of the whole batch, beside the largest entry."""
    activations, model = Activations(store), load_teacher(weights)
    found = {}
    for name, trainer in STAGES.items():
        student = build_raptor(PAPER, [0, 0, 1, 1], model, seed=0).train()
        given = (student, activations, PAPER, getattr(PAPER, name), 3, device)
        training = trainer(*given)
        whole = next(activations.batches("train", 8, 3)).states
        more = (0.5,) if name == "stage1" else ()
        type(training).losses(student, whole, training.weights_LT, *more).sum().backward()
        expected = [parameter.grad.clone() for parameter in student.parameters()]
        student.zero_grad()
        mine = next(activations.batches("train", 8, 3, part=(distributed.rank(), 2))).states
        training.parallel(mine, training.weights_LT, *more).sum().backward()
        pairs = list(zip(expected, (one.grad for one in student.parameters()), strict=True))
        found[name] = max(
            ((got - want).abs().max() / want.abs().max()).item() for want, got in pairs
        )
        found[f"{name}_images"] = len(mine)
    if distributed.rank() == 1:
        output.write_text(json.dumps(found))


def broken(device: torch.device) -> None:
    if distributed.rank() == 1:
        raise RaptorError("the images are gone; bring them back")
    distributed.gathered(0)


@pytest.fixture(scope="module")
def trained(inputs, tmp_path_factory) -> Path:  # noqa: F811
    """What one process, and two, train: in `one/` and `two/`."""
    folder = tmp_path_factory.mktemp("distributed")
    given = {"store": inputs["activations"], "weights": inputs["teacher"]}
    calls = {
        name: [
            (train_raptors, students(inputs, folder / name)),
            (train_teacher, teacher(folder / name / "still", 0.0)),
            (train_teacher, teacher(folder / name / "random", 0.5)),
        ]
        for name in ("one", "two")
    }
    several(CPU, calls["one"])
    measured = (gradients, {**given, "output": folder / "gradients.json"})
    launch(several, calls=[measured, *calls["two"]])
    return folder


def agree(folder: Path, other: Path, names: list[str]) -> bool:
    """Whether the histories of trainings are the same but for rounding.

    Not weights: the gradient of a key's bias is zero but for rounding, which AdamW blows up.
    """
    tables = [[pd.read_csv(place / f"{name}.history.csv") for name in names]
              for place in (folder, other)]  # fmt: skip
    one, two = (pd.concat(some).select_dtypes("number").to_numpy() for some in tables)
    return np.allclose(one, two, rtol=1e-4, atol=1e-6, equal_nan=True)


def same(folder: Path, other: Path, names: list[str]) -> bool:
    files = [f"{name}.safetensors" for name in names]
    return all((folder / file).read_bytes() == (other / file).read_bytes() for file in files)


STUDENTS = ["paper/random-k2/seed0", "phase_mean/random-k2/seed1"]


def test_gradients_are_those_of_the_whole_batch(trained):
    found = json.loads((trained / "gradients.json").read_text())
    assert (found["stage1_images"], found["stage2_images"]) == (4, 4)
    assert max(found["stage1"], found["stage2"]) < 1e-5


def test_two_processes_train_what_one_does(trained):
    one, two = trained / "one", trained / "two"
    assert agree(one / "students", two / "students", STUDENTS)
    assert agree(one / "still", two / "still", ["small"])
    # Which images skip a block is drawn by each process for its own.
    assert not agree(one / "random", two / "random", ["small"])
    entries = [json.loads((f / "students/part1.json").read_text())["students"] for f in (one, two)]
    assert [entry["steps"] for entry in entries[0]] == [entry["steps"] for entry in entries[1]]
    assert not (two / ".state").exists() or not list((two / ".state").rglob("*.pt"))


def test_a_training_that_was_stopped_goes_on_with_two_or_one(trained, inputs, tmp_path):  # noqa: F811
    """Two go on to the same weights bit for bit; one to what one had trained, but for rounding."""
    for name in ("two", "one"):
        (tmp_path / name).mkdir()
    plans = [
        (train_raptors, lambda folder: students(inputs, folder)),
        (train_teacher, lambda folder: teacher(folder / "random", 0.5)),
    ]
    for function, arguments in plans:
        with pytest.raises(SystemExit) as ended:
            launch(stopped, training=function, arguments=arguments(tmp_path / "two"))
        assert ended.value.code == distributed.STOPPED
    shutil.copytree(tmp_path / "two", tmp_path / "one", dirs_exist_ok=True)
    states = sorted((tmp_path / "one").rglob("state-*.pt"))
    assert [path.name for path in states] == [f"state-{STOP_AT:08d}.pt"] * 2
    draws = torch.load(states[-1], weights_only=True)["rng"]
    assert len(draws) == 2
    assert not torch.equal(draws[0][0], draws[1][0])

    launch(several, calls=[(function, make(tmp_path / "two")) for function, make in plans])
    assert same(tmp_path / "two/students", trained / "two/students", STUDENTS)
    assert same(tmp_path / "two/random", trained / "two/random", ["small"])
    several(CPU, [(function, make(tmp_path / "one")) for function, make in plans])
    assert agree(tmp_path / "one/students", trained / "one/students", STUDENTS)
    assert (tmp_path / "one/random/small.safetensors").is_file()


def test_what_fails_in_one_process_ends_all_in_its_words():
    with pytest.raises(
        RaptorError, match=r"^process 1 of 2: the images are gone; bring them back$"
    ):
        launch(broken)


def test_sixteen_bits_are_for_cuda(caplog, monkeypatch):
    with caplog.at_level("INFO"), autocasting(CPU, "bfloat16"):
        assert (torch.ones(2, 2) @ torch.ones(2, 2)).dtype == torch.float32
    assert caplog.messages == ["autocast: bfloat16 is for CUDA, off on cpu"]
    monkeypatch.setattr(torch, "autocast", lambda *given, **named: (*given, named["enabled"]))
    cuda = torch.device("cuda")
    assert autocasting(cuda, "bfloat16") == ("cuda", torch.bfloat16, True)
    assert autocasting(cuda, "none") == ("cuda", torch.bfloat16, False)


def test_compiling_is_for_cuda_and_keeps_the_names_of_weights(caplog):
    module = torch.nn.Linear(2, 2)
    with caplog.at_level("INFO"):
        compile_modules([module], CPU, compiled=True)
    assert caplog.messages == ["compile: is for CUDA, off on cpu"]
    assert module._compiled_call_impl is None
    compile_modules([module], torch.device("cuda"), compiled=False)
    assert module._compiled_call_impl is None
    compile_modules([module], torch.device("cuda"), compiled=True)
    assert module._compiled_call_impl is not None
    assert list(module.state_dict()) == ["weight", "bias"]
