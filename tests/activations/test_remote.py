"""A store in a bucket: the same numbers as from a local one, and every fault a sentence."""

from __future__ import annotations

import json
import shutil
import sys
from collections import namedtuple
from pathlib import Path

import fsspec
import numpy as np
import pytest
import s3fs
from moto.server import ThreadedMotoServer

from raptor.activations import write
from raptor.activations.manifest import Manifest
from raptor.activations.place import Place
from raptor.activations.read import Activations
from raptor.errors import RaptorError

from .conftest import SIZES, Linear, config, source, store
from .test_read import WAYS, take
from .test_write import Crash, Crashing

TOTAL, SHARDS = sum(SIZES.values()), 5
URL = "s3://bucket/some/tiny.zarr"
SECRET = "not-to-be-told"
SHARD = "bucket/some/tiny.zarr/c/{}/0/0/0"


@pytest.fixture(scope="module")
def endpoint():
    """A bucket service on this machine, and no other."""
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    server.start()
    s3fs.S3FileSystem.clear_instance_cache()
    yield "http://{}:{}".format(*server.get_host_and_port())
    s3fs.S3FileSystem.clear_instance_cache()
    server.stop()


@pytest.fixture
def reconnected():
    """The environment counts anew, during a test and after it."""
    s3fs.S3FileSystem.clear_instance_cache()
    yield
    s3fs.S3FileSystem.clear_instance_cache()


@pytest.fixture
def bucket(endpoint, monkeypatch, tmp_path):
    """An empty bucket, reached by what is in the environment alone."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "somebody")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.delenv("RAPTOR_CACHE", raising=False)
    monkeypatch.delenv("RAPTOR_CACHE_GB", raising=False)
    files = fsspec.filesystem("s3", use_listings_cache=False)
    if files.exists("bucket"):
        files.rm("bucket", recursive=True)
    files.mkdir("bucket")
    return files


@pytest.fixture
def remote(bucket, tmp_path) -> Path:
    """The manifest of a store in the bucket."""
    return store(tmp_path / "tiny.json", Linear(), url=URL)


@pytest.fixture
def local(tmp_path) -> Activations:
    (tmp_path / "local").mkdir()
    return Activations(store(tmp_path / "local/tiny.json", Linear()))


@pytest.fixture
def cache(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("RAPTOR_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def damage(bucket, index: int, fault: str) -> None:
    path = SHARD.format(index)
    content = bytearray(bucket.cat_file(path))
    if fault == "missing":
        bucket.rm(path)
    elif fault == "truncated":
        bucket.pipe_file(path, bytes(content[:-100]))
    else:
        content[1000] ^= 1
        bucket.pipe_file(path, bytes(content))


def assert_same(states: Activations, expected: Activations) -> None:
    np.testing.assert_array_equal(states.read(0, TOTAL), expected.read(0, TOTAL))
    np.testing.assert_array_equal(states.read(3, 40, [4, 1]), expected.read(3, 40, [4, 1]))
    for ours, theirs in zip(states.blocks("test", 5), expected.blocks("test", 5), strict=True):
        np.testing.assert_array_equal(ours[1], theirs[1])
    pairs = zip(
        *(take(one.batches("train", 7, seed=2), 15) for one in (states, expected)), strict=True
    )
    for ours, theirs in pairs:
        assert (ours.indices == theirs.indices).all()
        assert (ours.states == theirs.states).all()


def test_a_remote_store_is_the_local_one(remote, local, bucket):
    assert_same(Activations(remote), local)
    ours, theirs = Manifest.load(remote), local.manifest
    assert ours.store == URL
    assert ours.model_copy(update={"store": None}) == theirs
    for index, shard in enumerate(theirs.shards):
        landed = bucket.cat_file(SHARD.format(index))
        assert landed == (local.path.with_suffix(".zarr") / shard.file).read_bytes()
    assert not remote.with_suffix(".zarr").exists()


@pytest.mark.parametrize("protocol", ["memory", "file"])
def test_other_protocols(protocol, local, tmp_path):
    url = f"{protocol}://{tmp_path}/elsewhere/tiny.zarr"
    states = Activations(store(tmp_path / "tiny.json", Linear(), url=url))
    assert_same(states, local)
    on_disk = (tmp_path / "elsewhere/tiny.zarr/c/0/0/0/0").exists()
    assert on_disk == (protocol == "file")


def test_no_secret_is_written_or_logged(bucket, tmp_path, caplog):
    with caplog.at_level("DEBUG", logger="raptor"):
        manifest = store(tmp_path / "tiny.json", Linear(), url=URL)
        Activations(manifest).read(0, 20)
    assert URL in manifest.read_text()
    written = [file.read_text() for file in tmp_path.rglob("*.json")]
    assert len(written) == 1 + SHARDS
    for text in (
        caplog.text,
        *written,
        bucket.cat_file("bucket/some/tiny.zarr/zarr.json").decode(),
    ):
        assert SECRET not in text
        assert "somebody" not in text


def test_an_interrupted_extraction_writes_only_what_is_missing(bucket, tmp_path, local):
    output = tmp_path / "tiny.json"
    with pytest.raises(Crash):
        store(output, Crashing(after=1 + 40), url=URL)  # two shards and a half
    assert bucket.exists(SHARD.format(1))
    assert not bucket.exists(SHARD.format(2))
    second = Linear()
    store(output, second, url=URL)
    assert second.images_seen == 1 + TOTAL - 32
    assert_same(Activations(output), local)


@pytest.mark.parametrize("fault", ["missing", "truncated", "flipped"])
def test_only_a_damaged_shard_is_written_again(remote, bucket, local, fault):
    damage(bucket, 1, fault)
    remote.unlink()
    again = Linear()
    store(remote, again, url=URL)
    assert again.images_seen == 1 + 16
    assert_same(Activations(remote), local)


def test_a_store_of_another_teacher_is_replaced(remote, bucket):
    bucket.pipe_file("bucket/some/tiny.zarr/c/9/0/0/0", b"of a longer store")
    bucket.pipe_file("bucket/some/other.zarr/zarr.json", b"of another teacher")
    store(remote, Linear(), sha256="1" * 64, url=URL)
    assert not bucket.exists(SHARD.format(9))
    assert bucket.exists("bucket/some/other.zarr/zarr.json")
    assert Activations(remote).manifest.teacher.sha256 == "1" * 64


@pytest.mark.parametrize("fault", ["missing", "truncated"])
def test_a_lost_shard_is_noticed_on_opening(remote, bucket, fault):
    damage(bucket, 1, fault)
    said = "is missing" if fault == "missing" else r"has \d+ bytes instead of"
    with pytest.raises(RaptorError, match=rf"^{URL}/c/1/0/0/0: this shard .*{said}.*; delete "):
        Activations(remote)


@pytest.mark.parametrize("fault", ["missing", "truncated", "flipped"])
@pytest.mark.parametrize("how", WAYS)
def test_damage_after_opening_is_an_error_and_never_a_number(remote, bucket, cache, fault, how):
    states = Activations(remote)
    damage(bucket, 1, fault)
    with pytest.raises(RaptorError, match=rf"^{URL}/c/1/0/0/0: .*redoes only this shard"):
        WAYS[how](states)
    assert Manifest.load(remote).shards[1].sha256 not in {file.stem for file in cache.iterdir()}


def test_a_cache_is_used_by_the_next_job_and_not_trusted(remote, bucket, cache, local):
    Activations(remote).read(0, TOTAL)
    shards = Manifest.load(remote).shards
    assert {file.name for file in cache.iterdir()} == {f"{one.sha256}.shard" for one in shards}
    for index in range(2, SHARDS):
        damage(bucket, index, "flipped")  # of the same size: nobody is to look at them
    (cache / f"{shards[0].sha256}.shard").write_bytes(b"something else")
    (cache / f"{shards[1].sha256}.shard").write_bytes(bytes(shards[1].bytes))
    assert_same(Activations(remote), local)


def test_a_cache_smaller_than_the_store(remote, cache, local, monkeypatch):
    largest = max(shard.bytes for shard in Manifest.load(remote).shards)
    room, used = 2.5 * largest, []
    monkeypatch.setenv("RAPTOR_CACHE_GB", str(room / 1e9))
    fetch = Place.fetch

    def watched(place, file, path):
        found = fetch(place, file, path)
        used.append(sum(one.stat().st_size for one in cache.iterdir()))
        return found

    monkeypatch.setattr(Place, "fetch", watched)
    states = Activations(remote)
    assert_same(states, local)
    assert len(used) > 2 * SHARDS  # some were fetched again
    assert largest < max(used) <= room
    assert len(states._states._maps) <= 3 < SHARDS  # maps of removed files would keep their bytes


def test_the_shard_opened_longest_ago_makes_room(remote, cache, monkeypatch):
    shards = Manifest.load(remote).shards
    monkeypatch.setenv("RAPTOR_CACHE_GB", str(3.5 * shards[0].bytes / 1e9))
    monkeypatch.setattr("raptor.activations.shards.MAPPED_BYTES", 0)  # opens at each read
    states = Activations(remote)
    for image in (0, 16, 32, 0, 48):
        states.read(image, image + 1)
    kept = {file.stem for file in cache.iterdir()}
    assert kept == {shards[index].sha256 for index in (0, 2, 3)}


def test_another_job_may_remove_a_shard_from_a_shared_cache(remote, cache, local):
    states = Activations(remote)
    states.read(0, TOTAL)
    for file in cache.iterdir():
        file.unlink()
    assert_same(states, local)


def test_what_else_lies_in_the_folder_is_left_alone(remote, cache, monkeypatch):
    cache.mkdir()
    (cache / "thesis.tex").write_text("x" * 100_000)
    largest = max(shard.bytes for shard in Manifest.load(remote).shards)
    monkeypatch.setenv("RAPTOR_CACHE_GB", str(1.01 * largest / 1e9))
    states = Activations(remote)
    states.read(0, 48)
    assert (cache / "thesis.tex").exists()
    assert len(list(cache.iterdir())) == 2


def test_a_temporary_cache_goes_with_its_reader(remote, tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    (tmp_path / "tmp").mkdir()
    states = Activations(remote)
    states.read(0, TOTAL)
    assert len(list((tmp_path / "tmp").rglob("*.shard"))) == SHARDS
    del states
    assert not list((tmp_path / "tmp").iterdir())


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("1e-9", r"RAPTOR_CACHE_GB: 1e-09 GB hold no shard of s3://.*; allow more"),
        ("-1", "RAPTOR_CACHE_GB: '-1' is not a number of gigabytes above 0"),
        ("much", "RAPTOR_CACHE_GB: 'much' is not a number"),
    ],
)
def test_a_useless_size_of_the_cache_is_refused(remote, monkeypatch, given, said):
    monkeypatch.setenv("RAPTOR_CACHE_GB", given)
    with pytest.raises(RaptorError, match=said):
        Activations(remote)


def test_a_full_disk_is_said(remote, cache, monkeypatch):
    states = Activations(remote)
    usage = namedtuple("usage", "total used free")(10**9, 10**9 - 100, 100)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    with pytest.raises(RaptorError, match=r"cache: a shard of s3://.* are free; .*RAPTOR_CACHE"):
        states.read(0, 1)


def test_no_disk_is_needed_for_a_remote_store(bucket, tmp_path, monkeypatch):
    usage = namedtuple("usage", "total used free")(10**9, 10**9, 0)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    store(tmp_path / "tiny.json", Linear(), url=URL)
    assert bucket.exists(SHARD.format(SHARDS - 1))


@pytest.mark.parametrize("missing", ["bucket", "credentials", "server"])
def test_a_store_that_cannot_be_reached_is_one_sentence(
    remote, reconnected, tmp_path, monkeypatch, missing
):
    url = URL
    if missing == "bucket":
        url = "s3://nowhere/tiny.zarr"
    elif missing == "credentials":
        monkeypatch.delenv("AWS_ACCESS_KEY_ID")
        monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    else:
        monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
        monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
        monkeypatch.setattr(s3fs.core, "S3_RETRYABLE_ERRORS", ())
    said = rf"^{url}: cannot be read or written \(.+\); see that it exists.*environment$"
    (tmp_path / "new").mkdir()
    with pytest.raises(RaptorError, match=said):
        store(tmp_path / "new/tiny.json", Linear(), url=url)
    if missing != "bucket":
        with pytest.raises(RaptorError, match=said):
            Activations(remote)


def test_a_package_that_is_not_installed_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "s3fs", None)
    monkeypatch.delitem(sys.modules["fsspec.registry"]._registry, "s3", raising=False)
    with pytest.raises(RaptorError, match=r"not installed; .*pip install 'raptor-vit\[s3\]'"):
        store(tmp_path / "tiny.json", Linear(), url=URL)


def test_parts_in_a_bucket(bucket, tmp_path, local):
    output, place = tmp_path / "tiny.json", Place(tmp_path / "tiny.json", URL)
    for part in range(2):
        given = source(Linear())
        grid = write.plan(given, config())
        write.prepare(given, grid, place)
        write.write_shards(given, grid, place, grid.shards[part::2])
    damage(bucket, 3, "flipped")
    last = Linear()
    store(output, last, url=URL)
    assert last.images_seen == 1 + 16
    assert json.loads(output.read_text())["store"] == URL
    assert_same(Activations(output), local)
