"""`make figures` before anything runs: faults, and two runs at once."""

import fcntl
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def make(folder, config):
    return subprocess.run(
        [sys.executable, "-m", "raptor.make", str(config)],
        cwd=folder,
        env={"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )


def test_a_faulty_configuration_is_a_sentence_not_a_traceback(tmp_path):
    config = tmp_path / "mine.yaml"
    config.write_text((ROOT / "config/smoke.yaml").read_text() + "\npartitoin: {}\n")
    done = make(tmp_path, config)
    assert done.returncode == 1
    assert "partitoin: unknown key; did you mean partition?" in done.stderr
    assert "Traceback" not in done.stderr


def test_two_runs_at_once_are_refused(tmp_path):
    (tmp_path / ".snakemake").mkdir()
    with open(tmp_path / ".snakemake/make.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        done = make(tmp_path, ROOT / "config/smoke.yaml")
    assert done.returncode == 1
    assert "another `make` is running here" in done.stderr
    assert "Traceback" not in done.stderr
