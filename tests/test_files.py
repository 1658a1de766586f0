"""Files that are whole or absent."""

import hashlib
import os
import subprocess
import sys

import pytest

from raptor.files import digest, replacing, sha256, write_json


def test_a_failed_write_leaves_the_old_file_and_no_trace(tmp_path):
    path = tmp_path / "table.csv"
    path.write_text("old")

    def write_half():
        with replacing(path) as temporary:
            temporary.write_text("half")
            raise RuntimeError("power cut")

    with pytest.raises(RuntimeError):
        write_half()
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_finished_write_replaces(tmp_path):
    path = tmp_path / "new" / "table.csv"
    with replacing(path) as temporary:
        temporary.write_text("whole")
        assert not path.exists()
    assert path.read_text() == "whole"
    assert list(path.parent.iterdir()) == [path]


def test_what_a_killed_writer_left_is_removed_and_what_others_write_is_not(tmp_path):
    ended = subprocess.run(
        [sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True
    )
    left = tmp_path / f".table.csv.{int(ended.stdout)}.tmp"
    at_work = tmp_path / f".table.csv.{os.getppid()}.tmp"
    of_another = tmp_path / left.name.replace("table", "other")
    not_ours = tmp_path / ".table.csv.backup.tmp"
    for path in (left, at_work, of_another, not_ours):
        path.write_text("half")
    with replacing(tmp_path / "table.csv") as temporary:
        temporary.write_text("whole")
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {"table.csv", at_work.name, of_another.name, not_ours.name}


def test_checksums(tmp_path):
    write_json(tmp_path / "a.json", {"b": 1, "a": [1, 2]})
    data = (tmp_path / "a.json").read_bytes()
    assert sha256(tmp_path / "a.json") == hashlib.sha256(data).hexdigest()
    assert digest({"a": 1, "b": 2}) == digest({"b": 2, "a": 1}) != digest({"a": 1, "b": 3})
