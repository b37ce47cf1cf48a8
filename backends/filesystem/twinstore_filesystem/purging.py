"""Removing the rows of a list file by file: each file is read once, whatever the size of a batch.

A list over all runs reads every file for each of its batches. Here every run is a separate batch, under its
lock; a file that holds none of the rows is only read.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from twinstore.access.defaults import PartialProgress
from twinstore.catalog.conditions import Equals
from twinstore.documents.access import discard
from twinstore_filesystem.rows import FileRow
from twinstore_filesystem.unit import FileUnit

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from twinstore.access.query import Query
    from twinstore.catalog.entity import Entity
    from twinstore.catalog.keys import Key
    from twinstore.documents import DocumentUnit
    from twinstore.documents.access import Steps
    from twinstore_filesystem.files import Files


def purge(files: Files, steps: Steps, entities: Sequence[Entity], entity: Entity, query: Query) -> int:
    """Remove every row that matches a list, whatever its limit; return how many.

    Rows that cannot be read stay: their age is unknown.
    """
    removed = 0
    with PartialProgress(in_unit=steps.in_unit) as done:
        for run in sorted(runs_of(files, entity)):
            own = replace(query, where=(*query.where, Equals(entity.key[0], run)))
            removed += steps.take(lambda unit, own=own: purge_run(unit, entities, entity, own))  # type: ignore[misc]  # mypy cannot infer a lambda with a default
            done.done()
    return removed


def purge_run(unit: DocumentUnit, entities: Sequence[Entity], entity: Entity, query: Query) -> int:
    """Remove the rows of one run that match; nothing is locked or written where none does."""
    found = list(readable_keys(unit, entity, query))
    for key in found:
        unit.hold(entity, key)
    # Again under the lock: others may have changed the file meanwhile.
    found = list(readable_keys(unit, entity, query)) if found else []
    for key in found:
        discard(unit, entities, entity, key)
    return len(found)


def readable_keys(unit: DocumentUnit, entity: Entity, query: Query) -> Iterator[Key]:
    """Yield the keys of the rows that match; of the rows one is in memory at a time."""
    for row in unit.matching(entity, query) if isinstance(unit, FileUnit) else ():
        if not (isinstance(row, FileRow) and row.error is not None):
            yield row.key


def runs_of(files: Files, entity: Entity) -> Iterator[str]:
    """Yield the runs that have a file of an entity; a long id is read from the rows."""
    form = files.layout(entity).form
    for file in files.all(entity):
        if file.run is not None:
            yield file.run
        elif (first := next((row for row in form.rows(file) if row.error is None), None)) is not None:
            yield str(first.key[0])
