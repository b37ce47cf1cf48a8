"""Protocols for tools that move and compare whole entities.

A tool sees ranges of keys, records and positions; a driver decides how to read and write them fast.
Everything here works in system scope. The words:

- A **key** is the tuple of texts that identifies a row of an entity, compared by code point.
- A **range** is a half-open interval of keys, cut at keys that were observed.
- A **position** is the logical time of a store. An export ``as_of`` a position reads the past, where
  ``Capabilities.point_in_time_reads`` says so; a ledger remembers the position up to which it is complete.
- The **ledger** lives in the target. It knows the job, its ranges and their state, and changes in one
  transaction with the rows. Whoever commits a range must hold the lease of the job with its fence.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, Protocol

from twinstore.jobs import Claim, Job, JobState, Lease, RangeProgress, RangeState, RangeTally

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager
    from datetime import datetime, timedelta

    from twinstore.canonical import CanonicalModel
    from twinstore.catalog import Entity
    from twinstore.survey import Survey

__all__ = [
    "BulkPort",
    "Claim",
    "Conflict",
    "ImportOutcome",
    "Job",
    "JobState",
    "Key",
    "KeyRange",
    "Lease",
    "Ledger",
    "Position",
    "RangeProgress",
    "RangeState",
    "RangeTally",
    "Record",
    "Rejected",
    "ScanRow",
]

Key = tuple[str, ...]
Position = str
OnConflict = Literal["fail", "overwrite"]


@dataclass(frozen=True, slots=True)
class KeyRange:
    """Keys from ``lower`` (included) to ``upper`` (excluded); ``None`` is unbounded.

    An unbounded end also covers stored keys that are no text at all, so that no document stays unseen.
    """

    lower: Key | None = None
    upper: Key | None = None


@dataclass(slots=True)
class Record:
    """One exported row.

    Attributes:
        key: the key; ``None`` when the stored key is no text.
        tenant_id: the owner, ``None`` when it cannot be told.
        model: the decoded row, ``None`` when it cannot be decoded.
        storage: the storage markers of the entity, instants as datetimes; absent markers are left out.
        text_timestamp: whether an instant was stored as text.
        error: why the row cannot be decoded.
        raw: extended JSON of the stored row, given with ``error`` only.
    """

    key: Key | None
    tenant_id: str | None
    model: CanonicalModel | None
    storage: Mapping[str, object] = field(default_factory=dict[str, object])
    text_timestamp: bool = False
    error: str | None = None
    raw: str | None = None


@dataclass(frozen=True, slots=True)
class Rejected:
    """A record that the target did not take."""

    record: Record
    reason: str


@dataclass(frozen=True, slots=True)
class Conflict:
    """A row that exists in the target with other content and was left as it is (or overwritten)."""

    key: Key
    tenant_id: str | None
    overwritten: bool = False


@dataclass(frozen=True, slots=True)
class ImportOutcome:
    """What became of the records of one range.

    Attributes:
        written: inserted and overwritten rows by tenant.
        unchanged: rows that were there with equal content, by tenant.
        conflicts: rows that were there with other content.
        rejected: records that the store refused.
    """

    written: Mapping[str, int]
    unchanged: Mapping[str, int]
    conflicts: tuple[Conflict, ...] = ()
    rejected: tuple[Rejected, ...] = ()


@dataclass(slots=True)
class ScanRow:
    """One row as the verifier reads it.

    Attributes:
        key: the key; ``None`` when the stored key is no text.
        tenant_id: the owner, ``None`` when it cannot be told.
        content: JSON of ``{"doc": wire form, "storage": markers}`` with sorted keys and no blanks, taken from
            the stored values without the models; equal bytes mean equal content.
        expires: the instant by which retention judges the row.
        text_timestamp: whether an instant was stored as text.
    """

    key: Key | None
    tenant_id: str | None
    content: bytes
    expires: datetime | None = None
    text_timestamp: bool = False


class Ledger(Protocol):
    """The durable record of jobs and ranges, kept in the target."""

    def find(self, job_id: str) -> Job | None:
        """Return a job. Absent: ``None``."""
        ...

    def jobs(self) -> Iterator[Job]:
        """Return all jobs, the latest start first."""
        ...

    def lease(self, job_id: str) -> Lease | None:
        """Return the lease that somebody holds on a job now. Nobody, or expired: ``None``."""
        ...

    def start(self, job_id: str, settings: Mapping[str, str], as_of: datetime) -> Job:
        """Create a job, or begin the next generation of a complete one: its ranges are forgotten.

        A running job is returned as it is.
        """
        ...

    def acquire(self, job_id: str, holder: str, lease: timedelta, *, dead: str | None = None) -> Lease:
        """Take the lease of a job and grow its fence.

        ``dead`` names a holder that is known to be gone; its lease is taken before it expires.

        Raises:
            LeaseLostError: another holder has it; the message names holder and expiry, ``key`` the holder.
        """
        ...

    def renew(self, lease: Lease, duration: timedelta) -> Lease:
        """Extend a lease.

        Raises:
            LeaseLostError: it expired or another holder has it.
        """
        ...

    def release(self, lease: Lease) -> None:
        """Give a lease back; does nothing when it is lost already."""
        ...

    def plan(self, lease: Lease, entity: str, ranges: Sequence[KeyRange]) -> None:
        """Store the ranges of an entity, all or none; does nothing when they are stored already."""
        ...

    def ranges(self, job_id: str, entity: str | None = None) -> Iterator[RangeProgress]:
        """Return the ranges of the current generation in order of number."""
        ...

    def claim(self, lease: Lease, number: int) -> Claim:
        """Mark a range as copying, durably, before it is read.

        A range that is ``live`` is opened again: its conflicts are to be looked at once more.

        Raises:
            LeaseLostError: the lease expired or was taken.
        """
        ...

    def complete(self, lease: Lease) -> None:
        """Mark the job as complete."""
        ...


class BulkPort(Protocol):
    """Whole entities of one module on one driver."""

    @property
    def identity(self) -> str:
        """A text without secrets that tells this store from others: driver, host and database."""
        ...

    def entities(self) -> tuple[Entity, ...]:
        """Return the entities in copy order: parents first."""
        ...

    def survey(self) -> tuple[Survey, ...]:
        """Return what there is to read of each entity, in copy order; writes nothing.

        Reading needs no migration, no index and no right to write: what is absent reads as empty, and without
        an index of ours it only takes longer, which the warnings say.

        Raises:
            ConfigurationError: something cannot be read, or not in full: a right is missing, a policy hides
                rows, a column has another type. The message says what to grant or change.
        """
        ...

    def counts(self, entity: Entity, *, tenant_id: str | None = None) -> dict[str, int]:
        """Return the number of rows by tenant, soft-deleted ones included.

        Rows whose tenant cannot be told are counted under the empty text.
        """
        ...

    def position(self) -> Position | None:
        """Return the present position, ``None`` where the store has none."""
        ...

    def cut(self, entity: Entity, rows: int, *, tenant_id: str | None = None) -> Iterator[KeyRange]:
        """Return ranges of about ``rows`` rows each that together cover every key, lazily, in order."""
        ...

    def export(
        self,
        entity: Entity,
        within: KeyRange,
        *,
        tenant_id: str | None = None,
        batch_size: int = 1000,
        as_of: Position | None = None,
    ) -> Iterator[list[Record]]:
        """Return the rows of a range in key order, in batches.

        Each row is either decoded, or carries ``error`` and ``raw``. Memory is bounded by one batch.

        Raises:
            UnsupportedCapabilityError: ``as_of`` on a store without point-in-time reads.
        """
        ...

    def scan(
        self,
        entity: Entity,
        within: KeyRange,
        *,
        tenant_id: str | None = None,
        batch_size: int = 1000,
        as_of: Position | None = None,
    ) -> Iterator[list[ScanRow]]:
        """Return the rows of a range in key order for comparison.

        Shares neither paging nor decoding code with :meth:`export`, so that a fault there cannot hide here.
        """
        ...

    def fetch(self, entity: Entity, keys: Sequence[Key]) -> Iterator[ScanRow]:
        """Return single rows for comparison, in no particular order; absent keys are left out."""
        ...

    def ledger(self) -> Ledger:
        """Return the ledger that lives in this store."""
        ...

    def importing(self) -> AbstractContextManager[RangeImporter]:
        """Open an importer with a connection of its own; one importer serves one thread."""
        ...


class RangeImporter(Protocol):
    """Writes the records of one range after the other."""

    def import_range(
        self,
        entity: Entity,
        batches: Iterator[list[Record]],
        *,
        on_conflict: OnConflict,
        claim: Claim,
        tally: Tally,
    ) -> ImportOutcome:
        """Write the records of a claimed range and mark it ``live``, in one transaction.

        A row that exists with equal content is unchanged. One with other content is a conflict: left, or
        with ``overwrite`` replaced unless the entity is append-only. A record that the store refuses is
        rejected with its reason, and the others are written. ``tally`` turns the outcome into what the
        ledger stores beside the range.

        Raises:
            LeaseLostError: the lease of the claim expired or was taken; nothing was written.
        """
        ...


class Tally(Protocol):
    """Turns what became of a range into the entry of the ledger, inside the same transaction."""

    def __call__(self, outcome: ImportOutcome) -> RangeTally:
        """Return the tally of a range."""
        ...
