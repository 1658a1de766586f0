"""The configuration changes between an interruption and the next run."""

from __future__ import annotations

import copy
import dataclasses
import signal

import pytest
from children import run
from interruptions import SAVED, WRITTEN
from stages import STAGES, Stage, content


def changed(stage: Stage, *keys: str, value: object) -> Stage:
    """The stage with one leaf of its parameters replaced."""
    params = copy.deepcopy(stage.params)
    *path, last = keys
    section = params
    for key in path:
        section = section[key]
    assert section[last] != value
    section[last] = value
    return dataclasses.replace(stage, params=params)


CASES = {
    "teacher": (SAVED, ("spec", "training", "lr"), 1e-3),
    "students": (SAVED, ("recipes", "paper", "stage1", "lr"), 3e-4),
    "dense probe": (SAVED, ("task", "probe", "lr"), 3e-3),
    "extraction": (WRITTEN, ("config", "dtype"), "float32"),
}


@pytest.mark.parametrize("name", CASES)
def test_the_result_is_that_of_the_new_configuration(name, without, expected, tried):
    interruption, keys, value = CASES[name]
    stage = changed(STAGES[name], *keys, value=value)
    clean, interrupted = without(name, "clean"), without(name, "interrupted")
    assert run(stage, clean).status == 0
    assert content(clean) != expected
    assert run(name, interrupted, change=interruption).status == -signal.SIGKILL
    again = run(stage, interrupted)
    assert again.status == 0, again.said
    assert content(interrupted) == content(clean)
    tried("another configuration after an interruption", name, finished=1)


def test_only_the_students_that_it_concerns_are_trained_again(without):
    stage = changed(STAGES["students"], "recipes", "paper", "layer_scale", value=0.2)
    root = without("students")
    assert run("students", root).status == 0
    own = sorted(root.glob("raptor/vit/*/*/*.safetensors"))
    before = {path: path.stat().st_mtime_ns for path in own}
    STAGES["students"].remove_outputs(root)
    assert run(stage, root).status == 0
    touched = {path.parts[-3] for path in own if path.stat().st_mtime_ns != before[path]}
    assert touched == {"paper"}
