"""Each method that a host calls is observed under its name on every store, and answers the same."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from threading import Barrier, Event
from typing import TYPE_CHECKING, Final, cast

import pytest

import twinstore
from tests.service.test_observers import Watch
from tests.support.databases import DRIVERS, without_retention
from twinstore.errors import ConcurrencyError, LockTimeoutError, TwinstoreError
from twinstore.observing import CallOutcome, Counters
from twinstore.scheduler.module import MODULE
from twinstore.scheduler.repositories import locks as lock_repository
from twinstore.testing.matrix import parts_of
from twinstore.testing.scheduler import SchedulerContract
from twinstore.testing.scheduler.workspace import SchedulerWorkspace
from twinstore.testing.workspace import in_thread, unique

if TYPE_CHECKING:
    from collections.abc import Iterator

    from twinstore.observing import Call
    from twinstore.scheduler import Run
    from twinstore.scheduler.storage import SchedulerSession, SchedulerStorage
    from twinstore.testing.calls import TenantCall
    from twinstore.testing.examples import OneOfEach
    from twinstore.testing.probe import Deployment

NOW: Final = timedelta(0)
LONG: Final = timedelta(seconds=20)
PATIENCE: Final = 20
NAMES: Final = {"memory": "Memory", "mongo": "Mongo", "postgres": "Postgres"}


@dataclass(frozen=True)
class Store:
    """A storage with an observer."""

    driver: str
    storage: SchedulerStorage
    watch: Watch
    counters: Counters

    @property
    def workspace(self) -> SchedulerWorkspace:
        """A separate tenant; no test here bypasses the storage."""
        return SchedulerWorkspace(cast("Deployment", None), self.storage)


@pytest.fixture(scope="module", params=DRIVERS)
def opened(request: pytest.FixtureRequest) -> Iterator[Store]:
    settings: dict[str, object] = {
        "Persistence": {"Scheduler": "Memory", "Memory": {"Store": unique("observing")}}
    }
    if request.param != "memory":
        settings = request.getfixturevalue(f"module_{request.param}_database").config
    watch, counters = Watch(), Counters()
    with twinstore.add_scheduler_storage(without_retention(settings), observers=[watch, counters]) as storage:
        yield Store(NAMES[request.param], storage, watch, counters)


@pytest.fixture
def store(opened: Store) -> Store:
    opened.watch.clear()
    return opened


def answer_of(call: TenantCall, session: SchedulerSession, tenant: str, rows: OneOfEach) -> object:
    """Return the result of a call, or the class of its error."""
    try:
        return call.invoke(session, tenant, rows)
    except TwinstoreError as error:
        return type(error)


def ending_of(answer: object) -> tuple[str, str | None]:
    """Return how a call ended that gave this answer, or raised this error."""
    if isinstance(answer, type) and issubclass(answer, TwinstoreError):
        return answer.code, f"{answer.__module__}.{answer.__qualname__}"
    return "ok", None


def test_every_method_of_a_session_is_observed_with_its_outcome_and_answers_the_same(store: Store) -> None:
    rows = SchedulerContract.store_one_of_each(store.workspace)
    system = SchedulerContract.system_calls()
    seen: set[str] = set()
    for call in (*SchedulerContract.tenant_calls(), *system):
        store.watch.clear()
        answer = answer_of(call, store.storage.unbound, unique("tenant"), rows)
        assert call in system or answer == call.answer, call.name
        assert call.name in store.watch.names
        last = store.watch.calls[-1]
        assert (last.module, last.driver) == ("scheduler", store.driver)
        assert (last.outcome.value, last.error) == ending_of(answer), call.name
        seen.update(store.watch.names)
    assert seen == {f"{name}.{method}" for name, part in parts_of(MODULE).items() for method in part.methods}


def test_sessions_and_units_are_observed_with_the_calls_inside(store: Store) -> None:
    here, storage = store.workspace, store.storage
    run = here.run("a")
    with storage.sessions.open(here.tenant) as session:
        session.runs.create(run)
    with storage.transaction(here.tenant) as unit:
        unit.runs.get(here.tenant, run.id)
    storage.transact(lambda unit: unit.runs.get(here.tenant, run.id), tenant_id=here.tenant)
    storage.check_ready()
    storage.initializer.ensure_migrations()
    assert store.watch.names == [
        "runs.create",
        "storage.session",
        "runs.get",
        "storage.transaction",
        "runs.get",
        "storage.transaction",
        "storage.transact",
        "storage.check_ready",
        "storage.ensure_migrations",
    ]
    get, transaction, transact = store.watch.calls[4:7]
    assert 0 < get.seconds <= transaction.seconds <= transact.seconds


def test_a_unit_that_is_left_by_an_error_ends_with_it_and_a_lost_attempt_is_seen(store: Store) -> None:
    here, storage = store.workspace, store.storage
    run = here.run("a")

    def lose_once(unit: SchedulerSession) -> Run | None:
        if store.watch.names.count("storage.transaction") == 0:
            raise ConcurrencyError
        return unit.runs.get(here.tenant, run.id)

    with pytest.raises(LookupError), storage.transaction(here.tenant):
        raise LookupError
    store.watch.clear()
    storage.transact(lose_once, tenant_id=here.tenant)
    assert store.watch.outcomes == [
        ("transaction", "concurrency"),
        ("get", "ok"),
        ("transaction", "ok"),
        ("transact", "ok"),
    ]


def test_a_lock_reports_waiting_renewal_and_release(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """One has it; the other asks at least once in vain, and gets it when the first gives it up."""
    key, asked, begin = unique("lock"), Event(), Barrier(2)
    plain = lock_repository.backoff_delays

    def backoff_delays(end: float) -> Iterator[float]:
        for number, pause in enumerate(plain(end)):
            if number == 1:  # the first request was answered: another holder has it
                asked.set()
            yield pause

    def wait_for_it() -> bool:
        begin.wait(PATIENCE)
        with store.storage.locks.acquire(key, LONG) as lock:
            return lock.is_held()

    before = store.counters.snapshot()
    with store.storage.locks.acquire(key, NOW) as held:
        monkeypatch.setattr(lock_repository, "backoff_delays", backoff_delays)
        other = in_thread(wait_for_it)
        begin.wait(PATIENCE)
        assert asked.wait(PATIENCE)
        held.renew()
        assert store.storage.locks.try_acquire(key, NOW) is None
        with pytest.raises(LockTimeoutError):
            store.storage.locks.acquire(key, NOW)
    assert other() is True
    assert [(wait.contended, wait.acquired) for wait in store.watch.waits] == [
        (False, True),
        (True, False),
        (True, False),
        (True, True),
    ]
    waited = store.watch.waits[-1].seconds
    renewal = next(call for call in store.watch.calls if call.operation == "renew")
    assert waited > renewal.seconds > 0
    assert store.watch.outcomes.count(("release", "ok")) == 2
    assert ("acquire", "lock_timeout") in store.watch.outcomes
    assert {call.entity for call in store.watch.calls} == {"locks"}
    after, labels = store.counters.snapshot(), ("scheduler", "locks", store.driver)
    assert after.lock_contention[labels] - before.lock_contention.get(labels, 0) == 3
    waits = after.lock_wait_seconds[labels]
    assert waits.count - (before.lock_wait_seconds[labels].count if before.lock_wait_seconds else 0) == 4
    assert waits.total >= waited


def test_a_renewal_in_the_background_is_observed_too(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    # Soon, and long before the lease is over where the machine is busy.
    monkeypatch.setattr("twinstore.scheduler.held_lock.RENEWALS_PER_LEASE", 600)
    with store.storage.locks.acquire(unique("lock"), NOW, lease=timedelta(minutes=1)) as lock:
        renewed = Event()
        store.watch.calls = cast("list[Call]", Renewals(renewed))
        with lock.keep_alive():
            assert renewed.wait(PATIENCE)


class Renewals(list[object]):
    """Notices a renewal."""

    def __init__(self, renewed: Event) -> None:
        super().__init__()
        self._renewed = renewed

    def append(self, item: object) -> None:
        """Notice it."""
        super().append(item)
        if cast("Call", item).operation == "renew":
            self._renewed.set()


def test_each_opening_of_system_scope_is_reported_with_its_purpose(store: Store) -> None:
    storage = store.storage
    storage.workers.list()
    with storage.sessions.open(purpose="a look at all"):
        pass
    with storage.transaction(purpose="a look at all") as unit:
        unit.workers.list()
    assert [(opening.module, opening.driver, opening.purpose) for opening in store.watch.openings] == [
        ("scheduler", store.driver, purpose)
        for purpose in ("workers", "a look at all", "a look at all", "workers")
    ]


def test_what_was_counted_is_what_was_reported(store: Store) -> None:
    here = store.workspace
    before = store.counters.snapshot().operations
    for _ in range(3):
        store.storage.runs.get(here.tenant, "nothing")
    key = ("scheduler", "runs", "get", store.driver, CallOutcome.OK.value)
    assert store.counters.snapshot().operations[key] - before.get(key, 0) == 3
