"""Reading what comes next while the present is used."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Generic, TypeVar

Request, Item = TypeVar("Request"), TypeVar("Item")


class Ahead(Generic[Request, Item]):
    """What `make` gives for one request after another, all in one thread beside the caller's."""

    def __init__(self, make: Callable[[Request], Item]) -> None:
        self._make = make
        self._waiting: tuple[Request, Future[Item]] | None = None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="reading-ahead")

    def take(self, wanted: Request, following: Request | None) -> Item:
        """The item for `wanted`; that for `following` is begun, unless it is None."""
        waiting, self._waiting = self._waiting, None
        if waiting and waiting[0] == wanted:
            found = waiting[1]
        else:
            found = self._thread.submit(self._make, wanted)
        item = found.result()
        if following is not None:
            self._waiting = following, self._thread.submit(self._make, following)
        return item
