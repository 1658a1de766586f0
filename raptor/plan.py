"""What an experiment will cost, from its configuration alone: students, bytes, time, memory.

Time is FLOPs (`raptor.flops`) over throughput. Left out, because small or not a matter of FLOPs:
heads and probes' heads, optimisers, trivial baselines, the similarity stage (CPU), ranks of
updates, depth scaling, reading images and states, starting each job. Jobs and bytes of a store are
exact, time is an estimate within a factor of about two where the throughput is measured on the
same machine.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import NamedTuple

from raptor.activations.manifest import Grid
from raptor.config.data import DataConfig
from raptor.config.dense import (
    KEPT_BYTES,
    UPSAMPLING,
    DepthProbe,
)
from raptor.config.dynamics import PerturbationConfig
from raptor.config.experiment import Experiment
from raptor.config.shape import Shape
from raptor.config.students import Recipe
from raptor.config.teachers import TrainedTeacher
from raptor.flops import (
    BACKWARD,
    FLOAT,
    activation_floats,
    block_flops,
    layout_of,
    raptor_flops,
    raptor_parameters,
    step_applications,
    teacher_flops,
    teacher_parameters,
    training_memory,
)
from raptor.student import Student
from raptor.targets import (
    FIGURES,
    PRINTED,
    TABLES,
    DenseJob,
    covered,
    dense_jobs,
    judged_teachers,
    partitioned_teachers,
    student_jobs,
    study_students,
    teachers_by_rule,
)

# An assumption, not a measurement: training is in float32, of which an H100 (SXM) does at most 67
# TFLOP/s; small matrices and what is not a product leave somewhat over a third of that.
TFLOPS = 25.0
VALIDATIONS = 20  # of a teacher's training, at most (raptor.teachers.train)
PROBE_BATCH = 256  # images (raptor.probes)
CLASSES = 150  # of ADE20K; scenes have fewer
EXTRACTION = ("activation_shards", "activations")  # the stages that write states


@dataclass(frozen=True)
class Work:
    """One stage: its jobs, optimiser steps, image passes, FLOPs, and the memory of one job.

    `stage` is the Snakemake rule, but for `tables` and `figures`, a rule for each target.
    """

    stage: str
    jobs: int
    steps: int = 0
    images: int = 0
    flops: float = 0.0
    memory_bytes: float = 0.0

    def hours(self, tflops: float) -> float:
        return self.flops / (tflops * 1e12) / 3600


@dataclass(frozen=True)
class Store:
    """The states of one teacher on disk: `bytes` of the shards, exactly; files of all kinds."""

    teacher: str
    grid: Grid

    @property
    def bytes(self) -> int:
        return sum(map(self.grid.bytes_of, self.grid.shards))

    @property
    def files(self) -> int:
        """Shards and a record of each, the array's metadata, the manifest."""
        return 2 * len(self.grid.shards) + 2


class Mode(NamedTuple):
    """What `activations.mode` costs: states, FLOPs of all stages, GPU memory of one job."""

    bytes: int
    files: int
    flops: float
    memory_bytes: float


@dataclass(frozen=True)
class Plan:
    teachers: dict[str, int]  # kind -> how many
    students: dict[str, int]  # recipe -> how many
    works: list[Work]
    mode: str  # of activations: store or stream
    stores: list[Store]  # as they are, or would be
    modes: dict[str, Mode]  # both, whichever is asked for
    student_bytes: int

    @property
    def store_bytes(self) -> int:
        return sum(store.bytes for store in self.stores)

    @property
    def flops(self) -> float:
        return sum(work.flops for work in self.works)


def plan(config: Experiment) -> Plan:
    """The plan of a validated configuration; nothing is read but the configuration."""
    found = study_students(config)
    everyone = [student for some in found.values() for student in some]
    made = teachers_by_rule(config)
    stores = [Store(name, store_grid(config, name)) for name in config.teachers]
    pages = covered(config, [*FIGURES, *PRINTED])  # each a table, and then a picture or a page
    streams = config.activations.mode == "stream"
    works = [
        Work("samples", 1),
        _teachers(config),
        _untrained(config, made["untrained_teacher"]),
        Work("checkpoint_teacher", len(made["checkpoint_teacher"])),
        Work("timm_teacher", len(made["timm_teacher"])),
        *_activations(config),
        Work("reading", 0, flops=streamed_flops(config) * streams),
        Work("similarity", len(compared_teachers(config))),
        Work("partition", len(cut_teachers(config))),
        _raptors(config),
        _teacher_probes(config),
        _probes(config),
        _swaps(config),
        _dynamics(config),
        _branches(config),
        Work("dense_samples", len(config.dense.probes) if config.dense else 0),
        _dense(config),
        Work("dense_examples", len(config.dense.probes) if config.dense else 0),
        _cost(config),
        Work("tables", len(pages) + len(TABLES)),
        Work("figures", len(pages)),
    ]
    return Plan(
        teachers=dict(Counter(spec.kind for spec in config.teachers.values())),
        students={
            recipe: sum(student.recipe == recipe for student in everyone)
            for recipe in dict.fromkeys(student.recipe for student in everyone)
        },
        works=works,
        mode=config.activations.mode,
        modes=_modes(config, works, stores),
        stores=stores,
        student_bytes=sum(
            FLOAT * raptor_parameters(config.recipes[one.recipe], config.shape(teacher), one.k)
            for teacher, some in found.items()
            for one in some
        ),
    )


def _modes(config: Experiment, works: list[Work], stores: list[Store]) -> dict[str, Mode]:
    """Storing and streaming, all else being equal; on a GPU, extraction needs main memory alone."""
    others = [work for work in works if work.stage not in (*EXTRACTION, "reading")]
    flops = sum(work.flops for work in others)
    memory = max(work.memory_bytes for work in others)
    return {
        "store": Mode(
            sum(store.bytes for store in stores),
            sum(store.files for store in stores),
            flops + _extraction(config).flops,
            memory,
        ),
        "stream": Mode(
            0, len(stores), flops + streamed_flops(config), max(memory, streamed_memory(config))
        ),
    }


def store_grid(config: Experiment, teacher: str) -> Grid:
    """The grid that the extraction of this teacher will write."""
    shape, store = config.shape(teacher), config.activations
    tokens = layout_of(shape, config.data).total
    states = (config.data.splits.total, shape.depth + 1, tokens, shape.width)
    return Grid(states, store.dtype, store.chunk_images, store.shard_images)


# --- stages --------------------------------------------------------------------------------------


def teacher_work(spec: TrainedTeacher, data: DataConfig) -> Work:
    """Training one teacher, its validations, and the evaluation of what is kept."""
    training, splits, shape = spec.training, data.splits, spec.shape
    train = training.train_images or splits.train
    steps = training.epochs * training.steps_per_epoch(train)
    kept = 1 + len(set(training.checkpoint_epochs))
    evaluated = min(VALIDATIONS, training.epochs) * splits.val
    evaluated += kept * (train + splits.val + splits.test)
    passes = (1 + BACKWARD) * steps * training.batch_size + evaluated
    memory = training_memory(
        teacher_parameters(shape),
        training.batch_size * layout_of(shape, data).total,
        shape.depth,
        shape.width,
        shape.mlp_products // shape.width,
    )
    images = steps * training.batch_size
    return Work("train_teacher", 1, steps, images, passes * teacher_flops(shape, data), memory)


def _sum(stage: str, works: list[Work], jobs: int | None = None) -> Work:
    """Works of one stage together; the memory is that of the largest."""
    return Work(
        stage,
        len(works) if jobs is None else jobs,
        sum(work.steps for work in works),
        sum(work.images for work in works),
        sum(work.flops for work in works),
        max((work.memory_bytes for work in works), default=0.0),
    )


def _teachers(config: Experiment) -> Work:
    specs = [spec for spec in config.teachers.values() if isinstance(spec, TrainedTeacher)]
    return _sum("train_teacher", [teacher_work(spec, config.data) for spec in specs])


def _untrained(config: Experiment, teachers: list[str]) -> Work:
    """They are evaluated; checkpoints are copied, models of timm loaded."""
    images = config.data.splits.total
    flops = [images * teacher_flops(config.shape(name), config.data) for name in teachers]
    return _sum("untrained_teacher", [Work("untrained_teacher", 1, 0, images, n) for n in flops])


def _activations(config: Experiment) -> list[Work]:
    manifests, jobs = Work("activations", len(config.teachers)), config.activations.jobs
    if config.activations.mode == "stream":
        return [manifests]
    extraction = _extraction(config)
    if jobs == 1:
        return [extraction]
    parts = replace(extraction, stage="activation_shards", jobs=jobs * extraction.jobs)
    return [parts, manifests]


def _extraction(config: Experiment) -> Work:
    """Writing the stores, whether or not they are asked for."""
    works, images = [], config.data.splits.total
    for name in config.teachers:
        shape, grid = config.shape(name), store_grid(config, name)
        # In main memory: two shards that take turns, and the states of a chunk in float32.
        memory = 2 * grid.bytes_of(0) + FLOAT * grid.chunk_images * grid.shape[1] * (
            grid.shape[2] * grid.shape[3]
        )
        flops = images * teacher_flops(shape, config.data)
        works.append(Work("activations", 1, 0, images, flops, memory))
    return _sum("activations", works)


def student_work(recipe: Recipe, shape: Shape, data: DataConfig, k: int) -> Work:
    """Training one student: both stages and their validations."""
    one, tokens = raptor_flops(recipe, shape, data), layout_of(shape, data).total
    mlp = 16 * shape.width if recipe.block == "swiglu" else shape.mlp_products // shape.width
    steps = images = flops = 0
    memory = 0.0
    for stage, rollouts in ((recipe.stage1, 2), (recipe.stage2, 1)):
        if stage is None:
            continue
        validations = -(-stage.steps // stage.validate_every)
        flops += (
            (1 + BACKWARD) * stage.batch_size * one * step_applications(stage, shape.depth, k)
            + validations * rollouts * data.splits.val * shape.depth * one
        )  # fmt: skip
        # Beside the activations: the batch's states, predictions and errors, of each layer.
        need = training_memory(
            raptor_parameters(recipe, shape, k), stage.batch_size * tokens,
            shape.depth, shape.width, mlp, states=3 * shape.depth,
        )  # fmt: skip
        steps += stage.steps
        images += stage.steps * stage.batch_size
        memory = max(memory, need)
    return Work("raptor", 1, steps, images, flops, memory)


def _raptors(config: Experiment) -> Work:
    works = []
    for teacher, students in study_students(config).items():
        shape = config.shape(teacher)
        by_kind = {
            (recipe, k): student_work(config.recipes[recipe], shape, config.data, k)
            for recipe, k in {(student.recipe, student.k) for student in students}
        }
        works += [by_kind[student.recipe, student.k] for student in students]
    return _sum("raptor", works, len(student_jobs(config)))


def _probe_training(config: Experiment) -> tuple[int, int]:
    """Images of train that a model runs on for one linear probe, and the steps in which it does.

    Other crops of them in each epoch, or else each once: steps on kept features cost nothing.
    """
    probe = config.probes.classification
    images = probe.train_images or config.data.splits.train
    if probe.crops == "centre":
        return images, 0
    return probe.epochs * images, probe.epochs * -(-images // probe.batch_size)


def _teacher_probes(config: Experiment) -> Work:
    """Teachers run for random crops; else their states are read."""
    images, steps = _probe_training(config)
    images = images if steps else 0
    works = [
        Work("probe_teacher", 1, steps, images, images * teacher_flops(shape, config.data))
        for shape in map(config.shape, config.teachers)
    ]
    return _sum("probe_teacher", works)


def _probes(config: Experiment) -> Work:
    """Each student runs over the images of val and test, and over those of train as asked for."""
    trained_on, steps = _probe_training(config)
    works, images = [], config.data.splits.val + config.data.splits.test + trained_on
    for teacher, students in study_students(config).items():
        shape = config.shape(teacher)
        token_floats = PROBE_BATCH * layout_of(shape, config.data).total * shape.width
        memory = FLOAT * 2 * (shape.depth + 1) * token_floats
        for student in students:
            block = raptor_flops(config.recipes[student.recipe], shape, config.data)
            flops = images * shape.depth * block
            works.append(Work("probe_students", 1, steps, images, flops, memory))
    return _sum("probe_students", works, len(student_jobs(config)))


def _swaps(config: Experiment) -> Work:
    """At most: every swap of one layer, `samples` of each kind of more, each through all layers."""
    swaps, works = config.swaps, []
    for name in config.swaps.teachers:
        shape = config.shape(name)
        number = sum(
            shape.depth * (shape.depth - 1) if size == 1 else 2 * swaps.samples
            for size in swaps.sizes
        )
        images = number * (swaps.images or getattr(config.data.splits, swaps.split))
        flops = images * teacher_flops(shape, config.data)
        works.append(Work("swaps", 1, 0, images, flops))
    return _sum("swaps", works)


def _dynamics(config: Experiment) -> Work:
    """Teachers, each with its Raptor where there is one: states made, moments, noise followed."""
    asked = config.dynamics
    works = []
    for name in asked.teachers if asked else []:
        shape, data = config.shape(name), config.data
        tokens = layout_of(shape, data).total
        block = block_flops(tokens, shape.width, shape.mlp_products)
        student = Student(asked.recipe, asked.partition, asked.k, seed=0)
        models = [(block, 0)]  # FLOPs of a block, and whether states are made rather than read
        if student_jobs(config, {name: [student]}):
            models.append((raptor_flops(config.recipes[asked.recipe], shape, data), 1))
        streamed = min(asked.train_images, data.splits.train) + min(asked.images, data.splits.test)
        noisy = min(asked.perturbation.images, data.splits.test)
        images = len(models) * (streamed + noisy)
        # D × D moments of each transition: two for the linear maps, one for the ranks on test.
        flops = len(models) * streamed * shape.depth * 6 * tokens * shape.width**2
        for one, made in models:
            flops += made * (streamed + noisy) * shape.depth * one
            flops += noisy * perturbed_applications(asked.perturbation, shape.depth) * one
        states = asked.batch_images * (shape.depth + 1) * tokens * shape.width
        works.append(Work("dynamics", 1, 0, images, flops, 2 * FLOAT * states))
    return _sum("dynamics", works)


def perturbed_applications(perturbation: PerturbationConfig, depth: int) -> int:
    """Block applications per image: from each source layer on, without noise and with each."""
    sources = perturbation.source_layers
    layers = sum(depth - source for source in (range(depth) if sources is None else sources))
    return (1 + len(perturbation.relative_sizes)) * layers


def _branches(config: Experiment) -> Work:
    works = []
    for name in config.branches.teachers if config.branches else []:
        images = getattr(config.data.splits, config.similarity.split)
        flops = images * teacher_flops(config.shape(name), config.data)
        works.append(Work("branches", 1, 0, images, flops))
    return _sum("branches", works)


def _dense(config: Experiment) -> Work:
    jobs = dense_jobs(config)
    works = [_head(config, job, model) for job in jobs for model in job.models]
    return _sum("dense_probe", works, len(jobs))


def _head(config: Experiment, job: DenseJob, model: Student | None) -> Work:
    """Passes of a model over the images of its dense probe, and what a batch takes at the most.

    The images to train run once where their features are kept, else in each epoch.
    """
    probe, shape = config.dense.probes[job.task], config.shape(job.teacher)
    train, test = config.dense.images(job.task)
    if isinstance(probe, DepthProbe):
        height, width = (-(-side // shape.patch_size) for side in probe.image_size)
        outputs, per_patch = probe.bins, UPSAMPLING**2
        features = shape.width * (1 + shape.cls)
    else:
        height = width = probe.image_size // shape.patch_size
        outputs, per_patch, features = CLASSES, shape.patch_size**2, shape.width
    patches = height * width
    tokens = shape.cls + shape.registers + patches
    mlp = shape.mlp_products
    if model and config.recipes[model.recipe].block == "swiglu":
        mlp = 12 * shape.width**2
    one = shape.depth * block_flops(tokens, shape.width, mlp)
    target = (FLOAT if job.task == "depth" else 8) * patches * shape.patch_size**2
    kept = train * (FLOAT * features * patches + target) <= KEPT_BYTES
    images = train * (1 if kept else probe.epochs) + test
    # The model's own pass, a block at a time, or the head's: logits at their finest, their
    # gradient and what the loss makes of them.
    passes = tokens * activation_floats(shape.width, mlp // shape.width)
    head = patches * (features + 3 * per_patch * outputs)
    memory = FLOAT * probe.batch_size * max(passes, head)
    return Work("dense_probe", 1, probe.steps(train), images, images * one, memory)


def _cost(config: Experiment) -> Work:
    """Passes of the teacher and of one Raptor of each k, those that are timed."""
    asked = config.cost
    if asked is None:
        return Work("cost", 0)
    shape, passes = config.shape(asked.teacher), asked.repeats * asked.images
    one = raptor_flops(config.recipes[asked.recipe], shape, config.data)
    flops = teacher_flops(shape, config.data) + len(asked.k) * shape.depth * one
    return Work("cost", 1, 0, (1 + len(asked.k)) * passes, passes * flops)


def streamed_flops(config: Experiment) -> int:
    """Of the teachers' passes over the images whose states a stage reads, each stage anew.

    Students that are probed need a_0 alone of train and val, which costs next to nothing.
    """
    splits, reads = config.data.splits, Counter[str]()
    compared = getattr(splits, config.similarity.split)
    for name in config.teachers:
        reads[name] += splits.total  # by its probe and the trivial baselines
    for name in compared_teachers(config):
        reads[name] += compared
    for name in config.branches.teachers if config.branches else []:
        reads[name] += compared
    for name in config.swaps.teachers:
        reads[name] += config.swaps.images or getattr(splits, config.swaps.split)
    for name in config.dynamics.teachers if config.dynamics else []:
        reads[name] += config.dynamics.train_images + config.dynamics.images
        reads[name] += config.dynamics.perturbation.images
    for name, students in study_students(config).items():
        for student in students:
            recipe = config.recipes[student.recipe]
            for stage in filter(None, (recipe.stage1, recipe.stage2)):
                validations = -(-stage.steps // stage.validate_every)
                reads[name] += stage.steps * stage.batch_size + validations * splits.val
            reads[name] += splits.test
    return sum(n * teacher_flops(config.shape(name), config.data) for name, n in reads.items())


def streamed_memory(config: Experiment) -> float:
    """Of the largest training of a student with its teacher beside it, a block of it at a time."""
    found = []
    for name, students in study_students(config).items():
        shape = config.shape(name)
        tokens, hidden = layout_of(shape, config.data).total, shape.mlp_products // shape.width
        for recipe, k in {(student.recipe, student.k) for student in students}:
            given = config.recipes[recipe]
            batch = max(stage.batch_size for stage in (given.stage1, given.stage2) if stage)
            floats = teacher_parameters(shape)
            floats += batch * tokens * activation_floats(shape.width, hidden)
            own = student_work(given, shape, config.data, k)
            found.append(own.memory_bytes + FLOAT * floats)
    return max(found, default=0.0)


# --- which teachers ------------------------------------------------------------------------------


def cut_teachers(config: Experiment) -> set[str]:
    """Those that something asks to be cut into phases."""
    deep, figures = partitioned_teachers(config), config.figures
    studied = {name for grid in config.students.values() for name in grid.teachers}
    asked = studied | set(config.swaps.teachers) | set(filter(None, judged_teachers(config)))
    asked |= set(figures.maxcut_partitions.teachers or deep)
    moving = set(config.dynamics.teachers if config.dynamics else [])
    # The contrast of blocks needs pairs of layers inside a phase and across.
    contrasted = {
        name
        for name in figures.similarity_matrices.teachers or config.teachers
        if 1 < config.swaps.k < config.shape(name).depth
    }
    return asked | (moving | contrasted) & set(deep)


def compared_teachers(config: Experiment) -> set[str]:
    """Those whose layers are compared."""
    drawn = config.figures.similarity_matrices.teachers or config.teachers
    branches = config.branches.teachers if config.branches else []
    return cut_teachers(config) | set(drawn) | set(branches)
