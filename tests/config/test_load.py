"""The configuration: what is accepted, and what each fault says."""

import copy
from pathlib import Path

import pytest
import yaml

from raptor.config.load import ConfigError, load, load_yaml
from raptor.config.students import Recipe
from raptor.training.schedules import teacher_forcing

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
    assert load_yaml(path).experiment == path.name.split(".")[0]


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
        ("teachers.untrained.like", "vot", "teachers.untrained.like: 'vot' is not a teacher"),
        ("activations.shard_images", 500, "activations.shard_images: 500 is not a multiple"),
        (
            "activations.store",
            "bucket/folder",
            "activations.store: this is no place for a store; give",
        ),
        ("activations.store", "s3://", "activations.store: this is no place"),
        ("activations.store", "file://here", "activations.store: this is no place"),
        ("activations.store", "s3://key:secret@bucket", "without user, password or options"),
        ("activations.store", "s3://bucket?key=secret", "without user, password or options"),
        (
            "activations.store",
            "s33://bucket",
            "s33 is no protocol that fsspec knows; did you mean s3?",
        ),
        ("activations.jobs", 11, "activations.jobs: 11 jobs cannot share the 10 shards of a store"),
        ("students.fidelity.teachers", ["vot"], "students.fidelity.teachers: 'vot' is not one of"),
        ("students.fidelity.recipes", ["papr"], "students.fidelity.recipes: 'papr' is not one of"),
        ("branches.teachers", ["vot"], "branches.teachers: 'vot' is not one of"),
        ("branches.k", [1], "branches.k.0: 1: input should be greater than or equal to 2"),
        ("branches.k", [9], "branches.k: k = 9 is more than the 8 layers of teacher vit"),
        ("cost.teacher", "vot", "cost.teacher: 'vot' is not one of"),
        ("cost.recipe", "paper", "cost.k: no grid of students has teacher vit, recipe paper"),
        ("cost.k", [5], "partition maxcut and k = 5; add it to one"),
        ("cost.repeats", 1, "cost.repeats: 1: input should be greater than or equal to 2"),
        ("partition.methods", ["uniform"], "swaps.partition: maxcut with k = 3 is not computed"),
        ("partition.min_size", 3, "k = 3 segments of at least partition.min_size = 3 layers need"),
        ("swaps.k", 99, "swaps.k: k = 99 is more than the 8 layers of teacher vit"),
        ("data", None, "data: None: give keys: source, root"),
        ("data.mean", 0.13, "data.mean: 0.13: give a list in [ ]"),
        ("swaps.sizes", [], "swaps.sizes: give at least one value"),
        ("experiment", "a-b", "experiment: 'a-b': a name has letters, digits and _ alone"),
        ("swaps.teachers", ["vitt"], "did you mean vit?"),
        ("figures.fidelity_by_k.studies", ["none"], "figures.fidelity_by_k.studies: 'none'"),
        ("recipes.phase_mean.stage2.batch_size", 4000, "batch_size: 4000 is more than"),
        ("teachers.vit.training.batch_size", 4000, "batch_size: 4000 is more than"),
        ("teachers.vit.training.train_images", 4000, "train_images: 4000 is more than"),
        ("recipes.phase_mean.stage2.warmup_steps", 400, "warmup_steps 400 is not below steps 400"),
        ("teachers.vit.training.betas", [0.9, 1.0], "betas.1: 1.0: input should be less than 1"),
        ("similarity.batch_images", 2, "similarity.batch_images: 2: input should be greater"),
        (
            "probes.classification.train_images",
            4000,
            "probes.classification.train_images: 4000 is more than data.splits.train 3750",
        ),
        ("partition.k", [2, 3, 3], "partition.k: [2, 3, 3] lists a value twice"),
        (
            "figures.fidelity_by_k.studies",
            [],
            "figures.fidelity_by_k.studies: give at least one value",
        ),
        ("figures.palette", "colourblind", "did you mean colorblind?"),
        ("figures.maxcut_partitions", {"cmap": "viridiss"}, "did you mean viridis?"),
        ("teachers.vit.patch_size", 1, "teachers.vit.stem: conv halves the image"),
        ("students.partitions.seeds", 50, "is more than the partition.random_seeds"),
        ("figures.stochastic_depth.teachers", ["vot"], "figures.stochastic_depth.teachers: 'vot'"),
        (
            "figures.stochastic_depth.teachers",
            ["vit", "overfit_42"],
            "the stochastic_depth of 'overfit_42' is not known here; choose teachers that are",
        ),
        (
            "figures.stochastic_depth.teachers",
            ["vit", "overfit"],
            "vit and overfit have the same stochastic_depth 0; leave one out",
        ),
        (
            "figures.stochastic_depth.k",
            4,
            "no students of vit_p01 with recipe phase_mean_short, partition maxcut and k = 4 are",
        ),
        ("figures.stochastic_depth.partition", "random", "'random' is not one of"),
        ("swaps.partition", "random_scattered", "swaps.partition: 'random_scattered' is not one"),
        ("cost.partition", "random", "cost.partition: 'random' is not one of"),
        ("swaps.k", 1, "swaps.k: 1: input should be greater than or equal to 2"),
        ("swaps.sizes", [1, 9], "swaps.sizes: 9 is more than the 8 layers of teacher vit"),
        ("data.splits.val", 1, "data.splits.val: 1: input should be greater than or equal to 2"),
        (
            "teachers.vit.training.warmup_steps",
            1276,
            "teachers.vit.training.warmup_steps: 1276 is not below the 1276 steps",
        ),
        (
            "teachers.overfit.training.batch_size",
            301,
            "teachers.overfit.training.batch_size: 301 is more than the 300 images trained on",
        ),
        (
            "probes.classification.batch_size",
            2001,
            "probes.classification.batch_size: 2001 is more than the 2000 images trained on",
        ),
        (
            "probes.classification.warmup_steps",
            160,
            "probes.classification.warmup_steps: 160 is not below the 160 steps",
        ),
        ("figures.overfitting.recipe", "none", "figures.overfitting.recipe: 'none' is not one of"),
        ("figures.overfitting.teachers", ["vit", "vit_p01"], "['vit', 'vit_p01'] are trained"),
        ("figures.overfitting.teachers", ["overfit_20"], "[] are trained; give one"),
        (
            "teachers.overfit.seed",
            1,
            "untrained comes from vit, not from overfit; leave it out",
        ),
        ("teachers.overfit_20.epoch", 42, "overfit_20 and overfit_42 are both of epoch 42; leave"),
        (
            "figures.training_paradigms.recipes",
            ["forcing", "annealed", "autoregression"],
            "annealed and autoregression train alike (autoregressive); leave one out",
        ),
        ("figures.training_paradigms.teacher", "vot", "training_paradigms.teacher: 'vot' is not"),
        (
            "figures.table_ablations.recipes",
            ["forcing", "scaled"],
            "scaled has ['autoregressive', 'depth_scaling'] beside teacher forcing; it must have "
            "one thing more than []",
        ),
        (
            "figures.table_ablations.recipes",
            ["annealed"],
            "annealed has ['autoregressive'] beside teacher forcing; it must have nothing",
        ),
        ("figures.table_ablations.recipes", ["phase_mean_short"], "give recipes with initialisat"),
        ("figures.saturation.studies", ["none"], "figures.saturation.studies: 'none' is not one"),
        ("figures.saturation.reference", "none", "figures.saturation.reference: 'none' is not"),
        ("figures.maxcut_partitions.k", [5], "figures.maxcut_partitions.k: 5 is not one of"),
        (
            "figures.maxcut_partitions.teachers",
            ["shallow"],
            "maxcut_partitions.teachers: k = 8 is more than the 3 layers of teacher shallow",
        ),
        ("figures.similarity_matrices.teachers", ["vot"], "similarity_matrices.teachers: 'vot'"),
        ("dynamics.teachers", ["vot"], "dynamics.teachers: 'vot' is not one of"),
        ("dynamics.recipe", "papr", "dynamics.recipe: 'papr' is not one of"),
        ("dynamics.recipe", "paper", "none of ['vit', 'untrained'] has students of"),
        ("dynamics.k", 9, "dynamics.k: k = 9 is more than the 8 layers of teacher"),
        ("dynamics.perturbation.source_layers", [0, 8], "[8] are not below the depth 8 of teacher"),
        ("dynamics.perturbation.source_layers", [-1], "source_layers.0: -1: input should be"),
        ("dynamics.perturbation.relative_size", [0.1], "did you mean relative_sizes?"),
        ("dense.teachers", ["vot"], "dense.teachers: 'vot' is not one of"),
        ("dense.recipe", "papr", "dense.recipe: 'papr' is not one of"),
        (
            "dense.k",
            [3, 6],
            "dense.teachers: none of ['vit', 'untrained'] has students of recipe phase_mean, "
            "partition maxcut and k = 6; add such a grid to students",
        ),
        ("dense.scenes", None, "dense: scenes: is missing, and a probe has source: scenes"),
        ("dense.segmentation.source", "ade20", "'ade20' is not one of 'ade20k' or 'scenes'"),
        (
            "dense.segmentation.image_size",
            84,  # a multiple of the patch size, which the convolutions of the stem do not cut into
            "dense.segmentation.image_size: 84 is not a multiple of the 8 px from patch to patch",
        ),
        ("dense.depth.crop", "eigen", "dense.depth.crop: eigen is of the images of NYUv2; give"),
        ("dense.depth.max_m", 0.001, "max_m 0.001 is not above min_m 0.001"),
        (
            "dense.segmentation.batch_size",
            301,
            "dense.segmentation.batch_size: 301 is more than the 300 images trained on",
        ),
        (
            "dense.segmentation.train_images",
            301,
            "dense.segmentation.train_images: 301 is more than dense.scenes.train 300",
        ),
        (
            "dense.depth.warmup_steps",
            190,
            "dense.depth.warmup_steps: 190 is not below the 190 steps of the training",
        ),
        ("dense", {"teachers": ["vit"], "recipe": "phase_mean", "k": [3]}, "asks for no probe"),
        ("dynamics.dmd.rank", 49, "dynamics.dmd.rank: 49 is more than the width 48 of teacher vit"),
    ],
)
def test_each_fault_names_the_key_and_what_to_do(raw, key, value, expected):
    assert expected in faults(set_in(raw, key, value))


def test_what_a_recipe_has_beside_teacher_forcing(raw):
    recipes = load(raw).recipes
    found = {name: (recipe.ingredients, recipe.paradigm) for name, recipe in recipes.items()}
    ladder = ["autoregressive", "depth_scaling", "token_weights", "stage2"]
    for count, name in enumerate(["forcing", "annealed", "scaled", "weighted", "joined"]):
        paradigm = "teacher_forcing" if count == 0 else "autoregressive"
        assert found[name] == (ladder[:count], paradigm)
    assert found["distillation"][1] == "output"
    assert found["autoregression"] == (["autoregressive", "stage2"], "autoregressive")


@pytest.mark.parametrize(
    ("start", "end", "anneal", "forced"),
    [(1, 1, 0.25, True), (0, 1, 0, True), (0.5, 1, 0.25, False), (1, 0, 0.25, False)],
)
def test_forced_throughout_is_where_lambda_is_always_one(raw, start, end, anneal, forced):
    stage = raw["recipes"]["forcing"]["stage1"] | {
        "teacher_forcing": {"start": start, "end": end, "anneal": anneal}
    }
    recipe = Recipe.model_validate(raw["recipes"]["forcing"] | {"stage1": stage}, strict=False)
    steps = [
        teacher_forcing(step, steps=100, start=start, end=end, anneal=anneal) for step in range(100)
    ]
    assert (recipe.paradigm == "teacher_forcing") == forced == all(one == 1 for one in steps)


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


def test_dynamics_may_be_left_out(raw):
    del raw["dynamics"]
    assert load(raw).dynamics is None


def test_yaml_numbers_without_a_dot_are_numbers(raw):
    raw = set_in(raw, "teachers.vit.training.lr", "3e-4")  # how YAML reads `lr: 3e-4`
    assert load(raw).teachers["vit"].training.lr == 3e-4


def test_the_model_is_frozen(raw):
    with pytest.raises(ValueError, match="frozen"):
        load(raw).seed = 3


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"seed: 1\n# caf\xe9\n", "line 2: is not UTF-8"),
        (b"2026-01-01: x\n", "line 1: a key must be a name"),
        (b"seed: 1\n? [a, b]\n: 1\n", "line 2: a key must be a name"),
        (b"a: &again\n  b: *again\n", "an anchor .* stands within itself"),
    ],
)
def test_files_that_yaml_alone_would_not_explain(content, said, tmp_path):
    (tmp_path / "mine.yaml").write_bytes(content)
    with pytest.raises(ConfigError, match=f"mine.yaml.*{said}"):
        load_yaml(tmp_path / "mine.yaml")


def test_unreadable_yaml(tmp_path):
    path = tmp_path / "broken.yaml"
    path.write_text("a: [1")
    with pytest.raises(ConfigError, match=r"broken.yaml: cannot be read as YAML"):
        load_yaml(path)
    path.write_text("- a list")
    with pytest.raises(ConfigError, match="not a mapping"):
        load_yaml(path)
    with pytest.raises(ConfigError, match="cannot be opened"):
        load_yaml(tmp_path / "absent.yaml")


@pytest.mark.parametrize("name", ["trained", "untrained", "checkpoint", "timm"])
def test_a_teacher_may_be_called_as_its_kind(raw, name):
    raw["teachers"][name] = raw["teachers"]["vit"] | {"dept": 3}
    assert f"teachers.{name}.dept: unknown key; did you mean depth?" in faults(raw)


def test_a_key_that_stands_twice_is_refused_with_both_lines(tmp_path):
    path = tmp_path / "twice.yaml"
    path.write_text("data:\n  root: a\n  source: b\nteachers:\n  - {k: 1, k: 2}\ndata: {}\n")
    with pytest.raises(ConfigError) as error:
        load_yaml(path)
    said = str(error.value)
    assert f"{path}, line 6: data stands on line 1 too; leave one out" in said
    assert "line 5: teachers.k stands on line 5 too" in said
    path.write_text("a: &a {x: 1}\nb: {<<: *a, x: 2}\nc: {<<: *a}\n")  # merging is no repetition
    with pytest.raises(ConfigError, match="unknown key"):
        load_yaml(path)


# --- teachers from timm --------------------------------------------------------------------------


@pytest.fixture
def timm():
    return yaml.safe_load((ROOT / "config/vits14.yaml").read_text())


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        ("model", "vit_smal_patch14_dinov2", "did you mean vit_small_patch14_dinov2?"),
        ("model", "swin_tiny_patch4_window7_224", "not a plain Vision Transformer, its tokens"),
        ("model", "vit_small_patch32_224", "112 is not a multiple of the patch size 32 of"),
        ("weights", "own", "teachers.vits14.weights: 'own': give pretrained, random or a file"),
        ("head", "random", "teachers.vits14.head: 'random': give none, own or a file"),
        ("mean", [0.5], "teachers.vits14.mean: [0.5]: give 3 value(s), one per channel"),
        ("depth", 3, "teachers.vits14.depth: unknown key"),
    ],
)
def test_faults_of_a_teacher_from_timm(timm, key, value, expected):
    timm["teachers"]["vits14"][key] = value
    assert expected in faults(timm)


@pytest.mark.parametrize("model", ["eva02_tiny_patch14_224", "vit_base_patch16_clip_quickgelu_224"])
def test_blocks_that_cannot_be_built_anew_are_named_before_anything_runs(timm, model):
    """Rotary embeddings; an activation of their own: a phase has no mean of them."""
    timm["teachers"]["vits14"]["model"] = model
    timm["data"]["image_size"] = 224
    assert faults(timm).count("fault") == 1
    assert (
        "students.fidelity.recipes: phase_mean has block: teacher, which cannot be built like "
        "those of vits14" in faults(timm)
    )
    timm["students"]["fidelity"]["recipes"] = ["paper"]
    timm["dynamics"]["recipe"] = timm["cost"]["recipe"] = "paper"
    assert load(timm).shape("vits14").plain_block is False


def test_what_follows_from_a_teacher_of_timm(timm):
    timm["teachers"]["vits14"] |= {"mean": [0.5, 0.5, 0.5], "weights": "random"}
    config = load(timm)
    assert config.shape("untrained") == config.shape("vits14")
    assert config.shape("vits14")[:6] == (12, 384, 6, 14, 1, 0)
    assert config.images("vits14").mean == [0.5, 0.5, 0.5]
    assert config.images("vits14").std == config.data.std
    timm["figures"]["stochastic_depth"] = {"teachers": ["untrained"], "recipe": "paper", "k": 3}
    assert "the stochastic_depth of 'untrained' is not known here" in faults(timm)


def test_all_stands_for_every_teacher(timm):
    timm["teachers"]["other"] = timm["teachers"]["vits14"] | {
        "model": "vit_small_patch14_reg4_dinov2"
    }
    timm["students"]["fidelity"]["teachers"] = timm["swaps"]["teachers"] = "all"
    timm["dynamics"]["teachers"] = timm["branches"]["teachers"] = "all"
    config = load(timm)
    every = ["vits14", "untrained", "other"]
    assert config.swaps.teachers == config.dynamics.teachers == config.branches.teachers == every
    assert config.students["fidelity"].teachers == every
    timm["swaps"]["teachers"] = "al"
    assert "swaps.teachers: 'al': give a list in [ ]" in faults(timm)
