"""Exported Raptors: the same states, read back without this package's modules."""

from __future__ import annotations

import importlib.util

import pytest
import torch

from raptor import export
from raptor.errors import RaptorError
from raptor.export import compare, export_raptor
from raptor.models.block import BlockSpec, RecurrentBlock
from raptor.models.files import save_raptor
from raptor.models.raptor import Raptor

SPECS = {
    "swiglu": BlockSpec.swiglu(8, 2, 0.5, depth_scaling=True),
    "teacher": BlockSpec("teacher", 8, 4, 20, "gelu", None, 1e-6, depth_scaling=False),
}


def raptor_of(spec: BlockSpec) -> Raptor:
    """Weights that are far from any special value, so that every term counts."""
    raptor = Raptor([RecurrentBlock(spec) for _ in range(2)], [0, 0, 1])
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in raptor.parameters():
            parameter.copy_(0.3 * torch.randn(parameter.shape, generator=generator) + 0.05)
    return raptor.eval()


@pytest.fixture(params=SPECS)
def student(request, tmp_path):
    path = tmp_path / "seed0.safetensors"
    save_raptor(raptor_of(SPECS[request.param]), path)
    return path


def states_of(path, a0_BTD: torch.Tensor) -> torch.Tensor:
    """By the package, written down without the Raptor's own forward."""
    raptor = export.load_raptor(path)
    states = [a0_BTD]
    for layer, label in enumerate([0, 0, 1], 1):
        states.append(raptor.blocks[label](states[-1], layer))
    return torch.stack(states[1:], dim=1)


def test_the_program_gives_the_states_at_any_number_of_images(student, tmp_path):
    output = tmp_path / "programs" / "student.pt2"
    agreement = export_raptor(student=student, output=output)
    program = torch.export.load(output).module()
    for images, tokens in ((1, 9), (6, 2), (6, 1)):
        a0_BTD = torch.randn(images, tokens, 8)
        torch.testing.assert_close(program(a0_BTD), states_of(student, a0_BTD))
    assert agreement.difference <= 1e-5 * agreement.largest


def test_what_is_compared():
    raptor = raptor_of(SPECS["swiglu"])
    off = compare(raptor, lambda a0_BTD: raptor(a0_BTD) + 0.25 * (a0_BTD.shape[0] == 1))
    assert off.difference == pytest.approx(0.25, rel=1e-5)
    assert off.largest > 1


@pytest.mark.parametrize("wrong", [1e-2, float("nan")])
def test_a_program_that_computes_something_else_is_not_written(tmp_path, monkeypatch, wrong):
    raptor, student = raptor_of(SPECS["swiglu"]), tmp_path / "seed0.safetensors"
    save_raptor(raptor, student)

    def write(traced, path):
        path.write_text("program")
        return lambda a0_BTD: raptor(a0_BTD) * (1 + wrong)

    monkeypatch.setattr(export, "_write_torch", write)
    monkeypatch.setattr(export, "_traced", lambda raptor: None)
    with pytest.raises(RaptorError, match="not written"):
        export_raptor(student=student, output=tmp_path / "student.pt2")
    assert sorted(path.suffix for path in tmp_path.iterdir()) == [".json", ".safetensors"]


def test_another_suffix_is_refused(student, tmp_path):
    with pytest.raises(RaptorError, match=r"ends in \.pt2 or \.onnx"):
        export_raptor(student=student, output=tmp_path / "student.bin")


def test_absent_packages_are_named(student, tmp_path, monkeypatch):
    present = lambda name: None if name == "onnxscript" else importlib.util.find_spec("json")
    monkeypatch.setattr(export, "find_spec", present)
    with pytest.raises(RaptorError, match="pip install onnxscript`"):
        export_raptor(student=student, output=tmp_path / "student.onnx")


def test_onnx_gives_the_states_at_any_number_of_images(student, tmp_path):
    for name in export.ONNX_PACKAGES:
        pytest.importorskip(name, reason=f"optional: pip install {' '.join(export.ONNX_PACKAGES)}")
    import onnxruntime

    output = tmp_path / "student.onnx"
    agreement = export_raptor(student=student, output=output)
    assert agreement.difference <= 1e-5 * agreement.largest
    session = onnxruntime.InferenceSession(output, providers=["CPUExecutionProvider"])
    for images, tokens in ((1, 9), (6, 2)):
        a0_BTD = torch.randn(images, tokens, 8)
        (states_BLTD,) = session.run(None, {"a0": a0_BTD.numpy()})
        torch.testing.assert_close(torch.from_numpy(states_BLTD), states_of(student, a0_BTD))
