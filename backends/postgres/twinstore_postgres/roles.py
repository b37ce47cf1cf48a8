"""Whether row-level security binds the role that answers requests, and is in force where rows have owners."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import psycopg
from psycopg import sql
from psycopg.rows import tuple_row

from twinstore.errors import ConfigurationError, MigrationError
from twinstore_postgres.ddl import text
from twinstore_postgres.derive import table_of
from twinstore_postgres.settings import DRIVER

if TYPE_CHECKING:
    from collections.abc import Sequence

    from twinstore.modules import ModuleSpec
    from twinstore_postgres.connecting import Connection

__all__ = ["RoleGuard", "Tables", "check_role"]

# One row: the role, its two privileges, the privileged roles that it can become, whether it can act as an
# owner of tables, how many tables exist, and those of them whose rows no policy hides. What can be reached by
# SET ROLE counts, and so does the role that logged in, to which RESET ROLE goes back.
ROLE: Final = """
SELECT current_user::text,
       r.rolsuper,
       r.rolbypassrls,
       ARRAY(SELECT p.rolname::text
               FROM pg_roles p
              WHERE (p.rolsuper OR p.rolbypassrls)
                AND p.oid <> r.oid
                AND (pg_has_role(r.oid, p.oid, 'MEMBER') OR pg_has_role(session_user, p.oid, 'MEMBER'))
              ORDER BY p.rolname),
       coalesce(bool_or(pg_has_role(r.oid, c.relowner, 'MEMBER')
                        OR pg_has_role(session_user, c.relowner, 'MEMBER')), false),
       count(c.oid),
       coalesce(array_agg(c.relname::text ORDER BY c.relname)
                FILTER (WHERE c.relname = ANY (%s)
                          AND NOT (c.relrowsecurity AND c.relforcerowsecurity)), '{}')
  FROM pg_roles r
  LEFT JOIN pg_class c ON c.relkind = 'r' AND c.relnamespace = to_regnamespace(%s)
 WHERE r.rolname = current_user
 GROUP BY r.oid, r.rolsuper, r.rolbypassrls
"""


@dataclass(frozen=True, slots=True)
class Tables:
    """What a role that is safe finds of a module.

    Attributes:
        schema: the name of the module.
        exist: whether it has tables, which somebody else owns: only then the role is known to be safe.
        bare: those whose rows belong to tenants, and on which row-level security is not in force.
    """

    schema: str
    exist: bool
    bare: tuple[str, ...] = ()

    def refuse_bare(self) -> None:
        """Raise ``MigrationError`` where tenants would see the rows of each other."""
        if self.bare:
            raise unprotected(self.schema, self.bare)


def check_role(connection: Connection, module: ModuleSpec[object]) -> Tables:
    """Return what the role finds of a module.

    Raises:
        ConfigurationError: a superuser, a role with BYPASSRLS, the owner of the tables, or one that can
            become any of these.
    """
    schema = module.name
    # The connection may be a caller's own, whose cursors may answer with something else than tuples.
    cursor = psycopg.Cursor(connection, row_factory=tuple_row)
    owned = [entity.name for entity in module.catalog.entities if table_of(entity).owned]
    row = cursor.execute(ROLE, [owned, schema], prepare=False).fetchone()  # it hardly comes again
    if row is None:
        return Tables(schema, exist=False)
    role, superuser, bypass, above, owner, tables, bare = row
    flaws = [
        flaw
        for flaw, found in (
            ("is a superuser", superuser),
            ("has BYPASSRLS", bypass),
            # The server takes a superuser for a member of every role.
            (f"can become {', '.join(above)}, which no policy binds", above and not superuser),
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
    return Tables(schema, bool(tables), tuple(bare))


def unprotected(schema: str, tables: Sequence[str]) -> MigrationError:
    """Return the error of tables whose rows every tenant would see."""
    names = [text(sql.Identifier(schema, table)) for table in tables]
    mend = " ".join(
        f"ALTER TABLE {name} ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;" for name in names
    )
    return MigrationError(
        f"Row-level security is not in force on {', '.join(f'{schema}.{table}' for table in tables)}, so it "
        "does not protect the tenants there. A migration was interrupted, then run: twinstore migrate run "
        f"--module {schema}; or somebody has switched it off, then the owner runs: {mend}",
        module=schema,
        driver=DRIVER,
    )


class RoleGuard:
    """Checks the role of one connection string, module by module.

    It is asked again until the tables exist, because only then is it known who owns them, and until
    row-level security is in force on them. Where it is not, calls are refused, and migrations, which mend it,
    go on.

    Attributes:
        schemas: the modules that are not known to be safe, by the name of their schema.
    """

    def __init__(self) -> None:
        self.schemas: dict[str, ModuleSpec[object]] = {}
        self._bare: dict[str, Tables] = {}

    def add(self, module: ModuleSpec[object]) -> None:
        """Look at a module before the next use."""
        self.schemas[module.name] = module

    def check(self, connection: Connection) -> None:
        """Look at what is not known to be safe.

        Raises:
            ConfigurationError: row-level security does not bind the role.
        """
        # Taken out one by one: another thread may add a module meanwhile.
        for schema, module in tuple(self.schemas.items()):
            found = check_role(connection, module)
            if found.bare:
                self._bare[schema] = found
            else:
                self._bare.pop(schema, None)
                if found.exist:
                    self.schemas.pop(schema, None)

    def refuse_bare(self) -> None:
        """Raise ``MigrationError`` where tenants would see the rows of each other."""
        if self._bare:
            for found in tuple(self._bare.values()):
                found.refuse_bare()
