"""Examples on disk."""

import numpy as np
import pytest

from raptor.errors import RaptorError
from raptor.qualitative import Example, Examples


def examples():
    """Two images of different sizes."""
    return [
        Example(
            np.full((height, 4, 3), height, np.uint8),
            *(np.full((height, 4), value, np.float32) for value in (np.nan, 1.5, 2.5)),
        )
        for height in (3, 5)
    ]


@pytest.mark.parametrize("names", [[], ["sky", "tree, plant"]])
def test_what_is_saved_is_loaded(tmp_path, names):
    path = tmp_path / "below" / "dense.npz"
    Examples(["a", "b"], examples(), names).save(path)
    found = Examples.load(path)
    assert [file.name for file in path.parent.iterdir()] == ["dense.npz"]
    assert (found.sample_ids, found.class_names) == (["a", "b"], names)
    for one, expected in zip(found.examples, examples(), strict=True):
        for array, other in zip(one, expected, strict=True):
            assert array.dtype == other.dtype
            np.testing.assert_array_equal(array, other)


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
