from __future__ import annotations

import psycopg
import pytest

from tests.databases import APP_ROLE, OWNER_ROLE, MongoServer, PostgresDatabase, PostgresServer


def test_a_mongo_database_is_gone_after_its_test(mongo_server: MongoServer) -> None:
    with mongo_server.database() as database:
        mongo_server.client[database.name]["items"].insert_one({"_id": 1})
        assert database.name in mongo_server.client.list_database_names()
    assert database.name not in mongo_server.client.list_database_names()


def test_a_postgres_database_is_gone_after_its_test_even_with_a_connection_open(
    postgres_server: PostgresServer,
) -> None:
    with postgres_server.empty_database() as database:
        forgotten = psycopg.connect(database.app_url)
    with forgotten, pytest.raises(psycopg.OperationalError):
        forgotten.execute("SELECT 1")
    with pytest.raises(psycopg.OperationalError, match="does not exist"):
        psycopg.connect(database.app_url)


def test_the_owner_owns_the_database_and_the_application_does_not(
    empty_postgres_database: PostgresDatabase,
) -> None:
    with psycopg.connect(empty_postgres_database.owner_url) as owner:
        owner.execute("CREATE SCHEMA rooms")
        assert owner.execute("SELECT current_user").fetchone() == (OWNER_ROLE,)
    with (
        psycopg.connect(empty_postgres_database.app_url) as application,
        pytest.raises(psycopg.errors.InsufficientPrivilege),
    ):
        application.execute("CREATE SCHEMA more")


def test_neither_role_can_pass_row_level_security(postgres_server: PostgresServer) -> None:
    with postgres_server.empty_database():
        query = "SELECT bool_or(rolsuper OR rolbypassrls) FROM pg_roles WHERE rolname = ANY(%s)"
        assert postgres_server.admin.execute(query, [[OWNER_ROLE, APP_ROLE]]).fetchone() == (False,)


def test_two_clones_share_the_schema_and_nothing_that_came_later(
    postgres_server: PostgresServer, postgres_database: PostgresDatabase
) -> None:
    with psycopg.connect(postgres_database.superuser_url) as connection:
        connection.execute("CREATE TABLE public.mark ()")
    with postgres_server.migrated_database() as other:
        assert tables(postgres_database) - tables(other) == {"public.mark"}
        assert "scheduler.schedules" in tables(other)


def tables(database: PostgresDatabase) -> set[str]:
    with psycopg.connect(database.superuser_url) as connection:
        found = connection.execute("SELECT schemaname || '.' || tablename FROM pg_tables")
        return {name for (name,) in found}
