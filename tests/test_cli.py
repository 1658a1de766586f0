"""The commands `raptor import` and `raptor export`; `raptor plan` is in test_plan.py."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch

import raptor
from raptor import cli
from raptor.models.block import BlockSpec, RecurrentBlock
from raptor.models.files import save_raptor
from raptor.models.raptor import Raptor
from raptor.teachers.build import assemble
from raptor.teachers.files import save_teacher

ROOT = Path(__file__).parents[1]
DATA = ROOT.parent / "shared" / "data"
needs_published = pytest.mark.skipif(
    not (DATA / "authors_raptor_tiny.pt").is_file(),
    reason="../shared/data/authors_raptor_tiny.pt is absent",
)


@pytest.fixture
def student(tmp_path) -> Path:
    path = tmp_path / "seed0.safetensors"
    blocks = [RecurrentBlock(BlockSpec.swiglu(8, 2, 0.5, depth_scaling=True))]
    save_raptor(Raptor(blocks, [0, 0]), path)
    return path


@pytest.fixture(scope="module")
def teacher(tmp_path_factory) -> Path:
    """Of the shape of the published example."""
    architecture = {"depth": 8, "width": 32, "heads": 4, "mlp_ratio": 2.0, "patch_size": 4}
    architecture |= {"image_size": 8, "channels": 1, "num_classes": 0, "registers": 0}
    architecture |= {"layer_scale": None, "stochastic_depth": 0.0, "stem": "patch"}
    path = tmp_path_factory.mktemp("teacher") / "tiny.safetensors"
    save_teacher(assemble(architecture, seed=0), path)
    return path


def one_sentence(capsys) -> str:
    """What was said on stderr."""
    out, err = capsys.readouterr()
    assert not out
    assert err.startswith("raptor: ")
    assert err.count("\n") == 1
    return err


@needs_published
@pytest.mark.parametrize(
    ("output", "written"),
    [("students", "students/authors_raptor_tiny.safetensors"), ("k3.safetensors",) * 2],
    ids=["folder", "file"],
)
def test_import(tmp_path, teacher, capsys, output, written):
    file = str(DATA / "authors_raptor_tiny.pt")
    given = ["import", file, "--teacher", str(teacher), "--output", str(tmp_path / output)]
    assert cli.main(given) == 0
    assert capsys.readouterr().out == f"{tmp_path / written}: k = 3, layers 1-3 4-5 6-8 of tiny\n"
    assert raptor.load(tmp_path / written).labels == (0, 0, 0, 1, 1, 2, 2, 2)


def test_import_says_in_a_sentence_what_is_wrong(tmp_path, teacher, capsys):
    file, output = tmp_path / "mine.pt", str(tmp_path / "out")
    given = ["import", str(file), "--teacher", str(teacher), "--output", output]
    assert cli.main(given) == 1
    assert "no such file" in one_sentence(capsys)
    torch.save(torch.nn.Conv1d(1, 1, 1), file)
    assert cli.main(given) == 1
    assert "asks for torch.nn.modules.conv.Conv1d" in one_sentence(capsys)
    assert not Path(output).exists()


def test_import_needs_the_teacher(capsys):
    with pytest.raises(SystemExit, match="2"):
        cli.main(["import", "mine.pt", "--output", "out"])
    assert "--teacher" in capsys.readouterr().err


def test_export(student, tmp_path, capsys):
    output = tmp_path / "student.pt2"
    assert cli.main(["export", str(student), "--output", str(output)]) == 0
    assert f"{output}: differs from {student} by at most" in capsys.readouterr().out
    a0_BTD = torch.randn(3, 5, 8)
    program = torch.export.load(output).module()
    torch.testing.assert_close(program(a0_BTD), raptor.load(student)(a0_BTD))


def test_export_says_in_a_sentence_what_is_wrong(student, tmp_path, teacher, capsys):
    assert cli.main(["export", str(student), "--output", str(tmp_path / "student.bin")]) == 1
    assert "ends in .pt2 or .onnx" in one_sentence(capsys)
    output = str(tmp_path / "student.pt2")
    assert cli.main(["export", str(tmp_path / "absent.safetensors"), "--output", output]) == 1
    assert "absent.safetensors" in one_sentence(capsys)
    assert cli.main(["export", str(teacher), "--output", output]) == 1
    assert "is not a Raptor" in one_sentence(capsys)
    assert cli.main(["export", str(student), "--output", str(student / "student.pt2")]) == 1
    assert str(student) in one_sentence(capsys)


@pytest.mark.parametrize("given", [["--help"], ["import", "--help"], ["export", "--help"]])
def test_help_needs_no_torch(given):
    code = (
        "import sys\nfrom raptor.cli import main\n"
        f"try:\n    main({given})\nexcept SystemExit:\n    print('torch' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines()[-1] == "False"
    assert "raptor" in done.stdout
