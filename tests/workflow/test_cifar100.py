"""The paper's small-scale study: all of it is there, and a dry run needs no data."""

from pathlib import Path

from raptor.config.load import load_yaml
from raptor.scorecard.thresholds import PARTITIONS, SEEDS
from raptor.targets import DENSE, FIGURES, PRINTED, covered, students_like

CONFIG = "config/cifar100.yaml"
STUDY = load_yaml(Path(__file__).parents[2] / CONFIG)
# The paper's dense probes are of foundation models, on other images.
SMALL_SCALE = [target for target in (*FIGURES, *PRINTED) if target not in DENSE]


def test_a_dry_run_draws_every_figure(new_checkout):
    planned = new_checkout().planned("--configfile", CONFIG)
    assert {*SMALL_SCALE, "dynamics", "branches", "cost"} < set(planned)
    assert covered(STUDY, (*FIGURES, *PRINTED)) == SMALL_SCALE
    assert planned["checkpoint_teacher"] == 6


def test_what_the_claims_need():
    """Ten rates, and enough seeds and partitions of whatever is compared."""
    depth, overfitting = STUDY.figures.stochastic_depth, STUDY.figures.overfitting
    rates = {STUDY.origin(name).stochastic_depth for name in depth.teachers}
    assert sorted(rates) == [n / 10 for n in range(10)]
    compared = [
        students_like(STUDY, depth.teachers, [depth.recipe], "maxcut", 3),
        students_like(STUDY, overfitting.teachers, [overfitting.recipe], "maxcut", 3),
    ] + [
        students_like(STUDY, [one.teacher], [recipe], "maxcut", 3)
        for one in (STUDY.figures.training_paradigms, STUDY.figures.table_ablations)
        for recipe in one.recipes
    ]
    assert all(len(some) >= SEEDS for found in compared for some in found.values())
    for method, least in (
        ("random", PARTITIONS),
        ("random_scattered", PARTITIONS),
        ("maxcut", SEEDS),
    ):
        for k in (2, 3, 4):
            found = students_like(STUDY, ["p00"], ["phase_mean"], method, k)
            assert len(found["p00"]) >= least
