"""Whether row-level security binds the role that answers requests, and is in force where rows have owners."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from psycopg import sql

from twinstore.errors import ConfigurationError, MigrationError
from twinstore_postgres.cursors import own_cursor
from twinstore_postgres.ddl import text
from twinstore_postgres.defaults import STARTED, refuse_unsafe, session_defaults
from twinstore_postgres.derive import table_of
from twinstore_postgres.settings import DRIVER

if TYPE_CHECKING:
    from collections.abc import Sequence

    from twinstore.modules import ModuleSpec
    from twinstore_postgres.connecting import Connection

__all__ = ["RoleGuard", "Tables", "check_role"]

# One row: the role, its two privileges, the privileged roles that it can become, whether it can act as an
# owner of tables, how many tables exist, and those of them whose rows no policy hides. What can be reached by
# SET ROLE counts, and so does the role that logged in, to which RESET ROLE goes back. Last, what the session
# began with.
ROLE: Final = f"""
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
                          AND NOT (c.relrowsecurity AND c.relforcerowsecurity)), '{{}}'),
       {STARTED}
  FROM pg_roles r
  LEFT JOIN pg_class c ON c.relkind = 'r' AND c.relnamespace = to_regnamespace(%s)
 WHERE r.rolname = current_user
 GROUP BY r.oid, r.rolsuper, r.rolbypassrls
"""  # noqa: S608  # a part of the same statement


@dataclass(frozen=True, slots=True)
class Tables:
    """What a role that is safe finds of a module.

    Attributes:
        schema: the name of the module.
        exist: whether it has tables, which somebody else owns: only then the role is known to be safe.
        bare: those whose rows belong to tenants, and on which row-level security is not in force.
        unsafe: a sentence for each setting with which sessions begin and that switches protection off.
    """

    schema: str
    exist: bool
    bare: tuple[str, ...] = ()
    unsafe: tuple[str, ...] = ()

    @property
    def refused(self) -> bool:
        """Whether no call may be made."""
        return bool(self.bare or self.unsafe)

    def refuse(self) -> None:
        """Refuse a call where tenants would see the rows of each other.

        Raises:
            ConfigurationError: sessions begin with unsafe settings.
            MigrationError: row-level security is not in force.
        """
        refuse_unsafe(self.unsafe)
        if self.bare:
            raise unprotected(self.schema, self.bare)


def check_role(
    connection: Connection, module: ModuleSpec[object], *, fresh: bool = True, own: bool = True
) -> Tables:
    """Return what the role finds of a module.

    Args:
        connection: of the role; nothing that a caller has set on it is changed.
        module: the module.
        fresh: the session shows with what others begin. Otherwise the catalogue is read too.
        own: as for :func:`session_defaults`.

    Raises:
        ConfigurationError: a superuser, a role with BYPASSRLS, the owner of the tables, or one that can
            become any of these.
    """
    schema = module.name
    # The connection may be a caller's own, whose cursors may answer with something else than tuples.
    cursor = own_cursor(connection)
    owned = [entity.name for entity in module.catalog.entities if table_of(entity).owned]
    row = cursor.execute(ROLE, [owned, schema], prepare=False).fetchone()  # it hardly comes again
    if row is None:
        return Tables(schema, exist=False)
    role, superuser, bypass, above, owner, tables, bare, started = row
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
    look = not fresh or started
    unsafe = session_defaults(connection, own=own).unsafe if look else ()
    return Tables(schema, bool(tables), tuple(bare), unsafe)


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

    It is asked again until the tables exist, because only then is it known who owns them, until row-level
    security is in force on them, and until no session begins with unsafe settings. Until then calls are
    refused, and migrations, which repair or name it, go on.

    Attributes:
        schemas: the modules that are not known to be safe, by the name of their schema.
    """

    def __init__(self, *, pooled: bool = False) -> None:
        """Take whether a pooler may give a session that began long ago."""
        self.schemas: dict[str, ModuleSpec[object]] = {}
        self._pooled = pooled
        self._refused: dict[str, Tables] = {}

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
            found = check_role(connection, module, fresh=not self._pooled)
            if found.refused:
                self._refused[schema] = found
            else:
                self._refused.pop(schema, None)
                if found.exist:
                    self.schemas.pop(schema, None)

    @property
    def unsafe(self) -> tuple[str, ...]:
        """A sentence for each unsafe setting with which sessions begin."""
        return next((found.unsafe for found in tuple(self._refused.values()) if found.unsafe), ())

    def refuse(self) -> None:
        """Refuse a call where tenants would see the rows of each other; see :meth:`Tables.refuse`."""
        if self._refused:
            for found in tuple(self._refused.values()):
                found.refuse()
