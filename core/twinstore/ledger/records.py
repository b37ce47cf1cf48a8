"""What tools see of the ledger: jobs, leases, claims, tallies, and the two lists of lines."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from datetime import datetime

from twinstore.bulk import KeyRange, Position
from twinstore.catalog import Key
from twinstore.ledger.models import CopyRange, RangeState, TallyLine

__all__ = ["Claim", "Lease", "RangeProgress", "RangeTally", "key_json", "key_of_json", "within_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RangeTally:
    """What copying one range amounted to: each a count by the label of the owner, without the zeros."""

    read: Mapping[str, int]
    written: Mapping[str, int] = field(default_factory=dict[str, int])
    unchanged: Mapping[str, int] = field(default_factory=dict[str, int])
    conflicts: Mapping[str, int] = field(default_factory=dict[str, int])
    quarantined: Mapping[str, int] = field(default_factory=dict[str, int])
    expired: Mapping[str, int] = field(default_factory=dict[str, int])
    text_timestamp: Mapping[str, int] = field(default_factory=dict[str, int])
    torn_tail: Mapping[str, int] = field(default_factory=dict[str, int])
    ignored: Mapping[str, int] = field(default_factory=dict[str, int])

    def lines(self) -> tuple[TallyLine, ...]:
        """Return the tally as the ledger stores it: owners are values, never names of fields."""
        return tuple(
            TallyLine(kind=item.name, label=label, count=count)
            for item in fields(self)
            for label, count in sorted(getattr(self, item.name).items())
        )

    @classmethod
    def of(cls, lines: Iterable[TallyLine]) -> RangeTally:
        """Return the tally of stored lines; a kind that this version does not know is left out."""
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
    tally: RangeTally | None = None
    position: Position | None = None
    finished_at: datetime | None = None

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


def within_of(stored: CopyRange) -> KeyRange:
    """Return the keys of a stored range."""
    return KeyRange(key_of_json(stored.lower), key_of_json(stored.upper))


def key_json(key: Key | None) -> str | None:
    """Return a key as JSON in ASCII, which every store can hold."""
    return None if key is None else json.dumps(key, ensure_ascii=True, separators=(",", ":"))


def key_of_json(text: str | None) -> Key | None:
    """Return the key of a JSON text."""
    return None if text is None else tuple(json.loads(text))
