"""The statements of the guide for removing a row by hand do what it says, row-level security included."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

import psycopg
import pytest

import twinstore
from twinstore.testing.scheduler.builders import make_run

if TYPE_CHECKING:
    from tests.databases import PostgresDatabase

GUIDE: Final = Path(__file__).parents[2] / "docs" / "backfill.md"


@pytest.mark.parametrize("role", ["app", "owner"])
def test_a_row_is_removed_as_the_guide_says_and_by_nothing_less(
    role: str, postgres_database: PostgresDatabase
) -> None:
    (block,) = re.findall(r"```sql\n(BEGIN;.*?)```", GUIDE.read_text(), re.DOTALL)
    (delete,) = re.findall(r"DELETE .*;", block)
    with twinstore.open_storage(postgres_database.config) as storage:
        for name in ("run-7", "run-8"):
            storage.scheduler.runs.create(make_run("acme", name))
    url = postgres_database.app_url if role == "app" else postgres_database.owner_url
    with psycopg.connect(url, autocommit=True) as connection:
        # As the guide warns: without a tenant nothing is there.
        assert connection.execute(delete).rowcount == 0
        for statement in block.strip().splitlines():
            found = connection.execute(statement.encode())
            if statement == delete:
                assert found.rowcount == 1
    with twinstore.open_storage(postgres_database.config) as storage:
        assert [run.id for run in storage.scheduler.runs.list("acme")] == ["run-8"]
