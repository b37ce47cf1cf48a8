"""Controlling a running copy from outside: pause, resume, change the rate."""

from __future__ import annotations

from logging import getLogger
from threading import Lock
from time import monotonic
from typing import TYPE_CHECKING, Final

from twinstore.errors import ValidationError
from twinstore.ledger import JobState
from twinstore_backfill.outcome import UnknownJobError
from twinstore_backfill.stores import has_ledger

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    from twinstore.ledger import CopyJob, RangeProgress, RangeTally
    from twinstore_backfill.copy.options import CopyOptions
    from twinstore_backfill.process.stopping import StopSwitch
    from twinstore_backfill.stores import Store

log = getLogger(__name__)

# Documents per second; nothing comes near it, and every store can hold it.
HIGHEST_RATE: Final = 1_000_000_000


class Control:
    """Obeys what the row of the job says; threads ask before each range."""

    def __init__(self, limiter: RateLimiter, job: CopyJob) -> None:
        """Take the limiter, and the job as it is when the run begins."""
        self._limiter = limiter
        self._rate = job.max_rate
        self._paused = job.paused

    def apply_requests(self, job: CopyJob) -> None:
        """Take over what has changed since the last look."""
        # Only a change: the rate of the command line counts until another one is requested.
        if job.max_rate != self._rate:
            self._rate = job.max_rate
            self._limiter.set_rate(None if job.max_rate is None else float(job.max_rate))
            log.warning("the copy keeps to %s now", rate_text(job.max_rate))
        if job.paused != self._paused:
            self._paused = job.paused
            log.warning("the copy %s", "is paused; resume it, or interrupt it" if job.paused else "goes on")


def rate_text(rate: int | None) -> str:
    """Return a rate in words."""
    return "no limit" if rate is None else f"{rate:,} documents per second"


def select_job(target: Store, given: str | None) -> CopyJob:
    """Return the job of a command: the given one, or the only one that is not complete.

    Raises:
        UnknownJobError: there is none.
        ValidationError: there are several.
    """
    jobs = list(target.ledger.jobs()) if has_ledger(target) else []
    found = [job for job in jobs if job.state is JobState.RUNNING and given in {None, job.id}]
    if len(found) == 1:
        return found[0]
    place = target.bulk.place
    if found:
        names = ", ".join(job.id for job in found)
        raise ValidationError(
            f"{place} has {len(found)} copies that are not complete: {names}; say which with --job."
        )
    what = "No copy that is not complete" if given is None else f"No job {given!r} that is not complete"
    raise UnknownJobError(f"{what} is in {place}; `twinstore backfill status` shows every job.")


class RateLimiter:
    """A token bucket that holds one second's worth and is shared by all workers.

    Callers take what they need at once and then wait until their debt is paid, so a batch may be larger
    than the bucket.
    """

    def __init__(self, rate: float | None, stop: StopSwitch, now: Callable[[], float] = monotonic) -> None:
        """Take the rate per second (``None``: no limit) and the switch that ends a wait early."""
        self._rate = rate
        self._share = 1.0
        self._stop = stop
        self._now = now
        self._lock = Lock()
        self._tokens = 0.0
        self._filled = now()

    def set_share(self, share: float) -> None:
        """Keep to a part of the rate, because other processes have the rest of it."""
        with self._lock:
            self._share = share

    def set_rate(self, rate: float | None) -> None:
        """Keep to another rate from the next call on; who waits already waits as before."""
        with self._lock:
            # The time that is still owed was owed at the old rate.
            self._rate, self._tokens, self._filled = rate, 0.0, self._now()

    def take(self, count: int) -> None:
        """Wait until ``count`` documents fit under the limit.

        Raises:
            StopRequestedError: a stop was requested while waiting.
        """
        rate = self._rate
        if rate is None:
            return
        wait = self._debt(count, rate * self._share)
        if wait > 0:
            # Outside the lock, so that the others can count what they take meanwhile.
            self._stop.pause(wait)

    def _debt(self, count: int, rate: float) -> float:
        """Return the seconds until the bucket is back at zero."""
        with self._lock:
            now = self._now()
            # No more than one second's worth is saved up, so that a pause is not followed by a burst.
            self._tokens = min(rate, self._tokens + (now - self._filled) * rate) - count
            self._filled = now
            return -self._tokens / rate


class Limits:
    """Counts what went wrong in all ranges of a job and stops the copy beyond the limits."""

    def __init__(self, options: CopyOptions, stop: StopSwitch) -> None:
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
            self._check_limits()

    def add_unresolved(self, waiting: int) -> None:
        """Count rows that waited for others without success."""
        with self._lock:
            self._quarantined += waiting
            self._check_limits()

    def reopen(self, noted: Iterable[RangeProgress], others: Collection[int]) -> set[int]:
        """Return the numbers of the finished ranges that must be processed again, besides some others.

        Those are the ranges with conflicts, or with quarantined documents, when an earlier run stopped
        because of them; those with conflicts or rows in another form if these must be overwritten now; and
        those with quarantined documents if these must be tried again.

        Args:
            noted: the finished ranges with anything of that.
            others: those that are processed again anyway.
        """
        finished = ((item.number, item.tally) for item in noted if item.number not in others)
        tallies = [(number, tally) for number, tally in finished if tally is not None]
        again = set[int]()
        conflicts = _counts((number, tally.conflicts) for number, tally in tallies)
        quarantined = _counts((number, tally.quarantined) for number, tally in tallies)
        if self._overwrite or sum(conflicts.values()) > self._max_conflicts:
            again |= conflicts.keys()
        if self._overwrite:
            again |= {number for number, tally in tallies if tally.equivalences}
        beyond = self._max_quarantine is not None and sum(quarantined.values()) > self._max_quarantine
        if beyond or self._retry:
            again |= quarantined.keys()
        # Ranges that are processed again will be counted again.
        self._conflicts = sum(count for number, count in conflicts.items() if number not in again)
        self._quarantined = sum(count for number, count in quarantined.items() if number not in again)
        return again

    def _check_limits(self) -> None:
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
