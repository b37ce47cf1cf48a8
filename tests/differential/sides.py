"""One driver of a comparison: where calls go, and what is stored."""

from __future__ import annotations

from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

import orjson

from twinstore.catalog.keys import KeyRange
from twinstore.scheduler.storage import SchedulerStorage

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from twinstore.bulk.rows import ScanRow
    from twinstore.clock import Clock
    from twinstore.scheduler.repositories import Repositories
    from twinstore.scheduler.storage import SchedulerSession
    from twinstore_memory.backend import MemoryBackend

Opener: TypeAlias = "Callable[[SchedulerStorage], AbstractContextManager[SchedulerSession]]"
Contents: TypeAlias = "list[tuple[object, ...]]"
WHOLE = KeyRange()
EVENTS = "graph_job_events"
OWN_CLOCK = frozenset({"graph_jobs", EVENTS})


class RollBackError(Exception):
    """Leaves a unit of work without committing it."""


@dataclass(slots=True)
class Side:
    """One driver.

    Attributes:
        name: name in reports.
        storage: the storage under comparison.
        wipe: empties the store; every example starts with it.
        session: where calls go while a session or unit of work is open.
        token: the page token of the latest list.
    """

    name: str
    storage: SchedulerStorage
    wipe: Callable[[], object]
    session: SchedulerSession | None = None
    token: str | None = None
    _open: ExitStack = field(default_factory=ExitStack)

    @property
    def target(self) -> SchedulerSession | SchedulerStorage:
        """Where the next call goes."""
        return self.session or self.storage

    def beside(self, storage: SchedulerStorage) -> Side:
        """Return another side on the same store."""
        return Side(self.name, storage, self.wipe)

    def enter(self, opener: Opener) -> None:
        """Open a session or unit of work."""
        self.session = self._open.enter_context(opener(self.storage))

    def leave(self, *, commit: bool = True) -> None:
        """Close it; a unit of work is committed or rolled back."""
        opened, self._open, self.session = self._open, ExitStack(), None
        if commit:
            opened.close()
            return
        with suppress(RollBackError), opened:
            raise RollBackError

    def stored(self) -> Contents:
        """Return all rows of all entities in order, as the verifier of the backfill reads them."""
        bulk = self.storage.bulk
        with bulk.view() as view:
            found = [
                shown(entity.name, row)
                for entity in bulk.entities()
                for batch in view.rows(entity, WHOLE)
                for row in batch
            ]
        # Events that a store writes have random ids, by which they come.
        events = sorted((row for row in found if row[0] == EVENTS), key=str)
        return [row for row in found if row[0] != EVENTS] + events


def shown(entity: str, row: ScanRow) -> tuple[object, ...]:
    """Return a row as it is compared: without what each store sets by its own clock or counts by itself."""
    if entity not in OWN_CLOCK:
        return (entity, row.key, row.owner, row.content, row.expires)
    doc = orjson.loads(row.content)["doc"]
    if entity == "graph_jobs":
        return (entity, row.key, row.owner, doc)
    return (entity, row.owner, doc["kind"], doc["payload"]["job"])


def memory_side(name: str, backend: MemoryBackend[Repositories], clock: Clock) -> Side:
    """Return a side in memory."""
    return Side(name, SchedulerStorage(backend, clock), backend.store.clear)
