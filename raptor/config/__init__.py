"""The configuration: one strict model, validated before anything runs."""

from raptor.config.experiment import Experiment
from raptor.config.load import ConfigError, load, load_yaml

__all__ = ["ConfigError", "Experiment", "load", "load_yaml"]
