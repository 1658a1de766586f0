"""Layer swaps against brute-force enumeration and models with their blocks exchanged by hand."""

from __future__ import annotations

import copy
import itertools
import json
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare

from raptor import interventions
from raptor.config.analysis import SwapsConfig
from raptor.errors import RaptorError
from raptor.files import sha256
from raptor.interventions import Swap, list_swaps, measure_swaps, run_swaps, swap_layers
from raptor.teachers.build import assemble
from raptor.teachers.files import save_teacher

DEPTH, CLASSES, IMAGES = 5, 3, 30
LABELS = [1, 1, 1, 2, 2]
COLUMNS = (
    "teacher partition k segments size kind targets sources accuracy accuracy_teacher drop "
    "relative_error distance n"
)


class MemoryStore:
    """The states of a teacher, read as a store is."""

    def __init__(self, teacher, images: torch.Tensor, labels: np.ndarray) -> None:
        with torch.no_grad():
            self.states = teacher.states(images).numpy()
        self.labels = labels

    def blocks(self, split, size, layers=None, images=None):
        assert split == "test"
        for start in range(0, len(self.states), size):
            part = slice(start, start + size)
            states = self.states[part] if layers is None else self.states[part][:, layers]
            yield start, states, self.labels[part]


@pytest.fixture
def teacher():
    architecture = {"depth": DEPTH, "width": 8, "heads": 2, "mlp_ratio": 2.0, "patch_size": 4}
    architecture |= {"image_size": 8, "channels": 1, "num_classes": CLASSES, "registers": 1}
    model = assemble(
        {**architecture, "layer_scale": None, "stochastic_depth": 0.0, "stem": "patch"}, seed=0
    )
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():  # far from the small initial weights, so that a swap is felt
        for block in model.blocks:
            for parameter in block.parameters():
                parameter.add_(0.3 * torch.randn(parameter.shape, generator=generator))
        model.model.head.weight.normal_(generator=generator)
        model.model.patch_embed.proj.weight.mul_(30)  # so that images differ in their classes
    return model.eval().requires_grad_(False)


@pytest.fixture
def images() -> torch.Tensor:
    return torch.randn(IMAGES, 1, 8, 8, generator=torch.Generator().manual_seed(2))


@pytest.fixture
def store(teacher, images):
    with torch.no_grad():
        labels = teacher(images).argmax(1).numpy()
    labels[::10] = (labels[::10] + 1) % CLASSES  # the teacher errs on one image in ten
    return MemoryStore(teacher, images, labels)


def every_swap(labels: list[int], size: int, kind: str) -> set[tuple]:
    """All (targets, sources) of a kind, tried one by one."""
    layers = range(1, len(labels) + 1)
    return {
        (targets, sources)
        for targets in itertools.combinations(layers, size)
        for sources in itertools.product(layers, repeat=size)
        if all(s != t for s, t in zip(sources, targets, strict=True))
        and all(
            (labels[s - 1] == labels[t - 1]) == (kind == "intra")
            for s, t in zip(sources, targets, strict=True)
        )
    }


def as_set(swaps: list[Swap]) -> set[tuple]:
    assert len({(swap.targets, swap.sources) for swap in swaps}) == len(swaps)  # no repetition
    return {(swap.targets, swap.sources) for swap in swaps}


phases = st.lists(st.integers(1, 3), min_size=2, max_size=6)


@settings(max_examples=40, deadline=None)
@given(labels=phases, size=st.integers(1, 3), kind=st.sampled_from(["intra", "inter"]))
def test_with_samples_enough_every_swap_is_listed_once(labels, size, kind):
    found = list_swaps(labels, size=size, kind=kind, samples=10**6, seed=0)
    assert as_set(found) == every_swap(labels, size, kind)


def test_one_layer_is_exhaustive_whatever_the_samples():
    intra, inter = (
        list_swaps(LABELS, size=1, kind=kind, samples=1, seed=0) for kind in ("intra", "inter")
    )
    assert len(intra) + len(inter) == DEPTH * (DEPTH - 1)
    assert as_set(intra) | as_set(inter) == {
        ((t,), (s,)) for t, s in itertools.permutations(range(1, DEPTH + 1), 2)
    }


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 10**6), kind=st.sampled_from(["intra", "inter"]))
def test_samples_are_swaps_of_their_kind_without_repetition(seed, kind):
    draws = list_swaps(LABELS, size=2, kind=kind, samples=7, seed=seed)
    assert len(draws) == 7
    assert as_set(draws) <= every_swap(LABELS, 2, kind)
    assert draws == list_swaps(LABELS, size=2, kind=kind, samples=7, seed=seed)


def test_draws_are_uniform_over_all_swaps():
    counts = Counter(
        (swap.targets, swap.sources)
        for seed in range(2000)
        for swap in list_swaps(LABELS, size=2, kind="intra", samples=1, seed=seed)
    )
    observed = [counts[swap] for swap in every_swap(LABELS, 2, "intra")]
    assert sum(observed) == 2000
    assert chisquare(observed).pvalue > 0.01


def test_distance_is_the_mean_number_of_layers_between():
    assert Swap("inter", (1, 4), (5, 3)).distance == 2.5


@pytest.mark.parametrize(
    ("targets", "sources"), [((1,), (4,)), ((5,), (1,)), ((2, 3), (3, 2)), ((1, 3, 5), (2, 2, 4))]
)
def test_a_swap_equals_a_model_with_its_blocks_exchanged(teacher, images, store, targets, sources):
    exchanged = copy.deepcopy(teacher)
    for target, source in zip(targets, sources, strict=True):
        exchanged.model.blocks[target - 1] = copy.deepcopy(teacher.model.blocks[source - 1])
    swap = Swap("inter", targets, sources)
    with torch.no_grad():
        [(_, last)] = run_swaps(teacher, torch.from_numpy(store.states), [swap])
        torch.testing.assert_close(teacher.logits(last), exchanged(images))
        assert not torch.allclose(teacher.logits(last), teacher(images), atol=1e-2)


def test_swaps_that_share_their_first_layers_do_not_disturb_each_other(teacher, store):
    swaps = [
        swap
        for size in (1, 2, 3)
        for kind in ("inter", "intra")
        for swap in list_swaps(LABELS, size=size, kind=kind, samples=25, seed=size)
    ]
    states, calls = torch.from_numpy(store.states[:4]), []
    for block in teacher.blocks:
        block.register_forward_hook(lambda *_: calls.append(1))
    together = dict(run_swaps(teacher, states, swaps))
    needed = len(calls)
    assert sorted(together) == list(range(len(swaps)))
    for index, swap in enumerate(swaps):
        [(_, alone)] = run_swaps(teacher, states, [swap])
        torch.testing.assert_close(together[index], alone)
    # One call per distinct beginning that differs from the teacher's own.
    own = tuple(range(1, DEPTH + 1))
    layers = [swap.layers_run(DEPTH) for swap in swaps]
    beginnings = {run[:n] for run in layers for n in range(1, DEPTH + 1)}
    assert needed == len(beginnings - {own[:n] for n in range(1, DEPTH + 1)})


def test_swapping_equal_blocks_changes_nothing(teacher, images):
    for layer in range(2, DEPTH + 1):  # each phase becomes one block applied again and again
        twin = teacher.blocks[0] if LABELS[layer - 1] == 1 else teacher.blocks[3]
        teacher.blocks[layer - 1].load_state_dict(twin.state_dict())
    store = MemoryStore(teacher, images, np.arange(IMAGES) % CLASSES)
    swaps = [
        swap
        for size in (1, 2)
        for swap in list_swaps(LABELS, size=size, kind="intra", samples=99, seed=0)
    ]
    found, reference = measure_swaps(teacher, store, "test", swaps)
    assert (found["accuracy"] == reference["accuracy"]).all()
    np.testing.assert_allclose(found["relative_error"], 0, atol=1e-5)
    across = list_swaps(LABELS, size=1, kind="inter", samples=99, seed=0)
    assert (measure_swaps(teacher, store, "test", across)[0]["relative_error"] > 0.01).all()


def test_measured_in_blocks_equals_by_hand(teacher, store, monkeypatch):
    monkeypatch.setattr(interventions, "IMAGES", 7)
    swap = Swap("inter", (2,), (5,))
    found, reference = measure_swaps(teacher, store, "test", [swap])
    with torch.no_grad():
        [(_, last)] = run_swaps(teacher, torch.from_numpy(store.states), [swap])
        predicted = teacher.logits(last).argmax(1).numpy()
        own = teacher.logits(torch.from_numpy(store.states[:, -1])).argmax(1).numpy()
    true = store.states[:, -1]
    ratios = [
        np.linalg.norm(a - b) / np.linalg.norm(b) for a, b in zip(last.numpy(), true, strict=True)
    ]
    assert found["accuracy"][0] == np.mean(predicted == store.labels)
    assert reference == {"accuracy": np.mean(own == store.labels), "n": IMAGES}
    assert found["relative_error"][0] == pytest.approx(np.mean(ratios), rel=1e-5)


def write_labels(path: Path, labels: list[int]) -> None:
    row = {"method": "maxcut", "k": max(labels), "seed": 0, "labels": json.dumps(labels)}
    pd.DataFrame([{**row, "cut_weight": 1.0, "cut_fraction": 0.5}]).to_csv(path, index=False)


@pytest.fixture
def files(teacher, store, tmp_path, monkeypatch):
    """The arguments of `swap_layers` for the teacher above."""
    save_teacher(teacher, tmp_path / "tiny.safetensors")
    source = SimpleNamespace(name="tiny", sha256=sha256(tmp_path / "tiny.safetensors"))
    store.manifest = SimpleNamespace(teacher=source)
    monkeypatch.setattr("raptor.stored.Activations", lambda *_: store)
    write_labels(tmp_path / "maxcut-k2.csv", LABELS)
    return {
        "teacher": tmp_path / "tiny.safetensors",
        "activations": tmp_path / "tiny.json",
        "partition": tmp_path / "maxcut-k2.csv",
        "config": SwapsConfig(teachers=["tiny"], k=2, sizes=[1, 2], samples=4),
        "output": tmp_path / "tiny.swaps.csv",
        "device": torch.device("cpu"),
        "seed": 0,
    }


def test_the_table_has_one_row_per_swap(files):
    swap_layers(**files)
    table = pd.read_csv(files["output"])
    assert list(table) == COLUMNS.split()
    assert table.groupby(["size", "kind"]).size().to_dict() == {
        (1, "inter"): 12, (1, "intra"): 8, (2, "inter"): 4, (2, "intra"): 4
    }  # fmt: skip
    assert set(table["teacher"]) == {"tiny"}
    assert set(table["segments"]) == {"1-3 4-5"}
    assert table["accuracy"].nunique() > 3
    np.testing.assert_allclose(table["drop"], table["accuracy_teacher"] - table["accuracy"])
    for row in table.itertuples():
        pairs = list(zip(json.loads(row.targets), json.loads(row.sources), strict=True))
        assert len(pairs) == row.size
        assert row.distance == np.mean([abs(s - t) for t, s in pairs])
        assert {LABELS[s - 1] == LABELS[t - 1] for t, s in pairs} == {row.kind == "intra"}


def test_twice_is_the_same_and_another_seed_draws_others(files):
    tables = []
    for seed in (0, 0, 1):
        swap_layers(**{**files, "seed": seed})
        tables.append(files["output"].read_bytes())
    assert tables[0] == tables[1] != tables[2]


def test_one_phase_has_no_swap_across(files):
    write_labels(files["partition"], [1] * DEPTH)
    swap_layers(**files)
    assert set(pd.read_csv(files["output"])["kind"]) == {"intra"}


def test_a_partition_of_another_depth_is_an_error(files):
    write_labels(files["partition"], [1, 1, 2])
    with pytest.raises(RaptorError, match="labels 3 layers, the teacher has 5"):
        swap_layers(**files)


def test_states_of_other_weights_are_an_error(files, store):
    store.manifest.teacher.sha256 = "0" * 64
    with pytest.raises(RaptorError, match="holds the states of other weights"):
        swap_layers(**files)
