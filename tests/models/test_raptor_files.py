"""Raptors on disk: the round trip, and what happens to damaged files."""

from __future__ import annotations

import json

import pytest
import torch

import raptor
from raptor.errors import RaptorError
from raptor.files import digest
from raptor.models.block import BlockSpec, RecurrentBlock
from raptor.models.files import load_raptor, raptor_facts, save_raptor
from raptor.models.raptor import Raptor

SPECS = [
    BlockSpec.swiglu(8, 2, 1e-5, depth_scaling=True),
    BlockSpec("teacher", 8, 4, 20, "gelu", None, 1e-6),
    BlockSpec("teacher", 8, 2, 16, "silu", 0.1, 1e-5, qkv_bias=False, depth_scaling=False),
]


@pytest.fixture
def saved(tmp_path):
    path = tmp_path / "seed0.safetensors"
    save_raptor(Raptor([RecurrentBlock(SPECS[0]) for _ in range(2)], [0, 0, 1]), path, k=2)
    return path


@pytest.mark.parametrize("spec", SPECS, ids=["swiglu", "teacher", "autonomous"])
def test_round_trip(tmp_path, spec):
    path = tmp_path / "seed0.safetensors"
    original = Raptor([RecurrentBlock(spec) for _ in range(3)], [0, 2, 1, 2])
    save_raptor(original, path, teacher="vit", k=3)
    loaded = raptor.load(path)
    a0_BTD = torch.randn(2, 5, 8)
    assert torch.equal(loaded(a0_BTD), original(a0_BTD))
    assert loaded.labels == original.labels
    assert not loaded.training
    assert not any(parameter.requires_grad for parameter in loaded.parameters())
    assert raptor_facts(path) == {"teacher": "vit", "k": 3}


def test_the_same_raptor_is_the_same_file(tmp_path, saved):
    again = tmp_path / "again.safetensors"
    save_raptor(load_raptor(saved), again, k=2)
    assert again.read_bytes() == saved.read_bytes()
    assert again.with_suffix(".json").read_text() == saved.with_suffix(".json").read_text()


def one_sentence(path) -> str:
    with pytest.raises(RaptorError) as caught:
        load_raptor(path)
    text = str(caught.value)
    assert "\n" not in text
    assert str(path.with_suffix("")) in text
    return text


def test_missing_files(saved):
    saved.with_suffix(".json").rename(saved.with_suffix(".away"))
    assert "missing" in one_sentence(saved)
    saved.with_suffix(".away").rename(saved.with_suffix(".json"))
    saved.unlink()
    assert "no such weights" in one_sentence(saved)


def test_a_flipped_byte_is_noticed(saved):
    content = bytearray(saved.read_bytes())
    content[-5] ^= 1
    saved.write_bytes(content)
    assert "checksum" in one_sentence(saved)


def test_an_edited_description_is_noticed(saved):
    beside = saved.with_suffix(".json")
    beside.write_text(beside.read_text().replace('"k": 2', '"k": 3'))
    assert "edited" in one_sentence(saved)
    beside.write_text("{ not json")
    assert "cannot be read" in one_sentence(saved)


def test_weights_of_another_shape_are_named(saved):
    beside = saved.with_suffix(".json")
    description = json.loads(beside.read_text())
    del description["digest"]
    description["block"]["hidden"] = 32
    beside.write_text(json.dumps({**description, "digest": digest(description)}))
    text = one_sentence(saved)
    assert "blocks.0.mlp.fc1.bias" in text
    assert "(64,)" in text
    assert "(32,)" in text
