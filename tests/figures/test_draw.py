"""Every figure and printed table, drawn from made-up results; and what captions then say."""

from __future__ import annotations

import importlib
import itertools
import json
import os
import subprocess
import sys
from pathlib import Path

import docutils.core
import matplotlib.image
import numpy as np
import pandas as pd
import pytest
import seaborn
from matplotlib import pyplot as plt
from synthetic_study import MOVEMENT, Study, tabulate

from raptor import figures
from raptor.captions import render
from raptor.config.figures import (
    FidelityFigure,
    FiguresConfig,
    PartitionFigure,
    RecipesFigure,
    TeachersFigure,
)
from raptor.errors import RaptorError
from raptor.figures import (
    angular_speed,
    dmd_spectrum,
    layer_swaps,
    perturbation,
    stochastic_depth,
)
from raptor.figures.along_depth import LATE
from raptor.figures.panels import labels_apart
from raptor.figures.style import COLORBLIND, style
from raptor.figures.training_curves import last_change
from raptor.scorecard import thresholds
from raptor.tables import published
from raptor.tables.files import read_table

ROOT = Path(__file__).parents[2]
FIGURES = [
    "similarity_matrices",
    "maxcut_partitions",
    "partition_comparison",
    "fidelity_by_k",
    "layer_swaps",
    "training_curves",
    "stochastic_depth",
    "overfitting",
    "training_paradigms",
    "saturation",
    "scorecard",
    "branch_similarity",
    *MOVEMENT,
]
PRINTED = ["table_partitions", "table_probes", "table_ablations", "table_cost"]
# Of the figures that are drawn only where an experiment describes them.
OPTIONAL = {
    "stochastic_depth": TeachersFigure(teachers=["vit"], recipe="start"),
    "overfitting": TeachersFigure(teachers=["vit"], recipe="start"),
    "training_paradigms": RecipesFigure(teacher="vit", recipes=["forcing"]),
    "saturation": FidelityFigure(),
    "partition_comparison": PartitionFigure(),
}


def template(target: str) -> Path:
    return ROOT / f"workflow/report/{target}.rst"


def settings(target: str) -> dict:
    section = OPTIONAL.get(target) or getattr(FiguresConfig(), target)
    return section.model_dump() | {"dpi": 50}


def drawn(study: Study, target: str, folder: Path) -> dict[str, Path]:
    files = {suffix: folder / f"{target}.{suffix}" for suffix in ("pdf", "png", "rst")}
    figures.draw(
        target=target,
        table=study.path(f"figures/{target}.csv"),
        settings=settings(target),
        palette="colorblind",
        template=template(target),
        pdf=files["pdf"],
        png=files["png"],
        caption=files["rst"],
    )
    return files


def is_restructured_text(text: str) -> bool:
    """Whether docutils, which makes the report, reads `text` without a complaint."""
    docutils.core.publish_parts(text, writer="html", settings_overrides={"halt_level": 2})
    return True


def numbers(study: Study, target: str) -> dict:
    table = read_table(study.path(f"figures/{target}.csv"))
    return importlib.import_module(f"raptor.figures.{target}").numbers(table)


def says(target: str, table: pd.DataFrame, tmp_path: Path) -> str:
    """The caption of `table` on one line."""
    table.to_csv(tmp_path / "table.csv", index=False)
    module = importlib.import_module(f"raptor.figures.{target}")
    found = module.numbers(read_table(tmp_path / "table.csv"))
    return " ".join(render(template(target), found).split("\n"))


@pytest.fixture(scope="session")
def pictures(study, tmp_path_factory) -> dict[str, dict[str, Path]]:
    """The files of every figure, drawn once."""
    folder = tmp_path_factory.mktemp("pictures")
    return {target: drawn(study, target, folder) for target in FIGURES}


@pytest.mark.parametrize("target", FIGURES)
def test_picture(pictures, target):
    assert pictures[target]["pdf"].read_bytes().startswith(b"%PDF")
    pixels = matplotlib.image.imread(pictures[target]["png"])[:, :, :3]
    assert pixels.std() > 0.05
    assert pixels.shape[1] <= 7 * 50
    # What is cut off would touch the border.
    for edge in (pixels[0], pixels[-1], pixels[:, 0], pixels[:, -1]):
        assert (edge == 1).all()


@pytest.mark.parametrize("target", FIGURES)
def test_caption(pictures, target):
    caption = pictures[target]["rst"].read_text(encoding="utf-8")
    assert is_restructured_text(caption)
    assert "nan" not in caption
    assert "paper" in caption


def test_one_seed_one_k_no_registers_no_reference(tmp_path):
    study = Study(
        tmp_path,
        teachers=("vit",),
        depth=5,
        k=(3,),
        seeds=1,
        registers=False,
        measures=("cosine",),
    )
    study.similarity()
    study.partitions()
    study.probes()
    study.students(stages=("stage2",))
    study.swaps(samples=1)
    tabulate(study)
    for target in FIGURES:
        caption = drawn(study, target, tmp_path / "drawn")["rst"].read_text(encoding="utf-8")
        assert "nan" not in caption
        assert is_restructured_text(caption)
    assert "not tested" in (tmp_path / "drawn/partition_comparison.rst").read_text()
    assert "λ is 0 throughout" in (tmp_path / "drawn/training_curves.rst").read_text()


def test_made_up_dynamics_have_the_columns_of_the_stage(study):
    from raptor.dynamics.measure import COLUMNS

    for name, columns in COLUMNS.items():
        assert set(read_table(study.path(f"dynamics/vit/{name}.csv"))) == set(columns.split())


def test_dynamics_of_one_phase_without_registers_or_a_raptor(tmp_path):
    study = Study(tmp_path, teachers=("vit",), depth=5, k=(1,), registers=False)
    study.dynamics(raptors=())
    study.tabulate_dynamics(phases=False)
    for target in MOVEMENT:
        files = drawn(study, target, tmp_path / "drawn")
        pixels = matplotlib.image.imread(files["png"])[:, :, :3]
        for edge in (pixels[0], pixels[-1], pixels[:, 0], pixels[:, -1]):
            assert (edge == 1).all()
        caption = files["rst"].read_text(encoding="utf-8")
        assert is_restructured_text(caption)
        for word in ("nan", "Raptor", "registers:", "Phases"):
            assert word not in caption
    assert "On vit none of this is tested" in (tmp_path / "drawn/angular_speed.rst").read_text()


def test_the_same_table_gives_the_same_bytes_and_no_torch(study, pictures, tmp_path):
    arguments = {
        "target": "layer_swaps",
        "table": str(study.path("figures/layer_swaps.csv")),
        "settings": settings("layer_swaps"),
        "palette": "colorblind",
        "template": str(template("layer_swaps")),
        **{name: str(tmp_path / f"again.{name}") for name in ("pdf", "png", "caption")},
    }
    code = (
        "import json, pathlib, sys\n"
        "import raptor.tables\n"
        "from raptor.figures import draw\n"
        "a = json.loads(sys.argv[1])\n"
        "paths = ('table', 'template', 'pdf', 'png', 'caption')\n"
        "draw(**{k: pathlib.Path(v) if k in paths else v for k, v in a.items()})\n"
        "assert 'torch' not in sys.modules\n"
    )
    subprocess.run(
        [sys.executable, "-c", code, json.dumps(arguments)],
        check=True,
        cwd=ROOT,
        env={**os.environ, "PYTHONHASHSEED": "7", "PYTHONPATH": str(ROOT)},
    )
    for name, path in pictures["layer_swaps"].items():
        again = tmp_path / f"again.{'caption' if name == 'rst' else name}"
        assert again.read_bytes() == path.read_bytes()


def test_palette_is_seaborns():
    assert seaborn.color_palette("colorblind").as_hex() == COLORBLIND


def test_unknown_palette_names_the_key():
    with pytest.raises(RaptorError, match=r"figures\.palette: 'mauve' is not one of colorblind"):
        style("mauve").__enter__()


@pytest.mark.parametrize("target", PRINTED)
def test_printed_table(study, target, tmp_path):
    html, caption = tmp_path / "table.html", tmp_path / "table.rst"
    table = study.path(f"figures/{target}.csv")
    figures.print_table(
        target=target, table=table, template=template(target), html=html, caption=caption
    )
    text = html.read_text(encoding="utf-8")
    assert text.count("<tr") == len(read_table(table)) + 1  # and the header
    assert "http" not in text  # nothing is fetched
    assert "nan" not in text.lower()
    assert is_restructured_text(caption.read_text(encoding="utf-8"))


# --- what captions say, on planted results ---------------------------------------------------


def swaps(intra: float, inter: float) -> pd.DataFrame:
    rows = [
        {"size": size, "kind": kind, "accuracy": accuracy + shift, "distance": distance}
        | {"targets": "[1]", "drop": 0.9 - accuracy - shift, "relative_error": 0.1}
        for size in (1, 2)
        for kind, accuracy, distance in (("intra", intra, 1.0), ("inter", inter, 1.0))
        for shift in (-0.01, 0.0, 0.01)
    ]
    fixed = {"teacher": "vit", "partition": "maxcut", "k": 2, "segments": "1-2 3-4"}
    return pd.DataFrame(rows).assign(**fixed, accuracy_teacher=0.9, chance=0.1, n=500)


@pytest.mark.parametrize(
    ("intra", "inter", "expected", "absent"),
    [
        (0.88, 0.4, "Here too weights from the same phase do less harm", "not harmless"),
        (0.6, 0.4, "**not harmless** here", "disagrees"),
        (0.4, 0.88, "**This run disagrees**", "Here too"),
    ],
)
def test_swaps_are_judged_by_the_numbers(intra, inter, expected, absent, tmp_path):
    text = says("layer_swaps", swaps(intra, inter), tmp_path)
    assert expected in text
    assert absent not in text


def test_without_labels_the_error_of_the_last_state_is_drawn(tmp_path):
    bare = {"accuracy": np.nan, "accuracy_teacher": np.nan, "drop": np.nan, "chance": np.nan}
    table = swaps(0.8, 0.4).assign(**bare)
    table["relative_error"] = np.where(table["kind"] == "intra", 0.1, 0.3)
    text = says("layer_swaps", table, tmp_path)
    assert "without labels" in text
    assert "10.0\u00a0% inside" in text
    assert "30.0\u00a0% across" in text
    for absent in ("accuracy above chance", "points", "unswapped", "agrees"):
        assert absent not in text


def test_the_gap_compares_swaps_of_the_same_layers():
    """Layers that none can replace, and are swapped inside their phase alone, say nothing."""
    table = swaps(0.8, 0.8)
    fatal = table[table["kind"] == "intra"].assign(targets="[2]", accuracy=0.1, drop=0.8)
    found = layer_swaps.numbers(pd.concat([table, fatal]))
    assert found["results"][0]["gap"] == pytest.approx(-0.35)  # (0.8 + 0.1) / 2 below 0.8
    assert found["matched"] == [{"teacher": "vit", "gap": pytest.approx(0.0, abs=1e-12)}]


def compared(maxcut: float) -> pd.DataFrame:
    random = [0.89, 0.92, 0.91, 0.94]  # by partition 0.90, 0.92, 0.94: mean 0.92, sd 0.02
    rows = [("random", seed, value) for seed, value in enumerate(random)]
    rows += [("maxcut", seed, maxcut) for seed in range(3)]
    table = pd.DataFrame(rows, columns=["partition", "seed", "recovered"])
    table["segments"] = ["1-2 3-4", "1-1 2-4", "1-2 3-4", "1-3 4-4", *["1-3 4-4"] * 3]
    return table.assign(teacher="vit", recipe="r", k=2, r2_mean=table["recovered"], n_test=100)


@pytest.mark.parametrize(
    ("maxcut", "sigma", "expected"),
    [
        (0.95, "1.5 σ", "This run agrees for every k"),
        (0.93, "0.5 σ", "**This run disagrees**"),
        (0.90, "−1.0 σ", "**This run disagrees**"),
    ],
)
def test_partitions_are_judged_by_the_numbers(maxcut, sigma, expected, tmp_path):
    text = says("partition_comparison", compared(maxcut), tmp_path)
    assert expected in text
    assert sigma in text
    assert "(n = 3 distinct partitions)" in text


def test_agreement_at_one_k_only_is_said(tmp_path):
    both = pd.concat([compared(0.95), compared(0.90).assign(k=3)])
    text = says("partition_comparison", both, tmp_path)
    assert "agrees only in part" in text
    assert "above random partitions for k = 2, not for the rest" in text


def kept(recovered: float, r2: float) -> pd.DataFrame:
    values = {"recovered": recovered, "recovered_head": 0.8, "r2_mean": r2}
    rows = [
        {"part": "student", "partition": "maxcut", "metric": metric, "value": value, "seed": seed}
        for metric, value in values.items()
        for seed in range(3)
    ]
    table = pd.DataFrame(rows).assign(recipe="r", k=3)
    baseline = {"part": "baseline", "partition": "linear", "metric": "r2_mean", "value": 0.7}
    both = pd.concat([table, pd.DataFrame([baseline])])
    return both.assign(teacher="vit", n_test=1000)


@pytest.mark.parametrize(
    ("recovered", "r2", "expected", "absent"),
    [
        (0.99, 0.95, "Here the mean reaches this share (k = 3).", "falls short"),
        (
            0.97,
            0.95,
            "**This run falls short** at vit, k = 3 (97.0\u00a0% of the 98\u00a0%",
            "reach",
        ),
        (0.99, 0.5, "**not every Raptor is better than it**", "falls short"),
    ],
)
def test_fidelity_is_judged_by_the_numbers(recovered, r2, expected, absent, tmp_path):
    text = says("fidelity_by_k", kept(recovered, r2), tmp_path)
    assert expected in text
    assert absent not in text


def contrasts(trained: tuple, untrained: tuple | None) -> pd.DataFrame:
    rows = [("vit", 1, *trained)] + ([("bare", 0, *untrained)] if untrained else [])
    columns = ["teacher", "trained", "contrast", "contrast_low", "contrast_high"]
    table = pd.DataFrame(rows, columns=columns)
    return table.assign(measure="cosine", layer_a=1, layer_b=1, value=1.0, n=10, k=3)


@pytest.mark.parametrize(
    ("trained", "untrained", "expected"),
    [
        ((0.3, 0.2, 0.4), (0.1, 0.05, 0.15), "intervals included, as the paper finds"),
        ((0.3, 0.1, 0.5), (0.1, 0.05, 0.15), "but the intervals overlap"),
        ((0.1, 0.05, 0.15), (0.3, 0.2, 0.4), "This disagrees with the paper"),
        ((0.1, 0.05, 0.15), None, "not tested"),
    ],
)
def test_contrast_is_judged_by_the_numbers(trained, untrained, expected, tmp_path):
    assert expected in says("similarity_matrices", contrasts(trained, untrained), tmp_path)


def test_cuts_that_differ_are_named(study):
    found = numbers(study, "maxcut_partitions")
    table = read_table(study.path("figures/maxcut_partitions.csv"))
    for teacher in ("vit", "untrained"):
        differing = []
        for k in (2, 3):
            here = table[(table["part"] == "segment") & (table["teacher"] == teacher)]
            here = here[here["k"] == k]
            spans = [
                set(zip(g["first"], g["last"], strict=True)) for _, g in here.groupby("method")
            ]
            if spans[0] != spans[1]:
                differing.append(k)
        (one,) = [one for one in found["teachers"] if one["name"] == teacher]
        assert one["differing"] == differing


@pytest.mark.parametrize(
    ("steps", "r2", "expected"),
    [
        ([50, 100], [0.9, 0.9], 0.0),
        ([80, 100], [0.72, 0.8], 0.1),
        ([60, 100], [0.6, 0.8], 0.125),  # 0.7 at step 80, halfway
        ([90, 100], [0.5, 0.8], np.nan),
    ],
)
def test_flatness_is_the_relative_change_over_the_last_fifth(steps, r2, expected):
    found = last_change(pd.Series(steps), pd.Series(r2))
    assert found == pytest.approx(expected, nan_ok=True)


def curves(last: float) -> pd.DataFrame:
    rows = [(step, value) for step, value in ((50, 0.5), (80, 0.9), (100, last))]
    table = pd.DataFrame(rows, columns=["step", "value"])
    names = {"teacher": "vit", "recipe": "r", "partition": "maxcut", "k": 2, "seed": 0}
    return table.assign(**names, stage="stage2", metric="r2", tokens="all")


@pytest.mark.parametrize(
    ("last", "expected"), [(0.9, "All curves are flat"), (0.95, "**Not flat**")]
)
def test_curves_are_judged_by_the_numbers(last, expected, tmp_path):
    assert expected in says("training_curves", curves(last), tmp_path)


def teachers_side_by_side(columns: str, rows: dict[str, tuple]) -> pd.DataFrame:
    """Teacher -> its columns, then similarity, contrast and R² (two students, ± 0.01)."""
    parts = []
    for teacher, (*own, similarity, contrast, r2) in rows.items():
        values = [("similarity", "similarity", similarity), ("similarity", "contrast", contrast)]
        values += [("student", "r2_mean", r2 - 0.01), ("student", "r2_mean", r2 + 0.01)]
        values += [("student", "recovered", 0.9), ("baseline", "linear", 0.5)]
        values += [("probe", "accuracy", 0.8)]
        table = pd.DataFrame(values, columns=["part", "metric", "value"])
        table["low"], table["high"] = table["value"] - 0.01, table["value"] + 0.01
        parts.append(table.assign(teacher=teacher, **dict(zip(columns.split(), own, strict=True))))
    return pd.concat(parts).assign(k=3, n=100)


@pytest.mark.parametrize(
    ("similarity", "r2", "expected", "absent"),
    [
        ((0.5, 0.6), (0.90, 0.95), "This run agrees: both rise by more", "disagrees"),
        ((0.5, 0.6), (0.90, 0.91), "the similarity rises, R² changes by no more", "disagrees"),
        ((0.5, 0.6), (0.95, 0.90), "disagrees**: R² falls, though the similarity rises", "both"),
        ((0.6, 0.5), (0.90, 0.95), "disagrees**: the similarity falls, though R² rises", "both"),
        ((0.6, 0.5), (0.95, 0.90), "disagrees**: the similarity and R² fall.", "agrees only"),
        ((0.5, 0.505), (0.9, 0.95), "intervals overlap", "intervals apart"),
        (
            (0.5, 0.505),
            (0.9, 0.91),
            "**This run cannot tell**: the similarity and R² change",
            "agrees",
        ),
        ((0.5, 0.6), (0.4, 0.95), "**No Raptor is needed** for p = 0:", "disagrees"),
    ],
)
def test_stochastic_depth_is_judged_by_the_numbers(similarity, r2, expected, absent, tmp_path):
    rows = {
        "dropped": (0.3, 1, similarity[1], 0.2, r2[1]),
        "vit": (0.0, 1, similarity[0], 0.1, r2[0]),
        "bare": (0.0, 0, 0.99, 0.0, 0.999),
    }
    text = says("stochastic_depth", teachers_side_by_side("p trained", rows), tmp_path)
    assert expected in text
    assert absent not in text
    assert "The untrained control is easier to follow" in text
    sigmas = (r2[1] - r2[0]) / np.hypot(*[np.std([-0.01, 0.01], ddof=1)] * 2)
    assert f"({sigmas:.1f} standard deviations".replace("-", "−") in text


def test_one_trained_teacher_tests_nothing(tmp_path):
    rows = {"vit": (0.0, 1, 0.5, 0.1, 0.9), "bare": (0.0, 0, 0.9, 0.0, 0.8)}
    text = says("stochastic_depth", teachers_side_by_side("p trained", rows), tmp_path)
    assert "this is not tested" in text
    assert "easier to follow" not in text


@pytest.mark.parametrize(
    ("val", "r2", "expected", "absent"),
    [
        ((2.3, 1.0, 1.4), (0.9, 0.8), "This run agrees: R² falls by more", "disagrees"),
        ((2.3, 1.0, 1.4), (0.9, 0.89), "**This run cannot tell**: R² changes", "agrees"),
        ((2.3, 1.0, 1.4), (0.8, 0.9), "**This run disagrees**: R² rises", "agrees:"),
        ((2.3, 1.0, 0.9), (0.9, 0.8), "the teacher does not overfit, and this is not", "agrees"),
        ((2.3, 1.0, 1.4), (0.9, 0.4), "**No Raptor is needed** at epoch 50", "disagrees"),
    ],
)
def test_overfitting_is_judged_from_the_least_validation_loss_on(
    val, r2, expected, absent, tmp_path
):
    epochs = {"start": 0, "half": 20, "end": 50}
    rows = {
        teacher: (epoch, 0.5, 0.1, value)
        for (teacher, epoch), value in zip(epochs.items(), (0.99, *r2), strict=True)
    }
    losses = pd.DataFrame(
        [
            {"part": "teacher", "teacher": teacher, "epoch": epoch, "metric": "loss"}
            | {"split": split, "value": value, "n": 300 if epoch else 4000}
            for (teacher, epoch), value in zip(epochs.items(), val, strict=True)
            for split in ("train", "val")
        ]
    )
    table = pd.concat([teachers_side_by_side("epoch", rows), losses])
    text = says("overfitting", table, tmp_path)
    assert expected in text
    assert absent not in text
    assert "One teacher trained on 300 images" in text
    assert "not trained yet and easier to follow than any later one" in text


def along_depth(**errors: tuple[float, float]) -> pd.DataFrame:
    """Paradigm -> relative error at the layers 1 and 2."""
    rows = [
        {"part": part, "paradigm": name, "recipe": name, "seed": seed, "metric": metric}
        | {"value": value, "layer": layer, "steps": 100, "n_test": 100, "k": 2}
        | {"segments": "1-1 2-2", "teacher": "vit", "partition": "maxcut"}
        for name, (inside, end) in errors.items()
        for seed in (0, 1)
        for part, metric, layer, value in (
            ("layer", "relative", 1, inside),
            ("layer", "relative", 2, end),
            ("student", "r2_mean", None, 1 - end),
            ("student", "recovered", None, 0.9),
            ("student", "recovered_head", None, 0.8),
        )
    ]
    baseline = {"part": "baseline", "teacher": "vit", "metric": "linear", "layer": 1, "value": 0.5}
    return pd.DataFrame([*rows, baseline])


@pytest.mark.parametrize(
    ("output", "forced", "expected", "absent"),
    [
        ((0.4, 0.2), (0.1, 0.3), ["has 4.0 times the error", "has 3.0 times the"], "disagrees"),
        ((0.05, 0.2), (0.1, 0.3), ["**This run disagrees**: inside", "only 0.5 times"], "any"),
        ((0.4, 0.2), (0.1, 0.05), ["**This run disagrees**: at the last layer"], "no better"),
        ((0.4, 0.2), (0.1, 0.6), ["Teacher forcing is no better than the best"], "disagrees"),
    ],
)
def test_paradigms_are_judged_by_the_numbers(output, forced, expected, absent, tmp_path):
    table = along_depth(output=output, teacher_forcing=forced, autoregressive=(0.1, 0.1))
    text = says("training_paradigms", table, tmp_path)
    assert all(part in text for part in expected)
    assert absent not in text


def test_paradigms_without_autoregression_test_nothing(tmp_path):
    text = says("training_paradigms", along_depth(output=(0.4, 0.2)), tmp_path)
    assert "so this is not tested" in text


def ablations(accuracies: list[float], start: float | None = None) -> pd.DataFrame:
    added = ["teacher_forcing", "autoregressive", "stage2", "probe"]
    table = pd.DataFrame({"added": added, "accuracy": accuracies})
    table = table.assign(head=["own"] * 3 + ["probe"], paper_top1=[0.039, 0.727, 0.824, 0.83])
    table["recipe"] = ["forcing", "annealed", "joined", "joined"]
    table["change"], table["paper_change"] = table["accuracy"].diff(), table["paper_top1"].diff()
    if start is not None:
        begun = {"added": "phase_mean", "head": "own", "accuracy": start, "recipe": "mean"}
        begun = [begun, begun | {"added": "probe", "head": "probe"}]
        table = pd.concat([table, pd.DataFrame(begun)])
    table = table.assign(r2_mean=0.9, accuracy_teacher=0.9, change_sd=0.02)
    table = table.assign(accuracy_sd=0.01, r2_mean_sd=0.01)
    return table.assign(teacher="vit", partition="maxcut", k=3, steps=100, n_seeds=3, n_test=100)


@pytest.mark.parametrize(
    ("accuracies", "expected", "absent"),
    [
        ([0.1, 0.5, 0.7, 0.8], "This run agrees: here too every part helps.", "disagrees"),
        ([0.1, 0.5, 0.51, 0.8], "helps, but stage 2 by no more than the spread", "disagrees"),
        ([0.1, 0.5, 0.4, 0.8], "**This run agrees only in part**: stage 2 does not", "disagrees"),
        ([0.8, 0.5, 0.4, 0.3], "**This run disagrees**: no part helps", "in part"),
    ],
)
def test_ablations_are_judged_by_the_numbers(accuracies, expected, absent, tmp_path):
    text = says("table_ablations", ablations(accuracies), tmp_path)
    assert expected in text
    assert absent not in text
    assert f"alone keeps {100 * accuracies[0] / 0.9:.1f}" in text
    assert "Started from the mean" not in text


def test_another_start_stands_beside_the_whole_recipe(tmp_path):
    text = says("table_ablations", ablations([0.1, 0.5, 0.7, 0.81], start=0.45), tmp_path)
    assert "steps of closed loop alone keep 50.0\u00a0% of the accuracy" in text
    assert "the whole recipe keeps 90.0\u00a0%" in text
    text = importlib.import_module("raptor.figures.table_ablations").rows(
        ablations([0.1, 0.5, 0.7, 0.81], start=0.45)
    )
    assert text["training"].tolist() == [
        "teacher forcing only",
        "+ autoregressive (annealed)",
        "+ stage 2",
        "+ fine-tuned probe",
        "start from the mean of each phase",
        "+ fine-tuned probe",
    ]
    assert text["change"].tolist()[1] == "+40.0 ± 2.0"


def by_k(r2: dict[int, float], spread: float = 0.01) -> pd.DataFrame:
    rows = [
        {"k": k, "seed": seed, "metric": metric, "value": value + shift}
        for k, mean in r2.items()
        for seed, shift in enumerate((-spread, spread))
        for metric, value in (("r2_mean", mean), ("recovered", 0.9), ("parameters", k / 8))
    ]
    return pd.DataFrame(rows).assign(
        part="student", teacher="vit", recipe="r", partition="maxcut", n_test=100
    )


@pytest.mark.parametrize(
    ("r2", "expected", "absent"),
    [
        ({1: 0.5, 4: 0.8, 8: 0.9}, "from k = 4 to 8, changes R² by 0.100", "up to"),
        ({1: 0.5, 4: 0.8, 8: 0.9}, "R² is **not saturated**", "No more"),
        ({1: 0.5, 4: 0.8, 8: 0.81}, "No more R² is gained: it rises clearly up to k = 4.", "worse"),
        ({1: 0.5, 4: 0.51, 8: 0.52}, "it rises clearly up to k = 1.", "**"),
        ({1: 0.5, 4: 0.8, 8: 0.7}, "makes R² **worse**; it rises clearly up to k = 4", "No m"),
    ],
)
def test_saturation_is_judged_against_the_spread(r2, expected, absent, tmp_path):
    text = says("saturation", by_k(r2), tmp_path).removeprefix("**How many blocks does it take?**")
    assert expected in text
    assert absent not in text
    assert "by a standard deviation of 0.020 and 2.0 points)" in text
    assert "With k = 8 there is a block for every layer of the teacher: what" in text
    assert f"is lacking of its R² there ({r2[8]:.3f}) is a matter of training, not of b" in text
    assert "With k = 4" not in text


def test_one_seed_says_nothing_of_saturation(tmp_path):
    text = says("saturation", by_k({1: 0.5, 2: 0.8}).query("seed == 0"), tmp_path)
    assert "with one seed there is no spread to judge that by" in text


def test_one_block_is_drawn_wherever_partitions_are(tmp_path):
    study = Study(tmp_path, teachers=("vit",), depth=4, k=(1, 4), measures=("cosine",))
    study.similarity()
    study.partitions()
    study.probes()
    study.students()
    study.swaps(samples=1)
    tabulate(study)
    for target in ("maxcut_partitions", "partition_comparison", "fidelity_by_k", "saturation"):
        caption = drawn(study, target, tmp_path / "drawn")["rst"].read_text(encoding="utf-8")
        assert "nan" not in caption
        # There is one partition into one block, and into as many as there are layers.
        told = "is not tested" if target == "partition_comparison" else "k = 1"
        assert told in caption
    cuts = read_table(study.path("figures/table_partitions.csv"))
    assert set(cuts.loc[cuts["k"] == 1, "segments"]) == {"1-4"}
    assert not cuts.loc[cuts["k"] == 1, "cut_weight"].any()
    text = importlib.import_module("raptor.figures.table_partitions").rows(cuts)
    assert not text.isna().any(axis=None)


def test_the_scorecard_tells_what_is_contradicted_and_what_is_not_tested(tmp_path):
    row = {"title": "Layers form blocks", "paper": "similarity", "n": 9, "reason": "By a test."}
    row |= {"effect": -1.0, "ci_low": -2.0, "ci_high": -0.5}
    verdicts = ["contradicted", "supported", "not tested", "not tested"]
    rows = [row | {"claim": i, "verdict": v} for i, v in enumerate(verdicts, start=1)]
    text = says("scorecard", pd.DataFrame(rows), tmp_path)
    assert "the 4 claims of the paper**: 1 supported, 1 contradicted, 2 not tested." in text
    assert "(1) Layers form blocks. The paper: similarity. Here: By a test." in text
    assert "Not tested: 3 and 4 (By a test)." in text
    assert "Inconclusive:" not in text
    text = says("scorecard", pd.DataFrame(rows[1:2]), tmp_path)
    assert "No claim that could be tested is contradicted." in text


def branched(attention: str, low: float) -> pd.DataFrame:
    """Phases after the block are 1-2 3-4, at the MLP branch too."""
    boundary = {"block": 2, "attention": int(attention[2]), "mlp": 2}
    rows = []
    for site, last in boundary.items():
        shared = int(last == 2)
        row = {"site": site, "segments": f"1-{last} {last + 1}-4", "shared": shared}
        row |= {"shared_low": shared, "shared_high": shared, "contrast_block_low": low}
        rows.append(row)
    numbers = {"contrast": 0.3, "contrast_block": 0.2, "contrast_block_high": 0.4}
    numbers |= {"boundaries": 1, "shared_by_chance": 1 / 3, "exact_share": 1.0, "n_resamples": 9}
    cuts = pd.DataFrame(rows).assign(part="phases", k=2, method="maxcut", **numbers)
    entry = {"part": "matrix", "site": "block", "layer_a": 1, "layer_b": 1, "value": 1.0, "n": 50}
    both = pd.concat([pd.DataFrame([entry]), cuts])
    return both.assign(teacher="vit", measure="cosine")


@pytest.mark.parametrize(
    ("attention", "low", "expected", "absent"),
    [
        ("1-2 3-4", 0.1, "The phases agree at every site", "**"),
        (
            "1-3 4-4",
            0.1,
            "agree only in part**: not every boundary is shared at vit, k = 2",
            "no b",
        ),
        ("1-2 3-4", -0.1, "Under the phases of the states, layers of one phase", "in part"),
    ],
)
def test_branches_are_judged_by_the_numbers(attention, low, expected, absent, tmp_path):
    text = says("branch_similarity", branched(attention, low), tmp_path)
    assert expected in text
    assert absent not in text.split("one seed of the teacher")[1]


def costs(share: float, latency: float) -> pd.DataFrame:
    same = {"teacher": "vit", "depth": 8, "block_applications": 8, "flops": 1e6, "n": 9}
    same |= {"images": 64, "device": "cpu", "threads": 1, "n_trained": 1}
    teacher = {"model": "teacher", "latency_ms": 10.0, "peak_memory_mb": 4.0, "levin_bits": 803.0}
    raptor = {"model": "raptor", "recipe": "r", "partition": "maxcut", "k": 2}
    raptor |= {"latency_ms": latency, "peak_memory_mb": 2.0, "levin_bits": 800 * share + 3}
    shares = {"parameters_share": share}
    return pd.DataFrame([same | teacher | {"parameters_share": 1.0}, same | raptor | shares])


@pytest.mark.parametrize(
    ("share", "latency", "expected"),
    [
        (0.26, 10.5, "parameters in proportion to k / L (within 10"),
        (0.33, 10.5, "**the parameters are not in proportion to k / L**"),
        (0.25, 10.5, "recurrence saves no time"),
        (0.25, 12.0, "**Slower than the teacher** by more than 10\u00a0%: k = 2"),
        (0.25, 8.0, "Faster than the teacher by more than 10\u00a0%: k = 2"),
        (1.25, 8.0, "**Not every Raptor lowers the bound on Kt.**"),
    ],
)
def test_cost_is_judged_by_the_numbers(share, latency, expected, tmp_path):
    assert expected in says("table_cost", costs(share, latency), tmp_path)


def test_labels_of_ticks_that_would_run_into_each_other_are_left_out():
    epochs = [0, 5, 10, 20, 50, 100, 200]
    names = labels_apart(epochs, [str(epoch) for epoch in epochs], 0.08)
    assert names == ["0", "", "", "20", "50", "100", "200"]
    assert labels_apart([3], ["three"], 0.5) == ["three"]


def test_many_teachers_stand_in_two_lines(study):
    table = pd.read_csv(study.path("figures/stochastic_depth.csv"))
    one = table[table["p"] == table["p"].max()]
    many = pd.concat([one.assign(teacher=f"p{n}", p=n / 10) for n in range(10)])
    with style("colorblind"):
        figure = stochastic_depth.draw(many, settings("stochastic_depth"))
        figure.draw_without_rendering()
    boxes = [axes.get_tightbbox() for axes in figure.axes if axes.images]
    lines = {round(box.y0) for box in boxes}
    assert (len(boxes), len(lines)) == (10, 2)
    for left, right in itertools.combinations(boxes, 2):
        assert not left.overlaps(right)
    plt.close(figure)


# --- the dynamics ------------------------------------------------------------------------------


def test_captions_and_scorecard_mean_the_same_by_late_small_and_steady():
    assert LATE == thresholds.LATE
    assert angular_speed.STEADY == thresholds.STEADY
    assert dmd_spectrum.RADIUS == thresholds.SPECTRAL_RADIUS
    assert perturbation.SMALL == thresholds.SMALL


def along(profiles: dict[str, dict[str, list[float]]], first: int, **more) -> pd.DataFrame:
    """Metric -> tokens -> means from layer `first` on, of a teacher cut into 1-2, 3-4."""
    rows = [
        {"part": "profile", "tokens": tokens, "metric": metric, "layer": layer, "mean": mean}
        | {"ci_low": mean - 0.01, "ci_high": mean + 0.01, "n": 50}
        for metric, by_tokens in profiles.items()
        for tokens, means in by_tokens.items()
        for layer, mean in enumerate(means, start=first)
    ]
    cut = [
        {"part": "segment", "method": "maxcut", "k": 2, "first": f, "last": f + 1} for f in (1, 3)
    ]
    table = pd.concat([pd.DataFrame(rows).assign(model="teacher"), pd.DataFrame(cut)])
    return table.assign(**{"teacher": "vit", "trained": 1} | more)


def converging(gamma: list[float], norm: list[float], between: list[float]) -> pd.DataFrame:
    profiles = {"direction": {"cls": gamma}, "norm": {"cls": norm}}
    basins = [
        {"part": "basin", "model": "teacher", "metric": metric, "layer": layer, "value": value}
        for layer in range(5)
        for metric, value in (
            ("within_angle", 0.5),
            ("between_angle", between[layer]),
            ("nearest_centroid_accuracy", between[layer] / 4),
        )
    ]
    path = {"part": "trajectory", "model": "teacher", "label": 0, "layer": 0, "x": 0.0, "y": 0.0}
    more = pd.DataFrame([*basins, path]).assign(teacher="vit", trained=1)
    return pd.concat([along(profiles, 0), more])


S_CURVE, EARLY, DIP = [0.1, 0.2, 0.6, 0.9, 1.0], [0.1, 0.6, 0.8, 0.9, 1.0], [0.1, 0.5, 0.2, 0.9, 1]
GROWS, SHRINKS = [0.5, 1.0, 2.0, 3.0, 4.0], [0.5, 4.0, 3.0, 2.0, 1.0]
APART, TOGETHER = [0.5, 1.0, 1.5, 2.0, 2.5], [0.5, 2.0, 1.5, 1.0, 0.5]


@pytest.mark.parametrize(
    ("gamma", "norm", "between", "expected", "absent"),
    [
        (S_CURVE, GROWS, APART, "vit agrees in the mean: γ rises at every layer", "not hold"),
        (EARLY, GROWS, APART, "it does not hold that γ rises fastest at an inner", "disagrees"),
        (DIP, GROWS, APART, "it does not hold that γ rises at every layer.", "disagrees"),
        (S_CURVE, SHRINKS, APART, "it does not hold that norms grow at every layer", "disagrees"),
        (
            S_CURVE,
            GROWS,
            TOGETHER,
            "not hold that classes part along depth or the nearest",
            "vit d",
        ),
        (
            [1.0, 0.95, 0.8, 0.6, 0.1],
            SHRINKS,
            TOGETHER,
            "**vit disagrees**: it does not hold that γ rises",
            "only in part",
        ),
    ],
)
def test_convergence_is_judged_by_the_numbers(gamma, norm, between, expected, absent, tmp_path):
    text = says("directional_convergence", converging(gamma, norm, between), tmp_path)
    assert expected in text
    assert absent not in text
    assert "Phases of vit: 1–2 3–4 (Max-Cut, k = 2)." in text
    assert f"{norm[4] / norm[1]:.2f}-fold" in text


FAST_LAST = {"cls": [1, 0.2, 0.2, 0.8], "patches": [1, 0.3, 0.35, 0.3]}


@pytest.mark.parametrize(
    ("speeds", "expected", "absent"),
    [
        ({**FAST_LAST, "all": [1, 0.3, 0.8, 0.3]}, "vit agrees in the mean: cls turns", "**vit"),
        ({**FAST_LAST, "all": [1, 0.3, 0.8, 0.3]}, "(not tested: registers turn more", "not hold"),
        (
            {**FAST_LAST, "registers": [1, 0.1, 0.1, 0.1], "all": [1, 0.3, 0.1, 0.3]},
            "and registers turn more steadily; it does not hold that the speed is higher",
            "disagrees",
        ),
        (
            {
                "cls": [1, 0.8, 0.2, 0.2],
                "patches": [1, 0.3, 0.3, 0.3],
                "registers": [1, 0.9, 0.1, 0.9],
                "all": [1, 0.5, 0.1, 0.9],
            },
            "**vit disagrees**: it does not hold that cls turns faster",
            "agrees only",
        ),
        (  # patches gain more
            {"cls": [1, 0.2, 0.2, 0.3], "patches": [1, 0.2, 0.2, 0.8], "all": [1, 0.3, 0.8, 0.3]},
            "it does not hold that cls turns faster in the last phase than before it, and gains",
            "disagrees",
        ),
    ],
)
def test_speed_is_judged_by_the_numbers(speeds, expected, absent, tmp_path):
    text = says("angular_speed", along({"speed": speeds}, 1), tmp_path)
    assert expected in text
    assert absent not in text


def test_speed_that_varies_inside_a_phase_is_not_stationary():
    table = along({"speed": {"all": [9.0, 9.0, 1.0, 2.0, 4.0, 3.0]}}, 1)
    table.loc[(table["part"] == "segment") & (table["first"] == 3), "last"] = 6
    found = angular_speed.numbers(table)["results"][0]
    assert found["across"] == 1.0
    assert found["inside"] == pytest.approx((9 + 2 + 4 + 3) / 4)
    assert found["spread"] == pytest.approx(np.std([2, 4, 3], ddof=1) / found["inside"])


@pytest.mark.parametrize(
    ("coherence", "rank", "expected", "absent"),
    [
        (
            [0.2, 0.3, 0.9],
            [4, 4, 2],
            "vit agrees in the mean: patch updates are more alike",
            "**vit",
        ),
        ([0.9, 0.3, 0.2], [4, 4, 2], "it does not hold that patch updates are more alike", "disag"),
        ([0.9, 0.3, 0.2], [2, 2, 4], "**vit disagrees**", "only in part"),
    ],
)
def test_updates_are_judged_by_the_numbers(coherence, rank, expected, absent, tmp_path):
    profiles = {"coherence": {"patches": coherence}, "effective_rank": {"patches": rank}}
    table = along(profiles, 1)
    pooled = table[table["metric"] == "effective_rank"]
    pooled = pooled.assign(part="pooled", value=pooled["mean"] + 1)
    text = says("low_rank_updates", pd.concat([table, pooled]), tmp_path)
    assert expected in text
    assert absent not in text
    late, early = rank[2], (rank[0] + rank[1]) / 2
    assert f"in one image {late:.2f} against {early:.2f}, of all images {late + 1:.2f}" in text
    assert f"to about {published.LATE_UPDATE_RANK} in" in text


def modes(cls: complex, patches: complex, error: float = 0.4) -> pd.DataFrame:
    rows = [
        {"tokens": tokens, "real": mode.real, "imag": mode.imag, "modulus": abs(mode), "mode": 1}
        | {"half_life": 2.0, "spectral_radius": abs(mode), "nearest_to_one": abs(mode - 1)}
        | {"n": 50, "n_train": 100}
        for tokens, mode in (("cls", cls), ("patches", patches))
    ]
    table = pd.DataFrame(rows).assign(residual_persistence=error, phase=1, first=1, last=4)
    table = table.assign(teacher="vit", trained=1, model="teacher")
    return pd.concat([table.assign(part=part) for part in ("mode", "fit")])


@pytest.mark.parametrize(
    ("cls", "patches", "error", "expected", "absent"),
    [
        (0.99 + 0j, 0.8 + 0j, 0.4, "vit agrees in the mean: every eigenvalue", "**vit"),
        (0.8 + 0j, 0.99 + 0j, 0.4, "does not hold that the eigenvalues of cls come", "disagrees"),
        (1.01 + 0j, 0.8 + 0j, 0.4, "does not hold that every eigenvalue lies inside", "disagrees"),
        (0.0 + 2j, 1.1 + 0j, 0.4, "**vit disagrees**", "agrees only"),
        (0.0 + 2j, 1.1 + 0j, 0.4, "1 lie outside the frame (beyond ±1.8)", "predicts better"),
        (0.9 + 0j, 0.8 + 0j, 1.2, "**not every map predicts better", "outside the frame"),
    ],
)
def test_modes_are_judged_by_the_numbers(cls, patches, error, expected, absent, tmp_path):
    text = says("dmd_spectrum", modes(cls, patches, error), tmp_path)
    assert expected in text
    assert absent not in text
    assert f"cls {abs(1 - cls):.3f}" in text


def test_cls_is_nearest_to_one_only_where_it_is_in_every_phase(tmp_path):
    both = [modes(0.99 + 0j, 0.8 + 0j), modes(0.8 + 0j, 0.9 + 0j).assign(phase=2, first=5, last=8)]
    text = says("dmd_spectrum", pd.concat(both), tmp_path)
    assert "every eigenvalue lies inside" in text
    assert "does not hold that the eigenvalues of cls come nearest to one in every phase" in text


def noise(rates: dict[str, float], large: float = 0.5, **more) -> pd.DataFrame:
    """Rates at noise of 1 % and 10 %, and `large` at 50 %, which is not small."""
    rows = [
        {"part": "rate", "tokens": tokens, "relative_size": size, "n": 50, "mean": mean}
        | {"ci_low": mean - 0.01, "ci_high": mean + 0.01, "model": "teacher"}
        for tokens, rate in rates.items()
        for size, mean in ((0.01, rate), (0.1, rate), (0.5, large))
    ]
    deviations = along({"deviation": {tokens: [0.1] * 5 for tokens in rates}}, 0)
    deviations = deviations.assign(source_layer=0, relative_size=0.01)
    rows = pd.DataFrame(rows).assign(teacher="vit", trained=1)
    return pd.concat([deviations, rows]).assign(**more)


@pytest.mark.parametrize(
    ("rates", "expected", "absent"),
    [
        ({"cls": -0.1, "patches": -0.2}, "vit agrees in the mean: small noise on cls", "not hold"),
        ({"cls": -0.1, "patches": 0.2}, "does not hold that small noise on patches", "disagrees"),
        ({"cls": 0.1, "patches": 0.2}, "**vit disagrees**", "only in part"),
    ],
)
def test_noise_is_judged_by_the_numbers(rates, expected, absent, tmp_path):
    text = says("perturbation", noise(rates), tmp_path)
    assert expected in text
    assert absent not in text
    assert f"a factor of {np.exp(rates['cls']):.3f}" in text
    assert "of 1\u00a0%, 10\u00a0% or 50\u00a0% of its norm" in text


def test_noise_on_teachers_with_and_without_cls(tmp_path):
    """What one has and the other has not leaves its panel empty, and says nothing."""
    both = pd.concat(
        [
            noise({"cls": -0.1, "patches": -0.2}),
            noise({"patches": -0.3}).assign(teacher="other"),
        ]
    )
    with style("colorblind"):
        figure = perturbation.draw(both, settings("perturbation"))
    shown = [axes for axes in figure.axes if axes.axison]
    assert len(shown) == 2 * 3 - 1
    plt.close(figure)
    assert "nan" not in says("perturbation", both, tmp_path)


def test_an_untrained_teacher_is_a_control_and_tests_nothing(tmp_path):
    text = says("perturbation", noise({"cls": -0.1, "patches": 0.2}, trained=0), tmp_path)
    assert "No teacher here was trained, so this is not tested." in text
    assert "Of the control vit, which was not trained, this is true: small noise on cls" in text
    text = says("perturbation", noise({"cls": 0.1}, trained=0), tmp_path)
    assert "none of this is true" in text


def test_the_distance_of_a_raptor_is_its_largest(tmp_path):
    table = along({"speed": {name: [1.0, 0.5, 0.5, 0.5] for name in ("all", "cls", "patches")}}, 1)
    raptor = table[table["part"] == "profile"].assign(model="raptor")
    raptor["mean"] += (
        [9.0] * 4 + [0.0, -0.2, 0.1, 0.0] + [0.0] * 4
    )  # that of all tokens is not drawn
    text = says("angular_speed", pd.concat([table, raptor]), tmp_path)
    assert "The mean speeds of the Raptor of vit differ by at most 0.200 rad" in text
