"""One training in several processes, a GPU each: every process has its share of each batch.

torch's launcher starts them (what `torchrun` calls) and DistributedDataParallel averages their
gradients while the backward pass still runs. Where there is one process, everything here is what
it would be without: `share` is the whole batch, `parallel` the module itself.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import nn

from raptor.errors import RaptorError

Batch = TypeVar("Batch", bound=Sequence)

# A process that failed because another one did waits so long, so that the other one is seen first.
FIRST_SECONDS = 3.0
STOPPED = 128 + signal.SIGTERM  # exit status of a training that was told to stop


def rank() -> int:
    """Number of this process, from 0."""
    return dist.get_rank() if dist.is_initialized() else 0


def world() -> int:
    """How many processes train together."""
    return dist.get_world_size() if dist.is_initialized() else 1


def share(batch: Batch) -> Batch:
    """The rows of a batch that are this process's: every `world()`-th."""
    return batch[rank() :: world()]


def parallel(module: nn.Module) -> nn.Module:
    """The module with gradients that are means over all processes.

    The loss has to be a mean over the batch; shares of one size then give its gradient.
    """
    return nn.parallel.DistributedDataParallel(module) if world() > 1 else module


def means(values: Mapping[str, float], *wishes: bool) -> tuple[dict[str, float], list[bool]]:
    """Means over all processes, and whether any of them has each wish; one exchange for all."""
    if world() == 1:
        return dict(values), list(wishes)
    device = "cuda" if dist.get_backend() == "nccl" else "cpu"
    sums = torch.tensor([*values.values(), *wishes], dtype=torch.float64, device=device)
    dist.all_reduce(sums)
    numbers = sums.tolist()
    found = {name: total / world() for name, total in zip(values, numbers, strict=False)}
    return found, [total > 0 for total in numbers[len(values) :]]


def gathered(value: Any) -> list[Any]:
    """The value of each process, by rank."""
    values = [value] * world()
    if world() > 1:
        dist.all_gather_object(values, value)
    return values


def launch(
    function: Callable[..., None],
    arguments: Mapping[str, Any],
    *,
    processes: int,
    begin: Callable[[int], None],
) -> None:
    """Run `function(**arguments)` in each of `processes`; `begin` gets the rank first.

    On CUDA process r has GPU r as its `device`; elsewhere they share the processor. What fails
    in one ends all: a RaptorError with its message, or SystemExit where it was told to stop.
    """
    from torch.distributed.elastic.multiprocessing import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    device = arguments["device"]
    if device.type == "cuda" and torch.cuda.device_count() < processes:
        raise RaptorError(
            f"gpus: {processes} were asked for, {torch.cuda.device_count()} are here; lower gpus "
            "or reserve more"
        )
    threads = max(1, torch.get_num_threads() // processes)
    config = LaunchConfig(
        min_nodes=1,
        max_nodes=1,
        nproc_per_node=processes,
        run_id=f"raptor-{os.getpid()}",
        rdzv_backend="c10d",
        rdzv_endpoint="localhost:0",
        max_restarts=0,  # Snakemake tries again
    )
    try:
        elastic_launch(config, _process)(function, dict(arguments), threads, begin)
    except SignalException as error:
        raise SystemExit(128 + error.sigval) from None
    except ChildFailedError as error:
        failed, failure = error.get_first_failure()
        if failure.exitcode == STOPPED:
            raise SystemExit(STOPPED) from None
        raise RaptorError(f"process {failed} of {processes}: {_message(failure)}") from None


def _process(
    function: Callable[..., None],
    arguments: dict[str, Any],
    threads: int,
    begin: Callable[[int], None],
) -> None:
    from torch.distributed.elastic.multiprocessing.errors import record

    torch.set_num_threads(threads)
    on_gpu = arguments["device"].type == "cuda"
    if on_gpu:
        arguments["device"] = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        torch.cuda.set_device(arguments["device"])
    dist.init_process_group("nccl" if on_gpu else "gloo")
    begin(rank())
    try:
        record(function)(**arguments)  # keeps the message of an error for the process that waits
    except Exception as error:
        if not isinstance(error, RaptorError):
            time.sleep(FIRST_SECONDS)
        raise
    dist.destroy_process_group()


def _message(failure: Any) -> str:
    """The last line of an error, without the name of its class."""
    text = failure.message if isinstance(failure.message, str) else failure.message["message"]
    return text.removeprefix("RaptorError: ")
