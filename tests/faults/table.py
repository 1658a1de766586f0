"""The table of faults, and the page of the documentation that shows it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

BEGIN, END = "<!-- faults: written by make faults -->\n", "<!-- end of faults -->\n"


class Fault(NamedTuple):
    """A kind of fault, what it was done to, and how often the run ended well in each way."""

    fault: str
    what: str
    finished: int  # the result of an undisturbed run, bit for bit
    refused: int  # one clear sentence, and no result


def as_table(faults: Sequence[Fault]) -> str:
    """Markdown, one row for each fault and what it was done to; equal ones are added up."""
    rows: dict[tuple[str, str], list[int]] = {}
    for fault in faults:
        counts = rows.setdefault(fault[:2], [0, 0])
        counts[0] += fault.finished
        counts[1] += fault.refused
    lines = ["| fault | to | tried | right result | clear refusal |", "|---|---|--:|--:|--:|"]
    lines += [
        f"| {fault} | {what} | {finished + refused} | {finished} | {refused} |"
        for (fault, what), (finished, refused) in rows.items()
    ]
    total = [sum(column) for column in zip(*rows.values(), strict=True)]
    lines.append(f"| all | | {sum(total)} | {total[0]} | {total[1]} |")
    return "\n".join(lines) + "\n"


def write_page(path: Path, faults: Sequence[Fault]) -> None:
    """Put the table between the two marks in `path`."""
    before, rest = path.read_text(encoding="utf-8").split(BEGIN)
    after = rest.split(END)[1]
    path.write_text(f"{before}{BEGIN}\n{as_table(faults)}\n{END}{after}", encoding="utf-8")
