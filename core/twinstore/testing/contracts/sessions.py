"""What sessions promise: reads see earlier writes, each call stands on its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from twinstore.errors import DuplicateError, TransactionAbortedError
from twinstore.scheduler.enums import RunState
from twinstore.testing.base import Contract, needs
from twinstore.testing.builders import at, make_audit_event, moved
from twinstore.testing.calls import TENANT_CALLS, store_one_of_each

if TYPE_CHECKING:
    from twinstore.scheduler.storage import SchedulerStorage
    from twinstore.testing.workspace import Workspace

__all__ = ["SessionContract"]


class SessionContract(Contract):
    """Bound repositories without a transaction."""

    @needs("sessions")
    @pytest.mark.parametrize("causal", [True, False])
    def test_reads_see_earlier_writes_of_the_session(self, workspace: Workspace, *, causal: bool) -> None:
        with workspace.storage.sessions.open(workspace.tenant, causal_consistency=causal) as session:
            for number in range(5):
                schedule = session.schedules.upsert(workspace.schedule(str(number)))
                assert session.schedules.get(workspace.tenant, schedule.id) == schedule
                assert session.triggers.get(workspace.tenant, schedule.id) is not None
                assert len(session.schedules.list(workspace.tenant)) == number + 1
                run = session.runs.create(workspace.run(str(number), schedule_id=schedule.id))
                assert session.runs.update(moved(run, RunState.QUEUED))
                assert session.runs.get_required(workspace.tenant, run.id).state is RunState.QUEUED
                summary = session.run_summary_service.project(run, now=at())
                assert session.run_summaries.get(workspace.tenant, schedule.id) == summary
                record = session.audit_service.write(make_audit_event(workspace.tenant))
                assert session.audit.get(workspace.tenant, record.id) == record
                key = session.impact_snapshots.upsert(workspace.tenant, workspace.snapshot(str(number)))
                assert session.impact_snapshots.get(workspace.tenant, key) is not None

    @needs("sessions")
    def test_writes_are_visible_to_others_at_once_and_survive_an_exception(
        self, workspace: Workspace
    ) -> None:
        run = workspace.run()

        def failing(other: SchedulerStorage) -> None:
            with workspace.storage.sessions.open(workspace.tenant) as session:
                session.runs.create(run)
                assert other.runs.get(workspace.tenant, run.id) == run
                raise ZeroDivisionError

        with workspace.storages(1) as (other,):
            with pytest.raises(ZeroDivisionError):
                failing(other)
            assert other.runs.get(workspace.tenant, run.id) == run

    @needs("sessions")
    def test_a_session_sees_what_others_write_meanwhile(self, workspace: Workspace) -> None:
        with workspace.storages(1) as (other,), workspace.storage.sessions.open(workspace.tenant) as session:
            assert session.runs.get(workspace.tenant, workspace.id("a")) is None
            other.runs.create(workspace.run("a"))
            assert session.runs.get(workspace.tenant, workspace.id("a")) is not None

    @needs("sessions")
    def test_an_error_of_one_call_does_not_end_the_session(self, workspace: Workspace) -> None:
        with workspace.storage.sessions.open(workspace.tenant) as session:
            session.runs.create(workspace.run("a"))
            with pytest.raises(DuplicateError):
                session.runs.create(workspace.run("a"))
            session.schedules.upsert(workspace.schedule("a", name="same"))
            with pytest.raises(DuplicateError):
                session.schedules.upsert(workspace.schedule("b", name="same"))
            session.runs.create(workspace.run("b"))
            assert len(session.runs.list(workspace.tenant)) == 2
        assert len(workspace.storage.runs.list(workspace.tenant)) == 2

    @needs("sessions")
    def test_atomic_methods_stay_atomic_in_a_session(self, workspace: Workspace) -> None:
        with workspace.storage.sessions.open(workspace.tenant) as session:
            schedule = session.schedules.upsert(workspace.schedule())
            assert session.schedules.soft_delete(workspace.tenant, schedule.id, "eve", at(5))
            assert session.triggers.get_required(workspace.tenant, schedule.id).enabled is False

    @needs("sessions")
    def test_a_session_that_has_ended_refuses_every_call(self, workspace: Workspace) -> None:
        one_of_each = store_one_of_each(workspace)
        with workspace.storage.sessions.open(workspace.tenant) as session:
            pass
        for call in TENANT_CALLS:
            with pytest.raises(TransactionAbortedError):
                call.invoke(session, workspace.tenant, one_of_each)

    @needs("sessions")
    def test_two_sessions_at_once_do_not_disturb_each_other(self, workspace: Workspace) -> None:
        opening = workspace.storage.sessions.open
        with opening(workspace.tenant) as mine, opening(workspace.foreign) as theirs:
            mine.runs.create(workspace.run())
            theirs.runs.create(workspace.elsewhere.run())
            assert len(mine.runs.list(workspace.tenant)) == len(theirs.runs.list(workspace.foreign)) == 1
