"""Each stage that is long at scale, at a size of a second, as its rule calls it."""

from __future__ import annotations

import hashlib
import multiprocessing
import os
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path

import pandas as pd

from raptor.config.activations import ActivationsConfig
from raptor.config.analysis import ClassificationProbe, ProbesConfig, SimilarityConfig, SwapsConfig
from raptor.config.data import DataConfig, Splits
from raptor.config.dynamics import DynamicsConfig
from raptor.config.students import Recipe
from raptor.config.teachers import TeacherTraining, TrainedTeacher
from raptor.errors import RaptorError
from raptor.student import Student

LONG = os.environ.get("RAPTOR_FAULTS") == "long"  # `make faults`
DATA = DataConfig(splits=Splits(train=160, val=30, test=50), mean=[0.13], std=[0.31])
STEPS = {"steps": 15, "batch_size": 16, "warmup_steps": 2, "validate_every": 5}
RECIPES = {
    "paper": Recipe(stage1=STEPS, stage2=STEPS),
    "phase_mean": Recipe(initialisation="phase_mean", block="teacher", stage2=STEPS),
}
# Imported once, by the process that all the others are copies of.
processes = multiprocessing.get_context("forkserver")
processes.set_forkserver_preload(
    [
        "raptor.dynamics.measure",
        "raptor.interventions",
        "raptor.probes.evaluate",
        "raptor.similarity",
        "raptor.teachers.train",
        "raptor.training.raptor",
    ]
)


def device():
    import torch

    torch.set_num_threads(1)
    return torch.device("cpu")


def train_teacher(folder: Path, lr: float = 3e-3) -> None:
    from raptor.files import digest
    from raptor.teachers.train import train_teacher

    training = TeacherTraining(epochs=6, batch_size=16, lr=lr, warmup_steps=2)
    train_teacher(
        spec=TrainedTeacher(
            depth=4, width=16, heads=2, mlp_ratio=2.0, patch_size=14, registers=1,
            stochastic_depth=0.1, training=training,
        ),
        data=DATA, output=folder / "teachers/vit.safetensors",
        history=folder / "teachers/vit.history.csv", state=folder / ".state/vit",
        identity=digest(training.model_dump()), device=device(),
    )  # fmt: skip


def extract(folder: Path, dtype: str = "float16") -> None:
    from raptor.activations.write import extract

    extract(
        teacher=folder / "teachers/vit.safetensors", data=DATA, device=device(),
        config=ActivationsConfig(chunk_images=8, shard_images=16, dtype=dtype),
        output=folder / "activations/vit.json",
    )  # fmt: skip


def similarity(folder: Path) -> None:
    from raptor.similarity import write_similarity

    write_similarity(
        activations=folder / "activations/vit.json", output=folder / "similarity/vit.csv",
        config=SimilarityConfig(batch_images=16, bootstrap=100),
        matrices=folder / "similarity/vit.npz", device=device(),
    )  # fmt: skip


def write_partition(folder: Path) -> None:
    """Not a long one: what the stages after it follow."""
    row = {"teacher": "vit", "method": "maxcut", "k": 2, "cut_weight": 1.0, "cut_fraction": 0.5}
    row |= {"seed": 0, "segments": "1-2 3-4", "labels": "[1, 1, 2, 2]"}
    (folder / "partitions").mkdir(parents=True)
    pd.DataFrame([row]).to_csv(folder / "partitions/maxcut-k2.csv", index=False)


def train_raptors(folder: Path, lr: float = 3e-4) -> None:
    from raptor.training.raptor import train_raptors

    recipes = {
        name: Recipe.model_validate(
            {**recipe.model_dump(), "stage2": {**recipe.stage2.model_dump(), "lr": lr}}
        )
        for name, recipe in RECIPES.items()
    }
    train_raptors(
        teacher=folder / "teachers/vit.safetensors", activations=folder / "activations/vit.json",
        partitions=[folder / "partitions/maxcut-k2.csv"], recipes=recipes,
        students=[Student(name, "maxcut", 2, seed) for name in RECIPES for seed in (0, 1)],
        output=folder / "raptor/one.json", state=folder / ".state/raptor", code="one",
        device=device(), seed=0,
    )  # fmt: skip


PROBES = ProbesConfig(
    classification=ClassificationProbe(epochs=3, batch_size=16, warmup_steps=2), bootstrap=50
)


def probe_teacher(folder: Path) -> None:
    from raptor.probes.evaluate import probe_teacher

    probe_teacher(
        teacher=folder / "teachers/vit.safetensors", activations=folder / "activations/vit.json",
        head=None, config=PROBES, output=folder / "probes/vit.csv",
        layers=folder / "probes/vit.layers.csv", weights=folder / "probes/vit.safetensors",
        device=device(),
    )  # fmt: skip


def probe_students(folder: Path) -> None:
    from raptor.probes.evaluate import probe_students

    probe_students(
        teacher=folder / "teachers/vit.safetensors", activations=folder / "activations/vit.json",
        students=folder / "raptor/one.json", probe=folder / "probes/vit.safetensors", head=None,
        config=PROBES, output=folder / "probes/one.csv", layers=folder / "probes/one.layers.csv",
        code="one", device=device(),
    )  # fmt: skip


def swap_layers(folder: Path) -> None:
    from raptor.interventions import swap_layers

    swap_layers(
        teacher=folder / "teachers/vit.safetensors", activations=folder / "activations/vit.json",
        partition=folder / "partitions/maxcut-k2.csv", head=None,
        config=SwapsConfig(teachers=["vit"], k=2, sizes=[1, 2], samples=20),
        output=folder / "swaps.csv", device=device(), seed=0,
    )  # fmt: skip


DYNAMICS = ("images", "pooled", "basins", "trajectories", "perturbation", "dmd")


def measure_dynamics(folder: Path) -> None:
    from raptor.dynamics.measure import measure_dynamics

    measure_dynamics(
        teacher=folder / "teachers/vit.safetensors", activations=folder / "activations/vit.json",
        students=folder / "raptor/one.json", partition=folder / "partitions/maxcut-k2.csv",
        config=DynamicsConfig.model_validate(
            {
                "teachers": ["vit"], "recipe": "paper", "k": 2, "images": 40, "train_images": 60,
                "batch_images": 16, "dmd": {"modes": 4},
                "perturbation": {"relative_sizes": [0.1], "source_layers": [0, 2], "images": 10},
            }
        ),
        outputs={name: folder / f"dynamics/{name}.csv" for name in DYNAMICS}, device=device(),
        seed=0,
    )  # fmt: skip


@dataclass(frozen=True)
class Stage:
    """A stage and the files that its rule declares, which Snakemake removes when it fails."""

    run: Callable[[Path], None]
    declared: tuple[str, ...]


STAGES = {
    "train a teacher": Stage(
        train_teacher,
        ("teachers/vit.safetensors", "teachers/vit.json", "teachers/vit.history.csv"),
    ),
    "extract states": Stage(extract, ("activations/vit.json",)),
    "similarity": Stage(similarity, ("similarity/vit.csv", "similarity/vit.npz")),
    "train Raptors": Stage(train_raptors, ("raptor/one.json",)),
    "probe the teacher": Stage(
        probe_teacher, ("probes/vit.csv", "probes/vit.layers.csv", "probes/vit.safetensors")
    ),
    "probe Raptors": Stage(probe_students, ("probes/one.csv", "probes/one.layers.csv")),
    "swap layers": Stage(swap_layers, ("swaps.csv",)),
    "dynamics": Stage(measure_dynamics, tuple(f"dynamics/{name}.csv" for name in DYNAMICS)),
}


def _in_a_process(run: Callable[..., None], folder: Path, given: dict, say: Connection) -> None:
    import raptor.training.loop

    raptor.training.loop.SAVE_SECONDS = 0.0  # every step, so that many moments matter
    try:
        run(folder, **given)
    except RaptorError as error:
        say.send(str(error))
        raise SystemExit(1) from None


def started(
    run: Callable[..., None], folder: Path, **given: object
) -> tuple[multiprocessing.Process, Connection]:
    """A process that runs a stage, and what it says where that is a RaptorError."""
    heard, say = processes.Pipe(duplex=False)
    process = processes.Process(target=_in_a_process, args=(run, folder, given, say), daemon=True)
    process.start()
    say.close()
    return process, heard


def ended(run: Callable[..., None], folder: Path, **given: object) -> str | None:
    """Run to the end; what it said where it was a RaptorError."""
    process, heard = started(run, folder, **given)
    process.join()
    said = heard.recv() if process.exitcode == 1 else None
    assert process.exitcode == (0 if said is None else 1)
    return said


def killed(run: Callable[..., None], folder: Path, seconds: float) -> bool:
    """Run, and SIGKILL after so long; whether it was still running."""
    process, _ = started(run, folder)
    process.join(seconds)
    alive = process.is_alive()
    process.kill()
    process.join()
    return alive


def results(folder: Path) -> dict[str, str]:
    """Every file with numbers -> its checksum; the time that a training took is none of them."""
    numbers = (".csv", ".npz", ".safetensors")
    files = [
        path
        for path in folder.rglob("*")
        if path.is_file() and (path.suffix in numbers or "vit.zarr/c" in path.as_posix())
        if ".state" not in path.parts
    ]
    return {
        path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(files)
    }


@dataclass(frozen=True)
class Study:
    """Before and after each stage, undisturbed, and the seconds that it took."""

    before: dict[str, Path]
    after: dict[str, dict[str, str]]
    seconds: dict[str, float]

    def ready(self, stage: str, folder: Path) -> Path:
        """A folder in which `stage` is to run."""
        return Path(shutil.copytree(self.before[stage], folder))


def undisturbed(folder: Path) -> Study:
    study, here = Study({}, {}, {}), folder / "here"
    here.mkdir()
    write_partition(here)
    for name, stage in STAGES.items():
        study.before[name] = Path(shutil.copytree(here, folder / name.replace(" ", "_")))
        begun = time.monotonic()
        assert ended(stage.run, here) is None
        study.seconds[name] = time.monotonic() - begun
        study.after[name] = results(here)
    return study
