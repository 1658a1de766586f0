"""Weights in every layout, at another image size, and what is refused."""

from __future__ import annotations

import os
import pickle
from pathlib import Path

import pytest
import timm
import torch
from safetensors.torch import save_file

from raptor.config.data import DataConfig
from raptor.config.teachers import TimmTeacher
from raptor.errors import RaptorError
from raptor.teachers import pretrained
from raptor.teachers.files import load_teacher, teacher_facts
from raptor.teachers.heads import load_head
from raptor.teachers.pretrained import load_timm, make_timm
from raptor.tokens import TokenLayout

SMALL = "test_vit"  # timm's own tiny model for tests
DINOV2 = "vit_small_patch14_reg4_dinov2"
PRETRAINED = Path(__file__).parents[3] / "shared/weights/vits14_pretrained.safetensors"


def data(size: int, channels: int = 3) -> DataConfig:
    splits = {"train": 4, "val": 2, "test": 2}
    mean, std = [0.5] * channels, [0.25] * channels
    keys = {"image_size": size, "channels": channels, "splits": splits, "mean": mean, "std": std}
    return DataConfig.model_validate(keys)


def teacher_from(path, model=SMALL, size=32, classes=10, **keys):
    spec = TimmTeacher(kind="timm", model=model, weights=str(path), **keys)
    return load_timm(spec, data(size, keys.pop("channels", 3)), classes).eval()


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """A tiny model at 64 px with all its weights drawn, in timm's layout."""
    torch.manual_seed(3)
    model = timm.create_model(SMALL, pretrained=False, img_size=64).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.05 * torch.randn_like(parameter))
    path = tmp_path_factory.mktemp("weights") / "small.safetensors"
    save_file(model.state_dict(), path)
    return model, path


@pytest.fixture(scope="module")
def dinov2():
    torch.manual_seed(4)
    model = timm.create_model(DINOV2, pretrained=False, img_size=28).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.05 * torch.randn_like(parameter))
    return model


@torch.no_grad()
def assert_same(model, teacher, size=28):
    images = torch.randn(2, 3, size, size)
    found = teacher.normed(teacher.states(images)[:, -1])
    torch.testing.assert_close(found, model.forward_features(images), rtol=1e-4, atol=1e-5)


# --- layouts -------------------------------------------------------------------------------------


def test_timms_layout_at_another_image_size_is_what_timm_makes_of_it(small):
    _, path = small
    overlay = {"file": str(path), "custom_load": False}
    keys = {"pretrained_cfg_overlay": overlay, "img_size": 32, "num_classes": 0}
    expected = timm.create_model(SMALL, pretrained=True, **keys).eval()
    assert_same(expected, teacher_from(path), size=32)


def test_a_pth_with_a_state_dict_inside(small, tmp_path):
    model, _ = small
    torch.save({"state_dict": model.state_dict(), "epoch": 3}, tmp_path / "small.pth")
    assert_same(model, teacher_from(tmp_path / "small.pth", size=64), size=64)


def as_published(model) -> dict[str, torch.Tensor]:
    """The weights as DINOv2's authors name them; cls takes a position embedding there."""
    own = dict(model.state_dict())
    position = torch.randn_like(own["cls_token"])
    own["pos_embed"] = torch.cat([position, own["pos_embed"]], dim=1)
    own["cls_token"] = own["cls_token"] - position
    own["register_tokens"] = own.pop("reg_token")
    return own | {"mask_token": torch.zeros(1, model.embed_dim)}


def as_in_transformers(model) -> dict[str, torch.Tensor]:
    """The weights as transformers' Dinov2WithRegisters names them."""
    found = {}
    for name, value in as_published(model).items():
        if ".attn.qkv." in name:
            block, kind = name.split(".attn.qkv.")
            layer = block.replace("blocks.", "encoder.layer.")
            for which, part in zip(("query", "key", "value"), value.chunk(3), strict=True):
                found[f"{layer}.attention.attention.{which}.{kind}"] = part.clone()
            continue
        for own, theirs in (
            ("blocks.", "encoder.layer."),
            (".attn.proj.", ".attention.output.dense."),
            (".ls1.gamma", ".layer_scale1.lambda1"),
            (".ls2.gamma", ".layer_scale2.lambda1"),
            ("patch_embed.proj.", "embeddings.patch_embeddings.projection."),
            ("pos_embed", "embeddings.position_embeddings"),
            ("cls_token", "embeddings.cls_token"),
            ("mask_token", "embeddings.mask_token"),
            ("register_tokens", "embeddings.register_tokens"),
        ):
            name = name.replace(own, theirs)
        if name.startswith("norm."):
            name = name.replace("norm.", "layernorm.", 1)
        found[name] = value
    return found


@pytest.mark.parametrize("layout", [as_published, as_in_transformers])
def test_layouts_of_dinov2(layout, dinov2, tmp_path):
    torch.save(layout(dinov2), tmp_path / "dinov2.pth")
    teacher = teacher_from(tmp_path / "dinov2.pth", DINOV2, size=28)
    assert teacher.layout == TokenLayout(cls=1, registers=4, patches=4)
    assert_same(dinov2, teacher)


def test_grey_images_sum_the_weights_of_the_colours(small):
    model, path = small
    spec = TimmTeacher(kind="timm", model=SMALL, weights=str(path))
    teacher = load_timm(spec, data(64, channels=1), 10).eval()
    grey = torch.randn(2, 1, 64, 64)
    with torch.no_grad():
        found = teacher.normed(teacher.states(grey)[:, -1])
        expected = model.forward_features(grey.expand(-1, 3, -1, -1))
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


def test_random_weights_follow_from_the_seed():
    made = [
        load_timm(
            TimmTeacher(kind="timm", model=SMALL, weights="random", seed=seed), data(32), 10
        ).model.state_dict()
        for seed in (1, 1, 2)
    ]
    assert all(torch.equal(made[0][name], made[1][name]) for name in made[0])
    assert any(not torch.equal(made[0][name], made[2][name]) for name in made[0])


@pytest.mark.skipif(not PRETRAINED.is_file(), reason="the pretrained ViT-S/14 is not here")
def test_a_real_pretrained_vit_at_112_px():
    teacher = teacher_from(PRETRAINED, "vit_small_patch14_dinov2", size=112)
    assert teacher.layout == TokenLayout(cls=1, registers=0, patches=64)
    with torch.no_grad():
        states = teacher.states(torch.randn(4, 3, 112, 112))
    norms = states.norm(dim=-1).mean(dim=(0, 2))
    assert norms[12] > 10 * norms[3]  # the last block dominates
    keys = {"pretrained_cfg_overlay": {"file": str(PRETRAINED)}, "img_size": 112, "num_classes": 0}
    timms = timm.create_model("vit_small_patch14_dinov2", pretrained=True, **keys).eval()
    assert_same(timms, teacher, size=112)


# --- the stage, and heads ------------------------------------------------------------------------


def test_the_stage_writes_a_teacher_that_loads_again(small, tmp_path):
    _, path = small
    spec = TimmTeacher(kind="timm", model=SMALL, weights=str(path))
    make_timm(spec=spec, data=data(32), output=tmp_path / "t.safetensors")
    teacher = load_teacher(tmp_path / "t.safetensors")
    assert_same(teacher_from(path).model, teacher, size=32)
    assert teacher.num_classes == 0
    assert len(teacher_facts(tmp_path / "t.safetensors")["class_names"]) == 10
    state = torch.randn(3, teacher.layout.total, teacher.width)
    with pytest.raises(RaptorError, match="has no head; give the probe"):
        teacher.logits(state)
    weight, bias = torch.randn(10, 2 * teacher.width), torch.randn(10)
    torch.save({"weight": weight, "bias": bias}, tmp_path / "head.pth")
    teacher = load_teacher(tmp_path / "t.safetensors", head=tmp_path / "head.pth")
    assert teacher.num_classes == 10
    torch.testing.assert_close(teacher.logits(state), teacher.pooled(state) @ weight.T + bias)


def test_the_models_own_head_is_kept_where_it_is_asked_for(small):
    model, path = small
    teacher = teacher_from(path, size=64, classes=1000, head="own")
    images = torch.randn(2, 3, 64, 64)
    with torch.no_grad():
        torch.testing.assert_close(teacher(images), model(images))
    with pytest.raises(RaptorError, match=r"head\.bias is \(1000,\), the model has \(10,\)"):
        teacher_from(path, size=64, classes=10, head="own")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ({"weight": torch.zeros(10, 7), "bias": torch.zeros(10)}, r"need \(10, 8\) and \(10,\)"),
        ({"weight": torch.zeros(9, 8), "bias": torch.zeros(9)}, r"weight \(9, 8\)"),
        ({"weight": torch.zeros(10, 8)}, "not a linear head .*bias"),
    ],
    ids=["width", "classes", "no-bias"],
)
def test_a_head_that_does_not_fit_is_refused(content, said, tmp_path):
    torch.save(content, tmp_path / "head.pth")
    with pytest.raises(RaptorError, match=said):
        load_head(tmp_path / "head.pth", features=8, classes=10)


# --- what is refused -----------------------------------------------------------------------------


def test_weights_of_another_model_are_refused_with_the_first_that_differs(small, tmp_path):
    model, path = small
    with pytest.raises(RaptorError, match=r"weights of test_vit2: .* the model has .*give"):
        teacher_from(path, "test_vit2")
    cut = {name: w for name, w in model.state_dict().items() if name != "norm.bias"}
    save_file(cut, tmp_path / "cut.safetensors")
    with pytest.raises(RaptorError, match=r"norm\.bias is absent"):
        teacher_from(tmp_path / "cut.safetensors", size=64)


class Harmful:
    def __reduce__(self):
        return os.mkdir, ("harmed",)


def test_a_file_that_would_run_code_is_refused_and_runs_none(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("bad.pth").write_bytes(pickle.dumps({"weight": Harmful()}))
    torch.save({"weight": Harmful()}, "worse.pth")
    Path("cut.safetensors").write_bytes(b"\x10\x00")
    for name in ("bad.pth", "worse.pth", "cut.safetensors"):
        with pytest.raises(RaptorError, match=f"{name}: cannot be read as weights"):
            teacher_from(name)
        with pytest.raises(RaptorError, match=f"{name}: not a linear head"):
            load_head(name, 8, 10)
    assert not Path("harmed").exists()
    with pytest.raises(RaptorError, match="no such file of weights"):
        teacher_from("absent.pth")


def test_offline_the_file_to_download_and_where_to_name_it_are_told(monkeypatch):
    def offline(*_, **__):
        raise OSError("We couldn't connect to the hub\nand a long story")

    monkeypatch.setattr(pretrained, "load_state_dict_from_hf", offline)
    spec = TimmTeacher(kind="timm", model="vit_small_patch16_dinov3")
    with pytest.raises(RaptorError) as caught:
        load_timm(spec, data(32), 10)
    said = str(caught.value)
    assert "We couldn't connect to the hub)" in said
    url = "https://huggingface.co/timm/vit_small_patch16_dinov3.lvd1689m/resolve/main/"
    assert f"{url}model.safetensors" in said
    assert "HF_TOKEN" in said
    assert "\n" not in said
