"""The store: tables of immutable values, units of work that stage their writes, and claims between units.

A unit claims what it writes, or reads in order to write, before it reads it. A claim is exclusive until
the unit ends, like a row lock on a server. Reads do not claim. They see the writes of their own unit and the
committed state: in a step of a repository at this moment, in a unit that a caller opened (an isolated one) at
its first call. Steps wait for the claims of others. Of two isolated units the first writer wins: the other
one loses at once, and also when it claims what was committed since its first call.
"""

from __future__ import annotations

import random
import time
from dataclasses import dataclass, field
from itertools import count
from threading import Condition, RLock, get_ident
from typing import TYPE_CHECKING, Final, Generic, Self, TypeVar, cast
from uuid import uuid4

from twinstore.access.unit_state import UnitState
from twinstore.clock import SystemClock
from twinstore.errors import ConcurrencyError
from twinstore.runtime.forks import ForkSafeLock, renew_in_child

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable

    from twinstore.catalog.keys import Key
    from twinstore.clock import Clock

DRIVER: Final = "Memory"
# Nothing detects a deadlock here: of two units that wait for each other, one gives up after this.
PATIENCE_SECONDS: Final = 5.0
NUMBER_BLOCKS: Final = 2**20
NUMBERS_PER_BLOCK: Final = 10**12

K = TypeVar("K")
V = TypeVar("V")


@dataclass(frozen=True, slots=True)
class TableName(Generic[V]):
    """The name of a table; its type parameter is the type of its values."""

    name: str


@dataclass(frozen=True, slots=True)
class Slot:
    """A value with the unique values that it occupies in addition to its key, and the number of its write."""

    value: object
    unique: tuple[Hashable, ...]
    number: int


@dataclass(frozen=True, slots=True)
class TableContents:
    """The rows of a table and who holds each unique value; ``None`` marks a staged removal."""

    rows: dict[Key, Slot | None] = field(default_factory=dict)
    holders: dict[Hashable, Key | None] = field(default_factory=dict)

    def apply_staged(self, staged: TableContents) -> None:
        """Apply what a unit staged."""
        apply(staged.rows, self.rows)
        apply(staged.holders, self.holders)

    def save_before(self, staged: TableContents, before: TableContents) -> None:
        """Keep the current values of all that a unit is about to change."""
        save_before(staged.rows, self.rows, before.rows)
        save_before(staged.holders, self.holders, before.holders)

    def has_entry(self, what: Hashable) -> bool:
        """Whether there is an entry for a key or a unique value."""
        return what in self.rows or what in self.holders


def apply(changes: dict[K, V | None], target: dict[K, V | None]) -> None:
    """Store the changed entries and forget the removed ones; a second time changes nothing."""
    target.update(changes)
    for key in [key for key, value in changes.items() if value is None]:
        target.pop(key, None)


def save_before(changes: dict[K, V | None], target: dict[K, V | None], before: dict[K, V | None]) -> None:
    """Keep what the changed entries were, unless something older is kept."""
    for key in changes:
        before.setdefault(key, target.get(key))


class MemoryDatabase:
    """What a server is to the other drivers: storages opened on the same store see the same data."""

    def __init__(
        self, name: str | None = None, *, clock: Clock | None = None, patience: float = PATIENCE_SECONDS
    ) -> None:
        """Start empty.

        Args:
            name: what distinguishes this store from others; default: a random text.
            clock: judges leases, as the clock of a server does.
            patience: how long a unit waits for another one, in seconds.
        """
        self.name = name or uuid4().hex
        self.clock = clock or SystemClock()
        self.patience = patience
        self.numbers = count(1)
        # Separate numbers for each store, so that rows of several stores can be copied into one.
        self._first = random.randrange(NUMBER_BLOCKS) * NUMBERS_PER_BLOCK  # noqa: S311  # no secret
        self._inserted: dict[str, int] = {}
        self._tables: dict[str, TableContents] = {}
        self._locks: dict[tuple[str, Hashable], Unit] = {}
        self._snapshots: set[Unit] = set()
        self.waiting = 0
        self._committing: dict[str, TableContents] = {}
        # One for everything: a commit is a few assignments, and every waiter must see any unit end.
        # Entered itself and not through the condition, whose ``with`` a signal could leave locked.
        self._lock = RLock()
        self._changed = Condition(self._lock)
        renew_in_child(self)

    def renew(self) -> None:
        """Keep the rows in a forked child as a separate copy; the open units are the parent's."""
        self._lock = RLock()
        self._changed = Condition(self._lock)
        self._locks, self._snapshots = {}, set()
        # Another thread may have been in the middle of a commit; the copy has all of it.
        self._finish()

    def begin(self, *, read_only: bool = False, isolated: bool = False) -> Unit:
        """Open a unit of work; end it with ``commit`` or ``rollback``.

        Args:
            read_only: repositories refuse to write in it.
            isolated: it reads one state and loses to the first writer; otherwise it reads the committed state
                and waits for others.
        """
        return Unit(self, read_only=read_only, isolated=isolated)

    def clear(self) -> None:
        """Forget everything that is committed."""
        with self._lock:
            self._tables.clear()

    def next_number(self, table: str) -> int:
        """Return the next insertion number of a table; it is not given back by a unit that is rolled back."""
        with self._lock:
            return self._raised(table, self._inserted.get(table, self._first) + 1)

    def raise_number(self, table: str, number: int) -> None:
        """Let new rows of a table be numbered above a number."""
        with self._lock:
            self._raised(table, number)

    def _raised(self, table: str, number: int) -> int:
        self._inserted[table] = max(number, self._inserted.get(table, self._first))
        return number

    def slot(self, table: str, key: Key, before: TableContents | None = None) -> Slot | None:
        """Return a committed row, or what it was ``before``."""
        with self._lock:
            if before is not None and key in before.rows:
                return before.rows[key]
            return self._contents(table).rows.get(key)

    def holder(self, table: str, unique: Hashable, before: TableContents | None = None) -> Key | None:
        """Return the key of the committed row that occupies a unique value, or occupied it ``before``."""
        with self._lock:
            if before is not None and unique in before.holders:
                return before.holders[unique]
            return self._contents(table).holders.get(unique)

    def rows(self, table: str, before: TableContents | None = None) -> dict[Key, Slot | None]:
        """Return a copy of the committed rows, as they were ``before``; the rows themselves never change."""
        with self._lock:
            rows = dict(self._contents(table).rows)
            return rows if before is None else rows | before.rows

    def watch(self, unit: Unit) -> None:
        """Keep for a unit, from now on, what the rows were that others change."""
        with self._lock:
            self._snapshots.add(unit)

    def lock(self, unit: Unit, table: str, what: Hashable) -> None:
        """Give a unit the exclusive right to a key or unique value until it ends.

        Raises:
            ConcurrencyError: another unit wrote first, kept it too long, or would have to end in this thread.
        """
        with self._lock:
            deadline = time.monotonic() + self.patience
            while (owner := self._locks.get((table, what), unit)) is not unit:
                remaining = deadline - time.monotonic()
                if unit.yields_to(owner) or remaining <= 0:
                    raise ConcurrencyError(
                        "Another unit of work has changed the same row and has not ended; try again later.",
                        driver=DRIVER,
                    )
                self.waiting += 1
                try:
                    self._changed.wait(remaining)
                finally:
                    self.waiting -= 1
            # Committed since this unit began: it would decide on a state that is no more.
            if unit.before(table).has_entry(what):
                raise ConcurrencyError(
                    "Another unit of work has changed the same row since this one began; repeat this one as "
                    "a whole.",
                    driver=DRIVER,
                )
            self._locks[table, what] = unit

    def end(self, unit: Unit, staged: dict[str, TableContents]) -> None:
        """Apply what a unit staged, all at once, and drop its claims."""
        with self._lock:
            self._finish()  # what the handler of a signal has interrupted
            self._snapshots.discard(unit)
            # Before anything changes: a unit that reads one state continues to see what is replaced now.
            for table, contents in staged.items():
                for other in self._snapshots:
                    self._contents(table).save_before(contents, other.before(table))
            # A process may fork between two tables; see renew().
            self._committing = staged
            self._finish()
            self._locks = {what: owner for what, owner in self._locks.items() if owner is not unit}
            self._changed.notify_all()

    def _finish(self) -> None:
        """Apply the rest of what is being committed; a second time changes nothing."""
        for table, contents in self._committing.items():
            self._contents(table).apply_staged(contents)
        self._committing = {}

    def _contents(self, table: str) -> TableContents:
        return self._tables.setdefault(table, TableContents())


class Unit:
    """One unit of work, for one call at a time; the handle that ``bind`` joins."""

    def __init__(self, store: MemoryDatabase, *, read_only: bool = False, isolated: bool = False) -> None:
        """Stage nothing yet; the state that an isolated unit reads is that of its first call."""
        self.store = store
        self.read_only = read_only
        self.isolated = isolated
        self.state = UnitState()
        self.thread = get_ident()
        self._began = False
        self._before: dict[str, TableContents] = {}
        self._staged: dict[str, TableContents] = {}

    def get(self, table: TableName[V], key: Key) -> V | None:
        """Return one value as this unit sees it."""
        slot = self._slot(table, key)
        return None if slot is None else cast("V", slot.value)

    def holder(self, table: TableName[V], unique: Hashable) -> Key | None:
        """Return the key of the row that occupies a unique value, as this unit sees it."""
        staged = self._changes(table).holders
        if unique in staged:
            return staged[unique]
        return self.store.holder(table.name, unique, self._begun().before(table.name))

    def values(self, table: TableName[V]) -> list[V]:
        """Return all values as this unit sees them, in no particular order."""
        rows = self.store.rows(table.name, self._begun().before(table.name)) | self._changes(table).rows
        return [cast("V", slot.value) for slot in rows.values() if slot is not None]

    def lock(self, table: TableName[V], *keys: Hashable) -> None:
        """Take the exclusive right to rows or unique values; see :meth:`MemoryDatabase.claim`."""
        for key in keys:
            self.store.lock(self._begun(), table.name, key)

    def yields_to(self, owner: Unit) -> bool:
        """Whether this unit must not wait for the claim of another one."""
        # The other unit of this thread could never end while this one waits for it.
        return owner.thread == self.thread or (self.isolated and owner.isolated)

    def before(self, table: str) -> TableContents:
        """Return what others have changed since this unit began, as it was before."""
        return self._before.setdefault(table, TableContents())

    def put(self, table: TableName[V], key: Key, value: V, unique: Iterable[Hashable] = ()) -> None:
        """Stage a row and claim its key; its unique values must be claimed and free."""
        self.remove(table, key)
        slot = Slot(value, tuple(unique), next(self.store.numbers))
        changes = self._changes(table)
        changes.rows[key] = slot
        changes.holders.update(dict.fromkeys(slot.unique, key))

    def remove(self, table: TableName[V], key: Key) -> None:
        """Claim a row and stage its removal.

        A row that is read and written under the claim of another one is claimed here, so that a unit that
        began before it was changed does not overwrite it.
        """
        self.lock(table, key)
        slot = self._slot(table, key)
        if slot is not None:
            changes = self._changes(table)
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
            # Whatever ended the unit: others wait for its claims.
            self.rollback()
            raise
        self._end(self._staged)

    def rollback(self) -> None:
        """Forget the staged writes; does nothing when the unit has ended."""
        if not self.state.closed:
            self._end({})

    def _end(self, staged: dict[str, TableContents]) -> None:
        # In this order: a unit that was interrupted before its claims were dropped is rolled back again.
        self.store.end(self, staged)
        self.state.closed = True
        self._staged, self._before = {}, {}

    def _begun(self) -> Self:
        """Return this unit after fixing the state that it reads."""
        if self.isolated and not self._began:
            self._began = True
            self.store.watch(self)
        return self

    def _slot(self, table: TableName[V], key: Key) -> Slot | None:
        staged = self._changes(table).rows
        if key in staged:
            return staged[key]
        return self.store.slot(table.name, key, self._begun().before(table.name))

    def _changes(self, table: TableName[V]) -> TableContents:
        return self._staged.setdefault(table.name, TableContents())


_shared: Final[dict[str, MemoryDatabase]] = {}
_shared_lock: Final = ForkSafeLock()


def shared_store(name: str) -> MemoryDatabase:
    """Return the store of that name; it lives as long as the process, or until it is dropped."""
    with _shared_lock:
        return _shared.setdefault(name, MemoryDatabase(name))


def drop_store(name: str) -> None:
    """Forget the store of that name; storages that have it open keep it."""
    with _shared_lock:
        _shared.pop(name, None)
