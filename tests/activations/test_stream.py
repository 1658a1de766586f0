"""States streamed from the teacher are those of a store of the same precision."""

from __future__ import annotations

import itertools
import os

import numpy as np
import pytest
import torch

from raptor.activations.manifest import Manifest, store_folder
from raptor.activations.read import Activations
from raptor.activations.write import extract
from raptor.config.activations import ActivationsConfig
from raptor.config.analysis import SimilarityConfig
from raptor.config.data import DataConfig
from raptor.config.teachers import Architecture
from raptor.errors import RaptorError
from raptor.similarity import write_similarity
from raptor.teachers.files import load_teacher, save_teacher
from raptor.teachers.train import make_untrained

CPU = torch.device("cpu")
DATA = DataConfig.model_validate(
    {"splits": {"train": 70, "val": 9, "test": 13}, "mean": [0.13], "std": [0.31]}
)
SPEC = Architecture(depth=4, width=16, heads=2, patch_size=14, registers=2)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("stream")
    weights = folder / "teachers/vit.safetensors"
    make_untrained(spec=SPEC, data=DATA, output=weights, device=CPU)
    for mode in ("store", "stream"):
        for dtype in ("float16", "bfloat16"):
            config = ActivationsConfig(mode=mode, dtype=dtype, chunk_images=8, shard_images=32)
            output = folder / f"{mode}/{dtype}.json"
            output.parent.mkdir(exist_ok=True)
            extract(teacher=weights, data=DATA, config=config, output=output, device=CPU)
    return folder


@pytest.fixture(params=["float16", "bfloat16"])
def both(folder, request):
    return [Activations(folder / f"{mode}/{request.param}.json") for mode in ("store", "stream")]


def assert_close(found, expected, dtype):
    """Equal, but where two sums in float32 lie on either side of a rounding border."""
    found, expected = np.asarray(found), np.asarray(expected)
    unit = 2.0**-10 if dtype == "float16" else 2.0**-7
    differs = found != expected
    assert differs.mean() < 0.01
    np.testing.assert_allclose(found, expected, rtol=1.01 * unit, atol=1e-6)


def test_a_stream_keeps_nothing_but_its_manifest(folder):
    manifest = folder / "stream/float16.json"
    assert not store_folder(manifest).exists()
    loaded = Manifest.load(manifest)
    assert (loaded.mode, loaded.shards, loaded.precision) == ("stream", [], None)
    stored = Manifest.load(folder / "store/float16.json")
    for same in ("shape", "tokens", "splits", "labels", "sample_ids", "teacher"):
        assert getattr(loaded, same) == getattr(stored, same)


def test_blocks_of_all_and_of_some_layers(both):
    stored, streamed = both
    dtype = stored.manifest.dtype
    for layers in (None, [4], [3, 0]):
        pairs = zip(
            stored.blocks("train", 20, layers), streamed.blocks("train", 20, layers), strict=True
        )
        for (start, states, labels), (start_, states_, labels_) in pairs:
            assert start == start_
            assert (labels == labels_).all()
            assert_close(states_, states, dtype)
    assert_close(streamed.read(65, 85), stored.read(65, 85), dtype)  # over two borders of splits


def test_shuffled_batches(both):
    some = [itertools.islice(one.batches("train", 16, seed=3), 9) for one in both]
    for a, b in zip(*some, strict=True):
        assert torch.equal(a.indices, b.indices)
        assert torch.equal(a.labels, b.labels)
        assert_close(b.states, a.states, both[0].manifest.dtype)


def test_similarity_is_the_same(folder, tmp_path):
    config = SimilarityConfig(split="train", batch_images=32, bootstrap=5)
    found = []
    for mode in ("store", "stream"):
        matrices = tmp_path / f"{mode}.npz"
        write_similarity(
            activations=folder / f"{mode}/float16.json",
            config=config,
            output=tmp_path / f"{mode}.csv",
            matrices=matrices,
        )
        found.append(dict(np.load(matrices)))
    for name, values in found[0].items():
        np.testing.assert_allclose(found[1][name], values, rtol=1e-3, atol=1e-5, err_msg=name)


def test_an_entry_beyond_the_dtype_is_named_with_the_remedy(folder, tmp_path):
    teacher = load_teacher(folder / "teachers/vit.safetensors")
    with torch.no_grad():
        teacher.blocks[2].mlp.fc2.bias.fill_(1e6)
    (tmp_path / "teachers").mkdir()
    save_teacher(teacher, tmp_path / "teachers/vit.safetensors", class_names=["a"])
    output = tmp_path / "activations/vit.json"
    output.parent.mkdir()
    extract(
        teacher=tmp_path / "teachers/vit.safetensors",
        data=DATA,
        config=ActivationsConfig(mode="stream"),
        output=output,
        device=CPU,
    )
    with pytest.raises(RaptorError, match=r"layer 3 of image .* set activations\.dtype to bfloat"):
        Activations(output).read(0, 4)


def test_other_weights_or_other_images_are_refused(folder, tmp_path):
    manifest = folder / "stream/float16.json"
    loaded = Manifest.load(manifest)
    other = tmp_path / "stream/other.json"
    other.parent.mkdir()
    changed = loaded.model_copy(update={"sample_ids": loaded.sample_ids[::-1]})
    changed = changed.model_copy(
        update={
            "teacher": loaded.teacher.model_copy(
                update={"path": os.path.relpath(folder / "teachers/vit.safetensors", other.parent)}
            )
        }
    )
    changed.save(other)
    with pytest.raises(RaptorError, match=r"images of split \w+ are not those"):
        Activations(other)
    file = loaded.teacher.model_copy(update={"sha256": "0" * 64, "path": changed.teacher.path})
    changed.model_copy(update={"teacher": file}).save(other)
    with pytest.raises(RaptorError, match="not the weights whose states"):
        Activations(other)
