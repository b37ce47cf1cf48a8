"""From what state a migration may begin, on both servers: empty, half done, changed, without rights."""

from __future__ import annotations

import tempfile
from typing import TYPE_CHECKING, Any, Final

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict
from pymongo import MongoClient

import twinstore
import twinstore_embedded
from tests.schema.migrators import DRIVERS, at_once, empty_database, killed, ledger_of
from tests.support.copies import invoke, write_config
from tests.support.databases import MONGO_STEPS, POSTGRES_FILES
from tests.support.servers import mongo_config
from twinstore.errors import ConfigurationError, MigrationChecksumError, MigrationError
from twinstore.migrations.migration import MigrationState
from twinstore.scheduler.module import MODULE
from twinstore.testing.scheduler.graph_jobs import graph_job_event, make_graph_build_job
from twinstore_backfill.outcome import Exit
from twinstore_mongo.client import connection
from twinstore_postgres.connection import target
from twinstore_postgres.schema import migrator
from twinstore_postgres.schema.files import Migration
from twinstore_postgres.schema.migrator import shipped_migrations

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.databases import PostgresDatabase
    from tests.support.servers import Settings
    from twinstore.scheduler.storage import SchedulerStorage

Document = dict[str, Any]
ACTS: Final = ("ensure_migrations", "effects", "status", "verify")
SHIPPED: Final = {"mongo": list(MONGO_STEPS), "postgres": list(POSTGRES_FILES)}
LATER: Final = {"mongo": "012_create_execution_logs", "postgres": "012_create_execution_logs.sql"}
PROCESSES: Final = 8
ADD_EVENTS: Final = """
INSERT INTO scheduler.graph_job_events (job_id, tenant_id, status, payload)
SELECT job_id, tenant_id, status, payload || jsonb_build_object('eventId', %s::text, 'secret', 1)
  FROM (SELECT * FROM scheduler.graph_job_events ORDER BY id LIMIT 1) AS e, generate_series(1, %s)
"""


@pytest.fixture(params=DRIVERS)
def driver(request: pytest.FixtureRequest) -> str:
    chosen: str = request.param
    return chosen


@pytest.fixture
def settings(driver: str, request: pytest.FixtureRequest) -> Iterator[Settings]:
    with empty_database(driver, request) as found:
        yield found


def migrate(settings: Settings) -> tuple[str, ...]:
    with twinstore.add_scheduler_storage(settings) as storage:
        applied = storage.initializer.ensure_migrations().applied
        assert storage.initializer.verify() == ()
        return applied


def tamper(settings: Settings, **changes: str) -> None:
    """Change or remove rows of the ledger: a checksum by name of the migration, empty for none."""
    chosen: Any = settings["Persistence"]
    if "Mongo" in chosen:
        with MongoClient[Document](chosen["Mongo"]["ConnectionString"]) as client:
            ledger = client[chosen["Mongo"]["Database"]]["_migrations"]
            for name, checksum in changes.items():
                if checksum:
                    ledger.update_one({"migration_name": name}, {"$set": {"checksum": checksum}})
                else:
                    ledger.delete_one({"migration_name": name})
        return
    with psycopg.connect(chosen["Postgres"]["OwnerConnectionString"], autocommit=True) as owner:
        for name, checksum in changes.items():
            owner.execute(
                "UPDATE scheduler.schema_migrations SET checksum = %s WHERE migration_name = %s",
                [checksum, name],
            )
            owner.execute("DELETE FROM scheduler.schema_migrations WHERE checksum = ''")


def test_eight_processes_that_begin_together_all_end_well_and_one_applies_each(
    settings: Settings, driver: str
) -> None:
    reports = at_once(settings, PROCESSES)
    assert sorted(name for report in reports for name in report["applied"]) == SHIPPED[driver]
    assert ledger_of(settings) == SHIPPED[driver]
    assert migrate(settings) == ()


def test_the_command_says_that_there_is_nothing_to_do(
    settings: Settings, driver: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = write_config(tmp_path / "settings.json", settings)
    command = ("--config", config, "migrate", "run", "--module", "scheduler")
    first = invoke(capsys, *command)
    assert [line for line in first.out.splitlines() if line.startswith("applied")] == [
        f"applied {name}" for name in SHIPPED[driver]
    ]
    assert invoke(capsys, *command).out == "Everything is already applied.\n"


def test_missing_migrations_run_in_order_of_number_also_below_others(settings: Settings, driver: str) -> None:
    migrate(settings)
    gone = [name for name in SHIPPED[driver] if name[:3] in {"012", "014"}]
    tamper(settings, **dict.fromkeys(gone, ""))
    assert migrate(settings) == tuple(gone)
    assert ledger_of(settings) == SHIPPED[driver]


def test_a_changed_checksum_is_named_with_both_and_nothing_is_changed(
    settings: Settings, driver: str
) -> None:
    migrate(settings)
    pending, changed = SHIPPED[driver][-1], LATER[driver]
    tamper(settings, **{pending: "", changed: "an older text"})
    before = ledger_of(settings)
    with twinstore.add_scheduler_storage(settings) as storage:
        shipped = {item.name: item.checksum for item in storage.initializer.status()}
        said = (
            rf"{changed}.*applied as an older text, shipped as {shipped[changed]}.*othing was changed.*estore"
        )
        for act in (storage.initializer.ensure_migrations, storage.check_ready):
            with pytest.raises(MigrationChecksumError, match=said):
                act()
        assert f"Migration {changed} is changed. To fix: restore" in " ".join(storage.initializer.verify())
    assert ledger_of(settings) == before


TOO_OLD: Final = {
    "mongo": (connection, "OLDEST_SERVER", (99, 0), "needs 99.0 or newer"),
    "postgres": (target, "OLDEST_VERSION", 990_000, "is too old"),
}


def test_a_server_that_is_too_old_is_refused_before_anything_is_changed(
    settings: Settings,
    driver: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    """The server is a real one; what changes is which one is old enough."""
    module, name, value, said = TOO_OLD[driver]
    config = write_config(tmp_path / "settings.json", settings)
    with monkeypatch.context() as patch:
        patch.setattr(module, name, value)
        with twinstore.add_scheduler_storage(settings) as storage:
            initializer = storage.initializer
            ledger = storage.bulk.ledger_initializer
            for act in (
                *(getattr(it, name) for it in (initializer, ledger) for name in ACTS),
                storage.check_ready,
            ):
                with pytest.raises(ConfigurationError, match=said):
                    act()
        for command in ("plan", "run"):
            answer = invoke(capsys, "--config", config, "migrate", command, "--module", "scheduler")
            assert answer.code == Exit.PREFLIGHT_REFUSED
            assert said in answer.err
    with twinstore.add_scheduler_storage(settings) as storage:
        for states in (storage.initializer.status(), storage.bulk.ledger_initializer.status()):
            assert {item.state for item in states} == {MigrationState.PENDING}
    assert migrate(settings) == tuple(SHIPPED[driver])


RECORDED: Final = 'INSERT INTO "scheduler".schema_migrations'
KILLS: Final = {
    "postgres": [("CREATE TABLE IF NOT EXISTS scheduler.graph_jobs", 1), (RECORDED, 1), (RECORDED, 7)],
    "mongo": [("create graph_jobs", 1), ("createIndexes graph_job_events", 1), ("update _migrations", 4)],
}


@pytest.mark.parametrize(
    ("driver", "word", "number"),
    [(driver, *kill) for driver in DRIVERS for kill in KILLS[driver]],
    indirect=["driver"],
)
def test_a_migration_that_was_killed_is_run_again(
    settings: Settings, driver: str, word: str, number: int
) -> None:
    killed(settings, word, number)
    # On PostgreSQL the first transaction makes the ledger too.
    begun = [] if (word, number) == (RECORDED, 1) else ledger_of(settings)
    assert begun == SHIPPED[driver][: len(begun)]
    assert len(begun) < len(SHIPPED[driver])
    assert migrate(settings) == tuple(SHIPPED[driver][len(begun) :])
    with twinstore.add_scheduler_storage(settings) as storage:
        use(storage)


def use(storage: SchedulerStorage) -> None:
    """Write and read a row of what the killed migration made."""
    job = make_graph_build_job("acme", "1")
    storage.graph_jobs.insert(job)
    storage.graph_jobs.append_event(graph_job_event(job, "e"))
    assert storage.graph_jobs.count_by_status("acme") == {"queued": 1}


class TestPostgres:
    @pytest.fixture
    @staticmethod
    def owner(postgres_database: PostgresDatabase) -> Iterator[psycopg.Connection[Any]]:
        with psycopg.connect(postgres_database.owner_url, autocommit=True) as connection:
            yield connection

    def test_keys_that_are_doubled_under_a_unique_index_are_listed(
        self, postgres_database: PostgresDatabase, owner: psycopg.Connection[Any]
    ) -> None:
        settings = postgres_database.config
        with twinstore.add_scheduler_storage(settings) as storage:
            use(storage)
            owner.execute("DROP INDEX scheduler.uq_graph_job_events_event")
            tamper(settings, **{"014_graph_jobs.sql": ""})
            owner.execute("SELECT set_config('app.tenant_id', 'system', false)")
            for name in [*(f"e{number:03}" for number in range(120)), "only once"]:
                owner.execute(ADD_EVENTS, [name, 1 if name == "only once" else 2])
            with pytest.raises(MigrationError, match="uq_graph_job_events_event cannot be built") as caught:
                storage.initializer.ensure_migrations()
            said = caught.value.message
            assert "Keys (the first 100): e000; e001;" in said
            assert "; e099. Make them differ and run: twinstore migrate run --module scheduler" in said
            assert ("e100" in said, "only once" in said, "secret" in said) == (False, False, False)
            assert "014_graph_jobs.sql" not in ledger_of(settings)
            owner.execute(
                "DELETE FROM scheduler.graph_job_events a USING scheduler.graph_job_events b"
                " WHERE a.payload->>'eventId' = b.payload->>'eventId' AND a.id > b.id"
            )
            assert storage.initializer.ensure_migrations().applied == ("014_graph_jobs.sql",)
            assert storage.initializer.verify() == ()

    def test_a_row_that_stops_a_migration_is_not_shown(
        self, postgres_database: PostgresDatabase, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        late = Migration("016_late.sql", "INSERT INTO scheduler.audit (id) VALUES ('a secret');")
        shipped = (*shipped_migrations(MODULE), late)
        monkeypatch.setattr(migrator, "shipped_migrations", lambda _module: shipped)
        with (
            twinstore.add_scheduler_storage(postgres_database.config) as storage,
            pytest.raises(MigrationError, match=r"016_late\.sql failed .* null value in column") as caught,
        ):
            storage.initializer.ensure_migrations()
        assert "a secret" not in caught.value.message

    def test_the_error_for_a_role_without_rights_says_what_to_grant(
        self, empty_postgres_database: PostgresDatabase
    ) -> None:
        database = empty_postgres_database
        role = conninfo_to_dict(database.app_url)["user"]
        settings: Any = {
            "Persistence": {"Postgres": {"ConnectionString": database.app_url, "ApplicationRole": role}}
        }
        with psycopg.connect(database.superuser_url, autocommit=True) as admin:
            for grant in ("GRANT CREATE ON DATABASE", "GRANT USAGE, CREATE ON SCHEMA"):
                with (
                    twinstore.add_scheduler_postgres_storage(settings) as storage,
                    pytest.raises(MigrationError, match="permission denied") as caught,
                ):
                    storage.initializer.ensure_migrations()
                statement = caught.value.message.partition("must run: ")[2].partition(";")[0]
                assert statement.startswith(grant)
                if grant == "GRANT CREATE ON DATABASE":
                    admin.execute("CREATE SCHEMA scheduler")
                else:
                    admin.execute(statement.encode())
            with twinstore.add_scheduler_postgres_storage(settings) as storage:
                assert storage.initializer.ensure_migrations().applied == POSTGRES_FILES


class TestMongo:
    def test_the_error_for_a_user_without_rights_says_what_to_grant(self) -> None:
        with tempfile.TemporaryDirectory(prefix="twinstore-rights-") as directory:
            server = twinstore_embedded.start_mongo(directory, users=True, owned=True)
            try:
                url = server.user_url("mine", "reader", "read")
                with (
                    twinstore.add_scheduler_mongo_storage(mongo_config(url, "mine")) as storage,
                    pytest.raises(ConfigurationError, match="readWrite"),
                ):
                    storage.initializer.ensure_migrations()
                with MongoClient[Document](server.url) as admin:
                    assert admin["mine"].list_collection_names() == []
            finally:
                server.stop()
