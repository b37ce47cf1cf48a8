"""Copying ranges with several threads, one transaction each.

The way of a range: claimed in the ledger, read through a view of the source, written to the target, and
committed together with its lines and its entry in the ledger. A range that fails is released and tried again;
the job continues with the other ranges.
"""

from __future__ import annotations

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from logging import getLogger
from threading import Lock
from time import monotonic
from typing import TYPE_CHECKING, Final

from twinstore.bulk.release import copy_writer
from twinstore.errors import (
    ConfigurationError,
    LeaseLostError,
    MigrationError,
    TwinstoreError,
    UnavailableError,
    UnsupportedCapabilityError,
)
from twinstore.fast.records import AcceptsPacked
from twinstore_backfill.copy.deaths import DIED, isolate
from twinstore_backfill.copy.earlier import EarlierFormsError
from twinstore_backfill.copy.held_alike import settle_conflicts
from twinstore_backfill.copy.quarantine import RangeLines
from twinstore_backfill.copy.reader import RangeReader
from twinstore_backfill.copy.report import outcomes_of
from twinstore_backfill.process.stopping import StopRequestedError, checked
from twinstore_backfill.rules.functions import UnrepeatableError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from twinstore.bulk.port import BulkPort, OnConflict
    from twinstore.catalog.entity import Entity
    from twinstore.ledger import Claim, Ledger, RangeTally
    from twinstore_backfill.copy.control import Limits, RateLimiter
    from twinstore_backfill.copy.earlier import EarlierForms
    from twinstore_backfill.copy.lease import ConflictRetry
    from twinstore_backfill.copy.ranges import RangeQueue
    from twinstore_backfill.copy.reader import SourceRows
    from twinstore_backfill.process.stopping import StopSwitch
    from twinstore_backfill.progress.record import Progress
    from twinstore_backfill.retention import ExpiryTest

log = getLogger(__name__)
# These say nothing about a range: a store is away or not fit, and every other range would fail as well.
FATAL_ERRORS: Final = (
    ConfigurationError,
    MigrationError,
    StopRequestedError,
    UnavailableError,
    UnrepeatableError,
    UnsupportedCapabilityError,
)


class PackedShare:
    """How many rows of all ranges were copied and packed, and how fast a thread of this process copies."""

    def __init__(self) -> None:
        self.rows = 0
        self.packed = 0
        self.rows_per_second = 0.0
        self._timed, self._seconds = 0, 0.0
        self._lock = Lock()

    def add(self, rows: int, packed: int, seconds: float | None = None) -> None:
        """Count the rows of ranges that are live, of one with the seconds that it took a thread here."""
        with self._lock:
            self.rows += rows
            self.packed += packed
            if seconds:
                self._timed, self._seconds = self._timed + rows, self._seconds + seconds
                self.rows_per_second = self._timed / self._seconds


@dataclass(frozen=True, slots=True)
class CopiedRange:
    """The result of a range.

    Attributes:
        tally: as its entry in the ledger has it.
        waiting: how many of its rows wait for a value that another row of the target holds.
        packed: how many of the rows that were read were packed.
    """

    tally: RangeTally
    waiting: int
    packed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyContext:
    """What the threads of a copy share.

    Attributes:
        expired: by name of entity, the test for expired rows.
        failures: by number of range, why it could not be copied.
        share: how many rows were read, how many of them packed, and how fast.
    """

    source: SourceRows
    earlier: EarlierForms
    target: BulkPort
    ledger: Ledger
    queue: RangeQueue
    limits: Limits
    limiter: RateLimiter
    conflict_retry: ConflictRetry
    stop: StopSwitch
    progress: Progress
    entities: Mapping[str, Entity]
    expired: Mapping[str, ExpiryTest | None]
    on_conflict: OnConflict
    failures: dict[int, str] = field(default_factory=dict[int, str])
    share: PackedShare = field(default_factory=PackedShare)

    @contextmanager
    def reported(self, entity: str) -> Iterator[Callable[[int], None]]:
        """Yield a function that reports copied documents; subtract those of a range that is rolled back."""
        reported = 0

        def report_rows(count: int) -> None:
            nonlocal reported
            reported += count
            self.progress.advance(entity, count)

        try:
            yield report_rows
        except BaseException:
            if reported:
                self.progress.advance(entity, -reported)
            raise

    def throttle(self, count: int) -> None:
        """Wait until this many documents fit under the limit.

        Raises:
            StopRequestedError: a stop was requested; the range must not be committed.
        """
        self.stop.check()
        self.limiter.take(count)


def copy_ranges(context: CopyContext, jobs: int) -> None:
    """Copy until no range is left or a stop is requested; raise the first failure that ends the run."""
    with ThreadPoolExecutor(jobs, thread_name_prefix="copy") as pool:
        for result in [pool.submit(_work, context) for _ in range(jobs)]:
            # The first failure has stopped the other threads, so none of these waits for long.
            result.result()


def _work(context: CopyContext) -> None:
    """Copy range after range; a failure that ends the run stops the other threads too."""
    try:
        while (claim := context.queue.take()) is not None:
            try:
                _process(context, claim)
            finally:
                context.queue.end(claim)
    except StopRequestedError:
        # The requester of the stop reports why; the range is rolled back by now.
        return
    except BaseException:
        context.stop.request()
        raise


def _process(context: CopyContext, claim: Claim) -> None:
    """Copy a range, or give it back."""
    try:
        if claim.kills and not _may_be_copied(context, claim):
            return
        if claim.coarse:
            claim = _cut(context, claim)
        started = monotonic()
        # Against another writer it loses as a whole.
        name = f"Range {claim.number} of {claim.entity}"
        copied = context.conflict_retry.run(name, partial(copy_range, context, claim))
    except FATAL_ERRORS:
        raise
    except LeaseLostError as error:
        # Another worker held this one for dead. Whatever it writes, nothing was written here.
        log.warning(
            "range %d of %s was taken over: %s", claim.number, claim.entity, error, extra=place_of(claim)
        )
    except Exception as error:  # noqa: BLE001  # whatever one range does, the others go on
        _release_range(context, claim, error)
    else:
        log.info("range %d of %s is live", claim.number, claim.entity, extra=place_of(claim))
        # It may have failed before in this run.
        context.failures.pop(claim.number, None)
        context.share.add(sum(copied.tally.read.values()), copied.packed, monotonic() - started)
        context.limits.judge(copied.tally)
        context.progress.count(claim.entity, outcomes_of(copied.tally))


def _may_be_copied(context: CopyContext, claim: Claim) -> bool:
    """Whether a range of which workers died is empty; otherwise come closer to the row that it is."""
    entity, ledger = context.entities[claim.entity], context.ledger
    # Of a coarse range nothing but keys was read.
    if claim.coarse or context.source.makes_keys(entity):
        _release_range(context, claim, TwinstoreError(DIED))
        return False
    steps = partial(isolate, context.source.port, ledger, entity, claim)
    return context.conflict_retry.run(f"Cutting range {claim.number}", steps)


def _cut(context: CopyContext, claim: Claim) -> Claim:
    """Cut a coarse range by its keys alone, for all workers; return the claim of its first part."""
    entity, source = context.entities[claim.entity], context.source
    rows = source.range_size(entity, context.share.rows_per_second)

    def cut() -> Claim:
        ranges = source.cut(entity, rows, claim.within)
        return context.ledger.cut(claim, checked(ranges, context.stop))

    first = context.conflict_retry.run(f"Cutting range {claim.number}", cut)
    context.queue.notify_changed()
    return first


def copy_range(context: CopyContext, claim: Claim) -> CopiedRange:
    """Copy a claimed range; its rows, its lines and its entry in the ledger are committed together.

    Rows that are as earlier rules stored them are replaced before, each in a step that can be repeated.

    Raises:
        ConcurrencyError: another writer was faster; nothing of the range is live.
        LeaseLostError: another worker has taken the range over; nothing of it was written here.
        StopRequestedError: a stop was requested; nothing of the range is live.
    """
    try:
        return _copied(context, claim)
    except EarlierFormsError as found:
        keys = found.keys
    entity = context.entities[claim.entity]
    replaced = context.earlier.find(context.target, entity, keys, replacing=True)
    return _copied(context, claim, Counter(replaced.values()))


def _copied(context: CopyContext, claim: Claim, replaced: Counter[str] | None = None) -> CopiedRange:
    """Copy a range after this many rows of it were replaced; ``None`` before that was tried.

    Raises:
        EarlierFormsError: it has to be tried.
    """
    entity, ledger = context.entities[claim.entity], context.ledger
    check = partial(ledger.hold, claim=claim)
    with (
        context.reported(entity.name) as report_rows,
        RangeLines(claim) as lines,
        context.source.port.view() as view,
        copy_writer(context.target, entity, on_conflict=context.on_conflict, check=check) as writer,
    ):
        rows = context.source
        reader = RangeReader(
            entity,
            expired=context.expired[entity.name],
            lines=lines,
            subset=rows.subset,
            rules=rows.rules,
        )
        read = rows.packed if isinstance(writer, AcceptsPacked) else rows.records
        for batch in read(view, entity, claim.within):
            # Before the batch is written: a range whose stop was requested here is rolled back and costs
            # nothing.
            context.throttle(len(batch))
            writer.write(reader.wanted(batch))
            # After each batch: what is refused may be as large as a document may be.
            reader.reject(writer.take_rejected())
            # Before the transaction of the range is open: servers bound its time and its size.
            lines.flush_to_ledger(ledger)
            report_rows(len(batch))
            # Or it would stay in memory while the next is read.
            del batch
        if replaced is None:
            context.earlier.require_none(entity, writer.conflicts())
        # Before the transaction of the range is open, as far as conflicts are known: servers bound its time.
        alike = rows.kinds_alike(view, context.target, entity, writer.conflicts())
        # Flushed first: only what the server has answered is known to be written, refused or in conflict.
        outcome = writer.flush()
        if replaced is None:
            context.earlier.require_none(entity, outcome.conflicts)
        elif replaced:
            # The writer has found them as they should be.
            unchanged = Counter(outcome.unchanged)
            written = Counter(outcome.written) + (replaced & unchanged)
            outcome = replace(outcome, written=written, unchanged=unchanged - replaced)
        alike = rows.kinds_alike(view, context.target, entity, outcome.conflicts, alike)
        tally = replace(reader.tally(*settle_conflicts(outcome, alike)), under=rows.under(entity))
        # In the transaction of the rows: after a crash either both are there or neither is.
        ledger.store_lines(writer.access, claim, lines.quarantined(), lines.conflicts(), more=lines.stored)
        # Last of the writes: it locks the row of the range, for which others should wait no longer than a
        # commit.
        ledger.finish(writer.access, claim, tally)
        writer.commit()
    return CopiedRange(tally, reader.waiting, reader.packed)


def _release_range(context: CopyContext, claim: Claim, error: Exception) -> None:
    # Only our own errors are known to say nothing of what is stored.
    reason = error.message if isinstance(error, TwinstoreError) else f"unexpected {type(error).__name__}"
    context.failures[claim.number] = reason
    log.debug("range %d of %s failed", claim.number, claim.entity, exc_info=error)
    # Repeated: a range that is not given back would be missing until the worker counts as dead.
    give_back = partial(context.ledger.give_back, claim)
    state = context.conflict_retry.run(f"Giving back range {claim.number}", give_back)
    log.warning(
        "range %d of %s failed and is %s: %s",
        claim.number,
        claim.entity,
        state.value,
        reason,
        extra=place_of(claim),
    )


def place_of(claim: Claim) -> dict[str, object]:
    """Return what programs that read the log know a range by."""
    return {"job": claim.job_id, "worker": claim.worker, "range": claim.number}
