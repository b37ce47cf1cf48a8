"""Execution logs: appended below their run, listed in order, removed by age."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from typing_extensions import override

from twinstore.access.repository import Repository
from twinstore.catalog.row import Row
from twinstore.errors import ValidationError
from twinstore.scheduler import queries
from twinstore.scheduler.catalog import EXECUTION_LOGS, RUNS
from twinstore.scheduler.execution_logs import ExecutionLogEntry, ExecutionLogRepository

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
        rows = [Row(entry) for entry in entries]
        stored = self._append_to_logs(EXECUTION_LOGS, RUNS, scope, rows, lambda entry: entry.run_id)
        return tuple(row.model for row in stored)

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


def only_tenant(entries: Entries) -> str:
    """Return the tenant of some entries; raise ``ValidationError`` where they have several."""
    tenants = sorted({entry.tenant_id for entry in entries})
    if len(tenants) > 1:
        raise ValidationError(
            f"Argument entries holds entries of {len(tenants)} tenants; append those of each tenant alone.",
            entity=EXECUTION_LOGS.name,
        )
    return tenants[0]
