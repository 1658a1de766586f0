"""The recurrent block: against the published code, numpy, timm, and its own gradient."""

from __future__ import annotations

import functools
from pathlib import Path

import numpy as np
import pytest
import torch
from authors import read_saved_module
from scipy.special import erf, softmax
from timm.models.vision_transformer import Block, ParallelScalingBlock

from raptor.errors import RaptorError
from raptor.models.block import BlockSpec, DepthScaling, RecurrentBlock
from raptor.models.raptor import Raptor

DATA = Path(__file__).parents[3] / "shared" / "data"
needs_published = pytest.mark.skipif(
    not (DATA / "authors_raptor_tiny.pt").is_file(),
    reason="../shared/data/authors_raptor_tiny.pt is absent",
)

OURS = {
    "attn.in_proj_weight": "attn.qkv.weight",
    "attn.in_proj_bias": "attn.qkv.bias",
    "attn.out_proj.": "attn.proj.",
    "mlp.0.": "mlp.fc1.",
    "mlp.2.": "mlp.fc2.",
    "t_proj.0.": "depth_scaling.fc1.",
    "t_proj.2.": "depth_scaling.fc2.",
}


def ours(name: str) -> str:
    """Our name of a parameter of the published block."""
    for theirs, our in OURS.items():
        name = name.replace(theirs, our)
    return name


def randomised(block: RecurrentBlock, seed: int = 0) -> RecurrentBlock:
    """Weights that are far from any special value, so that every term counts."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in block.parameters():
            parameter.copy_(0.4 * torch.randn(parameter.shape, generator=generator) + 0.1)
    return block


def numpy_block(block: RecurrentBlock, x_BTD: np.ndarray, layer: int) -> np.ndarray:
    """The block written down again from its definition (paper §Method 3)."""
    p = {name: value.detach().double().numpy() for name, value in block.state_dict().items()}
    silu = lambda x: x / (1 + np.exp(-x))

    def linear(x, name):
        return x @ p[f"{name}.weight"].T + p[f"{name}.bias"]

    def norm(x, name):
        centred = x - x.mean(-1, keepdims=True)
        spread = np.sqrt(x.var(-1, keepdims=True) + block.spec.eps)
        return centred / spread * p[f"{name}.weight"] + p[f"{name}.bias"]

    def attention(x):
        heads = [
            np.split(part, block.spec.heads, -1) for part in np.split(linear(x, "attn.qkv"), 3, -1)
        ]
        mixed = [
            softmax(q @ k.transpose(0, 2, 1) / np.sqrt(q.shape[-1]), axis=-1) @ v
            for q, k, v in zip(*heads, strict=True)
        ]
        return linear(np.concatenate(mixed, -1), "attn.proj")

    def mlp(x):
        hidden = linear(x, "mlp.fc1")
        if block.spec.kind == "swiglu":
            first, second = np.split(hidden, 2, -1)
            return linear(silu(first) * second, "mlp.fc2")
        return linear(hidden * (1 + erf(hidden / np.sqrt(2))) / 2, "mlp.fc2")

    scale = np.zeros(3 * block.spec.width)
    if block.spec.depth_scaling:
        hidden = silu(linear(np.array([float(layer)]), "depth_scaling.fc1"))
        scale = linear(hidden, "depth_scaling.fc2")
    s_attention, s_mlp, s_output = np.split(1 + scale, 3)
    x = x_BTD + s_attention * p.get("ls1.gamma", 1.0) * attention(norm(x_BTD, "norm1"))
    x = x + s_mlp * p.get("ls2.gamma", 1.0) * mlp(norm(x, "norm2"))
    return s_output * x


TEACHER = BlockSpec("teacher", 8, 2, 24, "gelu", None, 1e-6)


@pytest.mark.parametrize(
    "spec",
    [
        BlockSpec.swiglu(8, 2, 1e-5, depth_scaling=True),
        BlockSpec.swiglu(8, 2, 1e-5, depth_scaling=False),
        TEACHER,
        BlockSpec("teacher", 8, 2, 24, "gelu", 0.1, 1e-6, depth_scaling=False),
    ],
    ids=["swiglu", "swiglu_autonomous", "teacher", "teacher_layer_scale_autonomous"],
)
def test_block_equals_its_definition_in_numpy(spec):
    block = randomised(RecurrentBlock(spec)).double()
    x_BTD = torch.randn(2, 5, 8, dtype=torch.double, generator=torch.Generator().manual_seed(1))
    for layer in (1, 7):
        expected = numpy_block(block, x_BTD.numpy(), layer)
        np.testing.assert_allclose(block(x_BTD, layer).detach(), expected, rtol=1e-10, atol=1e-10)


def test_gradients_of_input_and_every_parameter():
    block = randomised(RecurrentBlock(BlockSpec.swiglu(4, 2, 1e-5, depth_scaling=True))).double()
    names, values = zip(*block.named_parameters(), strict=True)
    x_BTD = torch.randn(1, 3, 4, dtype=torch.double, generator=torch.Generator().manual_seed(2))

    def outputs(x, *parameters):
        return torch.func.functional_call(block, dict(zip(names, parameters, strict=True)), (x, 3))

    assert torch.autograd.gradcheck(outputs, (x_BTD.requires_grad_(), *values), fast_mode=True)


def test_depth_scaling_starts_near_one_and_takes_the_raw_layer():
    torch.manual_seed(0)
    scaling = DepthScaling(400)
    weight = scaling.fc2.weight
    assert weight.shape == (1200, 16)
    assert weight.std().item() == pytest.approx(1e-4, rel=0.05)
    assert not scaling.fc2.bias.any()
    attention, mlp, output = scaling(5)
    hidden = torch.nn.functional.silu(scaling.fc1.weight[:, 0] * 5 + scaling.fc1.bias)
    expected = 1 + weight @ hidden
    torch.testing.assert_close(torch.cat([attention, mlp, output]), expected)
    assert not torch.equal(torch.cat(scaling(6)), expected)


def test_without_depth_scaling_the_layer_does_not_count():
    block = randomised(RecurrentBlock(BlockSpec.swiglu(8, 2, 0.1, depth_scaling=False)))
    x_BTD = torch.randn(1, 4, 8)
    assert torch.equal(block(x_BTD, 1), block(x_BTD, 6))


@needs_published
def test_published_weights_give_the_published_states():
    """Order of operations, epsilon and layer numbering, from what the authors' code computed."""
    saved = read_saved_module(DATA / "authors_raptor_tiny.pt")
    blocks = []
    for source in saved._modules["blocks"]._modules.values():
        heads, eps = source._modules["attn"].num_heads, source._modules["norm1"].eps
        spec = BlockSpec.swiglu(32, heads, 1e-5, depth_scaling=True)
        assert spec.eps == eps
        block = RecurrentBlock(spec)
        block.load_state_dict({ours(k): v for k, v in source.parameters().items()})
        blocks.append(block)
    layers = range(1, 9)
    labels = [sum(layer > threshold for threshold in saved.thresholds) for layer in layers]
    io = np.load(DATA / "authors_raptor_tiny_io.npz")
    # In double precision only the rounding of the published numbers is left (largest state: 25).
    with torch.no_grad():
        states_BLTD = Raptor(blocks, labels).double()(torch.from_numpy(io["a0"]).double())
    np.testing.assert_allclose(states_BLTD, io["states"], rtol=0, atol=1e-5)


@needs_published
def test_published_block_alone_is_the_first_of_the_published_raptor():
    alone = read_saved_module(DATA / "authors_raptor_tiny_block.pt").parameters()
    whole = read_saved_module(DATA / "authors_raptor_tiny.pt").parameters()
    assert {ours(name) for name in alone} == set(
        RecurrentBlock(BlockSpec.swiglu(32, 4, 1e-5, depth_scaling=True)).state_dict()
    )
    for name, value in alone.items():
        assert torch.equal(value, whole[f"blocks.0.{name}"])


def timm_block(**options) -> Block:
    torch.manual_seed(3)
    block = Block(8, 2, **{"qkv_bias": True, "mlp_ratio": 3.0, **options})
    for parameter in block.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    return block.eval()


@pytest.mark.parametrize(
    "options",
    [{}, {"init_values": 0.1}, {"qk_norm": True}, {"qkv_bias": False}, {"mlp_ratio": 8 / 3},
     {"drop_path": 0.5}, {"act_layer": torch.nn.SiLU}, {"proj_bias": False}],
    ids=lambda options: "-".join(options) or "plain",
)  # fmt: skip
def test_teacher_kind_is_the_timm_block(options):
    source = timm_block(**options)
    spec = BlockSpec.like(source, depth_scaling=False)
    block = RecurrentBlock(spec)
    block.load_state_dict(source.state_dict())
    x_BTD = torch.randn(2, 5, 8)
    assert torch.equal(block(x_BTD, 1), source(x_BTD))


def test_a_block_of_another_make_is_refused():
    scaled = timm_block(scale_attn_norm=True)
    tanh = timm_block(act_layer=functools.partial(torch.nn.GELU, approximate="tanh"))
    for other in (ParallelScalingBlock(8, 2), scaled, tanh, torch.nn.Linear(8, 8)):
        with pytest.raises(RaptorError, match="choose block: swiglu"):
            BlockSpec.like(other, depth_scaling=True)
