"""What is bound to one connection serves threads one after the other, and refuses a second call meanwhile."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from threading import Event, Thread
from typing import TYPE_CHECKING, Final, cast

import psycopg
import pytest
from pymongo import MongoClient

import twinstore
from twinstore.errors import TransactionAbortedError, ValidationError
from twinstore.scheduler.enums import RunState
from twinstore.testing.scheduler.builders import make_run, make_run_summary, moved

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.servers import Settings
    from twinstore.scheduler.run_summaries import RunSummary
    from twinstore.scheduler.storage import SchedulerSession, SchedulerStorage

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
