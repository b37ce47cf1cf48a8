"""What sessions of the store and units of work of tracking promise: they have no tenant."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from twinstore.errors import DuplicateError, NotFoundError, TenantScopeError, TransactionAbortedError
from twinstore.testing.base import needs
from twinstore.testing.instants import at
from twinstore.testing.tracking.builders import make_machine, make_session, make_task
from twinstore.testing.tracking.cases import TrackingCases

if TYPE_CHECKING:
    from twinstore.testing.tracking.builders import TrackingWorkspace
    from twinstore.tracking.storage import TrackingUnit

__all__ = ["UnitContract"]


def written(unit: TrackingUnit, workspace: TrackingWorkspace) -> tuple[str, str, str]:
    """Write one row of each kind in a unit and assign the session; return the ids."""
    machine = unit.machines.create(
        make_machine(workspace.tenant, workspace.id("m"), docker_slots=(1,))
    ).machine_id
    session = unit.tracking_sessions.create(make_session(workspace.tenant, workspace.id("s"))).session_id
    task = unit.tasks.create(make_task(workspace.tenant, workspace.id("t"), session_id=session)).task_id
    unit.machines.assign_session(machine, session, docker_slot=1)
    assert unit.tracking_sessions.get_required(session).docker_slot == 1
    return machine, session, task


class UnitContract(TrackingCases):
    """Bound repositories, opened without a tenant."""

    @needs("transactions")
    def test_everything_is_committed_together_or_not_at_all(self, workspace: TrackingWorkspace) -> None:
        storage = workspace.storage

        def failing() -> None:
            with storage.transaction() as unit:
                written(unit, workspace)
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            failing()
        assert storage.tracking_sessions.get(workspace.id("s")) is None
        machine, session, task = storage.transact(lambda unit: written(unit, workspace))
        assert storage.machines.get_required(machine).active_sessions == (session,)
        with storage.transaction() as unit:
            assert unit.tracking_sessions.delete(session, with_tasks=True)
            assert unit.tasks.get(task) is None
            assert unit.machines.get_required(machine).active_sessions == ()
            assert storage.tasks.get(task) is not None
        assert storage.tasks.get(task) is None

    @needs("transactions")
    def test_an_error_of_the_store_ends_the_unit_and_one_of_a_rule_does_not(
        self, workspace: TrackingWorkspace
    ) -> None:
        session, storage = workspace.session(), workspace.storage

        def catching() -> None:
            with storage.transaction() as unit:
                with pytest.raises(NotFoundError):
                    unit.machines.assign_session(workspace.id("absent"), session.session_id)
                assert unit.tracking_sessions.heartbeat(session.session_id, at(5)).last_heartbeat == at(5)
                with pytest.raises(DuplicateError):
                    unit.tracking_sessions.create(session)
                with pytest.raises(TransactionAbortedError):
                    unit.tracking_sessions.get(session.session_id)
                with pytest.raises(TransactionAbortedError):
                    unit.machines.release_session(workspace.id("m"), session.session_id)

        with pytest.raises(TransactionAbortedError):
            catching()
        assert storage.tracking_sessions.get(session.session_id) == session

    @needs("sessions")
    def test_a_session_of_the_store_reads_its_writes(self, workspace: TrackingWorkspace) -> None:
        with workspace.storage.sessions.open() as session:
            machine, tracked, _ = written(session, workspace)
            assert session.tracking_sessions.complete(tracked, at(3)).completed_at == at(3)
            assert session.machines.get_required(machine).active_sessions == ()

    @needs("transactions")
    def test_a_unit_of_a_tenant_reaches_nothing_and_one_of_the_system_all(
        self, workspace: TrackingWorkspace
    ) -> None:
        session, storage = workspace.session(), workspace.storage
        with storage.transaction(workspace.tenant) as unit:
            for call in (
                lambda: unit.tracking_sessions.get(session.session_id),
                lambda: unit.tracking_sessions.complete(session.session_id, at()),
                unit.tasks.list,
                lambda: unit.machines.delete("m"),
                lambda: unit.tracking_sessions.purge_expired(at()),
            ):
                with pytest.raises(TenantScopeError):
                    call()
        assert storage.tracking_sessions.get(session.session_id) == session
        with storage.transaction(purpose="tests") as unit:
            assert unit.tracking_sessions.complete(session.session_id, at(1)).completed_at == at(1)
