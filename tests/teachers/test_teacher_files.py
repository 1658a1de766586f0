"""Teachers on disk: what comes back is what was saved, or one clear sentence."""

import json

import pytest
import torch
from safetensors.torch import load_file

from raptor.config.data import DataConfig, Splits
from raptor.config.teachers import TeacherTraining, TrainedTeacher
from raptor.errors import RaptorError
from raptor.files import digest, sha256
from raptor.teachers.build import build_teacher
from raptor.teachers.files import load_teacher, save_teacher, teacher_facts


def teacher_of(width=16, **keys):
    data = DataConfig(splits=Splits(train=8, val=4, test=4), mean=[0.1], std=[0.3])
    spec = TrainedTeacher(
        depth=2, width=width, heads=2, patch_size=7, training=TeacherTraining(epochs=1), **keys
    )
    return build_teacher(spec, data, 10)


@pytest.fixture
def saved(tmp_path):
    path = tmp_path / "teachers" / "small.safetensors"
    save_teacher(teacher_of(seed=3, stochastic_depth=0.2, layer_scale=0.1), path, note="é", n=[1])
    return path


def test_round_trip(saved):
    original = teacher_of(seed=3, stochastic_depth=0.2, layer_scale=0.1).eval()
    torch.manual_seed(5)
    random_state = torch.get_rng_state()
    loaded = load_teacher(saved)
    assert torch.equal(torch.get_rng_state(), random_state)
    images = torch.randn(3, 1, 28, 28)
    assert torch.equal(loaded(images), original(images))
    assert loaded.layout == original.layout
    assert not loaded.training
    assert not any(parameter.requires_grad for parameter in loaded.parameters())
    assert loaded.blocks[1].drop_path2.drop_prob == 0.2
    assert teacher_facts(saved) == {"note": "é", "n": [1]}


def test_what_is_beside_the_weights(saved):
    description = json.loads(saved.with_suffix(".json").read_text())
    assert description["layout"] == {"cls": 1, "registers": 4, "patches": 16}
    assert description["sha256"] == sha256(saved)
    assert description["architecture"]["width"] == 16
    assert "blocks.0.attn.qkv.weight" in load_file(saved)


def test_saving_again_gives_the_same_bytes(saved):
    first = saved.read_bytes(), saved.with_suffix(".json").read_bytes()
    save_teacher(load_teacher(saved), saved, **teacher_facts(saved))
    assert (saved.read_bytes(), saved.with_suffix(".json").read_bytes()) == first


def test_missing_files(saved):
    saved.rename(saved.with_name("moved.safetensors"))
    with pytest.raises(RaptorError, match=r"small\.safetensors: no such weights"):
        load_teacher(saved)
    saved.with_name("moved.safetensors").rename(saved)
    saved.with_suffix(".json").unlink()
    with pytest.raises(RaptorError, match=r"small\.json: missing"):
        load_teacher(saved)


def test_one_flipped_bit_in_the_weights(saved):
    data = bytearray(saved.read_bytes())
    data[-100] ^= 1
    saved.write_bytes(data)
    with pytest.raises(RaptorError, match=r"small\.safetensors: damaged or exchanged"):
        load_teacher(saved)


def test_a_damaged_or_edited_description(saved):
    beside = saved.with_suffix(".json")
    text = beside.read_text()
    for wrong in (text.replace('"heads": 2', '"heads": 4'), "[]", "{}"):
        assert wrong != text
        beside.write_text(wrong)
        with pytest.raises(RaptorError, match=r"small\.json: damaged or edited"):
            load_teacher(saved)
    beside.write_bytes(b"\xff" + text.encode())
    with pytest.raises(RaptorError, match=r"small\.json: cannot be read"):
        load_teacher(saved)


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        ({"width": 8}, r"blocks\.0\.attn\.proj\.bias is \(16,\), .* needs \(8,\)"),
        ({"depth": 3}, r"blocks\.2\.attn\.proj\.bias is absent"),
        ({"depth": 1}, r"blocks\.1\.attn\.proj\.bias is \(16,\), .* needs absent"),
    ],
)
def test_a_checkpoint_of_another_shape(saved, edit, message):
    beside = saved.with_suffix(".json")
    description = json.loads(beside.read_text())
    description["architecture"] |= edit
    del description["digest"]
    beside.write_text(json.dumps({**description, "digest": digest(description)}))
    with pytest.raises(RaptorError, match=rf"small\.safetensors: .*another shape: {message}"):
        load_teacher(saved)
