"""Graph jobs of both types, moved by compare-and-set, and the events of each.

A job is found by the digits of its id, which no build and overlay job share. A query by the whole id finds a
job only under its exact id.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeVar, cast

from typing_extensions import override

from twinstore.access.errors import NumberTakenError, duplicate_id, lost_race, not_found
from twinstore.access.guard import check_replacement
from twinstore.access.paging import Page
from twinstore.access.protocol import Ref, WritingOperation
from twinstore.access.repository import Repository
from twinstore.access.retry import retry
from twinstore.access.scope import id_argument, member_argument
from twinstore.catalog.keys import KeyType
from twinstore.catalog.row import Row
from twinstore.errors import DuplicateError
from twinstore.scheduler import graph_job_queries as queries
from twinstore.scheduler.catalog import GRAPH_JOB_EVENTS, GRAPH_JOBS
from twinstore.scheduler.enums import GraphJobEventKind, GraphJobStatus, GraphJobType
from twinstore.scheduler.graph_job_store import GraphJobResponse, GraphJobStore
from twinstore.scheduler.graph_jobs import (
    GraphBuildJob,
    GraphJob,
    GraphJobEvent,
    GraphJobRepository,
    GraphOverlayJob,
)
from twinstore.scheduler.rules import graph_jobs as rules

if TYPE_CHECKING:
    from collections.abc import Callable

    from twinstore.access.protocol import Rows, ServerClock
    from twinstore.catalog.tenancy import Tenant

    Replace = Callable[[Tenant, GraphJob, GraphJobStatus], bool]

J = TypeVar("J", bound=GraphJob)
T = TypeVar("T")

# The operation of a driver that moves a job on in one round trip, if its state is as expected. It takes
# tenant, job and expectation, and returns true, or false if the general way has to find the reason.
REPLACE: Final = WritingOperation("replace_graph_job")
# Of an id, before its digits.
PREFIX: Final = len("gbj_")


class GraphJobSteps(Repository):
    """The steps that a repository and a store of graph jobs have in common."""

    def _job(self, job: GraphJob) -> GraphJob:
        return self._model(job, GraphJob, "job")

    def _insert(self, job: GraphJob, scope: Tenant) -> None:
        try:
            self._access.insert(GRAPH_JOBS, scope, Row(job, {"updatedAt": job.created_at}))
        except DuplicateError as error:
            # The caller knows the whole id, not the digits by which it is found.
            raise duplicate_id(GRAPH_JOBS, job.id, self.driver) from error

    def _found(self, tenant_id: str, job_id: str, model: type[J]) -> J | None:
        """Return a job of one model, ``None`` where another one has its digits."""
        scope, key = self._admit(tenant_id), id_argument(job_id, "job_id")
        if not is_job_id(key):
            return None
        found = self._get(GRAPH_JOBS, scope, (key[PREFIX:],))
        return found if isinstance(found, model) and found.id == key else None

    def _jobs(
        self,
        tenant_id: str,
        job_type: GraphJobType | None,
        status: GraphJobStatus | None,
        limit: int,
        page_token: str | None,
    ) -> Page[GraphJob]:
        scope = self._admit(tenant_id)
        return self._page(GRAPH_JOBS, queries.graph_jobs(scope, job_type, status, limit, page_token))

    def _with_event(
        self,
        job: GraphJob,
        event_id: str,
        rule: Callable[[Row[GraphJob] | None, Row[GraphJobEvent] | None, ServerClock, int], Rows],
    ) -> Rows:
        """Take a step over a job and one event of it, with an insertion number for the event.

        The job is locked first everywhere, so that writers of one job do not deadlock and its events are
        numbered in the order in which they are written.
        """
        scope = self._admit(job.tenant_id)
        key = (job.uuid,)
        refs = (Ref(GRAPH_JOBS, scope, key), Ref(GRAPH_JOB_EVENTS, scope, (event_id,), below=key))

        def once() -> Rows:
            # Outside of the step: it may need another connection, and the step holds one.
            number = self._access.next_number(GRAPH_JOB_EVENTS)

            def numbered(rows: Rows, now: ServerClock) -> Rows:
                stored, event = cast("tuple[Row[GraphJob] | None, Row[GraphJobEvent] | None]", rows)
                return rule(stored, event, now, number)

            try:
                return self._access.change(refs, numbered)
            except NumberTakenError as error:
                raise lost_race(GRAPH_JOB_EVENTS, event_id, self.driver) from error

        # A unit that lost can only be repeated as a whole, by the caller that opened it.
        return once() if self._access.binding.in_unit else retry(once)


class GraphJobs(GraphJobSteps, GraphJobRepository):
    """Implements :class:`~twinstore.scheduler.graph_jobs.GraphJobRepository`."""

    @override
    def insert(self, job: GraphBuildJob | GraphOverlayJob) -> None:
        self._insert(self._job(job), self._admit(job.tenant_id))

    @override
    def try_replace(self, job: GraphBuildJob, expected: GraphJobStatus) -> bool:
        return self._replaced(self._model(job, GraphBuildJob, "job"), expected)

    @override
    def try_replace_overlay(self, job: GraphOverlayJob, expected: GraphJobStatus) -> bool:
        return self._replaced(self._model(job, GraphOverlayJob, "job"), expected)

    @override
    def get(self, tenant_id: str, job_id: str) -> GraphJob | None:
        return self._found(tenant_id, job_id, GraphJob)

    @override
    def get_required(self, tenant_id: str, job_id: str) -> GraphJob:
        return self._required(self.get(tenant_id, job_id), GRAPH_JOBS, job_id.strip())

    @override
    def get_build_job(self, tenant_id: str, job_id: str) -> GraphBuildJob | None:
        return self._found(tenant_id, job_id, GraphBuildJob)

    @override
    def get_build_job_required(self, tenant_id: str, job_id: str) -> GraphBuildJob:
        return self._required(self.get_build_job(tenant_id, job_id), GRAPH_JOBS, job_id.strip())

    @override
    def get_overlay_job(self, tenant_id: str, job_id: str) -> GraphOverlayJob | None:
        return self._found(tenant_id, job_id, GraphOverlayJob)

    @override
    def get_overlay_job_required(self, tenant_id: str, job_id: str) -> GraphOverlayJob:
        return self._required(self.get_overlay_job(tenant_id, job_id), GRAPH_JOBS, job_id.strip())

    @override
    def list_build_jobs(
        self, tenant_id: str, status: GraphJobStatus | None, limit: int, *, page_token: str | None = None
    ) -> Page[GraphBuildJob]:
        page = self._jobs(tenant_id, GraphJobType.BUILD, status, limit, page_token)
        return cast("Page[GraphBuildJob]", page)

    @override
    def list_overlay_jobs(
        self, tenant_id: str, status: GraphJobStatus | None, limit: int, *, page_token: str | None = None
    ) -> Page[GraphOverlayJob]:
        page = self._jobs(tenant_id, GraphJobType.OVERLAY, status, limit, page_token)
        return cast("Page[GraphOverlayJob]", page)

    @override
    def list_jobs(
        self,
        tenant_id: str,
        *,
        job_type: GraphJobType | None = None,
        status: GraphJobStatus | None = None,
        limit: int = 50,
        page_token: str | None = None,
    ) -> Page[GraphJob]:
        return self._jobs(tenant_id, job_type, status, limit, page_token)

    @override
    def count(
        self, tenant_id: str, *, job_type: GraphJobType | None = None, status: GraphJobStatus | None = None
    ) -> int:
        return self._count(GRAPH_JOBS, queries.graph_jobs(self._admit(tenant_id), job_type, status, 1, None))

    @override
    def append_event(self, event: GraphJobEvent) -> None:
        event = self._model(event, GraphJobEvent, "event")
        job = event.payload.job

        def rule(
            stored: Row[GraphJob] | None, known: Row[GraphJobEvent] | None, now: ServerClock, number: int
        ) -> Rows:
            del now
            if stored is None or stored.model.id != job.id:
                raise not_found(GRAPH_JOBS, job.id, self.driver)
            if known is not None:
                rules.check_event(known.model, event)
                return None, None
            # The job too, although nothing in it changes: its removal must not pass by the new event.
            return stored, Row(event, {"seq": number})

        self._with_event(job, event.event_id, rule)

    @override
    def get_event(self, tenant_id: str, event_id: str) -> GraphJobEvent | None:
        scope = self._admit(tenant_id)
        return self._get(GRAPH_JOB_EVENTS, scope, (id_argument(event_id, "event_id"),))

    @override
    def get_event_required(self, tenant_id: str, event_id: str) -> GraphJobEvent:
        return self._required(self.get_event(tenant_id, event_id), GRAPH_JOB_EVENTS, event_id.strip())

    @override
    def list_events(
        self, tenant_id: str, job_id: str, *, limit: int = 50, page_token: str | None = None
    ) -> Page[GraphJobEvent]:
        scope, key = self._admit(tenant_id), id_argument(job_id, "job_id")
        digits = key[PREFIX:] if is_job_id(key) else ""
        page = self._page(GRAPH_JOB_EVENTS, queries.graph_job_events(scope, digits, limit, page_token))
        # All events under some digits are of one job, and it may be that of the other type.
        return Page(()) if page and page[0].payload.job.id != key else page

    @override
    def count_by_status(
        self, tenant_id: str, *, job_type: GraphJobType | None = None
    ) -> dict[GraphJobStatus, int]:
        query = queries.graph_jobs(self._admit(tenant_id), job_type, None, 1, None)
        counted = self._access.count(GRAPH_JOBS, query, "status")
        return {GraphJobStatus(status): number for status, number in counted.items()}

    @override
    def delete(self, tenant_id: str, job_id: str) -> bool:
        scope, key = self._admit(tenant_id), id_argument(job_id, "job_id")
        self._check_writable()
        if not is_job_id(key):
            return False
        return self._access.remove(GRAPH_JOBS, queries.graph_job(scope, key[PREFIX:], type_of(key))) > 0

    def _replaced(self, job: GraphJob, expected: GraphJobStatus) -> bool:
        scope, expected = self._admit(job.tenant_id), member_argument(expected, GraphJobStatus, "expected")
        self._check_writable()
        rules.check_expectation(job, expected)
        check_replacement(self._access, GRAPH_JOBS, scope, Row(job))
        # Only a move is one statement: to write an equal job again would say that it has changed.
        special = self._access.special(REPLACE) if expected is not job.status else None
        if special is not None and cast("Replace", special)(scope, job, expected):
            return True
        replaced = False

        def rule(stored: Row[GraphJob] | None, now: ServerClock) -> Row[GraphJob] | None:
            nonlocal replaced
            changes = rules.replaced(None if stored is None else stored.model, job, expected)
            replaced = changes is not False
            return Row(job, {"updatedAt": now()}) if changes else None

        self._change(GRAPH_JOBS, scope, (job.uuid,), rule)
        return replaced


class GraphJobEventStore(GraphJobSteps, GraphJobStore):
    """Implements :class:`~twinstore.scheduler.graph_job_store.GraphJobStore`."""

    @override
    def add(self, job: GraphBuildJob | GraphOverlayJob) -> GraphBuildJob | GraphOverlayJob:
        job = cast("GraphBuildJob | GraphOverlayJob", self._job(job))
        new_event = GraphJobEvent.of(job, GraphJobEventKind.CREATED, job.created_at)

        def rule(
            stored: Row[GraphJob] | None, known: Row[GraphJobEvent] | None, now: ServerClock, number: int
        ) -> Rows:
            del known
            if stored is not None:
                raise duplicate_id(GRAPH_JOBS, job.id, self.driver)
            instant = now()
            return Row(job, {"updatedAt": instant}), Row(new_event.at(instant), {"seq": number})

        try:
            self._with_event(job, new_event.event_id, rule)
        except DuplicateError as error:
            raise duplicate_id(GRAPH_JOBS, job.id, self.driver) from error
        return job

    @override
    def update(self, job: GraphBuildJob | GraphOverlayJob, expected: GraphJobStatus) -> bool:
        changed = self._job(job)
        expected = member_argument(expected, GraphJobStatus, "expected")
        rules.check_expectation(changed, expected)
        new_event = GraphJobEvent.of(changed, rules.event_kind(changed), changed.created_at)
        replaced = False

        def rule(
            stored: Row[GraphJob] | None, known: Row[GraphJobEvent] | None, now: ServerClock, number: int
        ) -> Rows:
            nonlocal replaced
            del known
            changes = rules.replaced(None if stored is None else stored.model, changed, expected)
            replaced = changes is not False
            if not changes:
                return None, None
            instant = now()
            return Row(changed, {"updatedAt": instant}), Row(new_event.at(instant), {"seq": number})

        self._with_event(changed, new_event.event_id, rule)
        return replaced

    @override
    def get(self, tenant_id: str, job_id: str) -> GraphBuildJob | GraphOverlayJob | None:
        return cast("GraphBuildJob | GraphOverlayJob | None", self._found(tenant_id, job_id, GraphJob))

    @override
    def list(
        self,
        tenant_id: str,
        *,
        job_type: GraphJobType | None = None,
        status: GraphJobStatus | None = None,
        limit: int = 50,
        page_token: str | None = None,
    ) -> Page[GraphJobResponse]:
        page = self._jobs(tenant_id, job_type, status, limit, page_token)
        return Page(tuple(map(GraphJobResponse.of, page.items)), page.next_page_token)


def is_job_id(key: str) -> bool:
    """Whether a text can be the id of a job; nothing is stored under any other one."""
    return key[:PREFIX] in GraphJob.variants and KeyType.HEX.admits(key[PREFIX:])


def type_of(key: str) -> GraphJobType:
    """Return the type that follows from an id."""
    return GraphJobType.BUILD if GraphJob.variants[key[:PREFIX]] is GraphBuildJob else GraphJobType.OVERLAY
