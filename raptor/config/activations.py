"""`activations`: how the states a_0..a_L are kept, or that they are not."""

from __future__ import annotations

from typing import Literal

from raptor.config.fields import PositiveInt, Section


class ActivationsConfig(Section):
    """Chunked, sharded Zarr store; a chunk is (chunk_images, 1 layer, all tokens, width).

    `mode: stream` keeps no states: each reader runs the teacher again, and sees the same numbers.
    """

    mode: Literal["store", "stream"] = "store"
    dtype: Literal["float16", "bfloat16", "float32"] = "float16"
    chunk_images: PositiveInt = 64
    shard_images: PositiveInt = 512
    jobs: PositiveInt = 1  # that share the shards of one store; its bytes do not depend on them
