"""One flipped bit in what a stage reads, or in what it left unfinished."""

from __future__ import annotations

import random
import re
import shutil
import signal
from pathlib import Path

import pytest
from children import run
from interruptions import HEADED, LONG_RUN, PROBED, SAVED, TRAINED, WRITTEN
from stages import INDEX, PHASES, STAGES, content

BYTES, SEED = (20, 1) if LONG_RUN else (2, 0)
STUDENT = "raptor/vit/mean/maxcut-k2/seed0"


def flip(path: Path, chance: random.Random) -> None:
    """Another bit in one byte of a file, wherever it is."""
    content = bytearray(path.read_bytes())
    content[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
    path.write_bytes(content)


# What is damaged: the file, and a stage that reads it.
READ = {
    "shard": ("activations/vit.zarr/c/3/0/0/0", "similarity"),
    "manifest": ("activations/vit.json", "swaps"),
    "teacher's weights": ("teachers/vit.safetensors", "swaps"),
    "teacher's facts": ("teachers/vit.json", "epoch"),
    "kept epoch": ("teachers/vit/epoch-6.safetensors", "epoch"),
    "matrices": ("similarity/vit.npz", "partition"),
    "table of phases": (PHASES, "swaps"),
    "table of students": ("probes/vit/all-0.csv", "fidelity"),
    "index of students": (INDEX, "students' probes"),
    "student's weights": (f"{STUDENT}.safetensors", "students' probes"),
    "student's facts": (f"{STUDENT}.json", "dense probe"),
    "student's history": (f"{STUDENT}.history.csv", "curves"),
    "probe": ("probes/vit.safetensors", "students' probes"),
}


@pytest.mark.parametrize("what", READ)
def test_a_damaged_input_is_refused(what, without, expected, tried):
    file, stage = READ[what]
    chance, root = random.Random(f"{SEED} {what}"), without(stage)
    sound = (root / file).read_bytes()
    for _ in range(BYTES):
        flip(root / file, chance)
        ended = run(stage, root)
        found = content(root)
        if ended.status == 0:  # a space in a JSON, for instance
            assert found | {file: expected[file]} == expected
            tried("a flipped bit", what, finished=1)
            STAGES[stage].remove(root)
        else:
            assert ended.status == 1, ended.said
            assert "Traceback" not in ended.said
            sentence = ended.said.strip().splitlines()[-1]
            assert Path(file).name.split(".")[0] in sentence
            assert re.search("delete|run .* again", sentence)
            assert found.keys() < expected.keys()
            tried("a flipped bit", what, refused=1)
        (root / file).write_bytes(sound)
    assert run(stage, root).status == 0
    assert content(root) == expected


# What is damaged of the work that an interrupted stage has done.
LEFT = {
    "checkpoint": ("teacher", SAVED, ".state/teachers/vit/state-*.pt"),
    "checkpoint's index": ("teacher", SAVED, ".state/teachers/vit/state.json"),
    "student's checkpoint": ("students", SAVED, ".state/raptor/vit/*/stage*/state-*.pt"),
    "dense probe's checkpoint": (
        "dense probe",
        SAVED,
        ".state/dense/segmentation/vit/*/state-*.pt",
    ),
    "finished shard": ("extraction", WRITTEN, "activations/vit.zarr/c/2/0/0/0"),
    "record of a shard": ("extraction", WRITTEN, "activations/vit.shards/00001.json"),
    "description of the store": ("extraction", WRITTEN, "activations/vit.zarr/zarr.json"),
    "finished student": ("students", TRAINED, "raptor/vit/paper/*/*.safetensors"),
    "finished student's facts": ("students", TRAINED, "raptor/vit/paper/*/*.json"),
    "finished student's history": ("students", TRAINED, "raptor/vit/paper/*/*.history.csv"),
    "finished head": ("dense probe", HEADED, "dense/segmentation/vit/teacher.*"),
    "kept measurement": ("students' probes", PROBED, "probes/vit/paper/*/*.json"),
}


@pytest.mark.parametrize("what", LEFT)
def test_damaged_unfinished_work_is_done_again(what, without, expected, tried, tmp_path):
    stage, interruption, pattern = LEFT[what]
    chance, interrupted = random.Random(f"{SEED} {what}"), without(stage, "interrupted")
    assert run(stage, interrupted, change=interruption).status == -signal.SIGKILL
    for _ in range(BYTES):
        root = tmp_path / "results"
        shutil.rmtree(root, ignore_errors=True)
        shutil.copytree(interrupted, root)
        damaged = sorted(root.glob(pattern))
        assert damaged
        flip(chance.choice(damaged), chance)
        again = run(stage, root)
        assert again.status == 0, again.said
        assert content(root) == expected
        tried("a flipped bit, then resumed", what, finished=1)
