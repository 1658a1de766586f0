"""What every Snakemake job does around its one call: log, threads, device, provenance."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from raptor import provenance
from raptor.errors import RaptorError
from raptor.files import digest, sha256, write_json

log = logging.getLogger("raptor")


@dataclass
class Job:
    """Facts of the running job that are not science."""

    identity: str  # digest of parameters, code and inputs: what a resumed state must match
    config: Mapping[str, Any]  # of the experiment: device, gpus, compile
    log: Path
    title: str
    used: str = "cpu"  # until `device` is asked for

    @property
    def device(self) -> Any:
        """The `torch.device` to compute on."""
        from raptor.device import resolve_device  # torch is loaded only by jobs that need it

        device = resolve_device(self.config.get("device", "auto"))
        self.used = str(device)
        return device

    def train(self, function: Callable[..., None], **arguments: Any) -> None:
        """Call a training, told how to compute as well, in as many processes as are asked for."""
        from raptor.training.distributed import launch

        processes = self.config.get("gpus", 1)
        arguments |= {"device": self.device, "compiled": self.config.get("compile", False)}
        if processes == 1:
            function(**arguments)
        else:
            begin = partial(_join_log, self.log, self.title)
            launch(function, arguments, processes=processes, begin=begin)


@contextmanager
def job(snakemake: Any) -> Iterator[Job]:
    """Run the body of a `script:` adapter.

    The log gets what runs, its parameters' digest and the commit first, and a traceback if it
    fails. On success `<first output>.provenance.json` is written beside the result.
    """
    title = " ".join([snakemake.rule, *map(str, dict(snakemake.wildcards).values())])
    _log_to(Path(snakemake.log[0]), title)
    # Where unfinished work is kept says nothing about what it is.
    params = {key: value for key, value in dict(snakemake.params).items() if key != "state"}
    inputs = {str(path): _checksum(Path(path)) for path in snakemake.input}
    identity = digest([snakemake.rule, params, sorted(inputs.items())])
    log.info("start: parameters %s, commit %s", digest(params), provenance.git_commit())
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(snakemake.threads)
    started = time.monotonic()
    running = Job(identity, snakemake.config, Path(snakemake.log[0]), title)
    try:
        yield running
    except RaptorError as error:
        log.error("%s", error)
        raise SystemExit(1) from None
    except Exception:
        log.exception("failed")
        raise
    seconds = round(time.monotonic() - started, 2)
    log.info("done in %.1f s", seconds)
    write_json(
        f"{snakemake.output[0]}.provenance.json",
        provenance.record(
            rule=snakemake.rule,
            wildcards=dict(snakemake.wildcards),
            params=params,
            inputs=inputs,
            outputs={str(path): _checksum(Path(path)) for path in snakemake.output},
            threads=snakemake.threads,
            device=running.used,
            seconds=seconds,
        ),
    )


def optional(files: Sequence[str]) -> Path | None:
    """An input that a rule may do without: Snakemake gives a list of one path, or of none."""
    return Path(files[0]) if files else None


def _checksum(path: Path) -> str:
    return sha256(path) if path.is_file() else "folder" if path.is_dir() else "absent"


def _join_log(path: Path, title: str, rank: int) -> None:
    """In a process of a training: the first one says how it goes, the others what goes wrong."""
    _log_to(path, title if rank == 0 else f"{title} [{rank}]", mode="a")
    if rank > 0:
        log.setLevel(logging.WARNING)


def _log_to(path: Path, title: str, mode: str = "w") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    form = logging.Formatter(f"%(asctime)s {title}: %(message)s", "%H:%M:%S")
    for handler in (logging.FileHandler(path, mode=mode), logging.StreamHandler(sys.stderr)):
        handler.setFormatter(form)
        log.addHandler(handler)
    log.setLevel(logging.INFO)
