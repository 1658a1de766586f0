"""Small copies of data sets, file by file as their archives unpack."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
from PIL import Image
from scipy.io import savemat

# The first four classes by ILSVRC2012_ID, which is not the order of their wnids, and the colour
# of their images here. The fifth is no class: it has children, and no images.
SYNSETS = [
    (1, "n02119789", "kit fox, Vulpes macrotis", 0, (250, 10, 10)),
    (2, "n02100735", "English setter", 0, (10, 250, 10)),
    (3, "n02110185", "Siberian husky", 0, (10, 10, 250)),
    (4, "n02096294", "Australian terrier", 0, (250, 250, 10)),
    (5, "n00001740", "entity", 2, None),
]
COLOURS = {wnid: colour for _, wnid, _, _, colour in SYNSETS if colour}
VAL_IDS = [3, 1, 4, 1, 2, 3]  # ILSVRC2012_ID of each official validation image
VAL_COLOURS = [SYNSETS[one - 1][-1] for one in VAL_IDS]


def picture(path: Path, colour, size=(40, 30), **options) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", size, colour).save(path, **options)
    return path


def write_imagenet(root: Path, *, folders: bool, devkit: bool = True, per_class: int = 3) -> Path:
    """`train` of four classes; `val` in class folders, or flat as published."""
    for wnid, colour in COLOURS.items():
        for i in range(per_class):
            picture(root / "train" / wnid / f"{wnid}_{i}.JPEG", colour)
    for i, one in enumerate(VAL_IDS, start=1):
        below = SYNSETS[one - 1][1] if folders else ""
        picture(root / "val" / below / f"ILSVRC2012_val_{i:08d}.JPEG", VAL_COLOURS[i - 1])
    if devkit:
        write_devkit(root / "ILSVRC2012_devkit_t12" / "data")
    return root


def write_devkit(data: Path) -> None:
    data.mkdir(parents=True)
    (data / "ILSVRC2012_validation_ground_truth.txt").write_text(
        "".join(f"{one}\n" for one in VAL_IDS)
    )
    kinds = "ILSVRC2012_ID WNID words gloss num_children children wordnet_height num_train_images"
    table = np.empty((len(SYNSETS), 1), dtype=[(name, object) for name in kinds.split()])
    for row, (number, wnid, words, children, _) in enumerate(SYNSETS):
        below = np.arange(1, children + 1, dtype=np.uint16)
        table[row, 0] = (number, wnid, words, "a gloss", children, below, 0, 1300)
    savemat(data / "meta.mat", {"synsets": table})


# Two training images of ADE20K and a validation image: classes of the pixels as in the file.
ADE_MAPS = {
    "ADE_train_00000001": np.array([[0, 1, 2], [150, 150, 13]], dtype=np.uint8),
    "ADE_train_00000002": np.full((4, 5), 7, dtype=np.uint8),
    "ADE_val_00000001": np.array([[3, 0]], dtype=np.uint8),
}


def write_ade20k(root: Path) -> Path:
    for name, classes in ADE_MAPS.items():
        below = "training" if "train" in name else "validation"
        height, width = classes.shape
        picture(root / "images" / below / f"{name}.jpg", (200, 100, 50), (width, height))
        path = root / "annotations" / below / f"{name}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(classes).save(path)
    rows = [f"{i}\t0.1\t11664\t1172\tclass {i}, also {i}x\n" for i in range(1, 151)]
    (root / "objectInfo150.txt").write_text("Idx\tRatio\tTrain\tVal\tName\n" + "".join(rows))
    return root


def write_nyuv2_files(root: Path) -> Path:
    """Train depth in bytes, test depth in 16 bits: pixels known to the test that reads them."""
    rows = {"train": [], "test": []}
    for i in range(3):
        image, depth = (f"data/nyu2_train/den_0001_out/{i}.{end}" for end in ("jpg", "png"))
        picture(root / image, (90, 90, 90), (3, 2))
        values = np.array([[0, 51, 255], [102, 204, i]], dtype=np.uint8)
        Image.fromarray(values).save(root / depth)
        rows["train"].append((image, depth))
    image, depth = (f"data/nyu2_test/00000_{end}.png" for end in ("colors", "depth"))
    picture(root / image, (90, 90, 90), (3, 2))
    values = np.array([[0, 1500, 9999], [713, 40000, 1]], dtype=np.uint16)
    Image.fromarray(values).save(root / depth)
    rows["test"].append((image, depth))
    for split, pairs in rows.items():
        with open(root / "data" / f"nyu2_{split}.csv", "w", newline="") as file:
            csv.writer(file).writerows(pairs)
    return root


def write_nyuv2_mat(root: Path) -> tuple[np.ndarray, np.ndarray]:
    """Images (N, H, W, 3) and depths (N, H, W) as they are seen; the file has them as MATLAB does.

    MATLAB's arrays are H × W × 3 × N, column by column, behind 512 bytes that name the format.
    """
    import h5py

    random = np.random.default_rng(3)
    images = random.integers(0, 256, (5, 6, 8, 3), dtype=np.uint8)
    depths = random.uniform(0.7, 9.9, (5, 6, 8)).astype(np.float32)
    root.mkdir(parents=True, exist_ok=True)
    path = root / "nyu_depth_v2_labeled.mat"
    with h5py.File(path, "w", userblock_size=512) as file:
        file["images"] = images.transpose(1, 2, 3, 0).T  # HDF5 lists MATLAB's axes backwards
        file["depths"] = depths.transpose(1, 2, 0).T
    with open(path, "r+b") as file:
        file.write(b"MATLAB 7.3 MAT-file".ljust(116))
    savemat(root / "splits.mat", {"trainNdxs": [[2.0], [5.0], [4.0]], "testNdxs": [[1.0], [3.0]]})
    return images, depths
