"""What a PostgreSQL source is judged by, for entities of every kind: owners, keys, policies, columns."""

from __future__ import annotations

import sys
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from psycopg import sql

from tests.contract.deployments.postgres import PostgresDeployment
from tests.databases import APP_ROLE
from twinstore.catalog.keys import KeyRange
from twinstore.errors import ConfigurationError
from twinstore.testing.entities import KIT, MODULE
from twinstore_postgres.bulk.snapshot import found_of
from twinstore_postgres.bulk.survey import survey_of
from twinstore_postgres.mapping.table import table_of
from twinstore_postgres.schema.comparison import SCHEMA_FILE, describe_schema, wanted_schema

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.databases import PostgresDatabase
    from twinstore.bulk.port import BulkPort
    from twinstore.catalog.entity import Entity
    from twinstore.plugins.module_spec import ModuleSpec

Connection = psycopg.Connection[Any]
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
    found = survey_of(reader, module)
    assert [(item.entity, item.present, item.warnings) for item in found] == [
        (entity.name, True, ()) for entity in KIT.entities
    ]


@pytest.mark.parametrize("entity", [item for item in KIT.entities if table_of(item).owned], ids=str)
def test_a_policy_that_hides_rows_is_found_whoever_owns_them(
    admin: Connection, reader: Connection, module: ModuleSpec[object], entity: Entity
) -> None:
    table = sql.Identifier(KIT.name, entity.name)
    admin.execute(sql.SQL("CREATE POLICY narrow ON {} AS RESTRICTIVE USING (false)").format(table))
    with pytest.raises(ConfigurationError, match=rf"Row-level security of {KIT.name}\.{entity.name} decides"):
        survey_of(reader, module)


def test_a_column_that_nobody_would_compare_is_named(
    admin: Connection, reader: Connection, module: ModuleSpec[object]
) -> None:
    admin.execute(sql.SQL("ALTER TABLE {} ADD COLUMN more text").format(table_of(NOTES).name))
    with pytest.raises(ConfigurationError, match="a column more that would be neither copied nor compared"):
        survey_of(reader, module)


def test_a_source_needs_no_version_of_its_rows(
    admin: Connection, bulk: BulkPort, reader: Connection, module: ModuleSpec[object]
) -> None:
    for entity in KIT.entities:
        if entity.versioned:
            dropped = sql.SQL("ALTER TABLE {} DROP COLUMN row_version").format(table_of(entity).name)
            admin.execute(dropped)
    assert all(item.present for item in survey_of(reader, module))
    with bulk.view() as view:
        assert [list(view.rows(entity, KeyRange())) for entity in KIT.entities] == [[]] * len(KIT.entities)


def test_a_list_of_numbers_is_read_in_its_own_width_alone(
    admin: Connection, reader: Connection, module: ModuleSpec[object]
) -> None:
    admin.execute("ALTER TABLE kit.notes ALTER steps TYPE int4[], ALTER seats TYPE text[]")
    wrong = r"seats as text\[\] instead of integer\[\]"
    with pytest.raises(ConfigurationError, match=rf"steps as integer\[\] instead of bigint\[\], {wrong}"):
        survey_of(reader, module)


def test_keys_may_be_null_where_nobody_forbids_it(admin: Connection, bulk: BulkPort) -> None:
    del bulk
    table = table_of(COUNTERS)
    found = found_of(admin, table)
    assert found is not None
    assert not found.nullable
    admin.execute(sql.SQL("DROP TABLE {} CASCADE").format(table.name))
    assert found_of(admin, table) is None
    admin.execute("CREATE FOREIGN DATA WRAPPER elsewhere")
    admin.execute("CREATE SERVER elsewhere FOREIGN DATA WRAPPER elsewhere")
    key = sql.SQL(", ").join(sql.SQL("{} text NOT NULL").format(column.term()) for column in table.key)
    # What a foreign table says of its columns holds only where its server says so too.
    admin.execute(sql.SQL("CREATE FOREIGN TABLE {} ({}) SERVER elsewhere").format(table.name, key))
    found = found_of(admin, table)
    assert found is not None
    assert found.nullable
