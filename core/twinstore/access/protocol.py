"""What a repository needs of a driver: thirteen operations on the rows of any entity.

A driver implements :class:`Access` once, for every entity of every module that is described; repositories
are written once, in core, and hold no statement of any store. The way of a call:

    repository -> GuardedAccess (scope, state of the unit, what a rule may return) -> Access of the driver

``find``, ``page``, ``insert``, ``change``, ``remove`` and ``unit`` are the driver's. ``put``, ``count``,
``keys``, ``mark``, ``amend``, ``append`` and ``next_number`` have working defaults over them in
:class:`AccessDefaults`; a driver overrides what it can do in one round trip.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Final, Generic, Protocol

from typing_extensions import TypeVar, override

from twinstore.access.query import Query
from twinstore.catalog.row import M_co, R, Row
from twinstore.catalog.tenancy import Tenants
from twinstore.errors import DocumentDecodeError
from twinstore.models.canonical import CanonicalModel

if TYPE_CHECKING:
    from twinstore.access.paging import Page
    from twinstore.access.scope import Scope
    from twinstore.access.unit_state import UnitState
    from twinstore.catalog.entity import Entity
    from twinstore.catalog.indexes import Index
    from twinstore.catalog.keys import Key

__all__ = [
    "UNSET",
    "Access",
    "Add",
    "Binding",
    "FieldUpdates",
    "Ref",
    "Rows",
    "Rule",
    "ServerClock",
    "ServerTime",
    "UniqueKey",
    "Unset",
    "Values",
    "WritingOperation",
]


M = TypeVar("M", bound=CanonicalModel)


class Access(Protocol):
    """The rows of all entities of one module: alone, in a session, or in a unit of work.

    ``scope`` says whose rows a call sees. A foreign row is as absent as one that does not exist; only its key
    and unique values are taken. Every method raises the errors of the library only; all of them may raise
    ``UnavailableError`` and those that return rows ``DocumentDecodeError``. Outside a unit each is atomic;
    ``mark`` is so row by row. A row whose description has a parent is inserted only where the parent is seen.
    If the parent is absent and the key is taken, the parent is reported.
    """

    @property
    @abstractmethod
    def binding(self) -> Binding:
        """What the calls are bound to."""
        ...

    @abstractmethod
    def find(
        self, entity: Entity[M], scope: Tenants, keys: Sequence[Key | UniqueKey]
    ) -> tuple[Row[M] | None, ...]:
        """Return the rows of some keys, in their order, in one round trip. Absent or foreign: ``None``.

        All keys are of one kind: keys of the entity, or values of one unique index.
        """
        ...

    @abstractmethod
    def page(self, entity: Entity[M], query: Query) -> Page[Row[M]]:
        """Return a page of a list in one round trip, in the order of the query. Empty: an empty page."""
        ...

    def count(self, entity: Entity, query: Query, by: str) -> dict[str, int]:
        """Return how many rows match, by the text of one field; limit, order and start do not matter.

        Values that no row has are omitted; an absent field counts under the empty text. A row that does not
        form a model counts by its stored values.

        Raises:
            DocumentDecodeError: the store cannot read the values of a row. With the default a row that does
                not form a model raises, too.
        """
        ...

    def keys(self, entity: Entity, query: Query) -> tuple[Key, ...]:
        """Return the keys of the first rows of a list, in its order, and load nothing else of them.

        A row that cannot be read is named if the store returns its key; otherwise it is as by ``page``.
        """
        ...

    @abstractmethod
    def insert(self, entity: Entity[M], scope: Tenants, row: Row[M]) -> Row[M]:
        """Insert a row in one round trip and return it.

        Raises:
            DuplicateError: the key, or a unique value, is taken; in a unit, the unit is aborted.
            NotFoundError: the parent is absent or foreign; in a unit, the unit is aborted.
        """
        ...

    def insert_all(self, entity: Entity[M], scope: Tenants, rows: Sequence[Row[M]]) -> None:
        """Insert rows of an entity without a parent, inside a unit, in as few round trips as may be.

        Raises:
            DuplicateError: a key, or a unique value, is taken; the unit is aborted.
        """
        ...

    def put(self, entity: Entity[M], scope: Tenants, row: Row[M]) -> Row[M]:
        """Insert a row, or replace the one of its key; return it. An equal row is not written again.

        A row of an append-only entity is never replaced.

        Raises:
            DuplicateError: the key belongs to a row outside the scope, or to one of other content that must
                not change, or a unique value is taken.
            NotFoundError: the parent is absent or foreign.
            ConcurrencyError: other writers won every repetition.
        """
        ...

    @abstractmethod
    def change(self, refs: Sequence[Ref], rule: Rule) -> Rows:
        """Read, decide and write some rows as one serialised step; return the rows as they are stored then.

        The rows are locked in the order of the refs, so that callers which name them in the same order do not
        deadlock; stores without locks compare when they write. What the rule returns is written: replaced
        where a row was given, inserted where none was; parents before their children, whatever the order of
        the refs. A row that is returned unchanged is written too, because it may serialise the decision; only
        ``versioned`` entities promise that this conflicts. Rows of append-only entities are neither locked
        nor written again. An error of the rule ends the step at once, also one that would be repeated if the
        store had raised it; nothing is written then.

        Raises:
            DuplicateError: the key or a unique value is taken by another row, seen or not.
            NotFoundError: the parent of a new row is absent or foreign.
            ConcurrencyError: other writers won every repetition, or, in a unit, the first one.
        """
        ...

    def mark(self, entity: Entity[M], query: Query, sets: FieldUpdates) -> tuple[Row[M], ...]:
        """Set fields of the first rows of a list; return them as they are then, in the order of the list.

        No row is marked for two callers: rows that another caller marks are passed over or waited for. Rows
        that match no longer are skipped; unreadable ones are handled as by ``page``, and they stay as they
        are.
        """
        ...

    def amend(self, entity: Entity, query: Query, sets: Values) -> int:
        """Set fields of the first rows of a list without reading their other fields; return how many.

        Unlike ``mark`` it works on unreadable rows. The fields are neither part of the key nor the tenant;
        fields derived from them stay as they are.

        Raises:
            DocumentDecodeError: a row cannot be read, and the driver changes no such row.
        """
        ...

    def append(self, entity: Entity[M], parent: Ref, rows: Sequence[Row[M]]) -> tuple[Row[M], ...]:
        """Append to an ordered log, all or nothing; return the rows as they are stored.

        A row without a sequence gets the next one of its parent, in the order given, from 1. A row whose key
        is stored already with equal content, the sequence apart where it lacks one, is not written again.
        Only a new row with a sequence comes back as the same object. Appends to one parent, which its key
        names, wait for each other.

        Raises:
            NotFoundError: the parent is absent or foreign.
            ConflictError: a key or sequence is taken by other content.
        """
        ...

    def next_number(self, entity: Entity) -> int:
        """Return a number for the assigned marker: above all that are stored, and never given again."""
        ...

    @abstractmethod
    def remove(self, entity: Entity, query: Query) -> int:
        """Remove the first rows of a list, with their children; return how many of the entity went."""
        ...

    @abstractmethod
    def unit(self, scope: Tenants, *, atomic: bool = True) -> AbstractContextManager[Access]:
        """Open a transaction, or go on in the one that is open.

        Commits at normal exit and rolls back on any exception; in a unit that was open before, its owner does
        that, and an exception makes it unusable. ``atomic=False``: without transactions, row after row.

        Raises:
            UnsupportedCapabilityError: ``atomic`` on a store without transactions.
        """
        ...

    def special(self, operation: str) -> Callable[..., object] | None:
        """Return the driver's own statement of a hot operation, ``None`` where the general way is to be gone.

        It takes the arguments of the general way and gives the same answer.
        """
        ...


@dataclass(frozen=True, slots=True)
class UniqueKey:
    """The values of a declared unique index, which find one row as its key does."""

    index: Index
    values: tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class Ref(Generic[M_co]):
    """Where one row is, or would be.

    Attributes:
        entity: what it is.
        scope: whose rows are seen.
        key: finds it.
        below: the key of its parent, where the caller knows it. A store may look there only: a rule that gets
            ``None`` then inserts the row, or does not depend on it.
        replaces_unreadable: a stored row that forms no model counts as absent, and what the rule returns
            takes its place. The stored values decide who owns it, so a foreign row stays hidden.
    """

    entity: Entity[M_co]
    scope: Tenants
    key: Key | UniqueKey
    below: Key = ()
    replaces_unreadable: bool = False

    def read(self, decode: Callable[[R], Row[M_co] | None], stored: R | None) -> Row[M_co] | None:
        """Return what a rule is given of what is stored here, as ``decode`` reads it.

        Raises:
            DocumentDecodeError: it forms no model and is not to be replaced.
        """
        if stored is None:
            return None
        try:
            return decode(stored)
        except DocumentDecodeError:
            if not self.replaces_unreadable:
                raise
            return None


Rows = tuple["Row | None", ...]
ServerClock = Callable[[], datetime]
"""Returns the time by the server clock, read after the rows were locked; whole milliseconds in UTC."""
Rule = Callable[[Rows, ServerClock], Rows]
"""Gets the rows of some refs (absent or foreign: ``None``), returns what to store (``None``: as it is).

It has no side effects, because it may be called again after a lost race.
"""


@dataclass(frozen=True, slots=True)
class Add:
    """Adds to a stored integer."""

    number: int


@dataclass(frozen=True, slots=True)
class ServerTime:
    """The time by the server clock, plus an offset."""

    later: timedelta = timedelta(0)


class Unset:
    """Makes an optional field absent."""

    @override
    def __repr__(self) -> str:
        return "UNSET"


UNSET: Final = Unset()
FieldUpdates = Mapping[str, str | bool | int | datetime | Decimal | bytes | Add | ServerTime | Unset]
"""What ``mark`` does to the fields and storage markers of a row, by wire name."""
Values = Mapping[str, str | bool | int | datetime | Decimal | bytes | Unset]
"""What ``amend`` sets the fields of a row to, by wire name; the text of an enumeration."""


class WritingOperation(str):
    """The name of a special operation that writes."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Binding:
    """What a set of repositories is bound to.

    Attributes:
        driver: name of the driver, for messages.
        scope: the tenant or purpose of the session, or unbound.
        state: whether the set can still be used; a failed unit cannot.
        read_only: the unit was opened for reading.
        in_unit: whether an outer unit ends the transaction that calls belong to.
    """

    driver: str
    scope: Scope
    state: UnitState
    read_only: bool = False
    in_unit: bool = False
