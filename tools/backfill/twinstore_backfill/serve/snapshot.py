"""What a page shows of a ledger, read with one query at each step.

No document that leaves this file has a tenant, a key or a stored value.
"""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime
from itertools import islice
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

from twinstore.access.leases import held
from twinstore.ledger.jobs import lease_of
from twinstore.models.json_text import format_timestamp
from twinstore_backfill.causes import cause_of
from twinstore_backfill.copy.rates import EntityProgress, Job, Rates, has_ended, state_text
from twinstore_backfill.copy.status import RangeCounts, job_document

if TYPE_CHECKING:
    from collections.abc import Iterator

    from twinstore.ledger import CopyJob, Ledger
    from twinstore_backfill.stores import Store

FORMAT: Final = "twinstore.jobs@1"
# The latest ones; older ones are in `status`.
MOST_JOBS: Final = 20


class WatchedJob:
    """One job, as it was read last."""

    def __init__(self) -> None:
        self.document: Job | None = None
        self._causes: dict[str, Counter[str]] = {}
        self._rates = Rates()
        self._seen: CopyJob | None = None
        self._moves = False

    def is_due(self, job: CopyJob) -> bool:
        """Whether there may be something new: a job without a process is read again if anything changed."""
        return self._moves or self._seen != job

    def read(self, store: Store, ledger: Ledger, job: CopyJob, now: datetime) -> Iterator[None]:
        """Read the ranges and then the quarantine; yields after each query."""
        counts = RangeCounts()
        yield from counts.read(ledger, job)
        # What was read before a pause, or of an earlier generation, gives no rate.
        if not self._moves or self._seen is None or self._seen.generation != job.generation:
            self._rates = Rates()
        lease = lease_of(job) if held(job.lease, now) else None
        document = job_document(job, lease, counts, now)
        self._moves = lease is not None or self.document is None or document != self.document
        self._seen, self.document = job, document
        self._rates.add(document, monotonic())
        yield
        quarantined = {item["entity"] for item in document["entities"] if item.get("quarantined")}
        for entity in store.bulk.entities():
            if entity.name in quarantined:
                causes = Counter[str]()
                for reason, rows in ledger.quarantine_counts(job.id, entity.name).items():
                    causes[str(cause_of(entity, reason))] += rows
                self._causes[entity.name] = causes
                yield
        self._causes = {name: found for name, found in self._causes.items() if name in quarantined}

    def shown(self) -> dict[str, Any] | None:
        """Return what everyone may see of it, ``None`` before it is read."""
        job = self.document
        if job is None:
            return None
        settings, ended = job["settings"], has_ended(job)
        return {
            **{name: job[name] for name in ("id", "state", "generation", "started_at", "paused", "max_rate")},
            "module": settings.get("module", ""),
            "source": settings.get("source_place", ""),
            "said": state_text(job),
            "ended": ended,
            "holder": job["lease"]["holder"] if job["lease"] else None,
            "failed_ranges": job["failed_ranges"]["count"],
            "entities": [_entity(item, self._rates, ended=ended) for item in job["entities"]],
            "causes": [
                {"entity": entity, "cause": cause, "documents": rows}
                for entity, causes in self._causes.items()
                for cause, rows in causes.most_common()
            ],
        }


def _entity(item: Job, rates: Rates, *, ended: bool) -> dict[str, Any]:
    part = EntityProgress.of(item, rates)
    left = None if ended else part.seconds_left
    return {
        "entity": part.entity,
        "ranges_done": part.live,
        "ranges": part.ranges,
        "read": part.read,
        "quarantined": part.quarantined,
        "rate": None if ended or part.live == part.ranges else round(part.rate, 1),
        "seconds_left": None if left is None else round(left, 1),
    }


class LedgerReader:
    """The jobs of a ledger, in rotation: the list of jobs, then each that may have changed."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._jobs: dict[str, WatchedJob] = {}
        self._answered: datetime | None = None
        self._failed: str | None = None
        self._steps = self._rotation()

    def step(self) -> None:
        """Make the next query."""
        next(self._steps)
        if self._failed is None:
            self._answered = datetime.now(UTC)

    def fail(self, code: str) -> None:
        """Note that the last query failed; the next step begins again."""
        self._failed, self._steps = code, self._rotation()

    def document(self) -> dict[str, Any]:
        """Return the last known state of the jobs, the latest job first."""
        jobs = (job.shown() for job in self._jobs.values())
        return {
            "format": FORMAT,
            "target": self._store.bulk.place,
            "answers": self._failed is None,
            "error": self._failed,
            "answered_at": None if self._answered is None else format_timestamp(self._answered),
            "jobs": [job for job in jobs if job is not None],
        }

    def _rotation(self) -> Iterator[None]:
        # Leases end by the clock of the server.
        ahead = self._store.bulk.now() - datetime.now(UTC)
        yield
        ledger = self._store.ledger
        while True:
            jobs = list(islice(ledger.jobs(), MOST_JOBS))
            self._failed = None
            self._jobs = {job.id: self._jobs.get(job.id) or WatchedJob() for job in jobs}
            yield
            for job in jobs:
                watched = self._jobs[job.id]
                if watched.is_due(job):
                    yield from watched.read(self._store, ledger, job, datetime.now(UTC) + ahead)
