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
from twinstore.testing.bench import Bench, outcomes
from twinstore.testing.builders import at, make_audit_event, make_run_summary, moved
from twinstore.testing.calls import TENANT_CALLS, Household, furnish
from twinstore.testing.scheduler.examples import SCHEDULER_EXAMPLES

if TYPE_CHECKING:
    from twinstore.canonical import CanonicalModel
    from twinstore.catalog import Entity
    from twinstore.scheduler.run_summaries import RunSummary

__all__ = ["TransactionContract"]

Step: TypeAlias = Callable[[SchedulerSession, Bench, Household], object]

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


def write_everywhere(unit: SchedulerSession, bench: Bench) -> None:
    """Write one row of each entity, through the services where there is one."""
    schedule = unit.schedules.upsert(bench.schedule())
    run = unit.runs.create(bench.run(schedule_id=schedule.id))
    summary = unit.run_summary_service.project(run, now=at())
    assert summary is not None
    record = unit.audit_service.write(make_audit_event(bench.tenant))
    written: dict[Entity, CanonicalModel] = {
        SCHEDULES: schedule,
        TRIGGERS: unit.triggers.get_required(bench.tenant, schedule.id),
        RUNS: run,
        RUN_SUMMARIES: summary,
        AUDIT: record,
    }
    SCHEDULER_EXAMPLES.store_each(unit, bench.tenant, bench.id("a"), written, bound=True)


def counts(bench: Bench) -> list[int]:
    """Return how many rows of each entity are really stored."""
    return [bench.count(item.entity) for item in SCHEDULER_EXAMPLES.of_tenants]


NOTHING: Final = [0 for _ in SCHEDULER_EXAMPLES.of_tenants]
ONE_OF_EACH: Final = [1 for _ in SCHEDULER_EXAMPLES.of_tenants]


def breaking(bench: Bench, error: type[BaseException]) -> None:
    """Write everywhere and fail in the middle of the unit."""
    with bench.storage.transaction(bench.tenant) as unit:
        write_everywhere(unit, bench)
        raise error


class TransactionContract(Contract):
    """One unit of work over all repositories."""

    @needs("transactions")
    def test_everything_is_committed_together(self, bench: Bench) -> None:
        with bench.storages(1) as (other,):
            with bench.storage.transaction(bench.tenant) as unit:
                write_everywhere(unit, bench)
                assert counts(bench) == NOTHING
                assert other.runs.get(bench.tenant, bench.id("a")) is None
                assert tuple(other.schedules.list(bench.tenant)) == ()
            assert other.runs.get(bench.tenant, bench.id("a")) is not None
        assert counts(bench) == ONE_OF_EACH

    @needs("transactions")
    @pytest.mark.parametrize("error", [ZeroDivisionError, NotFoundError, KeyboardInterrupt, GeneratorExit])
    def test_any_exception_rolls_everything_back(self, bench: Bench, error: type[BaseException]) -> None:
        with pytest.raises(error):
            breaking(bench, error)
        assert counts(bench) == NOTHING
        with bench.storage.transaction(bench.tenant) as unit:
            write_everywhere(unit, bench)
        assert counts(bench) == ONE_OF_EACH

    @needs("transactions")
    def test_changes_and_removals_are_rolled_back_too(self, bench: Bench) -> None:
        household = furnish(bench)
        before = household.stored(bench)

        def change_everything(unit: SchedulerSession) -> None:
            unit.schedules.soft_delete(bench.tenant, household.schedule.id, "eve", at(50))
            unit.schedules.restore(bench.tenant, household.gone.id, "eve", at(50), enabled=True)
            unit.triggers.recalculate(bench.tenant, household.schedule.id, at(60))
            assert unit.runs.purge_finished(at(9999), tenant_id=bench.tenant) == 1
            assert unit.impact_snapshots.delete(bench.tenant, household.snapshot.snapshot_id or "")
            unit.run_summaries.upsert(make_run_summary(bench.tenant, household.schedule.id))
            raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            bench.commit(change_everything)
        assert household.stored(bench) == before

    @needs("transactions")
    def test_reads_in_a_unit_see_its_writes(self, bench: Bench) -> None:
        with bench.storage.transaction(bench.tenant) as unit:
            for number in range(3):
                unit.runs.create(bench.run(str(number), created_at=at(number)))
            assert len(unit.runs.list(bench.tenant)) == len(unit.runs.get_pending_runs(bench.tenant)) == 3
            run = unit.runs.get_required(bench.tenant, bench.id("0"))
            assert unit.runs.update(moved(run, RunState.CANCELLED))
            assert unit.runs.purge_finished(at(9999), tenant_id=bench.tenant) == 1
            assert unit.runs.get(bench.tenant, run.id) is None
            schedule = unit.schedules.upsert(bench.schedule())
            assert unit.schedules.soft_delete(bench.tenant, schedule.id, "eve", at(5))
            assert unit.triggers.get_required(bench.tenant, schedule.id).enabled is False
            assert tuple(unit.schedules.list(bench.tenant)) == ()
        assert len(bench.storage.runs.list(bench.tenant)) == 2

    @needs("transactions")
    @pytest.mark.parametrize("name", HARMLESS)
    def test_an_error_of_a_rule_leaves_the_unit_usable(self, bench: Bench, name: str) -> None:
        household = furnish(bench)
        error, step = HARMLESS[name]
        with bench.storage.transaction(bench.tenant) as unit:
            unit.runs.create(bench.run("before"))
            with pytest.raises(error) as refusal:
                step(unit, bench, household)
            assert not isinstance(refusal.value, DuplicateError)
            unit.runs.create(bench.run("after"))
        assert bench.storage.runs.get(bench.tenant, bench.id("before")) is not None
        assert bench.storage.runs.get(bench.tenant, bench.id("after")) is not None

    @needs("transactions")
    @pytest.mark.parametrize("name", FATAL)
    def test_an_error_of_the_store_makes_the_unit_unusable(self, bench: Bench, name: str) -> None:
        household = furnish(bench)
        furnish(bench.elsewhere)

        def catching(unit: SchedulerSession) -> None:
            unit.runs.create(bench.run("before"))
            with pytest.raises(DuplicateError):
                FATAL[name](unit, bench, household)
            with pytest.raises(TransactionAbortedError):
                unit.runs.get(bench.tenant, household.run.id)
            with pytest.raises(TransactionAbortedError):
                unit.audit.append(bench.record("after"))

        with pytest.raises(TransactionAbortedError):
            bench.commit(catching)
        assert bench.storage.runs.get(bench.tenant, bench.id("before")) is None
        assert bench.storage.audit.get(bench.tenant, bench.id("after")) is None

    @needs("transactions")
    @pytest.mark.parametrize("name", FATAL)
    def test_an_error_of_the_store_that_nobody_catches_comes_out_as_it_is(
        self, bench: Bench, name: str
    ) -> None:
        household = furnish(bench)
        furnish(bench.elsewhere)
        with pytest.raises(DuplicateError):
            bench.commit(
                lambda unit: unit.runs.create(bench.run("before")),
                lambda unit: FATAL[name](unit, bench, household),
            )
        assert bench.storage.runs.get(bench.tenant, bench.id("before")) is None

    @needs("transactions")
    def test_a_unit_that_has_ended_refuses_every_call(self, bench: Bench) -> None:
        household = furnish(bench)
        with bench.storage.transaction(bench.tenant) as unit:
            pass
        for call in TENANT_CALLS:
            with pytest.raises(TransactionAbortedError):
                call.invoke(unit, bench.tenant, household)

    @needs("transactions")
    def test_a_poisoned_trigger_fails_the_write_of_its_schedule_as_a_whole(self, bench: Bench) -> None:
        schedule = bench.storage.schedules.upsert(bench.schedule())
        bench.probe.poison(TRIGGERS, (trigger_id(bench.tenant, schedule.id),), "s3cr3t")
        before = bench.probe.read(SCHEDULES, (schedule.id,))
        for write in (
            lambda: bench.storage.schedules.upsert(schedule.evolve(name="other", updated_at=at(5))),
            lambda: bench.storage.schedules.soft_delete(bench.tenant, schedule.id, "eve", at(5)),
        ):
            with pytest.raises(DocumentDecodeError):
                write()
        assert bench.probe.read(SCHEDULES, (schedule.id,)) == before

    @needs("transactions")
    def test_a_read_only_unit_reads_and_refuses_to_write(self, bench: Bench) -> None:
        household = furnish(bench)
        with bench.storage.transaction(bench.tenant, read_only=True) as unit:
            assert unit.runs.get(bench.tenant, household.run.id) == household.run
            assert tuple(unit.schedules.list(bench.tenant)) == (household.schedule,)
            with pytest.raises(ValidationError, match="read-only"):
                unit.runs.create(bench.run("new"))
            with pytest.raises(ValidationError, match="read-only"):
                unit.schedules.soft_delete(bench.tenant, household.schedule.id, "eve", at(99))
        assert bench.storage.runs.get(bench.tenant, bench.id("new")) is None

    @needs("transactions")
    def test_an_empty_unit_commits(self, bench: Bench) -> None:
        with bench.storage.transaction(bench.tenant):
            pass
        assert counts(bench) == NOTHING

    @needs("transactions")
    def test_transact_returns_the_result_of_a_committed_unit(self, bench: Bench) -> None:
        run = bench.storage.transact(lambda unit: unit.runs.create(bench.run()), tenant_id=bench.tenant)
        assert bench.storage.runs.get(bench.tenant, run.id) == run

    @needs("transactions")
    def test_transact_repeats_the_whole_unit_after_a_lost_race(self, bench: Bench) -> None:
        attempts: list[int] = []

        def third_time_lucky(unit: SchedulerSession) -> int:
            attempts.append(len(attempts))
            unit.runs.create(bench.run(str(len(attempts))))
            if len(attempts) < 3:
                raise ConcurrencyError
            return len(attempts)

        assert bench.storage.transact(third_time_lucky, tenant_id=bench.tenant) == 3
        assert [run.id for run in bench.storage.runs.list(bench.tenant)] == [bench.id("3")]

    @needs("transactions")
    @pytest.mark.parametrize("attempts", [1, 2, 4])
    def test_transact_gives_up_in_the_end(self, bench: Bench, attempts: int) -> None:
        calls: list[int] = []

        def hopeless(unit: SchedulerSession) -> None:
            calls.append(1)
            unit.runs.create(bench.run())
            raise ConcurrencyError

        with pytest.raises(ConcurrencyError):
            bench.storage.transact(hopeless, tenant_id=bench.tenant, attempts=attempts)
        assert (len(calls), bench.count(RUNS)) == (attempts, 0)

    @needs("transactions")
    def test_transact_repeats_nothing_else(self, bench: Bench) -> None:
        calls: list[int] = []

        def broken(_: SchedulerSession) -> None:
            calls.append(1)
            raise DuplicateError

        with pytest.raises(DuplicateError):
            bench.storage.transact(broken, tenant_id=bench.tenant)
        with pytest.raises(ValidationError):
            bench.storage.transact(broken, tenant_id=bench.tenant, attempts=0)
        assert calls == [1]

    @needs("transactions")
    def test_rival_units_lose_no_update(self, bench: Bench) -> None:
        schedule_id = bench.id("s")

        def grow(stored: RunSummary | None) -> RunSummary:
            instant = at() if stored is None else stored.updated_at
            return make_run_summary(
                bench.tenant, schedule_id, updated_at=instant.replace(year=instant.year + 1)
            )

        def work(storage: SchedulerStorage, number: int) -> None:
            def both(unit: SchedulerSession) -> None:
                unit.runs.create(bench.run(str(number)))
                unit.run_summaries.modify(bench.tenant, schedule_id, grow)

            storage.transact(both, tenant_id=bench.tenant, attempts=30)

        results = bench.race(work, range(6))
        assert outcomes(results) == {"ok": 6}
        assert bench.count(RUNS) == 6
        stored = bench.storage.run_summaries.get_required(bench.tenant, schedule_id)
        assert stored.updated_at == at().replace(year=at().year + 6)

    @needs("transactions")
    def test_of_two_units_moving_one_run_only_one_commits(self, bench: Bench) -> None:
        run = bench.storage.runs.create(bench.run())
        states = [RunState.QUEUED, RunState.CANCELLED, RunState.ERROR, RunState.COMPLETED]

        def move(storage: SchedulerStorage, state: RunState) -> None:
            def both(unit: SchedulerSession) -> None:
                unit.runs.update(moved(run, state), expected_state=RunState.PLANNING)
                unit.audit.append(bench.record(state.value))

            storage.transact(both, tenant_id=bench.tenant, attempts=30)

        results = bench.race(move, states)
        assert outcomes(results) == {"ConflictError": 3, "ok": 1}
        final = bench.storage.runs.get_required(bench.tenant, run.id)
        records = bench.storage.audit.list(bench.tenant)
        assert [record.id for record in records] == [bench.id(final.state.value)]
