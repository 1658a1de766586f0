"""Schedules at their corners."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raptor.training.schedules import teacher_forcing, warmup_cosine, warmup_linear

COSINE = {"steps": 101, "warmup_steps": 10, "lr": 1.0, "min_lr": 0.1}
FORCING = {"steps": 100, "start": 1.0, "end": 0.0, "anneal": 0.25}


def test_warmup_cosine():
    assert warmup_cosine(0, **COSINE) == pytest.approx(0.1)
    assert warmup_cosine(9, **COSINE) == 1.0
    assert warmup_cosine(10, **COSINE) == 1.0
    assert warmup_cosine(55, **COSINE) == pytest.approx(0.55)  # half way, half between
    assert warmup_cosine(100, **COSINE) == pytest.approx(0.1)


def test_warmup_linear():
    assert warmup_linear(0, steps=10, warmup_steps=2, lr=1.0) == 0.5
    assert warmup_linear(6, steps=10, warmup_steps=2, lr=1.0) == 0.5
    assert warmup_linear(9, steps=10, warmup_steps=2, lr=1.0) == pytest.approx(0.125)


def test_teacher_forcing_is_linear_then_constant():
    found = [teacher_forcing(step, **FORCING) for step in (0, 5, 24, 25, 99)]
    assert found == pytest.approx([1.0, 0.8, 0.04, 0.0, 0.0])
    constant = {**FORCING, "anneal": 0.0, "end": 1.0}
    assert [teacher_forcing(step, **constant) for step in (0, 99)] == [1.0, 1.0]


@given(st.integers(1, 500), st.integers(0, 600), st.floats(1e-4, 1), st.floats(0, 1e-4))
def test_rates_stay_between_their_bounds(steps, warmup, lr, low):
    rates = [
        warmup_cosine(step, steps=steps, warmup_steps=warmup, lr=lr, min_lr=low)
        for step in range(steps)
    ]
    assert all(0 <= rate <= lr * (1 + 1e-12) for rate in rates)
    after = rates[warmup:]
    assert all(a >= b - 1e-12 for a, b in pairwise(after))
