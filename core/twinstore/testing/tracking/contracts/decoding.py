"""What still works with a row of tracking that cannot be decoded, and with its neighbours."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

from twinstore.errors import ConflictError, DocumentDecodeError
from twinstore.testing.instants import at
from twinstore.testing.tracking.cases import TrackingCases
from twinstore.tracking.catalog import MACHINES, SESSIONS, TASKS
from twinstore.tracking.enums import SessionStatus

if TYPE_CHECKING:
    from twinstore.testing.tracking.builders import TrackingWorkspace

__all__ = ["BrokenRecordContract"]

CONTENT: Final = "s3cr3t"


class BrokenRecordContract(TrackingCases):
    """A session, a machine or a task that cannot be read stops only what is about itself."""

    def test_a_broken_session_hides_its_machine_alone(self, isolated_workspace: TrackingWorkspace) -> None:
        here, machines = isolated_workspace, isolated_workspace.storage.machines
        one, two = (here.machine(name, docker_slots=(1, 2)).machine_id for name in "ab")
        broken = here.session("s").session_id
        machines.assign_session(one, broken, docker_slot=1)
        here.probe.poison(SESSIONS, (broken,), CONTENT)
        # Its slot is unknown, so no slot of its machine is free.
        found = machines.list_available()
        assert [(item.machine.machine_id, item.free_slots) for item in found] == [(two, (1, 2))]
        assert [(row.entity, row.key) for row in found.undecodable] == [("sessions", broken)]
        assert CONTENT not in found.undecodable[0].reason

    def test_a_broken_machine_is_passed_over_and_named(self, isolated_workspace: TrackingWorkspace) -> None:
        here, machines = isolated_workspace, isolated_workspace.storage.machines
        keys = [here.machine(name, docker_slots=(1,)).machine_id for name in "abc"]
        here.probe.poison(MACHINES, (keys[1],), CONTENT)
        found = machines.list_available()
        assert [item.machine.machine_id for item in found] == [keys[0], keys[2]]
        assert [(row.entity, row.key) for row in found.undecodable] == [("machines", keys[1])]
        assert machines.delete(keys[1]) is True
        assert machines.list_available().undecodable == ()

    def test_other_sessions_of_a_machine_come_and_go_next_to_a_broken_one(
        self, workspace: TrackingWorkspace
    ) -> None:
        machines = workspace.storage.machines
        target = workspace.machine("m", docker_slots=(1, 2)).machine_id
        broken, other, late = (workspace.session(name).session_id for name in "sot")
        for key in (broken, other):
            machines.assign_session(target, key)
        workspace.probe.poison(SESSIONS, (broken,), CONTENT)
        with pytest.raises(ConflictError, match="cannot be read"):
            machines.assign_session(target, late, docker_slot=1)
        assert machines.assign_session(target, late).active_sessions == (broken, other, late)
        assert machines.release_session(target, other).active_sessions == (broken, late)
        # Released as well, it leaves its slot to others.
        assert machines.release_session(target, broken).active_sessions == (late,)
        assert machines.assign_session(target, other, docker_slot=1).active_sessions == (late, other)

    def test_a_session_ends_although_its_machine_is_broken(self, workspace: TrackingWorkspace) -> None:
        storage = workspace.storage
        machine = workspace.machine("m", docker_slots=(1,)).machine_id
        sessions = [workspace.session(name).session_id for name in "abc"]
        for key in sessions:
            storage.machines.assign_session(machine, key)
        workspace.probe.poison(MACHINES, (machine,), CONTENT)
        ended = storage.tracking_sessions.complete(sessions[0], at(9))
        assert ended.status is SessionStatus.COMPLETED
        assert storage.tracking_sessions.fail(sessions[1], at(9), reason="x").status is SessionStatus.FAILED
        assert storage.tracking_sessions.delete(sessions[2]) is True
        with pytest.raises(DocumentDecodeError):
            storage.machines.assign_session(machine, sessions[1])

    @pytest.mark.parametrize("with_tasks", [False, True])
    def test_a_broken_session_is_deleted(self, workspace: TrackingWorkspace, *, with_tasks: bool) -> None:
        storage = workspace.storage
        session = workspace.session("s").session_id
        task = workspace.task("t", session_id=session).task_id
        machine = workspace.machine("m", docker_slots=(1,)).machine_id
        storage.machines.assign_session(machine, session, docker_slot=1)
        workspace.probe.poison(SESSIONS, (session,), CONTENT)
        workspace.probe.poison(TASKS, (task,), CONTENT)
        assert storage.tracking_sessions.delete(session, with_tasks=with_tasks) is True
        assert storage.tracking_sessions.delete(session) is False
        assert storage.tracking_sessions.get(session) is None
        assert (workspace.probe.read(TASKS, (task,)) is None) is with_tasks
        # The machine still lists it, which takes no slot.
        other = workspace.session("o").session_id
        assert storage.machines.assign_session(machine, other, docker_slot=1).docker_slots == (1,)
        assert storage.tasks.delete(task) is not with_tasks
