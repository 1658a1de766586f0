"""From template and numbers to a caption, and what its numbers look like."""

from __future__ import annotations

import math
import re
from pathlib import Path
from types import SimpleNamespace

import docutils.core
import pytest
from jinja2 import Environment

from raptor import captions
from raptor.errors import RaptorError
from raptor.tables.summary import summarise

REPORT = Path(__file__).parents[1] / "workflow/report"
TEMPLATES = sorted(REPORT.glob("*.rst"))


def rendered(tmp_path: Path, text: str, **numbers) -> str:
    template = tmp_path / "caption.rst"
    template.write_text(text, encoding="utf-8")
    return captions.render(template, numbers)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{{ 0.9534 | percent }}", "95.3\u00a0%"),
        ("{{ 0.9534 | percent(0) }}", "95\u00a0%"),
        ("{{ nan | percent }}", "–"),
        ("{{ none | percent }}", "–"),
        ("{{ 0.0123 | points }}", "+1.2"),
        ("{{ -0.0123 | points }}", "−1.2"),
        ("{{ -0.00001 | points }}", "0.0"),
        ("{{ -1.23456 | number }}", "−1.235"),
        ("{{ -0.0001 | number }}", "−0.0001"),  # not nothing because it is small
        ("{{ -0.00001 | number }}", "0.000"),
        ("{{ 0.0002 | percent }}", "0.02\u00a0%"),
        ("{{ [1] | listing }}", "1"),
        ("{{ [1, 2] | listing }}", "1 and 2"),
        ("{{ ['a', 'b', 'c'] | listing('or') }}", "a, b or c"),
        ("{{ three | percent_spread }}", "92.0 ± 2.0\u00a0%"),
        ("{{ three | spread }}", "0.920 ± 0.020"),
        ("{{ one | percent_spread }}", "92.0\u00a0%"),
        ("{{ one | spread(1) }}", "0.9"),
    ],
)
def test_numbers_as_text(text, expected, tmp_path):
    numbers = {"three": summarise([0.9, 0.92, 0.94]), "one": summarise([0.92])}
    assert rendered(tmp_path, text, nan=math.nan, **numbers) == f"{expected}\n"


def test_paragraphs_are_refilled_and_tags_leave_no_gap(tmp_path):
    text = (
        "One\n{% if yes %}\ntwo   three\n{% endif %}\n.\n\n\n{% if no %}\nx\n{% endif %}\n\nFour.\n"
    )
    assert rendered(tmp_path, text, yes=True, no=False) == "One two three .\n\nFour.\n"
    long = rendered(tmp_path, "word " * 60)
    assert max(map(len, long.splitlines())) <= 98
    assert long.split() == ["word"] * 60


@pytest.mark.parametrize("text", ["{{ missing }}", "{% if %}", "{{ 1 | unheard_of }}"])
def test_a_faulty_template_is_named(text, tmp_path):
    with pytest.raises(RaptorError, match=r"caption\.rst: no caption can be made of it"):
        rendered(tmp_path, text)


def test_an_absent_template_is_named(tmp_path):
    with pytest.raises(RaptorError, match=r"none\.rst"):
        captions.render(tmp_path / "none.rst", {})


def test_write_caption_writes_what_render_gives(tmp_path):
    template = tmp_path / "caption.rst"
    template.write_text("R² = {{ r2 | number }}", encoding="utf-8")
    captions.write_caption(template, {"r2": 0.5}, tmp_path / "out/caption.rst")
    assert (tmp_path / "out/caption.rst").read_text(encoding="utf-8") == "R² = 0.500\n"


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: path.stem)
def test_no_result_is_typed_into_a_template(path):
    typed = re.sub(r"\{\{.*?\}\}|\{%.*?%\}", "", path.read_text(encoding="utf-8"), flags=re.S)
    typed = re.sub(r"arXiv [\d.]+|95 % |(Fig\.|Figs|Table) \d+|DINOv2|stage 2|R²|a₀", "", typed)
    assert re.findall(r"\d[\d.,]*", typed.replace("b + 1", "").replace("λ is 0", "")) == []


def test_the_front_page_names_the_experiment():
    snakemake = SimpleNamespace(config={"experiment": "laptop"})
    text = (REPORT / "workflow.rst").read_text(encoding="utf-8")
    text = Environment(autoescape=False).from_string(text).render(snakemake=snakemake)
    parts = docutils.core.publish_parts(text, writer="html", settings_overrides={"halt_level": 2})
    assert "<strong>laptop</strong>" in parts["body"]
