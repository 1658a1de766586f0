"""Jobs of a Snakemake that died: which ones are waited for, by what `squeue` shows."""

from __future__ import annotations

import logging
import os
from types import SimpleNamespace

import pytest

from raptor import slurm
from raptor.errors import RaptorError

NAME = "raptor-mine-0123"


@pytest.fixture
def cluster(tmp_path, monkeypatch):
    """A `squeue` that shows the given lines, and an executor that submits to a list."""

    def make(*lines: str, noted: dict[str, list[str]] | None = None) -> SimpleNamespace:
        squeue = tmp_path / "squeue"
        squeue.write_text(
            "#!/bin/sh\ncat <<END\n" + "".join(f"{line}\n" for line in lines) + "END\n"
        )
        squeue.chmod(0o755)
        monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
        submitted, waited = [], []
        notes = SimpleNamespace(external_jobids=lambda job: (noted or {}).get(job.name, []))
        executor = SimpleNamespace(
            workflow=SimpleNamespace(workdir_init="/here", persistence=notes),
            run_job=lambda job: submitted.append(job.name),
            logger=logging.getLogger("test"),
            _report_job_submission_threadsafe=lambda info: waited.append(info.external_jobid),
        )
        slurm.take_over(executor, experiment="mine", content="0123", logs="results/mine/logs")
        return SimpleNamespace(executor=executor, submitted=submitted, waited=waited)

    return make


def job(name: str, *wildcards: str, members: tuple = ()) -> SimpleNamespace:
    return SimpleNamespace(
        name=name,
        wildcards=list(wildcards),
        jobs=members,
        is_group=lambda: bool(members),
        jobid=1,
    )


def test_jobs_get_the_name_of_the_experiment_and_of_what_it_computes(cluster):
    executor = cluster().executor
    assert executor.run_uuid == NAME
    assert str(executor.slurm_logdir) == "/here/results/mine/logs"


@pytest.mark.parametrize(
    ("line", "noted", "number"),
    [
        (f"7|RUNNING|{NAME}|rule_raptor_wildcards_vit_a_b|/here", [], "7"),
        (f"7|PENDING|{NAME}|rule_raptor_wildcards_vit_a_b|/here", ["7"], "7"),
        (f"7|COMPLETED|{NAME}|rule_raptor_wildcards_vit_a_b|/here", ["7"], "7"),
        # Ended in an earlier run, and seen to end: what is asked for now is another run of it.
        (f"7|COMPLETED|{NAME}|rule_raptor_wildcards_vit_a_b|/here", [], None),
        (f"7|FAILED|{NAME}|rule_raptor_wildcards_vit_a_b|/here", ["7"], None),
        (f"7|RUNNING|{NAME}|rule_raptor_wildcards_vit_a_c|/here", [], None),
        (f"7|RUNNING|{NAME}|rule_raptor_wildcards_vit_a_b|/elsewhere", [], None),
        ("7|RUNNING|raptor-other-0123|rule_raptor_wildcards_vit_a_b|/here", [], None),
    ],
)
def test_a_job_is_submitted_unless_the_queue_has_it(cluster, line, noted, number):
    found = cluster(line, noted={"raptor": noted})
    found.executor.run_job(job("raptor", "vit", "a/b"))
    assert found.waited == ([number] if number else [])
    assert found.submitted == ([] if number else ["raptor"])


def test_a_group_is_known_by_the_number_that_all_its_jobs_have(cluster):
    running = f"7|RUNNING|{NAME}|rule_phases|/here"
    whole = job("phases", members=(job("similarity", "vit"), job("partition", "vit")))
    found = cluster(running, noted={"similarity": ["7"], "partition": ["7"]})
    found.executor.run_job(whole)
    assert (found.waited, found.submitted) == (["7"], [])
    found = cluster(running, noted={"similarity": ["7"], "partition": ["8"]})
    found.executor.run_job(whole)
    assert (found.waited, found.submitted) == ([], ["phases"])


def test_jobs_that_compute_something_else_into_the_same_files_are_refused(cluster):
    with pytest.raises(RaptorError, match=r"jobs 7 of an earlier run of mine.*scancel 7"):
        cluster("7|RUNNING|raptor-mine-4567|rule_raptor|/here", f"8|RUNNING|{NAME}|rule_a|/here")
    cluster("7|COMPLETED|raptor-mine-4567|rule_raptor|/here")


def test_a_queue_that_cannot_be_asked_is_an_error(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(RaptorError, match="squeue"):
        slurm.queue()


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("partitions:\n  cpu: {max_rutime: 60}\n", "max_rutime.*has keys among max_runtime"),
        ("partitions:\n  cpu: {max_runtime: abc}\n", "cannot be read as partitions"),
        ("cpu: {}\n", "missing 'partitions' section"),
        ("partitions: [\n", "cannot be read as partitions"),
        ("partitions:\n  night: {}\n", "has no partition night; it has cpu, gpu"),
    ],
)
def test_partitions_that_jobs_cannot_go_to_are_said_before(content, said, tmp_path, monkeypatch):
    (tmp_path / "config.yaml").write_text(f"slurm-partition-config: {tmp_path}/p.yaml\n")
    (tmp_path / "p.yaml").write_text(content)
    (tmp_path / "sinfo").write_text("#!/bin/sh\necho cpu\necho gpu\n")
    (tmp_path / "sinfo").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    with pytest.raises(RaptorError, match=f"p.yaml: .*{said}"):
        slurm.read_partitions(tmp_path)
    (tmp_path / "p.yaml").write_text("partitions:\n  cpu: {}\n  gpu: {max_gpu: 8}\n")
    assert slurm.read_partitions(tmp_path).endswith("names cpu, gpu")


def test_a_profile_without_partitions_is_said(tmp_path):
    with pytest.raises(RaptorError, match=r"config\.yaml: cannot be read"):
        slurm.read_partitions(tmp_path)
    (tmp_path / "config.yaml").write_text("jobs: 3\n")
    with pytest.raises(RaptorError, match="names no slurm-partition-config"):
        slurm.read_partitions(tmp_path)
