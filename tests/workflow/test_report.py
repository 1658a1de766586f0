"""The reports as a reader sees them: in a browser, without a network."""

from __future__ import annotations

import importlib
import shutil
import zipfile
from dataclasses import dataclass
from pathlib import Path

import pytest
from browser import chromium

from raptor.tables.files import read_table

SMOKE = ("--configfile", "config/smoke.yaml")
pytestmark = pytest.mark.skipif(
    not (shutil.which("chromium") and shutil.which("chromedriver")),
    reason="needs a browser: Debian's packages chromium and chromium-driver",
)
# Clicks on the link with this text, or the icon in the row with this text; false if not there.
CLICK_LINK = """
const link = [...document.querySelectorAll("nav a")].find(a => a.innerText.trim() === arguments[0]);
if (link) link.click();
return Boolean(link);
"""
CLICK_ICON = """
const row = [...document.querySelectorAll("tr")].find(r => r.innerText.trim() === arguments[0]);
const icon = row && row.querySelector(`a[iconname="${arguments[1]}"]`);
if (icon) icon.click();
return Boolean(icon);
"""
IS_SHOWN = """
return [...document.images].some(image =>
  image.src.endsWith(arguments[0]) && image.complete && image.naturalWidth > 0);
"""
TEXT = "return document.body.innerText.split(/\\s+/).join(' ').includes(arguments[0])"


@dataclass(frozen=True)
class Reports:
    results: Path  # of the experiment
    page: Path  # ours
    snakemake: Path

    def captions(self, folder: str) -> dict[str, str]:
        """Target -> its caption as plain text."""
        captions = sorted((self.results / folder).glob("*.rst"))
        return {path.stem: plain(path.read_text(encoding="utf-8")) for path in captions}


def plain(caption: str) -> str:
    """reST of the kind that captions are written in, without its marks."""
    return " ".join(caption.replace("``", "").replace("*", "").split())


@pytest.fixture(scope="module")
def reports(finished, tmp_path_factory) -> Reports:
    """Both reports, away from the results that they were made from."""
    results = finished.path / "results/smoke"
    finished.snakemake("report_page", *SMOKE)
    finished.snakemake("--report", "results/smoke/report.zip", *SMOKE)
    away = tmp_path_factory.mktemp("reports")
    shutil.copy(results / "report.html", away)
    with zipfile.ZipFile(results / "report.zip") as archive:
        archive.extractall(away)
    return Reports(results, away / "report.html", away / "report/report.html")


@pytest.fixture
def browser(tmp_path):
    with chromium(tmp_path / "profile") as browser:
        yield browser


def printed_rows(target: str, table: Path) -> int:
    """Of a printed table; some put several rows of their data into one."""
    return len(importlib.import_module(f"raptor.figures.{target}").rows(read_table(table)))


def from_this_machine(requests: list[str]) -> bool:
    return bool(requests) and all(url.startswith(("file:", "data:", "blob:")) for url in requests)


def test_the_browser_notices_what_a_report_must_not_do(browser, tmp_path):
    page = tmp_path / "page.html"
    page.write_text('<img src="https://example.org/a.png"><script>absent()</script>')
    browser.open(page)
    assert not from_this_machine(browser.requests())
    errors = browser.errors()
    assert any("absent is not defined" in error for error in errors)
    assert any("ERR_NAME_NOT_RESOLVED" in error for error in errors)


def test_the_page_shows_every_figure_and_caption(reports, browser):
    browser.open(reports.page)
    pictures, tables = reports.captions("figures"), reports.captions("tables")
    assert len(pictures) >= 6
    assert len(tables) >= 2
    shown = browser.run("""
        return [...document.querySelectorAll("main section")].map(section => ({
            name: section.querySelector("h2").id,
            caption: section.querySelector("figcaption").innerText,
            pixels: [...section.querySelectorAll("img")].map(image => image.naturalWidth),
            rows: section.querySelectorAll("tbody tr").length,
        }));
    """)
    assert {one["name"] for one in shown} == pictures.keys() | tables.keys()
    for one in shown:
        caption, data = " ".join(one["caption"].split()).split(" Data: ")
        assert caption == (pictures | tables)[one["name"]]
        assert Path(data).stem == one["name"]
        assert (reports.results / data).is_file()
        assert [width > 500 for width in one["pixels"]] == ([] if one["rows"] else [True])
    assert from_this_machine(browser.requests())
    assert browser.errors() == []


def test_the_contents_lead_to_every_figure(reports, browser):
    browser.open(reports.page)
    links = "return [...document.querySelectorAll('nav a')].map(link => link.hash.slice(1))"
    sections = "return [...document.querySelectorAll('main h2')].map(heading => heading.id)"
    assert browser.run(links) == browser.run(sections)
    assert browser.run("return [...document.links].every(link => link.protocol === 'file:')")


def test_the_page_fits_a_phone(reports, browser):
    browser.be_a_phone()
    browser.open(reports.page)
    assert browser.run("return innerWidth") == 375
    assert browser.run("return document.documentElement.scrollWidth") == 375


def test_the_report_of_snakemake_opens_every_figure_and_caption(reports, browser):
    browser.open(reports.snakemake)
    for target, caption in reports.captions("figures").items():
        browser.wait(CLICK_LINK, "Figures")
        browser.wait(CLICK_ICON, target.replace("_", " "), "eye")
        browser.wait(IS_SHOWN, f"/{target}.png")
        browser.wait(CLICK_ICON, target.replace("_", " "), "information-circle")
        browser.wait(TEXT, caption)
    assert from_this_machine(browser.requests())
    assert browser.errors() == []


def test_the_report_of_snakemake_opens_every_table_and_caption(reports, browser):
    for target, caption in reports.captions("tables").items():
        browser.open(reports.snakemake)
        browser.wait(CLICK_LINK, "Tables")
        browser.wait(CLICK_ICON, target.removeprefix("table_"), "eye")
        rows = browser.inside("iframe", "return document.querySelectorAll('tbody tr').length")
        assert rows == printed_rows(target, reports.results / f"tables/{target}.csv")
        browser.wait(CLICK_ICON, target.removeprefix("table_"), "information-circle")
        browser.wait(TEXT, caption)
    assert from_this_machine(browser.requests())
    assert browser.errors() == []
