"""The manifest: what is written is read back, what is wrong is refused."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raptor.activations.manifest import (
    ZARR_DTYPE,
    Grid,
    Manifest,
    Precision,
    Rounding,
    Shard,
    TeacherFile,
)
from raptor.errors import RaptorError
from raptor.tokens import TokenLayout

sizes = st.integers(1, 9)
reals = st.floats(0, 1e30)
names = st.text(max_size=12)
paths = st.from_regex(r"\w{1,9}(/\w{1,9}){0,3}", fullmatch=True)
hashes = st.text("0123456789abcdef", min_size=64, max_size=64)
json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | names,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3),
    max_leaves=6,
)


@st.composite
def manifests(draw) -> Manifest:
    counts = draw(st.lists(sizes, min_size=3, max_size=3))
    ends = [sum(counts[: i + 1]) for i in range(3)]
    images, states, width, chunk = ends[-1], draw(sizes), draw(sizes), draw(sizes)
    tokens = TokenLayout(draw(st.integers(0, 1)), draw(st.integers(0, 4)), draw(sizes))
    dtype = draw(st.sampled_from(sorted(ZARR_DTYPE)))
    grid = Grid((images, states, tokens.total, width), dtype, chunk, chunk * draw(sizes))

    def lists(element, size):
        return draw(st.lists(element, min_size=size, max_size=size))

    shard = st.builds(Shard, file=paths, bytes=st.integers(1), sha256=hashes)
    return Manifest(
        mode="store",
        shape=grid.shape,
        dtype=dtype,
        zarr_dtype=ZARR_DTYPE[dtype],
        chunk=grid.chunk,
        shard=grid.shard,
        tokens=tokens,
        teacher=TeacherFile(name=draw(names), sha256=draw(hashes), path=draw(paths)),
        data=draw(st.dictionaries(names, json_values, max_size=4)),
        splits=dict(
            zip(("train", "val", "test"), zip([0, *ends], ends, strict=False), strict=True)
        ),
        labels=lists(st.integers(-1, 1000), images),
        sample_ids=lists(names, images),
        shards=lists(shard, len(grid.shards)),
        precision=Precision(**{name: lists(reals, states) for name in Precision.model_fields}),
    )


@settings(max_examples=50, deadline=None)
@given(manifests())
def test_what_is_saved_is_loaded(manifest):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "m.json"
        manifest.save(path)
        assert Manifest.load(path) == manifest


def test_a_missing_manifest_says_to_extract(tmp_path):
    with pytest.raises(RaptorError, match=r"none\.json: there is no manifest.*run the extraction"):
        Manifest.load(tmp_path / "none.json")


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b"{}", b"null", b"\xff\xfe", b'{"checksum": "0"}']
)
def test_a_broken_manifest_is_refused(tmp_path, content):
    (tmp_path / "m.json").write_bytes(content)
    with pytest.raises(RaptorError, match=r"m\.json: the manifest is damaged.*delete it"):
        Manifest.load(tmp_path / "m.json")


def test_a_changed_label_is_noticed(manifest):
    content = json.loads(manifest.read_text())
    content["labels"][3] += 1
    manifest.write_text(json.dumps(content))
    with pytest.raises(RaptorError, match="its checksum differs"):
        Manifest.load(manifest)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("labels", [0]),
        ("sample_ids", []),
        ("shards", []),
        ("splits", {"train": (0, 45), "val": (45, 54)}),
        ("splits", {"train": (0, 45), "val": (44, 54), "test": (54, 67)}),
        ("splits", {}),
        ("tokens", TokenLayout(1, 0, 4)),
        ("zarr_dtype", "uint16"),
        ("chunk", (4, 2, 7, 6)),
        ("shard", (18, 5, 7, 6)),
        ("shard", (16, 5, 7, 7)),
    ],
)
def test_an_incomplete_manifest_is_refused(manifest, key, value):
    whole = Manifest.load(manifest)
    whole.model_copy(update={key: value}).save(manifest)
    with pytest.raises(RaptorError, match=rf"damaged or of another version.*{key}"):
        Manifest.load(manifest)


def test_precision_joins_shards_of_different_sizes():
    parts = [
        Rounding(
            entries=n, max_entry=[m], max_error=[m / 8], squared_entry=[s], squared_error=[s / 4]
        )
        for n, m, s in ((1, 2.0, 4.0), (3, 1.0, 12.0))
    ]
    joined = Precision.of(parts)
    assert joined.rms_entry == [2.0]  # sqrt((4 + 12) / 4)
    assert joined.rms_error == [1.0]
    assert (joined.max_entry, joined.max_error) == ([2.0], [0.25])
    assert (joined.max_relative_error, joined.rms_relative_error) == ([0.125], [0.5])
