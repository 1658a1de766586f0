"""Private checkouts for tests that run Snakemake, edit the code, and run it again."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
import pytest
import yaml
from filelock import FileLock

from raptor.tables.cost import MEASURED

ROOT = Path(__file__).parents[1]
PARTS = ["Snakefile", "workflow", "raptor", "config", "profiles", "environment.yml"]


@dataclass(frozen=True)
class Checkout:
    """A copy of the workflow in which Snakemake runs."""

    path: Path

    def command(self, *arguments: str) -> list[str]:
        return [sys.executable, "-m", "snakemake", *arguments]

    @property
    def environment(self) -> dict[str, str]:
        # The copy's own package, not the one under test in this process; compiled once.
        return {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"} | {
            "PYTHONPATH": str(self.path)
        }

    def snakemake(self, *arguments: str, check: bool = True) -> subprocess.CompletedProcess:
        done = subprocess.run(
            self.command(*arguments),
            cwd=self.path,
            env=self.environment,
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
        )
        if check:
            assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-6000:]
        return done

    def planned(self, *arguments: str) -> dict[str, int]:
        """Rule -> number of jobs that a dry run would start."""
        text = self.snakemake("-n", "--quiet", "rules", *arguments)
        table = re.findall(r"^(\w+) +(\d+)$", text.stdout + text.stderr, re.M)
        return {rule: int(n) for rule, n in table if rule != "total"}


def copy_checkout(path: Path) -> Checkout:
    for part in PARTS:
        source = ROOT / part
        if source.is_dir():
            shutil.copytree(source, path / part, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, path / part)
    return Checkout(path)


def edited_config(checkout: Checkout, **changes: object) -> tuple[str, str]:
    """The smoke configuration with dotted keys changed, in a file of its own."""
    raw = yaml.safe_load((checkout.path / "config/smoke.yaml").read_text())
    for dotted, value in changes.items():
        *parents, last = dotted.split("__")
        section = raw
        for parent in parents:
            section = section.setdefault(parent, {})
        section[last] = value
    path = checkout.path / "config/edited.yaml"
    path.write_text(yaml.safe_dump(raw, sort_keys=False))
    return ("--configfile", str(path))


def tables(checkout: Checkout) -> dict[str, str]:
    """File -> checksum, of what two runs of the smoke experiment must have in common."""
    root = checkout.path / "results/smoke"
    files = [*root.glob("tables/*.csv"), *root.glob("figures/*.csv"), *root.glob("figures/*.png")]
    return {str(f.relative_to(root)): hashlib.sha256(_fixed(f)).hexdigest() for f in sorted(files)}


def _fixed(file: Path) -> bytes:
    """What a clean run gives again: of the cost all but what was measured with a clock."""
    if file.name != "table_cost.csv":
        return file.read_bytes()
    return pd.read_csv(file).drop(columns=MEASURED).to_csv().encode()


@pytest.fixture
def new_checkout(tmp_path):
    """Makes a checkout in which nothing has run."""
    return lambda: copy_checkout(tmp_path)


@pytest.fixture(scope="session")
def finished(tmp_path_factory) -> Checkout:
    """A checkout in which the smoke experiment has run to the end, made by one worker for all."""
    shared = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        shared = shared.parent
    path, ended = shared / "finished", shared / "finished.ended"
    with FileLock(shared / "finished.lock"):
        if not ended.exists():
            shutil.rmtree(path, ignore_errors=True)
            path.mkdir()
            copy_checkout(path).snakemake("--configfile", "config/smoke.yaml")
            ended.touch()
    return Checkout(path)
