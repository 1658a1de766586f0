"""The page of all figures and tables: order, what it holds, what it says when something lacks."""

from __future__ import annotations

import base64
import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pandas as pd
import pytest

from raptor.config.load import load_yaml
from raptor.errors import RaptorError
from raptor.figures.page import page
from raptor.report import write_report

ROOT = Path(__file__).parents[1]
REPORT = ROOT / "workflow/report"
CAPTIONS = {
    "layer_swaps": "**What is lost** (paper Fig. 15). Points: swaps.",
    "training_curves": "**Raptors while they train** (paper Appendix). Loss by step.",
    "fidelity_by_k": "**What is kept** (paper Fig. 5, Table 2). Left: accuracy & *R²*.\n\nSecond.",
    "scorecard": "**Every claim** (18 claims). Each was tested.",
    "table_partitions": "**Where each method cuts** (paper Table 3): vit. Cut weight: a sum.",
    "table_probes": "**Accuracy** (paper Table 2), on 100 images.",
}
EXPERIMENT = {
    "experiment": "tiny",
    "data": {
        "source": "digits",
        "image_size": 28,
        "splits": {"train": 300, "val": 60, "test": 100},
    },
    "teachers": {
        "vit_p02": {
            "kind": "trained",
            "depth": 6,
            "width": 16,
            "patch_size": 7,
            "stochastic_depth": 0.2,
            "training": {"epochs": 12, "train_images": None},
        },
        "untrained": {"kind": "untrained", "like": "vit_p02"},
        "halfway": {"kind": "checkpoint", "of": "vit_p02", "epoch": 6},
        "dino": {"kind": "timm", "model": "vit_a.b", "weights": "pretrained", "head": "dino.pth"},
        "mine": {"kind": "timm", "model": "vit_a", "weights": "my.pth", "head": "none"},
    },
    "students": {
        "fidelity": {
            "teachers": ["vit_p02"],
            "recipes": ["phase_mean", "paper"],
            "partitions": ["maxcut"],
            "k": [2, 3],
            "seeds": 1,
        },
    },
    "n_students": 4,
}


def data_of(name: str) -> str:
    """The scorecard's table is one of the experiment's, not only of its picture."""
    is_table = name.startswith("table_") or name == "scorecard"
    return f"{'tables' if is_table else 'figures'}/{name}.csv"


class Page(HTMLParser):
    """The elements of a page, and the text inside the open ones."""

    def __init__(self, html: str):
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []
        self.feed(html)

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))

    def handle_data(self, data):
        self.text.append(data)

    def all(self, tag):
        return [attributes for name, attributes in self.elements if name == tag]


@pytest.fixture
def results(tmp_path):
    """Figures and tables with captions and the records of their jobs; a picture is its name."""
    for name, caption in CAPTIONS.items():
        folder = tmp_path / ("tables" if name.startswith("table_") else "figures")
        folder.mkdir(exist_ok=True)
        (folder / f"{name}.rst").write_text(caption, encoding="utf-8")
        (tmp_path / data_of(name)).parent.mkdir(exist_ok=True)
        (tmp_path / data_of(name)).touch()
        if folder.name == "tables":
            rows = pd.DataFrame({"teacher": ["vit"], "model": ["<b>k & 2</b>"]})
            (folder / f"{name}.html").write_text(page(rows), encoding="utf-8")
        else:
            (folder / f"{name}.png").write_bytes(b"picture of " + name.encode())
            record = {"git": "abc123" if name == "scorecard" else "0def45+"}
            (folder / f"{name}.pdf.provenance.json").write_text(json.dumps(record))
    return tmp_path


def written(results, **changes) -> str:
    arguments = {
        "figures": sorted(results.glob("figures/*.png")),
        "tables": sorted(results.glob("tables/*.html")),
        "experiment": EXPERIMENT,
        "front": REPORT / "workflow.rst",
        "template": REPORT / "page.html.j2",
        "output": results / "report.html",
    }
    write_report(**arguments | changes)
    return (results / "report.html").read_text(encoding="utf-8")


def text(html: str) -> str:
    return " ".join(" ".join(Page(html).text).split())


def test_the_scorecard_comes_first_then_the_order_of_the_paper(results):
    expected = [
        "scorecard",
        "fidelity_by_k",
        "layer_swaps",
        "training_curves",  # has no number in the paper
        "table_probes",
        "table_partitions",
    ]
    html = written(results)
    assert re.findall(r'<h2 id="(\w+)">', html.split("<main>")[1]) == expected
    assert re.findall(r'<a href="#(\w+)">', html) == expected


def test_a_picture_is_in_the_page_byte_for_byte(results):
    pictures = [image["src"].split(",")[1] for image in Page(written(results)).all("img")]
    assert {base64.b64decode(picture, validate=True) for picture in pictures} == {
        path.read_bytes() for path in results.glob("figures/*.png")
    }


def test_the_first_sentence_of_the_caption_describes_the_picture(results):
    described = [image["alt"] for image in Page(written(results)).all("img")]
    assert described == [
        "Every claim (18 claims).",
        "What is kept (paper Fig. 5, Table 2).",
        "What is lost (paper Fig. 15).",
        "Raptors while they train (paper Appendix).",
    ]


def test_captions_and_tables_are_there_and_escaped(results):
    html = written(results)
    assert "Left: accuracy &amp; <em>R²</em>.</p>\n<p>Second.</p>" in html
    assert html.count("&lt;b&gt;k &amp; 2&lt;/b&gt;") == 2
    assert "<b>" not in html
    assert html.count('<th scope="col">') == 4
    for name in CAPTIONS:
        assert f"<code>{data_of(name)}</code>" in html


def test_names_are_text_not_markup(results):
    odd = {"<i>": EXPERIMENT["teachers"]["vit_p02"]}
    html = written(results, experiment=EXPERIMENT | {"teachers": odd})
    assert "<strong>&lt;i&gt;</strong>" in html


def test_it_says_what_was_run(results):
    said = text(written(results))
    for sentence in (
        "Experiment tiny : do Vision Transformers compute in blocks that recur?",
        "digits, 28 px: 300 to train, 60 to validate and 100 to test on",
        "vit p02 : 6 blocks of width 16, 7 px patches, stochastic depth 0.2, trained for 12 epochs",
        "untrained : vit p02 with its initial weights",
        "halfway : vit p02 after epoch 6",
        "dino : vit_a.b of timm, pretrained, with the head dino.pth",
        "mine : vit_a of timm, weights of my.pth, without a head",
        "4 Raptors in 1 grid",
        "of vit p02, recipes phase mean and paper, partitions by Max-Cut, k = 2 and 3, 1 seed",
        "commits 0def45+ and abc123",
    ):
        assert sentence in said


@pytest.mark.parametrize("path", sorted(ROOT.glob("config/*.yaml")), ids=lambda path: path.stem)
def test_every_experiment_has_a_front(path, results):
    """Whatever its teachers and students are."""
    config = load_yaml(path)
    plain = config.model_dump(mode="json", include={"experiment", "data", "teachers", "students"})
    said = text(written(results, experiment=plain | {"n_students": 1}))
    for name in config.teachers:
        assert f" {name.replace('_', ' ')} : " in said


def test_without_records_the_commit_is_unknown(results):
    for record in results.rglob("*.provenance.json"):
        record.unlink()
    assert "commit unknown" in text(written(results))


def test_it_asks_nothing_of_the_network_and_reads_well_aloud(results):
    found = Page(written(results))
    assert found.all("html") == [{"lang": "en"}]
    assert [tag for tag, _ in found.elements if re.fullmatch("h[1-6]", tag)] == ["h1"] + 7 * ["h2"]
    assert found.all("script") == []
    addresses = [
        value
        for _, attributes in found.elements
        for name, value in attributes.items()
        if name in ("src", "href")
    ]
    assert addresses
    assert all(address.startswith(("data:", "#")) for address in addresses)
    style = (REPORT / "page.html.j2").read_text().partition("<style>")[2].partition("</style>")[0]
    assert "url(" not in style
    assert "@import" not in style


def test_the_same_results_give_the_same_bytes(results):
    assert written(results) == written(results)


@pytest.mark.parametrize(
    "missing",
    [
        "figures/layer_swaps.png",
        "figures/layer_swaps.rst",
        "figures/layer_swaps.csv",
        "tables/table_probes.html",
    ],
)
def test_what_is_missing_is_named_in_a_sentence(results, missing):
    figures, tables = sorted(results.glob("figures/*.png")), sorted(results.glob("tables/*.html"))
    (results / missing).unlink()
    with pytest.raises(RaptorError, match=rf"{missing}: missing, .* run `make report`"):
        written(results, figures=figures, tables=tables)
    assert not (results / "report.html").exists()


def test_a_caption_that_is_not_sound_is_named(results, capfd):
    (results / "figures/scorecard.rst").write_text("**Never closed")
    with pytest.raises(RaptorError, match=r"scorecard\.rst: not sound reST .*mend its template"):
        written(results)
    assert capfd.readouterr().err == ""


def test_a_faulty_template_is_named(results):
    template = results / "page.html.j2"
    template.write_text("{{ unheard_of }}")
    with pytest.raises(RaptorError, match=r"page\.html\.j2: no report can be made of it"):
        written(results, template=template)
