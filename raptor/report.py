"""The report: one page with every figure, table and caption of an experiment.

The page holds its pictures and its style, so it opens from any folder and asks nothing of the
network. It has no date: the same results give the same bytes.
"""

from __future__ import annotations

import base64
import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jinja2 import Environment, StrictUndefined, TemplateError
from markupsafe import Markup

from raptor.captions import listing, render
from raptor.errors import RaptorError
from raptor.figures.page import table_of
from raptor.figures.vocabulary import METHODS, label, term
from raptor.files import replacing

FIRST = "scorecard"  # what a reader wants before any detail
_SENTENCE = re.compile(r".*?[.?!](?=\s+[A-Z(]|$)|.*", re.S)  # `Fig. 5` ends none
_LEAD = re.compile(r"\s*<p><strong>(.*?)</strong>", re.S)
_IN_PAPER = re.compile(r"\(paper [^)\d]*(\d+)")


@dataclass(frozen=True)
class Entry:
    """One figure or printed table, ready for the template."""

    name: str  # of the target
    title: str
    lead: str  # what it shows, from the first words of the caption
    caption: Markup
    alt: str  # first sentence of the caption, for who does not see the picture
    data: str  # the table behind it, relative to the folder of the experiment
    place: float  # number of the figure or table in the paper
    picture: str = ""  # PNG as base64
    table: str = ""  # HTML


def write_report(
    *,
    figures: Sequence[Path],
    tables: Sequence[Path],
    experiment: Mapping[str, Any],
    front: Path,
    template: Path,
    output: Path,
) -> None:
    """Write the page `output` about these pictures (`.png`) and printed tables (`.html`).

    Each has its caption (`.rst`) beside it, and its table (`.csv`), which the page only names.
    The scorecard comes first, the rest in the order of the paper, what has no number there in
    the order given. `experiment`: `experiment` (its name), `data`, `teachers`, `students` as in
    the configuration, and `n_students`. `front`: the caption of the whole report, `template`:
    the page.
    """
    entries = sorted([*map(_figure, figures), *map(_table, tables)], key=_order)
    named = {"snakemake": {"config": {"experiment": experiment["experiment"]}}}
    numbers = {
        **experiment,
        "front": _html(render(front, named), front),
        "commits": _commits([*figures, *tables]),
        "entries": entries,
    }
    try:
        source = _text(template)
        page = _ENVIRONMENT.from_string(source).render(numbers)
    except TemplateError as error:
        raise RaptorError(f"{template}: no report can be made of it ({error}); mend it") from None
    with replacing(output) as temporary:
        temporary.write_text(page, encoding="utf-8")


_ENVIRONMENT = Environment(
    undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, autoescape=True
)
_ENVIRONMENT.filters |= {
    "listing": listing,
    "label": label,
    "method": lambda name: term(METHODS, name).label,
}


def _figure(path: Path) -> Entry:
    title = label(path.stem).capitalize()
    return _entry(path, title, picture=base64.b64encode(_bytes(path)).decode("ascii"))


def _table(path: Path) -> Entry:
    title = f"Table: {label(path.stem.removeprefix('table_'))}"
    return _entry(path, title, table=Markup(table_of(_text(path))))


def _entry(path: Path, title: str, **content: Any) -> Entry:
    caption = path.with_suffix(".rst")
    source = _text(caption)
    html = _html(source, caption)
    lead, place = _LEAD.match(html), _IN_PAPER.search(source)
    sentence = _SENTENCE.match(html.partition("</p>")[0].striptags())
    return Entry(
        name=path.stem,
        title=title,
        lead=Markup(lead.group(1)).striptags() if lead else "",
        caption=html,
        alt=sentence.group() if sentence else "",
        data=_data(path),
        place=int(place.group(1)) if place else math.inf,
        **content,
    )


def _data(path: Path) -> str:
    """The table behind `path`: beside it, or in tables/ where it serves more than the picture."""
    beside = path.with_suffix(".csv")
    for table in (beside, path.parent.parent / "tables" / beside.name):
        if table.exists():
            return f"{table.parent.name}/{table.name}"
    raise _missing(beside)


def _order(entry: Entry) -> tuple[bool, bool, float]:
    """The scorecard, figures, tables; within each as in the paper."""
    return entry.name != FIRST, bool(entry.table), entry.place


def _html(source: str, path: Path) -> Markup:
    """reST as HTML; a fault in it, which `docutils` would print into the page, is an error."""
    from docutils.core import publish_parts
    from docutils.utils import SystemMessage

    settings = {
        "_disable_config": True,  # the settings of whoever runs this are not ours
        "doctitle_xform": False,
        "file_insertion_enabled": False,
        "raw_enabled": False,
        "halt_level": 2,
        "warning_stream": False,
    }
    try:
        return Markup(publish_parts(source, writer="html5", settings_overrides=settings)["body"])
    except SystemMessage as error:
        raise RaptorError(f"{path}: not sound reST ({error}); mend its template") from None


def _commits(paths: Iterable[Path]) -> list[str]:
    """The commits of the code that drew these files, as the records beside them say."""
    found = set()
    for path in paths:
        for record in sorted(path.parent.glob(f"{path.stem}.*.provenance.json")):
            found.add(json.loads(_text(record)).get("git", "unknown"))
    return sorted(found) or ["unknown"]


def _text(path: Path) -> str:
    return _bytes(path).decode("utf-8")


def _bytes(path: Path) -> bytes:
    try:
        return Path(path).read_bytes()
    except FileNotFoundError:
        raise _missing(path) from None


def _missing(path: Path) -> RaptorError:
    return RaptorError(
        f"{path}: missing, and the report needs it; run `make report`, which makes it"
    )
