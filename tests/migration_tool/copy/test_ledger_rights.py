"""Who may see the ledger of a copy: the role of the copy, and no other role if the copy has its own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from uuid import uuid4

import psycopg
import pytest

from tests.support.copies import DOCUMENTS_PER_TENANT, Pair, fill, open_store
from tests.support.databases import APP_ROLE, PASSWORD
from tests.support.servers import postgres_url
from twinstore.config import load_settings
from twinstore_backfill.outcome import Exit
from twinstore_memory.store import drop_store

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.databases import PostgresDatabase
    from tests.support.servers import Settings


@pytest.fixture
def role(postgres_database: PostgresDatabase) -> Iterator[str]:
    """Make the role of the page, which has what the service has."""
    name = f"copy_{uuid4().hex[:8]}"
    with psycopg.connect(postgres_database.superuser_url, autocommit=True) as admin:
        admin.execute(f"CREATE ROLE {name} LOGIN PASSWORD '{PASSWORD}' IN ROLE {APP_ROLE}".encode())
        yield name
        admin.execute(f"DROP OWNED BY {name}; DROP ROLE {name}".encode())


@pytest.fixture
def memory() -> Iterator[Settings]:
    name = uuid4().hex
    yield {"Persistence": {"Memory": {"Store": name}}}
    drop_store(name)


def test_a_copy_under_a_role_of_its_own_keeps_the_ledger_from_the_service(
    postgres_database: PostgresDatabase, memory: Settings, role: str, tmp_path: Path
) -> None:
    url = postgres_url(postgres_database.app_url, user=role)
    postgres: dict[str, Any] = {
        "ConnectionString": url,
        "OwnerConnectionString": postgres_database.owner_url,
        "ApplicationRole": role,
    }
    with (
        open_store("scheduler", "memory", load_settings(memory, environ={})) as source,
        open_store(
            "scheduler", "postgres", load_settings({"Persistence": {"Postgres": postgres}}, environ={})
        ) as target,
    ):
        fill(source.storage)
        pair = Pair(source, target, tmp_path)
        assert pair.copy(jobs=2).exit is Exit.OK
        report = pair.verify()
        assert (report.verdict, report.documents_equal) == ("PASS", 2 * DOCUMENTS_PER_TENANT)
    for table in ("jobs", "ranges", "workers", "quarantine", "conflicts"):
        with (
            psycopg.connect(postgres_database.app_url) as service,
            pytest.raises(psycopg.errors.InsufficientPrivilege, match="permission denied"),
        ):
            service.execute(f"TABLE twinstore.{table}".encode())
