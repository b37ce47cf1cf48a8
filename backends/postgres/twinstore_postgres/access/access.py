"""Access to the rows of any entity: the same few statements for every table.

Reads and simple writes cost one round trip. A step that reads before it writes costs two: in the first the
transaction begins, the rows are locked and the clock is read; in the second all is written and committed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Final, TypeVar

from psycopg import sql
from typing_extensions import override

from twinstore.access.defaults import AccessDefaults, Log, key_text_of, keys_of, sequence_field
from twinstore.access.errors import duplicate, not_found
from twinstore.access.protocol import Access, Binding, Unset
from twinstore.access.query import label_of_value, pinned_key
from twinstore.catalog.entity import Layout
from twinstore.catalog.row import Row
from twinstore.catalog.tenancy import ALL_TENANTS
from twinstore.models import json_text
from twinstore.models.canonical import CanonicalModel
from twinstore_postgres.access import statements
from twinstore_postgres.access.changing import change, mark
from twinstore_postgres.access.queries import (
    compile_count,
    compile_keys,
    compile_query,
    compile_removal,
    compile_selection,
)
from twinstore_postgres.connection.errors import NO_SUBJECT, Subject
from twinstore_postgres.mapping.codec import Json
from twinstore_postgres.mapping.columns import PAYLOAD, VERSION, Origin
from twinstore_postgres.mapping.table import table_of
from twinstore_postgres.mapping.tenancy import owner_values, scope_kind, scope_parameters, setting
from twinstore_postgres.settings import DRIVER

if TYPE_CHECKING:
    from twinstore.access.paging import Page
    from twinstore.access.protocol import FieldUpdates, Ref, Rows, Rule, UniqueKey, Values
    from twinstore.access.query import Query
    from twinstore.catalog.entity import Entity
    from twinstore.catalog.keys import Key
    from twinstore.catalog.tenancy import Tenants
    from twinstore.errors import TwinstoreError
    from twinstore_postgres.access.execution import Execution
    from twinstore_postgres.connection.batch import Step
    from twinstore_postgres.connection.transaction import TransactionSteps
    from twinstore_postgres.mapping.table import Table

M = TypeVar("M", bound=CanonicalModel)
Special = Callable[..., object]
"""A statement of this driver for a hot operation; takes the access and the arguments of the general way."""

# A concurrent transaction may insert, replace or remove the row between two statements; then the first one is
# tried again. Each further try loses only to another transaction; after the third the key counts as taken.
TRIES: Final = 3


class PostgresAccess(AccessDefaults, Access):
    """Implements :class:`~twinstore.access.protocol.Access` over one way to the server."""

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
        # A single key has a separate statement, whose plan the server keeps.
        if len(keys) > 1:
            return find_several(self.execution, table, scope, keys)
        unique, values = table.locate(keys[0])
        kind, tenant_setting, owner = scope_parameters(table, scope)
        step = (statements.find(table, kind, unique), (*values, *owner))
        found = self.execution.one(tenant_setting, Subject(entity, values), step)
        return (None if found is None else table.row(found),)

    @override
    def page(self, entity: Entity[M], query: Query) -> Page[Row[M]]:
        table = table_of(entity)
        found = self.execution.read(setting(query.scope), Subject(entity), compile_query(query, table))
        by = table.field_getter([key.field for key in query.order])
        # The extra row only shows that there is another page; its content is unused and may be large.
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
        # An absent parent would break the foreign key, which the server checks after a key that is taken.
        if table.parent is not None:
            if not self._insert_unless_stored(table, scope, row):
                raise self._conflict_error(table, scope, row)
            return row
        step = (statements.insert(table), table.encode(row))
        self.execution.write(setting(scope), Subject(entity, row=row), step)
        return row

    @override
    def insert_all(self, entity: Entity[M], scope: Tenants, rows: Sequence[Row[M]]) -> None:
        table, size = table_of(entity), statements.ROWS_AT_ONCE
        values = [table.encode(row) for row in rows]
        whole = len(values) // size * size
        parts = (chain.from_iterable(values[start : start + size]) for start in range(0, whole, size))
        several = ((statements.insert_several(table), tuple(part)) for part in parts)
        single = ((statements.insert(table), part) for part in values[whole:])
        # In one round trip, so an error names no row.
        self.execution.write(setting(scope), Subject(entity), *several, *single)

    @override
    def put(self, entity: Entity[M], scope: Tenants, row: Row[M]) -> Row[M]:
        table = table_of(entity)
        if entity.append_only:
            return self._put_once(table, scope, row)
        kind, tenant_setting, owner = scope_parameters(table, scope)
        values = table.encode(row)
        own = statements.is_put_own(table)
        if not own:
            key = entity.key_of(row.model, row.storage)
            parent = () if table.parent is None else owner_values(table.parent, scope)
            values = (*values, *key, *owner, *parent, *key, *owner)
        step = (statements.put(table, kind), values)
        for _ in range(TRIES):
            (found,) = self.execution.write(tenant_setting, Subject(entity, row=row), step)
            # If the caller always chooses the key, any conflicting row was replaced.
            if own or found.first == (True,):
                return row
        raise self._conflict_error(table, scope, row)

    @override
    def change(self, refs: Sequence[Ref], rule: Rule) -> Rows:
        return change(self.execution, refs, rule)

    @override
    def mark(self, entity: Entity[M], query: Query, sets: FieldUpdates) -> tuple[Row[M], ...]:
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
            _, parameters = table.locate(key)
            values = (*parameters, *owner_values(table, query.scope))
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
        """Insert a row that never changes; a conflicting row can therefore be read afterwards."""
        if not self._insert_unless_stored(table, scope, row):
            key = table.entity.key_of(row.model, row.storage)
            (stored,) = self.find(table.entity, scope, (key,))
            if stored != row:
                raise self._conflict_error(table, scope, row)
        return row

    def _insert_unless_stored(self, table: Table, scope: Tenants, row: Row) -> bool:
        kind, tenant_setting, _ = scope_parameters(table, scope)
        values = table.encode(row)
        if table.parent is not None:
            values = (*values, *owner_values(table.parent, scope))
        step = (statements.insert_unless_stored(table, kind), values)
        (inserted,) = self.execution.write(tenant_setting, Subject(table.entity, row=row), step)
        return inserted.count > 0

    def _conflict_error(self, table: Table, scope: Tenants, row: Row) -> TwinstoreError:
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
    named = table.field_getter(fields)
    rows = {named(values): values for values in found.rows}
    return tuple(table.row(rows[key]) if key in rows else None for key in wanted)


# Appending to an ordered log in two round trips: look at the parent and the log, then write everything.


def append(
    execution: Execution, entity: Entity[M], parent: Ref, rows: Sequence[Row[M]]
) -> tuple[Row[M], ...]:
    """Append to an ordered log; see :class:`twinstore.access.protocol.Access`."""
    return execution.retry(partial(attempt, execution, entity, parent, rows))


def attempt(
    execution: Execution, entity: Entity[M], parent: Ref, rows: Sequence[Row[M]]
) -> tuple[Row[M], ...]:
    """Append once.

    The lock of the parent serialises the writers of its log. The parent is written too, although nothing in
    it changes: a lock alone would be invisible to a writer whose snapshot is older.
    """
    table, above = table_of(entity), table_of(parent.entity)
    _, key = above.locate(parent.key)
    with execution.unit(setting(parent.scope), Subject(parent.entity, key)) as steps:
        last = (statements.last_number(table, sequence_field(entity)), key)
        # Its key alone: the parent may be large, and nothing else of it matters to its log.
        lock = (
            statements.lock_row_key(above, scope_kind(parent.scope)),
            (*key, *owner_values(above, parent.scope)),
        )
        # One round trip, in this order: at READ COMMITTED the number is read after the lock is granted.
        locked, number, stored = steps.run(lock, last, stored_step(entity, parent.scope, rows))
        if locked.first is None:
            raise not_found(parent.entity, key_text_of(parent), DRIVER)
        log = Log(entity, DRIVER, map(table.row, stored.rows), lambda: number.rows[0][0])
        appended = tuple(map(log.place, rows))
        if log.new:
            write(steps, (statements.touch(above), key), entity, [*log.new])
        else:
            steps.finish()
    return appended


def write(steps: TransactionSteps, touched: Step, entity: Entity, new: Sequence[Row]) -> None:
    """Write the parent and the new entries, and end the transaction, if it is ours."""
    table = table_of(entity)
    inserts: list[Step] = [(statements.insert(table), table.encode(row)) for row in new]
    subjects = tuple(Subject(entity, row=row) for row in new)
    steps.finish(touched, *inserts, subject=Subject(entity, each=(NO_SUBJECT, *subjects)))


def stored_step(entity: Entity[M], scope: Tenants, rows: Sequence[Row[M]]) -> Step:
    """Return the statement that reads which of some entries are stored already."""
    table = table_of(entity)
    keys = keys_of(entity, rows)
    parts = map(list, zip(*keys, strict=True)) if keys else ([] for _ in entity.key)
    return statements.find_several(table, scope_kind(scope)), (*parts, *owner_values(table, scope))


# Setting fields of rows as they are stored, without reading them: for rows that cannot be decoded.


COLUMN: Final = sql.SQL("{} = %s")
MERGED: Final = sql.SQL("{0} = ({0} || %s) - %s::text[]")
COUNTED: Final = sql.SQL("{0} = {0} + 1")


def compile_amendment(query: Query, table: Table, values: Values) -> Step:
    """Return the statement that sets fields of the first rows of a list."""
    parts = list(assignments(table, values))
    changed = sql.SQL(", ").join(part for part, _ in parts)
    statement, given = compile_selection(
        sql.SQL("UPDATE {} SET {}").format(table.name, changed), query, table
    )
    return statement, [*(value for _, several in parts for value in several), *given]


def assignments(table: Table, values: Values) -> Iterator[tuple[sql.Composable, tuple[object, ...]]]:
    """Yield what sets the columns, each with its parameters."""
    for name, value in values.items():
        column = table.by_field.get(name)
        if column is not None and column.origin in {Origin.FIELD, Origin.MARKER}:
            yield (
                COLUMN.format(sql.Identifier(column.name)),
                (None if isinstance(value, Unset) else column.bound(value),),
            )
    inside = in_payload(table, values)
    if inside:
        kept = {name: value for name, value in inside.items() if not isinstance(value, Unset)}
        gone = [name for name in inside if name not in kept]
        yield MERGED.format(sql.Identifier(PAYLOAD)), (Json(json_text.dumps(kept)), gone)
    if table.entity.versioned_table:
        yield COUNTED.format(sql.Identifier(VERSION)), ()


def in_payload(table: Table, values: Values) -> Mapping[str, object]:
    """Return the fields that a payload holds, whether or not a column repeats them."""
    if table.entity.layout is not Layout.PAYLOAD:
        return {}
    return {name: value for name, value in values.items() if name not in table.entity.markers}
