"""A standalone server: refused by default, and without transactions when it is allowed."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest

import twinstore
import twinstore_embedded
from twinstore.catalog.keys import KeyRange
from twinstore.errors import ConfigurationError, DuplicateError, UnsupportedCapabilityError
from twinstore.ledger import Ledger, RangeTally, ledger
from twinstore.scheduler.catalog import SCHEDULES
from twinstore.scheduler.enums import RunState
from twinstore.testing.instants import START
from twinstore.testing.scheduler.builders import make_run, make_schedule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from twinstore.scheduler.storage import SchedulerStorage

T = "tenant-1"
HOUR = timedelta(hours=1)


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    server = twinstore_embedded.start_mongo(
        tmp_path_factory.mktemp("standalone"), replica_set=False, owned=True
    )
    yield server.url
    server.stop()


def opened(url: str, **settings: object) -> SchedulerStorage:
    mongo = {"ConnectionString": url, "Database": f"db_{uuid4().hex[:8]}", **settings}
    return twinstore.add_scheduler_mongo_storage({"Persistence": {"Mongo": mongo}})


@pytest.fixture
def storage(url: str) -> Iterator[SchedulerStorage]:
    with opened(url, AllowStandalone=True) as storage:
        storage.initializer.ensure_migrations()
        yield storage


def test_a_standalone_server_is_refused_with_a_remedy(url: str) -> None:
    with opened(url) as storage, pytest.raises(ConfigurationError, match="--replSet") as caught:
        storage.runs.get(T, "r-1")
    assert "\n" not in caught.value.message


def test_migrations_run_under_the_lease_and_once(storage: SchedulerStorage) -> None:
    assert storage.initializer.ensure_migrations().applied == ()
    assert storage.initializer.verify() == ()
    storage.check_ready()


def test_what_is_absent_is_declared_and_refused(storage: SchedulerStorage) -> None:
    capabilities = storage.capabilities
    for name in ("transactions", "sessions", "change_stream", "point_in_time_reads"):
        assert not getattr(capabilities, name), name
    assert capabilities.server_ttl
    assert capabilities.server_clock
    with pytest.raises(UnsupportedCapabilityError, match="AllowStandalone"):
        storage.transaction(T).__enter__()
    with pytest.raises(UnsupportedCapabilityError, match="--replSet"):
        storage.sessions.open(T).__enter__()
    with pytest.raises(UnsupportedCapabilityError):
        storage.bulk.view(as_of="1.1").__enter__()
    assert storage.bulk.position() is None


def test_schedules_are_written_with_their_triggers_one_after_the_other(storage: SchedulerStorage) -> None:
    storage.schedules.upsert(make_schedule(T, "s-1", name="a"))
    assert storage.triggers.get(T, "s-1") is not None
    with pytest.raises(DuplicateError, match="name"):
        storage.schedules.upsert(make_schedule(T, "s-2", name="a"))
    run = storage.runs.create(make_run(T, "r-1"))
    assert storage.runs.update(run.evolve(state=RunState.QUEUED))
    assert storage.run_summary_service.project(run.evolve(schedule_id="s-1"), now=START) is not None


def test_an_import_sets_refused_records_aside_and_writes_the_others(
    url: str, storage: SchedulerStorage
) -> None:
    storage.schedules.upsert(make_schedule(T, "mine", name="n-2"))
    with opened(url, AllowStandalone=True) as source:
        source.initializer.ensure_migrations()
        for number in range(5):
            source.schedules.upsert(make_schedule(T, f"s-{number}", name=f"n-{number}"))
        first = copied(source, storage)
        second = copied(source, storage)
    assert first == ({T: 4}, {}, [("s-2",)])
    assert second == ({}, {T: 4}, [("s-2",)])


def test_a_range_stays_whole_until_all_of_its_parts_are_stored(
    storage: SchedulerStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage.bulk.ledger_initializer.ensure_migrations()
    store = Ledger(storage.bulk.access(), atomic=False)
    store.start("job", {}, START)
    store.plan(store.acquire("job", "me", HOUR), SCHEDULES.name, [KeyRange()], coarse=True)
    claim = store.take("job", "worker", SCHEDULES.name, HOUR)
    assert claim is not None
    parts = [KeyRange(None, ("k",)), KeyRange(("k",), None)]

    # Of the first part, which is the last to be made, nothing is known.
    with monkeypatch.context() as patch:
        patch.setattr(ledger, "part_of", lambda own, within: {parts[1]: own}[within])
        with pytest.raises(KeyError):
            store.cut(claim, parts)
    assert [item.within for item in store.ranges("job")] == [KeyRange(), KeyRange()]
    assert store.cut(claim, parts).within == parts[0]
    assert {item.within for item in store.ranges("job")} >= set(parts)


def copied(source: SchedulerStorage, target: SchedulerStorage) -> tuple[object, object, list[object]]:
    """Copy the schedules as one range; return what was written, unchanged and refused."""
    target.bulk.ledger_initializer.ensure_migrations()
    ledger = Ledger(target.bulk.access(), atomic=target.capabilities.transactions)
    ledger.start("job", {}, START)
    lease = ledger.acquire("job", "me", HOUR)
    ledger.plan(lease, SCHEDULES.name, [KeyRange()])
    claim = ledger.take("job", "worker", SCHEDULES.name, HOUR)
    assert claim is not None
    with source.bulk.view() as view, target.bulk.writer(SCHEDULES) as writer:
        for batch in view.records(SCHEDULES, claim.within):
            writer.write(batch)
        outcome = writer.flush()
        ledger.finish(writer.access, claim, RangeTally(read={}, written=outcome.written))
        writer.commit()
    ledger.complete(lease)
    assert ledger.counts("job") == {"live": 1}
    return outcome.written, outcome.unchanged, [item.record.key for item in outcome.rejected]
