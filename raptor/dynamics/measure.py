"""The dynamics stage: a teacher and one of its Raptors side by side, in six tables (paper §5)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from raptor.config.dynamics import DmdConfig, DynamicsConfig, PerturbationConfig
from raptor.dynamics.basins import Basins, ClassSums, Plane, class_token
from raptor.dynamics.directions import directions, token_types
from raptor.dynamics.dmd import PhaseMoments, fit_dynamics
from raptor.dynamics.perturbation import deviations, noise_directions
from raptor.dynamics.trajectories import Trajectories
from raptor.dynamics.updates import PooledUpdates, updates
from raptor.errors import RaptorError
from raptor.files import replacing
from raptor.partition import Segments
from raptor.phases import read_partition
from raptor.probes.inputs import find_student
from raptor.seeds import derive_seed
from raptor.stored import open_teacher
from raptor.student import Student
from raptor.tokens import TokenLayout

STUDENT_SEED = 0  # whose dynamics are measured; also the row of the partition
COLUMNS = {
    "images": (
        "teacher model image label layer tokens direction norm speed coherence stable_rank "
        "effective_rank participation_ratio"
    ),
    "pooled": "teacher model layer tokens stable_rank effective_rank participation_ratio n",
    "basins": (
        "teacher model layer within_angle between_angle nearest_centroid_accuracy n_train n_test"
    ),
    "trajectories": "teacher model label layer x y n",
    "perturbation": "teacher model image source_layer layer relative_size tokens deviation",
    "dmd": (
        "teacher model tokens phase first last mode real imag modulus half_life spectral_radius "
        "nearest_to_one "
        "residual residual_persistence rank n_train n_test"
    ),
}

DIGITS = {"images": 6, "perturbation": 6}  # the large tables; the others keep 12

Tables = Iterator[tuple[str, pd.DataFrame]]  # name of a table in COLUMNS, and more rows of it


def measure_dynamics(
    *,
    teacher: Path,
    activations: Path,
    students: Path | None,
    partition: Path | None,
    config: DynamicsConfig,
    outputs: Mapping[str, Path],
    device: torch.device,
    seed: int,
) -> None:
    """Write the tables of `COLUMNS` to `outputs` (table name -> CSV), all on the test split.

    `students`: the index with the student that `config` names, None to measure the teacher alone.
    `partition`: the CSV with the phases, None for a single phase of all layers. `model` is
    `teacher` or `raptor`; `image` counts within the split, as in `samples.csv`.

    - `images`: of each image, see `directions` and `updates`; layers 0..L, tokens `all` too.
    - `pooled`: ranks of the updates of all images together.
    - `basins`, `trajectories`: see `Basins` and `Plane`; fitted on train, the plane on the
      teacher's last layer.
    - `perturbation`: `deviation` in rad; the same noise for both models, each on its own states.
    - `dmd`: the eigenvalues of largest modulus of each token type and phase; `residual` on test.
    """
    model, store = open_teacher(teacher, activations, device)
    name, segments = Path(teacher).stem, _phases(partition, model.depth)
    shared = (store, device, config.batch_images)
    noise_seed = derive_seed(seed, "dynamics", name)
    measured = [Trajectories.of_teacher(model, *shared)]
    if students is not None:
        asked = Student(config.recipe, config.partition, config.k, STUDENT_SEED)
        student = find_student([students], asked, model, device)
        measured.append(Trajectories.of_raptor(student, *shared))
    with ExitStack() as stack, torch.inference_mode():
        write = {
            table: stack.enter_context(_table_file(outputs[table], table)) for table in COLUMNS
        }
        plane = None
        for trajectories in measured:
            sums, moments = _fit(trajectories, segments, config)
            plane = plane or Plane(sums.means()[:, -1])
            facts = {"teacher": name, "model": trajectories.model}
            for table, rows in _measure(trajectories, sums, moments, plane, config):
                write[table](rows.assign(**facts))
            for rows in _perturb(trajectories, config.perturbation, noise_seed):
                write["perturbation"](rows.assign(**facts))


def _fit(
    trajectories: Trajectories, segments: Segments, config: DynamicsConfig
) -> tuple[ClassSums, PhaseMoments]:
    """What the train split gives: class sums, and the moments of the transitions."""
    store = trajectories.store
    sums = ClassSums(int(_classes(store.labels).max()) + 1)
    moments = PhaseMoments(segments, store.layout, store.shape[3])
    for _, states_BSTD, labels_B in trajectories.blocks("train", config.train_images):
        sums.add(class_token(states_BSTD, store.layout), _classes(labels_B))
        moments.add(states_BSTD)
    return sums, moments


def _classes(labels: Any) -> Any:
    """An array or tensor of labels, images without labels all of one class."""
    return labels.clip(min=0)


def _measure(
    trajectories: Trajectories,
    train: ClassSums,
    fitted: PhaseMoments,
    plane: Plane,
    config: DynamicsConfig,
) -> Tables:
    """All tables but `perturbation` of one model, in one pass over the test split."""
    layout = trajectories.store.layout
    basins, sums, pooled = (
        Basins(train.centroids()), ClassSums(len(train.counts_C)), PooledUpdates(layout)
    )  # fmt: skip
    moments = PhaseMoments(fitted.segments, layout, trajectories.store.shape[3])
    for first, states_BSTD, labels_B in trajectories.blocks("test", config.images):
        tokens_BSD, classes_B = class_token(states_BSTD, layout), _classes(labels_B)
        basins.add(tokens_BSD, classes_B)
        sums.add(tokens_BSD, classes_B)
        pooled.add(states_BSTD)
        moments.add(states_BSTD)
        yield "images", _image_rows(states_BSTD, labels_B, first, layout)
    yield "pooled", pooled.table()
    yield "basins", basins.table().assign(n_train=fitted.images, n_test=moments.images)
    yield "trajectories", plane.trajectories(sums)
    yield "dmd", _dmd_rows(fitted, moments, config.dmd)


def _image_rows(
    states_BSTD: Tensor, labels_B: Tensor, first: int, layout: TokenLayout
) -> pd.DataFrame:
    """One row per image, layer 0..L and token type."""
    values = {**directions(states_BSTD, layout), **updates(states_BSTD, layout)}
    images, depth_and_one = states_BSTD.shape[:2]
    types = list(token_types(layout))
    rows = _long(
        values, image=range(first, first + images), layer=range(depth_and_one), tokens=types
    )
    return rows.assign(label=np.repeat(labels_B.numpy(), depth_and_one * len(types)))


def _dmd_rows(fitted: PhaseMoments, test: PhaseMoments, config: DmdConfig) -> pd.DataFrame:
    """One row per token type, phase and mode, of the first `config.modes` modes."""
    tables = []
    for (tokens, segment), moments in fitted.moments.items():
        found = fit_dynamics(moments, rank=config.rank, ridge=config.ridge)
        residual, persistence = found.residual(test.moments[tokens, segment])
        modes = pd.DataFrame(
            {
                "mode": np.arange(found.rank) + 1,
                "real": found.eigenvalues.real,
                "imag": found.eigenvalues.imag,
                "modulus": np.abs(found.eigenvalues),
                "half_life": found.half_lives(),
            }
        )
        tables.append(
            modes.head(config.modes).assign(
                tokens=tokens,
                phase=fitted.segments.index(segment) + 1,
                first=segment[0],
                last=segment[1],
                spectral_radius=found.spectral_radius,
                nearest_to_one=found.nearest_to_one,
                residual=residual,
                residual_persistence=persistence,
                rank=found.rank,
                n_train=fitted.images,
                n_test=test.images,
            )
        )
    return pd.concat(tables, ignore_index=True)


def _perturb(
    trajectories: Trajectories, config: PerturbationConfig, seed: int
) -> Iterator[pd.DataFrame]:
    """Rows of `perturbation`, block by block; the noise follows from seed, image and layer."""
    layout, width = trajectories.store.layout, trajectories.store.shape[3]
    sources = range(trajectories.depth) if config.source_layers is None else config.source_layers
    for first, states_BSTD, labels_B in trajectories.blocks("test", config.images):
        images, tables = range(first, first + len(labels_B)), []
        for source in sources:
            seeds = [derive_seed(seed, "perturbation", image, source) for image in images]
            noise_BTD = noise_directions(seeds, layout.total, width).to(trajectories.device)
            layers = range(source, trajectories.depth + 1)
            found = deviations(
                trajectories.step,
                states_BSTD[:, source],
                noise_BTD,
                config.relative_sizes,
                layers,
                layout,
            )
            rows = _long(
                {"deviation": found.cpu().numpy()},
                relative_size=config.relative_sizes,
                layer=layers,
                image=images,
                tokens=list(layout.slices()),
            )
            tables.append(rows.assign(source_layer=source))
        yield pd.concat(tables).sort_values("image", kind="stable")  # whatever the block


def _long(values: Mapping[str, np.ndarray], **axes: Sequence) -> pd.DataFrame:
    """Arrays of one shape as columns, one row per entry, beside the names of their axes."""
    index = pd.MultiIndex.from_product(axes.values(), names=list(axes))
    return pd.DataFrame({n: array.ravel() for n, array in values.items()}, index).reset_index()


@contextmanager
def _table_file(path: Path, table: str) -> Iterator[Callable[[pd.DataFrame], None]]:
    """Appends rows to a CSV that appears when all are written."""
    columns, form = COLUMNS[table].split(), f"%.{DIGITS.get(table, 12)}g"
    with replacing(path) as temporary, open(temporary, "w", encoding="utf-8") as file:
        file.write(",".join(columns) + "\n")
        yield lambda rows: rows[columns].to_csv(file, header=False, index=False, float_format=form)


def _phases(partition: Path | None, depth: int) -> Segments:
    if partition is None:
        return ((1, depth),)
    cut = read_partition(partition, STUDENT_SEED)
    if len(cut.labels) != depth:
        raise RaptorError(
            f"{partition}: labels {len(cut.labels)} layers, the teacher has {depth}; give a "
            "partition of this teacher"
        )
    return cut.segments
