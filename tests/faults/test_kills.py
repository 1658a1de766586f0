"""SIGKILL at random moments: run again, a stage ends with what an undisturbed run gives."""

from __future__ import annotations

import random
import shutil
import signal

import pytest
from children import run
from interruptions import LONG_RUN
from stages import LONG, STAGES, content

MOMENTS, SEED = (20, 1) if LONG_RUN else (3, 0)


@pytest.mark.parametrize("name", LONG)
def test_killed_and_run_again_the_result_is_the_same(name, without, expected, tried):
    moments, killed = random.Random(f"{SEED} {name}"), 0
    root = without(name)
    undisturbed = run(name, root)
    assert undisturbed.status == 0
    for _ in range(3 * MOMENTS):
        shutil.rmtree(root)
        without(name)
        ended = run(name, root, after=moments.uniform(0, undisturbed.seconds))
        if ended.status != -signal.SIGKILL:
            continue  # the kill came after the end
        killed += 1
        if moments.random() < 0.5:  # Snakemake was there, or was killed too
            STAGES[name].remove_outputs(root)
        again = run(name, root)
        assert again.status == 0, again.said
        assert content(root) == expected
        tried("SIGKILL at a random moment", name, finished=1)
        if killed == MOMENTS:
            return
    pytest.fail(f"only {killed} of {MOMENTS} kills came before the end")
