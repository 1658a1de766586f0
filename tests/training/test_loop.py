"""The loop: history, log, interruption."""

from __future__ import annotations

import logging
import os
import signal

import pytest
import torch

from raptor.errors import RaptorError
from raptor.training import loop
from raptor.training.checkpoint import Checkpoint


class Problem:
    """Noisy regression; its steps use the random state, which the checkpoint must keep."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.model = torch.nn.Linear(3, 1)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=0.1, fused=True)
        self.done: list[int] = []

    def step(self, index: int) -> dict[str, float]:
        loss = self.model(torch.randn(8, 3)).square().mean()
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.done.append(index)
        return {"loss": loss.item()}

    def fit(self, steps=10, **keys):
        parts = {"model": self.model, "optimizer": self.optimizer}
        step = keys.pop("step", self.step)
        return loop.fit(title="problem", steps=steps, step=step, parts=parts, **keys)


def test_history_has_means_between_validations():
    rows = loop.fit(
        title="t", steps=5, step=lambda index: {"loss": float(index)}, parts={},
        validate=lambda: {"r2": 0.5}, validate_every=2,
    )  # fmt: skip
    assert rows == [
        {"step": 2, "loss": 0.5, "r2": 0.5},
        {"step": 4, "loss": 2.5, "r2": 0.5},
        {"step": 5, "loss": 4.0, "r2": 0.5},
    ]


@pytest.mark.parametrize("stop_at", [1, 5, 9, 10])
def test_interrupted_is_the_same_as_not_bit_for_bit(tmp_path, stop_at):
    whole = Problem()
    expected = whole.fit(validate_every=4)

    def interrupted(index):
        metrics = stopped.step(index)
        if index + 1 == stop_at:
            os.kill(os.getpid(), signal.SIGTERM)
        return metrics

    stopped = Problem()
    with pytest.raises(SystemExit) as caught:
        stopped.fit(step=interrupted, checkpoint=Checkpoint(tmp_path, "x"), validate_every=4)
    assert caught.value.code == 143
    again = Problem()
    torch.manual_seed(99)
    found = again.fit(checkpoint=Checkpoint(tmp_path, "x"), validate_every=4)
    assert found == expected
    assert again.done == list(range(stop_at, 10))
    assert all(map(torch.equal, whole.model.parameters(), again.model.parameters()))


def test_complete_training_is_only_loaded(tmp_path):
    one, two = Problem(), Problem()
    expected = one.fit(checkpoint=Checkpoint(tmp_path, "x"))
    assert two.fit(checkpoint=Checkpoint(tmp_path, "x")) == expected
    assert two.done == []
    assert torch.equal(one.model.weight, two.model.weight)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_loss_that_is_not_finite_stops_and_says_so(value):
    losses = [1.0, value, 1.0]
    with pytest.raises(RaptorError, match=r"not finite at step 2.*learning rate"):
        loop.fit(title="t", steps=3, step=lambda index: {"loss": losses[index]}, parts={})
    with pytest.raises(RaptorError, match="gradient_norm is not finite at step 1"):
        loop.fit(title="t", steps=1, step=lambda _: {"loss": 1.0, "gradient_norm": value}, parts={})


def test_the_log_shows_loss_r2_and_time_left_but_not_every_number(caplog, monkeypatch):
    monkeypatch.setattr(loop, "LOG_SECONDS", -1.0)
    with caplog.at_level(logging.INFO):
        loop.fit(
            title="t", steps=3, step=lambda index: {"loss": 0.25}, parts={},
            validate=lambda: {"r2": 0.75, "error/cls/1": 3.0}, validate_every=2,
        )  # fmt: skip
    assert "loss 0.25" in caplog.messages[0]
    for line in caplog.messages[1:]:
        assert "r2 0.75, loss 0.25" in line
        assert line.endswith("s left")
        assert "error" not in line


def test_signal_handlers_are_given_back():
    before = signal.getsignal(signal.SIGTERM)
    Problem().fit(steps=1)
    assert signal.getsignal(signal.SIGTERM) is before
