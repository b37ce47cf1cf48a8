"""Access to the rows of any entity: the same few statements for every table.

Reads and simple writes cost one round trip. A step that reads before it writes costs two: in the first the
transaction begins, the rows are locked and the clock is read; in the second all is written and committed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

from typing_extensions import override

from twinstore.access import Access, AccessDefaults, Binding, Row
from twinstore.canonical import CanonicalModel
from twinstore.failures import duplicate, not_found
from twinstore.query import label_of_value, pinned_key
from twinstore.tenancy import ALL_TENANTS
from twinstore_postgres import statements
from twinstore_postgres.amending import compile_amendment
from twinstore_postgres.appending import append
from twinstore_postgres.changing import change, mark
from twinstore_postgres.compile import compile_count, compile_keys, compile_query, compile_removal
from twinstore_postgres.derive import table_of
from twinstore_postgres.errors import Subject
from twinstore_postgres.owners import owner_values, scope_kind, setting, view
from twinstore_postgres.settings import DRIVER

if TYPE_CHECKING:
    from twinstore.access import Ref, Rows, Rule, Sets, UniqueKey, Values
    from twinstore.catalog import Entity, Key
    from twinstore.errors import TwinstoreError
    from twinstore.paging import Page
    from twinstore.query import Query
    from twinstore.tenancy import Tenants
    from twinstore_postgres.derive import Table
    from twinstore_postgres.execution import Execution

__all__ = ["PostgresAccess", "Special"]

M = TypeVar("M", bound=CanonicalModel)
Special = Callable[..., object]
"""A statement of this driver for a hot operation; takes the access and the arguments of the general way."""

# A rival may insert, replace or remove the row between two statements; then the first one is tried again.
# Each further try loses only to yet another rival; after the third the key counts as taken.
TRIES: Final = 3


class PostgresAccess(AccessDefaults, Access):
    """Implements :class:`~twinstore.access.Access` over one way to the server."""

    def __init__(self, execution: Execution, specials: Mapping[str, Special]) -> None:
        self.execution = execution
        self._specials = specials

    @property
    @override
    def binding(self) -> Binding:
        return self.execution.binding

    @override
    def find(
        self, entity: Entity[M], scope: Tenants, keys: Sequence[Key | UniqueKey]
    ) -> tuple[Row[M] | None, ...]:
        table = table_of(entity)
        # One key has a statement of its own, whose plan the server keeps.
        if len(keys) > 1:
            return find_several(self.execution, table, scope, keys)
        unique, values = table.locate(keys[0])
        kind, told, owner = view(table, scope)
        step = (statements.find(table, kind, unique), (*values, *owner))
        found = self.execution.one(told, Subject(entity, values), step)
        return (None if found is None else table.row(found),)

    @override
    def page(self, entity: Entity[M], query: Query) -> Page[Row[M]]:
        table = table_of(entity)
        found = self.execution.read(setting(query.scope), Subject(entity), compile_query(query, table))
        by = table.taker([key.field for key in query.order])
        # What is in the row that only tells of another page matters to nobody, and may be large.
        found.rows[query.limit :] = [() for _ in found.rows[query.limit :]]
        return query.page(found.rows, table.row, by, table.tenant_in)

    @override
    def count(self, entity: Entity, query: Query, by: str) -> dict[str, int]:
        table = table_of(entity)
        step = compile_count(query, table, by)
        found = self.execution.read(setting(query.scope), Subject(entity), step)
        return {label_of_value(table.wire_value(by, value)): number for value, number in found.rows}

    @override
    def keys(self, entity: Entity, query: Query) -> tuple[Key, ...]:
        table = table_of(entity)
        found = self.execution.read(setting(query.scope), Subject(entity), compile_keys(query, table))
        keys = map(table.key_from, found.rows)
        return tuple(key for key in keys if entity.admits_key(key))

    @override
    def insert(self, entity: Entity[M], scope: Tenants, row: Row[M]) -> Row[M]:
        table = table_of(entity)
        # An absent parent would break the foreign key, which the server looks at after a key that is taken.
        if table.parent is not None:
            if not self._insert_unless_stored(table, scope, row):
                raise self._in_the_way(table, scope, row)
            return row
        step = (statements.insert(table), table.encode(row))
        self.execution.write(setting(scope), Subject(entity, row=row), step)
        return row

    @override
    def put(self, entity: Entity[M], scope: Tenants, row: Row[M]) -> Row[M]:
        table = table_of(entity)
        if entity.append_only:
            return self._put_once(table, scope, row)
        kind, told, owner = view(table, scope)
        values = table.encode(row)
        own = statements.is_put_own(table)
        if not own:
            key = entity.key_of(row.model, row.storage)
            parent = () if table.parent is None else owner_values(table.parent, scope)
            values = (*values, *key, *owner, *parent, *key, *owner)
        step = (statements.put(table, kind), values)
        for _ in range(TRIES):
            (found,) = self.execution.write(told, Subject(entity, row=row), step)
            # With keys that are always the caller's, whatever stands in the way was replaced.
            if own or found.first == (True,):
                return row
        raise self._in_the_way(table, scope, row)

    @override
    def change(self, refs: Sequence[Ref], rule: Rule) -> Rows:
        return change(self.execution, refs, rule)

    @override
    def mark(self, entity: Entity[M], query: Query, sets: Sets) -> tuple[Row[M], ...]:
        return mark(self.execution, entity, query, sets)

    @override
    def amend(self, entity: Entity, query: Query, sets: Values) -> int:
        step = compile_amendment(query, table_of(entity), sets)
        (result,) = self.execution.write(setting(query.scope), Subject(entity), step)
        return result.count

    @override
    def append(self, entity: Entity[M], parent: Ref, rows: Sequence[Row[M]]) -> tuple[Row[M], ...]:
        return append(self.execution, entity, parent, rows)

    @override
    def next_number(self, entity: Entity) -> int:
        step = statements.next_number(table_of(entity))
        # As a write, because a transaction that only reads may not count.
        (found,) = self.execution.write(setting(ALL_TENANTS), Subject(entity), step)
        return int(found.rows[0][0])

    @override
    def remove(self, entity: Entity, query: Query) -> int:
        table = table_of(entity)
        key = pinned_key(entity, query)
        step = compile_removal(query, table)
        # The row of one key: without the list of candidates, which a removal of the first rows needs.
        if key is not None and len(query.where) == len(key):
            values = (*key, *owner_values(table, query.scope))
            step = (statements.delete(table, scope_kind(query.scope)), values)
        (result,) = self.execution.write(setting(query.scope), Subject(entity), step)
        return result.count

    @override
    @contextmanager
    def unit(self, scope: Tenants, *, atomic: bool = True) -> Iterator[Access]:
        del atomic  # every unit here is
        with self.execution.opened(setting(scope)) as execution:
            yield PostgresAccess(execution, self._specials)

    @override
    def special(self, operation: str) -> Callable[..., object] | None:
        found = self._specials.get(operation)
        return None if found is None else partial(found, self)

    def _put_once(self, table: Table[M], scope: Tenants, row: Row[M]) -> Row[M]:
        """Insert a row that nobody ever changes; what stands in its way can therefore be read afterwards."""
        if not self._insert_unless_stored(table, scope, row):
            key = table.entity.key_of(row.model, row.storage)
            (stored,) = self.find(table.entity, scope, (key,))
            if stored != row:
                raise self._in_the_way(table, scope, row)
        return row

    def _insert_unless_stored(self, table: Table, scope: Tenants, row: Row) -> bool:
        kind, told, _ = view(table, scope)
        values = table.encode(row)
        if table.parent is not None:
            values = (*values, *owner_values(table.parent, scope))
        step = (statements.insert_unless_stored(table, kind), values)
        (inserted,) = self.execution.write(told, Subject(table.entity, row=row), step)
        return inserted.count > 0

    def _in_the_way(self, table: Table, scope: Tenants, row: Row) -> TwinstoreError:
        """Return why a row was not inserted: its parent is out of sight, or its key is taken."""
        entity = table.entity
        if entity.parent is not None:
            key = table.parent_key(row)
            if self.find(entity.parent.entity, scope, (key,)) == (None,):
                return not_found(entity.parent.entity, entity.parent.entity.key_text(key), DRIVER)
        return duplicate(entity, entity.key_of(row.model, row.storage), DRIVER)


def find_several(
    execution: Execution, table: Table[M], scope: Tenants, keys: Sequence[Key | UniqueKey]
) -> tuple[Row[M] | None, ...]:
    """Return the rows of some keys in their order, read by one statement."""
    unique, _ = table.locate(keys[0])
    wanted = [table.locate(key)[1] for key in keys]
    statement = statements.find_several(table, scope_kind(scope), unique)
    values = [*map(list, zip(*wanted, strict=True)), *owner_values(table, scope)]
    found = execution.read(setting(scope), Subject(table.entity), (statement, values))
    fields = table.entity.key if unique is None else table.entity.unique(unique).names
    named = table.taker(fields)
    rows = {named(values): values for values in found.rows}
    return tuple(table.row(rows[key]) if key in rows else None for key in wanted)
