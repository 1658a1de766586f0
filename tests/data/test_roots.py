"""Where the files of each source are: `data.root`, one path or a map, or RAPTOR_DATA."""

import copy
from pathlib import Path

import pytest
import yaml

from raptor.config.data import DataConfig, Splits
from raptor.config.load import ConfigError, load
from raptor.data.roots import existing
from raptor.errors import RaptorError

ROOT = Path(__file__).parents[2]


def config(source="imagenet", root=None, **keys):
    splits = Splits(train=2, val=2, test=2)
    return DataConfig(source=source, root=root, splits=splits, mean=[0.0], std=[1.0], **keys)


def test_one_path_is_of_the_source_itself(monkeypatch):
    monkeypatch.setenv("RAPTOR_DATA", "/sets")
    one = config("imagenet", "/here/it is")
    assert one.folder("imagenet") == Path("/here/it is")
    assert one.folder("ade20k") == Path("/sets/ADEChallengeData2016")


def test_a_map_goes_before_the_environment(monkeypatch):
    monkeypatch.setenv("RAPTOR_DATA", "~/sets")
    paths = {"imagenet": "data/in", "ade20k": "~/ade"}
    one = config("imagenet", paths)
    assert one.folder("imagenet") == Path("data/in")
    assert one.folder("ade20k") == Path.home() / "ade"
    assert one.folder("nyuv2") == Path.home() / "sets/nyuv2"


@pytest.mark.parametrize("variable", [None, "", "/sets"])
def test_folders_below_the_environment(monkeypatch, variable):
    if variable is None:
        monkeypatch.delenv("RAPTOR_DATA", raising=False)
    else:
        monkeypatch.setenv("RAPTOR_DATA", variable)
    found = {
        source: config(source).folder(source).as_posix()
        for source in ("fashion_mnist", "cifar10", "cifar100", "imagenet")
    }
    above = variable or "data"
    assert found == {
        "fashion_mnist": f"{above}/fashion-mnist",
        "cifar10": f"{above}/cifar-10",
        "cifar100": f"{above}/cifar-100",
        "imagenet": f"{above}/imagenet",
    }


def test_a_folder_that_is_not_there(tmp_path, monkeypatch):
    monkeypatch.setenv("RAPTOR_DATA", str(tmp_path))
    with pytest.raises(RaptorError, match=r"data\.root: folder .*imagenet does not exist.*RAPTOR_"):
        existing(config(), "imagenet")
    (tmp_path / "imagenet").mkdir()
    assert existing(config(), "imagenet") == tmp_path / "imagenet"


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"root": {"imagnet": "a"}}, "data.root: 'imagnet' is no source .* did you mean imagenet?"),
        ({"root": {"zebra": "a"}}, "data.root: 'zebra' is no source .* choose from .*nyuv2"),
        ({"root": {"ade20k": 3}}, "data.root: ade20k: 3 is not a path"),
        ({"root": 3}, "data.root: 3: give a path, or a map of source: path"),
        ({"root": ["a"]}, r"data.root: \['a'\]: give a path"),
        ({"source": "image_folder"}, "data.root: source image_folder reads files; give the folder"),
        (
            {"source": "image_folder", "root": {"imagenet": "a"}},
            "data.root: source image_folder reads files; give the folder",
        ),
        ({"root": "somewhere"}, "data.root: 'somewhere': source digits is embedded"),
        ({"resize": 27}, "data.resize: 27 is less than data.image_size 28"),
    ],
)
def test_faults_of_the_configuration(keys, message):
    raw = yaml.safe_load((ROOT / "config/smoke.yaml").read_text())
    raw["data"] |= keys
    with pytest.raises(ConfigError, match=message) as error:
        load(raw)
    assert "1 fault(s)" in str(error.value)


def test_what_is_accepted():
    raw = yaml.safe_load((ROOT / "config/smoke.yaml").read_text())
    for keys in (
        {"root": {"ade20k": "a", "nyuv2": "b"}, "resize": 32},  # for dense probes beside digits
        {"source": "imagenet"},
        {"source": "imagenet", "root": {"imagenet": "a"}},
        {"source": "image_folder", "root": {"image_folder": "a"}},
    ):
        changed = copy.deepcopy(raw)
        changed["data"] |= keys
        assert load(changed).data.root == keys.get("root")
