"""Tables of PostgreSQL in hash partitions: created by the exported script, judged, copied into, verified."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import psycopg
import pytest

import twinstore
from docs.parts.entities import MODULES
from tests.support.copies import Pair, fill, invoke, open_store, write_config
from tests.support.databases import APP_ROLE, for_every_module
from twinstore.bulk.rows import RangeDigests
from twinstore.config import load_settings
from twinstore.errors import ConfigurationError, MigrationError
from twinstore.migrations.migration import ExportsPartitions
from twinstore.plugins.drivers import load_backend
from twinstore.scheduler.catalog import RUNS
from twinstore.testing.scheduler.builders import make_run
from twinstore_backfill.outcome import Exit
from twinstore_backfill.verify.checks import schema_check
from twinstore_postgres.bulk.snapshot import TableInfo, find_step, table_info
from twinstore_postgres.mapping.table import table_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.databases import PostgresDatabase, PostgresServer
    from twinstore_backfill.stores import Store

FORMS: Final = {
    "scheduler": (
        "audit",
        "execution_logs",
        "graph_jobs",
        "impact_snapshots",
        "locks",
        "run_summaries",
        "runs",
        "workers",
    ),
    "taskrunner": ("pack_artifacts", "pack_run_approvals", "pack_run_logs", "pack_runs"),
    "tracking": ("machines", "sessions", "tasks"),
}
# What is done to a table in partitions, how the sentence begins, and whether what it names repairs it.
FLAWS: Final = (
    (
        "ALTER TABLE runs_p1 NO FORCE ROW LEVEL SECURITY",
        "The partition runs_p1 of runs has no forced row-level",
    ),
    (
        "ALTER TABLE runs_p1 DISABLE ROW LEVEL SECURITY",
        "The partition runs_p1 of runs has no forced row-level",
    ),
    (
        'GRANT SELECT, INSERT ON runs_p2 TO "a@b"',
        'The partition runs_p2 of runs grants INSERT, SELECT to "a@b",',
    ),
    ("GRANT SELECT (id) ON runs_p2 TO PUBLIC", "The partition runs_p2 of runs grants SELECT to PUBLIC,"),
    (f"GRANT SELECT ON runs_p3 TO {APP_ROLE}", f"The partition runs_p3 of runs grants SELECT to {APP_ROLE},"),
    (
        'ALTER TABLE runs_p3 OWNER TO "a@b"',
        "The partition runs_p3 of runs belongs to another role than its par",
    ),
    ("ALTER TABLE audit_p0 SET UNLOGGED", "The partition audit_p0 of audit is unlogged"),
    ("ALTER TABLE runs_p0 ALTER error SET NOT NULL", "The partition runs_p0 of runs refuses null in error."),
    (
        "ALTER TABLE runs NO FORCE ROW LEVEL SECURITY",
        "Missing: table runs: row-level security forced. Found: row-l",
    ),
)
# The same of what only `migrate verify` and C8 judge, as they do of a plain table.
LATER: Final = (
    (
        "ALTER TABLE runs_p1 ADD CONSTRAINT theirs CHECK (id > 'a')",
        "Not wanted: constraint runs_p1.theirs: CHECK",
    ),
    ("CREATE UNIQUE INDEX theirs ON runs_p1 (state)", "Not wanted: index theirs: CREATE UNIQUE INDEX"),
    ("CREATE POLICY theirs ON runs_p1 USING (true)", "Not wanted: policy runs_p1.theirs: PERMISSIVE ALL"),
    ("ALTER TABLE runs_p1 DISABLE TRIGGER ALL", "Not wanted: trigger runs_p1.RI_ConstraintTrigger_a_"),
    ("DROP INDEX idx_runs_pending", "Missing: index idx_runs_pending: CREATE INDEX"),
    (
        (
            "DROP INDEX idx_runs_finished;"
            " CREATE INDEX idx_runs_finished ON ONLY runs (finished_at, id) WHERE finished_at IS NOT NULL"
        ),
        "Missing: index idx_runs_finished: CREATE INDEX idx_runs_finished ON scheduler.runs",
    ),
    ("ALTER TABLE runs DROP CONSTRAINT runs_state_check", "Missing: constraint runs.runs_state_check: CHECK"),
)
# What is created in place of the table, and how the sentence begins; only another table is a remedy.
HASH: Final = "PARTITION BY HASH (id); ALTER TABLE runs ADD PRIMARY KEY (id)"
ALL: Final = "CREATE TABLE x PARTITION OF runs FOR VALUES WITH (MODULUS 1, REMAINDER 0)"
OTHER_FORMS: Final = (
    ("PARTITION BY RANGE (id)", "The table runs is partitioned by RANGE (id); only HASH by its key serves"),
    (
        "PARTITION BY LIST (state)",
        "The table runs is partitioned by LIST (state); only HASH by its key serves",
    ),
    (
        "PARTITION BY HASH (state)",
        "The table runs cannot be partitioned by HASH (state): PostgreSQL allows no unique",
    ),
    (HASH, "The table runs has partitions for 0 of 1 remainders; rows of the others are refused."),
    (
        (
            f"{HASH}; CREATE TABLE x PARTITION OF runs FOR VALUES WITH (MODULUS 2, REMAINDER 0);"
            " CREATE TABLE y PARTITION OF runs FOR VALUES WITH (MODULUS 4, REMAINDER 1)"
        ),
        "The table runs has partitions for 3 of 4 remainders; rows of the others are refused.",
    ),
    (
        f"{HASH}; {ALL} PARTITION BY HASH (id)",
        "The partition x of runs is partitioned itself.",
    ),
    (
        f"{HASH}; {ALL}; ALTER TABLE x SET SCHEMA elsewhere",
        "The partition x of runs is in another schema: elsewhere.x.",
    ),
)


ROWS: Final = 400
DIFFERENCES: Final = (
    "UPDATE runs SET state = 5 - state WHERE id = 'run-003'",
    "UPDATE runs SET created_at = created_at + interval '1 ms' WHERE id = 'run-050'",
    "UPDATE runs SET stats = stats || '{\"queued\": 3}' WHERE id = 'run-100'",
    "UPDATE runs SET tenant_id = 'umbrella' WHERE id = 'run-150'",
    "UPDATE runs SET schedule_id = 'theirs' WHERE id = 'run-200'",
    "UPDATE runs SET reason = '{\"cursor\": \"c\"}' WHERE id = 'run-250'",
    "DELETE FROM runs WHERE id = 'run-000'",
    "DELETE FROM runs WHERE id = 'run-399'",
    "UPDATE runs SET id = 'run-300x' WHERE id = 'run-300'",
)
# Several pages in each partition.
MORE: Final = b"""
INSERT INTO runs SELECT (jsonb_populate_record(r, jsonb_build_object('id', r.id || '-' || n))).*
  FROM runs r, generate_series(1, 9) n
"""
# Past the parent, in the partition that has the row.
IN_A_PARTITION: Final = "UPDATE runs_p{} SET error = 'x' WHERE id = 'run-350'"


def export(initializer: object, **counts: int) -> bytes:
    assert isinstance(initializer, ExportsPartitions)
    return initializer.export_partitioned(counts).encode()


@pytest.fixture(scope="module")
def divided(postgres_server: PostgresServer) -> Iterator[PostgresDatabase]:
    """A database whose table of runs has sixteen partitions."""
    with postgres_server.empty_database() as database:
        with twinstore.add_scheduler_postgres_storage(database.config) as storage:
            script = export(storage.initializer, runs=16, audit=2)
        with psycopg.connect(database.owner_url, autocommit=True) as owner:
            owner.execute(script)
        yield database


@pytest.fixture(scope="module")
def store(divided: PostgresDatabase) -> Iterator[Store[Any]]:
    with open_store("scheduler", "Postgres", load_settings(divided.config)) as opened:
        yield opened


@pytest.fixture(scope="module")
def admin(divided: PostgresDatabase) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(divided.superuser_url, autocommit=True) as connection:
        connection.execute("SET search_path = scheduler")
        connection.execute("CREATE SCHEMA elsewhere")
        # Of another application; what its partitions are like does not matter.
        connection.execute("CREATE TABLE others (id int) PARTITION BY RANGE (id)")
        connection.execute("CREATE TABLE others_p0 PARTITION OF others (CHECK (id < 9)) DEFAULT")
        connection.execute("GRANT SELECT ON others_p0 TO PUBLIC")
        connection.execute('CREATE ROLE "a@b"')
        yield connection
        connection.execute('DROP ROLE "a@b"')


def test_every_table_without_another_unique_index_may_have_the_form(
    empty_postgres_database: PostgresDatabase,
) -> None:
    config = for_every_module(empty_postgres_database.config, "Postgres")
    with (
        twinstore.open_storage(config) as opened,
        psycopg.connect(empty_postgres_database.owner_url, autocommit=True) as owner,
    ):
        for module in MODULES:
            initializer = opened.module(module.name).initializer
            for entity in {item.name for item in module.catalog.entities}.difference(FORMS[module.name]):
                with pytest.raises(ConfigurationError, match=r"HASH \(id\).*no unique index .* lacks"):
                    export(initializer, **{entity: 2})
            script = export(initializer, **dict.fromkeys(FORMS[module.name], 2))
            owner.execute(script)
            owner.execute(script)
            assert initializer.verify() == ()
            assert initializer.ensure_migrations().applied == ()


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("runs=1", "--partitions runs=1: a table has 2 to 1024 partitions."),
        ("runs=1025", "--partitions runs=1025: a table has 2 to 1024 partitions."),
        ("run=4", "--partitions run: scheduler has no such table"),
        ("schedules=4", "which uq_schedules_tenant_name lacks. Keep it a plain table."),
        ("runs", "--partitions expects TABLE=COUNT, such as runs=16, got runs."),
        ("runs=-4", "--partitions expects TABLE=COUNT, such as runs=16, got runs=-4."),
    ],
)
def test_the_command_refuses_a_form_that_cannot_serve(
    divided: PostgresDatabase, tmp_path: Path, capsys: pytest.CaptureFixture[str], given: str, said: str
) -> None:
    config = write_config(tmp_path / "settings.json", divided.config)
    place = ("--config", config, "migrate", "export", "--module", "scheduler")
    refused = invoke(capsys, *place, "--partitions", given)
    assert (refused.code, said in " ".join(refused.err.split())) == (Exit.USAGE, True), refused.err


@pytest.mark.parametrize(("change", "begins"), [*FLAWS, *LATER])
def test_readiness_c8_and_verify_name_a_flaw_of_a_partition_and_its_remedy(
    store: Store[Any], admin: psycopg.Connection[Any], change: str, begins: str
) -> None:
    initializer = store.storage.initializer
    assert initializer.verify(additions=False) == ()
    store.storage.check_ready()
    admin.execute(change.encode())
    check = schema_check(store)
    assert [line for line in check.findings if not line.startswith(begins)] == []
    assert check.result == "inconclusive"
    if (change, begins) in FLAWS:
        with pytest.raises(MigrationError) as refused:
            store.storage.check_ready()
        assert begins in refused.value.message
    for line in check.findings:
        admin.execute(line.partition("To fix: ")[2].removesuffix(" (it may also").encode())


@pytest.mark.parametrize(("form", "begins"), OTHER_FORMS)
def test_another_form_is_refused_by_name(
    store: Store[Any], admin: psycopg.Connection[Any], form: str, begins: str
) -> None:
    admin.execute("ALTER TABLE runs RENAME TO kept")
    admin.execute(f"CREATE TABLE runs (LIKE kept INCLUDING DEFAULTS INCLUDING CONSTRAINTS) {form}".encode())
    try:
        with pytest.raises(MigrationError) as refused:
            store.storage.check_ready()
        assert begins in refused.value.message
        assert [line for line in schema_check(store).findings if line.startswith(begins)] != []
    finally:
        admin.execute("DROP TABLE runs; ALTER TABLE kept RENAME TO runs")
    store.storage.check_ready()


def test_the_first_call_refuses_a_parent_without_row_level_security(
    divided: PostgresDatabase, admin: psycopg.Connection[Any]
) -> None:
    admin.execute("ALTER TABLE runs NO FORCE ROW LEVEL SECURITY")
    try:
        with (
            twinstore.add_scheduler_postgres_storage(divided.config) as storage,
            pytest.raises(MigrationError, match="runs"),
        ):
            storage.runs.get("acme", "run")
    finally:
        admin.execute("ALTER TABLE runs FORCE ROW LEVEL SECURITY")


def test_the_key_of_a_source_may_be_null_in_a_foreign_partition(admin: psycopg.Connection[Any]) -> None:
    with admin.transaction(force_rollback=True):
        admin.execute("ALTER TABLE runs RENAME TO kept")
        admin.execute("CREATE TABLE runs (LIKE kept) PARTITION BY LIST (state)")
        found = [table_info(admin.execute(*find_step(table_of(RUNS))).fetchone())]
        admin.execute("CREATE FOREIGN DATA WRAPPER other; CREATE SERVER other FOREIGN DATA WRAPPER other")
        admin.execute("CREATE FOREIGN TABLE x PARTITION OF runs DEFAULT SERVER other")
        found.append(table_info(admin.execute(*find_step(table_of(RUNS))).fetchone()))
    assert found == [TableInfo(nullable=False), TableInfo(nullable=True)]


@pytest.fixture(scope="module")
def pair(
    store: Store[Any], postgres_server: PostgresServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Pair]:
    """A plain source with runs, and a target in partitions into which they were copied."""
    with (
        postgres_server.migrated_database() as plain,
        open_store("scheduler", "Postgres", load_settings(plain.config)) as source,
    ):
        fill(source.storage)
        for number in range(ROWS):
            source.storage.runs.create(make_run("acme", f"run-{number:03}"))
        pair = Pair(source, store, tmp_path_factory.mktemp("pair"))
        assert pair.copy(range_size=100).totals.all()["written"] > ROWS
        yield pair


def test_a_copy_into_partitions_is_proved_and_each_difference_in_it_found(
    pair: Pair, admin: psycopg.Connection[Any]
) -> None:
    again = pair.copy(range_size=100).totals.all()
    assert (again["written"], again["unchanged"] > ROWS) == (0, True)
    assert pair.verify(range_size=100).verdict == "PASS"
    back = replace(pair, source=pair.target, target=pair.source)
    assert back.verify(range_size=100, entities=("runs",)).verdict == "PARTIAL"
    for change in DIFFERENCES:
        assert admin.execute(change.encode()).rowcount == 1
    changes = [IN_A_PARTITION.format(number) for number in range(16)]
    assert sum(admin.execute(change.encode()).rowcount for change in changes) == 1
    (runs,) = pair.verify(range_size=100, entities=("runs",)).entities
    assert (runs.counts.different, runs.counts.missing, runs.counts.extra) == (7, 3, 1)


@pytest.mark.usefixtures("pair")
def test_digests_are_divided_and_prove_nothing_where_a_partition_is_attached_meanwhile(
    store: Store[Any], admin: psycopg.Connection[Any]
) -> None:
    def digests(**options: Any) -> RangeDigests:  # noqa: ANN401  # those of a view
        with store.bulk.view() as view:
            found = view.digests(RUNS, [("run-200",)], secret=bytes(16), **options)
        assert isinstance(found, RangeDigests)
        return found

    admin.execute(MORE)
    whole, parts, merged = digests(), [digests(part=part, parts=3) for part in range(3)], RangeDigests()
    for part in parts:
        merged.merge(part)
    assert (merged.cells, merged.unplaced, merged.unique) == (whole.cells, 0, True)
    assert all(part.rows for part in parts)
    admin.execute("ALTER TABLE runs DETACH PARTITION runs_p3")
    attach = [b"ALTER TABLE runs ATTACH PARTITION runs_p3 FOR VALUES WITH (MODULUS 16, REMAINDER 3)"]
    assert digests(on_progress=lambda _: attach and admin.execute(attach.pop())).unplaced == 1


def test_a_row_of_a_partition_is_found_again_where_another_has_its_place(
    divided: PostgresDatabase, store: Store[Any]
) -> None:
    settings = load_settings(divided.config)
    spec = load_backend("postgres", module="scheduler")
    assert spec.corruption_writer is not None
    with spec.corruption_writer(settings.backend_settings("scheduler", spec)) as writer:
        writer.clear(RUNS)
        for number in range(8):
            store.storage.runs.create(make_run("acme", f"run-{number}"))
        for row in writer.rows(RUNS):
            writer.change(RUNS, row, {**row.values, "retry_of": row.values["id"]})
        assert [row.values["retry_of"] == row.values["id"] for row in writer.rows(RUNS)] == [True] * 8
