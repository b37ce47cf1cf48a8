"""Runs on PostgreSQL."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from twinstore.scheduler import queries
from twinstore.scheduler.catalog import RUNS
from twinstore.scheduler.rules import runs as rules
from twinstore.scheduler.rules.missing import not_found, required
from twinstore.scheduler.runs import Run
from twinstore.scope import id_argument, instant_argument, model_argument, text_argument
from twinstore_postgres.codec import Replanned
from twinstore_postgres.errors import Subject
from twinstore_postgres.listing import page_of
from twinstore_postgres.purging import purge
from twinstore_postgres.scheduler.tables import RUNS_TABLE
from twinstore_postgres.settings import DRIVER

if TYPE_CHECKING:
    from datetime import datetime

    from twinstore.paging import Page
    from twinstore.scheduler.enums import RunState
    from twinstore.scheduler.runs import RunQueryOptions
    from twinstore_postgres.work import Steps, Work

__all__ = ["PostgresRunRepository"]

SELECT: Final = RUNS_TABLE.statement("SELECT {columns} FROM {table} WHERE id = %s AND tenant_id = %s")
SELECT_FOR_UPDATE: Final = RUNS_TABLE.statement(
    "SELECT {columns} FROM {table} WHERE id = %s AND tenant_id = %s FOR UPDATE"
)
INSERT: Final = RUNS_TABLE.statement("INSERT INTO {table} ({columns}) VALUES ({values})")
UPDATE: Final = RUNS_TABLE.statement(
    "UPDATE {table} SET ({columns}, row_version) = ROW({values}, row_version + 1) "
    "WHERE id = %s AND tenant_id = %s"
)
PURGE: Final = Replanned(b"""
DELETE FROM scheduler.runs WHERE id = ANY (ARRAY(
    SELECT id FROM scheduler.runs WHERE finished_at <= %s ORDER BY finished_at, id LIMIT %s))
""")
PURGE_TENANT: Final = Replanned(b"""
DELETE FROM scheduler.runs WHERE id = ANY (ARRAY(
    SELECT id FROM scheduler.runs
     WHERE finished_at <= %s AND tenant_id = %s ORDER BY finished_at, id LIMIT %s))
""")


class PostgresRunRepository:
    """Implements :class:`~twinstore.scheduler.runs.RunRepository`."""

    def __init__(self, work: Work) -> None:
        """Take the access to the server."""
        self._work = work

    def get(self, tenant_id: str, run_id: str) -> Run | None:
        """Return one run; see the Protocol."""
        tenant = self._work.admit(tenant_id)
        key = id_argument(run_id, "run_id")
        row = self._work.one(tenant, Subject(RUNS, key), SELECT, (key, tenant))
        return None if row is None else RUNS_TABLE.decode(row)

    def get_required(self, tenant_id: str, run_id: str) -> Run:
        """Return one run or raise; see the Protocol."""
        return required(self.get(tenant_id, run_id), RUNS, run_id.strip(), DRIVER)

    def list(self, tenant_id: str, options: RunQueryOptions | None = None) -> Page[Run]:
        """Return a page of runs; see the Protocol."""
        tenant = self._work.admit(tenant_id)
        return page_of(self._work, tenant, queries.runs(tenant, options), RUNS_TABLE)

    def create(self, run: Run) -> Run:
        """Insert a new run; see the Protocol."""
        self._work.check()
        run = model_argument(run, Run, "run")
        tenant = self._work.admit(run.tenant_id)
        rules.check_create(run)
        self._work.write(tenant, Subject(RUNS, run.id), (INSERT, RUNS_TABLE.encode(run, {})))
        return run

    def update(self, run: Run, *, expected_state: RunState | None = None) -> bool:
        """Replace the stored run if the move is allowed; see the Protocol."""
        self._work.check()
        run = model_argument(run, Run, "run")
        tenant = self._work.admit(run.tenant_id)

        def once() -> bool:
            with self._work.unit(tenant, Subject(RUNS, run.id)) as steps:
                return update_run(steps, run, expected_state)

        return self._work.repeat(once)

    def get_pending_runs(self, tenant_id: str, *, limit: int = 200) -> tuple[Run, ...]:
        """Return the runs in planning or queued; see the Protocol."""
        tenant = self._work.admit(tenant_id)
        return page_of(self._work, tenant, queries.pending_runs(tenant, limit), RUNS_TABLE).items

    def get_runs_by_schedule(self, tenant_id: str, schedule_id: str, limit: int) -> tuple[Run, ...]:
        """Return the latest runs of a schedule; see the Protocol."""
        tenant = self._work.admit(tenant_id)
        query = queries.runs_by_schedule(tenant, schedule_id, limit)
        return page_of(self._work, tenant, query, RUNS_TABLE).items

    def list_by_state(self, state: RunState, *, limit: int = 50, page_token: str | None = None) -> Page[Run]:
        """Return a page of the runs of all tenants in one state; see the Protocol."""
        tenant = self._work.admit_system("list_by_state")
        return page_of(self._work, tenant, queries.runs_by_state(state, limit, page_token), RUNS_TABLE)

    def retry(
        self, tenant_id: str, run_id: str, requested_by: str, now: datetime, *, new_run_id: str | None = None
    ) -> Run:
        """Create a new run from a terminal one; see the Protocol."""
        tenant = self._work.admit(tenant_id)
        key = id_argument(run_id, "run_id")
        actor = text_argument(requested_by, "requested_by")
        instant = instant_argument(now, "now")
        new_key = None if new_run_id is None else id_argument(new_run_id, "new_run_id")

        def once() -> Run:
            with self._work.unit(tenant, Subject(RUNS, new_key or key)) as steps:
                return retry_run(steps, tenant, key, actor, instant, new_key)

        return self._work.repeat(once)

    def purge_finished(self, before: datetime, *, tenant_id: str | None = None, batch_size: int = 500) -> int:
        """Remove finished runs, oldest first; see the Protocol."""
        tenant = self._work.admit_optional(tenant_id, "purge_finished")
        instant = instant_argument(before, "before")
        return purge(self._work, RUNS, (PURGE, PURGE_TENANT), instant, tenant, batch_size)


def update_run(steps: Steps, run: Run, expected_state: RunState | None) -> bool:
    """Lock and read the run, ask the rule, and write."""
    (found,) = steps.run((SELECT_FOR_UPDATE, (run.id, run.tenant_id)))
    if found.first is None:
        return False
    if rules.check_update(RUNS_TABLE.decode(found.first), run, expected_state):
        steps.run((UPDATE, (*RUNS_TABLE.encode(run, {}), run.id, run.tenant_id)))
    return True


def retry_run(  # noqa: PLR0917  # the arguments of retry, normalised
    steps: Steps, tenant: str, key: str, actor: str, now: datetime, new_key: str | None
) -> Run:
    """Read the origin, ask the rule, and insert the new run."""
    (found,) = steps.run((SELECT, (key, tenant)))
    if found.first is None:
        raise not_found(RUNS, key, DRIVER)
    run = rules.retried(RUNS_TABLE.decode(found.first), actor, now, new_key)
    steps.run((INSERT, RUNS_TABLE.encode(run, {})))
    return run
