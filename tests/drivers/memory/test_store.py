from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Event
from typing import TYPE_CHECKING, Final

import pytest

import twinstore
from twinstore.clock import FixedClock
from twinstore.errors import ConcurrencyError, ConfigurationError, TransactionAbortedError
from twinstore.scheduler.enums import RunState
from twinstore.scheduler.module import MODULE
from twinstore.scheduler.repositories import Runs
from twinstore.scheduler.storage import SchedulerSession, SchedulerStorage
from twinstore.testing.instants import at
from twinstore.testing.scheduler.builders import make_audit_record, make_run, make_schedule
from twinstore_memory.backend import MemoryBackend
from twinstore_memory.store import MemoryDatabase, TableName, Unit, drop_store, shared_store

if TYPE_CHECKING:
    from twinstore.scheduler.runs import Run

TEXTS: Final[TableName[str]] = TableName("texts")
KEY: Final = ("k",)
TENANT: Final = "tenant"


def storage_on(store: MemoryDatabase) -> SchedulerStorage:
    return SchedulerStorage(MemoryBackend(MODULE, store), FixedClock(at(0)))


def put(unit: Unit, text: str) -> None:
    unit.lock(TEXTS, KEY)
    unit.put(TEXTS, KEY, text)


def put_unique(unit: Unit, text: str, *unique: str) -> None:
    unit.lock(TEXTS, KEY, *unique)
    unit.put(TEXTS, KEY, text, unique)


def committed(store: MemoryDatabase) -> str | None:
    return store.begin().get(TEXTS, KEY)


def test_a_unit_waits_for_another_thread_and_then_sees_what_it_committed() -> None:
    store, claimed, asked = MemoryDatabase(), Event(), Event()

    def first() -> None:
        unit = store.begin()
        put(unit, "first")
        claimed.set()
        assert asked.wait(60)
        unit.commit()

    def second() -> str | None:
        assert claimed.wait(60)
        unit = store.begin()
        asked.set()
        unit.lock(TEXTS, KEY)
        return unit.get(TEXTS, KEY)

    with ThreadPoolExecutor(2) as pool:
        pool.submit(first)
        assert pool.submit(second).result(60) == "first"


def test_a_unit_that_waits_too_long_raises_instead_of_hanging() -> None:
    store = MemoryDatabase(patience=0.01)
    put(store.begin(), "never committed")
    with ThreadPoolExecutor(1) as pool, pytest.raises(ConcurrencyError):
        pool.submit(lambda: put(store.begin(), "late")).result(60)


def test_two_units_of_one_thread_conflict_at_once_because_neither_could_wait() -> None:
    store = MemoryDatabase(patience=3600)
    put(store.begin(), "never committed")
    with pytest.raises(ConcurrencyError):
        put(store.begin(), "late")


def test_an_isolated_unit_loses_at_once_to_one_that_wrote_first_and_is_open() -> None:
    store = MemoryDatabase(patience=3600)
    put(store.begin(isolated=True), "never committed")
    with ThreadPoolExecutor(1) as pool, pytest.raises(ConcurrencyError, match="has not ended"):
        pool.submit(lambda: put(store.begin(isolated=True), "late")).result(60)


def test_an_isolated_unit_waits_for_a_step_and_then_loses_if_the_step_changed_the_row() -> None:
    store, claimed = MemoryDatabase(), Event()
    unit = store.begin(isolated=True)
    assert unit.get(TEXTS, KEY) is None

    def step() -> None:
        put(short := store.begin(), "step")
        claimed.set()
        short.commit()

    with ThreadPoolExecutor(1) as pool:
        done = pool.submit(step)
        assert claimed.wait(60)
        with pytest.raises(ConcurrencyError, match="since this one began"):
            put(unit, "late")
        done.result(60)
    assert (unit.get(TEXTS, KEY), committed(store)) == (None, "step")


def test_an_isolated_unit_reads_values_and_unique_values_of_its_first_call() -> None:
    store = MemoryDatabase()
    put_unique(before := store.begin(), "old", "taken")
    before.commit()
    unit = store.begin(isolated=True)
    assert unit.values(TEXTS) == ["old"]
    put_unique(other := store.begin(), "new", "free")
    other.commit()
    put_unique(third := store.begin(), "newer", "free")
    third.commit()
    assert (unit.values(TEXTS), unit.get(TEXTS, KEY)) == (["old"], "old")
    assert (unit.holder(TEXTS, "taken"), unit.holder(TEXTS, "free")) == (KEY, None)
    with pytest.raises(ConcurrencyError, match="since this one began"):
        unit.lock(TEXTS, "free")
    unit.rollback()
    assert store.begin(isolated=True).values(TEXTS) == ["newer"]


def test_the_name_of_a_schedule_is_claimed_before_it_is_committed() -> None:
    store = MemoryDatabase(patience=0.01)
    storage, other = storage_on(store), storage_on(store)
    with storage.transaction(TENANT) as unit:
        unit.schedules.upsert(make_schedule(TENANT, "a", name="one name"))
        with pytest.raises(ConcurrencyError):
            other.schedules.upsert(make_schedule(TENANT, "b", name="one name"))


def test_a_name_that_was_freed_meanwhile_is_a_lost_race_and_no_duplicate() -> None:
    store = MemoryDatabase()
    storage, other = storage_on(store), storage_on(store)
    storage.schedules.upsert(make_schedule(TENANT, "a", name="one name"))

    def taken_from_a(unit: SchedulerSession) -> None:
        assert unit.schedules.get(TENANT, "a")
        other.schedules.upsert(make_schedule(TENANT, "a", name="another"))
        unit.schedules.upsert(make_schedule(TENANT, "b", name="one name"))

    with pytest.raises(ConcurrencyError):
        storage.transact(taken_from_a, tenant_id=TENANT, attempts=1)


def lose(storage: SchedulerStorage, run: Run) -> None:
    """Go on in a unit of work after it has lost against another one."""
    with storage.transaction(TENANT) as loser:
        with pytest.raises(ConcurrencyError):
            loser.runs.create(run)
        with pytest.raises(TransactionAbortedError):
            loser.runs.get(TENANT, run.id)


def test_a_lost_wait_makes_the_unit_unusable() -> None:
    store = MemoryDatabase(patience=0.01)
    storage, competitor = storage_on(store), storage_on(store)
    run = make_run(TENANT, "r")
    with storage.transaction(TENANT) as winner:
        winner.runs.create(run)
        with pytest.raises(TransactionAbortedError):
            lose(competitor, run)
    assert storage.runs.get(TENANT, "r") == run


def test_a_unit_that_has_ended_commits_nothing() -> None:
    store = MemoryDatabase()
    unit = store.begin()
    unit.rollback()
    put(unit, "late")
    with pytest.raises(TransactionAbortedError):
        unit.commit()
    assert committed(store) is None


def test_storages_share_a_store_by_name_and_own_one_without() -> None:
    shared = {"Persistence": {"Scheduler": "Memory", "Memory": {"Store": "unit-test"}}}
    alone = {"Persistence": {"Scheduler": "Memory"}}
    record = make_audit_record(TENANT, "a")
    try:
        for config, found in ((shared, record), (alone, None)):
            with twinstore.open_storage(config) as storage:
                storage.scheduler.audit.append(record)
            with twinstore.open_storage(config) as storage:
                assert storage.scheduler.audit.get(TENANT, "a") == found
    finally:
        drop_store("unit-test")


def test_a_dropped_store_is_forgotten_by_its_name_only() -> None:
    store = shared_store("dropped")
    put(unit := store.begin(), "kept")
    unit.commit()
    drop_store("dropped")
    assert shared_store("dropped") is not store
    assert committed(store) == "kept"
    drop_store("dropped")


def test_bind_joins_a_unit_of_its_own_store_and_no_other() -> None:
    store = MemoryDatabase()
    storage = storage_on(store)
    unit = store.begin()
    storage.bind(unit, TENANT).runs.create(make_run(TENANT, "r"))
    assert storage.runs.get(TENANT, "r") is None
    unit.commit()
    assert storage.runs.get(TENANT, "r") is not None
    with pytest.raises(ConfigurationError, match="a unit of the same store"):
        storage.bind(MemoryDatabase().begin(), TENANT)


def test_a_run_that_was_replaced_by_one_of_another_schedule_is_read_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with storage_on(MemoryDatabase()) as storage:
        run = storage.runs.create(make_run(TENANT, "r", schedule_id="new"))
        found = iter((run.evolve(schedule_id="old"), run))
        monkeypatch.setattr(Runs, "_get", lambda *_: next(found))
        assert storage.runs.cancel(TENANT, run.id, at(9)).state is RunState.CANCELLED
        assert [*found] == []
        assert [item.schedule_id for item in storage.run_summaries.list(TENANT)] == ["new"]
