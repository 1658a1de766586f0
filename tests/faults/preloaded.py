"""What the forkserver imports once, so that a child costs its own time: torch and raptor."""

import importlib
import os

import torch
from stages import DATA

from raptor.data.split import open_split
from raptor.training import loop

torch.set_num_threads(1)
for module in (
    "activations.read", "activations.write", "branches", "dense", "dynamics.measure",
    "interventions", "job", "phases", "probes.evaluate", "similarity", "teachers.train",
    "training.raptor",
):  # fmt: skip
    importlib.import_module(f"raptor.{module}")
open_split(DATA, "train")
loop.SAVE_SECONDS = 0.02  # several checkpoints in a training of half a second
os.fsync = lambda file: None  # the machine stays on: what a killed process wrote is there
