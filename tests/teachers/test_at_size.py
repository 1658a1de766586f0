"""Teachers for images of another size, square or not."""

from __future__ import annotations

import pytest
import timm
import torch
from safetensors.torch import save_file

from raptor.config.data import DataConfig
from raptor.config.teachers import TimmTeacher
from raptor.errors import RaptorError
from raptor.teachers.adapter import Teacher
from raptor.teachers.build import assemble
from raptor.teachers.files import save_teacher
from raptor.teachers.pretrained import load_timm
from raptor.teachers.resize import teacher_at_size

# name -> side, then another height and width, and the patch
FAMILIES = {
    "vit_small_patch14_reg4_dinov2": (28, 42, 70, 14),
    "vit_small_patch16_dinov3": (32, 48, 16, 16),  # rotary embedding, no position embedding
    "eva02_tiny_patch14_224": (28, 28, 56, 14),
    "vit_medium_patch16_reg4_gap_256": (32, 16, 64, 16),  # as many patches as before
}


def own(stem: str, **keys) -> Teacher:
    keys = {"image_size": 28, "channels": 1, "num_classes": 5, "registers": 2, **keys}
    keys |= {"depth": 2, "width": 16, "heads": 2, "mlp_ratio": 2.0, "patch_size": 7}
    parts = {"layer_scale": None, "stochastic_depth": 0.0, "stem": stem}
    return assemble(keys | parts, seed=0).eval().requires_grad_(False)


def plant_ramps(teacher: Teacher) -> None:
    """Into the position embedding: the row in the first channel, the column in the second."""
    rows, columns = teacher.grid
    patches = teacher.model.pos_embed.data[0, -rows * columns :]
    patches[:, 0] = torch.arange(rows).repeat_interleave(columns)
    patches[:, 1] = torch.arange(columns).repeat(rows)


def assert_ramps(teacher: Teacher, other: Teacher) -> None:
    """They rise along the rows and the columns of the other grid, and nothing else moved."""
    rows, columns = other.grid
    old, new = (model.model.pos_embed.detach()[0] for model in (teacher, other))
    assert torch.equal(new[: -rows * columns], old[: -teacher.layout.patches])
    row, column = new[-rows * columns :, :2].T.reshape(2, rows, columns)
    torch.testing.assert_close(row, row[:, :1].expand(rows, columns))
    torch.testing.assert_close(column, column[:1].expand(rows, columns))
    assert (row[:, 0].diff() > 0).all()
    assert (column[0].diff() > 0).all()


@pytest.mark.parametrize(("name", "sizes"), FAMILIES.items())
def test_it_is_the_model_made_for_that_size(name, sizes):
    side, height, width, patch = sizes
    torch.manual_seed(0)
    model = timm.create_model(name, img_size=side, depth=2, num_classes=0).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.05 * torch.randn_like(parameter))
    teacher = Teacher(model, {"model": name, "image_size": side}).eval()
    if teacher.model.pos_embed is not None:
        plant_ramps(teacher)
    before = {key: value.clone() for key, value in teacher.state_dict().items()}
    other = teacher.at_size(height, width)
    assert other.grid == (height // patch, width // patch)
    assert other.patch_size == (patch, patch)
    assert other.layout.patches == other.grid[0] * other.grid[1]
    images = torch.randn(2, 3, height, width)
    with torch.no_grad():
        states = other.states(images)
        assert states.shape == (2, 3, other.layout.total, other.width)
        assert torch.equal(other.normed(states[:, -1]), other.model.forward_features(images))
        # Built by timm for that size, with the weights that do not depend on it.
        fresh = timm.create_model(name, img_size=(height, width), depth=2, num_classes=0).eval()
        fresh.load_state_dict(other.model.state_dict())
        expected = fresh.forward_features(images)
    torch.testing.assert_close(other.normed(states[:, -1]), expected)
    if teacher.model.pos_embed is not None:
        assert_ramps(teacher, other)
    assert all(torch.equal(value, before[key]) for key, value in teacher.state_dict().items())


@pytest.mark.parametrize(("stem", "patch"), [("patch", 7), ("conv", 8)])
def test_own_teachers(stem, patch):
    teacher = own(stem)
    plant_ramps(teacher)
    other = teacher.at_size(3 * patch, 5 * patch)
    assert (other.grid, other.patch_size) == ((3, 5), (patch, patch))
    assert not other.training
    with torch.no_grad():
        image = torch.zeros(1, 1, 3 * patch, 5 * patch)
        blank = other.embed(image)
        assert blank.shape == (1, 3 + 15, 16)
        image[0, 0, 2 * patch + 1, 4 * patch + 1] = 9.0  # row 2, column 4 of patches
        changed = (other.embed(image) - blank).norm(dim=-1)[0, 3:]
    assert changed.argmax() == 2 * 5 + 4
    assert_ramps(teacher, other)
    same = teacher.at_size(4 * patch, 4 * patch)
    assert torch.equal(same.model.pos_embed, teacher.model.pos_embed)


def test_a_size_that_is_no_multiple_of_the_patch_is_refused():
    with pytest.raises(RaptorError, match=r"image size 28 × 30: is no multiple .* of 7 × 7 px"):
        own("patch").at_size(28, 30)


def test_a_teacher_on_disk(tmp_path):
    teacher = own("conv")
    save_teacher(teacher, tmp_path / "own.safetensors", spec={"depth": 2})
    found = teacher_at_size(tmp_path / "own.safetensors", 16, 40)
    images = torch.randn(1, 1, 16, 40)
    assert torch.equal(found.states(images), teacher.at_size(16, 40).states(images))
    assert not any(parameter.requires_grad for parameter in found.parameters())


def test_one_of_timm_comes_from_its_own_weights_again(tmp_path):
    """Its position embedding of 4 × 4 is used as it is, not by way of the 2 × 2 in between."""
    torch.manual_seed(0)
    model = timm.create_model("test_vit", img_size=64, num_classes=0).eval()
    torch.nn.init.normal_(model.pos_embed)
    save_file(model.state_dict(), tmp_path / "weights.safetensors")
    splits = {"train": 4, "val": 2, "test": 2}
    data = {"image_size": 32, "channels": 3, "splits": splits, "mean": [0.5], "std": [0.5]}
    spec = TimmTeacher(kind="timm", model="test_vit", weights=str(tmp_path / "weights.safetensors"))
    small = load_timm(spec, DataConfig.model_validate(data), 0)
    save_teacher(
        small, tmp_path / "small.safetensors", spec=spec.model_dump(mode="json"), data=data
    )
    found = teacher_at_size(tmp_path / "small.safetensors", 64, 64)
    images = torch.randn(1, 3, 64, 64)
    torch.testing.assert_close(
        found.normed(found.states(images)[:, -1]), model.forward_features(images)
    )
    assert not torch.allclose(small.at_size(64, 64).model.pos_embed, model.pos_embed, atol=0.1)
    assert teacher_at_size(tmp_path / "small.safetensors", 32, 80).grid == (2, 5)


def test_random_weights_are_the_same_network_at_another_size(tmp_path):
    """Drawn anew for another grid, every weight would be another one."""
    splits = {"train": 4, "val": 2, "test": 2}
    data = {"image_size": 32, "channels": 3, "splits": splits, "mean": [0.5], "std": [0.5]}
    spec = TimmTeacher(kind="timm", model="test_vit", weights="random", seed=3)
    path = tmp_path / "random.safetensors"
    teacher = load_timm(spec, DataConfig.model_validate(data), 0)
    save_teacher(teacher, path, spec=spec.model_dump(mode="json"), data=data)
    found = teacher_at_size(path, 64, 64)
    own, other = teacher.model.state_dict(), found.model.state_dict()
    assert [name for name in own if not torch.equal(own[name], other[name])] == ["pos_embed"]
    assert torch.equal(other["pos_embed"], teacher.at_size(64, 64).model.pos_embed)


def test_weights_that_are_other_ones_now_are_refused(tmp_path):
    weights, path = tmp_path / "weights.safetensors", tmp_path / "small.safetensors"
    splits = {"train": 4, "val": 2, "test": 2}
    data = {"image_size": 32, "channels": 3, "splits": splits, "mean": [0.5], "std": [0.5]}
    spec = TimmTeacher(kind="timm", model="test_vit", weights=str(weights))
    for seed in (0, 1):
        torch.manual_seed(seed)
        save_file(timm.create_model("test_vit", img_size=32, num_classes=0).state_dict(), weights)
        if not seed:
            teacher = load_timm(spec, DataConfig.model_validate(data), 0)
            save_teacher(teacher, path, spec=spec.model_dump(mode="json"), data=data)
            teacher_at_size(path, 64, 64)
    with pytest.raises(RaptorError, match=r"was made of other weights than .* differs"):
        teacher_at_size(path, 64, 64)
