"""The scorecard: what this run says about each of the paper's 18 claims, and how surely.

One rule for all: an effect with a 95 % interval is `supported` when the interval lies wholly on
the claimed side of a threshold, `contradicted` when it lies wholly on the other, else
`inconclusive`; without the tables or the numbers that a test needs a claim is `not tested`. A
claim of several parts is as good as its weakest. `raptor.scorecard.thresholds` has every number
that decides.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pandas as pd

from raptor.scorecard.claims import CLAIMS
from raptor.scorecard.evidence import Evidence, read_evidence
from raptor.scorecard.verdicts import NotTested, judge, not_tested
from raptor.tables.files import write_table

COLUMNS = "claim title paper effect ci_low ci_high n verdict reason"


def scorecard(
    *,
    teacher: str,
    untrained: str | None,
    recipe: str,
    k: int,
    min_size: int,
    measure: str,
    matrices: Sequence[Path],
    tables: Mapping[str, Path | Sequence[Path] | None],
    output: Path,
) -> None:
    """Judge every claim on what `teacher` and its Raptors of `recipe` show; 18 rows, COLUMNS.

    `effect`, `ci_low`, `ci_high`: distance from the threshold in the unit of the test, positive
    on the claimed side, of the part that decides; empty where not tested. `n` counts what
    `reason` names. `untrained`: the same architecture without training. `k`, `min_size`,
    `measure`: of the phases. `matrices`: `similarity/<teacher>.npz` of both. `tables`: those of
    `raptor.scorecard.evidence.TABLES` that the run has.
    """
    evidence = read_evidence(
        teacher=teacher,
        untrained=untrained,
        recipe=recipe,
        k=k,
        min_size=min_size,
        measure=measure,
        matrices=matrices,
        tables=tables,
    )
    write_table(score(evidence), output)


def score(evidence: Evidence) -> pd.DataFrame:
    """One row per claim, in the paper's order."""
    rows = []
    for number, claim in enumerate(CLAIMS, start=1):
        try:
            row = judge(claim.test(evidence))
        except NotTested as why:
            row = not_tested(why)
        rows.append((number, claim.title, claim.paper, *row))
    return pd.DataFrame(rows, columns=COLUMNS.split())
