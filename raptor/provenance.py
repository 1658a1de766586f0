"""Where a result came from: the code that made it, the versions, the inputs, the cost."""

from __future__ import annotations

import ast
import contextlib
import functools
import hashlib
import importlib.metadata
import json
import os
import platform
import resource
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from raptor.errors import RaptorError
from raptor.files import replacing

# What a job does around its computation: its log, its provenance. It decides no number.
_AROUND = "raptor.job"
ROOT = Path(__file__).resolve().parent.parent


@functools.cache
def code_digest(*paths: str) -> str:
    """16 hex digits of the code that `paths` (relative to the repository) run.

    Covers the files and every `raptor` module they import, directly or not. It hashes syntax
    trees without docstrings, so comments, docstrings and layout do not count.
    """
    known = len(_parsed())
    files = sorted(set().union(*(_reachable(ROOT / path) for path in paths)))
    text = "\n".join(f"{file.relative_to(ROOT)} {_read(file)[0]}" for file in files)
    if len(_parsed()) > known:
        with contextlib.suppress(OSError, RaptorError), replacing(_parsed_file()) as temporary:
            temporary.write_text(json.dumps(_parsed()))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _reachable(start: Path) -> set[Path]:
    seen: set[Path] = set()
    queue = [start]
    while queue:
        file = queue.pop()
        if file not in seen:
            seen.add(file)
            queue.extend(_read(file)[1])
    return seen


@functools.cache
def _read(file: Path) -> tuple[str, tuple[Path, ...]]:
    """Digest of the syntax tree of `file` without docstrings, and the `raptor` files it imports."""
    text = file.read_bytes()
    key = hashlib.sha256(text).hexdigest()
    if key not in _parsed():
        _parsed()[key] = _parse(text, str(file))
    digest, names = _parsed()[key]
    return digest, tuple(_files(names))


def _parse(text: bytes, filename: str) -> tuple[str, list[str]]:
    """Digest of the syntax tree without docstrings, and the names of `raptor` it imports."""
    tree = ast.parse(text, filename=filename)
    names: set[str] = set()
    for node in _statements(tree):
        match node:
            case ast.Import():
                names.update(alias.name for alias in node.names)
            case ast.ImportFrom(module=str(module), level=0):
                names.add(module)
                names.update(f"{module}.{alias.name}" for alias in node.names)
            case ast.Module() | ast.ClassDef() | ast.FunctionDef() | ast.AsyncFunctionDef():
                if ast.get_docstring(node, clean=False) is not None:
                    node.body = node.body[1:]
    digest = hashlib.sha256(ast.dump(tree).encode()).hexdigest()
    ours = (
        name
        for name in names
        if name.split(".")[0] == "raptor" and not f"{name}.".startswith(f"{_AROUND}.")
    )
    return digest, sorted(ours)


@functools.cache
def _parsed() -> dict[str, tuple[str, list[str]]]:
    """Checksum of a text -> what it parses to, kept: parsing is the slow part of a dry run."""
    try:
        return json.loads(_parsed_file().read_text())
    except (OSError, ValueError):
        return {}


def _parsed_file() -> Path:
    """Beside Snakemake's own notes; another one for each version of this file and of Python."""
    version = hashlib.sha256(Path(__file__).read_bytes() + sys.version.encode()).hexdigest()[:16]
    return ROOT / f".snakemake/raptor-code-{version}.json"


def _statements(tree: ast.Module) -> Iterator[ast.AST]:
    """The module and every statement in it; expressions hold neither imports nor docstrings."""
    queue: list[ast.AST] = [tree]
    while queue:
        node = queue.pop()
        match node:
            case ast.If(test=ast.Name(id="TYPE_CHECKING")):  # never runs
                continue
        for block in ("body", "orelse", "finalbody", "handlers", "cases"):
            queue.extend(getattr(node, block, ()))
        yield node


def _files(names: Iterable[str]) -> Iterator[Path]:
    """The files of these modules and of the packages they are in."""
    parts = {tuple(name.split(".")[:n]) for name in names for n in range(1, name.count(".") + 2)}
    for module in sorted(parts):
        base = ROOT.joinpath(*module)
        yield from (f for f in (base.with_suffix(".py"), base / "__init__.py") if f.is_file())


def git_commit() -> str:
    """The commit of the repository, `+` when the tree is modified, `unknown` outside git.

    Jobs take it from RAPTOR_COMMIT, where Snakemake has put it: a child of a large process counts
    as large as that for a moment, which SLURM may take for too much memory.
    """
    if known := os.environ.get("RAPTOR_COMMIT"):
        return known
    try:
        run = functools.partial(
            subprocess.run, cwd=ROOT, capture_output=True, text=True, check=True, timeout=10
        )
        commit = run(["git", "rev-parse", "--short=12", "HEAD"]).stdout.strip()
        dirty = run(["git", "status", "--porcelain", "--untracked-files=no"]).stdout.strip()
        return commit + ("+" if dirty else "")
    except (OSError, subprocess.SubprocessError):
        return "unknown"


def versions() -> dict[str, str]:
    """Python and the packages whose version can change a number; those not installed left out."""
    found = {"python": platform.python_version()}
    for name in ("torch", "timm", "numpy", "scipy", "pandas", "zarr", "snakemake"):
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def peak_memory_mb() -> float:
    """Peak resident memory of this process so far, in MiB."""
    status = Path("/proc/self/status")
    if status.exists():  # on Linux, `getrusage` counts the parent that started the process too
        line = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM"))
        return int(line.split()[1]) / 2**10
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (2**20 if sys.platform == "darwin" else 2**10)


def record(**facts: Any) -> dict[str, Any]:
    """What is written beside a result."""
    return {
        "git": git_commit(),
        "versions": versions(),
        "platform": platform.platform(),
        "peak_memory_mb": round(peak_memory_mb(), 1),
        **facts,
    }
