"""From a dictionary or YAML file to a validated `Experiment`, or one error with every fault."""

from __future__ import annotations

import json
import types
import typing
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ValidationError

from raptor.config.experiment import Experiment
from raptor.config.fields import did_you_mean
from raptor.errors import RaptorError


class ConfigError(RaptorError):
    """The configuration is wrong; the message lists every fault, one line each."""


def load(raw: dict[str, Any]) -> Experiment:
    """Validate `raw` (as read from YAML); raise `ConfigError` naming all faults at once."""
    try:
        # JSON mode keeps strictness but lets YAML's lists and whole numbers be what they mean.
        return Experiment.model_validate_json(json.dumps(raw, default=str))
    except ValidationError as error:
        faults = [line for fault in error.errors() for line in _describe(fault)]
        raise ConfigError(
            f"the configuration has {len(faults)} fault(s):\n"
            + "\n".join(f"  - {line}" for line in faults)
        ) from None


def load_yaml(path: str | Path) -> Experiment:
    """Read and validate a YAML file."""
    refuse_repeated_keys(path)
    try:
        raw = yaml.safe_load(_text(path))
    except yaml.YAMLError as error:  # a tag beyond the plain types
        raise ConfigError(f"{path}: cannot be read as YAML: {error}") from None
    if not isinstance(raw, dict):
        raise ConfigError(f"{path}: is not a mapping of keys to values")
    return load(raw)


def refuse_repeated_keys(path: str | Path) -> None:
    """ConfigError for a file that is no YAML, says one thing twice (YAML takes the last), or has
    a key that is no name."""
    try:
        root = yaml.compose(_text(path), Loader=yaml.SafeLoader)
        faults = [f"{path}, {fault}" for fault in _repeated_keys(root, "")]
    except yaml.YAMLError as error:
        raise ConfigError(f"{path}: cannot be read as YAML: {error}") from None
    except RecursionError:
        raise ConfigError(f"{path}: an anchor (&) stands within itself; write it out") from None
    if faults:
        raise ConfigError("\n".join(faults))


def _text(path: str | Path) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(
            f"{path}: cannot be opened ({error.strerror}); give the YAML file of an experiment"
        ) from None
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise ConfigError(f"{path}, line {line}: is not UTF-8; save the file as UTF-8") from None


def _repeated_keys(node: yaml.Node | None, where: str) -> list[str]:
    if isinstance(node, yaml.SequenceNode):
        return [fault for one in node.value for fault in _repeated_keys(one, where)]
    faults: list[str] = []
    seen: dict[str, int] = {}
    for key, value in node.value if isinstance(node, yaml.MappingNode) else []:
        line = key.start_mark.line + 1
        if key.tag.rpartition(":")[2] not in ("str", "int", "merge"):
            faults.append(f"line {line}: a key must be a name")
            continue
        dotted = f"{where}{key.value}"
        if key.value in seen:
            faults.append(
                f"line {line}: {dotted} stands on line {seen[key.value]} too; leave one out"
            )
        seen[key.value] = line
        faults += _repeated_keys(value, f"{dotted}.")
    return faults


def _describe(fault: Any) -> list[str]:
    """The lines that explain one pydantic error: dotted path, value, what is allowed."""
    path = list(fault["loc"])
    if path[0:1] == ["teachers"]:
        del path[2:3]  # pydantic tells the kind after the name
    # A name may hold what would move the cursor of a terminal.
    dotted, value = ".".join(repr(str(part))[1:-1] for part in path), fault["input"]
    shown = "" if isinstance(value, dict | list) else f" {value!r}:"
    match fault["type"]:
        case "extra_forbidden":
            known = _keys(Experiment, [str(part) for part in path[:-1]])
            hint = did_you_mean(path[-1], known, f"known keys: {', '.join(known)}")
            return [f"{dotted}: unknown key; {hint}"]
        case "missing":
            return [f"{dotted}: this key is required"]
        case "value_error":
            text = str(fault["ctx"]["error"])
            return text.split("\n") if not dotted else [f"{dotted}: {text}"]
        case "literal_error":
            allowed = fault["ctx"]["expected"]
            hint = did_you_mean(value, allowed.replace("'", "").split(", "))
            return [f"{dotted}: {value!r} is not one of {allowed}" + (f"; {hint}" if hint else "")]
        case "model_type" | "dict_type":
            known = _keys(Experiment, [str(part) for part in path])
            return [f"{dotted}:{shown} give keys" + (f": {', '.join(known)}" if known else "")]
        case "list_type":
            return [f"{dotted}:{shown} give a list in [ ]"]
        case "too_short":
            return [f"{dotted}: give at least one value"]
        case "string_pattern_mismatch":
            return [f"{dotted}:{shown} a name has letters, digits and _ alone"]
        case _:
            message = fault["msg"][0].lower() + fault["msg"][1:]
            return [f"{dotted}:{shown} {message}"]


def _keys(annotation: Any, path: list[str]) -> list[str]:
    """The keys known at `path` below a type annotation, in order, without repetition."""
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Annotated:
        return _keys(arguments[0], path)
    if origin in (typing.Union, types.UnionType):
        return list(dict.fromkeys(key for option in arguments for key in _keys(option, path)))
    if origin is dict:
        return _keys(arguments[1], path[1:])
    if not (isinstance(annotation, type) and issubclass(annotation, BaseModel)):
        return []
    if not path:
        return list(annotation.model_fields)
    field = annotation.model_fields.get(path[0])
    return _keys(field.annotation, path[1:]) if field else []
