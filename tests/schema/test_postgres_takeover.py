"""A foreign schema with our name is taken over if it has the right shape, its rows with consent."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from time import monotonic
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from psycopg import sql

from tests.support.databases import LEDGER_FILES
from tests.support.databases import POSTGRES_FILES as FILES
from twinstore import add_scheduler_postgres_storage
from twinstore.errors import ConsentRequiredError, Effect, EffectKind, MigrationError
from twinstore.migrations.migration import COUNTED_ROWS, Consent, MigrationState
from twinstore.scheduler.catalog import SCHEDULER
from twinstore.scheduler.module import MODULE
from twinstore_postgres.schema import migrator
from twinstore_postgres.schema.comparison import describe_schema
from twinstore_postgres.schema.files import Migration
from twinstore_postgres.schema.initializer import counted
from twinstore_postgres.schema.migrator import shipped_migrations

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.databases import PostgresDatabase
    from twinstore.migrations.migration import Initializer
    from twinstore.scheduler.storage import SchedulerStorage

Connection = psycopg.Connection[Any]
TABLES = tuple(entity.name for entity in SCHEDULER.entities)
PLANNED = "V001_CreateSchedulerSchema"
LEDGER = """
CREATE SCHEMA IF NOT EXISTS scheduler;
CREATE TABLE scheduler.schema_migrations (
    migration_name TEXT PRIMARY KEY, category TEXT, checksum TEXT, applied_at timestamptz, applied_by TEXT,
    duration_ms BIGINT
);
INSERT INTO scheduler.schema_migrations
VALUES ('V001_CreateSchedulerSchema', 'schema', 'theirs', now(), 'them', 1);
"""
FOREIGN = """
CREATE SCHEMA scheduler;
CREATE TABLE scheduler.runs (id uuid PRIMARY KEY, tenant_id text NOT NULL, payload jsonb);
CREATE TABLE scheduler.audit (number bigint PRIMARY KEY, tenant_id text);
INSERT INTO scheduler.runs VALUES (gen_random_uuid(), 'acme', '{}'), (gen_random_uuid(), 'umbrella', '{}');
"""
ROW = (
    "INSERT INTO scheduler.run_summaries (tenant_id, schedule_id, updated_at, recent, counters)"
    " SELECT 'acme', 's' || i, now(), '[]', '{}' FROM generate_series(%s::int, %s::int) AS i"
)

# What is done to the tables of the first file, and what is said of it.
DIFFERENT = {
    "ALTER TABLE scheduler.runs DROP COLUMN retry_of": 'Missing: column runs.retry_of: text COLLATE "C".',
    "ALTER TABLE scheduler.runs ADD COLUMN more int": "Not wanted: column runs.more: integer.",
    "ALTER TABLE scheduler.runs ALTER COLUMN trigger TYPE int": "Missing: column runs.trigger: smallint",
    'ALTER TABLE scheduler.runs ALTER COLUMN id TYPE text COLLATE "default"': "Missing: column runs.id",
    "ALTER TABLE scheduler.runs ALTER COLUMN deltas DROP DEFAULT": "Missing: column runs.deltas",
    "ALTER TABLE scheduler.runs DROP CONSTRAINT runs_pkey CASCADE": "Missing: key runs: PRIMARY KEY (id).",
    "ALTER TABLE scheduler.triggers DROP CONSTRAINT triggers_schedule_id_fkey": (
        "Missing: key triggers: FOREIGN KEY (schedule_id) REFERENCES schedules(id) ON DELETE"
    ),
    "DROP INDEX scheduler.uq_schedules_tenant_name": "Missing: index uq_schedules_tenant_name",
    "DROP TABLE scheduler.audit": "Missing: table audit.",
    "CREATE POLICY theirs ON scheduler.runs USING (true)": "Not wanted: policy runs.theirs",
}
# The same of the second file.
UNPROTECTED = {
    "ALTER TABLE scheduler.locks DISABLE ROW LEVEL SECURITY": (
        "Missing: table locks: row-level security forced"
    ),
    "ALTER TABLE scheduler.workers NO FORCE ROW LEVEL SECURITY": (
        "Missing: table workers: row-level security forced"
    ),
    "DROP POLICY tenant_isolation ON scheduler.runs": "Missing: policy runs.tenant_isolation",
}


@pytest.fixture
def owner(empty_postgres_database: PostgresDatabase) -> Iterator[Connection]:
    with closing(psycopg.connect(empty_postgres_database.owner_url, autocommit=True)) as connection:
        yield connection


@pytest.fixture
def initializer(empty_postgres_database: PostgresDatabase) -> Iterator[Initializer]:
    with add_scheduler_postgres_storage(empty_postgres_database.config) as storage:
        yield storage.initializer


def wanted_tables(owner: Connection, *, planned: bool) -> None:
    """Make the tables of the first file as the customer's plan names it, or without any ledger."""
    if planned:
        owner.execute(LEDGER.encode())
    owner.execute(shipped_migrations(MODULE)[0].text.encode())


def everything(owner: Connection) -> tuple[object, ...]:
    """Return schema and rows, by which a change would show."""
    lines = describe_schema(owner, "scheduler", "twinstore_test_app")
    tables = [line.split()[1].rstrip(":") for line in lines if line.startswith("table ")]
    rows = [
        owner.execute(
            sql.SQL("SELECT ctid::text, xmin::text, t::text FROM {} AS t").format(
                sql.Identifier("scheduler", name)
            )
        ).fetchall()
        for name in tables
    ]
    return lines, rows


@contextmanager
def unchanged(owner: Connection) -> Iterator[None]:
    before = everything(owner)
    yield
    assert everything(owner) == before


def hidden(rows: int, name: str = "run_summaries", *, more: bool = False) -> Effect:
    return Effect(kind=EffectKind.RLS, name=name, rows=rows, more=more)


class TestShape:
    @pytest.mark.parametrize("planned", [True, False], ids=["with their ledger", "without a ledger"])
    def test_tables_of_another_application_stay_as_they_are(
        self,
        initializer: Initializer,
        owner: Connection,
        planned: bool,  # noqa: FBT001  # a variant
    ) -> None:
        owner.execute(FOREIGN.encode())
        if planned:
            owner.execute(LEDGER.encode())
        with unchanged(owner), pytest.raises(MigrationError) as caught:
            initializer.ensure_migrations(accept={Consent(EffectKind.RLS, name) for name in TABLES})
        for difference in (
            'Missing: column runs.id: text COLLATE "C" NOT NULL.',
            "Missing: column runs.created_at: timestamp(3) with time zone NOT NULL.",
            "Not wanted: column runs.id: uuid NOT NULL.",
            "Not wanted: column runs.payload: jsonb.",
            "Missing: key audit: PRIMARY KEY (id).",
            "Not wanted: key audit: PRIMARY KEY (number).",
            "nothing was changed",
        ):
            assert difference in caught.value.message
        with unchanged(owner), pytest.raises(MigrationError, match="nothing was changed"):
            initializer.effects()
        assert owner.execute("SELECT count(*) FROM scheduler.runs").fetchone() == (2,)

    def test_the_planning_name_without_its_tables_counts_for_nothing(
        self, initializer: Initializer, owner: Connection
    ) -> None:
        owner.execute(LEDGER.encode())
        with unchanged(owner), pytest.raises(MigrationError, match=r"Missing: table audit\."):
            initializer.ensure_migrations()
        assert initializer.status()[0].state is MigrationState.CHANGED

    @pytest.mark.parametrize("planned", [True, False], ids=["planning name", "no ledger"])
    def test_tables_of_the_wanted_shape_are_taken_over(
        self,
        empty_postgres_database: PostgresDatabase,
        owner: Connection,
        planned: bool,  # noqa: FBT001
    ) -> None:
        wanted_tables(owner, planned=planned)
        with add_scheduler_postgres_storage(empty_postgres_database.config) as storage:
            if planned:
                assert storage.initializer.status()[0].state is MigrationState.APPLIED
            assert storage.initializer.ensure_migrations().applied == FILES[1 if planned else 0 :]
            storage.check_ready()

    def test_every_difference_is_named(self, initializer: Initializer, owner: Connection) -> None:
        wanted_tables(owner, planned=True)
        for change in DIFFERENT:
            owner.execute(change.encode())
        with unchanged(owner), pytest.raises(MigrationError) as caught:
            initializer.ensure_migrations()
        assert [line for line in DIFFERENT.values() if line not in caught.value.message] == []

    def test_names_of_keys_and_the_search_path_do_not_matter(
        self, empty_postgres_database: PostgresDatabase, initializer: Initializer, owner: Connection
    ) -> None:
        wanted_tables(owner, planned=True)
        owner.execute("ALTER TABLE scheduler.runs RENAME CONSTRAINT runs_pkey TO pk_of_theirs")
        database = sql.Identifier(empty_postgres_database.name)
        with psycopg.connect(empty_postgres_database.superuser_url, autocommit=True) as admin:
            admin.execute(sql.SQL("ALTER DATABASE {} SET search_path = scheduler").format(database))
        assert initializer.ensure_migrations().applied == FILES[1:]
        with add_scheduler_postgres_storage(empty_postgres_database.config) as storage:
            storage.check_ready()

    def test_a_view_is_no_table(self, initializer: Initializer, owner: Connection) -> None:
        owner.execute("CREATE SCHEMA scheduler; CREATE VIEW scheduler.runs AS SELECT 1 AS id")
        with (
            unchanged(owner),
            pytest.raises(MigrationError, match=r"runs is not an ordinary table"),
        ):
            initializer.ensure_migrations()

    def test_a_ledger_of_other_columns_is_not_ours(self, initializer: Initializer, owner: Connection) -> None:
        owner.execute("CREATE SCHEMA scheduler; CREATE TABLE scheduler.schema_migrations (version bigint)")
        with unchanged(owner), pytest.raises(MigrationError, match="is not the ledger of twinstore"):
            initializer.ensure_migrations()

    def test_a_table_in_the_place_of_a_later_migration_is_refused_too(
        self, initializer: Initializer, owner: Connection, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        initializer.ensure_migrations()
        owner.execute("CREATE TABLE scheduler.late (id int)")
        late = Migration("100_late.sql", "CREATE TABLE IF NOT EXISTS scheduler.late (id text);")
        shipped = (*shipped_migrations(MODULE), late)
        monkeypatch.setattr(migrator, "shipped_migrations", lambda _module: shipped)
        assert initializer.ensure_migrations().applied == ()
        with unchanged(owner), pytest.raises(MigrationError, match=r"Not wanted: column late\.id: integer"):
            initializer.ensure_migrations(release=True)

    def test_other_tables_next_to_ours_do_not_matter(
        self, empty_postgres_database: PostgresDatabase, owner: Connection
    ) -> None:
        owner.execute("CREATE SCHEMA scheduler; CREATE TABLE scheduler.theirs (id int)")
        with add_scheduler_postgres_storage(empty_postgres_database.config) as storage:
            assert storage.initializer.ensure_migrations().applied == FILES
            storage.check_ready()


class TestConsent:
    @pytest.mark.parametrize("planned", [True, False], ids=["planning name", "no ledger"])
    def test_rows_are_hidden_only_with_consent_to_their_table(
        self,
        initializer: Initializer,
        owner: Connection,
        planned: bool,  # noqa: FBT001  # a variant
    ) -> None:
        wanted_tables(owner, planned=planned)
        owner.execute(ROW, [1, 3])
        with unchanged(owner):
            assert initializer.effects() == (hidden(3),)
            with pytest.raises(ConsentRequiredError) as caught:
                initializer.ensure_migrations(accept={Consent(EffectKind.RLS, "runs")})
        assert caught.value.effects == (hidden(3),)
        assert (
            "hide 3 rows of run_summaries from clients that do not set app.tenant_id" in caught.value.message
        )
        assert "--accept-rls run_summaries=3" in caught.value.message
        accept = {Consent(EffectKind.RLS, "run_summaries")}
        assert initializer.ensure_migrations(accept=accept).applied == FILES[1 if planned else 0 :]
        assert initializer.effects() == ()
        assert initializer.verify() == () if not planned else True

    def test_a_count_that_has_grown_since_it_was_accepted_stops_again(
        self, initializer: Initializer, owner: Connection
    ) -> None:
        wanted_tables(owner, planned=True)
        owner.execute(ROW, [1, 3])
        accept = {Consent(EffectKind.RLS, "run_summaries", 3)}
        owner.execute(ROW, [4, 4])
        with unchanged(owner), pytest.raises(ConsentRequiredError) as caught:
            initializer.ensure_migrations(accept=accept)
        assert caught.value.effects == (hidden(4),)
        owner.execute("DELETE FROM scheduler.run_summaries WHERE schedule_id IN ('s1', 's2')")
        assert initializer.ensure_migrations(accept=accept).applied == FILES[1:]

    def test_rows_that_come_before_the_lock_is_held_are_counted_too(
        self, initializer: Initializer, owner: Connection, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        wanted_tables(owner, planned=True)
        apply = migrator.apply

        def late(*arguments: Any) -> bool:  # noqa: ANN401  # as the original
            owner.execute(ROW, [1, 2])
            return apply(*arguments)

        monkeypatch.setattr(migrator, "apply", late)
        with pytest.raises(ConsentRequiredError) as caught:
            initializer.ensure_migrations()
        assert caught.value.effects == (hidden(2),)
        assert "table run_summaries: row-level security off" in describe_schema(owner, "scheduler")

    def test_more_rows_than_are_counted_need_a_consent_without_a_number(
        self, initializer: Initializer, owner: Connection
    ) -> None:
        wanted_tables(owner, planned=True)
        owner.execute(ROW, [1, COUNTED_ROWS + 1])
        assert initializer.effects() == (hidden(COUNTED_ROWS, more=True),)
        with pytest.raises(ConsentRequiredError, match="more than 10,000 rows"):
            initializer.ensure_migrations(accept={Consent(EffectKind.RLS, "run_summaries", 10**9)})
        initializer.ensure_migrations(accept={Consent(EffectKind.RLS, "run_summaries")})

    def test_the_exported_script_takes_over_no_table(
        self, initializer: Initializer, owner: Connection
    ) -> None:
        owner.execute(FOREIGN.encode())
        script = initializer.export().encode()
        with unchanged(owner):
            with pytest.raises(
                psycopg.errors.RaiseException, match=f"has a table that {FILES[0]} would make"
            ):
                owner.execute(script)
            owner.execute("ROLLBACK; DROP TABLE IF EXISTS scheduler.schema_migrations")

    def test_the_exported_script_asks_too(self, initializer: Initializer, owner: Connection) -> None:
        wanted_tables(owner, planned=True)
        rename = "UPDATE scheduler.schema_migrations SET migration_name = %s, checksum = %s"
        owner.execute(rename, [FILES[0], shipped_migrations(MODULE)[0].checksum])
        owner.execute(ROW, [1, 3])
        script = initializer.export().encode()
        with pytest.raises(
            psycopg.errors.RaiseException, match=r"SET twinstore\.accept_rls = 'run_summaries'"
        ):
            owner.execute(script)
        owner.execute("ROLLBACK")
        assert "table run_summaries: row-level security off" in describe_schema(owner, "scheduler")
        owner.execute("SET twinstore.accept_rls = 'audit,run_summaries'")
        owner.execute(script)
        assert "table run_summaries: row-level security forced" in describe_schema(owner, "scheduler")


class TestReadiness:
    @pytest.fixture
    def storage(self, postgres_database: PostgresDatabase) -> Iterator[SchedulerStorage]:
        with add_scheduler_postgres_storage(postgres_database.config) as storage:
            storage.check_ready()
            yield storage

    @pytest.fixture
    def owner(self, postgres_database: PostgresDatabase) -> Iterator[Connection]:
        with closing(psycopg.connect(postgres_database.owner_url, autocommit=True)) as connection:
            yield connection

    @pytest.mark.parametrize("changes", [DIFFERENT, UNPROTECTED], ids=["tables", "protection"])
    def test_a_schema_that_was_changed_by_hand_is_not_ready(
        self, storage: SchedulerStorage, owner: Connection, changes: dict[str, str]
    ) -> None:
        for change in changes:
            owner.execute(change.encode())
        with pytest.raises(MigrationError, match="migrate verify --module scheduler") as caught:
            storage.check_ready()
        missing = [line for line in changes.values() if line.startswith("Missing:")]
        assert [line for line in missing if line not in caught.value.message] == []

    @pytest.mark.parametrize(
        "change",
        [
            "DROP INDEX scheduler.idx_runs_pending",
            "ALTER TABLE scheduler.runs ADD COLUMN newer int",
            "CREATE TABLE scheduler.newer (id int)",
        ],
    )
    def test_what_only_costs_time_or_is_more_than_wanted_is_left_to_verify(
        self, storage: SchedulerStorage, owner: Connection, change: str
    ) -> None:
        owner.execute(change.encode())
        storage.check_ready()
        assert storage.initializer.verify() != ()


class TestLedgerOfCopies:
    """A schema with the ledger's name may also belong to another program."""

    @pytest.fixture
    @staticmethod
    def ledger(empty_postgres_database: PostgresDatabase) -> Iterator[Initializer]:
        with add_scheduler_postgres_storage(empty_postgres_database.config) as storage:
            yield storage.bulk.ledger_initializer

    def test_tables_of_another_application_stay_as_they_are(
        self, ledger: Initializer, owner: Connection
    ) -> None:
        owner.execute("CREATE SCHEMA twinstore")
        owner.execute("CREATE TABLE twinstore.jobs (id uuid PRIMARY KEY, title text)")
        owner.execute("INSERT INTO twinstore.jobs VALUES (gen_random_uuid(), 'theirs')")
        before = describe_schema(owner, "twinstore")
        for refused in (ledger.effects, ledger.ensure_migrations):
            with pytest.raises(MigrationError, match=r"Not wanted: column jobs\.title: text") as caught:
                refused()
            assert "nothing was changed" in caught.value.message
        assert describe_schema(owner, "twinstore") == before
        assert owner.execute("SELECT title FROM twinstore.jobs").fetchall() == [("theirs",)]

    def test_it_hides_nothing_so_it_needs_no_consent(self, ledger: Initializer) -> None:
        assert ledger.effects() == ()
        consent = Consent(EffectKind.RLS, "jobs", 3)
        assert ledger.ensure_migrations(accept={consent}).applied == LEDGER_FILES
        assert (ledger.effects(), ledger.verify()) == ((), ())


def test_counting_waits_for_a_table_of_another_process_without_holding_one(
    owner: Connection, empty_postgres_database: PostgresDatabase
) -> None:
    """Two processes that begin together: one counts rows, while the other alters the same tables."""
    owner.execute(FOREIGN)
    names = ["audit", "runs"]
    url = empty_postgres_database.owner_url
    with closing(psycopg.connect(url, autocommit=True)) as other, ThreadPoolExecutor() as pool:
        with owner.transaction():
            owner.execute("LOCK TABLE scheduler.runs IN ACCESS EXCLUSIVE MODE")
            found = pool.submit(counted, other, "scheduler", names)
            await_waiting(owner, other.info.backend_pid)
            # It has counted the first table and released its lock.
            owner.execute("LOCK TABLE scheduler.audit IN ACCESS EXCLUSIVE MODE NOWAIT")
        assert found.result() == [("audit", 0), ("runs", 2)]


def await_waiting(connection: Connection, pid: int) -> None:
    """Wait until a backend waits for a lock."""
    waiting = "SELECT count(*) FROM pg_locks WHERE pid = %s AND NOT granted"
    deadline = monotonic() + 30
    while connection.execute(waiting, [pid]).fetchone() == (0,):
        assert monotonic() < deadline, "it does not wait"
