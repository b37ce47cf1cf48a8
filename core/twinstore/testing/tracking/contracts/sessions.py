"""What every repository of sessions must do."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Final, cast

import pytest

from twinstore.errors import (
    ConflictError,
    DuplicateError,
    InvalidTransitionError,
    NotFoundError,
    ValidationError,
)
from twinstore.testing.instants import at
from twinstore.testing.tracking.cases import TrackingCases
from twinstore.tracking.catalog import SESSIONS
from twinstore.tracking.enums import SessionStatus
from twinstore.tracking.sessions import SessionQueryOptions

if TYPE_CHECKING:
    from collections.abc import Mapping

    from twinstore.models.json_text import JsonObject
    from twinstore.testing.tracking.builders import TrackingWorkspace

__all__ = ["SessionRepositoryContract"]

ACTIVE, PAUSED, COMPLETED, FAILED, STALLED = SessionStatus
# Written out again: the rule must not be its own proof.
BY_UPDATE: Final[Mapping[SessionStatus, set[SessionStatus]]] = {
    ACTIVE: {ACTIVE, PAUSED, STALLED, COMPLETED, FAILED},
    PAUSED: {ACTIVE, PAUSED, STALLED, COMPLETED, FAILED},
    STALLED: {STALLED, COMPLETED, FAILED},
    COMPLETED: set(),
    FAILED: set(),
}
ENDED: Final = {COMPLETED, FAILED}
SILENT: Final = timedelta(seconds=300)
DAY: Final = timedelta(days=1)


class SessionRepositoryContract(TrackingCases):
    """Sessions from their beginning to their end, and what becomes of the silent."""

    def test_the_store_sets_both_instants_whatever_a_record_says(self, workspace: TrackingWorkspace) -> None:
        record = workspace.session("made").evolve(session_id=workspace.id("s"), created_at=at(900))
        with workspace.opened_at(at(10)) as early, workspace.opened_at(at(20)) as late:
            created = early.tracking_sessions.create(record.evolve(updated_at=at(901)))
            assert (created.created_at, created.updated_at) == (at(10), at(10))
            assert early.tracking_sessions.get(created.session_id) == created
            assert late.tracking_sessions.update(created.evolve(status=PAUSED, created_at=at(902)))
            moved = late.tracking_sessions.get_required(created.session_id)
            assert moved == created.evolve(status=PAUSED, updated_at=at(20))
            # What changes nothing is not written, also where the instants of the record differ.
            stamp = workspace.stamp(SESSIONS, (moved.session_id,))
            assert early.tracking_sessions.update(moved.evolve(updated_at=at(903)))
            assert workspace.stamp(SESSIONS, (moved.session_id,)) == stamp
            # A clock that goes back never takes the instant of the last change back.
            assert early.tracking_sessions.update(moved.evolve(status=ACTIVE))
            assert early.tracking_sessions.get_required(moved.session_id).updated_at == at(20)

    def test_an_id_stands_once(self, workspace: TrackingWorkspace) -> None:
        session = workspace.session()
        with pytest.raises(DuplicateError) as refusal:
            workspace.storage.tracking_sessions.create(session)
        assert (refusal.value.entity, refusal.value.key) == ("sessions", session.session_id)
        assert workspace.storage.tracking_sessions.get(session.session_id) == session

    @pytest.mark.parametrize("start", SessionStatus)
    @pytest.mark.parametrize("end", SessionStatus)
    def test_an_update_moves_a_session_as_the_state_machine_allows(
        self, workspace: TrackingWorkspace, start: SessionStatus, end: SessionStatus
    ) -> None:
        completed_at = at(5) if start in ENDED else None
        stored = workspace.session(status=start, completed_at=completed_at)
        wanted = stored.evolve(status=end, metadata={"changed": True})
        with workspace.opened_at(at(30)) as storage:
            sessions = storage.tracking_sessions
            if end in BY_UPDATE[start]:
                assert sessions.update(wanted, expected_status=start) is True
                ends_at = at(30) if end in ENDED else completed_at
                assert sessions.get(stored.session_id) == wanted.evolve(
                    completed_at=ends_at, updated_at=at(30)
                )
                return
            with pytest.raises(InvalidTransitionError) as refusal:
                sessions.update(wanted)
            assert (refusal.value.from_state, refusal.value.to_state) == (start.value, end.value)
            assert (refusal.value.entity, refusal.value.key) == ("sessions", stored.session_id)
            assert sessions.update(stored) is True
            assert sessions.get(stored.session_id) == stored

    def test_an_update_stores_a_value_that_python_calls_equal(self, workspace: TrackingWorkspace) -> None:
        stored = workspace.session(metadata={"a": 1})
        for value in (True, 1):
            workspace.storage.tracking_sessions.update(stored.evolve(metadata={"a": value}))
            found = workspace.storage.tracking_sessions.get_required(stored.session_id)
            assert repr(found.metadata) == repr({"a": value})

    def test_an_update_changes_nothing_that_other_methods_decide(self, workspace: TrackingWorkspace) -> None:
        stored, sessions = workspace.session(), workspace.storage.tracking_sessions
        changes: dict[str, object] = {
            "project_id": "other",
            "machine_id": "other",
            "docker_slot": 7,
            "started_at": at(1),
            "recovery_attempts": 1,
            "completed_at": at(1),
        }
        for name, value in changes.items():
            with pytest.raises(ValidationError, match=name):
                sessions.update(stored.evolve(**{name: value}))
        with pytest.raises(ConflictError, match="paused"):
            sessions.update(stored, expected_status=PAUSED)
        assert sessions.update(stored.evolve(session_id=workspace.id("absent"))) is False
        assert sessions.get(stored.session_id) == stored

    def test_a_heartbeat_never_goes_back_and_wakes_the_stalled(self, workspace: TrackingWorkspace) -> None:
        stalled, sessions = workspace.session(status=STALLED), workspace.storage.tracking_sessions
        alive = sessions.heartbeat(stalled.session_id, at(20), current_task_id=" t-1 ")
        assert (alive.status, alive.last_heartbeat, alive.current_task_id) == (ACTIVE, at(20), "t-1")
        stamp = workspace.stamp(SESSIONS, (stalled.session_id,))
        assert sessions.heartbeat(stalled.session_id, at(10)) == alive
        assert sessions.update(alive.evolve(last_heartbeat=at(10))) is True
        assert workspace.stamp(SESSIONS, (stalled.session_id,)) == stamp
        paused = workspace.session("paused", status=PAUSED)
        assert sessions.heartbeat(paused.session_id, at(20)).status is PAUSED
        for status in ENDED:
            ended = workspace.session(status.value, status=status)
            with pytest.raises(InvalidTransitionError):
                sessions.heartbeat(ended.session_id, at(20))
            assert sessions.get(ended.session_id) == ended
        with pytest.raises(NotFoundError):
            sessions.heartbeat(workspace.id("absent"), at(20))

    def test_the_silent_are_found_and_marked_once(self, isolated_workspace: TrackingWorkspace) -> None:
        sessions = isolated_workspace.storage.tracking_sessions
        now = at(300)
        # Exactly as long ago as the threshold is not yet silent.
        edge = isolated_workspace.session("edge", last_heartbeat=at())
        silent = [
            isolated_workspace.session(name, last_heartbeat=at(-seconds))
            for name, seconds in (("c", 0.001), ("b", 2), ("a", 2))
        ]
        others = [
            isolated_workspace.session(status.value, status=status, last_heartbeat=at(-9))
            for status in (PAUSED, COMPLETED, FAILED, STALLED)
        ]
        wanted = (silent[2].session_id, silent[1].session_id, silent[0].session_id)
        found = sessions.find_stale(now, threshold=SILENT)
        assert tuple(item.session_id for item in found) == wanted
        assert tuple(item.session_id for item in sessions.find_stale(now, limit=2)) == wanted[:2]
        # By less than a stored instant can express: the one at the edge is silent for longer.
        sooner = sessions.find_stale(now, threshold=SILENT - timedelta(microseconds=1))
        assert tuple(item.session_id for item in sooner) == (*wanted, edge.session_id)
        with isolated_workspace.opened_at(at(301)) as storage:
            # The page reports a row that cannot be decoded, and the others are still marked.
            broken = isolated_workspace.session("broken", last_heartbeat=at(-5))
            isolated_workspace.probe.poison(SESSIONS, (broken.session_id,), "no such thing")
            (row,) = sessions.find_stale(now).undecodable
            assert broken.session_id in row.key
            assert storage.tracking_sessions.mark_stalled(now) == wanted
            assert storage.tracking_sessions.mark_stalled(now) == ()
        for item in silent:
            marked = sessions.get_required(item.session_id)
            assert marked == item.evolve(status=STALLED, updated_at=at(301))
        assert [sessions.get(item.session_id) for item in (edge, *others)] == [edge, *others]

    def test_an_unacceptable_threshold_is_refused(self, workspace: TrackingWorkspace) -> None:
        session, sessions = workspace.session(), workspace.storage.tracking_sessions
        for threshold in (timedelta(0), -SILENT, cast("timedelta", 300)):
            with pytest.raises(ValidationError, match="threshold"):
                sessions.find_stale(at(), threshold=threshold)
            with pytest.raises(ValidationError, match="threshold"):
                sessions.health(session.session_id, at(), threshold=threshold)
        # Longer than the calendar: no session has been silent since then.
        assert tuple(sessions.find_stale(at(), threshold=timedelta.max)) == ()

    def test_a_session_ends_once(self, workspace: TrackingWorkspace) -> None:
        sessions = workspace.storage.tracking_sessions
        done, broken = workspace.session("done"), workspace.session("broken", metadata={"a": 1})
        completed = sessions.complete(done.session_id, at(10))
        assert (completed.status, completed.completed_at) == (COMPLETED, at(10))
        assert sessions.complete(done.session_id, at(10)) == completed
        failed = sessions.fail(broken.session_id, at(11), reason=" out of memory ", details={"b": [1]})
        wanted = {"a": 1, "failure": {"reason": "out of memory", "details": {"b": [1]}}}
        assert (failed.status, failed.completed_at, failed.metadata) == (FAILED, at(11), wanted)
        assert sessions.fail(broken.session_id, at(11), reason="out of memory", details={"b": [1]}) == failed
        for ended in (completed, failed):
            with pytest.raises(InvalidTransitionError):
                sessions.complete(ended.session_id, at(12))
            with pytest.raises(InvalidTransitionError):
                sessions.fail(ended.session_id, at(12), reason="again")
            assert sessions.get(ended.session_id) == ended
        for bad in ("", " "):
            with pytest.raises(ValidationError, match="reason"):
                sessions.fail(done.session_id, at(12), reason=bad)
        with pytest.raises(ValidationError, match="details"):
            sessions.fail(done.session_id, at(12), reason="x", details={"a": float("nan")})
        # As deep as an argument may be, and too deep for the metadata around it.
        deep: JsonObject = {}
        for _ in range(89):
            deep = {"a": deep}
        with pytest.raises(ValidationError, match=r"details: nested deeper"):
            sessions.fail(workspace.session("deep").session_id, at(12), reason="x", details=deep)
        with pytest.raises(NotFoundError):
            sessions.complete(workspace.id("absent"), at())
        with pytest.raises(NotFoundError):
            sessions.fail(workspace.id("absent"), at(), reason="x")

    def test_health_falls_from_the_heartbeat_to_the_threshold(self, workspace: TrackingWorkspace) -> None:
        sessions = workspace.storage.tracking_sessions
        key = workspace.session(last_heartbeat=at(100)).session_id
        shown = {age: sessions.health(key, at(100 + age), threshold=SILENT) for age in (-5, 0, 75, 300, 301)}
        reported = {age: (item.score, item.age_seconds, item.stale) for age, item in shown.items()}
        assert reported == {
            -5: (100, 0, False),
            0: (100, 0, False),
            75: (75, 75, False),
            300: (0, 300, False),
            301: (0, 301, True),
        }
        failed = workspace.session("failed", status=FAILED)
        assert sessions.health(failed.session_id, at()).score == 0
        with pytest.raises(NotFoundError):
            sessions.health(workspace.id("absent"), at())

    def test_a_list_is_filtered_by_status_project_and_machine(self, workspace: TrackingWorkspace) -> None:
        sessions = workspace.storage.tracking_sessions
        rows = {
            "a": workspace.session("a", started_at=at(1)),
            "b": workspace.session("b", started_at=at(2), status=PAUSED),
            "c": workspace.session("c", started_at=at(2), machine_id=workspace.id("m2")),
            "d": workspace.session("d", project_id=workspace.id("p2")),
        }

        def shown(**filters: object) -> str:
            found = sessions.list(SessionQueryOptions(**filters))  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]  # each as the case says
            names = {row.session_id: name for name, row in rows.items()}
            return "".join(names[row.session_id] for row in found)

        project, machine = rows["a"].project_id, rows["a"].machine_id
        assert shown(project_id=project) == "bca"
        assert shown(project_id=project, statuses=[ACTIVE]) == "ca"
        assert shown(project_id=project, statuses=(PAUSED, ACTIVE)) == "bca"
        assert shown(project_id=project, statuses=[]) == ""
        assert shown(machine_id=machine) == "bad"
        assert shown(machine_id=machine, statuses=[PAUSED]) == "b"
        assert shown(machine_id=machine, project_id=project) == "ba"
        assert sessions.count_by_status(project) == {ACTIVE: 2, PAUSED: 1}
        assert sessions.count_by_status(workspace.id("nobody")) == {}
        with pytest.raises(ValidationError, match="statuses"):
            shown(statuses=["asleep"])

    def test_a_session_goes_with_its_tasks_only_on_request(self, workspace: TrackingWorkspace) -> None:
        storage = workspace.storage
        first, second = workspace.session("first"), workspace.session("second")
        tasks = [workspace.task(str(n), session_id=first.session_id) for n in range(3)]
        other = workspace.task("other", session_id=second.session_id)
        assert storage.tracking_sessions.delete(second.session_id) is True
        assert storage.tasks.get(other.task_id) == other
        assert storage.tracking_sessions.delete(first.session_id, with_tasks=True) is True
        assert [storage.tasks.get(task.task_id) for task in tasks] == [None] * 3
        assert storage.tracking_sessions.delete(first.session_id, with_tasks=True) is False

    def test_what_ended_long_ago_is_purged_oldest_first(self, isolated_workspace: TrackingWorkspace) -> None:
        rows = {
            name: isolated_workspace.session(name, status=status, completed_at=completed_at)
            for name, status, completed_at in (
                ("due", COMPLETED, at()),
                ("failed", FAILED, at(-1)),
                ("young", COMPLETED, at(0.001)),
                ("live", ACTIVE, at(-9)),
                ("timeless", COMPLETED, None),
            )
        }
        sessions, _ = isolated_workspace.kept_for(30)
        never, _ = isolated_workspace.kept_for(0)
        assert never.purge_expired(at() + 30 * DAY) == 0
        assert sessions.purge_expired(at().replace(year=1)) == 0
        with pytest.raises(ValidationError, match="batch_size"):
            sessions.purge_expired(at() + 30 * DAY, batch_size=0)
        assert sessions.purge_expired(at() + 30 * DAY, batch_size=1) == 2
        left = {name for name, row in rows.items() if sessions.get(row.session_id) == row}
        assert left == {"young", "live", "timeless"}
