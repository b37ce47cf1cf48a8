"""A program that forks with open storages, so that pytest never does; ``test_forks`` reads what it prints.

    python -m tests.resilience.forking SCENARIO < settings.json

Every scenario prints one JSON object: what the parent saw, and what each child reported through a pipe.
"""

from __future__ import annotations

import asyncio
import gc
import json
import multiprocessing
import os
import signal
import sys
import time
import traceback
import warnings
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from threading import Event, Thread
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

import psycopg
from psycopg_pool import ConnectionPool
from pymongo import MongoClient

import twinstore
from twinstore import aio
from twinstore.bulk.port import Record
from twinstore.catalog.keys import KeyRange
from twinstore.catalog.tenancy import Tenant
from twinstore.errors import TwinstoreError
from twinstore.scheduler.catalog import RUNS
from twinstore.scheduler.enums import RunState
from twinstore.testing.scheduler.builders import make_run, make_run_summary, moved

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from twinstore.bulk.port import RangeWriter
    from twinstore.scheduler.run_summaries import RunSummary
    from twinstore.scheduler.runs import Run
    from twinstore.scheduler.storage import SchedulerSession, SchedulerStorage

    Report = dict[str, Any]
    Settings = dict[str, Any]

ROUNDS: Final = 100
CHILDREN: Final = 4
PROCESSES: Final = 6
EACH: Final = 10
CONFIRMED_WITHIN: Final = 30
# A child that waits for a lock or thread of its parent ends by this, and its report is missing.
PATIENCE: Final = 60
MINE: Final = "parent"
THEIRS: Final = "child"


def work(storage: SchedulerStorage, tenant: str, rounds: int = ROUNDS) -> Report:
    """Write, read and list as one tenant; count errors and answers that were meant for another tenant."""
    foreign = 0
    errors: list[str] = []
    for number in range(rounds):
        key = f"{tenant}-{number}-{uuid4().hex}"
        try:
            storage.runs.create(make_run(tenant, key))
            found = storage.runs.get(tenant, key)
            foreign += found is None or (found.tenant_id, found.id) != (tenant, key)
            foreign += sum(run.tenant_id != tenant for run in storage.runs.list(tenant))
        except TwinstoreError as error:
            errors.append(f"{type(error).__name__}: {error.message}")
    return {"rounds": rounds, "foreign": foreign, "errors": errors[:3]}


def outcome(action: Callable[[], object]) -> str:
    """Return what a call came to, as text."""
    try:
        return repr(action())
    except TwinstoreError as error:
        return f"{type(error).__name__}: {error.message}"


class Children:
    """The forked children and the pipes through which they report."""

    def __init__(self) -> None:
        self._pipes: list[tuple[int, int]] = []

    def fork(self, action: Callable[[], Report], *, raising: bool = False) -> None:
        """Run ``action`` in a child, which then ends; ``raising`` unwinds everything that is open."""
        reading, writing = os.pipe()
        pid = os.fork()
        if pid:
            os.close(writing)
            self._pipes.append((pid, reading))
            return
        signal.alarm(PATIENCE)
        try:
            with os.fdopen(writing, "w") as pipe:
                json.dump(action(), pipe)
        except BaseException:  # noqa: BLE001  # the child must not go on as its parent
            traceback.print_exc()
            os._exit(1)
        if raising:
            raise SystemExit(0)
        os._exit(0)

    def reports(self) -> list[Report | str]:
        """Wait for the children and return what they reported."""
        reports: list[Report | str] = []
        for pid, reading in self._pipes:
            with os.fdopen(reading) as pipe:
                text = pipe.read()
            _, status = os.waitpid(pid, 0)
            ended = os.waitstatus_to_exitcode(status)
            reports.append(json.loads(text) if text and not ended else f"ended with {ended}: {text!r}")
        return reports


def at_work(storage: SchedulerStorage, _: Settings) -> Report:
    """Parent and child work at the same time, each for its own tenant."""
    children = Children()
    children.fork(lambda: work(storage, THEIRS))
    parent = work(storage, MINE)
    return {"parent": parent, "children": children.reports()}


def by_multiprocessing(storage: SchedulerStorage, _: Settings) -> Report:
    """The same with a process of ``multiprocessing``, which uses its own way to end."""
    context = multiprocessing.get_context("fork")
    reports = context.SimpleQueue()
    child = context.Process(target=lambda: reports.put(work(storage, THEIRS)))
    child.start()
    parent = work(storage, MINE)
    child.join(PATIENCE)
    return {"parent": parent, "children": [reports.get() if child.exitcode == 0 else child.exitcode]}


def while_threads_work(storage: SchedulerStorage, settings: Settings) -> Report:
    """Fork while threads of the parent hold locks and connections; one of them opens storages."""
    stop, children = Event(), Children()
    reports: list[Report] = []

    def hammer(number: int) -> None:
        while not stop.is_set():
            reports.append(work(storage, f"{MINE}-{number}", 1))

    def reopen() -> None:
        while not stop.is_set():
            with twinstore.add_scheduler_storage(settings) as another:
                reports.append(work(another, f"{MINE}-opening", 1))

    threads = [Thread(target=hammer, args=(number,)) for number in range(4)] + [Thread(target=reopen)]
    for thread in threads:
        thread.start()
    for _ in range(CHILDREN):
        before = len(reports)
        while len(reports) < before + 10:
            work(storage, MINE, 1)
        children.fork(lambda: work(storage, THEIRS, 20))
    found = children.reports()
    stop.set()
    for thread in threads:
        thread.join()
    total = {"foreign": sum(item["foreign"] for item in reports)}
    return {
        "parent": {**total, "errors": [error for item in reports for error in item["errors"]][:3]},
        "children": found,
    }


def use_what_is_open(
    unit: SchedulerSession, session: SchedulerSession, stream: Iterator[object], writer: RangeWriter
) -> Report:
    """Use in a child what the parent opened."""
    return {
        "unit": outcome(lambda: unit.runs.create(make_run(MINE, "by the child"))),
        "read": outcome(lambda: unit.runs.get(MINE, "first")),
        "session": outcome(lambda: session.runs.list(MINE)),
        "stream": outcome(lambda: next(stream)),
        "writer": outcome(writer.flush),
    }


def with_open_work(storage: SchedulerStorage, _: Settings) -> Report:
    """Fork inside a unit, a session, a view and a writer; children end in three ways, the parent goes on."""
    for number in range(50):
        storage.runs.create(make_run(MINE, f"stored-{number:02}"))
    children = Children()
    seen: list[object] = []
    with storage.sessions.open(MINE) as session, ExitStack() as stack:
        stream = stack.enter_context(storage.bulk.view()).records(RUNS, KeyRange(), batch_size=10)
        seen += [record.key[0] for record in next(stream) if record.key]
        writer = stack.enter_context(storage.bulk.writer(RUNS))
        writer.write([record_of(make_run(MINE, "written"))])
        writer.flush()
        with storage.transaction(MINE) as unit:
            unit.runs.create(make_run(MINE, "first"))
            for raising in (False, True):
                children.fork(lambda: use_what_is_open(unit, session, stream, writer), raising=raising)
            children.fork(lambda: own_work_and_gone(storage, stream, writer))
            reports = children.reports()
            unit.runs.create(make_run(MINE, "second"))
        listed = len(session.runs.list(MINE))
        seen += [record.key[0] for batch in stream for record in batch if record.key]
        writer.commit()
    stored = [key for key in ("first", "second", "written", "by the child") if storage.runs.get(MINE, key)]
    return {"children": reports, "stored": stored, "listed": listed, "streamed": len(seen)}


def record_of(run: Run) -> Record:
    """Return a run as a copy writes it."""
    return Record((run.id,), Tenant(run.tenant_id), run)


def own_work_and_gone(storage: SchedulerStorage, stream: Any, writer: Any) -> Report:  # noqa: ANN401  # of any driver
    """Work in a child, throw away what the parent has open, close the storage and collect the garbage."""
    with storage.transaction(THEIRS) as unit:
        unit.runs.create(make_run(THEIRS, "own"))
    report = {"own": outcome(lambda: storage.runs.get_required(THEIRS, "own").id)}
    stream.close()
    del stream, writer
    storage.close()
    gc.collect()
    return report


def with_idle_connections(storage: SchedulerStorage, settings: Settings) -> Report:
    """Fork with idle connections, of the pool, of bulk work and of locks; children end in different ways."""
    with ExitStack() as stack:
        for _ in range(4):
            stack.enter_context(storage.sessions.open(MINE)).runs.list(MINE)
    storage.bulk.counts(RUNS)
    lock(storage)
    children, before = Children(), backends(settings)
    children.fork(dict, raising=True)
    children.fork(lambda: {"lock": outcome(lambda: lock(storage))}, raising=True)
    children.fork(lambda: own_work_and_gone(storage, (0 for _ in range(0)), None))
    reports = children.reports()
    ended = len(before - backends(settings))
    parent = {**work(storage, MINE, 5), "lock": outcome(lambda: lock(storage))}
    opened = len(backends(settings) - before)
    return {"children": reports, "at rest": len(before), "ended": ended, "opened": opened, "parent": parent}


def lock(storage: SchedulerStorage) -> int:
    """Acquire and release a lock; return its fence."""
    with storage.locks.acquire("shared", timedelta(0)) as handle:
        return handle.fence


def backends(settings: Settings) -> set[int]:
    """Return the sessions of the library in this database; others share the server."""
    with psycopg.connect(settings["Persistence"]["Postgres"]["ConnectionString"]) as connection:
        found = connection.execute(
            "SELECT pid FROM pg_stat_activity"
            " WHERE application_name = 'twinstore' AND datname = current_database()"
        )
        return {pid for (pid,) in found}


def leaving_a_unit(storage: SchedulerStorage, _: Settings) -> Report:
    """Leave the unit of the parent at its normal end in a child, which must not commit it.

    Another thread of the parent is in a call of the unit at the fork.
    """
    reading, writing = os.pipe()
    pid, left = 0, ""
    called, forked = Event(), Event()

    def held(_: RunSummary | None) -> RunSummary:
        called.set()
        forked.wait()
        return make_run_summary(MINE, "schedule")

    def both() -> None:
        nonlocal pid
        with storage.transaction(MINE) as unit:
            unit.runs.create(make_run(MINE, "kept"))
            calling = Thread(target=unit.run_summaries.modify, args=(MINE, "schedule", held), daemon=True)
            calling.start()
            called.wait()
            pid = os.fork()
            if pid:
                os.waitpid(pid, 0)
                forked.set()
                calling.join()
                unit.runs.create(make_run(MINE, "kept too"))

    left = outcome(both)
    if not pid:
        with os.fdopen(writing, "w") as pipe:
            json.dump({"left": left, "seen": outcome(lambda: storage.runs.get(MINE, "kept"))}, pipe)
        os._exit(0)
    os.close(writing)
    stored = [key for key in ("kept", "kept too") if storage.runs.get(MINE, key)]
    with os.fdopen(reading) as pipe:
        return {"parent": left, "stored": stored, "children": [json.loads(pipe.read())]}


def with_a_pool_of_the_host(_: SchedulerStorage, settings: Settings) -> Report:
    """The library cannot open a pool again that the application opened."""
    url = settings["Persistence"]["Postgres"]["ConnectionString"]
    with ConnectionPool(url, min_size=1, open=True) as pool:
        own = {"Persistence": {"Postgres": {"Pool": pool}}}
        with twinstore.add_scheduler_postgres_storage(own) as storage:
            storage.runs.create(make_run(MINE, "before"))
            children = Children()
            with storage.transaction(MINE) as unit:
                unit.runs.create(make_run(MINE, "inside"))
                children.fork(
                    lambda: {
                        "call": outcome(lambda: storage.runs.get(MINE, "before")),
                        "unit": outcome(lambda: unit.runs.get(MINE, "before")),
                    },
                    raising=True,
                )
                reports = children.reports()
            found = [key for key in ("before", "inside") if storage.runs.get(MINE, key)]
    return {"children": reports, "stored": found}


def with_a_client_of_the_host(_: SchedulerStorage, settings: Settings) -> Report:
    """pymongo gives a client new connections in the child, and warns."""
    mongo = settings["Persistence"]["Mongo"]
    with MongoClient[dict[str, Any]](mongo["ConnectionString"]) as client:
        own = {"Persistence": {"Mongo": {"Client": client, "Database": mongo["Database"]}}}
        with twinstore.add_scheduler_mongo_storage(own) as storage:
            storage.runs.list(MINE)
            children = Children()
            warnings.simplefilter("ignore", UserWarning)
            children.fork(lambda: work(storage, THEIRS, 20))
            parent = work(storage, MINE, 20)
            return {"parent": parent, "children": children.reports()}


def counting(storage: SchedulerStorage, _: Settings) -> Report:
    """Processes read, grow and write back one counter, each time in a unit of work."""
    storage.runs.create(make_run(MINE, "counter"))
    children = Children()
    for _number in range(PROCESSES):
        children.fork(lambda: count(storage))
    reports = children.reports()
    return {"children": reports, "counter": storage.runs.get_required(MINE, "counter").stats.candidates}


def count(storage: SchedulerStorage) -> Report:
    """Count through ``transact``; report how many calls were confirmed and how long the longest took."""

    def grow(unit: SchedulerSession) -> None:
        run = unit.runs.get_required(MINE, "counter")
        stats = run.stats.evolve(candidates=run.stats.candidates + 1)
        unit.runs.update(run.evolve(stats=stats))

    longest, errors = 0.0, list[str]()
    for _ in range(EACH):
        begin = time.monotonic()
        try:
            storage.transact(grow, tenant_id=MINE)
        except TwinstoreError as error:
            errors.append(f"{type(error).__name__}: {error.message}")
        longest = max(longest, time.monotonic() - begin)
    return {"confirmed": EACH - len(errors), "errors": errors[:3], "in time": longest < CONFIRMED_WITHIN}


def through_asyncio(_: SchedulerStorage, settings: Settings) -> Report:
    """The threads of the facade do not exist in the child, which starts its own."""
    opened = aio.open_storage(settings)

    async def call(tenant: str) -> str:
        async with opened.scheduler.transaction(tenant) as unit:
            await unit.runs.create(make_run(tenant, f"run of {tenant}"))
        found = await opened.scheduler.runs.get_required(tenant, f"run of {tenant}")
        return found.id

    def in_child() -> Report:
        report = {"called": asyncio.run(call(THEIRS))}
        asyncio.run(opened.close())
        return report

    before = asyncio.run(call(MINE))
    children = Children()
    children.fork(in_child)
    reports = children.reports()
    after = asyncio.run(call(f"{MINE}-again"))
    asyncio.run(opened.close())
    return {"children": reports, "parent": [before, after]}


def after_the_parent_died(storage: SchedulerStorage, _: Settings) -> Report:
    """A unit of a killed parent holds a row; the server must notice although a child lives on."""
    storage.runs.create(make_run(MINE, "locked"))
    reading, writing = os.pipe()
    parent = os.fork()
    if not parent:
        with storage.transaction(MINE) as unit:
            run = unit.runs.get_required(MINE, "locked")
            unit.runs.update(moved(run, RunState.QUEUED))
            if os.fork():
                os.kill(os.getpid(), signal.SIGKILL)
            signal.alarm(PATIENCE)
            cancelled = moved(run, RunState.CANCELLED)
            with os.fdopen(writing, "w") as pipe:
                json.dump({"moved": outcome(lambda: storage.runs.update(cancelled))}, pipe)
            os._exit(0)
    os.close(writing)
    os.waitpid(parent, 0)
    with os.fdopen(reading) as pipe:
        return {"children": [json.loads(pipe.read() or '"no report"')]}


SCENARIOS: Final[dict[str, Callable[[SchedulerStorage, Settings], Report]]] = {
    scenario.__name__: scenario
    for scenario in (
        at_work,
        by_multiprocessing,
        while_threads_work,
        with_open_work,
        with_idle_connections,
        leaving_a_unit,
        with_a_pool_of_the_host,
        with_a_client_of_the_host,
        counting,
        through_asyncio,
        after_the_parent_died,
    )
}


@contextmanager
def opened(settings: Settings) -> Iterator[SchedulerStorage]:
    """Open a storage and make its first call, so that there is a connection to inherit."""
    with twinstore.add_scheduler_storage(settings) as storage:
        storage.runs.list(MINE)
        yield storage


def main() -> None:
    """Run one scenario."""
    settings = json.load(sys.stdin)
    with opened(settings) as storage:
        report = SCENARIOS[sys.argv[1]](storage, settings)
        print(json.dumps(report))  # noqa: T201  # the answer to the test


if __name__ == "__main__":
    main()
