"""Runs: inserted once, moved by the state machine, removed by age."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, cast

from typing_extensions import override

from twinstore.access.errors import lost_race
from twinstore.access.paging import Page
from twinstore.access.protocol import Ref
from twinstore.access.repository import Repository
from twinstore.access.retry import retry
from twinstore.access.scope import id_argument, instant_argument, member_argument, text_argument
from twinstore.catalog.row import Row
from twinstore.scheduler import queries
from twinstore.scheduler.catalog import RUN_SUMMARIES, RUNS
from twinstore.scheduler.enums import RunState
from twinstore.scheduler.rules import runs as rules
from twinstore.scheduler.rules.run_summaries import projected
from twinstore.scheduler.runs import Run, RunQueryOptions, RunRepository, RunStats

if TYPE_CHECKING:
    from twinstore.access.protocol import Rows, ServerClock
    from twinstore.scheduler.run_summaries import RunSummary


class Runs(Repository, RunRepository):
    """Implements :class:`~twinstore.scheduler.runs.RunRepository`."""

    @override
    def get(self, tenant_id: str, run_id: str) -> Run | None:
        scope = self._admit(tenant_id)
        return self._get(RUNS, scope, (id_argument(run_id, "run_id"),))

    @override
    def get_required(self, tenant_id: str, run_id: str) -> Run:
        return self._required(self.get(tenant_id, run_id), RUNS, run_id.strip())

    @override
    def list(self, tenant_id: str, options: RunQueryOptions | None = None) -> Page[Run]:
        return self._page(RUNS, queries.runs(self._admit(tenant_id), options))

    @override
    def count(self, tenant_id: str, options: RunQueryOptions | None = None) -> int:
        return self._count(RUNS, queries.runs(self._admit(tenant_id), options))

    @override
    def create(self, run: Run) -> Run:
        run = self._model(run, Run, "run")
        scope = self._admit(run.tenant_id)
        rules.check_create(run)
        if run.schedule_id is not None:
            # Its moves write the summary of the schedule, whose id it is.
            id_argument(run.schedule_id, "run.schedule_id")
        return self._access.insert(RUNS, scope, Row(run)).model

    @override
    def update(self, run: Run, *, expected_state: RunState | None = None) -> bool:
        run = self._model(run, Run, "run")
        scope = self._admit(run.tenant_id)
        expected = (
            None if expected_state is None else member_argument(expected_state, RunState, "expected_state")
        )

        def move(stored: Row[Run] | None, now: ServerClock) -> Row[Run] | None:
            del now
            changes = stored is not None and rules.check_update(stored.model, run, expected)
            return Row(run) if changes else None

        return self._change(RUNS, scope, (run.id,), move) is not None

    @override
    def start(self, tenant_id: str, run_id: str, now: datetime) -> Run:
        return self._move(tenant_id, run_id, now, partial(rules.moved, state=RunState.RUNNING))

    @override
    def complete(self, tenant_id: str, run_id: str, now: datetime, *, stats: RunStats | None = None) -> Run:
        given = None if stats is None else self._model(stats, RunStats, "stats")
        return self._move(tenant_id, run_id, now, partial(rules.moved, state=RunState.COMPLETED, stats=given))

    @override
    def fail(self, tenant_id: str, run_id: str, now: datetime, error: str) -> Run:
        text = text_argument(error, "error")
        return self._move(tenant_id, run_id, now, partial(rules.moved, state=RunState.ERROR, error=text))

    @override
    def cancel(self, tenant_id: str, run_id: str, now: datetime) -> Run:
        return self._move(tenant_id, run_id, now, partial(rules.moved, state=RunState.CANCELLED))

    def _move(self, tenant_id: str, run_id: str, now: datetime, moved: Callable[..., Run]) -> Run:
        """Move a run that must exist, with the summary of its schedule, in one step."""
        scope, key = self._admit(tenant_id), id_argument(run_id, "run_id")
        instant = instant_argument(now, "now")
        self._check_writable()

        def once() -> Run:
            # Read before it is locked, because it names the summary to lock with it.
            found = self._required(self._get(RUNS, scope, (key,)), RUNS, key).schedule_id
            schedule = None if found is None else id_argument(found, "run.schedule_id")
            refs: list[Ref] = [Ref(RUNS, scope, (key,))]
            if schedule is not None:
                refs.append(Ref(RUN_SUMMARIES, scope, (scope.id, schedule)))

            def rule(rows: Rows, moment: ServerClock) -> Rows:
                del moment
                # Safe, because a driver returns rows of the entity of each ref.
                run, *summaries = cast("tuple[Row[Run] | None, *tuple[Row[RunSummary] | None, ...]]", rows)
                stored = self._required(run, RUNS, key).model
                if stored.schedule_id != found:
                    raise lost_race(RUNS, key, self.driver)
                after = moved(stored, now=instant)
                if after is stored:
                    return (None,) * len(rows)
                before = [None if row is None else row.model for row in summaries]
                return Row(after), *(Row(projected(each, after, schedule or "", instant)) for each in before)

            return cast("Row[Run]", self._access.change(tuple(refs), rule)[0]).model

        return once() if self._access.binding.in_unit else retry(once)

    @override
    def get_pending_runs(
        self, tenant_id: str, *, limit: int = 200, page_token: str | None = None
    ) -> Page[Run]:
        return self._page(RUNS, queries.pending_runs(self._admit(tenant_id), limit, page_token))

    @override
    def get_runs_by_schedule(
        self, tenant_id: str, schedule_id: str, limit: int, *, page_token: str | None = None
    ) -> Page[Run]:
        scope = self._admit(tenant_id)
        return self._page(RUNS, queries.runs_by_schedule(scope, schedule_id, limit, page_token))

    @override
    def list_by_state(self, state: RunState, *, limit: int = 50, page_token: str | None = None) -> Page[Run]:
        self._admit_system("list_by_state")
        return self._page(RUNS, queries.runs_by_state(state, limit, page_token))

    @override
    def retry(
        self, tenant_id: str, run_id: str, requested_by: str, now: datetime, *, new_run_id: str | None = None
    ) -> Run:
        scope, key = self._admit(tenant_id), id_argument(run_id, "run_id")
        actor, instant = text_argument(requested_by, "requested_by"), instant_argument(now, "now")
        new_key = None if new_run_id is None else id_argument(new_run_id, "new_run_id")
        self._check_writable()
        # A terminal run never changes again, so reading it without a lock is enough.
        origin = self._required(self._get(RUNS, scope, (key,)), RUNS, key)
        run = rules.retried(origin, actor, instant, new_key)
        return self._access.insert(RUNS, scope, Row(run)).model

    @override
    def delete(self, tenant_id: str, run_id: str) -> bool:
        return self._remove(RUNS, self._admit(tenant_id), (id_argument(run_id, "run_id"),))

    @override
    def purge_finished(self, before: datetime, *, tenant_id: str | None = None, batch_size: int = 500) -> int:
        scope = self._admit_optional(tenant_id, "purge_finished")
        return self._purge(RUNS, scope, before, batch_size)
