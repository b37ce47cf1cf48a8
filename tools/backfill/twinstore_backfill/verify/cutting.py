"""Cutting the source for digests while both sides still count their rows.

How many rows a range has follows from their number. Nearly always that is the same number for all stores, so
what is cut before they are counted will do; where it will not, it is cut once more.
"""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass
from threading import Event
from typing import TYPE_CHECKING, TypeAlias

from typing_extensions import override

if TYPE_CHECKING:
    from twinstore.bulk import BulkPort, Key
    from twinstore.catalog import Entity

__all__ = ["EarlyCuts"]

Rows: TypeAlias = tuple[str, str | None]


@dataclass(frozen=True, slots=True)
class Cut:
    """The keys that divide some rows, while they are looked for.

    Attributes:
        rows: how many stand between two of them.
        keys: the keys.
        unwanted: nobody waits for them any more.
    """

    rows: int
    keys: Future[list[Key]]
    unwanted: Event


class EarlyCuts(AbstractContextManager["EarlyCuts"]):
    """Keys that divide the rows of entities, looked for in a thread, one entity after the other."""

    def __init__(self, source: BulkPort) -> None:
        """Take the source."""
        self._source = source
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="cut")
        self._cuts: dict[Rows, Cut] = {}

    def begin(self, entity: Entity, tenant: str | None, rows: int) -> None:
        """Begin to look for the keys of an entity, unless that has begun with as many rows between them."""
        known = self._cuts.get((entity.name, tenant))
        if known is not None:
            if known.rows == rows:
                return
            known.unwanted.set()
        unwanted = Event()
        keys = self._pool.submit(self._keys, entity, tenant, rows, unwanted)
        self._cuts[entity.name, tenant] = Cut(rows, keys, unwanted)

    def take(self, entity: Entity, tenant: str | None) -> list[Key]:
        """Wait for the keys and forget them.

        Raises:
            TwinstoreError: the source cannot be read.
        """
        return self._cuts.pop((entity.name, tenant)).keys.result()

    def _keys(self, entity: Entity, tenant: str | None, rows: int, unwanted: Event) -> list[Key]:
        keys: list[Key] = []
        if unwanted.is_set():
            return keys
        for within in self._source.cut(entity, rows, tenant_id=tenant):
            if unwanted.is_set():
                break
            if within.upper is not None:
                keys.append(within.upper)
        return keys

    @override
    def __exit__(self, *_: object) -> None:
        """End what is still looked for, and wait for its end."""
        for cut in self._cuts.values():
            cut.unwanted.set()
        self._pool.shutdown(cancel_futures=True)
