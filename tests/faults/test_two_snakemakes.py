"""Two Snakemakes on one results folder, and the lock that a killed one leaves."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

from checkout import Checkout

TARGET = "results/smoke/similarity/untrained.csv"
COMMAND = (TARGET, "--configfile", "config/smoke.yaml", "--cores", "2")


def started(checkout: Checkout, until: str) -> subprocess.Popen:
    """Snakemake at work, as far as the first file that matches `until`."""
    running = subprocess.Popen(
        checkout.command(*COMMAND),
        cwd=checkout.path,
        env=checkout.environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    deadline = time.monotonic() + 120
    while not any(checkout.path.glob(until)):
        assert running.poll() is None, "it ended before its time"
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return running


def result(checkout: Checkout) -> dict[str, bytes]:
    files = [Path(TARGET), Path(TARGET).with_suffix(".npz")]
    return {path.name: (checkout.path / path).read_bytes() for path in files}


def test_the_second_is_refused_and_a_stale_lock_is_named(new_checkout, tried):
    checkout = new_checkout()
    first = started(checkout, ".snakemake/locks/*")
    second = checkout.snakemake(*COMMAND, check=False)
    assert second.returncode != 0
    assert "Directory cannot be locked" in second.stderr
    assert first.wait() == 0
    undisturbed = result(checkout)
    tried("two Snakemakes at once", "similarity", refused=1)

    shutil.rmtree(checkout.path / "results")
    killed = started(checkout, "results/smoke/teachers/untrained.json")
    os.killpg(killed.pid, signal.SIGKILL)
    killed.wait()
    refused = checkout.snakemake(*COMMAND, check=False)
    assert refused.returncode != 0
    assert "--unlock" in refused.stderr
    checkout.snakemake(*COMMAND, "--unlock")
    checkout.snakemake(*COMMAND)
    assert result(checkout) == undisturbed
    tried("SIGKILL of Snakemake and its jobs", "similarity", finished=1)
