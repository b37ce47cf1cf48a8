"""What sessions and units of work of the scheduler promise, including joined and concurrent ones."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from threading import Barrier, Event, local
from typing import TYPE_CHECKING, Final, TypeAlias

import pytest

from twinstore.access.protocol import Ref, Rows, Rule, ServerClock
from twinstore.access.scope import Scope
from twinstore.catalog.row import Row
from twinstore.catalog.tenancy import Tenant
from twinstore.errors import ConcurrencyError, ConflictError, DuplicateError, ValidationError
from twinstore.scheduler.catalog import RUNS, SCHEDULES
from twinstore.scheduler.enums import RunState
from twinstore.scheduler.module import MODULE
from twinstore.scheduler.runs import RunStats
from twinstore.scheduler.storage import SchedulerSession, SchedulerStorage
from twinstore.testing.base import needs
from twinstore.testing.entities import by_access
from twinstore.testing.instants import at
from twinstore.testing.scalars import LATEST
from twinstore.testing.scheduler import calls
from twinstore.testing.scheduler.builders import make_run_summary, moved
from twinstore.testing.scheduler.cases import SchedulerCases
from twinstore.testing.scheduler.workspace import SchedulerWorkspace
from twinstore.testing.workspace import in_thread, outcomes, until_it_wins

if TYPE_CHECKING:
    from twinstore.scheduler.run_summaries import RunSummary
    from twinstore.scheduler.schedules import Schedule

__all__ = [
    "SchedulerIsolationContract",
    "SchedulerJoiningContract",
    "SchedulerRaceContract",
    "SchedulerSessionContract",
    "SchedulerTransactionContract",
]


class SchedulerSessionContract(SchedulerCases):
    """An error of one call, and methods that are atomic by themselves."""

    @needs("sessions")
    def test_an_error_of_one_call_does_not_end_the_session(self, workspace: SchedulerWorkspace) -> None:
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
    def test_atomic_methods_stay_atomic_in_a_session(self, workspace: SchedulerWorkspace) -> None:
        with workspace.storage.sessions.open(workspace.tenant) as session:
            schedule = session.schedules.upsert(workspace.schedule())
            assert session.schedules.soft_delete(workspace.tenant, schedule.id, "eve", at(5))
            assert session.triggers.get_required(workspace.tenant, schedule.id).enabled is False


class SchedulerTransactionContract(SchedulerCases):
    """Changes, removals, reads and races of rows that depend on each other."""

    @needs("transactions")
    def test_changes_and_removals_are_rolled_back_too(self, workspace: SchedulerWorkspace) -> None:
        one_of_each = calls.store_one_of_each(workspace)
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
    def test_reads_in_a_unit_see_its_writes(self, workspace: SchedulerWorkspace) -> None:
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
    def test_a_write_of_a_schedule_that_can_have_no_trigger_fails_as_a_whole(
        self, workspace: SchedulerWorkspace
    ) -> None:
        schedule = workspace.storage.schedules.upsert(workspace.schedule())
        trigger = workspace.storage.triggers.get_required(workspace.tenant, schedule.id)
        endless = schedule.evolve(name="other", when_cron="1 1 1 1 *", updated_at=LATEST)
        with workspace.storage.transaction(workspace.tenant) as unit:
            with pytest.raises(ValidationError, match="no next instant"):
                unit.schedules.upsert(endless)
            assert unit.schedules.get(workspace.tenant, schedule.id) == schedule
        assert workspace.storage.schedules.get(workspace.tenant, schedule.id) == schedule
        assert workspace.storage.triggers.get(workspace.tenant, schedule.id) == trigger

    @needs("transactions")
    def test_a_read_only_unit_reads_and_refuses_to_write(self, workspace: SchedulerWorkspace) -> None:
        one_of_each = calls.store_one_of_each(workspace)
        with workspace.storage.transaction(workspace.tenant, read_only=True) as unit:
            assert unit.runs.get(workspace.tenant, one_of_each.run.id) == one_of_each.run
            assert tuple(unit.schedules.list(workspace.tenant)) == (one_of_each.schedule,)
            with pytest.raises(ValidationError, match="read-only"):
                unit.runs.create(workspace.run("new"))
            with pytest.raises(ValidationError, match="read-only"):
                unit.schedules.soft_delete(workspace.tenant, one_of_each.schedule.id, "eve", at(99))
        assert workspace.storage.runs.get(workspace.tenant, workspace.id("new")) is None

    @needs("transactions")
    def test_concurrent_units_lose_no_update(self, workspace: SchedulerWorkspace) -> None:
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
    def test_of_two_units_moving_one_run_only_one_commits(self, workspace: SchedulerWorkspace) -> None:
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


def two_schedules(workspace: SchedulerWorkspace) -> tuple[Ref, Ref]:
    """Return where a stored schedule is and where another one would be."""
    return tuple(Ref(SCHEDULES, Tenant(workspace.tenant), (workspace.id(name),)) for name in ("a", "new"))  # type: ignore[return-value]  # pyright: ignore[reportReturnType]  # two


def renamed(workspace: SchedulerWorkspace, name: str) -> Rule:
    """Return a rule that changes the first schedule and inserts the second one under a taken name."""

    def rule(rows: Rows, now: ServerClock) -> Rows:
        del now
        (stored, _) = rows
        assert stored is not None
        changed = stored.model.evolve(name="changed")
        return Row(changed, stored.storage), Row(workspace.schedule("new", name=name))

    return rule


class SchedulerJoiningContract(SchedulerCases):
    """A joined write of two rows that fails leaves no half of itself."""

    @needs("transactions")
    def test_a_joined_write_that_fails_leaves_no_half_of_itself(self, workspace: SchedulerWorkspace) -> None:
        schedule = workspace.storage.schedules.upsert(workspace.schedule())
        taken = workspace.storage.schedules.upsert(workspace.schedule("taken"))
        handle = workspace.deployment.handle(workspace.tenant)
        if handle is not None:
            refused = False
            # The handle is its caller's own: what a store refused may well fail to commit, in its own words.
            with (
                workspace.deployment.open_module(by_access(MODULE)) as backend,
                suppress(Exception),
                handle as joined,
            ):
                bound = backend.bind(joined, Scope(workspace.tenant))
                with pytest.raises(DuplicateError):
                    bound.change(two_schedules(workspace), renamed(workspace, taken.name))
                refused = True
            assert refused
            assert workspace.storage.schedules.get(workspace.tenant, schedule.id) == schedule
            assert workspace.count(SCHEDULES) == 2


Write: TypeAlias = Callable[[SchedulerSession, SchedulerWorkspace, int], object]
Meet: TypeAlias = Callable[[], object]

THREADS: Final = 8
EACH: Final = 3
# What a caller may wait for the confirmation of a unit that many others race.
HEAD_START_SECONDS: Final = 0.2
LIMIT_SECONDS: Final = 30


def at_once() -> None:
    """Continue without waiting for another writer."""


def count_up(unit: SchedulerSession, workspace: SchedulerWorkspace, _: int = 0, meet: Meet = at_once) -> int:
    """Read a counter of the stored run and write it back grown by one."""
    run = unit.runs.get_required(workspace.tenant, workspace.id("run"))
    meet()
    grown = run.evolve(stats=run.stats.evolve(candidates=run.stats.candidates + 1))
    assert unit.runs.update(grown)
    return grown.stats.candidates


def subscribe(
    unit: SchedulerSession, workspace: SchedulerWorkspace, number: int, meet: Meet = at_once
) -> object:
    """Read the subscribers of the stored schedule and write them back with one more."""
    schedule = unit.schedules.get_required(workspace.tenant, workspace.id("schedule"))
    meet()
    more = (*schedule.subscribers, f"{len(schedule.subscribers):03}-{number}")
    return unit.schedules.upsert(schedule.evolve(subscribers=more, updated_at=at(len(more))))


def later(number: int) -> Callable[[RunSummary | None], RunSummary | None]:
    """Return a change that sets the instant of a summary."""
    return lambda stored: None if stored is None else stored.evolve(updated_at=at(number))


def store_rows(workspace: SchedulerWorkspace) -> None:
    """Store the rows that concurrent writers write."""
    storage = workspace.storage
    storage.runs.create(workspace.run("run"))
    storage.runs.create(workspace.run("old"))
    storage.runs.update(moved(workspace.run("old"), RunState.CANCELLED))
    storage.schedules.upsert(workspace.schedule("schedule"))
    storage.run_summaries.upsert(workspace.summary("summary"))
    storage.impact_snapshots.upsert(workspace.tenant, workspace.snapshot("snapshot"))


# Each changes one stored row; the number makes the content differ.
WRITES: Final[dict[str, Write]] = {
    "run": count_up,
    "schedule": subscribe,
    "deletion": lambda s, b, n: s.schedules.soft_delete(b.tenant, b.id("schedule"), "eve", at(n)),
    "trigger": lambda s, b, n: s.triggers.recalculate(b.tenant, b.id("schedule"), at(7200 * n)),
    "summary": lambda s, b, n: s.run_summaries.upsert(b.summary("summary").evolve(updated_at=at(n))),
    "modified summary": lambda s, b, n: s.run_summaries.modify(b.tenant, b.id("summary"), later(n)),
    "snapshot": lambda s, b, n: s.impact_snapshots.upsert(
        b.tenant, b.snapshot("snapshot", generated_at=at(n))
    ),
    "removal": lambda s, b, _: s.impact_snapshots.delete(b.tenant, b.id("snapshot")),
    "purge": lambda s, b, _: s.runs.purge_finished(at(9999), tenant_id=b.tenant),
}
# Each inserts one row, or changes it when it is stored by now.
INSERTS: Final[dict[str, Write]] = {
    "schedule": lambda s, b, n: s.schedules.upsert(b.schedule("new", updated_at=at(n))),
    "summary": lambda s, b, n: s.run_summaries.upsert(b.summary("new").evolve(updated_at=at(n))),
    "modified summary": lambda s, b, n: s.run_summaries.modify(
        b.tenant, b.id("new"), lambda _: b.summary("new").evolve(updated_at=at(n))
    ),
    "snapshot": lambda s, b, n: s.impact_snapshots.upsert(b.tenant, b.snapshot("new", generated_at=at(n))),
    "equal record": lambda s, b, _: s.audit.append(b.record("new")),
}
# Each inserts one row, and refuses when it is stored by now.
CREATIONS: Final[dict[str, Write]] = {
    "run": lambda s, b, _: s.runs.create(b.run("new")),
    "record": lambda s, b, n: s.audit.append(b.record("new", message=f"message {n}")),
    "name": lambda s, b, n: s.schedules.upsert(b.schedule(f"new-{n}", name="one name")),
    "retry": lambda s, b, _: s.runs.retry(b.tenant, b.id("old"), "eve", at(), new_run_id=b.id("new")),
}


def everything(session: SchedulerSession, workspace: SchedulerWorkspace) -> tuple[object, ...]:
    """Read every row of the tenant, one by one and in lists."""
    return (
        session.runs.get(workspace.tenant, workspace.id("run")),
        session.runs.get(workspace.tenant, workspace.id("new")),
        tuple(session.runs.list(workspace.tenant)),
        session.runs.get_pending_runs(workspace.tenant),
        tuple(session.schedules.list(workspace.tenant)),
        session.triggers.get(workspace.tenant, workspace.id("schedule")),
        tuple(session.run_summaries.list(workspace.tenant)),
        tuple(session.impact_snapshots.list(workspace.tenant)),
        tuple(session.audit.list(workspace.tenant)),
    )


class FirstCallBarrier:
    """Holds each thread up once, until all have come: all have read, and none has written."""

    def __init__(self, threads: int) -> None:
        """Take how many come."""
        self._barrier = Barrier(threads)
        self._seen = local()

    def __call__(self) -> None:
        """Wait for the others at the first call of a thread."""
        if not getattr(self._seen, "met", False):
            self._seen.met = True
            self._barrier.wait(LIMIT_SECONDS)


def overtaken(
    workspace: SchedulerWorkspace, write: Write, error: type[ConflictError] = ConcurrencyError
) -> None:
    """Write in a unit a row that another writer wrote after the unit had begun; that write must stay."""
    stored: list[tuple[object, ...]] = []

    def lose() -> None:
        with workspace.storages(1) as (other,), workspace.storage.transaction(workspace.tenant) as unit:
            everything(unit, workspace)
            write(other.unbound, workspace, 1)
            stored.append(everything(other.unbound, workspace))
            write(unit, workspace, 2)

    with pytest.raises(error):
        lose()
    assert stored == [everything(workspace.storage.unbound, workspace)]


class Overtaken:
    """Writes in a unit; before the first attempt writes, another writer does."""

    def __init__(self, workspace: SchedulerWorkspace, other: SchedulerStorage, write: Write) -> None:
        """Take the storage of the other writer and what both write."""
        self.attempts = 0
        self._workspace = workspace
        self._other = other
        self._write = write

    def __call__(self, unit: SchedulerSession) -> object:
        """Read, be overtaken once, and write."""
        everything(unit, self._workspace)
        self.attempts += 1
        if self.attempts == 1:
            self._write(self._other.unbound, self._workspace, 1)
        return self._write(unit, self._workspace, 2)


class SchedulerIsolationContract(SchedulerCases):
    """Every write of a unit against concurrent writers: the first one wins, no update is lost."""

    @needs("transactions")
    def test_a_unit_reads_one_state_and_its_own_writes(self, workspace: SchedulerWorkspace) -> None:
        store_rows(workspace)
        with workspace.storages(1) as (other,), workspace.storage.transaction(workspace.tenant) as unit:
            before = everything(unit, workspace)
            for write in (*WRITES.values(), *INSERTS.values(), CREATIONS["run"]):
                write(other.unbound, workspace, 1)
            assert everything(unit, workspace) == before
            own = unit.runs.create(workspace.run("own"))
            assert unit.runs.get(workspace.tenant, own.id) == own
            assert len(unit.runs.list(workspace.tenant)) == len(other.runs.list(workspace.tenant)) + 1
        assert everything(workspace.storage.unbound, workspace) != before

    @needs("transactions")
    def test_a_read_only_unit_reads_one_state(self, workspace: SchedulerWorkspace) -> None:
        store_rows(workspace)
        with (
            workspace.storages(1) as (other,),
            workspace.storage.transaction(workspace.tenant, read_only=True) as unit,
        ):
            before = everything(unit, workspace)
            count_up(other.unbound, workspace)
            assert everything(unit, workspace) == before

    @needs("transactions")
    @pytest.mark.parametrize("name", WRITES)
    def test_a_write_of_a_row_that_was_changed_since_the_unit_began_is_refused(
        self, workspace: SchedulerWorkspace, name: str
    ) -> None:
        store_rows(workspace)
        overtaken(workspace, WRITES[name])

    @needs("transactions")
    @pytest.mark.parametrize("name", INSERTS)
    def test_a_row_that_appeared_since_the_unit_began_is_a_lost_race_and_no_duplicate(
        self, workspace: SchedulerWorkspace, name: str
    ) -> None:
        overtaken(workspace, INSERTS[name])
        with workspace.storages(1) as (other,):
            retried = Overtaken(workspace.elsewhere, other, INSERTS[name])
            workspace.storage.transact(retried, tenant_id=workspace.foreign)
        assert retried.attempts == 2

    @needs("transactions")
    @pytest.mark.parametrize("name", CREATIONS)
    def test_what_may_exist_once_is_created_by_one_of_two_concurrent_writers(
        self, workspace: SchedulerWorkspace, name: str
    ) -> None:
        store_rows(workspace)
        store_rows(workspace.elsewhere)
        overtaken(workspace, CREATIONS[name], ConflictError)
        with workspace.storages(1) as (other,):
            retried = Overtaken(workspace.elsewhere, other, CREATIONS[name])
            with pytest.raises(DuplicateError):
                workspace.storage.transact(retried, tenant_id=workspace.foreign)

    @needs("transactions")
    @pytest.mark.parametrize("name", WRITES)
    def test_of_two_open_units_that_write_one_row_the_first_one_commits(
        self, workspace: SchedulerWorkspace, name: str
    ) -> None:
        store_rows(workspace)
        begun, ended = Event(), Event()

        def second(storage: SchedulerStorage) -> None:
            try:
                with storage.transaction(workspace.tenant) as unit:
                    everything(unit, workspace)
                    begun.set()
                    WRITES[name](unit, workspace, 2)
            finally:
                ended.set()

        with workspace.storages(1) as (other,):
            with workspace.storage.transaction(workspace.tenant) as first:
                WRITES[name](first, workspace, 1)
                competitor = in_thread(lambda: second(other))
                assert begun.wait(LIMIT_SECONDS)
                # If the second writer does not wait for the first one, it could commit before it.
                ended.wait(HEAD_START_SECONDS)
            assert outcomes([competitor()]) == {"ConcurrencyError": 1}
        with workspace.storage.transaction(workspace.tenant) as third:
            WRITES[name](third, workspace, 3)

    @needs("transactions")
    def test_a_unit_that_rolls_back_costs_a_concurrent_one_no_more_than_a_repetition(
        self, workspace: SchedulerWorkspace
    ) -> None:
        store_rows(workspace)
        begun = Event()

        def second(storage: SchedulerStorage) -> object:
            def count(unit: SchedulerSession) -> int:
                begun.set()
                return count_up(unit, workspace)

            return storage.transact(count, tenant_id=workspace.tenant)

        def rolled_back(storage: SchedulerStorage) -> Callable[[], object]:
            with storage.transaction(workspace.tenant) as first:
                count_up(first, workspace)
                competitor = in_thread(lambda: second(other))
                assert begun.wait(LIMIT_SECONDS)
                raise Rollback(competitor)

        with workspace.storages(1) as (other,):
            with pytest.raises(Rollback) as rollback:
                rolled_back(workspace.storage)
            assert rollback.value.competitor() == 1

    @needs("transactions")
    def test_a_call_that_stands_alone_waits_for_a_unit_and_builds_on_it(
        self, workspace: SchedulerWorkspace
    ) -> None:
        store_rows(workspace)
        called = Event()

        def alone(storage: SchedulerStorage) -> object:
            called.set()
            return storage.run_summaries.modify(
                workspace.tenant,
                workspace.id("summary"),
                lambda stored: (
                    None
                    if stored is None
                    else make_run_summary(
                        workspace.tenant, stored.schedule_id, updated_at=stored.updated_at.replace(year=2030)
                    )
                ),
            )

        with workspace.storages(1) as (other,):
            with workspace.storage.transaction(workspace.tenant) as unit:
                WRITES["summary"](unit, workspace, 7)
                waiting = in_thread(lambda: alone(other))
                assert called.wait(LIMIT_SECONDS)
            assert outcomes([waiting()]) == {"ok": 1}
        stored = workspace.storage.run_summaries.get_required(workspace.tenant, workspace.id("summary"))
        assert stored.updated_at == at(7).replace(year=2030)

    @needs("transactions")
    @pytest.mark.parametrize("write", [count_up, subscribe], ids=lambda write: write.__name__)
    def test_what_many_threads_read_and_write_back_through_transact_is_all_confirmed_and_kept(
        self,
        workspace: SchedulerWorkspace,
        write: Callable[[SchedulerSession, SchedulerWorkspace, int, Meet], object],
    ) -> None:
        store_rows(workspace)
        meet = FirstCallBarrier(THREADS)

        def work(storage: SchedulerStorage, number: int) -> None:
            def once(unit: SchedulerSession) -> None:
                write(unit, workspace, number, meet)

            for _ in range(EACH):
                until_it_wins(lambda: storage.transact(once, tenant_id=workspace.tenant))

        assert set(workspace.race(work, range(THREADS))) == {None}
        run = workspace.storage.runs.get_required(workspace.tenant, workspace.id("run"))
        schedule = workspace.storage.schedules.get_required(workspace.tenant, workspace.id("schedule"))
        written = run.stats.candidates if write is count_up else len(schedule.subscribers)
        assert written == THREADS * EACH

    @needs("transactions")
    def test_a_rebuild_that_lost_inside_a_unit_says_so(self, workspace: SchedulerWorkspace) -> None:
        store_rows(workspace)
        overtaken(
            workspace,
            lambda s, b, n: (
                s.run_summaries.upsert(b.summary("summary").evolve(updated_at=at(n)))
                if n == 1
                else s.run_summary_service.rebuild(b.tenant, b.id("summary"), now=at(n))
            ),
        )

    @needs("transactions")
    def test_rows_that_a_unit_writes_twice_are_no_concurrent_writes(
        self, workspace: SchedulerWorkspace
    ) -> None:
        store_rows(workspace)
        with workspace.storage.transaction(workspace.tenant) as unit:
            for number in (1, 2):
                for name in ("run", "schedule", "trigger", "summary", "modified summary", "snapshot"):
                    WRITES[name](unit, workspace, number)
                for write in INSERTS.values():
                    write(unit, workspace, number)
            assert unit.runs.get_required(workspace.tenant, workspace.id("run")).stats == RunStats(
                candidates=2
            )


class Rollback(Exception):  # noqa: N818  # no error: it ends a unit on purpose
    """Leaves a unit without committing it, and hands over the second writer that waits for it."""

    def __init__(self, competitor: Callable[[], object]) -> None:
        """Take the function that waits for the second writer."""
        super().__init__()
        self.competitor = competitor


# Tried often enough for concurrent writers to meet: twenty rounds, each over fresh rows.
CONCURRENCY: Final = 4


class SchedulerRaceContract(SchedulerCases):
    """One run, one record, and a trigger in step with its schedule, in every round."""

    @needs("transactions")
    def test_one_run_of_an_id_is_created_in_every_round(self, workspace: SchedulerWorkspace) -> None:
        rounds = workspace.rounds(
            lambda storage, run: storage.runs.create(run),
            lambda round_number: [
                workspace.run(f"race {round_number}", created_at=at(number)) for number in range(CONCURRENCY)
            ],
        )
        for round_number, results in enumerate(rounds):
            assert outcomes(results) == {"DuplicateError": CONCURRENCY - 1, "ok": 1}
            assert (
                workspace.storage.runs.get(workspace.tenant, workspace.id(f"race {round_number}")) in results
            )

    @needs("transactions")
    def test_one_record_of_an_id_is_appended_in_every_round(self, workspace: SchedulerWorkspace) -> None:
        rounds = workspace.rounds(
            lambda storage, record: storage.audit.append(record),
            lambda round_number: [
                workspace.record(f"race {round_number}", message=str(number)) for number in range(CONCURRENCY)
            ],
        )
        for round_number, results in enumerate(rounds):
            assert outcomes(results) == {"DuplicateError": CONCURRENCY - 1, "ok": 1}
            assert (
                workspace.storage.audit.get(workspace.tenant, workspace.id(f"race {round_number}")) in results
            )

    @needs("transactions")
    def test_a_schedule_and_its_trigger_stay_in_step_in_every_round(
        self, workspace: SchedulerWorkspace
    ) -> None:
        def act(storage: SchedulerStorage, competitor: tuple[str, Schedule]) -> object:
            kind, schedule = competitor
            if kind == "change":
                return storage.schedules.upsert(schedule)
            return storage.triggers.recalculate(workspace.tenant, schedule.id, at(2))

        def competitors(round_number: int) -> list[tuple[str, Schedule]]:
            schedule = workspace.storage.schedules.upsert(workspace.schedule(f"race {round_number}"))
            changed = schedule.evolve(when_cron="*/5 * * * *", updated_at=at(1))
            return [("change", changed), *[("recalculate", schedule)] * (CONCURRENCY - 1)]

        for round_number, results in enumerate(workspace.rounds(act, competitors)):
            assert outcomes(results) == {"ok": CONCURRENCY}
            trigger = workspace.storage.triggers.get_required(
                workspace.tenant, workspace.id(f"race {round_number}")
            )
            assert trigger.when_cron == "*/5 * * * *"
