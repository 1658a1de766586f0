"""A store written by several processes: shared, killed, run again, and never two at one shard."""

from __future__ import annotations

import json
import multiprocessing
import time
from pathlib import Path

import pytest
import torch

from raptor.activations import write
from raptor.activations.manifest import Manifest, ledger_folder, store_folder
from raptor.activations.place import Place
from raptor.config.data import DataConfig, Splits
from raptor.config.teachers import TeacherTraining, TrainedTeacher
from raptor.errors import RaptorError
from raptor.teachers.build import build_teacher
from raptor.teachers.files import save_teacher

from .conftest import SIZES, Linear, config, source, store
from .test_write import break_file, shard_file

TOTAL, PATIENCE = sum(SIZES.values()), 120
# One process imports what takes seconds; the others are copies of it, made before any thread was.
processes = multiprocessing.get_context("forkserver")
processes.set_forkserver_preload(["raptor.activations.write", "raptor.teachers.build"])


class Stuck(Linear):
    """Says so in a file when it has seen `after` images, and goes on when that is removed."""

    def __init__(self, after: int, sign: Path) -> None:
        super().__init__()
        self.after, self.sign = after, sign

    def states(self, images_BCHW):
        if self.images_seen >= self.after:
            self.sign.touch()
            while self.sign.exists():
                time.sleep(0.01)
            self.after = TOTAL + 1
        return super().states(images_BCHW)


def write_part(output: Path, part: range, teacher: Linear | None = None) -> int:
    """Prepare a store and write some of its shards; the number of images that were computed."""
    given = source(teacher or Linear())
    grid = write.plan(given, config())
    write.prepare(given, grid, Place(output))
    write.write_shards(given, grid, Place(output), part)
    return given.teacher.images_seen - 1  # one was seen by `plan`


def prepare_at(output: Path, sign: Path) -> None:
    given = source(Linear())
    grid = write.plan(given, config())
    while not sign.exists():
        pass
    write.prepare(given, grid, Place(output))
    write.write_shards(given, grid, Place(output), [])  # opens the array


def started(target, *arguments) -> multiprocessing.Process:
    process = processes.Process(target=target, args=arguments, daemon=True)
    process.start()
    return process


def ended(*running: multiprocessing.Process) -> None:
    for process in running:
        process.join(PATIENCE)
    assert [process.exitcode for process in running] == [0] * len(running)


def wait_for(path: Path) -> None:
    until = time.monotonic() + PATIENCE
    while not path.exists():
        assert time.monotonic() < until
        time.sleep(0.01)


def content(manifest: Path) -> dict[str, bytes]:
    """The manifest and every file of the store and its ledger."""
    folders = store_folder(manifest), ledger_folder(manifest)
    files = [manifest, *(file for folder in folders for file in folder.rglob("*"))]
    return {
        str(file.relative_to(manifest.parent)): file.read_bytes()
        for file in files
        if file.is_file()
    }


@pytest.fixture
def whole(tmp_path) -> dict[str, bytes]:
    """What one job writes."""
    (tmp_path / "whole").mkdir()
    return content(store(tmp_path / "whole/tiny.json", Linear()))


def test_two_jobs_at_the_same_time_write_what_one_does(tmp_path, whole):
    output, signs = tmp_path / "tiny.json", [tmp_path / "a", tmp_path / "b"]
    # Both are in the middle of a shard before either goes on.
    running = [
        started(write_part, output, range(5)[part::2], Stuck(1 + 6, sign))
        for part, sign in enumerate(signs)
    ]
    for sign in signs:
        wait_for(sign)
    for sign in signs:
        sign.unlink()
    ended(*running)
    last = Linear()
    store(output, last)
    assert last.images_seen == 1
    assert content(output) == whole


def test_a_killed_job_is_run_again_alone(tmp_path, whole):
    output, sign = tmp_path / "tiny.json", tmp_path / "sign"
    killed = started(write_part, output, range(5)[::2], Stuck(1 + 16 + 6, sign))  # in shard 2
    wait_for(sign)
    wait_for(ledger_folder(output) / "00000.json")
    killed.kill()
    killed.join(PATIENCE)
    assert write_part(output, range(5)[1::2]) == 32  # shards 1 and 3
    assert write_part(output, range(5)[::2]) == TOTAL - 48  # 2 and 4: 0 was finished
    store(output, Linear())
    assert content(output) == whole


def test_a_second_writer_of_a_shard_is_refused_until_the_first_is_dead(tmp_path, whole):
    output, sign = tmp_path / "tiny.json", tmp_path / "sign"
    first = started(write_part, output, range(1, 3), Stuck(1 + 6, sign))
    wait_for(sign)
    second = Linear()
    with pytest.raises(
        RaptorError,
        match=r"tiny\.zarr: shard 1 is being written by another job; wait until that one has "
        "ended, or stop it",
    ):
        store(output, second)
    assert second.images_seen == 1 + 16  # shard 0, which is nobody's
    first.kill()
    first.join(PATIENCE)
    store(output, Linear())
    assert content(output) == whole


def test_a_shard_that_another_job_finished_meanwhile_is_not_written_again(tmp_path, whole):
    output, sign = tmp_path / "tiny.json", tmp_path / "sign"
    slow = started(write_part, output, range(5), Stuck(1 + 6, sign))  # has looked at all shards
    wait_for(sign)
    assert write_part(output, range(1, 5)) == TOTAL - 16
    files = [*store_folder(output).glob("c/[1-4]/0/0/0")]
    before = {file: file.stat().st_mtime_ns for file in files}
    sign.unlink()
    ended(slow)
    assert len(before) == 4
    assert {file: file.stat().st_mtime_ns for file in files} == before
    store(output, Linear())
    assert content(output) == whole


def test_jobs_that_start_together_make_one_store(tmp_path, whole):
    output, sign = tmp_path / "tiny.json", tmp_path / "sign"
    store(output, Linear(), dtype="bfloat16")  # to be replaced, once
    running = [started(prepare_at, output, sign) for _ in range(4)]
    sign.touch()
    ended(*running)
    assert not list(ledger_folder(output).glob("*.json"))
    store(output, Linear())
    assert content(output) == whole


@pytest.mark.parametrize("damage", ["missing", "truncated", "flipped"])
def test_a_shard_damaged_after_its_job_is_written_again(tmp_path, whole, damage):
    output = tmp_path / "tiny.json"
    for part in range(2):
        write_part(output, range(5)[part::2])
    break_file(store_folder(output) / "c/3/0/0/0", damage)
    last = Linear()
    store(output, last)
    assert last.images_seen == 1 + 16
    assert content(output) == whole


def test_what_a_killed_write_left_is_removed(tmp_path, whole):
    output = tmp_path / "tiny.json"
    write_part(output, range(0))
    left = store_folder(output) / "c/2/0/0"
    left.mkdir(parents=True)
    (left / "0.1234.partial").write_bytes(b"half a shard")
    store(output, Linear())
    assert content(output) == whole


def test_parts_of_a_real_teacher_are_what_one_job_extracts(tmp_path):
    data = DataConfig(
        splits=Splits(train=20, val=6, test=7), image_size=14, mean=[0.13], std=[0.31]
    )
    training = TeacherTraining(epochs=1)
    spec = TrainedTeacher(depth=2, width=8, heads=2, patch_size=7, registers=2, training=training)
    save_teacher(build_teacher(spec, data, num_classes=10).eval(), tmp_path / "vit.safetensors")
    given = {"teacher": tmp_path / "vit.safetensors", "data": data, "device": torch.device("cpu")}
    given["config"] = config()
    write.extract(**given, output=tmp_path / "one/vit.json")
    manifest, records = tmp_path / "parts/vit.json", []
    for part in range(2):
        output = tmp_path / f"parts/vit/part-{part}.json"
        write.extract_part(**given, manifest=manifest, part=part, parts=2, output=output)
        records.append(json.loads(output.read_text()))
    assert [list(record) for record in records] == [["0", "2"], ["1"]]
    assert not manifest.exists()
    before = {file: file.stat().st_mtime_ns for file in store_folder(manifest).rglob("c/*/0/0/0")}
    write.extract(**given, output=manifest)
    assert {file: file.stat().st_mtime_ns for file in before} == before
    assert content(manifest) == content(tmp_path / "one/vit.json")
    for record in records:
        for index, entry in record.items():
            shard = Manifest.load(manifest).shards[int(index)]
            assert entry["shard"] == shard.model_dump(mode="json")
            assert shard_file(manifest, int(index)).stat().st_size == shard.bytes
