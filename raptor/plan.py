"""What an experiment will cost, from its configuration alone: students, bytes, time, memory.

The one place for these formulas. T tokens, D width, H hidden units of the MLP, L layers; FLOPs
are those of matrix products and convolutions, a multiplication and an addition counting as 2.

    block, one image          2 T (4 D² + 2 D H) + 4 T² D     (SwiGLU of 4D units: 2 D H -> 12 D²)
    teacher, one image        embedding + L blocks
    a training step           3 x forward x batch             (the backward pass costs two)
    teacher forcing           2 L - k blocks a step while 0 < λ < 1, else L
    time                      FLOPs / throughput

Left out, because small or not a matter of FLOPs: heads and probes' heads, optimisers, trivial
baselines, the similarity stage (CPU), ranks of updates, depth scaling, reading images and states,
starting each job. Jobs and bytes of a store are exact, time is an estimate within a factor of
about two where the throughput is measured on the same machine.
"""

from __future__ import annotations

from dataclasses import dataclass

from raptor.activations.manifest import Grid
from raptor.config.data import DataConfig
from raptor.config.dynamics import PerturbationConfig
from raptor.config.experiment import Experiment
from raptor.config.students import Recipe, Stage, Stage1
from raptor.config.teachers import (
    Architecture,
    CheckpointTeacher,
    TrainedTeacher,
    UntrainedTeacher,
    conv_stem_layers,
)
from raptor.student import Student
from raptor.targets import (
    FIGURES,
    PRINTED,
    TABLES,
    covered,
    judged_teachers,
    partitioned_teachers,
    student_jobs,
    study_students,
)
from raptor.tokens import TokenLayout
from raptor.training.schedules import teacher_forcing

# An assumption, not a measurement: training is in float32, of which an H100 (SXM) does at most 67
# TFLOP/s; small matrices and what is not a product leave somewhat over a third of that.
TFLOPS = 25.0
BACKWARD = 2  # forward passes that a backward pass costs
VALIDATIONS = 20  # of a teacher's training, at most (raptor.teachers.train)
FLOAT = 4  # bytes
OPTIMISER = 4  # weights, gradients and AdamW's two moments
PROBE_BATCH = 256  # images (raptor.probes)


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


@dataclass(frozen=True)
class Plan:
    teachers: dict[str, int]  # kind -> how many
    students: dict[str, int]  # recipe -> how many
    works: list[Work]
    stores: list[Store]
    student_bytes: int

    @property
    def flops(self) -> float:
        return sum(work.flops for work in self.works)


def plan(config: Experiment) -> Plan:
    """The plan of a validated configuration; nothing is read but the configuration."""
    found = study_students(config)
    everyone = [student for some in found.values() for student in some]
    kinds = {
        name: sum(isinstance(spec, kind) for spec in config.teachers.values())
        for name, kind in (
            ("trained", TrainedTeacher),
            ("untrained", UntrainedTeacher),
            ("checkpoint", CheckpointTeacher),
        )
    }
    pages = covered(config, [*FIGURES, *PRINTED])  # each a table, and then a picture or a page
    return Plan(
        teachers=kinds,
        students={
            recipe: sum(student.recipe == recipe for student in everyone)
            for recipe in dict.fromkeys(student.recipe for student in everyone)
        },
        works=[
            Work("samples", 1),
            _teachers(config),
            _controls(config),
            Work("checkpoint_teacher", kinds["checkpoint"]),
            _activations(config),
            Work("similarity", len(compared_teachers(config))),
            Work("partition", len(cut_teachers(config))),
            _raptors(config),
            Work("probe_teacher", len(config.teachers)),
            _probes(config),
            _swaps(config),
            _dynamics(config),
            _branches(config),
            _cost(config),
            Work("tables", len(pages) + len(TABLES)),
            Work("figures", len(pages)),
        ],
        stores=[Store(name, store_grid(config, name)) for name in config.teachers],
        student_bytes=sum(
            FLOAT
            * raptor_parameters(config.recipes[one.recipe], config.architecture(teacher), one.k)
            for teacher, some in found.items()
            for one in some
        ),
    )


# --- formulas ------------------------------------------------------------------------------------


def layout_of(spec: Architecture, data: DataConfig) -> TokenLayout:
    side = data.image_size // spec.patch_size
    return TokenLayout(cls=1, registers=spec.registers, patches=side * side)


def hidden_of(spec: Architecture) -> int:
    return int(spec.width * spec.mlp_ratio)


def block_flops(tokens: int, width: int, mlp: int) -> int:
    """Of one image in one block; `mlp`: multiplications per token of its MLP."""
    return 2 * tokens * (4 * width**2 + mlp) + 4 * tokens**2 * width


def embedding_flops(spec: Architecture, data: DataConfig) -> int:
    """Of one image: one patch-sized convolution, or the 3×3 ones of the stem."""
    if spec.stem == "patch":
        patches = layout_of(spec, data).patches
        return 2 * patches * spec.patch_size**2 * data.channels * spec.width
    depth = conv_stem_layers(data.image_size, spec.patch_size)
    widths = [data.channels, *(spec.width // 2 ** (depth - 1 - i) for i in range(depth))]
    sides = [-(-data.image_size // 2 ** (i + 1)) for i in range(depth)]
    return sum(18 * side**2 * widths[i] * widths[i + 1] for i, side in enumerate(sides))


def teacher_flops(spec: Architecture, data: DataConfig) -> int:
    """Forward pass of one image from pixels to a_L, without the head."""
    mlp = 2 * spec.width * hidden_of(spec)
    blocks = spec.depth * block_flops(layout_of(spec, data).total, spec.width, mlp)
    return embedding_flops(spec, data) + blocks


def raptor_flops(recipe: Recipe, spec: Architecture, data: DataConfig) -> int:
    """One application of a Raptor's block to one image, without depth scaling."""
    mlp = 12 * spec.width**2 if recipe.block == "swiglu" else 2 * spec.width * hidden_of(spec)
    return block_flops(layout_of(spec, data).total, spec.width, mlp)


def block_parameters(width: int, hidden_in: int, hidden_out: int, layer_scale: bool) -> int:
    """Two norms, qkv and projection, fc1 to `hidden_in`, fc2 from `hidden_out`, LayerScale."""
    attention = 4 * width**2 + 4 * width
    mlp = width * hidden_in + hidden_in + hidden_out * width + width
    return 4 * width + attention + mlp + 2 * width * layer_scale


def teacher_parameters(spec: Architecture) -> int:
    """Of the L blocks."""
    hidden = hidden_of(spec)
    return spec.depth * block_parameters(spec.width, hidden, hidden, spec.layer_scale is not None)


def raptor_parameters(recipe: Recipe, spec: Architecture, k: int) -> int:
    """Of k blocks, depth scaling (1 -> 16 -> 3D) included."""
    width, hidden = spec.width, hidden_of(spec)
    if recipe.block == "swiglu":
        one = block_parameters(width, 8 * width, 4 * width, True)
    else:
        one = block_parameters(width, hidden, hidden, spec.layer_scale is not None)
    return k * (one + (32 + 16 * 3 * width + 3 * width) * recipe.depth_scaling)


def step_applications(stage: Stage, depth: int, k: int) -> int:
    """Block applications per image over all steps of a stage, forward."""
    if not isinstance(stage, Stage1):
        return stage.steps * depth
    forcing = stage.teacher_forcing
    settings = {"start": forcing.start, "end": forcing.end, "anneal": forcing.anneal}
    both = sum(
        0 < teacher_forcing(step, steps=stage.steps, **settings) < 1 for step in range(stage.steps)
    )
    return stage.steps * depth + both * (depth - k)


def activation_floats(width: int, mlp_floats: int) -> int:
    """Floats per token that one block keeps for its backward pass.

    The state, both normed states, q, k, v, the attention's output twice (in and out of the
    kernel's order), the state in the middle: 9 D; and of the MLP its hidden units before and
    after the activation.
    """
    return 9 * width + mlp_floats


def training_memory(
    parameters: int, batch_tokens: int, depth: int, width: int, mlp_floats: int, states: int = 0
) -> float:
    """Bytes of weights, gradients, moments, kept activations, and `states` per token and batch."""
    kept = batch_tokens * (depth * activation_floats(width, mlp_floats) + states * width)
    return FLOAT * (OPTIMISER * parameters + kept)


def store_grid(config: Experiment, teacher: str) -> Grid:
    """The grid that the extraction of this teacher will write."""
    spec, store = config.architecture(teacher), config.activations
    tokens = layout_of(spec, config.data).total
    shape = (config.data.splits.total, spec.depth + 1, tokens, spec.width)
    return Grid(shape, store.dtype, store.chunk_images, store.shard_images)


# --- stages --------------------------------------------------------------------------------------


def teacher_work(spec: TrainedTeacher, data: DataConfig) -> Work:
    """Training one teacher, its validations, and the evaluation of what is kept."""
    training, splits = spec.training, data.splits
    train = training.train_images or splits.train
    steps = training.epochs * max(1, train // training.batch_size)
    kept = 1 + len(set(training.checkpoint_epochs))
    evaluated = min(VALIDATIONS, training.epochs) * splits.val
    evaluated += kept * (train + splits.val + splits.test)
    passes = (1 + BACKWARD) * steps * training.batch_size + evaluated
    memory = training_memory(
        teacher_parameters(spec),
        training.batch_size * layout_of(spec, data).total,
        spec.depth,
        spec.width,
        2 * hidden_of(spec),
    )
    images = steps * training.batch_size
    return Work("train_teacher", 1, steps, images, passes * teacher_flops(spec, data), memory)


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


def _controls(config: Experiment) -> Work:
    """Untrained teachers are evaluated, checkpoints copied."""
    works = []
    for name, spec in config.teachers.items():
        if isinstance(spec, UntrainedTeacher):
            images = config.data.splits.total
            flops = images * teacher_flops(config.architecture(name), config.data)
            works.append(Work("untrained_teacher", 1, 0, images, flops))
    return _sum("untrained_teacher", works)


def _activations(config: Experiment) -> Work:
    works, images = [], config.data.splits.total
    for name in config.teachers:
        spec, grid = config.architecture(name), store_grid(config, name)
        # In main memory: two shards that take turns, and the states of a chunk in float32.
        memory = 2 * grid.bytes_of(0) + FLOAT * grid.chunk_images * grid.shape[1] * (
            grid.shape[2] * grid.shape[3]
        )
        flops = images * teacher_flops(spec, config.data)
        works.append(Work("activations", 1, 0, images, flops, memory))
    return _sum("activations", works)


def student_work(recipe: Recipe, spec: Architecture, data: DataConfig, k: int) -> Work:
    """Training one student: both stages and their validations."""
    one, tokens = raptor_flops(recipe, spec, data), layout_of(spec, data).total
    mlp = 16 * spec.width if recipe.block == "swiglu" else 2 * hidden_of(spec)
    steps = images = flops = 0
    memory = 0.0
    for stage, rollouts in ((recipe.stage1, 2), (recipe.stage2, 1)):
        if stage is None:
            continue
        validations = -(-stage.steps // stage.validate_every)
        flops += (
            (1 + BACKWARD) * stage.batch_size * one * step_applications(stage, spec.depth, k)
            + validations * rollouts * data.splits.val * spec.depth * one
        )  # fmt: skip
        # Beside the activations: the batch's states, predictions and errors, of each layer.
        need = training_memory(
            raptor_parameters(recipe, spec, k), stage.batch_size * tokens,
            spec.depth, spec.width, mlp, states=3 * spec.depth,
        )  # fmt: skip
        steps += stage.steps
        images += stage.steps * stage.batch_size
        memory = max(memory, need)
    return Work("raptor", 1, steps, images, flops, memory)


def _raptors(config: Experiment) -> Work:
    works = []
    for teacher, students in study_students(config).items():
        spec = config.architecture(teacher)
        by_kind = {
            (recipe, k): student_work(config.recipes[recipe], spec, config.data, k)
            for recipe, k in {(student.recipe, student.k) for student in students}
        }
        works += [by_kind[student.recipe, student.k] for student in students]
    return _sum("raptor", works, len(student_jobs(config)))


def _probes(config: Experiment) -> Work:
    """Each student runs once over the images of val and test, and of train as far as used."""
    splits = config.data.splits
    train = config.probes.classification.train_images or splits.train
    works, images = [], splits.total - splits.train + train
    for teacher, students in study_students(config).items():
        spec = config.architecture(teacher)
        token_floats = PROBE_BATCH * layout_of(spec, config.data).total * spec.width
        memory = FLOAT * 2 * (spec.depth + 1) * token_floats
        for student in students:
            block = raptor_flops(config.recipes[student.recipe], spec, config.data)
            flops = images * spec.depth * block
            works.append(Work("probe_students", 1, 0, images, flops, memory))
    return _sum("probe_students", works, len(student_jobs(config)))


def _swaps(config: Experiment) -> Work:
    """At most: every swap of one layer, `samples` of each kind of more, each through all layers."""
    swaps, works = config.swaps, []
    for name in config.swaps.teachers:
        spec = config.architecture(name)
        number = sum(
            spec.depth * (spec.depth - 1) if size == 1 else 2 * swaps.samples
            for size in swaps.sizes
        )
        images = number * getattr(config.data.splits, swaps.split)
        flops = images * teacher_flops(spec, config.data)
        works.append(Work("swaps", 1, 0, images, flops))
    return _sum("swaps", works)


def _dynamics(config: Experiment) -> Work:
    """Teachers, each with its Raptor where there is one: states made, moments, noise followed."""
    asked = config.dynamics
    works = []
    for name in asked.teachers if asked else []:
        spec, data = config.architecture(name), config.data
        tokens = layout_of(spec, data).total
        block = block_flops(tokens, spec.width, 2 * spec.width * hidden_of(spec))
        student = Student(asked.recipe, asked.partition, asked.k, seed=0)
        models = [(block, 0)]  # FLOPs of a block, and whether states are made rather than read
        if student_jobs(config, {name: [student]}):
            models.append((raptor_flops(config.recipes[asked.recipe], spec, data), 1))
        streamed = min(asked.train_images, data.splits.train) + min(asked.images, data.splits.test)
        noisy = min(asked.perturbation.images, data.splits.test)
        images = len(models) * (streamed + noisy)
        # D × D moments of each transition: two for the linear maps, one for the ranks on test.
        flops = len(models) * streamed * spec.depth * 6 * tokens * spec.width**2
        for one, made in models:
            flops += made * (streamed + noisy) * spec.depth * one
            flops += noisy * perturbed_applications(asked.perturbation, spec.depth) * one
        states = asked.batch_images * (spec.depth + 1) * tokens * spec.width
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
        flops = images * teacher_flops(config.architecture(name), config.data)
        works.append(Work("branches", 1, 0, images, flops))
    return _sum("branches", works)


def _cost(config: Experiment) -> Work:
    """Passes of the teacher and of one Raptor of each k, those that are timed."""
    asked = config.cost
    if asked is None:
        return Work("cost", 0)
    spec, passes = config.architecture(asked.teacher), asked.repeats * asked.images
    one = raptor_flops(config.recipes[asked.recipe], spec, config.data)
    flops = teacher_flops(spec, config.data) + len(asked.k) * spec.depth * one
    return Work("cost", 1, 0, (1 + len(asked.k)) * passes, passes * flops)


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
        if 1 < config.swaps.k < config.architecture(name).depth
    }
    return asked | (moving | contrasted) & set(deep)


def compared_teachers(config: Experiment) -> set[str]:
    """Those whose layers are compared."""
    drawn = config.figures.similarity_matrices.teachers or config.teachers
    branches = config.branches.teachers if config.branches else []
    return cut_teachers(config) | set(drawn) | set(branches)
