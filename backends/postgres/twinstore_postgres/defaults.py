"""The settings with which sessions begin: those that switch protection off, and all others.

``ALTER DATABASE``, ``ALTER ROLE`` and the configuration of the server give a session settings before its
first statement. Two of them are unsafe. With ``app.tenant_id`` a session that names no tenant acts for one,
or for all. With ``session_replication_role`` foreign keys and triggers do not act. All other settings are
allowed: our connections set what their results depend on.

The server judges the values. None is read, because it may be the name of a tenant or a secret.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Final

import psycopg
from psycopg import conninfo, sql

from twinstore.errors import ConfigurationError
from twinstore.migrations import SessionDefaults
from twinstore_postgres.cursors import own_cursor
from twinstore_postgres.ddl import text
from twinstore_postgres.settings import DRIVER

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

    from pydantic import SecretStr

    from twinstore_postgres.connecting import Connection
    from twinstore_postgres.settings import PostgresSettings

__all__ = ["STARTED", "refuse_unsafe", "roles_of", "session_defaults"]

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
    unknown = () if readable else (unknown_sentence(role),)
    unsafe += [session_sentence(name, login, unknown) for name in started if own and name not in explained]
    return SessionDefaults(unsafe=tuple(unsafe), allowed=tuple(allowed), unknown=unknown)


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


def unknown_sentence(role: str) -> str:
    """Return what a role may not read."""
    name = text(sql.Identifier(role))
    return (
        f"Unknown: the settings of database and roles, which role {name} may not read. "
        f"To find out: GRANT SELECT ON pg_catalog.pg_db_role_setting TO {name};"
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
