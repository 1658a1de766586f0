"""Cost: FLOPs, bits and memory against sums by hand; who is timed when; the files."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from raptor import cost, tables
from raptor.activations.write import extract
from raptor.config.activations import ActivationsConfig
from raptor.config.analysis import CostConfig
from raptor.config.data import DataConfig, Splits
from raptor.config.students import Recipe
from raptor.cost import (
    count_flops,
    description_bits,
    interleaved,
    last_state,
    levin_bits,
    measure_cost,
    profiled_peak,
)
from raptor.files import sha256, write_json
from raptor.models.files import save_raptor
from raptor.models.initialise import build_raptor
from raptor.tables.cost import COLUMNS, MEASURED
from raptor.tables.files import read_table
from raptor.teachers.build import assemble
from raptor.teachers.files import save_teacher

CPU = torch.device("cpu")
DATA = DataConfig(splits=Splits(train=40, val=5, test=12), mean=[0.13], std=[0.31])
DEPTH, WIDTH, TOKENS, HIDDEN = 4, 12, 6, 24  # cls, a register, 4 patches
STAGE = {"steps": 3, "batch_size": 8}
CONFIG = CostConfig(teacher="vit", recipe="phase_mean", k=[1, 2], images=10, repeats=4)
LABELS = {1: [0, 0, 0, 0], 2: [0, 0, 0, 1]}


def teacher_of():
    architecture = {"depth": DEPTH, "width": WIDTH, "heads": 2, "mlp_ratio": 2.0, "patch_size": 14}
    architecture |= {"image_size": 28, "channels": 1, "num_classes": 10, "registers": 1}
    return assemble(
        {**architecture, "layer_scale": None, "stochastic_depth": 0.0, "stem": "patch"}, seed=0
    ).eval()


def recipe_of(depth_scaling: bool = False) -> Recipe:
    return Recipe(
        initialisation="phase_mean", block="teacher", depth_scaling=depth_scaling, stage2=STAGE
    )


@pytest.fixture(scope="module")
def files(tmp_path_factory) -> dict[str, Path]:
    """A teacher after 3 epochs of 5 steps, its states, and Raptors of two seeds for each k."""
    folder = tmp_path_factory.mktemp("cost")
    teacher, path = teacher_of(), folder / "vit.safetensors"
    save_teacher(teacher, path, epoch=3, images={"train": 40}, spec={"training": {"batch_size": 8}})
    store = folder / "activations" / "vit.json"
    extract(
        teacher=path, data=DATA, output=store, device=CPU,
        config=ActivationsConfig(chunk_images=8, shard_images=16),
    )  # fmt: skip
    entries = []
    for k, labels in LABELS.items():
        for seed in (0, 1):
            file = folder / f"maxcut-k{k}/seed{seed}.safetensors"
            save_raptor(build_raptor(recipe_of(), labels, teacher, seed), file)
            entry = {"file": f"maxcut-k{k}/seed{seed}.safetensors", "sha256": sha256(file)}
            entry |= {"recipe": CONFIG.recipe, "method": "maxcut", "k": k, "seed": seed, "steps": 3}
            entries.append(entry | {"seconds": 2.0 + 4 * seed})
    entries.append({**entries[0], "method": "uniform", "seconds": 1e9})
    entries.append({**entries[0], "recipe": "another", "seconds": 1e9})
    write_json(folder / "part1.json", {"students": entries})
    return {"teacher": path, "activations": store, "students": [folder / "part1.json"]}


def measured(files, folder: Path) -> tuple[pd.DataFrame, pd.DataFrame]:
    paths = {"output": folder / "vit.csv", "timing": folder / "vit.timing.csv"}
    measure_cost(**files, config=CONFIG, **paths, device=CPU)
    return pd.read_csv(paths["output"]), pd.read_csv(paths["timing"])


def test_the_row_of_each_model(files, tmp_path):
    fixed, timed = measured(files, tmp_path)
    block = 2 * 2 * WIDTH + 4 * WIDTH**2 + 4 * WIDTH + 2 * WIDTH * HIDDEN + HIDDEN + WIDTH
    assert list(fixed["model"]) == list(timed["model"]) == ["teacher", "raptor", "raptor"]
    assert list(fixed["parameters"]) == [4 * block, block, 2 * block]
    assert list(fixed["parameters_share"]) == [1, 1 / 4, 2 / 4]
    assert list(fixed["description_bits"]) == [128 * block, 32 * block, 64 * block]
    assert list(fixed["levin_bits"]) == [bits + 2 for bits in fixed["description_bits"]]
    products = 2 * TOKENS * (4 * WIDTH**2 + 2 * WIDTH * HIDDEN) + 4 * TOKENS**2 * WIDTH
    assert list(fixed["flops"]) == [4 * products] * 3
    assert list(fixed["block_applications"]) == [4, 4, 4]
    assert list(fixed["training_steps"]) == [15, 3, 3]
    assert list(timed["n_trained"]) == [0, 2, 2]
    assert timed["training_seconds"].isna().tolist() == [True, False, False]
    assert timed["training_seconds"][1] == 4
    assert timed["training_seconds_sd"][1] == pytest.approx(math.sqrt(8))
    assert (timed["latency_ms"] > 0).all()
    assert (timed["latency_sd"] > 0).all()
    weights = fixed["description_bits"] / 8 / 2**20
    np.testing.assert_allclose(timed["peak_memory_mb"] - timed["activation_memory_mb"], weights)
    # Both keep no state but the present one; at the widest, the MLP's hidden units are there.
    activations = timed["activation_memory_mb"] * 2**20
    assert (activations >= 4 * 10 * TOKENS * (HIDDEN + WIDTH)).all()
    assert activations.max() < 1.1 * activations.min()


def test_two_runs_differ_in_what_was_measured_alone(files, tmp_path):
    for run in ("one", "two"):
        measured(files, tmp_path / run)
        tables.table_cost(
            cost=tmp_path / run / "vit.csv",
            timing=tmp_path / run / "vit.timing.csv",
            output=tmp_path / run / "table_cost.csv",
        )
    one, two = (read_table(tmp_path / run / "table_cost.csv") for run in ("one", "two"))
    assert list(one) == COLUMNS
    assert (tmp_path / "one/vit.csv").read_bytes() == (tmp_path / "two/vit.csv").read_bytes()
    assert (one["latency_ms"] != two["latency_ms"]).any()
    pd.testing.assert_frame_equal(one.drop(columns=MEASURED), two.drop(columns=MEASURED))
    assert not set(MEASURED) & set(pd.read_csv(tmp_path / "one/vit.csv"))


def test_bits_follow_the_stored_type():
    layer = torch.nn.Linear(3, 2)
    assert description_bits(layer) == 8 * 32
    assert description_bits(layer.half()) == 8 * 16
    assert levin_bits(100, 8) == 103


def test_flops_of_the_published_block():
    """SwiGLU with 4D hidden units and two gates: 24 D² a token beside the attention's 8 D²."""
    raptor = build_raptor(Recipe(depth_scaling=False, stage1=STAGE), LABELS[2], teacher_of(), 0)
    flops = count_flops(last_state(raptor.eval()), torch.randn(3, TOKENS, WIDTH))
    assert flops == 3 * DEPTH * (2 * TOKENS * 16 * WIDTH**2 + 4 * TOKENS**2 * WIDTH)


def test_the_last_state_is_the_last_of_all_states():
    raptor = build_raptor(recipe_of(depth_scaling=True), LABELS[2], teacher_of(), 0).eval()
    state = torch.randn(3, TOKENS, WIDTH)
    with torch.inference_mode():
        assert torch.equal(last_state(raptor)(state), raptor(state)[:, -1])


def test_memory_is_the_most_at_once():
    ones = torch.ones(250_000)  # a megabyte

    def work():
        two = ones + 1
        three = two + 1
        del two
        four = three + 1
        return four.sum()  # `three` is still there

    assert profiled_peak(work) == pytest.approx(2e6, rel=0.01)
    assert profiled_peak(lambda: [work(), ones + 1, ones + 2]) == pytest.approx(2e6, rel=0.01)
    assert profiled_peak(lambda: [ones + n for n in range(5)]) == pytest.approx(5e6, rel=0.01)


def test_models_take_turns(monkeypatch):
    calls = []
    forwards = [lambda _, name=name: calls.append(name) for name in "ab"]
    seconds = interleaved(forwards, torch.zeros(1), 3)
    assert "".join(calls) == "ab" * (cost.WARM_UP + 3)
    assert seconds.shape == (2, 3)


@pytest.mark.parametrize(
    ("facts", "steps"),
    [
        ({"epoch": 0, "spec": {"depth": 3}}, 0),
        ({"epoch": 2, "images": {"train": 50}, "spec": {"training": {"batch_size": 8}}}, 12),
        ({"epoch": 2, "images": {"train": 5}, "spec": {"training": {"batch_size": 8}}}, 2),
        ({}, math.nan),
    ],
)
def test_steps_of_the_teacher(facts, steps):
    assert cost._teacher_steps(facts) == pytest.approx(steps, nan_ok=True)


def test_the_files_are_those_of_the_index(files, tmp_path):
    index = json.loads(files["students"][0].read_text())
    index["students"][0]["sha256"] = "0" * 64
    write_json(files["students"][0].parent / "part2.json", index)
    other = {**files, "students": [files["students"][0].parent / "part2.json"]}
    with pytest.raises(cost.RaptorError, match="not the student in its index"):
        measured(other, tmp_path)
