"""Whether an experiment can run here: its images, weights, disk and device, in seconds."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from tempfile import TemporaryFile
from typing import NamedTuple, Protocol, get_args

import numpy as np
import timm
import torch
from huggingface_hub import hf_hub_download
from huggingface_hub.utils import logging as hub_logging

from raptor.activations.place import Place
from raptor.config.experiment import Experiment
from raptor.config.teachers import TimmTeacher
from raptor.data import open_split
from raptor.data.dense import DenseName, DenseSource, open_dense
from raptor.device import resolve_device
from raptor.errors import RaptorError, first_line
from raptor.plan import EXTRACTION, Plan, plan
from raptor.seeds import derive_seed
from raptor.slurm import read_partitions
from raptor.teachers.heads import load_head
from raptor.teachers.pretrained import load_timm

_PROBE = ".raptor-doctor"  # written to a remote store, read and removed
_DRAWN = 3  # images opened of each split, beside the first and the last


class Check(NamedTuple):
    """What was looked at, what was found, and whether a run would fail of it."""

    subject: str
    found: str
    ok: bool

    def __str__(self) -> str:
        return f"{'ok' if self.ok else 'fault':<6} {self.subject}: {self.found}"


def examine(config: Experiment, results: Path, profile: Path | None = None) -> Iterator[Check]:
    """All checks of an experiment whose results go to the folder `results`, one after the other.

    `profile`: the folder of a profile for SLURM, whose partitions are looked at too.

    Reads a few images of each split, the weights that are files, and of the hub only what it has;
    writes nothing but a few bytes where results and states will lie, and removes them. A fault is
    a `Check` that is not ok, and says what to do.
    """
    for name in ("train", "val", "test"):
        yield _checked(f"data, {name}", partial(_images, config, name))
    for source in get_args(DenseSource):
        if config.data.given(source) is not None or source in _dense_sources(config):
            for name in get_args(DenseName):
                yield _checked(f"{source}, {name}", partial(_pairs, config, source, name))
    for name, spec in config.teachers.items():
        if isinstance(spec, TimmTeacher):
            yield _checked(f"teacher {name}", partial(_weights, config, name, spec))
            if "head" in spec.files:
                yield _checked(f"head of {name}", partial(_head, config, name, spec))
    costs = plan(config)
    yield _checked("disk", partial(_disk, config, costs, results))
    if config.activations.store and costs.mode == "store":
        yield _checked("store", partial(_store, config, costs))
    device = _checked("device", partial(_device, config))
    yield device
    if device.ok:
        yield _checked("memory", partial(_memory, config, costs))
    if profile is not None:
        yield _checked("partitions", partial(read_partitions, profile))


def _checked(subject: str, look: Callable[[], str]) -> Check:
    try:
        return Check(subject, look(), ok=True)
    except RaptorError as error:
        return Check(subject, str(error), ok=False)


# --- data ----------------------------------------------------------------------------------------


class _Sized(Protocol):
    def __len__(self) -> int: ...


def _some(split: _Sized) -> list[int]:
    """The first, the last, and a few others, the same at each call."""
    rng = np.random.default_rng(derive_seed(0, "doctor"))
    return sorted({0, len(split) - 1, *rng.integers(len(split), size=_DRAWN).tolist()})


def _images(config: Experiment, name: str) -> str:
    split = open_split(config.data, name)
    split.images(_some(split))
    classes = f"{split.num_classes:,} classes" if split.num_classes else "no labels"
    return (
        f"{len(split):,} of the {len(split.pool.labels):,} images of {split.pool.origin}, "
        f"{classes}; {len(_some(split))} opened"
    )


def _dense_sources(config: Experiment) -> set[str]:
    """What the dense probes read."""
    return {probe.source for probe in config.dense.probes.values()} if config.dense else set()


def _pairs(config: Experiment, source: DenseSource, name: DenseName) -> str:
    split = open_dense(config.data, source, name)
    for index in _some(split):
        split.pair(index)
    target = f"{len(split.class_names)} classes" if split.class_names else "depth"
    return f"{len(split):,} images with {target} in {split.origin}; {len(_some(split))} opened"


# --- teachers ------------------------------------------------------------------------------------


def _weights(config: Experiment, name: str, spec: TimmTeacher) -> str:
    if spec.weights == "random":
        return f"{spec.model} with random weights"
    if spec.weights == "pretrained":
        return _on_hub(spec.model)
    load_timm(spec, config.images(name), _num_classes(config) if spec.head == "own" else 0)
    return f"{spec.weights} fits {spec.model}"


def _on_hub(model: str) -> str:
    """Where the hub's weights are: here already, or to be fetched."""
    cfg = timm.models.get_pretrained_cfg(model)
    if cfg is None or not cfg.hf_hub_id:
        raise RaptorError(f"timm knows no weights of {model} on the hub; give random or a file")
    hub_logging.set_verbosity_error()  # each try to reach it would be a line
    repository, _, revision = cfg.hf_hub_id.partition("@")
    try:
        file = hf_hub_download(
            repository, "model.safetensors", revision=revision or None, dry_run=True
        )
    except OSError as error:  # all errors of the hub are: offline, no such file, no permission
        raise RaptorError(
            f"{repository} is neither in the hub's cache nor to be had ({first_line(error)}); see "
            "that huggingface.co can be reached, and that HF_TOKEN may read it, or give a file"
        ) from None
    where = "in the hub's cache" if file.is_cached else "on the hub, to be fetched once"
    return f"{repository}, {file.file_size / 1e6:,.0f} MB, {where}"


def _head(config: Experiment, name: str, spec: TimmTeacher) -> str:
    shape, classes = config.shape(name), _num_classes(config)
    load_head(Path(spec.head), shape.width * (1 + shape.cls), classes)
    return f"{spec.head} tells {classes:,} classes apart"


def _num_classes(config: Experiment) -> int:
    return open_split(config.data, "test").num_classes


# --- the machine ---------------------------------------------------------------------------------


def _disk(config: Experiment, costs: Plan, results: Path) -> str:
    """Free space where the states will lie, against what is still to be written."""
    stores = results / "activations"
    kept_here = costs.mode == "store" and config.activations.store is None
    needed = costs.student_bytes + (costs.store_bytes if kept_here else 0)
    return _room(needed, results, [stores, results / "raptor"])


def _store(config: Experiment, costs: Plan) -> str:
    """Whether states can be written to where they are to lie, read and removed."""
    url = f"{config.activations.store}/{config.experiment}"
    place = Place(Path(config.experiment), url)
    try:
        place.write(_PROBE, b"raptor")
        found = place.read(_PROBE)
        place.remove(_PROBE)
    except OSError as error:
        raise RaptorError(f"{place}: cannot be written ({first_line(error)})") from None
    if found != b"raptor":
        raise RaptorError(f"{place}: what is written there is not what is read")
    if place.folder:
        return _room(costs.store_bytes, place.folder, [place.folder])
    return f"{url} can be written, read and removed from; {_gb(costs.store_bytes)} are to lie there"


def _room(needed: int, folder: Path, parts: list[Path]) -> str:
    """Free space, where one may write, for what is not written yet to these parts of a folder."""
    place = next(path for path in (parts[0], *parts[0].absolute().parents) if path.exists())
    written = sum(
        file.stat().st_size for part in parts for file in part.rglob("*") if file.is_file()
    )
    free, missing = shutil.disk_usage(place).free, max(0, needed - written)
    try:
        TemporaryFile(dir=place).close()
    except OSError as error:
        raise RaptorError(
            f"{place}: cannot be written ({error.strerror}); give yourself permission, or link "
            f"{folder} to where you may write"
        ) from None
    found = f"{_gb(missing)} to be written to {folder}, {_gb(free)} free"
    if missing > free:
        raise RaptorError(
            f"{found}; make room, link that folder to a larger disk, set activations.store, or "
            "activations.mode: stream, which keeps no states"
        )
    return found


def _device(config: Experiment) -> str:
    device = resolve_device(config.device)
    gpu = f", {torch.cuda.get_device_name(device)}" if device.type == "cuda" else ""
    return f"{device}{gpu}, {os.cpu_count()} CPU threads"


def _memory(config: Experiment, costs: Plan) -> str:
    """The largest job on the device, and the largest in main memory, against what there is."""
    device = resolve_device(config.device)
    on_gpu = device.type == "cuda"
    main = [work for work in costs.works if not on_gpu or work.stage in EXTRACTION]
    others = [work for work in costs.works if work not in main]
    rooms = [("main memory", main, os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))]
    if on_gpu:
        rooms.append(("GPU memory", others, torch.cuda.mem_get_info(device)[1]))
    found = []
    for title, works, room in rooms:
        largest = max(works, key=lambda work: work.memory_bytes)
        needed = _gb(largest.memory_bytes)
        found.append(f"{_gb(room)} of {title}, about {needed} for {largest.stage}")
        if largest.memory_bytes > room:
            raise RaptorError(
                f"{found[-1]}; use a larger machine, or smaller batches and shards "
                "(batch_size, shard_images)"
            )
    return "; ".join(found)


def _gb(size: float) -> str:
    return f"{size / 1e9:,.1f} GB" if size >= 1e9 else f"{size / 1e9:.2g} GB"
