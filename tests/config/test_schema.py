"""The generated schema and the manual follow the models."""

import json
import subprocess
import sys
from pathlib import Path

from raptor.config.experiment import Experiment

ROOT = Path(__file__).parents[2]


def test_schema_is_current():
    schema = json.loads((ROOT / "config/schema.json").read_text())
    assert schema == json.loads(json.dumps(Experiment.model_json_schema())), (
        "run: python -m raptor.config > config/schema.json"
    )


def test_the_manual_names_every_key():
    schema = json.loads((ROOT / "config/schema.json").read_text())
    manual = (ROOT / "config/README.md").read_text()
    sections = [schema, *schema["$defs"].values()]
    keys = {key for section in sections for key in section.get("properties", {})}
    # The figures are targets, explained as a group.
    keys -= set(schema["$defs"]["FiguresConfig"]["properties"])
    missing = [key for key in sorted(keys) if f"`{key}`" not in manual and f".{key}`" not in manual]
    assert not missing


def test_the_configuration_loads_without_torch_or_pandas():
    code = (
        "import sys; import raptor.config.load, raptor.targets, raptor.provenance;"
        "print(sorted({'torch', 'timm', 'pandas', 'numpy', 'zarr'} & set(sys.modules)))"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"
