"""Rows of the ledger of copies: many copies, of which each has many ranges, and finds much to report."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Final

from tests.plans.filling import Numbers
from twinstore.catalog.row import Row
from twinstore.ledger.models import (
    ConflictLine,
    CopyJob,
    CopyRange,
    CopyWorker,
    JobState,
    QuarantineLine,
    RangeState,
)
from twinstore.plugins.modules import module_spec

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["LEDGER_ROWS"]

# Of each job that has some; so many that the row in the middle of all is in the middle of its job.
RANGES: Final = 2_400
WORKERS: Final = 4
# Of each range that has some.
LINES: Final = 10
ENTITIES: Final = [entity.name for entity in module_spec("scheduler").catalog.entities]
# Of ten ranges of an entity, most are copied.
FATES: Final = (RangeState.LIVE,) * 7 + (RangeState.FAILED, RangeState.COPYING, RangeState.PENDING)


def job_of(n: Numbers, share: int) -> str:
    """Return the id of the job to which a row belongs, one of so many."""
    return f"job-{Numbers(n.number // share, n.count).name}"


def job(n: Numbers) -> Row:
    """All but the latest are complete."""
    state = JobState.COMPLETE if n.number < n.count - 1 else JobState.RUNNING
    model = CopyJob(id=f"job-{n.name}", state=state, as_of=n.instant, started_at=n.instant, planned=RANGES)
    return Row(model)


def worker(n: Numbers) -> Row:
    """A few for each job."""
    later = n.instant + timedelta(minutes=1)
    return Row(CopyWorker(job_id=job_of(n, WORKERS), worker=f"host/{n.number % WORKERS}", expires_at=later))


def copy_range(n: Numbers) -> Row:
    """The ranges of one entity after those of the one before."""
    number = n.number % RANGES
    model = CopyRange(
        job_id=job_of(n, RANGES),
        number=number + 1,
        entity=ENTITIES[number * len(ENTITIES) // RANGES],
        state=FATES[n.pick(0, len(FATES))],
        worker="host/1",
        fence=1,
    )
    return Row(model)


def place(n: Numbers) -> dict[str, object]:
    """Return the place of a line: its job, its range and its number in there."""
    number, line = divmod(n.number % RANGES, LINES)
    values = {"number": number + 1, "line": line + 1, "key": f'["{n.name}"]'}
    return {"job_id": job_of(n, RANGES), "entity": "runs", "tenant": n.tenant, **values}


def quarantined(n: Numbers) -> Row:
    """Several of one range."""
    return Row(QuarantineLine.model_validate({**place(n), "reason": "it has no state", "raw": "{}"}))


def conflict(n: Numbers) -> Row:
    """Several of one range."""
    return Row(ConflictLine.model_validate(place(n)))


LEDGER_ROWS: Final[dict[str, Callable[[Numbers], Row]]] = {
    "jobs": job,
    "workers": worker,
    "ranges": copy_range,
    "quarantine": quarantined,
    "conflicts": conflict,
}
