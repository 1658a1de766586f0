"""`raptor doctor`: each fault of a machine or its files is found before a run, and said once."""

import copy
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest
import timm
import torch
import yaml
from huggingface_hub.errors import LocalEntryNotFoundError
from official import write_ade20k, write_imagenet, write_nyuv2_files
from safetensors.torch import save_file

from raptor import cli, doctor
from raptor.config.dense import DepthProbe, SegmentationProbe
from raptor.config.load import load
from raptor.plan import plan

ROOT = Path(__file__).parents[1]
MODEL = "vit_tiny_patch16_224"


def experiment(teachers=None, **data):
    """`smoke.yaml`, with other images and with more teachers."""
    raw = copy.deepcopy(yaml.safe_load((ROOT / "config/smoke.yaml").read_text()))
    raw["data"] |= data
    raw["teachers"] |= teachers or {}
    return load(raw)


def experiment_with(**keys):
    """`smoke.yaml` with its states kept in another way."""
    raw = yaml.safe_load((ROOT / "config/smoke.yaml").read_text())
    raw["activations"] |= keys
    return load(raw)


def examine(config, results):
    return {check.subject: check for check in doctor.examine(config, results)}


def imagenet(root, **keys):
    keys = {"splits": {"train": 300, "val": 60, "test": 6}} | keys
    colour = {"channels": 3, "mean": [0.5] * 3, "std": [0.5] * 3}
    return {"source": "imagenet", "root": str(root), "image_size": 28} | colour | keys


def test_nothing_is_wrong(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert cli.main(["doctor", str(ROOT / "config/smoke.yaml")]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(":")[0] for line in lines] == [
        "ok     data, train",
        "ok     data, val",
        "ok     data, test",
        "ok     disk",
        "ok     device",
        "ok     memory",
    ]
    assert "300 of the 5,000 images of the embedded digits, 10 classes; 5 opened" in lines[0]
    assert not list(tmp_path.iterdir())


def test_a_fault_is_a_line_and_a_status(tmp_path, monkeypatch, capsys):
    raw = yaml.safe_load((ROOT / "config/smoke.yaml").read_text())
    raw["data"] |= {"source": "fashion_mnist", "root": str(tmp_path / "nowhere")}
    (tmp_path / "mine.yaml").write_text(yaml.safe_dump(raw))
    monkeypatch.chdir(tmp_path)
    assert cli.main(["doctor", "mine.yaml"]) == 1
    found = capsys.readouterr()
    lines = found.out.splitlines()
    assert len(lines) == 6
    assert lines[0].startswith("fault  data, train: data.root: folder ")
    assert [line.split()[0] for line in lines] == ["fault"] * 3 + ["ok"] * 3
    assert found.err.strip() == "raptor: 3 of 6 checks found a fault"


def test_counts_of_official_folders(tmp_path):
    write_imagenet(tmp_path / "in", folders=False, per_class=100)
    write_ade20k(tmp_path / "ade")
    write_nyuv2_files(tmp_path / "nyu")
    roots = {"imagenet": tmp_path / "in", "ade20k": tmp_path / "ade", "nyuv2": tmp_path / "nyu"}
    roots = {source: str(path) for source, path in roots.items()}
    found = examine(experiment(**imagenet(tmp_path) | {"root": roots}), tmp_path / "results")
    assert all(check.ok for check in found.values())
    said = {subject: check.found for subject, check in found.items()}
    assert said["data, train"].startswith("300 of the 400 images of ")
    assert said["data, val"].startswith("60 of the 400 images of ")
    assert "6 of the 6 images of " in said["data, test"]
    assert "in/val, 4 classes;" in said["data, test"]
    assert said["ade20k, train"].startswith("2 images with 150 classes in ")
    assert said["ade20k, test"].startswith("1 images with 150 classes in ")
    assert said["nyuv2, train"].startswith("3 images with depth in ")


def test_what_dense_probes_read_is_looked_at_wherever_it_lies(tmp_path, monkeypatch):
    write_ade20k(tmp_path / "ADEChallengeData2016")
    monkeypatch.setenv("RAPTOR_DATA", str(tmp_path))
    config = experiment()
    probes = {"segmentation": SegmentationProbe(), "depth": None}
    dense = config.dense.model_copy(update=probes)
    found = examine(config.model_copy(update={"dense": dense}), tmp_path)
    assert found["ade20k, train"].ok
    assert "images with 150 classes in" in found["ade20k, train"].found
    assert "nyuv2, train" not in found
    dense = config.dense.model_copy(update={"depth": DepthProbe()})
    found = examine(config.model_copy(update={"dense": dense}), tmp_path)
    assert not found["nyuv2, test"].ok
    assert "RAPTOR_DATA" in found["nyuv2, test"].found


def test_the_first_and_the_last_image_are_opened(tmp_path):
    write_imagenet(tmp_path, folders=False, per_class=100)
    config = experiment(**imagenet(tmp_path))
    split = doctor.open_split(config.data, "train")
    for index in (0, -1):
        path = tmp_path / split.sample_ids[index]
        content = path.read_bytes()
        path.write_bytes(b"")
        check = examine(config, tmp_path)["data, train"]
        assert not check.ok
        assert check.found == f"{path}: is empty; replace the image or remove it"
        path.write_bytes(content)
    assert examine(config, tmp_path)["data, train"].ok


def test_pairs_that_are_damaged(tmp_path):
    root = write_ade20k(tmp_path / "ade")
    (root / "annotations/validation/ADE_val_00000001.png").write_bytes(b"")
    found = examine(experiment(root={"ade20k": str(root), "nyuv2": str(tmp_path)}), tmp_path)
    assert found["ade20k, train"].ok
    assert "ADE_val_00000001.png: is empty" in found["ade20k, test"].found
    assert "holds neither data/nyu2_train.csv" in found["nyuv2, train"].found


def timm_teacher(**keys):
    return {"foreign": {"kind": "timm", "model": MODEL, "weights": "random"} | keys}


def test_weights_and_heads(tmp_path):
    model = timm.create_model(MODEL, img_size=56, in_chans=1, num_classes=0)
    good, cut, narrow = tmp_path / "good.safetensors", tmp_path / "cut.pth", tmp_path / "n.pth"
    save_file(model.state_dict(), good)
    cut.write_bytes(good.read_bytes()[:1000])
    fits = tmp_path / "head.pth"
    torch.save({"weight": torch.zeros(10, 2 * 192), "bias": torch.zeros(10)}, fits)
    torch.save({"weight": torch.zeros(10, 192), "bias": torch.zeros(10)}, narrow)
    size = {"image_size": 112}  # smoke.yaml's own teachers need a multiple of 14
    for weights, head, expected in (
        (good, fits, (True, True)),
        (cut, narrow, (False, False)),
        (tmp_path / "gone.pth", tmp_path / "gone.pth", (False, False)),
    ):
        teacher = timm_teacher(weights=str(weights), head=str(head))
        found = examine(experiment(teacher, **size), tmp_path)
        checks = found["teacher foreign"], found["head of foreign"]
        assert tuple(check.ok for check in checks) == expected
        assert str(weights) in checks[0].found
        assert str(head) in checks[1].found
    found = examine(experiment(timm_teacher(), **size), tmp_path)
    assert found["teacher foreign"].found == f"{MODEL} with random weights"
    assert "head of foreign" not in found


@pytest.mark.parametrize("cached", [True, False])
def test_weights_of_the_hub(tmp_path, monkeypatch, cached):
    asked = []

    def hub(repository, file, **keys):
        asked.append((repository, file, keys["dry_run"]))
        return SimpleNamespace(file_size=23_000_000, is_cached=cached)

    monkeypatch.setattr(doctor, "hf_hub_download", hub)
    config = experiment(timm_teacher(weights="pretrained"), image_size=112)
    check = examine(config, tmp_path)["teacher foreign"]
    assert check.ok
    assert "23 MB" in check.found
    assert ("cache" in check.found) == cached
    assert asked == [("timm/vit_tiny_patch16_224.augreg_in21k_ft_in1k", "model.safetensors", True)]


def test_a_hub_out_of_reach(tmp_path, monkeypatch):
    def offline(*_, **__):
        raise LocalEntryNotFoundError("no connection\nmore lines")

    monkeypatch.setattr(doctor, "hf_hub_download", offline)
    config = experiment(timm_teacher(weights="pretrained"), image_size=112)
    check = examine(config, tmp_path)["teacher foreign"]
    assert not check.ok
    assert "(no connection); see that huggingface.co can be reached" in check.found


def test_disk(tmp_path, monkeypatch):
    config = experiment()
    costs = plan(config)
    needed = sum(store.bytes for store in costs.stores) + costs.student_bytes
    asked = []

    def usage(path):
        asked.append(path)
        return SimpleNamespace(free=needed - 1)

    monkeypatch.setattr(shutil, "disk_usage", usage)
    check = examine(config, tmp_path / "results" / "smoke")["disk"]
    assert not check.ok
    assert "make room" in check.found
    assert asked == [tmp_path]
    # One byte that is there already need not be written again.
    states = tmp_path / "results" / "smoke" / "activations" / "vit.zarr"
    states.mkdir(parents=True)
    (states / "0").write_bytes(b"x")
    assert examine(config, tmp_path / "results" / "smoke")["disk"].ok
    assert asked[1] == states.parent


def test_memory(tmp_path, monkeypatch):
    largest = max(work.memory_bytes for work in plan(experiment()).works)
    for pages, ok in ((int(largest) + 1, True), (int(largest) - 1, False)):
        sizes = {"SC_PHYS_PAGES": pages, "SC_PAGE_SIZE": 1}
        monkeypatch.setattr(doctor.os, "sysconf", sizes.get)
        assert examine(experiment(), tmp_path)["memory"].ok == ok


@pytest.mark.parametrize("mode", ["store", "stream"])
def test_a_place_for_states(tmp_path, mode):
    """It is tried where states are stored, and nothing of the trial is left."""
    places = {f"file://{tmp_path}/states": "to be written to", "memory://x": "can be written"}
    for prefix, said in places.items():
        config = experiment_with(store=prefix, mode=mode)
        found = examine(config, tmp_path)
        assert ("store" in found) == (mode == "store")
        if mode == "store":
            assert found["store"].ok
            assert said in found["store"].found
        assert not [file for file in tmp_path.rglob("*") if file.is_file()]


def test_a_place_that_cannot_be_written(tmp_path):
    (tmp_path / "states").write_text("not a folder")
    check = examine(experiment_with(store=f"file://{tmp_path}/states"), tmp_path)["store"]
    assert not check.ok
    assert "states/smoke: cannot be written" in check.found


def test_the_disk_of_a_place_and_of_the_results(tmp_path, monkeypatch):
    needed = plan(experiment()).store_bytes
    usage = SimpleNamespace(free=needed - 1)
    monkeypatch.setattr(doctor.shutil, "disk_usage", lambda _: usage)
    found = examine(experiment_with(store=f"file://{tmp_path}/states"), tmp_path / "results")
    assert (found["disk"].ok, found["store"].ok) == (True, False)  # students alone need little
    assert "make room" in found["store"].found


@pytest.mark.parametrize("small", ["main memory", "GPU memory", None])
def test_memory_of_a_gpu_and_beside_it(tmp_path, monkeypatch, small):
    works = plan(experiment()).works
    states = next(work.memory_bytes for work in works if work.stage == "activations")
    others = max(work.memory_bytes for work in works if work.stage != "activations")
    sizes = {"main memory": states + 1, "GPU memory": others + 1}
    if small:
        sizes[small] -= 2
    pages = {"SC_PHYS_PAGES": sizes["main memory"], "SC_PAGE_SIZE": 1}
    monkeypatch.setattr(doctor.os, "sysconf", pages.get)
    monkeypatch.setattr(doctor, "resolve_device", lambda _: torch.device("cuda"))
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda _: "a made-up GPU")
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _: (0, sizes["GPU memory"]))
    found = examine(experiment(), tmp_path)
    assert "cuda, a made-up GPU" in found["device"].found
    assert found["memory"].ok == (small is None)
    if small:
        assert f"GB of {small}, about" in found["memory"].found


@pytest.mark.skipif(torch.cuda.is_available(), reason="a GPU is here")
def test_a_device_that_is_absent(tmp_path):
    raw = yaml.safe_load((ROOT / "config/smoke.yaml").read_text())
    found = examine(load(raw | {"device": "cuda"}), tmp_path)
    assert "cuda was asked for but is not available here" in found["device"].found
    assert "memory" not in found
