"""Raptors and blocks of the authors' code: the same states, and no code from the file."""

from __future__ import annotations

import os
import pickle
import zipfile
from pathlib import Path

import authors
import numpy as np
import pytest
import torch
from torch import nn

import raptor
from raptor.errors import RaptorError
from raptor.models.files import raptor_facts
from raptor.models.published import import_published
from raptor.teachers.build import assemble
from raptor.teachers.files import save_teacher

DATA = Path(__file__).parents[3] / "shared" / "data"
needs_published = pytest.mark.skipif(
    not (DATA / "authors_raptor_tiny.pt").is_file(),
    reason="../shared/data/authors_raptor_tiny.pt is absent",
)
DEPTH = 6


def teacher_of(folder: Path, **shape) -> Path:
    """A teacher on disk; of what is imported it decides the depth alone."""
    shape = {"depth": DEPTH, "width": 16, "heads": 2} | shape
    architecture = {"mlp_ratio": 2.0, "patch_size": 4, "image_size": 8, "channels": 1}
    architecture |= {"num_classes": 0, "registers": 0, "layer_scale": None, "stem": "patch"}
    path = folder / "vit.safetensors"
    save_teacher(assemble(architecture | shape | {"stochastic_depth": 0.0}, seed=0), path)
    return path


@pytest.fixture
def teacher(tmp_path) -> Path:
    return teacher_of(tmp_path)


@pytest.fixture
def imported(tmp_path, teacher):
    """The Raptor made from a file or a module, from disk again."""

    def run(module: Path | nn.Module, teacher: Path = teacher):
        path, output = module, tmp_path / "out" / "student.safetensors"
        if not isinstance(module, Path):
            path = tmp_path / "saved.pt"
            authors.save(module, path)
        import_published(file=path, teacher=teacher, output=output)
        return raptor.load(output)

    return run


@pytest.fixture
def refused(imported, tmp_path):
    """The one sentence that refuses a file or a module; nothing may be written."""

    def run(module: Path | nn.Module, **options) -> str:
        with pytest.raises(RaptorError) as caught:
            imported(module, **options)
        text = str(caught.value)
        assert "\n" not in text
        assert not (tmp_path / "out").exists()
        return text

    return run


def randomised(module: nn.Module) -> nn.Module:
    """Weights that are far from any special value, so that every term counts."""
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(0.3 * torch.randn(parameter.shape, generator=generator) + 0.05)
    return module.eval()


# --- the same function ---------------------------------------------------------------------------


@needs_published
def test_published_raptor_gives_the_published_states(imported, tmp_path):
    file, shape = DATA / "authors_raptor_tiny.pt", {"depth": 8, "width": 32, "heads": 4}
    student = imported(file, teacher_of(tmp_path, **shape))
    assert student.labels == (0, 0, 0, 1, 1, 2, 2, 2)
    io = np.load(DATA / "authors_raptor_tiny_io.npz")
    with torch.no_grad():
        states_BLTD = student(torch.from_numpy(io["a0"]))
    # Entries go up to 25, where a float32 is accurate to 1e-6: 1e-5 is a few roundings.
    np.testing.assert_allclose(states_BLTD, io["states"], rtol=1e-6, atol=1e-5)
    facts = raptor_facts(tmp_path / "out" / "student.safetensors")
    assert facts["segments"] == "1-3 4-5 6-8"
    assert (facts["teacher"], facts["k"]) == ("vit", 3)
    assert facts["imported"]["file"] == file.name
    assert facts["parameters"] == sum(w.numel() for w in student.parameters())


@needs_published
def test_published_block_alone_makes_any_stretch_of_layers(imported, tmp_path):
    shape = {"depth": 8, "width": 32, "heads": 4}
    student = imported(DATA / "authors_raptor_tiny_block.pt", teacher_of(tmp_path, **shape))
    assert student.labels == (0,) * 8
    io = np.load(DATA / "authors_raptor_tiny_io.npz")
    with torch.no_grad():
        states_BTD = student.rollout(torch.from_numpy(io["a0"]), 1, 3)
    found_BLTD = torch.stack(states_BTD, dim=1)
    np.testing.assert_allclose(found_BLTD, io["states"][:, :3], rtol=1e-6, atol=1e-5)


@pytest.mark.parametrize(
    "options",
    [{}, {"gated": False}, {"scaled": False}, {"layer_scale": False}, {"ratio": 3},
     {"gated": False, "scaled": False, "layer_scale": False, "ratio": 2}],
    ids=lambda options: "-".join(options) or "published",
)  # fmt: skip
def test_every_make_of_block_gives_the_states_of_torchs_attention(imported, options):
    blocks = [authors.Block(**options) for _ in range(2)]
    module = randomised(authors.Raptor(blocks, [2]))
    student, module = imported(module).double(), module.double()
    a0_BTD = torch.randn(2, 5, 16, dtype=torch.double, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        found, expected = student(a0_BTD), module(a0_BTD, DEPTH)
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-10)


def test_precision_and_training_mode_of_the_file_leave_no_trace(imported):
    module = authors.Raptor([authors.Block()], [])
    student = imported(module.double().train())
    assert {weight.dtype for weight in student.state_dict().values()} == {torch.float32}
    assert not student.training
    assert not any(weight.requires_grad for weight in student.parameters())


# --- another shape, another make -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("shape", "message"),
    [({"width": 24}, "width is 16, the teacher's is 24"),
     ({"heads": 4}, "number of heads is 2, the teacher's is 4"),
     ({"depth": 5}, "end at the layers [2, 5]")],
    ids=["width", "heads", "depth"],
)  # fmt: skip
def test_a_teacher_of_another_shape_is_refused(refused, tmp_path, shape, message):
    module = authors.Raptor([authors.Block() for _ in range(3)], [2, 5])
    text = refused(module, teacher=teacher_of(tmp_path, **shape))
    assert message in text
    assert str(tmp_path / "saved.pt") in text
    assert "give the teacher" in text


def without_batch_first(block):
    block.attn.batch_first = False


def with_zero_attention(block):
    block.attn.add_zero_attn = True


def with_another_epsilon(block):
    block.norm2.eps = 1e-6


def with_tanh(block):
    block.mlp[1] = nn.GELU(approximate="tanh")


def with_narrow_scaling(block):
    block.t_proj = nn.Sequential(nn.Linear(1, 8), nn.SiLU(), nn.Linear(8, 48))


def with_unused_scaling(block):
    block.t_scale = False


def without_a_bias(block):
    block.mlp[2].bias = None


def with_a_layer_more(block):
    block.mlp.append(nn.Linear(16, 16))


def with_one_scale_gone(block):
    block.ls2 = nn.Identity()


def with_another_activation(block):
    block.t_proj[1] = nn.GELU()


@pytest.mark.parametrize(
    ("change", "names"),
    [(without_batch_first, "attn has batch_first = False"),
     (with_zero_attention, "attn has add_zero_attn = True"),
     (with_another_epsilon, "norm2 has eps = 1e-06"),
     (with_tanh, "mlp.1 has approximate = tanh"),
     (with_narrow_scaling, "depth_scaling.fc1.bias are (8,)"),
     (with_unused_scaling, "t_proj is torch.nn.modules.container.Sequential"),
     (without_a_bias, "mlp.fc2.bias are absent"),
     (with_a_layer_more, "mlp.3 is torch.nn.modules.linear.Linear"),
     (with_one_scale_gone, "ls2 is torch.nn.modules.linear.Identity"),
     (with_another_activation, "t_proj.1 is torch.nn.modules.activation.GELU")],
)  # fmt: skip
def test_a_block_that_ours_cannot_be_is_refused(refused, change, names):
    block = authors.Block(gated=change is not with_tanh)
    change(block)
    text = refused(block)
    assert names in text
    assert "published make" in text


@pytest.mark.parametrize(
    ("blocks", "thresholds", "message"),
    [(2, [3, 5], "2 blocks and 2 thresholds"), (3, [5, 3], "[5, 3]"), (3, [0, 2], "[0, 2]"),
     (2, ["a"], "ValueError"), (2, None, "TypeError")],
)  # fmt: skip
def test_thresholds_that_make_no_raptor_are_refused(refused, blocks, thresholds, message):
    module = authors.Raptor([authors.Block() for _ in range(blocks)], thresholds)
    assert message in refused(module)


def test_blocks_of_two_makes_are_refused(refused):
    text = refused(authors.Raptor([authors.Block(), authors.Block(gated=False)], [3]))
    assert "differ in make" in text


def test_a_student_in_place_of_the_teacher_is_refused(imported, tmp_path):
    imported(authors.Block())
    student = tmp_path / "out" / "student.safetensors"
    with pytest.raises(RaptorError, match="is not a teacher"):
        imported(authors.Block(), teacher=student)


# --- nothing in the file is run ------------------------------------------------------------------


class Call:
    """Pickled as a call, which plain unpickling makes."""

    def __init__(self, function, *arguments) -> None:
        self.call = function, arguments

    def __reduce__(self):
        return self.call


class Reducing(nn.Module):
    """A module that is pickled as a call."""

    def __init__(self, call: Call) -> None:
        super().__init__()
        self.call = call

    def __reduce__(self):
        return self.call.call


def hostile(marker: Path) -> dict[str, tuple[str, Call]]:
    """Kind -> the name that must be refused, and a call that leaves `marker` behind."""
    python = f"open({str(marker)!r}, 'w').close()"
    return {
        "os.system": (f"{os.name}.system", Call(os.system, f"touch {marker}")),
        "eval": ("builtins.eval", Call(eval, python)),
        "exec": ("builtins.exec", Call(exec, python)),
        "getattr": ("builtins.getattr", Call(getattr, nn.Module(), "training")),
        "open": (f"{open.__module__}.open", Call(open, str(marker), "w")),
    }


KINDS = list(hostile(Path("marker")))


@pytest.mark.parametrize("place", ["alone", "attribute", "module", "hook", "thresholds"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_call_is_refused_by_name_and_not_made(refused, tmp_path, kind, place):
    marker = tmp_path / "marker"
    name, call = hostile(marker)[kind]
    module = authors.Raptor([authors.Block()], [])
    if place == "alone":
        module = call
    elif place == "attribute":
        module.blocks[0].attn.hidden = call
    elif place == "module":
        module.blocks[0].mlp[1] = Reducing(call)
    elif place == "hook":
        module.blocks[0]._forward_hooks[0] = call
    else:
        module.thresholds = [call]
    path = tmp_path / "saved.pt"
    authors.save(module, path)
    text = refused(path)
    assert f"asks for {name}" in text
    assert str(path) in text
    assert not marker.exists()
    if kind != "getattr":  # the file is as hostile as it is meant to be
        function, arguments = call.call
        function(*arguments)
        assert marker.exists()


class Attention(nn.Module):
    pass


def test_a_class_that_the_authors_lack_is_refused_by_name(refused, tmp_path):
    block = authors.Block()
    block.attn = Attention()
    assert f"asks for {Attention.__module__}.Attention" in refused(block)


def rewritten(path: Path, change) -> Path:
    """The archive with its members put through `change(name, content)`; None leaves one out."""
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        for name, content in members.items():
            changed = change(name, content)
            if changed is not None:
                archive.writestr(name, changed)
    return path


@pytest.fixture
def saved(tmp_path) -> Path:
    path = tmp_path / "saved.pt"
    authors.save(authors.Raptor([authors.Block()], []), path)
    return path


def text_opcode(text: str) -> bytes:
    return pickle.BINUNICODE + len(text).to_bytes(4, "little") + text.encode()


def storage(of: bytes) -> bytes:
    """Opcodes of a reference to storage 0 whose type is what the opcodes `of` make."""
    rest = text_opcode("0") + text_opcode("cpu") + pickle.BININT1 + b"\x10"
    identity = pickle.MARK + text_opcode("storage") + of + rest + pickle.TUPLE
    return identity + pickle.BINPERSID


FLOATS = b"ctorch\nFloatStorage\n"
SYSTEM = b"cos\nsystem\n"


@pytest.mark.parametrize(
    ("opcodes", "message"),
    [(storage(storage(SYSTEM)), "asks for os.system"),
     (storage(storage(FLOATS)), "holds a TypedStorage"),
     (storage(text_opcode("os.system")), "cannot be read"),
     (storage(FLOATS) + pickle.BINPERSID, "cannot be read"),
     (storage(FLOATS), "holds a TypedStorage"),
     (text_opcode("os.system") + pickle.BINPERSID, "cannot be read"),
     (SYSTEM + text_opcode("true") + pickle.TUPLE1 + pickle.REDUCE, "asks for os.system"),
     (b"iposix\nsystem\n", "cannot be read"),
     (text_opcode("os") + text_opcode("system") + pickle.STACK_GLOBAL, "cannot be read"),
     (b"craptor\nRaptor\n)\x81" + text_opcode("x") + b"b", "is not built as a raptor.Raptor"),
     (b"craptor\nRaptor\n)\x81", "is not built as a raptor.Raptor"),
     (b"craptor\nRaptor\n" + text_opcode("x") + b"\x85R", "cannot be read"),
     (b"craptor\nRaptor\n", "holds a type"),
     (b"", "cannot be read")],
    ids=["nested_foreign", "nested", "text_as_type", "storage_as_id", "storage", "text_as_id",
         "reduce", "inst", "stack_global", "state_of_text", "no_state", "arguments", "class",
         "empty"],
)  # fmt: skip
def test_forged_pickles_are_refused(refused, saved, opcodes, message):
    forged = pickle.PROTO + b"\x02" + opcodes + pickle.STOP
    rewritten(saved, lambda name, content: forged if name.endswith("/data.pkl") else content)
    text = refused(saved)
    assert message in text
    assert "weights_only" not in text  # torch's advice is to load it without restriction


def test_a_module_inside_itself_is_refused(refused):
    module = authors.Raptor([authors.Block()], [])
    module.blocks[0].mlp.append(module.blocks[0])
    assert "RecursionError" in refused(module)


@pytest.mark.parametrize(
    "change",
    [lambda name, content: None if name.endswith("/data.pkl") else content,
     lambda name, content: None if name.endswith("/data/0") else content,
     lambda name, content: content[:-4] if name.endswith("/data/0") else content,
     lambda name, content: content[:-40] if name.endswith("/data.pkl") else content],
    ids=["no_pickle", "no_storage", "short_storage", "short_pickle"],
)  # fmt: skip
def test_archives_of_another_layout_are_refused(refused, saved, change):
    assert "cannot be read" in refused(rewritten(saved, change))


@pytest.mark.parametrize("keep", [0, 1, 100, 0.5, 0.99])
def test_truncated_files_are_refused(refused, saved, keep):
    content = saved.read_bytes()
    saved.write_bytes(content[: keep if isinstance(keep, int) else int(keep * len(content))])
    assert "cannot be read" in refused(saved)


def test_the_format_before_archives_is_refused(refused, tmp_path):
    path, marker = tmp_path / "saved.pt", tmp_path / "marker"
    call = Call(os.system, f"touch {marker}")
    authors.save(call, path, _use_new_zipfile_serialization=False)
    assert "cannot be read" in refused(path)
    assert not marker.exists()


@pytest.mark.parametrize(
    ("value", "found"),
    [({"weight": torch.ones(2)}, "holds a dict"), (torch.ones(2), "holds a Tensor"),
     (nn.Linear(2, 2), "holds a torch.nn.modules.linear.Linear")],
    ids=["dict", "tensor", "linear"],
)  # fmt: skip
def test_files_of_something_else_are_refused(refused, tmp_path, value, found):
    torch.save(value, tmp_path / "saved.pt")
    assert found in refused(tmp_path / "saved.pt")


def test_a_missing_file_is_a_sentence(refused, tmp_path):
    assert "no such file" in refused(tmp_path / "absent.pt")
    assert "no such file" in refused(tmp_path)
