"""Nothing that is read runs code, and no name leads out of its folder."""

from __future__ import annotations

import ast
import pickle
import re
from pathlib import Path

import pytest
import torch
import yaml

from raptor.activations.manifest import Shard, TeacherFile
from raptor.config.load import ConfigError, load, load_yaml
from raptor.errors import RaptorError
from raptor.files import plain_path
from raptor.training.checkpoint import Checkpoint

ROOT = Path(__file__).parents[1]
SOURCES = [*(ROOT / "raptor").rglob("*.py"), *(ROOT / "workflow").rglob("*.py")]
RULES = [ROOT / "Snakefile", *(ROOT / "workflow").rglob("*.smk")]
# What the one module that reads the authors' pickles needs of `pickle`, and the names of errors.
OF_PICKLE = {"raptor/models/published.py", "raptor/weights.py"}


def calls() -> list[tuple[str, str, dict[str, object]]]:
    """File, dotted name and constant keywords of every call in the source."""
    found = []
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call):
                given = {
                    keyword.arg: getattr(keyword.value, "value", ...) for keyword in node.keywords
                }
                found.append((str(path.relative_to(ROOT)), ast.unparse(node.func), given))
    return found


CALLS = calls()


def test_the_source_is_looked_at():
    assert len(SOURCES) > 100
    assert {"torch.load", "np.load", "yaml.safe_load", "subprocess.run"} <= {
        name for _, name, _ in CALLS
    }


def test_torch_and_numpy_load_numbers_alone():
    loads = [(path, given) for path, name, given in CALLS if name == "torch.load"]
    assert all(given.get("weights_only") is True for _, given in loads)
    arrays = [(path, given) for path, name, given in CALLS if name in ("np.load", "numpy.load")]
    assert all(given.get("allow_pickle", False) is False for _, given in arrays)


def test_nothing_is_unpickled_or_evaluated():
    forbidden = re.compile(
        r"(pickle|cPickle|dill|joblib|shelve|marshal)\.|pd\.read_pickle|read_pickle|"
        r"(builtins\.)?(eval|exec|compile|__import__)$|os\.(system|popen|exec|spawn)|"
        r"yaml\.(load|load_all|unsafe_load|full_load)$"
    )
    assert [(path, name) for path, name, _ in CALLS if forbidden.match(name)] == []
    imports = {
        str(path.relative_to(ROOT))
        for path in SOURCES
        if re.search(r"^(import|from) pickle\b", path.read_text(), re.M)
    }
    assert imports == OF_PICKLE


def test_no_string_reaches_a_shell():
    assert [path for path, _, given in CALLS if given.get("shell", False) is not False] == []
    assert [str(path) for path in RULES if re.search(r"^\s*shell:", path.read_text(), re.M)] == []


class Bomb:
    """A pickle that makes a file where it is loaded."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self):
        return (Path.touch, (self.marker,))


def test_a_training_state_that_would_run_code_runs_none(tmp_path):
    checkpoint = Checkpoint(tmp_path, "one")
    checkpoint.save({"step": 1}, step=1)
    state = next(tmp_path.glob("state-*.pt"))
    marker = tmp_path / "ran"
    torch.save(Bomb(marker), state)
    index = (tmp_path / "state.json").read_text()
    from raptor.files import sha256  # as if whoever exchanged it had taken care

    (tmp_path / "state.json").write_text(re.sub(r"[0-9a-f]{64}", sha256(state), index))
    with pytest.raises(pickle.UnpicklingError):
        Checkpoint(tmp_path, "one").load()
    assert not marker.exists()


def test_a_configuration_that_would_run_code_runs_none(tmp_path):
    marker = tmp_path / "ran"
    path = tmp_path / "bad.yaml"
    path.write_text(f"experiment: !!python/object/apply:os.system ['touch {marker}']\n")
    with pytest.raises((ConfigError, RaptorError)):
        load_yaml(path)
    assert not marker.exists()


BAD = ["../x", "/x", "a/b", "..", ".", "", "a\n", "a\0b", "a\x1bb", "x" * 201, "a b", "$(touch x)",
       "a;b", "`x`", "ä" * 120]  # fmt: skip


def smoke() -> dict:
    return yaml.safe_load((ROOT / "config/smoke.yaml").read_text())


@pytest.mark.parametrize("bad", BAD)
@pytest.mark.parametrize("section", ["teachers", "recipes", "students"])
def test_names_that_become_paths_are_letters_and_digits(section, bad):
    raw = smoke()
    raw[section][bad] = next(iter(raw[section].values()))
    with pytest.raises(ConfigError, match=section):
        load(raw)


@pytest.mark.parametrize("bad", BAD)
def test_so_is_the_name_of_an_experiment(bad):
    with pytest.raises(ConfigError, match="experiment"):
        load({**smoke(), "experiment": bad})


@pytest.mark.parametrize(
    "bad", ["../x", "a/../x", "/x", "a//b", "", ".", "a/..", "a\nb", "a\0b", "x" * 201, "ä" * 120]
)
def test_paths_in_files_stay_below_their_folder(bad):
    with pytest.raises(ValueError, match=r"path|control|name|text"):
        plain_path(bad)
    with pytest.raises(ValueError, match="file"):
        Shard(file=bad, bytes=1, sha256="0" * 64)


def test_a_teacher_lies_beside_its_manifest_or_above():
    assert TeacherFile(name="vit", sha256="0" * 64, path="../teachers/vit.safetensors")
    for bad in ("/etc/passwd", "../a/../../b", "..", "a\n"):
        with pytest.raises(ValueError, match="path"):
            TeacherFile(name="vit", sha256="0" * 64, path=bad)


@pytest.mark.parametrize("good", ["a", "c/0/0/0", "a b.safetensors", "seed0.json", "ä"])
def test_plain_paths_are_left_as_they_are(good):
    assert plain_path(good) == good
