"""The probing stage: what a teacher, and each of its Raptors, keeps (paper §6)."""

from __future__ import annotations

import logging
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from raptor.config.analysis import ProbesConfig
from raptor.fidelity import Fidelity
from raptor.files import replacing, sha256
from raptor.kept import Kept
from raptor.probes.baselines import TrainMoments
from raptor.probes.classification import Source, initial_probe
from raptor.probes.inputs import load_student
from raptor.probes.readout import Probing, Readout, last_stored
from raptor.seeds import derive_seed
from raptor.student import read_index
from raptor.teachers.adapter import Teacher
from raptor.teachers.files import teacher_facts
from raptor.teachers.heads import feature_width, load_head
from raptor.training.checkpoint import Checkpoint
from raptor.training.finished import forget, note_finished

log = logging.getLogger(__name__)


def probe_teacher(
    *,
    teacher: Path,
    activations: Path,
    config: ProbesConfig,
    output: Path,
    layers: Path,
    weights: Path,
    state: Path,
    identity: str,
    device: torch.device,
    head: Path | None = None,
) -> None:
    """Train the teacher's probe and measure the trivial baselines on the test split.

    The probe starts from the teacher's head: its own, or the published one in `head`. Without
    either it starts from zero, and is the head from then on. A training on random crops that was
    interrupted continues from the folder `state`.

    Writes `output` (one row: accuracies in [0, 1], parameters, R² of each baseline averaged over
    layers 1..L), `layers` (R² by baseline, layer and token type) and `weights` (the probe).
    """
    probing = Probing.open(teacher, activations, config, device, head=head)
    model, title = probing.teacher, f"probe of {probing.name}"
    train, test, baselines = _read_teacher(probing, title)
    val = probing.read_out("val", last_stored, title=title, layers=[model.depth])
    start = initial_probe(
        model.linear_head or model.model.head,
        width=model.width,
        features=feature_width(model),
        classes=_classes(model, teacher),
        first=model.width if model.layout.cls and model.pools_patches else 0,
    )
    seen: Source = train.features.first(config.classification.train_images)
    if probing.crops:
        seen = probing.random_crops(partial(model.continue_from, layer=0), title=title)
    probe = probing.fit(start, seen, val, title=title, checkpoint=Checkpoint(state, identity))
    accuracy = test.accuracy(probe)
    row = {
        "teacher": probing.name,
        "accuracy": accuracy,
        "accuracy_head": test.accuracy_head if model.num_classes else accuracy,
        "n_test": len(test.features.labels),
        "parameters": _parameters(model),
        "blocks_parameters": _parameters(model.blocks),
        **{f"r2_{name}": float(r2["all"].mean()) for name, r2 in baselines.items()},
    }
    long = [
        {"teacher": probing.name, "baseline": name, "layer": layer, "tokens": tokens, "r2": value}
        for name, r2 in baselines.items()
        for tokens, values in r2.items()
        for layer, value in enumerate(values, start=1)
    ]
    with replacing(weights) as temporary:
        save_file(dict(probe.state_dict()), temporary, metadata={"teacher": probing.name})
    _write(pd.DataFrame(long), layers)
    _write(pd.DataFrame([row]), output)
    if probing.crops:
        note_finished(state, output)
    log.info("%s: accuracy %.4f, own head %.4f", title, row["accuracy"], row["accuracy_head"])


def _classes(model: Teacher, path: Path) -> int:
    """How many classes there are to tell apart."""
    return model.num_classes or len(teacher_facts(path)["class_names"])


def _read_teacher(
    probing: Probing, title: str
) -> tuple[Readout, Readout, dict[str, dict[str, np.ndarray]]]:
    """Readouts of train and test, and baseline -> token type -> R² (L,) on test.

    The baselines are fitted on the training states in the same pass.
    """
    model, moments = probing.teacher, TrainMoments()

    def note(states_BSTD: Tensor) -> Tensor:
        moments.update(states_BSTD)
        return last_stored(states_BSTD)

    train = probing.read_out("train", note, title=title)
    predictors = moments.predictors()
    fidelities = {name: Fidelity(model.layout, model.depth) for name in predictors}

    def compare(states_BSTD: Tensor) -> Tensor:
        for name, predictor in predictors.items():
            fidelities[name].update(states_BSTD[:, 1:], predictor(states_BSTD[:, 0]))
        return last_stored(states_BSTD)

    test = probing.read_out("test", compare, title=title)
    return train, test, {name: fidelity.r2() for name, fidelity in fidelities.items()}


def probe_students(
    *,
    teacher: Path,
    activations: Path,
    students: Path,
    probe: Path,
    config: ProbesConfig,
    output: Path,
    layers: Path,
    state: Path,
    code: str,
    device: torch.device,
    head: Path | None = None,
) -> None:
    """Measure every student of the index `students`, run closed-loop from a_0.

    Writes `output` (one row per student) and `layers` (R² and ε by layer and token type). All
    on the test split; accuracies in [0, 1]: `accuracy` of the teacher's probe fine-tuned on the
    student (paper §6), `accuracy_probe_frozen` of the same probe as it is, `accuracy_head` of
    the teacher's own head, or of `head` where it has none. `epsilon_max` is the ε of the
    hypothesis, the largest over layers; `epsilon_relative` the largest of ε_l / E‖a_l‖_F.

    What is found of a student is kept in a `.json` beside `output`, where the student's own file
    is beside its index: a run that was interrupted, or that has one student more, measures only
    those that the same `code` (a digest) has not measured from the same files. A training on
    random crops that was interrupted continues from the folder `state`.
    """
    probing = Probing.open(teacher, activations, config, device, head=head)
    start = load_head(probe, feature_width(probing.teacher), _classes(probing.teacher, teacher))
    files = [teacher, activations, probe, *([head] if head else [])]
    shared = [code, config.model_dump(mode="json"), *map(sha256, files)]
    reference = None
    found = []
    for entry in read_index(students):
        kept = Kept((output.parent / entry["file"]).with_suffix(".json"), [*shared, entry])
        own = state / Path(entry["file"]).with_suffix("").as_posix().replace("/", "-")
        measured = kept.load()
        if measured is None:
            reference = reference or _read_reference(probing)
            path = Path(students).parent / entry["file"]
            student = load_student(path, entry["sha256"], probing.teacher, device)
            checkpoint = Checkpoint(own, kept.identity)
            row, table = _probe_student(probing, entry, student, start, reference, checkpoint)
            measured = {"row": row, "layers": table.to_dict("list")}
            kept.save(measured)
        forget(own)
        found.append(measured)
    tables = [pd.DataFrame(measured["layers"]) for measured in found]
    _write(pd.concat(tables, ignore_index=True), layers)
    _write(pd.DataFrame([measured["row"] for measured in found]), output)


def _read_reference(probing: Probing) -> Readout:
    """The teacher's own readout of the test split."""
    layers = [probing.teacher.depth]
    return probing.read_out("test", last_stored, title=f"probe of {probing.name}", layers=layers)


def _probe_student(
    probing: Probing,
    entry: dict[str, Any],
    student: nn.Module,
    start: nn.Linear,
    teacher: Readout,
    checkpoint: Checkpoint,
) -> tuple[dict[str, Any], pd.DataFrame]:
    """The row of one student and its table by layer; `teacher` is the teacher's test readout."""
    name = {"teacher": entry["teacher"], "recipe": entry["recipe"], "partition": entry["method"]}
    name |= {"k": entry["k"], "seed": entry["seed"]}
    title = "probe of {teacher} {recipe} {partition} k={k} seed {seed}".format(**name)
    train, val, test, fidelity = _read_student(probing, student, title, *name.values())
    probe = probing.fit(start, train, val, *name.values(), title=title, checkpoint=checkpoint)
    table = fidelity.table(
        resamples=probing.config.bootstrap,
        seed=derive_seed(probing.config.seed, "epsilon", probing.name),
    )
    accuracies = {
        "accuracy": test.accuracy(probe),
        "accuracy_head": test.accuracy_head,
        "accuracy_probe_frozen": test.accuracy(start),
        "accuracy_teacher": teacher.accuracy(start),
        "accuracy_teacher_head": teacher.accuracy_head,
    }
    row = {
        **name,
        **{key: entry[key] for key in ("segments", "parameters", "steps")},
        **_mean_r2(table),
        **accuracies,
        "recovered": _ratio(accuracies["accuracy"], accuracies["accuracy_teacher"]),
        "recovered_head": _ratio(test.accuracy_head, teacher.accuracy_head),
        **_largest_epsilon(table),
        "n_test": fidelity.images,
    }
    shown = (row["r2_mean"], row["accuracy"], row["accuracy_teacher"])
    log.info("%s: R² %.4f, accuracy %.4f of %.4f", title, *shown)
    return row, table.assign(**name)[[*name, *table.columns]]


def _read_student(
    probing: Probing, student: nn.Module, title: str, *names: object
) -> tuple[Source, Readout, Readout, Fidelity]:
    """What its probe is trained on, readouts of val and test, and its errors on test.

    The student runs closed-loop.
    """
    fidelity = Fidelity(probing.teacher.layout, probing.teacher.depth)

    def last(state_BTD: Tensor) -> Tensor:
        return student(state_BTD)[:, -1]

    def follow(states_BSTD: Tensor) -> Tensor:
        return last(states_BSTD[:, 0])

    def compare(states_BSTD: Tensor) -> Tensor:
        predicted_BLTD = student(states_BSTD[:, 0])
        fidelity.update(states_BSTD[:, 1:], predicted_BLTD)
        return predicted_BLTD[:, -1]

    if probing.crops:
        train: Source = probing.random_crops(last, *names, title=title)
    else:
        images = probing.config.classification.train_images
        train = probing.read_out("train", follow, title=title, layers=[0], images=images).features
    val = probing.read_out("val", follow, title=title, layers=[0])
    return train, val, probing.read_out("test", compare, title=title), fidelity


def _mean_r2(table: pd.DataFrame) -> dict[str, float]:
    """R² averaged over layers 1..L, of all tokens and of each type (NaN for a type not there)."""
    means = table.groupby("tokens")["r2"].agg(lambda values: values.mean(skipna=False))
    names = {"r2_mean": "all", "r2_cls": "cls", "r2_registers": "registers", "r2_patch": "patches"}
    return {column: float(means.get(tokens, np.nan)) for column, tokens in names.items()}


def _largest_epsilon(table: pd.DataFrame) -> dict[str, float]:
    whole = table[table["tokens"] == "all"]
    return {
        "epsilon_max": float(whole["epsilon"].max()),
        "epsilon_relative": float((whole["epsilon"] / whole["norm"]).max()),
    }


def _ratio(part: float, whole: float) -> float:
    return part / whole if whole else float("nan")


def _parameters(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


def _write(table: pd.DataFrame, path: Path) -> None:
    with replacing(path) as temporary:
        table.to_csv(temporary, index=False)
