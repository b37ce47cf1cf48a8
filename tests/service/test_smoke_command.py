"""`twinstore smoke` on real servers: a sound store passes and stays as it was; planted faults are named."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

import psycopg
import pytest
from bson import Int64
from bson.raw_bson import RawBSONDocument
from psycopg import sql
from pymongo import MongoClient
from pymongo.database import Database

from tests.support import forked
from tests.support.copies import Answer, fill, invoke, write_config
from tests.support.databases import APP_ROLE, PASSWORD, without_retention
from tests.support.servers import postgres_config, postgres_url
from twinstore import open_storage
from twinstore_backfill.smoke import engine
from twinstore_backfill.verify import stored_lists

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator
    from pathlib import Path

    from tests.support.databases import MongoDatabase, PostgresDatabase
    from tests.support.servers import Settings
    from twinstore.plugins.checks import TrialStep
    from twinstore.scheduler.storage import SchedulerStorage
    from twinstore_backfill.smoke.engine import Finding

Document = dict[str, Any]
T = TypeVar("T")
SCHEMA: Final = "schema"
LISTS: Final = "C5 list order"
C6: Final = "C6 lock smoke test"
TRIAL_LOCKS: Final = "no lock outlives the longest lease"
FAR_FUTURE: Final = datetime(2999, 1, 1, tzinfo=UTC)
# What the smoke test of locks writes on purpose, and the numbers that were given: a gap is no row.
SMOKE_LOCK: Final = "system:twinstore:smoke"
COUNTERS: Final = "_counters"


# Without slots: Python 3.11 cannot make a frozen class with slots through its alias.
@dataclass(frozen=True)
class Fault(Generic[T]):
    """A fault: what plants it, and at which step a smoke test says what."""

    plant: Callable[[T], object]
    step: str
    told: tuple[str, ...]


@contextmanager
def postgres(database: PostgresDatabase) -> Generator[psycopg.Connection]:
    """Connect past every policy."""
    with psycopg.connect(database.superuser_url, autocommit=True) as connection:
        yield connection


@contextmanager
def mongo(database: MongoDatabase) -> Generator[Database[Document]]:
    """Connect past every rule."""
    with MongoClient[Document](database.url) as client:
        yield client[database.name]


def run_sql(*statements: str) -> Callable[[psycopg.Connection], object]:
    """Return what runs some statements."""

    def run(connection: psycopg.Connection) -> None:
        for statement in statements:
            connection.execute(statement.encode())

    return run


TABLES: Final = "SELECT tablename FROM pg_tables WHERE schemaname = 'scheduler' ORDER BY 1"
ROWS: Final = "SELECT t::text FROM scheduler.{} AS t ORDER BY 1"


def postgres_content(connection: psycopg.Connection) -> dict[str, list[str]]:
    """Return every row of every table as the server shows it, the row of the lock of smoke tests apart."""
    content: dict[str, list[str]] = {}
    for (table,) in connection.execute(TABLES).fetchall():
        rows = connection.execute(sql.SQL(ROWS).format(sql.Identifier(table))).fetchall()
        content[table] = [row for (row,) in rows if "twinstore:smoke" not in row]
    return content


def mongo_content(database: Database[Document]) -> dict[str, list[bytes]]:
    """Return every document of every collection as it is stored, with the same two exceptions."""
    content: dict[str, list[bytes]] = {}
    raw = database.with_options(database.codec_options.with_options(document_class=RawBSONDocument))
    for name in sorted(database.list_collection_names()):
        if name != COUNTERS:
            found = raw[name].find({"_id": {"$ne": SMOKE_LOCK}}, sort=[("_id", 1)])
            content[name] = [document.raw for document in found]
    return content


INSERT_LOCK: Final = """
INSERT INTO scheduler.locks (tenant_id, lock_key, holder_id, acquired_at, expires_at, fence, metadata)
VALUES ('{tenant}', '{key}', 'gone', now(), now() + interval '9 years', 3, '{{}}')
"""
CHANGE_CHECKSUM: Final = """
UPDATE scheduler.schema_migrations SET checksum = repeat('0', 64) WHERE migration_name LIKE '013%'
"""
# All together: every fault is named, whatever others there are.
POSTGRES_FAULTS: Final[Mapping[str, Fault[psycopg.Connection]]] = {
    "an index is gone": Fault(
        run_sql("DROP INDEX scheduler.idx_runs_state_created"), SCHEMA, ("idx_runs_state_created",)
    ),
    "a right is missing": Fault(
        run_sql(f"REVOKE UPDATE ON scheduler.graph_jobs FROM {APP_ROLE}"),
        SCHEMA,
        ("scheduler.graph_jobs", "UPDATE"),
    ),
    "a right too much": Fault(
        run_sql(f"GRANT DELETE ON scheduler.audit TO {APP_ROLE}"), SCHEMA, ("scheduler.audit", "DELETE")
    ),
    "a sequence is below its rows": Fault(
        run_sql("SELECT setval('scheduler.graph_job_events_id_seq', 1)"),
        SCHEMA,
        ("graph_job_events_id_seq", "setval"),
    ),
    "the lock of smoke tests is stuck": Fault(
        run_sql(INSERT_LOCK.format(tenant="system", key="twinstore:smoke")), C6, ("'gone'", "expiresAt")
    ),
    "a lock of a service is stuck": Fault(
        run_sql(INSERT_LOCK.format(tenant="acme", key="planner")),
        TRIAL_LOCKS,
        ("'planner'", "'gone'", "expiresAt"),
    ),
    "a row cannot be decoded": Fault(
        run_sql("""UPDATE scheduler.runs SET reason = '{"unheard": 1}' WHERE id = 'acme-run-3'"""),
        LISTS,
        ("acme-run-3", "reason"),
    ),
}
# With each of these a store is not ready, so nothing else is asked of it.
POSTGRES_UNREADY: Final[Mapping[str, Fault[psycopg.Connection]]] = {
    "row-level security is off": Fault(
        run_sql("ALTER TABLE scheduler.runs DISABLE ROW LEVEL SECURITY"), SCHEMA, ("runs",)
    ),
    "a migration file was changed": Fault(
        run_sql(CHANGE_CHECKSUM), SCHEMA, ("013_create_locks.sql is changed",)
    ),
    "a migration is pending": Fault(
        run_sql("DELETE FROM scheduler.schema_migrations WHERE migration_name LIKE '016%'"),
        SCHEMA,
        ("016_add_list_indexes.sql is pending",),
    ),
}


def insert_lock(tenant: str, key: str) -> Callable[[Database[Document]], object]:
    """Return a function that plants a lock that no caller can have requested."""

    def insert(database: Database[Document]) -> None:
        now = datetime.now(UTC)
        lock = {
            "_id": f"{tenant}:{key}",
            "lockKey": key,
            "tenantId": tenant,
            "holderId": "gone",
            "acquiredAt": now,
            "expiresAt": now + timedelta(days=3000),
            "fence": Int64(3),
            "metadata": {},
        }
        database["locks"].replace_one({"_id": lock["_id"]}, lock, upsert=True)

    return insert


def break_run(database: Database[Document]) -> None:
    """Write into a run what no model has, past its validator."""
    database["runs"].update_one(
        {"_id": "acme-run-3"},
        {"$set": {"reason": {"unheard": 1}}},
        bypass_document_validation=True,
    )


MONGO_FAULTS: Final[Mapping[str, Fault[Database[Document]]]] = {
    "an index is gone": Fault(
        lambda database: database["policy_jobs"].drop_index("ix_tenantId_policyId_createdAt__id"),
        SCHEMA,
        ("policy_jobs", "policyId"),
    ),
    "a validator is gone": Fault(
        lambda database: database.command("collMod", "runs", validator={}), SCHEMA, ("runs", "validator")
    ),
    "another age of a TTL": Fault(
        lambda database: database.command(
            "collMod", "runs", index={"name": "ttl_finishedAt", "expireAfterSeconds": 3600 * 24 * 9999}
        ),
        SCHEMA,
        ("ttl_finishedAt",),
    ),
    "a counter is below its rows": Fault(
        lambda database: database[COUNTERS].update_one(
            {"_id": "graph_job_events"}, {"$set": {"value": Int64(1)}}
        ),
        SCHEMA,
        ("graph_job_events", "NumberLong"),
    ),
    "the lock of smoke tests is stuck": Fault(
        insert_lock("system", "twinstore:smoke"), C6, ("'gone'", "expiresAt")
    ),
    "a lock of a service is stuck": Fault(
        insert_lock("acme", "planner"), TRIAL_LOCKS, ("'planner'", "'gone'", "expiresAt")
    ),
    "a document cannot be decoded": Fault(break_run, LISTS, ("acme-run-3", "reason")),
}
MONGO_UNREADY: Final[Mapping[str, Fault[Database[Document]]]] = {
    "a unique index is gone": Fault(
        lambda database: database["triggers"].drop_index("ux_scheduleId"), SCHEMA, ("triggers", "scheduleId")
    ),
    "a migration is pending": Fault(
        lambda database: database["_migrations"].delete_one({"_id": {"$regex": "016_"}}),
        SCHEMA,
        ("016_add_list_indexes is pending",),
    ),
}
SERVERS: Final = ("mongo", "postgres")
PREFIX: Final = "twinstore-smoke-"
NEARLY: Final = "twinstore-smoke-production"
# Ends a command in the middle of its trial, as a machine does that goes down.
KILLED: Final = """
import os, sys
from twinstore_backfill.cli import main
from twinstore_backfill.smoke import engine
real = engine.run_trial_step
def run_trial_step(step):
    if step.name == "worker":
        os.kill(os.getpid(), 9)
    return real(step)
engine.run_trial_step = run_trial_step
sys.exit(main(["--config", sys.argv[1], "smoke"]))
"""


@dataclass(frozen=True, slots=True)
class Deployed:
    """A store with data of several tenants, all that it holds, and a connection past its driver."""

    settings: Settings
    config: Path
    content: Callable[[], object]
    connection: Any

    def smoke(self, capsys: pytest.CaptureFixture[str], *more: object) -> Answer:
        """Run the command."""
        return invoke(capsys, "--config", self.config, "smoke", "--format", "json", *more)


@contextmanager
def deployed(server: str, database: Any, folder: Path) -> Iterator[Deployed]:  # noqa: ANN401  # of either server
    """Fill a database."""
    settings = without_retention(database.config)
    config = write_config(folder / f"{database.name}.json", settings)
    opened: Any = {"mongo": mongo, "postgres": postgres}[server]
    content: Any = {"mongo": mongo_content, "postgres": postgres_content}[server]
    with open_storage(settings) as storage:
        storage.scheduler.initializer.ensure_migrations()
        fill(storage.scheduler, ("acme", "umbrella", NEARLY))
    with opened(database) as connection:
        yield Deployed(settings, config, partial(content, connection), connection)


@pytest.fixture(scope="module", params=SERVERS)
def store(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployed]:
    """Return a store for all tests of a server: none of them leaves anything, which they prove."""
    database = request.getfixturevalue(f"module_{request.param}_database")
    with deployed(request.param, database, tmp_path_factory.mktemp("smoke")) as found:
        yield found


@pytest.fixture(params=SERVERS)
def broken(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Deployed]:
    """Return a separate store, to plant faults in."""
    with deployed(request.param, request.getfixturevalue(f"{request.param}_database"), tmp_path) as found:
        yield found


def results(answer: Answer) -> dict[str, str]:
    return {step["step"]: step["result"] for step in answer.json["steps"]}


def findings(answer: Answer, step: str) -> str:
    (found,) = [item for item in answer.json["steps"] if item["step"] == step]
    assert found["result"] == "fail", answer.out
    return " ".join(found["findings"])


def between_steps(monkeypatch: pytest.MonkeyPatch, act: Callable[[str], object]) -> None:
    """Do something after each step of the trial."""
    real = engine.run_trial_step

    def run_trial_step(step: TrialStep) -> Finding:
        found = real(step)
        act(step.name)
        return found

    monkeypatch.setattr(engine, "run_trial_step", run_trial_step)


def test_a_sound_store_passes_and_holds_afterwards_byte_for_byte_what_it_held(
    store: Deployed, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    before = store.content()
    first = store.smoke(capsys)
    assert (first.code, first.json["verdict"], set(results(first).values())) == (0, "OK", {"pass"}), first.out
    assert all(step["milliseconds"] >= 0 for step in first.json["steps"])
    assert first.json["tenant"].startswith(PREFIX)
    # As if the store were too large to be read whole.
    monkeypatch.setattr(stored_lists, "WHOLE", 0)
    second = store.smoke(capsys, "--tenant", "acme")
    assert (second.code, set(results(second).values())) == (0, {"pass"}), second.out
    assert store.content() == before


def test_a_service_that_works_meanwhile_meets_nothing_of_it(
    store: Deployed, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_storage(store.settings) as opened:
        service: SchedulerStorage = opened.scheduler
        clock = service.bulk.now

        def work(_step: str) -> None:
            met.extend(due.tenant_id for due in service.schedules.get_due_schedules(clock(), limit=1000))
            met.extend(job.tenant_id for job in service.policy_jobs.lease_many("service", clock()))
            met.extend(worker.id for worker in service.workers.find_dead(clock()))
            assert service.policy_jobs.release_expired(clock()) == 0

        met: list[str] = []
        work("before")
        mine = set(met)
        between_steps(monkeypatch, work)
        assert store.smoke(capsys).code == 0
    assert met
    assert not {name for name in set(met) - mine if name.startswith(PREFIX) and name != NEARLY}


def test_a_test_that_was_killed_is_cleared_up_by_the_next_one(
    store: Deployed, capsys: pytest.CaptureFixture[str]
) -> None:
    before = store.content()
    killed = forked.run(["-c", KILLED, store.config])
    assert killed.returncode == -signal.SIGKILL
    assert store.content() != before
    found = store.smoke(capsys)
    assert found.code == 0, found.out
    (counted,) = [step for step in found.json["steps"] if step["step"] == engine.COUNTS]
    assert "which a test had left" in counted["summary"]
    assert store.content() == before


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["SIGINT", "SIGTERM"])
def test_a_test_that_is_interrupted_removes_what_it_wrote(
    store: Deployed, number: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    before = store.content()
    between_steps(monkeypatch, lambda step: os.kill(os.getpid(), number) if step == "worker" else None)
    found = store.smoke(capsys)
    assert (found.code, found.json["error"]["code"]) == (128 + number, "interrupted")
    assert "What was written has been removed." in found.json["error"]["message"]
    assert store.content() == before


def test_of_a_step_that_fails_nothing_is_left_either(
    store: Deployed, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    before = store.content()

    def fail(step: str) -> None:
        if step == "graph job with its events":
            raise ValueError(step)

    between_steps(monkeypatch, fail)
    assert store.smoke(capsys).code == 4
    assert store.content() == before


def test_every_planted_fault_is_named_at_its_step(
    broken: Deployed, capsys: pytest.CaptureFixture[str]
) -> None:
    persistence: Any = broken.settings["Persistence"]
    on_mongo = persistence["Scheduler"] == "Mongo"
    for faults in (MONGO_FAULTS, MONGO_UNREADY) if on_mongo else (POSTGRES_FAULTS, POSTGRES_UNREADY):
        planted: Mapping[str, Fault[Any]] = faults
        for fault in planted.values():
            fault.plant(broken.connection)
        before = broken.content()
        found = broken.smoke(capsys)
        assert (found.code, found.json["verdict"]) == (1, "FAILED"), found.out
        unnamed = {
            name: missing
            for name, fault in planted.items()
            if (missing := [part for part in fault.told if part not in findings(found, fault.step)])
        }
        assert unnamed == {}, found.out
        assert broken.content() == before
    # What the store is not ready for is not tried.
    last = results(broken.smoke(capsys))
    assert (last["server, roles, row-level security"], last["trial"]) == ("fail", "skipped")


def test_a_policy_that_shows_everything_ends_it_at_once(
    postgres_database: PostgresDatabase, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with postgres(postgres_database) as connection:
        connection.execute("ALTER POLICY tenant_isolation ON scheduler.audit USING (true)")
    settings = postgres_config(postgres_database.app_url, postgres_database.owner_url)
    config = write_config(tmp_path / "settings.json", settings)
    found = invoke(capsys, "--config", config, "smoke", "--format", "json")
    assert (found.code, results(found)["trial"]) == (1, "skipped"), found.out
    assert "ON scheduler.audit" in findings(found, "server, roles, row-level security")


def test_the_error_for_a_role_that_may_only_read_names_the_missing_right(
    postgres_database: PostgresDatabase,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    reader = "twinstore_test_reader"
    with postgres(postgres_database) as connection:
        # Roles belong to the whole server, which workers share.
        with connection.transaction():
            connection.execute("SELECT pg_advisory_xact_lock(hashtext('reader'))")
            if not connection.execute("SELECT FROM pg_roles WHERE rolname = %s", [reader]).fetchone():
                create = sql.SQL("CREATE ROLE {} LOGIN PASSWORD {}")
                connection.execute(create.format(sql.Identifier(reader), PASSWORD))
        for statement in (
            "GRANT USAGE ON SCHEMA scheduler TO {}",
            "GRANT SELECT ON ALL TABLES IN SCHEMA scheduler TO {}",
            "REVOKE SELECT ON scheduler.backfill_jobs, scheduler.backfill_ranges FROM {}",
        ):
            connection.execute(sql.SQL(statement).format(sql.Identifier(reader)))
        url = postgres_url(postgres_database.app_url, user=reader, password=PASSWORD)
        settings: Any = postgres_config(url, postgres_database.owner_url)
        settings["Persistence"]["Postgres"]["ApplicationRole"] = APP_ROLE
        config = write_config(tmp_path / "settings.json", settings)
        before = postgres_content(connection)
        found = invoke(capsys, "--config", config, "smoke", "--format", "json")
        assert found.code == 1, found.out
        assert "The role may not do this" in findings(found, "C6 lock smoke test")
        assert "The role may not do this" in findings(found, "schedule with its trigger")
        assert results(found)["removed again"] == "pass"
        assert postgres_content(connection) == before


def test_a_role_that_no_policy_binds_is_a_step_that_failed(
    postgres_database: PostgresDatabase, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    url = postgres_database.superuser_url
    config = write_config(tmp_path / "settings.json", postgres_config(url, url))
    found = invoke(capsys, "--config", config, "smoke", "--format", "json")
    assert (found.code, found.json["verdict"]) == (1, "FAILED")
    assert "is a superuser" in findings(found, "server, roles, row-level security")


def test_without_the_owner_the_schema_is_looked_at_as_far_as_the_rights_go(
    postgres_database: PostgresDatabase, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings: Any = postgres_database.config
    settings["Persistence"]["Postgres"].pop("OwnerConnectionString")
    config = write_config(tmp_path / "settings.json", settings)
    found = invoke(capsys, "--config", config, "smoke", "--format", "json")
    assert (found.code, results(found)["schema"]) == (0, "pass"), found.out


def test_a_server_that_does_not_answer_ends_with_4_and_wrong_settings_with_2(
    postgres_database: PostgresDatabase, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    url = postgres_url(postgres_database.app_url, host="127.0.0.1", port="1")
    away = write_config(tmp_path / "away.json", postgres_config(url, url))
    found = invoke(capsys, "--config", away, "smoke", "--format", "json")
    assert (found.code, found.json["error"]["code"]) == (4, "connection_error")
    wrong = write_config(tmp_path / "wrong.json", {"Persistence": {"Scheduler": "Nowhere"}})
    assert invoke(capsys, "--config", wrong, "smoke").code == 2
    refused = postgres_url(postgres_database.app_url, password="wrong")
    denied = write_config(tmp_path / "denied.json", postgres_config(refused, refused))
    assert invoke(capsys, "--config", denied, "smoke").code == 2
