"""Pictures of dense probes, drawn without torch from what is on disk."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import docutils.core
import matplotlib.image
import numpy as np
import pandas as pd
import pytest
from matplotlib import pyplot as plt

from raptor import figures, tables
from raptor.figures import dense_panels
from raptor.figures.style import style
from raptor.qualitative import NO_CLASS, Example, Examples, agreement
from raptor.tables.files import read_table

ROOT = Path(__file__).parents[2]

SETTINGS = {"width_in": 7.0, "dpi": 60, "cmap": "viridis"}
MODEL = {"teacher": "my_vit", "recipe": "paper", "partition": "maxcut", "k": 3, "seed": 7}


def classes() -> Examples:
    truth = np.zeros((8, 12), np.int16)
    truth[:4] = 2
    truth[0, :3] = NO_CLASS
    student = truth.copy()
    student[4:6, :] = 3  # 24 of the 93 pixels that are known
    image = np.zeros((8, 12, 3), np.uint8)
    example = Example(image, truth, truth.clip(min=2), student)
    return Examples(["one"], [example], ["wall", "floor", "tree, plant", "a_b"], MODEL)


def many_classes() -> Examples:
    """Twenty of thirty: class c + 5 has c + 1 pixels."""
    row = np.repeat(np.arange(5, 25, dtype=np.int16), np.arange(1, 21))
    maps = np.tile(row, (4, 1))
    example = Example(np.zeros((*maps.shape, 3), np.uint8), maps, maps, maps)
    return Examples(["one"], [example], [f"class {one}" for one in range(30)], MODEL)


def depths() -> Examples:
    rows = []
    for height, far in ((8, 4.0), (6, 9.0)):
        truth = np.linspace(1.0, far, height * 10, dtype=np.float32).reshape(height, 10)
        student = truth + np.float32(0.5)
        truth[0, 0] = np.nan
        image = np.full((height, 10, 3), 99, np.uint8)
        rows.append(Example(image, truth, truth.copy(), student))
    return Examples(["one", "two"], rows, [], MODEL)


@pytest.fixture
def drawn():
    with style("colorblind"):
        yield lambda examples: dense_panels.draw(examples, SETTINGS)
    plt.close("all")


def panels(figure, rows):
    return np.array(figure.axes[: 4 * rows], dtype=object).reshape(rows, 4)


def test_classes_have_the_same_colour_in_every_panel(drawn, tmp_path):
    examples = classes()
    figure = drawn(examples)
    (row,) = panels(figure, 1)
    truth, student = (row[index].get_images()[0].get_array() for index in (1, 3))
    # Most pixels, true or said, are of class 2, then of 0, then of 3.
    assert examples.classes_by_area == [2, 0, 3]
    for rank, one in enumerate([2, 0, 3]):
        for painted, said in ((truth, examples.examples[0].truth),
                              (student, examples.examples[0].raptor)):  # fmt: skip
            assert (painted[said == one] == dense_panels.COLOURS[rank]).all()
    assert (truth[0, 0] == 1).all()  # not known: white
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["tree", "wall", "a b"]
    assert [axes.get_title() for axes in row] == ["image", "truth", "teacher", "Raptor"]
    assert [axes.get_xlabel() for axes in row[2:]] == ["48 % right", "74 % right"]
    figure.savefig(tmp_path / "classes.png")


def test_classes_that_are_not_named_are_one_grey(drawn):
    examples = many_classes()
    figure = drawn(examples)
    (row,) = panels(figure, 1)
    painted, truth = row[1].get_images()[0].get_array(), examples.examples[0].truth
    named = examples.classes_by_area[: dense_panels.MOST_NAMED]
    assert len(named) == len(figure.legends[0].get_texts()) == 12
    colours = {tuple(painted[truth == one][0]) for one in named}
    assert len(colours) == len(named)
    assert not any(red == green == blue for red, green, blue in colours)
    others = painted[~np.isin(truth, named)]
    assert len(others)
    assert (others == dense_panels.NOT_NAMED).all()


def test_depth_has_one_scale_and_its_error_below(drawn, tmp_path):
    figure = drawn(depths())
    grid = panels(figure, 2)
    limits = {axes.get_images()[0].get_clim() for row in grid for axes in row[1:]}
    ((low, high),) = limits
    assert high == 9.0
    assert 1.0 < low < 1.1  # the first pixel, 1.0, was not measured
    assert [axes.get_xlabel() for axes in grid[1]] == ["", "", "RMSE 0.00 m", "RMSE 0.50 m"]
    assert (grid[0][0].get_images()[0].get_array() == 99).all()
    figure.savefig(tmp_path / "depth.png")


@pytest.mark.parametrize(
    ("target", "examples", "measure"),
    [("segmentation_panels", classes(), "right"), ("depth_panels", depths(), "rmse_m")],
)
def test_from_examples_to_picture_and_caption(target, examples, measure, tmp_path):
    """Through the files of the rules: examples, table, picture, caption."""
    found, text = through_files(target, examples, tmp_path)
    assert list(found["model"]) == ["teacher", "raptor"] * len(examples.examples)
    assert (found["teacher"] == "my_vit").all()
    student = ["recipe", "partition", "k", "seed"]
    for model, rows in found.groupby("model"):
        if model == "teacher":
            assert rows[student].isna().all(axis=None)
        else:
            assert (rows[student] == ["paper", "maxcut", 3, 7]).all(axis=None)
    pixels = matplotlib.image.imread(tmp_path / "one.png")[:, :, :3]
    for edge in (pixels[0], pixels[-1], pixels[:, 0], pixels[:, -1]):
        assert (edge == 1).all()
    assert f"{len(examples.examples)} test images" in text
    assert "Teacher: my vit; Raptor: recipe paper, Max-Cut partition, k = 3, seed 7." in text
    assert "``table_dense`` has the numbers for all test images" in text
    own = found[found["model"] == "raptor"][measure].mean()
    assert (f"{own:.2f} m for the Raptor" if measure == "rmse_m" else f"{100 * own:.1f}") in text
    if measure == "rmse_m":
        assert "patch tokens, and cls where the teacher has one" in text
        assert "RMSE over the whole image" in text


def test_the_caption_says_which_classes_are_grey(tmp_path):
    _, few = through_files("segmentation_panels", classes(), tmp_path)
    assert "The legend names the classes that are there. Below" in few
    found, many = through_files("segmentation_panels", many_classes(), tmp_path)
    assert "names the 12 classes with most pixels of the 20 that are there; the others are" in many
    assert (found[["classes", "classes_shown"]] == [30, 20]).all(axis=None)


@pytest.mark.parametrize("target", ["segmentation_panels", "depth_panels"])
def test_examples_that_do_not_say_of_which_model(target, tmp_path):
    examples = replace(classes() if target == "segmentation_panels" else depths(), model={})
    found, text = through_files(target, examples, tmp_path)
    assert found["teacher"].isna().all()
    assert "of a teacher and of its Raptor" in text
    assert "seed" not in text


def through_files(target: str, examples: Examples, tmp_path: Path) -> tuple[pd.DataFrame, str]:
    """The table and the caption, in one line, that the rules would make."""
    shown, table = tmp_path / "examples.npz", tmp_path / f"{target}.csv"
    examples.save(shown)
    getattr(tables, target)(examples=shown, output=table)
    caption = tmp_path / "caption.rst"
    figures.draw(
        target=target,
        table=table,
        settings=SETTINGS,
        palette="colorblind",
        template=ROOT / f"workflow/report/{target}.rst",
        pdf=tmp_path / "one.pdf",
        png=tmp_path / "one.png",
        caption=caption,
        examples=shown,
    )
    text = caption.read_text()
    docutils.core.publish_parts(text, writer="html", settings_overrides={"halt_level": 2})
    return read_table(table), " ".join(text.split())


def test_agreement_is_over_known_pixels():
    (one,) = classes().examples
    assert agreement(one, "raptor") == pytest.approx((93 - 24) / 93)
    near, far = depths().examples
    assert agreement(near, "teacher") == 0
    assert agreement(far, "raptor") == pytest.approx(0.5)
    unknown = far._replace(truth=np.full_like(far.truth, np.nan))
    assert np.isnan(agreement(unknown, "raptor"))


def test_no_torch():
    code = "import sys; import raptor.figures.dense_panels; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
