"""Image files: listed, checked and decoded; what is wrong with one is a sentence that names it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import torch
from PIL import Image
from torchvision.datasets.folder import IMG_EXTENSIONS
from torchvision.transforms.v2.functional import pil_to_tensor

from raptor.errors import RaptorError, of_system
from raptor.files import is_name

SUFFIXES = ", ".join(IMG_EXTENSIONS)

Item, Result = TypeVar("Item"), TypeVar("Result")


def list_images(folder: Path, nested: bool = True) -> list[str]:
    """Paths relative to `folder` of the image files in it, and below it where `nested`, sorted.

    Told by their suffix, hidden ones left out. Nothing but the folders is read: ImageNet has 1.28
    million files.
    """
    found: list[str] = []
    for entry in _entries(folder):
        if entry.is_dir():
            below = list_images(Path(entry.path)) if nested else []
            found += (f"{entry.name}/{name}" for name in below)
        elif entry.name.lower().endswith(IMG_EXTENSIONS):
            found.append(entry.name)
    return sorted(found)


def list_folders(folder: Path) -> list[str]:
    """Names of the folders in `folder`, sorted, hidden ones left out."""
    return sorted(entry.name for entry in _entries(folder) if entry.is_dir())


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            found = [entry for entry in entries if not entry.name.startswith(".")]
    except OSError as error:
        raise RaptorError(
            f"{folder}: cannot be listed ({error.strerror}); give a folder that can be read"
        ) from None
    for entry in found:
        if not is_name(entry.name):
            raise RaptorError(
                f"{folder}: holds {entry.name!r}, a name with control characters or bytes that are "
                "no text; rename it"
            )
    return found


@contextmanager
def opened(path: Path) -> Iterator[Image.Image]:
    """The image in `path`; one that is missing, empty or damaged is a `RaptorError` naming it."""
    try:
        if path.stat().st_size == 0:
            raise RaptorError(f"{path}: is empty; replace the image or remove it")
        with Image.open(path) as image:
            yield image
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        if isinstance(error, OSError) and (refused := of_system(error)):
            raise refused from None
        # Pillow reports damage as any of these, depending on the format.
        raise RaptorError(
            f"{path}: cannot be decoded as an image ({error}); replace it or remove it"
        ) from None


def decode(path: Path, channels: int) -> torch.Tensor:
    """(channels, H, W) uint8."""
    with opened(path) as image:
        return pil_to_tensor(image.convert("L" if channels == 1 else "RGB"))


def check(path: Path) -> None:
    """Read the whole file as `decode` does, but a JPEG only at an eighth of its size, in grey."""
    with opened(path) as image:
        image.draft("L", (1, 1))
        image.load()


def in_threads(work: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[Result]:
    """`map` on as many threads as torch may use: Pillow decodes outside Python's lock."""
    with ThreadPoolExecutor(torch.get_num_threads()) as threads:
        yield from threads.map(work, items)
