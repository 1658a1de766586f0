"""The paper's main experiment, job by job: Tables 1 to 3, and a dry run that needs nothing."""

from __future__ import annotations

import re
from pathlib import Path

from raptor.config.load import load_yaml
from raptor.targets import student_jobs

CONFIG = "config/dinov2.yaml"
STUDY = load_yaml(Path(__file__).parents[2] / CONFIG)
SEEDS = range(3)


def test_the_students_are_those_of_tables_1_and_2():
    trained = {(job.teacher, *student) for job in student_jobs(STUDY) for student in job.students}
    table_2 = {("vitb14", "paper", "maxcut", k, seed) for k in (2, 3, 4) for seed in SEEDS}
    ablations = ("teacher_forcing", "annealed", "depth_scaled", "cls_weighted")
    table_1 = {("vitb14", recipe, "maxcut", 3, seed) for recipe in ablations for seed in SEEDS}
    assert trained == table_2 | table_1


def test_recipes_are_the_papers():
    """Method 4 and 5: steps, rates, weights; each step of Table 1 adds one thing."""
    recipes = {name: STUDY.recipes[name] for name in STUDY.figures.table_ablations.recipes}
    assert [len(recipe.ingredients) for recipe in recipes.values()] == [0, 1, 2, 3, 4]
    paper = recipes["paper"]
    for stage, weights in (
        (paper.stage1, (0.34, 0.33, 0.33)),
        (paper.stage2, (0.45, 0.10, 0.45)),
    ):
        assert (stage.steps, stage.batch_size) == (20 * 1_000_000 // 64, 64)
        assert (stage.lr, stage.min_lr, stage.warmup_steps) == (3e-4, 1e-6, 10_000)
        assert (stage.weight_decay, stage.clip_norm) == (1e-4, 1.0)
        given = stage.token_weights
        assert (given.cls, given.registers, given.patches) == weights
    assert STUDY.data.splits.train == 1_000_000


def test_a_dry_run_names_every_job(new_checkout):
    done = new_checkout().snakemake("-n", "--configfile", CONFIG)
    listed = re.findall(r"Missing output files: ([^;\n]*)", done.stdout + done.stderr)
    for study, parts in (("fidelity", 9), ("ablations", 12)):
        for part in range(1, parts + 1):
            for folder in ("raptor", "probes"):
                assert any(f"{folder}/vitb14/{study}-{part}." in line for line in listed)
    cuts = [line for line in listed if "results/dinov2/partitions/vitb14/" in line]
    for k in (2, 3, 4):  # Table 3, as published and by the optimum
        for method in ("maxcut", "maxcut_exact"):
            assert any(f"vitb14/{method}-k{k}.csv" in line for line in cuts)
    shown = ("similarity_matrices", "maxcut_partitions", "fidelity_by_k", "angular_speed")
    shown += ("directional_convergence", "low_rank_updates", "dmd_spectrum", "layer_swaps")
    for name in shown:
        assert any(f"figures/{name}.png" in line for line in listed)
    for name in ("table_ablations", "table_probes", "table_partitions"):
        assert any(f"tables/{name}.html" in line for line in listed)
