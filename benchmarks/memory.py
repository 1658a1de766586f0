"""Peak memory of every stage that reads images, with 1,000 and with 5,000 of them.

The ratio is the peak with many images over that with few: at 1, memory is flat. Each stage runs
in a process of its own, as in the pipeline, on the embedded digits and an untrained teacher.
"""

from __future__ import annotations

import math
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import torch

from raptor.activations.write import extract
from raptor.config.activations import ActivationsConfig
from raptor.config.analysis import ClassificationProbe, ProbesConfig, SimilarityConfig, SwapsConfig
from raptor.config.data import DataConfig, Splits
from raptor.config.students import Recipe, Stage2
from raptor.config.teachers import Architecture, TeacherTraining, TrainedTeacher
from raptor.interventions import swap_layers
from raptor.probes.evaluate import probe_students, probe_teacher
from raptor.provenance import peak_memory_mb
from raptor.similarity import write_similarity
from raptor.student import Student
from raptor.teachers.train import make_untrained, train_teacher
from raptor.training.raptor import train_raptors

SPLITS = {
    1000: Splits(train=700, val=100, test=200),
    5000: Splits(train=3500, val=500, test=1000),
}
SHAPE = Architecture(depth=8, width=48, heads=4, mlp_ratio=2.0, patch_size=7)
CPU = torch.device("cpu")


def rows() -> list[dict[str, object]]:
    """One row a stage: `ours` and `reference` are MiB with many and with few images."""
    few, many = sorted(SPLITS)
    found = []
    with tempfile.TemporaryDirectory() as folder:
        for stage in STAGES:
            of_many, of_few = (_peak(stage, n, Path(folder)) for n in (many, few))
            found.append(
                {
                    "name": f"peak memory of {stage}, {many} vs {few} images",
                    "ours": of_many,
                    "reference": of_few,
                    "ratio": of_many / of_few,
                    "n": 1,
                    "spread": math.nan,
                }
            )
    return found


def _peak(stage: str, images: int, folder: Path) -> float:
    command = [sys.executable, "-m", "benchmarks.memory", stage, str(images), str(folder)]
    run = subprocess.run(command, check=True, capture_output=True, text=True)
    return float(run.stdout)


def _data(images: int) -> DataConfig:
    return DataConfig(splits=SPLITS[images], image_size=28, mean=[0.13], std=[0.31])


def _train_teacher(folder: Path, images: int) -> None:
    spec = TrainedTeacher(**SHAPE.model_dump(), training=TeacherTraining(epochs=1, warmup_steps=1))
    train_teacher(
        spec=spec, data=_data(images), output=folder / "trained.safetensors",
        history=folder / "trained.csv", state=folder / "state", identity="", device=CPU,
    )  # fmt: skip


def _extract(folder: Path, images: int) -> None:
    teacher = folder / "t.safetensors"
    make_untrained(spec=SHAPE, data=_data(images), output=teacher, device=CPU)
    extract(
        teacher=teacher, data=_data(images), config=ActivationsConfig(),
        output=folder / "activations.json", device=CPU,
    )  # fmt: skip


def _given(folder: Path) -> dict[str, Path]:
    return {"teacher": folder / "t.safetensors", "activations": folder / "activations.json"}


def _similarity(folder: Path, images: int) -> None:
    write_similarity(
        activations=folder / "activations.json", config=SimilarityConfig(),
        output=folder / "similarity.csv", matrices=folder / "similarity.npz",
    )  # fmt: skip


def _train_raptor(folder: Path, images: int) -> None:
    row = {"teacher": "t", "method": "maxcut", "k": 2, "seed": 0, "segments": "1-4 5-8"}
    row |= {"labels": "[1, 1, 1, 1, 2, 2, 2, 2]", "cut_weight": 1.0, "cut_fraction": 0.5}
    pd.DataFrame([row]).to_csv(folder / "maxcut-k2.csv", index=False)
    recipe = Recipe(
        initialisation="phase_mean", block="teacher", stage2=Stage2(steps=60, validate_every=20)
    )
    train_raptors(
        **_given(folder), partitions=[folder / "maxcut-k2.csv"], recipes={"r": recipe},
        students=[Student("r", "maxcut", 2, 0)], output=folder / "students.json",
        state=folder / "state", code="", device=CPU, seed=0,
    )  # fmt: skip


PROBES = ProbesConfig(classification=ClassificationProbe(epochs=1, warmup_steps=1))


def _probe_teacher(folder: Path, images: int) -> None:
    probe_teacher(
        **_given(folder), config=PROBES, output=folder / "probe.csv",
        layers=folder / "probe.layers.csv", weights=folder / "probe.safetensors",
        state=folder / "state", identity="", device=CPU,
    )  # fmt: skip


def _probe_students(folder: Path, images: int) -> None:
    probe_students(
        **_given(folder), config=PROBES, students=folder / "students.json",
        probe=folder / "probe.safetensors", output=folder / "probes" / "s.csv",
        layers=folder / "probes" / "s.layers.csv", state=folder / "state", code="", device=CPU,
    )  # fmt: skip


def _swap(folder: Path, images: int) -> None:
    config = SwapsConfig(teachers=["t"], k=2, sizes=[1])
    swap_layers(
        **_given(folder), partition=folder / "maxcut-k2.csv", config=config,
        output=folder / "swaps.csv", device=CPU, seed=0,
    )  # fmt: skip


# In the order of the pipeline: each finds what those before it have left.
STAGES: dict[str, Callable[[Path, int], None]] = {
    "teacher training": _train_teacher,
    "extraction": _extract,
    "similarity": _similarity,
    "Raptor training": _train_raptor,
    "the teacher's probe": _probe_teacher,
    "the students' probes": _probe_students,
    "layer swaps": _swap,
}


if __name__ == "__main__":
    _, stage, images, folder = sys.argv
    own = Path(folder) / images
    own.mkdir(exist_ok=True)
    torch.set_num_threads(1)  # as the jobs of the pipeline run
    STAGES[stage](own, int(images))
    print(peak_memory_mb())
