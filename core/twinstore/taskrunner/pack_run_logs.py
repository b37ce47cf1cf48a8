"""Logs of pack runs: what a run says while it is executed, in order, and the contract of their store."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from pydantic import Field

from twinstore.models.canonical import CanonicalModel
from twinstore.models.fields import Id, OptionalText, PositiveInt, Text, Timestamp, TrimmedKeyMap
from twinstore.taskrunner.enums import LogLevel
from twinstore.taskrunner.pack_runs import FilledText

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from twinstore.catalog.tenancy import AllTenants

__all__ = ["PackRunLogDraft", "PackRunLogEntry", "PackRunLogStore"]


# Texts only, so that every reader gets the same; their names keep their case.


class PackRunLogDraft(CanonicalModel):
    """What a log entry says, before it is appended to the log of a run and gets its number."""

    timestamp: Timestamp
    level: LogLevel
    event_type: FilledText
    message: Text
    step_id: OptionalText = None
    metadata: TrimmedKeyMap = Field(default_factory=dict)


class PackRunLogEntry(CanonicalModel):
    """One entry of the log of a run; it is never changed.

    ``sequence`` counts from 1 in each run. It is assigned by the writer, so that an append can be repeated.
    """

    run_id: Id
    sequence: PositiveInt
    timestamp: Timestamp
    level: LogLevel
    event_type: FilledText
    message: Text
    step_id: OptionalText = None
    metadata: TrimmedKeyMap = Field(default_factory=dict)


class PackRunLogStore(Protocol):
    """Stores the logs of pack runs; entries are appended, read and removed by age, never changed.

    An entry belongs to the owner of its run; see :class:`~twinstore.taskrunner.pack_runs.PackRunStateStore`
    for ``tenant_id``. All methods raise ``ValidationError`` for bad arguments, ``TenantScopeError`` when
    bound to another tenant or when tenancy is enforced and no tenant is named, ``UnavailableError`` when the
    store cannot be reached and ``DocumentDecodeError`` for a stored document that does not form an entry.
    """

    def append(self, entries: Sequence[PackRunLogEntry], *, tenant_id: str | AllTenants | None = None) -> int:
        """Append entries under the numbers they have; return how many are new.

        No entries: 0. Repeated call: 0, since an entry whose like is stored is not written again. Numbers may
        be skipped. Atomic: all or nothing, also over several runs.

        Raises:
            ValidationError: the entries have more than 16.7 MB in all.
            NotFoundError: a run is unknown or outside the scope.
            ConflictError: a number is taken by other content.
        """
        ...

    def append_next(
        self, run_id: str, draft: PackRunLogDraft, *, tenant_id: str | AllTenants | None = None
    ) -> PackRunLogEntry:
        """Append an entry under the highest number of the run and 1, from 1; return it. Atomic.

        Appends to one run wait for each other, so no number is given twice. Repeated call: another entry.

        Raises:
            NotFoundError: the run is unknown or outside the scope.
        """
        ...

    def read(
        self,
        run_id: str,
        *,
        after_sequence: int = 0,
        limit: int = 500,
        tenant_id: str | AllTenants | None = None,
    ) -> tuple[PackRunLogEntry, ...]:
        """Return the first entries of a run after a number.

        Order: sequence. Limit 500, at most 5000; the number of the last entry is where to go on. Empty, also
        for an unknown run and one outside the scope: ``()``.
        """
        ...

    def read_window(
        self,
        run_id: str,
        start: datetime,
        end: datetime,
        *,
        limit: int = 500,
        tenant_id: str | AllTenants | None = None,
    ) -> tuple[PackRunLogEntry, ...]:
        """Return the first entries of a run from ``start`` on and before ``end``.

        Order: (timestamp, sequence). Limit 500, at most 5000. Empty, also for an unknown run and one outside
        the scope: ``()``.
        """
        ...

    def last_sequence(self, run_id: str, *, tenant_id: str | AllTenants | None = None) -> int:
        """Return the highest number in the log of a run. Empty, also for an unknown run: 0."""
        ...

    def purge(self, before: datetime, *, batch_size: int = 500) -> int:
        """Remove the entries of all runs with ``timestamp <= before``, in system scope; return how many.

        Order: oldest first. Repeated call: 0. Not atomic: in batches.
        """
        ...
