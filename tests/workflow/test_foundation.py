"""Teachers from timm through the whole workflow: a real architecture, a published head, ImageNet,
ADE20K and NYUv2 in their official layouts; images without labels, states that are streamed."""

from __future__ import annotations

import numpy as np
import pandas as pd
import timm
import torch
import yaml
from official import VAL_IDS, write_ade20k, write_imagenet, write_nyuv2_files
from PIL import Image

REGISTERS = "vit_small_patch14_reg4_dinov2"
TINY, WITHOUT_CLS = "test_vit", "test_vit2"
STAGE = {"batch_size": 8, "warmup_steps": 1, "validate_every": 2}
CONFIG = {
    "device": "cpu",
    "activations": {"chunk_images": 16, "shard_images": 32},
    "similarity": {"batch_images": 24, "bootstrap": 10},
    "partition": {"min_size": 1, "methods": ["maxcut", "maxcut_exact"], "k": [1, 2, 3]},
    "recipes": {
        "phase_mean": {
            "initialisation": "phase_mean",
            "block": "teacher",
            "loss_scale": "layer_mean_square",
            "stage2": {**STAGE, "steps": 4},
        }
    },
    "probes": {
        "classification": {"epochs": 2, "batch_size": 16, "warmup_steps": 1},
        "bootstrap": 10,
    },
    "swaps": {"teachers": ["my"], "k": 3, "sizes": [1], "images": 4},
    "dynamics": {
        "teachers": ["my", "untrained"],
        "recipe": "phase_mean",
        "images": 12,
        "train_images": 24,
        "batch_images": 16,
        "perturbation": {"relative_sizes": [0.1], "source_layers": [0, 2], "images": 4},
        "dmd": {"rank": 8, "modes": 4},
    },
    "branches": {"teachers": ["my"], "k": [3]},
    "cost": {"teacher": "my", "recipe": "phase_mean", "k": [3], "images": 2, "repeats": 2},
    "students": {
        "fidelity": {"teachers": ["my"], "recipes": ["phase_mean"], "k": [3], "seeds": 2}
        | {"students_per_job": 2}
    },
    "figures": {
        "fidelity_by_k": {"studies": ["fidelity"]},
        "training_curves": {"studies": ["fidelity"]},
    },
}


def write_images(folder, count: int, size: int, seed: int) -> None:
    folder.mkdir(parents=True)
    rng = np.random.default_rng(seed)
    for number in range(count):
        pixels = rng.integers(0, 256, (size, size, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(folder / f"{number:03}.png")


def data_of(roots, size: int) -> dict:
    return {
        "data": {"source": "image_folder"}
        | {"root": {source: str(path) for source, path in roots.items()}}
        | {"image_size": size, "channels": 3}
        | {"splits": {"train": 32, "val": 8, "test": 16}, "mean": [0.5] * 3, "std": [0.25] * 3}
    }


def run(checkout, config: dict) -> tuple:
    """The folder of results, and the log of what ran."""
    path = checkout.path / "config/mine.yaml"
    path.write_text(yaml.safe_dump(config))
    checkout.snakemake("figures", "report_page", "--configfile", str(path))
    assert checkout.planned("--configfile", str(path)) == {}
    root = checkout.path / f"results/{config['experiment']}"
    assert (root / "report.html").stat().st_size > 1e5
    captions = {file.stem: file.read_text() for file in root.glob("*/*.rst")}
    assert len(captions) > 12
    for name, text in captions.items():
        assert "nan" not in text.lower().replace("nano", ""), name
    return root, captions


DENSE = {
    "teachers": ["my", "untrained"],
    "recipe": "phase_mean",
    "k": [3],
    "segmentation": {"image_size": 56, "epochs": 2, "batch_size": 2, "warmup_steps": 1},
    "depth": {"image_size": [50, 66], "epochs": 2, "batch_size": 2, "warmup_steps": 1}
    | {"bins": 16, "crop": "none"},
}


def test_a_real_architecture_on_official_data_sets(new_checkout, tmp_path):
    checkout = new_checkout()
    roots = {
        "imagenet": write_imagenet(tmp_path / "in", folders=False, per_class=16),
        "ade20k": write_ade20k(tmp_path / "ade"),
        "nyuv2": write_nyuv2_files(tmp_path / "nyu"),
    }
    torch.manual_seed(0)
    model = timm.create_model(REGISTERS, pretrained=False, img_size=70, num_classes=0)
    with torch.no_grad():  # its LayerScale starts so small that nothing moves
        for parameter in model.parameters():
            parameter.add_(0.05 * torch.randn_like(parameter))
    torch.save(model.state_dict(), tmp_path / "weights.pth")
    head = {"weight": torch.randn(4, 2 * 384), "bias": torch.zeros(4)}
    torch.save(head, tmp_path / "head.pth")
    teachers = {
        "my": {"kind": "timm", "model": REGISTERS, "weights": str(tmp_path / "weights.pth")}
        | {"head": str(tmp_path / "head.pth"), "mean": [0.4] * 3},
        "untrained": {"kind": "untrained", "like": "my"},
    }
    config = {"experiment": "mine", **data_of(roots, 56), **CONFIG, "dense": DENSE}
    config["data"] |= {"source": "imagenet", "resize": 64}
    classification = {**CONFIG["probes"]["classification"], "crops": "random"}
    config["probes"] = {**CONFIG["probes"], "classification": classification}
    config["data"]["splits"] = {"train": 40, "val": 8, "test": len(VAL_IDS)}
    root, captions = run(checkout, config | {"teachers": teachers})
    probe = pd.read_csv(root / "probes/my.csv").iloc[0]
    assert 0 <= probe["accuracy_head"] <= 1
    fidelity = pd.read_csv(root / "tables/fidelity.csv")
    assert fidelity["r2_registers"].notna().all()
    assert fidelity["recovered_head"].notna().any()
    swaps = pd.read_csv(root / "interventions/my.swaps.csv")
    assert (swaps["n"] == 4).all()
    assert len(pd.read_csv(root / "tables/scorecard.csv")) == 18
    dense = pd.read_csv(root / "tables/table_dense.csv")
    assert set(dense["task"]) == {"segmentation", "depth"}
    assert dense["value"].notna().all()
    counts = dense.drop_duplicates("task").set_index("task")[["n_train", "n_test"]]
    assert counts.loc["segmentation"].tolist() == [2, 1]
    assert counts.loc["depth"].tolist() == [3, 1]
    assert "ADE20K" in captions["table_dense"]


def of_all(config: dict) -> dict:
    """As config/zoo.yaml has it: every section is about every teacher."""
    return {
        key: of_all(value) if isinstance(value, dict) else "all" if key == "teachers" else value
        for key, value in config.items()
    }


def test_several_families_side_by_side_on_images_without_labels_streamed(new_checkout, tmp_path):
    """Everything but accuracy, of models with and without cls."""
    checkout = new_checkout()
    write_images(tmp_path / "images", 60, 40, 7)
    teachers = {
        "my": {"kind": "timm", "model": TINY, "weights": "random", "seed": 1},
        "other": {"kind": "timm", "model": WITHOUT_CLS, "weights": "random"},
        "untrained": {"kind": "untrained", "like": "my"},
    }
    config = {"experiment": "mine", **data_of({"image_folder": tmp_path / "images"}, 32)}
    config |= of_all(CONFIG)
    config["activations"] = {**CONFIG["activations"], "mode": "stream"}
    root, captions = run(checkout, config | {"teachers": teachers})
    assert not list(root.glob("activations/*.zarr"))
    fidelity = pd.read_csv(root / "tables/fidelity.csv")
    assert set(fidelity["teacher"]) == set(teachers)
    assert fidelity["r2_mean"].notna().all()
    assert fidelity.loc[fidelity["teacher"] == "other", "r2_cls"].isna().all()
    assert fidelity[["accuracy", "recovered"]].isna().all(axis=None)
    for name in teachers:
        swaps = pd.read_csv(root / f"interventions/{name}.swaps.csv")
        assert swaps["relative_error"].gt(0).all()
        assert swaps["accuracy"].isna().all()
    matrices = pd.read_csv(root / "figures/similarity_matrices.csv")
    assert set(matrices["teacher"].dropna()) == set(teachers)
    scorecard = pd.read_csv(root / "tables/scorecard.csv").set_index("claim")
    assert scorecard.loc[[2, 3, 16], "verdict"].eq("not tested").all()
    assert "without labels" in captions["fidelity_by_k"]
    assert "without labels" in captions["layer_swaps"]
