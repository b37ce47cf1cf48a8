"""What only PostgreSQL has to prove about bulk work: the stage, the savepoints, the locks, the limits."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Generator
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import psycopg
import pytest
from psycopg import sql
from psycopg.types.json import Jsonb

import twinstore
from twinstore.bulk import KeyRange, RangeTally, Record
from twinstore.errors import ConfigurationError, LeaseLostError, MigrationError, UnsupportedCapabilityError
from twinstore.jsontext import dumps_sorted
from twinstore.scheduler.catalog import AUDIT, RUNS, SCHEDULES, TRIGGERS
from twinstore.scheduler.runs import DeltaSummary
from twinstore.testing.builders import digest_text, make_audit_record, make_run, make_schedule, make_trigger
from twinstore_postgres.bulk import importing

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from tests.databases import PostgresDatabase
    from twinstore.bulk import BulkPort, Claim, ImportOutcome, OnConflict
    from twinstore.canonical import CanonicalModel
    from twinstore.catalog import Entity

NOW = datetime(2025, 10, 26, 14, 5, tzinfo=UTC)
# A table as somebody else may have made it.
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


def no_tally(outcome: ImportOutcome) -> RangeTally:
    del outcome
    return RangeTally(read={})


@pytest.fixture
def bulk(module_postgres_database: PostgresDatabase) -> Iterator[BulkPort]:
    with twinstore.add_scheduler_postgres_storage(module_postgres_database.config) as storage:
        yield storage.bulk


@pytest.fixture
def admin(module_postgres_database: PostgresDatabase) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(module_postgres_database.superuser_url, autocommit=True) as connection:
        yield connection


def claimed(bulk: BulkPort, entity: Entity, *, holder: str = "worker") -> Claim:
    """Return a claim on the only range of a new job."""
    ledger, job = bulk.ledger(), uuid4().hex
    ledger.start(job, {}, NOW)
    lease = ledger.acquire(job, holder, LEASE)
    ledger.plan(lease, entity.name, [KeyRange()])
    return ledger.claim(lease, 1)


def records(models: Iterable[CanonicalModel]) -> list[Record]:
    return [Record((str(model.wire()["id"]),), str(model.wire()["tenantId"]), model) for model in models]


def load(
    bulk: BulkPort, entity: Entity, batch: list[Record], *, on_conflict: OnConflict = "fail"
) -> ImportOutcome:
    with bulk.importing() as importer:
        return importer.import_range(
            entity, iter([batch]), on_conflict=on_conflict, claim=claimed(bulk, entity), tally=no_tally
        )


def stamps(connection: psycopg.Connection[Any], table: str, tenant: str) -> list[tuple[Any, ...]]:
    statement = sql.SQL("SELECT xmin::text, ctid::text, id FROM {} WHERE tenant_id = %s ORDER BY id")
    return connection.execute(statement.format(sql.Identifier("scheduler", table)), [tenant]).fetchall()


def test_a_second_import_touches_no_row(bulk: BulkPort, admin: psycopg.Connection[Any], tenant: str) -> None:
    batch = records(make_run(tenant, f"r{number}@{tenant}") for number in range(50))
    assert load(bulk, RUNS, batch).written == {tenant: 50}
    before = stamps(admin, "runs", tenant)
    outcome = load(bulk, RUNS, batch)
    assert (outcome.written, outcome.unchanged) == ({}, {tenant: 50})
    assert load(bulk, RUNS, batch, on_conflict="overwrite").unchanged == {tenant: 50}
    assert stamps(admin, "runs", tenant) == before


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
    monkeypatch.setattr(importing, "CHUNK_ROWS", 7)
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
    assert [(conflict.key, conflict.tenant_id) for conflict in outcome.conflicts] == [((runs[6].id,), tenant)]
    row = admin.execute("SELECT schedule_id FROM scheduler.runs WHERE id = %s", [runs[6].id]).fetchone()
    assert (row == ("other",)) == (on_conflict == "overwrite")


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
    assert [item.reason for item in outcome.rejected] != []
    assert "23503" in outcome.rejected[0].reason


def test_a_value_too_large_for_an_index_is_rejected_without_being_shown(bulk: BulkPort, tenant: str) -> None:
    long_text = "".join(uuid4().hex for _ in range(2000))
    huge = make_run(tenant, f"r@{tenant}").model_copy(update={"schedule_id": long_text})
    fine = make_run(tenant, f"q@{tenant}")
    outcome = load(bulk, RUNS, records([huge, fine]))
    assert outcome.written == {tenant: 1}
    assert "54000" in outcome.rejected[0].reason
    assert long_text[:32] not in outcome.rejected[0].reason


def test_overwriting_raises_the_version_of_the_row(
    bulk: BulkPort, admin: psycopg.Connection[Any], tenant: str
) -> None:
    run = make_run(tenant, f"r@{tenant}")
    load(bulk, RUNS, records([run]))
    outcome = load(bulk, RUNS, records([run.evolve(schedule_id="other")]), on_conflict="overwrite")
    assert [conflict.overwritten for conflict in outcome.conflicts] == [True]
    statement = "SELECT schedule_id, row_version FROM scheduler.runs WHERE id = %s"
    assert admin.execute(statement, [run.id]).fetchone() == ("other", 2)


def test_a_lease_taken_while_a_range_is_written_undoes_the_range(
    bulk: BulkPort, admin: psycopg.Connection[Any], tenant: str
) -> None:
    claim = claimed(bulk, RUNS)

    def batches() -> Iterator[list[Record]]:
        yield records([make_run(tenant, f"r@{tenant}")])
        bulk.ledger().acquire(claim.lease.job_id, "thief", LEASE, dead="worker")

    with bulk.importing() as importer, pytest.raises(LeaseLostError):
        importer.import_range(RUNS, batches(), on_conflict="fail", claim=claim, tally=no_tally)
    assert stamps(admin, "runs", tenant) == []


def test_a_lease_can_be_renewed_while_its_range_is_written(bulk: BulkPort, tenant: str) -> None:
    claim = claimed(bulk, RUNS)

    def batches() -> Iterator[list[Record]]:
        yield records([make_run(tenant, f"r@{tenant}")])
        assert bulk.ledger().renew(claim.lease, LEASE).fence == claim.lease.fence

    with bulk.importing() as importer:
        outcome = importer.import_range(RUNS, batches(), on_conflict="fail", claim=claim, tally=no_tally)
    assert outcome.written == {tenant: 1}


def test_an_importer_goes_on_after_a_failure(bulk: BulkPort, tenant: str) -> None:
    def failing() -> Iterator[list[Record]]:
        yield records([make_run(tenant, f"r@{tenant}")])
        raise ZeroDivisionError

    with bulk.importing() as importer:
        with pytest.raises(ZeroDivisionError):
            importer.import_range(
                RUNS, failing(), on_conflict="fail", claim=claimed(bulk, RUNS), tally=no_tally
            )
        batch = records([make_run(tenant, f"r@{tenant}")])
        outcome = importer.import_range(
            RUNS, iter([batch]), on_conflict="fail", claim=claimed(bulk, RUNS), tally=no_tally
        )
    assert outcome.written == {tenant: 1}


def test_one_importer_serves_several_entities(bulk: BulkPort, tenant: str) -> None:
    with bulk.importing() as importer:
        for entity, model in (
            (SCHEDULES, make_schedule(tenant, f"s@{tenant}")),
            (AUDIT, make_audit_record(tenant, f"a@{tenant}")),
        ):
            claim = claimed(bulk, entity)
            outcome = importer.import_range(
                entity, iter([records([model])]), on_conflict="fail", claim=claim, tally=no_tally
            )
            assert outcome.written == {tenant: 1}


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
        "Postgres": {"ConnectionString": postgres_database.app_url, "StatementTimeoutMs": 50}
    }
    with twinstore.add_scheduler_postgres_storage(config) as storage:
        wide = DeltaSummary(image_digest=digest_text(1), report_url="x" * 4000)
        load(
            storage.bulk,
            RUNS,
            records(make_run(tenant, f"r{n}@{tenant}", deltas=(wide,)) for n in range(500)),
        )
        rows = storage.bulk.export(RUNS, KeyRange(), batch_size=10)
        next(rows)
        with psycopg.connect(postgres_database.app_url) as connection:
            connection.execute("SELECT pg_sleep(0.2)")
        assert sum(map(len, rows)) == 490


def test_an_export_that_is_given_up_frees_its_connection(bulk: BulkPort, tenant: str) -> None:
    load(bulk, RUNS, records(make_run(tenant, f"r{number}@{tenant}") for number in range(200)))
    for _ in range(5):
        rows = bulk.export(RUNS, KeyRange(), batch_size=1)
        next(rows)
        assert isinstance(rows, Generator)
        rows.close()
    assert sum(map(len, bulk.export(RUNS, KeyRange(), tenant_id=tenant))) == 200


@pytest.mark.parametrize("read", ["export", "scan"])
def test_reading_needs_the_memory_of_a_batch_only(bulk: BulkPort, tenant: str, read: str) -> None:
    wide = DeltaSummary(image_digest=digest_text(1), report_url="x" * 20_000)
    models = [make_run(tenant, f"r{number:04}@{tenant}", deltas=(wide,)) for number in range(1000)]
    load(bulk, RUNS, records(models))
    del models
    rows = getattr(bulk, read)(RUNS, KeyRange(), tenant_id=tenant, batch_size=10)
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
    (batch,) = bulk.scan(RUNS, KeyRange(), tenant_id=tenant)
    assert [row.key for row in batch] == [(f"r{number}@{tenant}",) for number in range(3)]
    assert b'"createdAt":"infinity"' in batch[1].content
    assert b'"stats":[1,null,{}]' in batch[1].content
    (exported,) = bulk.export(RUNS, KeyRange(), tenant_id=tenant)
    assert [record.error is None for record in exported] == [True, False, True]


@pytest.mark.parametrize(
    ("stored", "shown"),
    [
        ('{"a": 1.0, "b": 2.00}', b'{"a":1,"b":2}'),
        ("[1.0, 2.5, 0.05]", b"[1,2.5,0.05]"),
        ("3.0", b"3"),
        ('{"a": {"b": null}, "c": [null]}', b'{"a":{},"c":[null]}'),
        ('{"a": "x@6.15.0", "b": ".0,", "c": "\\": null"}', b'{"a":"x@6.15.0","b":".0,","c":"\\": null"}'),
        ('{"a": 1e20, "b": null, "c": 1.0}', dumps_sorted({"a": 1e20, "c": 1})),
    ],
)
def test_a_scan_leaves_out_nulls_and_the_fractions_of_whole_numbers(
    bulk: BulkPort, admin: psycopg.Connection[Any], tenant: str, stored: str, shown: bytes
) -> None:
    load(bulk, RUNS, records([make_run(tenant, f"r@{tenant}")]))
    admin.execute("UPDATE scheduler.runs SET stats = %s WHERE id = %s", [stored, f"r@{tenant}"])
    (row,) = bulk.fetch(RUNS, [(f"r@{tenant}",)])
    assert b'"stats":' + shown + b"," in row.content


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
        rows = storage.bulk.scan(RUNS, KeyRange())
        with pytest.raises(MigrationError, match=message):
            next(rows)
        with pytest.raises(MigrationError, match=message):
            next(storage.bulk.fetch(RUNS, [(f"r@{tenant}",)]))
        assert sum(map(len, storage.bulk.scan(AUDIT, KeyRange()))) == 0


def test_a_scan_shows_values_by_the_types_of_the_server(
    postgres_database: PostgresDatabase, tenant: str
) -> None:
    with psycopg.connect(postgres_database.superuser_url) as admin:
        admin.execute(OTHER_TYPES)
        admin.execute(OTHER_ROW, {"tenant": tenant})
    with twinstore.add_scheduler_postgres_storage(postgres_database.config) as storage:
        ((row,),) = storage.bulk.scan(RUNS, KeyRange())
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
    (row,) = bulk.fetch(RUNS, [(run.id,)])
    assert row.content == dumps_sorted({"doc": run.wire(), "storage": {}})


def test_the_past_cannot_be_read(bulk: BulkPort) -> None:
    assert bulk.position() is None
    with pytest.raises(UnsupportedCapabilityError, match="point in time"):
        bulk.export(RUNS, KeyRange(), as_of="yesterday")
    with pytest.raises(UnsupportedCapabilityError, match="point in time"):
        bulk.scan(RUNS, KeyRange(), as_of="yesterday")
