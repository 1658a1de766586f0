"""Tables of the figures, in the shapes that the claims are tested on."""

from __future__ import annotations

import pandas as pd
import pytest

from raptor.scorecard.tidy import read_tidy


@pytest.fixture
def save(tmp_path):
    def write(name: str, rows: list[dict]):
        pd.DataFrame(rows).to_csv(tmp_path / name, index=False)
        return tmp_path / name

    return write


def test_ablations_are_the_students_behind_the_table(save):
    keys = {"teacher": "vit", "partition": "maxcut", "k": 3}
    steps = [("forcing", "teacher_forcing", "own"), ("annealed", "autoregressive", "own")]
    steps += [("annealed", "probe", "probe"), ("start", "phase_mean", "own")]
    rows = [keys | {"recipe": r, "added": added, "head": head} for r, added, head in steps]
    student = keys | dict.fromkeys(["accuracy", "recovered", "accuracy_teacher", "n_test"], 1)
    students = [
        student | {"recipe": recipe, "seed": seed, "accuracy_head": base + seed / 10}
        for recipe, base in (("forcing", 0.1), ("annealed", 0.7), ("start", 0.9), ("other", 0.5))
        for seed in (0, 1)
    ]
    students.append(students[0] | {"k": 2, "accuracy_head": 0.0})
    paths = {"ablations": save("t.csv", rows), "fidelity": save("f.csv", students)}
    found = read_tidy(paths)["ablations"]
    assert found.to_numpy().tolist() == [
        ["vit", 0, 0, 0.1],
        ["vit", 0, 1, 0.2],
        ["vit", 1, 0, 0.7],
        ["vit", 1, 1, pytest.approx(0.8)],
    ]
    assert "ablations" not in read_tidy({"ablations": paths["ablations"]})


def test_stochastic_depth_leaves_out_the_untrained(save):
    rows = []
    for teacher, p, trained in (("a", 0.0, 1), ("b", 0.3, 1), ("bare", 0.0, 0)):
        own = {"teacher": teacher, "p": p, "trained": trained}
        rows += [own | {"part": "student", "metric": "r2_mean", "seed": s, "value": p + s}
                 for s in (0, 1)]  # fmt: skip
        rows.append(own | {"part": "student", "metric": "r2_cls", "seed": 0, "value": 9})
        rows.append(own | {"part": "similarity", "metric": "similarity", "value": 1 - p})
        rows.append(own | {"part": "similarity", "metric": "contrast", "value": 9})
    found = read_tidy({"stochastic_depth": save("s.csv", rows)})["stochastic_depth"]
    assert list(found) == ["teacher", "p", "seed", "r2_mean", "mean_similarity"]
    assert found.to_numpy().tolist() == [
        ["a", 0.0, 0.0, 0.0, 1.0],
        ["a", 0.0, 1.0, 1.0, 1.0],
        ["b", 0.3, 0.0, 0.3, 0.7],
        ["b", 0.3, 1.0, 1.3, 0.7],
    ]


def test_overfitting_takes_the_losses_of_each_checkpoint(save):
    rows = []
    for teacher, epoch in (("early", 5), ("late", 20)):
        own = {"teacher": teacher, "epoch": epoch}
        for split, value in (("train", 0.1), ("val", epoch / 10), ("test", 9)):
            loss = {"part": "teacher", "metric": "loss", "split": split, "value": value}
            rows.append(own | loss)
        rows.append(own | {"part": "teacher", "metric": "accuracy", "split": "val", "value": 9})
        rows.append(own | {"part": "student", "metric": "r2_mean", "seed": 0, "value": 0.9})
    rows.append({"teacher": "late", "epoch": 7, "part": "curve", "metric": "val_loss", "value": 9})
    found = read_tidy({"overfitting": save("o.csv", rows)})["overfitting"]
    assert list(found) == ["teacher", "epoch", "train_loss", "val_loss", "seed", "r2_mean"]
    assert found.to_numpy().tolist() == [
        ["early", 5, 0.1, 0.5, 0, 0.9],
        ["late", 20, 0.1, 2, 0, 0.9],
    ]
