"""A PostgreSQL source is only read: by a role with SELECT alone, from tables that another owner created."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import psycopg
import pytest
from psycopg import sql

from tests.drivers.postgres.deployment import PostgresDeployment
from tests.support.copies import (
    AS_OF,
    DOCUMENTS_PER_TENANT,
    READINGS,
    SINGLE_READINGS,
    Answer,
    fill,
    invoke,
    keys_in,
    open_store,
    rows_of,
    single_keys_in,
    write_config,
)
from tests.support.databases import APP_ROLE, without_retention
from tests.support.servers import postgres_url
from twinstore import add_scheduler_postgres_storage, load_settings
from twinstore.catalog.keys import KeyRange
from twinstore.errors import ConfigurationError, ValidationError
from twinstore.scheduler.catalog import RUN_SUMMARIES, RUNS, SCHEDULER
from twinstore.testing.entities import KIT, MODULE
from twinstore.testing.scheduler.builders import make_run
from twinstore_backfill.outcome import Exit
from twinstore_postgres.bulk.inventory import inventory_of
from twinstore_postgres.bulk.snapshot import find_step, table_info
from twinstore_postgres.mapping.table import table_of
from twinstore_postgres.schema.comparison import SCHEMA_FILE, describe_schema, wanted_schema

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.databases import MongoDatabase, PostgresDatabase, PostgresServer
    from twinstore.bulk.port import BulkPort
    from twinstore.catalog.entity import Entity
    from twinstore.plugins.module_spec import ModuleSpec

Connection = psycopg.Connection[Any]
Command = Callable[..., Answer]
ROWS = 2 * DOCUMENTS_PER_TENANT
SETTING = "current_setting('app.tenant_id', true)"
TABLES = tuple(entity.name for entity in SCHEDULER.entities)
# What another service would not have: our ledgers, policies, indexes and keys, and the order by code point.
STRIP = """
DROP TABLE scheduler.schema_migrations, scheduler.backfill_ranges, scheduler.backfill_jobs;
DO $$
DECLARE
    item record;
BEGIN
    FOR item IN SELECT tablename, policyname FROM pg_policies WHERE schemaname = 'scheduler' LOOP
        EXECUTE format('DROP POLICY %I ON scheduler.%I', item.policyname, item.tablename);
        EXECUTE format('ALTER TABLE scheduler.%I DISABLE ROW LEVEL SECURITY', item.tablename);
    END LOOP;
    FOR item IN SELECT conrelid::regclass AS place, conname FROM pg_constraint
                 WHERE connamespace = 'scheduler'::regnamespace AND contype IN ('f', 'p', 'u')
                 ORDER BY contype LOOP
        EXECUTE format('ALTER TABLE %s DROP CONSTRAINT %I', item.place, item.conname);
    END LOOP;
    FOR item IN SELECT indexname FROM pg_indexes WHERE schemaname = 'scheduler' LOOP
        EXECUTE format('DROP INDEX scheduler.%I', item.indexname);
    END LOOP;
    FOR item IN SELECT attrelid::regclass AS place, attname FROM pg_attribute a
                  JOIN pg_class c ON c.oid = a.attrelid AND c.relkind = 'r'
                 WHERE c.relnamespace = 'scheduler'::regnamespace AND a.attnum > 0
                   AND a.attcollation <> 0 AND a.atttypid = 'text'::regtype LOOP
        EXECUTE format(
            'ALTER TABLE %s ALTER COLUMN %I TYPE varchar COLLATE "default"', item.place, item.attname);
    END LOOP;
END
$$;
"""


@dataclass(frozen=True)
class Foreign:
    """A database as its superuser, and a role that may connect and nothing else yet."""

    admin: Connection
    role: str
    url: str

    def run(self, statement: str) -> None:
        """Run a statement as superuser; ``{}`` is replaced by the role."""
        role = sql.Identifier(self.role).as_string()
        self.admin.execute(statement.replace("{}", role).encode())

    def grant(self) -> None:
        """Give the role what a source needs."""
        self.run("GRANT USAGE ON SCHEMA scheduler TO {}")
        self.run("GRANT SELECT ON ALL TABLES IN SCHEMA scheduler TO {}")

    @property
    def settings(self) -> dict[str, object]:
        return {"Persistence": {"Scheduler": "Postgres", "Postgres": {"ConnectionString": self.url}}}


@pytest.fixture
def foreign(postgres_database: PostgresDatabase, postgres_server: PostgresServer) -> Iterator[Foreign]:
    """Fill a database through the service, and create a reader without any right."""
    with add_scheduler_postgres_storage(without_retention(postgres_database.config)) as storage:
        fill(storage)
    role = f"reader_{uuid4().hex[:8]}"
    url = postgres_url(postgres_database.superuser_url, user=role, password="reader")
    with closing(psycopg.connect(postgres_database.superuser_url, autocommit=True)) as admin:
        made = Foreign(admin, role, url)
        made.run("CREATE ROLE {} LOGIN PASSWORD 'reader'")
        database = sql.Identifier(postgres_database.name)
        admin.execute(sql.SQL("REVOKE TEMPORARY, CREATE ON DATABASE {} FROM PUBLIC").format(database))
        yield made
        made.run("DROP OWNED BY {}")
    postgres_server.admin.execute(sql.SQL("DROP ROLE {}").format(sql.Identifier(role)))


@pytest.fixture
def stripped(foreign: Foreign) -> Foreign:
    """Take everything of ours away from the tables."""
    foreign.admin.execute(STRIP.encode())
    foreign.grant()
    return foreign


@pytest.fixture
def command(
    foreign: Foreign, empty_mongo_database: MongoDatabase, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> Command:
    """Return a way to run a command from the foreign database to an empty MongoDB."""
    source = write_config(tmp_path / "source.json", foreign.settings)
    target = write_config(tmp_path / "target.json", without_retention(empty_mongo_database.config))

    def run(name: str, *more: object) -> Answer:
        sides = ("--module", "scheduler", "--from", "postgres", "--to", "mongo")
        files = ("--source-config", source, "--target-config", target)
        return invoke(capsys, "backfill", name, *sides, *files, "--as-of", AS_OF.isoformat(), *more)

    return run


def footprint(admin: Connection) -> tuple[object, ...]:
    """Return every row with its place and its last writer, and every line of the schema."""
    rows = []
    for name in TABLES:
        if admin.execute("SELECT to_regclass(%s)", [f"scheduler.{name}"]).fetchone() == (None,):
            continue
        table = sql.Identifier("scheduler", name)
        query = sql.SQL("SELECT ctid::text, xmin::text, t::text FROM {} AS t ORDER BY ctid").format(table)
        rows.append((name, admin.execute(query).fetchall()))
    others = admin.execute("SELECT relname FROM pg_class WHERE relpersistence = 't' ORDER BY 1").fetchall()
    return rows, describe_schema(admin, "scheduler", "reader"), others


def test_plan_copy_and_verify_leave_foreign_tables_as_they_were(
    stripped: Foreign, command: Command, tmp_path: Path
) -> None:
    before = footprint(stripped.admin)
    plan = command("plan", "--format", "json")
    dry = command("copy", "--format", "json")
    copied = command("copy", "--execute", "--range-size", 3, "--out", tmp_path, "--format", "json")
    verified = command("verify", "--range-size", 3, "--out", tmp_path, "--format", "json")
    assert [answer.code for answer in (plan, dry, copied, verified)] == [0] * 4, verified.out
    assert footprint(stripped.admin) == before
    assert plan.json["rows"] == verified.json["documents_equal"] == ROWS
    assert (verified.json["verdict"], verified.json["reasons"]) == ("PASS", [])


def test_a_footprint_shows_a_change_of_rows_and_of_the_schema(stripped: Foreign) -> None:
    last = footprint(stripped.admin)
    for change in (
        "UPDATE scheduler.runs SET error = error WHERE id = 'acme-run-1'",
        "CREATE INDEX ON scheduler.runs (id)",
        "ALTER TABLE scheduler.runs ENABLE ROW LEVEL SECURITY",
    ):
        stripped.run(change)
        found = footprint(stripped.admin)
        assert found != last
        last = found


def test_what_is_missing_is_a_warning_with_its_cost_in_plan_copy_and_report(
    stripped: Foreign, command: Command, tmp_path: Path
) -> None:
    stripped.run("DROP TABLE scheduler.audit")
    plan, copied = command("plan"), command("copy", "--execute", "--out", tmp_path)
    verified = command("verify", "--out", tmp_path)
    assert (copied.code, verified.code) == (0, 0)
    for text in (plan.out, copied.out, verified.out):
        assert "There is no table scheduler.audit; it counts as empty." in " ".join(text.split())
        # What only costs time is one line, and not a second time on stderr.
        assert text.count("warnings (speed only)") == 1
    assert "reads the whole table" not in copied.err + verified.err
    shown = " ".join((tmp_path / "parity-report.md").read_text().replace("\\", "").split())
    assert "scheduler.runs has no index on (id) that compares texts by code point" in shown
    assert "reads the whole table" in shown
    assert "scheduler.runs lacks the indexes idx_runs_finished, idx_runs_pending" in shown
    report = json.loads((tmp_path / "parity-report.json").read_text())
    assert any("scheduler.audit" in text for text in report["warnings"])


def test_our_own_schema_is_a_source_without_a_warning(foreign: Foreign, command: Command) -> None:
    foreign.grant()
    assert command("plan", "--format", "json").json["warnings"] == []


class TestRights:
    def test_each_missing_right_is_named_with_the_statement_that_gives_it(
        self, foreign: Foreign, command: Command
    ) -> None:
        answer = command("plan")
        assert answer.code == Exit.PREFLIGHT_REFUSED
        assert f'GRANT USAGE ON SCHEMA scheduler TO "{foreign.role}"' in answer.err
        foreign.run("GRANT USAGE ON SCHEMA scheduler TO {}")
        foreign.run("GRANT SELECT ON scheduler.schedules TO {}")
        answer = command("plan")
        assert answer.code == Exit.PREFLIGHT_REFUSED
        assert f'GRANT SELECT ON scheduler.runs TO "{foreign.role}"' in answer.err
        assert "scheduler.schedules" not in answer.err
        foreign.run("GRANT SELECT ON ALL TABLES IN SCHEMA scheduler TO {}")
        assert command("plan").code == 0

    def test_rows_that_a_policy_hides_are_never_copied_in_part(
        self, stripped: Foreign, command: Command, empty_mongo_database: MongoDatabase
    ) -> None:
        stripped.run("ALTER TABLE scheduler.runs ENABLE ROW LEVEL SECURITY")
        stripped.run(
            "CREATE POLICY theirs ON scheduler.runs USING (tenant_id = current_setting('their.tenant', true))"
        )
        for name, more in (("plan", ()), ("copy", ("--execute",))):
            answer = command(name, *more)
            assert answer.code == Exit.PREFLIGHT_REFUSED
            assert f'ALTER ROLE "{stripped.role}" BYPASSRLS' in answer.err
        with open_store(
            "scheduler", "mongo", load_settings(empty_mongo_database.config, environ={})
        ) as target:
            assert sum(rows_of(target.bulk).values()) == 0
        stripped.run("ALTER ROLE {} BYPASSRLS")
        assert command("plan", "--format", "json").json["rows"] == ROWS

    def test_the_policy_that_the_message_proposes_is_enough(
        self, stripped: Foreign, command: Command
    ) -> None:
        stripped.run("ALTER TABLE scheduler.runs ENABLE ROW LEVEL SECURITY")
        stripped.run("ALTER TABLE scheduler.runs FORCE ROW LEVEL SECURITY")
        refused = command("plan").err
        proposed = refused[refused.index("CREATE POLICY") :].partition("(true)")
        stripped.admin.execute("".join(proposed[:2]).encode())
        assert command("plan", "--format", "json").json["rows"] == ROWS

    def test_only_a_policy_that_surely_shows_everything_will_do(
        self, stripped: Foreign, command: Command
    ) -> None:
        stripped.run("ALTER TABLE scheduler.runs ENABLE ROW LEVEL SECURITY")
        for condition, enough in (
            ("true", True),
            (f"tenant_id = {SETTING} AND {SETTING} = 'system'", False),
            (f"(tenant_id = {SETTING} OR {SETTING} = 'system') AND id > 'b'", False),
            (f"{SETTING} = 'system'", False),
            (f"tenant_id <> 'system' AND tenant_id = {SETTING}", False),
            (f"tenant_id = {SETTING} OR {SETTING} = 'system'", True),
        ):
            stripped.run("DROP POLICY IF EXISTS theirs ON scheduler.runs")
            stripped.run(f"CREATE POLICY theirs ON scheduler.runs USING ({condition})")
            assert (command("plan").code == 0) is enough, condition
        assert command("copy", "--execute").code == 0
        assert command("verify", "--format", "json").json["documents_equal"] == ROWS
        # A restrictive one hides rows although the other is open.
        stripped.run("CREATE POLICY narrow ON scheduler.runs AS RESTRICTIVE USING (tenant_id = 'acme')")
        assert command("plan").code == Exit.PREFLIGHT_REFUSED

    def test_nothing_can_be_written_through_a_source_not_even_by_its_owner(
        self, postgres_database: PostgresDatabase, tenant: str
    ) -> None:
        settings = {"Persistence": {"Postgres": {"ConnectionString": postgres_database.owner_url}}}
        loaded = load_settings(settings, environ={})
        with open_store("scheduler", "postgres", loaded, read_only=True) as store:
            with pytest.raises(ValidationError, match="25006"):
                store.storage.runs.create(make_run(tenant, f"r@{tenant}"))
            assert store.bulk.counts(RUNS) == {}


class TestShape:
    def test_none_of_the_tables_is_refused(self, foreign: Foreign, command: Command) -> None:
        foreign.run("DROP SCHEMA scheduler CASCADE")
        answer = command("plan")
        assert answer.code == Exit.PREFLIGHT_REFUSED
        assert "has none of schedules, triggers, runs, " in answer.err

    def test_a_column_of_another_type_or_none_is_named(self, stripped: Foreign, command: Command) -> None:
        stripped.run("ALTER TABLE scheduler.runs ALTER COLUMN created_at TYPE timestamp(3)")
        stripped.run("ALTER TABLE scheduler.runs DROP COLUMN retry_of")
        answer = command("copy", "--execute")
        assert answer.code == Exit.PREFLIGHT_REFUSED
        assert "created_at as timestamp without time zone instead of timestamp with time zone" in answer.err
        assert "no column retry_of" in answer.err

    def test_absent_tables_read_as_empty(self, foreign: Foreign) -> None:
        foreign.run("DROP SCHEMA scheduler CASCADE")
        loaded = load_settings(foreign.settings, environ={})
        with open_store("scheduler", "postgres", loaded, read_only=True) as store:
            for entity in SCHEDULER.entities:
                assert store.bulk.counts(entity) == store.bulk.counts(entity, tenant_id="t") == {}
                assert list(store.bulk.cut(entity, 5)) == [KeyRange()]
                for reading in READINGS:
                    assert keys_in(store.bulk, reading, entity, [KeyRange()]) == []
                for single in SINGLE_READINGS:
                    assert single_keys_in(store.bulk, single, entity, [tuple("k" for _ in entity.key)]) == []
            assert not any(item.present for item in store.bulk.inventory())


class TestKeys:
    @pytest.fixture
    def loose(self, stripped: Foreign) -> Foreign:
        """Let rows have no key, or share one."""
        stripped.run("ALTER TABLE scheduler.runs ALTER COLUMN id DROP NOT NULL")
        stripped.run("ALTER TABLE scheduler.run_summaries ALTER COLUMN schedule_id DROP NOT NULL")
        return stripped

    def test_rows_without_a_key_are_seen_once(self, loose: Foreign) -> None:
        loose.run("UPDATE scheduler.runs SET id = NULL WHERE id LIKE 'acme-run-%'")
        loose.run("UPDATE scheduler.run_summaries SET schedule_id = NULL WHERE tenant_id = 'acme'")
        loaded = load_settings(loose.settings, environ={})
        with open_store("scheduler", "postgres", loaded, read_only=True) as store:
            for entity, keyless, rows in ((RUNS, 7, 14), (RUN_SUMMARIES, 2, 4)):
                for size in (1, 2, 100):
                    ranges = list(store.bulk.cut(entity, size))
                    for reading in READINGS:
                        keys = keys_in(store.bulk, reading, entity, ranges)
                        assert (len(keys), keys.count(None)) == (rows, keyless)
                        found = [key for key in keys if key is not None]
                        assert found == sorted(set(found))

    def test_what_has_no_key_or_shares_one_leaves_the_proof_open(
        self, loose: Foreign, command: Command, tmp_path: Path
    ) -> None:
        loose.run("UPDATE scheduler.runs SET id = NULL WHERE id = 'acme-run-3'")
        loose.run("INSERT INTO scheduler.runs SELECT * FROM scheduler.runs WHERE id = 'acme-run-5'")
        copied = command("copy", "--execute", "--range-size", 1, "--out", tmp_path, "--format", "json")
        totals = copied.json["totals"]
        assert (copied.code, totals["quarantined"], totals["written"]) == (Exit.INCONCLUSIVE, 2, ROWS - 1)
        without_retention = [
            json.loads(line) for line in (tmp_path / "quarantine.ndjson").read_text().splitlines()
        ]
        assert sorted(str(entry["key"]) for entry in without_retention) == ["None", "['acme-run-5']"]
        verified = command("verify", "--range-size", 1, "--format", "json")
        (runs,) = (item for item in verified.json["entities"] if item["entity"] == "runs")
        assert (runs["counts"]["equal"], runs["counts"]["quarantined"]) == (13, 2)
        assert verified.code in {Exit.DIFFERENT, Exit.INCONCLUSIVE}


def test_keys_come_by_code_point_whatever_the_collation(stripped: Foreign) -> None:
    for number, key in enumerate(("b", "A", "c", "B2", "Z", "a1")):
        change = "UPDATE scheduler.runs SET id = %s WHERE id = %s"
        stripped.admin.execute(change, [key, f"acme-run-{number}"])
    loaded = load_settings(stripped.settings, environ={})
    with open_store("scheduler", "postgres", loaded, read_only=True) as store:
        assert store.bulk.counts(RUNS) == {"acme": 7, "umbrella": 7}
        ranges = list(store.bulk.cut(RUNS, 2))
        for reading in READINGS:
            keys = keys_in(store.bulk, reading, RUNS, ranges)
            assert keys == sorted(key for key in keys if key is not None)
            assert len(keys) == 14


NOTES = KIT.entity("notes")
COUNTERS = KIT.entity("counters")


@pytest.fixture
def admin(empty_postgres_database: PostgresDatabase) -> Iterator[Connection]:
    with closing(psycopg.connect(empty_postgres_database.superuser_url, autocommit=True)) as connection:
        yield connection


@pytest.fixture
def bulk(empty_postgres_database: PostgresDatabase) -> Iterator[BulkPort]:
    """Make the tables that the descriptions ask for."""
    deployment = PostgresDeployment(MODULE, empty_postgres_database)
    with closing(deployment.probe), deployment.open_module(MODULE) as backend:
        yield backend.bulk


@pytest.fixture
def reader(bulk: BulkPort, empty_postgres_database: PostgresDatabase) -> Iterator[Connection]:
    """Connect as the role of the service, which the policies bind."""
    del bulk
    with closing(psycopg.connect(empty_postgres_database.app_url, autocommit=True)) as connection:
        yield connection


@pytest.fixture
def module(
    reader: Connection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[ModuleSpec[object]]:
    """Ship the schema that the tables have now."""
    folder = tmp_path / "shipped_kit" / "migrations" / "postgres"
    folder.mkdir(parents=True)
    (tmp_path / "shipped_kit" / "__init__.py").touch()
    lines = describe_schema(reader, KIT.name, APP_ROLE)
    (folder / SCHEMA_FILE).write_text("\n".join(lines), encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    # Or that of an earlier test would be found.
    monkeypatch.delitem(sys.modules, "shipped_kit", raising=False)
    wanted_schema.cache_clear()
    yield replace(MODULE, package="shipped_kit")
    wanted_schema.cache_clear()


def test_tables_of_every_kind_are_a_source_without_a_warning(
    reader: Connection, module: ModuleSpec[object]
) -> None:
    found = inventory_of(reader, module)
    assert [(item.entity, item.present, item.warnings) for item in found] == [
        (entity.name, True, ()) for entity in KIT.entities
    ]


@pytest.mark.parametrize("entity", [item for item in KIT.entities if table_of(item).owned], ids=str)
def test_a_policy_that_hides_rows_is_found_regardless_of_their_owner(
    admin: Connection, reader: Connection, module: ModuleSpec[object], entity: Entity
) -> None:
    table = sql.Identifier(KIT.name, entity.name)
    admin.execute(sql.SQL("CREATE POLICY narrow ON {} AS RESTRICTIVE USING (false)").format(table))
    with pytest.raises(ConfigurationError, match=rf"Row-level security of {KIT.name}\.{entity.name} decides"):
        inventory_of(reader, module)


def test_a_column_that_would_not_be_compared_is_named(
    admin: Connection, reader: Connection, module: ModuleSpec[object]
) -> None:
    admin.execute(sql.SQL("ALTER TABLE {} ADD COLUMN more text").format(table_of(NOTES).name))
    with pytest.raises(ConfigurationError, match="a column more that would be neither copied nor compared"):
        inventory_of(reader, module)


def test_a_source_needs_no_version_of_its_rows(
    admin: Connection, bulk: BulkPort, reader: Connection, module: ModuleSpec[object]
) -> None:
    for entity in KIT.entities:
        if entity.versioned:
            dropped = sql.SQL("ALTER TABLE {} DROP COLUMN row_version").format(table_of(entity).name)
            admin.execute(dropped)
    assert all(item.present for item in inventory_of(reader, module))
    with bulk.view() as view:
        assert [list(view.rows(entity, KeyRange())) for entity in KIT.entities] == [[]] * len(KIT.entities)


def test_a_list_of_numbers_is_read_in_its_own_width_alone(
    admin: Connection, reader: Connection, module: ModuleSpec[object]
) -> None:
    admin.execute("ALTER TABLE kit.notes ALTER steps TYPE int4[], ALTER seats TYPE text[]")
    wrong = r"seats as text\[\] instead of integer\[\]"
    with pytest.raises(ConfigurationError, match=rf"steps as integer\[\] instead of bigint\[\], {wrong}"):
        inventory_of(reader, module)


def test_keys_may_be_null_where_no_constraint_forbids_it(admin: Connection, bulk: BulkPort) -> None:
    del bulk
    table = table_of(COUNTERS)
    found = table_info(admin.execute(*find_step(table)).fetchone())
    assert found is not None
    assert not found.nullable
    admin.execute(sql.SQL("DROP TABLE {} CASCADE").format(table.name))
    assert table_info(admin.execute(*find_step(table)).fetchone()) is None
    admin.execute("CREATE FOREIGN DATA WRAPPER elsewhere")
    admin.execute("CREATE SERVER elsewhere FOREIGN DATA WRAPPER elsewhere")
    key = sql.SQL(", ").join(sql.SQL("{} text NOT NULL").format(column.term()) for column in table.key)
    # What a foreign table says of its columns holds only where its server says so too.
    admin.execute(sql.SQL("CREATE FOREIGN TABLE {} ({}) SERVER elsewhere").format(table.name, key))
    found = table_info(admin.execute(*find_step(table)).fetchone())
    assert found is not None
    assert found.nullable
