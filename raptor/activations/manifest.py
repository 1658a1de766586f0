"""What a store holds: the grid of chunks and shards, and the manifest that describes it.

The states of one teacher are one Zarr v3 array (N images, S = L + 1 states, T tokens, D width).
A chunk is (chunk_images, 1, T, D) because readers ask for some layers of some images; a shard,
which is one file, is (shard_images, S, T, D) because a writer has all layers of its images.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, JsonValue, ValidationError, model_validator

from raptor.config.fields import NonNegativeInt, NonNegativeReal, PositiveInt, Section
from raptor.errors import RaptorError, first_line
from raptor.files import digest, plain_path, write_json
from raptor.tokens import TokenLayout

FORMAT = 2
ITEM_BYTES = {"float16": 2, "bfloat16": 2, "float32": 4}
# Zarr has no bfloat16: its 16 bits are stored as they are, under the name of an integer type.
ZARR_DTYPE = {"float16": "float16", "bfloat16": "uint16", "float32": "float32"}

Dtype = Literal["float16", "bfloat16", "float32"]
Shape = tuple[PositiveInt, PositiveInt, PositiveInt, PositiveInt]
Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
PerState = list[NonNegativeReal]


@dataclass(frozen=True)
class Grid:
    """How the array (N, S, T, D) is cut: chunks of `chunk_images`, shards of `shard_images`."""

    shape: tuple[int, int, int, int]
    dtype: Dtype
    chunk_images: int
    shard_images: int

    @property
    def chunk(self) -> tuple[int, int, int, int]:
        return (self.chunk_images, 1, *self.shape[2:])

    @property
    def shard(self) -> tuple[int, int, int, int]:
        return (self.shard_images, *self.shape[1:])

    @property
    def image_bytes(self) -> int:
        """Size of one state of one image."""
        return self.shape[2] * self.shape[3] * ITEM_BYTES[self.dtype]

    @property
    def chunk_bytes(self) -> int:
        return self.chunk_images * self.image_bytes

    @property
    def rows_per_shard(self) -> int:
        """Rows of chunks (all states of `chunk_images` images) in one shard."""
        return self.shard_images // self.chunk_images

    @property
    def index_bytes(self) -> int:
        """Size of a shard's index: offset and length of each chunk, 8 bytes each, and a CRC."""
        return 16 * self.rows_per_shard * self.shape[1] + 4

    @property
    def shards(self) -> range:
        return range(-(-self.shape[0] // self.shard_images))

    def images_of(self, shard: int) -> tuple[int, int]:
        """First image of a shard and the one after its last."""
        start = shard * self.shard_images
        return start, min(start + self.shard_images, self.shape[0])

    def bytes_of(self, shard: int) -> int:
        """Predicted size of a shard's file; the last chunk of the array is padded to full size."""
        start, stop = self.images_of(shard)
        rows = -(-(stop - start) // self.chunk_images)
        return rows * self.shape[1] * self.chunk_bytes + self.index_bytes


class Shard(Section):
    """One file of the store, named from the root of its array."""

    file: Annotated[str, AfterValidator(plain_path)]
    bytes: PositiveInt
    sha256: Sha256


class Rounding(Section):
    """What storing some images in `dtype` did to them; one entry per state, sums over entries."""

    entries: PositiveInt  # images × T × D
    max_entry: PerState
    max_error: PerState
    squared_entry: PerState
    squared_error: PerState


class Precision(Section):
    """Error of the stored against the float32 states, one entry per state 0..L.

    `max_*` is the largest |x| over images, tokens and width, `rms_*` the root mean square;
    a relative error divides by the same statistic of the states (0 where they are all zero).
    """

    max_entry: PerState
    rms_entry: PerState
    max_error: PerState
    rms_error: PerState
    max_relative_error: PerState
    rms_relative_error: PerState

    @classmethod
    def of(cls, parts: list[Rounding]) -> Precision:
        """The precision of all shards together, from the rounding of each."""
        total = sum(part.entries for part in parts)

        def largest(name: str) -> list[float]:
            return [max(column) for column in _columns(parts, name)]

        def rms(name: str) -> list[float]:
            return [(sum(column) / total) ** 0.5 for column in _columns(parts, name)]

        def ratio(errors: list[float], entries: list[float]) -> list[float]:
            return [e / x if x else 0.0 for e, x in zip(errors, entries, strict=True)]

        max_entry, max_error = largest("max_entry"), largest("max_error")
        rms_entry, rms_error = rms("squared_entry"), rms("squared_error")
        return cls(
            max_entry=max_entry,
            rms_entry=rms_entry,
            max_error=max_error,
            rms_error=rms_error,
            max_relative_error=ratio(max_error, max_entry),
            rms_relative_error=ratio(rms_error, rms_entry),
        )


def _columns(parts: list[Rounding], name: str) -> list[tuple[float, ...]]:
    return list(zip(*(getattr(part, name) for part in parts), strict=True))


def _relative(path: str) -> str:
    """Up some folders, and then down: where a teacher may lie from a manifest."""
    plain_path(re.sub(r"^(\.\./)+", "", path))
    return path


class TeacherFile(Section):
    name: str
    sha256: Sha256
    path: Annotated[str, AfterValidator(_relative)]  # of its weights, from the manifest's folder


class Manifest(Section):
    """The declared output of extraction; a store without it does not exist for a reader."""

    format: Literal[2] = FORMAT
    mode: Literal["store", "stream"]
    shape: Shape
    dtype: Dtype
    zarr_dtype: Literal["float16", "uint16", "float32"]  # uint16: the raw bits of bfloat16
    chunk: Shape
    shard: Shape
    tokens: TokenLayout
    teacher: TeacherFile
    data: dict[str, JsonValue]  # the `data` section: source, splits, size, normalisation
    splits: dict[str, tuple[NonNegativeInt, NonNegativeInt]]  # first image, one after the last
    labels: list[int]
    sample_ids: list[str]
    store: str | None = None  # URL of the array, where it does not lie beside the manifest
    shards: list[Shard]  # none where the states are streamed
    precision: Precision | None  # not known where they are

    @property
    def grid(self) -> Grid:
        return Grid(self.shape, self.dtype, self.chunk[0], self.shard[0])

    @model_validator(mode="after")
    def _complete(self) -> Manifest:
        images, states, tokens, _ = self.shape
        borders = [border for span in sorted(self.splits.values()) for border in span]
        checks = {
            "zarr_dtype": self.zarr_dtype == ZARR_DTYPE[self.dtype],
            "chunk": self.chunk == self.grid.chunk,
            "shard": self.shard == self.grid.shard and not self.shard[0] % self.chunk[0],
            "tokens": self.tokens.total == tokens,
            "splits": borders[:1] == [0]
            and borders[-1:] == [images]
            and borders == sorted(borders)
            and borders[1:-1:2] == borders[2::2],
            "labels": len(self.labels) == images,
            "sample_ids": len(self.sample_ids) == images,
        }
        if self.mode == "store":
            checks["shards"] = len(self.shards) == len(self.grid.shards)
            checks["precision"] = self.precision is not None and all(
                len(values) == states for values in self.precision.model_dump().values()
            )
        wrong = [name for name, sound in checks.items() if not sound]
        if wrong:
            raise ValueError(f"{', '.join(wrong)} disagree with shape {self.shape}")
        return self

    def save(self, path: str | Path) -> None:
        """Write the manifest, whole or not at all, with a checksum over its own content."""
        content = self.model_dump(mode="json")
        write_json(path, {**content, "checksum": digest(content)})

    @classmethod
    def load(cls, path: str | Path) -> Manifest:
        """Read and check a manifest; a missing, damaged or incomplete one is a `RaptorError`."""
        path = Path(path)
        try:
            content: dict[str, Any] = json.loads(path.read_bytes())
            if content.pop("checksum") != digest(content):
                raise ValueError("its checksum differs")
            return cls.model_validate_json(json.dumps(content))
        except FileNotFoundError:
            raise RaptorError(
                f"{path}: there is no manifest, so the activations are not complete; "
                "run the extraction"
            ) from None
        except (ValidationError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise RaptorError(
                f"{path}: the manifest is damaged or of another version "
                f"({_fault(error)}); delete it and run the extraction again"
            ) from error


def _fault(error: Exception) -> str:
    if isinstance(error, ValidationError):
        first = error.errors()[0]
        return f"{'.'.join(map(str, first['loc']))} {first['msg']}".strip()
    return first_line(error)


def store_folder(manifest: str | Path) -> Path:
    """`<t>.json` -> `<t>.zarr`, the store beside its manifest."""
    return Path(manifest).with_suffix(".zarr")


def ledger_folder(manifest: str | Path) -> Path:
    """`<t>.json` -> `<t>.shards`, which records the shards that are finished."""
    return Path(manifest).with_suffix(".shards")
