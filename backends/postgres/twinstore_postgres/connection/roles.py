"""Whether row-level security binds the role that answers requests, and is in force where rows have owners."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import psycopg
from psycopg import conninfo, sql

from twinstore.errors import ConfigurationError, MigrationError
from twinstore.migrations.migration import SessionDefaults
from twinstore_postgres.connection.cursors import own_cursor
from twinstore_postgres.mapping.columns import text
from twinstore_postgres.mapping.table import table_of
from twinstore_postgres.settings import DRIVER

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

    from pydantic import SecretStr

    from twinstore.plugins.module_spec import ModuleSpec
    from twinstore_postgres.connection.deadlines import Connection
    from twinstore_postgres.settings import PostgresSettings

# The settings with which sessions begin: those that switch protection off, and all others.
#
# ``ALTER DATABASE``, ``ALTER ROLE`` and the configuration of the server give a session settings before its
# first statement. Two of them are unsafe. With ``app.tenant_id`` a session that names no tenant acts for one,
# or for all. With ``session_replication_role`` foreign keys and triggers do not act. All other settings are
# allowed: our connections set what their results depend on.
#
# The server judges the values. None is read, because it may be the name of a tenant or a secret.


UNKNOWN: Final = "Unknown"
SETTINGS: Final = "the settings of database and roles"
EFFECTS: Final = {
    "app.tenant_id": "a session that names no tenant sees and changes the rows of one tenant, or of all",
    "session_replication_role": "foreign keys and triggers do not act",
}
ELSEWHERE: Final = (
    "The configuration of the server sets it, or an option of the connection. To repair: ALTER SYSTEM RESET "
    "{name}; SELECT pg_reload_conf(); or remove it from postgresql.conf (pg_file_settings has the line), or "
    "from the connection string."
)
# The names of unsafe settings with which the session began, whatever it has set since. set_config with NULL
# takes a setting back to that value. Then the session gets its own one again: a caller may have set it.
STARTED: Final = """
(SELECT array_remove(ARRAY[
            CASE WHEN s.began <> '' THEN 'app.tenant_id' END,
            CASE WHEN current_setting('session_replication_role') = 'replica'
                  AND (SELECT reset_val = 'replica' FROM pg_settings WHERE name = 'session_replication_role')
                 THEN 'session_replication_role' END], NULL)
   FROM (SELECT current_setting('app.tenant_id', true) AS own,
                set_config('app.tenant_id', NULL, true) AS began OFFSET 0) AS s
  CROSS JOIN LATERAL set_config('app.tenant_id', s.own, true) AS restored)
"""
# A statement that names the catalogue fails for a role that may not read it, and ends a caller's transaction.
BEGINNING: Final = f"""
SELECT {STARTED}, session_user::text, current_user::text,
       has_table_privilege('pg_catalog.pg_db_role_setting', 'SELECT')
"""
EXTENSIONS: Final = "SELECT extname::text FROM pg_extension WHERE extname = ANY (%s) ORDER BY 1"
UNTESTED: Final = ("citus",)
# Names are compared without case, also by a server whose language has other rules for it.
ENTRIES: Final = """
SELECT d.datname::text, CASE WHEN s.setrole <> 0 THEN pg_get_userbyid(s.setrole)::text END, e.name,
       CASE lower(e.name COLLATE "C")
            WHEN 'app.tenant_id' THEN e.value <> ''
            WHEN 'session_replication_role' THEN lower(e.value COLLATE "C") NOT IN ('origin', 'local')
            ELSE false END
  FROM pg_db_role_setting s
  LEFT JOIN pg_database d ON d.oid = s.setdatabase
 CROSS JOIN LATERAL (SELECT split_part(item, '=', 1) AS name, substr(item, strpos(item, '=') + 1) AS value
                       FROM unnest(s.setconfig) AS item) AS e
 WHERE (s.setdatabase = 0 OR d.datname = current_database())
   AND (s.setrole = 0 OR pg_get_userbyid(s.setrole)::text = ANY (%s))
 ORDER BY d.datname, 2, e.name
"""


def session_defaults(
    connection: Connection, roles: Collection[str] = (), *, own: bool = True
) -> SessionDefaults:
    """Return what sessions of this database begin with.

    Args:
        connection: in any state; nothing that its owner has set is changed.
        roles: whose settings count next to those of the role that logged in.
        own: whether this session counts too. It shows what the server itself sets.
    """
    cursor = own_cursor(connection)
    ((started, login, role, readable),) = cursor.execute(BEGINNING, prepare=False).fetchall()
    entries = cursor.execute(ENTRIES, [[login, *roles]], prepare=False).fetchall() if readable else ()
    unsafe: list[str] = []
    allowed: list[str] = []
    explained: set[str] = set()
    for database, member, name, is_unsafe in entries:
        if not is_unsafe:
            allowed.append(f"{name} ({place_of(database, member)})")
            continue
        unsafe.append(entry_sentence(name, place_of(database, member)))
        if member in {None, login}:
            explained.add(name.lower())
    unknown = () if readable else (unknown_sentence(role, SETTINGS, "pg_db_role_setting"),)
    unsafe += [session_sentence(name, login, unknown) for name in started if own and name not in explained]
    return SessionDefaults(unsafe=tuple(unsafe), allowed=tuple(allowed), unknown=unknown)


def extension_remarks(connection: Connection) -> tuple[str, ...]:
    """Return a sentence for each extension that changes how tables work and that no test has met."""
    found = own_cursor(connection).execute(EXTENSIONS, [[*UNTESTED]], prepare=False).fetchall()
    return tuple(f"The database has the extension {name}: not tested." for (name,) in found)


def place_of(database: str | None, role: str | None) -> str:
    """Return what ALTER names in a statement that takes a setting back."""
    if role is None and database is not None:
        return f"DATABASE {text(sql.Identifier(database))}"
    owner = "ROLE ALL" if role is None else f"ROLE {text(sql.Identifier(role))}"
    return owner if database is None else f"{owner} IN DATABASE {text(sql.Identifier(database))}"


def entry_sentence(name: str, place: str) -> str:
    """Return what an unsafe setting of a database or a role does, and what takes it back."""
    quoted = text(sql.Identifier(*name.split(".")))
    return (
        f"Not wanted: {name} set for {place}: {EFFECTS[name.lower()]}. "
        f"To repair: ALTER {place} RESET {quoted};"
    )


def session_sentence(name: str, login: str, unknown: Sequence[str]) -> str:
    """Return the same of a setting with which this session began and that no entry explains."""
    begun = f"Not wanted: {name} in sessions of role {text(sql.Identifier(login))}: {EFFECTS[name]}."
    return " ".join((begun, *(unknown or (ELSEWHERE.format(name=name),))))


def unknown_sentence(role: str, what: str, *catalogs: str) -> str:
    """Return what a role may not read, and the grant that lets it."""
    name = text(sql.Identifier(role))
    listed = ", ".join(f"pg_catalog.{catalog}" for catalog in catalogs)
    return (
        f"{UNKNOWN}: {what}, which role {name} may not read. To find out: GRANT SELECT ON {listed} TO {name};"
    )


def refuse_unsafe(sentences: Collection[str]) -> None:
    """Raise ``ConfigurationError`` if there is a sentence about an unsafe setting."""
    if sentences:
        raise ConfigurationError(
            f"Sessions of this database begin with unsafe settings. {' '.join(sentences)} Open sessions "
            "keep a setting until they end, those of a pooler too. For a test, set AllowUnsafeRole.",
            driver=DRIVER,
        )


def roles_of(settings: PostgresSettings) -> tuple[str, ...]:
    """Return the roles that the settings name."""
    secrets = (
        settings.connection_string,
        settings.owner_connection_string,
        settings.lock_connection_string,
        settings.direct_connection_string,
        settings.bulk_connection_string,
    )
    return (settings.application_role, *users_of(secret for secret in secrets if secret is not None))


def users_of(secrets: Iterable[SecretStr]) -> Iterator[str]:
    """Yield the users of connection strings. One that cannot be read is refused where it is used."""
    for secret in secrets:
        with suppress(psycopg.ProgrammingError):
            user = conninfo.conninfo_to_dict(secret.get_secret_value()).get("user")
            if user:
                yield str(user)


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
  LEFT JOIN pg_class c ON c.relkind IN ('r', 'p') AND c.relnamespace = to_regnamespace(%s)
 WHERE r.rolname = current_user
 GROUP BY r.oid, r.rolsuper, r.rolbypassrls
"""  # noqa: S608  # a part of the same statement


@dataclass(frozen=True, slots=True)
class Tables:
    """What a role that is safe finds of a module.

    Attributes:
        schema: the name of the module.
        exist: whether it has tables, which another role owns: only then the role is known to be safe.
        without_rls: those whose rows belong to tenants, and on which row-level security is not in force.
        unsafe: a sentence for each setting with which sessions begin and that switches protection off.
    """

    schema: str
    exist: bool
    without_rls: tuple[str, ...] = ()
    unsafe: tuple[str, ...] = ()

    @property
    def refused(self) -> bool:
        """Whether no call may be made."""
        return bool(self.without_rls or self.unsafe)

    def refuse(self) -> None:
        """Refuse a call where tenants would see the rows of each other.

        Raises:
            ConfigurationError: sessions begin with unsafe settings.
            MigrationError: row-level security is not in force.
        """
        refuse_unsafe(self.unsafe)
        if self.without_rls:
            raise unprotected(self.schema, self.without_rls)


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
    role, superuser, bypass, above, owner, tables, without_rls, started = row
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
    needs_check = not fresh or started
    unsafe = session_defaults(connection, own=own).unsafe if needs_check else ()
    return Tables(schema, bool(tables), tuple(without_rls), unsafe)


def unprotected(schema: str, tables: Sequence[str]) -> MigrationError:
    """Return the error of tables whose rows every tenant would see."""
    names = [text(sql.Identifier(schema, table)) for table in tables]
    repair = " ".join(
        f"ALTER TABLE {name} ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;" for name in names
    )
    return MigrationError(
        f"Row-level security is not in force on {', '.join(f'{schema}.{table}' for table in tables)}, so it "
        "does not protect the tenants there. A migration was interrupted, then run: twinstore migrate run "
        f"--module {schema}; or it has been switched off, then the owner runs: {repair}",
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
