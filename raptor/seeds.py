"""Seeds derived from names, so that adding a stage never shifts the numbers of another."""

from __future__ import annotations

import hashlib


def derive_seed(base: int, *names: object) -> int:
    """A seed in [0, 2^31) from the base seed and the names of what it is for."""
    text = "\x1f".join([str(base), *map(str, names)])
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "big") & 0x7FFFFFFF
