"""The ledger of copies, written once over :class:`~twinstore.access.Access`.

Who may do what:

- The **lease** of a job belongs to one coordinator; it plans, reopens, completes and stops.
- A **worker** takes ranges, and whoever holds the fence of a range commits it.
- The **lines** about single documents are stored and forgotten with their range.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from twinstore.access import Row
from twinstore.ledger.catalog import CONFLICTS, QUARANTINE
from twinstore.ledger.models import ConflictLine, QuarantineLine, RangeState
from twinstore.ledger.ranges import MAX_ATTEMPTS, MAX_DEATHS, RangeLedger
from twinstore.ledger.records import key_json
from twinstore.query import Equals, OneOf, key_order
from twinstore.tenancy import ALL_TENANTS

if TYPE_CHECKING:
    from twinstore.access import Access
    from twinstore.catalog import Key
    from twinstore.ledger.records import Claim

__all__ = ["MAX_ATTEMPTS", "MAX_DEATHS", "Ledger"]

# A line of the quarantine may hold 1 MB, and a page is in memory as a whole.
PAGE_OF_LINES: Final = 20
# Of one transaction that stores lines ahead, in characters.
AHEAD: Final = 3_000_000


class Ledger(RangeLedger):
    """The durable record of jobs, ranges and lines, kept in the target."""

    def note(
        self,
        access: Access,
        claim: Claim,
        bad: Iterable[QuarantineLine],
        conflicts: Iterable[ConflictLine],
        *,
        more: bool = False,
    ) -> None:
        """Store the lines of a range in place of those of an earlier attempt, inside its transaction.

        One line at a time is taken of either, so that they need not all be in memory. With ``more`` they are
        stored beside those that :meth:`note_ahead` has stored for this claim.
        """
        # A range that is copied again, after it was taken over or reopened, has lines of the attempt before.
        if not more:
            self._forget_lines(access, claim.job_id, claim.number)
        for line in bad:
            access.insert(QUARANTINE, ALL_TENANTS, Row(line))
        for conflict in conflicts:
            access.insert(CONFLICTS, ALL_TENANTS, Row(conflict))

    def note_ahead(self, claim: Claim, bad: Iterable[QuarantineLine], *, more: bool) -> None:
        """Store lines of a range before it is committed, a few megabytes in each transaction.

        Stores bound transactions, and the documents of one range that cannot be moved may be gigabytes. What
        is stored so counts once the range is live; an attempt that fails leaves it to the next to forget.

        Raises:
            LeaseLostError: the range was taken over.
        """
        for lines in in_transactions(bad):
            self._in_unit(partial(self._note_ahead, claim, lines, more=more))
            more = True

    def _note_ahead(self, claim: Claim, lines: Sequence[QuarantineLine], unit: Access, *, more: bool) -> None:
        self.hold(unit, claim)
        self.note(unit, claim, lines, (), more=more)

    def live_numbers(self, job_id: str) -> frozenset[int]:
        """Return the numbers of the ranges whose lines count."""
        return frozenset(item.number for item in self.ranges(job_id, state=RangeState.LIVE))

    def quarantined(self, job_id: str, entity: str | None = None) -> Iterator[QuarantineLine]:
        """Return the quarantined documents of a job by range and line, each in one or more parts."""
        where = [Equals("jobId", job_id)]
        where += [] if entity is None else [Equals("entity", entity)]
        rows = self._all(QUARANTINE, where, key_order(QUARANTINE), PAGE_OF_LINES)
        return (row.model for row in rows)

    def kept_back(self, job_id: str, entity: str, keys: Sequence[Key]) -> frozenset[Key]:
        """Return those of some keys whose documents a job has in quarantine, without reading any of these."""
        wanted = {key_json(key): key for key in keys}
        names = tuple(text for text in wanted if text is not None)
        where = (Equals("jobId", job_id), Equals("entity", entity), OneOf("key", names))
        found = self._access.count(
            QUARANTINE, self._query(QUARANTINE, where, key_order(QUARANTINE), 1), "key"
        )
        return frozenset(wanted[text] for text in found)

    def conflicts(self, job_id: str) -> Iterator[ConflictLine]:
        """Return the conflicts of a job in the order of ranges and lines."""
        where = (Equals("jobId", job_id),)
        return (row.model for row in self._all(CONFLICTS, where, key_order(CONFLICTS)))


def in_transactions(lines: Iterable[QuarantineLine]) -> Iterator[list[QuarantineLine]]:
    """Yield lines as many at a time as one transaction takes."""
    some: list[QuarantineLine] = []
    size = 0
    for line in lines:
        some.append(line)
        size += len(line.raw or "") + len(line.reason)
        if size > AHEAD:
            yield some
            some, size = [], 0
    if some:
        yield some
