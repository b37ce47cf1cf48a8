"""Runs in memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from twinstore.scheduler import queries
from twinstore.scheduler.catalog import RUNS
from twinstore.scheduler.rules import runs as rules
from twinstore.scheduler.rules.missing import duplicate_id, required
from twinstore.scheduler.runs import Run, RunQueryOptions
from twinstore.scope import id_argument, instant_argument, text_argument
from twinstore_memory.repository import MemoryRepository, own, own_for_write
from twinstore_memory.rows import decode, encode, table, write
from twinstore_memory.store import DRIVER

if TYPE_CHECKING:
    from datetime import datetime

    from twinstore.paging import Page
    from twinstore.query import Query
    from twinstore.scheduler.enums import RunState
    from twinstore_memory.store import Unit

__all__ = ["MemoryRunRepository"]


class MemoryRunRepository(MemoryRepository):
    """Implements :class:`~twinstore.scheduler.runs.RunRepository`."""

    def get(self, tenant_id: str, run_id: str) -> Run | None:
        """Return one run; see the Protocol."""
        tenant = self._admit(tenant_id)
        row = self._get(RUNS, tenant, id_argument(run_id, "run_id"))
        return None if row is None else decode(row, Run)

    def get_required(self, tenant_id: str, run_id: str) -> Run:
        """Return one run; see the Protocol."""
        return required(self.get(tenant_id, run_id), RUNS, run_id.strip(), DRIVER)

    def list(self, tenant_id: str, options: RunQueryOptions | None = None) -> Page[Run]:
        """Return a page of runs; see the Protocol."""
        tenant = self._admit(tenant_id)
        return self._page(RUNS, queries.runs(tenant, options), Run)

    def create(self, run: Run) -> Run:
        """Insert a new run; see the Protocol."""
        run = self._model(run, Run, "run")
        self._admit(run.tenant_id)
        rules.check_create(run)
        with self._link.writing() as unit:
            insert(unit, run)
        return run

    def update(self, run: Run, *, expected_state: RunState | None = None) -> bool:
        """Replace the stored run if the move is allowed; see the Protocol."""
        run = self._model(run, Run, "run")
        tenant = self._admit(run.tenant_id)
        with self._link.writing() as unit:
            row = own_for_write(unit, RUNS, tenant, run.id)
            if row is None:
                return False
            if rules.check_update(decode(row, Run), run, expected_state):
                write(unit, encode(RUNS, run))
        return True

    def get_pending_runs(self, tenant_id: str, *, limit: int = 200) -> tuple[Run, ...]:
        """Return the runs that wait; see the Protocol."""
        tenant = self._admit(tenant_id)
        return self._first(queries.pending_runs(tenant, limit))

    def get_runs_by_schedule(self, tenant_id: str, schedule_id: str, limit: int) -> tuple[Run, ...]:
        """Return the latest runs of a schedule; see the Protocol."""
        tenant = self._admit(tenant_id)
        return self._first(queries.runs_by_schedule(tenant, schedule_id, limit))

    def list_by_state(self, state: RunState, *, limit: int = 50, page_token: str | None = None) -> Page[Run]:
        """Return a page of the runs of all tenants in one state; see the Protocol."""
        self._admit_system("list_by_state")
        return self._page(RUNS, queries.runs_by_state(state, limit, page_token), Run)

    def retry(
        self, tenant_id: str, run_id: str, requested_by: str, now: datetime, *, new_run_id: str | None = None
    ) -> Run:
        """Create a new run from a terminal one; see the Protocol."""
        tenant = self._admit(tenant_id)
        key, actor = id_argument(run_id, "run_id"), text_argument(requested_by, "requested_by")
        instant = instant_argument(now, "now")
        new_key = None if new_run_id is None else id_argument(new_run_id, "new_run_id")
        with self._link.writing() as unit:
            origin = required(own(unit, RUNS, tenant, key), RUNS, key, DRIVER)
            run = rules.retried(decode(origin, Run), actor, instant, new_key)
            insert(unit, run)
        return run

    def purge_finished(self, before: datetime, *, tenant_id: str | None = None, batch_size: int = 500) -> int:
        """Remove old finished runs; see the Protocol."""
        tenant = self._admit_optional(tenant_id, "purge_finished")
        return self._purge_before(RUNS, tenant, before, batch_size)

    def _first(self, query: Query) -> tuple[Run, ...]:
        rows = self._select(RUNS, query)[: query.limit]
        return tuple(decode(row, Run) for row in rows)


def insert(unit: Unit, run: Run) -> None:
    """Store a run whose id nobody has yet."""
    unit.claim(table(RUNS), (run.id,))
    if unit.get(table(RUNS), (run.id,)) is not None:
        raise duplicate_id(RUNS, run.id, DRIVER)
    write(unit, encode(RUNS, run))
