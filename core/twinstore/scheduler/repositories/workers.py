"""The registry of workers: reached in system scope only."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final

from typing_extensions import override

from twinstore.access.defaults import mark_in_batches
from twinstore.access.errors import duplicate
from twinstore.access.paging import Page
from twinstore.access.repository import Repository
from twinstore.access.scope import count_argument, id_argument, instant_argument, member_argument
from twinstore.catalog.tenancy import owner_of
from twinstore.errors import DocumentDecodeError
from twinstore.scheduler import queries
from twinstore.scheduler.catalog import WORKERS
from twinstore.scheduler.rules import workers as rules
from twinstore.scheduler.workers import DEAD_AFTER, Worker, WorkerRepository, WorkerStatus

PURPOSE: Final = "workers"


class Workers(Repository, WorkerRepository):
    """Implements :class:`~twinstore.scheduler.workers.WorkerRepository`."""

    @override
    def register(self, worker: Worker) -> Worker:
        worker = self._model(worker, Worker, "worker")

        def owned(stored: Worker | None) -> Worker:
            # System scope sees every worker, so the owner is checked here and not by the store.
            if stored is not None and stored.tenant_id != worker.tenant_id:
                raise duplicate(WORKERS, (worker.id,), self._access.binding.driver)
            return rules.registered(stored, worker)

        every = self._admit_system(PURPOSE)
        try:
            stored = self._revise(WORKERS, every, (worker.id,), owned)
        except DocumentDecodeError:
            # Its owner only, as the store itself reports it: otherwise any caller could take it over.
            own = owner_of(worker.tenant_id)
            stored = self._revise(WORKERS, own, (worker.id,), owned, replaces_unreadable=True)
        return stored or worker

    @override
    def heartbeat(self, worker_id: str, now: datetime, *, current_jobs: int | None = None) -> bool:
        instant = instant_argument(now, "now")
        jobs = None if current_jobs is None else count_argument(current_jobs, "current_jobs")
        return self._move(worker_id, lambda stored: rules.alive(stored, instant, jobs))

    @override
    def get(self, worker_id: str) -> Worker | None:
        scope = self._admit_system(PURPOSE)
        return self._get(WORKERS, scope, (id_argument(worker_id, "worker_id"),))

    @override
    def get_required(self, worker_id: str) -> Worker:
        return self._required(self.get(worker_id), WORKERS, worker_id.strip())

    @override
    def list(
        self,
        *,
        statuses: Collection[WorkerStatus] | None = None,
        tenant_id: str | None = None,
        limit: int = 100,
        page_token: str | None = None,
    ) -> Page[Worker]:
        self._admit_system(PURPOSE)
        return self._page(WORKERS, queries.workers(statuses, tenant_id, limit, page_token))

    @override
    def count(self, *, statuses: Collection[WorkerStatus] | None = None, tenant_id: str | None = None) -> int:
        self._admit_system(PURPOSE)
        return self._count(WORKERS, queries.workers(statuses, tenant_id, 1, None))

    @override
    def find_dead(
        self, now: datetime, *, threshold: timedelta = DEAD_AFTER, limit: int = 100
    ) -> Page[Worker]:
        self._admit_system(PURPOSE)
        return replace(self._page(WORKERS, queries.dead_workers(now, threshold, limit)), next_page_token=None)

    @override
    def mark_dead(self, now: datetime, *, threshold: timedelta = DEAD_AFTER) -> tuple[str, ...]:
        self._admit_system(PURPOSE)
        # In batches: marked ones no longer match, so the next page of the same list holds others.
        query = queries.dead_workers(now, threshold, limit=1000)
        dead: tuple[str, ...] = ()
        for batch in mark_in_batches(self._access, WORKERS, query, {"status": WorkerStatus.DEAD.value}):
            dead += tuple(row.model.id for row in batch)
        return dead

    @override
    def set_status(self, worker_id: str, status: WorkerStatus) -> bool:
        wanted = member_argument(status, WorkerStatus, "status")
        return self._move(worker_id, lambda stored: rules.moved(stored, wanted))

    @override
    def remove(self, worker_id: str) -> bool:
        scope = self._admit_system(PURPOSE)
        return self._remove(WORKERS, scope, (id_argument(worker_id, "worker_id"),))

    def _move(self, worker_id: str, change: Callable[[Worker], Worker]) -> bool:
        """Change a worker that exists; return whether it does."""
        scope, key = self._admit_system(PURPOSE), (id_argument(worker_id, "worker_id"),)
        stored = self._revise(WORKERS, scope, key, lambda found: None if found is None else change(found))
        return stored is not None
