"""Nothing that is read may run: no pickle, no YAML objects, no shell, no path that leads away."""

from __future__ import annotations

import ast
import json
import pickle
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml
from checkout import ROOT, edited_config
from PIL import Image

from raptor.activations.manifest import Manifest
from raptor.config.data import DataConfig
from raptor.config.load import ConfigError, load, load_yaml
from raptor.config.teachers import TimmTeacher
from raptor.data.files import list_folders, list_images
from raptor.errors import RaptorError
from raptor.files import digest, plain_path, sha256, write_json
from raptor.models.published import read_published
from raptor.phases import read_distances
from raptor.student import read_index
from raptor.teachers.files import load_teacher
from raptor.teachers.heads import load_head
from raptor.teachers.pretrained import load_timm
from raptor.training.checkpoint import Checkpoint

SOURCES = sorted([*ROOT.glob("raptor/**/*.py"), *ROOT.glob("workflow/**/*.py")])
RULES = sorted([ROOT / "Snakefile", *ROOT.glob("workflow/rules/*.smk")])
DATA = DataConfig(splits={"train": 4, "val": 2, "test": 2}, image_size=32, mean=[0.5], std=[0.5])

# --- what the code says --------------------------------------------------------------------------


def calls(tree: ast.AST) -> Iterator[tuple[str, ast.Call]]:
    """Dotted name -> call, of every call of a name."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            yield ast.unparse(node.func), node


def keyword(call: ast.Call, name: str) -> object:
    """The constant given for a keyword, or None."""
    given = {one.arg: one.value for one in call.keywords}
    return getattr(given.get(name), "value", None)


def unsafe(tree: ast.AST) -> list[str]:
    """What a module does that could run what it reads."""
    found = []
    for name, call in calls(tree):
        last = name.split(".")[-1]
        tensors = name == "torch.load" or last in ("read_state_dict", "load_state_dict_from_hf")
        if tensors and keyword(call, "weights_only") is not True:
            found.append(f"{name} without weights_only=True")
        if name in ("np.load", "numpy.load") and keyword(call, "allow_pickle") is not False:
            found.append(f"{name} without allow_pickle=False")
        if name in ("eval", "exec", "compile", "os.system", "os.popen") or last == "read_pickle":
            found.append(name)
        if any(one.arg == "shell" for one in call.keywords):
            found.append(f"{name} with shell")
        text = call.args and isinstance(call.args[0], ast.Constant | ast.JoinedStr)
        if name.startswith("subprocess.") and text:
            found.append(f"{name} of a string")
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            module, attribute = node.value.id, node.attr
            safe = attribute.startswith("safe_") or attribute[0].isupper() or attribute == "compose"
            if module == "yaml" and (not safe or attribute in ("Loader", "UnsafeLoader")):
                found.append(f"yaml.{attribute}")
            if module == "pickle" and attribute != "UnpicklingError":
                found.append(f"pickle.{attribute}")
        if isinstance(node, ast.ImportFrom) and node.module == "pickle":
            found += [one.name for one in node.names if one.name != "UnpicklingError"]
        if isinstance(node, ast.Import | ast.ImportFrom):
            names = [getattr(node, "module", None), *(one.name for one in node.names)]
            found += {"marshal", "shelve", "dill", "cloudpickle", "joblib"}.intersection(names)
    return found


def test_no_module_can_run_what_it_reads():
    assert len(SOURCES) > 100
    faults = {str(path): unsafe(ast.parse(path.read_text())) for path in SOURCES}
    assert {path: fault for path, fault in faults.items() if fault} == {}


@pytest.mark.parametrize(
    "line",
    [
        "torch.load(path)",
        "torch.load(path, weights_only=False)",
        "np.load(path)",
        "pickle.load(file)",
        "from pickle import loads",
        "yaml.load(text, yaml.Loader)",
        "yaml.full_load(text)",
        "subprocess.run('ls', check=True)",
        "subprocess.run(command, shell=True)",
        "os.system(command)",
        "eval(text)",
    ],
)
def test_the_search_finds(line):
    assert unsafe(ast.parse(line))


def test_no_rule_goes_through_a_shell():
    for path in RULES:
        text = path.read_text()
        assert not re.search(r"^\s*(shell|run):", text, re.M), path
        assert not re.search(r"\b(os\.system|subprocess|eval\(|exec\(|yaml\.load)", text), path


# --- what is read --------------------------------------------------------------------------------


class Hostile:
    """A pickle of it makes the file `marker` when it is loaded."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self):
        return Path.touch, (self.marker,)


@pytest.fixture
def hostile(tmp_path):
    """Files that would make `marker`; after the test it must not be there."""
    marker = tmp_path / "marker"
    pickle.loads(pickle.dumps(Hostile(marker)))
    assert marker.exists()  # it would work
    marker.unlink()
    pickle_file, zip_file = tmp_path / "plain.pt", tmp_path / "zip.pt"
    pickle_file.write_bytes(pickle.dumps({"weight": Hostile(marker), "bias": Hostile(marker)}))
    torch.save({"weight": Hostile(marker), "bias": torch.zeros(1)}, zip_file)
    yield [pickle_file, zip_file]
    assert not marker.exists()


def test_a_hostile_checkpoint_is_left_alone(hostile, tmp_path):
    for path in hostile:
        index = {"file": path.name, "identity": "own", "sha256": sha256(path)}
        write_json(tmp_path / "state.json", index)
        assert Checkpoint(tmp_path, "own").load() is None


def test_hostile_heads_weights_and_modules_are_refused(hostile):
    for path in hostile:
        with pytest.raises(RaptorError, match="not a linear head"):
            load_head(path, 8, 3)
        with pytest.raises(RaptorError, match="cannot be read as weights"):
            load_timm(TimmTeacher(kind="timm", model="test_vit", weights=str(path)), DATA, 3)
        with pytest.raises(RaptorError, match=r"refused|cannot be read"):
            read_published(path)


def test_a_pickle_in_the_place_of_a_teacher_is_refused(hostile, planted):
    path = planted.folder / "vit.safetensors"
    description = json.loads(planted.path.with_suffix(".json").read_text())
    for file in hostile:
        path.write_bytes(file.read_bytes())
        del description["digest"]
        description["sha256"] = sha256(path)
        description["digest"] = digest(description)
        write_json(path.with_suffix(".json"), description)
        with pytest.raises(RaptorError, match="holds no weights"):
            load_teacher(path)


def test_a_pickled_array_is_refused(tmp_path):
    marker = tmp_path / "marker"
    matrices = np.array([Hostile(marker)], dtype=object)
    np.savez(tmp_path / "m.npz", cosine=matrices, cosine_bootstrap=matrices)
    with pytest.raises(RaptorError, match="no similarity by cosine"):
        read_distances(tmp_path / "m.npz", "cosine")
    assert not marker.exists()


def test_yaml_makes_no_objects(tmp_path):
    marker, path = tmp_path / "marker", tmp_path / "config.yaml"
    path.write_text(f"experiment: !!python/object/apply:os.system ['touch {marker}']\n")
    with pytest.raises(ConfigError, match="could not determine a constructor"):
        load_yaml(path)
    assert not marker.exists()


# --- names that become paths ---------------------------------------------------------------------

BAD = ["../x", "..", "/etc/x", "a/../../x", "a\nb", "a\n", "a\x00", "a\x1b[2J", "x" * 201, ""]


@pytest.mark.parametrize("name", BAD)
def test_a_path_below_a_folder_is_nothing_else(name):
    with pytest.raises(ValueError, match=r"path|characters|bytes"):
        plain_path(name)


@pytest.mark.parametrize(
    "name", ["a.csv", "c/0/0/0", "recipe/maxcut-k2/seed0.safetensors", "é" * 99]
)
def test_ordinary_paths_are_left_as_they_are(name):
    assert plain_path(name) == name


@pytest.mark.parametrize("name", [*BAD, "$(touch x)", "; touch x", "`touch x`", "a b", "'"])
@pytest.mark.parametrize("key", ["experiment", "teachers", "recipes", "students", "like", "model"])
def test_no_name_of_a_configuration_leads_elsewhere(key, name):
    raw = yaml.safe_load((ROOT / "config/laptop.yaml").read_text())
    match key:
        case "experiment":
            raw[key] = name
        case "like":
            raw["teachers"]["other"] = {"kind": "untrained", "like": name}
        case "model":
            raw["teachers"]["other"] = {"kind": "timm", "model": name}
        case _:
            raw[key] = {name: next(iter(raw[key].values()))}
    with pytest.raises(ConfigError, match=r"letters, digits and _|at most 64|timm") as error:
        load(raw)
    assert "\x1b" not in str(error.value)


@pytest.mark.parametrize("key", ["weights", "head"])
def test_no_input_has_what_snakemake_takes_for_a_wildcard(key):
    raw = yaml.safe_load((ROOT / "config/my_vit.example.yaml").read_text())
    raw["teachers"]["my_vit"][key] = "of {teacher}.pth"
    with pytest.raises(ConfigError, match=f"teachers.my_vit.{key}: .*wildcard; give another name"):
        load(raw)


@pytest.mark.parametrize("path", ["a\nb", "a\x00", "x" * 256])
@pytest.mark.parametrize("key", ["root", "root of a source", "weights", "head"])
def test_no_file_can_have_such_a_path(key, path):
    raw = yaml.safe_load((ROOT / "config/my_vit.example.yaml").read_text())
    if key.startswith("root"):
        raw["data"]["root"] = path if key == "root" else {"image_folder": path}
    else:
        raw["teachers"]["my_vit"][key] = path
    with pytest.raises(ConfigError, match=r"control characters|255 bytes"):
        load(raw)


@pytest.mark.parametrize("name", BAD)
def test_an_index_of_students_leads_nowhere_else(name, tmp_path):
    write_json(tmp_path / "part1.json", {"students": [{"file": name}]})
    with pytest.raises(RaptorError, match="no index of students"):
        read_index(tmp_path / "part1.json")


@pytest.mark.parametrize("name", BAD)
@pytest.mark.parametrize("what", ["shard", "teacher"])
def test_a_manifest_leads_nowhere_else(what, name, planted, tmp_path):
    content = json.loads(planted.activations.read_text())
    del content["checksum"]
    if what == "shard":
        content["shards"][0]["file"] = name
    else:  # which may lie in another folder beside its own
        content["teacher"]["path"] = name if name != "../x" else "../x/../y"
    write_json(tmp_path / "m.json", {**content, "checksum": digest(content)})
    with pytest.raises(RaptorError, match="the manifest is damaged"):
        Manifest.load(tmp_path / "m.json")


@pytest.mark.parametrize("name", ["../state-1.pt", "/tmp/x", ".", "..", "a\n", 3, None])
def test_a_checkpoint_reads_nothing_outside_its_folder(name, tmp_path):
    torch.save({"step": 1}, tmp_path / "state-1.pt")
    index = {"file": name, "identity": "own", "sha256": sha256(tmp_path / "state-1.pt")}
    write_json(tmp_path / "own/state.json", index)
    assert Checkpoint(tmp_path / "own", "own").load() is None


@pytest.mark.parametrize("name", ["a\nb", "a\x1bb", "a\udcffb"])
def test_folders_and_images_with_such_names_are_refused(name, tmp_path):
    (tmp_path / "classes" / name).mkdir(parents=True)
    with pytest.raises(RaptorError, match="a name with control characters"):
        list_folders(tmp_path / "classes")
    (tmp_path / "images").mkdir()
    (tmp_path / "images" / f"{name}.png").touch()
    with pytest.raises(RaptorError, match="a name with control characters"):
        list_images(tmp_path / "images")


# --- no shell ------------------------------------------------------------------------------------


def test_paths_that_look_like_commands_are_only_paths(new_checkout):
    """Planned, and run as far as the images are read, from a folder with a name of commands."""
    checkout = new_checkout()
    folder = checkout.path / "$(touch pwned) `touch pwned` ; touch pwned ; 'x\" {y}"
    for number in range(200):
        (folder / f"{'ab'[number % 2]} $(touch pwned)").mkdir(parents=True, exist_ok=True)
        path = folder / f"{'ab'[number % 2]} $(touch pwned)" / f"{number};touch pwned.png"
        Image.new("RGB", (8, 8), (number, 0, 0)).save(path)
    weights = checkout.path / "$(touch pwned) ; touch pwned.safetensors"
    weights.write_bytes(b"")
    raw = yaml.safe_load((checkout.path / "config/my_vit.example.yaml").read_text())
    raw["data"] |= {"root": str(folder), "splits": {"train": 130, "val": 20, "test": 50}}
    raw["teachers"]["my_vit"]["weights"] = str(weights)
    raw.setdefault("probes", {}).setdefault("classification", {})["warmup_steps"] = 1
    config = checkout.path / "config/own.yaml"
    config.write_text(yaml.safe_dump(raw))
    options = ("--configfile", str(config))
    assert checkout.planned(*options)["timm_teacher"] == 2
    checkout.snakemake("results/my_vit/data/samples.csv", *options)
    samples = (checkout.path / "results/my_vit/data/samples.csv").read_text()
    assert "a $(touch pwned)/0;touch pwned.png" in samples
    assert not list(checkout.path.rglob("pwned"))


def test_snakemake_makes_no_objects_of_yaml(new_checkout):
    checkout = new_checkout()
    _, config = edited_config(checkout)
    marker = checkout.path / "marker"
    with open(config, "a") as file:
        file.write(f"seed: !!python/object/apply:os.system ['touch {marker}']\n")
    assert checkout.snakemake("-n", "--configfile", config, check=False).returncode != 0
    assert not marker.exists()
