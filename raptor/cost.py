"""What a Raptor saves and what it does not, beside its teacher (claim 18, the Levin argument).

Levin's complexity of a function is the least `|p| + log2 t` over programs p that compute it in t
steps (Levin, 1973): Kt. A teacher and its Raptor are two such programs, from the same a_0 to a_L.
`|p|` is here the description length of the blocks, parameters times the bits of the type in which
they are stored; which block makes which layer, a few dozen bits, is left out. `t` is the number
of block applications, which recurrence leaves at L; in FLOPs it would differ by less than a bit.
So a Raptor lowers the bound through `|p|` alone.

Everything that follows from the weights goes to one file, what a clock or an allocator says to
another: two clean runs give the same first file, never the same second one.
"""

from __future__ import annotations

import json
import logging
import math
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.profiler import ProfilerActivity, profile
from torch.utils.flop_counter import FlopCounterMode

from raptor.config.analysis import CostConfig
from raptor.errors import RaptorError
from raptor.files import replacing
from raptor.models.raptor import Raptor
from raptor.probes.inputs import load_student
from raptor.stored import open_teacher
from raptor.student import read_index
from raptor.teachers.files import teacher_facts

log = logging.getLogger(__name__)

MIB = 2**20
WARM_UP = 3  # forward passes that are not timed
NAMES = ("model", "teacher", "recipe", "partition", "k")


@dataclass(frozen=True)
class Model:
    """One program from a_0 to a_L: its blocks, how to run them, and what training them took."""

    names: dict[str, Any]
    blocks: nn.Module
    forward: Callable[[Tensor], Tensor]  # (B, T, D) -> (B, T, D)
    depth: int
    training_steps: float
    training_seconds: Sequence[float]  # one per seed


def measure_cost(
    *,
    teacher: Path,
    activations: Path,
    students: Sequence[Path],
    config: CostConfig,
    output: Path,
    timing: Path,
    device: torch.device,
) -> None:
    """Teacher and Raptors side by side, on a_0 of the first `config.images` test images.

    `students`: indexes of the training jobs that hold the Raptors of `config`. Seed 0 stands for
    all of its kind, whose blocks have the same shapes. `output`: sizes, FLOPs (per image, all
    blocks), bits and training steps. `timing`: median and standard deviation of `config.repeats`
    forward passes of the batch, in which the models take turns so that what else the machine
    does falls on all alike; memory of one pass; seconds of training over seeds.
    """
    model, store = open_teacher(teacher, activations, device)
    start = store.splits["test"][0]
    stop = min(start + config.images, store.splits["test"][1])
    a0_BTD = torch.from_numpy(store.read(start, stop, [0])[:, 0]).to(device)
    models = [
        Model(
            names=dict(zip(NAMES, ("teacher", teacher.stem, "", "", ""), strict=True)),
            blocks=model.blocks,
            forward=lambda state_BTD: model.continue_from(state_BTD, 0),
            depth=model.depth,
            training_steps=_teacher_steps(teacher_facts(teacher)),
            training_seconds=[],
        )
    ]
    entries = [(path, entry) for path in students for entry in read_index(path)]
    for k in config.k:
        found = [
            (path, entry)
            for path, entry in entries
            if (entry["recipe"], entry["method"], entry["k"])
            == (config.recipe, config.partition, k)
        ]
        path, first = min(found, key=lambda pair: pair[1]["seed"])
        raptor = load_student(path.parent / first["file"], first["sha256"], model, device)
        names = ("raptor", teacher.stem, config.recipe, config.partition, k)
        models.append(
            Model(
                names=dict(zip(NAMES, names, strict=True)),
                blocks=raptor,
                forward=last_state(raptor),
                depth=raptor.depth,
                training_steps=first["steps"],
                training_seconds=[entry["seconds"] for _, entry in found],
            )
        )
    whole = parameters(models[0].blocks)
    _write([_fixed(one, a0_BTD, whole) for one in models], output)
    _write(_timed(models, a0_BTD, config.repeats), timing)


def last_state(raptor: Raptor) -> Callable[[Tensor], Tensor]:
    """The Raptor as a function from a_0 to a_L that keeps no state in between, as the teacher's."""

    def forward(state_BTD: Tensor) -> Tensor:
        for layer in range(1, raptor.depth + 1):
            state_BTD = raptor.step(state_BTD, layer)
        return state_BTD

    return forward


def _teacher_steps(facts: dict[str, Any]) -> float:
    """Optimiser steps behind the weights; NaN for a teacher that was not trained here."""
    if facts.get("epoch") == 0:
        return 0
    training = facts.get("spec", {}).get("training")
    if training is None:
        return math.nan
    return facts["epoch"] * max(1, facts["images"]["train"] // training["batch_size"])


# --- what follows from the weights ---------------------------------------------------------------


def _fixed(model: Model, a0_BTD: Tensor, whole: int) -> dict[str, Any]:
    """The row of one model; `whole`: parameters of the teacher's blocks."""
    bits = description_bits(model.blocks)
    return {
        **model.names,
        "depth": model.depth,
        "parameters": parameters(model.blocks),
        "parameters_share": parameters(model.blocks) / whole,
        "block_applications": model.depth,
        "flops": count_flops(model.forward, a0_BTD) / len(a0_BTD),
        "description_bits": bits,
        "levin_bits": levin_bits(bits, model.depth),
        "training_steps": model.training_steps,
        "images": len(a0_BTD),
    }


def parameters(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


def description_bits(module: nn.Module) -> int:
    """Bits of all parameters in the type in which they are stored."""
    return sum(8 * p.element_size() * p.numel() for p in module.parameters())


def levin_bits(bits: int, steps: int) -> float:
    """Kt = |p| + log2 t of a program of so many bits that takes so many steps."""
    return bits + math.log2(steps)


@torch.inference_mode()
def count_flops(forward: Callable[[Tensor], Any], inputs: Tensor) -> int:
    """Floating-point operations of the products in one pass: a multiplication and an addition, 2.

    The attention is run as plain products, because the counter does not know the CPU's own kernel.
    """
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        forward(inputs)
    return counter.get_total_flops()


# --- what a clock and an allocator say -----------------------------------------------------------


def _timed(models: Sequence[Model], a0_BTD: Tensor, repeats: int) -> list[dict[str, Any]]:
    latency = interleaved([model.forward for model in models], a0_BTD, repeats)
    rows = []
    for model, seconds_R in zip(models, latency, strict=True):
        activations = peak_bytes(model.forward, a0_BTD)
        trained = np.array(model.training_seconds)
        row = {
            **model.names,
            "latency_ms": 1e3 * float(np.median(seconds_R)),
            "latency_sd": 1e3 * float(np.std(seconds_R, ddof=1)),
            "activation_memory_mb": activations / MIB,
            "peak_memory_mb": (activations + description_bits(model.blocks) / 8) / MIB,
            "training_seconds": trained.mean() if len(trained) else math.nan,
            "training_seconds_sd": trained.std(ddof=1) if len(trained) > 1 else math.nan,
            "n_trained": len(trained),
            "n": repeats,
            "device": a0_BTD.device.type,
            "threads": torch.get_num_threads(),
        }
        log.info("%s %s: %.2f ms a batch", row["model"], row["k"], row["latency_ms"])
        rows.append(row)
    return rows


@torch.inference_mode()
def interleaved(
    forwards: Sequence[Callable[[Tensor], Any]], inputs: Tensor, repeats: int
) -> np.ndarray:
    """Seconds (models, repeats) of forward passes of which each model takes one in turn."""
    seconds = np.empty((len(forwards), repeats))
    for repeat in range(-WARM_UP, repeats):
        for index, forward in enumerate(forwards):
            _wait(inputs.device)
            started = time.perf_counter()
            forward(inputs)
            _wait(inputs.device)
            if repeat >= 0:
                seconds[index, repeat] = time.perf_counter() - started
    return seconds


def _wait(device: torch.device) -> None:
    """Until the device has done all that it was given."""
    if device.type in ("cuda", "mps"):
        getattr(torch, device.type).synchronize()


@torch.inference_mode()
def peak_bytes(forward: Callable[[Tensor], Any], inputs: Tensor) -> float:
    """The most memory in use at once for what one forward pass makes, its inputs left out.

    On a GPU by the allocator's own statistics; on a CPU from the allocations and releases that
    the profiler of torch records (what a library takes behind the allocator's back is missed).
    NaN on other devices.
    """
    forward(inputs)
    if inputs.device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(inputs.device)
        before = torch.cuda.memory_allocated(inputs.device)
        forward(inputs)
        return torch.cuda.max_memory_allocated(inputs.device) - before
    if inputs.device.type != "cpu":
        return math.nan
    return profiled_peak(lambda: forward(inputs))


def profiled_peak(work: Callable[[], Any]) -> int:
    """Largest sum of bytes that `work` has allocated on the CPU and not yet released."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as recorded:
        result = work()
    del result
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        recorded.export_chrome_trace(str(path))
        events = json.loads(path.read_text())["traceEvents"]
    changes = [
        (event["ts"], event["args"]["Bytes"]) for event in events if event["name"] == "[memory]"
    ]
    if not changes:
        raise RaptorError("cost: the profiler of this torch records no memory; use another version")
    return max(accumulate(size for _, size in sorted(changes, key=lambda change: change[0])))


def _write(rows: list[dict[str, Any]], path: Path) -> None:
    with replacing(path) as temporary:
        pd.DataFrame(rows).to_csv(temporary, index=False, lineterminator="\n")
