"""Whether row-level security binds the role that answers requests."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import psycopg
from psycopg.rows import tuple_row

from twinstore.errors import ConfigurationError
from twinstore_postgres.settings import DRIVER

if TYPE_CHECKING:
    from twinstore_postgres.connecting import Connection

__all__ = ["RoleGuard", "check_role"]

# One row: the role, its two privileges, whether it can act as an owner of tables, and how many exist.
ROLE: Final = """
SELECT current_user,
       r.rolsuper,
       r.rolbypassrls,
       coalesce(bool_or(pg_has_role(r.oid, c.relowner, 'MEMBER')), false),
       count(c.oid)
  FROM pg_roles r
  LEFT JOIN pg_class c ON c.relkind = 'r' AND c.relnamespace = to_regnamespace(%s)
 WHERE r.rolname = current_user
 GROUP BY r.rolsuper, r.rolbypassrls
"""


def check_role(connection: Connection, schema: str) -> bool:
    """Return whether the role is known to be safe: true once the tables of a schema exist, owned by others.

    Raises:
        ConfigurationError: a superuser, a role with BYPASSRLS, or the owner of the tables.
    """
    # The connection may be a caller's own, whose cursors may answer with something else than tuples.
    cursor = psycopg.Cursor(connection, row_factory=tuple_row)
    row = cursor.execute(ROLE, [schema], prepare=False).fetchone()  # it hardly comes again
    if row is None:
        return False
    role, superuser, bypass, owner, tables = row
    flaws = [
        flaw
        for flaw, found in (
            ("is a superuser", superuser),
            ("has BYPASSRLS", bypass),
            # The server takes a superuser for a member of every role.
            (f"owns the tables of schema {schema}", owner and not superuser),
        )
        if found
    ]
    if flaws:
        raise ConfigurationError(
            f"The role {role!r} {' and '.join(flaws)}, so row-level security does not protect the tenants. "
            "Connect as an application role that has none of this (the migrations grant it what it needs), "
            "give the other one as OwnerConnectionString, or set AllowUnsafeRole for a test.",
            driver=DRIVER,
        )
    return bool(tables)


class RoleGuard:
    """Checks the role of one connection string, schema by schema.

    It is asked again until the tables exist: only then is it known who owns them.

    Attributes:
        schemas: those whose tables might belong to the role.
    """

    def __init__(self) -> None:
        self.schemas: frozenset[str] = frozenset()

    def add(self, schema: str) -> None:
        """Look at a schema before the next use."""
        self.schemas |= {schema}

    def check(self, connection: Connection) -> None:
        """Look at what is not known to be safe.

        Raises:
            ConfigurationError: row-level security does not bind the role.
        """
        self.schemas -= {schema for schema in self.schemas if check_role(connection, schema)}
