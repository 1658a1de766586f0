"""`python -m raptor.make CONFIG`: what `make figures` does, in an environment that is ready."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from pathlib import Path

from raptor.config.experiment import Experiment
from raptor.config.load import load_yaml
from raptor.errors import RaptorError
from raptor.plan import plan

# Measured on two busy cores of a server, with the study of laptop.yaml: floating-point operations a
# second and core, and what a job takes beside them, most of it to import torch.
CORE_FLOPS, JOB_SECONDS = 1.0e10, 6
# What it is made from comes before anything else, so that there is something to look at soon.
FIRST = "maxcut_partitions"


def run(path: str) -> None:
    """Run Snakemake with the configuration `path`, then write the reports, ours and Snakemake's.

    Only one run at a time may use this checkout. A run that was killed leaves Snakemake's lock
    behind; whoever holds ours knows that no other run is alive, and may remove it.
    """
    config = load_yaml(path)
    Path(".snakemake").mkdir(exist_ok=True)
    with open(".snakemake/make.lock", "w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise RaptorError("another `make` is running here; wait for it or stop it") from None
        _announce(config)
        results = f"results/{config.experiment}"
        for arguments in (
            ["--unlock", "--quiet", "all"],
            ["figures", "report_page", "--prioritize", FIRST],
            ["--report", f"{results}/report.zip"],
        ):
            command = [sys.executable, "-m", "snakemake", *arguments, "--configfile", path]
            subprocess.run(command, check=True)
    print(
        f"raptor: done. All figures and tables are in {results}/, and on one page in\n"
        f"  {results}/report.html\n"
        "Snakemake's report, with the rules and the time of each, is report/report.html in\n"
        f"  {results}/report.zip"
    )


def _announce(config: Experiment) -> None:
    found, cores = plan(config), os.cpu_count() or 1
    jobs = sum(work.jobs for work in found.works)
    seconds = found.flops / CORE_FLOPS + jobs * JOB_SECONDS
    print(
        f"raptor: {config.experiment}: {sum(found.teachers.values())} teachers, "
        f"{sum(found.students.values())} students, {jobs} jobs; about {seconds / cores / 60:.0f} "
        f"minutes on the {cores} cores of this machine, less where there is a GPU or some of it is "
        "done. Each job says how far it is and when it ends.",
        flush=True,
    )


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("raptor: give one configuration: python -m raptor.make config/laptop.yaml")
    try:
        run(sys.argv[1])
    except RaptorError as error:
        sys.exit(f"raptor: {error}")
    except subprocess.CalledProcessError as error:
        sys.exit(error.returncode)
    except KeyboardInterrupt:
        sys.exit("raptor: interrupted; run again to continue")
