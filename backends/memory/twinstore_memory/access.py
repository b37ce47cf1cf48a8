"""Access to the rows of any entity in memory."""

from __future__ import annotations

from collections import Counter
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from typing_extensions import override

from twinstore.access import Access, AccessDefaults, Binding, Marking, Row
from twinstore.canonical import CanonicalModel
from twinstore.documents.rows import amended
from twinstore.documents.selection import matches, ordered, select, sort_key
from twinstore.paging import decoded
from twinstore.query import label_of_value
from twinstore_memory.rows import decode, encode, table
from twinstore_memory.store import DRIVER
from twinstore_memory.units import Joined
from twinstore_memory.writing import discard, hold, is_seen, seen, store

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from twinstore.access import Ref, Rows, Rule, Sets, UniqueKey, Values
    from twinstore.catalog import Entity, Key
    from twinstore.paging import Page
    from twinstore.query import Query
    from twinstore.scope import Scope
    from twinstore.tenancy import Tenants
    from twinstore_memory.rows import DocumentRow
    from twinstore_memory.store import Unit
    from twinstore_memory.units import Link

__all__ = ["MemoryAccess"]

M = TypeVar("M", bound=CanonicalModel)


class MemoryAccess(AccessDefaults, Access):
    """Implements :class:`~twinstore.access.Access`; every step is one unit of work."""

    def __init__(self, link: Link, scope: Scope, entities: Sequence[Entity]) -> None:
        self._link = link
        self._scope = scope
        self._entities = entities

    @property
    @override
    def binding(self) -> Binding:
        link = self._link
        return Binding(DRIVER, self._scope, link.state, read_only=link.read_only, in_unit=link.in_unit)

    @override
    def find(
        self, entity: Entity[M], scope: Tenants, keys: Sequence[Key | UniqueKey]
    ) -> tuple[Row[M] | None, ...]:
        with self._link.working() as unit:
            return tuple(read(entity, seen(unit, scope, entity, key)) for key in keys)

    @override
    def page(self, entity: Entity[M], query: Query) -> Page[Row[M]]:
        with self._link.working() as unit:
            rows = select(rows_in(unit, query.scope, entity), query)
            return query.page(
                rows,
                lambda row: decode(entity, row),
                lambda row: sort_key(row, query.order),
                lambda row: row.tenant_id,
            )

    @override
    def count(self, entity: Entity, query: Query, by: str) -> dict[str, int]:
        with self._link.working() as unit:
            rows = ordered(rows_in(unit, query.scope, entity), query)
            return dict(Counter(label_of_value(row.value(by)) for row in rows))

    @override
    def insert(self, entity: Entity[M], scope: Tenants, row: Row[M]) -> Row[M]:
        with self._link.working() as unit:
            store(unit, scope, None, encode(entity, row.model, row.storage))
        return row

    @override
    def put(self, entity: Entity[M], scope: Tenants, row: Row[M]) -> Row[M]:
        wanted = encode(entity, row.model, row.storage)
        with self._link.working() as unit:
            held = hold(unit, scope, entity, wanted.key)
            if held != wanted:
                # An insert is refused for the reason that every insert tells first.
                store(unit, scope, None if entity.append_only else held, wanted)
        return row

    @override
    def change(self, refs: Sequence[Ref], rule: Rule) -> Rows:
        with self._link.working() as unit:
            # In the order of the refs, as on a server that locks: so callers cannot wait for each other.
            held = [hold(unit, ref.scope, ref.entity, ref.key) for ref in refs]
            before = tuple(
                ref.read(partial(decode, ref.entity), row) for ref, row in zip(refs, held, strict=True)
            )
            after = rule(before, unit.store.clock.now)
            # A parent is looked for when its child is written, so it comes first.
            writes = sorted(zip(refs, held, after, strict=True), key=lambda write: write[0].entity.depth)
            for ref, row, changed in writes:
                if changed is not None:
                    store(unit, ref.scope, row, encode(ref.entity, changed.model, changed.storage))
            return tuple(old if new is None else new for old, new in zip(before, after, strict=True))

    @override
    def mark(self, entity: Entity[M], query: Query, sets: Sets) -> tuple[Row[M], ...]:
        with self._link.working() as unit:
            rows = readable(unit, entity, query)
            found = [marked(unit, entity, row, query, sets) for row in rows]
            return tuple(row for row in found if row is not None)

    @override
    def amend(self, entity: Entity, query: Query, sets: Values) -> int:
        amended_rows = 0
        with self._link.working() as unit:
            for row in select(rows_in(unit, query.scope, entity), query)[: query.limit]:
                held = hold(unit, query.scope, entity, row.key)
                if held is not None and matches(held, query):
                    store(unit, query.scope, held, amended(held, sets))
                    amended_rows += 1
        return amended_rows

    @override
    def next_number(self, entity: Entity) -> int:
        with self._link.working() as unit:
            return unit.store.next_number(table(entity).name)

    @override
    def remove(self, entity: Entity, query: Query) -> int:
        removed = 0
        with self._link.working() as unit:
            # Rows that another unit changed meanwhile may match no longer; others then take their place.
            while not removed and (rows := select(rows_in(unit, query.scope, entity), query)[: query.limit]):
                for row in rows:
                    held = hold(unit, query.scope, entity, row.key)
                    if held is not None and matches(held, query):
                        discard(unit, self._entities, held)
                        removed += 1
        return removed

    @contextmanager
    @override
    def unit(self, scope: Tenants, *, atomic: bool = True) -> Iterator[Access]:
        del scope, atomic  # a unit here is always atomic, and sees whatever its calls name
        with self._link.working() as unit:
            yield MemoryAccess(Joined(unit), self._scope, self._entities)


def rows_in(unit: Unit, scope: Tenants, entity: Entity) -> list[DocumentRow]:
    """Return the rows of a scope, in no particular order."""
    return [row for row in unit.values(table(entity)) if is_seen(unit, scope, row)]


def read(entity: Entity[M], row: DocumentRow | None) -> Row[M] | None:
    """Return a row that may be absent, decoded."""
    return None if row is None else decode(entity, row)


def readable(unit: Unit, entity: Entity, query: Query) -> list[DocumentRow]:
    """Return the first rows of a list that can be read; where none can, those behind them."""

    def checked(row: DocumentRow) -> DocumentRow:
        decode(entity, row)
        return row

    wanted = query
    while True:
        rows = select(rows_in(unit, query.scope, entity), wanted)[: wanted.limit]
        found, _ = decoded(rows, checked, (lambda row: row.tenant_id) if query.passes_over else None)
        if found or len(rows) < wanted.limit:
            return found[: query.limit]
        wanted = replace(wanted, limit=2 * wanted.limit)


def marked(unit: Unit, entity: Entity[M], row: DocumentRow, query: Query, sets: Sets) -> Row[M] | None:
    """Set fields of a row; ``None`` when it matches no longer."""
    held = hold(unit, query.scope, entity, row.key)
    marking = Marking(entity, query, sets)
    marking((read(entity, held),), unit.store.clock.now)
    if marking.done is not None:
        store(unit, query.scope, held, encode(entity, marking.done.model, marking.done.storage))
    return marking.done
