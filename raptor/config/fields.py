"""Field types shared by every section of the configuration."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from typing import Annotated, Any, Literal, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    WithJsonSchema,
)

from raptor.files import is_name

Item = TypeVar("Item")

# YAML reads `3e-4` (no dot) as text; a researcher means a number.
_YAML_FLOAT = re.compile(r"^[+-]?\d+(\.\d*)?[eE][+-]?\d+$")


def _number(value: Any) -> Any:
    return float(value) if isinstance(value, str) and _YAML_FLOAT.match(value) else value


Real = Annotated[float, BeforeValidator(_number), Field(allow_inf_nan=False)]
PositiveReal = Annotated[Real, Field(gt=0)]
NonNegativeReal = Annotated[Real, Field(ge=0)]
Fraction = Annotated[Real, Field(ge=0, le=1)]
Rate = Annotated[Real, Field(ge=0, lt=1)]
PositiveInt = Annotated[int, Field(gt=0)]
NonNegativeInt = Annotated[int, Field(ge=0)]

# Names become folders, wildcards and column values: letters, digits and `_` only.
Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9_]+$", max_length=64)]


def did_you_mean(value: object, known: Iterable[str], otherwise: str = "") -> str:
    """A question after the most similar of the known names; `otherwise` where none is similar."""
    close = difflib.get_close_matches(str(value), list(known), n=1)
    return f"did you mean {close[0]}?" if close else otherwise


def given_path(path: str) -> str:
    """A path that a user gives, absolute or not; ValueError where no file can have it."""
    if not is_name(path):
        raise ValueError("holds control characters; give the path of a file or folder")
    if any(len(part.encode()) > 255 for part in path.split("/")):
        raise ValueError("has a part of more than 255 bytes, which no file system holds")
    return path


def _without_braces(path: str) -> str:
    if re.search(r"[{}]", path):
        raise ValueError("holds { or }, which Snakemake takes for a wildcard; give another name")
    return path


# Of a file that is an input of a rule.
InputPath = Annotated[str, AfterValidator(given_path), AfterValidator(_without_braces)]


Split = Literal["train", "val", "test"]
Measure = Literal["cosine", "cosine_all_tokens", "mean_squared_difference", "cka"]
Method = Literal["maxcut", "maxcut_exact", "uniform", "random", "random_scattered"]
OneCut = Literal["maxcut", "maxcut_exact", "uniform"]  # the same partition for every seed


def _distinct(values: list) -> list:
    if len(set(values)) < len(values):
        raise ValueError(f"{values} lists a value twice")
    return values


# A list that is not empty and names nothing twice.
Some = Annotated[list[Item], Field(min_length=1), AfterValidator(_distinct)]

# Names of teachers, or the word `all`, which `Experiment` replaces by the names of its teachers.
EVERY = "all"
NAMES = {"type": "array", "items": {"type": "string"}, "minItems": 1}
Teachers = Annotated[Some[Name], WithJsonSchema({"anyOf": [NAMES, {"const": EVERY}]})]


class Section(BaseModel):
    """A strict, frozen part of the configuration: no unknown key, no silent conversion."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)
