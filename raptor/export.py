"""Raptors as programs that run without this package: torch.export (`.pt2`) and ONNX (`.onnx`)."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import torch
from torch.export import Dim, ExportedProgram

from raptor.errors import RaptorError
from raptor.files import replacing
from raptor.models.files import load_raptor
from raptor.models.raptor import Raptor

ONNX_PACKAGES = ("onnx", "onnxscript", "onnxruntime")
_CHECKED = ((1, 7), (5, 4))  # images, tokens: neither is what the program was traced with
# Other kernels, another order of sums: in float32 that shows in the sixth digit. A program that
# computes something else differs in the first ones.
_TOLERANCE = 1e-4

Program = Callable[[torch.Tensor], torch.Tensor]


class Agreement(NamedTuple):
    """How far a program is from its Raptor, on random embedding states."""

    difference: float  # largest absolute difference of an entry
    largest: float  # largest absolute entry


def export_raptor(*, student: Path, output: Path) -> Agreement:
    """Write the Raptor in `student` (`.safetensors`) as a program, and compare the two.

    `output` is a `.pt2` for `torch.export.load(output).module()`, or an `.onnx`. The program
    takes a_0 (B, T, D) and gives all L states (B, L, T, D), float32, for any number of images B
    and of tokens T. It is read back from the file and run; RaptorError, and no file, where it
    does not compute what the Raptor does.
    """
    writers = {".pt2": _write_torch, ".onnx": _write_onnx}
    if output.suffix not in writers:
        raise RaptorError(
            f"{output}: unknown kind of program; give a file that ends in .pt2 or .onnx"
        )
    if output.suffix == ".onnx":
        _require_onnx(output)
    raptor = load_raptor(student)
    with replacing(output) as temporary:
        program = writers[output.suffix](_traced(raptor), temporary)
        agreement = compare(raptor, program)
        if not agreement.difference <= _TOLERANCE * agreement.largest:
            raise RaptorError(
                f"{output}: not written, as the program differs from {student} by "
                f"{agreement.difference:.2g} where states are up to {agreement.largest:.2g}; "
                "export with the versions of requirements.lock"
            )
    return agreement


def compare(raptor: Raptor, program: Program) -> Agreement:
    """Both on the same random a_0, at several numbers of images and tokens."""
    generator, width = torch.Generator().manual_seed(0), raptor.blocks[0].spec.width
    differences, sizes = [], []
    for images, tokens in _CHECKED:
        a0_BTD = torch.randn(images, tokens, width, generator=generator)
        with torch.no_grad():
            expected_BLTD, found_BLTD = raptor(a0_BTD), program(a0_BTD)
        differences.append((found_BLTD - expected_BLTD).abs().max())
        sizes.append(expected_BLTD.abs().max())
    return Agreement(torch.stack(differences).max().item(), torch.stack(sizes).max().item())


def _traced(raptor: Raptor) -> ExportedProgram:
    a0_BTD = torch.zeros(2, 3, raptor.blocks[0].spec.width)
    dynamic = ({0: Dim("images"), 1: Dim("tokens")},)
    return torch.export.export(raptor, (a0_BTD,), dynamic_shapes=dynamic)


def _write_torch(traced: ExportedProgram, path: Path) -> Program:
    with path.open("wb") as file:
        torch.export.save(traced, file)
    with path.open("rb") as file:  # safe: written in the lines above
        return torch.export.load(file).module()


def _write_onnx(traced: ExportedProgram, path: Path) -> Program:
    from onnxruntime import InferenceSession  # optional, as `_require_onnx` says

    program = torch.onnx.export(
        traced, dynamo=True, input_names=["a0"], output_names=["states"], verbose=False
    )
    program.save(path, external_data=False)
    session = InferenceSession(path, providers=["CPUExecutionProvider"])
    return lambda a0_BTD: torch.from_numpy(session.run(["states"], {"a0": a0_BTD.numpy()})[0])


def _require_onnx(output: Path) -> None:
    missing = [name for name in ONNX_PACKAGES if find_spec(name) is None]
    if missing:
        raise RaptorError(
            f"{output}: an ONNX file needs the packages {', '.join(missing)}, which are not "
            f"installed; run `pip install {' '.join(missing)}`, or give a file that ends in .pt2"
        )
