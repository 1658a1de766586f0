"""Every figure and printed table, drawn from made-up results; and what captions then say."""

from __future__ import annotations

import importlib
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
from synthetic_study import Study, tabulate

from raptor import figures
from raptor.captions import render
from raptor.config.figures import FiguresConfig
from raptor.errors import RaptorError
from raptor.figures.style import COLORBLIND, style
from raptor.figures.training_curves import last_change
from raptor.tables.files import read_table

ROOT = Path(__file__).parents[2]
FIGURES = [
    "similarity_matrices",
    "maxcut_partitions",
    "partition_comparison",
    "fidelity_by_k",
    "layer_swaps",
    "training_curves",
    "branch_similarity",
]
PRINTED = ["table_partitions", "table_probes", "table_cost"]


def template(target: str) -> Path:
    return ROOT / f"workflow/report/{target}.rst"


def settings(target: str) -> dict:
    return getattr(FiguresConfig(), target).model_dump() | {"dpi": 50}


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


def test_the_gap_at_equal_distance_compares_like_with_like(tmp_path):
    table = swaps(0.8, 0.8)
    far = table[table["kind"] == "inter"].assign(distance=5.0, accuracy=0.1)
    from raptor.figures.layer_swaps import numbers as of

    found = of(pd.concat([table, far]))
    assert found["results"][0]["gap"] == pytest.approx(0.35)  # (0.8 + 0.1) / 2 below 0.8
    assert found["matched"] == [
        {"teacher": "vit", "gap": pytest.approx(0.0, abs=1e-12), "distances": 1}
    ]


def compared(maxcut: float) -> pd.DataFrame:
    random = [0.90, 0.92, 0.94]  # mean 0.92, sd 0.02
    rows = [("random", seed, value) for seed, value in enumerate(random)]
    rows += [("maxcut", seed, maxcut) for seed in range(3)]
    table = pd.DataFrame(rows, columns=["partition", "seed", "recovered"])
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
        (0.99, 0.95, "the means reach these shares", "falls short"),
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
