"""The rules that tie the sections of an experiment together."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from raptor.config.analysis import SwapsConfig
from raptor.config.comparisons import comparison_faults
from raptor.config.data import DataConfig
from raptor.config.dense import DenseConfig, DepthProbe
from raptor.config.dynamics import DynamicsConfig
from raptor.config.fields import did_you_mean
from raptor.config.students import StudentGrid
from raptor.config.teachers import (
    CheckpointTeacher,
    TeacherTraining,
    TimmTeacher,
    TrainedTeacher,
    UntrainedTeacher,
    conv_stem_layers,
)

if TYPE_CHECKING:
    from raptor.config.experiment import Experiment


def inconsistencies(config: Experiment) -> list[str]:
    """What is wrong between the sections, a sentence each that starts with the key."""
    faults = [*_data_faults(config), *_teacher_faults(config), *_process_faults(config)]
    if faults:  # the rest needs sound teachers
        return faults
    faults = [*_partition_faults(config), *_student_faults(config), *_figure_faults(config)]
    return faults + _dynamics_faults(config) + _cost_faults(config) + _dense_faults(config)


def _data_faults(config: Experiment) -> list[str]:
    data, faults = config.data, []
    if data.source == "image_folder" and data.given("image_folder") is None:
        faults.append("data.root: source image_folder reads files; give the folder of the images")
    if data.resize is not None and data.resize < data.image_size:
        faults.append(
            f"data.resize: {data.resize} is less than data.image_size {data.image_size}, which is "
            "cut out of it"
        )
    if data.source == "digits":
        if isinstance(data.root, str):
            faults.append(
                f"data.root: {data.root!r}: source digits is embedded and reads no folder"
            )
        if data.splits.total > 5000:
            faults.append(
                f"data.splits: {data.splits.total} images asked for, the embedded digits have 5000"
            )
    faults += _probe_faults(config)
    for key in ("mean", "std"):
        if len(getattr(data, key)) != data.channels:
            faults.append(
                f"data.{key}: {getattr(data, key)}: give {data.channels} value(s), one per channel"
            )
    store = config.activations
    if store.shard_images % store.chunk_images:
        faults.append(
            f"activations.shard_images: {store.shard_images} is not a multiple of "
            f"activations.chunk_images {store.chunk_images}"
        )
    shards = -(-data.splits.total // store.shard_images)
    if store.jobs > shards:
        faults.append(
            f"activations.jobs: {store.jobs} jobs cannot share the {shards} shards of a store of "
            f"{data.splits.total} images, {store.shard_images} in each; ask for at most {shards}"
        )
    return faults


def _process_faults(config: Experiment) -> list[str]:
    """Each process of a training gets as many images of a batch as the others."""
    sizes = {
        f"recipes.{name}.{stage}.batch_size": getattr(recipe, stage).batch_size
        for name, recipe in config.recipes.items()
        for stage in ("stage1", "stage2")
        if getattr(recipe, stage) is not None
    } | {
        f"teachers.{name}.training.batch_size": spec.training.batch_size
        for name, spec in config.teachers.items()
        if isinstance(spec, TrainedTeacher)
    }
    return [
        f"{key}: {size} images cannot be shared out evenly among gpus: {config.gpus}; take a "
        f"multiple of {config.gpus}"
        for key, size in sizes.items()
        if size % config.gpus
    ]


def _probe_faults(config: Experiment) -> list[str]:
    probe, train = config.probes.classification, config.data.splits.train
    where, images = "probes.classification", probe.train_images or train
    if images > train:
        return [f"{where}.train_images: {images} is more than data.splits.train {train}"]
    if probe.batch_size > images:
        return [
            f"{where}.batch_size: {probe.batch_size} is more than the {images} images trained on"
        ]
    return _warmup_faults(where, probe.warmup_steps, probe.epochs * -(-images // probe.batch_size))


def _teacher_faults(config: Experiment) -> list[str]:
    faults = []
    for name, spec in config.teachers.items():
        where = f"teachers.{name}"
        if isinstance(spec, TimmTeacher):
            faults += _timm_faults(where, spec, config.data)
            continue
        if isinstance(spec, TrainedTeacher):
            if spec.width % spec.heads:
                faults.append(f"{where}.heads: {spec.heads} does not divide width {spec.width}")
            if config.data.image_size % spec.patch_size:
                faults.append(
                    f"{where}.patch_size: {spec.patch_size} does not divide "
                    f"data.image_size {config.data.image_size}"
                )
            elif spec.stem == "conv" and not conv_stem_layers(
                config.data.image_size, spec.patch_size
            ):
                faults.append(
                    f"{where}.stem: conv halves the image until it has the patches of patch_size; "
                    f"{spec.patch_size} px patches of data.image_size {config.data.image_size} "
                    "cannot be reached, use stem: patch"
                )
            faults += _training_faults(f"{where}.training", spec.training, config.data.splits.train)
            continue
        key = "like" if isinstance(spec, UntrainedTeacher) else "of"
        source = config.teachers.get(getattr(spec, key))
        allowed = _of_kind(config, TrainedTeacher, *([TimmTeacher] if key == "like" else []))
        if getattr(spec, key) not in allowed:
            faults.append(
                f"{where}.{key}: {getattr(spec, key)!r} is not a teacher that it can come from; "
                f"choose from {allowed}"
            )
        elif (
            isinstance(spec, CheckpointTeacher)
            and spec.epoch not in source.training.checkpoint_epochs
        ):
            faults.append(
                f"{where}.epoch: {spec.epoch} is not kept; add it to "
                f"teachers.{spec.of}.training.checkpoint_epochs"
            )
    return faults


def _training_faults(where: str, training: TeacherTraining, train: int) -> list[str]:
    faults, images = [], training.train_images or train
    if images > train:
        faults.append(f"{where}.train_images: {images} is more than data.splits.train {train}")
    elif training.batch_size > images:
        faults.append(
            f"{where}.batch_size: {training.batch_size} is more than the {images} images trained on"
        )
    else:
        steps = training.epochs * training.steps_per_epoch(images)
        faults += _warmup_faults(where, training.warmup_steps, steps)
    beyond = [epoch for epoch in training.checkpoint_epochs if epoch > training.epochs]
    if beyond:
        faults.append(f"{where}.checkpoint_epochs: {beyond} are beyond epochs {training.epochs}")
    return faults


def _warmup_faults(where: str, warmup: int, steps: int) -> list[str]:
    if warmup < steps:
        return []
    return [f"{where}.warmup_steps: {warmup} is not below the {steps} steps of the training"]


def _timm_faults(where: str, spec: TimmTeacher, data: DataConfig) -> list[str]:
    faults, patch = [], spec.shape.patch_size
    if data.image_size % patch:
        sizes = [data.image_size // patch * patch, -(-data.image_size // patch) * patch]
        faults.append(
            f"data.image_size: {data.image_size} is not a multiple of the patch size {patch} of "
            f"{where} ({spec.model}); choose {sizes[0] or sizes[1]} or {sizes[1]}"
        )
    for key in ("mean", "std"):
        given = getattr(spec, key)
        if given is not None and len(given) != data.channels:
            faults.append(f"{where}.{key}: {given}: give {data.channels} value(s), one per channel")
    if spec.weights in ("none", "own"):
        faults.append(f"{where}.weights: {spec.weights!r}: give pretrained, random or a file")
    if spec.head in ("pretrained", "random"):
        faults.append(f"{where}.head: {spec.head!r}: give none, own or a file")
    return faults


def _of_kind(config: Experiment, *kinds: type) -> list[str]:
    return [name for name, spec in config.teachers.items() if isinstance(spec, kinds)]


def _partition_faults(config: Experiment) -> list[str]:
    swaps = config.swaps
    faults = _unknown("swaps.teachers", swaps.teachers, config.teachers)
    studied = {name for grid in config.students.values() for name in grid.teachers}
    studied = [name for name in config.teachers if name in studied.union(swaps.teachers)]
    for teacher in [] if faults else swaps.teachers:
        depth = config.shape(teacher).depth
        faults += [
            f"swaps.sizes: {size} is more than the {depth} layers of teacher {teacher}"
            for size in swaps.sizes
            if size > depth
        ]
    for k in config.partition.k:
        faults += _cut_faults(config, "partition.k", studied, k)
    if config.branches is not None:
        unknown = _unknown("branches.teachers", config.branches.teachers, config.teachers)
        faults += unknown
        for k in [] if unknown else config.branches.k:
            faults += _cut_faults(config, "branches.k", config.branches.teachers, k)
    return faults + _computed_faults(config, "swaps", swaps)


def _computed_faults(
    config: Experiment, section: str, cut: SwapsConfig | DynamicsConfig
) -> list[str]:
    """Where `cut` asks for a partition that no teacher can have, or that is not computed."""
    if cut.partition in config.partition.methods and cut.k in config.partition.k:
        return []
    teachers = [name for name in cut.teachers if name in config.teachers]
    return _cut_faults(config, f"{section}.k", teachers, cut.k) or [
        f"{section}.partition: {cut.partition} with k = {cut.k} is not computed; "
        "add it to partition.methods and partition.k"
    ]


def _cut_faults(config: Experiment, where: str, teachers: list[str], k: int) -> list[str]:
    faults, min_size = [], config.partition.min_size
    for teacher in teachers:
        depth = config.shape(teacher).depth
        if k > depth:
            faults.append(f"{where}: k = {k} is more than the {depth} layers of teacher {teacher}")
        elif k * min_size > depth:
            faults.append(
                f"{where}: k = {k} segments of at least partition.min_size = {min_size} layers "
                f"need {k * min_size} layers, teacher {teacher} has {depth}"
            )
    return faults


def _student_faults(config: Experiment) -> list[str]:
    faults = []
    for name, grid in config.students.items():
        where = f"students.{name}"
        for recipe in set(grid.recipes) & set(config.recipes):
            faults += _batch_faults(config, recipe)
        unknown = _unknown(f"{where}.teachers", grid.teachers, config.teachers)
        unknown += _unknown(f"{where}.recipes", grid.recipes, config.recipes)
        faults += unknown
        faults += _unknown(f"{where}.partitions", grid.partitions, config.partition.methods)
        faults += _unknown(f"{where}.k", grid.k, config.partition.k, "partition.k")
        if not unknown:
            for k in grid.k:
                faults += _cut_faults(config, f"{where}.k", grid.teachers, k)
            faults += _block_faults(config, where, grid)
        is_random = any(method.startswith("random") for method in grid.partitions)
        if is_random and grid.seeds > config.partition.random_seeds:
            faults.append(
                f"{where}.seeds: {grid.seeds} is more than the partition.random_seeds "
                f"{config.partition.random_seeds} random partitions drawn"
            )
    return faults


def _block_faults(config: Experiment, where: str, grid: StudentGrid) -> list[str]:
    return [
        f"{where}.recipes: {recipe} has block: teacher, which cannot be built like those of "
        f"{teacher} (another kind of block than timm's plain one); use a recipe with block: swiglu "
        "and initialisation: random"
        for recipe in grid.recipes
        if config.recipes[recipe].block == "teacher"
        for teacher in grid.teachers
        if not config.shape(teacher).plain_block
    ]


def _cost_faults(config: Experiment) -> list[str]:
    """The students whose cost is measured must be in some grid."""
    cost = config.cost
    if cost is None:
        return []
    unknown = _unknown("cost.teacher", [cost.teacher], config.teachers)
    unknown += _unknown("cost.recipe", [cost.recipe], config.recipes)
    return unknown or [
        f"cost.k: no grid of students has teacher {cost.teacher}, recipe {cost.recipe}, "
        f"partition {cost.partition} and k = {k}; add it to one"
        for k in cost.k
        if not config.trains(cost.teacher, cost.recipe, cost.partition, k)
    ]


def _batch_faults(config: Experiment, recipe: str) -> list[str]:
    stages = {name: getattr(config.recipes[recipe], name) for name in ("stage1", "stage2")}
    return [
        f"recipes.{recipe}.{name}.batch_size: {stage.batch_size} is more than "
        f"data.splits.train {config.data.splits.train}"
        for name, stage in stages.items()
        if stage is not None and stage.batch_size > config.data.splits.train
    ]


def _dynamics_faults(config: Experiment) -> list[str]:
    dynamics = config.dynamics
    if dynamics is None:
        return []
    unknown = _unknown("dynamics.teachers", dynamics.teachers, config.teachers)
    faults = unknown + _unknown("dynamics.recipe", [dynamics.recipe], config.recipes)
    faults += _computed_faults(config, "dynamics", dynamics)
    faults = faults or _without_students(config, "dynamics", dynamics, [dynamics.k])
    if not unknown:
        faults += _beyond_teacher(config)
    return faults


def _without_students(
    config: Experiment, where: str, asked: DynamicsConfig | DenseConfig, ks: Iterable[int]
) -> list[str]:
    """Of each k, some teacher of a section must have the students that the section names."""
    return [
        f"{where}.teachers: none of {asked.teachers} has students of recipe {asked.recipe}, "
        f"partition {asked.partition} and k = {k}; add such a grid to students"
        for k in ks
        if not any(config.trains(name, asked.recipe, asked.partition, k) for name in asked.teachers)
    ]


def _beyond_teacher(config: Experiment) -> list[str]:
    """Layers and dimensions that a teacher of `dynamics` does not have."""
    faults = []
    sources, rank = config.dynamics.perturbation.source_layers or [], config.dynamics.dmd.rank or 0
    for teacher in config.dynamics.teachers:
        shape = config.shape(teacher)
        beyond = [layer for layer in sources if layer >= shape.depth]
        if beyond:
            faults.append(
                f"dynamics.perturbation.source_layers: {beyond} are not below the depth "
                f"{shape.depth} of teacher {teacher}"
            )
        if rank > shape.width:
            faults.append(
                f"dynamics.dmd.rank: {rank} is more than the width {shape.width} of "
                f"teacher {teacher}"
            )
    return faults


def _dense_faults(config: Experiment) -> list[str]:
    dense = config.dense
    if dense is None:
        return []
    unknown = _unknown("dense.teachers", dense.teachers, config.teachers)
    faults = unknown + _unknown("dense.recipe", [dense.recipe], config.recipes)
    faults = faults or _without_students(config, "dense", dense, dense.k)
    if not unknown:
        faults += _dense_size_faults(config, dense)
    return faults + _dense_training_faults(dense)


def _dense_training_faults(dense: DenseConfig) -> list[str]:
    """Against the scenes, or the images that the official sets have: a smaller copy has fewer."""
    faults = []
    for task, probe in dense.probes.items():
        where, (train, _) = f"dense.{task}", dense.images(task)
        if probe.source != "scenes":
            faults += _warmup_faults(where, probe.warmup_steps, probe.steps(train))
            continue
        if (probe.train_images or 0) > dense.scenes.train:
            faults.append(
                f"{where}.train_images: {probe.train_images} is more than dense.scenes.train "
                f"{dense.scenes.train}"
            )
        elif probe.batch_size > train:
            faults.append(
                f"{where}.batch_size: {probe.batch_size} is more than the {train} images trained on"
            )
        else:
            faults += _warmup_faults(where, probe.warmup_steps, probe.steps(train))
    return faults


def _dense_size_faults(config: Experiment, dense: DenseConfig) -> list[str]:
    """Images of dense probes are cut into patches, or padded to whole ones."""
    faults = []
    for task, probe in dense.probes.items():
        where = f"dense.{task}"
        if isinstance(probe, DepthProbe):
            if probe.source == "scenes" and probe.crop == "eigen":
                faults.append(f"{where}.crop: eigen is of the images of NYUv2; give none")
            continue
        for name in dense.teachers:
            stride = _stride(config, name)
            if probe.image_size % stride:
                faults.append(
                    f"{where}.image_size: {probe.image_size} is not a multiple of the {stride} px "
                    f"from patch to patch of teacher {name}"
                )
    return faults


def _stride(config: Experiment, teacher: str) -> int:
    """Pixels from one patch to the next, at any size of the images."""
    shape = config.shape(teacher)
    if shape.stem == "patch":
        return shape.patch_size
    return 2 ** conv_stem_layers(config.data.image_size, shape.patch_size)


def _figure_faults(config: Experiment) -> list[str]:
    faults, figures = [], config.figures
    for name in ("similarity_matrices", "maxcut_partitions"):
        shown = getattr(figures, name).teachers or []
        faults += _unknown(f"figures.{name}.teachers", shown, config.teachers)
    if not faults:
        cut = figures.maxcut_partitions.teachers or []
        where = "figures.maxcut_partitions.teachers"
        faults += _cut_faults(config, where, cut, max(config.partition.k))
    ks = figures.maxcut_partitions.k or []
    faults += _unknown("figures.maxcut_partitions.k", ks, config.partition.k, "partition.k")
    for name in ("fidelity_by_k", "partition_comparison", "training_curves", "saturation"):
        figure = getattr(figures, name)
        if figure is not None:
            where = f"figures.{name}"
            faults += _unknown(f"{where}.studies", figure.studies, config.students)
    for name in ("fidelity_by_k", "saturation"):
        figure = getattr(figures, name)
        if figure is not None and figure.reference is not None:
            where = f"figures.{name}.reference"
            faults += _unknown(where, [figure.reference], config.teachers)
    for name in ("stochastic_depth", "overfitting"):
        figure = getattr(figures, name)
        if figure is not None:
            where = f"figures.{name}"
            faults += _unknown(f"{where}.teachers", figure.teachers, config.teachers)
            faults += _unknown(f"{where}.recipe", [figure.recipe], config.recipes)
    for name in ("training_paradigms", "table_ablations"):
        figure = getattr(figures, name)
        if figure is not None:
            where = f"figures.{name}"
            faults += _unknown(f"{where}.teacher", [figure.teacher], config.teachers)
            faults += _unknown(f"{where}.recipes", figure.recipes, config.recipes)
    return faults or comparison_faults(config)  # which needs names that are known


def _unknown(where: str, values: Iterable, known: Iterable, source: str = "") -> list[str]:
    listed = sorted(known)
    return [
        f"{where}: {value!r} is not one of {listed}"
        + (f" ({source})" if source else "")
        + (f"; {meant}" if (meant := did_you_mean(value, map(str, listed))) else "")
        for value in values
        if value not in known
    ]
