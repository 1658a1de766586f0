"""`python -m raptor.config > config/schema.json`: the JSON schema that editors complete from."""

import json

from raptor.config.experiment import Experiment

print(json.dumps(Experiment.model_json_schema(), indent=1, sort_keys=True))
