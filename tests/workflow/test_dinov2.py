"""The paper's main experiment, job by job: Tables 1 to 3, and a dry run that needs nothing."""

from __future__ import annotations

import re
from pathlib import Path

from raptor.config.load import load_yaml
from raptor.student import Student
from raptor.targets import dense_jobs, student_jobs

CONFIG = "config/dinov2.yaml"
STUDY = load_yaml(Path(__file__).parents[2] / CONFIG)
SEEDS = range(3)


def test_the_students_are_those_of_tables_1_and_2():
    trained = {(job.teacher, *student) for job in student_jobs(STUDY) for student in job.students}
    table_2 = {("vitb14", "paper", "maxcut", k, seed) for k in (2, 3, 4) for seed in SEEDS}
    ablations = ("teacher_forcing", "annealed", "depth_scaled", "cls_weighted")
    table_1 = {("vitb14", recipe, "maxcut", 3, seed) for recipe in ablations for seed in SEEDS}
    assert trained == table_2 | table_1


def test_table_2_has_every_probe_of_teacher_smaller_teacher_and_each_raptor():
    """Its grid: ADE20K and NYUv2 beside ImageNet, k = 2, 3, 4 in three seeds, ViT-B and ViT-S."""
    students = [Student("paper", "maxcut", k, seed) for k in (2, 3, 4) for seed in SEEDS]
    models = {("vitb14", student) for student in (None, *students)}
    models |= {("vits14", None), ("untrained", None)}
    probed = {(job.task, job.teacher, *job.models) for job in dense_jobs(STUDY)}
    assert probed == {(task, *model) for task in ("segmentation", "depth") for model in models}
    assert STUDY.figures.fidelity_by_k.reference == "vits14"  # its ImageNet probe
    segmentation, depth = STUDY.dense.segmentation, STUDY.dense.depth
    assert (segmentation.source, depth.source) == ("ade20k", "nyuv2")
    assert (segmentation.image_size, segmentation.epochs, segmentation.batch_size) == (518, 10, 32)
    assert (segmentation.lr, segmentation.weight_decay) == (1e-3, 1e-2)
    assert (depth.image_size, depth.epochs, depth.batch_size) == ([480, 640], 25, 128)
    assert (depth.lr, depth.weight_decay) == (1e-3, 1e-3)
    assert (depth.bins, depth.min_m, depth.max_m, depth.crop) == (256, 0.001, 10.0, "eigen")
    assert (depth.si_log_weight, depth.si_log_lambda) == (10.0, 0.85)
    classification = STUDY.probes.classification
    assert (classification.epochs, classification.batch_size) == (15, 512)
    assert (classification.lr, classification.weight_decay) == (1e-4, 1e-2)
    assert (classification.warmup_steps, classification.crops) == (100, "random")


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
    for task in ("segmentation", "depth"):
        wanted = [f"dense/{job.path}.csv" for job in dense_jobs(STUDY) if job.task == task]
        assert len(wanted) == 12
        for path in wanted:
            assert any(path in line for line in listed)
        assert any(f"figures/{task}_panels.png" in line for line in listed)
    cuts = [line for line in listed if "results/dinov2/partitions/vitb14/" in line]
    for k in (2, 3, 4):  # Table 3, as published and by the optimum
        for method in ("maxcut", "maxcut_exact"):
            assert any(f"vitb14/{method}-k{k}.csv" in line for line in cuts)
    shown = ("similarity_matrices", "maxcut_partitions", "fidelity_by_k", "angular_speed")
    shown += ("directional_convergence", "low_rank_updates", "dmd_spectrum", "layer_swaps")
    for name in shown:
        assert any(f"figures/{name}.png" in line for line in listed)
    for name in ("table_ablations", "table_probes", "table_dense", "table_partitions"):
        assert any(f"tables/{name}.html" in line for line in listed)
