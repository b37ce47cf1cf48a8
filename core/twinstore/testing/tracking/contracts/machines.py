"""What every repository of machines must do, alone and together with sessions."""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Final

import pytest

from twinstore.errors import (
    ConflictError,
    DuplicateError,
    InvalidTransitionError,
    NotFoundError,
    ValidationError,
)
from twinstore.testing.base import needs
from twinstore.testing.instants import at
from twinstore.testing.tracking.cases import TrackingCases
from twinstore.testing.workspace import all_pages, outcomes
from twinstore.tracking.catalog import MACHINES
from twinstore.tracking.enums import MachineStatus, SessionStatus

if TYPE_CHECKING:
    from twinstore.access.paging import Page
    from twinstore.testing.tracking.builders import TrackingWorkspace
    from twinstore.tracking.machines import MachineAvailability
    from twinstore.tracking.sessions import TrackingSession
    from twinstore.tracking.storage import TrackingStorage

__all__ = ["MachineRepositoryContract", "SlotContract"]

ONLINE, OFFLINE, MAINTENANCE = MachineStatus
ACTIVE, PAUSED, COMPLETED, FAILED, STALLED = SessionStatus
THREADS: Final = 16


def assert_agreed(workspace: TrackingWorkspace, *machines: str) -> None:
    """Assert that machines and their sessions agree, and that no slot has two sessions."""
    listed: Counter[str] = Counter()
    for key in machines:
        machine = workspace.storage.machines.get_required(key)
        sessions = [workspace.storage.tracking_sessions.get(item) for item in machine.active_sessions]
        assert all(item is not None and item.machine_id == key for item in sessions)
        assert not any(item is not None and item.status.ended for item in sessions)
        slots = [item.docker_slot for item in sessions if item is not None and item.docker_slot is not None]
        assert len(slots) == len(set(slots))
        assert set(slots) <= set(machine.docker_slots)
        listed.update(machine.active_sessions)
    assert set(listed.values()) <= {1}


def available(storage: TrackingStorage, limit: int, token: str | None) -> Page[MachineAvailability]:
    """Ask for machines with a free slot."""
    return storage.machines.list_available(limit=limit, page_token=token)


class MachineRepositoryContract(TrackingCases):
    """Machines by themselves."""

    def test_the_store_sets_both_instants_and_a_new_machine_lists_no_session(
        self, workspace: TrackingWorkspace
    ) -> None:
        record = workspace.machine("made").evolve(machine_id=workspace.id("m"), created_at=at(900))
        with workspace.opened_at(at(10)) as storage:
            created = storage.machines.create(record.evolve(docker_slots=(3, 1, 3)))
            assert (created.created_at, created.updated_at, created.docker_slots) == (at(10), at(10), (3, 1))
            assert storage.machines.get(created.machine_id) == created
            with pytest.raises(DuplicateError):
                storage.machines.create(created)
            with pytest.raises(ValidationError, match="assign_session"):
                storage.machines.create(created.evolve(machine_id="other", active_sessions=("s",)))

    @pytest.mark.parametrize("start", MachineStatus)
    @pytest.mark.parametrize("end", MachineStatus)
    def test_an_update_moves_a_machine_to_every_status(
        self, workspace: TrackingWorkspace, start: MachineStatus, end: MachineStatus
    ) -> None:
        machine = workspace.machine(status=start, last_heartbeat=at(5))
        wanted = machine.evolve(status=end, hostname="node-2", last_heartbeat=at(1))
        with workspace.opened_at(at(30)) as storage:
            assert storage.machines.update(wanted, expected_status=start) is True
            after = wanted.evolve(last_heartbeat=at(5), updated_at=at(30))
            assert storage.machines.get(machine.machine_id) == after

    def test_an_update_leaves_sessions_and_occupied_slots_alone(self, workspace: TrackingWorkspace) -> None:
        machines = workspace.storage.machines
        key = workspace.machine(docker_slots=(1, 2, 3)).machine_id
        session = workspace.session().session_id
        machine = machines.assign_session(key, session, docker_slot=2)
        with pytest.raises(ValidationError, match="active_sessions"):
            machines.update(machine.evolve(active_sessions=()))
        with pytest.raises(ConflictError, match="slot 2"):
            machines.update(machine.evolve(docker_slots=(1, 3)))
        with pytest.raises(ConflictError, match="offline"):
            machines.update(machine, expected_status=OFFLINE)
        assert machines.get(key) == machine
        assert machines.update(machine.evolve(docker_slots=(2, 4))) is True
        assert machines.update(machine.evolve(machine_id=workspace.id("absent"))) is False

    def test_a_heartbeat_never_goes_back_and_leaves_maintenance(self, workspace: TrackingWorkspace) -> None:
        machines = workspace.storage.machines
        wanted = {ONLINE: ONLINE, OFFLINE: ONLINE, MAINTENANCE: MAINTENANCE}
        for before, after in wanted.items():
            key = workspace.machine(before.value, status=before).machine_id
            alive = machines.heartbeat(key, at(20))
            assert (alive.status, alive.last_heartbeat) == (after, at(20))
            stamp = workspace.stamp(MACHINES, (key,))
            assert machines.heartbeat(key, at(10)) == alive
            assert workspace.stamp(MACHINES, (key,)) == stamp
        with pytest.raises(NotFoundError):
            machines.heartbeat(workspace.id("absent"), at())

    def test_a_list_is_filtered_by_status(self, isolated_workspace: TrackingWorkspace) -> None:
        machines = isolated_workspace.storage.machines
        rows = [
            isolated_workspace.machine(name, status=status)
            for name, status in zip("cab", MachineStatus, strict=True)
        ]
        assert [*machines.list()] == [rows[1], rows[2], rows[0]]
        assert [*machines.list(statuses=[MAINTENANCE, ONLINE])] == [rows[2], rows[0]]
        assert [*machines.list(statuses=[])] == []
        with pytest.raises(ValidationError, match="statuses"):
            machines.list(statuses=["asleep"])  # type: ignore[list-item]  # pyright: ignore[reportArgumentType]  # the point of the test
        assert (machines.delete(rows[0].machine_id), machines.delete(rows[0].machine_id)) == (True, False)


class SlotContract(TrackingCases):
    """Which session runs where, and in which slot."""

    def test_a_session_takes_a_free_slot_and_moves_with_it(self, workspace: TrackingWorkspace) -> None:
        storage = workspace.storage
        first, second = (workspace.machine(name, docker_slots=(1, 2)).machine_id for name in ("m1", "m2"))
        a, b = (workspace.session(name).session_id for name in "ab")
        with workspace.opened_at(at(40)) as later:
            machine = later.machines.assign_session(first, a, docker_slot=1)
        assert (machine.active_sessions, machine.updated_at) == ((a,), at(40))
        session = storage.tracking_sessions.get_required(a)
        assert (session.machine_id, session.docker_slot, session.updated_at) == (first, 1, at(40))
        stamp = workspace.stamp(MACHINES, (first,))
        assert storage.machines.assign_session(first, a, docker_slot=1) == machine
        assert workspace.stamp(MACHINES, (first,)) == stamp
        for slot, reported in ((1, "occupied"), (7, "not offered; it offers 1, 2")):
            with pytest.raises(ConflictError, match=reported):
                storage.machines.assign_session(first, b, docker_slot=slot)
        assert storage.machines.assign_session(first, b, docker_slot=2).active_sessions == (a, b)
        assert storage.machines.assign_session(second, a, docker_slot=1).active_sessions == (a,)
        assert storage.machines.get_required(first).active_sessions == (b,)
        assert storage.machines.assign_session(first, b).active_sessions == (b,)
        assert storage.tracking_sessions.get_required(b).docker_slot is None
        assert_agreed(workspace, first, second)

    def test_what_does_not_exist_or_has_ended_is_not_assigned(self, workspace: TrackingWorkspace) -> None:
        machines, key = workspace.storage.machines, workspace.machine(docker_slots=(1,)).machine_id
        session = workspace.session().session_id
        for arguments in ((key, workspace.id("absent")), (workspace.id("absent"), session)):
            with pytest.raises(NotFoundError):
                machines.assign_session(*arguments)
        for status in (COMPLETED, FAILED):
            ended = workspace.session(status.value, status=status)
            with pytest.raises(ConflictError, match=status.value):
                machines.assign_session(key, ended.session_id, docker_slot=1)
        assert machines.get_required(key).active_sessions == ()

    @pytest.mark.parametrize("way", ["complete", "fail", "update", "delete", "release"])
    def test_every_way_to_end_a_session_frees_its_slot_in_the_same_step(
        self, workspace: TrackingWorkspace, way: str
    ) -> None:
        storage, sessions = workspace.storage, workspace.storage.tracking_sessions
        key, competitor = (
            workspace.machine(docker_slots=(1,)).machine_id,
            workspace.session("rival").session_id,
        )
        session = workspace.session().session_id
        storage.machines.assign_session(key, session, docker_slot=1)
        match way:
            case "complete":
                sessions.complete(session, at(9))
            case "fail":
                sessions.fail(session, at(9), reason="x")
            case "update":
                assert sessions.update(sessions.get_required(session).evolve(status=FAILED))
            case "delete":
                assert sessions.delete(session)
            case _:
                assert storage.machines.release_session(key, session).active_sessions == ()
                released = sessions.get_required(session)
                assert (released.status, released.machine_id, released.docker_slot) == (ACTIVE, key, None)
        assert storage.machines.get_required(key).active_sessions == ()
        assert storage.machines.assign_session(key, competitor, docker_slot=1).active_sessions == (
            competitor,
        )
        assert storage.machines.release_session(key, session).active_sessions == (competitor,)
        assert_agreed(workspace, key)

    @pytest.mark.parametrize("start", SessionStatus)
    def test_a_failed_or_stalled_session_recovers_on_another_machine(
        self, workspace: TrackingWorkspace, start: SessionStatus
    ) -> None:
        storage, sessions = workspace.storage, workspace.storage.tracking_sessions
        old, new = (workspace.machine(name, docker_slots=(1,)).machine_id for name in ("old", "new"))
        session = workspace.session(current_task_id="t-1").session_id
        storage.machines.assign_session(old, session, docker_slot=1)
        if start is STALLED:
            assert sessions.update(sessions.get_required(session).evolve(status=STALLED))
        elif start is FAILED:
            sessions.fail(session, at(9), reason="x")
        elif start is not ACTIVE:
            assert sessions.update(sessions.get_required(session).evolve(status=start))
        before = sessions.get_required(session)
        if start not in {FAILED, STALLED}:
            with pytest.raises(InvalidTransitionError):
                sessions.recover(session, new, at(10), docker_slot=1)
            assert sessions.get(session) == before
            return
        with pytest.raises(NotFoundError):
            sessions.recover(session, workspace.id("absent"), at(10))
        with pytest.raises(ConflictError, match="not offered"):
            sessions.recover(session, new, at(10), docker_slot=2)
        after = sessions.recover(session, new, at(10), docker_slot=1)
        wanted = before.evolve(
            status=ACTIVE,
            machine_id=new,
            docker_slot=1,
            last_heartbeat=at(10),
            completed_at=None,
            recovery_attempts=1,
            updated_at=after.updated_at,
        )
        assert after == sessions.get(session) == wanted
        assert storage.machines.get_required(old).active_sessions == ()
        assert storage.machines.get_required(new).active_sessions == (session,)
        # A failed one that had ended occupies nothing, so its slot may be taken when it comes back.
        competitor = workspace.session("rival", status=STALLED).session_id
        with pytest.raises(ConflictError, match="occupied"):
            sessions.recover(competitor, new, at(11), docker_slot=1)
        assert_agreed(workspace, old, new)

    def test_machines_with_a_free_slot_are_listed_with_it(
        self, isolated_workspace: TrackingWorkspace
    ) -> None:
        storage = isolated_workspace.storage
        offered = {"a": (1, 2), "b": (), "c": (5,), "d": (3, 1), "e": (1,), "f": (2,), "g": (1,)}
        keys = {
            name: isolated_workspace.machine(
                name, docker_slots=slots, status=OFFLINE if name == "f" else ONLINE
            ).machine_id
            for name, slots in offered.items()
        }
        for name, slot in (("a", 1), ("c", 5), ("d", 1), ("d", 3)):
            session = isolated_workspace.session(f"{name}{slot}").session_id
            storage.machines.assign_session(keys[name], session, docker_slot=slot)
        for limit in (1, 2, 3, 20):
            shown = all_pages(partial(available, storage, limit))
            reported = [(item.machine.machine_id, item.free_slots) for item in shown]
            assert reported == [(keys["a"], (2,)), (keys["e"], (1,)), (keys["g"], (1,))]
        with pytest.raises(ValidationError, match="limit"):
            storage.machines.list_available(limit=0)

    @needs("transactions")
    def test_one_of_sixteen_threads_gets_a_slot(self, workspace: TrackingWorkspace) -> None:
        key = workspace.machine(docker_slots=(1,)).machine_id
        competitors = [workspace.session(f"s{number}").session_id for number in range(THREADS)]
        results = workspace.race(
            lambda storage, session: storage.machines.assign_session(key, session, docker_slot=1), competitors
        )
        assert outcomes(results) == {"ConflictError": THREADS - 1, "ok": 1}
        assert len(workspace.storage.machines.get_required(key).active_sessions) == 1
        assert_agreed(workspace, key)

    @needs("transactions")
    def test_machines_and_sessions_agree_after_every_round_of_concurrent_calls(
        self, workspace: TrackingWorkspace
    ) -> None:
        def act(storage: TrackingStorage, competitor: tuple[str, str, TrackingSession]) -> object:
            kind, machine, session = competitor
            match kind:
                case "assign":
                    return storage.machines.assign_session(machine, session.session_id, docker_slot=1)
                case "complete":
                    return storage.tracking_sessions.complete(session.session_id, at(9))
                case "recover":
                    return storage.tracking_sessions.recover(
                        session.session_id, machine, at(9), docker_slot=1
                    )
                case _:
                    return storage.tracking_sessions.delete(session.session_id)

        pairs: list[tuple[str, str]] = []

        def competitors(round_number: int) -> list[tuple[str, str, TrackingSession]]:
            one, two = (workspace.machine(f"{n}/{round_number}", docker_slots=(1,)).machine_id for n in "xy")
            pairs.append((one, two))
            session = workspace.session(f"s/{round_number}")
            broken = workspace.session(f"b/{round_number}", status=STALLED)
            workspace.storage.machines.assign_session(one, session.session_id, docker_slot=1)
            last = "delete" if round_number % 2 else "complete"
            return [
                ("assign", two, session),
                ("recover", two, broken),
                ("assign", one, broken),
                (last, one, session),
            ]

        for (one, two), results in zip(pairs, workspace.rounds(act, competitors), strict=False):
            kinds = outcomes(results)
            assert set(kinds) <= {"ok", "ConflictError", "InvalidTransitionError", "NotFoundError"}, kinds
            assert_agreed(workspace, one, two)
