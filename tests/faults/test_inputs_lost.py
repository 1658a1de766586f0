"""Images that are damaged after they were checked, and files that may not be read any more."""

from __future__ import annotations

import ctypes
import dataclasses
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from children import run
from PIL import Image
from stages import DATA, STAGES, Stage, plain


def obey_permissions() -> None:
    """Root gives up CAP_DAC_OVERRIDE and CAP_DAC_READ_SEARCH, with which it may read everything."""
    libc = ctypes.CDLL(None)
    header, sets = (ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)()
    libc.capget(header, sets)
    for kind in (0, 1):  # effective, permitted
        sets[kind] &= ~0b110
    assert libc.capset(header, sets) == 0


@pytest.fixture(scope="module")
def photographs(tmp_path_factory) -> Path:
    """JPEGs of two classes."""
    root, chance = tmp_path_factory.mktemp("photographs"), np.random.default_rng(0)
    for name in ("cat", "dog"):
        (root / name).mkdir()
        for number in range(20):
            pixels = chance.integers(0, 256, (32, 32), dtype=np.uint8)
            Image.fromarray(pixels).save(root / name / f"{number}.jpg")
    return root


@pytest.fixture(scope="module")
def of_images(photographs, tmp_path_factory) -> tuple[dict[str, Stage], Path]:
    """The first stages on the photographs, and a folder in which they have run."""
    data = DATA.model_copy(
        update={
            "source": "image_folder",
            "root": str(photographs),
            "splits": DATA.splits.model_copy(update={"train": 24, "val": 8, "test": 8}),
        }
    )
    stages = {
        name: dataclasses.replace(stage, params=stage.params | {"data": plain(data)})
        for name, stage in STAGES.items()
        if name in ("samples", "teacher", "extraction")
    }
    root = tmp_path_factory.mktemp("of_images") / "results"
    root.mkdir()
    for stage in stages.values():
        ended = run(stage, root)
        assert ended.status == 0, ended.said
    return stages, root


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-200])


def forbid(path: Path) -> None:
    path.chmod(0)


@pytest.mark.skipif(sys.platform != "linux", reason="capabilities are Linux's")
@pytest.mark.parametrize("stage", ["teacher", "extraction"])
@pytest.mark.parametrize(
    ("fault", "said"),
    [(truncate, "cannot be decoded"), (forbid, "Permission denied; give yourself permission")],
)
def test_an_image_lost_after_the_check_is_named(fault, said, stage, photographs, of_images, tried):
    stages, root = of_images
    samples = pd.read_csv(root / "data/samples.csv")
    image = photographs / samples[samples["split"] == "train"]["sample_id"].iloc[3]
    sound = image.read_bytes()
    stages[stage].remove(root)
    try:
        fault(image)
        ended = run(stages[stage], root, change=obey_permissions)
    finally:
        image.chmod(0o644)
        image.write_bytes(sound)
    assert ended.status == 1
    assert "Traceback" not in ended.said
    assert f"{image}: " in ended.said.splitlines()[-1]
    assert said in ended.said.splitlines()[-1]
    assert run(stages[stage], root).status == 0
    tried(f"{fault.__name__} an image", stage, refused=1)


# What may not be read any more, and a stage that reads it.
FORBIDDEN = {
    "shard": ("activations/vit.zarr/c/3/0/0/0", "similarity"),
    "weights": ("teachers/vit.safetensors", "extraction"),
    "table": ("partitions/vit/maxcut-k2.csv", "swaps"),
    "student": ("raptor/vit/mean/maxcut-k2/seed0.safetensors", "students' probes"),
}


@pytest.mark.skipif(sys.platform != "linux", reason="capabilities are Linux's")
@pytest.mark.parametrize("what", FORBIDDEN)
def test_a_file_that_may_not_be_read_is_named(what, without, tried):
    file, stage = FORBIDDEN[what]
    root = without(stage)
    (root / file).chmod(0)
    ended = run(stage, root, change=obey_permissions)
    (root / file).chmod(0o644)
    assert ended.status == 1
    assert "Traceback" not in ended.said
    assert f"{file}: Permission denied; give yourself permission" in ended.said.splitlines()[-1]
    assert run(stage, root, change=obey_permissions).status == 0
    tried("no permission to read", what, refused=1)


@pytest.mark.skipif(sys.platform != "linux", reason="capabilities are Linux's")
def test_a_folder_that_may_not_be_written_is_named(without, tried):
    root = without("swaps")
    (root / "interventions").chmod(0o555)
    ended = run("swaps", root, change=obey_permissions)
    (root / "interventions").chmod(0o755)
    assert ended.status == 1
    assert "Traceback" not in ended.said
    assert "Permission denied; give yourself permission" in ended.said.splitlines()[-1]
    tried("no permission to write", "table", refused=1)
