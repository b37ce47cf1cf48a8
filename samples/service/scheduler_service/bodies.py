"""Bodies that are no model of the library: lists, and what workers say of a lease."""

from __future__ import annotations

from typing import Annotated, Generic, TypeVar

from pydantic import Field, NonNegativeInt

from twinstore.models.canonical import CanonicalModel
from twinstore.models.fields import Actor, Count32, Id, OptionalText
from twinstore.scheduler import ExecutionLogEntry, PolicyRunStats

__all__ = [
    "Cancellation",
    "ClaimRequest",
    "Completion",
    "Counts",
    "Failure",
    "Heartbeat",
    "Held",
    "Lease",
    "Listing",
    "LogBatch",
    "Release",
    "Renewal",
]

M = TypeVar("M", bound=CanonicalModel)

LeaseSeconds = Annotated[float, Field(gt=0, le=3600)]


class Listing(CanonicalModel, Generic[M]):
    """One page of a list. With ``nextPageToken`` the next one is asked for; without it this is the last."""

    items: tuple[M, ...]
    next_page_token: str | None = None


class Counts(CanonicalModel):
    """How many there are in each status; statuses without any are left out."""

    counts: dict[str, NonNegativeInt]


class LogBatch(CanonicalModel):
    """Entries of one run, in order."""

    items: tuple[ExecutionLogEntry, ...]


class Heartbeat(CanonicalModel):
    """A sign of life; ``currentJobs`` stays as it is where it is left out."""

    current_jobs: Count32 | None = None


class ClaimRequest(CanonicalModel):
    """How many jobs a worker takes at once, and for how long."""

    limit: Annotated[int, Field(ge=1, le=1000)] = 1
    lease_seconds: LeaseSeconds = 60


class Held(CanonicalModel):
    """The lease of a worker: its own, of the attempt that the claim returned."""

    worker_id: Id
    attempt: Count32


class Lease(Held):
    """The job under which a worker writes its run, or the log of that run."""

    job_id: Id


class Renewal(Held):
    """How long the lease is to last from now on."""

    lease_seconds: LeaseSeconds = 60


class Completion(Held):
    """What came out."""

    stats: PolicyRunStats | None = None


class Failure(Held):
    """Why it failed."""

    error: Actor


class Release(Held):
    """Why it is given back, and how long it is to wait."""

    error: Actor
    delay_seconds: Annotated[float, Field(ge=0, le=86_400)] = 0


class Cancellation(CanonicalModel):
    """Why a run is to end."""

    reason: OptionalText = None
