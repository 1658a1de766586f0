"""What the branches add, against hooks on timm's own modules; and the phases of the branches."""

from __future__ import annotations

import itertools
import tracemalloc
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch

from raptor import branches, tables
from raptor.activations.read import Activations
from raptor.activations.write import extract
from raptor.branches import BRANCHES, branch_outputs, write_branches
from raptor.config.activations import ActivationsConfig
from raptor.config.analysis import SimilarityConfig
from raptor.config.data import DataConfig, Splits
from raptor.contrast import block_contrast
from raptor.partition import Partition, runs
from raptor.seeds import derive_seed
from raptor.similarity import write_similarity
from raptor.tables.branches import shared_by_chance
from raptor.tables.files import read_table
from raptor.teachers.build import assemble
from raptor.teachers.files import load_teacher, save_teacher

CPU = torch.device("cpu")
DATA = DataConfig(splits=Splits(train=30, val=5, test=5), mean=[0.13], std=[0.31])
DEPTH = 5
CONFIG = SimilarityConfig(batch_images=8, bootstrap=20, seed=4)


@pytest.fixture(scope="module")
def inputs(tmp_path_factory) -> dict[str, Path]:
    """An untrained teacher with lively weights and LayerScale, and its states in float32."""
    folder = tmp_path_factory.mktemp("teacher")
    architecture = {"depth": DEPTH, "width": 12, "heads": 2, "mlp_ratio": 2.0, "patch_size": 14}
    architecture |= {"image_size": 28, "channels": 1, "num_classes": 10, "registers": 1}
    teacher = assemble(
        {**architecture, "layer_scale": 0.7, "stochastic_depth": 0.5, "stem": "patch"}, seed=0
    )
    torch.manual_seed(0)
    for parameter in teacher.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    save_teacher(teacher, folder / "vit.safetensors")
    store = folder / "store" / "vit.json"
    extract(
        teacher=folder / "vit.safetensors", data=DATA, output=store, device=CPU,
        config=ActivationsConfig(dtype="float32", chunk_images=8, shard_images=16),
    )  # fmt: skip
    return {"teacher": folder / "vit.safetensors", "activations": store}


@pytest.fixture(scope="module")
def written(inputs, tmp_path_factory) -> dict[str, tuple[Path, Path]]:
    folder = tmp_path_factory.mktemp("branches")
    outputs = {name: (folder / f"{name}.csv", folder / f"{name}.npz") for name in BRANCHES}
    write_branches(**inputs, config=CONFIG, outputs=outputs, device=CPU)
    return outputs


def hooked(inputs) -> dict[str, np.ndarray]:
    """(N, L, T, D) after LayerScale in timm's own pass over the training images."""
    model, store = load_teacher(inputs["teacher"]), Activations(inputs["activations"])
    found = {name: [] for name in BRANCHES}
    for block in model.blocks:
        for name, module in zip(BRANCHES, (block.ls1, block.ls2), strict=True):
            module.register_forward_hook(lambda _, i, output, name=name: found[name].append(output))
    first, last = store.splits["train"]
    with torch.no_grad():
        model.continue_from(torch.from_numpy(store.read(first, last, [0])[:, 0]), 0)
    return {name: torch.stack(outputs, dim=1).numpy() for name, outputs in found.items()}


def cosines(added_NLTD: np.ndarray) -> np.ndarray:
    """The published measure, pair by pair, for `[cls | 1 register | patches]`."""
    x, out = added_NLTD.astype(float), np.zeros((DEPTH, DEPTH))
    for a, b in np.ndindex(out.shape):
        values = []
        for one, two in ((x[:, a, 0], x[:, b, 0]), (x[:, a, 2:].mean(1), x[:, b, 2:].mean(1))):
            norms = np.linalg.norm(one, axis=1) * np.linalg.norm(two, axis=1)
            values.append((one * two).sum(1) / norms)
        out[a, b] = np.mean(values)
    return out


def test_similarities_are_those_of_what_timm_adds(inputs, written):
    for name, added in hooked(inputs).items():
        with np.load(written[name][1]) as arrays:
            np.testing.assert_allclose(arrays["cosine"], cosines(added), atol=1e-5)
            squares = ((added[:, :, None] - added[:, None]).astype(float) ** 2).mean((0, 3, 4))
            np.testing.assert_allclose(arrays["mean_squared_difference"], squares, rtol=1e-3)


def test_the_files_are_shaped_as_those_of_the_states(inputs, written, tmp_path):
    table, matrices = tmp_path / "vit.csv", tmp_path / "vit.npz"
    write_similarity(
        activations=inputs["activations"], config=CONFIG, output=table, matrices=matrices
    )
    keys = ["teacher", "measure", "layer_a", "layer_b", "n", "n_units"]
    for branch_table, branch_matrices in written.values():
        pd.testing.assert_frame_equal(pd.read_csv(branch_table)[keys], pd.read_csv(table)[keys])
        with np.load(branch_matrices) as ours, np.load(matrices) as theirs:
            assert {n: ours[n].shape for n in ours} == {n: theirs[n].shape for n in theirs}
            assert not np.allclose(ours["cosine"], theirs["cosine"], atol=0.01)


def test_resamples_draw_the_images_of_the_states_resamples(inputs, written):
    """Redo the first resample of one entry from the counts that follow from the seed."""
    added = hooked(inputs)["attention"].astype(float)
    seed = derive_seed(CONFIG.seed, "similarity", "images")
    counts = np.array([np.random.default_rng([seed, n]).poisson(1.0, 20)[0] for n in range(30)])
    squares = ((added[:, 0] - added[:, 3]) ** 2).mean((1, 2))
    with np.load(written["attention"][1]) as arrays:
        resampled = arrays["mean_squared_difference_bootstrap"][0, 0, 3]
    assert resampled == pytest.approx((counts * squares).sum() / counts.sum(), rel=1e-3)


def test_twice_is_the_same(inputs, written, tmp_path):
    again = {name: (tmp_path / f"{name}.csv", tmp_path / f"{name}.npz") for name in BRANCHES}
    write_branches(**inputs, config=CONFIG, outputs=again, device=CPU)
    for name, paths in again.items():
        assert [p.read_bytes() for p in paths] == [p.read_bytes() for p in written[name]]


def test_memory_does_not_grow_with_the_images(inputs, monkeypatch, tmp_path):
    model, store = load_teacher(inputs["teacher"]), Activations(inputs["activations"])
    block = store.read(0, 16, range(DEPTH))

    def peak(n: int) -> int:
        def blocks(split, size, layers):
            for start in range(0, n, size):
                yield start, block[:size].copy(), None

        endless = SimpleNamespace(
            layout=store.layout, teacher="vit", splits={"train": (0, n)}, blocks=blocks
        )
        monkeypatch.setattr(branches, "open_teacher", lambda *_: (model, endless))
        outputs = {name: (tmp_path / f"{name}.csv", tmp_path / f"{name}.npz") for name in BRANCHES}
        tracemalloc.start()
        write_branches(
            **inputs, config=CONFIG.model_copy(update={"batch_images": 16}), outputs=outputs,
            device=CPU,
        )  # fmt: skip
        return tracemalloc.get_traced_memory()[1]

    peak(16)  # what is loaded only once
    assert peak(320) < 1.2 * peak(64)


def test_a_block_that_repeats_adds_the_same():
    """Layers 1 and 2 share weights and get the same state: what they add is equal."""
    architecture = {"depth": 2, "width": 8, "heads": 2, "mlp_ratio": 2.0, "patch_size": 7}
    architecture |= {"image_size": 14, "channels": 1, "num_classes": 2, "registers": 0}
    teacher = assemble(
        {**architecture, "layer_scale": None, "stochastic_depth": 0.0, "stem": "patch"}, seed=0
    ).eval()
    teacher.blocks[1].load_state_dict(teacher.blocks[0].state_dict())
    state = np.random.default_rng(0).normal(size=(3, 1, 5, 8)).astype(np.float32)
    for added in branch_outputs(teacher, state.repeat(2, axis=1), CPU).values():
        assert np.array_equal(added[:, 0], added[:, 1])
        assert added.std() > 0


# --- the table -----------------------------------------------------------------------------------


def matrix(steps: list[float], shift: float = 0.0) -> np.ndarray:
    """Cosine that falls with the distance walked from layer to layer."""
    walked = np.cumsum([0, *steps]) * (1 + shift)
    return np.exp(-np.abs(walked[:, None] - walked))


SIMILARITY = ["teacher", "measure", "layer_a", "layer_b", "value", "ci_low", "ci_high", "n"]
STEPS = {  # a large step is a boundary: after layers 2 and 4; after 2 and 5
    "block": [0.1, 2, 0.1, 1, 0.1],
    "attention": [0.1, 2, 0.1, 0.1, 1],
    "mlp": [0.1, 2, 0.1, 1, 0.1],
}


@pytest.fixture
def table(tmp_path) -> pd.DataFrame:
    paths = {}
    for site, steps in STEPS.items():
        cosine = matrix(steps)
        # In every second resample the attention branch is cut as the states are.
        drawn = [matrix(STEPS["block"] if r % 2 else steps, 0.1 * r) for r in range(4)]
        np.savez(tmp_path / f"{site}.npz", cosine=cosine, cosine_bootstrap=np.stack(drawn))
        rows = [
            ("vit", measure, a + 1, b + 1, value, value, value, 30)
            for measure in ("cosine", "cka")
            for (a, b), value in np.ndenumerate(cosine)
        ]
        paths[site] = tmp_path / f"{site}.csv"
        pd.DataFrame(rows, columns=SIMILARITY).to_csv(paths[site], index=False)
    tables.branch_similarity(
        **{site: [path] for site, path in paths.items()},
        matrices=[path.with_suffix(".npz") for path in paths.values()],
        measure="cosine",
        method="maxcut_exact",
        k=[2, 3],
        min_size=1,
        output=tmp_path / "out.csv",
    )
    return read_table(tmp_path / "out.csv")


def test_phases_of_each_site(table):
    cuts = table[table["part"] == "phases"].set_index(["site", "k"])
    assert cuts.loc[("block", 3), "segments"] == "1-2 3-4 5-6"
    assert cuts.loc[("attention", 3), "segments"] == "1-2 3-5 6-6"
    assert cuts["shared"].to_dict() == {
        ("block", 2): 1, ("attention", 2): 1, ("mlp", 2): 1,
        ("block", 3): 2, ("attention", 3): 1, ("mlp", 3): 2,
    }  # fmt: skip
    assert cuts.loc[("attention", 3), "exact_share"] == 0.5
    assert 1 <= cuts.loc[("attention", 3), "shared_low"] < 1.1
    assert cuts.loc[("attention", 3), "shared_high"] == 2
    for site in STEPS:
        cosine = matrix(STEPS[site])
        own, after = [1, 1, 2, 2, 3, 3], [1, 1, 2, 2, 3, 3]
        own = [1, 1, 2, 2, 2, 3] if site == "attention" else own
        row = cuts.loc[(site, 3)]
        assert row["contrast"] == pytest.approx(block_contrast(cosine, own))
        assert row["contrast_block"] == pytest.approx(block_contrast(cosine, after))
        assert row["contrast_block_low"] <= row["contrast_block_high"]
    entries = table[table["part"] == "matrix"]
    assert set(entries["measure"]) == {"cosine"}
    assert len(entries) == 3 * 36


@pytest.mark.parametrize(("depth", "k", "min_size"), [(6, 3, 1), (7, 3, 2), (8, 4, 2), (5, 2, 1)])
def test_shared_by_chance_by_enumeration(depth, k, min_size):
    every = [
        {*ends}
        for ends in itertools.combinations(range(1, depth), k - 1)
        if min(np.diff([0, *ends, depth])) >= min_size
    ]
    for chosen in every[:: max(1, len(every) // 3)]:
        labels = tuple(1 + sum(layer > end for end in chosen) for layer in range(1, depth + 1))
        cut = Partition(runs(labels), labels, 0.0, 0.0, k, "maxcut")
        expected = np.mean([len(chosen & other) for other in every])
        assert shared_by_chance(cut, min_size) == pytest.approx(expected)
