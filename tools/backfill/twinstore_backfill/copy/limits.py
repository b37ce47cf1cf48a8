"""When conflicts or quarantined documents are too many to go on."""

from __future__ import annotations

from threading import Lock
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from twinstore.ledger import RangeProgress, RangeTally
    from twinstore_backfill.copy.options import CopyOptions
    from twinstore_backfill.stopping import StopSwitch

__all__ = ["Limits"]


class Limits:
    """Counts what went wrong in all ranges of a job and stops the copy beyond the limits."""

    def __init__(self, options: CopyOptions, stop: StopSwitch) -> None:
        """Take the limits and the switch to flip."""
        self.exceeded = ""
        self._max_conflicts = options.max_conflicts
        self._max_quarantine = options.max_quarantine
        self._overwrite = options.on_conflict == "overwrite"
        self._retry = options.retry_quarantine
        self._stop = stop
        self._lock = Lock()
        self._conflicts = 0
        self._quarantined = 0

    def add(self, tally: RangeTally, waiting: int = 0) -> None:
        """Count the tally of a range that was just committed, without the rows that wait for others."""
        with self._lock:
            self._conflicts += sum(tally.conflicts.values())
            self._quarantined += sum(tally.quarantined.values()) - (waiting if self._overwrite else 0)
            self._judge()

    def give_up(self, waiting: int) -> None:
        """Count rows that waited for others in vain."""
        with self._lock:
            self._quarantined += waiting
            self._judge()

    def reopen(self, live: Iterable[RangeProgress]) -> set[int]:
        """Return the numbers of the finished ranges that are to be looked at once more.

        Those are the ranges with conflicts, or with quarantined documents, when an earlier run stopped
        because of them; those with conflicts when conflicts are now to be overwritten; and those with
        quarantined documents when these are to be tried again.
        """
        tallies = [
            (item.number, item.tally)
            for item in live
            if item.tally is not None and (item.tally.conflicts or item.tally.quarantined)
        ]
        conflicts = _counts((number, tally.conflicts) for number, tally in tallies)
        quarantined = _counts((number, tally.quarantined) for number, tally in tallies)
        again: set[int] = set()
        if self._overwrite or sum(conflicts.values()) > self._max_conflicts:
            again |= conflicts.keys()
        beyond = self._max_quarantine is not None and sum(quarantined.values()) > self._max_quarantine
        if beyond or self._retry:
            again |= quarantined.keys()
        # Those that are looked at again will be counted again.
        self._conflicts = sum(count for number, count in conflicts.items() if number not in again)
        self._quarantined = sum(count for number, count in quarantined.items() if number not in again)
        return again

    def _judge(self) -> None:
        if self._conflicts > self._max_conflicts:
            self.exceeded = f"more than {self._max_conflicts} conflicts (--max-conflicts)"
        elif self._max_quarantine is not None and self._quarantined > self._max_quarantine:
            self.exceeded = f"more than {self._max_quarantine} quarantined documents (--max-quarantine)"
        if self.exceeded:
            self._stop.request()


def _counts(tallies: Iterable[tuple[int, Mapping[str, int]]]) -> dict[int, int]:
    """Return the sums by number of range, without the zeros."""
    sums = ((number, sum(counts.values())) for number, counts in tallies)
    return {number: total for number, total in sums if total}
