"""Execution logs: what a run says while it is executed, in order, and the contract of their repository."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from pydantic import Field

from twinstore.models.canonical import CanonicalModel
from twinstore.models.fields import FreeObject, Id, OptionalText, PositiveInt, TenantId, Text, Timestamp
from twinstore.scheduler.enums import LogLevel

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime


__all__ = ["ExecutionLogEntry", "ExecutionLogRepository"]


class ExecutionLogEntry(CanonicalModel):
    """One entry of the log of a run; it is never changed.

    ``sequence`` counts from 1 in each run and is assigned by the store where it is absent. ``data`` is free
    JSON. Entries go with their run when ``purge_finished`` removes it; a run that the TTL of MongoDB removes
    leaves its entries to their own TTL.
    """

    tenant_id: TenantId
    run_id: Id
    sequence: PositiveInt | None = None
    logged_at: Timestamp
    level: LogLevel = LogLevel.INFO
    logger: OptionalText = None
    message: Text
    data: FreeObject = Field(default_factory=dict)


class ExecutionLogRepository(Protocol):
    """Stores the logs of runs; entries are appended, listed and removed by age, never changed.

    All methods raise ``ValidationError`` for bad arguments, ``TenantScopeError`` when bound to another
    tenant, ``UnavailableError`` when the store cannot be reached and ``DocumentDecodeError`` for a stored
    document that does not form an entry.
    """

    def append(self, entries: Sequence[ExecutionLogEntry]) -> tuple[ExecutionLogEntry, ...]:
        """Append entries of one tenant and return them as they are stored, in the order given.

        An entry without a sequence gets the highest one of its run plus 1; appends to one run wait for each
        other, so no number is given twice or skipped. No entries: ``()``. Repeated call: an entry with a
        sequence whose like is stored is returned and not written again; one without is a new entry. Atomic:
        all or nothing, also over several runs.

        Raises:
            ValidationError: entries of several tenants, or with more than 16.7 MB in all.
            NotFoundError: a run is unknown or foreign.
            ConflictError: a sequence is taken by other content.
        """
        ...

    def list(
        self, tenant_id: str, run_id: str, *, after_sequence: int = 0, limit: int = 500
    ) -> tuple[ExecutionLogEntry, ...]:
        """Return the first entries of a run after a sequence.

        Order: sequence. Limit 500, at most 5000; the sequence of the last entry is where to go on. Empty,
        also for an unknown or foreign run: ``()``.
        """
        ...

    def purge(self, before: datetime, *, tenant_id: str | None = None, batch_size: int = 500) -> int:
        """Remove the entries that were logged up to ``before``; return how many.

        Without a tenant those of all tenants, in system scope. Order: oldest first. Repeated call: 0. Not
        atomic: in batches.
        """
        ...
