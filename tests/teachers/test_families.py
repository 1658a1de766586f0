"""Every family of plain Vision Transformers in timm, with random weights and two of its blocks."""

import pytest
import timm
import torch

from raptor.errors import RaptorError
from raptor.teachers.adapter import Teacher
from raptor.tokens import TokenLayout

# name -> pixels of a side, and the token layout of so small an image
FAMILIES = {
    "vit_tiny_patch16_224": (32, TokenLayout(1, 0, 4)),  # AugReg, and MAE's encoder
    "vit_medium_patch16_reg4_gap_256": (32, TokenLayout(0, 4, 4)),
    "deit_tiny_patch16_224": (32, TokenLayout(1, 0, 4)),
    "deit_tiny_distilled_patch16_224": (32, TokenLayout(1, 1, 4)),  # the token of distillation
    "deit3_small_patch16_224": (32, TokenLayout(1, 0, 4)),
    "vit_small_patch14_dinov2": (28, TokenLayout(1, 0, 4)),
    "vit_small_patch14_reg4_dinov2": (28, TokenLayout(1, 4, 4)),
    "vit_small_patch16_dinov3": (32, TokenLayout(1, 4, 4)),  # rotary embedding, of the grid
    "vit_base_patch16_clip_quickgelu_224": (32, TokenLayout(1, 0, 4)),  # a norm before the blocks
    "vit_base_patch16_siglip_224": (32, TokenLayout(0, 0, 4)),  # pooled by attention
    "eva02_tiny_patch14_224": (28, TokenLayout(1, 0, 4)),
    "vit_small_patch16_rope_mixed_224": (32, TokenLayout(1, 0, 4)),  # one rotary embedding a layer
    "vit_pe_core_tiny_patch16_384": (32, TokenLayout(1, 0, 4)),
    "aimv2_large_patch14_224": (28, TokenLayout(0, 0, 4)),
}
REFUSED = {
    "vit_small_patch16_18x2_224": "attention and MLP run side by side",
    "swin_tiny_patch4_window7_224": "change from block to block",
    "beit_base_patch16_224": "change from block to block",
    "resnet18": "change from block to block",
}


def random_model(name: str, **keys) -> torch.nn.Module:
    torch.manual_seed(0)
    model = timm.create_model(name, pretrained=False, **keys).eval()
    with torch.no_grad():  # timm starts biases, registers and some tokens at zero
        for parameter in model.parameters():
            parameter.add_(0.05 * torch.randn_like(parameter))
    return model


@pytest.mark.parametrize(("name", "size", "layout"), [(n, *of) for n, of in FAMILIES.items()])
def test_looping_the_blocks_is_the_models_own_forward(name, size, layout):
    model = random_model(name, img_size=size, depth=2)
    teacher = Teacher(model, {"model": name})
    assert (teacher.depth, teacher.layout) == (2, layout)
    images = torch.randn(3, 3, size, size)
    with torch.no_grad():
        states = teacher.states(images)
        assert states.shape == (3, 3, layout.total, teacher.width)
        assert torch.equal(teacher.normed(states[:, -1]), model.forward_features(images))
        if model.num_classes:
            assert torch.equal(teacher.logits(states[:, -1]), model(images))
        for layer in range(3):
            assert torch.equal(teacher.continue_from(states[:, layer], layer), states[:, 2])
        for layer in (1, 2):
            attention, mlp = teacher.branches(states[:, layer - 1], layer)
            assert torch.equal((states[:, layer - 1] + attention) + mlp, states[:, layer])
    assert states[:, 1].std() > 0.1 * states[:, 0].std()  # no family passes because all is zero


@pytest.mark.parametrize(("name", "reason"), REFUSED.items())
def test_what_is_not_plain_is_refused_by_name_and_reason(name, reason):
    model = timm.create_model(name, pretrained=False)
    with pytest.raises(RaptorError, match=f"{name}: timm's .*{reason}"):
        Teacher(model, {"model": name})
