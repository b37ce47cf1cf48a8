"""Controlling a running copy from outside: pause, resume, change the rate."""

from __future__ import annotations

from functools import partial
from logging import getLogger
from math import inf
from threading import Lock
from time import monotonic
from typing import TYPE_CHECKING, Final

from twinstore.bulk.unique_moves import UNIQUE_VALUE_TAKEN
from twinstore.errors import ValidationError
from twinstore.ledger import JobState
from twinstore_backfill.outcome import UnknownJobError
from twinstore_backfill.stores import has_ledger

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    from twinstore.ledger import CopyJob, Ledger, RangeProgress, RangeTally
    from twinstore_backfill.copy.options import CopyOptions
    from twinstore_backfill.process.stopping import StopSwitch
    from twinstore_backfill.stores import Store

log = getLogger(__name__)

# Documents per second; nothing comes near it, and every store can hold it.
HIGHEST_RATE: Final = 1_000_000_000
# How often a worker that keeps to a rate asks how many share it.
SHARE_SECONDS: Final = 5.0
# How often the lines of all workers are counted while those of this one cannot exceed a limit.
COUNT_SECONDS: Final = 1.0


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
    """A token bucket that holds one second's worth and is shared by all threads.

    Callers take what they need at once and then wait until their debt is paid, so a batch may be larger
    than the bucket.
    """

    def __init__(
        self,
        rate: float | None,
        stop: StopSwitch,
        now: Callable[[], float] = monotonic,
        *,
        workers: Callable[[], int] = lambda: 1,
    ) -> None:
        """Take the rate per second, and what waits and counts.

        Args:
            rate: that of all workers of the job together; ``None`` for no limit.
            stop: the switch that ends a wait early.
            now: the seconds.
            workers: how many workers share the rate now.
        """
        self._rate = rate
        self._workers = workers
        self._share = 1.0
        self._share_until = -inf
        self._stop = stop
        self._now = now
        self._lock = Lock()
        self._tokens = 0.0
        self._filled = now()

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
        if self._now() >= self._share_until:
            self._share_until = self._now() + SHARE_SECONDS
            self._share = 1 / self._workers()
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
    """Judges from the lines of the ledger whether too much went wrong, and stops the job then.

    Any worker does, after each range that adds to it.
    """

    def __init__(self, ledger: Ledger, job_id: str, options: CopyOptions, stop: StopSwitch) -> None:
        self._ledger = ledger
        self._job_id = job_id
        self._max_conflicts = options.max_conflicts
        self._max_quarantine = options.max_quarantine
        self._overwrite = options.on_conflict == "overwrite"
        self._retry = options.retry_quarantine
        self._stop = stop
        # How many lines were counted last, with those of this worker since, and when.
        self._known: dict[str, tuple[int, float]] = {}

    def judge(self, tally: RangeTally | None = None, *, waiting: bool = False) -> None:
        """Stop the job if a limit is exceeded, after a range with that tally.

        Args:
            tally: what was added; ``None`` looks in any case.
            waiting: also count rows that wait for a value which another range may free.
        """
        conflicts, quarantined = (None, None) if tally is None else (tally.conflicts, tally.quarantined)
        reason = self._beyond_conflicts(conflicts) or self._beyond_quarantine(quarantined, waiting=waiting)
        if reason:
            self._ledger.halt(self._job_id, reason)
            self._stop.request()

    def _beyond_conflicts(self, added: Mapping[str, int] | None) -> str:
        most, count = self._max_conflicts, partial(self._ledger.conflict_count, self._job_id)
        exceeds = self._exceeds("conflicts", most, added, count)
        return f"more than {most} conflicts (--max-conflicts)" if exceeds else ""

    def _beyond_quarantine(self, added: Mapping[str, int] | None, *, waiting: bool) -> str:
        most, count = self._max_quarantine, partial(self._quarantined, waiting=waiting or not self._overwrite)
        exceeds = most is not None and self._exceeds("quarantine", most, added, count)
        return f"more than {most} quarantined documents (--max-quarantine)" if exceeds else ""

    def _exceeds(
        self, name: str, most: int, added: Mapping[str, int] | None, count: Callable[[], int]
    ) -> bool:
        if added is not None:
            known, asked = self._known.get(name, (0, -inf))
            known += sum(added.values())
            self._known[name] = known, asked
            if not added or (known <= most and monotonic() - asked < COUNT_SECONDS):
                return False
        found = count()
        self._known[name] = found, monotonic()
        return found > most

    def _quarantined(self, *, waiting: bool) -> int:
        counts = self._ledger.quarantine_counts(self._job_id).items()
        return sum(rows for reason, rows in counts if waiting or not reason.startswith(UNIQUE_VALUE_TAKEN))

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
        return again


def _counts(tallies: Iterable[tuple[int, Mapping[str, int]]]) -> dict[int, int]:
    """Return the sums by number of range, without the zeros."""
    sums = ((number, sum(counts.values())) for number, counts in tallies)
    return {number: total for number, total in sums if total}
