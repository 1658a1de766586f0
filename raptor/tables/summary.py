"""Mean, spread and confidence interval: the one definition behind every table and error bar."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd
from scipy.special import stdtrit

CONFIDENCE = 0.95


class Summary(NamedTuple):
    """`sd` is the sample standard deviation (ddof = 1); NaN, like the interval, where n < 2."""

    n: int
    mean: float
    sd: float
    ci_low: float
    ci_high: float


def summarise(values: Iterable[float]) -> Summary:
    """Of the values that are not NaN; the interval is the 95 % t interval of the mean."""
    array = np.asarray(list(values), dtype=float)
    array = array[~np.isnan(array)]
    n = len(array)
    mean = float(array.mean()) if n else float("nan")
    if n < 2:
        return Summary(n, mean, *[float("nan")] * 3)
    sd = float(array.std(ddof=1))
    half = float(stdtrit(n - 1, (1 + CONFIDENCE) / 2)) * sd / n**0.5
    return Summary(n, mean, sd, mean - half, mean + half)


def summarise_by(table: pd.DataFrame, by: Sequence[str], value: str) -> pd.DataFrame:
    """One row per group, in order of first appearance: `by`, then the fields of Summary."""
    rows = [[*key, *summarise(group)] for key, group in table.groupby(list(by), sort=False)[value]]
    return pd.DataFrame(rows, columns=[*by, *Summary._fields])


def sigmas(value: float, reference: Summary) -> float:
    """How many standard deviations of `reference` its mean lies below `value`; NaN if sd is 0."""
    return (value - reference.mean) / reference.sd if reference.sd > 0 else float("nan")
