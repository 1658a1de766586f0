"""What every Snakemake job does around its one call: log, threads, device, provenance."""

from __future__ import annotations

import json
import logging
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from raptor import provenance
from raptor.errors import RaptorError, of_system
from raptor.files import digest, sha256, write_json

log = logging.getLogger("raptor")

_RECORD = ".provenance.json"


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
    fails; what the user can mend is one sentence. On success `<first output>.provenance.json` is
    written beside the result. An input that is not as its own job recorded it ends the job, and
    so does another job that is writing the same files.
    """
    title = " ".join([snakemake.rule, *map(str, dict(snakemake.wildcards).values())])
    outputs = [Path(path) for path in snakemake.output]
    provenance_file = Path(f"{outputs[0]}{_RECORD}")
    with _alone(Path(snakemake.log[0]), title), _in_words():
        # Where unfinished work is kept says nothing about what it is.
        params = {key: value for key, value in dict(snakemake.params).items() if key != "state"}
        inputs = {str(path): _checksum(Path(path)) for path in snakemake.input}
        _refuse_changed(inputs)
        identity = digest([snakemake.rule, params, sorted(inputs.items())])
        log.info("start: parameters %s, commit %s", digest(params), provenance.git_commit())
        if "torch" in sys.modules:
            sys.modules["torch"].set_num_threads(snakemake.threads)
        provenance_file.unlink(missing_ok=True)  # it says nothing of what is written from here on
        started = time.monotonic()
        running = Job(identity, snakemake.config, Path(snakemake.log[0]), title)
        yield running
        seconds = round(time.monotonic() - started, 2)
        write_json(
            provenance_file,
            provenance.record(
                rule=snakemake.rule,
                wildcards=dict(snakemake.wildcards),
                params=params,
                inputs=inputs,
                outputs={str(path): _checksum(path) for path in outputs},
                threads=snakemake.threads,
                device=running.used,
                seconds=seconds,
            ),
        )
        log.info("done in %.1f s", seconds)


def optional(files: Sequence[str]) -> Path | None:
    """An input that a rule may do without: Snakemake gives a list of one path, or of none."""
    return Path(files[0]) if files else None


@contextmanager
def _alone(path: Path, title: str) -> Iterator[None]:
    """Log to `path`, and to the terminal, as the only job that writes these results.

    The lock has a file of its own: Snakemake removes the log before it starts a job.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(path.with_name(f".{path.name}.lock"))
    try:
        lock.acquire(blocking=False)
    except Timeout:
        sys.exit(
            f"{title}: another job is writing the same results ({lock.lock_file} is locked); "
            "wait until it ends, or stop it, and run again"
        )
    except NotImplementedError:  # a file system without locks
        pass
    logging.raiseExceptions = False  # a log on a full disk must not hide the sentence about it
    handlers = _handlers(path, "w", title)
    for handler in handlers:
        log.addHandler(handler)
    log.setLevel(logging.INFO)
    try:
        yield
    finally:
        for handler in handlers:
            log.removeHandler(handler)
            with suppress(OSError):
                handler.close()
        lock.release()


def _handlers(path: Path, mode: str, title: str) -> list[logging.Handler]:
    handlers = [logging.FileHandler(path, mode=mode), logging.StreamHandler(sys.stderr)]
    for handler in handlers:
        handler.setFormatter(logging.Formatter(f"%(asctime)s {title}: %(message)s", "%H:%M:%S"))
    return handlers


def _join_log(path: Path, title: str, rank: int) -> None:
    """In a process of a training: the first one says how it goes, the others what goes wrong."""
    log.handlers = _handlers(path, "a", title if rank == 0 else f"{title} [{rank}]")
    log.setLevel(logging.WARNING if rank else logging.INFO)


@contextmanager
def _in_words() -> Iterator[None]:
    """An error that the user can mend ends the job with its sentence, any other as it is."""
    try:
        yield
    except Exception as error:
        mendable = of_system(error) if isinstance(error, OSError) else error
        if isinstance(mendable, RaptorError):
            log.error("%s", mendable)
            raise SystemExit(1) from None
        log.exception("failed")
        raise


def _refuse_changed(inputs: Mapping[str, str]) -> None:
    """RaptorError for a file of `inputs` (path -> checksum) that has changed since it was made."""
    made = {folder: _made_in(folder) for folder in {Path(path).parent for path in inputs}}
    for path, checksum in inputs.items():
        known = made[Path(path).parent].get(Path(path).name)
        if known and checksum not in known:
            raise RaptorError(
                f"{path}: damaged or edited, its checksum is not the one that the job which made "
                "it recorded beside it; delete it and run again"
            )


def _made_in(folder: Path) -> dict[str, set[str]]:
    """File of `folder` -> its checksums in the records there, which jobs write last.

    A job's outputs lie in one folder with its record. What no record names is from elsewhere, or
    its job was killed after writing it whole: it is taken as it is.
    """
    made: dict[str, set[str]] = {}
    for path in folder.glob(f"*{_RECORD}"):
        try:
            outputs = json.loads(path.read_bytes())["outputs"].items()
        except (ValueError, KeyError, TypeError, AttributeError, FileNotFoundError):
            continue
        for output, checksum in outputs:
            made.setdefault(Path(output).name, set()).add(checksum)
    return made


def _checksum(path: Path) -> str:
    return sha256(path) if path.is_file() else "folder" if path.is_dir() else "absent"
