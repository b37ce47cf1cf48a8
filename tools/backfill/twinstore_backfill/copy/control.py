"""What a running copy is told from outside: to pause, to go on, to keep to another rate."""

from __future__ import annotations

from logging import getLogger
from typing import TYPE_CHECKING, Final

from twinstore.errors import ValidationError
from twinstore.ledger import JobState
from twinstore_backfill.outcome import UnknownJobError
from twinstore_backfill.stores import has_ledger

if TYPE_CHECKING:
    from twinstore.ledger import CopyJob
    from twinstore_backfill.copy.limiter import RateLimiter
    from twinstore_backfill.stores import Store

__all__ = ["HIGHEST_RATE", "Control", "chosen_job"]

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

    def obey(self, job: CopyJob) -> None:
        """Take over what has changed since the last look."""
        # Only a change: the rate of the command line counts until somebody gives another one.
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


def chosen_job(target: Store, given: str | None) -> CopyJob:
    """Return the job that is meant: the given one, or the only one that is not complete.

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
