"""The store: tables of immutable values, units of work that stage their writes, and claims between units.

A unit claims whatever it writes, or reads in order to write, before it looks at it. A claim is exclusive
until the unit ends, as a row lock is on a server; other units wait for it. Reads claim nothing and see what
is committed, plus the writes of their own unit.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from itertools import count
from threading import Condition, Lock, get_ident
from typing import TYPE_CHECKING, Final, Generic, TypeVar, cast
from uuid import uuid4

from twinstore.backend import UnitState
from twinstore.clock import SystemClock
from twinstore.errors import ConcurrencyError

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable

    from twinstore.catalog import Key
    from twinstore.clock import Clock

__all__ = ["DRIVER", "Store", "Table", "Unit", "drop_store", "shared_store"]

DRIVER: Final = "Memory"
PATIENCE_SECONDS: Final = 5.0

K = TypeVar("K")
V = TypeVar("V")


@dataclass(frozen=True, slots=True)
class Table(Generic[V]):
    """The name of a table; its type parameter is the type of its values."""

    name: str


@dataclass(frozen=True, slots=True)
class Slot:
    """A value with the unique values that it occupies beside its key, and the number of its write."""

    value: object
    unique: tuple[Hashable, ...]
    number: int


@dataclass(frozen=True, slots=True)
class Contents:
    """The rows of a table and who holds each unique value; ``None`` stands for a staged removal."""

    rows: dict[Key, Slot | None] = field(default_factory=dict)
    holders: dict[Hashable, Key | None] = field(default_factory=dict)

    def take_over(self, staged: Contents) -> None:
        """Apply what a unit staged."""
        apply(staged.rows, self.rows)
        apply(staged.holders, self.holders)


def apply(changes: dict[K, V | None], target: dict[K, V | None]) -> None:
    """Store the changed entries and forget the removed ones."""
    target.update(changes)
    for key in [key for key, value in changes.items() if value is None]:
        del target[key]


class Store:
    """What a server is to the other drivers: storages opened on the same store see the same data."""

    def __init__(
        self, name: str | None = None, *, clock: Clock | None = None, patience: float = PATIENCE_SECONDS
    ) -> None:
        """Start empty.

        Args:
            name: what tells this store from others; default: a random text.
            clock: judges leases, as the clock of a server does.
            patience: how long a unit waits for another one, in seconds.
        """
        self.name = name or uuid4().hex
        self.clock = clock or SystemClock()
        self.patience = patience
        self.numbers = count(1)
        self._tables: dict[str, Contents] = {}
        self._claims: dict[Hashable, Unit] = {}
        self._changed = Condition()

    def begin(self, *, read_only: bool = False) -> Unit:
        """Open a unit of work; end it with ``commit`` or ``rollback``."""
        return Unit(self, read_only=read_only)

    def snapshot(self) -> Store:
        """Return a store that holds what is committed now, and that nobody else writes to."""
        frozen = Store(self.name, clock=self.clock)
        with self._changed:
            frozen._tables = {
                name: Contents(dict(table.rows), dict(table.holders)) for name, table in self._tables.items()
            }
        return frozen

    def clear(self) -> None:
        """Forget everything that is committed."""
        with self._changed:
            self._tables.clear()

    def slot(self, table: str, key: Key) -> Slot | None:
        """Return a committed row."""
        with self._changed:
            return self._contents(table).rows.get(key)

    def holder(self, table: str, unique: Hashable) -> Key | None:
        """Return the key of the committed row that occupies a unique value."""
        with self._changed:
            return self._contents(table).holders.get(unique)

    def rows(self, table: str) -> dict[Key, Slot | None]:
        """Return a copy of the committed rows; the rows themselves never change."""
        with self._changed:
            return dict(self._contents(table).rows)

    def claim(self, unit: Unit, what: Hashable) -> None:
        """Give a unit the exclusive right to ``what`` until it ends.

        Raises:
            ConcurrencyError: another unit kept it too long, or would have to end in this very thread.
        """
        with self._changed:
            deadline = time.monotonic() + self.patience
            while (owner := self._claims.get(what, unit)) is not unit:
                remaining = deadline - time.monotonic()
                if owner.thread == unit.thread or remaining <= 0:
                    raise ConcurrencyError(
                        "Another unit of work has changed the same row and has not ended; try again later.",
                        driver=DRIVER,
                    )
                self._changed.wait(remaining)
            self._claims[what] = unit

    def end(self, unit: Unit, staged: dict[str, Contents]) -> None:
        """Apply what a unit staged, all at once, and drop its claims."""
        with self._changed:
            for table, contents in staged.items():
                self._contents(table).take_over(contents)
            self._claims = {what: owner for what, owner in self._claims.items() if owner is not unit}
            self._changed.notify_all()

    def _contents(self, table: str) -> Contents:
        return self._tables.setdefault(table, Contents())


class Unit:
    """One unit of work. Not thread-safe; the handle that ``bind`` joins."""

    def __init__(self, store: Store, *, read_only: bool = False) -> None:
        """Stage nothing yet."""
        self.store = store
        self.read_only = read_only
        self.state = UnitState()
        self.thread = get_ident()
        self._staged: dict[str, Contents] = {}

    def get(self, table: Table[V], key: Key) -> V | None:
        """Return one value as this unit sees it."""
        staged = self._changes(table).rows
        slot = staged[key] if key in staged else self.store.slot(table.name, key)
        return None if slot is None else cast("V", slot.value)

    def holder(self, table: Table[V], unique: Hashable) -> Key | None:
        """Return the key of the row that occupies a unique value, as this unit sees it."""
        staged = self._changes(table).holders
        return staged[unique] if unique in staged else self.store.holder(table.name, unique)

    def values(self, table: Table[V]) -> list[V]:
        """Return all values as this unit sees them, in no particular order."""
        rows = self.store.rows(table.name) | self._changes(table).rows
        return [cast("V", slot.value) for slot in rows.values() if slot is not None]

    def claim(self, table: Table[V], *keys: Hashable) -> None:
        """Wait for the exclusive right to rows or unique values; see :meth:`Store.claim`."""
        for key in keys:
            self.store.claim(self, (table.name, key))

    def put(self, table: Table[V], key: Key, value: V, unique: Iterable[Hashable] = ()) -> None:
        """Stage a row; key and unique values must be claimed and free."""
        self.remove(table, key)
        slot = Slot(value, tuple(unique), next(self.store.numbers))
        changes = self._changes(table)
        changes.rows[key] = slot
        changes.holders.update(dict.fromkeys(slot.unique, key))

    def remove(self, table: Table[V], key: Key) -> None:
        """Stage the removal of a row; its key must be claimed."""
        changes = self._changes(table)
        slot = changes.rows[key] if key in changes.rows else self.store.slot(table.name, key)
        if slot is not None:
            changes.rows[key] = None
            changes.holders.update(dict.fromkeys(slot.unique))

    def commit(self) -> None:
        """Make the staged writes visible, all at once.

        Raises:
            TransactionAbortedError: an error of the store was met, or the unit ended; nothing was written.
        """
        try:
            self.state.check_commit()
            self.state.check()
        except BaseException:
            self.rollback()
            raise
        self._end(self._staged)

    def rollback(self) -> None:
        """Forget the staged writes; does nothing when the unit has ended."""
        if not self.state.closed:
            self._end({})

    def _end(self, staged: dict[str, Contents]) -> None:
        self.state.closed = True
        self.store.end(self, staged)
        self._staged = {}

    def _changes(self, table: Table[V]) -> Contents:
        return self._staged.setdefault(table.name, Contents())


_shared: Final[dict[str, Store]] = {}
_shared_lock: Final = Lock()


def shared_store(name: str) -> Store:
    """Return the store of that name; it lives as long as the process, or until it is dropped."""
    with _shared_lock:
        return _shared.setdefault(name, Store(name))


def drop_store(name: str) -> None:
    """Forget the store of that name; storages that have it open keep it."""
    with _shared_lock:
        _shared.pop(name, None)
