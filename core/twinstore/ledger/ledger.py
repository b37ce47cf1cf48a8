"""The ledger of copies, written once over :class:`~twinstore.access.Access`.

Who may do what:

- The **lease** of a job belongs to one coordinator; it plans, reopens, completes and stops.
- A **worker** takes ranges, and whoever holds the fence of a range commits it.
- The **lines** about single documents are stored and forgotten with their range.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final

from twinstore.access import Row
from twinstore.ledger.catalog import CONFLICTS, QUARANTINE
from twinstore.ledger.models import ConflictLine, QuarantineLine
from twinstore.ledger.ranges import MAX_ATTEMPTS, RangeLedger
from twinstore.query import Equals, key_order
from twinstore.tenancy import ALL_TENANTS

if TYPE_CHECKING:
    from twinstore.access import Access
    from twinstore.ledger.records import Claim

__all__ = ["MAX_ATTEMPTS", "Ledger"]

# A line of the quarantine may hold 1 MB, and a page is in memory as a whole.
PAGE_OF_LINES: Final = 20


class Ledger(RangeLedger):
    """The durable record of jobs, ranges and lines, kept in the target."""

    def note(
        self, access: Access, claim: Claim, bad: Iterable[QuarantineLine], conflicts: Iterable[ConflictLine]
    ) -> None:
        """Store the lines of a range in place of those of an earlier attempt, inside its transaction.

        One line at a time is taken of either, so that they need not all be in memory.
        """
        # A range that is copied again, after it was taken over or reopened, has lines of the attempt before.
        self._forget_lines(access, claim.job_id, claim.number)
        for line in bad:
            access.insert(QUARANTINE, ALL_TENANTS, Row(line))
        for conflict in conflicts:
            access.insert(CONFLICTS, ALL_TENANTS, Row(conflict))

    def quarantined(self, job_id: str, entity: str | None = None) -> Iterator[QuarantineLine]:
        """Return the quarantined documents of a job by range and line, each in one or more parts."""
        where = [Equals("jobId", job_id)]
        where += [] if entity is None else [Equals("entity", entity)]
        rows = self._all(QUARANTINE, where, key_order(QUARANTINE), PAGE_OF_LINES)
        return (row.model for row in rows)

    def conflicts(self, job_id: str) -> Iterator[ConflictLine]:
        """Return the conflicts of a job in the order of ranges and lines."""
        where = (Equals("jobId", job_id),)
        return (row.model for row in self._all(CONFLICTS, where, key_order(CONFLICTS)))
