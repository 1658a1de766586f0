"""The published code's saved modules, read for the tests without running any code from them."""

from __future__ import annotations

import pickle
import zipfile
from collections import OrderedDict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

_TORCH_NN = "torch.nn.modules"
_MODULES = {
    ("raptor", "Raptor"),
    ("block", "Block"),
    ("block", "LayerScale"),
    ("block", "SwiGLU"),
    (f"{_TORCH_NN}.container", "Sequential"),
    (f"{_TORCH_NN}.container", "ModuleList"),
    (f"{_TORCH_NN}.normalization", "LayerNorm"),
    (f"{_TORCH_NN}.activation", "MultiheadAttention"),
    (f"{_TORCH_NN}.activation", "SiLU"),
    (f"{_TORCH_NN}.linear", "NonDynamicallyQuantizableLinear"),
    (f"{_TORCH_NN}.linear", "Linear"),
}


class SavedModule(SimpleNamespace):
    """The attributes that a module had when it was saved; it has no behaviour."""

    def parameters(self, prefix: str = "") -> dict[str, torch.Tensor]:
        """Dotted name -> tensor, over this module and those inside it."""
        found = {prefix + k: v for k, v in self._parameters.items() if v is not None}
        for name, module in self._modules.items():
            found |= module.parameters(f"{prefix}{name}.")
        return found


def _tensor(
    storage: np.ndarray, offset: int, size: tuple, stride: tuple, *_: object
) -> torch.Tensor:
    return torch.as_strided(torch.from_numpy(storage), size, stride, offset)


_ALLOWED: dict[tuple[str, str], Any] = {
    **dict.fromkeys(_MODULES, SavedModule),
    ("collections", "OrderedDict"): OrderedDict,
    ("__builtin__", "set"): set,
    ("torch", "FloatStorage"): np.dtype("<f4"),
    ("torch._utils", "_rebuild_tensor_v2"): _tensor,
    ("torch._utils", "_rebuild_parameter"): lambda tensor, *_: tensor,
}


class _Reader(pickle.Unpickler):
    def __init__(self, archive: zipfile.ZipFile, root: str) -> None:
        super().__init__(archive.open(f"{root}/data.pkl"))
        self._archive, self._root = archive, root

    def find_class(self, module: str, name: str) -> Any:
        return _ALLOWED[module, name]

    def persistent_load(self, pid: tuple) -> np.ndarray:
        _, dtype, key, _, size = pid
        return np.frombuffer(self._archive.read(f"{self._root}/data/{key}"), dtype, size).copy()


def read_saved_module(path: Path) -> SavedModule:
    """A module saved whole by `torch.save`; a class that is not known raises KeyError."""
    with zipfile.ZipFile(path) as archive:
        return _Reader(archive, archive.namelist()[0].split("/")[0]).load()
