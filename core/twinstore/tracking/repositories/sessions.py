"""Sessions: alone while they live, in one step with their machine when they end or move."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Final

from typing_extensions import override

from twinstore.access.defaults import mark_in_batches
from twinstore.access.errors import required
from twinstore.access.paging import Page
from twinstore.access.protocol import Access, FieldUpdates
from twinstore.access.query import query_of_key
from twinstore.access.retry import retry
from twinstore.access.scope import (
    count_argument,
    id_argument,
    instant_argument,
    member_argument,
    object_argument,
    optional_reference_argument,
    text_argument,
)
from twinstore.catalog.row import Row
from twinstore.catalog.tenancy import NO_TENANT
from twinstore.tracking import queries
from twinstore.tracking.catalog import MACHINES, SESSIONS, TASKS
from twinstore.tracking.enums import SessionStatus
from twinstore.tracking.repositories.base import TrackingRepository
from twinstore.tracking.repositories.slot_changes import change_slots
from twinstore.tracking.rules import sessions as rules
from twinstore.tracking.rules import slots
from twinstore.tracking.rules.records import created
from twinstore.tracking.rules.slots import SlotState
from twinstore.tracking.sessions import (
    SessionHealth,
    SessionQueryOptions,
    TrackingSession,
    TrackingSessionRepository,
)

if TYPE_CHECKING:
    from twinstore.models.json_text import JsonObject

BATCH: Final = 1000


class TrackingSessions(TrackingRepository, TrackingSessionRepository):
    """Implements :class:`~twinstore.tracking.sessions.TrackingSessionRepository`."""

    @override
    def create(self, record: TrackingSession) -> TrackingSession:
        record, scope = self._model(record, TrackingSession, "record"), self._scope()
        return self._access.insert(SESSIONS, scope, Row(created(record, self._clock.now()))).model

    @override
    def get(self, session_id: str) -> TrackingSession | None:
        return self._get(SESSIONS, self._scope(), (id_argument(session_id, "session_id"),))

    @override
    def get_required(self, session_id: str) -> TrackingSession:
        return self._required(self.get(session_id), SESSIONS, session_id.strip())

    @override
    def list(self, options: SessionQueryOptions | None = None) -> Page[TrackingSession]:
        self._scope()
        return self._page(SESSIONS, queries.sessions(options))

    @override
    def count(self, options: SessionQueryOptions | None = None) -> int:
        self._scope()
        return self._count(SESSIONS, queries.sessions(options), "status")

    @override
    def update(self, record: TrackingSession, *, expected_status: SessionStatus | None = None) -> bool:
        record, now = self._model(record, TrackingSession, "record"), self._clock.now()
        expected = (
            None
            if expected_status is None
            else member_argument(expected_status, SessionStatus, "expected_status")
        )

        def rule(stored: TrackingSession) -> TrackingSession:
            return rules.updated(stored, record, expected, now)

        if record.status.ended:
            return self._end(record.session_id, rule) is not None
        return self._alone(record.session_id, rule) is not None

    @override
    def heartbeat(
        self, session_id: str, now: datetime, *, current_task_id: str | None = None
    ) -> TrackingSession:
        key, instant = id_argument(session_id, "session_id"), instant_argument(now, "now")
        task = optional_reference_argument(current_task_id, "current_task_id")
        stored = self._alone(key, lambda session: rules.alive(session, instant, task))
        return self._required(stored, SESSIONS, key)

    @override
    def find_stale(
        self, now: datetime, *, threshold: timedelta | None = None, limit: int = 100
    ) -> Page[TrackingSession]:
        self._scope()
        query = queries.stale_sessions(now, self._threshold(threshold), limit)
        return replace(self._page(SESSIONS, query), next_page_token=None)

    @override
    def mark_stalled(self, now: datetime, *, threshold: timedelta | None = None) -> tuple[str, ...]:
        self._scope()
        # In batches: marked ones no longer match, so the next page of the same list holds others.
        query = queries.stale_sessions(now, self._threshold(threshold), BATCH)
        stalled: tuple[str, ...] = ()
        with self._partial_progress() as steps:
            for batch in mark_in_batches(self._access, SESSIONS, query, self._stalled()):
                stalled += tuple(row.model.session_id for row in batch)
                steps.done()
        return stalled

    def _stalled(self) -> FieldUpdates:
        return {"status": SessionStatus.STALLED.value, "updated_at": self._clock.now()}

    @override
    def complete(self, session_id: str, now: datetime) -> TrackingSession:
        key, instant = id_argument(session_id, "session_id"), instant_argument(now, "now")
        stored = self._end(key, lambda session: rules.ended(session, SessionStatus.COMPLETED, instant))
        return self._required(stored, SESSIONS, key)

    @override
    def fail(
        self, session_id: str, now: datetime, *, reason: str, details: JsonObject | None = None
    ) -> TrackingSession:
        key, instant = id_argument(session_id, "session_id"), instant_argument(now, "now")
        more = None if details is None else object_argument(details, "details")
        failure = rules.failure_of(text_argument(reason, "reason"), more)
        stored = self._end(key, lambda session: rules.ended(session, SessionStatus.FAILED, instant, failure))
        return self._required(stored, SESSIONS, key)

    @override
    def recover(
        self,
        session_id: str,
        machine_id: str,
        now: datetime,
        *,
        docker_slot: int | None = None,
        current_task_id: str | None = None,
    ) -> TrackingSession:
        key, instant = id_argument(session_id, "session_id"), instant_argument(now, "now")
        target = id_argument(machine_id, "machine_id")
        slot = None if docker_slot is None else count_argument(docker_slot, "docker_slot")
        task = optional_reference_argument(current_task_id, "current_task_id")
        self._scope()

        def recover(state: SlotState) -> SlotState:
            session = required(state.sessions.get(key), SESSIONS, key, self.driver)
            machine = required(state.machines.get(target), MACHINES, target, self.driver)
            after = rules.recovered(session, target, slot, task, instant)
            return slots.moved(state, session, after, machine)

        state = change_slots(self._access, self._clock.now(), recover, session_id=key, machine_id=target)
        return state.sessions[key]

    @override
    def health(self, session_id: str, now: datetime, *, threshold: timedelta | None = None) -> SessionHealth:
        instant = instant_argument(now, "now")
        silence = queries.threshold_argument(self._threshold(threshold))
        return rules.health_of(self.get_required(session_id), instant, silence)

    @override
    def count_by_status(self, project_id: str) -> dict[SessionStatus, int]:
        self._scope()
        counted = self._access.count(SESSIONS, queries.sessions_of_project(project_id), "status")
        return {status: counted[status] for status in SessionStatus if status in counted}

    @override
    def delete(self, session_id: str, *, with_tasks: bool = False) -> bool:
        key, _ = id_argument(session_id, "session_id"), self._scope()
        self._check_writable()
        once = partial(self._delete_once, key, with_tasks=with_tasks)
        return once() if self._access.binding.in_unit else retry(once)

    @override
    def purge_expired(self, now: datetime, *, batch_size: int = 500) -> int:
        return self._purge_ended(SESSIONS, now, batch_size)

    def _delete_once(self, key: str, *, with_tasks: bool) -> bool:
        with self._access.unit(NO_TENANT, atomic=False) as access:
            state = change_slots(
                access,
                self._clock.now(),
                lambda found: slots.unlisted(found, key),
                session_id=key,
                needs_session=False,
            )
            # An unreadable session exists, but the machine that lists it is unknown, so its id stays in that
            # list; there an id without a session has no slot.
            if key not in state.sessions and key not in state.unread:
                return False
            if with_tasks:
                remove_tasks(access, key)
            return access.remove(SESSIONS, query_of_key(SESSIONS, NO_TENANT, (key,))) > 0

    def _alone(
        self, key: str, change: Callable[[TrackingSession], TrackingSession]
    ) -> TrackingSession | None:
        """Change a session that exists, without its machine; return it as it is stored then."""
        return self._touch(SESSIONS, key, change)

    def _end(self, key: str, change: Callable[[TrackingSession], TrackingSession]) -> TrackingSession | None:
        """End a session that exists and take it off its machine; return it as it is stored then."""
        self._scope()

        def end(state: SlotState) -> SlotState | None:
            session = state.sessions.get(key)
            if session is None:
                return None
            after = change(session)
            return (
                None if after == session else slots.unlisted(state, key).changed(SlotState({}, {key: after}))
            )

        return change_slots(self._access, self._clock.now(), end, session_id=key).sessions.get(key)


def remove_tasks(access: Access, session_id: str) -> None:
    """Remove the tasks of a session, in batches of the unit that is open."""
    while access.remove(TASKS, queries.tasks_of_session(session_id, BATCH)) == BATCH:
        pass
