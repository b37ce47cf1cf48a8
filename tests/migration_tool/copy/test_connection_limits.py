"""A role with few connections: the error names the number it needs, and that number is enough."""

from __future__ import annotations

from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Final
from uuid import uuid4

import psycopg
import pytest
from psycopg import sql

from tests.support.copies import Pair, fill, open_store
from tests.support.servers import postgres_url
from twinstore.config import load_settings
from twinstore.errors import UnavailableError
from twinstore.fast.library import SWITCH

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.databases import PostgresDatabase, PostgresServer

PASSWORD: Final = "not-the-name"  # of a role that this test drops


@pytest.fixture
def role(postgres_server: PostgresServer, postgres_database: PostgresDatabase) -> Iterator[str]:
    """Make a role that may read."""
    name = f"limited_{uuid4().hex[:12]}"
    own = sql.Identifier(name)
    with psycopg.connect(postgres_database.superuser_url, autocommit=True) as admin:
        admin.execute(sql.SQL("CREATE ROLE {} LOGIN PASSWORD {}").format(own, PASSWORD))
        admin.execute(sql.SQL("GRANT USAGE ON SCHEMA scheduler TO {}").format(own))
        admin.execute(sql.SQL("GRANT SELECT ON ALL TABLES IN SCHEMA scheduler TO {}").format(own))
        yield name
        admin.execute(sql.SQL("DROP OWNED BY {}").format(own))
    postgres_server.admin.execute(sql.SQL("DROP ROLE {}").format(own))


@pytest.fixture
def target(postgres_server: PostgresServer) -> Iterator[PostgresDatabase]:
    with postgres_server.migrated_database() as database:
        yield database


@contextmanager
def opened(
    source: PostgresDatabase, role: str, target: PostgresDatabase, most: int, directory: Path
) -> Iterator[Pair]:
    """Open what the role reads with this many connections, in addition to its copy."""
    limit = sql.SQL("ALTER ROLE {} CONNECTION LIMIT {}").format(sql.Identifier(role), most)
    with psycopg.connect(source.superuser_url, autocommit=True) as admin:
        admin.execute(limit)
        # The server counts a closed connection until its process has ended.
        while admin.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE usename = %s", [role]
        ).fetchone() != (0,):
            pass
    url = postgres_url(source.superuser_url, user=role, password=PASSWORD)
    few = {"Persistence": {"Postgres": {"ConnectionString": url, "PoolTimeoutMs": 10_000}}}
    with (
        open_store("scheduler", "postgres", load_settings(few, environ={}), read_only=True) as left,
        open_store("scheduler", "postgres", load_settings(target.config, environ={})) as right,
    ):
        yield Pair(left, right, directory)


@pytest.mark.native
def test_a_command_says_how_many_connections_it_needs_and_does_with_them(
    postgres_database: PostgresDatabase,
    role: str,
    target: PostgresDatabase,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with open_store("scheduler", "postgres", load_settings(postgres_database.config, environ={})) as store:
        fill(store.storage)
    pair_with = partial(opened, postgres_database, role, target, directory=tmp_path)
    with pair_with(2) as pair:
        with pytest.raises(UnavailableError) as refused:
            pair.copy(jobs=2)
        assert f'raise it: ALTER ROLE "{role}" CONNECTION LIMIT' in refused.value.message
        assert "A copy with --jobs 2 needs up to 3 connections of the source" in refused.value.message
    with pair_with(3) as pair:
        assert pair.copy(jobs=2).complete
    with pair_with(2) as pair:
        with pytest.raises(UnavailableError) as refused:
            pair.verify()
        assert "A verification with --jobs 1 needs up to 4 connections" in refused.value.message
        assert f"with {SWITCH}=off up to 2." in refused.value.message
    monkeypatch.setenv(SWITCH, "off")
    with pair_with(2) as pair:
        assert pair.verify().verdict == "PASS"
    monkeypatch.delenv(SWITCH)
    with pair_with(7) as pair:
        assert pair.verify(jobs=2).verdict == "PASS"
