"""What sessions promise: reads see earlier writes, each call stands on its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from twinstore.errors import DuplicateError, TransactionAbortedError
from twinstore.scheduler.enums import RunState
from twinstore.testing.base import Contract, needs
from twinstore.testing.builders import at, make_audit_event, moved
from twinstore.testing.calls import TENANT_CALLS, furnish

if TYPE_CHECKING:
    from twinstore.scheduler.storage import SchedulerStorage
    from twinstore.testing.bench import Bench

__all__ = ["SessionContract"]


class SessionContract(Contract):
    """Bound repositories without a transaction."""

    @needs("sessions")
    @pytest.mark.parametrize("causal", [True, False])
    def test_reads_see_earlier_writes_of_the_session(self, bench: Bench, *, causal: bool) -> None:
        with bench.storage.sessions.open(bench.tenant, causal_consistency=causal) as session:
            for number in range(5):
                schedule = session.schedules.upsert(bench.schedule(str(number)))
                assert session.schedules.get(bench.tenant, schedule.id) == schedule
                assert session.triggers.get(bench.tenant, schedule.id) is not None
                assert len(session.schedules.list(bench.tenant)) == number + 1
                run = session.runs.create(bench.run(str(number), schedule_id=schedule.id))
                assert session.runs.update(moved(run, RunState.QUEUED))
                assert session.runs.get_required(bench.tenant, run.id).state is RunState.QUEUED
                summary = session.run_summary_service.project(run, now=at())
                assert session.run_summaries.get(bench.tenant, schedule.id) == summary
                record = session.audit_service.write(make_audit_event(bench.tenant))
                assert session.audit.get(bench.tenant, record.id) == record
                key = session.impact_snapshots.upsert(bench.tenant, bench.snapshot(str(number)))
                assert session.impact_snapshots.get(bench.tenant, key) is not None

    @needs("sessions")
    def test_writes_are_visible_to_others_at_once_and_survive_an_exception(self, bench: Bench) -> None:
        run = bench.run()

        def failing(other: SchedulerStorage) -> None:
            with bench.storage.sessions.open(bench.tenant) as session:
                session.runs.create(run)
                assert other.runs.get(bench.tenant, run.id) == run
                raise ZeroDivisionError

        with bench.storages(1) as (other,):
            with pytest.raises(ZeroDivisionError):
                failing(other)
            assert other.runs.get(bench.tenant, run.id) == run

    @needs("sessions")
    def test_a_session_sees_what_others_write_meanwhile(self, bench: Bench) -> None:
        with bench.storages(1) as (other,), bench.storage.sessions.open(bench.tenant) as session:
            assert session.runs.get(bench.tenant, bench.id("a")) is None
            other.runs.create(bench.run("a"))
            assert session.runs.get(bench.tenant, bench.id("a")) is not None

    @needs("sessions")
    def test_an_error_of_one_call_does_not_end_the_session(self, bench: Bench) -> None:
        with bench.storage.sessions.open(bench.tenant) as session:
            session.runs.create(bench.run("a"))
            with pytest.raises(DuplicateError):
                session.runs.create(bench.run("a"))
            session.schedules.upsert(bench.schedule("a", name="same"))
            with pytest.raises(DuplicateError):
                session.schedules.upsert(bench.schedule("b", name="same"))
            session.runs.create(bench.run("b"))
            assert len(session.runs.list(bench.tenant)) == 2
        assert len(bench.storage.runs.list(bench.tenant)) == 2

    @needs("sessions")
    def test_atomic_methods_stay_atomic_in_a_session(self, bench: Bench) -> None:
        with bench.storage.sessions.open(bench.tenant) as session:
            schedule = session.schedules.upsert(bench.schedule())
            assert session.schedules.soft_delete(bench.tenant, schedule.id, "eve", at(5))
            assert session.triggers.get_required(bench.tenant, schedule.id).enabled is False

    @needs("sessions")
    def test_a_session_that_has_ended_refuses_every_call(self, bench: Bench) -> None:
        household = furnish(bench)
        with bench.storage.sessions.open(bench.tenant) as session:
            pass
        for call in TENANT_CALLS:
            with pytest.raises(TransactionAbortedError):
                call.invoke(session, bench.tenant, household)

    @needs("sessions")
    def test_two_sessions_at_once_do_not_disturb_each_other(self, bench: Bench) -> None:
        opening = bench.storage.sessions.open
        with opening(bench.tenant) as mine, opening(bench.foreign) as theirs:
            mine.runs.create(bench.run())
            theirs.runs.create(bench.elsewhere.run())
            assert len(mine.runs.list(bench.tenant)) == len(theirs.runs.list(bench.foreign)) == 1
