"""The rows of the ledger of copies."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from datetime import datetime
from enum import StrEnum
from typing import Final, cast

from pydantic import Field

from twinstore.access.leases import LeaseState
from twinstore.bulk.port import Position
from twinstore.catalog.keys import Key, KeyRange
from twinstore.models.canonical import CanonicalModel
from twinstore.models.fields import (
    Count,
    Flag,
    Id,
    OptionalText,
    PositiveInt,
    Text,
    TextMap,
    Timestamp,
    is_empty,
)

# Why a job takes no more ranges when an operator only pauses it.
PAUSED: Final = "paused"
# A range that was found so often with a dead worker is not copied again: it may be what kills them.
MAX_DEATHS: Final = 5
# So many deaths may be those of others: all ranges that a process copies count its death.
CHANCE_DEATHS: Final = 2


class JobState(StrEnum):
    """The status of a job."""

    RUNNING = "running"
    COMPLETE = "complete"


class RangeState(StrEnum):
    """The status of a range. ``live`` ranges are complete; ``failed`` ones were given back too often."""

    PENDING = "pending"
    COPYING = "copying"
    LIVE = "live"
    FAILED = "failed"


class Suspicion(StrEnum):
    """What is known of a range whose workers died: it is part of one, or has one row."""

    PART = "part"
    ROW = "row"


class CopyJob(CanonicalModel):
    """One copy of a module.

    Attributes:
        settings: those that make two runs the same job.
        generation: grows each time a complete job starts over.
        planned: how many ranges the present generation has.
        cut: the entities of which all ranges are planned; workers take no others.
        holder, fence, expires_at: the lease of the coordinator that plans, completes or stops the job.
        stop: whether workers must stop taking ranges, with the reason, which may be just a pause.
        max_rate: documents per second of all workers together.
    """

    id: Id
    settings: TextMap = Field(default_factory=dict)
    state: JobState = JobState.RUNNING
    generation: PositiveInt = 1
    as_of: Timestamp
    started_at: Timestamp
    position: OptionalText = None
    planned: Count = 0
    cut: tuple[Text, ...] = Field(default=(), exclude_if=is_empty)
    holder: OptionalText = None
    fence: Count = 0
    expires_at: Timestamp | None = None
    stop: Flag = False
    stop_reason: OptionalText = None
    max_rate: PositiveInt | None = None

    @property
    def lease(self) -> LeaseState:
        """The lease as the rule sees it."""
        return LeaseState(self.holder, self.fence, self.expires_at)

    @property
    def is_unmarked(self) -> bool:
        """Whether there are ranges and no entity has all: it is being planned, or by an earlier release."""
        return bool(self.planned and not self.cut)

    @property
    def paused(self) -> bool:
        """Whether workers are to wait instead of ending."""
        return self.stop and self.stop_reason == PAUSED

    def leased(self, lease: LeaseState) -> CopyJob:
        """Return the job with another lease."""
        return self.evolve(holder=lease.holder, fence=lease.fence, expires_at=lease.expires_at)


class CopyWorker(CanonicalModel):
    """One process that copies ranges; it counts as dead from ``expires_at`` by the server's clock."""

    job_id: Id
    worker: Id
    expires_at: Timestamp


class TallyLine(CanonicalModel):
    """How many rows of one owner had one outcome; ``label`` is that of the owner, or what was counted."""

    kind: Text
    label: Text
    count: Count


class CopyRange(CanonicalModel):
    """One range of keys of one entity.

    Attributes:
        lower, upper: JSON of the two ends; absent ends are open. As text, which holds every key: a JSON
            value of PostgreSQL refuses U+0000.
        worker: who copies or copied it.
        fence: grows with every claim; the worker that commits the range must hold the claim of this fence.
        attempts: how often it was claimed since it was last open.
        deaths: how often it was found with a worker that is dead.
        suspicion: why fewer deaths end it.
        tally: the result of copying it, once it is live.
        under: the digest of the rules under which it was copied; absent without rules.
        noted: whether the tally has anything that a later run may look at again.
        coarse: whether it has many rows, so that its worker cuts it before it copies the first part.
    """

    job_id: Id
    number: PositiveInt
    entity: Text
    lower: OptionalText = None
    upper: OptionalText = None
    state: RangeState = RangeState.PENDING
    worker: OptionalText = None
    fence: Count = 0
    attempts: Count = 0
    # Absent while it is 0: an earlier release has stored ranges without it.
    deaths: Count = Field(default=0, exclude_if=is_empty)
    suspicion: Suspicion | None = Field(default=None, exclude_if=is_empty)
    tally: tuple[TallyLine, ...] = ()
    under: OptionalText = Field(default=None, exclude_if=is_empty)
    noted: Flag = Field(default=False, exclude_if=is_empty)
    coarse: Flag = Field(default=False, exclude_if=is_empty)
    position: OptionalText = None
    finished_at: Timestamp | None = None


class QuarantineLine(CanonicalModel):
    """One document that could not be moved; a long ``raw`` continues in rows with the next ``part``.

    Attributes:
        number: the range it belongs to.
        line: its place among the lines of the range.
        tenant: the label of its owner.
        key: JSON of its key, absent where it has none.
        raw: what was stored, as extended JSON, or a piece of it.
    """

    job_id: Id
    number: PositiveInt
    line: PositiveInt
    part: Count = 0
    entity: Text
    tenant: Text
    key: OptionalText = None
    reason: Text
    raw: Text | None = None


class ConflictLine(CanonicalModel):
    """One row that the target had with other content."""

    job_id: Id
    number: PositiveInt
    line: PositiveInt
    entity: Text
    tenant: Text
    key: Text
    overwritten: Flag = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RangeTally:
    """What copying one range amounted to: each a count by the label of the owner, without the zeros.

    ``equivalences`` counts by kind the unchanged rows that both sides hold in a form that no copy writes,
    ``rules`` by the name of the rule the rows that one changed. ``under`` names the digest of the rules under
    which the range was copied; nothing if there were none.
    """

    read: Mapping[str, int]
    written: Mapping[str, int] = field(default_factory=dict[str, int])
    unchanged: Mapping[str, int] = field(default_factory=dict[str, int])
    conflicts: Mapping[str, int] = field(default_factory=dict[str, int])
    quarantined: Mapping[str, int] = field(default_factory=dict[str, int])
    expired: Mapping[str, int] = field(default_factory=dict[str, int])
    text_timestamp: Mapping[str, int] = field(default_factory=dict[str, int])
    torn_tail: Mapping[str, int] = field(default_factory=dict[str, int])
    ignored: Mapping[str, int] = field(default_factory=dict[str, int])
    equivalences: Mapping[str, int] = field(default_factory=dict[str, int])
    rules: Mapping[str, int] = field(default_factory=dict[str, int])
    under: Mapping[str, int] = field(default_factory=dict[str, int])

    @property
    def noted(self) -> bool:
        """Whether rows were refused, conflicted, or are there in a form that no copy writes."""
        return bool(self.conflicts or self.quarantined or self.equivalences)

    def lines(self) -> tuple[TallyLine, ...]:
        """Return the tally as the ledger stores it: owners are values, never names of fields."""
        return tuple(
            TallyLine(kind=item.name, label=label, count=count)
            for item in fields(self)
            for label, count in sorted(getattr(self, item.name).items())
        )

    @classmethod
    def of(cls, lines: Iterable[TallyLine]) -> RangeTally:
        """Return the tally of stored lines; a kind that this version does not know is skipped."""
        counts: dict[str, dict[str, int]] = {item.name: {} for item in fields(cls)}
        for line in lines:
            # An older release may report on a job that a newer one began.
            counts.get(line.kind, {})[line.label] = line.count
        return cls(**counts)


@dataclass(frozen=True, slots=True, kw_only=True)
class RangeProgress:
    """One range of the ledger; ``tally`` is ``None`` until it is live."""

    number: int
    entity: str
    within: KeyRange
    state: RangeState
    worker: str | None = None
    fence: int = 0
    attempts: int = 0
    deaths: int = 0
    suspicion: Suspicion | None = None
    coarse: bool = False
    tally: RangeTally | None = None
    position: Position | None = None
    finished_at: datetime | None = None

    @property
    def dangerous(self) -> bool:
        """Whether the claim of it, if it has to be taken over, is :attr:`Claim.dangerous`."""
        return may_kill(self.suspicion, self.deaths + 1)

    @classmethod
    def of(cls, stored: CopyRange) -> RangeProgress:
        """Return a stored range."""
        return cls(
            number=stored.number,
            entity=stored.entity,
            within=within_of(stored),
            state=stored.state,
            worker=stored.worker,
            fence=stored.fence,
            attempts=stored.attempts,
            deaths=stored.deaths,
            suspicion=stored.suspicion,
            coarse=stored.coarse,
            tally=RangeTally.of(stored.tally) if stored.finished_at is not None else None,
            position=stored.position,
            finished_at=stored.finished_at,
        )


@dataclass(frozen=True, slots=True)
class Lease:
    """Exclusive right to plan, complete or stop a job until ``expires_at`` by the server's clock.

    The fence grows each time the lease changes hands.
    """

    job_id: str
    holder: str
    fence: int
    expires_at: datetime


@dataclass(frozen=True, slots=True)
class Claim:
    """A range that a worker copies; safe by its fence, however late the worker commits."""

    job_id: str
    number: int
    worker: str
    fence: int
    entity: str
    within: KeyRange
    deaths: int = 0
    suspicion: Suspicion | None = None
    coarse: bool = False

    @property
    def kills(self) -> bool:
        """Whether so many workers died of the range that nobody reads it as a whole again."""
        return self.deaths >= (1 if self.suspicion is Suspicion.PART else MAX_DEATHS)

    @property
    def dangerous(self) -> bool:
        """Whether a worker should copy no second one of the kind at the same time.

        If it dies, both count the death; so the one that is harmless would be suspected with the other.
        """
        return may_kill(self.suspicion, self.deaths)


def may_kill(suspicion: Suspicion | None, deaths: int) -> bool:
    """Whether more workers died of a range than its neighbours explain."""
    return suspicion is not None or deaths > CHANCE_DEATHS


def within_of(stored: CopyRange) -> KeyRange:
    """Return the keys of a stored range."""
    return KeyRange(key_of_json(stored.lower), key_of_json(stored.upper))


def key_json(key: Key | None) -> str | None:
    """Return a key as JSON in ASCII, which every store can hold."""
    return None if key is None else json.dumps(key, ensure_ascii=True, separators=(",", ":"))


def key_of_json(text: str | None) -> Key | None:
    """Return the key of a JSON text; a text in it is what a source holds in place of a key."""
    found: object = None if text is None else json.loads(text)
    return tuple(cast("list[str | int]", found)) if isinstance(found, list) else None
