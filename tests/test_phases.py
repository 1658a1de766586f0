"""Phases as files: written, read back, and refused where they are damaged."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pandas as pd
import pytest

from raptor.config.analysis import PartitionConfig
from raptor.errors import RaptorError
from raptor.partition import METHODS, cut_weight, format_segments, partition
from raptor.phases import read_distances, read_partition, write_partitions


def planted(*labels):
    labels = np.array(labels)
    return (labels[:, None] != labels).astype(float)


@pytest.fixture
def written(tmp_path):
    similarity = 1 - planted(1, 1, 1, 2, 2, 2, 2, 2) * 0.5
    other = 1 - planted(1, 1, 1, 1, 1, 2, 2, 2) * 0.5
    arrays = {"cosine": similarity, "cosine_bootstrap": np.stack([similarity, other])}
    np.savez(tmp_path / "t.npz", **arrays)
    config = PartitionConfig(methods=list(METHODS), k=[2, 3], random_seeds=4, epsilon=[0.0, 0.9])
    outputs = {(m, k): tmp_path / "t" / f"{m}-k{k}.csv" for m in METHODS for k in (2, 3)}
    write_partitions(
        matrices=tmp_path / "t.npz",
        config=config,
        teacher="t",
        outputs=outputs,
        stability=tmp_path / "t" / "stability.csv",
        epsilon=tmp_path / "t" / "epsilon.csv",
        seed=5,
    )
    return tmp_path / "t", outputs, 1 - similarity


def test_written_partitions_read_back(written):
    _, outputs, distance = written
    for (method, k), path in outputs.items():
        df = pd.read_csv(path)
        assert list(df.columns) == [
            "teacher", "method", "k", "seed", "segments", "labels", "cut_weight", "cut_fraction",
        ]  # fmt: skip
        rows = 4 if method.startswith("random") else 1
        assert df["seed"].tolist() == list(range(rows))
        for seed in range(4):
            cut = read_partition(path, seed)
            assert (cut.method, cut.k) == (method, k)
            assert format_segments(cut.segments) == df["segments"][seed % rows]
            assert cut.cut_weight == cut_weight(distance, cut.labels)
        if method == "maxcut":
            assert read_partition(path) == partition(distance, k)
    sizes = [
        [sorted(Counter(read_partition(outputs[m, 3], s).labels).values()) for s in range(4)]
        for m in ("random", "random_scattered")
    ]
    assert sizes[0] == sizes[1]


def test_written_stability_and_epsilon(written):
    folder, _, _ = written
    stability = pd.read_csv(folder / "stability.csv")
    assert len(stability) == 2 * 2 * 7  # methods, k, boundaries
    two = stability.query("method == 'maxcut_exact' and k == 2").set_index("boundary")
    assert two["frequency"].to_dict() == {1: 0, 2: 0, 3: 0.5, 4: 0, 5: 0.5, 6: 0, 7: 0}
    assert two.index[two["chosen"] == 1].tolist() == [3]
    assert set(two["exact_share"]) == {0.5}
    assert set(two["n_resamples"]) == {2}
    epsilon = pd.read_csv(folder / "epsilon.csv")
    assert epsilon[["epsilon", "k", "segments"]].to_numpy().tolist() == [
        [0.0, 2, "1-3 4-8"],
        [0.9, 2, "1-3 4-8"],
    ]


def test_missing_measures_and_seeds_are_named(tmp_path, written):
    _, outputs, _ = written
    with pytest.raises(RaptorError, match="no similarity by cka"):
        read_distances(tmp_path / "t.npz", "cka")
    with pytest.raises(RaptorError, match="no row for seed 9"):
        read_partition(outputs["random", 2], 9)


def test_mean_squared_difference_is_already_a_distance(tmp_path):
    value, drawn = planted(1, 2, 2) * 7, np.stack([planted(1, 1, 2)])
    names = {"mean_squared_difference": value, "mean_squared_difference_bootstrap": drawn}
    np.savez(tmp_path / "t.npz", **names)
    distance, resamples = read_distances(tmp_path / "t.npz", "mean_squared_difference")
    assert (distance == value).all()
    assert (resamples == drawn).all()


@pytest.mark.parametrize("method", METHODS)
def test_one_block_is_every_layer_and_cuts_nothing(method, tmp_path):
    matrix = np.abs(np.subtract.outer(np.arange(5.0), np.arange(5.0)))
    for min_size in (1, 2, 5):
        found = partition(matrix, 1, method=method, min_size=min_size)
        assert (found.segments, found.labels) == (((1, 5),), (1,) * 5)
        assert (found.cut_weight, found.cut_fraction, found.k) == (0.0, 0.0, 1)
    np.savez(tmp_path / "vit.npz", cosine=1 - matrix, cosine_bootstrap=(1 - matrix)[None])
    write_partitions(
        matrices=tmp_path / "vit.npz",
        config=PartitionConfig(methods=[method], k=[1], min_size=1, random_seeds=3, epsilon=[0.1]),
        teacher="vit",
        outputs={(method, 1): tmp_path / "cut.csv"},
        stability=tmp_path / "stability.csv",
        epsilon=tmp_path / "epsilon.csv",
        seed=0,
    )
    assert read_partition(tmp_path / "cut.csv", 2).segments == ((1, 5),)
    stable = pd.read_csv(tmp_path / "stability.csv")
    assert stable[["chosen", "frequency", "exact_share"]].drop_duplicates().to_numpy().tolist() == [
        [0, 0, 1]
    ]


def test_damaged_files_are_named_and_the_way_out_told(tmp_path, written):
    _, outputs, _ = written
    table, matrices = outputs["random", 2], tmp_path / "t.npz"
    text, content = table.read_text(), matrices.read_bytes()
    for cut in (text[:-20], text.replace("labels", "label"), "", text.replace("[1", "[x")):
        table.write_text(cut)
        with pytest.raises(RaptorError, match=r"2\.csv: .*(delete it|no row for seed 3)"):
            read_partition(table, 3)
    for part in (content[:100], b"", content[:-200]):
        matrices.write_bytes(part)
        with pytest.raises(RaptorError, match=r"t\.npz: .*delete it and run again"):
            read_distances(matrices, "cosine")
