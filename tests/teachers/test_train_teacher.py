"""Training teachers: interrupted is the same as not, and every written fact is true."""

import json
import os
import signal

import pandas as pd
import pytest
import torch
from torch.nn import functional as F

import raptor.teachers.train
import raptor.training.loop
from raptor.config.data import DataConfig, Splits
from raptor.config.teachers import Augmentation, TeacherTraining, TrainedTeacher
from raptor.data import open_split
from raptor.errors import RaptorError
from raptor.teachers.build import build_teacher
from raptor.teachers.evaluate import evaluate
from raptor.teachers.files import load_teacher, teacher_facts
from raptor.teachers.train import make_checkpoint, make_untrained, train_teacher
from raptor.training.finished import remove_finished

CPU = torch.device("cpu")
DATA = DataConfig(splits=Splits(train=60, val=20, test=30), mean=[0.13], std=[0.31])


def spec(*, stochastic_depth=0.2, **keys):
    training = {
        "epochs": 3, "batch_size": 16, "lr": 3e-3, "warmup_steps": 2, "label_smoothing": 0.1,
        "augmentation": Augmentation(shift_px=2, rotate_deg=10.0, scale=0.1), **keys,
    }  # fmt: skip
    return TrainedTeacher(
        depth=2, width=16, heads=2, mlp_ratio=2.0, patch_size=14, registers=1,
        stochastic_depth=stochastic_depth, training=TeacherTraining(**training),
    )  # fmt: skip


def train(folder, wanted, identity="one", data=DATA):
    output = folder / "teachers" / "small.safetensors"
    train_teacher(
        spec=wanted, data=data, output=output, history=folder / "teachers" / "small.history.csv",
        state=folder / ".state" / "small", identity=identity, device=CPU,
    )  # fmt: skip
    return output


def files(folder):
    """The results; states are forgotten, as they are when a run ends."""
    remove_finished(folder)
    return {p.relative_to(folder): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def _raise():
    raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("interruption", "error"),
    [(_raise, KeyboardInterrupt), (lambda: os.kill(os.getpid(), signal.SIGTERM), SystemExit)],
    ids=["killed", "terminated"],
)
def test_interrupted_is_the_same_as_not(tmp_path, monkeypatch, interruption, error):
    wanted = spec(checkpoint_epochs=[0, 1, 3])
    train(tmp_path / "whole", wanted)
    whole = files(tmp_path / "whole")
    original, calls = raptor.teachers.train.augment, []

    def interrupted(*arguments):
        calls.append(1)
        if len(calls) == 6:  # in the middle of epoch 2 of 3
            interruption()
        return original(*arguments)

    monkeypatch.setattr(raptor.teachers.train, "augment", interrupted)
    monkeypatch.setattr(raptor.training.loop, "SAVE_SECONDS", 0.0)
    with pytest.raises(error):
        train(tmp_path / "halves", wanted)
    assert not (tmp_path / "halves" / "teachers").exists()
    torch.rand(3)  # the random state of another process
    train(tmp_path / "halves", wanted)
    assert len(calls) in (9, 10)  # 9 steps in all; the killed one was done again
    assert files(tmp_path / "halves") == whole
    assert {str(path) for path in whole} == {
        f"teachers/{name}"
        for name in (
            "small.safetensors", "small.json", "small.history.csv",
            "small/epoch-0.safetensors", "small/epoch-0.json",
            "small/epoch-1.safetensors", "small/epoch-1.json",
            "small/epoch-3.safetensors", "small/epoch-3.json",
        )
    }  # fmt: skip


def test_outputs_removed_after_the_end_are_made_again_without_a_step(tmp_path, monkeypatch):
    """As when SLURM's time is over just then, or nobody saw the job end."""
    wanted = spec(checkpoint_epochs=[1])
    output = train(tmp_path, wanted)
    written = {path.name: path.read_bytes() for path in output.parent.glob("*.*")}
    for name in written:
        (output.parent / name).unlink()
    remove_finished(tmp_path)  # of a run that asked for something else
    monkeypatch.setattr(raptor.teachers.train, "augment", _raise)  # no step is taken
    train(tmp_path, wanted)
    assert {path.name: path.read_bytes() for path in output.parent.glob("*.*")} == written
    remove_finished(tmp_path)
    assert not (tmp_path / ".state/small").exists()


def test_a_state_of_another_training_is_not_used(tmp_path, monkeypatch):
    monkeypatch.setattr(raptor.training.loop, "SAVE_SECONDS", 0.0)
    real = raptor.teachers.train.warmup_linear

    def stop(step, **keys):
        if step == 5:
            raise KeyboardInterrupt
        return real(step, **keys)

    monkeypatch.setattr(raptor.teachers.train, "warmup_linear", stop)
    with pytest.raises(KeyboardInterrupt):
        train(tmp_path, spec(lr=1e-2), identity="other")
    assert (tmp_path / ".state" / "small" / "state.json").exists()
    monkeypatch.setattr(raptor.teachers.train, "warmup_linear", real)
    output = train(tmp_path, spec())
    expected = train(tmp_path / "clean", spec())
    assert output.read_bytes() == expected.read_bytes()


def test_facts_and_history(tmp_path):
    output = train(tmp_path, spec(train_images=40))
    facts, teacher = teacher_facts(output), load_teacher(output)
    assert facts["images"] == {"train": 40, "val": 20, "test": 30}
    assert facts["epoch"] == 3
    assert TrainedTeacher.model_validate_json(json.dumps(facts["spec"])) == spec(train_images=40)
    assert DataConfig.model_validate_json(json.dumps(facts["data"])) == DATA
    for name, count in facts["images"].items():
        split = open_split(DATA, name)
        logits = teacher.model(torch.stack([split[i][0] for i in range(count)]))
        labels = torch.tensor([split[i][1] for i in range(count)])
        share = sum(
            int(row.argmax()) == int(label) for row, label in zip(logits, labels, strict=True)
        )
        assert facts["accuracy"][name] == pytest.approx(share / count)
        assert facts["loss"][name] == pytest.approx(
            F.cross_entropy(logits, labels).item(), rel=1e-5
        )
    table = pd.read_csv(tmp_path / "teachers" / "small.history.csv")
    assert list(table.columns) == ["step", "epoch", "loss", "val_loss", "val_accuracy"]
    assert table["step"].tolist() == [2, 4, 6]  # 40 images are two full batches of 16
    assert table["epoch"].tolist() == [1, 2, 3]
    assert table["val_accuracy"].iloc[-1] == facts["accuracy"]["val"]
    assert table["val_loss"].iloc[-1] == facts["loss"]["val"]


def test_the_first_loss_by_hand(tmp_path):
    # One step from the initial weights on all images: no augmentation, no smoothing, no dropping.
    plain = {"augmentation": Augmentation(), "label_smoothing": 0.0, "epochs": 1, "batch_size": 60}
    train(tmp_path, spec(stochastic_depth=0.0, **plain))
    loss = pd.read_csv(tmp_path / "teachers" / "small.history.csv")["loss"].item()
    split = open_split(DATA, "train")
    teacher = build_teacher(spec(), DATA, 10).eval()
    expected = F.cross_entropy(teacher(split.images(range(60))), torch.from_numpy(split.labels))
    assert loss == pytest.approx(expected.item(), rel=1e-5)


def test_training_learns(tmp_path):
    wanted = spec(epochs=50, augmentation=Augmentation(), stochastic_depth=0.0, label_smoothing=0.0)
    facts = teacher_facts(train(tmp_path, wanted))
    assert facts["accuracy"]["train"] > 0.9
    table = pd.read_csv(tmp_path / "teachers" / "small.history.csv")
    assert len(table) == 17  # of 50 epochs every third, and the last: never more than 20
    assert table["loss"].iloc[-1] < 0.5 * table["loss"].iloc[0]


def test_kept_weights_lie_on_the_way(tmp_path):
    output = train(tmp_path, spec(checkpoint_epochs=[3, 0, 2]))
    assert teacher_facts(output)["kept_epochs"] == [0, 2, 3]
    kept = {e: load_teacher(output.with_suffix("") / f"epoch-{e}.safetensors") for e in (0, 2, 3)}
    initial = build_teacher(spec(), DATA, 10)
    final = load_teacher(output)
    for name, value in initial.state_dict().items():
        assert torch.equal(kept[0].state_dict()[name], value)
        assert torch.equal(kept[3].state_dict()[name], final.state_dict()[name])
    assert not torch.equal(kept[2].model.head.weight, final.model.head.weight)
    assert not torch.equal(kept[2].model.head.weight, initial.model.head.weight)


def test_checkpoint_teacher(tmp_path):
    output = train(tmp_path, spec(checkpoint_epochs=[1]))
    early = tmp_path / "teachers" / "early.safetensors"
    make_checkpoint(source=output.with_suffix(".json"), epoch=1, output=early)
    kept = output.with_suffix("") / "epoch-1.safetensors"
    assert early.read_bytes() == kept.read_bytes()
    assert early.with_suffix(".json").read_bytes() == kept.with_suffix(".json").read_bytes()
    facts = teacher_facts(early)
    assert facts["epoch"] == 1
    test = open_split(DATA, "test")
    assert facts["accuracy"]["test"] == evaluate(load_teacher(early), test, CPU)["accuracy"]
    with pytest.raises(RaptorError, match=r"kept no weights after epoch 2 \(it has \[1\]\)"):
        make_checkpoint(source=output, epoch=2, output=early)
    kept.write_bytes(kept.read_bytes()[:-1])
    with pytest.raises(RaptorError, match=r"epoch-1\.safetensors: damaged"):
        make_checkpoint(source=output, epoch=1, output=early)


def test_untrained_teacher(tmp_path):
    output = tmp_path / "teachers" / "untrained.safetensors"
    make_untrained(spec=spec(), data=DATA, output=output, device=CPU)
    loaded = load_teacher(output)
    for name, value in build_teacher(spec(), DATA, 10).state_dict().items():
        assert torch.equal(loaded.state_dict()[name], value)
    facts = teacher_facts(output)
    assert facts["epoch"] == 0
    assert facts["images"] == {"train": 60, "val": 20, "test": 30}
    assert facts["loss"]["test"] == pytest.approx(torch.tensor(10.0).log().item(), abs=0.2)


def test_more_training_images_than_there_are(tmp_path):
    with pytest.raises(RaptorError, match=r"train_images: 61 is more than the 60 images"):
        train(tmp_path, spec(train_images=61))


def test_evaluation_restores_the_mode_and_is_deterministic():
    teacher = build_teacher(spec(stochastic_depth=0.5), DATA, 10).train()
    split = open_split(DATA, "train")
    first, second = evaluate(teacher, split, CPU), evaluate(teacher, split, CPU)
    assert first == second
    assert teacher.training


def test_what_decays():
    teacher = build_teacher(spec(), DATA, 10)
    optimizer = raptor.teachers.train._optimizer(teacher, spec().training)
    names = {id(value): name for name, value in teacher.model.named_parameters()}
    decays = {
        names[id(p)]: group["weight_decay"]
        for group in optimizer.param_groups
        for p in group["params"]
    }
    assert decays.keys() == set(names.values())
    matrices = {name for name in decays if name.endswith("weight") and "norm" not in name}
    assert {name for name, decay in decays.items() if decay == 0.05} == matrices
    assert {decay for name, decay in decays.items() if name not in matrices} == {0.0}
