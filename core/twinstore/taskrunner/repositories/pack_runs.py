"""Pack runs: saved as a whole, while each step moves as the state machine lets it."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from typing_extensions import override

from twinstore.access.paging import Page
from twinstore.access.scope import id_argument, instant_argument
from twinstore.catalog.row import Row
from twinstore.catalog.tenancy import AllTenants
from twinstore.taskrunner import queries
from twinstore.taskrunner.catalog import PACK_RUNS
from twinstore.taskrunner.pack_runs import PackRunQueryOptions, PackRunState, PackRunStateStore
from twinstore.taskrunner.repositories.base import TaskRunnerRepository
from twinstore.taskrunner.rules import pack_runs as rules

if TYPE_CHECKING:
    from twinstore.access.protocol import ServerClock


class PackRuns(TaskRunnerRepository, PackRunStateStore):
    """Implements :class:`~twinstore.taskrunner.pack_runs.PackRunStateStore`."""

    @override
    def create(self, state: PackRunState) -> PackRunState:
        state = self._model(state, PackRunState, "state")
        scope = self._admit_run(state.tenant_id, "create")
        return self._access.insert(PACK_RUNS, scope, Row(state)).model

    @override
    def get(self, run_id: str, *, tenant_id: str | AllTenants | None = None) -> PackRunState | None:
        scope = self._admit_run(tenant_id, "get")
        return self._get(PACK_RUNS, scope, (id_argument(run_id, "run_id"),))

    @override
    def get_required(self, run_id: str, *, tenant_id: str | AllTenants | None = None) -> PackRunState:
        return self._required(self.get(run_id, tenant_id=tenant_id), PACK_RUNS, run_id.strip())

    @override
    def save(self, state: PackRunState, *, expected_updated_at: datetime | None = None) -> PackRunState:
        state = self._model(state, PackRunState, "state")
        scope = self._admit_run(state.tenant_id, "save")
        expected = (
            None
            if expected_updated_at is None
            else instant_argument(expected_updated_at, "expected_updated_at")
        )

        def saved(stored: Row[PackRunState] | None, now: ServerClock) -> Row[PackRunState] | None:
            del now
            changes = rules.check_save(None if stored is None else stored.model, state, expected)
            return Row(state) if changes else None

        # Without it no caller could repair a run: runs are never removed. The expected state of an unreadable
        # row cannot be checked.
        unread = expected is None
        self._change(PACK_RUNS, scope, (state.run_id,), saved, replaces_unreadable=unread)
        return state

    @override
    def list(
        self, options: PackRunQueryOptions | None = None, *, tenant_id: str | AllTenants | None = None
    ) -> Page[PackRunState]:
        return self._page(PACK_RUNS, queries.pack_runs(self._admit_run(tenant_id, "list"), options))

    @override
    def count(
        self, options: PackRunQueryOptions | None = None, *, tenant_id: str | AllTenants | None = None
    ) -> int:
        return self._count(PACK_RUNS, queries.pack_runs(self._admit_run(tenant_id, "count"), options))
