"""Which pairs of rows a comparison is about, where only a part of the rows is meant."""

from __future__ import annotations

from typing import TYPE_CHECKING

from twinstore import jsontext
from twinstore_backfill.copy.reading import is_meant
from twinstore_backfill.copy.retention import instant_in

if TYPE_CHECKING:
    from datetime import datetime

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

    def __call__(self, source: ScanRow | None, target: ScanRow | None = None) -> bool:
        """Whether a pair is meant: one of its rows is. A row whose date cannot be told always is.

        So is one of the source that a copy cannot take, whatever its date, because a copy of any period keeps
        it back; what only the target has is not removed for that.
        """
        name = self._name
        if name is None:
            return True
        return (source is not None and self._is_meant(source, name, judged=True)) or (
            target is not None and self._is_meant(target, name, judged=False)
        )

    def _is_meant(self, row: ScanRow, name: str, *, judged: bool) -> bool:
        instant = _instant_of(row, name)
        if instant is not None and (self._subset.admits(instant) or not judged):
            return self._subset.admits(instant)
        # In another form than a copy writes, or absent with a default: as a copy would read it.
        record = self._expecting.record(row)
        return record is None or is_meant(self._entity, self._subset, record)


def _instant_of(row: ScanRow, name: str) -> datetime | None:
    """Return the instant as it is stored, ``None`` where it is not stored in the form of a copy."""
    content = jsontext.loads(row.content)
    if not isinstance(content, dict):
        return None
    # A marker hides a field of its name.
    for part in ("storage", "doc"):
        values = content.get(part)
        instant = instant_in(values.get(name)) if isinstance(values, dict) else None
        if instant is not None:
            return instant
    return None
