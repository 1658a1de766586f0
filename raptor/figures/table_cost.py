"""What a Raptor saves and what it does not, beside its teacher."""

from __future__ import annotations

from typing import Any

import pandas as pd

from raptor.captions import ABSENT, number, percent
from raptor.figures.vocabulary import METHODS, label, term

NEAR = 0.1  # relative difference that the caption still calls equal


def rows(table: pd.DataFrame) -> pd.DataFrame:
    """The table as text."""
    return pd.DataFrame([_row(one) for one in table.to_dict("records")])


def _row(one: dict[str, Any]) -> dict[str, str]:
    return {
        "model": _name(one),
        "parameters": f"{int(one['parameters']):,}",
        "of the teacher's": percent(one["parameters_share"]),
        "block applications": str(int(one["block_applications"])),
        "MFLOP per image": number(one["flops"] / 1e6, 2),
        "ms per batch": _spread(one["latency_ms"], one["latency_sd"], 2),
        "peak memory, MiB": number(one["peak_memory_mb"], 2),
        "of it activations": number(one["activation_memory_mb"], 2),
        "description, bits": f"{int(one['description_bits']):,}",
        "Kt, bits": f"{one['levin_bits']:,.1f}",
        "training steps": ABSENT
        if pd.isna(one["training_steps"])
        else f"{int(one['training_steps']):,}",
        "training, s": _spread(one["training_seconds"], one["training_seconds_sd"], 1),
    }


def _name(one: dict[str, Any]) -> str:
    if one["model"] == "teacher":
        return label(one["teacher"])
    return f"Raptor, k = {int(one['k'])}"


def _spread(mean: float, sd: float, digits: int) -> str:
    return number(mean, digits) + ("" if pd.isna(sd) else f" ± {number(sd, digits)}")


def numbers(table: pd.DataFrame) -> dict[str, Any]:
    """Each Raptor against its teacher and against what k blocks of L would cost."""
    teacher = table[table["model"] == "teacher"].iloc[0]
    raptors = [_against(row, teacher) for row in table[table["model"] == "raptor"].itertuples()]
    first = table[table["model"] == "raptor"].iloc[0]
    return {
        "teacher": label(teacher["teacher"]),
        "depth": int(teacher["depth"]),
        "recipe": label(first["recipe"]),
        "partition": term(METHODS, first["partition"]).label,
        "raptors": raptors,
        "images": int(teacher["images"]),
        "n": int(teacher["n"]),
        "device": str(teacher["device"]).upper(),
        "threads": int(teacher["threads"]),
        "seeds": int(first["n_trained"]),
        "near": NEAR,
        "equal_steps": all(one["applications"] == teacher["block_applications"] for one in raptors),
        "as_expected": all(abs(one["share"] / one["expected"] - 1) <= NEAR for one in raptors),
        "slower": [one for one in raptors if one["latency"] > 1 + NEAR],
        "faster": [one for one in raptors if one["latency"] < 1 - NEAR],
        "less_memory": all(one["memory"] < 1 for one in raptors),
        "memory_known": not any(pd.isna(one["memory"]) for one in raptors),
        "lower_bound": all(one["bits"] < 1 for one in raptors),
    }


def _against(row: Any, teacher: pd.Series) -> dict[str, Any]:
    """Shares of the teacher's numbers; `expected` is k / L."""
    return {
        "k": int(row.k),
        "applications": int(row.block_applications),
        "share": row.parameters_share,
        "expected": row.k / teacher["depth"],
        "flops": row.flops / teacher["flops"],
        "latency": row.latency_ms / teacher["latency_ms"],
        "memory": row.peak_memory_mb / teacher["peak_memory_mb"],
        "bits": row.levin_bits / teacher["levin_bits"],
    }
