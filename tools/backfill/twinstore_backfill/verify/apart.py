"""Rows that differ in nothing but fields that somebody ignores."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from twinstore_backfill.ignoring_fields import content_without
from twinstore_backfill.report.texts import IGNORED_FIELD
from twinstore_backfill.verify.equivalences import Change
from twinstore_backfill.verify.expected import Expected, stands_beside

if TYPE_CHECKING:
    from twinstore.bulk import ScanRow
    from twinstore.catalog import Entity
    from twinstore_backfill.ignoring import IgnoredPath
    from twinstore_backfill.verify.expected import Expecting

__all__ = ["ApartFrom"]


class ApartFrom:
    """Compares rows of one entity apart from its ignored fields."""

    def __init__(self, entity: Entity, ignored: tuple[IgnoredPath, ...], expecting: Expecting) -> None:
        """Take the entity, the fields, and what reads rows as the service does."""
        self._markers, self._ignored, self._expecting = entity.markers, ignored, expecting

    def equal(self, expected: Expected, target: ScanRow) -> Expected | None:
        """Return what both sides agree in, with a change for each ignored field in which they do not.

        ``None`` where they differ in anything else, where no service can read the row of the target, or where
        what it holds beside its content does not follow from that.
        """
        if not self._ignored or not self.alike(expected.content, target.content):
            return None
        own = self._expecting.of(target)
        if not isinstance(own, Expected) or not stands_beside(own, target):
            return None
        found = [
            Change(IGNORED_FIELD, self._place(item), item.path[0])
            for item in self._ignored
            if not self.alike(expected.content, target.content, but=item)
        ]
        # What follows from an ignored field is looked for under a name of its own.
        tops = {item.path[0] for item in self._ignored}
        names = (expected.beside.keys() | own.beside.keys()) - tops
        found += [
            Change(IGNORED_FIELD, f"beside.{name}", name)
            for name in sorted(names)
            if expected.beside.get(name) != own.beside.get(name)
        ]
        content = content_without(expected.content, self._ignored)
        return replace(expected, content=content, changes=(*expected.changes, *found))

    def _place(self, item: IgnoredPath) -> str:
        # A marker hides a field of its name.
        return ".".join(("storage" if item.path[0] in self._markers else "doc", *item.path))

    def alike(self, wanted: bytes, stored: bytes, *, but: IgnoredPath | None = None) -> bool:
        """Whether two contents agree in all fields that are not ignored; ``but`` one is not ignored."""
        left = [item for item in self._ignored if item is not but]
        return content_without(wanted, left) == content_without(stored, left)

    def compared(self, content: bytes) -> bytes:
        """Return the part of a content that is compared."""
        return content_without(content, self._ignored) if self._ignored else content
