"""What a repository needs of a driver: twelve operations on the rows of any entity.

A driver implements :class:`Access` once, for every entity of every module that is described; repositories
are written once, in core, and hold no statement of any store. The way of a call:

    repository -> GuardedAccess (scope, state of the unit, what a rule may return) -> Access of the driver

``find``, ``page``, ``insert``, ``change``, ``remove`` and ``unit`` are the driver's. ``put``, ``count``,
``keys``, ``mark``, ``amend``, ``append`` and ``next_number`` have working defaults over them in
:class:`AccessDefaults`; a driver overrides what it can do in one round trip.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Generic, Protocol, cast

from typing_extensions import TypeVar, override

from twinstore.access_values import (
    NO_STORAGE,
    UNSET,
    Add,
    Binding,
    Moment,
    Ref,
    Row,
    Rows,
    Rule,
    ServerTime,
    Sets,
    UniqueKey,
    Unset,
    Values,
    WritingOperation,
)
from twinstore.canonical import CanonicalModel
from twinstore.passing import every_row, first_keys, first_readable
from twinstore.query import Query, holds, label_of_value
from twinstore.retrying import repeat
from twinstore.stepwise import Stepwise
from twinstore.tenancy import Tenants

if TYPE_CHECKING:
    from twinstore.catalog import Entity, Key
    from twinstore.paging import Page

__all__ = [
    "NO_STORAGE",
    "UNSET",
    "Access",
    "AccessDefaults",
    "Add",
    "Binding",
    "Moment",
    "Ref",
    "Row",
    "Rows",
    "Rule",
    "ServerTime",
    "Sets",
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
    Where both the parent is absent and the key is taken, the parent is told.
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
        """Return how many rows match, by the text of one field; limit and order do not matter.

        Values that no row has are left out; a field that is absent counts under the empty text.
        """
        ...

    def keys(self, entity: Entity, query: Query) -> tuple[Key, ...]:
        """Return the keys of the first rows of a list, in its order, and load nothing else of them.

        A row that cannot be read is named where the store tells its key; otherwise it is as by ``page``.
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

    def mark(self, entity: Entity[M], query: Query, sets: Sets) -> tuple[Row[M], ...]:
        """Set fields of the first rows of a list; return them as they are then, in the order of the list.

        No row is marked for two callers: those that another one marks are passed over or waited for. Those
        that match no longer are left out; unreadable ones as by ``page``, and they stay as they are.
        """
        ...

    def amend(self, entity: Entity, query: Query, sets: Values) -> int:
        """Set fields of the first rows of a list without a look at what else they hold; return how many.

        Unlike ``mark`` it works on rows that nobody can read. The fields are neither part of the key nor the
        tenant; what is derived from them stays as it is.

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


class AccessDefaults(Access, ABC):
    """Base of a driver's access: the six operations that the other six can do."""

    @override
    def special(self, operation: str) -> Callable[..., object] | None:
        """Return nothing: every operation goes the general way."""
        del operation
        return None

    @override
    def put(self, entity: Entity[M], scope: Tenants, row: Row[M]) -> Row[M]:
        key = entity.key_of(row.model, row.storage)
        is_taken = False

        def replaced(rows: Rows, now: Moment) -> Rows:
            nonlocal is_taken
            del now
            # Decided where the row is held: a look before it could be overtaken by another insert.
            is_taken = entity.append_only and rows[0] is not None and rows[0] != row
            # A write of the same row would still count as a change, and make another writer of it lose.
            return (None if rows[0] == row or is_taken else row,)

        # Replaced as a whole, so that it need not be readable; one that must not change does.
        ref = Ref(entity, scope, key, replaces_unreadable=not entity.append_only)
        self.change([ref], replaced)
        # An insert is refused for the reason that every insert tells first, which may be the parent.
        return self.insert(entity, scope, row) if is_taken else row

    @override
    def count(self, entity: Entity, query: Query, by: str) -> dict[str, int]:
        counted: dict[str, int] = {}
        for row in every_row(self, entity, query):
            label = label_of_value(entity.value(row.model, row.storage, by))
            counted[label] = counted.get(label, 0) + 1
        return counted

    @override
    def keys(self, entity: Entity, query: Query) -> tuple[Key, ...]:
        return first_keys(self, entity, query)

    @override
    def mark(self, entity: Entity[M], query: Query, sets: Sets) -> tuple[Row[M], ...]:
        marked: list[Row[M]] = []
        with Stepwise(in_unit=self.binding.in_unit) as steps:
            for row in first_readable(self, entity, query):
                # One step per row: read without locks, each must match once more when it is held.
                ref = Ref(entity, query.scope, entity.key_of(row.model, row.storage))
                marking = Marking(entity, query, sets)
                self.change([ref], marking)
                if marking.done is not None:
                    marked.append(marking.done)
                    steps.done()
        return tuple(marked)

    @override
    def amend(self, entity: Entity, query: Query, sets: Values) -> int:
        """Set fields of rows that can be read; the others need a statement of the driver's own."""
        return len(self.mark(entity, query, sets))

    @override
    def next_number(self, entity: Entity) -> int:
        """Return one more than the highest stored number; of two callers with one number one stores it."""
        from twinstore.numbering import highest_number  # noqa: PLC0415  # it needs this module too

        return highest_number(self, entity) + 1

    @override
    def append(self, entity: Entity[M], parent: Ref, rows: Sequence[Row[M]]) -> tuple[Row[M], ...]:
        from twinstore.appending import append_rows  # noqa: PLC0415  # it needs this module

        if self.binding.in_unit:
            return append_rows(self, entity, parent, rows)
        # Stores without locks find out when they write that another append was faster.
        return repeat(lambda: append_rows(self, entity, parent, rows))


class Marking(Generic[M]):
    """The rule of one marked row; ``done`` is the row as the last call of the rule left it."""

    def __init__(self, entity: Entity[M], query: Query, sets: Sets) -> None:
        """Take what is to be set where."""
        self.done: Row[M] | None = None
        self._entity = entity
        self._query = query
        self._sets = sets

    def __call__(self, rows: Rows, now: Moment) -> Rows:
        """Return the row with the fields set, unless it matches no longer."""
        # The rule may be called again after a lost race, so nothing of an earlier call may stay.
        (stored,) = rows
        if stored is None or not matches(self._entity, self._query, stored):
            self.done = None
            return (None,)
        # As a whole: a change may break a rule between two fields. By its own class: a variant stays one.
        model = cast("M", stored.model.evolve(**self._values(stored, now)))
        self.done = Row(model, stored.storage)
        return (self.done,)

    def _values(self, stored: Row, now: Moment) -> dict[str, object]:
        named = ((self._entity.shapes[wire].name, change) for wire, change in self._sets.items())
        return {name: changed_value(getattr(stored.model, name), change, now) for name, change in named}


def changed_value(stored: object, change: object, now: Moment) -> object:
    """Return a value after one change of ``mark``."""
    if isinstance(change, Add):
        return (stored if isinstance(stored, int) else 0) + change.number
    if isinstance(change, ServerTime):
        return now() + change.later
    return None if isinstance(change, Unset) else change


def matches(entity: Entity, query: Query, row: Row) -> bool:
    """Whether a row satisfies the conditions of a list; its scope is not looked at."""
    return all(holds(item, entity.value(row.model, row.storage, item.field)) for item in query.where)
