"""Examples of dense probes: of which images, and what is not known in them."""

from __future__ import annotations

import numpy as np
import torch
from dense_pairs import Pairs

from raptor.data.pairs import IGNORE
from raptor.probes.examples import collect_examples
from raptor.qualitative import NO_CLASS


def pairs(targets, names):
    images = [torch.full((3, 2, 3), index, dtype=torch.uint8) for index in range(len(targets))]
    return Pairs(images, targets, names)


def test_classes_of_images_spread_over_the_split():
    split = pairs([torch.full((2, 3), index) for index in range(9)], [str(i) for i in range(9)])
    split.targets[8][0, 1] = IGNORE
    found = collect_examples(
        split=split,
        images=3,
        teacher=lambda images: [image[0].long() for image in images],
        raptor=lambda images: [8 - image[0].long() for image in images],
        model={"teacher": "vit", "k": 3},
    )
    assert found.sample_ids == ["pair/0", "pair/4", "pair/8"]
    assert found.model == {"teacher": "vit", "k": 3}
    assert list(found.class_names) == split.class_names
    last = found.examples[2]
    assert last.image.shape == (2, 3, 3)
    assert (last.image == 8).all()
    assert last.truth.tolist() == [[8, NO_CLASS, 8], [8, 8, 8]]
    assert (last.teacher == 8).all()
    assert (last.raptor == 0).all()


def test_depth_that_was_not_measured_is_nan_and_few_images_are_all_shown():
    split = pairs([torch.tensor([[0.0, 1.5, 2.0], [3.0, 4.0, 0.0]])], [])
    half = lambda images: [torch.full((2, 3), 0.5) for _ in images]
    found = collect_examples(split=split, images=5, teacher=half, raptor=half, model={})
    assert len(found.examples) == 1
    np.testing.assert_equal(found.examples[0].truth, [[np.nan, 1.5, 2.0], [3.0, 4.0, np.nan]])
    assert found.examples[0].truth.dtype == np.float32
