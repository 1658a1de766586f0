"""A tiny teacher on disk with a real store of its states, and Raptors whose answer is known."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch
from checkout import finished, new_checkout  # noqa: F401
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

from raptor.activations.manifest import TeacherFile
from raptor.activations.place import Place
from raptor.activations.write import Source, plan, prepare, seal, write_shards
from raptor.config.activations import ActivationsConfig
from raptor.config.students import Recipe, Stage2
from raptor.files import sha256, write_json
from raptor.models.files import save_raptor
from raptor.models.initialise import build_raptor
from raptor.teachers.adapter import Teacher
from raptor.teachers.build import assemble
from raptor.teachers.files import save_teacher

# The longest files, so that no worker is left with them in the end; the first two change what they
# share, the finished run of the workflow.
LONGEST = ["test_run.py", "test_report.py", "test_cluster.py", "test_foundation.py"]
SHARED = LONGEST[:2]


class Scheduling(LoadScopeScheduling):
    """A worker takes a file at a time, or the two that change the finished run of the workflow."""

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.split("::")[0]
        return "shared" if Path(file).name in SHARED else file


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> Scheduling:
    return Scheduling(config, log)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    order = {name: place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: order.get(item.path.name, len(order)))


CLASSES, DEPTH = 3, 4
SIZES = {"train": 150, "val": 40, "test": 60}


def make_teacher() -> Teacher:
    architecture = {"depth": DEPTH, "width": 8, "heads": 2, "mlp_ratio": 2.0, "patch_size": 4}
    architecture |= {"image_size": 8, "channels": 1, "num_classes": CLASSES, "registers": 1}
    model = assemble(
        {**architecture, "layer_scale": None, "stochastic_depth": 0.0, "stem": "patch"}, seed=0
    )
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():  # far from the small initial weights, so that the layers differ
        for parameter in model.blocks.parameters():
            parameter.add_(0.2 * torch.randn(parameter.shape, generator=generator))
        model.model.head.weight.normal_(generator=generator)
        model.model.patch_embed.proj.weight.mul_(10)
    return model.eval().requires_grad_(False)


class Split:
    """Images whose class is which of three rows of pixels is bright."""

    def __init__(self, count: int, seed: int) -> None:
        rng = np.random.default_rng(seed)
        self.labels = rng.integers(CLASSES, size=count)
        pixels = 0.3 * rng.normal(size=(count, 1, 8, 8))
        pixels[np.arange(count), 0, 2 * self.labels] += 2.0
        self.pixels = torch.from_numpy(pixels.astype(np.float32))
        self.sample_ids = [f"{seed}-{index}" for index in range(count)]

    def __len__(self) -> int:
        return len(self.labels)

    def images(self, indices) -> torch.Tensor:
        return self.pixels[indices]


@dataclass
class Planted:
    """The teacher, its files, the splits of images, and the folder of its students."""

    teacher: Teacher
    path: Path
    activations: Path
    splits: dict[str, Split]
    folder: Path

    def states(self, split: str) -> torch.Tensor:
        """(N, S, T, D), computed from the images."""
        with torch.no_grad():
            return self.teacher.states(self.splits[split].pixels)

    def student(self, labels: list[int], seed: int = 0):
        """A Raptor whose blocks are the means of the teacher's blocks of each label 0..k-1."""
        recipe = Recipe(
            initialisation="phase_mean",
            block="teacher",
            depth_scaling=False,
            stage2=Stage2(steps=1),
        )
        return build_raptor(recipe, labels, self.teacher, seed).eval()

    def index(self, *students) -> Path:
        """Save students as the training stage does; returns the index."""
        entries = []
        for seed, student in enumerate(students):
            path = self.folder / f"seed{seed}.safetensors"
            save_raptor(student, path)
            entry = {"file": path.name, "sha256": sha256(path), "seed": seed, "segments": "1-4"}
            entry |= {"teacher": self.path.stem, "recipe": "mean", "method": "maxcut", "steps": 1}
            entry |= {"k": len(student.blocks), "parameters": 7}
            entries.append(entry)
        write_json(self.folder / "seeds.json", {"students": entries})
        return self.folder / "seeds.json"


@pytest.fixture(scope="session")
def _stored(tmp_path_factory) -> Planted:
    folder = tmp_path_factory.mktemp("planted")
    teacher, path = make_teacher(), folder / "tiny.safetensors"
    save_teacher(teacher, path)
    splits = {name: Split(count, seed) for seed, (name, count) in enumerate(SIZES.items())}
    file = TeacherFile(name="tiny", sha256=sha256(path), path=path.name)
    source = Source(teacher, file, splits, {}, torch.device("cpu"))
    config = ActivationsConfig(dtype="float32", chunk_images=16, shard_images=64)
    grid, output = plan(source, config), folder / "activations" / "tiny.json"
    output.parent.mkdir()
    prepare(source, grid, Place(output))
    seal(source, grid, Place(output), write_shards(source, grid, Place(output), grid.shards))
    return Planted(teacher, path, output, splits, folder)


@pytest.fixture
def planted(_stored, tmp_path) -> Planted:
    return Planted(_stored.teacher, _stored.path, _stored.activations, _stored.splits, tmp_path)
