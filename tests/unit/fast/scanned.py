"""Stored rows of every entity, hostile ones among them, and the digests that follow from the exact scan."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field
from itertools import pairwise
from random import Random
from typing import TYPE_CHECKING, Final

import bson
import psycopg
from psycopg import sql

from tests.support.copies import numbered_row
from tests.support.digests import cell_of
from tests.support.hostile_documents import changed, packed, parsed
from tests.support.hostile_rows import changed as changed_value
from tests.support.hostile_rows import drop_rules, insert_hostile_rows
from twinstore.bulk.port import Record
from twinstore.bulk.rows import NO_ADDITIONAL_VALUES, Cell, has_marks
from twinstore.catalog.keys import KeyRange
from twinstore.testing.scheduler.examples import SCHEDULER_EXAMPLES
from twinstore.testing.taskrunner.examples import TASKRUNNER_EXAMPLES
from twinstore.testing.tracking.examples import TRACKING_EXAMPLES
from twinstore_backfill.retention import is_expired
from twinstore_mongo.mapping.codec import codec_of
from twinstore_postgres.bulk.digests import no_digests_reason
from twinstore_postgres.mapping.table import table_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from datetime import datetime

    from twinstore.bulk.port import BulkPort, BulkView
    from twinstore.bulk.rows import RangeDigests, ScanRow
    from twinstore.catalog.entity import Entity
    from twinstore.catalog.keys import Key
    from twinstore.catalog.row import Row
    from twinstore.testing.examples import Example

MODULES: Final = (SCHEDULER_EXAMPLES, TRACKING_EXAMPLES, TASKRUNNER_EXAMPLES)
DIGESTED: Final[tuple[Example, ...]] = tuple(
    example for module in MODULES for example in module.examples if no_digests_reason(example.entity) is None
)
"""The entities for which stores compute digests."""
NAMES: Final = tuple(example.entity.name for example in DIGESTED)
SECRET: Final = bytes(range(16))
TENANTS: Final = ("acme", "umbrella", "globex")
CHANGES: Final = (0, 0, 0, 0, 1, 2)


def example_row(example: Example, rng: Random, number: int) -> Row:
    """Return a good row under a key of this number."""
    tenant = TENANTS[number % len(TENANTS)]
    build = example.rich if rng.random() < 0.3 else example.small  # a share
    return numbered_row(example, build(tenant, "good"), tenant, number)


def hostile_documents(example: Example, count: int, seed: int) -> Iterator[bytes]:
    """Yield documents of an entity, the same ones for the same seed; two in three stay good."""
    rng = Random(f"{seed} {example.entity.name}")  # not for secrets
    codec = codec_of(example.entity)
    for number in range(count):
        row = example_row(example, rng, number)
        tree = parsed(bson.encode({"_id": bson.ObjectId(), **codec.encode(row)}))
        for _ in range(rng.choice(CHANGES)):
            tree = changed(rng, tree, number)
        yield packed(tree)


def plant_hostile_rows(url: str, port: BulkPort, example: Example, count: int, seed: int) -> None:
    """Put rows into a table, two in three good and the others changed in a column or two."""
    entity, rng = example.entity, Random(f"{seed} {example.entity.name}")  # not for secrets
    columns = table_of(entity).columns
    with psycopg.connect(url, autocommit=True) as connection:
        drop_rules(connection, entity)
        rows = [example_row(example, rng, number) for number in range(count)]
        with port.writer(entity) as writer:
            writer.write(sorted(map(entity_record(entity), rows), key=lambda record: record.key or ()))
            assert not writer.flush().rejected
            writer.commit()
        names = sql.SQL(", ").join(
            sql.SQL("{}::text").format(sql.Identifier(column.name)) for column in columns
        )
        statement = sql.SQL("SELECT {} FROM {}").format(names, table_of(entity).name)
        lines = connection.execute(statement).fetchall()
        insert_hostile_rows(connection, entity, (changed_line(rng, entity, line) for line in lines))


def changed_line(rng: Random, entity: Entity, line: Sequence[str | None]) -> tuple[str | None, ...]:
    """Return a row with some columns changed."""
    columns, row = table_of(entity).columns, list(line)
    for _ in range(rng.choice(CHANGES)):
        place = rng.randrange(len(columns))
        row[place] = changed_value(rng, columns[place], row[place])
    return tuple(row)


def entity_record(entity: Entity) -> Callable[[Row], Record]:
    """Return what makes records of rows."""

    def record(row: Row) -> Record:
        key, owner = entity.key_of(row.model, row.storage), entity.owner_of(row.model, row.storage)
        return Record(key, owner, row.model, row.storage)

    return record


def is_plain(row: ScanRow) -> bool:
    """Return whether a row is stored as a driver writes it, under its entity's key, with no extra values."""
    return (
        row.key is not None
        and row.error is None
        and row.beside == NO_ADDITIONAL_VALUES
        and not has_marks(row.content)
    )


@dataclass(slots=True)
class Exact:
    """The digests of the rows of ranges, from the exact scan.

    Attributes:
        cells: as of :class:`~twinstore.bulk.port.RangeDigests`, of the plain rows.
        odd: by range the rows that are not plain.
        contents: by range the contents of the others.
    """

    cells: dict[tuple[int, str], Cell] = field(default_factory=dict)
    odd: dict[int, list[ScanRow]] = field(default_factory=dict)
    contents: dict[int, list[bytes]] = field(default_factory=dict)

    def add(self, entity: Entity, number: int, row: ScanRow, cutoff: datetime | None) -> None:
        """Add a row of a range."""
        if not is_plain(row):
            self.odd.setdefault(number, []).append(row)
            return
        self.contents.setdefault(number, []).append(row.content)
        cell = cell_of(row, SECRET, due=is_expired(entity, row, cutoff))
        self.cells.setdefault((number, row.label), Cell()).merge(cell)

    def check(self, found: RangeDigests, ranges: int) -> int:
        """Compare with the digests that a store returns; return how many ranges these prove."""
        proved = [number for number in range(ranges) if number not in found.unproven]
        for number in proved:
            told = {place: cell for place, cell in found.cells.items() if place[0] == number}
            wanted = {place: cell for place, cell in self.cells.items() if place[0] == number}
            assert told == wanted, number
        # Of rows that cannot be placed it is unknown which range they leave unproven.
        assert sum(len(self.odd.get(number, ())) for number in proved) <= found.unplaced
        return len(proved)


def ranges_of(
    view: BulkView, entity: Entity, bounds: Sequence[Key], tenant: str | None = None
) -> list[list[ScanRow]]:
    """Read ranges row by row, as they are compared."""
    found: list[list[ScanRow]] = []
    for lower, upper in pairwise([None, *bounds, None]):
        batches = view.rows(entity, KeyRange(lower, upper), tenant_id=tenant)
        rows = [row for batch in batches for row in batch]
        assert all(row.key is None or bisect_right(bounds, row.key) == len(found) for row in rows)
        found.append(rows)
    return found


def exact_of(entity: Entity, ranges: Sequence[Sequence[ScanRow]], cutoff: datetime | None) -> Exact:
    """Return the digests of ranges that were read row by row."""
    exact = Exact()
    for number, rows in enumerate(ranges):
        for row in rows:
            exact.add(entity, number, row, cutoff)
    return exact


def bounds_of(keys: Iterable[Key | None], step: int) -> list[Key]:
    """Return every so-many-th key, in order."""
    return sorted({key for key in keys if key is not None})[step::step]
