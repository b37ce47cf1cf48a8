"""What rival units of work do to each other: one state is read, the first writer wins, no update is lost."""

from __future__ import annotations

import time
from collections.abc import Callable
from threading import Barrier, Event, local
from typing import TYPE_CHECKING, Final, TypeAlias

import pytest

from twinstore.errors import ConcurrencyError, ConflictError, DuplicateError, ValidationError
from twinstore.scheduler.enums import RunState
from twinstore.scheduler.runs import RunStats
from twinstore.scheduler.storage import SchedulerSession, SchedulerStorage
from twinstore.testing.base import Contract, needs
from twinstore.testing.bench import Bench, in_thread, outcomes
from twinstore.testing.builders import at, make_run_summary, moved

if TYPE_CHECKING:
    from twinstore.scheduler.run_summaries import RunSummary

__all__ = ["IsolationContract"]

Write: TypeAlias = Callable[[SchedulerSession, Bench, int], object]
Meet: TypeAlias = Callable[[], object]

THREADS: Final = 8
EACH: Final = 3
# What a caller may wait for the confirmation of a unit that many others race.
LIMIT_SECONDS: Final = 30


def at_once() -> None:
    """Go on without waiting for anybody."""


def count_up(unit: SchedulerSession, bench: Bench, _: int = 0, meet: Meet = at_once) -> int:
    """Read a counter of the stored run and write it back grown by one."""
    run = unit.runs.get_required(bench.tenant, bench.id("run"))
    meet()
    grown = run.evolve(stats=run.stats.evolve(candidates=run.stats.candidates + 1))
    assert unit.runs.update(grown)
    return grown.stats.candidates


def subscribe(unit: SchedulerSession, bench: Bench, number: int, meet: Meet = at_once) -> object:
    """Read the subscribers of the stored schedule and write them back with one more."""
    schedule = unit.schedules.get_required(bench.tenant, bench.id("schedule"))
    meet()
    more = (*schedule.subscribers, f"{len(schedule.subscribers):03}-{number}")
    return unit.schedules.upsert(schedule.evolve(subscribers=more, updated_at=at(len(more))))


def later(number: int) -> Callable[[RunSummary | None], RunSummary | None]:
    """Return a change that sets the instant of a summary."""
    return lambda stored: None if stored is None else stored.evolve(updated_at=at(number))


def furnish(bench: Bench) -> None:
    """Store the rows that rivals write."""
    storage = bench.storage
    storage.runs.create(bench.run("run"))
    storage.runs.create(bench.run("old"))
    storage.runs.update(moved(bench.run("old"), RunState.CANCELLED))
    storage.schedules.upsert(bench.schedule("schedule"))
    storage.run_summaries.upsert(bench.summary("summary"))
    storage.impact_snapshots.upsert(bench.tenant, bench.snapshot("snapshot"))


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


def everything(session: SchedulerSession, bench: Bench) -> tuple[object, ...]:
    """Read every row of the tenant, one by one and in lists."""
    return (
        session.runs.get(bench.tenant, bench.id("run")),
        session.runs.get(bench.tenant, bench.id("new")),
        tuple(session.runs.list(bench.tenant)),
        session.runs.get_pending_runs(bench.tenant),
        tuple(session.schedules.list(bench.tenant)),
        session.triggers.get(bench.tenant, bench.id("schedule")),
        tuple(session.run_summaries.list(bench.tenant)),
        tuple(session.impact_snapshots.list(bench.tenant)),
        tuple(session.audit.list(bench.tenant)),
    )


class FirstMeeting:
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


def overtaken(bench: Bench, write: Write, error: type[ConflictError] = ConcurrencyError) -> None:
    """Write in a unit what somebody else wrote after the unit had begun; what that one wrote must stay."""
    stored: list[tuple[object, ...]] = []

    def lose() -> None:
        with bench.storages(1) as (other,), bench.storage.transaction(bench.tenant) as unit:
            everything(unit, bench)
            write(other.unbound, bench, 1)
            stored.append(everything(other.unbound, bench))
            write(unit, bench, 2)

    with pytest.raises(error):
        lose()
    assert stored == [everything(bench.storage.unbound, bench)]


class Overtaken:
    """Writes in a unit; before the first attempt writes, somebody else does."""

    def __init__(self, bench: Bench, other: SchedulerStorage, write: Write) -> None:
        """Take the rival and what both write."""
        self.attempts = 0
        self._bench = bench
        self._other = other
        self._write = write

    def __call__(self, unit: SchedulerSession) -> object:
        """Read, be overtaken once, and write."""
        everything(unit, self._bench)
        self.attempts += 1
        if self.attempts == 1:
            self._write(self._other.unbound, self._bench, 1)
        return self._write(unit, self._bench, 2)


class IsolationContract(Contract):
    """Units beside units, and beside calls that stand alone."""

    @needs("transactions")
    def test_a_unit_reads_one_state_and_its_own_writes(self, bench: Bench) -> None:
        furnish(bench)
        with bench.storages(1) as (other,), bench.storage.transaction(bench.tenant) as unit:
            before = everything(unit, bench)
            for write in (*WRITES.values(), *INSERTS.values(), CREATIONS["run"]):
                write(other.unbound, bench, 1)
            assert everything(unit, bench) == before
            own = unit.runs.create(bench.run("own"))
            assert unit.runs.get(bench.tenant, own.id) == own
            assert len(unit.runs.list(bench.tenant)) == len(other.runs.list(bench.tenant)) + 1
        assert everything(bench.storage.unbound, bench) != before

    @needs("transactions")
    def test_a_read_only_unit_reads_one_state(self, bench: Bench) -> None:
        furnish(bench)
        with bench.storages(1) as (other,), bench.storage.transaction(bench.tenant, read_only=True) as unit:
            before = everything(unit, bench)
            count_up(other.unbound, bench)
            assert everything(unit, bench) == before

    @needs("transactions")
    def test_a_unit_sees_what_was_committed_before_its_first_call(self, bench: Bench) -> None:
        with bench.storages(1) as (other,), bench.storage.transaction(bench.tenant) as unit:
            run = other.runs.create(bench.run())
            assert unit.runs.get(bench.tenant, run.id) == run

    @needs("transactions")
    @pytest.mark.parametrize("name", WRITES)
    def test_a_write_of_a_row_that_was_changed_since_the_unit_began_is_refused(
        self, bench: Bench, name: str
    ) -> None:
        furnish(bench)
        overtaken(bench, WRITES[name])

    @needs("transactions")
    @pytest.mark.parametrize("name", INSERTS)
    def test_a_row_that_appeared_since_the_unit_began_is_a_lost_race_and_no_duplicate(
        self, bench: Bench, name: str
    ) -> None:
        overtaken(bench, INSERTS[name])
        with bench.storages(1) as (other,):
            racer = Overtaken(bench.elsewhere, other, INSERTS[name])
            bench.storage.transact(racer, tenant_id=bench.foreign)
        assert racer.attempts == 2

    @needs("transactions")
    @pytest.mark.parametrize("name", CREATIONS)
    def test_what_may_exist_once_is_created_by_one_of_two_rivals(self, bench: Bench, name: str) -> None:
        furnish(bench)
        furnish(bench.elsewhere)
        overtaken(bench, CREATIONS[name], ConflictError)
        with bench.storages(1) as (other,):
            racer = Overtaken(bench.elsewhere, other, CREATIONS[name])
            with pytest.raises(DuplicateError):
                bench.storage.transact(racer, tenant_id=bench.foreign)

    @needs("transactions")
    @pytest.mark.parametrize("name", WRITES)
    def test_of_two_open_units_that_write_one_row_the_first_one_commits(
        self, bench: Bench, name: str
    ) -> None:
        furnish(bench)
        begun = Event()

        def second(storage: SchedulerStorage) -> None:
            with storage.transaction(bench.tenant) as unit:
                everything(unit, bench)
                begun.set()
                WRITES[name](unit, bench, 2)

        with bench.storages(1) as (other,):
            with bench.storage.transaction(bench.tenant) as first:
                WRITES[name](first, bench, 1)
                rival = in_thread(lambda: second(other))
                assert begun.wait(LIMIT_SECONDS)
            assert outcomes([rival()]) == {"ConcurrencyError": 1}
        with bench.storage.transaction(bench.tenant) as third:
            WRITES[name](third, bench, 3)

    @needs("transactions")
    def test_a_unit_that_rolls_back_costs_its_rival_no_more_than_a_repetition(self, bench: Bench) -> None:
        furnish(bench)
        begun = Event()

        def second(storage: SchedulerStorage) -> object:
            def count(unit: SchedulerSession) -> int:
                begun.set()
                return count_up(unit, bench)

            return storage.transact(count, tenant_id=bench.tenant)

        def rolled_back(storage: SchedulerStorage) -> Callable[[], object]:
            with storage.transaction(bench.tenant) as first:
                count_up(first, bench)
                rival = in_thread(lambda: second(other))
                assert begun.wait(LIMIT_SECONDS)
                raise Withdrawn(rival)

        with bench.storages(1) as (other,):
            with pytest.raises(Withdrawn) as withdrawn:
                rolled_back(bench.storage)
            assert withdrawn.value.rival() == 1

    @needs("transactions")
    def test_a_call_that_stands_alone_waits_for_a_unit_and_builds_on_it(self, bench: Bench) -> None:
        furnish(bench)
        called = Event()

        def alone(storage: SchedulerStorage) -> object:
            called.set()
            return storage.run_summaries.modify(
                bench.tenant,
                bench.id("summary"),
                lambda stored: (
                    None
                    if stored is None
                    else make_run_summary(
                        bench.tenant, stored.schedule_id, updated_at=stored.updated_at.replace(year=2030)
                    )
                ),
            )

        with bench.storages(1) as (other,):
            with bench.storage.transaction(bench.tenant) as unit:
                WRITES["summary"](unit, bench, 7)
                waiting = in_thread(lambda: alone(other))
                assert called.wait(LIMIT_SECONDS)
            assert outcomes([waiting()]) == {"ok": 1}
        stored = bench.storage.run_summaries.get_required(bench.tenant, bench.id("summary"))
        assert stored.updated_at == at(7).replace(year=2030)

    @needs("transactions")
    @pytest.mark.parametrize("write", [count_up, subscribe], ids=lambda write: write.__name__)
    def test_what_many_threads_read_and_write_back_through_transact_is_all_confirmed_and_kept(
        self, bench: Bench, write: Callable[[SchedulerSession, Bench, int, Meet], object]
    ) -> None:
        furnish(bench)
        meet = FirstMeeting(THREADS)

        def work(storage: SchedulerStorage, number: int) -> float:
            def once(unit: SchedulerSession) -> None:
                write(unit, bench, number, meet)

            begin = time.monotonic()
            for _ in range(EACH):
                storage.transact(once, tenant_id=bench.tenant)
            return time.monotonic() - begin

        results = bench.race(work, range(THREADS))
        assert outcomes(results) == {"ok": THREADS}
        assert max(took for took in results if isinstance(took, float)) < LIMIT_SECONDS
        run = bench.storage.runs.get_required(bench.tenant, bench.id("run"))
        schedule = bench.storage.schedules.get_required(bench.tenant, bench.id("schedule"))
        written = run.stats.candidates if write is count_up else len(schedule.subscribers)
        assert written == THREADS * EACH

    @needs("transactions")
    def test_a_second_unit_in_the_same_thread_is_refused_and_the_first_goes_on(self, bench: Bench) -> None:
        storage, called = bench.storage, list[str]()
        with storage.transaction(bench.tenant) as unit:
            unit.runs.create(bench.run("a"))
            for tenant in (bench.tenant, bench.foreign):
                with pytest.raises(ValidationError, match="do not nest"), storage.transaction(tenant):
                    called.append("nested")
            with pytest.raises(ValidationError, match="do not nest"):
                storage.transact(lambda _: called.append("nested"), tenant_id=bench.tenant)
            unit.runs.create(bench.run("b"))
        assert (called, len(storage.runs.list(bench.tenant))) == ([], 2)
        with storage.transaction(bench.tenant) as unit:
            assert len(unit.runs.list(bench.tenant)) == 2

    @needs("transactions")
    def test_units_of_two_storages_and_of_two_threads_stand_beside_each_other(self, bench: Bench) -> None:
        def another(storage: SchedulerStorage, name: str) -> None:
            with storage.transaction(bench.tenant) as unit:
                unit.runs.create(bench.run(name))

        with bench.storages(1) as (other,), bench.storage.transaction(bench.tenant) as unit:
            unit.runs.create(bench.run("mine"))
            another(other, "other storage")
            assert outcomes([in_thread(lambda: another(bench.storage, "other thread"))()]) == {"ok": 1}
        assert len(bench.storage.runs.list(bench.tenant)) == 3

    @needs("transactions")
    def test_a_rebuild_that_lost_inside_a_unit_says_so(self, bench: Bench) -> None:
        furnish(bench)
        overtaken(
            bench,
            lambda s, b, n: (
                s.run_summaries.upsert(b.summary("summary").evolve(updated_at=at(n)))
                if n == 1
                else s.run_summary_service.rebuild(b.tenant, b.id("summary"), now=at(n))
            ),
        )

    @needs("transactions")
    def test_rows_that_a_unit_writes_twice_are_no_rivals(self, bench: Bench) -> None:
        furnish(bench)
        with bench.storage.transaction(bench.tenant) as unit:
            for number in (1, 2):
                for name in ("run", "schedule", "trigger", "summary", "modified summary", "snapshot"):
                    WRITES[name](unit, bench, number)
                for write in INSERTS.values():
                    write(unit, bench, number)
            assert unit.runs.get_required(bench.tenant, bench.id("run")).stats == RunStats(candidates=2)


class Withdrawn(Exception):  # noqa: N818  # no error: it ends a unit on purpose
    """Leaves a unit without committing it, and hands over the rival that waits for it."""

    def __init__(self, rival: Callable[[], object]) -> None:
        """Take what waits for the rival."""
        super().__init__()
        self.rival = rival
