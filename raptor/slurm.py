"""What SLURM knows: the partitions of a site, and the jobs of a Snakemake that was killed.

A Snakemake that is started again takes over the jobs it had submitted. It
notes the SLURM number of each job, but the executor plugin does not ask for it: it
would submit a job a second time while the first still runs. Here each experiment gives its jobs
one name in the queue for good, and a job that the queue still has under it is waited for.
"""

from __future__ import annotations

import dataclasses
import logging
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from raptor.errors import RaptorError, first_line

log = logging.getLogger(__name__)

ALIVE = ("PENDING", "CONFIGURING", "RUNNING", "SUSPENDED", "COMPLETING")


@dataclass(frozen=True)
class Queued:
    """A job as `squeue` shows it."""

    number: str
    state: str
    name: str
    comment: str  # rule and wildcards
    folder: str


def queue() -> list[Queued]:
    """My jobs that SLURM still knows, ended ones included (for MinJobAge seconds)."""
    command = ["squeue", "--me", "--states=all", "--noheader", "--format=%i|%T|%j|%k|%Z"]
    try:
        shown = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.SubprocessError) as error:
        raise RaptorError(f"squeue: cannot be asked which jobs still run ({error})") from None
    return [Queued(*line.split("|", 4)) for line in shown.stdout.splitlines()]


def read_partitions(profile: Path) -> str:
    """Which partitions jobs may go to, as the executor plugin reads the file the profile names.

    RaptorError for one that it cannot read, or that names a partition which this SLURM has not.
    """
    from snakemake_executor_plugin_slurm.partitions import PartitionLimits, read_partition_file

    file = _partition_file(profile)
    try:
        names = [partition.name for partition in read_partition_file(file)]
    except Exception as error:  # the plugin checks the shape, Python the names of keys
        keys = ", ".join(field.name for field in dataclasses.fields(PartitionLimits))
        raise RaptorError(
            f"{file}: cannot be read as partitions ({first_line(error)}); a partition has keys "
            f"among {keys}"
        ) from None
    if shutil.which("sinfo") is None:
        return f"{file} names {', '.join(names)}; no SLURM here to compare with"
    command = ["sinfo", "--noheader", "--format=%R"]
    known = subprocess.run(command, capture_output=True, text=True, timeout=60).stdout.split()
    unknown = [name for name in names if known and name not in known]
    if unknown:
        raise RaptorError(
            f"{file}: this SLURM has no partition {', '.join(unknown)}; it has {', '.join(known)}"
        )
    return f"{file} names {', '.join(names)}"


def _partition_file(profile: Path) -> Path:
    try:
        settings = yaml.safe_load((profile / "config.yaml").read_text(encoding="utf-8"))
        return Path(settings["slurm-partition-config"])
    except (OSError, yaml.YAMLError) as error:
        raise RaptorError(f"{profile}/config.yaml: cannot be read ({first_line(error)})") from None
    except (KeyError, TypeError):
        raise RaptorError(
            f"{profile}/config.yaml: names no slurm-partition-config, a file of partitions"
        ) from None


def take_over(executor: Any, *, experiment: str, content: str, logs: str) -> None:
    """Make the SLURM `executor` wait for jobs of an earlier Snakemake instead of repeating them.

    `content` is a digest of all that decides what the jobs compute. Jobs of this experiment that
    still run with another one are a RaptorError: they would write over what is made now.
    """
    name = f"raptor-{experiment}-{content}"
    folder = str(executor.workflow.workdir_init)
    known = [job for job in queue() if job.folder == folder]
    stray = [job.number for job in known if job.state in ALIVE and _other(job, experiment, name)]
    if stray:
        raise RaptorError(
            f"jobs {' '.join(stray)} of an earlier run of {experiment}, with another configuration "
            f"or code, are still in the queue; wait for them, or `scancel {' '.join(stray)}`"
        )
    executor.run_uuid = name  # what jobs are called, and asked for by
    executor.slurm_logdir = Path(folder, logs)
    submit = executor.run_job

    def run_job(job: Any) -> None:
        earlier = _earlier(job, [one for one in known if one.name == name], executor.workflow)
        if earlier is None:
            submit(job)
        else:
            _wait_for(executor, job, earlier)

    executor.run_job = run_job


def _other(job: Queued, experiment: str, name: str) -> bool:
    """Whether a job belongs to the experiment, but not under this name."""
    return job.name != name and job.name.rpartition("-")[0] == f"raptor-{experiment}"


def _earlier(job: Any, known: list[Queued], workflow: Any) -> Queued | None:
    """The SLURM job that makes the outputs of `job`, or made them unseen; None if there is none.

    By the number that Snakemake noted; or, where it was killed before it could, by rule and
    wildcards, which no two jobs of an experiment share.
    """
    members = job.jobs if job.is_group() else [job]
    numbers = {n for one in members for n in workflow.persistence.external_jobids(one)}
    noted = [one for one in known if {one.number} == numbers]
    if noted and noted[0].state in (*ALIVE, "COMPLETED"):
        return noted[0]
    if job.is_group():
        return None
    comment = "_wildcards_".join(
        filter(None, [f"rule_{job.name}", "_".join(job.wildcards).replace("/", "_")])
    )
    return next((one for one in known if one.state in ALIVE and one.comment == comment), None)


def _wait_for(executor: Any, job: Any, earlier: Queued) -> None:
    from snakemake_interface_executor_plugins.executors.base import SubmittedJobInfo

    executor.logger.info(
        f"Job {job.jobid} is SLURM job {earlier.number} ({earlier.state.lower()}) of an earlier "
        "run: it is waited for, not submitted again."
    )
    found = executor.slurm_logdir.rglob(f"{earlier.number}.log")
    log_file = next(found, executor.slurm_logdir / f"{earlier.number}.log")
    executor._report_job_submission_threadsafe(
        SubmittedJobInfo(job, external_jobid=earlier.number, aux={"slurm_logfile": log_file})
    )
