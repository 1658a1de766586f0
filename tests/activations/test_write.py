"""Extraction: what is stored, what is refused, and what a second run does."""

from __future__ import annotations

import json
import shutil
from collections import namedtuple

import numpy as np
import pytest
import torch
import zarr

from raptor.activations import ledger, write
from raptor.activations.manifest import Grid, Manifest, ledger_folder, store_folder
from raptor.activations.place import Place
from raptor.activations.read import Activations
from raptor.errors import RaptorError
from raptor.files import sha256

from .conftest import LAYOUT, SIZES, STATES, WIDTH, Linear, config, source, states_of, store

TOTAL = sum(SIZES.values())
SHARDS = 5  # ceil(67 / 16)


def shard_file(manifest, index):
    return store_folder(manifest) / Manifest.load(manifest).shards[index].file


class Faulty(Linear):
    """Puts `value` into one entry of one state of one image."""

    def __init__(self, value, layer=3, image=50):
        super().__init__()
        self.value, self.layer, self.image = value, layer, image

    def states(self, images_BCHW):
        first = self.images_seen
        states = super().states(images_BCHW)
        if first <= self.image + 1 < first + len(images_BCHW):  # one image was seen by `plan`
            states[self.image + 1 - first, self.layer, 2, 1] = self.value
        return states


class Crash(Exception):
    pass


class Crashing(Linear):
    """Fails once it has seen `after` images."""

    def __init__(self, after):
        super().__init__()
        self.after = after

    def states(self, images_BCHW):
        if self.images_seen >= self.after:
            raise Crash
        return super().states(images_BCHW)


def test_stored_states_are_the_rounded_ones(tmp_path, dtype):
    teacher = Linear()
    manifest = store(tmp_path / "tiny.json", teacher, dtype)
    stored = Activations(manifest).read(0, TOTAL)
    expected = states_of(teacher).to(getattr(torch, dtype)).float().numpy()
    np.testing.assert_array_equal(stored, expected)


def test_plain_zarr_reads_the_same_numbers(tmp_path, dtype):
    manifest = store(tmp_path / "tiny.json", Linear(), dtype)
    array = zarr.open_array(store_folder(manifest), mode="r")
    assert array.shape == (TOTAL, STATES, LAYOUT.total, WIDTH)
    assert array.chunks == (4, 1, LAYOUT.total, WIDTH)
    assert array.shards == (16, STATES, LAYOUT.total, WIDTH)
    values = array[:]
    if dtype == "bfloat16":  # bfloat16 is the upper half of a float32
        assert values.dtype == np.uint16
        values = (values.astype(np.uint32) << 16).view(np.float32)
    np.testing.assert_array_equal(values.astype(np.float32), Activations(manifest).read(0, TOTAL))


def test_manifest_describes_the_store(manifest):
    content = Manifest.load(manifest)
    given = source(Linear())
    assert content.splits == {"train": (0, 45), "val": (45, 54), "test": (54, 67)}
    assert content.labels == [int(v) for s in given.splits.values() for v in s.labels]
    assert content.sample_ids == [v for s in given.splits.values() for v in s.sample_ids]
    assert content.tokens == LAYOUT
    assert (content.teacher.name, content.data) == ("tiny", {"source": "made up"})
    assert len(content.shards) == SHARDS
    for index, shard in enumerate(content.shards):
        path = store_folder(manifest) / shard.file
        assert path.stat().st_size == shard.bytes == content.grid.bytes_of(index)
        assert sha256(path) == shard.sha256


def test_precision_is_the_error_of_the_stored_states(tmp_path, dtype):
    teacher = Linear()
    precision = Manifest.load(store(tmp_path / "tiny.json", teacher, dtype)).precision
    exact = states_of(teacher).numpy().astype(np.float64)
    stored = torch.from_numpy(exact).float().to(getattr(torch, dtype)).double().numpy()
    axes, error = (0, 2, 3), np.abs(stored - exact)
    expected = {
        "max_entry": np.abs(exact).max(axes),
        "rms_entry": np.sqrt((exact**2).mean(axes)),
        "max_error": error.max(axes),
        "rms_error": np.sqrt((error**2).mean(axes)),
        "max_relative_error": error.max(axes) / np.abs(exact).max(axes),
        "rms_relative_error": np.sqrt((error**2).mean(axes) / (exact**2).mean(axes)),
    }
    for name, values in expected.items():
        np.testing.assert_allclose(getattr(precision, name), values, rtol=1e-5, err_msg=name)
    # Rounding to p bits of significand errs by at most 2^-p of an entry.
    bound = {"float16": 2**-11, "bfloat16": 2**-8, "float32": 0}[dtype]
    assert max(precision.max_relative_error) <= bound


def test_all_zero_states_are_stored_not_left_out(tmp_path):
    teacher = Linear()
    teacher.weights[:] = 0
    manifest = store(tmp_path / "tiny.json", teacher)
    assert not Activations(manifest).read(0, TOTAL).any()
    assert Manifest.load(manifest).precision.rms_relative_error == [0.0] * STATES


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_states_that_are_not_finite_are_refused(tmp_path, dtype, value):
    with pytest.raises(RaptorError, match=r"layer 3 of image val/5: .*NaN.*check.*weights"):
        store(tmp_path / "tiny.json", Faulty(value), dtype)
    assert not (tmp_path / "tiny.json").exists()


@pytest.mark.parametrize("value", [65504.1, -7e4])
def test_float16_overflow_names_place_and_remedy(tmp_path, value):
    message = r"layer 3 of image val/5: .*beyond the 65504 that float16 holds.*to bfloat16"
    with pytest.raises(RaptorError, match=message):
        store(tmp_path / "tiny.json", Faulty(value))


def test_float16_holds_its_largest_number(tmp_path):
    manifest = store(tmp_path / "tiny.json", Faulty(65504.0))
    assert Activations(manifest).read(50, 51)[0, 3, 2, 1] == 65504.0


def test_bfloat16_holds_what_overflows_float16(tmp_path):
    manifest = store(tmp_path / "tiny.json", Faulty(131072.0), "bfloat16")
    assert Activations(manifest).read(50, 51)[0, 3, 2, 1] == 131072.0
    assert Manifest.load(manifest).precision.max_entry[3] == 131072.0


def test_a_fault_in_the_embedding_is_called_that(tmp_path):
    with pytest.raises(RaptorError, match=r"the embedding \(layer 0\) of image train/0"):
        store(tmp_path / "tiny.json", Faulty(float("nan"), layer=0, image=0))


def test_resumes_after_a_crash_without_computing_a_shard_twice(tmp_path):
    output = tmp_path / "tiny.json"
    with pytest.raises(Crash):
        store(output, Crashing(after=1 + 40))  # two shards and a half; one image for `plan`
    assert not output.exists()
    second = Linear()
    store(output, second)
    assert second.images_seen == 1 + TOTAL - 32
    whole = store(tmp_path / "whole" / "tiny.json", Linear())
    assert json.loads(output.read_text()) == json.loads(whole.read_text())


def test_an_unchanged_store_is_only_verified(manifest):
    before = manifest.read_bytes()
    again = Linear()
    store(manifest, again)
    assert again.images_seen == 1
    assert manifest.read_bytes() == before


@pytest.mark.parametrize("damage", ["missing", "truncated", "flipped"])
def test_only_a_damaged_shard_is_written_again(manifest, damage):
    before, path = manifest.read_bytes(), shard_file(manifest, 1)
    break_file(path, damage)
    manifest.unlink()
    again = Linear()
    store(manifest, again)
    assert again.images_seen == 1 + 16
    assert manifest.read_bytes() == before


def break_file(path, damage):
    content = bytearray(path.read_bytes())
    if damage == "missing":
        path.unlink()
    elif damage == "truncated":
        path.write_bytes(content[:-100])
    else:
        content[1000] ^= 1
        path.write_bytes(content)


def test_a_damaged_ledger_costs_one_shard(manifest):
    (ledger_folder(manifest) / "00002.json").write_text("{")
    again = Linear()
    store(manifest, again)
    assert again.images_seen == 1 + 16


@pytest.mark.parametrize("change", ["teacher", "dtype"])
def test_a_store_of_something_else_is_replaced(manifest, change):
    teacher = Linear()
    teacher.weights += 1
    if change == "teacher":
        store(manifest, teacher, sha256="1" * 64)
    else:
        store(manifest, teacher, dtype="bfloat16")
    assert teacher.images_seen == 1 + TOTAL
    stored = Activations(manifest).read(0, TOTAL)
    np.testing.assert_allclose(stored, states_of(teacher).numpy(), rtol=2**-8, atol=1e-6)


def test_half_made_array_is_made_again(tmp_path):
    output = tmp_path / "tiny.json"
    store_folder(output).mkdir()
    (store_folder(output) / "zarr.json").write_text("{")
    store(output, Linear())
    assert Activations(output).shape[0] == TOTAL


def test_shards_can_be_written_by_several_jobs(tmp_path):
    output, grid = tmp_path / "tiny.json", None
    for part in (range(3, 5), range(0, 2)):
        job = source(Linear())
        grid = write.plan(job, config())
        write.prepare(job, grid, Place(output))
        assert set(write.write_shards(job, grid, Place(output), part)) == set(part)
    sealing = source(Linear())
    name = write.identity(sealing, grid)
    found = {i: ledger.finished(Place(output), i, name) for i in grid.shards}
    done = {i: entry for i, entry in found.items() if entry is not None}
    with pytest.raises(RaptorError, match=r"shards \[2\] are not written"):
        write.seal(sealing, grid, Place(output), done)
    done |= write.write_shards(sealing, grid, Place(output), [2])
    write.seal(sealing, grid, Place(output), done)
    whole = store(tmp_path / "whole" / "tiny.json", Linear())
    assert json.loads(output.read_text()) == json.loads(whole.read_text())


def test_too_little_disk_is_said_before_anything_is_computed(tmp_path, monkeypatch):
    usage = namedtuple("usage", "total used free")(10**9, 10**9 - 20_000, 20_000)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    teacher = Linear()
    with pytest.raises(RaptorError, match=r"need \S+ GB at .*, 2e-05 GB free; free space") as error:
        store(tmp_path / "tiny.json", teacher)
    assert str(tmp_path) in str(error.value)
    assert teacher.images_seen == 1


def test_only_missing_shards_need_disk(manifest, monkeypatch):
    shard = shard_file(manifest, 1)
    needed = shard.stat().st_size
    shard.unlink()
    usage = namedtuple("usage", "total used free")(10**9, 10**9 - needed, needed)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    store(manifest, Linear())
    assert shard.stat().st_size == needed


def test_bytes_and_files_are_announced(tmp_path, caplog):
    with caplog.at_level("INFO", logger="raptor"):
        store(tmp_path / "tiny.json", Linear())
    size = sum(p.stat().st_size for p in (tmp_path / "tiny.zarr" / "c").rglob("*") if p.is_file())
    files = sum(1 for p in (tmp_path / "tiny.zarr").rglob("*") if p.is_file())
    assert f"{size / 1e9:.3g} GB in {files} files, 5/5 shards to do" in caplog.text
    assert "67/67 images" in caplog.text


def test_grid_of_the_paper_is_predicted_in_full():
    grid = Grid((1_281_167, 13, 261, 768), "float16", 64, 512)
    states = 1_281_167 * 13 * 261 * 768 * 2
    total = sum(map(grid.bytes_of, grid.shards))
    assert states <= total <= states * 1.001
    assert len(grid.shards) == 2503


def test_extract_runs_a_real_teacher_on_real_images(tmp_path):
    from raptor.config.data import DataConfig, Splits
    from raptor.config.teachers import TeacherTraining, TrainedTeacher
    from raptor.data import open_split
    from raptor.teachers.build import build_teacher
    from raptor.teachers.files import save_teacher

    splits = Splits(train=20, val=6, test=7)
    data = DataConfig(splits=splits, image_size=14, mean=[0.13], std=[0.31])
    training = TeacherTraining(epochs=1)
    spec = TrainedTeacher(depth=2, width=8, heads=2, patch_size=7, registers=2, training=training)
    teacher = build_teacher(spec, data, num_classes=10).eval()
    save_teacher(teacher, tmp_path / "vit.safetensors")
    write.extract(
        teacher=tmp_path / "vit.safetensors",
        data=data,
        config=config("float32"),
        output=tmp_path / "activations" / "vit.json",
        device=torch.device("cpu"),
    )
    states = Activations(tmp_path / "activations" / "vit.json")
    assert (states.teacher, states.layout) == ("vit", teacher.layout)
    assert states.shape == (33, 3, 7, 8)
    first, last = states.splits["val"]
    split = open_split(data, "val")
    with torch.no_grad():
        expected = teacher.states(split.images(range(6))).numpy()
    np.testing.assert_allclose(states.read(first, last), expected, rtol=1e-4, atol=1e-6)
    np.testing.assert_array_equal(states.labels[first:last], split.labels)
    assert states.sample_ids[first:last] == split.sample_ids
