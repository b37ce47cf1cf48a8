"""Which rows the copies into a target have in quarantine, so that their absence there is known and no loss.

Most such rows can be told from the source alone: no copy takes them. Others only the target refused, because
a unique value was taken or their parent was not there, and of those the ledger of the copy alone knows.
"""

from __future__ import annotations

from functools import cached_property
from logging import getLogger
from typing import TYPE_CHECKING

from twinstore.errors import ConfigurationError, MigrationError
from twinstore_backfill.stores import has_ledger

if TYPE_CHECKING:
    from collections.abc import Sequence
    from collections.abc import Set as AbstractSet

    from twinstore.catalog import Entity
    from twinstore.keys import Key
    from twinstore_backfill.stores import Store

__all__ = ["KeptBack", "nothing_kept"]

log = getLogger(__name__)


class KeptBack:
    """Asks the ledger of the target; it is looked at when the first row is missing there."""

    def __init__(self, source: Store, target: Store) -> None:
        """Take both sides."""
        self._source, self._target = source, target

    def __call__(self, entity: Entity, keys: Sequence[Key]) -> AbstractSet[Key]:
        """Return those of some keys of the source whose rows a copy has in quarantine."""
        found: set[Key] = set()
        for job in self._jobs:
            found |= self._target.ledger.kept_back(job, entity.name, keys)
        return found

    @cached_property
    def _jobs(self) -> tuple[str, ...]:
        """The copies of this source into this target; none where the ledger cannot be read."""
        try:
            if not has_ledger(self._target):
                return ()
        # A role that may read the rows need not have rights on the ledger; then the rows count as missing.
        except (ConfigurationError, MigrationError) as error:
            log.warning("the ledger of copies in the target cannot be read: %s", error)
            return ()
        # 0.1.0 told stores by their place.
        names = {self._source.bulk.identity, self._source.bulk.place}
        return tuple(job.id for job in self._target.ledger.jobs() if job.settings.get("source") in names)


def nothing_kept(entity: Entity, keys: Sequence[Key]) -> AbstractSet[Key]:
    """Return nothing, for a comparison of which no copy is known."""
    del entity, keys
    return frozenset()
