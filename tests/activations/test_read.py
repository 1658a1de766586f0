"""Reading: blocks in order, shuffled batches, and damage that must never become a number."""

from __future__ import annotations

import hashlib
import itertools
import threading
import time
from pathlib import Path

import numpy as np
import pytest
import torch

from raptor.activations import order
from raptor.activations.batches import READERS, TASK_BATCHES
from raptor.activations.manifest import Manifest, store_folder
from raptor.activations.read import Activations
from raptor.activations.shards import Shards
from raptor.errors import RaptorError

from .conftest import LAYOUT, SIZES, STATES, WIDTH, Linear, states_of, store
from .test_write import break_file, shard_file

TOTAL = sum(SIZES.values())


@pytest.fixture
def exact() -> np.ndarray:
    return states_of(Linear()).half().float().numpy()


def take(iterator, count):
    batches = list(itertools.islice(iterator, count))
    iterator.close()
    return batches


def test_facts(manifest):
    states = Activations(manifest)
    assert states.shape == (TOTAL, STATES, LAYOUT.total, WIDTH)
    assert list(states.splits) == ["train", "val", "test"]
    assert (states.teacher, states.layout) == ("tiny", LAYOUT)
    assert states.labels.shape == (TOTAL,)
    assert len(states.sample_ids) == TOTAL


@pytest.mark.parametrize("span", [(0, 67), (3, 5), (15, 18), (4, 8), (66, 67), (20, 20)])
@pytest.mark.parametrize("layers", [None, [0], [4, 1], range(1, 5), np.array([2, 2])])
def test_read(manifest, exact, span, layers):
    read = Activations(manifest).read(*span, layers=layers)
    chosen = list(range(STATES)) if layers is None else list(layers)
    assert read.dtype == np.float32
    np.testing.assert_array_equal(read, exact[slice(*span)][:, chosen])


@pytest.mark.parametrize("span", [(-1, 3), (0, 68), (5, 4)])
def test_read_outside_is_an_error(manifest, span):
    with pytest.raises(IndexError, match="are not within the 67 stored"):
        Activations(manifest).read(*span)


@pytest.mark.parametrize("layers", [[5], [-1]])
def test_an_unknown_layer_is_an_error(manifest, layers):
    states = Activations(manifest)
    with pytest.raises(IndexError, match=r"the stored states are 0\.\.4"):
        states.read(0, 1, layers=layers)
    with pytest.raises(IndexError, match=r"the stored states are 0\.\.4"):
        states.batches("train", 4, seed=0, layers=layers)


@pytest.mark.parametrize("size", [1, 5, 100])
def test_blocks_cover_a_split_in_order(manifest, exact, size):
    states = Activations(manifest)
    first, last = states.splits["val"]
    blocks = list(states.blocks("val", size, layers=[3]))
    assert [start for start, _, _ in blocks] == list(range(first, last, size))
    np.testing.assert_array_equal(
        np.concatenate([values for _, values, _ in blocks]), exact[first:last, 3:4]
    )
    labels = np.concatenate([labels for _, _, labels in blocks])
    np.testing.assert_array_equal(labels, states.labels[first:last])


@pytest.mark.parametrize("split", ["train", "val", "test"])
@pytest.mark.parametrize("layers", [None, [4, 0]])
def test_batches_hold_the_states_and_labels_of_their_indices(tmp_path, dtype, split, layers):
    teacher = Linear()
    states = Activations(store(tmp_path / "tiny.json", teacher, dtype))
    rounded = states_of(teacher).to(getattr(torch, dtype)).float()
    chosen = list(range(STATES)) if layers is None else layers
    for batch in take(states.batches(split, 4, seed=1, layers=layers), 15):
        assert (batch.states.dtype, batch.indices.dtype) == (torch.float32, torch.int64)
        assert torch.equal(batch.states, rounded[batch.indices][:, chosen])
        np.testing.assert_array_equal(batch.labels.numpy(), states.labels[batch.indices.numpy()])


@pytest.mark.parametrize("batch_size", [1, 4, 7, 40, 45])
def test_no_image_comes_twice_in_an_epoch(manifest, batch_size):
    states = Activations(manifest)
    steps = SIZES["train"] // batch_size
    batches = take(states.batches("train", batch_size, seed=3), 3 * steps)
    epochs = [
        torch.cat([b.indices for b in batches[e * steps : (e + 1) * steps]]) for e in range(3)
    ]
    for epoch in epochs:
        assert len(epoch) == len(set(epoch.tolist())) == steps * batch_size
        assert set(epoch.tolist()) <= set(range(SIZES["train"]))
    if 1 < batch_size < SIZES["train"]:
        assert epochs[0].tolist() != epochs[1].tolist()


def test_every_image_comes_when_batches_divide_the_split(manifest):
    batches = take(Activations(manifest).batches("train", 5, seed=3), 9)
    assert sorted(torch.cat([b.indices for b in batches]).tolist()) == list(range(45))


def test_dropped_images_differ_between_epochs(manifest):
    batches = take(Activations(manifest).batches("train", 40, seed=3), 5)
    assert len({frozenset(b.indices.tolist()) for b in batches}) == 5


def test_batch_depends_on_seed_and_step_alone(manifest):
    states = Activations(manifest)
    straight = take(states.batches("train", 7, seed=5), 20)
    again = take(Activations(manifest).batches("train", 7, seed=5), 20)
    other = take(states.batches("train", 7, seed=6), 20)
    for a, b in zip(straight, again, strict=True):
        assert torch.equal(a.indices, b.indices)
        assert torch.equal(a.states, b.states)
    assert any(not torch.equal(a.indices, b.indices) for a, b in zip(straight, other, strict=True))


@pytest.mark.parametrize("first", [1, 5, 6, 13])
def test_batches_resume_anywhere(manifest, first):
    states = Activations(manifest)
    straight = take(states.batches("train", 7, seed=5), 18)[first:]
    resumed = take(states.batches("train", 7, seed=5, first_step=first), 18 - first)
    for a, b in zip(straight, resumed, strict=True):
        assert torch.equal(a.indices, b.indices)
        assert torch.equal(a.states, b.states)


def test_a_batch_that_is_kept_does_not_change(manifest, exact):
    batches = take(Activations(manifest).batches("train", 3, seed=0), 30)
    for batch in batches:
        np.testing.assert_array_equal(batch.states.numpy(), exact[batch.indices.numpy()])


def test_memory_serves_another_batch_only_when_no_view_is_left(manifest, exact):
    """Even a part of a batch keeps its memory; what nothing uses is used again."""
    views, places = [], set()
    iterator = Activations(manifest).batches("train", 3, seed=0)
    for step in range(300):
        batch = next(iterator)
        places.add(batch.states.untyped_storage().data_ptr())
        if step % 60 == 0:
            views.append((batch.indices[1], batch.states[1, 2:].numpy()))
    iterator.close()
    del batch
    for image, view in views:
        np.testing.assert_array_equal(view, exact[image, 2:])
    assert len(places) <= len(views) + READERS + 2 < 300 // TASK_BATCHES


def test_windows_mix_images_of_several_rows():
    epoch = order.epoch_order((10, 1010), chunk_images=8, seed=0, epoch=0)
    assert sorted(epoch.tolist()) == list(range(10, 1010))
    # A batch inside the first window (63 or 64 images) draws from all its rows, and no others:
    # seldom from fewer than half of them.
    assert len(np.unique(epoch[:56] // 8)) <= order.WINDOW_ROWS
    assert len(np.unique(epoch[:32] // 8)) >= order.WINDOW_ROWS // 2


def test_a_split_of_one_window_is_a_plain_permutation():
    """Each image is equally often in each place: chi-squared over 2,000 epochs of 6 images."""
    span, epochs = (3, 9), 2000
    counts = np.zeros((6, 6))
    for epoch in range(epochs):
        counts[np.arange(6), order.epoch_order(span, 2, seed=0, epoch=epoch) - 3] += 1
    chi_squared = ((counts - epochs / 6) ** 2 / (epochs / 6)).sum()
    assert chi_squared < 52.6  # 99.9 % quantile at (6 - 1)^2 = 25 degrees of freedom


def test_letting_go_of_maps_changes_nothing(manifest, exact, monkeypatch):
    from raptor.activations import shards

    monkeypatch.setattr(shards, "MAPPED_BYTES", 1)
    states = Activations(manifest)
    np.testing.assert_array_equal(states.read(0, TOTAL), exact)
    assert len(states._states._maps) == 1
    for batch in take(states.batches("train", 7, seed=0), 20):
        np.testing.assert_array_equal(batch.states.numpy(), exact[batch.indices.numpy()])


@pytest.mark.parametrize("size", [0, 46])
def test_a_batch_larger_than_the_split_is_refused(manifest, size):
    with pytest.raises(RaptorError, match=rf"split train has 45 images.*batch of {size}; lower"):
        Activations(manifest).batches("train", size, seed=0)


def test_closing_the_iterator_stops_its_threads(manifest):
    before = threading.active_count()
    iterator = Activations(manifest).batches("train", 4, seed=0)
    next(iterator)
    assert before < threading.active_count() <= before + READERS
    iterator.close()  # without waiting for them
    end = time.monotonic() + 10
    while threading.active_count() > before and time.monotonic() < end:
        time.sleep(0.01)
    assert threading.active_count() == before


def test_closing_the_iterator_waits_for_no_thread(manifest, monkeypatch):
    """The garbage collector may close it in a thread for which the reader would wait in turn."""
    iterator = Activations(manifest).batches("train", 4, seed=0)
    reading, go_on, gather = threading.Event(), threading.Event(), Shards.gather

    def slowly(*arguments):
        reading.set()
        assert go_on.wait(30)
        gather(*arguments)

    next(iterator)
    monkeypatch.setattr(Shards, "gather", slowly)
    while not reading.wait(0.01):
        next(iterator)
    closed = threading.Thread(target=iterator.close)
    closed.start()
    closed.join(10)
    waited = closed.is_alive()
    go_on.set()
    assert not waited


@pytest.mark.parametrize("damage", ["missing", "truncated"])
def test_a_lost_shard_is_noticed_on_opening(manifest, damage):
    path = shard_file(manifest, 1)
    break_file(path, damage)
    with pytest.raises(RaptorError, match=r"delete .*tiny\.json and run the extraction") as error:
        Activations(manifest)
    assert str(path) in str(error.value)


WAYS = {
    "read": lambda states: states.read(0, TOTAL),
    "blocks": lambda states: list(states.blocks("train", 8)),
    "batches": lambda states: take(states.batches("train", 45, seed=0), 1),
}


@pytest.mark.parametrize("damage", ["missing", "truncated", "flipped"])
@pytest.mark.parametrize("how", WAYS)
def test_damage_after_opening_is_an_error_and_never_a_number(manifest, damage, how):
    path, states = shard_file(manifest, 1), Activations(manifest)
    break_file(path, damage)
    with pytest.raises(RaptorError, match="redoes only this shard") as error:
        WAYS[how](states)
    assert str(path) in str(error.value)


def test_an_undamaged_shard_is_still_read(manifest, exact):
    states = Activations(manifest)
    break_file(shard_file(manifest, 1), "flipped")
    np.testing.assert_array_equal(states.read(0, 16), exact[:16])


def test_each_shard_is_verified_once(manifest, monkeypatch):
    calls, original = [], hashlib.file_digest
    monkeypatch.setattr(
        hashlib, "file_digest", lambda file, name: calls.append(file.name) or original(file, name)
    )
    states = Activations(manifest)
    assert not calls
    for _ in range(3):
        states.read(0, 20)
    assert [Path(path) for path in calls] == [shard_file(manifest, i) for i in range(2)]


def test_a_shard_that_lacks_chunks_is_refused_even_if_its_checksum_holds(manifest):
    """What zarr itself writes for an all-zero chunk that it was allowed to leave out."""
    import zarr

    from raptor.files import sha256

    path, whole = shard_file(manifest, 0), Manifest.load(manifest)
    array = zarr.open_array(store_folder(manifest), mode="r+")
    array[0:4, 2] = 0
    chunks, index = (
        path.read_bytes()[: -whole.grid.index_bytes],
        path.read_bytes()[-whole.grid.index_bytes :],
    )
    padding = whole.shards[0].bytes - path.stat().st_size
    path.write_bytes(chunks + bytes(padding) + index)
    shard = whole.shards[0].model_copy(update={"sha256": sha256(path)})
    whole.model_copy(update={"shards": [shard, *whole.shards[1:]]}).save(manifest)
    with pytest.raises(RaptorError, match="lacks chunks"):
        Activations(manifest).read(0, 4)
