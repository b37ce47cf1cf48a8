"""What only PostgreSQL has to prove about bulk work: the stage, the savepoints, the locks, the limits."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from threading import Barrier, Event
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

import psycopg
import pytest
from psycopg import sql
from psycopg.types.json import Jsonb

import twinstore
from tests.support.copies import Pair, fill, open_store
from tests.support.databases import APP_ROLE, PASSWORD
from tests.support.servers import postgres_url
from twinstore.bulk.port import Record
from twinstore.bulk.rows import marked
from twinstore.catalog.keys import KeyRange
from twinstore.catalog.row import Row
from twinstore.catalog.tenancy import ALL_TENANTS, Tenant
from twinstore.config import load_settings
from twinstore.errors import (
    ConcurrencyError,
    ConfigurationError,
    DuplicateError,
    MigrationError,
    Outcome,
    TransactionAbortedError,
    UnavailableError,
    UnsupportedCapabilityError,
    ValidationError,
)
from twinstore.ledger import Ledger, RangeTally
from twinstore.models.json_text import dumps_sorted
from twinstore.scheduler.catalog import AUDIT, RUNS, SCHEDULES, TRIGGERS
from twinstore.scheduler.runs import DeltaSummary
from twinstore.testing.scalars import digest_text
from twinstore.testing.scheduler.builders import make_audit_record, make_run, make_schedule, make_trigger
from twinstore_backfill.copy.report import copy_report
from twinstore_memory.store import drop_store
from twinstore_postgres.bulk import staging

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from tests.support.databases import PostgresDatabase, PostgresServer
    from twinstore.bulk.port import BulkPort, ImportOutcome, OnConflict, RangeWriter
    from twinstore.bulk.rows import ScanRow
    from twinstore.catalog.entity import Entity
    from twinstore.ledger import Claim, Lease
    from twinstore.models.canonical import CanonicalModel
    from twinstore.scheduler.runs import Run

NOW = datetime(2025, 10, 26, 14, 5, tzinfo=UTC)
# A table as another program may have created it.
OTHER_TYPES = b"""
ALTER TABLE scheduler.runs DROP CONSTRAINT runs_state_check, DROP CONSTRAINT runs_trigger_check;
DROP INDEX scheduler.idx_runs_pending;
ALTER TABLE scheduler.runs ALTER deltas DROP DEFAULT;
ALTER TABLE scheduler.runs
    ALTER state TYPE text, ALTER trigger TYPE numeric, ALTER stats TYPE text, ALTER created_at TYPE text,
    ALTER deltas TYPE text[] USING '{}', ALTER retry_of TYPE float8 USING 0
"""
OTHER_ROW = """
INSERT INTO scheduler.runs
    (id, tenant_id, schema_version, state, trigger, stats, deltas, created_at, retry_of)
VALUES ('r', %(tenant)s, 'v', '3', 1.5, '{}', '{x,NULL}', 'now', 2)
"""
LEASE = timedelta(minutes=5)
NO_ROWS = RangeTally(read={})
THREADS = 8
EACH = 20


@pytest.fixture
def bulk(module_postgres_database: PostgresDatabase) -> Iterator[BulkPort]:
    with twinstore.add_scheduler_postgres_storage(module_postgres_database.config) as storage:
        storage.bulk.ledger_initializer.ensure_migrations()
        yield storage.bulk


@pytest.fixture
def admin(module_postgres_database: PostgresDatabase) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(module_postgres_database.superuser_url, autocommit=True) as connection:
        yield connection


def ledger_of(bulk: BulkPort) -> Ledger:
    return Ledger(bulk.access())


def started(bulk: BulkPort, entity: Entity, ranges: int = 1) -> Lease:
    """Return the lease of a new job with some ranges, which overlap because nothing is read from them."""
    ledger, job = ledger_of(bulk), uuid4().hex
    ledger.start(job, {}, NOW)
    lease = ledger.acquire(job, "coordinator", LEASE)
    ledger.plan(lease, entity.name, [KeyRange()] * ranges)
    return lease


def taken(bulk: BulkPort, lease: Lease, entity: Entity) -> Claim:
    claim = ledger_of(bulk).take(lease.job_id, "worker", entity.name, LEASE)
    assert claim is not None
    return claim


def records(models: Iterable[CanonicalModel]) -> list[Record]:
    wires = ((model.wire(), model) for model in models)
    return [Record((str(wire["id"]),), Tenant(str(wire["tenantId"])), model) for wire, model in wires]


def load(
    bulk: BulkPort, entity: Entity, batch: list[Record], *, on_conflict: OnConflict = "fail"
) -> ImportOutcome:
    with bulk.writer(entity, on_conflict=on_conflict) as writer:
        writer.write(batch)
        outcome = writer.flush()
        writer.commit()
    return outcome


@contextmanager
def written(bulk: BulkPort, claim: Claim, batch: list[Record]) -> Iterator[RangeWriter]:
    """Write a range and finish it in the ledger, all but the commit."""
    with bulk.writer(RUNS) as writer:
        writer.write(batch)
        writer.flush()
        ledger_of(bulk).finish(writer.access, claim, NO_ROWS)
        yield writer


def await_lock(connection: psycopg.Connection[Any], backend: int) -> None:
    """Return as soon as a session waits for a lock."""
    waits = "SELECT wait_event_type FROM pg_stat_activity WHERE pid = %s"
    while connection.execute(waits, [backend]).fetchone() != ("Lock",):
        pass


def exported(bulk: BulkPort, tenant: str, batch_size: int = 1000) -> list[Record]:
    with bulk.view() as view:
        batches = view.records(RUNS, KeyRange(), tenant_id=tenant, batch_size=batch_size)
        return [record for batch in batches for record in batch]


def scanned(bulk: BulkPort, run: Run) -> ScanRow:
    with bulk.view() as view:
        (row,) = view.rows_of(RUNS, [(run.id,)])
    return row


def stamps(connection: psycopg.Connection[Any], table: str, tenant: str) -> list[tuple[Any, ...]]:
    statement = sql.SQL("SELECT xmin::text, ctid::text, id FROM {} WHERE tenant_id = %s ORDER BY id")
    return connection.execute(statement.format(sql.Identifier("scheduler", table)), [tenant]).fetchall()


def test_a_key_that_occurs_twice_in_a_range_is_written_once(
    bulk: BulkPort, admin: psycopg.Connection[Any], tenant: str
) -> None:
    first, second = (make_run(tenant, f"{name}@{tenant}") for name in "ab")
    outcome = load(bulk, RUNS, records([first, first, second, second.evolve(schedule_id="other")]))
    assert outcome.written == {tenant: 2}
    assert outcome.unchanged == {tenant: 1}
    assert [conflict.key for conflict in outcome.conflicts] == [(second.id,)]
    assert len(stamps(admin, "runs", tenant)) == 2


def test_a_range_of_several_portions_is_written_like_one(
    bulk: BulkPort, admin: psycopg.Connection[Any], tenant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("twinstore_postgres.bulk.writer.CHUNK_ROWS", 7)
    runs = [make_run(tenant, f"r{number:02}@{tenant}") for number in range(30)]
    load(bulk, RUNS, records(runs[10:12]))
    runs[11] = runs[11].evolve(schedule_id="other")
    runs[20] = runs[20].model_copy(update={"schedule_id": "".join(uuid4().hex for _ in range(2000))})
    outcome = load(bulk, RUNS, records(runs))
    assert (outcome.written, outcome.unchanged) == ({tenant: 27}, {tenant: 1})
    assert [conflict.key for conflict in outcome.conflicts] == [(runs[11].id,)]
    assert [item.record.key for item in outcome.rejected] == [(runs[20].id,)]
    assert len(stamps(admin, "runs", tenant)) == 29


@pytest.mark.parametrize("on_conflict", ["fail", "overwrite"])
@pytest.mark.parametrize("holes", [0, 1])
def test_equal_ends_of_a_range_say_nothing_about_the_rows_between(
    bulk: BulkPort, admin: psycopg.Connection[Any], tenant: str, on_conflict: OnConflict, holes: int
) -> None:
    runs = [make_run(tenant, f"r{number}@{tenant}") for number in range(9)]
    stored = runs[:4] + runs[4 + holes :]
    load(bulk, RUNS, records(stored))
    runs[6] = runs[6].evolve(schedule_id="other")
    outcome = load(bulk, RUNS, records(runs), on_conflict=on_conflict)
    assert sum(outcome.written.values()) == holes + (on_conflict == "overwrite")
    assert outcome.unchanged == {tenant: 8 - holes}
    assert [(item.key, item.owner) for item in outcome.conflicts] == [((runs[6].id,), Tenant(tenant))]
    statement = "SELECT schedule_id, row_version FROM scheduler.runs WHERE id = %s"
    row = admin.execute(statement, [runs[6].id]).fetchone()
    assert (row == ("other", 2)) == (on_conflict == "overwrite")


def test_every_bad_row_of_a_batch_is_found_and_the_others_are_written(
    bulk: BulkPort, admin: psycopg.Connection[Any], tenant: str
) -> None:
    schedules = [make_schedule(tenant, f"s{number:03}@{tenant}", name=f"n{number}") for number in range(100)]
    for number in (7, 8, 50, 99):
        schedules[number] = schedules[number].evolve(name="n0")
    outcome = load(bulk, SCHEDULES, records(schedules))
    assert outcome.written == {tenant: 96}
    assert [item.record.key for item in outcome.rejected] == [
        (f"s{number:03}@{tenant}",) for number in (7, 8, 50, 99)
    ]
    assert all("name" in item.reason or "id" in item.reason for item in outcome.rejected)
    assert len(stamps(admin, "schedules", tenant)) == 96


def test_a_trigger_without_its_schedule_is_rejected(bulk: BulkPort, tenant: str) -> None:
    load(bulk, SCHEDULES, records([make_schedule(tenant, f"s@{tenant}")]))
    batch = records([make_trigger(tenant, f"s@{tenant}"), make_trigger(tenant, f"missing@{tenant}")])
    outcome = load(bulk, TRIGGERS, batch)
    assert outcome.written == {tenant: 1}
    assert [item.reason for item in outcome.rejected] == ["the row that it belongs to is not in the target"]


def test_a_value_too_large_for_an_index_is_rejected_without_being_shown(bulk: BulkPort, tenant: str) -> None:
    long_text = "".join(uuid4().hex for _ in range(2000))
    huge = make_run(tenant, f"r@{tenant}").model_copy(update={"schedule_id": long_text})
    fine = make_run(tenant, f"q@{tenant}")
    outcome = load(bulk, RUNS, records([huge, fine]))
    assert outcome.written == {tenant: 1}
    assert "54000" in outcome.rejected[0].reason
    assert long_text[:32] not in outcome.rejected[0].reason


def test_a_finished_range_that_is_not_committed_holds_up_neither_the_lease_nor_other_ranges(
    bulk: BulkPort, module_postgres_database: PostgresDatabase, tenant: str
) -> None:
    lease = started(bulk, RUNS, ranges=2)
    first, second = (taken(bulk, lease, RUNS) for _ in range(2))
    config = {**module_postgres_database.config}
    # A transaction that waits for a row of the first range gets an error instead of waiting for ever.
    url = f"{module_postgres_database.app_url}?options=-c%20lock_timeout%3D2s"
    config["Persistence"] = {"Postgres": {"ConnectionString": url}}
    with (
        twinstore.add_scheduler_postgres_storage(config) as impatient,
        written(bulk, first, records([make_run(tenant, f"a@{tenant}")])) as writer,
    ):
        ledger = ledger_of(impatient.bulk)
        assert ledger.renew(lease, LEASE).fence == lease.fence
        ledger.heartbeat(lease.job_id, "worker", LEASE)
        with written(impatient.bulk, second, records([make_run(tenant, f"b@{tenant}")])) as other:
            other.commit()
        writer.commit()
    assert ledger_of(bulk).counts(lease.job_id) == {"live": 2}


def test_renewals_go_on_while_every_thread_commits_ranges(bulk: BulkPort, tenant: str) -> None:
    lease = started(bulk, RUNS, ranges=THREADS * EACH)
    ledger, begin = ledger_of(bulk), Barrier(THREADS + 1)
    often = Event()

    def work(number: int) -> None:
        begin.wait()
        for turn in range(EACH):
            if turn == EACH - 1:
                # On a busy machine the renewing thread may rarely run.
                assert often.wait(60), "no renewal came between the commits"
            claim = taken(bulk, lease, RUNS)
            run = make_run(tenant, f"r{number}.{turn}@{tenant}")
            with written(bulk, claim, records([run])) as writer:
                writer.commit()

    with ThreadPoolExecutor(THREADS) as pool:
        results = [pool.submit(work, number) for number in range(THREADS)]
        begin.wait()
        renewed = 0
        while not all(result.done() for result in results):
            assert ledger.renew(lease, LEASE).fence == lease.fence
            renewed += 1
            # One that waited for the end of the load would be alone.
            if renewed > THREADS:
                often.set()
        for result in results:
            result.result()
    assert ledger.counts(lease.job_id) == {"live": THREADS * EACH}


def test_a_writer_that_failed_takes_nothing_more_and_commits_nothing(
    bulk: BulkPort, admin: psycopg.Connection[Any], tenant: str
) -> None:
    run = make_run(tenant, f"r@{tenant}")
    with bulk.writer(RUNS) as writer:
        writer.write(records([run]))
        writer.flush()
        writer.access.insert(RUNS, ALL_TENANTS, Row(make_run(tenant, f"s@{tenant}")))
        with pytest.raises(DuplicateError):
            writer.access.insert(RUNS, ALL_TENANTS, Row(run))
        for use in (lambda: writer.write([]), writer.flush, writer.commit):
            with pytest.raises(TransactionAbortedError):
                use()
    assert stamps(admin, "runs", tenant) == []


def test_a_range_that_deadlocks_with_a_concurrent_writer_may_be_repeated(
    bulk: BulkPort,
    admin: psycopg.Connection[Any],
    module_postgres_database: PostgresDatabase,
    tenant: str,
) -> None:
    runs = [make_run(tenant, f"{name}@{tenant}") for name in "ab"]
    load(bulk, RUNS, records(runs))
    changed = [run.evolve(schedule_id="other") for run in runs]
    touch = "UPDATE scheduler.runs SET schedule_id = 'rival' WHERE id = %s"
    with ThreadPoolExecutor(1) as pool, psycopg.connect(module_postgres_database.superuser_url) as competitor:
        # The other transaction does not check for deadlocks, so the server always aborts that of the range.
        competitor.execute("SET deadlock_timeout = '1h'")
        competitor.execute(touch, [runs[1].id])
        with bulk.writer(RUNS, on_conflict="overwrite") as writer:
            writer.write(records(changed[:1]))
            writer.flush()
            waiting = pool.submit(competitor.execute, touch, [runs[0].id])
            await_lock(admin, competitor.info.backend_pid)
            writer.write(records(changed[1:]))
            with pytest.raises(ConcurrencyError):
                writer.flush()
        waiting.result()
        competitor.rollback()
    assert load(bulk, RUNS, records(changed), on_conflict="overwrite").written == {tenant: 2}


def test_a_connection_serves_one_range_after_the_other(
    bulk: BulkPort, admin: psycopg.Connection[Any], tenant: str
) -> None:
    with bulk.writer(RUNS) as writer:
        writer.write(records([make_run(tenant, f"r@{tenant}")]))
        writer.flush()
    # Those of tests before this one may still end.
    sessions = "SELECT pid FROM pg_stat_activity WHERE datname = current_database()"
    sessions += " AND backend_type = 'client backend'"
    before = set(admin.execute(sessions.encode()).fetchall())
    for entity, model in (
        (RUNS, make_run(tenant, f"r@{tenant}")),
        (SCHEDULES, make_schedule(tenant, f"s@{tenant}")),
        (AUDIT, make_audit_record(tenant, f"a@{tenant}")),
        (RUNS, make_run(tenant, f"q@{tenant}")),
    ):
        assert load(bulk, entity, records([model])).written == {tenant: 1}
    # A pool that is asked on a busy machine may open one more, and give back another one first.
    assert len(set(admin.execute(sessions.encode()).fetchall()) - before) <= 1


KILL_ALL = (
    "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity"
    " WHERE datname = current_database() AND application_name = 'twinstore'"
)


@pytest.mark.parametrize("step", ["write", "remove", "flush", "access", "commit"])
def test_a_connection_lost_before_the_commit_leaves_nothing(
    postgres_database: PostgresDatabase, tenant: str, step: str
) -> None:
    run = make_run(tenant, f"r@{tenant}")
    with (
        twinstore.add_scheduler_postgres_storage(postgres_database.config) as storage,
        psycopg.connect(postgres_database.superuser_url, autocommit=True) as admin,
    ):
        with storage.bulk.writer(RUNS) as writer:
            uses = {
                "write": lambda: writer.write([record for _ in range(2600) for record in records([run])]),
                "remove": lambda: writer.remove([(run.id,)]),
                "flush": writer.flush,
                "access": lambda: writer.access.insert(RUNS, ALL_TENANTS, Row(run.evolve(id="other"))),
                "commit": writer.commit,
            }
            writer.write(records([run]))
            admin.execute(KILL_ALL)
            with pytest.raises(UnavailableError) as lost:
                uses[step]()
            assert lost.value.outcome is Outcome.NOT_APPLIED
        assert storage.bulk.counts(RUNS) == {}
        assert load(storage.bulk, RUNS, records([run])).written == {tenant: 1}


def test_connections_that_died_while_idle_are_not_checked_out_again(
    postgres_database: PostgresDatabase, tenant: str
) -> None:
    with (
        twinstore.add_scheduler_postgres_storage(postgres_database.config) as storage,
        psycopg.connect(postgres_database.superuser_url, autocommit=True) as admin,
    ):
        for number in range(3):
            assert load(storage.bulk, RUNS, records([make_run(tenant, f"r{number}")])).written == {tenant: 1}
            admin.execute(KILL_ALL)
            assert storage.bulk.counts(RUNS) == {tenant: number + 1}
            admin.execute(KILL_ALL)


def test_a_writer_is_of_no_use_after_its_end(bulk: BulkPort, tenant: str) -> None:
    with bulk.writer(RUNS) as writer:
        access = writer.access
        writer.commit()
    for use in (
        lambda: writer.write([]),
        writer.flush,
        writer.commit,
        lambda: access.insert(RUNS, ALL_TENANTS, Row(make_run(tenant, "late"))),
    ):
        with pytest.raises(TransactionAbortedError, match="has ended"):
            use()


def test_keys_that_no_row_can_have_are_neither_found_nor_removed(bulk: BulkPort, tenant: str) -> None:
    run = make_run(tenant, f"r@{tenant}")
    load(bulk, RUNS, records([run]))
    keys = [("a\x00b",), (run.id,), ("\ud800",)]
    with bulk.view() as view:
        assert [record.key for record in view.records_of(RUNS, keys)] == [(run.id,)]
        assert [row.key for row in view.rows_of(RUNS, keys)] == [(run.id,)]
    with bulk.writer(RUNS) as writer:
        writer.remove(keys)
        assert writer.flush().removed == 1
        writer.commit()


def test_a_row_is_removed_after_the_records_before_it_were_written(bulk: BulkPort, tenant: str) -> None:
    run = make_run(tenant, f"r@{tenant}")
    with bulk.writer(RUNS) as writer:
        writer.write(records([run]))
        writer.remove([(run.id,)])
        outcome = writer.flush()
        writer.commit()
    assert (outcome.written, outcome.removed) == ({tenant: 1}, 1)
    assert exported(bulk, tenant) == []


def test_a_missing_right_to_temporary_tables_is_explained(
    postgres_database: PostgresDatabase, tenant: str
) -> None:
    with psycopg.connect(postgres_database.superuser_url, autocommit=True) as admin:
        revoke = sql.SQL("REVOKE TEMPORARY ON DATABASE {} FROM PUBLIC")
        admin.execute(revoke.format(sql.Identifier(postgres_database.name)))
    with (
        twinstore.add_scheduler_postgres_storage(postgres_database.config) as storage,
        pytest.raises(ConfigurationError, match="GRANT TEMPORARY ON DATABASE"),
    ):
        load(storage.bulk, RUNS, records([make_run(tenant, f"r@{tenant}")]))


def test_streaming_outlasts_the_limit_on_statements(postgres_database: PostgresDatabase, tenant: str) -> None:
    config = {**postgres_database.config}
    config["Persistence"] = {
        "Postgres": {"ConnectionString": postgres_database.app_url, "StatementTimeoutMs": 1000}
    }
    with twinstore.add_scheduler_postgres_storage(config) as storage:
        wide = DeltaSummary(image_digest=digest_text(1), report_url="x" * 4000)
        load(
            storage.bulk,
            RUNS,
            records(make_run(tenant, f"r{n}@{tenant}", deltas=(wide,)) for n in range(500)),
        )
        with storage.bulk.view() as view:
            rows = view.records(RUNS, KeyRange(), batch_size=10)
            next(rows)
            with psycopg.connect(postgres_database.app_url) as connection:
                connection.execute("SELECT pg_sleep(1.2)")
            assert sum(map(len, rows)) == 490


def test_an_abandoned_list_does_not_end_its_view(
    bulk: BulkPort, admin: psycopg.Connection[Any], tenant: str
) -> None:
    load(bulk, RUNS, records(make_run(tenant, f"r{number}@{tenant}") for number in range(200)))
    with bulk.view() as view:
        for read in (view.records, view.rows) * 3:
            rows = read(RUNS, KeyRange(), batch_size=1)
            next(rows)
            assert isinstance(rows, Generator)
            rows.close()
        admin.execute("DELETE FROM scheduler.runs WHERE tenant_id = %s", [tenant])
        assert sum(map(len, view.records(RUNS, KeyRange(), tenant_id=tenant))) == 200
    assert exported(bulk, tenant) == []


def test_a_view_shows_one_state_in_all_its_lists(bulk: BulkPort, tenant: str) -> None:
    kept, gone, later = (make_run(tenant, f"{name}@{tenant}") for name in ("kept", "gone", "later"))
    load(bulk, RUNS, records([gone, kept]))
    keys = [(gone.id,), (kept.id,)]
    with bulk.view() as view:
        assert [item.key for item in view.records_of(RUNS, keys[:1])] == keys[:1]
        with bulk.writer(RUNS) as writer:
            writer.write(records([later]))
            writer.remove([(gone.id,)])
            writer.flush()
            writer.commit()
        assert view.position is None
        assert [item.key for batch in view.rows(RUNS, KeyRange(), tenant_id=tenant) for item in batch] == keys
        assert sorted(item.key or () for item in view.records_of(RUNS, [*keys, (later.id,)])) == keys
    assert [record.key for record in exported(bulk, tenant)] == [(kept.id,), (later.id,)]


def test_a_view_reads_one_list_at_a_time_and_none_after_its_end(bulk: BulkPort, tenant: str) -> None:
    load(bulk, RUNS, records(make_run(tenant, f"{name}@{tenant}") for name in "ab"))
    with bulk.view() as view:
        first = view.records(RUNS, KeyRange(), tenant_id=tenant, batch_size=1)
        next(first)
        with pytest.raises(ValidationError, match="reading a list already"):
            next(view.rows(RUNS, KeyRange(), tenant_id=tenant))
        assert sum(map(len, first)) == 1
        left = view.rows(RUNS, KeyRange(), tenant_id=tenant, batch_size=1)
        next(left)
    assert list(left) == []
    with pytest.raises(TransactionAbortedError, match="This view has ended"):
        next(view.rows(RUNS, KeyRange()))


@pytest.mark.parametrize("read", ["records", "rows"])
def test_reading_needs_the_memory_of_a_batch_only(bulk: BulkPort, tenant: str, read: str) -> None:
    wide = DeltaSummary(image_digest=digest_text(1), report_url="x" * 20_000)
    models = [make_run(tenant, f"r{number:04}@{tenant}", deltas=(wide,)) for number in range(1000)]
    load(bulk, RUNS, records(models))
    del models
    with bulk.view() as view:
        rows = getattr(view, read)(RUNS, KeyRange(), tenant_id=tenant, batch_size=10)
        tracemalloc.start()
        try:
            assert sum(map(len, rows)) == 1000
            assert tracemalloc.get_traced_memory()[1] < 4_000_000
        finally:
            tracemalloc.stop()


def test_a_scan_goes_on_past_values_that_no_model_takes(
    bulk: BulkPort, admin: psycopg.Connection[Any], tenant: str
) -> None:
    load(bulk, RUNS, records(make_run(tenant, f"r{number}@{tenant}") for number in range(3)))
    stats = Jsonb([1.0, None, {"a": None}])
    change = "UPDATE scheduler.runs SET created_at = 'infinity', stats = %s WHERE id = %s"
    admin.execute(change, [stats, f"r1@{tenant}"])
    with bulk.view() as view:
        (batch,) = view.rows(RUNS, KeyRange(), tenant_id=tenant)
    assert [row.key for row in batch] == [(f"r{number}@{tenant}",) for number in range(3)]
    assert b'"createdAt":"infinity"' in batch[1].content
    assert b'"stats":' + dumps_sorted([odd("1.0"), None, {"a": None}]) in batch[1].content
    assert [record.error is None for record in exported(bulk, tenant)] == [True, False, True]


# Behind another integer part as well: what counts is how many digits there are on both sides of the point.
LONG: Final = "0.1234567890123456789"
SPLIT: Final = "5.1234567890123"


def odd(text: str) -> dict[str, object]:
    """Return a number as a scan shows it that no driver writes."""
    return marked("number", text)


def long(value: int) -> dict[str, object]:
    """Return an integer as a scan shows it that no model can hold."""
    return marked("more digits than 64 bits have", str(value))


@pytest.mark.parametrize(
    ("stored", "shown"),
    [
        ('{"a": 1.0, "b": 2.00}', dumps_sorted({"a": odd("1.0"), "b": odd("2.00")})),
        ("[1.0, 2.5, 0.00005]", dumps_sorted([odd("1.0"), 2.5, 0.00005])),
        ("3.0", dumps_sorted(odd("3.0"))),
        (f"[2.50, {LONG}]", dumps_sorted([odd("2.50"), marked("more digits than a double has", LONG)])),
        (f"[1234{SPLIT}]", dumps_sorted([marked("more digits than a double has", f"1234{SPLIT}")])),
        ("[9223372036854775807, 9223372036854775808]", dumps_sorted([2**63 - 1, long(2**63)])),
        ('{"a": {"b": null}, "c": [null]}', b'{"a":{"b":null},"c":[null]}'),
        ('{"a": "x@6.15.0", "b": ".0,", "c": "\\": null"}', b'{"a":"x@6.15.0","b":".0,","c":"\\": null"}'),
        (
            '{"a": 1e20, "b": null, "c": 1.0}',
            dumps_sorted({"a": long(10**20), "b": None, "c": odd("1.0")}),
        ),
    ],
)
def test_a_scan_keeps_nulls_and_marks_numbers_that_no_driver_writes(
    bulk: BulkPort, admin: psycopg.Connection[Any], tenant: str, stored: str, shown: bytes
) -> None:
    run = make_run(tenant, f"r@{tenant}")
    load(bulk, RUNS, records([run]))
    admin.execute("UPDATE scheduler.runs SET stats = %s WHERE id = %s", [stored, run.id])
    assert b'"stats":' + shown + b"," in scanned(bulk, run).content


def test_a_scan_distinguishes_a_list_that_begins_elsewhere_from_the_one_in_json(
    bulk: BulkPort, admin: psycopg.Connection[Any], tenant: str
) -> None:
    schedule = make_schedule(tenant, f"s@{tenant}", subscribers=("a", "b"))
    load(bulk, SCHEDULES, records([schedule]))
    shown = []
    for value in ("{a,b}", "[0:1]={a,b}"):
        admin.execute("UPDATE scheduler.schedules SET subscribers = %s WHERE tenant_id = %s", [value, tenant])
        with bulk.view() as view:
            (batch,) = view.rows(SCHEDULES, KeyRange(), tenant_id=tenant)
        shown += [json.loads(row.content)["doc"]["subscribers"] for row in batch]
    assert shown == [["a", "b"], marked("bounds", ["a", "b"])]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("ADD COLUMN extra int", r"description of runs does not know column extra of table scheduler\.runs"),
        (
            "DROP COLUMN retry_of",
            r"table scheduler\.runs lacks column retry_of, which the description of runs",
        ),
        ("RENAME COLUMN error TO fault", "does not know column fault"),
    ],
)
def test_a_scan_refuses_a_table_that_is_not_described(
    postgres_database: PostgresDatabase, tenant: str, change: str, message: str
) -> None:
    with twinstore.add_scheduler_postgres_storage(postgres_database.config) as storage:
        load(storage.bulk, RUNS, records([make_run(tenant, f"r@{tenant}")]))
    with psycopg.connect(postgres_database.owner_url, autocommit=True) as owner:
        owner.execute(f"ALTER TABLE scheduler.runs {change}".encode())
    with twinstore.add_scheduler_postgres_storage(postgres_database.config) as storage:
        with storage.bulk.view() as view, pytest.raises(MigrationError, match=message):
            next(view.rows(RUNS, KeyRange()))
        with storage.bulk.view() as view, pytest.raises(MigrationError, match=message):
            next(view.rows_of(RUNS, [(f"r@{tenant}",)]))
        with storage.bulk.view() as view:
            assert list(view.rows(AUDIT, KeyRange())) == []


def test_a_scan_shows_values_by_the_types_of_the_server(
    postgres_database: PostgresDatabase, tenant: str
) -> None:
    with psycopg.connect(postgres_database.superuser_url) as admin:
        admin.execute(OTHER_TYPES)
        admin.execute(OTHER_ROW, {"tenant": tenant})
    with (
        twinstore.add_scheduler_postgres_storage(postgres_database.config) as storage,
        storage.bulk.view() as view,
    ):
        ((row,),) = view.rows(RUNS, KeyRange())
    assert json.loads(row.content)["doc"] == {
        "id": "r",
        "tenantId": tenant,
        "schemaVersion": "v",
        "state": "3",
        "trigger": 1.5,
        "stats": "{}",
        "deltas": ["x", None],
        "createdAt": "now",
        "retryOf": 2,
    }


@pytest.mark.parametrize(
    "text", ["tab\tand\nline\\end", "\\N", "ünïcödé 🦉", "quote\"'", " ", "\x01\x1f\x7f"]
)
def test_the_scan_reads_every_text_as_it_was_written(bulk: BulkPort, tenant: str, text: str) -> None:
    run = make_run(tenant, f"r@{tenant}", schedule_id=f"x{text}x")
    load(bulk, RUNS, records([run]))
    assert scanned(bulk, run).content == dumps_sorted({"doc": run.wire(), "storage": {}})


def test_the_past_cannot_be_read(bulk: BulkPort) -> None:
    assert bulk.position() is None
    with pytest.raises(UnsupportedCapabilityError, match="point in time"), bulk.view(as_of="yesterday"):
        pass


def test_a_tenant_that_would_look_like_another_label_counts_as_unknown(
    bulk: BulkPort, admin: psycopg.Connection[Any], tenant: str
) -> None:
    run = make_run(tenant, f"r@{tenant}")
    load(bulk, RUNS, records([run]))
    admin.execute("UPDATE scheduler.runs SET tenant_id = ':none' WHERE id = %s", [run.id])
    counts = bulk.counts(RUNS)
    assert (counts[""], counts.get(":none"), counts.get(tenant)) == (1, None, None)
    with bulk.view() as view:
        (record,), row = list(view.records_of(RUNS, [(run.id,)])), scanned(bulk, run)
    assert (record.label, row.label) == ("", "")
    admin.execute("DELETE FROM scheduler.runs WHERE id = %s", [run.id])


def test_a_server_that_does_not_report_its_number_is_distinguished_anyway(
    postgres_database: PostgresDatabase, module_postgres_database: PostgresDatabase
) -> None:
    def identity(database: PostgresDatabase) -> str:
        with twinstore.add_scheduler_postgres_storage(database.config) as storage:
            return storage.bulk.identity

    told = identity(postgres_database)
    with psycopg.connect(postgres_database.superuser_url, autocommit=True) as admin:
        admin.execute("REVOKE EXECUTE ON FUNCTION pg_control_system() FROM PUBLIC")
    hidden = identity(postgres_database)
    assert len({told, hidden, identity(module_postgres_database)}) == 3
    assert identity(postgres_database) == hidden


ENDED: Final = "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE usename = %s"


@pytest.fixture
def memory() -> Iterator[str]:
    name = uuid4().hex
    yield name
    drop_store(name)


@contextmanager
def role(database: PostgresDatabase, attribute: str = "BYPASSRLS") -> Iterator[str]:
    """Make a role for a copy; yield its connection string."""
    name = f"bulk_{uuid4().hex}"
    with psycopg.connect(database.superuser_url, autocommit=True) as admin:
        admin.execute(
            f"CREATE ROLE {name} LOGIN {attribute} PASSWORD '{PASSWORD}' IN ROLE {APP_ROLE}".encode()
        )
        try:
            yield postgres_url(database.app_url, user=name)
        finally:
            # Closed on this side they may still be there, with temporary tables of the role.
            admin.execute(ENDED, [name])
            admin.execute(sql.SQL("DROP ROLE {}").format(sql.Identifier(name)))


def settings_of(database: PostgresDatabase, memory: str, bulk: str | None) -> dict[str, Any]:
    persistence = database.config["Persistence"]
    assert isinstance(persistence, dict)
    postgres = {**persistence["Postgres"], **({} if bulk is None else {"BulkConnectionString": bulk})}
    return {"Persistence": {**persistence, "Postgres": postgres, "Memory": {"Store": memory}}}


@contextmanager
def pair(database: PostgresDatabase, memory: str, bulk: str | None, directory: Path) -> Iterator[Pair]:
    """Open a source in memory and a target that has the role."""
    loaded = load_settings(settings_of(database, memory, bulk), environ={})
    with (
        open_store("scheduler", "memory", loaded) as source,
        open_store("scheduler", "postgres", loaded) as right,
    ):
        yield Pair(source, right, directory)


def straight_copies(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """Collect the statements that fill a table or a stage."""
    filled: list[bytes] = []
    before = staging.Stage._fill  # noqa: SLF001  # what is observed

    def fill_noted(self: staging.Stage, statement: bytes, rows: staging.StagedRows) -> None:
        filled.append(statement)
        before(self, statement, rows)

    monkeypatch.setattr(staging.Stage, "_fill", fill_noted)
    return filled


def test_rows_go_straight_into_empty_ranges_and_through_the_stage_elsewhere(
    postgres_server: PostgresServer, memory: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled = straight_copies(monkeypatch)
    reports: list[dict[str, Any]] = []
    for bypassing in (True, False):
        with postgres_server.migrated_database() as target, role(target) as bulk:
            with pair(target, memory, bulk if bypassing else None, tmp_path) as stores:
                if bypassing:
                    fill(stores.source.storage)
                first = copy_report(stores.copy()).document()
                straight = [item for item in filled if b"pg_temp" not in item]
                assert bool(straight) == bypassing
                filled.clear()
                with psycopg.connect(target.superuser_url, autocommit=True) as admin:
                    admin.execute(b"DELETE FROM scheduler.runs WHERE id LIKE '%-1'")
                second = copy_report(stores.copy()).document()
                assert all(b"pg_temp" in item for item in filled if b"runs" in item)
                filled.clear()
                assert stores.verify().verdict == "PASS"
            names = ("totals", "entities", "quarantine", "conflicts", "state")
            reports.append(
                {f"{name} {at}": report[name] for at, report in enumerate((first, second)) for name in names}
            )
    assert reports[0] == reports[1]
    assert reports[0]["totals 0"]["written"]


def test_a_role_that_is_bound_is_refused(
    postgres_server: PostgresServer, memory: str, tmp_path: Path
) -> None:
    with (
        postgres_server.migrated_database() as target,
        role(target, "NOBYPASSRLS") as bulk,
        pair(target, memory, bulk, tmp_path) as stores,
    ):
        fill(stores.source.storage)
        with pytest.raises(ConfigurationError, match="BYPASSRLS, or remove the setting"):
            stores.copy()
        assert not stores.target.bulk.counts(RUNS)


def test_a_role_of_another_database_is_refused(
    postgres_server: PostgresServer, memory: str, tmp_path: Path
) -> None:
    with (
        postgres_server.migrated_database() as target,
        postgres_server.migrated_database() as other,
        role(other) as bulk,
        pair(target, memory, bulk, tmp_path) as stores,
    ):
        fill(stores.source.storage)
        with pytest.raises(ConfigurationError, match="leads to another database"):
            stores.copy()
        assert not stores.target.bulk.counts(RUNS)
