"""Signs that the source changed during a copy: how many rows an entity has, and its highest date.

A date may be that of creation, as of runs: a change that keeps the number of rows is not noticed there.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from twinstore.access.paging import SortKey
from twinstore.access.query import Query, key_order
from twinstore.catalog.conditions import IsPresent
from twinstore.catalog.tenancy import ALL_TENANTS
from twinstore.errors import TwinstoreError
from twinstore.models.json_text import format_timestamp

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from twinstore.bulk.port import BulkPort
    from twinstore.catalog.entity import Entity
    from twinstore_backfill.copy.reader import SourceRows


@dataclass(frozen=True, slots=True)
class EntityState:
    """The rows of an entity and their highest date (``Entity.dated``), ``None`` if it is unknown."""

    rows: int
    latest: str | None = None

    def differs(self, other: EntityState) -> bool:
        """Whether something changed in between."""
        known = self.latest is not None and other.latest is not None
        return self.rows != other.rows or (known and self.latest != other.latest)


def entity_states(rows: SourceRows, entities: Sequence[Entity]) -> dict[str, EntityState]:
    """Return the present state of each entity, without those that cannot be queried for it.

    There is none of a part of the rows, nor of a large entity. Of some tenants only the number of rows is
    known.
    """
    found: dict[str, EntityState] = {}
    if rows.subset:
        return found
    for entity in entities:
        # A copy does not need this, and a source may lack a table or a column.
        with suppress(TwinstoreError):
            # Both read all rows.
            if rows.is_large(entity):
                continue
            count = sum(rows.counts(entity).values())
            found[entity.name] = EntityState(count)
            if not rows.tenants:
                found[entity.name] = EntityState(count, _latest(rows.port, entity))
    return found


def _latest(port: BulkPort, entity: Entity) -> str | None:
    if entity.dated is None:
        return None
    query = Query(
        entity=entity.name,
        scope=ALL_TENANTS,
        where=(IsPresent(entity.dated),),
        order=(SortKey(entity.dated, descending=True, time=True), *key_order(entity)),
        limit=1,
        skips_undecodable=True,
    )
    row = next(iter(port.access().page(entity, query)), None)
    value = None if row is None else entity.value(row.model, row.storage, entity.dated)
    return format_timestamp(value) if isinstance(value, datetime) else None


def source_changes(
    before: Mapping[str, EntityState], after: Mapping[str, EntityState]
) -> Iterator[dict[str, object]]:
    """Yield what changed, as the report shows it."""
    for name, old in before.items():
        new = after.get(name, old)
        if old.differs(new):
            yield {
                "entity": name,
                "rows_before": old.rows,
                "rows_after": new.rows,
                "latest_before": old.latest,
                "latest_after": new.latest,
            }
