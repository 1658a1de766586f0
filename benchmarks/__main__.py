"""Run every benchmark and write `results/benchmarks.csv`."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pandas as pd

COLUMNS = ["name", "ours", "reference", "ratio", "n", "spread"]
MODULES = ["partition", "store", "memory", "training_step", "phase_mean"]


def main(names: list[str]) -> None:
    rows = []
    for name in names or MODULES:
        print(f"benchmark {name} …", file=sys.stderr, flush=True)
        rows += importlib.import_module(f"benchmarks.{name}").rows()
    table = pd.DataFrame(rows)[COLUMNS]
    output = Path("results/benchmarks.csv")
    output.parent.mkdir(exist_ok=True)
    table.to_csv(output, index=False, float_format="%.4g")
    print(table.to_string(index=False))


if __name__ == "__main__":
    main(sys.argv[1:])
