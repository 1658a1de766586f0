"""Raptors and blocks saved by the authors' code, made into this project's.

Their code pickles whole modules, `raptor.Raptor` and `block.Block`. Here torch's restricted
unpickler reads them: every class that they are made of is replaced by a stand-in that only keeps
attributes, and a file that names anything else is refused before a byte of it is unpickled.
"""

from __future__ import annotations

import pickle
from bisect import bisect_left
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch

from raptor.errors import RaptorError, first_line
from raptor.files import sha256
from raptor.models.block import BlockSpec, RecurrentBlock
from raptor.models.files import save_raptor
from raptor.models.raptor import Raptor
from raptor.partition import format_segments
from raptor.teachers.adapter import Teacher
from raptor.teachers.files import load_teacher

_NN = "torch.nn.modules"
RAPTOR, BLOCK = "raptor.Raptor", "block.Block"
_SCALE, _SWIGLU = "block.LayerScale", "block.SwiGLU"
_SEQUENTIAL, _LIST = f"{_NN}.container.Sequential", f"{_NN}.container.ModuleList"
_NORM, _ATTENTION = f"{_NN}.normalization.LayerNorm", f"{_NN}.activation.MultiheadAttention"
_GELU, _SILU = f"{_NN}.activation.GELU", f"{_NN}.activation.SiLU"
_LINEAR, _IDENTITY = f"{_NN}.linear.Linear", f"{_NN}.linear.Identity"
_PROJECTION = f"{_NN}.linear.NonDynamicallyQuantizableLinear"  # what MultiheadAttention ends with
_KINDS = (
    RAPTOR, BLOCK, _SCALE, _SWIGLU, _SEQUENTIAL, _LIST, _NORM, _ATTENTION, _GELU, _SILU,
    _LINEAR, _IDENTITY, _PROJECTION,
)  # fmt: skip

# Both fuse query, key and value in one matrix, in this order and head by head.
_OUR_NAMES = (
    ("attn.in_proj_", "attn.qkv."),
    ("attn.out_proj.", "attn.proj."),
    ("mlp.0.", "mlp.fc1."),
    ("mlp.2.", "mlp.fc2."),
    ("t_proj.0.", "depth_scaling.fc1."),
    ("t_proj.2.", "depth_scaling.fc2."),
)


class SavedModule:
    """The attributes that a module had when it was saved; it has no behaviour of its own."""

    kind: str  # the class that it stands for

    def __setstate__(self, attributes: dict[str, Any]) -> None:
        self.attributes = attributes

    def within(self, prefix: str = "") -> dict[str, SavedModule]:
        """Dotted name -> module, over this module (`""`) and those inside it."""
        found = {prefix.removesuffix("."): self}
        for name, module in self.attributes["_modules"].items():
            found |= module.within(f"{prefix}{name}.")
        return found

    def weights(self) -> dict[str, torch.Tensor]:
        """Dotted name -> parameter, over this module and those inside it."""
        return {
            f"{name}.{key}": weight
            for name, module in self.within().items()
            for key, weight in module.attributes["_parameters"].items()
            if weight is not None
        }


_STAND_INS = [(type(SavedModule.__name__, (SavedModule,), {"kind": k}), k) for k in _KINDS]


def import_published(*, file: Path, teacher: Path, output: Path) -> Raptor:
    """Write the Raptor in `file`, saved by the authors' code, as `output` (`.safetensors`, JSON).

    A block alone becomes a Raptor of one block that makes all layers of the teacher. `teacher` is
    the one that was reconstructed, of this project's making: its depth is not in `file`, and its
    width and heads must be the student's. RaptorError for a file that cannot be read without
    running code from it, that is not built as the authors' code does, or of another shape.
    """
    owner, saved = _load_teacher(teacher), read_published(file)
    try:
        raptor = _converted(saved, owner)
    except RaptorError as error:
        raise RaptorError(f"{file}: {error}") from None
    except Exception as error:  # a forged file breaks any assumption
        raise RaptorError(
            f"{file}: is not built as a {saved.kind} of the authors' code "
            f"({type(error).__name__}: {first_line(error)}); give a file that it wrote"
        ) from None
    save_raptor(
        raptor,
        output,
        teacher=teacher.stem,
        teacher_sha256=sha256(teacher),
        k=len(raptor.blocks),
        segments=format_segments([(run.first, run.last) for run in raptor.runs()]),
        parameters=sum(parameter.numel() for parameter in raptor.parameters()),
        imported={"file": file.name, "sha256": sha256(file), "kind": saved.kind},
    )
    return raptor


def _load_teacher(path: Path) -> Teacher:
    try:
        return load_teacher(path)
    except KeyError as error:
        raise RaptorError(
            f"{path}: is not a teacher, its description lacks {error}; give the .safetensors of "
            "the teacher that was reconstructed"
        ) from None


def read_published(file: Path) -> SavedModule:
    """The whole `raptor.Raptor` or `block.Block` in `file`, without running any code from it."""
    if not file.is_file():
        raise RaptorError(f"{file}: no such file; give a .pt file that the authors' code saved")
    with torch.serialization.safe_globals(_STAND_INS):
        try:
            foreign = torch.serialization.get_unsafe_globals_in_checkpoint(file)
            if not foreign:
                saved = torch.load(file, map_location="cpu", weights_only=True)
        except Exception as error:  # torch, zip and pickle each have their own
            raise RaptorError(
                f"{file}: cannot be read as a module that torch saved ({_reason(error)}); nothing "
                "of it was run; give the whole .pt file that the authors' code wrote"
            ) from None
    if foreign:
        raise RaptorError(
            f"{file}: refused, as it asks for {', '.join(sorted(foreign))}, which no Raptor or "
            "block of the authors' code holds; nothing of it was run; give a file from their code"
        )
    if not isinstance(saved, SavedModule) or saved.kind not in (RAPTOR, BLOCK):
        found = saved.kind if isinstance(saved, SavedModule) else type(saved).__name__
        raise RaptorError(
            f"{file}: holds a {found}, not a {RAPTOR} or {BLOCK}; give the file of a whole module "
            "that the authors' code saved"
        )
    return saved


def _reason(error: Exception) -> str:
    # torch's own sentence about a pickle advises to load it without restriction.
    misshapen = isinstance(error, pickle.UnpicklingError) and "weights_only" in str(error)
    return "not the pickle of a module" if misshapen else first_line(error)


def _converted(saved: SavedModule, teacher: Teacher) -> Raptor:
    if saved.kind == BLOCK:
        sources, thresholds = [saved], []
    else:
        sources = list(saved.attributes["_modules"]["blocks"].attributes["_modules"].values())
        thresholds = [int(threshold) for threshold in saved.attributes["thresholds"]]
    labels = _labels(thresholds, len(sources), teacher.depth)
    specs = [_spec(source) for source in sources]
    for spec in specs:
        _check_fit(spec, teacher)
    if len(set(specs)) > 1:
        raise RaptorError(
            "its blocks differ in make (MLP, layer scale or depth scaling), and those of a Raptor "
            "here are all of one; import the blocks one by one"
        )
    return Raptor(map(_block, sources, specs), labels)


def _labels(thresholds: Sequence[int], blocks: int, depth: int) -> list[int]:
    """The block 0..k-1 of each layer 1..depth: the first whose threshold is not below the layer."""
    if len(thresholds) != blocks - 1:
        raise RaptorError(
            f"has {blocks} blocks and {len(thresholds)} thresholds {thresholds}, which must be one "
            "fewer; give a file that the authors' code wrote"
        )
    if any(a >= b for a, b in pairwise([0, *thresholds, depth])):
        raise RaptorError(
            f"its {blocks} blocks end at the layers {thresholds} and the last one, which cannot be "
            f"with the teacher's {depth} layers; give the teacher that it was trained on"
        )
    return [bisect_left(thresholds, layer) for layer in range(1, depth + 1)]


def _check_fit(spec: BlockSpec, teacher: Teacher) -> None:
    for name, own, needed in (
        ("width", spec.width, teacher.width),
        ("number of heads", spec.heads, teacher.num_heads),
    ):
        if own != needed:
            raise RaptorError(
                f"its {name} is {own}, the teacher's is {needed}; give the teacher that it was "
                "trained on"
            )


def _spec(block: SavedModule) -> BlockSpec:
    """What the block is; RaptorError where one of ours cannot be the same."""
    parts, weights = block.within(), block.weights()
    gated, scaled = parts["mlp.1"].kind == _SWIGLU, bool(block.attributes["t_scale"])
    hidden, width = weights["mlp.0.weight"].shape
    spec = BlockSpec(
        kind="swiglu" if gated else "teacher",
        width=width,
        heads=int(parts["attn"].attributes["num_heads"]),
        hidden=hidden,
        activation="silu" if gated else "gelu",
        layer_scale=None if parts["ls1"].kind == _IDENTITY else 1e-5,  # replaced by the weights
        eps=float(parts["norm1"].attributes["eps"]),
        depth_scaling=scaled,
    )
    expected = _modules_of(spec)
    for name in sorted(expected.keys() | parts.keys()):
        found = parts[name].kind if name in parts else "absent"
        if found != expected.get(name, "absent"):
            raise RaptorError(
                f"in its block, {name or 'the whole'} is {found}, this project's block needs "
                f"{expected.get(name, 'absent')}; import a block of the published make"
            )
    for (name, setting), needed in _settings_of(spec).items():
        found = parts[name].attributes.get(setting)
        if found != needed:
            raise RaptorError(
                f"in its block, {name} has {setting} = {found}, this project's block needs "
                f"{needed}; import a block of the published make"
            )
    return spec


def _modules_of(spec: BlockSpec) -> dict[str, str]:
    """Dotted name -> class of the authors' modules for the same block."""
    scale = _IDENTITY if spec.layer_scale is None else _SCALE
    activation = _SWIGLU if spec.kind == "swiglu" else _GELU
    modules = {
        "": BLOCK, "norm1": _NORM, "norm2": _NORM, "ls1": scale, "ls2": scale,
        "attn": _ATTENTION, "attn.out_proj": _PROJECTION,
        "mlp": _SEQUENTIAL, "mlp.0": _LINEAR, "mlp.1": activation, "mlp.2": _LINEAR,
    }  # fmt: skip
    if spec.depth_scaling:
        modules |= {"t_proj": _SEQUENTIAL, "t_proj.0": _LINEAR}
        modules |= {"t_proj.1": _SILU, "t_proj.2": _LINEAR}
    return modules


def _settings_of(spec: BlockSpec) -> dict[tuple[str, str], Any]:
    """What the authors' modules must be set to for the same block, beside their weights."""
    settings = {
        ("attn", "batch_first"): True,
        ("attn", "add_zero_attn"): False,
        ("norm2", "eps"): spec.eps,
    }
    return settings if spec.kind == "swiglu" else settings | {("mlp.1", "approximate"): "none"}


def _block(source: SavedModule, spec: BlockSpec) -> RecurrentBlock:
    block = RecurrentBlock(spec)
    weights = {_our_name(name): weight for name, weight in source.weights().items()}
    own = block.state_dict()
    for name in sorted(own.keys() | weights.keys()):
        found, needed = (
            tuple(some[name].shape) if name in some else "absent" for some in (weights, own)
        )
        if found != needed:
            raise RaptorError(
                f"in its block, the weights of {name} are {found}, this project's block needs "
                f"{needed}; import a block of the published make"
            )
    block.load_state_dict(weights)
    return block


def _our_name(name: str) -> str:
    for theirs, ours in _OUR_NAMES:
        name = name.replace(theirs, ours)
    return name
