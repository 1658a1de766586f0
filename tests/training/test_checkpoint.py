"""Training state on disk."""

from __future__ import annotations

import json

import torch

from raptor.training.checkpoint import Checkpoint


def saved(folder, identity="mine") -> Checkpoint:
    checkpoint = Checkpoint(folder, identity)
    checkpoint.save({"step": 3, "weights": torch.arange(4.0)}, 3)
    return checkpoint


def test_round_trip_keeps_only_the_latest(tmp_path):
    checkpoint = saved(tmp_path)
    checkpoint.save({"step": 7, "weights": torch.ones(4)}, 7)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["state-00000007.pt", "state.json"]
    assert checkpoint.load()["step"] == 7
    assert torch.equal(checkpoint.load()["weights"], torch.ones(4))


def test_nothing_there_or_another_identity(tmp_path):
    assert Checkpoint(tmp_path / "none", "mine").load() is None
    saved(tmp_path)
    assert Checkpoint(tmp_path, "other").load() is None


def test_damage_is_noticed(tmp_path):
    checkpoint = saved(tmp_path)
    state = tmp_path / "state-00000003.pt"
    content = bytearray(state.read_bytes())
    content[len(content) // 2] ^= 1
    state.write_bytes(content)
    assert checkpoint.load() is None
    state.unlink()
    assert checkpoint.load() is None
    (tmp_path / "state.json").write_text("[]")
    assert checkpoint.load() is None
    (tmp_path / "state.json").write_text("{")
    assert checkpoint.load() is None


def test_an_index_cannot_lead_out_of_its_folder(tmp_path):
    saved(tmp_path / "outside")
    index = json.loads((tmp_path / "outside" / "state.json").read_text())
    inside = tmp_path / "inside"
    inside.mkdir()
    index["file"] = "../outside/" + index["file"]
    (inside / "state.json").write_text(json.dumps(index))
    assert Checkpoint(inside, "mine").load() is None
