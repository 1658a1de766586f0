"""The configuration: what is accepted, and what each fault says."""

import copy
from pathlib import Path

import pytest
import yaml

from raptor.config.load import ConfigError, load, load_yaml

ROOT = Path(__file__).parents[2]


@pytest.fixture
def raw():
    return yaml.safe_load((ROOT / "config/laptop.yaml").read_text())


def faults(raw) -> str:
    with pytest.raises(ConfigError) as error:
        load(raw)
    return str(error.value)


@pytest.mark.parametrize("path", sorted(ROOT.glob("config/*.yaml")), ids=lambda p: p.stem)
def test_every_shipped_config_is_valid(path):
    assert load_yaml(path).experiment == path.name.removesuffix(".yaml")


def set_in(raw, dotted, value):
    *parents, last = dotted.split(".")
    raw = changed = copy.deepcopy(raw)
    for parent in parents:
        raw = raw[parent]
    raw[last] = value
    return changed


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        ("similarty", {}, "similarty: unknown key; did you mean similarity?"),
        ("teachers.vit.dept", 3, "teachers.vit.dept: unknown key; did you mean depth?"),
        ("recipes.phase_mean.stage2.step", 3, "stage2.step: unknown key; did you mean steps?"),
        ("seed", "zero", "seed: 'zero': input should be a valid integer"),
        ("seed", True, "seed: True: input should be a valid integer"),
        ("data.source", "digit", "'digit' is not one of"),
        ("data.source", "digit", "did you mean digits?"),
        ("partition.methods", ["maxcuts"], "did you mean maxcut?"),
        ("experiment", "../other", "experiment: '../other'"),
        ("experiment", "/abs", "experiment: '/abs'"),
        ("teachers.vit.depth", 0, "teachers.vit.depth: 0: input should be greater than 0"),
        ("data.splits.train", 6000, "the embedded digits have 5000"),
        ("data.root", "somewhere", "source digits is embedded"),
        ("data.mean", [0.1, 0.2], "data.mean: [0.1, 0.2]: give 1 value(s)"),
        ("data.image_size", 30, "teachers.vit.patch_size: 7 does not divide data.image_size 30"),
        ("teachers.vit.heads", 5, "teachers.vit.heads: 5 does not divide width 48"),
        ("teachers.untrained.like", "vot", "teachers.untrained.like: 'vot' is not a trained"),
        ("activations.shard_images", 500, "activations.shard_images: 500 is not a multiple"),
        ("students.fidelity.teachers", ["vot"], "students.fidelity.teachers: 'vot' is not one of"),
        ("students.fidelity.recipes", ["papr"], "students.fidelity.recipes: 'papr' is not one of"),
        ("branches.teachers", ["vot"], "branches.teachers: 'vot' is not one of"),
        ("branches.k", [1], "branches.k.0: 1: input should be greater than or equal to 2"),
        ("branches.k", [9], "branches.k: k = 9 is more than the 8 layers of teacher vit"),
        ("cost.teacher", "vot", "cost.teacher: 'vot' is not one of"),
        ("cost.recipe", "paper", "cost.k: no grid of students has teacher vit, recipe paper"),
        ("cost.k", [5], "partition maxcut and k = 5; add it to one"),
        ("cost.repeats", 1, "cost.repeats: 1: input should be greater than or equal to 2"),
        ("swaps.k", 5, "swaps.partition: maxcut with k = 5 is not computed"),
        ("figures.fidelity_by_k.studies", ["none"], "figures.fidelity_by_k.studies: 'none'"),
        ("recipes.phase_mean.stage2.batch_size", 4000, "batch_size: 4000 is more than"),
        ("teachers.vit.training.batch_size", 4000, "batch_size: 4000 is more than"),
        ("teachers.vit.training.train_images", 4000, "train_images: 4000 is more than"),
        ("recipes.phase_mean.stage2.warmup_steps", 500, "warmup_steps 500 is not below steps 500"),
        ("teachers.vit.training.betas", [0.9, 1.0], "betas.1: 1.0: input should be less than 1"),
        ("similarity.batch_images", 2, "similarity.batch_images: 2: input should be greater"),
        ("swaps.sizes", [], "swaps.sizes: list should have at least 1 item"),
        ("partition.k", [2, 3, 3], "partition.k: [2, 3, 3] lists a value twice"),
        ("figures.fidelity_by_k.studies", [], "figures.fidelity_by_k.studies: list should have"),
        ("figures.palette", "colourblind", "did you mean colorblind?"),
        ("figures.maxcut_partitions", {"cmap": "viridiss"}, "did you mean viridis?"),
        ("teachers.vit.patch_size", 1, "teachers.vit.stem: conv halves the image"),
        ("students.partitions.seeds", 50, "is more than the partition.random_seeds"),
    ],
)
def test_each_fault_names_the_key_and_what_to_do(raw, key, value, expected):
    assert expected in faults(set_in(raw, key, value))


def test_more_phases_than_layers(raw):
    raw = set_in(raw, "partition.k", [2, 3, 4, 9])
    assert "partition.k: k = 9 is more than the 8 layers of teacher vit" in faults(raw)
    raw = set_in(raw, "students.fidelity.k", [9])
    assert "students.fidelity.k: k = 9 is more than the 8 layers of teacher vit" in faults(raw)


def test_segments_too_long_for_the_depth(raw):
    raw = set_in(raw, "partition.min_size", 3)
    assert (
        "k = 3 segments of at least partition.min_size = 3 layers need 9 layers, teacher vit has 8"
        in faults(raw)
    )


def test_all_faults_at_once(raw):
    raw = set_in(set_in(raw, "seed", "x"), "data.image_size", -1)
    raw["unknown"] = 1
    text = faults(raw)
    assert "3 fault(s)" in text
    assert all(part in text for part in ("seed:", "data.image_size:", "unknown:"))


def test_a_missing_section_is_named(raw):
    del raw["partition"]
    assert "partition: this key is required" in faults(raw)


def test_yaml_numbers_without_a_dot_are_numbers(raw):
    raw = set_in(raw, "teachers.vit.training.lr", "3e-4")  # how YAML reads `lr: 3e-4`
    assert load(raw).teachers["vit"].training.lr == 3e-4


def test_the_model_is_frozen(raw):
    with pytest.raises(ValueError, match="frozen"):
        load(raw).seed = 3


def test_unreadable_yaml(tmp_path):
    path = tmp_path / "broken.yaml"
    path.write_text("a: [1")
    with pytest.raises(ConfigError, match=r"broken.yaml: cannot be read as YAML"):
        load_yaml(path)
    path.write_text("- a list")
    with pytest.raises(ConfigError, match="not a mapping"):
        load_yaml(path)
    with pytest.raises(ConfigError, match="cannot be read"):
        load_yaml(tmp_path / "absent.yaml")
