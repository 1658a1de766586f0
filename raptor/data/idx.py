"""IDX files: the format of MNIST and Fashion-MNIST, plain or gzipped."""

from __future__ import annotations

import gzip
import math
import struct
import zlib
from pathlib import Path

import numpy as np

from raptor.errors import RaptorError

_UNSIGNED_BYTE = 0x08  # the only element type that these data sets use


def read_idx(path: Path, dimensions: int) -> np.ndarray:
    """The uint8 array with `dimensions` axes in an IDX file, gzipped or not.

    The header is two zero bytes, the element type, the number of axes, and each axis as a
    big-endian 32-bit number (format: http://yann.lecun.com/exdb/mnist). A file of another kind,
    or whose length differs from what its header says, is a `RaptorError`.
    """
    data = _bytes(path)
    expected = bytes([0, 0, _UNSIGNED_BYTE, dimensions])
    if data[:4] != expected:
        raise RaptorError(
            f"{path}: is not an IDX file of bytes with {dimensions} dimension(s) (it starts with "
            f"{data[:4].hex() or 'nothing'}, not {expected.hex()}); replace it with the original"
        )
    offset = 4 + 4 * dimensions
    if len(data) < offset:
        raise RaptorError(f"{path}: is cut off inside its header; download it again")
    shape = struct.unpack(f">{dimensions}I", data[4:offset])
    if len(data) - offset != math.prod(shape):
        raise RaptorError(
            f"{path}: its header announces {math.prod(shape)} bytes of data, the file has "
            f"{len(data) - offset}; it is truncated or damaged, download it again"
        )
    return np.frombuffer(data, dtype=np.uint8, offset=offset).reshape(shape)


def _bytes(path: Path) -> bytes:
    try:
        with open(path, "rb") as file:
            raw = file.read()
        return gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw
    except (OSError, EOFError, zlib.error) as error:
        raise RaptorError(f"{path}: cannot be read ({error}); download it again") from None
