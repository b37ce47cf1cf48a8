"""The database and the two roles that every embedded PostgreSQL has."""

from __future__ import annotations

from typing import TYPE_CHECKING

import psycopg
from psycopg import sql

if TYPE_CHECKING:
    from collections.abc import Mapping

SUPERUSER = "postgres"
OWNER = "twinstore_owner"
APP = "twinstore_app"
ROLES = (SUPERUSER, OWNER, APP)
DATABASE = "twinstore"
CONNECT_SECONDS = 5
UNPRIVILEGED = sql.SQL("LOGIN NOSUPERUSER NOBYPASSRLS NOCREATEROLE NOREPLICATION")


def is_ready(url: str) -> bool:
    """Return whether the server accepts a connection."""
    try:
        psycopg.connect(url, connect_timeout=CONNECT_SECONDS).close()
    except psycopg.OperationalError:  # not up yet; asked again many times a second, so not logged
        return False
    return True


def ensure_roles(url: str, passwords: Mapping[str, str]) -> None:
    """Create what is missing: owner role, application role, and the database of the owner."""
    with psycopg.connect(url, connect_timeout=CONNECT_SECONDS, autocommit=True) as connection:
        for role in (OWNER, APP):
            _ensure_role(connection, role, passwords[role])
        _ensure_database(connection)


def _ensure_role(connection: psycopg.Connection, role: str, password: str) -> None:
    known = connection.execute("SELECT FROM pg_roles WHERE rolname = %s", [role]).rowcount
    # Altered where it exists, because the passwords in the state file are the ones that are handed out.
    verb = sql.SQL("ALTER ROLE" if known else "CREATE ROLE")
    parts = [verb, sql.Identifier(role), UNPRIVILEGED, sql.SQL("PASSWORD"), sql.Literal(password)]
    connection.execute(sql.SQL(" ").join(parts))


def _ensure_database(connection: psycopg.Connection) -> None:
    if connection.execute("SELECT FROM pg_database WHERE datname = %s", [DATABASE]).rowcount:
        return
    statement = sql.SQL("CREATE DATABASE {} OWNER {}")
    connection.execute(statement.format(sql.Identifier(DATABASE), sql.Identifier(OWNER)))
