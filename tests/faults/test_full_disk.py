"""A disk that is full when a shard, a checkpoint or a result is written."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from children import run
from stages import content


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 12 MB, which only root may make."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=12m", "tmpfs", str(folder)]
    if os.getuid() or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("no file system of a given size can be made here (root may)")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


def fill(disk: Path, left: int) -> Path:
    """Leave so many bytes of a disk; the file that takes the others."""
    filler = disk / "filler"
    with open(filler, "wb") as file:
        file.write(b"\0" * (shutil.disk_usage(disk).free - left))
    return filler


def promise_space() -> None:
    """Extraction looks before it writes; here the space is taken by others while it does."""
    from raptor.activations import write

    write._check_space = lambda *_: None


def unfinished(found: dict[str, str]) -> dict[str, str]:
    """What is kept of work that is not done: checkpoints, and shards without a manifest."""
    return {name: found[name] for name in found if name.startswith(".state")}


# So little is left that what a stage writes first fits, and that one file does not. Which file of a
# training that is depends on how often it saves, and so on the load.
CASES = [
    ("a shard", "extraction", 24_000, promise_space, r"vit\.zarr/c/"),
    ("the shards to come", "extraction", 24_000, None, "activations need"),
    ("a checkpoint", "teacher", 90_000, None, r"teachers/vit\b"),
    ("a student's checkpoint", "students", 60_000, None, r"raptor/vit\b"),
    ("matrices", "similarity", 8_000, None, r"similarity/vit\.npz"),
    ("a table", "swaps", 4_096, None, r"interventions/vit\.swaps\.csv"),
    ("a probe's checkpoint", "teacher's probe", 0, None, r"probes/vit\b"),
    ("weights", "epoch", 0, None, r"teachers/half\.safetensors"),
    ("tables that grow", "dynamics", 20_000, None, r"dynamics/vit/\w+\.csv"),
]


@pytest.mark.parametrize(("what", "stage", "left", "change", "named"), CASES)
def test_it_is_said_in_a_sentence_and_nothing_is_half_written(
    what, stage, left, change, named, small_disk, without, expected, tried
):
    root = without(stage, parent=small_disk)
    filler = fill(small_disk, left)
    ended = run(stage, root, change=change)
    assert ended.status == 1, ended.said
    sentence = ended.said.strip().splitlines()[-1]
    assert "Traceback" not in ended.said
    assert re.search(named, sentence)
    assert "free space" in sentence
    finished = content(root)
    assert finished.items() <= expected.items() | unfinished(finished).items()
    filler.unlink()
    again = run(stage, root)
    assert again.status == 0, again.said
    assert content(root) == expected
    tried("disk full", what, refused=1)
