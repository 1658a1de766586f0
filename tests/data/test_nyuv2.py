"""NYU Depth v2: two layouts, two scalings, metres in all of them."""

import numpy as np
import pytest
import torch
from official import write_nyuv2_files, write_nyuv2_mat
from PIL import Image
from scipy.io import savemat

from raptor.config.data import DataConfig, Splits
from raptor.data.dense import open_dense
from raptor.errors import RaptorError


def opened(root, split):
    splits = Splits(train=2, val=2, test=2)
    data = DataConfig(root={"nyuv2": str(root)}, splits=splits, mean=[0.0], std=[1.0])
    return open_dense(data, "nyuv2", split)


def test_depth_in_bytes_and_in_millimetres(tmp_path):
    write_nyuv2_files(tmp_path)
    train, test = opened(tmp_path, "train"), opened(tmp_path, "test")
    assert (len(train), len(test)) == (3, 1)
    assert train.sample_ids[2] == "data/nyu2_train/den_0001_out/2.jpg"
    assert train.class_names == []
    image, depth = train.pair(0)
    assert (image.dtype, image.shape) == (torch.uint8, (3, 2, 3))
    assert depth.dtype == torch.float32
    # A byte is 10/255 m: 51, 102, 204 and 255 are fifths of 10 m.
    torch.testing.assert_close(depth, torch.tensor([[0.0, 2.0, 10.0], [4.0, 8.0, 0.0]]))
    expected = torch.tensor([[0.0, 1.5, 9.999], [0.713, 40.0, 0.001]])
    torch.testing.assert_close(test.pair(0)[1], expected)


def test_the_labelled_set(tmp_path):
    images, depths = write_nyuv2_mat(tmp_path)
    train, test = opened(tmp_path, "train"), opened(tmp_path, "test")
    # splits.mat counts from 1.
    assert [i.split("/")[1] for i in train.sample_ids] == ["0002", "0005", "0004"]
    assert [i.split("/")[1] for i in test.sample_ids] == ["0001", "0003"]
    for split, rows in ((train, [1, 4, 3]), (test, [0, 2])):
        for index, row in enumerate(rows):
            image, depth = split.pair(index)
            assert np.array_equal(image.numpy(), images[row].transpose(2, 0, 1))
            assert np.array_equal(depth.numpy(), depths[row])
            assert (image.dtype, depth.dtype) == (torch.uint8, torch.float32)


def test_what_was_not_measured_is_zero(tmp_path):
    import h5py

    _, depths = write_nyuv2_mat(tmp_path)
    with h5py.File(tmp_path / "nyu_depth_v2_labeled.mat", "r+") as file:
        file["depths"][0, 7, 5], file["depths"][0, 0, 1], file["depths"][0, 0, 0] = np.nan, -1, 0
    depth = opened(tmp_path, "test").pair(0)[1].numpy()
    assert [depth[5, 7], depth[1, 0], depth[0, 0]] == [0, 0, 0]
    assert depth[2, 3] == depths[0, 2, 3]


def test_files_go_before_the_labelled_set(tmp_path):
    write_nyuv2_mat(tmp_path)
    write_nyuv2_files(tmp_path)
    assert opened(tmp_path, "test").sample_ids[0].endswith("00000_colors.png")


CSV, DEPTH = "data/nyu2_train.csv", "data/nyu2_train/den_0001_out/0.png"


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda r: (r / CSV).unlink(), "holds neither data/nyu2_train.csv nor nyu_depth_v2_la"),
        (lambda r: (r / CSV).write_text(""), "nyu2_train.csv: is empty"),
        (lambda r: (r / CSV).write_text("a.jpg,a.png\nb.jpg\n"), "nyu2_train.csv: line 2 is not"),
        (lambda r: (r / CSV).write_text("a.jpg,\n"), "nyu2_train.csv: line 1 is not"),
        (lambda r: (r / CSV).write_bytes(b"\xff\xfe,b"), "nyu2_train.csv: cannot be read"),
        (lambda r: (r / DEPTH).unlink(), "out/0.png: cannot be decoded"),
        (lambda r: (r / DEPTH).with_suffix(".jpg").unlink(), "out/0.jpg: cannot be decoded"),
        (
            lambda r: Image.fromarray(np.zeros((2, 3), np.uint16)).save(r / DEPTH),
            "out/0.png: is no map of depth in 8 bits",
        ),
        (
            lambda r: Image.fromarray(np.zeros((3, 3), np.uint8)).save(r / DEPTH),
            "out/0.png: is 3 × 3 pixels, its image .*0.jpg 3 × 2",
        ),
    ],
)
def test_faults_of_the_files(tmp_path, damage, message):
    damage(write_nyuv2_files(tmp_path))
    with pytest.raises(RaptorError, match=message) as error:
        opened(tmp_path, "train").pair(0)
    assert str(tmp_path) in str(error.value)


def test_test_depth_in_bytes_is_refused(tmp_path):
    path = write_nyuv2_files(tmp_path) / "data/nyu2_test/00000_depth.png"
    Image.fromarray(np.zeros((2, 3), np.uint8)).save(path)
    with pytest.raises(RaptorError, match=r"00000_depth\.png: is no map of depth in 16 bits"):
        opened(tmp_path, "test").pair(0)


MAT = "nyu_depth_v2_labeled.mat"


def without_depths(root):
    import h5py

    with h5py.File(root / MAT, "r+") as file:
        del file["depths"]


def with_other_depths(root):
    import h5py

    without_depths(root)
    with h5py.File(root / MAT, "r+") as file:
        file["depths"] = np.zeros((5, 6, 8), np.float32)  # (N, H, W), as MATLAB never writes it


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda r: (r / "splits.mat").unlink(), "splits.mat: no such file"),
        (lambda r: savemat(r / "splits.mat", {"a": 1}), "splits.mat: has no variable trainNdxs"),
        (
            lambda r: savemat(r / "splits.mat", {"trainNdxs": [[1], [6]]}),
            "splits.mat: does not number images 1 to 5",
        ),
        (
            lambda r: savemat(r / "splits.mat", {"trainNdxs": [[0], [1]]}),
            "splits.mat: does not number images 1 to 5",
        ),
        (lambda r: (r / MAT).write_bytes(b"damaged"), "labeled.mat: cannot be read as the label"),
        (
            lambda r: (r / MAT).write_bytes((r / MAT).read_bytes()[:3000]),
            "labeled.mat: cannot be read as the label",
        ),
        (without_depths, "labeled.mat: cannot be read as the labelled .*depths"),
        (with_other_depths, r"images is \(5, 3, 8, 6\) and depths \(5, 6, 8\), not"),
    ],
)
def test_faults_of_the_labelled_set(tmp_path, damage, message):
    write_nyuv2_mat(tmp_path)
    damage(tmp_path)
    with pytest.raises(RaptorError, match=message) as error:
        opened(tmp_path, "train")
    assert str(tmp_path) in str(error.value)
    assert "\n" not in str(error.value)
