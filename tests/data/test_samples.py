"""The stage that validates: every fault of an image folder is one sentence naming the file."""

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image

from raptor.config.data import DataConfig, Splits
from raptor.data import open_split, write_samples
from raptor.data.samples import refuse_redrawn
from raptor.errors import RaptorError


@pytest.fixture
def folder(tmp_path):
    random = np.random.default_rng(0)
    for label in ("cat", "dog, big"):
        (tmp_path / "pets" / label).mkdir(parents=True)
        for i in range(4):
            pixels = random.integers(0, 256, (24, 24, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(tmp_path / "pets" / label / f"{i}.jpg")
    return tmp_path / "pets"


def config(root, train=4, **keys):
    keys = {"image_size": 16, "mean": [0.0], "std": [1.0], **keys}
    splits = Splits(train=train, val=2, test=2)
    return DataConfig(source="image_folder", root=str(root), splits=splits, **keys)


def test_the_table_is_the_order_of_the_splits(folder, tmp_path):
    output = tmp_path / "data" / "samples.csv"
    write_samples(data=config(folder), output=output)
    table = pd.read_csv(output)
    assert list(table.columns) == ["split", "index", "sample_id", "label"]
    assert len(table) == 8
    for name, rows in table.groupby("split"):
        split = open_split(config(folder), name)
        assert rows["index"].tolist() == list(range(len(split)))
        assert rows["sample_id"].tolist() == split.sample_ids
        assert rows["label"].tolist() == split.labels.tolist()
    first = output.read_bytes()
    write_samples(data=config(folder), output=output)
    assert output.read_bytes() == first


def test_digits_table(tmp_path):
    data = DataConfig(splits=Splits(train=60, val=20, test=20), mean=[0.13], std=[0.31])
    write_samples(data=data, output=tmp_path / "samples.csv")
    table = pd.read_csv(tmp_path / "samples.csv")
    assert table["split"].value_counts().to_dict() == {"train": 60, "val": 20, "test": 20}
    assert table["sample_id"].is_unique
    assert set(table["label"]) == set(range(10))


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda data: b"", r"is empty"),
        (lambda data: data[: len(data) // 2], r"cannot be decoded as an image"),
        (lambda data: b"no image at all", r"cannot be decoded as an image"),
    ],
)
def test_a_bad_image_is_named(folder, tmp_path, damage, message):
    path = folder / "cat" / "2.jpg"
    path.write_bytes(damage(path.read_bytes()))
    output = tmp_path / "samples.csv"
    with pytest.raises(RaptorError, match=message) as error:
        write_samples(data=config(folder), output=output)
    assert str(path) in str(error.value)
    assert "more images" not in str(error.value)
    assert not output.exists()


@pytest.mark.parametrize("threads", [1, 3])
def test_damage_at_the_end_of_a_large_photograph_is_seen(tmp_path, threads):
    """It is read at an eighth of its size, but to its end."""
    pixels = np.random.default_rng(1).integers(0, 256, (300, 400, 3), dtype=np.uint8)
    for i in range(8):
        (tmp_path / "photos").mkdir(exist_ok=True)
        Image.fromarray(pixels).save(tmp_path / "photos" / f"{i}.jpg")
    output, before = tmp_path / "samples.csv", torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        write_samples(data=config(tmp_path / "photos"), output=output)
        assert set(pd.read_csv(output)["label"]) == {-1}
        path = tmp_path / "photos" / "5.jpg"
        path.write_bytes(path.read_bytes()[:-3000])
        with pytest.raises(RaptorError, match=r"5\.jpg: cannot be decoded") as error:
            write_samples(data=config(tmp_path / "photos"), output=output)
    finally:
        torch.set_num_threads(before)
    assert "more images" not in str(error.value)


def test_images_of_no_split_are_not_read(folder, tmp_path):
    wanted = config(folder, train=2)
    used = {i for name in ("train", "val", "test") for i in open_split(wanted, name).sample_ids}
    unused = [
        path for path in folder.glob("*/*.jpg") if f"{path.parent.name}/{path.name}" not in used
    ]
    assert len(unused) == 2
    for path in unused:
        path.write_bytes(b"")
    write_samples(data=wanted, output=tmp_path / "samples.csv")


def test_other_bad_images_are_counted(folder, tmp_path):
    for path in folder.glob("*/*.jpg"):
        path.write_bytes(b"")
    with pytest.raises(RaptorError, match=r"is empty.*\(and 3 more images of split train\)"):
        write_samples(data=config(folder), output=tmp_path / "samples.csv")


def test_a_file_that_vanished_is_named(folder):
    split = open_split(config(folder), "train")
    (folder / split.sample_ids[0]).unlink()
    with pytest.raises(RaptorError, match=r"\.jpg: cannot be decoded"):
        split.images([0])


def test_faults_before_any_image_is_read(folder, tmp_path):
    output = tmp_path / "samples.csv"
    with pytest.raises(RaptorError, match=r"104 images asked for, there are 8 \(all\) in .*pets"):
        write_samples(data=config(folder, train=100), output=output)
    (folder / "horse").mkdir()
    with pytest.raises(RaptorError, match=r"horse: class folder with no images"):
        write_samples(data=config(folder), output=output)
    with pytest.raises(RaptorError, match="does not exist"):
        write_samples(data=config(tmp_path / "absent"), output=output)


def test_images_that_come_or_go_after_they_were_listed_are_refused(folder, tmp_path):
    """One image less moves all the others to other splits."""
    samples = tmp_path / "results" / "data" / "samples.csv"
    write_samples(data=config(folder, train=3), output=samples)
    names = ("train", "val", "test")
    opened = lambda: {name: open_split(config(folder, train=3), name) for name in names}
    refuse_redrawn(opened(), samples)
    elsewhere = (folder / "cat" / "0.jpg").rename(tmp_path / "0.jpg")
    with pytest.raises(RaptorError, match=r"samples\.csv: its images .* remove .*/results and run"):
        refuse_redrawn(opened(), samples)
    elsewhere.rename(folder / "cat" / "0.jpg")
    refuse_redrawn(opened(), samples)
