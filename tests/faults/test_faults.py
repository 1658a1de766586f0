"""After a fault: the right result, or one clear sentence and then it; never a wrong one."""

from __future__ import annotations

import random
import shutil
import subprocess
from pathlib import Path

import pytest
from stages import (
    LONG,
    STAGES,
    Study,
    ended,
    extract,
    killed,
    results,
    similarity,
    train_raptors,
    train_teacher,
)

MOMENTS = 20 if LONG else 3


def remove(folder: Path, declared: tuple[str, ...]) -> None:
    """What Snakemake does with the outputs of a job that did not end well."""
    for name in declared:
        (folder / name).unlink(missing_ok=True)


@pytest.mark.parametrize("name", STAGES)
def test_killed_at_any_moment(study: Study, tmp_path, survived, name):
    """SIGKILL at seeded random moments of the time that the stage takes, then a run to the end."""
    stage, chance, tried = STAGES[name], random.Random(f"{name} {LONG}"), 0
    while tried < MOMENTS:
        folder = study.ready(name, tmp_path / str(tried))
        if not killed(stage.run, folder, chance.uniform(0.05, 0.95) * study.seconds[name]):
            shutil.rmtree(folder)
            continue
        if chance.random() < 0.5:
            remove(folder, stage.declared)
        assert ended(stage.run, folder) is None
        assert results(folder) == study.after[name]
        survived("SIGKILL, run again", name)
        shutil.rmtree(folder)
        tried += 1


@pytest.fixture
def disk(tmp_path):
    """A disk of its own, of 16 MB."""
    place = tmp_path / "disk"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=16m", "tmpfs", str(place)]
    if subprocess.run(mount, capture_output=True).returncode != 0:
        pytest.skip("needs the right to mount a disk")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("extract states", "a shard"),
        ("train a teacher", "a checkpoint"),
        ("train Raptors", "a checkpoint"),
        ("similarity", "a table"),
        ("dynamics", "a table"),
    ],
)
def test_the_disk_is_full(study: Study, disk, survived, name, what):
    stage = STAGES[name]
    folder = study.ready(name, disk / "run")
    for left in (4096, 20_000):  # bytes
        filler = disk / "filler"
        with open(filler, "wb") as file:
            file.write(b"x" * (shutil.disk_usage(disk).free - left))
        said = ended(stage.run, folder)
        filler.unlink()
        assert said is not None
        assert "free space" in said
        assert not [path for path in folder.rglob("*") if path.name.endswith(".tmp")]
        assert all((folder / one).is_file() is False for one in stage.declared[:1])
        survived("full disk", f"{what}: {name}", refused=True)
    assert ended(stage.run, folder) is None
    assert results(folder) == study.after[name]
    survived("full disk, space freed, run again", f"{what}: {name}")


def flip(path: Path, chance: random.Random) -> None:
    content = bytearray(path.read_bytes())
    content[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
    path.write_bytes(content)


@pytest.mark.parametrize(
    ("what", "pattern"),
    [
        ("a shard", "activations/vit.zarr/c/*/0/0/0"),
        ("a manifest", "activations/vit.json"),
        ("weights", "teachers/vit.safetensors"),
        ("facts of weights", "teachers/vit.json"),
    ],
)
def test_a_bit_is_flipped_in_an_input(study: Study, tmp_path, survived, what, pattern):
    """A damaged shard is noticed when it is read, and written again when its manifest is gone."""
    chance = random.Random(what)
    for number in range(5 if LONG else 2):
        folder = study.ready("swap layers", tmp_path / str(number))
        flip(chance.choice(sorted(folder.glob(pattern))), chance)
        reader = similarity if what in ("a shard", "a manifest") else train_raptors
        if reader is train_raptors:
            shutil.rmtree(folder / "raptor")
        said = ended(reader, folder)
        assert said is not None
        assert "run" in said  # what to do
        survived("a bit flipped", what, refused=True)
        if what == "a shard":
            (folder / "activations/vit.json").unlink()
            assert ended(extract, folder) is None
            assert results(folder) == study.after["probe Raptors"]
            survived("a bit flipped, extracted again", what)


@pytest.mark.parametrize("name", ["train a teacher", "train Raptors"])
def test_a_bit_is_flipped_in_a_checkpoint(study: Study, tmp_path, survived, name):
    """The training starts over, to the same result."""
    chance, tried = random.Random(name), 0
    while tried < (5 if LONG else 2):
        folder = study.ready(name, tmp_path / str(tried))
        killed(STAGES[name].run, folder, chance.uniform(0.2, 0.9) * study.seconds[name])
        states = sorted((folder / ".state").rglob("state-*.pt"))  # none before the first step
        if states:
            flip(states[0], chance)
            assert ended(STAGES[name].run, folder) is None
            assert results(folder) == study.after[name]
            survived("a bit flipped in a checkpoint", name)
            tried += 1
        shutil.rmtree(folder)


@pytest.mark.parametrize(
    ("name", "run", "changed"),
    [
        ("train a teacher", train_teacher, {"lr": 1e-3}),
        ("train Raptors", train_raptors, {"lr": 1e-3}),
        ("extract states", extract, {"dtype": "float32"}),
    ],
)
def test_the_configuration_changes_between_interruption_and_resume(
    study: Study, tmp_path, survived, name, run, changed
):
    clean = study.ready(name, tmp_path / "clean")
    assert ended(run, clean, **changed) is None
    assert results(clean) != study.after[name]
    for number, share in enumerate((0.3, 0.6, 0.9)):
        folder = study.ready(name, tmp_path / str(number))
        killed(run, folder, share * study.seconds[name])
        assert ended(run, folder, **changed) is None
        assert results(folder) == results(clean)
        survived("configuration changed after an interruption", name)


def test_two_snakemakes_in_one_folder(new_checkout, survived):
    """The second is told so; the first one's lock, when it was killed, is named too."""
    checkout = new_checkout()
    target = ("results/smoke/teachers/untrained.safetensors", "--configfile", "config/smoke.yaml")
    with open(checkout.path / "log", "w") as log:
        first = subprocess.Popen(
            checkout.command(*target),
            cwd=checkout.path, env=checkout.environment, stdout=log, stderr=log,
        )  # fmt: skip
    while first.poll() is None and not list((checkout.path / ".snakemake/locks").glob("*")):
        pass
    second = checkout.snakemake(*target, check=False)
    assert second.returncode != 0
    assert "Directory cannot be locked" in second.stdout + second.stderr
    survived("a second Snakemake", "the same results", refused=True)
    assert first.wait() == 0
    assert (checkout.path / target[0]).is_file()
    survived("a second Snakemake", "the same results")
