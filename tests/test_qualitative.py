"""Examples on disk."""

import numpy as np
import pytest

from raptor.errors import RaptorError
from raptor.qualitative import NO_CLASS, Example, Examples


def examples():
    """Two images of different sizes."""
    return [
        Example(
            np.full((height, 4, 3), height, np.uint8),
            *(np.full((height, 4), value, np.float32) for value in (np.nan, 1.5, 2.5)),
        )
        for height in (3, 5)
    ]


MODEL = {"teacher": "vit", "recipe": "paper", "partition": "maxcut", "k": 3, "seed": 0}


@pytest.mark.parametrize(("names", "model"), [([], {}), (["sky", "tree, plant"], MODEL)])
def test_what_is_saved_is_loaded(tmp_path, names, model):
    path = tmp_path / "below" / "dense.npz"
    Examples(["a", "b"], examples(), names, model).save(path)
    found = Examples.load(path)
    assert [file.name for file in path.parent.iterdir()] == ["dense.npz"]
    assert (found.sample_ids, found.class_names) == (["a", "b"], names)
    assert found.model == model
    for one, expected in zip(found.examples, examples(), strict=True):
        for array, other in zip(one, expected, strict=True):
            assert array.dtype == other.dtype
            np.testing.assert_array_equal(array, other)


def test_the_model_may_be_left_out():
    assert Examples(["a", "b"], examples(), []).model == {}


def test_classes_by_area():
    truth = np.array([[NO_CLASS, 2, 2, 2]], np.int16)
    said = np.array([[0, 0, 5, 2]], np.int16)
    image = np.zeros((1, 4, 3), np.uint8)
    found = Examples(["a"], [Example(image, truth, truth, said)], list("abcdefg"))
    assert found.classes_by_area == [2, 0, 5]


def test_other_files_are_refused(tmp_path):
    path = tmp_path / "dense.npz"
    with pytest.raises(RaptorError, match=r"dense\.npz: not the examples of a dense probe"):
        Examples.load(path)
    path.write_bytes(b"PK\x03\x04 and then nothing")
    with pytest.raises(RaptorError, match="delete it and run again"):
        Examples.load(path)
    np.savez(path, sample_ids=np.array(["a"]), other=np.zeros(3))
    with pytest.raises(RaptorError, match="delete it and run again"):
        Examples.load(path)
    np.savez(path, sample_ids=np.array([{"a": 1}], dtype=object))  # a pickle inside
    with pytest.raises(RaptorError, match="delete it and run again"):
        Examples.load(path)
