"""The rules of the figures that set the same kind of student of several teachers or recipes
side by side."""

from __future__ import annotations

from typing import TYPE_CHECKING

from raptor.config.figures import RecipesFigure, TeachersFigure
from raptor.config.teachers import Architecture, CheckpointTeacher, TrainedTeacher

if TYPE_CHECKING:
    from raptor.config.experiment import Experiment


def comparison_faults(config: Experiment) -> list[str]:
    """What is wrong with these figures; every name in them must be known."""
    faults = []
    for name in ("stochastic_depth", "overfitting", "training_paradigms", "table_ablations"):
        figure = getattr(config.figures, name)
        if figure is not None:
            faults += _student_faults(config, f"figures.{name}", figure)
    faults += _stochastic_depth_faults(config) + _overfitting_faults(config)
    return faults + _paradigm_faults(config) + _ablation_faults(config)


def _student_faults(
    config: Experiment, where: str, figure: TeachersFigure | RecipesFigure
) -> list[str]:
    """Every student set side by side must be trained, and differ in nothing else."""
    if isinstance(figure, TeachersFigure):
        pairs = [(teacher, figure.recipe) for teacher in figure.teachers]
    else:
        pairs = [(figure.teacher, recipe) for recipe in figure.recipes]
    return [
        f"{where}: no students of {teacher} with recipe {recipe}, partition {figure.partition} and "
        f"k = {figure.k} are trained; add them to a grid of students"
        for teacher, recipe in pairs
        if not config.trains(teacher, recipe, figure.partition, figure.k)
    ]


def _stochastic_depth_faults(config: Experiment) -> list[str]:
    figure, where = config.figures.stochastic_depth, "figures.stochastic_depth.teachers"
    if figure is None:
        return []
    faults, seen = [], {}
    for name in figure.teachers:
        spec = config.teachers[name]
        trained_here = isinstance(config.origin(name), TrainedTeacher)
        if isinstance(spec, CheckpointTeacher) or not trained_here:
            faults.append(
                f"{where}: the stochastic_depth of {name!r} is not known here; choose teachers "
                "that are trained here, or untrained"
            )
        elif isinstance(spec, TrainedTeacher):
            other = seen.setdefault(spec.stochastic_depth, name)
            if other != name:
                faults.append(
                    f"{where}: {other} and {name} have the same stochastic_depth "
                    f"{spec.stochastic_depth:g}; leave one out"
                )
    return faults


def _overfitting_faults(config: Experiment) -> list[str]:
    figure, where = config.figures.overfitting, "figures.overfitting.teachers"
    if figure is None:
        return []
    specs = {name: config.teachers[name] for name in figure.teachers}
    trained = [name for name, spec in specs.items() if isinstance(spec, TrainedTeacher)]
    if len(trained) != 1:
        return [f"{where}: {trained} are trained; give one of these, and its checkpoints"]
    (own,), faults, seen = trained, [], {}
    for name, spec in specs.items():
        if isinstance(spec, TrainedTeacher):
            source, epoch = name, spec.training.epochs
        elif isinstance(spec, CheckpointTeacher):
            source, epoch = spec.of, spec.epoch
        else:
            source, epoch = own if _alike(config, name, own) else spec.like, 0
        if source != own:
            faults.append(f"{where}: {name} comes from {source}, not from {own}; leave it out")
        elif (other := seen.setdefault(epoch, name)) != name:
            faults.append(f"{where}: {other} and {name} are both of epoch {epoch}; leave one out")
    return faults


def _alike(config: Experiment, *teachers: str) -> bool:
    """Whether these teachers began with the same weights: one architecture, one seed."""
    first, *others = (
        config.origin(name).model_dump(include=set(Architecture.model_fields)) for name in teachers
    )
    return all(other == first for other in others)


def _paradigm_faults(config: Experiment) -> list[str]:
    figure, faults, seen = config.figures.training_paradigms, [], {}
    for name in figure.recipes if figure else []:
        paradigm = config.recipes[name].paradigm
        if (other := seen.setdefault(paradigm, name)) != name:
            faults.append(
                f"figures.training_paradigms.recipes: {other} and {name} train alike ({paradigm}); "
                "leave one out"
            )
    return faults


def _ablation_faults(config: Experiment) -> list[str]:
    """Recipes with random weights must each add one thing; one from phase_mean stands alone."""
    figure, faults = config.figures.table_ablations, []
    if figure is None:
        return []
    where = "figures.table_ablations.recipes"
    before: list[str] | None = None
    for name in figure.recipes:
        recipe = config.recipes[name]
        if recipe.initialisation == "phase_mean":
            continue
        here, expected = recipe.ingredients, 0 if before is None else len(before) + 1
        if len(here) != expected or not set(before or ()) <= set(here):
            faults.append(
                f"{where}: {name} has {here} beside teacher forcing; it must have "
                + ("nothing" if before is None else f"one thing more than {before}")
            )
        before = here
    starts = [n for n in figure.recipes if config.recipes[n].initialisation == "phase_mean"]
    if before is None or len(starts) > 1:
        faults.append(
            f"{where}: {figure.recipes}: give recipes with initialisation: random, and at most one "
            "with phase_mean"
        )
    return faults
