"""What was tried and what came of it, as a table: printed, and kept in docs/reliability.md."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from stages import LONG, Study, undisturbed

PAGE = Path(__file__).parents[2] / "docs/reliability.md"
TABLE = (
    "| fault | where | tried | finished right | refused in one sentence |\n|---|---|---|---|---|\n"
)
_tried: Counter[tuple[str, str, str]] = Counter()


@pytest.fixture(scope="session")
def study(tmp_path_factory) -> Study:
    return undisturbed(tmp_path_factory.mktemp("study"))


@pytest.fixture
def survived():
    """Counts a fault that was tried: `survived(fault, where)`, `refused=True` for a clear error."""

    def count(fault: str, where: str, refused: bool = False) -> None:
        _tried[fault, where, "refused" if refused else "right"] += 1

    return count


def rows() -> list[str]:
    places = dict.fromkeys((fault, where) for fault, where, _ in _tried)
    lines = []
    for fault, where in places:
        right, refused = (_tried[fault, where, how] for how in ("right", "refused"))
        lines.append(f"| {fault} | {where} | {right + refused} | {right} | {refused} |")
    return lines


def pytest_terminal_summary(terminalreporter, exitstatus) -> None:
    if _tried:
        terminalreporter.write_line(TABLE + "\n".join(rows()))
    if LONG and exitstatus == 0:
        head = PAGE.read_text().split(TABLE)[0]
        PAGE.write_text(head + TABLE + "\n".join(rows()) + "\n")
