"""Runs on MongoDB; concurrent updates are told apart by the internal ``_version``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from bson.int64 import Int64

from twinstore.retrying import repeat
from twinstore.scheduler import queries
from twinstore.scheduler.catalog import RUNS
from twinstore.scheduler.rules import runs as rules
from twinstore.scheduler.rules.missing import duplicate_id, lost_race, required
from twinstore.scheduler.runs import Run, RunQueryOptions
from twinstore.scope import id_argument, instant_argument, text_argument
from twinstore_mongo.codec import VERSION, next_version
from twinstore_mongo.errors import DRIVER
from twinstore_mongo.repository import MongoRepository, one
from twinstore_mongo.scheduler.codecs import RUN_CODEC
from twinstore_mongo.units import ATTEMPTS
from twinstore_mongo.writes import insert, replace

if TYPE_CHECKING:
    from datetime import datetime

    from twinstore.paging import Page
    from twinstore.scheduler.enums import RunState
    from twinstore_mongo.connection import Document
    from twinstore_mongo.units import Unit

__all__ = ["MongoRunRepository"]

OLDEST_FIRST: Final = [("createdAt", 1), ("_id", -1)]


class MongoRunRepository(MongoRepository):
    """Implements :class:`~twinstore.scheduler.runs.RunRepository`."""

    def get(self, tenant_id: str, run_id: str) -> Run | None:
        """Return one run; see the Protocol."""
        tenant, key = self._admit(tenant_id), id_argument(run_id, "run_id")
        document = own_run(self._unit, tenant, key)
        return None if document is None else RUN_CODEC.decode(document)

    def get_required(self, tenant_id: str, run_id: str) -> Run:
        """Return one run; see the Protocol."""
        return required(self.get(tenant_id, run_id), RUNS, run_id.strip(), DRIVER)

    def list(self, tenant_id: str, options: RunQueryOptions | None = None) -> Page[Run]:
        """Return a page of runs; see the Protocol."""
        tenant = self._admit(tenant_id)
        # The index of a tenant has the newest first, which backwards turns the ids round within one instant.
        # A filter by state has an index of its own in ascending order.
        backwards = options is not None and options.ascending and options.states is None
        return self._page(RUN_CODEC, queries.runs(tenant, options), OLDEST_FIRST if backwards else None)

    def create(self, run: Run) -> Run:
        """Insert a new run; see the Protocol."""
        run = self._model(run, Run, "run")
        self._admit(run.tenant_id)
        rules.check_create(run)
        insert_run(self._unit, run)
        return run

    def update(self, run: Run, *, expected_state: RunState | None = None) -> bool:
        """Replace the stored run if the move is allowed; see the Protocol."""
        run = self._model(run, Run, "run")
        self._admit(run.tenant_id)
        attempts = 1 if self._unit.in_transaction else ATTEMPTS
        self._unit.check_writable()
        return repeat(lambda: self._compare_and_set(run, expected_state), attempts=attempts)

    def _compare_and_set(self, run: Run, expected_state: RunState | None) -> bool:
        stored = own_run(self._unit, run.tenant_id, run.id)
        if stored is None:
            return False
        if rules.check_update(RUN_CODEC.decode(stored), run, expected_state):
            version = stored.get(VERSION)
            condition = {"_id": run.id, "tenantId": run.tenant_id, VERSION: version}
            document = RUN_CODEC.encode(run, run.id, {VERSION: next_version(version)})
            if not replace(
                self._unit, RUNS, condition, document, lambda _: duplicate_id(RUNS, run.id, DRIVER)
            ):
                raise lost_race(RUNS, run.id, DRIVER)
        return True

    def get_pending_runs(self, tenant_id: str, *, limit: int = 200) -> tuple[Run, ...]:
        """Return the runs that wait; see the Protocol."""
        tenant = self._admit(tenant_id)
        return self._first(RUN_CODEC, queries.pending_runs(tenant, limit))

    def get_runs_by_schedule(self, tenant_id: str, schedule_id: str, limit: int) -> tuple[Run, ...]:
        """Return the latest runs of a schedule; see the Protocol."""
        tenant = self._admit(tenant_id)
        return self._first(RUN_CODEC, queries.runs_by_schedule(tenant, schedule_id, limit))

    def list_by_state(self, state: RunState, *, limit: int = 50, page_token: str | None = None) -> Page[Run]:
        """Return a page of the runs of all tenants in one state; see the Protocol."""
        self._admit_system("list_by_state")
        return self._page(RUN_CODEC, queries.runs_by_state(state, limit, page_token))

    def retry(
        self,
        tenant_id: str,
        run_id: str,
        requested_by: str,
        now: datetime,
        *,
        new_run_id: str | None = None,
    ) -> Run:
        """Create a new run from a terminal one; see the Protocol."""
        tenant, key = self._admit(tenant_id), id_argument(run_id, "run_id")
        actor, instant = text_argument(requested_by, "requested_by"), instant_argument(now, "now")
        new_key = None if new_run_id is None else id_argument(new_run_id, "new_run_id")

        def write(unit: Unit) -> Run:
            origin = required(own_run(unit, tenant, key), RUNS, key, DRIVER)
            run = rules.retried(RUN_CODEC.decode(origin), actor, instant, new_key)
            insert_run(unit, run)
            return run

        return self._unit.atomic(write)

    def purge_finished(self, before: datetime, *, tenant_id: str | None = None, batch_size: int = 500) -> int:
        """Remove old finished runs; see the Protocol."""
        tenant = self._admit_optional(tenant_id, "purge_finished")
        return self._purge(RUNS, tenant, before, batch_size)


def own_run(unit: Unit, tenant: str, key: str) -> Document | None:
    """Return the document of a run of this tenant."""
    return one(unit, RUNS, {"_id": key, "tenantId": tenant}, key)


def insert_run(unit: Unit, run: Run) -> None:
    """Store a run whose id nobody has yet."""
    document = RUN_CODEC.encode(run, run.id, {VERSION: Int64(1)})
    insert(unit, RUNS, document, lambda _: duplicate_id(RUNS, run.id, DRIVER))
