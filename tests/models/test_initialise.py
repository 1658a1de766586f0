"""The first weights of a Raptor."""

from __future__ import annotations

import pytest
import torch
from timm.layers import DropPath
from timm.models.vision_transformer import VisionTransformer

from raptor.config.students import Recipe
from raptor.models.initialise import build_raptor
from raptor.teachers.adapter import Teacher

STAGE = {"steps": 1}
PHASE_MEAN = Recipe(initialisation="phase_mean", block="teacher", stage2=STAGE)
AUTONOMOUS = PHASE_MEAN.model_copy(update={"depth_scaling": False})


@pytest.fixture(scope="module")
def teacher() -> Teacher:
    torch.manual_seed(0)
    model = VisionTransformer(
        img_size=8, patch_size=4, in_chans=1, num_classes=3, embed_dim=8, depth=4, num_heads=2,
        mlp_ratio=2, reg_tokens=2,
    )  # fmt: skip
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    for block in model.blocks:
        block.drop_path1, block.drop_path2 = DropPath(0.5), DropPath(0.5)
    return Teacher(model, {}).eval().requires_grad_(False)


@pytest.fixture(scope="module")
def states(teacher) -> torch.Tensor:
    return teacher.states(torch.randn(2, 1, 8, 8, generator=torch.Generator().manual_seed(1)))


@pytest.mark.parametrize("labels", [[0, 0, 0, 1], [0, 1, 0, 1]], ids=["contiguous", "scattered"])
def test_phase_mean_is_the_mean_of_the_phase(teacher, labels):
    raptor = build_raptor(PHASE_MEAN, labels, teacher, seed=0)
    for index, block in enumerate(raptor.blocks):
        sources = [
            teacher.blocks[i].state_dict() for i, label in enumerate(labels) if label == index
        ]
        checked = 0
        for name, value in block.state_dict().items():
            if not name.startswith("depth_scaling"):
                expected = sum(source[name] for source in sources) / len(sources)
                torch.testing.assert_close(value, expected)
                checked += 1
        assert checked == len(sources[0]) == 12


def test_one_block_per_layer_is_the_teacher(teacher, states):
    autonomous = build_raptor(AUTONOMOUS, range(4), teacher, seed=0)
    assert torch.equal(autonomous(states[:, 0]), states[:, 1:])
    scaled = build_raptor(PHASE_MEAN, range(4), teacher, seed=0)(states[:, 0])
    assert not torch.equal(scaled, states[:, 1:])
    assert (scaled - states[:, 1:]).norm() / states[:, 1:].norm() < 0.01


def test_students_learn_and_leave_the_teacher_as_it_was(teacher, states):
    before = {name: value.clone() for name, value in teacher.state_dict().items()}
    raptor = build_raptor(PHASE_MEAN, [0, 0, 1, 1], teacher, seed=0).train()
    optimizer = torch.optim.SGD(raptor.parameters(), lr=1.0)
    raptor(states[:, 0]).square().mean().backward()
    assert all(p.grad is not None and p.grad.any() for p in raptor.parameters())
    optimizer.step()
    assert all(torch.equal(before[name], value) for name, value in teacher.state_dict().items())


def test_stochastic_depth_of_the_teacher_is_left_out(teacher, states):
    raptor = build_raptor(AUTONOMOUS, range(4), teacher, seed=0).train()
    assert torch.equal(raptor(states[:, 0]), states[:, 1:])


def test_random_weights_follow_from_the_seed_alone(teacher):
    recipe = Recipe(stage2=STAGE)
    torch.manual_seed(5)
    before = torch.get_rng_state()
    one, same, other = (build_raptor(recipe, [0, 0, 1, 1], teacher, seed) for seed in (1, 1, 2))
    assert torch.equal(torch.get_rng_state(), before)
    weights = [raptor.state_dict() for raptor in (one, same, other)]
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])
    qkv = "blocks.{}.attn.qkv.weight"
    assert not torch.equal(weights[0][qkv.format(0)], weights[2][qkv.format(0)])
    assert not torch.equal(weights[0][qkv.format(0)], weights[0][qkv.format(1)])


def test_published_block_has_the_published_initial_weights(teacher):
    recipe = Recipe(stage2=STAGE, layer_scale=1e-5)
    block = build_raptor(recipe, [0] * 4, teacher, seed=0).blocks[0]
    assert block.mlp.fc1.weight.shape == (64, 8)
    assert block.mlp.fc2.weight.shape == (8, 32)
    for scale in (block.ls1.gamma, block.ls2.gamma):
        torch.testing.assert_close(scale.detach(), torch.full((8,), 1e-5))
    bound = (6 / (8 + 24)) ** 0.5  # Glorot & Bengio 2010, as nn.MultiheadAttention has it
    assert block.attn.qkv.weight.abs().max() <= bound
    assert block.attn.qkv.weight.std().item() == pytest.approx(bound / 3**0.5, rel=0.15)
    assert not block.attn.qkv.bias.any()
    assert not block.attn.proj.bias.any()


def test_random_teacher_block_starts_as_a_vit(teacher):
    recipe = Recipe(block="teacher", depth_scaling=False, stage2=STAGE)
    block = build_raptor(recipe, [0] * 4, teacher, seed=0).blocks[0]
    assert block.depth_scaling is None
    assert block.mlp.fc1.weight.std().item() == pytest.approx(0.02, rel=0.3)
    assert not block.mlp.fc1.bias.any()
