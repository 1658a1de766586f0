"""The order of images over epochs."""

from __future__ import annotations

from itertools import chain

from raptor.training.epochs import Epochs


def batches(epochs: Epochs) -> list[list[int]]:
    return [epochs.batch(step).images for step in range(epochs.steps)]


def test_each_epoch_has_every_image_once_and_its_own_order():
    epochs = Epochs(images=10, batch_size=4, epochs=3, seed=0, name="order")
    assert (epochs.steps_per_epoch, epochs.steps) == (3, 9)
    found = batches(epochs)
    assert [len(batch) for batch in found] == [4, 4, 2] * 3
    orders = [list(chain(*found[start : start + 3])) for start in (0, 3, 6)]
    assert all(sorted(order) == list(range(10)) for order in orders)
    assert orders[0] != orders[1] != orders[2]
    assert [epochs.batch(step).epoch for step in range(9)] == [0, 0, 0, 1, 1, 1, 2, 2, 2]
    assert epochs.batch(9) is None


def test_the_order_follows_from_seed_name_and_epoch_alone():
    first = Epochs(10, 4, 3, seed=0, name="order")
    assert batches(first) == batches(Epochs(10, 4, 3, seed=0, name="order"))
    assert batches(first) != batches(Epochs(10, 4, 3, seed=1, name="order"))
    assert batches(first) != batches(Epochs(10, 4, 3, seed=0, name="another"))
    assert first.batch(5) == Epochs(10, 4, 9, seed=0, name="order").batch(5)
