"""Training Raptors: both stages of the paper's recipe (§Method 4–5), and what a rule calls."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import torch

from raptor.activations.read import Activations
from raptor.config.students import Recipe
from raptor.device import compile_modules
from raptor.errors import RaptorError
from raptor.files import digest, sha256, write_json
from raptor.models.files import load_raptor, raptor_facts, save_raptor
from raptor.models.initialise import build_raptor
from raptor.models.raptor import Raptor
from raptor.partition import Partition, format_segments
from raptor.phases import read_partition
from raptor.seeds import derive_seed
from raptor.stored import open_teacher
from raptor.student import Student
from raptor.teachers.adapter import Teacher
from raptor.training import distributed
from raptor.training.checkpoint import Checkpoint
from raptor.training.finished import forget
from raptor.training.history import write_history
from raptor.training.loop import fit
from raptor.training.stages import ClosedLoopTraining, SegmentTraining

log = logging.getLogger(__name__)

_STAGES = {"stage1": SegmentTraining, "stage2": ClosedLoopTraining}

History = dict[str, list[dict[str, float]]]  # stage -> rows of `raptor.training.loop.fit`


def train_raptors(
    *,
    teacher: Path,
    activations: Path,
    partitions: Iterable[Path],
    recipes: Mapping[str, Recipe],
    students: Iterable[Student],
    output: Path,
    state: Path,
    code: str,
    device: torch.device,
    seed: int,
    autocast: str = "none",
    compiled: bool = False,
) -> None:
    """Train `students` on the stored states and write the index `output`.

    Student (recipe, method, k, s) follows row s of the CSV `<method>-k<k>.csv`, one of
    `partitions`; its files are `<recipe>/<method>-k<k>/seed<s>.safetensors`, `.json` and
    `.history.csv` below the folder of the index. Its first weights and data order follow from
    (`seed`, recipe, method, k, s). A student that is
    there, whole, and was trained by the same `code` (a digest) from the same data is kept,
    whichever job made it; one that was interrupted continues from the folder `state`, where
    nothing of it is left in the end. The index holds, for each student, `file, sha256, teacher,
    recipe, method, k, seed, segments, labels (1..k by layer), parameters, steps, seconds` (of the
    last run, where it was interrupted) and `r2`, on the validation split. `autocast` and `compiled`
    are of `raptor.device`.
    """
    model, store = open_teacher(teacher, activations, device)
    cuts = {path.stem: path for path in partitions}
    shared = [code, seed, sha256(teacher), sha256(activations), autocast]
    entries = []
    for student in students:
        cut = read_partition(cuts[student.partition], student.seed)
        recipe = recipes[student.recipe]
        path = output.parent / f"{student.path}.safetensors"
        own = state / student.path.replace("/", "-")
        facts = _facts(teacher.stem, cut, student)
        identity = digest([*shared, recipe.model_dump(mode="json"), facts, cut.labels])
        if not _is_trained(path, identity):
            started = time.monotonic()
            raptor, history = train_raptor(
                teacher=model,
                store=store,
                cut=cut,
                recipe=recipe,
                title="{teacher} {recipe} {method} k={k} seed {seed}".format(**facts),
                state=own,
                identity=identity,
                seed=derive_seed(seed, "raptor", *student),
                autocast=autocast,
                compiled=compiled,
            )
            facts |= _results(raptor, history) | {"seconds": round(time.monotonic() - started, 2)}
            if distributed.rank() > 0:
                continue
            write_history(_history_path(path), history)
            facts["history_sha256"] = sha256(_history_path(path))
            save_raptor(raptor, path, identity=identity, **facts)
        if distributed.rank() == 0:
            forget(own)
            entries.append(_entry(path, output.parent, cut))
    if distributed.rank() == 0:
        write_json(output, {"students": entries})


def train_raptor(
    *,
    teacher: Teacher,
    store: Activations,
    cut: Partition,
    recipe: Recipe,
    title: str,
    state: Path,
    identity: str,
    seed: int,
    autocast: str = "none",
    compiled: bool = False,
) -> tuple[Raptor, History]:
    """One student and, by stage, the rows of `raptor.training.loop.fit`.

    Computes on the device of `teacher`. Each stage resumes from its own folder in `state`, and
    one that was complete is not run again. The same `seed` gives the same student, bit for bit
    on a CPU, interrupted or not.
    """
    labels = [label - 1 for label in cut.labels]
    raptor = build_raptor(recipe, labels, teacher, derive_seed(seed, "initialise"))
    device = next(teacher.parameters()).device
    raptor = raptor.to(device).train()
    compile_modules(raptor.blocks, device, compiled)
    history: History = {}
    for name, trainer in _STAGES.items():
        settings = getattr(recipe, name)
        if settings is None:
            continue
        own = derive_seed(seed, name)
        training = trainer(raptor, store, recipe, settings, own, device, autocast)
        history[name] = fit(
            title=f"{title} {name}",
            steps=settings.steps,
            step=training.step,
            parts={"raptor": raptor, "optimizer": training.optimizer},
            checkpoint=Checkpoint(state / name, identity),
            validate=training.validate,
            validate_every=settings.validate_every,
        )
    return raptor.eval(), history


def _facts(teacher: str, cut: Partition, student: Student) -> dict[str, Any]:
    """Which student it is, as its JSON and the index say."""
    return {"teacher": teacher, **student._asdict(), "segments": format_segments(cut.segments)}


def _history_path(path: Path) -> Path:
    return path.with_suffix(".history.csv")


def _is_trained(path: Path, identity: str) -> bool:
    """Whether the student in `path` is whole and of that identity, its history beside it."""
    if not (path.is_file() and path.with_suffix(".json").is_file()):
        return False
    try:
        facts = raptor_facts(path)
        if facts.get("identity") != identity:
            return False
        load_raptor(path)
    except RaptorError as error:
        log.warning("%s; it is trained again", error)
        return False
    history = _history_path(path)
    if history.is_file() and sha256(history) == facts["history_sha256"]:
        log.info("%s: already trained, kept", path)
        return True
    log.warning("%s: missing or damaged; the student is trained again", history)
    return False


def _results(raptor: Raptor, history: History) -> dict[str, float]:
    """`parameters` of the blocks, `steps` of both stages, `r2` (validation) at the end."""
    last = [rows[-1] for rows in history.values()]
    return {
        "parameters": sum(parameter.numel() for parameter in raptor.parameters()),
        "steps": sum(row["step"] for row in last),
        "r2": last[-1]["r2"],
    }


def _entry(path: Path, folder: Path, cut: Partition) -> dict[str, Any]:
    """What the index in `folder` says of a student."""
    return {
        **raptor_facts(path),
        "file": path.relative_to(folder).as_posix(),
        "sha256": sha256(path),
        "labels": list(cut.labels),
    }
