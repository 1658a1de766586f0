"""What two probes, of a teacher and of its Raptor, say: the depth of each pixel of some images."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from raptor.figures import dense_panels
from raptor.qualitative import Examples


def draw(_table: pd.DataFrame, settings: Mapping[str, Any], examples: Examples) -> Figure:
    """See `dense_panels.draw`; the table has what is written below the panels."""
    return dense_panels.draw(examples, settings)


def numbers(table: pd.DataFrame) -> dict[str, Any]:
    """See `dense_panels.numbers`."""
    return dense_panels.numbers(table, "rmse_m")
