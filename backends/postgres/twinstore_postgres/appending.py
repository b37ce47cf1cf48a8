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
from twinstore_postgres.derive import table_of
from twinstore_postgres.errors import NOWHERE, Subject
from twinstore_postgres.owners import owner_values, scope_kind, setting
from twinstore_postgres.settings import DRIVER

if TYPE_CHECKING:
    from twinstore.access import Ref
    from twinstore.catalog import Entity
    from twinstore.tenancy import Tenants
    from twinstore_postgres.execution import Execution, Step
    from twinstore_postgres.transactions import TransactionSteps

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
    with execution.unit(setting(parent.scope), Subject(parent.entity, key)) as steps:
        last = (statements.last_number(table, sequence_field(entity)), key)
        # Its key alone: the parent may be large, and nothing else of it matters to its log.
        lock = (
            statements.lock_row_key(above, scope_kind(parent.scope)),
            (*key, *owner_values(above, parent.scope)),
        )
        # One round trip, in this order: at READ COMMITTED the number is read after the lock is granted.
        held, number, stored = steps.run(lock, last, stored_step(entity, parent.scope, rows))
        if held.first is None:
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
    steps.finish(touched, *inserts, subject=Subject(entity, each=(NOWHERE, *subjects)))


def stored_step(entity: Entity[M], scope: Tenants, rows: Sequence[Row[M]]) -> Step:
    """Return the statement that reads which of some entries are stored already."""
    table = table_of(entity)
    keys = keys_of(entity, rows)
    parts = map(list, zip(*keys, strict=True)) if keys else ([] for _ in entity.key)
    return statements.find_several(table, scope_kind(scope)), (*parts, *owner_values(table, scope))
