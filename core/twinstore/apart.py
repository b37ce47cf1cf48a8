"""Calls past the unit of work that their own caller has open.

A unit keeps the rows that it writes, and on some stores those that it only asks for in order to write, until
it ends. A call of the same thread or task that is not made on the unit would wait for the unit, which cannot
end before the call does. Such a call is refused at once, on every driver alike.

What is known are the rows that calls name. A list that is marked or removed past the unit names none, and a
parent that is removed takes its children with it without naming them.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import contextmanager
from functools import wraps
from typing import TYPE_CHECKING, Final, ParamSpec, Self, TypeVar, cast
from weakref import WeakSet

from typing_extensions import override

from twinstore.access import Access, UniqueKey
from twinstore.canonical import CanonicalModel
from twinstore.errors import ValidationError
from twinstore.forks import Renewable, renew_in_child
from twinstore.query import pinned_key
from twinstore.units import caller

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Generator, Sequence

    from twinstore.access import Binding, Moment, Ref, Row, Rows, Rule, Sets, Values
    from twinstore.catalog import Entity, Key
    from twinstore.paging import Page
    from twinstore.query import Query
    from twinstore.tenancy import Tenants

__all__ = ["ApartAccess", "RowWriting", "UnitRows", "UnitsOfCallers"]

M = TypeVar("M", bound=CanonicalModel)
P = ParamSpec("P")
T = TypeVar("T")

Name = tuple["Entity", str, tuple[object, ...]]
"""A row by its key, or by the name of a unique index and its values there; the key has no name."""

KEY: Final = ""


class RowWriting(str):
    """The name of a special operation that writes the rows among its arguments, and those that it returns.

    Attributes:
        entity: of those rows.
    """

    __slots__ = ("entity",)

    entity: Entity

    def __new__(cls, name: str, entity: Entity) -> Self:
        """Return the name."""
        found = super().__new__(cls, name)
        found.entity = entity
        return found


class UnitRows:
    """The rows that one unit has written, or asked for in order to write."""

    def __init__(self) -> None:
        """Start without any."""
        self._names: set[Name] = set()

    def note(self, names: Iterable[Name]) -> None:
        """Note rows."""
        self._names.update(names)

    def refuse(self, names: Iterable[Name]) -> None:
        """Refuse a call past the unit that is about one of its rows.

        Raises:
            ValidationError: it is; the unit stays usable.
        """
        for entity, index, values in names:
            if (entity, index, values) in self._names:
                key = ":".join(map(str, values))
                raise ValidationError(
                    f"The {entity.singular} {key!r} was written or locked by the unit of "
                    "work that this thread or task has open, and a call past the unit would wait for it; "
                    "make the call on the unit, or end the unit first.",
                    module=entity.module,
                    entity=entity.name,
                    key=key,
                )


class UnitsOfCallers(Renewable):
    """The open units of one module on one storage, by the task or thread that opened each."""

    def __init__(self) -> None:
        """Start without any."""
        # Weak, as in OpenUnits.
        self._open: dict[object, WeakSet[UnitRows]] = {}
        renew_in_child(self)

    @contextmanager
    def opened(self) -> Generator[UnitRows]:
        """Keep the rows of a unit for the length of the block."""
        who, rows = caller(), UnitRows()
        self._open.setdefault(who, WeakSet()).add(rows)
        try:
            yield rows
        finally:
            # In a forked child they are gone already.
            units = self._open.get(who, WeakSet())
            units.discard(rows)
            if not units:
                self._open.pop(who, None)

    def of_caller(self) -> Collection[UnitRows]:
        """Return the units that the present thread or task has open."""
        # Nearly always there is none at all, and who calls need not be asked.
        return self._open.get(caller(), ()) if self._open else ()

    @override
    def renew(self) -> None:
        """Forget in a forked child the units of the parent."""
        self._open = {}


class ApartAccess(Access):
    """Implements :class:`~twinstore.access.Access` over a driver: notes rows of a unit, or refuses them."""

    __slots__ = ("_rows", "_units", "inner")

    def __init__(self, inner: Access, units: UnitsOfCallers, rows: UnitRows | None = None) -> None:
        """Take the access, the open units, and the rows of the one that the access belongs to."""
        self.inner = inner
        self._units = units
        self._rows = rows

    @property
    @override
    def binding(self) -> Binding:
        return self.inner.binding

    @override
    def find(
        self, entity: Entity[M], scope: Tenants, keys: Sequence[Key | UniqueKey]
    ) -> tuple[Row[M] | None, ...]:
        return self.inner.find(entity, scope, keys)

    @override
    def page(self, entity: Entity[M], query: Query) -> Page[Row[M]]:
        return self.inner.page(entity, query)

    @override
    def count(self, entity: Entity, query: Query, by: str) -> dict[str, int]:
        return self.inner.count(entity, query, by)

    @override
    def keys(self, entity: Entity, query: Query) -> tuple[Key, ...]:
        return self.inner.keys(entity, query)

    @override
    def insert(self, entity: Entity[M], scope: Tenants, row: Row[M]) -> Row[M]:
        if self._is_concerned:
            self._meet(names_of_row(entity, row))
        return self.inner.insert(entity, scope, row)

    @override
    def put(self, entity: Entity[M], scope: Tenants, row: Row[M]) -> Row[M]:
        if self._is_concerned:
            self._meet(names_of_row(entity, row))
        return self.inner.put(entity, scope, row)

    @override
    def change(self, refs: Sequence[Ref], rule: Rule) -> Rows:
        if not self._is_concerned:
            return self.inner.change(refs, rule)
        self._meet(name_of(ref.entity, ref.key) for ref in refs)

        # What the rule returns may have a parent or a unique value that the refs do not name.
        def met(rows: Rows, now: Moment) -> Rows:
            changed = rule(rows, now)
            for ref, row in zip(refs, changed, strict=False):
                if row is not None:
                    self._meet(names_of_row(ref.entity, row))
            return changed

        return self.inner.change(refs, met)

    @override
    def mark(self, entity: Entity[M], query: Query, sets: Sets) -> tuple[Row[M], ...]:
        self._meet_pinned(entity, query)
        marked = self.inner.mark(entity, query, sets)
        self._note(entity, marked)
        return marked

    @override
    def amend(self, entity: Entity, query: Query, sets: Values) -> int:
        self._meet_pinned(entity, query)
        return self.inner.amend(entity, query, sets)

    @override
    def append(self, entity: Entity[M], parent: Ref, rows: Sequence[Row[M]]) -> tuple[Row[M], ...]:
        if self._is_concerned:
            self._meet([name_of(parent.entity, parent.key)])
        stored = self.inner.append(entity, parent, rows)
        self._note(entity, stored)
        return stored

    @override
    def next_number(self, entity: Entity) -> int:
        return self.inner.next_number(entity)

    @override
    def remove(self, entity: Entity, query: Query) -> int:
        self._meet_pinned(entity, query)
        return self.inner.remove(entity, query)

    @contextmanager
    def unit(self, scope: Tenants, *, atomic: bool = True) -> Generator[Access]:
        """Open a transaction or go on in one; its calls are met as those of this access."""
        with self.inner.unit(scope, atomic=atomic) as access:
            yield ApartAccess(access, self._units, self._rows)

    @override
    def special(self, operation: str) -> Callable[..., object] | None:
        statement = self.inner.special(operation)
        if statement is None or not isinstance(operation, RowWriting) or not self._is_concerned:
            return statement
        return self._met(statement, operation.entity)

    def _met(self, statement: Callable[P, T], entity: Entity) -> Callable[P, T]:
        @wraps(statement)
        def met(*args: P.args, **kwargs: P.kwargs) -> T:
            self._meet(names_of_models(entity, (*args, *kwargs.values())))
            answer = statement(*args, **kwargs)
            if self._rows is not None:
                self._rows.note(names_of_models(entity, (answer,)))
            return answer

        return met

    @property
    def _is_concerned(self) -> bool:
        """Whether the call belongs to a unit, or its caller has one open."""
        return self._rows is not None or bool(self._units.of_caller())

    def _meet(self, names: Iterable[Name]) -> None:
        """Note rows in the unit that the call belongs to, or refuse those of another one of the caller."""
        if self._rows is not None:
            self._rows.note(names)
            return
        named = tuple(names)
        for unit in self._units.of_caller():
            unit.refuse(named)

    def _meet_pinned(self, entity: Entity, query: Query) -> None:
        if self._is_concerned and (key := pinned_key(entity, query)) is not None:
            self._meet([(entity, KEY, key)])

    def _note(self, entity: Entity, rows: Iterable[Row]) -> None:
        if self._rows is not None:
            for row in rows:
                self._rows.note(names_of_row(entity, row))


def name_of(entity: Entity, key: Key | UniqueKey) -> Name:
    """Return the name of a row that is told by its key or by a unique value."""
    if isinstance(key, UniqueKey):
        return entity, key.index.name, key.values
    return entity, KEY, tuple(key)


def names_of_row(entity: Entity, row: Row) -> Iterable[Name]:
    """Yield every name by which another call could meet a row, and that of its parent.

    The parent is among them, because stores keep it from changing while it gets a child.
    """
    yield entity, KEY, entity.key_of(row.model, row.storage)
    for index in entity.uniques:
        values = tuple(entity.value(row.model, row.storage, name) for name in index.names)
        if None not in values:  # which is taken by nobody
            yield entity, index.name, values
    if entity.parent is not None:
        yield entity.parent.entity, KEY, (entity.value(row.model, row.storage, entity.parent.field),)


def names_of_models(entity: Entity, values: Iterable[object]) -> Iterable[Name]:
    """Yield the keys of the models of an entity among some values, and in sequences among them."""
    for value in values:
        if isinstance(value, entity.model):
            yield entity, KEY, entity.key_of(value, {})
        elif isinstance(value, (tuple, list)):
            # Safe, because nothing is said of what it holds.
            yield from names_of_models(entity, cast("Iterable[object]", value))
