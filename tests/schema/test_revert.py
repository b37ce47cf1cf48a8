"""``migrate revert``: the customer's rollback path behind migration 014, on both servers."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, cast

import psycopg
import pytest
from pymongo import MongoClient, monitoring
from pymongo.errors import WriteError

import twinstore
from tests.schema.migrators import DRIVERS, empty_database, killed, ledger_of
from tests.support.copies import invoke, write_config
from tests.support.databases import MONGO_STEPS, POSTGRES_FILES, StartedListener
from twinstore.errors import (
    ConsentRequiredError,
    EffectKind,
    MigrationError,
    MigrationMissingError,
    ValidationError,
)
from twinstore.migrations.migration import Consent
from twinstore.migrations.revert import Reversal, RevertsMigrations
from twinstore.scheduler.module import MODULE
from twinstore.testing.scheduler.graph_jobs import graph_job_event, make_graph_build_job
from twinstore_backfill.outcome import Exit
from twinstore_mongo.schema import migrator as mongo_migrator
from twinstore_mongo.schema.lock import holding
from twinstore_mongo.schema.migrator import LEDGER, MongoInitializer
from twinstore_mongo.schema.revert import Reverter
from twinstore_postgres.schema import migrator, revert
from twinstore_postgres.schema.files import Migration
from twinstore_postgres.schema.migrator import lock_number, shipped_migrations

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pymongo.database import Database

    from tests.support.databases import PostgresDatabase
    from tests.support.servers import Settings
    from twinstore.scheduler.storage import SchedulerStorage

FILE: Final = "014_graph_jobs.sql"
REVERT: Final = (MODULE.migrations("postgres") / "revert" / FILE).read_text(encoding="utf-8")
CUSTOMER_TABLES: Final = (
    "SELECT to_regclass('scheduler.graph_jobs'), to_regclass('scheduler.graph_job_events')"
)
COLUMNS: Final = """
SELECT column_name, data_type, is_nullable, column_default FROM information_schema.columns
 WHERE table_schema = 'scheduler' AND table_name = %s ORDER BY ordinal_position
"""
# As the customer's plan gives them, in its order.
JOBS: Final = [
    ("id", "uuid", "NO", None),
    ("tenant_id", "text", "NO", None),
    ("type", "smallint", "NO", None),
    ("status", "smallint", "NO", None),
    ("payload", "jsonb", "NO", None),
    ("created_at", "timestamp with time zone", "NO", "now()"),
    ("updated_at", "timestamp with time zone", "NO", "now()"),
    ("correlation_id", "text", "YES", None),
]
NUMBERED: Final = "nextval('scheduler.graph_job_events_id_seq'::regclass)"
EVENTS: Final = [
    ("id", "bigint", "NO", NUMBERED),
    ("job_id", "uuid", "NO", None),
    ("tenant_id", "text", "NO", None),
    ("status", "smallint", "NO", None),
    ("payload", "jsonb", "NO", None),
    ("created_at", "timestamp with time zone", "NO", "now()"),
]
INDEXES: Final = {
    "idx_graph_jobs_tenant_status": "(tenant_id, status, created_at DESC)",
    "idx_graph_jobs_tenant_type_status": "(tenant_id, type, status, created_at DESC)",
    "idx_graph_job_events_job": "(job_id, created_at DESC)",
}


def migrate(config: Settings) -> tuple[str, ...]:
    with twinstore.add_scheduler_postgres_storage(config) as storage:
        return storage.initializer.ensure_migrations().applied


@pytest.fixture
def owner(empty_postgres_database: PostgresDatabase) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(empty_postgres_database.owner_url, autocommit=True) as connection:
        migrate(empty_postgres_database.config)
        yield connection


def test_the_tables_are_the_customers_column_by_column(owner: psycopg.Connection[Any]) -> None:
    assert owner.execute(COLUMNS, ["graph_jobs"]).fetchall() == JOBS
    assert owner.execute(COLUMNS, ["graph_job_events"]).fetchall() == EVENTS
    found = owner.execute("SELECT indexname, indexdef FROM pg_indexes WHERE schemaname = 'scheduler'")
    real = dict(found.fetchall())
    for name, columns in INDEXES.items():
        assert real[name].endswith(f" USING btree {columns}")
    (reference,) = owner.execute(
        "SELECT pg_get_constraintdef(oid) FROM pg_constraint WHERE conname = 'graph_job_events_job_id_fkey'"
    ).fetchone() or ("",)
    assert reference == "FOREIGN KEY (job_id) REFERENCES scheduler.graph_jobs(id) ON DELETE CASCADE"


def test_the_revert_does_nothing_in_an_empty_database(empty_postgres_database: PostgresDatabase) -> None:
    with psycopg.connect(empty_postgres_database.owner_url, autocommit=True) as connection:
        connection.execute(REVERT.encode())


def test_the_revert_refuses_while_it_would_lose_rows_that_may_be_nowhere_else(
    owner: psycopg.Connection[Any], empty_postgres_database: PostgresDatabase
) -> None:
    with twinstore.add_scheduler_postgres_storage(empty_postgres_database.config) as storage:
        jobs = [make_graph_build_job("acme", str(number)) for number in range(3)]
        for job in jobs:
            storage.graph_jobs.insert(job)
        storage.graph_jobs.append_event(graph_job_event(jobs[0], "e"))
        for said in (None, "", "2,1", "3,0", "3", "31"):
            if said is not None:
                owner.execute("SELECT set_config('twinstore.kept_elsewhere', %s, false)", [said])
            with pytest.raises(
                psycopg.errors.RaiseException, match=re.escape("3 graph jobs and 1 events")
            ) as no:
                owner.execute(REVERT.encode())
            owner.execute("ROLLBACK")
            assert "kept_elsewhere = '3,1'" in str(no.value.diag.message_hint)
            assert storage.graph_jobs.count_by_status("acme") == {"queued": 3}
        owner.execute("SELECT set_config('twinstore.kept_elsewhere', '3,1', false)")
        storage.graph_jobs.insert(make_graph_build_job("acme", "a fourth one"))
        with pytest.raises(psycopg.errors.RaiseException, match=re.escape("4 graph jobs")):
            owner.execute(REVERT.encode())
        owner.execute("ROLLBACK")
        owner.execute("SELECT set_config('twinstore.kept_elsewhere', '4,1', false)")
        owner.execute(REVERT.encode())
    assert owner.execute(CUSTOMER_TABLES).fetchone() == (None, None)


def test_the_revert_waits_for_migrations_that_run() -> None:
    assert f"pg_advisory_xact_lock({lock_number('scheduler')})" in REVERT


Document = dict[str, Any]
COPY: Final = """
INSERT INTO scheduler.graph_jobs
SELECT gen_random_uuid(), tenant_id, type, status, payload FROM scheduler.graph_jobs
"""
TABLES: Final = ("graph_jobs", "graph_job_events")
NAMES: Final = {"mongo": "014_graph_jobs", "postgres": "014_graph_jobs.sql"}
SHIPPED: Final = {"mongo": list(MONGO_STEPS), "postgres": list(POSTGRES_FILES)}
REST: Final = {driver: [name for name in SHIPPED[driver] if name != NAMES[driver]] for driver in DRIVERS}


@pytest.fixture(params=DRIVERS)
def driver(request: pytest.FixtureRequest) -> str:
    chosen: str = request.param
    return chosen


@pytest.fixture
def settings(driver: str, request: pytest.FixtureRequest) -> Iterator[Settings]:
    if driver == "postgres":
        # Migrated already.
        yield request.getfixturevalue("postgres_database").config
        return
    with empty_database(driver, request) as found:
        yield found


@pytest.fixture
def storage(settings: Settings) -> Iterator[SchedulerStorage]:
    with twinstore.add_scheduler_storage(settings) as opened:
        opened.initializer.ensure_migrations()
        yield opened


def fill(storage: SchedulerStorage, jobs: int = 3) -> None:
    """Store some jobs, the first of them with an event."""
    made = [make_graph_build_job("acme", str(number)) for number in range(jobs)]
    for job in made:
        storage.graph_jobs.insert(job)
    storage.graph_jobs.append_event(graph_job_event(made[0], "e"))


def reverter(storage: SchedulerStorage) -> RevertsMigrations:
    assert isinstance(storage.initializer, RevertsMigrations)
    return storage.initializer


def consent(jobs: int, events: int) -> set[Consent]:
    """Agree to lose this many rows."""
    return {Consent(EffectKind.DROP, name, rows) for name, rows in zip(TABLES, (jobs, events), strict=True)}


def counts(storage: SchedulerStorage) -> dict[str, int]:
    return dict(reverter(storage).reversal("014").rows)


@contextmanager
def database_of(settings: Settings) -> Iterator[Database[Document]]:
    chosen: Any = settings["Persistence"]
    with MongoClient[Document](chosen["Mongo"]["ConnectionString"]) as client:
        yield client[chosen["Mongo"]["Database"]]


def owner_of(settings: Settings) -> psycopg.Connection[Any]:
    chosen: Any = settings["Persistence"]
    return psycopg.connect(chosen["Postgres"]["OwnerConnectionString"], autocommit=True)


def test_what_014_made_and_its_row_of_the_ledger_go_and_nothing_else(
    storage: SchedulerStorage, settings: Settings, driver: str
) -> None:
    before = set(storage.initializer.verify())
    found = reverter(storage).revert("014")
    assert (found.migration, found.rows, found.done) == (NAMES[driver], dict.fromkeys(TABLES, 0), True)
    assert ledger_of(settings) == REST[driver]
    gone = [line for line in storage.initializer.verify() if line not in before]
    assert gone
    assert all("graph_job" in line for line in gone)
    again = reverter(storage).revert("014")
    assert (again.applied, again.rows, again.done) == (False, {}, False)
    assert storage.initializer.ensure_migrations().applied == (NAMES[driver],)
    assert storage.initializer.verify() == ()
    fill(storage)
    assert counts(storage) == {"graph_jobs": 3, "graph_job_events": 1}


def test_rows_that_may_be_nowhere_else_are_kept_until_each_number_is_accepted(
    storage: SchedulerStorage,
) -> None:
    fill(storage)
    options = "--accept-drop graph_jobs=3 --accept-drop graph_job_events=1 --execute"
    for accept in (set[Consent](), consent(2, 1), consent(3, 0)):
        with pytest.raises(ConsentRequiredError, match=f"may be nowhere else.*{options}"):
            reverter(storage).revert("014", accept=accept)
    storage.check_ready()
    storage.graph_jobs.insert(make_graph_build_job("acme", "a fourth one"))
    assert counts(storage) == {"graph_jobs": 4, "graph_job_events": 1}
    assert reverter(storage).revert("014", accept=consent(4, 1)).done


def test_the_command_only_counts_unless_it_is_to_execute(
    storage: SchedulerStorage, settings: Settings, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fill(storage)
    config = write_config(tmp_path / "settings.json", settings)
    command = ("--config", config, "migrate", "revert", "014", "--module", "scheduler")
    dry = invoke(capsys, *command, "--format", "json")
    assert (dry.code, dry.json["done"]) == (0, False)
    assert dry.json["rows"] == {"graph_jobs": 3, "graph_job_events": 1}
    assert "would drop graph_jobs with 3 rows" in invoke(capsys, *command).out
    refused = invoke(capsys, *command, "--execute", "--format", "json")
    assert (refused.code, refused.json["error"]["code"]) == (Exit.PREFLIGHT_REFUSED, "consent_required")
    options = [word for effect in dry.json["effects"] for word in effect["option"].split()]
    done = invoke(capsys, *command, *options, "--execute")
    assert (done.code, "is taken back" in done.out) == (0, True)
    assert "there is nothing to take back" in invoke(capsys, *command, "--execute").out


def test_a_migration_is_named_by_its_name_or_its_number(storage: SchedulerStorage) -> None:
    for name in ("014_graph_jobs", "014_graph_jobs.sql", "014"):
        assert reverter(storage).reversal(name).applied
    for name in ("001", "099", "", "revert", "../014_graph_jobs"):
        for act in (reverter(storage).reversal, reverter(storage).revert):
            with pytest.raises(ValidationError, match="It can take back: 014_graph_jobs"):
                act(name)


def later_migration(
    storage: SchedulerStorage, driver: str, monkeypatch: pytest.MonkeyPatch
) -> RevertsMigrations:
    """Return an initialiser that ships, and has applied, a migration which uses a table of 014."""
    if driver == "postgres":
        late = Migration("016_later.sql", "CREATE INDEX later ON scheduler.graph_jobs (updated_at);")
        for part in (migrator, revert):
            monkeypatch.setattr(
                part, "shipped_migrations", lambda _module: (*shipped_migrations(MODULE), late)
            )
        assert storage.initializer.ensure_migrations().applied == ("016_later.sql",)
        return reverter(storage)
    first = cast("Any", storage.initializer).twinstore_part
    assert isinstance(first, MongoInitializer)
    origin = next(step for step in first.steps if step.name == NAMES["mongo"])
    widened = replace(first, steps=(*first.steps, replace(origin, name="016_later")))
    assert widened.ensure_migrations().applied == ("016_later",)
    return widened


def test_it_is_refused_while_an_applied_migration_uses_its_tables(
    storage: SchedulerStorage, settings: Settings, driver: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    widened = later_migration(storage, driver, monkeypatch)
    with pytest.raises(MigrationError, match=r"016_later.*Take those back first"):
        widened.revert("014")
    assert NAMES[driver] in ledger_of(settings)


def test_a_ledger_that_is_newer_is_refused(
    storage: SchedulerStorage, settings: Settings, driver: str
) -> None:
    if driver == "mongo":
        with database_of(settings) as database:
            row = {"_id": "scheduler:099_future", "migration_name": "099_future", "checksum": "x"}
            database[LEDGER].insert_one(row)
    else:
        with owner_of(settings) as owner:
            owner.execute(
                "INSERT INTO scheduler.schema_migrations"
                " VALUES ('099_future.sql', 'schema', 'x', now(), 'somebody', 1)"
            )
    with pytest.raises(MigrationMissingError, match=r"099_future.*Upgrade twinstore"):
        reverter(storage).revert("014")


def test_a_row_that_comes_after_the_count_stops_it(
    storage: SchedulerStorage, driver: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(storage)
    part, name = (revert, "run") if driver == "postgres" else (Reverter, "_validate")
    original = getattr(part, name)

    def late(*arguments: Any) -> Any:  # noqa: ANN401  # as the original
        monkeypatch.setattr(part, name, original)
        storage.graph_jobs.insert(make_graph_build_job("acme", "late"))
        return original(*arguments)

    monkeypatch.setattr(part, name, late)
    with pytest.raises(ConsentRequiredError, match="drop 4 rows of graph_jobs"):
        reverter(storage).revert("014", accept=consent(3, 1))
    assert counts(storage) == {"graph_jobs": 4, "graph_job_events": 1}
    storage.graph_jobs.insert(make_graph_build_job("acme", "another one"))
    assert storage.initializer.verify() == ()


@pytest.mark.parametrize("driver", ["postgres"])
class TestPostgres:
    def test_it_waits_for_a_writer_and_counts_what_that_wrote(
        self, storage: SchedulerStorage, settings: Settings
    ) -> None:
        fill(storage, 1)
        with owner_of(settings) as owner, ThreadPoolExecutor(1) as pool:
            with owner.transaction():
                owner.execute("SELECT set_config('app.tenant_id', 'system', true)")
                owner.execute(COPY)
                answer = pool.submit(reverter(storage).revert, "014", accept=consent(1, 1))
                await_waiter(settings, "AccessExclusiveLock")
            with pytest.raises(ConsentRequiredError, match="drop 2 rows of graph_jobs"):
                answer.result()

    def test_it_waits_for_a_migration(self, storage: SchedulerStorage, settings: Settings) -> None:
        with owner_of(settings) as owner, ThreadPoolExecutor(1) as pool:
            with owner.transaction():
                owner.execute("SELECT pg_advisory_xact_lock(%s)", [lock_number("scheduler")])
                answer = pool.submit(reverter(storage).revert, "014")
                await_waiter(settings, "ExclusiveLock")
                assert NAMES["postgres"] in ledger_of(settings)
            assert answer.result().done

    def test_a_migration_that_takes_too_long_is_named(
        self, storage: SchedulerStorage, settings: Settings, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(migrator, "LOCK_SECONDS", 1)
        with owner_of(settings) as owner, owner.transaction():
            owner.execute("SELECT pg_advisory_xact_lock(%s)", [lock_number("scheduler")])
            with pytest.raises(MigrationError, match="migrating schema scheduler"):
                reverter(storage).revert("014")

    def test_foreign_objects_that_depend_on_its_tables_are_named(
        self, storage: SchedulerStorage, settings: Settings
    ) -> None:
        with owner_of(settings) as owner:
            owner.execute("CREATE VIEW scheduler.theirs AS SELECT id FROM scheduler.graph_jobs")
            with pytest.raises(MigrationError, match=r"view scheduler\.theirs depends.*Nothing was changed"):
                reverter(storage).revert("014")
        assert counts(storage) == {"graph_jobs": 0, "graph_job_events": 0}

    def test_killed_before_its_end_it_leaves_everything(
        self, storage: SchedulerStorage, settings: Settings
    ) -> None:
        fill(storage)
        accept = {"graph_jobs": 3, "graph_job_events": 1}
        killed(settings, "DROP TABLE", 1, revert="014", accept=accept)
        storage.check_ready()
        assert counts(storage) == accept
        assert reverter(storage).revert("014", accept=consent(3, 1)).done


def await_waiter(settings: Settings, mode: str) -> None:
    """Return once another transaction waits for a lock in this database."""
    with owner_of(settings) as owner:
        waiting = (
            "SELECT FROM pg_locks WHERE NOT granted AND mode = %s"
            " AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
        )
        while owner.execute(waiting, [mode]).rowcount == 0:
            owner.execute("SELECT pg_sleep(0.01)")


@pytest.mark.parametrize("driver", ["mongo"])
class TestMongo:
    def test_no_write_happens_between_the_count_and_the_end(
        self, storage: SchedulerStorage, settings: Settings
    ) -> None:
        fill(storage)
        with database_of(settings) as database:
            refused: list[str] = []

            class Writer(StartedListener):
                def started(self, event: monitoring.CommandStartedEvent) -> None:
                    if event.command_name == "drop" and not refused:
                        for name in TABLES:
                            with pytest.raises(WriteError, match="failed validation"):
                                database[name].insert_one({"_id": "late"})
                            refused.append(name)

            with watching(settings, Writer()) as watched:
                assert watched.revert("014", accept=consent(3, 1)).done
            assert refused == list(TABLES)
            assert not set(TABLES) & set(database.list_collection_names())

    def test_another_migrator_keeps_it_out(
        self, storage: SchedulerStorage, settings: Settings, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(mongo_migrator, "LEASE_TIMEOUT", timedelta(0))
        with (
            database_of(settings) as database,
            holding(database[LEDGER], duration=timedelta(seconds=30), timeout=timedelta(0)),
            pytest.raises(MigrationError, match="Another process has been migrating"),
        ):
            reverter(storage).revert("014")
        assert counts(storage) == {"graph_jobs": 0, "graph_job_events": 0}

    @pytest.mark.parametrize(("number", "validators"), [(1, False), (2, True)])
    def test_killed_on_its_way_it_is_named_and_may_go_on_or_back(
        self, settings: Settings, number: int, *, validators: bool
    ) -> None:
        chosen: Any = settings["Persistence"]
        chosen["Mongo"]["Validators"] = validators
        with twinstore.add_scheduler_storage(settings) as storage:
            storage.initializer.ensure_migrations()
            fill(storage)
            accept = {"graph_jobs": 3, "graph_job_events": 1}
            killed(settings, "drop ", number, revert="014", accept=accept)
            assert any("migrate revert` was interrupted" in line for line in storage.initializer.verify())
            with pytest.raises(MigrationError, match="refuses every write"):
                storage.check_ready()
            left = {"graph_jobs": 3, "graph_job_events": 1} if number == 1 else {"graph_jobs": 3}
            assert counts(storage) == left
            storage.initializer.ensure_migrations()
            assert storage.initializer.verify() == ()
            storage.graph_jobs.insert(make_graph_build_job("acme", "later"))
            killed(settings, "drop ", number, revert="014", accept=accept | {"graph_jobs": 4})
            with pytest.raises(ConsentRequiredError):
                reverter(storage).revert("014")
            storage.initializer.ensure_migrations()
            assert reverter(storage).revert("014", accept=consent(4, 1)).done

    def test_the_shipped_file_names_what_the_step_makes(self, storage: SchedulerStorage) -> None:
        found: Reversal = reverter(storage).reversal("014")
        assert isinstance(storage.initializer, MongoInitializer)
        (step,) = [item for item in storage.initializer.steps if item.name == found.migration]
        assert list(found.rows) == [item.name for item in step.collections]


@contextmanager
def watching(settings: Settings, listener: monitoring.CommandListener) -> Iterator[RevertsMigrations]:
    """Open another storage, whose commands a listener sees."""
    chosen: Any = settings["Persistence"]
    with MongoClient[Document](chosen["Mongo"]["ConnectionString"], event_listeners=[listener]) as client:
        mongo = {"Client": client, "Database": chosen["Mongo"]["Database"]}
        with twinstore.add_scheduler_mongo_storage({"Persistence": {"Mongo": mongo}}) as storage:
            yield reverter(storage)
