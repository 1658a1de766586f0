"""The finished toy experiment, and the table of the faults that were tried."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from children import run
from stages import STAGES, content
from table import Fault, as_table

FAULTS: list[Fault] = []


@pytest.fixture(scope="session")
def whole(tmp_path_factory) -> Path:
    """A results folder in which every stage has run undisturbed."""
    root = tmp_path_factory.mktemp("whole") / "results"
    root.mkdir()
    for name in STAGES:
        ended = run(name, root)
        assert ended.status == 0, ended.said
    return root


@pytest.fixture(scope="session")
def expected(whole) -> dict[str, str]:
    return content(whole)


@pytest.fixture
def without(whole, tmp_path) -> Callable[[str], Path]:
    """A copy of the finished folder in which one stage has not run."""

    def copy(stage: str, name: str = "results", parent: Path = tmp_path) -> Path:
        root = parent / name
        shutil.copytree(whole, root)
        STAGES[stage].remove(root)
        return root

    return copy


@pytest.fixture
def tried() -> Callable[..., None]:
    """Notes faults that were tried and survived, for the table."""
    return lambda fault, what, finished=0, refused=0: FAULTS.append(
        Fault(fault, what, finished, refused)
    )


def pytest_terminal_summary(terminalreporter) -> None:
    if FAULTS:
        terminalreporter.section("faults tried and survived")
        terminalreporter.write_line(as_table(FAULTS))


def pytest_sessionfinish(session, exitstatus) -> None:
    """`make faults` gives the file that the table goes to, where every test has passed."""
    path = os.environ.get("RAPTOR_FAULTS_TABLE")
    if path and exitstatus == 0 and FAULTS:
        from table import write_page

        write_page(Path(path), FAULTS)
