"""What rival units of the scheduler do to each other: one state is read, the first writer wins."""

from __future__ import annotations

import time
from collections.abc import Callable
from threading import Barrier, Event, local
from typing import TYPE_CHECKING, Final, TypeAlias

import pytest

from twinstore.errors import ConcurrencyError, ConflictError, DuplicateError
from twinstore.scheduler.enums import RunState
from twinstore.scheduler.runs import RunStats
from twinstore.scheduler.storage import SchedulerSession, SchedulerStorage
from twinstore.testing.base import needs
from twinstore.testing.instants import at
from twinstore.testing.scheduler.builders import make_run_summary, moved
from twinstore.testing.scheduler.cases import SchedulerCases
from twinstore.testing.scheduler.workspace import SchedulerWorkspace
from twinstore.testing.workspace import in_thread, outcomes

if TYPE_CHECKING:
    from twinstore.scheduler.run_summaries import RunSummary

__all__ = ["SchedulerIsolationContract"]

Write: TypeAlias = Callable[[SchedulerSession, SchedulerWorkspace, int], object]
Meet: TypeAlias = Callable[[], object]

THREADS: Final = 8
EACH: Final = 3
# What a caller may wait for the confirmation of a unit that many others race.
HEAD_START_SECONDS: Final = 0.2
LIMIT_SECONDS: Final = 30


def at_once() -> None:
    """Go on without waiting for anybody."""


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
    """Store the rows that rivals write."""
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


def overtaken(
    workspace: SchedulerWorkspace, write: Write, error: type[ConflictError] = ConcurrencyError
) -> None:
    """Write in a unit what somebody else wrote after the unit had begun; what that one wrote must stay."""
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
    """Writes in a unit; before the first attempt writes, somebody else does."""

    def __init__(self, workspace: SchedulerWorkspace, other: SchedulerStorage, write: Write) -> None:
        """Take the rival and what both write."""
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
    """Every write of a unit against rivals: the first one wins, no update is lost."""

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
            racer = Overtaken(workspace.elsewhere, other, INSERTS[name])
            workspace.storage.transact(racer, tenant_id=workspace.foreign)
        assert racer.attempts == 2

    @needs("transactions")
    @pytest.mark.parametrize("name", CREATIONS)
    def test_what_may_exist_once_is_created_by_one_of_two_rivals(
        self, workspace: SchedulerWorkspace, name: str
    ) -> None:
        store_rows(workspace)
        store_rows(workspace.elsewhere)
        overtaken(workspace, CREATIONS[name], ConflictError)
        with workspace.storages(1) as (other,):
            racer = Overtaken(workspace.elsewhere, other, CREATIONS[name])
            with pytest.raises(DuplicateError):
                workspace.storage.transact(racer, tenant_id=workspace.foreign)

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
                rival = in_thread(lambda: second(other))
                assert begun.wait(LIMIT_SECONDS)
                # Where a rival does not wait for the first one, it could commit before it.
                ended.wait(HEAD_START_SECONDS)
            assert outcomes([rival()]) == {"ConcurrencyError": 1}
        with workspace.storage.transaction(workspace.tenant) as third:
            WRITES[name](third, workspace, 3)

    @needs("transactions")
    def test_a_unit_that_rolls_back_costs_its_rival_no_more_than_a_repetition(
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
                rival = in_thread(lambda: second(other))
                assert begun.wait(LIMIT_SECONDS)
                raise Withdrawn(rival)

        with workspace.storages(1) as (other,):
            with pytest.raises(Withdrawn) as withdrawn:
                rolled_back(workspace.storage)
            assert withdrawn.value.rival() == 1

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
        meet = FirstMeeting(THREADS)

        def work(storage: SchedulerStorage, number: int) -> float:
            def once(unit: SchedulerSession) -> None:
                write(unit, workspace, number, meet)

            begin = time.monotonic()
            for _ in range(EACH):
                storage.transact(once, tenant_id=workspace.tenant)
            return time.monotonic() - begin

        results = workspace.race(work, range(THREADS))
        assert outcomes(results) == {"ok": THREADS}
        assert max(took for took in results if isinstance(took, float)) < LIMIT_SECONDS
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
    def test_rows_that_a_unit_writes_twice_are_no_rivals(self, workspace: SchedulerWorkspace) -> None:
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


class Withdrawn(Exception):  # noqa: N818  # no error: it ends a unit on purpose
    """Leaves a unit without committing it, and hands over the rival that waits for it."""

    def __init__(self, rival: Callable[[], object]) -> None:
        """Take what waits for the rival."""
        super().__init__()
        self.rival = rival
