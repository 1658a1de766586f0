"""What every job writes beside its result."""

import json
import os
import time
from types import SimpleNamespace

import pytest
from filelock import FileLock

from raptor.errors import RaptorError
from raptor.job import job


class Named(list):
    """Like Snakemake's lists of files: a list with `items`."""

    def items(self):
        return []


@pytest.fixture
def snakemake(tmp_path):
    (tmp_path / "in.csv").write_text("a\n")
    return SimpleNamespace(
        rule="swaps",
        wildcards={"teacher": "vit"},
        params={"seed": 1, "state": str(tmp_path / "state"), "code": "abc"},
        input=Named([str(tmp_path / "in.csv")]),
        output=Named([str(tmp_path / "out.csv")]),
        log=[str(tmp_path / "logs/job.log")],
        threads=1,
        config={},
    )


def following(snakemake, tmp_path, name="out.csv"):
    """A job that reads what the first one wrote."""
    return SimpleNamespace(
        **{
            **vars(snakemake),
            "rule": "table",
            "input": Named([str(tmp_path / name)]),
            "output": Named([str(tmp_path / "table.csv")]),
            "log": [str(tmp_path / "logs/table.log")],
        }
    )


def write_two(snakemake, tmp_path):
    snakemake.output = Named([str(tmp_path / "out.csv"), str(tmp_path / "out.npz")])
    with job(snakemake):
        (tmp_path / "out.csv").write_text("value\n1.5\n")
        (tmp_path / "out.npz").write_bytes(b"matrices")


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


def test_whatever_the_system_refuses_is_one_sentence(snakemake, tmp_path):
    with pytest.raises(SystemExit), job(snakemake):
        raise PermissionError(13, "Permission denied", "/data/a.jpg")
    log = (tmp_path / "logs/job.log").read_text()
    assert "/data/a.jpg: Permission denied; give yourself permission" in log
    assert "Traceback" not in log


@pytest.mark.parametrize("name", ["out.csv", "out.npz"])
def test_a_changed_input_is_refused_before_anything_is_computed(snakemake, tmp_path, name):
    write_two(snakemake, tmp_path)
    with job(following(snakemake, tmp_path, name)):
        pass  # as it was written, it is read
    path = tmp_path / name
    content = bytearray(path.read_bytes())
    content[-2] ^= 1
    path.write_bytes(content)
    with pytest.raises(SystemExit), job(following(snakemake, tmp_path, name)):
        pytest.fail("computed from a damaged file")
    log = (tmp_path / "logs/table.log").read_text()
    assert f"{path}: damaged or edited" in log
    assert "delete it and run again" in log


def test_what_no_job_recorded_is_taken_as_it_is(snakemake, tmp_path):
    (tmp_path / "foreign.csv").write_text("from elsewhere\n")
    (tmp_path / "old.csv.provenance.json").write_text("{ half a rec")
    with job(following(snakemake, tmp_path, "foreign.csv")):
        pass


def test_a_job_killed_before_its_record_leaves_no_record_of_an_earlier_result(snakemake, tmp_path):
    write_two(snakemake, tmp_path)

    class Killed(BaseException):
        pass

    def write_and_die():
        with job(snakemake):
            (tmp_path / "out.csv").write_text("value\n2.5\n")
            raise Killed

    with pytest.raises(Killed):
        write_and_die()
    with job(following(snakemake, tmp_path)):
        pass  # the new table is whole, and nothing says that it is not
    write_two(snakemake, tmp_path)
    with job(following(snakemake, tmp_path)):
        pass


def test_touched_and_moved_results_are_still_what_they_are(snakemake, tmp_path):
    (tmp_path / "here").mkdir()
    snakemake.output = Named([str(tmp_path / "here/out.csv")])
    with job(snakemake):
        (tmp_path / "here/out.csv").write_text("value\n1.5\n")
    os.utime(tmp_path / "here/out.csv")
    (tmp_path / "here").rename(tmp_path / "there")
    with job(following(snakemake, tmp_path, "there/out.csv")):
        pass


def test_a_second_job_with_the_same_log_ends_with_a_sentence(snakemake, tmp_path):
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs/job.log").write_text("of the first\n")
    with (
        FileLock(tmp_path / "logs/.job.log.lock"),
        pytest.raises(SystemExit, match=r"another job is writing the same results"),
        job(snakemake),
    ):
        pytest.fail("two jobs at once")
    assert (tmp_path / "logs/job.log").read_text() == "of the first\n"
    with job(snakemake):
        pass  # it has ended


def test_comparing_with_a_hundred_records_takes_milliseconds(snakemake, tmp_path):
    with job(snakemake):
        (tmp_path / "out.csv").write_text("b\n")
    record = json.loads((tmp_path / "out.csv.provenance.json").read_text())
    record["params"] = {"recipe": ["x" * 100] * 100}
    for number in range(100):
        (tmp_path / f"other{number}.csv.provenance.json").write_text(json.dumps(record))
    from raptor.job import _refuse_changed

    started = time.perf_counter()
    _refuse_changed({str(tmp_path / "out.csv"): record["outputs"][str(tmp_path / "out.csv")]})
    assert time.perf_counter() - started < 0.2  # 10 ms where nothing else runs
