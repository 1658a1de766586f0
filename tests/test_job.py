"""What every job writes beside its result."""

import json
import logging
from types import SimpleNamespace

import pytest

from raptor.errors import RaptorError
from raptor.job import job


class Named(list):
    """Like Snakemake's lists of files: a list with `items`."""

    def items(self):
        return []


@pytest.fixture
def snakemake(tmp_path):
    (tmp_path / "in.csv").write_text("a\n")
    yield SimpleNamespace(
        rule="swaps",
        wildcards={"teacher": "vit"},
        params={"seed": 1, "state": str(tmp_path / "state"), "code": "abc"},
        input=Named([str(tmp_path / "in.csv")]),
        output=Named([str(tmp_path / "out.csv")]),
        log=[str(tmp_path / "logs/job.log")],
        threads=1,
        config={},
    )
    logging.getLogger("raptor").handlers.clear()


def test_a_finished_job_has_a_log_and_provenance(snakemake, tmp_path):
    with job(snakemake):
        (tmp_path / "out.csv").write_text("b\n")
    log = (tmp_path / "logs/job.log").read_text().splitlines()
    assert "swaps vit: start: parameters" in log[0]
    assert "done in" in log[-1]
    record = json.loads((tmp_path / "out.csv.provenance.json").read_text())
    assert record["rule"] == "swaps"
    assert record["params"] == {"seed": 1, "code": "abc"}
    assert record["inputs"].keys() == {str(tmp_path / "in.csv")}
    assert len(record["outputs"][str(tmp_path / "out.csv")]) == 64
    assert record["seconds"] >= 0


def test_identity_follows_parameters_and_inputs_but_not_the_state_folder(snakemake, tmp_path):
    def identity():
        with job(snakemake) as run:
            return run.identity

    first = identity()
    snakemake.params["state"] = "elsewhere"
    assert identity() == first
    snakemake.params["seed"] = 2
    second = identity()
    assert second != first
    (tmp_path / "in.csv").write_text("changed\n")
    assert identity() not in (first, second)


def test_a_fault_of_the_user_is_one_sentence_in_the_log(snakemake, tmp_path):
    with pytest.raises(SystemExit), job(snakemake):
        raise RaptorError("data: no images in X; give a folder with images")
    log = (tmp_path / "logs/job.log").read_text()
    assert "no images in X" in log
    assert "Traceback" not in log
    assert not (tmp_path / "out.csv.provenance.json").exists()


def test_a_fault_of_ours_leaves_its_traceback_in_the_log(snakemake, tmp_path):
    with pytest.raises(ZeroDivisionError), job(snakemake):
        1 / 0  # noqa: B018
    log = (tmp_path / "logs/job.log").read_text()
    assert "Traceback" in log
    assert "ZeroDivisionError" in log
