"""Appending to an ordered log in two round trips: look at the parent and the log, then write everything."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from twinstore.access import Row
from twinstore.appending import Log, key_text_of, keys_of, sequence_field
from twinstore.canonical import CanonicalModel
from twinstore.failures import not_found
from twinstore_postgres import statements
from twinstore_postgres.changing import lock_step
from twinstore_postgres.derive import table_of
from twinstore_postgres.errors import Subject
from twinstore_postgres.owners import owner_values, setting, sight
from twinstore_postgres.settings import DRIVER

if TYPE_CHECKING:
    from twinstore.access import Ref
    from twinstore.catalog import Entity
    from twinstore.tenancy import Tenants
    from twinstore_postgres.execution import Execution, Step

__all__ = ["append"]

M = TypeVar("M", bound=CanonicalModel)


def append(
    execution: Execution, entity: Entity[M], parent: Ref, rows: Sequence[Row[M]]
) -> tuple[Row[M], ...]:
    """Append to an ordered log; see :class:`twinstore.access.Access`."""
    return execution.repeat(partial(attempt, execution, entity, parent, rows))


def attempt(
    execution: Execution, entity: Entity[M], parent: Ref, rows: Sequence[Row[M]]
) -> tuple[Row[M], ...]:
    """Append once.

    The lock of the parent serialises the writers of its log. The parent is written too, although nothing in
    it changes: a lock alone would be invisible to a writer whose snapshot is older.
    """
    table, above = table_of(entity), table_of(parent.entity)
    _, key = above.locate(parent.key)
    subject = Subject(parent.entity, key)
    with execution.unit(setting(parent.scope), subject) as steps:
        last = (statements.last_number(table, sequence_field(entity)), key)
        held, number, stored = steps.run(lock_step(parent), last, stored_step(entity, parent.scope, rows))
        if held.first is None:
            raise not_found(parent.entity, key_text_of(parent), DRIVER)
        log = Log(entity, DRIVER, map(table.row, stored.rows), lambda: number.rows[0][0])
        appended = tuple(map(log.place, rows))
        # A key may be taken by an entry that this scope does not see: the entry is told then, not its parent.
        subject.others = tuple(Subject(entity, row=row) for row in log.new)
        new = [(statements.insert(table), table.encode(row.model, row.storage)) for row in log.new]
        writes: list[Step] = [(statements.touch(above), key), *new] if new else []
        steps.finish(*writes)
    return appended


def stored_step(entity: Entity[M], scope: Tenants, rows: Sequence[Row[M]]) -> Step:
    """Return the statement that reads which of some entries are stored already."""
    table = table_of(entity)
    keys = keys_of(entity, rows)
    parts = map(list, zip(*keys, strict=True)) if keys else ([] for _ in entity.key)
    return statements.find_several(table, sight(scope)), (*parts, *owner_values(table, scope))
