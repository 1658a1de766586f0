"""The training loop: one step after another, logged, resumable at every step."""

from __future__ import annotations

import logging
import math
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch

from raptor.errors import RaptorError
from raptor.training import distributed
from raptor.training.checkpoint import Checkpoint

log = logging.getLogger(__name__)

LOG_SECONDS = 5.0
SAVE_SECONDS = 30.0


def fit(
    *,
    title: str,
    steps: int,
    step: Callable[[int], Mapping[str, float]],
    parts: Mapping[str, Any],
    checkpoint: Checkpoint | None = None,
    validate: Callable[[], Mapping[str, float]] | None = None,
    validate_every: int = 100,
) -> list[dict[str, float]]:
    """Run `step(0) … step(steps - 1)` and return the history, one row per validation.

    `step` takes one optimiser step and returns its metrics, `loss` among them. `parts` are the
    objects with `state_dict` / `load_state_dict` that a checkpoint must hold (model, optimizer,
    schedule); the random state is kept too, and the data order must follow from the step number
    alone, so that 10 steps and 5 + 5 steps are the same bit for bit on a CPU. A row holds
    `step` (1-based), the means of the metrics since the row before, and what `validate` returns.
    Training that is complete in the checkpoint is only loaded. SIGTERM and SIGINT save and exit
    with status 143 after the step under way.

    Of several processes (`raptor.training.distributed`) all stop after the same step, metrics are
    means over them, and the first one writes the checkpoint, with the random state of each.
    """
    first, history, window = _resume(checkpoint, parts)
    if first:
        log.info("%s: continuing at step %d of %d", title, first, steps)
    started = logged = saved = time.monotonic()
    with _stop_signal() as stopping:
        for index in range(first, steps):
            due = checkpoint is not None and time.monotonic() - saved > SAVE_SECONDS
            metrics, (stop, save) = distributed.means(step(index), stopping.is_set(), due)
            if infinite := [key for key, value in metrics.items() if not math.isfinite(value)]:
                raise RaptorError(
                    f"{title}: the {infinite[0]} is not finite at step {index + 1}; lower the "
                    "learning rate (lr) or check the data for NaN"
                )
            window.append({key: float(value) for key, value in metrics.items()})
            done, now = index + 1, time.monotonic()
            if done % validate_every == 0 or done == steps:
                history.append({"step": done, **_means(window), **(validate() if validate else {})})
                window.clear()
            if now - logged > LOG_SECONDS or done == steps:
                per_step = (now - started) / (done - first)
                last = history[-1] if history else {}
                shown = {key: last[key] for key in last if "r2" in key}
                shown |= _means(window) or {key: last[key] for key in metrics}
                text = ", ".join(f"{key} {value:.4g}" for key, value in shown.items())
                log.info(
                    "%s: step %d/%d, %s, %.3f s a step, %.0f s left",
                    title, done, steps, text, per_step, per_step * (steps - done),
                )  # fmt: skip
                logged = now
            # The last step is kept too: what comes next may be interrupted as well.
            if checkpoint and (stop or done == steps or save):
                state = _state(parts, done, history, window)
                if distributed.rank() == 0:
                    checkpoint.save(state, done)
                saved = time.monotonic()
            if stop:
                log.info("%s: stopped at step %d; run again to continue", title, done)
                raise SystemExit(distributed.STOPPED)
    return history


def _means(rows: list[dict[str, float]]) -> dict[str, float]:
    return {key: sum(row[key] for row in rows) / len(rows) for key in (rows[0] if rows else ())}


def _state(parts: Mapping[str, Any], step: int, history: list, window: list) -> dict[str, Any]:
    return {
        "step": step,
        "history": history,
        "window": window,
        "parts": {name: part.state_dict() for name, part in parts.items()},
        "rng": distributed.gathered(_random_state()),  # by rank
    }


def _random_state() -> list[torch.Tensor]:
    """Of the processor, and of the GPU in use."""
    states = [torch.get_rng_state()]
    return [*states, torch.cuda.get_rng_state()] if torch.cuda.is_initialized() else states


def _resume(checkpoint: Checkpoint | None, parts: Mapping[str, Any]) -> tuple[int, list, list]:
    state = checkpoint.load() if checkpoint else None
    if state is None:
        return 0, [], []
    for name, part in parts.items():
        part.load_state_dict(state["parts"][name])
    if distributed.rank() < len(state["rng"]):  # a process more than there were keeps its own
        on_cpu, *on_gpu = state["rng"][distributed.rank()]
        torch.set_rng_state(on_cpu)
        if on_gpu and torch.cuda.is_available():
            torch.cuda.set_rng_state(on_gpu[0])
    return state["step"], state["history"], state["window"]


@contextmanager
def _stop_signal() -> Iterator[threading.Event]:
    """An event that SIGTERM and SIGINT set, so that the step under way is finished first."""
    stopping = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield stopping  # signals reach the main thread only
        return
    before = {
        number: signal.signal(number, lambda *_: stopping.set())
        for number in (signal.SIGTERM, signal.SIGINT)
    }
    try:
        yield stopping
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
