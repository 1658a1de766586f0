"""Every stage that takes hours at scale, at toy size, run by its rule's own script.

A results folder is `root`. The stages stand in the order in which they need one another, so that
running all of them makes the inputs of each.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import runpy
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from raptor.config.activations import ActivationsConfig
from raptor.config.analysis import PartitionConfig, ProbesConfig, SimilarityConfig, SwapsConfig
from raptor.config.data import DataConfig
from raptor.config.dense import ScenesConfig, SegmentationProbe
from raptor.config.dynamics import DynamicsConfig
from raptor.config.students import Recipe
from raptor.config.teachers import TrainedTeacher
from raptor.training.finished import remove_finished

ROOT = Path(__file__).parents[2]


class Files(list):
    """Like Snakemake's lists of files: paths by number and by name, some names with several."""

    def __init__(self, named: Mapping[str, Any]) -> None:
        super().__init__()
        self.named = dict(named)
        for value in self.named.values():
            self.extend([value] if isinstance(value, str) else value)

    def __getattr__(self, name: str) -> Any:
        try:
            return self.__dict__["named"][name]
        except KeyError:
            raise AttributeError(name) from None

    def __getitem__(self, key):
        return self.named[key] if isinstance(key, str) else super().__getitem__(key)

    def items(self):
        return self.named.items()


@dataclass(frozen=True)
class Stage:
    """One job: a rule's script with the inputs, outputs and parameters of its only job here."""

    script: str
    input: dict[str, Any]
    output: dict[str, Any]  # what Snakemake removes after a failure, and before each run
    params: dict[str, Any] = field(default_factory=dict)
    extra: tuple[str, ...] = ()  # globs of what it writes beside its outputs
    wildcards: dict[str, str] = field(default_factory=lambda: {"teacher": "vit"})

    def run(self, root: Path) -> None:
        """Run the script as Snakemake does, in `root`."""
        os.chdir(root)
        facts = SimpleNamespace(
            rule=self.script,
            wildcards=Named(self.wildcards),
            params=Named(self.params | {"code": "as tested"}),
            input=Files(self.input),
            output=Files(self.output),
            log=[f"logs/{self.script}.log"],
            threads=1,
            config={"device": "cpu"},
        )
        script = ROOT / f"workflow/scripts/{self.script}.py"
        runpy.run_path(str(script), init_globals={"snakemake": facts})

    def remove_outputs(self, root: Path) -> None:
        """What Snakemake does after a failure."""
        for path in Files(self.output):
            (root / path).unlink(missing_ok=True)

    def remove(self, root: Path) -> None:
        """All that the stage has written: as if it had never run."""
        self.remove_outputs(root)
        for path in Files(self.output):
            (root / f"{path}.provenance.json").unlink(missing_ok=True)
        for pattern in self.extra:
            for path in root.glob(pattern):
                shutil.rmtree(path) if path.is_dir() else path.unlink()


class Named(dict):
    """Like Snakemake's parameters and wildcards: by attribute too."""

    __getattr__ = dict.__getitem__


DATA = DataConfig(
    splits={"train": 96, "val": 16, "test": 32}, mean=[0.13], std=[0.31], image_size=28
)
TRAINING = {"batch_size": 16, "lr": 2e-3, "warmup_steps": 4}
TEACHER = TrainedTeacher(
    depth=4, width=16, heads=2, mlp_ratio=2, patch_size=14, registers=1, stochastic_depth=0.1,
    training={
        **TRAINING, "epochs": 12, "checkpoint_epochs": [0, 6], "augmentation": {"shift_px": 2},
    },
)  # fmt: skip
ACTIVATIONS = ActivationsConfig(chunk_images=4, shard_images=8)
SIMILARITY = SimilarityConfig(batch_images=4, bootstrap=100)
STEPS = {"steps": 16, "batch_size": 8, "warmup_steps": 2, "validate_every": 8, "lr": 1e-3}
RECIPES = {
    "paper": Recipe(layer_scale=0.1, stage1=STEPS, stage2=STEPS),
    "mean": Recipe(initialisation="phase_mean", block="teacher", stage2=STEPS),
}
STUDENTS = [["paper", "maxcut", 2, 0], ["mean", "maxcut", 2, 0], ["mean", "maxcut", 2, 1]]
PROBES = ProbesConfig(
    classification={"crops": "random", "epochs": 10, "batch_size": 8, "warmup_steps": 2},
    bootstrap=50,
)
DYNAMICS = DynamicsConfig(
    teachers=["vit"], recipe="mean", k=2, images=32, train_images=96, batch_images=4,
    perturbation={"images": 16},
)  # fmt: skip
DENSE = SegmentationProbe(
    source="scenes", image_size=56, epochs=6, batch_size=4, warmup_steps=1
)  # fmt: skip
SCENES = ScenesConfig(image_size=56, digits=2, train=16, test=8)

WEIGHTS = {"weights": "teachers/vit.safetensors", "facts": "teachers/vit.json"}
STATES = {**WEIGHTS, "activations": "activations/vit.json"}
PHASES = "partitions/vit/maxcut-k2.csv"
INDEX = "raptor/vit/all-0.json"


def plain(section: Any) -> Any:
    return section.model_dump(mode="json")


STAGES: dict[str, Stage] = {
    "samples": Stage("samples", {}, {"samples": "data/samples.csv"}, {"data": plain(DATA)}),
    "teacher": Stage(
        "train_teacher",
        {"samples": "data/samples.csv"},
        {**WEIGHTS, "history": "teachers/vit.history.csv"},
        {
            "spec": plain(TEACHER),
            "data": plain(DATA),
            "state": ".state/teachers/vit",
            "autocast": "none",
        },
        extra=("teachers/vit", ".state"),
    ),
    "extraction": Stage(
        "activations",
        {**WEIGHTS, "samples": "data/samples.csv"},
        {"manifest": "activations/vit.json"},
        {"data": plain(DATA), "config": plain(ACTIVATIONS), "store": None},
        extra=("activations/vit.zarr", "activations/vit.shards"),
    ),
    "similarity": Stage(
        "similarity",
        {"activations": "activations/vit.json"},
        {"table": "similarity/vit.csv", "matrices": "similarity/vit.npz"},
        {"config": plain(SIMILARITY), "streamed": False},
    ),
    "branches": Stage(
        "branches",
        STATES,
        {
            name: f"branches/vit/{name.replace('_matrices', '')}.{suffix}"
            for branch in ("attention", "mlp")
            for name, suffix in ((branch, "csv"), (f"{branch}_matrices", "npz"))
        },
        {"config": plain(SIMILARITY)},
    ),
    "partition": Stage(
        "partition",
        {"matrices": "similarity/vit.npz"},
        {
            "partitions": [PHASES],
            "stability": "partitions/vit/stability.csv",
            "epsilon": "partitions/vit/epsilon.csv",
        },
        {"config": plain(PartitionConfig(methods=["maxcut"], k=[2])), "seed": 0},
    ),
    "students": Stage(
        "raptor",
        {**STATES, "partitions": [PHASES]},
        {"index": INDEX},
        {
            "recipes": {name: plain(recipe) for name, recipe in RECIPES.items()},
            "students": STUDENTS,
            "seed": 0,
            "state": ".state/raptor/vit",
            "autocast": "none",
        },
        extra=("raptor/vit/*/*", ".state"),
        wildcards={"teacher": "vit", "study": "all", "part": "0"},
    ),
    "teacher's probe": Stage(
        "probe_teacher",
        {**STATES, "head": []},
        {
            "table": "probes/vit.csv",
            "layers": "probes/vit.layers.csv",
            "weights": "probes/vit.safetensors",
        },
        {"config": plain(PROBES), "state": ".state/probes/vit/teacher"},
        extra=(".state",),
    ),
    "students' probes": Stage(
        "probe_students",
        {**STATES, "probe": "probes/vit.safetensors", "head": [], "students": INDEX},
        {"table": "probes/vit/all-0.csv", "layers": "probes/vit/all-0.layers.csv"},
        {"config": plain(PROBES), "state": ".state/probes/vit"},
        extra=("probes/vit/*/*", ".state"),
    ),
    "dense probe": Stage(
        "dense_probe",
        {**WEIGHTS, "samples": "data/samples.csv", "students": [INDEX]},
        {"table": "dense/segmentation/vit/heads-1.csv"},
        {
            "task": {
                "name": "segmentation",
                "data": plain(DATA.only("digits")),
                "probe": plain(DENSE),
                "scenes": plain(SCENES),
            },
            "models": [[], STUDENTS[1]],
            "seed": 0,
            "state": ".state/dense/segmentation/vit",
        },
        extra=("dense/segmentation/vit/*", ".state"),
    ),
    "swaps": Stage(
        "swaps",
        {**STATES, "head": [], "partition": PHASES},
        {"table": "interventions/vit.swaps.csv"},
        {
            "config": plain(
                SwapsConfig(teachers=["vit"], k=2, sizes=[1, 2, 3], samples=150, split="train")
            ),
            "seed": 0,
        },
    ),
    "dynamics": Stage(
        "dynamics",
        {**STATES, "students": [INDEX], "partition": [PHASES]},
        {
            name: f"dynamics/vit/{name}.csv"
            for name in ("images", "pooled", "basins", "trajectories", "perturbation", "dmd")
        },
        {"config": plain(DYNAMICS), "seed": 0},
    ),
    # What reads the other files, in no time.
    "epoch": Stage(
        "checkpoint_teacher",
        {"facts": "teachers/vit.json"},
        {"weights": "teachers/half.safetensors", "facts": "teachers/half.json"},
        {"epoch": 6},
        wildcards={"teacher": "half"},
    ),
    "fidelity": Stage(
        "table",
        {"students": ["probes/vit/all-0.csv"]},
        {"table": "tables/fidelity.csv"},
        {"target": "fidelity", "extra": {}},
        wildcards={},
    ),
    "curves": Stage(
        "table",
        {"students": [INDEX]},
        {"table": "figures/training_curves.csv"},
        {"target": "training_curves", "extra": {"study": [["vit", *one] for one in STUDENTS]}},
        wildcards={},
    ),
}
SHORT = ("samples", "partition", "epoch", "fidelity", "curves")  # in seconds at any scale
LONG = [name for name in STAGES if name not in SHORT]


def content(root: Path) -> dict[str, str]:
    """Every result below `root` -> its digest, without what clocks and jobs say about the run.

    States of finished trainings are forgotten, as they are when a run ends.
    """
    with contextlib.chdir(root):
        remove_finished(Path(".state"))
    return {
        path.relative_to(root).as_posix(): hashlib.sha256(_lasting(path)).hexdigest()
        for path in sorted(root.rglob("*"))
        if path.is_file()
        and not path.name.endswith((".provenance.json", ".lock"))
        and path.relative_to(root).parts[0] != "logs"
    }


def _lasting(path: Path) -> bytes:
    """The bytes of a file; of a JSON all but the seconds, and the digests that cover them."""
    if path.suffix != ".json":
        return path.read_bytes()
    try:
        value = json.loads(path.read_bytes())
    except ValueError:  # a bit of it was flipped
        return path.read_bytes()
    for part in value.get("students", [value]) if isinstance(value, dict) else []:
        for clock in ("seconds", "digest", "identity"):
            part.pop(clock, None)
    return json.dumps(value).encode()
