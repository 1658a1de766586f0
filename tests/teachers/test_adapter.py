"""The adapter: looping its blocks is the timm model's own forward pass, exactly."""

import pytest
import torch
from timm.layers import DropPath
from timm.models.vision_transformer import ResPostBlock, VisionTransformer

from raptor.errors import RaptorError
from raptor.teachers.adapter import Teacher
from raptor.tokens import TokenLayout


def teacher_of(**keys):
    torch.manual_seed(0)
    keys = {
        "img_size": 12, "patch_size": 4, "in_chans": 1, "num_classes": 7,
        "embed_dim": 16, "depth": 3, "num_heads": 2, **keys,
    }  # fmt: skip
    teacher = Teacher(VisionTransformer(**keys), {}).eval()
    with torch.no_grad():  # weights that matter: timm starts biases and registers at zero
        for parameter in teacher.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return teacher


VARIANTS = {
    "no registers": {},
    "registers": {"reg_tokens": 4},
    "layer scale": {"reg_tokens": 1, "init_values": 0.1},
    "norm before": {"pre_norm": True},
    "mean pooled": {"global_pool": "avg"},
    "no cls": {"class_token": False, "global_pool": "avg", "fc_norm": False},
}


@pytest.mark.parametrize("keys", VARIANTS.values(), ids=VARIANTS.keys())
def test_looping_is_the_models_own_forward(keys):
    teacher = teacher_of(**keys)
    images = torch.randn(5, 1, 12, 12)
    with torch.no_grad():
        states = teacher.states(images)
        assert states.shape == (5, 4, teacher.layout.total, 16)
        assert torch.equal(teacher.normed(states[:, -1]), teacher.model.forward_features(images))
        expected = teacher.model(images)
        assert torch.equal(teacher.logits(states[:, -1]), expected)
        assert torch.equal(teacher(images), expected)
        for layer in range(4):
            continued = teacher.continue_from(states[:, layer], layer)
            assert torch.equal(continued, states[:, 3])


def test_states_are_the_outputs_of_the_blocks():
    teacher = teacher_of(reg_tokens=4)
    seen = []
    for block in teacher.model.blocks:
        block.register_forward_hook(lambda _, inputs, output: seen.append((inputs[0], output)))
    images = torch.randn(2, 1, 12, 12)
    with torch.no_grad():
        teacher.model(images)
        expected = [seen[0][0], *(output for _, output in seen)]
        assert torch.equal(teacher.states(images), torch.stack(expected, dim=1))


@pytest.mark.parametrize("registers", [0, 4])
def test_layout_and_shape(registers):
    teacher = teacher_of(reg_tokens=registers)
    assert teacher.layout == TokenLayout(cls=1, registers=registers, patches=9)
    assert (teacher.depth, teacher.width, teacher.num_heads, teacher.num_classes) == (3, 16, 2, 7)
    assert len(teacher.blocks) == 3
    # The order of the tokens: cls first, then registers, each plus its position.
    with torch.no_grad():
        embedded = teacher.embed(torch.randn(1, 1, 12, 12))[0]
    model = teacher.model
    prefix = [model.cls_token[0], *([model.reg_token[0]] if registers else [])]
    expected = torch.cat(prefix) + model.pos_embed[0, : 1 + registers]
    torch.testing.assert_close(embedded[: teacher.layout.prefix], expected)


@pytest.mark.parametrize("layer", [-1, 4])
def test_a_layer_that_does_not_exist(layer):
    teacher = teacher_of()
    with pytest.raises(RaptorError, match=r"states 0\.\.3"):
        teacher.continue_from(torch.zeros(1, 10, 16), layer)


@pytest.mark.parametrize("keys", VARIANTS.values(), ids=VARIANTS.keys())
def test_a_state_and_its_two_branches_are_the_next_state(keys):
    teacher = teacher_of(**keys)
    outputs = {}
    for block in teacher.blocks:  # what timm itself adds: LayerScale or nothing comes after
        for name in ("ls1", "ls2"):
            getattr(block, name).register_forward_hook(
                lambda module, _, output: outputs.setdefault(id(module), output)
            )
    with torch.no_grad():
        states = teacher.states(torch.randn(5, 1, 12, 12))
        for layer, block in enumerate(teacher.blocks, start=1):
            attention, mlp = teacher.branches(states[:, layer - 1], layer)
            assert torch.equal((states[:, layer - 1] + attention) + mlp, states[:, layer])
            assert torch.equal(attention, outputs[id(block.ls1)])
            assert torch.equal(mlp, outputs[id(block.ls2)])


def test_stochastic_depth_is_part_of_a_branch():
    teacher = teacher_of()
    for block in teacher.blocks:
        block.drop_path1, block.drop_path2 = DropPath(0.5), DropPath(0.5)
    state = torch.randn(40, teacher.layout.total, 16)
    with torch.no_grad():
        kept = teacher.eval().branches(state, 2)
        teacher.train()
        for whole, branch in zip(kept, teacher.branches(state, 2), strict=True):
            dropped = (branch == 0).all(dim=(1, 2))
            assert 5 < dropped.sum() < 35
            assert whole.abs().amin(dim=(1, 2)).gt(0).all()


def test_branches_that_are_not_one_after_the_other_are_refused():
    with pytest.raises(RaptorError, match="ResPostBlock of timm has no attention"):
        teacher_of(block_fn=ResPostBlock).branches(torch.zeros(1, 10, 16), 1)
    with pytest.raises(RaptorError, match=r"layer 4: this teacher has the layers 1\.\.3"):
        teacher_of().branches(torch.zeros(1, 10, 16), 4)
