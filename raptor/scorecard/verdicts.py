"""From estimates to a verdict: one rule for every claim."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

SUPPORTED, CONTRADICTED, INCONCLUSIVE, NOT_TESTED = (
    "supported",
    "contradicted",
    "inconclusive",
    "not tested",
)
VERDICTS = (SUPPORTED, CONTRADICTED, INCONCLUSIVE, NOT_TESTED)
SEVERITY = (SUPPORTED, INCONCLUSIVE, CONTRADICTED)  # of the parts of a claim, the weakest last


class NotTested(Exception):
    """A claim that these results cannot test; the message is the reason, a clause."""


class Estimate(NamedTuple):
    """A value and its 95 % interval; an end without a bound is infinite."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Part:
    """What one part of a claim says: that `estimate` lies above (or below) `threshold`."""

    name: str
    estimate: Estimate
    threshold: float = 0.0
    above: bool = True
    unit: str = ""  # "%" or "points": how a share is written

    @property
    def margin(self) -> Estimate:
        """The estimate measured from the threshold, positive on the claimed side."""
        value, low, high = (end - self.threshold for end in self.estimate)
        return Estimate(value, low, high) if self.above else Estimate(-value, -high, -low)

    @property
    def verdict(self) -> str:
        """The interval lies wholly on one side of the threshold, or does not."""
        _, low, high = self.margin
        return SUPPORTED if low > 0 else CONTRADICTED if high < 0 else INCONCLUSIVE

    @property
    def weakness(self) -> tuple[int, float]:
        """Larger for a part that supports its claim less."""
        value, low, high = self.margin
        half = (high - low) / 2
        if half == 0:  # exact: sure, and the nearer to its threshold the weaker
            distance = 1e9 * value / (abs(self.threshold) or 1.0)
        else:
            distance = 0.0 if math.isinf(half) else value / half
        return SEVERITY.index(self.verdict), -distance

    def __str__(self) -> str:
        value, low, high, threshold = map(self._text, (*self.estimate, self.threshold))
        exact = self.estimate.low == self.estimate.high
        interval = "" if exact else f"95 % CI {low} to {high}, "
        unit = f" {self.unit}" if self.unit else ""
        side = "above" if self.above else "below"
        return f"{self.name} {value}{unit} ({interval}claimed {side} {threshold}{unit})"

    def _text(self, number: float) -> str:
        if math.isinf(number):
            return "−∞" if number < 0 else "∞"
        text = f"{100 * number:.1f}" if self.unit else f"{number:.3g}"
        return text.replace("-", "−")


def joined(one: Estimate, other: Estimate) -> Estimate:
    """The value of the first with an interval that holds both: sure only where both are."""
    return Estimate(one.value, min(one.low, other.low), max(one.high, other.high))


class Finding(NamedTuple):
    """The parts of a claim, how they were tested, and what `n` counts."""

    test: str
    parts: tuple[Part, ...]
    n: int
    counts: str
    note: str = ""


class Row(NamedTuple):
    """What the scorecard says of a claim."""

    effect: float
    ci_low: float
    ci_high: float
    n: int
    verdict: str
    reason: str


def judge(finding: Finding) -> Row:
    """The verdict of the weakest part, whose margin is the effect; every part is in the reason.

    NotTested where an estimate is not defined.
    """
    for part in finding.parts:
        if any(map(math.isnan, part.estimate)):
            raise NotTested(f"{part.name} is not defined in these results")
    weakest = max(finding.parts, key=lambda part: part.weakness)
    several = len(finding.parts) > 1
    told = [f"{part}: {part.verdict}" if several else str(part) for part in finding.parts]
    reason = f"{finding.test}: {'; '.join(told)}; n counts {finding.counts}"
    reason += f"; {finding.note}." if finding.note else "."
    return Row(*weakest.margin, finding.n, weakest.verdict, reason[0].upper() + reason[1:])


def not_tested(why: NotTested) -> Row:
    nan = float("nan")
    reason = f"{why}."
    return Row(nan, nan, nan, 0, NOT_TESTED, reason[0].upper() + reason[1:])
