"""What the two profiles must agree on, and what that of a cluster must know of the rules."""

import re
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[1]
SLURM = (ROOT / "profiles/slurm/config.yaml").read_text()
RULES = "\n".join(path.read_text() for path in sorted((ROOT / "workflow/rules").glob("*.smk")))


@pytest.mark.parametrize("key", ["rerun-triggers", "rerun-incomplete", "max-jobs-per-timespan"])
def test_what_decides_what_runs_is_the_same_everywhere(key):
    default = yaml.safe_load((ROOT / "profiles/default/config.yaml").read_text())
    assert yaml.safe_load(SLURM)[key] == default[key]


def test_every_rule_with_a_gpu_is_in_the_alternatives():
    rules = re.split(r"^ *rule (\w+):$", RULES, flags=re.M)
    with_gpu = {name for name, text in zip(rules[1::2], rules[2::2], strict=True) if "gpu=" in text}
    assert with_gpu == set(re.findall(r"^#   (\w+): [*&]gpu", SLURM, re.M))


def test_every_rule_asks_for_more_at_each_attempt():
    asked = re.findall(r"^ +(?:mem|runtime)=(.*),$", RULES, re.M)
    assert len(asked) > 30
    assert [one for one in asked if not one.startswith(("growing(", "memory"))] == []
