"""What is bound to one connection serves several threads in turn: every answer is right, none is mixed up."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from threading import Barrier, BrokenBarrierError, Event, Thread
from typing import TYPE_CHECKING, Final, cast

import psycopg
import pytest
from pymongo import MongoClient

import twinstore
from twinstore import serial
from twinstore.errors import TimeoutExceededError, TransactionAbortedError
from twinstore.scheduler.enums import RunState
from twinstore.testing.scheduler.builders import make_run, make_run_summary, moved

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.servers import Settings
    from twinstore.scheduler.run_summaries import RunSummary
    from twinstore.scheduler.storage import SchedulerSession, SchedulerStorage

THREADS: Final = 6
READS: Final = 60
WAIT: Final = 20
# Long enough for a thread that does not wait to be gone.
MOMENT: Final = 0.2


def in_threads(action: Callable[[int], object], threads: int = THREADS) -> None:
    """Begin an action in several threads at once; raise what one of them raised."""
    barrier = Barrier(threads)

    def begun(number: int) -> None:
        barrier.wait(WAIT)
        action(number)

    with ThreadPoolExecutor(threads) as pool:
        for done in [pool.submit(begun, number) for number in range(threads)]:
            done.result()


def read_own(session: SchedulerSession, tenant: str, number: int) -> None:
    """Read a run of this thread again and again, and the list of all, in turns."""
    key = f"{tenant}-{number}"
    for turn in range(READS):
        if turn % 6:
            assert session.runs.get_required(tenant, key).id == key
        else:
            assert len(session.runs.list(tenant)) == THREADS


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
def test_six_threads_read_their_own_rows_through_one(
    storage: SchedulerStorage, tenant: str, block: str
) -> None:
    store_runs(storage, tenant)
    with BLOCKS[block](storage, tenant) as session:
        in_threads(lambda number: read_own(session, tenant, number))


@pytest.mark.parametrize("block", BLOCKS)
def test_what_six_threads_write_through_one_is_all_there(
    storage: SchedulerStorage, tenant: str, block: str
) -> None:
    store_runs(storage, tenant)

    def write(session: SchedulerSession, number: int) -> None:
        for turn in range(5):
            session.runs.create(make_run(tenant, f"{tenant}-new-{number}-{turn}"))
            session.run_summaries.modify(
                tenant, f"schedule-{number}", lambda _: make_run_summary(tenant, f"schedule-{number}")
            )
        run = session.runs.get_required(tenant, f"{tenant}-{number}")
        assert session.runs.update(moved(run, RunState.QUEUED))

    with BLOCKS[block](storage, tenant) as session:
        in_threads(lambda number: write(session, number))
    assert len(storage.runs.list(tenant)) == THREADS * 6
    assert len(storage.run_summaries.list(tenant)) == THREADS
    for number in range(THREADS):
        assert storage.runs.get_required(tenant, f"{tenant}-{number}").state is RunState.QUEUED


class Held:
    """A change of a summary that goes on only when it is told to."""

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

    def wait_in_line() -> None:
        with pytest.raises(TransactionAbortedError, match="has ended"):
            session.runs.get(tenant, "anything")
        answers.append("refused")

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
    wait_in_line()
    assert len(answers) == 2
    assert storage.run_summaries.get_required(tenant, "held") == answers[0]


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


def test_a_step_of_one_thread_is_not_divided_by_another(storage: SchedulerStorage, tenant: str) -> None:
    read, held = Event(), Held(tenant)
    with storage.sessions.open(tenant) as session, ThreadPoolExecutor(2) as pool:
        changed = pool.submit(session.run_summaries.modify, tenant, "held", held)
        assert held.begun.wait(WAIT)

        def look() -> RunSummary | None:
            found = session.run_summaries.get(tenant, "held")
            read.set()
            return found

        found = pool.submit(look)
        assert not read.wait(MOMENT)
        held.go_on.set()
        assert found.result(WAIT) == changed.result(WAIT)


def test_rules_that_call_each_others_sessions_do_not_wait_for_ever(
    storage: SchedulerStorage, tenant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serial, "WAIT_SECONDS", MOMENT)
    with storage.sessions.open(tenant) as one, storage.sessions.open(tenant) as other:
        both = Barrier(2)

        def change(number: int) -> None:
            mine, theirs = ((one, other), (other, one))[number]

            def rule(old: RunSummary | None) -> RunSummary:
                # In memory one rule runs at a time, and there is nothing to wait for.
                with suppress(BrokenBarrierError):
                    both.wait(MOMENT)
                theirs.runs.list(tenant)
                return old or make_run_summary(tenant, f"crosswise-{number}")

            with suppress(TimeoutExceededError):
                mine.run_summaries.modify(tenant, f"crosswise-{number}", rule)

        begun = [Thread(target=change, args=(number,), daemon=True) for number in range(2)]
        for thread in begun:
            thread.start()
        for thread in begun:
            thread.join(WAIT)
        assert not any(thread.is_alive() for thread in begun)
        assert one.runs.list(tenant) == other.runs.list(tenant)


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


def test_several_threads_join_one_handle_at_once(every_server: Settings, tenant: str) -> None:
    with twinstore.add_scheduler_storage(every_server) as storage:
        store_runs(storage, tenant)
        with handles(every_server) as handle:
            joined = [storage.bind(handle, tenant) for _ in range(THREADS)]
            in_threads(lambda number: read_own(joined[number], tenant, number))
            in_threads(lambda number: joined[number].runs.create(make_run(tenant, f"{tenant}-new-{number}")))
        assert len(storage.runs.list(tenant)) == 2 * THREADS
