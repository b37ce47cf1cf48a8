"""What a ledger remembers: jobs, their ranges, and who works on them."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from twinstore.bulk import KeyRange, Position

__all__ = ["Claim", "Job", "JobState", "Lease", "RangeProgress", "RangeState", "RangeTally"]


class RangeState(StrEnum):
    """Where a range stands. ``live`` ranges are complete; a follower applies changes to those only."""

    PENDING = "pending"
    COPYING = "copying"
    LIVE = "live"


class JobState(StrEnum):
    """Where a job stands."""

    RUNNING = "running"
    COMPLETE = "complete"


@dataclass(frozen=True, slots=True, kw_only=True)
class RangeTally:
    """What copying one range amounted to: each a count by tenant, without the zeros.

    Rows whose tenant cannot be told are counted under the empty text. A ledger stores all of it.
    """

    read: Mapping[str, int]
    written: Mapping[str, int] = field(default_factory=dict[str, int])
    unchanged: Mapping[str, int] = field(default_factory=dict[str, int])
    conflicts: Mapping[str, int] = field(default_factory=dict[str, int])
    quarantined: Mapping[str, int] = field(default_factory=dict[str, int])
    expired: Mapping[str, int] = field(default_factory=dict[str, int])
    text_timestamp: Mapping[str, int] = field(default_factory=dict[str, int])


@dataclass(frozen=True, slots=True, kw_only=True)
class RangeProgress:
    """One range of the ledger."""

    number: int
    entity: str
    within: KeyRange
    state: RangeState
    tally: RangeTally | None = None
    position: Position | None = None
    finished_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One copy of a module. ``settings`` are those that make two runs the same job."""

    id: str
    settings: Mapping[str, str]
    state: JobState
    generation: int
    as_of: datetime
    started_at: datetime
    position: Position | None = None


@dataclass(frozen=True, slots=True)
class Lease:
    """Exclusive right to work on a job until ``expires_at`` by the server's clock.

    The fence grows each time the lease changes hands.
    """

    job_id: str
    holder: str
    fence: int
    expires_at: datetime


@dataclass(frozen=True, slots=True)
class Claim:
    """A range that a holder of the lease works on."""

    lease: Lease
    number: int
    entity: str
    within: KeyRange
