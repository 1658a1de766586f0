"""The workflow on a real SLURM (tests/slurm/cluster.sh): what it asks for, and what it survives."""

from __future__ import annotations

import itertools
import os
import re
import shutil
import signal
import subprocess
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import pytest
from checkout import Checkout, edited_config, tables

SLURM = ("--workflow-profile", "profiles/slurm", "--slurm-init-seconds-before-status-checks", "3")
CLUSTER = Path(__file__).with_name("cluster.sh")
pytestmark = pytest.mark.skipif(
    shutil.which("sinfo") is None or subprocess.run(["sinfo"], capture_output=True).returncode != 0,
    reason="needs the test cluster: tests/slurm/cluster.sh install, then up",
)
# Rules whose jobs compute with a teacher or a student, so that a GPU serves them.
USE_A_GPU = {
    *("train_teacher", "untrained_teacher", "activations", "raptor", "probe_teacher"),
    *("probe_students", "swaps", "branches", "dynamics", "cost", "dense_probe", "dense_examples"),
}
SUBMITTED = USE_A_GPU | {"samples", "dense_samples", "checkpoint_teacher"}
GROUPED = {"similarity", "partition"}


def recorded(checkout: Checkout) -> list[dict[str, str]]:
    """What SLURM has on record of the jobs of a checkout, in the order of submission."""
    text = subprocess.check_output(["scontrol", "--oneliner", "show", "job"], text=True)
    jobs = [dict(re.findall(r"([\w:]+)=(\S*)", line)) for line in text.splitlines()]
    own = [job for job in jobs if job.get("WorkDir") == str(checkout.path)]
    return sorted(own, key=lambda job: int(job["JobId"]))


def rule_of(job: dict[str, str]) -> str:
    return job["Comment"].removeprefix("rule_").split("_wildcards_")[0]


def gpus_of(job: dict[str, str]) -> int:
    asked = [job[key] for key in ("TresPerJob", "TresPerNode") if key in job]
    found = [re.fullmatch(r"gres:gpu(?::\w+)?:(\d+)", one) for one in asked]
    return sum(int(one[1]) for one in found)


def start(checkout: Checkout, *arguments: str, **environment: str) -> subprocess.Popen:
    """Snakemake as a process that can be killed with all that it started here."""
    with open(checkout.path / "controller.log", "a") as log:
        return subprocess.Popen(
            checkout.command(*arguments),
            cwd=checkout.path,
            env=checkout.environment | environment,
            stdout=log,
            stderr=log,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )


def ends_well(run: subprocess.Popen, checkout: Checkout) -> bool:
    """Whether Snakemake ends with success; its last words, where it does not."""
    if run.wait(timeout=1800) != 0:
        print((checkout.path / "controller.log").read_text()[-5000:])
    return run.returncode == 0


def first(
    checkout: Checkout, wanted: Callable[[dict[str, str]], bool], run: subprocess.Popen
) -> dict[str, str]:
    """The first job of which `wanted` holds, waited for while Snakemake runs."""
    while run.poll() is None:
        for job in recorded(checkout):
            if wanted(job):
                return job
        time.sleep(0.3)
    raise AssertionError((checkout.path / "controller.log").read_text()[-5000:])


def test_the_smoke_run_and_a_controller_that_is_killed(new_checkout, tmp_path, request):
    """Every job but the short ones goes through sbatch, once; GPUs where they serve."""
    checkout = new_checkout()
    path = a_head_node_with_gpus(tmp_path / "programs")
    config = edited_config(checkout, device="auto")

    run = start(checkout, *SLURM, *config, PATH=path)
    for rule in ("train_teacher", "raptor"):  # SIGKILL, while one of these jobs runs
        running = first(
            checkout, lambda job, r=rule: (rule_of(job), job["JobState"]) == (r, "RUNNING"), run
        )
        os.killpg(run.pid, signal.SIGKILL)
        run.wait()
        checkout.snakemake("--unlock", *config)
        run = start(checkout, *SLURM, *config, PATH=path)
    assert ends_well(run, checkout)
    said = (checkout.path / "controller.log").read_text()
    assert f"is SLURM job {running['JobId']} (running) of an earlier run" in said

    # Asked for only now: another worker may have made it in the meantime.
    assert tables(checkout) == tables(request.getfixturevalue("finished"))
    every = recorded(checkout)
    jobs = [job for job in every if job["JobState"] == "COMPLETED"]
    assert {job["Comment"] for job in jobs} == {job["Comment"] for job in every}
    alone = [job for job in jobs if not rule_of(job).startswith("phases")]
    assert len({job["Comment"] for job in alone}) == len(alone)  # none was run twice
    assert {rule_of(job) for job in alone} == SUBMITTED
    assert {rule_of(job): gpus_of(job) for job in jobs} == {
        rule_of(job): int(rule_of(job) in USE_A_GPU) for job in jobs
    }
    assert all(job["Partition"] == ("gpu" if gpus_of(job) else "cpu") for job in jobs)
    planned = checkout.planned("--forceall", *config)
    assert len(alone) == sum(planned[rule] for rule in SUBMITTED)
    assert 0 < len(jobs) - len(alone) < sum(planned[rule] for rule in GROUPED)
    logs = checkout.path / "results/smoke/logs/slurm"
    assert {path.stem for path in logs.rglob("*.log")} == {job["JobId"] for job in every}


def a_head_node_with_gpus(folder: Path) -> str:
    """A PATH on which there is an `nvidia-smi`, so that `device: auto` asks for GPUs."""
    folder.mkdir()
    (folder / "nvidia-smi").write_text("#!/bin/sh\n")
    (folder / "nvidia-smi").chmod(0o755)
    return f"{folder}:{os.environ['PATH']}"


def test_every_way_to_ask_for_a_gpu_in_the_profile(new_checkout, tmp_path):
    """As the comments of the profile say: uncommented, with one of the alternatives first."""
    checkout = new_checkout()
    path = a_head_node_with_gpus(tmp_path / "programs")
    config = edited_config(checkout, device="auto")
    profile = checkout.path / "profiles/slurm/config.yaml"
    text = profile.read_text()
    ways = re.findall(r"^#   [a-z ]+: +(train_teacher: &gpu .*)$", text, re.M)
    assert len(ways) == 3
    commented = re.search(r"^# set-resources:\n(?:#   .*\n)+", text, re.M)[0]
    for number, way in enumerate([None, *ways]):
        lines = [line[2:] for line in commented.splitlines()]
        lines[1] = f"  {way}".replace("a100", "fake")
        block = "\n".join(lines) + "\n" if way else commented
        profile.write_text(text.replace(commented, block))
        weights = checkout.path / "results/smoke/teachers/untrained.safetensors"
        weights.unlink(missing_ok=True)
        run = start(checkout, str(weights.relative_to(checkout.path)), *SLURM, *config, PATH=path)
        assert ends_well(run, checkout)
        asked = [job for job in recorded(checkout) if rule_of(job) == "untrained_teacher"]
        assert len(asked) == number + 1
        assert (gpus_of(asked[-1]), asked[-1]["Partition"]) == (1, "gpu"), way


def test_jobs_that_are_cancelled_too_long_or_too_large(new_checkout, tmp_path_factory):
    """Each is tried again, with more; training goes on at its step; the results stay the same."""
    result = "results/smoke/probes/vit/fidelity-1.csv"
    long = {"teachers__vit__training__epochs": 1000}  # minutes: more than the first attempt has
    checkout = new_checkout()
    config = edited_config(checkout, **long)
    shutil.copytree(checkout.path, undisturbed := tmp_path_factory.mktemp("undisturbed") / "run")
    reference = start(local := Checkout(undisturbed), result, "--cores", "1", *config)
    run = start(
        checkout,
        *(result, *SLURM, *config, "--retries", "5", "--set-resources"),
        "train_teacher:runtime=attempt",  # minutes; SLURM knows no shorter time
        "raptor:mem_mb=attempt * 600",  # it needs about 1,000
    )
    probe = first(
        checkout, lambda job: (rule_of(job), job["JobState"]) == ("probe_students", "RUNNING"), run
    )
    subprocess.run(["scancel", probe["JobId"]], check=True)
    assert ends_well(run, checkout)
    assert ends_well(reference, local)

    assert (checkout.path / result).read_bytes() == (local.path / result).read_bytes()
    states, numbers = defaultdict(list), defaultdict(list)
    for job in recorded(checkout):
        states[rule_of(job)].append(job["JobState"])
        numbers[rule_of(job)].append(job["JobId"])
    assert all(found[-1] == "COMPLETED" for found in states.values())
    assert set(states["train_teacher"][:-1]) == {"TIMEOUT"}
    assert set(states["raptor"][:-1]) <= {"FAILED", "OUT_OF_MEMORY"}
    assert len(states["raptor"]) > 1
    assert states["probe_students"] == ["CANCELLED", "COMPLETED"]
    others = states.keys() - {"train_teacher", "raptor", "probe_students"}
    assert all(states[rule] == ["COMPLETED"] for rule in others)

    logs = checkout.path / "results/smoke/logs/slurm/rule_train_teacher/vit"
    said = [(logs / f"{number}.log").read_text() for number in numbers["train_teacher"]]
    for before, after in itertools.pairwise(said):
        stopped = re.search(r"stopped at step (\d+)", before)
        assert f"continuing at step {stopped[1]} of" in after
