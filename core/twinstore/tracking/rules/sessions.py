"""What a write of a session must satisfy against the stored session."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from twinstore.access.errors import invalid_transition
from twinstore.access.scope import object_argument
from twinstore.tracking.catalog import SESSIONS
from twinstore.tracking.enums import SessionStatus
from twinstore.tracking.rules.records import check_expected, check_unchanged, with_stored_fields
from twinstore.tracking.sessions import SessionHealth, TrackingSession
from twinstore.tracking.states import Cause, causes_of

if TYPE_CHECKING:
    from datetime import datetime, timedelta

    from twinstore.models.json_text import JsonObject

# What a session is, and what the methods about machines and recovery decide.
IMMUTABLE: Final = ("project_id", "machine_id", "docker_slot", "started_at", "recovery_attempts")
FAILURE: Final = "failure"
CAUSE_TEXTS: Final = {
    Cause.HEARTBEAT: "a heartbeat or recover makes it active",
    Cause.RECOVER: "recover makes it active",
}


def updated(
    stored: TrackingSession, record: TrackingSession, expected: SessionStatus | None, now: datetime
) -> TrackingSession:
    """Return what an update stores; the stored session where nothing changes."""
    # Before the comparison: who expects another status has not seen what is stored.
    check_expected(SESSIONS, stored.session_id, stored.status, expected)
    seen = max(stored.last_heartbeat, record.last_heartbeat)
    record = with_stored_fields(stored, record).evolve(last_heartbeat=seen)
    # Before the rules: a repeated call is allowed also where no move leaves the status.
    if record == stored:
        return stored
    check_move(stored, record.status, Cause.UPDATE)
    ends = record.status.ended
    check_unchanged(
        SESSIONS,
        stored,
        record,
        IMMUTABLE if ends else (*IMMUTABLE, "completed_at"),
        "assign_session, recover and the end of a session do",
    )
    return record.evolve(completed_at=record.completed_at or now) if ends else record


def alive(stored: TrackingSession, now: datetime, current_task_id: str | None) -> TrackingSession:
    """Return a session after a heartbeat, which never lies before the last one; a stalled one is active."""
    status = SessionStatus.ACTIVE if stored.status is SessionStatus.STALLED else stored.status
    if stored.status.ended:
        raise forbidden(stored, SessionStatus.ACTIVE, "it has ended and lives no more")
    return stored.evolve(
        status=status,
        last_heartbeat=max(now, stored.last_heartbeat),
        current_task_id=current_task_id or stored.current_task_id,
    )


def ended(
    stored: TrackingSession, status: SessionStatus, now: datetime, failure: JsonObject | None = None
) -> TrackingSession:
    """Return a session that is completed, or failed for a reason; the stored one where it ended equally."""
    failure_metadata: JsonObject = {} if failure is None else {FAILURE: failure}
    record = stored.evolve(status=status, completed_at=now, metadata={**stored.metadata, **failure_metadata})
    if record != stored:
        check_move(stored, status, Cause.END)
    return record


def failure_of(reason: str, details: JsonObject | None) -> JsonObject:
    """Return what the metadata of a failed session says.

    Raises:
        ValidationError: the details are nested so deep that the metadata around them would be too deep.
    """
    if details is None:
        return {"reason": reason}
    failure: JsonObject = {"reason": reason, "details": details}
    # As deep as they will be stored.
    object_argument({FAILURE: failure}, "details")
    return failure


def recovered(
    stored: TrackingSession, machine_id: str, slot: int | None, task: str | None, now: datetime
) -> TrackingSession:
    """Return a session that works again, on a machine."""
    check_move(stored, SessionStatus.ACTIVE, Cause.RECOVER)
    return stored.evolve(
        machine_id=machine_id,
        docker_slot=slot,
        status=SessionStatus.ACTIVE,
        last_heartbeat=max(now, stored.last_heartbeat),
        current_task_id=task or stored.current_task_id,
        completed_at=None,
        recovery_attempts=stored.recovery_attempts + 1,
    )


def health_of(session: TrackingSession, now: datetime, threshold: timedelta) -> SessionHealth:
    """Return how lively a session is."""
    # A heartbeat by a clock that goes ahead is no older than now.
    age = max(now - session.last_heartbeat, now - now)
    is_silent = session.status is SessionStatus.ACTIVE and age > threshold
    failed = session.status is SessionStatus.FAILED
    return SessionHealth(
        session_id=session.session_id,
        status=session.status,
        score=0 if failed else round(100 - 100 * min(1.0, age / threshold)),
        age_seconds=age.total_seconds(),
        stale=is_silent or session.status is SessionStatus.STALLED,
    )


def check_move(stored: TrackingSession, status: SessionStatus, cause: Cause) -> None:
    """Refuse a move that the state machine forbids, or admits by another way only."""
    causes = causes_of(stored.status, status)
    if cause in causes:
        return
    how = next((text for other, text in CAUSE_TEXTS.items() if other in causes), "this move is not allowed")
    raise forbidden(stored, status, how)


def forbidden(stored: TrackingSession, status: SessionStatus, why: str) -> Exception:
    """Return the error of a forbidden move."""
    return invalid_transition(
        SESSIONS.name, SESSIONS.singular, stored.session_id, (stored.status, status), why
    )
