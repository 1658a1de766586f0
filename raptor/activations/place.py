"""Where the array of a store lies: in the folder beside its manifest, or at a URL of fsspec.

Credentials and endpoints of a remote store are what its protocol finds in the environment.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from raptor.activations.manifest import store_folder
from raptor.errors import RaptorError, first_line

if TYPE_CHECKING:
    from zarr.abc.store import Store

ON_DISK = "file://"


class Place:
    """The files of one store, named from the root of its array.

    `folder` is None where it is remote. RaptorError where that cannot be reached, read or written.
    """

    def __init__(self, manifest: str | Path, url: str | None = None) -> None:
        self.manifest, self.url = Path(manifest), url
        self.folder: Path | None = None
        if url is None:
            self.folder = store_folder(manifest)
        elif url.startswith(ON_DISK):
            self.folder = Path(url.removeprefix(ON_DISK))

    def __str__(self) -> str:
        return str(self.folder or self.url)

    def name(self, file: str) -> str:
        """A file as a person looks for it."""
        return f"{self}/{file}"

    def array(self) -> Store:
        """The store that Zarr opens."""
        from zarr.storage import FsspecStore, LocalStore

        if self.folder is not None:
            return LocalStore(self.folder)
        with self.reached():
            return FsspecStore.from_url(str(self.url))

    def sizes(self) -> dict[str, int]:
        """Bytes of every file that is there."""
        with self.reached():
            fs, root = self._system
            found = fs.find(root, detail=True)
        return {path.removeprefix(f"{root}/"): facts["size"] for path, facts in found.items()}

    def size(self, file: str) -> int | None:
        """Bytes of a file, None where it is missing."""
        with self.reached():
            fs, root = self._system
            try:
                return fs.size(f"{root}/{file}")
            except FileNotFoundError:
                return None

    def sha256(self, file: str) -> str:
        """Hex digest of the bytes of a file as they are read now."""
        with self.reached():
            fs, root = self._system
            with fs.open(f"{root}/{file}", "rb") as stream:
                return hashlib.file_digest(stream, "sha256").hexdigest()

    def read(self, file: str) -> bytes | None:
        """A small file, None where it is missing."""
        with self.reached():
            fs, root = self._system
            try:
                return fs.cat_file(f"{root}/{file}")
            except FileNotFoundError:
                return None

    def write(self, file: str, content: bytes) -> None:
        with self.reached():
            fs, root = self._system
            if self.folder is not None:  # elsewhere it might make a bucket
                fs.makedirs(root, exist_ok=True)
            fs.pipe_file(f"{root}/{file}", content)

    def fetch(self, file: str, path: Path) -> bool:
        """Copy a file to `path`; False where it is missing."""
        with self.reached():
            fs, root = self._system
            try:
                fs.get_file(f"{root}/{file}", str(path))
            except FileNotFoundError:
                return False
        return True

    def remove(self, path: str = "") -> None:
        """Remove a file or a folder, or all there is."""
        with self.reached():
            fs, root = self._system
            whole = f"{root}/{path}".rstrip("/")
            if fs.exists(whole):
                fs.rm(whole, recursive=True)

    @contextmanager
    def reached(self) -> Iterator[None]:
        """Say in a sentence what goes wrong on the way to a remote store."""
        try:
            yield
        except RaptorError:
            raise
        except Exception as error:  # each protocol has its own
            if self.folder is not None:
                raise
            raise RaptorError(
                f"{self.url}: cannot be read or written ({first_line(error)}); see that it exists, "
                "that the network is there, and which endpoint and credentials are in the "
                "environment"
            ) from error

    @cached_property
    def _system(self) -> tuple[Any, str]:
        """The file system, and the root of the array in it."""
        from fsspec import url_to_fs  # takes a third of a second, and a local reader needs none

        try:
            fs, root = url_to_fs(str(self), use_listings_cache=False)
        except ImportError as error:
            extra = " (pip install 'raptor-vit[s3]')" if str(self).startswith("s3") else ""
            raise RaptorError(
                f"{self.url}: a package that opens it is not installed; {first_line(error)}{extra}"
            ) from None
        return fs, root
