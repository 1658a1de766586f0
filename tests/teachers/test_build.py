"""Building teachers: seeded weights, and stochastic depth at one rate for all layers."""

import pytest
import torch

from raptor.config.data import DataConfig, Splits
from raptor.config.teachers import TeacherTraining, TrainedTeacher
from raptor.teachers.build import build_teacher
from raptor.tokens import TokenLayout

DATA = DataConfig(splits=Splits(train=8, val=4, test=4), mean=[0.1], std=[0.3])


def spec(**keys):
    keys = {"depth": 3, "width": 16, "heads": 2, "mlp_ratio": 2.0, "patch_size": 7, **keys}
    return TrainedTeacher(training=TeacherTraining(epochs=1), **keys)


def weights(teacher):
    return torch.cat([value.flatten() for value in teacher.state_dict().values()])


def test_the_architecture_is_the_specs():
    teacher = build_teacher(spec(layer_scale=0.1), DATA, 5)
    assert teacher.layout == TokenLayout(cls=1, registers=4, patches=16)
    assert (teacher.depth, teacher.width, teacher.num_heads, teacher.num_classes) == (3, 16, 2, 5)
    assert teacher.blocks[0].mlp.fc1.out_features == 32
    assert torch.all(teacher.blocks[2].ls1.gamma == 0.1)
    assert teacher(torch.zeros(2, 1, 28, 28)).shape == (2, 5)


def test_weights_follow_from_the_seed_alone():
    torch.manual_seed(1)
    state = torch.get_rng_state()
    first = weights(build_teacher(spec(), DATA, 10))
    assert torch.equal(torch.get_rng_state(), state)
    torch.manual_seed(2)
    other_training = spec().model_copy(update={"training": TeacherTraining(epochs=9, lr=1.0)})
    assert torch.equal(weights(build_teacher(other_training, DATA, 10)), first)
    assert torch.equal(weights(build_teacher(spec(stochastic_depth=0.5), DATA, 10)), first)
    assert not torch.equal(weights(build_teacher(spec(seed=1), DATA, 10)), first)


def test_stochastic_depth_has_one_rate_at_every_layer():
    rate, count = 0.3, 20_000
    teacher = build_teacher(spec(stochastic_depth=rate), DATA, 10).train()
    torch.manual_seed(0)
    for block in teacher.blocks:
        for branch in (block.drop_path1, block.drop_path2):
            kept = branch(torch.ones(count, 1, 1))
            assert kept.unique().tolist() == pytest.approx([0.0, 1 / (1 - rate)])
            dropped = (kept == 0).float().mean().item()
            assert dropped == pytest.approx(rate, abs=5 * (rate * (1 - rate) / count) ** 0.5)


def test_no_stochastic_depth_at_rate_zero_nor_in_evaluation():
    images = torch.randn(4, 1, 28, 28)
    teacher = build_teacher(spec(), DATA, 10).train()
    assert torch.equal(teacher(images), teacher.eval()(images))
    dropping = build_teacher(spec(stochastic_depth=0.5), DATA, 10)
    assert not torch.equal(dropping.train()(images), dropping.train()(images))
    assert torch.equal(dropping.eval()(images), teacher(images))
