"""PostgreSQL databases with settings of their own: for the database, for the role, and in their encoding."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack, closing, contextmanager
from typing import TYPE_CHECKING, Any, Final, cast
from uuid import uuid4

import psycopg
import pytest
from psycopg import sql
from typing_extensions import override

from tests.support.copies import AS_OF, Pair, fill, open_store
from tests.support.databases import APP_ROLE, OWNER_ROLE, PostgresDatabase
from twinstore.config import load_settings
from twinstore.errors import ValidationError
from twinstore_backfill.copy.engine import run_copy
from twinstore_backfill.copy.options import CopyOptions
from twinstore_backfill.outcome import Exit, PreflightError
from twinstore_backfill.plan import plan_copy
from twinstore_backfill.process.stopping import StopSwitch
from twinstore_backfill.progress.record import SilentProgress
from twinstore_backfill.stores import has_ledger
from twinstore_backfill.subset import Subset

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from tests.support.databases import PostgresServer

# Each makes values look otherwise, hides names, or refuses what a copy does.
ODD: Final[Mapping[str, str]] = {
    "datestyle": "German, DMY",
    "intervalstyle": "sql_standard",
    "timezone": "Asia/Kathmandu",
    "extra_float_digits": "-15",
    "bytea_output": "escape",
    "standard_conforming_strings": "off",
    "array_nulls": "off",
    "quote_all_identifiers": "on",
    "search_path": "scheduler, pg_temp, public",
    "default_transaction_read_only": "on",
    "default_transaction_isolation": "serializable",
    "row_security": "off",
    "lc_numeric": "C",
    "default_transaction_deferrable": "on",
    "client_encoding": "LATIN1",
    "xmlbinary": "hex",
    "client_min_messages": "error",
    "statement_timeout": "10000",
}
LIMITS: Final[Mapping[str, str]] = {
    "idle_in_transaction_session_timeout": "200",
    "transaction_timeout": "200",
    "statement_timeout": "200",
}
DIRECTIONS: Final = ["memory to postgres", "postgres to memory"]


def settings_of(database: PostgresDatabase) -> dict[str, Any]:
    persistence: dict[str, Any] = {"Memory": {"Store": uuid4().hex}}
    persistence |= cast("dict[str, Any]", database.config["Persistence"])
    return {"Persistence": persistence}


@contextmanager
def opened(database: PostgresDatabase, direction: str, directory: Path) -> Iterator[Pair]:
    source, _, target = direction.split()
    settings = load_settings(settings_of(database), environ={})
    with ExitStack() as stack:
        left = stack.enter_context(open_store("scheduler", source, settings, read_only=False))
        right = stack.enter_context(open_store("scheduler", target, settings))
        fill(left.storage, plain=True)
        if source == "postgres":
            left = stack.enter_context(open_store("scheduler", source, settings, read_only=True))
        yield Pair(left, right, directory)


def adopt(database: PostgresDatabase, place: sql.Composable, settings: Mapping[str, str]) -> None:
    """Set something for every connection that is opened from now on."""
    with psycopg.connect(database.superuser_url, autocommit=True) as admin:
        known = {name for (name,) in admin.execute("SELECT name FROM pg_settings").fetchall()}
        for name, value in settings.items():
            # That of a later release of the server is not known to an earlier one.
            if name in known:
                values = sql.SQL(", ").join(map(sql.Literal, value.split(", ")))
                statement = sql.SQL("ALTER {} SET {} = {}").format(place, sql.Identifier(name), values)
                admin.execute(statement)


Place = Callable[[PostgresDatabase], sql.Composable]


def of_database(database: PostgresDatabase) -> sql.Composable:
    return sql.SQL("DATABASE {}").format(sql.Identifier(database.name))


def of_role(database: PostgresDatabase) -> sql.Composable:
    role, name = sql.Identifier(APP_ROLE), sql.Identifier(database.name)
    return sql.SQL("ROLE {} IN DATABASE {}").format(role, name)


# Each place and each direction once.
@pytest.mark.parametrize(
    ("place", "direction"),
    [
        (of_database, DIRECTIONS[0]),
        (of_role, DIRECTIONS[1]),
        pytest.param(of_database, DIRECTIONS[1], marks=pytest.mark.long),
        pytest.param(of_role, DIRECTIONS[0], marks=pytest.mark.long),
    ],
)
def test_settings_of_the_database_or_the_role_change_nothing(
    postgres_database: PostgresDatabase, tmp_path: Path, place: Place, direction: str
) -> None:
    adopt(postgres_database, place(postgres_database), ODD)
    with opened(postgres_database, direction, tmp_path) as pair:
        assert plan_copy(pair.source, pair.target, CopyOptions()).rows
        result = pair.copy()
        assert (result.exit, result.complete) == (Exit.OK, True)
        report = pair.verify()
        assert (report.verdict, report.reasons, report.equivalences) == ("PASS", (), ())
        left, right = (side.storage for side in (pair.source, pair.target))
        assert left.runs.list("acme").items == right.runs.list("acme").items != ()
        assert left.schedules.list("acme") == right.schedules.list("acme")
        assert left.audit.list("acme") == right.audit.list("acme")
        assert pair.copy().totals.all()["written"] == 0


class Slow(StopSwitch):
    """Pauses for longer than a transaction may be idle or last."""

    def __init__(self, database: PostgresDatabase) -> None:
        super().__init__()
        self._database = database
        self.pauses = 0

    @override
    def pause(self, seconds: float) -> None:
        self.pauses += 1
        with psycopg.connect(self._database.superuser_url) as connection:
            connection.execute("SELECT pg_sleep(0.5)")


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_the_pauses_of_a_limited_rate_outlast_every_limit_of_the_server(
    postgres_database: PostgresDatabase, tmp_path: Path, direction: str
) -> None:
    with opened(postgres_database, direction, tmp_path) as pair:
        adopt(postgres_database, of_role(postgres_database), LIMITS)
        with psycopg.connect(postgres_database.superuser_url, autocommit=True) as admin:
            # What is open was opened without these limits.
            admin.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                "WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )
        slow = Slow(postgres_database)
        options = CopyOptions(
            out=tmp_path, as_of=AS_OF, range_size=1000, batch_size=5, jobs=1, max_rate=10, execute=True
        )
        result = run_copy(pair.source, pair.target, options, SilentProgress(), slow)
        assert (result.exit, result.complete) == (Exit.OK, True)
        assert slow.pauses > 3


@contextmanager
def encoded(server: PostgresServer, encoding: str) -> Iterator[PostgresDatabase]:
    """Create a database in another encoding."""
    name = f"encoded_{uuid4().hex[:12]}"
    create = "CREATE DATABASE {} OWNER {} ENCODING {} LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0"
    parts = (sql.Identifier(name), sql.Identifier(OWNER_ROLE), sql.Literal(encoding))
    server.admin.execute(sql.SQL(create).format(*parts))
    try:
        yield server.named(name)
    finally:
        server.admin.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))


@pytest.mark.parametrize(
    "encoding", ["SQL_ASCII", *(pytest.param(name, marks=pytest.mark.long) for name in ("LATIN1", "WIN1252"))]
)
def test_a_target_that_cannot_hold_every_text_is_refused_before_anything_is_made(
    postgres_server: PostgresServer, postgres_database: PostgresDatabase, tmp_path: Path, encoding: str
) -> None:
    del postgres_database  # has made the roles
    with encoded(postgres_server, encoding) as database, opened(database, DIRECTIONS[0], tmp_path) as pair:
        for step in (pair.copy, lambda: plan_copy(pair.source, pair.target, CopyOptions())):
            with pytest.raises(PreflightError, match=f"has the encoding {encoding}.*Create it with UTF8"):
                step()
        assert not has_ledger(pair.target)
        with closing(psycopg.connect(database.superuser_url)) as connection:
            found = connection.execute("SELECT to_regnamespace('scheduler')").fetchall()
        assert found == [(None,)]


def test_a_source_whose_texts_are_in_the_order_of_code_points_is_read(
    postgres_server: PostgresServer, postgres_database: PostgresDatabase, tmp_path: Path
) -> None:
    del postgres_database
    with encoded(postgres_server, "LATIN1") as database:
        with open_store("scheduler", "postgres", load_settings(settings_of(database), environ={})) as store:
            store.storage.initializer.ensure_migrations()
        with opened(database, DIRECTIONS[1], tmp_path) as pair:
            assert pair.copy().exit is Exit.OK
            assert pair.verify().verdict == "PASS"
            read = [
                pair.copy(entities=("audit",), subset=Subset(key_from=(bound,)), execute=False)
                for bound in ("!", "zé")
            ]
            assert [found.totals.all()["read"] > 0 for found in read] == [True, False]
            # What its texts cannot hold has no place between them.
            with pytest.raises(ValidationError, match="UntranslatableCharacter"):
                pair.copy(entities=("audit",), subset=Subset(key_from=("€",)), execute=False)


@pytest.mark.parametrize("encoding", ["LATIN2", pytest.param("SQL_ASCII", marks=pytest.mark.long)])
def test_any_other_source_is_refused_with_what_to_do(
    postgres_server: PostgresServer, postgres_database: PostgresDatabase, tmp_path: Path, encoding: str
) -> None:
    del postgres_database
    with encoded(postgres_server, encoding) as database:
        with open_store("scheduler", "postgres", load_settings(settings_of(database), environ={})) as store:
            store.storage.initializer.ensure_migrations()
        refused = pytest.raises(PreflightError, match=f"has the encoding {encoding}.*Dump it")
        with opened(database, DIRECTIONS[1], tmp_path) as pair, refused:
            pair.copy()
