"""Code digests: what must change them, and what must not."""

import json
import textwrap

import pytest

from raptor import provenance


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    """A small checkout: a script that imports raptor.a, which imports raptor.b."""
    (tmp_path / "raptor").mkdir()
    files = {
        "raptor/__init__.py": '"""Package."""\n',
        "raptor/a.py": "from raptor.b import f\n\ndef g():\n    return f() + 1\n",
        "raptor/b.py": '"""B."""\n\ndef f():\n    """Doc."""\n    return 1  # one\n',
        "raptor/c.py": "x = 1\n",
        "run.py": "from raptor import a\n\na.g()\n",
    }
    for name, text in files.items():
        (tmp_path / name).write_text(textwrap.dedent(text))
    monkeypatch.setattr(provenance, "ROOT", tmp_path)

    def digest():
        forget()
        return provenance.code_digest("run.py")

    yield tmp_path, digest
    monkeypatch.undo()
    forget()


def forget():
    """As a new process would find it."""
    for cached in (provenance.code_digest, provenance._read, provenance._parsed):
        cached.cache_clear()


@pytest.mark.parametrize(
    ("file", "old", "new"),
    [
        ("raptor/b.py", "# one", "# uno"),
        ("raptor/b.py", "Doc.", "Another docstring."),
        ("raptor/b.py", "return 1 ", "return 1\n\n "),
        ("raptor/c.py", "x = 1", "x = 2"),  # not imported
    ],
)
def test_comments_docstrings_layout_and_other_modules_do_not_count(checkout, file, old, new):
    root, digest = checkout
    before = digest()
    path = root / file
    path.write_text(path.read_text().replace(old, new))
    assert digest() == before


@pytest.mark.parametrize(
    ("file", "old", "new"),
    [
        ("raptor/b.py", "return 1", "return 2"),  # imported indirectly
        ("raptor/a.py", "+ 1", "+ 2"),
        ("run.py", "a.g()", "a.g"),
        ("raptor/__init__.py", '"""Package."""', '"""Package."""\ny = 1'),
    ],
)
def test_code_that_runs_counts(checkout, file, old, new):
    root, digest = checkout
    before = digest()
    path = root / file
    path.write_text(path.read_text().replace(old, new))
    assert digest() != before


def test_a_text_is_parsed_once(checkout, monkeypatch):
    root, digest = checkout
    before = digest()
    monkeypatch.setattr(provenance, "_parse", lambda *_: pytest.fail("parsed again"))
    assert digest() == before
    monkeypatch.undo()
    monkeypatch.setattr(provenance, "ROOT", root)
    for file in (root / ".snakemake").iterdir():
        file.write_text("not JSON")
    assert digest() == before


def test_a_plot_does_not_depend_on_training():
    import subprocess
    import sys

    code = (
        "from raptor import provenance as p; from pathlib import Path;"
        "print(*sorted(str(f.relative_to(p.ROOT)) for f in"
        " p._reachable(p.ROOT / 'workflow/scripts/draw.py')))"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    files = out.stdout.split()
    assert "raptor/figures/__init__.py" in files
    assert not [f for f in files if "training" in f or "teachers/" in f or "models" in f]


def test_record_has_what_a_reader_needs():
    record = json.loads(json.dumps(provenance.record(seconds=1.0)))
    assert {"git", "versions", "platform", "peak_memory_mb", "seconds"} <= set(record)
    assert record["peak_memory_mb"] > 1


def test_a_stage_does_not_depend_on_the_settings_of_another():
    extraction = {
        str(file.relative_to(provenance.ROOT))
        for file in provenance._reachable(provenance.ROOT / "workflow/scripts/activations.py")
    }
    assert "raptor/config/data.py" in extraction
    assert not extraction & {"raptor/config/figures.py", "raptor/config/students.py"}
    assert not {file for file in extraction if file.startswith(("raptor/probes", "raptor/models"))}
