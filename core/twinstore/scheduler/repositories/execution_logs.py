"""Execution logs: appended below their run, listed in order, removed by age."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from typing_extensions import override

from twinstore.access.guard import check_batch
from twinstore.access.protocol import Ref
from twinstore.access.repository import Repository
from twinstore.access.retry import repeat
from twinstore.catalog.row import Row
from twinstore.errors import ValidationError
from twinstore.scheduler import queries
from twinstore.scheduler.catalog import EXECUTION_LOGS, RUNS
from twinstore.scheduler.execution_logs import ExecutionLogEntry, ExecutionLogRepository

if TYPE_CHECKING:
    from twinstore.access.protocol import Access
    from twinstore.catalog.tenancy import Tenants

__all__ = ["ExecutionLogs"]

Entries = tuple[ExecutionLogEntry, ...]


class ExecutionLogs(Repository, ExecutionLogRepository):
    """Implements :class:`~twinstore.scheduler.execution_logs.ExecutionLogRepository`."""

    @override
    def append(self, entries: Sequence[ExecutionLogEntry]) -> tuple[ExecutionLogEntry, ...]:
        entries = self._models(entries, ExecutionLogEntry, "entries")
        if not entries:
            self._check_writable()
            return ()
        scope = self._admit(only_tenant(entries))
        runs = sorted({entry.run_id for entry in entries})
        if len(runs) == 1:
            return appended(self._access, scope, runs[0], entries)
        check_batch(EXECUTION_LOGS, map(Row, entries))  # together, as they are written
        if self._access.binding.in_unit:
            return self._append_to_several(scope, runs, entries)
        return repeat(lambda: self._append_to_several(scope, runs, entries))

    @override
    def list(
        self, tenant_id: str, run_id: str, *, after_sequence: int = 0, limit: int = 500
    ) -> tuple[ExecutionLogEntry, ...]:
        query = queries.execution_log(self._admit(tenant_id), run_id, after_sequence, limit)
        return self._page(EXECUTION_LOGS, query).items

    @override
    def purge(self, before: datetime, *, tenant_id: str | None = None, batch_size: int = 500) -> int:
        scope = self._admit_optional(tenant_id, "purge")
        return self._purge(EXECUTION_LOGS, scope, before, batch_size)

    def _append_to_several(self, scope: Tenants, runs: Sequence[str], entries: Entries) -> Entries:
        """Append to the logs of several runs in one unit.

        In the order of their ids, so that callers which append to the same runs do not deadlock.
        """
        stored: dict[str, Sequence[ExecutionLogEntry]] = {}
        with self._access.unit(scope, atomic=False) as unit:
            for run_id in runs:
                own = tuple(entry for entry in entries if entry.run_id == run_id)
                stored[run_id] = appended(unit, scope, run_id, own)
        places = {run_id: iter(own) for run_id, own in stored.items()}
        return tuple(next(places[entry.run_id]) for entry in entries)


def appended(access: Access, scope: Tenants, run_id: str, entries: Entries) -> Entries:
    """Append to the log of one run."""
    rows = access.append(EXECUTION_LOGS, Ref(RUNS, scope, (run_id,)), [Row(entry) for entry in entries])
    return tuple(row.model for row in rows)


def only_tenant(entries: Entries) -> str:
    """Return the tenant of some entries; raise ``ValidationError`` where they have several."""
    tenants = sorted({entry.tenant_id for entry in entries})
    if len(tenants) > 1:
        raise ValidationError(
            f"Argument entries holds entries of {len(tenants)} tenants; append those of each tenant alone.",
            entity=EXECUTION_LOGS.name,
        )
    return tenants[0]
