"""Captions: a Jinja template and the numbers of a table become a paragraph of reST.

No number in a caption is typed: templates get them from the table that is drawn.
"""

from __future__ import annotations

import math
import re
import textwrap
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from jinja2 import Environment, StrictUndefined, TemplateError

from raptor.errors import RaptorError
from raptor.files import replacing
from raptor.tables.summary import Summary

UNIT = "\u00a0%"  # never parted from its number at the end of a line
ABSENT = "–"  # where a number is not defined, such as the spread of a single seed


def percent(value: float | None, digits: int = 1) -> str:
    """A share as text: 0.9534 -> `95.3 %`."""
    return ABSENT if _absent(value) else f"{_plain(100 * value, digits)}{UNIT}"


def percent_spread(found: Summary, digits: int = 1) -> str:
    """Mean and sd of shares as text: `95.5 ± 0.4 %`, or the mean alone where there is no sd."""
    if _absent(found.sd):
        return percent(found.mean, digits)
    return f"{_plain(100 * found.mean, digits)} ± {percent(found.sd, digits)}"


def spread(found: Summary, digits: int = 3) -> str:
    """Mean and sd as text: `0.955 ± 0.004`, or the mean alone where there is no sd."""
    if _absent(found.sd):
        return number(found.mean, digits)
    return f"{number(found.mean, digits)} ± {number(found.sd, digits)}"


def points(value: float | None, digits: int = 1) -> str:
    """A difference of shares as text, in percentage points, signed: 0.012 -> `+1.2`."""
    return ABSENT if _absent(value) else _plain(100 * value, digits, sign="+")


def number(value: float | None, digits: int = 3) -> str:
    """0.95341 -> `0.953`."""
    return ABSENT if _absent(value) else _plain(value, digits)


def listing(items: Iterable[object], word: str = "and") -> str:
    """`a`, `a and b`, `a, b and c`."""
    words = [str(item) for item in items]
    return f" {word} ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def _absent(value: float | None) -> bool:
    return value is None or math.isnan(value)


def _plain(value: float, digits: int, sign: str = "") -> str:
    text = f"{value:{sign}.{digits}f}"
    if float(text) == 0:  # a change is not nothing because it is small
        seen = abs(value) >= 10 ** -(digits + 1)
        text = f"{value:{sign}.1g}" if seen else text.lstrip("+-")
    return text.replace("-", "−")


_ENVIRONMENT = Environment(  # captions are reST, not HTML: nothing to escape
    undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, autoescape=False
)
_ENVIRONMENT.filters |= {
    "percent": percent,
    "percent_spread": percent_spread,
    "spread": spread,
    "points": points,
    "number": number,
    "listing": listing,
}


def render(template: Path, numbers: Mapping[str, Any]) -> str:
    """The text of `template` with `numbers`: paragraphs, refilled to 98 columns.

    Raises RaptorError for a template that does not parse or asks for a number that is not there.
    """
    try:
        source = Path(template).read_text(encoding="utf-8")
        text = _ENVIRONMENT.from_string(source).render(**numbers)
    except (OSError, TemplateError) as error:
        raise RaptorError(f"{template}: no caption can be made of it ({error}); mend it") from None
    # Only plain white space: a no-break space stays where it is.
    paragraphs = (re.sub(r"[ \n]+", " ", block).strip(" ") for block in text.split("\n\n"))
    fill = textwrap.TextWrapper(98, break_long_words=False, break_on_hyphens=False).fill
    return "\n\n".join(fill(paragraph) for paragraph in paragraphs if paragraph) + "\n"


def write_caption(template: Path, numbers: Mapping[str, Any], output: Path) -> None:
    """`render` into `output`, whole or not at all."""
    text = render(template, numbers)
    with replacing(output) as temporary:
        temporary.write_text(text, encoding="utf-8")
