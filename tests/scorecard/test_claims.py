"""Each claim on planted tables: true, false, noisy, absent; and the table that comes out."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import planted
import pytest
from planted import FALSE, NOISY, TRUE, evidence

from raptor.contrast import block_contrast
from raptor.errors import RaptorError
from raptor.partition import partition
from raptor.scorecard import COLUMNS, score, scorecard
from raptor.scorecard.claims import CLAIMS
from raptor.scorecard.intervals import contiguous_partitions, placement
from raptor.scorecard.tidy import TABLES
from raptor.scorecard.verdicts import VERDICTS, Estimate, Finding, NotTested, Part, judge

ROOT = Path(__file__).parents[2]
PUBLISHED = ROOT.parent / "shared/data/dinov2_vitb14_reg_cosine_distance.csv"
BY_NAME = {claim.test.__name__: claim for claim in CLAIMS}
NAMES = [build.__name__ for build in planted.CLAIMS]


def verdict(name: str, given) -> str:
    return judge(BY_NAME[name].test(given)).verdict


def not_tested(name: str, given, match: str) -> None:
    with pytest.raises(NotTested, match=match):
        BY_NAME[name].test(given)


def test_the_claims_stand_in_the_papers_order():
    assert list(BY_NAME) == NAMES
    assert len(CLAIMS) == 18


@pytest.mark.parametrize("build", planted.CLAIMS, ids=NAMES)
@pytest.mark.parametrize(
    ("kind", "expected"),
    [(TRUE, "supported"), (FALSE, "contradicted"), (NOISY, "inconclusive")],
)
def test_planted(build, kind, expected):
    if kind == NOISY and build is planted.cost_is_k_over_depth:
        pytest.skip("counted exactly: never inconclusive")
    row = judge(BY_NAME[build.__name__].test(build(kind)))
    assert row.verdict == expected, row.reason
    assert row.ci_low <= row.effect <= row.ci_high
    assert row.n > 0
    assert "n counts" in row.reason
    assert row.reason.endswith(".")
    # The effect is measured from the threshold: the verdict can be read off the interval.
    sides = {"supported": row.ci_low > 0, "contradicted": row.ci_high < 0}
    assert sides.get(expected, row.ci_low <= 0 <= row.ci_high)


@pytest.mark.parametrize("name", NAMES)
def test_without_tables_nothing_is_assumed(name):
    not_tested(name, evidence(), "there is no")


@pytest.mark.parametrize("build", planted.CLAIMS, ids=NAMES)
def test_of_another_teacher_nothing_is_told(build):
    """The tables of several teachers are kept apart."""
    if build in (planted.cost_is_k_over_depth, planted.overfitting_lowers_r2,
                 planted.stochastic_depth_helps):  # fmt: skip
        pytest.skip("about several teachers, or none by name")
    not_tested(build.__name__, replace(build(TRUE), teacher="other"), "other")


# --- what is too little --------------------------------------------------------------------------


def test_too_few_units():
    not_tested("maxcut_beats_random", planted.maxcut_beats_random(TRUE, draws=9), "9 distinct")
    not_tested("maxcut_beats_random", planted.maxcut_beats_random(TRUE, seeds=2), "2 Max-Cut")
    not_tested(
        "accuracy_is_kept", planted.accuracy_is_kept(TRUE, seeds=2), "students with k = 2: 2"
    )
    few = evidence(ablations=planted.ablations((0.1, 0.8), seeds=2), teachers=planted.PROBE)
    not_tested("forcing_collapses", few, "too few seeds with .* alone: 2")
    short = evidence(ablations=planted.ablations((0.1, 0.7, 0.8)), teachers=planted.PROBE)
    not_tested("each_step_helps", short, "adds token weights")
    two = planted.stochastic_depth_helps(TRUE, rates=(0.0, 0.2))
    not_tested("stochastic_depth_helps", two, "2 rates")
    not_tested("speed_jumps", planted.moving(n=9), "9 images")


def test_a_partition_drawn_twice_is_one_partition():
    given = planted.maxcut_beats_random(TRUE, draws=10)
    cuts = given.tables["partitions"]
    twice = cuts.assign(labels=[cuts["labels"][0], *cuts["labels"][:-1]])
    tables = {**given.tables, "partitions": twice}
    not_tested("maxcut_beats_random", replace(given, tables=tables), "9 distinct")


def test_fewer_than_ten_partitions_do_not_test_it_even_if_there_are_no_more():
    """Twelve layers fall into two segments of two layers or more in nine ways."""
    given = replace(planted.maxcut_beats_random(TRUE, draws=9, k=2), min_size=2)
    not_tested("maxcut_beats_random", given, "9 distinct random partitions of 9, at least 10")


def test_one_k_that_cannot_be_judged_is_left_out_and_named():
    given, more = planted.maxcut_beats_random(TRUE), planted.maxcut_beats_random(TRUE, draws=5, k=2)
    tables = {name: pd.concat([given.tables[name], more.tables[name]]) for name in given.tables}
    row = judge(BY_NAME["maxcut_beats_random"].test(replace(given, tables=tables)))
    assert row.verdict == "supported"
    assert row.n == 14
    assert "left out: k = 2: 5 distinct random partitions" in row.reason


def test_few_rates_of_stochastic_depth_cannot_be_significant():
    rates = (0.0, 0.1, 0.2, 0.3, 0.4)
    given = planted.stochastic_depth_helps(TRUE, rates=rates)
    assert verdict("stochastic_depth_helps", given) == "supported"
    few = planted.stochastic_depth_helps(TRUE, rates=rates[:4])
    not_tested("stochastic_depth_helps", few, "at least 5")


def test_a_teacher_that_does_not_overfit_does_not_test_overfitting():
    not_tested("overfitting_lowers_r2", planted.overfitting_lowers_r2(TRUE, 0.92), "2.2 % above")


def test_no_registers_no_claim_about_them():
    given = planted.registers_move_slowly(TRUE)
    table = given.tables["images"]
    tables = {**given.tables, "images": table[table["tokens"] != "registers"]}
    not_tested("registers_move_slowly", replace(given, tables=tables), "no registers")


# --- traps: true by construction, or true of something else --------------------------------------


def test_near_layers_being_alike_makes_no_blocks():
    """The plain contrast of a matrix that depends on distance alone is large; claim 1 is not."""
    distance = planted.toeplitz()
    labels = partition(distance, 3, min_size=1).labels
    assert block_contrast(-distance, labels, matched=False) > 0.1
    assert block_contrast(-distance, labels, matched=True) == pytest.approx(0, abs=1e-12)
    given = planted.similar(planted.resampled(distance, 0.01, 3))
    assert verdict("blocks", given) != "supported"


def test_states_that_only_move_further_are_no_phases_made_by_training():
    far, near = (planted.resampled(planted.toeplitz(step), 0.01, 5) for step in (0.08, 0.01))
    finding = BY_NAME["training_makes_phases"].test(planted.similar(far, near))
    plain, matched = finding.parts
    assert plain.verdict == "supported"
    assert matched.verdict == "inconclusive"


def test_an_uneven_speed_is_no_jump_at_the_boundaries():
    """Late layers move faster, and so does one boundary of two: other places do as well."""
    speed = 0.3 + 0.5 * (planted.LAYERS >= 8)
    finding = BY_NAME["speed_jumps"].test(planted.moving(speed={"all": speed}))
    by_image, placed, steady = finding.parts
    assert by_image.verdict == "supported"
    assert placed.verdict == "inconclusive"
    assert steady.verdict == "contradicted"


def test_a_jump_holds_only_where_both_ways_to_cut_find_it():
    given = planted.speed_jumps(TRUE)
    cut = given.tables["partitions"]
    apart = tuple(min(label + 1, 3) if place in (3, 4) else label
                  for place, label in enumerate(planted.LABELS))  # fmt: skip
    other = planted.cuts(apart, method="maxcut_exact")
    both = replace(given, tables=given.tables | {"partitions": pd.concat([cut, other])})
    alone, joint = (BY_NAME["speed_jumps"].test(one).parts for one in (given, both))
    assert [part.verdict for part in alone] == ["supported"] * 3
    assert joint[0].estimate.value == alone[0].estimate.value
    assert joint[0].estimate.low < alone[0].estimate.low
    assert joint[1].verdict == "inconclusive"


def test_the_dearest_layers_are_named():
    given = planted.swaps_inside_are_harmless(TRUE)
    table = given.tables["swaps"]
    alone = (table["kind"] == "intra") & (table["size"] == 1)
    first = table.loc[alone, "targets"].iloc[0]
    dear = table.assign(drop=table["drop"].where(~(alone & (table["targets"] == first)), 0.5))
    note = BY_NAME["swaps_inside_are_harmless"].test(evidence(swaps=dear)).note
    assert f"replacing layer {str(first).strip('[]')} costs 50.0 points" in note


def test_swaps_that_reach_further_are_not_compared_with_near_ones():
    given = planted.swaps_inside_are_harmless(TRUE)
    table = given.tables["swaps"]
    by_distance = table.assign(drop=0.02 * table["distance"])
    row = judge(BY_NAME["swaps_inside_are_harmless"].test(evidence(swaps=by_distance)))
    assert row.verdict == "inconclusive"
    assert row.effect == pytest.approx(0, abs=1e-12)


def test_every_eigenvalue_must_lie_inside():
    table = planted.modes_are_stable(TRUE).tables["dmd"]
    outside = table["spectral_radius"].where(table.index > 1, 1.02)
    given = evidence(dmd=table.assign(spectral_radius=outside))
    assert verdict("modes_are_stable", given) == "inconclusive"


def test_parameters_must_be_k_over_depth_too():
    table = planted.cost_is_k_over_depth(TRUE).tables["cost"]
    whole = table.assign(parameters=table["parameters"] + 2000)  # an embedding shared by all
    assert verdict("cost_is_k_over_depth", evidence(cost=whole)) == "contradicted"
    own = whole.assign(blocks_parameters=table["parameters"])
    assert verdict("cost_is_k_over_depth", evidence(cost=own)) == "supported"


@pytest.mark.skipif(not PUBLISHED.exists(), reason="the published matrix is not here")
def test_the_published_dinov2_matrix_has_blocks():
    """Its k = 3 phases have more contrast than all 27 other partitions with two layers or more."""
    distance = pd.read_csv(PUBLISHED, index_col=0).to_numpy()
    labels = partition(distance, 3, min_size=2).labels
    others = [
        float(block_contrast(-distance, other, matched=True))
        for other in contiguous_partitions(12, 3, 2)
        if other != labels
    ]
    assert len(others) == 27
    assert placement(float(block_contrast(-distance, labels, matched=True)), others).low > 0


# --- the rule ------------------------------------------------------------------------------------


def part(low: float, high: float, **more) -> Part:
    return Part("x", Estimate((low + high) / 2, low, high), **more)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (part(0.1, 0.2), "supported"),
        (part(-0.2, -0.1), "contradicted"),
        (part(-0.1, 0.1), "inconclusive"),
        (part(0.0, 0.0), "inconclusive"),  # no effect at all is on neither side
        (part(1.1, 1.2, threshold=1.0), "supported"),
        (part(0.9, 1.2, threshold=1.0), "inconclusive"),
        (part(0.1, 0.2, threshold=1.0, above=False), "supported"),
        (part(1.1, 1.2, threshold=1.0, above=False), "contradicted"),
        (Part("x", Estimate(1.0, 0.5, np.inf)), "supported"),
    ],
)
def test_the_interval_decides(given, expected):
    assert given.verdict == expected


def test_a_claim_is_as_good_as_its_weakest_part():
    strong, weak, wrong = part(1.0, 2.0), part(-0.1, 0.3), part(-0.3, -0.2)
    assert judge(Finding("t", (strong, weak), 5, "things")).verdict == "inconclusive"
    row = judge(Finding("t", (wrong, weak, strong), 5, "things"))
    assert row.verdict == "contradicted"
    assert (row.effect, row.ci_low, row.ci_high) == (-0.25, -0.3, -0.2)
    assert row.reason.count("claimed above 0") == 3
    nearer = part(0.1, 2.0)
    assert judge(Finding("t", (strong, nearer), 5, "things")).ci_low == 0.1
    with pytest.raises(NotTested, match="x is not defined"):
        judge(Finding("t", (strong, part(np.nan, np.nan)), 5, "things"))


# --- the table -----------------------------------------------------------------------------------


def files(folder: Path) -> dict:
    """Evidence of some claims as files, and the arguments that name them."""
    trained, bare = planted.resampled(planted.phases(), 0.01, 0), planted.resampled(
        planted.toeplitz(0.01), 0.01, 1
    )  # fmt: skip
    given = planted.similar(trained, bare)
    for name, (distance, resamples) in given.distances.items():
        np.savez(folder / f"{name}.npz", cosine=1 - distance, cosine_bootstrap=1 - resamples)
    tables = dict(given.tables) | dict(planted.speed_jumps(TRUE).tables)
    tables |= dict(planted.swaps_inside_are_harmless(FALSE).tables)
    tables["partitions"] = given.tables["partitions"]
    paths = dict.fromkeys(TABLES)
    for name, table in tables.items():
        paths[name] = folder / f"{name}.csv"
        table.to_csv(paths[name], index=False)
    paths["partitions"] = [paths["partitions"]]
    subject = {"teacher": "vit", "untrained": "bare", "recipe": "r", "k": 3, "min_size": 1}
    matrices = [folder / "vit.npz", folder / "bare.npz"]
    return subject | {"measure": "cosine", "matrices": matrices, "tables": paths}


def test_the_table(tmp_path):
    arguments = files(tmp_path)
    scorecard(**arguments, output=tmp_path / "a.csv")
    header = (tmp_path / "a.csv").read_text().splitlines()[0]
    assert header == "claim,title,paper,effect,ci_low,ci_high,n,verdict,reason"
    table = pd.read_csv(tmp_path / "a.csv")
    assert table["claim"].tolist() == list(range(1, 19))
    assert set(table["verdict"]) <= set(VERDICTS)
    assert table.loc[[0, 7], "verdict"].tolist() == ["supported", "supported"]
    assert table.loc[15, "verdict"] == "contradicted"
    untested = table["verdict"] == "not tested"
    assert table.loc[untested, ["effect", "ci_low", "ci_high"]].isna().all(axis=None)
    assert (table.loc[untested, "n"] == 0).all()
    assert table.loc[~untested, "effect"].notna().all()
    assert table[["title", "paper", "reason"]].notna().all(axis=None)


def test_the_same_inputs_give_the_same_bytes_without_torch(tmp_path):
    scorecard(**files(tmp_path), output=tmp_path / "a.csv")
    code = (
        "import sys, pathlib; sys.path.insert(0, sys.argv[1])\n"
        "from test_claims import files\n"
        "from raptor.scorecard import scorecard\n"
        "folder = pathlib.Path(sys.argv[2]); folder.mkdir()\n"
        "scorecard(**files(folder), output=folder / 'a.csv')\n"
        "assert 'torch' not in sys.modules\n"
    )
    again = tmp_path / "again"
    subprocess.run(
        [sys.executable, "-c", code, str(Path(__file__).parent), str(again)],
        check=True,
        env={**os.environ, "PYTHONHASHSEED": "7", "PYTHONPATH": str(ROOT)},
    )
    assert (tmp_path / "a.csv").read_bytes() == (again / "a.csv").read_bytes()


def test_nothing_at_all_gives_18_rows_not_tested():
    table = score(evidence())
    assert list(table) == COLUMNS.split()
    assert (table["verdict"] == "not tested").all()


def test_a_table_without_its_columns_is_named(tmp_path):
    (tmp_path / "swaps.csv").write_text("teacher,size\nvit,1\n")
    arguments = files(tmp_path)
    (tmp_path / "swaps.csv").write_text("teacher,size\nvit,1\n")
    with pytest.raises(RaptorError, match=r"swaps\.csv: has no column kind"):
        scorecard(**arguments, output=tmp_path / "a.csv")


def test_blocks_that_depend_on_how_the_cut_is_searched_for_decide_nothing():
    """Planted phases by the exact optimum, others by bisection: the intervals are joined."""
    given = planted.blocks(TRUE)
    table = given.tables["partitions"]
    other = str([1, *[2] * (planted.DEPTH - 2), 3])
    assert verdict("blocks", given) == "supported"
    both = pd.concat([table.assign(labels=other), table.assign(method="maxcut_exact")])
    row = judge(BY_NAME["blocks"].test(replace(given, tables={**given.tables, "partitions": both})))
    assert row.verdict == "inconclusive"
    assert "the two ways to cut differ" in row.reason
