"""`probe_teacher` and `probe_students` on a real store, against numpy and known answers."""

from __future__ import annotations

import copy
import json
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn
from torch.nn import functional as F

from raptor.activations import images
from raptor.config.analysis import ClassificationProbe, ProbesConfig
from raptor.errors import RaptorError
from raptor.probes import evaluate, readout
from raptor.probes.classification import Features, fit_probe
from raptor.probes.evaluate import probe_students, probe_teacher
from raptor.seeds import derive_seed
from raptor.teachers.files import save_teacher
from raptor.training.finished import remove_finished

CONFIG = ProbesConfig(
    classification=ClassificationProbe(epochs=6, batch_size=32, lr=2e-2, warmup_steps=5),
    bootstrap=20,
)
STUDENT_COLUMNS = (
    "teacher recipe partition k seed segments parameters steps r2_mean r2_cls "
    "r2_registers r2_patch accuracy accuracy_head accuracy_probe_frozen accuracy_teacher "
    "accuracy_teacher_head recovered recovered_head epsilon_max epsilon_relative n_test"
)
LAYER_COLUMNS = (
    "teacher recipe partition k seed layer tokens r2 epsilon epsilon_low epsilon_high norm"
)
SPANS = {"all": slice(0, 6), "cls": slice(0, 1), "registers": slice(1, 2), "patches": slice(2, 6)}


def run_teacher(planted, config=CONFIG) -> tuple[pd.Series, pd.DataFrame, dict[str, torch.Tensor]]:
    out = {name: planted.folder / name for name in ("output", "layers", "weights")}
    probe_teacher(
        teacher=planted.path, activations=planted.activations, config=config,
        state=planted.folder / "state/teacher", identity="one", device=torch.device("cpu"), **out,
    )  # fmt: skip
    table = pd.read_csv(out["output"])
    assert len(table) == 1
    return table.iloc[0], pd.read_csv(out["layers"]), load_file(out["weights"])


def run_students(
    planted, *students, code="one", config=CONFIG
) -> tuple[pd.DataFrame, pd.DataFrame]:
    if not (planted.folder / "weights").exists():
        run_teacher(planted)
    folder = planted.folder / "probes"
    out = {"output": folder / "s.csv", "layers": folder / "s.layers.csv"}
    probe_students(
        teacher=planted.path, activations=planted.activations, config=config,
        students=planted.index(*students), probe=planted.folder / "weights",
        state=planted.folder / "state", code=code, device=torch.device("cpu"), **out,
    )  # fmt: skip
    return pd.read_csv(out["output"]), pd.read_csv(out["layers"])


def features(planted, last: torch.Tensor) -> np.ndarray:
    norm = planted.teacher.model.norm
    normed = F.layer_norm(last, (8,), norm.weight, norm.bias, norm.eps).numpy()
    return np.concatenate([normed[:, 0], normed[:, 2:].mean(axis=1)], axis=1)


def accuracy(planted, last: torch.Tensor, weights: dict[str, torch.Tensor]) -> float:
    logits = features(planted, last) @ weights["weight"].numpy().T + weights["bias"].numpy()
    return float(np.mean(logits.argmax(axis=1) == planted.splits["test"].labels))


def r2(true: torch.Tensor, predicted: torch.Tensor, span: slice) -> float:
    true, predicted = (x[:, span].reshape(-1, 8).double().numpy() for x in (true, predicted))
    return 1 - ((true - predicted) ** 2).sum() / ((true - true.mean(axis=0)) ** 2).sum()


def test_teacher_row_and_probe(planted):
    row, _, weights = run_teacher(planted)
    teacher, test = planted.teacher, planted.states("test")
    predicted = teacher(planted.splits["test"].pixels).argmax(1).numpy()
    assert row["teacher"] == "tiny"
    assert row["accuracy_head"] == np.mean(predicted == planted.splits["test"].labels)
    assert row["accuracy"] == accuracy(planted, test[:, -1], weights)
    assert row["accuracy"] > 0.5 > row["accuracy_head"]  # the head is random, chance is 1/3
    assert row["n_test"] == 60
    assert row["parameters"] == sum(p.numel() for p in teacher.model.parameters())
    one = 2 * 16 + (8 * 24 + 24) + (8 * 8 + 8) + (8 * 16 + 16) + (16 * 8 + 8)
    assert row["blocks_parameters"] == 4 * one


def test_baselines_are_fitted_on_train_and_measured_on_test(planted):
    row, layers, _ = run_teacher(planted)
    train, test = planted.states("train"), planted.states("test")
    design = np.hstack([train[:, 0].reshape(-1, 8), np.ones((150 * 6, 1))]).astype(np.float64)
    for layer in range(1, 5):
        target = train[:, layer].reshape(-1, 8).double().numpy()
        solution = np.linalg.lstsq(design, target, rcond=None)[0]
        predicted = {
            "identity": test[:, 0],
            "layer_mean": train[:, layer].mean(dim=0).expand(60, -1, -1),
            "linear": test[:, 0] @ torch.from_numpy(solution[:-1]).float()
            + torch.from_numpy(solution[-1]).float(),
        }
        for entry in layers.query("layer == @layer").itertuples():
            expected = r2(test[:, layer], predicted[entry.baseline], SPANS[entry.tokens])
            assert entry.r2 == pytest.approx(expected, rel=1e-3, abs=1e-3)
    assert len(layers) == 3 * 4 * len(SPANS)
    means = layers[layers["tokens"] == "all"].groupby("baseline")["r2"].mean()
    for name, value in means.items():
        assert row[f"r2_{name}"] == pytest.approx(value)


def test_a_student_of_the_teachers_own_blocks_loses_nothing(planted):
    rows, layers = run_students(planted, planted.student([0, 1, 2, 3]))
    row = rows.iloc[0]
    for column in ("r2_mean", "r2_cls", "r2_registers", "r2_patch"):
        assert row[column] == pytest.approx(1, abs=1e-9)
    assert row["epsilon_relative"] < 1e-5
    assert row["accuracy_probe_frozen"] == row["accuracy_teacher"]
    assert row["accuracy_head"] == row["accuracy_teacher_head"]
    assert row["recovered_head"] == 1
    assert layers["epsilon"].max() == row["epsilon_max"] < 1e-3


def test_student_row_and_layers_against_numpy(planted):
    student = planted.student([0, 0, 1, 1])
    rows, layers = run_students(planted, student)
    row, test = rows.iloc[0], planted.states("test")
    assert list(rows) == STUDENT_COLUMNS.split()
    assert list(layers) == LAYER_COLUMNS.split()
    with torch.no_grad():
        predicted = student(test[:, 0])
    error = (predicted - test[:, 1:]).double().numpy()
    for entry in layers.itertuples():
        span, index = SPANS[entry.tokens], entry.layer - 1
        true = test[:, entry.layer]
        assert entry.r2 == pytest.approx(r2(true, predicted[:, index], span), rel=1e-5, abs=1e-6)
        norms = np.linalg.norm(error[:, index, span], axis=(1, 2))
        assert entry.epsilon == pytest.approx(norms.mean(), rel=1e-5)
        assert entry.epsilon_low < entry.epsilon < entry.epsilon_high
        own = np.linalg.norm(true[:, span].numpy(), axis=(1, 2)).mean()
        assert entry.norm == pytest.approx(own, rel=1e-5)
    assert len(layers) == 4 * 4
    whole = layers[layers["tokens"] == "all"]
    assert row["r2_mean"] == pytest.approx(whole["r2"].mean())
    assert row["epsilon_max"] == whole["epsilon"].max()
    assert row["epsilon_relative"] == pytest.approx((whole["epsilon"] / whole["norm"]).max())


def test_accuracies_of_a_student(planted):
    student = planted.student([0, 0, 1, 1])
    rows, _ = run_students(planted, student)
    row, test = rows.iloc[0], planted.states("test")
    weights = load_file(planted.folder / "weights")
    with torch.no_grad():
        last = student(test[:, 0])[:, -1]
        head = planted.teacher.logits(last).argmax(1).numpy()
    assert row["accuracy_head"] == np.mean(head == planted.splits["test"].labels)
    assert row["accuracy_probe_frozen"] == accuracy(planted, last, weights)
    assert row["accuracy_teacher"] == accuracy(planted, test[:, -1], weights)
    assert row["accuracy"] > row["accuracy_probe_frozen"]  # fine-tuning was needed, and helped
    assert row["recovered"] == row["accuracy"] / row["accuracy_teacher"]
    assert (row["k"], row["parameters"], row["segments"], row["n_test"]) == (2, 7, "1-4", 60)


def test_the_probe_is_fine_tuned_on_train_and_chosen_on_val(planted):
    student = planted.student([0, 0, 1, 1])
    rows, _ = run_students(planted, student)
    start, weights = nn.Linear(16, 3), load_file(planted.folder / "weights")
    start.load_state_dict(weights)
    last = {}
    with torch.no_grad():
        for split in planted.splits:
            last[split] = student(planted.states(split)[:, 0])[:, -1]
    train, val = (
        Features.of(features(planted, last[split]), planted.splits[split].labels)
        for split in ("train", "val")
    )
    seed = derive_seed(CONFIG.seed, "probe", "tiny", "tiny", "mean", "maxcut", 2, 0)
    probe = fit_probe(start=start, train=train, val=val, config=CONFIG.classification, seed=seed)
    expected = accuracy(planted, last["test"], dict(probe.state_dict()))
    assert rows["accuracy"].item() == pytest.approx(expected, abs=1.01 / 60)  # rounding: an image


def test_no_probe_ever_sees_the_test_split(planted, monkeypatch):
    seen = []

    def note(*, train, val, **rest):
        seen.append((train, val))
        return fit_probe(train=train, val=val, **rest)

    monkeypatch.setattr(readout, "fit_probe", note)
    run_students(planted, planted.student([0, 0, 1, 1]))
    assert len(seen) == 2  # the teacher's probe, and the student's
    for train, val in seen:
        assert (train.labels.numpy() == planted.splits["train"].labels).all()
        assert (val.labels.numpy() == planted.splits["val"].labels).all()


def test_one_row_per_student_and_twice_the_same(planted, monkeypatch):
    students = [planted.student([0, 0, 1, 1]), planted.student([0, 1, 2, 3])]
    rows, layers = run_students(planted, *students)
    first = (planted.folder / "probes" / "s.csv").read_bytes()
    assert list(rows["seed"]) == [0, 1]
    assert len(layers) == 2 * 4 * 4
    run_students(planted, *students, code="two")
    assert (planted.folder / "probes" / "s.csv").read_bytes() == first
    monkeypatch.setattr(readout, "IMAGES", 7)  # other blocks of images: the same but for rounding
    again, _ = run_students(planted, *students, code="three")
    numbers = ["r2_mean", "r2_cls", "epsilon_max", "accuracy_head", "accuracy_probe_frozen"]
    np.testing.assert_allclose(again[numbers], rows[numbers], rtol=1e-5, atol=1e-6)


def test_a_student_is_measured_once(planted, monkeypatch):
    """One more student, or an interruption before it, costs that one alone."""
    one, two = planted.student([0, 0, 1, 1]), planted.student([0, 1, 2, 3])
    run_students(planted, one)
    measured = []
    probe = evaluate._probe_student
    note = lambda probing, entry, *rest: (
        measured.append(entry["seed"]) or probe(probing, entry, *rest)
    )
    monkeypatch.setattr(evaluate, "_probe_student", note)
    run_students(planted, one, two)
    assert measured == [1]
    both_bytes = (planted.folder / "probes" / "s.csv").read_bytes()
    kept = planted.folder / "probes" / "seed0.json"
    kept.write_text(kept.read_text().replace("accuracy", "accuracies", 1))
    run_students(planted, one, two)
    assert measured == [1, 0]
    assert (planted.folder / "probes" / "s.csv").read_bytes() == both_bytes


def test_states_of_another_teacher_are_refused(planted):
    changed = copy.deepcopy(planted.teacher)
    changed.model.head.bias[0] = 1.0
    planted.path = planted.folder / "other.safetensors"
    save_teacher(changed, planted.path)
    with pytest.raises(RaptorError, match="holds the states of other weights"):
        run_teacher(planted)


def test_a_student_that_was_exchanged_is_refused(planted):
    run_teacher(planted)
    index = planted.index(planted.student([0, 0, 1, 1]))
    entries = json.loads(index.read_text())
    entries["students"][0]["sha256"] = "0" * 64
    index.write_text(json.dumps(entries))
    planted.index = lambda: index
    with pytest.raises(RaptorError, match="not the student in its index"):
        run_students(planted)


def test_a_student_of_another_depth_is_refused(planted):
    deep = planted.student([0, 1, 2, 3])
    deep.labels = (0, 1, 2, 3, 3)
    with pytest.raises(RaptorError, match=r"seed0.safetensors: does not predict .* \(4, 6, 8\)"):
        run_students(planted, deep)


def test_a_student_that_diverges_is_named(planted):
    broken = planted.student([0, 1, 2, 3])
    broken.blocks[1].norm1.weight.data[0] = float("inf")
    with pytest.raises(RaptorError, match=r"probe of tiny mean maxcut k=4 seed 0: .* not finite"):
        run_students(planted, broken)


@pytest.mark.parametrize("content", ["", "{}", '{"students": []}'])
def test_an_index_without_students_is_refused(planted, content):
    run_teacher(planted)
    path = planted.folder / "empty.json"
    path.write_text(content)
    planted.index = lambda: path
    with pytest.raises(RaptorError, match=r"empty\.json"):
        run_students(planted)


def test_a_probe_of_another_shape_is_refused(planted):
    save_file({"weight": torch.zeros(3, 5), "bias": torch.zeros(3)}, planted.folder / "weights")
    with pytest.raises(RaptorError, match=r"weights: a head of weight \(3, 5\) .* need \(3, 16\)"):
        run_students(planted, planted.student([0, 0, 1, 1]))


class Crops:
    """The training images of `planted`; a crop is the image, a little brighter or darker."""

    def __init__(self, split, spread: float) -> None:
        self.labels, self._split, self._spread = split.labels, split, spread

    def first(self, count):
        assert count is None
        return self

    def images(self, indices, seeds):
        moved = [np.random.default_rng(seed).normal() for seed in seeds]
        return self._split.images(indices) + self._spread * torch.tensor(moved).view(-1, 1, 1, 1)


def cropped(planted, monkeypatch, spread) -> tuple[pd.Series, pd.Series]:
    config = CONFIG.model_copy(
        update={"classification": CONFIG.classification.model_copy(update={"crops": "random"})}
    )
    splits = planted.splits
    monkeypatch.setattr(
        readout, "images_of", lambda manifest, path, name: Crops(splits[name], spread)
    )
    teacher, _, _ = run_teacher(planted, config)
    students, _ = run_students(planted, planted.student([0, 0, 1, 1]), config=config)
    return teacher, students.iloc[0]


def test_crops_that_show_all_of_an_image_change_nothing(planted, monkeypatch):
    """Teacher and student run on the images, not on stored states: the same but for rounding."""
    teacher, student = cropped(planted, monkeypatch, 0.0)
    (planted.folder / "weights").unlink()
    expected, _, _ = run_teacher(planted)
    of_store, _ = run_students(planted, planted.student([0, 0, 1, 1]))
    assert teacher["accuracy"] == pytest.approx(expected["accuracy"], abs=1.01 / 60)
    for column in ("accuracy", "accuracy_teacher", "accuracy_probe_frozen"):
        assert student[column] == pytest.approx(of_store[column].item(), abs=1.01 / 60)
    assert student["r2_mean"] == of_store["r2_mean"].item()


def test_a_probe_trained_on_crops_leaves_its_state_until_its_result_is_seen(planted, monkeypatch):
    cropped(planted, monkeypatch, 0.2)
    assert [path.name for path in (planted.folder / "state").iterdir()] == ["teacher"]
    remove_finished(planted.folder / "state")
    assert not (planted.folder / "state").exists()


def test_images_that_are_not_those_of_the_states_are_refused(planted, monkeypatch):
    other = SimpleNamespace(sample_ids=["another"])
    monkeypatch.setattr(images, "open_split", lambda config, split: other)
    monkeypatch.setattr(images.DataConfig, "model_validate_json", lambda text: None)
    config = CONFIG.model_copy(
        update={"classification": CONFIG.classification.model_copy(update={"crops": "random"})}
    )
    with pytest.raises(RaptorError, match=r"images of split train are not those of data\.root"):
        run_teacher(planted, config)
