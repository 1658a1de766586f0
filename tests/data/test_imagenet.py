"""ImageNet: both layouts of the validation images give the labels that published heads use."""

import shutil

import numpy as np
import pytest
from official import COLOURS, picture, write_imagenet
from scipy.io import savemat

from raptor.config.data import DataConfig, Splits
from raptor.data import open_split
from raptor.data.imagenet import imagenet
from raptor.errors import RaptorError

DEVKIT = "ILSVRC2012_devkit_t12/data"
SORTED = ["n02096294", "n02100735", "n02110185", "n02119789"]
# IDs 3, 1, 4, 1, 2, 3 are husky, fox, terrier, fox, setter, husky; ranks among the wnids above:
VAL_LABELS = [2, 3, 0, 3, 1, 2]


def config(root, train=6, val=4, test=6):
    splits = Splits(train=train, val=val, test=test)
    colour = {"channels": 3, "mean": [0.0] * 3, "std": [1.0] * 3}
    return DataConfig(source="imagenet", root=str(root), splits=splits, image_size=16, **colour)


def mean_colours(split):
    return (split.images(range(len(split))) * 255).mean(dim=(2, 3)).numpy()


def test_labels_are_ranks_of_wnids_and_not_ids_of_the_devkit(tmp_path):
    pool = imagenet(write_imagenet(tmp_path, folders=False), "test")
    assert pool.sample_ids == [f"val/ILSVRC2012_val_0000000{i}.JPEG" for i in range(1, 7)]
    assert pool.labels.tolist() == VAL_LABELS
    assert pool.labels.dtype == np.int64
    assert pool.class_names == [
        "n02096294 Australian terrier",
        "n02100735 English setter",
        "n02110185 Siberian husky",
        "n02119789 kit fox, Vulpes macrotis",
    ]


@pytest.mark.parametrize("folders", [True, False])
def test_images_go_with_their_labels(tmp_path, folders):
    wanted = config(write_imagenet(tmp_path, folders=folders))
    for name in ("train", "val", "test"):
        split = open_split(wanted, name)
        expected = [COLOURS[SORTED[label]] for label in split.labels]
        np.testing.assert_allclose(mean_colours(split), expected, atol=4)
        assert {i.split("/")[0] for i in split.sample_ids} == {"val" if name == "test" else "train"}
    both = [split for name in ("train", "val") for split in open_split(wanted, name).sample_ids]
    assert len(set(both)) == 10


def test_class_folders_need_no_devkit(tmp_path):
    root = write_imagenet(tmp_path, folders=True, devkit=False)
    pool = imagenet(root, "test")
    assert pool.class_names == SORTED
    labels = dict(zip(pool.sample_ids, pool.labels, strict=True))
    for i, label in enumerate(VAL_LABELS, start=1):
        assert labels[f"val/{SORTED[label]}/ILSVRC2012_val_{i:08d}.JPEG"] == label


def break_truth(text):
    def breaks(root):
        (root / DEVKIT / "ILSVRC2012_validation_ground_truth.txt").write_text(text)

    return breaks


def break_meta(**variables):
    def breaks(root):
        savemat(root / DEVKIT / "meta.mat", variables)

    return breaks


def pack(root):
    shutil.rmtree(root / "train")
    (root / "train").mkdir()
    (root / "train" / "n02096294.tar").write_bytes(b"")


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda r: shutil.rmtree(r / "train"), r"train: no such folder; unpack ILSVRC2012_img_tra"),
        (pack, r"train: has no class folders; unpack .* and each n\*\.tar of it"),
        (lambda r: (r / "train/extra").mkdir(), r"train/extra: is no class of ImageNet"),
        (lambda r: shutil.rmtree(r / "val"), r"val: no such folder; unpack ILSVRC2012_img_val"),
        (
            lambda r: shutil.rmtree(r / "train/n02100735"),
            r"train/n02100735: no such class folder, image ILSVRC2012_val_00000005\.JPEG is of",
        ),
        (
            lambda r: (r / "val/ILSVRC2012_val_00000003.JPEG").unlink(),
            r"val/ILSVRC2012_val_00000003\.JPEG: is missing, .* labels 6 images",
        ),
        (
            lambda r: picture(r / "val/other.JPEG", (0, 0, 0)),
            r"val/other\.JPEG: is no image that it labels",
        ),
        (
            lambda r: shutil.rmtree(r / "ILSVRC2012_devkit_t12"),
            r"meta\.mat: no such file; unpack the original there",
        ),
        (break_truth("3\n1\n4\n1\n2\n"), r"val/ILSVRC2012_val_00000006\.JPEG: is no image"),
        (break_truth("3\n1\nfour\n1\n2\n3\n"), r"ground_truth\.txt: cannot be read .*four"),
        (break_truth("3\n1\n5\n1\n2\n3\n"), r"ground_truth\.txt: line 3 says class 5, which"),
        (break_meta(other=[1.0]), r"meta\.mat: has no variable synsets"),
        (break_meta(synsets=[1.0]), r"meta\.mat: synsets lacks ILSVRC2012_ID"),
        (
            lambda r: (r / DEVKIT / "meta.mat").write_bytes(b"damaged"),
            r"meta\.mat: cannot be read as a MATLAB file",
        ),
    ],
)
def test_faults_name_the_file(tmp_path, damage, message):
    damage(write_imagenet(tmp_path, folders=False))
    with pytest.raises(RaptorError, match=message) as error:
        open_split(config(tmp_path), "test")
    assert str(tmp_path) in str(error.value)
    assert "\n" not in str(error.value)
