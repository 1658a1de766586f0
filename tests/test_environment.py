"""One list of dependencies: pyproject.toml; environment.yml and the lock follow it."""

import itertools
import re
import tomllib
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[1]
CONDA_NAMES = {"torch": "pytorch"}


def project():
    return tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def test_conda_ranges_equal_pip_ranges():
    conda = yaml.safe_load((ROOT / "environment.yml").read_text())["dependencies"]
    ours = [f"python{project()['requires-python']}"]
    for requirement in project()["dependencies"]:
        name, rest = re.fullmatch(r"([\w-]+)(.*)", requirement).groups()
        ours.append(CONDA_NAMES.get(name, name) + rest)
    assert sorted(conda) == sorted(ours)


def test_the_lock_pins_every_dependency():
    lock = (ROOT / "requirements.lock").read_text().lower()
    extras = project()["optional-dependencies"].values()
    for requirement in itertools.chain(project()["dependencies"], *extras):
        name = re.match(r"[\w-]+", requirement).group()
        assert re.search(rf"^{name}==", lock, re.M), name
