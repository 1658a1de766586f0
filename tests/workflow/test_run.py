"""The workflow as a user runs it: targets, reruns, bad input, interruptions."""

from __future__ import annotations

import io
import os
import random
import shutil
import signal
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import pytest
from checkout import edited_config, tables
from PIL import Image

from raptor.config.load import load_yaml
from raptor.config.teachers import TrainedTeacher
from raptor.targets import dense_jobs, student_jobs

ROOT = Path(__file__).parents[2]
SMOKE = ("--configfile", "config/smoke.yaml")
IMPORT = "from __future__ import annotations\n"


def drawn(*targets: str) -> set[str]:
    """The rules that gather and draw these targets."""
    return {f"{target}_data" for target in targets} | set(targets)


SCORED = drawn("scorecard")  # from nearly every table
SWAPPED = drawn("layer_swaps") | SCORED
PROBED = {"fidelity", "layers"} | drawn("fidelity_by_k", "table_probes", "saturation") | SCORED
COMPARED, CURVES = drawn("partition_comparison"), drawn("training_curves")
CUT = drawn("similarity_matrices", "maxcut_partitions", "table_partitions") | SCORED
ALONG = drawn("stochastic_depth", "overfitting") | SCORED
RECIPES = drawn("training_paradigms", "table_ablations") | SCORED
BRANCHED, COST = drawn("branch_similarity"), {"cost"} | drawn("table_cost") | SCORED
DYNAMICS = drawn(
    "directional_convergence",
    "angular_speed",
    "low_rank_updates",
    "dmd_spectrum",
    "perturbation",
)
PANELS = drawn("segmentation_panels", "depth_panels")
DENSE = drawn("table_dense") | PANELS
SMOKE_CONFIG = load_yaml(ROOT / "config/smoke.yaml")
TEACHERS = list(SMOKE_CONFIG.teachers)
TRAINED = sum(isinstance(spec, TrainedTeacher) for spec in SMOKE_CONFIG.teachers.values())


def student_rules(teachers=TEACHERS, recipes=SMOKE_CONFIG.recipes) -> dict[str, int]:
    """How many jobs train, and probe, students of these teachers and recipes."""
    jobs = student_jobs(SMOKE_CONFIG)
    n = sum(job.teacher in teachers and not set(recipes).isdisjoint(job.recipes) for job in jobs)
    return {"raptor": n, "probe_students": n}


STUDENTS = student_rules()
ALL = CUT | SWAPPED | PROBED | COMPARED | CURVES | ALONG | RECIPES | BRANCHED | COST | DYNAMICS
ALL |= DENSE


def heads(*teachers: str) -> dict[str, int]:
    """How many jobs train heads of dense probes on these teachers and their Raptors."""
    asked = [job for job in dense_jobs(SMOKE_CONFIG) if job.teacher in teachers]
    return {"dense_probe": len(asked), "dense_examples": 2}


def test_every_figure_and_table_is_there(finished):
    made = tables(finished)
    for name in ("fidelity_by_k", "layer_swaps", "training_curves", "similarity_matrices"):
        assert f"figures/{name}.png" in made
        assert f"figures/{name}.csv" in made
        assert (finished.path / f"results/smoke/figures/{name}.pdf").stat().st_size > 5000
    header = (finished.path / "results/smoke/tables/fidelity.csv").read_text().split("\n")[0]
    expected = (
        "teacher,recipe,partition,k,seed,r2_mean,r2_cls,r2_patch,"
        "accuracy,accuracy_teacher,recovered"
    )
    assert header.startswith(expected)


def test_logs_and_provenance_lie_beside_the_results(finished):
    root = finished.path / "results/smoke"
    log = (root / "logs/train_teacher/vit.log").read_text().splitlines()
    assert "start: parameters" in log[0]
    assert "commit" in log[0]
    assert list(root.glob("raptor/vit/*.provenance.json"))
    assert (root / "config.resolved.yaml").exists()
    assert not list((root / ".state").rglob("state-*.pt"))


def test_a_second_run_has_nothing_to_do(finished):
    assert finished.planned(*SMOKE) == {}


def test_targets_build_only_what_they_need(finished):
    plan = finished.planned(*SMOKE, "--forceall", "similarity_matrices")
    assert "raptor" not in plan
    assert plan["similarity"] == len(TEACHERS)
    plan = finished.planned(*SMOKE, "--forceall", "layer_swaps")
    assert plan["swaps"] == 1
    assert "raptor" not in plan
    plan = finished.planned(*SMOKE, "--forceall", "partition_comparison")
    assert plan["raptor"] == 2  # of its study, and Max-Cut's of another
    plan = finished.planned(*SMOKE, "--forceall", "stochastic_depth")
    assert plan["raptor"] == 3  # of the teachers side by side
    assert plan["activations"] == 3
    plan = finished.planned(*SMOKE, "--forceall", "table_ablations")
    assert plan["raptor"] == 2  # the recipes side by side, and phase_mean of another study
    plan = finished.planned(*SMOKE, "--forceall", "angular_speed")
    assert plan["dynamics"] == 2
    assert plan["raptor"] == 2  # the jobs of the Raptors beside their teachers
    assert "low_rank_updates" not in plan


@pytest.mark.parametrize(
    ("changes", "jobs", "gathered"),
    [
        ({"figures__layer_swaps": {"row_height_in": 4.0}}, {}, {"layer_swaps"}),
        ({"swaps__samples": 7}, {"swaps": 1}, SWAPPED),
        ({"branches__k": [2]}, {}, BRANCHED),
        ({"dynamics__images": 30}, {"dynamics": 2}, DYNAMICS | SCORED),
        ({"figures__angular_speed": {"row_height_in": 4.0}}, {}, {"angular_speed"}),
        ({"cost__repeats": 4}, {}, COST),
        ({"figures__depth_panels": {"cmap": "magma"}}, {}, {"depth_panels"}),
        ({"dense__examples": 1}, {"dense_examples": 2}, PANELS),
        (
            {"dense__segmentation__lr": 0.01},
            {"dense_probe": 2, "dense_examples": 1},  # of both teachers
            drawn("table_dense", "segmentation_panels"),
        ),
        (
            {"dense__scenes__seed": 1},
            {"dense_samples": 2, **heads("vit", "untrained")},
            DENSE,
        ),
        (
            {"probes__bootstrap": 30},
            {"probe_students": STUDENTS["probe_students"]},
            PROBED | COMPARED | ALONG | RECIPES,
        ),
        (
            # Its job keeps phase_mean's students, but what reads their files is made anew.
            {"recipes__paper__stage2__steps": 12},
            student_rules(recipes=["paper"]) | {"dynamics": 1} | heads("vit"),
            PROBED | COMPARED | CURVES | ALONG | drawn("table_ablations") | COST | DYNAMICS | DENSE,
        ),
        (
            {"similarity__bootstrap": 25},
            {"similarity": len(TEACHERS), "partition": len(TEACHERS), "swaps": 1, "branches": 1}
            | {"dynamics": 2, **STUDENTS, **heads("vit", "untrained")},
            ALL,
        ),
        (  # of those that share it; the untrained teacher has no training
            {"teachers__vit__training__lr": 0.001},
            {"train_teacher": TRAINED, "checkpoint_teacher": 1, "teachers": 1, "swaps": 1}
            | {"branches": 1, "dynamics": 1, **heads("vit")}
            | dict.fromkeys(["activations", "similarity"], len(TEACHERS) - 1)
            | dict.fromkeys(["partition", "probe_teacher"], len(TEACHERS) - 1)
            | student_rules(set(TEACHERS) - {"untrained"}),
            ALL,
        ),
        (
            {"data__mean": [0.2]},
            {"samples": 1, "train_teacher": TRAINED, "untrained_teacher": 1}
            | {
                "checkpoint_teacher": 1,
                "teachers": 1,
                "swaps": 1,
                "branches": 1,
                "dynamics": 2,
                **STUDENTS,
                **heads("vit", "untrained"),  # the scenes are as they were
            }
            | dict.fromkeys(["activations", "similarity"], len(TEACHERS))
            | dict.fromkeys(["partition", "probe_teacher"], len(TEACHERS)),
            ALL,
        ),
        (
            {"teachers__shallow__stochastic_depth": 0.1},
            {"train_teacher": 1, "activations": 1, "similarity": 1, "partition": 1}
            | {"probe_teacher": 1, "teachers": 1},
            CUT | drawn("fidelity_by_k", "table_probes"),
        ),
    ],
    ids=lambda value: next(iter(value), "") if isinstance(value, dict) else "",
)
def test_an_edited_setting_reruns_exactly_what_depends_on_it(finished, changes, jobs, gathered):
    plan = finished.planned(*edited_config(finished, **changes))
    assert plan == jobs | dict.fromkeys(gathered, 1) | {"figures": 1}


@pytest.mark.parametrize(
    ("file", "old", "new", "reruns"),
    [
        ("raptor/training/raptor.py", '"""', '"""Reworded. ', set()),
        ("raptor/interventions.py", IMPORT, IMPORT + "# A remark.\n", set()),
        ("workflow/scripts/swaps.py", '"""', '"""Reworded. ', set()),
        ("workflow/rules/raptor.smk", "# ", "# Reworded: ", set()),
        ("raptor/interventions.py", IMPORT, IMPORT + "_EDITED = 1\n", {"swaps"} | SWAPPED),
        ("raptor/figures/layer_swaps.py", IMPORT, IMPORT + "_EDITED = 1\n", {"layer_swaps"}),
        (
            "raptor/dense_examples.py",
            IMPORT,
            IMPORT + "_EDITED = 1\n",
            {"dense_examples"} | PANELS,
        ),
    ],
    ids=["docstring", "comment", "adapter", "rule-comment", "code", "figure-code", "examples"],
)
def test_edited_code_reruns_what_runs_it(finished, file, old, new, reruns):
    path = finished.path / file
    before = path.read_text()
    try:
        assert old in before
        path.write_text(before.replace(old, new, 1))
        assert set(finished.planned(*SMOKE)) - {"figures"} == reruns
    finally:
        path.write_text(before)


def test_one_seed_more_trains_the_students_of_that_seed(finished, new_checkout):
    """Their job runs again and keeps the others."""
    checkout = new_checkout()
    for part in ("results", ".snakemake/metadata"):
        shutil.copytree(finished.path / part, checkout.path / part)
    root = checkout.path / "results/smoke"
    before = {file: file.stat().st_mtime_ns for file in root.glob("raptor/vit/*/*/*.safetensors")}
    config = edited_config(checkout, students__fidelity__seeds=3)
    assert checkout.planned(*config, "--", "fidelity") == {
        "raptor": 1,
        "probe_students": 1,
        "fidelity": 1,
    }
    checkout.snakemake(*config, "--", "fidelity")
    after = {file: file.stat().st_mtime_ns for file in root.glob("raptor/vit/*/*/*.safetensors")}
    assert {str(f.relative_to(root)) for f in after.keys() - before.keys()} == {
        f"raptor/vit/{recipe}/maxcut-k{k}/seed2.safetensors"
        for recipe in ("phase_mean", "paper")
        for k in (2, 3)
    }
    assert {file: after[file] for file in before} == before


def test_a_misspelt_key_is_refused_before_anything_runs(finished):
    config = edited_config(finished, partitoin={"k": [2]})
    done = finished.snakemake("-n", *config, check=False)
    assert done.returncode != 0
    assert "partitoin: unknown key; did you mean partition?" in done.stdout + done.stderr
    assert "Traceback" not in done.stdout + done.stderr


def test_a_fault_in_the_data_stops_before_training(new_checkout, tmp_path):
    checkout = new_checkout()
    good = io.BytesIO()
    Image.new("L", (28, 28)).save(good, "png")
    for name in ("cat", "dog"):
        (tmp_path / "images" / name).mkdir(parents=True)
        for number in range(240):  # as many as the splits of the smoke experiment need
            (tmp_path / "images" / name / f"{number}.png").write_bytes(good.getvalue())
    (tmp_path / "images" / "dog" / "7.png").write_bytes(good.getvalue()[:40])
    config = edited_config(
        checkout,
        experiment="broken",
        data={
            "source": "image_folder",
            "root": str(tmp_path / "images"),
            "image_size": 28,
            "channels": 1,
            "mean": [0.5],
            "std": [0.5],
            "splits": {"train": 300, "val": 60, "test": 100},
        },
    )
    done = checkout.snakemake(*config, check=False)
    log = (checkout.path / "results/broken/logs/samples.log").read_text()
    assert done.returncode != 0
    assert "Traceback" not in log
    assert "dog/7.png" in log.splitlines()[-1]
    assert not list((checkout.path / "results/broken").glob("teachers/*"))


def test_an_interrupted_run_continues_to_the_same_tables(finished, new_checkout):
    """Ctrl-C and SIGKILL to the whole group at seeded random moments, then a run to the end."""
    checkout = new_checkout()
    # A process that a shell has put into the background ignores Ctrl-C, and so do its children.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    make = [sys.executable, "-m", "raptor.make", SMOKE[1]]
    chance = random.Random(0)
    for number in [signal.SIGINT, signal.SIGKILL] * 3:
        run = subprocess.Popen(
            make,
            cwd=checkout.path,
            env=checkout.environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
        time.sleep(chance.uniform(4, 30))
        if run.poll() is None:
            os.killpg(run.pid, number)
        try:
            run.wait(timeout=120)
        except subprocess.TimeoutExpired:
            os.killpg(run.pid, signal.SIGKILL)
            raise
    subprocess.run(make, cwd=checkout.path, env=checkout.environment, check=True)
    assert tables(checkout) == tables(finished)
    assert (checkout.path / "results/smoke/report.html").is_file()
    assert zipfile.is_zipfile(checkout.path / "results/smoke/report.zip")
