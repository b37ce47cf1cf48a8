"""A role for the days of a migration: a copy writes straight into empty ranges, and nowhere else."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

import psycopg
import pytest
from psycopg import sql

from tests.backfill.toolkit import Pair, fill, open_store
from tests.databases import APP_ROLE, PASSWORD
from tests.servers import postgres_url
from twinstore.config import load_settings
from twinstore.errors import ConfigurationError
from twinstore.scheduler.catalog import RUNS
from twinstore_backfill.copy.report import report_document
from twinstore_memory.store import drop_store
from twinstore_postgres.bulk import staging

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.databases import PostgresDatabase, PostgresServer

ENDED: Final = "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE usename = %s"


@pytest.fixture
def memory() -> Iterator[str]:
    name = uuid4().hex
    yield name
    drop_store(name)


@contextmanager
def role(database: PostgresDatabase, attribute: str = "BYPASSRLS") -> Iterator[str]:
    """Make a role for a copy; yield its connection string."""
    name = f"bulk_{uuid4().hex}"
    with psycopg.connect(database.superuser_url, autocommit=True) as admin:
        admin.execute(
            f"CREATE ROLE {name} LOGIN {attribute} PASSWORD '{PASSWORD}' IN ROLE {APP_ROLE}".encode()
        )
        try:
            yield postgres_url(database.app_url, user=name)
        finally:
            # Closed on this side they may still be there, with temporary tables of the role.
            admin.execute(ENDED, [name])
            admin.execute(sql.SQL("DROP ROLE {}").format(sql.Identifier(name)))


def settings_of(database: PostgresDatabase, memory: str, bulk: str | None) -> dict[str, Any]:
    persistence = database.config["Persistence"]
    assert isinstance(persistence, dict)
    postgres = {**persistence["Postgres"], **({} if bulk is None else {"BulkConnectionString": bulk})}
    return {"Persistence": {**persistence, "Postgres": postgres, "Memory": {"Store": memory}}}


@contextmanager
def pair(database: PostgresDatabase, memory: str, bulk: str | None, directory: Path) -> Iterator[Pair]:
    """Open a source in memory and a target that has the role."""
    loaded = load_settings(settings_of(database, memory, bulk), environ={})
    with (
        open_store("scheduler", "memory", loaded) as source,
        open_store("scheduler", "postgres", loaded) as right,
    ):
        yield Pair(source, right, directory)


def straight_copies(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """Collect the statements that fill a table or a stage."""
    filled: list[bytes] = []
    before = staging.Stage._fill  # noqa: SLF001  # what is observed

    def fill_noted(self: staging.Stage, statement: bytes, rows: staging.StagedRows) -> None:
        filled.append(statement)
        before(self, statement, rows)

    monkeypatch.setattr(staging.Stage, "_fill", fill_noted)
    return filled


def test_rows_go_straight_into_empty_ranges_and_through_the_stage_elsewhere(
    postgres_server: PostgresServer, memory: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled = straight_copies(monkeypatch)
    reports: list[dict[str, Any]] = []
    for bypassing in (True, False):
        with postgres_server.migrated_database() as target, role(target) as bulk:
            with pair(target, memory, bulk if bypassing else None, tmp_path) as stores:
                if bypassing:
                    fill(stores.source.storage)
                first = report_document(stores.copy())
                straight = [item for item in filled if b"pg_temp" not in item]
                assert bool(straight) == bypassing
                filled.clear()
                with psycopg.connect(target.superuser_url, autocommit=True) as admin:
                    admin.execute(b"DELETE FROM scheduler.runs WHERE id LIKE '%-1'")
                second = report_document(stores.copy())
                assert all(b"pg_temp" in item for item in filled if b"runs" in item)
                filled.clear()
                assert stores.verify().verdict == "PASS"
            names = ("totals", "entities", "quarantine", "conflicts", "state")
            reports.append(
                {f"{name} {at}": report[name] for at, report in enumerate((first, second)) for name in names}
            )
    assert reports[0] == reports[1]
    assert reports[0]["totals 0"]["written"]


def test_a_role_that_is_bound_is_refused(
    postgres_server: PostgresServer, memory: str, tmp_path: Path
) -> None:
    with (
        postgres_server.migrated_database() as target,
        role(target, "NOBYPASSRLS") as bulk,
        pair(target, memory, bulk, tmp_path) as stores,
    ):
        fill(stores.source.storage)
        with pytest.raises(ConfigurationError, match="BYPASSRLS, or remove the setting"):
            stores.copy()
        assert not stores.target.bulk.counts(RUNS)


def test_a_role_of_another_database_is_refused(
    postgres_server: PostgresServer, memory: str, tmp_path: Path
) -> None:
    with (
        postgres_server.migrated_database() as target,
        postgres_server.migrated_database() as other,
        role(other) as bulk,
        pair(target, memory, bulk, tmp_path) as stores,
    ):
        fill(stores.source.storage)
        with pytest.raises(ConfigurationError, match="leads to another database"):
            stores.copy()
        assert not stores.target.bulk.counts(RUNS)
