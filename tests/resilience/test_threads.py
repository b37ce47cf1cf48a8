"""What is bound to one connection serves threads one after the other, and refuses a second call meanwhile."""

from __future__ import annotations

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import timedelta
from threading import Event, Thread
from typing import TYPE_CHECKING, Final, cast
from uuid import uuid4

import psycopg
import pytest
from pymongo import MongoClient

import twinstore
from twinstore import aio
from twinstore.errors import TransactionAbortedError, ValidationError
from twinstore.scheduler.enums import GraphJobStatus, PolicyRunJobStatus, RunState
from twinstore.scheduler.execution_logs import ExecutionLogEntry
from twinstore.testing.instants import at
from twinstore.testing.scheduler.builders import (
    make_impact_set,
    make_policy_job,
    make_run,
    make_run_summary,
    make_schedule,
    moved,
)
from twinstore.testing.scheduler.graph_jobs import graph_moved, make_graph_build_job

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.support.servers import Settings
    from twinstore.aio import AsyncSchedulerSession, AsyncSchedulerStorage
    from twinstore.scheduler.run_summaries import RunSummary
    from twinstore.scheduler.storage import SchedulerSession, SchedulerStorage

    Step = Callable[[SchedulerSession | SchedulerStorage, str], object]

THREADS: Final = 3
WAIT: Final = 20
# Long enough for a thread that does not wait to be gone.
MOMENT: Final = 0.2
BUSY: Final = "Another thread is using this session or unit of work"


def store_runs(storage: SchedulerStorage, tenant: str) -> None:
    for number in range(THREADS):
        storage.runs.create(make_run(tenant, f"{tenant}-{number}"))


@contextmanager
def session_of(storage: SchedulerStorage, tenant: str) -> Iterator[SchedulerSession]:
    with storage.sessions.open(tenant) as session:
        yield session


@contextmanager
def unit_of(storage: SchedulerStorage, tenant: str) -> Iterator[SchedulerSession]:
    with storage.transaction(tenant) as unit:
        yield unit


BLOCKS: Final = {"session": session_of, "unit": unit_of}


@pytest.mark.parametrize("block", BLOCKS)
def test_threads_call_one_after_the_other(storage: SchedulerStorage, tenant: str, block: str) -> None:
    def work(session: SchedulerSession, number: int) -> None:
        session.runs.create(make_run(tenant, f"{tenant}-{number}"))
        assert len(session.runs.list(tenant)) == number + 1

    with BLOCKS[block](storage, tenant) as session, ThreadPoolExecutor(THREADS) as pool:
        for number in range(THREADS):
            pool.submit(work, session, number).result(WAIT)
    assert len(storage.runs.list(tenant)) == THREADS


class Held:
    """A change of a summary that waits for permission to continue."""

    def __init__(self, tenant: str) -> None:
        self.begun, self.go_on = Event(), Event()
        self._tenant = tenant

    def __call__(self, stored: RunSummary | None) -> RunSummary | None:
        self.begun.set()
        assert self.go_on.wait(WAIT)
        return stored or make_run_summary(self._tenant, "held")


@pytest.mark.parametrize("block", BLOCKS)
def test_a_block_is_left_when_the_call_of_another_thread_has_ended(
    storage: SchedulerStorage, tenant: str, block: str
) -> None:
    held, left = Held(tenant), Event()
    answers: list[object] = []
    opening = BLOCKS[block](storage, tenant)
    session = opening.__enter__()

    def change() -> None:
        answers.append(session.run_summaries.modify(tenant, "held", held))

    def leave() -> None:
        opening.__exit__(None, None, None)
        left.set()

    changing, leaving = Thread(target=change), Thread(target=leave)
    changing.start()
    assert held.begun.wait(WAIT)
    leaving.start()
    assert not left.wait(MOMENT)
    held.go_on.set()
    changing.join(WAIT)
    assert left.wait(WAIT)
    leaving.join(WAIT)
    with pytest.raises(TransactionAbortedError, match="has ended"):
        session.runs.get(tenant, "anything")
    assert [storage.run_summaries.get_required(tenant, "held")] == answers


@pytest.mark.parametrize("block", BLOCKS)
def test_a_rule_may_call_what_it_was_called_by(storage: SchedulerStorage, tenant: str, block: str) -> None:
    store_runs(storage, tenant)
    with BLOCKS[block](storage, tenant) as session:

        def change(stored: RunSummary | None) -> RunSummary | None:
            assert stored is None
            assert len(session.runs.list(tenant)) == THREADS
            run = session.runs.get_required(tenant, f"{tenant}-0")
            assert session.runs.update(moved(run, RunState.QUEUED))
            return make_run_summary(tenant, "schedule")

        session.run_summaries.modify(tenant, "schedule", change)
        assert session.run_summaries.get(tenant, "schedule") is not None
    assert storage.runs.get_required(tenant, f"{tenant}-0").state is RunState.QUEUED


@pytest.mark.parametrize("block", BLOCKS)
def test_a_call_while_another_thread_is_in_one_is_refused_and_changes_nothing(
    storage: SchedulerStorage, tenant: str, block: str
) -> None:
    held = Held(tenant)
    with BLOCKS[block](storage, tenant) as session, ThreadPoolExecutor(1) as pool:
        changed = pool.submit(session.run_summaries.modify, tenant, "held", held)
        assert held.begun.wait(WAIT)
        with pytest.raises(ValidationError, match=BUSY):
            session.run_summaries.get(tenant, "held")
        with pytest.raises(ValidationError, match=BUSY):
            session.runs.create(make_run(tenant, f"{tenant}-refused"))
        held.go_on.set()
        assert changed.result(WAIT) is not None
        assert session.run_summaries.get(tenant, "held") == changed.result()
    assert storage.runs.list(tenant).items == ()


@contextmanager
def handles(settings: Settings) -> Iterator[object]:
    """Open a transaction of a caller on a connection or client session of his own."""
    drivers = cast("dict[str, dict[str, str]]", settings["Persistence"])
    mongo, postgres = (drivers.get(name, {}) for name in ("Mongo", "Postgres"))
    if mongo:
        with (
            MongoClient[dict[str, object]](mongo["ConnectionString"]) as client,
            client.start_session() as session,
            session.start_transaction(),
        ):
            yield session
    else:
        with psycopg.connect(postgres["ConnectionString"], prepare_threshold=None) as connection:
            yield connection


def test_all_that_join_one_handle_refuse_a_call_while_another_thread_is_in_one(
    every_server: Settings, tenant: str
) -> None:
    held = Held(tenant)
    with twinstore.add_scheduler_storage(every_server) as storage, ThreadPoolExecutor(1) as pool:
        with handles(every_server) as handle:
            one, other = (storage.bind(handle, tenant) for _ in range(2))
            changed = pool.submit(one.run_summaries.modify, tenant, "held", held)
            assert held.begun.wait(WAIT)
            with pytest.raises(ValidationError, match=BUSY):
                other.runs.create(make_run(tenant, f"{tenant}-refused"))
            held.go_on.set()
            assert changed.result(WAIT) is not None
            other.runs.create(make_run(tenant, f"{tenant}-stored"))
        assert len(storage.runs.list(tenant)) == 1


# What waits for a row does so for 5 s in memory and for 30 s on a server.
AT_ONCE: Final = 4.0
OUTSIDE: Final = "this write is not part of it; write through the repositories of the unit"
NESTED: Final = "units do not nest"


def entry_of(tenant: str, run_id: str) -> ExecutionLogEntry:
    return ExecutionLogEntry(tenant_id=tenant, run_id=run_id, logged_at=at(), message="done")


def queued(session: SchedulerSession | SchedulerStorage, tenant: str) -> object:
    return session.runs.update(moved(session.runs.get_required(tenant, f"{tenant}-stored"), RunState.QUEUED))


def completed(session: SchedulerSession | SchedulerStorage, tenant: str) -> object:
    job = session.policy_jobs.get_required(tenant, f"{tenant}-stored")
    cancelled = job.evolve(status=PolicyRunJobStatus.CANCELLED, cancelled_at=at(6), updated_at=at(6))
    return session.policy_jobs.complete_many([cancelled], job.status, lease_owner=None, now=at(6))


def replaced(session: SchedulerSession | SchedulerStorage, tenant: str) -> object:
    job = make_graph_build_job(tenant, f"{tenant}-stored")
    return session.graph_jobs.try_replace(graph_moved(job, GraphJobStatus.QUEUED), GraphJobStatus.PENDING)


def upserted(session: SchedulerSession | SchedulerStorage, tenant: str) -> object:
    return session.schedules.upsert(make_schedule(tenant, f"{tenant}-stored", when_cron="30 * * * *"))


WRITES: Final[dict[str, Step]] = {
    "create": lambda past, tenant: past.runs.create(make_run(tenant, f"{tenant}-new")),
    "update": queued,
    "modify": lambda past, tenant: past.run_summaries.modify(
        tenant, f"{tenant}-stored", lambda _: make_run_summary(tenant, f"{tenant}-stored")
    ),
    "upsert": upserted,
    "soft delete": lambda past, tenant: past.schedules.soft_delete(tenant, f"{tenant}-stored", "ada", at(9)),
    "append": lambda past, tenant: past.execution_logs.append([entry_of(tenant, f"{tenant}-stored")]),
    "upsert a snapshot": lambda past, tenant: past.impact_snapshots.upsert(
        tenant, make_impact_set(snapshot_id=f"{tenant}-snapshot"), run_id="stored"
    ),
    "delete": lambda past, tenant: past.policy_jobs.delete(tenant, f"{tenant}-stored"),
    "lease": lambda past, tenant: past.policy_jobs.lease_many("worker", at(5), tenant_id=tenant),
    "complete": completed,
    "replace": replaced,
    "purge": lambda past, tenant: past.runs.purge_finished(at(9999), tenant_id=tenant),
}


def fill(storage: SchedulerStorage, tenant: str) -> None:
    """Store what the cases change."""
    storage.runs.create(make_run(tenant, f"{tenant}-stored"))
    storage.schedules.upsert(make_schedule(tenant, f"{tenant}-stored"))
    storage.policy_jobs.create(make_policy_job(tenant, f"{tenant}-stored"))
    storage.graph_jobs.insert(make_graph_build_job(tenant, f"{tenant}-stored"))


def refused_at_once(action: Callable[[], object], match: str = OUTSIDE) -> None:
    begun = time.monotonic()
    with pytest.raises(ValidationError, match=match):
        action()
    assert time.monotonic() - begun < AT_ONCE


@pytest.mark.parametrize("write", WRITES)
def test_a_write_outside_of_the_unit_is_refused_at_once_and_the_unit_goes_on(
    storage: SchedulerStorage, tenant: str, write: str
) -> None:
    fill(storage, tenant)
    with storage.transaction(tenant) as unit:
        refused_at_once(lambda: WRITES[write](storage, tenant))
        with storage.sessions.open(tenant) as session:
            refused_at_once(lambda: WRITES[write](session, tenant))
        WRITES[write](unit, tenant)
    assert storage.runs.get_required(tenant, f"{tenant}-stored") is not None
    storage.runs.create(make_run(tenant, f"{tenant}-after"))


def test_a_unit_that_was_rolled_back_holds_nothing(storage: SchedulerStorage, tenant: str) -> None:
    fill(storage, tenant)

    def failing() -> None:
        with storage.transaction(tenant) as unit:
            queued(unit, tenant)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        failing()
    assert queued(storage, tenant) is True


def test_reads_and_locks_outside_of_the_unit_go_on(storage: SchedulerStorage, tenant: str) -> None:
    fill(storage, tenant)
    with storage.transaction(tenant) as unit:
        queued(unit, tenant)
        # Reads see what is committed.
        assert storage.runs.get_required(tenant, f"{tenant}-stored").state is RunState.PLANNING
        assert len(storage.runs.list(tenant)) == 1
        lock = storage.locks.acquire("name", timedelta(seconds=1), tenant_id=tenant)
        assert lock.release()
    assert storage.runs.get_required(tenant, f"{tenant}-stored").state is RunState.QUEUED


@pytest.mark.parametrize("way", ["transaction", "transact"])
def test_the_same_holds_for_a_task(every_store: Settings, tenant: str, way: str) -> None:
    async def inside(storage: aio.AsyncStorage, unit: AsyncSchedulerSession) -> None:
        scheduler = storage.scheduler
        run = moved(await unit.runs.get_required(tenant, f"{tenant}-stored"), RunState.QUEUED)
        assert await unit.runs.update(run)
        begun = time.monotonic()
        with pytest.raises(ValidationError, match=OUTSIDE):
            await scheduler.runs.update(run)
        async with scheduler.session(tenant) as session:
            with pytest.raises(ValidationError, match=OUTSIDE):
                await session.runs.update(run)
        with pytest.raises(ValidationError, match=NESTED):
            async with scheduler.transaction(tenant):
                pass
        with pytest.raises(ValidationError, match=NESTED):
            await scheduler.transact(nothing, tenant_id=tenant)
        assert time.monotonic() - begun < AT_ONCE
        # Of another task it is another unit, which may wait; another row does not wait.
        await asyncio.create_task(store_another(scheduler, tenant))
        await unit.runs.create(make_run(tenant, f"{tenant}-after"))

    async def main() -> None:
        async with aio.open_storage(every_store) as storage:
            if way == "transaction":
                async with storage.scheduler.transaction(tenant) as unit:
                    await inside(storage, unit)
            else:
                await storage.scheduler.transact(lambda unit: inside(storage, unit), tenant_id=tenant)
            run = await storage.scheduler.runs.get_required(tenant, f"{tenant}-stored")
            assert await storage.scheduler.runs.update(moved(run, RunState.CANCELLED))
            assert await storage.scheduler.runs.get(tenant, f"{tenant}-after") is not None

    with twinstore.add_scheduler_storage(every_store) as opened:
        fill(opened, tenant)
    asyncio.run(main())


async def nothing(unit: AsyncSchedulerSession) -> None:
    """Do nothing in a unit."""


async def store_another(scheduler: AsyncSchedulerStorage, tenant: str) -> None:
    """Open a unit in a task inside of another one."""
    async with scheduler.transaction(tenant) as unit:
        await unit.runs.create(make_run(tenant, f"{tenant}-of another task"))


def test_units_do_not_nest_in_whatever_form(storage: SchedulerStorage, tenant: str) -> None:
    def nested() -> None:
        with storage.transaction(tenant):
            raise AssertionError

    def inside(unit: SchedulerSession) -> None:
        refused_at_once(nested, NESTED)
        refused_at_once(lambda: storage.transact(lambda _: None, tenant_id=tenant), NESTED)
        unit.runs.create(make_run(tenant, f"{tenant}-run-{uuid4().hex}"))

    with storage.transaction(tenant) as unit:
        inside(unit)
    storage.transact(inside, tenant_id=tenant)
    # A session is no unit: either may be inside the other, and the session then reads.
    with storage.sessions.open(tenant) as session, storage.transaction(tenant) as unit:
        inside(unit)
        assert len(session.runs.list(tenant)) == 2
    with storage.transaction(tenant) as unit, storage.sessions.open(tenant) as session:
        inside(unit)
        assert len(session.runs.list(tenant)) == 3
    assert len(storage.runs.list(tenant)) == 4


def test_units_of_two_storages_of_one_database_are_independent(
    every_store: Settings, storage: SchedulerStorage, tenant: str
) -> None:
    with twinstore.add_scheduler_storage(every_store) as other, storage.transaction(tenant) as unit:
        unit.runs.create(make_run(tenant, f"{tenant}-one"))
        with other.transaction(tenant) as beside:
            beside.runs.create(make_run(tenant, f"{tenant}-two"))
    assert len(storage.runs.list(tenant)) == 2
