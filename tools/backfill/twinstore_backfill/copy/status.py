"""The progress of copies."""

from __future__ import annotations

from collections import Counter
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from twinstore.ledger import RangeState
from twinstore.ledger.rows import PAGE
from twinstore.models import json_text
from twinstore_backfill.copy.description import lease_duration
from twinstore_backfill.copy.options import shown_settings
from twinstore_backfill.copy.quarantine import export_lines
from twinstore_backfill.copy.report import SHOWN, FailedRanges, Totals
from twinstore_backfill.outcome import UnknownJobError
from twinstore_backfill.process.files import wrap_write_errors
from twinstore_backfill.reasons import QUARANTINED, Reasons
from twinstore_backfill.stores import has_ledger

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from datetime import datetime
    from pathlib import Path

    from twinstore.ledger import CopyJob, CopyWorker, Lease, Ledger, RangeProgress
    from twinstore_backfill.report.model import CauseReport
    from twinstore_backfill.stores import Store

# Of a job with more ranges only their states are counted, because reading all of them takes too long.
MOST_TALLIES: Final = 10_000


def status_document(target: Store, only: str | None = None, out: Path | None = None) -> dict[str, Any]:
    """Return the jobs in the ledger of a target, with progress and the holder of the lease.

    If ``out`` is given, write the quarantine and the conflicts of a job there: of ``only``, or of the latest.

    Raises:
        UnknownJobError: there is no job ``only``.
        FileError: the directory takes no file any more.
    """
    ledger = target.ledger if has_ledger(target) else None
    jobs = [job for job in ledger.jobs() if only in {None, job.id}] if ledger else []
    if only is not None and not jobs:
        raise UnknownJobError(
            f"Job {only!r} does not exist in {target.bulk.place}; leave out --job to see every job."
        )
    if ledger is None:
        return {"target": target.described(), "ledger": False, "jobs": []}
    if out is not None and jobs:
        with wrap_write_errors(out):
            export_lines(ledger, jobs[0], out)
    # That of the server, which is also the one that lets a lease expire.
    now = target.bulk.now()
    return {"target": target.described(), "ledger": True, "jobs": [_job(ledger, job, now) for job in jobs]}


def latest_job(target: Store, only: str | None) -> CopyJob:
    """Return the job of that name, or the one that was started last.

    Raises:
        UnknownJobError: there is none.
    """
    ledger = target.ledger if has_ledger(target) else None
    found = next((job for job in ledger.jobs() if only in {None, job.id}), None) if ledger else None
    if found is None:
        what = "No copy was started" if only is None else f"Job {only!r} does not exist"
        raise UnknownJobError(f"{what} in {target.bulk.place}; `twinstore backfill status` shows every job.")
    return found


def quarantine_reasons(target: Store, job_id: str) -> tuple[CauseReport, ...]:
    """Return why documents of a job are in quarantine, those of ranges in progress included."""
    reasons = Reasons()
    entities = target.bulk.entities()
    for entity in entities:
        for reason, rows in target.ledger.quarantine_counts(job_id, entity.name).items():
            reasons.add(entity.name, QUARANTINED, reason, None, rows)
    return reasons.reports(entities)


def _job(ledger: Ledger, job: CopyJob, now: datetime) -> dict[str, Any]:
    counts = RangeCounts()
    for _ in counts.read(ledger, job):
        pass
    return job_document(job, ledger.lease(job.id), counts, now, ledger.workers(job.id))


class RangeCounts:
    """What the ranges of a job amount to."""

    def __init__(self) -> None:
        self._states: dict[str, Counter[str]] = {}
        self._totals: Totals | None = Totals()
        self._quarantined = Counter[str]()
        self._failed = FailedRanges({})

    def read(self, ledger: Ledger, job: CopyJob) -> Iterator[None]:
        """Read them; yields before each query but the first."""
        if job.planned > MOST_TALLIES:
            return self._read_states(ledger, job)
        return self._read_ranges(ledger, job)

    def _read_ranges(self, ledger: Ledger, job: CopyJob) -> Iterator[None]:
        ranges = ledger.ranges(job.id)
        while batch := list(islice(ranges, PAGE)):
            self._add(batch)
            if len(batch) == PAGE:
                yield

    def _read_states(self, ledger: Ledger, job: CopyJob) -> Iterator[None]:
        self._totals, failed = None, 0
        for entity in job.cut:
            self._count(entity, ledger.counts(job.id, entity))
            failed += self._states[entity][RangeState.FAILED]
            yield
            self._quarantined[entity] = sum(ledger.quarantine_counts(job.id, entity).values())
            yield
        for item in islice(ledger.ranges(job.id, state=RangeState.FAILED), SHOWN) if failed else ():
            self._failed.add(item)
        self._failed.count = failed

    def _count(self, entity: str, states: Mapping[str, int]) -> None:
        none = {state.value: 0 for state in RangeState}
        self._states.setdefault(entity, Counter(none)).update(states)

    def _add(self, ranges: Iterable[RangeProgress]) -> None:
        for item in ranges:
            self._count(item.entity, {item.state.value: 1})
            if self._totals is not None and item.tally is not None and item.state is RangeState.LIVE:
                self._totals.add(item.entity, item.tally)
            elif item.state is RangeState.FAILED:
                self._failed.add(item)

    def document(self) -> dict[str, object]:
        """Return them by entity, with those that failed and the sums; ``None`` is what is not counted."""
        totals = self._totals
        return {
            "entities": [
                {
                    "entity": name,
                    "ranges": dict(counts),
                    **(self._rows_by_lines(name) if totals is None else totals.of(name)),
                }
                for name, counts in self._states.items()
            ],
            "failed_ranges": {"count": self._failed.count, "shown": self._failed.shown},
            "totals": None if totals is None else totals.all(),
        }

    def _rows_by_lines(self, entity: str) -> dict[str, int | None]:
        return {"read": None, "written": None, "quarantined": self._quarantined[entity]}


def job_document(
    job: CopyJob,
    lease: Lease | None,
    counts: RangeCounts,
    now: datetime,
    workers: Iterable[CopyWorker] = (),
) -> dict[str, Any]:
    """Return a job with the holder of its lease, its workers, and what its ranges amount to."""
    duration = lease_duration(job)
    return {
        "id": job.id,
        "state": job.state.value,
        "generation": job.generation,
        "started_at": json_text.format_timestamp(job.started_at),
        "as_of": json_text.format_timestamp(job.as_of),
        "settings": shown_settings(job.settings),
        "stopped": (job.stop_reason or "") if job.stop and not job.paused else None,
        "paused": job.paused,
        "max_rate": job.max_rate,
        "lease": None
        if lease is None
        else {
            "holder": lease.holder,
            "fence": lease.fence,
            "expires_at": json_text.format_timestamp(lease.expires_at),
            "seconds_left": round((lease.expires_at - now).total_seconds(), 1),
        },
        "workers": [
            {
                "worker": item.worker,
                "seconds_since_sign": round((now - item.expires_at + duration).total_seconds(), 1),
                "alive": item.expires_at > now,
            }
            for item in workers
        ],
        **counts.document(),
    }
