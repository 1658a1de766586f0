"""`activations`: how the states a_0..a_L are kept, or that they are not."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import AfterValidator

from raptor.config.fields import PositiveInt, Section, did_you_mean


def _store(url: str) -> str:
    """A URL under which stores may lie, without a slash at its end."""
    parts = re.fullmatch(r"([a-z][a-z0-9+.-]*)://([^\s@?#]*[^\s@?#/])/*", url)
    if not parts or (parts[1] == "file" and not parts[2].startswith("/")):
        # It is not repeated: what stands before @ or after ? may be a password.
        raise ValueError(
            "this is no place for a store; give a URL such as s3://bucket/folder or "
            "file:///folder, without user, password or options, which the environment has"
        )
    from fsspec import available_protocols  # takes a third of a second, and is seldom needed

    known = available_protocols()
    if parts[1] not in known:
        hint = did_you_mean(parts[1], known, f"known: {', '.join(sorted(known))}")
        raise ValueError(f"{url!r}: {parts[1]} is no protocol that fsspec knows; {hint}")
    return f"{parts[1]}://{parts[2]}"


class ActivationsConfig(Section):
    """Chunked, sharded Zarr store; a chunk is (chunk_images, 1 layer, all tokens, width).

    `mode: stream` keeps no states: each reader runs the teacher again, and sees the same numbers.
    """

    mode: Literal["store", "stream"] = "store"
    dtype: Literal["float16", "bfloat16", "float32"] = "float16"
    chunk_images: PositiveInt = 64
    shard_images: PositiveInt = 512
    store: Annotated[str, AfterValidator(_store)] | None = None  # None: beside the manifests
    jobs: PositiveInt = 1  # that share the shards of one store; its bytes do not depend on them
