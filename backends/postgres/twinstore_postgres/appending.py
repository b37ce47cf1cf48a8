"""Appending to an ordered log in two round trips: look at the parent and the log, then write everything."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Generic, TypeVar

from twinstore.access import Row
from twinstore.appending import sequence_field, sequence_of, with_sequence
from twinstore.canonical import CanonicalModel
from twinstore.failures import not_found, sequence_taken
from twinstore_postgres import statements
from twinstore_postgres.changing import lock_step
from twinstore_postgres.derive import table_of
from twinstore_postgres.errors import Subject
from twinstore_postgres.owners import owner_values, setting, sight
from twinstore_postgres.settings import DRIVER

if TYPE_CHECKING:
    from twinstore.access import Ref
    from twinstore.catalog import Entity, Key
    from twinstore.tenancy import Tenants
    from twinstore_postgres.codec import Row as Values
    from twinstore_postgres.work import Step, Work

__all__ = ["append"]

M = TypeVar("M", bound=CanonicalModel)


def append(
    work: Work, entity: Entity[M], parent: Ref, key: Key, rows: Sequence[Row[M]]
) -> tuple[Row[M], ...]:
    """Append to the log of a parent that is named by its key; see :class:`twinstore.access.Access`."""
    return work.repeat(partial(attempt, work, entity, parent, key, rows))


def attempt(
    work: Work, entity: Entity[M], parent: Ref, key: Key, rows: Sequence[Row[M]]
) -> tuple[Row[M], ...]:
    """Append once.

    The lock of the parent serialises the writers of its log. The parent is written too, although nothing in it
    changes: a lock alone would be invisible to a writer whose snapshot is older.
    """
    table, above = table_of(entity), table_of(parent.entity)
    subject = Subject(entity, above.entity.key_text(key))
    with work.unit(setting(parent.scope), subject) as steps:
        last = (statements.last_number(table, sequence_field(entity)), key)
        held, number, stored = steps.run(lock_step(parent), last, stored_step(entity, parent.scope, rows))
        if held.first is None:
            raise not_found(parent.entity, parent.entity.key_text(key), DRIVER)
        log = Log(entity, (number.first or (None,))[0] or 0, map(table.row, stored.rows))
        appended = tuple(map(log.place, rows))
        writes: list[Step] = [(statements.insert(table), values) for values in log.new]
        steps.finish(*([(statements.touch(above), key), *writes] if writes else []), subject=subject)
    return appended


class Log(Generic[M]):
    """What is known of the log of one parent while entries are placed in it; ``new`` is to be inserted."""

    def __init__(self, entity: Entity[M], last: int, stored: Iterable[Row[M]]) -> None:
        """Take the highest number, and the stored entries under the keys of those to be placed."""
        self.new: list[Values] = []
        self._entity = entity
        self._next = last + 1
        self._known = {key_of(entity, row): row for row in stored}

    def place(self, row: Row[M]) -> Row[M]:
        """Return an entry as it is stored afterwards.

        Raises:
            ConflictError: its place is taken by other content.
        """
        if sequence_of(self._entity, row) is None:
            row = with_sequence(self._entity, row, self._next)
            self._next += 1
        key = key_of(self._entity, row)
        stored = self._known.get(key)
        if stored is None:
            self._known[key] = row
            self.new.append(table_of(self._entity).encode(row.model, row.storage))
            return row
        if stored != row:
            raise sequence_taken(self._entity, self._entity.key_text(key), DRIVER)
        return stored


def stored_step(entity: Entity[M], scope: Tenants, rows: Sequence[Row[M]]) -> Step:
    """Return the statement that reads what is stored under the keys of entries; a key may still lack its number."""
    table = table_of(entity)
    keys = [
        key_of(entity, row)
        for row in rows
        if sequence_field(entity) not in entity.key or sequence_of(entity, row) is not None
    ]
    parts = map(list, zip(*keys, strict=True)) if keys else ([] for _ in entity.key)
    return statements.find_several(table, sight(scope)), (*parts, *owner_values(table, scope))


def key_of(entity: Entity[M], row: Row[M]) -> Key:
    """Return the key of an entry."""
    return entity.key_of(row.model, row.storage)
