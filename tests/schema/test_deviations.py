"""``migrate verify``: each kind of deviation is named, and the remedy in the message repairs it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import psycopg
import pytest
from bson.int64 import Int64
from pymongo import MongoClient

import twinstore
from tests.support.copies import invoke, open_store, write_config
from tests.support.databases import APP_ROLE, OWNER_ROLE
from twinstore.config import load_settings
from twinstore.errors import MigrationError
from twinstore.models.fields import INT64_MAX
from twinstore.testing.scheduler.graph_jobs import graph_job_event, make_graph_build_job
from twinstore_backfill.verify.checks import schema_check

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pymongo.database import Database

    from tests.support.databases import MongoDatabase, PostgresDatabase
    from twinstore.scheduler.storage import SchedulerStorage

Document = dict[str, Any]
Key = list[tuple[str, int]]
Change = Callable[["Database[Document]"], object]
# What is done to the schema, how the sentence begins, and what it says was found.
PLANTED: Final[list[tuple[str, str] | tuple[str, str, str]]] = [
    ("ALTER TABLE runs DROP COLUMN retry_of", "Missing: column runs.retry_of: text"),
    (
        "ALTER TABLE graph_jobs RENAME COLUMN correlation_id TO theirs",
        "Missing: column graph_jobs.correlation_id: text",
    ),
    (
        "ALTER TABLE policy_jobs ALTER COLUMN attempt_count TYPE bigint",
        "Missing: column policy_jobs.attempt_count: integer NOT NULL.",
        "bigint NOT NULL",
    ),
    (
        "ALTER TABLE locks ALTER COLUMN expires_at TYPE timestamptz",
        "Missing: column locks.expires_at: timestamp(3) with time zone NOT NULL.",
        "timestamp with time zone NOT NULL",
    ),
    (
        'ALTER TABLE runs ALTER COLUMN error TYPE text COLLATE "default"',
        'Missing: column runs.error: text COLLATE "C".',
        "text",
    ),
    (
        "ALTER TABLE workers ALTER COLUMN hostname DROP NOT NULL",
        'Missing: column workers.hostname: text COLLATE "C" NOT NULL.',
        'text COLLATE "C"',
    ),
    (
        "ALTER TABLE runs ALTER COLUMN error SET NOT NULL",
        'Missing: column runs.error: text COLLATE "C".',
        'text COLLATE "C" NOT NULL',
    ),
    (
        "ALTER TABLE runs ALTER COLUMN row_version DROP DEFAULT",
        "Missing: column runs.row_version: bigint NOT NULL DEFAULT 1.",
        "bigint NOT NULL",
    ),
    (
        "ALTER TABLE schedules ALTER COLUMN timezone SET DEFAULT 'Europe/Paris'",
        "Missing: column schedules.timezone: text",
        "'Europe/Paris'::text",
    ),
    (
        "ALTER TABLE runs ALTER COLUMN state SET DEFAULT 0",
        "Missing: column runs.state: smallint NOT NULL.",
        "smallint NOT NULL DEFAULT 0",
    ),
    (
        "ALTER TABLE audit DROP CONSTRAINT audit_pkey",
        "Missing: constraint audit.audit_pkey: PRIMARY KEY (id).",
    ),
    (
        "ALTER TABLE audit DROP CONSTRAINT audit_pkey, ADD CONSTRAINT audit_pkey PRIMARY KEY (id, tenant_id)",
        "Missing: constraint audit.audit_pkey: PRIMARY KEY (id).",
        "PRIMARY KEY (id, tenant_id)",
    ),
    (
        "ALTER TABLE triggers DROP CONSTRAINT uq_triggers_schedule",
        "Missing: constraint triggers.uq_triggers_schedule: UNIQUE (schedule_id).",
    ),
    (
        (
            "ALTER TABLE graph_job_events DROP CONSTRAINT graph_job_events_job_id_fkey,"
            " ADD CONSTRAINT graph_job_events_job_id_fkey FOREIGN KEY (job_id) REFERENCES graph_jobs (id)"
        ),
        "Missing: constraint graph_job_events.graph_job_events_job_id_fkey: FOREIGN KEY",
        "FOREIGN KEY (job_id) REFERENCES scheduler.graph_jobs(id).",
    ),
    ("ALTER TABLE runs DROP CONSTRAINT runs_state_check", "Missing: constraint runs.runs_state_check: CHECK"),
    (
        "ALTER TABLE audit ADD CONSTRAINT theirs CHECK (id > 'a')",
        "Not wanted: constraint audit.theirs: CHECK",
    ),
    (
        "ALTER TABLE locks ADD CONSTRAINT theirs CHECK (fence > 0) NOT VALID",
        "Not wanted: constraint locks.theirs: CHECK ((fence > 0)) NOT VALID.",
    ),
    ("DROP INDEX idx_runs_pending", "Missing: index idx_runs_pending: CREATE INDEX"),
    (
        (
            "DROP INDEX idx_graph_jobs_tenant_created;"
            " CREATE INDEX idx_graph_jobs_tenant_created ON graph_jobs (tenant_id, created_at, id)"
        ),
        "Missing: index idx_graph_jobs_tenant_created: CREATE INDEX",
        "(tenant_id, created_at, id)",
    ),
    (
        "DROP INDEX idx_runs_pending; CREATE INDEX idx_runs_pending ON runs (state, created_at, id)",
        "Missing: index idx_runs_pending: CREATE INDEX",
        "(state, created_at, id)",
    ),
    (
        (
            "DROP INDEX uq_graph_job_events_event;"
            " CREATE INDEX uq_graph_job_events_event ON graph_job_events ((payload->>'eventId'))"
        ),
        "Missing: index uq_graph_job_events_event: CREATE UNIQUE INDEX",
        "CREATE INDEX uq_graph_job_events_event",
    ),
    ("CREATE UNIQUE INDEX theirs ON runs (retry_of)", "Not wanted: index theirs: CREATE UNIQUE INDEX"),
    (
        "DROP POLICY tenant_isolation ON runs",
        "Missing: policy runs.tenant_isolation: PERMISSIVE ALL to public",
    ),
    (
        (
            "DROP POLICY tenant_isolation ON locks;"
            " CREATE POLICY tenant_isolation ON locks FOR SELECT USING (true)"
        ),
        "Missing: policy locks.tenant_isolation: PERMISSIVE ALL to public",
        "PERMISSIVE SELECT to public USING (true)",
    ),
    (
        "CREATE POLICY theirs ON runs USING (true)",
        "Not wanted: policy runs.theirs: PERMISSIVE ALL to public USING (true)",
    ),
    (
        "ALTER TABLE graph_jobs DISABLE ROW LEVEL SECURITY",
        "Missing: table graph_jobs: row-level security forced.",
        "row-level security off",
    ),
    (
        "ALTER TABLE graph_jobs NO FORCE ROW LEVEL SECURITY",
        "Missing: table graph_jobs: row-level security forced.",
        "row-level security enabled",
    ),
    (
        "ALTER TABLE locks SET UNLOGGED",
        "Missing: table locks: row-level security forced.",
        "row-level security forced, unlogged",
    ),
    ("REVOKE DELETE ON execution_logs FROM twinstore_test_app", "Missing: grant execution_logs: DELETE."),
    ("GRANT TRUNCATE ON audit TO twinstore_test_app", "Not wanted: grant audit: TRUNCATE."),
    ("REVOKE USAGE ON SCHEMA scheduler FROM twinstore_test_app", "Missing: use schema: USAGE."),
    (
        "REVOKE UPDATE ON SEQUENCE graph_job_events_id_seq FROM twinstore_test_app",
        "Missing: use graph_job_events_id_seq: UPDATE.",
    ),
    ("GRANT UPDATE (message) ON audit TO twinstore_test_app", "Not wanted: grant audit: UPDATE (message)."),
    ("GRANT TRIGGER ON runs TO twinstore_test_app", "Not wanted: grant runs: TRIGGER."),
    (
        'CREATE TABLE public."their Runs" () INHERITS (runs)',
        'Not wanted: child runs.public."their Runs": inherits.',
    ),
    (
        "ALTER SEQUENCE graph_job_events_id_seq OWNED BY NONE",
        'Missing: sequence of "scheduler"."graph_job_events".id.',
    ),
    (
        "ALTER SEQUENCE graph_job_events_id_seq INCREMENT BY -1",
        "The sequence scheduler.graph_job_events_id_seq counts by -1; wanted: bigint, by 1, to its end,",
    ),
    (
        "ALTER SEQUENCE graph_job_events_id_seq CYCLE",
        "The sequence scheduler.graph_job_events_id_seq begins again;",
    ),
    ("GRANT SELECT ON triggers TO PUBLIC", "Not wanted: public grant triggers: SELECT."),
    ("GRANT SELECT (state) ON runs TO PUBLIC", "Not wanted: public grant runs: SELECT (state)."),
    ("GRANT CREATE ON SCHEMA scheduler TO twinstore_test_app", "Not wanted: use schema: CREATE."),
    (
        "GRANT UPDATE ON SEQUENCE graph_job_events_id_seq TO PUBLIC",
        "Not wanted: public use graph_job_events_id_seq: UPDATE.",
    ),
    ("ALTER TABLE workers ADD COLUMN theirs int", "Not wanted: column workers.theirs: integer."),
    (
        (
            "CREATE TRIGGER theirs BEFORE UPDATE ON runs FOR EACH ROW"
            " EXECUTE FUNCTION suppress_redundant_updates_trigger()"
        ),
        "Not wanted: trigger runs.theirs: CREATE TRIGGER",
    ),
    (
        "CREATE RULE theirs AS ON DELETE TO audit DO INSTEAD NOTHING",
        "Not wanted: rule audit.theirs: CREATE RULE",
    ),
    (
        "DELETE FROM schema_migrations WHERE migration_name = '015_create_policy_jobs.sql'",
        "Migration 015_create_policy_jobs.sql is pending.",
    ),
]


# Neighbours in the list concern the same object, so each of them is in another group.
AT_ONCE: Final = 6
MENDED_SEQUENCE: Final = (
    "ALTER SEQUENCE scheduler.graph_job_events_id_seq AS bigint INCREMENT BY 1 NO MAXVALUE CACHE 1 NO CYCLE;"
)
UNREADY: Final = "UPDATE pg_index SET indisready = false WHERE indexrelid = 'scheduler.{}'::regclass"
RESTARTED: Final = "ALTER SEQUENCE graph_job_events_id_seq RESTART WITH {}"


# What the server would do that no row shows: by what it is made, and the statement that repairs it.
NEXT_WRITES: Final = {
    "GRANT SELECT ON scheduler.runs TO PUBLIC": "REVOKE SELECT ON scheduler.runs FROM PUBLIC;",
    "GRANT SELECT (id) ON scheduler.runs TO PUBLIC": "REVOKE SELECT (id) ON scheduler.runs FROM PUBLIC;",
    "GRANT CREATE ON SCHEMA scheduler TO twinstore_test_app": (
        "REVOKE CREATE ON SCHEMA scheduler FROM twinstore_test_app;"
    ),
    "GRANT CREATE ON SCHEMA scheduler TO PUBLIC": "REVOKE CREATE ON SCHEMA scheduler FROM PUBLIC;",
    "ALTER SEQUENCE scheduler.graph_job_events_id_seq MAXVALUE 1000": MENDED_SEQUENCE,
    "ALTER SEQUENCE scheduler.graph_job_events_id_seq AS integer": MENDED_SEQUENCE,
    "ALTER SEQUENCE scheduler.graph_job_events_id_seq CACHE 1000": MENDED_SEQUENCE,
    **{
        UNREADY.format(index): f"REINDEX INDEX scheduler.{index};"
        for index in ("runs_pkey", "uq_graph_job_events_event", "idx_runs_pending")
    },
}


def add_events(storage: SchedulerStorage, name: str) -> None:
    """Append two events of a new job, of which the rest of a test knows nothing."""
    job = make_graph_build_job("acme", name)
    storage.graph_jobs.insert(job)
    for number in range(2):
        storage.graph_jobs.append_event(graph_job_event(job, f"{name} {number}"))


class TestPostgres:
    @pytest.fixture(scope="class")
    @staticmethod
    def storage(module_postgres_database: PostgresDatabase) -> Iterator[SchedulerStorage]:
        with twinstore.add_scheduler_storage(module_postgres_database.config) as storage:
            yield storage

    @pytest.fixture(scope="class")
    @staticmethod
    def owner(module_postgres_database: PostgresDatabase) -> Iterator[psycopg.Connection[Any]]:
        with psycopg.connect(module_postgres_database.owner_url, autocommit=True) as connection:
            connection.execute("SET search_path = scheduler")
            yield connection

    @pytest.mark.parametrize("first", range(AT_ONCE))
    def test_each_kind_is_named_and_fixed_by_the_stated_remedy(
        self, storage: SchedulerStorage, owner: psycopg.Connection[Any], first: int
    ) -> None:
        """Some at a time, of which none hides another."""
        planted = PLANTED[first::AT_ONCE]
        for statement, *_ in planted:
            owner.execute(statement.encode())
        said = storage.initializer.verify(additions=False)
        for statement, begins, *found in planted:
            lines = [line for line in said if line.startswith(begins)]
            assert len(lines) == 1, (statement, said)
            assert all(text in lines[0].partition("Found: ")[2] for text in found), lines
        for remedy in dict.fromkeys(sentence.partition("To fix: ")[2] for sentence in said):
            self.mend(storage, owner, remedy)
        assert storage.initializer.verify() == ()

    @staticmethod
    def mend(storage: SchedulerStorage, owner: psycopg.Connection[Any], remedy: str) -> None:
        """Do what a sentence says."""
        if remedy.startswith("twinstore migrate run"):
            storage.initializer.ensure_migrations()
        elif remedy.startswith("twinstore migrate export"):
            owner.execute(storage.initializer.export().encode())
        else:
            assert remedy.endswith(";")
            owner.execute(remedy.encode())

    def test_a_table_that_is_gone_is_named_once(
        self, storage: SchedulerStorage, owner: psycopg.Connection[Any]
    ) -> None:
        owner.execute("DROP TABLE workers")
        (line,) = storage.initializer.verify()
        assert line.startswith("Missing: table workers. To fix: twinstore migrate export")
        self.mend(storage, owner, line.partition("To fix: ")[2])
        assert storage.initializer.verify() == ()

    def test_an_invalid_index_is_named(
        self, storage: SchedulerStorage, module_postgres_database: PostgresDatabase
    ) -> None:
        with psycopg.connect(module_postgres_database.superuser_url, autocommit=True) as connection:
            # As CREATE INDEX CONCURRENTLY leaves one that has failed.
            connection.execute(
                "UPDATE pg_index SET indisvalid = false"
                " WHERE indexrelid = 'scheduler.idx_runs_pending'::regclass"
            )
            (line,) = storage.initializer.verify(additions=False)
            assert "(invalid). To fix: REINDEX INDEX scheduler.idx_runs_pending;" in line
            connection.execute(line.partition("To fix: ")[2].encode())
        assert storage.initializer.verify() == ()

    def test_what_breaks_a_later_write_or_opens_rows_is_named_by_readiness_verify_and_c8(
        self, module_postgres_database: PostgresDatabase
    ) -> None:
        config = load_settings(module_postgres_database.config)
        with (
            psycopg.connect(module_postgres_database.superuser_url, autocommit=True) as admin,
            open_store("scheduler", "Postgres", config) as store,
        ):
            for change, remedy in NEXT_WRITES.items():
                admin.execute(change.encode())
                with pytest.raises(MigrationError) as refused:
                    store.storage.check_ready()
                check = schema_check(store)
                said = (refused.value.message, *check.findings, *store.storage.initializer.verify())
                assert check.result == "inconclusive"
                assert sum(f"To fix: {remedy}" in text for text in said) == 3, said
                # The right of every role is a right of the application role, too.
                for text in check.findings:
                    admin.execute(text.partition("To fix: ")[2].encode())
                store.storage.check_ready()
            assert schema_check(store).result == "pass"

    @pytest.mark.parametrize("catalog", ["pg_sequence", "pg_index", "pg_policies"])
    def test_a_role_that_may_not_read_the_catalogue_gets_unknown_with_the_grant(
        self,
        storage: SchedulerStorage,
        module_postgres_database: PostgresDatabase,
        caplog: pytest.LogCaptureFixture,
        catalog: str,
    ) -> None:
        grant = f"To find out: GRANT SELECT ON pg_catalog.{catalog} TO "
        with psycopg.connect(module_postgres_database.superuser_url, autocommit=True) as admin:
            right = f"SELECT ON pg_catalog.{catalog}"
            admin.execute(f"REVOKE {right} FROM PUBLIC".encode())
            try:
                (said,) = storage.initializer.verify(additions=False)
                assert said.startswith(f"Unknown: parts of the schema, which role {OWNER_ROLE} may not read.")
                assert said.endswith(f"{grant}{OWNER_ROLE};")
                if catalog == "pg_sequence":  # without it no protection of tenants is unknown
                    storage.check_ready()
                    assert grant in caplog.text
                else:
                    with pytest.raises(MigrationError, match=f"{grant}{APP_ROLE};"):
                        storage.check_ready()
            finally:
                admin.execute(f"GRANT {right} TO PUBLIC".encode())

    def test_keys_that_are_not_checked_are_named(
        self, storage: SchedulerStorage, module_postgres_database: PostgresDatabase
    ) -> None:
        with psycopg.connect(module_postgres_database.superuser_url, autocommit=True) as connection:
            connection.execute("ALTER TABLE scheduler.triggers DISABLE TRIGGER ALL")
            said = storage.initializer.verify(additions=False)
            assert said
            assert all("switched off" in line and "ENABLE TRIGGER" in line for line in said)
            for line in said:
                connection.execute(line.partition("To fix: ")[2].encode())
        assert storage.initializer.verify() == ()

    def test_a_sequence_below_its_rows_is_named_and_one_that_was_set_above_is_not(
        self, storage: SchedulerStorage, owner: psycopg.Connection[Any]
    ) -> None:
        for change in ("SELECT setval('graph_job_events_id_seq', 1)", RESTARTED.format(1)):
            add_events(storage, change)
            owner.execute(change.encode())
            (line,) = storage.initializer.verify(additions=False)
            assert "next, but rows are numbered up to" in line
            self.mend(storage, owner, line.partition("To fix: ")[2])
            assert storage.initializer.verify() == ()
        add_events(storage, "mended")
        # At its end too, which has no number after it.
        for change in (RESTARTED.format(1000), f"SELECT setval('graph_job_events_id_seq', {INT64_MAX})"):
            owner.execute(change.encode())
            assert storage.initializer.verify() == ()

    def test_what_does_nothing_to_a_row_is_a_note(
        self,
        module_postgres_database: PostgresDatabase,
        owner: psycopg.Connection[Any],
        tmp_path: Path,
        capsys: pytest.CaptureFixture[str],
    ) -> None:
        config = write_config(tmp_path / "settings.json", module_postgres_database.config)
        command = ("--config", config, "migrate", "verify", "--module", "scheduler")
        owner.execute(
            "CREATE TABLE theirs (id int PRIMARY KEY CHECK (id > 0)); CREATE INDEX mine ON runs (retry_of)"
        )
        found = invoke(capsys, *command, "--format", "json")
        assert (found.code, found.json["differences"]) == (0, [])
        index, table = found.json["notes"]
        assert index.startswith("Not wanted: index mine: CREATE INDEX")
        assert table == "Not wanted: table theirs. twinstore did not create it."
        shown = invoke(capsys, *command)
        assert "The schema is as it should be." in shown.out
        assert "Note: Not wanted: table theirs." in shown.out
        owner.execute("DROP TABLE theirs; DROP INDEX mine")
        owner.execute("ALTER TABLE locks NO FORCE ROW LEVEL SECURITY")
        assert invoke(capsys, *command).code == 1
        owner.execute("ALTER TABLE locks FORCE ROW LEVEL SECURITY")


def drop_index(collection: str, name: str) -> Change:
    return lambda database: database[collection].drop_index(name)


def anew(collection: str, name: str, key: Key, **options: Any) -> Change:  # noqa: ANN401  # of createIndex
    """Return what makes an index of a name in another way."""

    def change(database: Database[Document]) -> None:
        if name in database[collection].index_information():
            database[collection].drop_index(name)
        database[collection].create_index(key, name=name, **options)

    return change


def modified(collection: str, **options: Any) -> Change:  # noqa: ANN401  # of collMod
    return lambda database: database.command("collMod", collection, **options)


CHANGED: Final[dict[str, tuple[Callable[[Database[Document]], object], str]]] = {
    "collection dropped": (
        lambda database: database.drop_collection("locks"),
        "The collection locks is missing.",
    ),
    "index dropped": (
        drop_index("runs", "ix_state_createdAt__id"),
        "The index runs.ix_state_createdAt__id is missing.",
    ),
    "index in another order": (
        anew("graph_jobs", "ix_tenantId_createdAt__uuid", [("tenantId", 1), ("createdAt", 1), ("_uuid", 1)]),
        "wanted {tenantId: 1, createdAt: -1, _uuid: 1}, found {tenantId: 1, createdAt: 1, _uuid: 1}.",
    ),
    "index not unique": (
        anew("graph_job_events", "ux__seq", [("_seq", 1)]),
        "wanted {_seq: 1} unique=true, found {_seq: 1}.",
    ),
    "index without its filter": (
        anew("schedules", "ux_tenantId_name", [("tenantId", 1), ("name", 1)], unique=True),
        (
            'wanted {tenantId: 1, name: 1} unique=true partialFilterExpression={"deletedAt": null}, found '
            "{tenantId: 1, name: 1} unique=true."
        ),
    ),
    "index hidden": (
        modified("runs", index={"name": "ix_state_createdAt__id", "hidden": True}),
        "found {state: 1, createdAt: 1, _id: 1} hidden=true.",
    ),
    "index that is about to be unique": (
        modified("schedules", index={"name": "ix_whenCron", "prepareUnique": True}),
        "found {whenCron: 1} prepareUnique=true.",
    ),
    "index of texts": (
        lambda database: database["audit"].create_index([("message", "text")], name="theirs"),
        "The index audit.theirs belongs to no migration and refuses or removes rows;",
    ),
    "index with a collation": (
        anew(
            "audit",
            "ix_tenantId_occurredAt__id",
            [("tenantId", 1), ("occurredAt", -1), ("_id", 1)],
            collation={"locale": "en"},
        ),
        'collation={"locale": "en"',
    ),
    "index sparse": (
        anew("triggers", "ux_scheduleId", [("scheduleId", 1)], unique=True, sparse=True),
        "found {scheduleId: 1} unique=true sparse=true.",
    ),
    "rows removed earlier": (
        modified("runs", index={"name": "ttl_finishedAt", "expireAfterSeconds": 60}),
        "The index runs.ttl_finishedAt removes rows after 60 s, but should after 15552000 s.",
    ),
    "rows removed never": (
        anew("runs", "ttl_finishedAt", [("finishedAt", 1)]),
        "The index runs.ttl_finishedAt removes rows never, but should after 15552000 s.",
    ),
    "unique index": (
        anew("runs", "theirs", [("retryOf", 1)], unique=True),
        "belongs to no migration and refuses or removes rows; found {retryOf: 1} unique=true.",
    ),
    "index that removes rows": (
        anew("audit", "theirs", [("occurredAt", 1)], expireAfterSeconds=5),
        'found {occurredAt: 1} expireAfterSeconds=5. To fix: db.audit.dropIndex("theirs")',
    ),
    "validator dropped": (
        modified("policy_jobs", validator={}),
        "The validator of policy_jobs is missing: wanted a $jsonSchema, found nothing.",
    ),
    "another validator": (
        modified("workers", validator={"$jsonSchema": {"bsonType": "object"}}),
        "The validator of workers differs: wanted validator.$jsonSchema.required",
    ),
    "validator off": (
        modified("locks", validationLevel="off"),
        "The validator of locks differs: wanted validationLevel strict, found off.",
    ),
    "validator that only warns": (
        modified("locks", validationAction="warn"),
        "The validator of locks differs: wanted validationAction error, found warn.",
    ),
    "not applied": (
        lambda database: database["_migrations"].delete_one({"_id": "scheduler:014_graph_jobs"}),
        "Migration 014_graph_jobs is pending.",
    ),
}


class TestMongo:
    @pytest.fixture(scope="class")
    @staticmethod
    def storage(module_mongo_database: MongoDatabase) -> Iterator[SchedulerStorage]:
        with twinstore.add_scheduler_storage(module_mongo_database.config) as storage:
            yield storage

    @pytest.fixture(scope="class")
    @staticmethod
    def database(module_mongo_database: MongoDatabase) -> Iterator[Database[Document]]:
        with MongoClient[Document](module_mongo_database.url) as client:
            yield client[module_mongo_database.name]

    @pytest.mark.parametrize("kind", CHANGED)
    def test_each_kind_is_named_and_fixed_by_the_stated_remedy(
        self, storage: SchedulerStorage, database: Database[Document], kind: str
    ) -> None:
        change, text = CHANGED[kind]
        change(database)
        (line,) = storage.initializer.verify(additions=False)
        assert text in line
        remedy = line.partition("To fix: ")[2]
        if remedy.startswith("db."):
            _, collection, _ = remedy.split(".")
            database[collection].drop_index("theirs")
        else:
            assert remedy == "twinstore migrate run --module scheduler --backend Mongo"
            storage.initializer.ensure_migrations()
        assert storage.initializer.verify() == ()

    def test_a_collection_of_another_kind_is_named(
        self, storage: SchedulerStorage, database: Database[Document]
    ) -> None:
        database.drop_collection("locks")
        database.command("create", "locks", viewOn="runs", pipeline=[])
        said = storage.initializer.verify(additions=False)
        assert [
            line for line in said if "The collection locks should be an ordinary one, but is a view" in line
        ]
        database.drop_collection("locks")
        database.create_collection("locks", capped=True, size=4096)
        said = storage.initializer.verify(additions=False)
        assert [line for line in said if "is capped at 4096 bytes, so the server removes rows" in line]
        database.drop_collection("locks")
        storage.initializer.ensure_migrations()
        assert storage.initializer.verify() == ()

    @pytest.mark.parametrize("value", [Int64(1), 1.5, "2", None, True], ids=repr)
    def test_a_counter_below_its_documents_is_named(
        self, storage: SchedulerStorage, database: Database[Document], value: object
    ) -> None:
        add_events(storage, f"counter {value}")
        right = database["_counters"].find_one_and_update(
            {"_id": "graph_job_events"}, {"$set": {"value": value}}
        )
        assert right is not None
        (line,) = storage.initializer.verify(additions=False)
        assert line.startswith("The counter of graph_job_events in _counters ")
        mended = f"{{$set: {{value: NumberLong({right['value']})}}}})"
        assert line.endswith(f'To fix: db._counters.updateOne({{_id: "graph_job_events"}}, {mended}')
        database["_counters"].replace_one({"_id": "graph_job_events"}, right)
        assert storage.initializer.verify() == ()

    def test_what_does_nothing_to_a_row_is_a_note(
        self,
        module_mongo_database: MongoDatabase,
        database: Database[Document],
        tmp_path: Path,
        capsys: pytest.CaptureFixture[str],
    ) -> None:
        config = write_config(tmp_path / "settings.json", module_mongo_database.config)
        command = ("--config", config, "migrate", "verify", "--module", "scheduler", "--format", "json")
        database["runs"].create_index([("retryOf", 1)], name="mine")
        found = invoke(capsys, *command)
        assert (found.code, found.json["differences"]) == (0, [])
        assert found.json["notes"] == ["The index runs.mine belongs to no migration."]
        database["runs"].drop_index("mine")
