"""What units of work promise: all or nothing, and a failed one is never committed."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, TypeAlias

import pytest

from twinstore.errors import (
    ConcurrencyError,
    ConflictError,
    DocumentDecodeError,
    DuplicateError,
    InvalidTransitionError,
    NotFoundError,
    TransactionAbortedError,
    TwinstoreError,
    ValidationError,
)
from twinstore.scheduler.catalog import AUDIT, RUN_SUMMARIES, RUNS, SCHEDULES, TRIGGERS
from twinstore.scheduler.enums import RunState
from twinstore.scheduler.storage import SchedulerSession, SchedulerStorage
from twinstore.scheduler.triggers import trigger_id
from twinstore.testing.base import Contract, needs
from twinstore.testing.builders import at, make_audit_event, make_run_summary, moved
from twinstore.testing.calls import TENANT_CALLS, StoredExamples, store_one_of_each
from twinstore.testing.scheduler.examples import SCHEDULER_EXAMPLES
from twinstore.testing.workspace import Workspace, outcomes

if TYPE_CHECKING:
    from twinstore.canonical import CanonicalModel
    from twinstore.catalog import Entity
    from twinstore.scheduler.run_summaries import RunSummary

__all__ = ["TransactionContract"]

Step: TypeAlias = Callable[[SchedulerSession, Workspace, StoredExamples], object]

# Errors that a rule or an argument decides; the store has not failed, so the unit goes on.
HARMLESS: Final[dict[str, tuple[type[TwinstoreError], Step]]] = {
    "absent": (NotFoundError, lambda u, b, _: u.runs.get_required(b.tenant, "no-run")),
    "argument": (ValidationError, lambda u, b, _: u.runs.get(b.tenant, " ")),
    "move": (InvalidTransitionError, lambda u, _, h: u.runs.update(moved(h.run, RunState.QUEUED))),
    "state": (ConflictError, lambda u, _, h: u.runs.update(h.run, expected_state=RunState.QUEUED)),
    "begin": (ValidationError, lambda u, b, _: u.runs.create(b.run("c", state=RunState.RUNNING))),
    "instant": (ConflictError, lambda u, _, h: u.schedules.upsert(h.schedule, expected_updated_at=at(77))),
    "deleted": (ConflictError, lambda u, _, h: u.schedules.upsert(h.gone)),
    "early": (ValidationError, lambda u, b, h: u.schedules.soft_delete(b.tenant, h.schedule.id, "x", at(-9))),
    "summary": (ConflictError, lambda u, _, h: u.run_summaries.upsert(h.summary, expected_updated_at=at(9))),
    "retry": (NotFoundError, lambda u, b, _: u.runs.retry(b.tenant, "no-run", "x", at())),
}
# Errors of the store: whoever catches them must not commit what came before.
FATAL: Final[dict[str, Step]] = {
    "run": lambda u, b, h: u.runs.create(b.run("x").evolve(id=h.run.id)),
    "name": lambda u, b, h: u.schedules.upsert(b.schedule("x", name=h.schedule.name)),
    "restored name": lambda u, b, h: (
        u.schedules.upsert(b.schedule("x", name=h.gone.name)),
        u.schedules.restore(b.tenant, h.gone.id, "x", at(9)),
    ),
    "record": lambda u, _, h: u.audit.append(h.record.evolve(message="other")),
    "event": lambda u, b, h: u.audit_service.write(make_audit_event(b.tenant, id=h.record.id)),
    "retry": lambda u, b, h: u.runs.retry(b.tenant, h.run.id, "x", at(), new_run_id=h.run.id),
    "foreign schedule": lambda u, b, _: u.schedules.upsert(
        b.schedule("x").evolve(id=b.elsewhere.id("living"))
    ),
    "foreign run": lambda u, b, _: u.runs.create(b.run("x").evolve(id=b.elsewhere.id("living"))),
    "foreign record": lambda u, b, _: u.audit.append(b.record("x").evolve(id=b.elsewhere.id("living"))),
    "foreign snapshot": lambda u, b, _: u.impact_snapshots.upsert(
        b.tenant, b.snapshot(snapshot_id=b.elsewhere.id("living"))
    ),
}


def write_everywhere(unit: SchedulerSession, workspace: Workspace) -> None:
    """Write one row of each entity, through the services where there is one."""
    schedule = unit.schedules.upsert(workspace.schedule())
    run = unit.runs.create(workspace.run(schedule_id=schedule.id))
    summary = unit.run_summary_service.project(run, now=at())
    assert summary is not None
    record = unit.audit_service.write(make_audit_event(workspace.tenant))
    written: dict[Entity, CanonicalModel] = {
        SCHEDULES: schedule,
        TRIGGERS: unit.triggers.get_required(workspace.tenant, schedule.id),
        RUNS: run,
        RUN_SUMMARIES: summary,
        AUDIT: record,
    }
    SCHEDULER_EXAMPLES.store_each(unit, workspace.tenant, workspace.id("a"), written, bound=True)


def counts(workspace: Workspace) -> list[int]:
    """Return how many rows of each entity are really stored."""
    return [workspace.count(item.entity) for item in SCHEDULER_EXAMPLES.of_tenants]


NOTHING: Final = [0 for _ in SCHEDULER_EXAMPLES.of_tenants]
ONE_OF_EACH: Final = [1 for _ in SCHEDULER_EXAMPLES.of_tenants]


def breaking(workspace: Workspace, error: type[BaseException]) -> None:
    """Write everywhere and fail in the middle of the unit."""
    with workspace.storage.transaction(workspace.tenant) as unit:
        write_everywhere(unit, workspace)
        raise error


class TransactionContract(Contract):
    """One unit of work over all repositories."""

    @needs("transactions")
    def test_everything_is_committed_together(self, workspace: Workspace) -> None:
        with workspace.storages(1) as (other,):
            with workspace.storage.transaction(workspace.tenant) as unit:
                write_everywhere(unit, workspace)
                assert counts(workspace) == NOTHING
                assert other.runs.get(workspace.tenant, workspace.id("a")) is None
                assert tuple(other.schedules.list(workspace.tenant)) == ()
            assert other.runs.get(workspace.tenant, workspace.id("a")) is not None
        assert counts(workspace) == ONE_OF_EACH

    @needs("transactions")
    @pytest.mark.parametrize("error", [ZeroDivisionError, NotFoundError, KeyboardInterrupt, GeneratorExit])
    def test_any_exception_rolls_everything_back(
        self, workspace: Workspace, error: type[BaseException]
    ) -> None:
        with pytest.raises(error):
            breaking(workspace, error)
        assert counts(workspace) == NOTHING
        with workspace.storage.transaction(workspace.tenant) as unit:
            write_everywhere(unit, workspace)
        assert counts(workspace) == ONE_OF_EACH

    @needs("transactions")
    def test_changes_and_removals_are_rolled_back_too(self, workspace: Workspace) -> None:
        one_of_each = store_one_of_each(workspace)
        before = one_of_each.stored(workspace)

        def change_everything(unit: SchedulerSession) -> None:
            unit.schedules.soft_delete(workspace.tenant, one_of_each.schedule.id, "eve", at(50))
            unit.schedules.restore(workspace.tenant, one_of_each.gone.id, "eve", at(50), enabled=True)
            unit.triggers.recalculate(workspace.tenant, one_of_each.schedule.id, at(60))
            assert unit.runs.purge_finished(at(9999), tenant_id=workspace.tenant) == 1
            assert unit.impact_snapshots.delete(workspace.tenant, one_of_each.snapshot.snapshot_id or "")
            unit.run_summaries.upsert(make_run_summary(workspace.tenant, one_of_each.schedule.id))
            raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            workspace.commit(change_everything)
        assert one_of_each.stored(workspace) == before

    @needs("transactions")
    def test_reads_in_a_unit_see_its_writes(self, workspace: Workspace) -> None:
        with workspace.storage.transaction(workspace.tenant) as unit:
            for number in range(3):
                unit.runs.create(workspace.run(str(number), created_at=at(number)))
            assert (
                len(unit.runs.list(workspace.tenant))
                == len(unit.runs.get_pending_runs(workspace.tenant))
                == 3
            )
            run = unit.runs.get_required(workspace.tenant, workspace.id("0"))
            assert unit.runs.update(moved(run, RunState.CANCELLED))
            assert unit.runs.purge_finished(at(9999), tenant_id=workspace.tenant) == 1
            assert unit.runs.get(workspace.tenant, run.id) is None
            schedule = unit.schedules.upsert(workspace.schedule())
            assert unit.schedules.soft_delete(workspace.tenant, schedule.id, "eve", at(5))
            assert unit.triggers.get_required(workspace.tenant, schedule.id).enabled is False
            assert tuple(unit.schedules.list(workspace.tenant)) == ()
        assert len(workspace.storage.runs.list(workspace.tenant)) == 2

    @needs("transactions")
    @pytest.mark.parametrize("name", HARMLESS)
    def test_an_error_of_a_rule_leaves_the_unit_usable(self, workspace: Workspace, name: str) -> None:
        one_of_each = store_one_of_each(workspace)
        error, step = HARMLESS[name]
        with workspace.storage.transaction(workspace.tenant) as unit:
            unit.runs.create(workspace.run("before"))
            with pytest.raises(error) as refusal:
                step(unit, workspace, one_of_each)
            assert not isinstance(refusal.value, DuplicateError)
            unit.runs.create(workspace.run("after"))
        assert workspace.storage.runs.get(workspace.tenant, workspace.id("before")) is not None
        assert workspace.storage.runs.get(workspace.tenant, workspace.id("after")) is not None

    @needs("transactions")
    @pytest.mark.parametrize("name", FATAL)
    def test_an_error_of_the_store_makes_the_unit_unusable(self, workspace: Workspace, name: str) -> None:
        one_of_each = store_one_of_each(workspace)
        store_one_of_each(workspace.elsewhere)

        def catching(unit: SchedulerSession) -> None:
            unit.runs.create(workspace.run("before"))
            with pytest.raises(DuplicateError):
                FATAL[name](unit, workspace, one_of_each)
            with pytest.raises(TransactionAbortedError):
                unit.runs.get(workspace.tenant, one_of_each.run.id)
            with pytest.raises(TransactionAbortedError):
                unit.audit.append(workspace.record("after"))

        with pytest.raises(TransactionAbortedError):
            workspace.commit(catching)
        assert workspace.storage.runs.get(workspace.tenant, workspace.id("before")) is None
        assert workspace.storage.audit.get(workspace.tenant, workspace.id("after")) is None

    @needs("transactions")
    @pytest.mark.parametrize("name", FATAL)
    def test_an_error_of_the_store_that_nobody_catches_comes_out_as_it_is(
        self, workspace: Workspace, name: str
    ) -> None:
        one_of_each = store_one_of_each(workspace)
        store_one_of_each(workspace.elsewhere)
        with pytest.raises(DuplicateError):
            workspace.commit(
                lambda unit: unit.runs.create(workspace.run("before")),
                lambda unit: FATAL[name](unit, workspace, one_of_each),
            )
        assert workspace.storage.runs.get(workspace.tenant, workspace.id("before")) is None

    @needs("transactions")
    def test_a_unit_that_has_ended_refuses_every_call(self, workspace: Workspace) -> None:
        one_of_each = store_one_of_each(workspace)
        with workspace.storage.transaction(workspace.tenant) as unit:
            pass
        for call in TENANT_CALLS:
            with pytest.raises(TransactionAbortedError):
                call.invoke(unit, workspace.tenant, one_of_each)

    @needs("transactions")
    def test_a_poisoned_trigger_fails_the_write_of_its_schedule_as_a_whole(
        self, workspace: Workspace
    ) -> None:
        schedule = workspace.storage.schedules.upsert(workspace.schedule())
        workspace.probe.poison(TRIGGERS, (trigger_id(workspace.tenant, schedule.id),), "s3cr3t")
        before = workspace.probe.read(SCHEDULES, (schedule.id,))
        for write in (
            lambda: workspace.storage.schedules.upsert(schedule.evolve(name="other", updated_at=at(5))),
            lambda: workspace.storage.schedules.soft_delete(workspace.tenant, schedule.id, "eve", at(5)),
        ):
            with pytest.raises(DocumentDecodeError):
                write()
        assert workspace.probe.read(SCHEDULES, (schedule.id,)) == before

    @needs("transactions")
    def test_a_read_only_unit_reads_and_refuses_to_write(self, workspace: Workspace) -> None:
        one_of_each = store_one_of_each(workspace)
        with workspace.storage.transaction(workspace.tenant, read_only=True) as unit:
            assert unit.runs.get(workspace.tenant, one_of_each.run.id) == one_of_each.run
            assert tuple(unit.schedules.list(workspace.tenant)) == (one_of_each.schedule,)
            with pytest.raises(ValidationError, match="read-only"):
                unit.runs.create(workspace.run("new"))
            with pytest.raises(ValidationError, match="read-only"):
                unit.schedules.soft_delete(workspace.tenant, one_of_each.schedule.id, "eve", at(99))
        assert workspace.storage.runs.get(workspace.tenant, workspace.id("new")) is None

    @needs("transactions")
    def test_an_empty_unit_commits(self, workspace: Workspace) -> None:
        with workspace.storage.transaction(workspace.tenant):
            pass
        assert counts(workspace) == NOTHING

    @needs("transactions")
    def test_transact_returns_the_result_of_a_committed_unit(self, workspace: Workspace) -> None:
        run = workspace.storage.transact(
            lambda unit: unit.runs.create(workspace.run()), tenant_id=workspace.tenant
        )
        assert workspace.storage.runs.get(workspace.tenant, run.id) == run

    @needs("transactions")
    def test_transact_repeats_the_whole_unit_after_a_lost_race(self, workspace: Workspace) -> None:
        attempts: list[int] = []

        def third_time_lucky(unit: SchedulerSession) -> int:
            attempts.append(len(attempts))
            unit.runs.create(workspace.run(str(len(attempts))))
            if len(attempts) < 3:
                raise ConcurrencyError
            return len(attempts)

        assert workspace.storage.transact(third_time_lucky, tenant_id=workspace.tenant) == 3
        assert [run.id for run in workspace.storage.runs.list(workspace.tenant)] == [workspace.id("3")]

    @needs("transactions")
    @pytest.mark.parametrize("attempts", [1, 2, 4])
    def test_transact_gives_up_in_the_end(self, workspace: Workspace, attempts: int) -> None:
        calls: list[int] = []

        def hopeless(unit: SchedulerSession) -> None:
            calls.append(1)
            unit.runs.create(workspace.run())
            raise ConcurrencyError

        with pytest.raises(ConcurrencyError):
            workspace.storage.transact(hopeless, tenant_id=workspace.tenant, attempts=attempts)
        assert (len(calls), workspace.count(RUNS)) == (attempts, 0)

    @needs("transactions")
    def test_transact_repeats_nothing_else(self, workspace: Workspace) -> None:
        calls: list[int] = []

        def broken(_: SchedulerSession) -> None:
            calls.append(1)
            raise DuplicateError

        with pytest.raises(DuplicateError):
            workspace.storage.transact(broken, tenant_id=workspace.tenant)
        with pytest.raises(ValidationError):
            workspace.storage.transact(broken, tenant_id=workspace.tenant, attempts=0)
        assert calls == [1]

    @needs("transactions")
    def test_rival_units_lose_no_update(self, workspace: Workspace) -> None:
        schedule_id = workspace.id("s")

        def grow(stored: RunSummary | None) -> RunSummary:
            instant = at() if stored is None else stored.updated_at
            return make_run_summary(
                workspace.tenant, schedule_id, updated_at=instant.replace(year=instant.year + 1)
            )

        def work(storage: SchedulerStorage, number: int) -> None:
            def both(unit: SchedulerSession) -> None:
                unit.runs.create(workspace.run(str(number)))
                unit.run_summaries.modify(workspace.tenant, schedule_id, grow)

            storage.transact(both, tenant_id=workspace.tenant, attempts=30)

        results = workspace.race(work, range(6))
        assert outcomes(results) == {"ok": 6}
        assert workspace.count(RUNS) == 6
        stored = workspace.storage.run_summaries.get_required(workspace.tenant, schedule_id)
        assert stored.updated_at == at().replace(year=at().year + 6)

    @needs("transactions")
    def test_of_two_units_moving_one_run_only_one_commits(self, workspace: Workspace) -> None:
        run = workspace.storage.runs.create(workspace.run())
        states = [RunState.QUEUED, RunState.CANCELLED, RunState.ERROR, RunState.COMPLETED]

        def move(storage: SchedulerStorage, state: RunState) -> None:
            def both(unit: SchedulerSession) -> None:
                unit.runs.update(moved(run, state), expected_state=RunState.PLANNING)
                unit.audit.append(workspace.record(state.value))

            storage.transact(both, tenant_id=workspace.tenant, attempts=30)

        results = workspace.race(move, states)
        assert outcomes(results) == {"ConflictError": 3, "ok": 1}
        final = workspace.storage.runs.get_required(workspace.tenant, run.id)
        records = workspace.storage.audit.list(workspace.tenant)
        assert [record.id for record in records] == [workspace.id(final.state.value)]
