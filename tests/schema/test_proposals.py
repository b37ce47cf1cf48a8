"""What the descriptions propose against what is shipped: the next migration follows from the difference.

`twinstore dev schema` writes what a server holds after all migrations.
"""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from types import SimpleNamespace
from typing import TYPE_CHECKING, Annotated, Any, Final
from uuid import UUID

import psycopg
import pytest
from psycopg import sql
from psycopg.types.json import Jsonb
from pydantic import Field

from tests.support.copies import invoke, write_config
from tests.support.databases import APP_ROLE
from tests.support.library.module import MODULE as LIBRARY
from twinstore.catalog.conditions import Equals, OneOf
from twinstore.catalog.entity import Entity, Module
from twinstore.catalog.indexes import Index
from twinstore.catalog.keys import text
from twinstore.catalog.tenancy import Tenancy
from twinstore.errors import MigrationError
from twinstore.ledger import LEDGER_MODULE
from twinstore.models.canonical import CanonicalModel
from twinstore.models.fields import (
    BinaryUuid,
    Bytes,
    DecimalNumber,
    ExtraProperties,
    Flag,
    FreeList,
    FreeObject,
    Id,
    Int64,
    Number,
    ObjectIdText,
    Text,
    Timestamp,
    date_object,
)
from twinstore.models.typed_objects import binary_object, decimal_object, oid_object
from twinstore.plugins.modules import built_modules, module_spec
from twinstore.scheduler.catalog import AUDIT, RUNS, SCHEDULER, SCHEDULES, TRIGGERS
from twinstore.scheduler.catalog_jobs import GRAPH_JOB_EVENTS
from twinstore.scheduler.module import MODULE
from twinstore.testing.entities import DEVICES, KIT, NOTES, Spot
from twinstore.testing.instants import at
from twinstore_postgres.mapping.columns import column_name, columns_of
from twinstore_postgres.schema.comparison import SCHEMA_FILE, describe_schema, wanted_schema
from twinstore_postgres.schema.ddl import create_table, indexes
from twinstore_postgres.schema.files import Migration
from twinstore_postgres.schema.migrator import CREATE_LEDGER
from twinstore_postgres.schema.proposal import contradictions, proposed_migration
from twinstore_postgres.schema.script import script

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.databases import PostgresDatabase
    from twinstore.plugins.module_spec import ModuleSpec


@pytest.fixture
def config(empty_postgres_database: PostgresDatabase, tmp_path: Path) -> Path:
    return write_config(tmp_path / "settings.json", empty_postgres_database.config)


def test_it_is_taken_where_every_migration_is_applied(
    config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ("--config", config, "dev", "schema", "scheduler", "--backend", "Postgres")
    refused = invoke(capsys, *command)
    assert (refused.code, "Migrations of scheduler are pending: 001_" in refused.err) == (4, True)
    run = ("--config", config, "migrate", "run", "--backend", "Postgres", "--category", "release")
    assert invoke(capsys, *run).code == 0
    current = invoke(capsys, *command, "--check")
    assert (current.code, "is current" in current.out) == (0, True)

    elsewhere = tmp_path / "migrations" / "postgres"
    elsewhere.mkdir(parents=True)
    monkeypatch.setattr(type(MODULE), "migrations", lambda _, store: tmp_path / "migrations" / store)
    assert invoke(capsys, *command, "--check").code == 1
    assert not (elsewhere / SCHEMA_FILE).exists()
    assert invoke(capsys, *command).code == 0
    monkeypatch.undo()
    shipped = MODULE.migrations("postgres") / SCHEMA_FILE
    assert (elsewhere / SCHEMA_FILE).read_text("utf-8") == shipped.read_text("utf-8")


def test_a_driver_without_a_snapshot_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = write_config(tmp_path / "settings.json", {"Persistence": {"Scheduler": "Memory"}})
    answer = invoke(capsys, "--config", config, "dev", "schema", "scheduler")
    assert answer.code == 2
    assert "Memory has no snapshot of its schema; choose another driver with --backend." in answer.err


def test_a_module_that_ships_none_says_what_its_author_does(tmp_path: Path) -> None:
    with pytest.raises(MigrationError, match="`twinstore dev migration library create_library`"):
        wanted_schema(LIBRARY)
    migrated = SimpleNamespace(name="library", migrations=lambda _store: tmp_path)
    with pytest.raises(MigrationError, match="`twinstore dev schema library`"):
        wanted_schema.__wrapped__(migrated)


SHIPPED: Final = wanted_schema(MODULE)
# Bulk loads of the customer's own tools may leave these columns out; the library always writes them.
DEFAULTS: Final = {
    "audit.metadata": "'{}'::jsonb",
    "graph_job_events.created_at": "now()",
    "graph_jobs.created_at": "now()",
    "graph_jobs.updated_at": "now()",
    "runs.deltas": "'[]'::jsonb",
    "schedules.enabled": "true",
    "schedules.limits": "'{}'::jsonb",
    "schedules.mode": "0",
    "schedules.notify": "'{}'::jsonb",
    "schedules.only_if": "'{}'::jsonb",
    "schedules.subscribers": "'{}'::text[]",
    "schedules.timezone": "'UTC'::text",
    "triggers.fire_count": "0",
    "triggers.misfire_count": "0",
}
# Rules between columns, and of a derived column. Models check the former; the latter is a length.
RULES: Final = frozenset(
    {
        "impact_snapshots.impact_snapshots_image_count_check",
        "schedules.schedules_deleted_is_disabled",
        "schedules.schedules_deletion_markers",
        "schedules.schedules_updated_after_created",
    }
)


@pytest.fixture
def owner(empty_postgres_database: PostgresDatabase) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(empty_postgres_database.owner_url, autocommit=True) as connection:
        yield connection


def apply(connection: psycopg.Connection[Any], module: str, proposal: str | None) -> None:
    """Run a proposal as a migration would run it."""
    schema = sql.Identifier(module)
    assert proposal is not None
    with connection.transaction():
        connection.execute(sql.SQL("CREATE SCHEMA IF NOT EXISTS {}").format(schema))
        connection.execute(sql.SQL(CREATE_LEDGER).format(schema=schema))
        connection.execute(Migration("001_proposed.sql", proposal).rendered(APP_ROLE).encode())


def of_entities(lines: tuple[str, ...], module: Module) -> list[str]:
    """Return the lines about the tables of a module's entities."""
    tables = {entity.name for entity in module.entities}
    return [line for line in lines if any(name in line for name in tables) and "backfill" not in line]


def without_hand_written(line: str) -> str | None:
    """Return a released line without what a person added to the proposal, ``None`` for a whole addition."""
    kind, _, rest = line.partition(" ")
    name = rest.partition(":")[0]
    if kind == "constraint" and name in RULES:
        return None
    return line.removesuffix(f" DEFAULT {DEFAULTS[name]}") if kind == "column" and name in DEFAULTS else line


def test_the_descriptions_propose_the_released_schema(owner: psycopg.Connection[Any]) -> None:
    apply(owner, SCHEDULER.name, proposed_migration(SCHEDULER, ()))
    proposed = describe_schema(owner, SCHEDULER.name, APP_ROLE)
    released = [without_hand_written(line) for line in of_entities(SHIPPED, SCHEDULER)]
    assert of_entities(proposed, SCHEDULER) == sorted(line for line in released if line is not None)


def test_what_is_listed_as_hand_written_is_there() -> None:
    for name, default in DEFAULTS.items():
        assert [line for line in SHIPPED if line.startswith(f"column {name}: ") and default in line]
    for name in RULES:
        assert [line for line in SHIPPED if line.startswith(f"constraint {name}: CHECK")]


def test_nothing_is_missing_of_what_is_shipped() -> None:
    assert proposed_migration(SCHEDULER, SHIPPED) is None
    assert list(contradictions(SCHEDULER, SHIPPED)) == []


def test_a_proposal_can_run_twice(owner: psycopg.Connection[Any]) -> None:
    proposal = proposed_migration(KIT, ())
    apply(owner, KIT.name, proposal)
    before = describe_schema(owner, KIT.name, APP_ROLE)
    apply(owner, KIT.name, proposal)
    assert describe_schema(owner, KIT.name, APP_ROLE) == before
    assert proposed_migration(KIT, before) is None
    assert list(contradictions(KIT, before)) == []


def with_changes(entity: Entity, **changes: Any) -> Module:  # noqa: ANN401  # attributes of a description
    """Return a module of one changed entity."""
    return Module(name=entity.module, entities=(replace(entity, **changes),))


@pytest.mark.parametrize(
    ("entity", "gone", "statement"),
    [
        (RUNS, "column runs.retry_of:", 'ADD COLUMN IF NOT EXISTS retry_of TEXT COLLATE "C";'),
        (RUNS, "column runs.row_version:", "ADD COLUMN IF NOT EXISTS row_version BIGINT NOT NULL DEFAULT 1;"),
        (RUNS, "index idx_runs_pending:", "WHERE state IN (0, 1);"),
        (RUNS, "constraint runs.runs_state_check:", "CHECK (state BETWEEN 0 AND 5);"),
        (TRIGGERS, "constraint triggers.uq_triggers_schedule:", "UNIQUE (schedule_id);"),
        (
            TRIGGERS,
            "constraint triggers.triggers_schedule_id_fkey:",
            "FOREIGN KEY (schedule_id) REFERENCES scheduler.schedules (id) ON DELETE CASCADE;",
        ),
        (SCHEDULES, "constraint schedules.schedules_name_check:", "CHECK (name <> '');"),
        (AUDIT, "policy audit.tenant_isolation:", "CREATE POLICY tenant_isolation ON scheduler.audit"),
        (AUDIT, "grant audit: INSERT", 'GRANT INSERT ON scheduler.audit TO :"application_role";'),
        (
            GRAPH_JOB_EVENTS,
            "use graph_job_events_id_seq: UPDATE",
            'GRANT UPDATE ON SEQUENCE scheduler.graph_job_events_id_seq TO :"application_role";',
        ),
    ],
)
def test_the_next_migration_adds_what_is_missing(entity: Entity, gone: str, statement: str) -> None:
    shipped = [line for line in SHIPPED if not line.startswith(gone)]
    assert len(shipped) == len(SHIPPED) - 1
    proposal = proposed_migration(SCHEDULER, shipped)
    assert proposal is not None
    assert statement in proposal
    assert proposal.count(";") == (4 if "policy" in gone else 1)
    assert entity.name in proposal


def test_a_new_entity_gets_its_table_and_its_rights(owner: psycopg.Connection[Any]) -> None:
    apply(owner, SCHEDULER.name, proposed_migration(SCHEDULER, ()))
    known = describe_schema(owner, SCHEDULER.name, APP_ROLE)
    extra = replace(RUNS, name="extra", singular="extra run", collection="extra")
    grown = Module(name=SCHEDULER.name, entities=(*SCHEDULER.entities, extra))
    proposal = proposed_migration(grown, known)
    assert proposal is not None
    assert proposal.startswith("CREATE TABLE IF NOT EXISTS scheduler.extra (")
    apply(owner, SCHEDULER.name, proposal)
    assert proposed_migration(grown, describe_schema(owner, SCHEDULER.name, APP_ROLE)) is None


class Kept(CanonicalModel):
    """A row that keeps what it does not name."""

    id: Id
    extra: ExtraProperties = Field(default_factory=dict)


class Named(Kept):
    """The same row, when its properties have become fields."""

    note: Text | None = None
    paid: Flag | None = None
    amount: Int64 | None = None
    width: Number | None = None
    due_at: Timestamp | None = None
    owner: ObjectIdText | None = None
    contract: BinaryUuid | None = None
    price: DecimalNumber | None = None
    seal: Bytes | None = None
    terms: FreeObject | None = None
    steps: FreeList | None = None
    spot: Spot | None = None
    count: Annotated[Int64 | None, Field(alias="a.b")] = None


KEPT: Final = Entity(
    name="kept",
    singular="row",
    module="kept",
    model=Kept,
    key_parts=(text("id"),),
    tenancy=Tenancy.none(),
    group="kept",
)
# What a property holds where it has the type of its field, and its column afterwards.
PROPERTIES: Final[dict[str, tuple[object, object]]] = {
    "note": ("it's", "it's"),
    "paid": (True, True),
    "amount": (2**53 + 1, 2**53 + 1),
    "width": (1.5, 1.5),
    "dueAt": (date_object(at(1.001)), at(1.001)),
    "owner": (oid_object("0" * 24), "0" * 24),
    "contract": (binary_object(bytes(16), 4), UUID(int=0)),
    "price": (decimal_object(Decimal("1.50")), Decimal("1.50")),
    "seal": (binary_object(b"ab"), b"ab"),
    "terms": ({"a": None}, {"a": None}),
    "steps": ([1, None], [1, None]),
    "a.b": (7, 7),
}


def test_a_property_that_becomes_a_field_is_moved_where_it_has_the_type_of_that(
    owner: psycopg.Connection[Any],
) -> None:
    module, grown = (Module(name="kept", entities=(item,)) for item in (KEPT, replace(KEPT, model=Named)))
    apply(owner, "kept", proposed_migration(module, ()))
    right = {name: value for name, (value, _) in PROPERTIES.items()}
    wrong: dict[str, object] = {name: {"$other": [value]} for name, value in right.items()}
    wrong |= {"amount": 1.5, "terms": [], "seal": binary_object(b"ab", 5)}
    wrong |= {
        "owner": {"$oid": "0" * 24, "more": 1},
        "price": {"$numberDecimal": "NaN"},
        "dueAt": {"$date": 1},
    }
    for key, extra in (("right", {**right, "more": 1}), ("wrong", wrong), ("none", {})):
        owner.execute("INSERT INTO kept.kept VALUES (%s, %s)", [key, Jsonb(extra)])
    proposal = proposed_migration(grown, describe_schema(owner, "kept", APP_ROLE))
    apply(owner, "kept", proposal)
    apply(owner, "kept", proposal)
    assert "-- the property spot of extra has another form" in str(proposal)
    columns = (sql.Identifier(column_name(grown.entities[0], name)) for name in PROPERTIES)
    query = sql.SQL("SELECT id, extra, {} FROM kept.kept ORDER BY id").format(sql.SQL(", ").join(columns))
    found = owner.execute(query).fetchall()
    nothing = [None] * len(PROPERTIES)
    assert [list(row) for row in found] == [
        ["none", {}, *nothing],
        ["right", {"more": 1}, *(value for _, value in PROPERTIES.values())],
        ["wrong", wrong, *nothing],
    ]
    assert proposed_migration(grown, describe_schema(owner, "kept", APP_ROLE)) is None


class Required(Kept):
    """The same row with a property that all have."""

    note: Text


def test_a_property_of_every_row_becomes_a_column_that_is_never_null(owner: psycopg.Connection[Any]) -> None:
    module, grown = (Module(name="kept", entities=(item,)) for item in (KEPT, replace(KEPT, model=Required)))
    apply(owner, "kept", proposed_migration(module, ()))
    owner.execute("INSERT INTO kept.kept VALUES ('a', %s)", [Jsonb({"note": "b"})])
    proposal = proposed_migration(grown, describe_schema(owner, "kept", APP_ROLE))
    apply(owner, "kept", proposal)
    assert owner.execute("SELECT id, extra, note FROM kept.kept").fetchall() == [("a", {}, "b")]
    assert 'column kept.note: text COLLATE "C" NOT NULL' in describe_schema(owner, "kept", APP_ROLE)
    assert list(contradictions(grown, describe_schema(owner, "kept", APP_ROLE))) == []


def test_an_index_is_proposed_as_described() -> None:
    index = Index(
        fields=("tenantId", "-createdAt", "retryOf"),
        name="odd",
        where=(OneOf("state", ("running",)), Equals("scheduleId", "it's")),
        nulls_first=True,
        table_name="ix_odd",
    )
    proposal = proposed_migration(with_changes(RUNS, indexes=(*RUNS.indexes, index)), SHIPPED)
    assert proposal == (
        "CREATE INDEX IF NOT EXISTS ix_odd\n"
        "    ON scheduler.runs (tenant_id, created_at DESC, retry_of NULLS FIRST)"
        " WHERE state IN (2) AND schedule_id = 'it''s';\n"
    )


@pytest.mark.parametrize(
    ("entity", "name", "statement"),
    [
        (NOTES, "spot", "(batch, (spot->>'label') COLLATE \"C\", (spot->>'seenAt') COLLATE \"C\" DESC)"),
        (NOTES, "tags", "USING gin (tags)"),
        (DEVICES, "spots", "USING gin ((payload->'spots'))"),
    ],
    ids=lambda case: case if isinstance(case, str) else "",
)
def test_an_index_inside_of_a_field_is_an_expression_or_one_of_members(
    entity: Entity, name: str, statement: str
) -> None:
    (found,) = [item.sql for item in indexes(entity) if item.name == f"idx_{entity.name}_{name}"]
    assert found.endswith(f" {statement};")


def test_a_number_that_only_the_payload_has_stays_json() -> None:
    beside = tuple(name for name in DEVICES.beside if name != "rank")
    odd = replace(DEVICES, beside=beside, indexes=(Index(fields=("-rank", "batch"), name="odd"),))
    (found,) = [item.sql for item in indexes(odd)]
    assert found.endswith("ON kit.devices ((payload->'rank') DESC, batch);")


@pytest.mark.parametrize(
    ("real", "sentence"),
    [
        ("column runs.extra: integer", "The description of runs does not know the column extra."),
        (
            "column runs.error: text",
            'The column error of runs is text, but described as text COLLATE "C".',
        ),
        (
            "column runs.state: integer NOT NULL DEFAULT 0",
            "The column state of runs is integer NOT NULL DEFAULT 0, but described as smallint NOT NULL.",
        ),
    ],
)
def test_what_a_table_has_otherwise_is_named(real: str, sentence: str) -> None:
    start = real.partition(":")[0]
    shipped = [line for line in SHIPPED if not line.startswith(f"{start}:")]
    assert list(contradictions(SCHEDULER, [*shipped, real])) == [sentence]


def test_a_name_that_is_a_word_of_sql_keeps_its_marks() -> None:
    table = create_table(replace(RUNS, name="order", key_parts=(text("id"),)))
    assert table.startswith('CREATE TABLE IF NOT EXISTS scheduler."order" (')
    assert "CONSTRAINT order_pkey PRIMARY KEY (id)" in table


every_module = pytest.mark.parametrize(
    "module", [LEDGER_MODULE, *map(module_spec, built_modules())], ids=lambda module: module.name
)


@every_module
def test_the_shipped_migrations_make_what_is_described(module: ModuleSpec[object]) -> None:
    shipped = wanted_schema(module)
    assert proposed_migration(module.catalog, shipped) is None
    assert list(contradictions(module.catalog, shipped)) == []


@every_module
def test_what_is_not_shipped_yet_is_proposed(module: ModuleSpec[object], *, long_form: bool) -> None:
    shipped = wanted_schema(module)
    for number, entity in enumerate(module.catalog.entities):
        # Otherwise a few columns of each entity, and of the next one others.
        for column in columns_of(entity)[0 if long_form else number % 4 :: 1 if long_form else 4]:
            line = f"column {entity.name}.{column.name}: "
            rest = [item for item in shipped if not item.startswith(line)]
            assert len(rest) == len(shipped) - 1
            proposal = proposed_migration(module.catalog, rest) or ""
            assert proposal.count("ADD COLUMN") == 1
            assert f".{entity.name} ADD COLUMN IF NOT EXISTS {column.name} " in proposal


@every_module
def test_what_is_shipped_otherwise_is_named(module: ModuleSpec[object]) -> None:
    entity = module.catalog.entities[0]
    shipped = [
        line.replace(" text ", " integer ") if line.startswith(f"column {entity.name}.") else line
        for line in wanted_schema(module)
    ]
    found = list(contradictions(module.catalog, [*shipped, f"column {entity.name}.extra: integer"]))
    assert f"The description of {entity.name} does not know the column extra." in found
    key = column_name(entity, entity.key[0])
    assert any(text.startswith(f"The column {key} of {entity.name} is integer") for text in found)


def test_the_name_of_a_role_does_not_end_the_comment_that_names_it() -> None:
    text = script(module_spec("tracking"), "x\nDROP TABLE y; --")
    head, _, rest = text.partition("CREATE SCHEMA")
    assert [line for line in head.splitlines() if not line.startswith("--")] == []
    # After that it is quoted, as a name.
    assert rest.count("DROP TABLE") == rest.count('TO "x\nDROP TABLE y; --"') > 0
