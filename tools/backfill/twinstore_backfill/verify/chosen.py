"""Which pairs of rows a comparison is about, where only a part of the rows is meant."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from twinstore import jsontext
from twinstore_backfill.copy.reading import is_meant
from twinstore_backfill.copy.retention import instant_in

if TYPE_CHECKING:
    from twinstore.bulk import ScanRow
    from twinstore.catalog import Entity
    from twinstore_backfill.subset import Subset
    from twinstore_backfill.verify.expected import Expecting

__all__ = ["Chosen"]


class Chosen:
    """Tells rows that are meant by their date; keys are chosen by the ranges that are read."""

    def __init__(self, entity: Entity, subset: Subset, expecting: Expecting) -> None:
        """Take the entity, the part that is meant, and what reads its rows as a copy does."""
        self._entity, self._subset, self._expecting = entity, subset, expecting
        self._name = entity.dated if subset.by_time else None

    def __call__(self, *rows: ScanRow | None) -> bool:
        """Whether a pair is meant: one of its rows is. A row whose date cannot be told always is."""
        return self._name is None or any(self._is_meant(row, self._name) for row in rows if row is not None)

    def _is_meant(self, row: ScanRow, name: str) -> bool:
        content = jsontext.loads(row.content)
        if isinstance(content, dict):
            # A marker hides a field of its name.
            for part in ("storage", "doc"):
                values = content.get(part)
                value = values.get(name) if isinstance(values, dict) else None
                instant = instant_in(value)
                if isinstance(instant, datetime):
                    return self._subset.admits(instant)
        # In another form than a copy writes, or absent with a default: as a copy would read it.
        record = self._expecting.record(row)
        return record is None or is_meant(self._entity, self._subset, record)
