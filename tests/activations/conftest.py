"""A tiny teacher and data set, and the stores made from them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from raptor.activations import write
from raptor.activations.manifest import TeacherFile
from raptor.activations.place import Place
from raptor.config.activations import ActivationsConfig
from raptor.tokens import TokenLayout

SIZES = {"train": 45, "val": 9, "test": 13}  # no border on a chunk of 4, no whole last shard
LAYOUT = TokenLayout(cls=1, registers=2, patches=4)
STATES, WIDTH = 5, 6


class Images:
    """`n` random images; a split as `raptor.data.open_split` gives it."""

    def __init__(self, name: str, n: int) -> None:
        generator = np.random.default_rng(len(name))
        self.pixels = torch.from_numpy(generator.normal(size=(n, 1, 2, 2)).astype(np.float32))
        self.labels = generator.integers(0, 10, n)
        self.sample_ids = [f"{name}/{i}" for i in range(n)]

    def __len__(self) -> int:
        return len(self.pixels)

    def images(self, indices) -> torch.Tensor:
        return self.pixels[torch.as_tensor(indices)]


class Linear:
    """A teacher whose states are a fixed linear map of the pixels; it counts what it sees."""

    def __init__(self) -> None:
        size = STATES * LAYOUT.total * WIDTH
        weights = np.random.default_rng(0).normal(size=(4, size))
        self.weights = torch.from_numpy(weights.astype(np.float32))
        self.layout = LAYOUT
        self.images_seen = 0

    def states(self, images_BCHW: torch.Tensor) -> torch.Tensor:
        self.images_seen += len(images_BCHW)
        # One product after another, so that a state does not depend on its batch's size.
        states = sum(
            x[:, None] * w for x, w in zip(images_BCHW.flatten(1).T, self.weights, strict=True)
        )
        return states.view(-1, STATES, LAYOUT.total, WIDTH)


def source(teacher: Linear, sha256: str = "0" * 64) -> write.Source:
    return write.Source(
        teacher=teacher,
        file=TeacherFile(name="tiny", sha256=sha256, path="tiny.safetensors"),
        splits={name: Images(name, n) for name, n in SIZES.items()},
        data={"source": "made up"},
        device=torch.device("cpu"),
    )


def config(dtype: str = "float16") -> ActivationsConfig:
    return ActivationsConfig(dtype=dtype, chunk_images=4, shard_images=16)


def store(
    output: Path,
    teacher: Linear,
    dtype: str = "float16",
    sha256: str = "0" * 64,
    url: str | None = None,
) -> Path:
    """Extract everything, as `write.extract` does once it has opened teacher and data."""
    given = source(teacher, sha256)
    grid, place = write.plan(given, config(dtype)), Place(output, url)
    write.prepare(given, grid, place)
    write.seal(given, grid, place, write.write_shards(given, grid, place, grid.shards))
    return output


def states_of(teacher: Linear) -> torch.Tensor:
    """The exact float32 states of all images, in the order of the store."""
    return teacher.states(torch.cat([split.pixels for split in source(teacher).splits.values()]))


@pytest.fixture(params=["float16", "bfloat16", "float32"])
def dtype(request) -> str:
    return request.param


@pytest.fixture
def manifest(tmp_path) -> Path:
    return store(tmp_path / "tiny.json", Linear())
