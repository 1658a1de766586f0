"""From one tidy table to one picture, or one printed table, and its caption; no torch.

Each figure is a module `raptor.figures.<target>` with `draw(table, settings) -> Figure` and
`numbers(table) -> dict` for the caption; each printed table one with `rows(table) -> DataFrame`
of text and `numbers`.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def draw(
    *,
    target: str,
    table: Path,
    settings: Mapping[str, Any],
    palette: str,
    template: Path,
    pdf: Path,
    png: Path,
    caption: Path,
    examples: Path | None = None,
) -> None:
    """Draw figure `target` from its `table` alone; the same table gives the same bytes.

    `settings`: the entry of the figure in the configuration (`raptor.config.figures`).
    `examples`: the images of a figure that shows some (`raptor.qualitative`).
    """
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    from raptor.captions import write_caption
    from raptor.figures.style import style
    from raptor.files import replacing
    from raptor.qualitative import Examples
    from raptor.tables.files import read_table

    module = importlib.import_module(f"raptor.figures.{target}")
    data = read_table(table)
    shown = {} if examples is None else {"examples": Examples.load(examples)}
    with style(palette):
        figure = module.draw(data, settings, **shown)
        try:
            figure.draw_without_rendering()  # lays out once, the slow part, for both files
            figure.set_layout_engine("none")
            with replacing(pdf) as temporary:  # a date would make every file another one
                figure.savefig(temporary, format="pdf", metadata={"CreationDate": None})
            with replacing(png) as temporary:
                figure.savefig(
                    temporary, format="png", dpi=settings["dpi"], metadata={"Software": None}
                )
        finally:
            plt.close(figure)
    write_caption(template, module.numbers(data), caption)


def print_table(*, target: str, table: Path, template: Path, html: Path, caption: Path) -> None:
    """Print table `target` as a page of its own, for the report, from its `table` alone."""
    from raptor.captions import write_caption
    from raptor.figures.page import page
    from raptor.files import replacing
    from raptor.tables.files import read_table

    module = importlib.import_module(f"raptor.figures.{target}")
    data = read_table(table)
    with replacing(html) as temporary:
        temporary.write_text(page(module.rows(data)), encoding="utf-8")
    write_caption(template, module.numbers(data), caption)
