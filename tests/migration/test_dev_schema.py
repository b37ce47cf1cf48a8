"""`twinstore dev schema`: what a server holds after all migrations, beside them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.backfill.toolkit import invoke, write_config
from tests.library.module import MODULE as LIBRARY
from twinstore.errors import MigrationError
from twinstore.scheduler.module import MODULE
from twinstore_postgres.schema.comparison import SCHEMA_FILE, wanted_schema

if TYPE_CHECKING:
    from pathlib import Path

    from tests.databases import PostgresDatabase


@pytest.fixture
def config(empty_postgres_database: PostgresDatabase, tmp_path: Path) -> Path:
    return write_config(tmp_path / "settings.json", empty_postgres_database.config)


def test_it_is_taken_where_every_migration_is_applied(
    config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ("--config", config, "dev", "schema", "scheduler", "--backend", "Postgres")
    refused = invoke(capsys, *command)
    assert (refused.code, "Migrations of scheduler are pending: 001_" in refused.err) == (4, True)
    run = ("--config", config, "migrate", "run", "--backend", "Postgres", "--category", "release")
    assert invoke(capsys, *run).code == 0
    current = invoke(capsys, *command, "--check")
    assert (current.code, "is current" in current.out) == (0, True)

    elsewhere = tmp_path / "migrations" / "postgres"
    elsewhere.mkdir(parents=True)
    monkeypatch.setattr(type(MODULE), "migrations", lambda _, store: tmp_path / "migrations" / store)
    assert invoke(capsys, *command, "--check").code == 1
    assert not (elsewhere / SCHEMA_FILE).exists()
    assert invoke(capsys, *command).code == 0
    monkeypatch.undo()
    shipped = MODULE.migrations("postgres") / SCHEMA_FILE
    assert (elsewhere / SCHEMA_FILE).read_text("utf-8") == shipped.read_text("utf-8")


def test_a_driver_without_a_snapshot_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = write_config(tmp_path / "settings.json", {"Persistence": {"Scheduler": "Memory"}})
    answer = invoke(capsys, "--config", config, "dev", "schema", "scheduler")
    assert answer.code == 2
    assert "Memory has no snapshot of its schema; choose another driver with --backend." in answer.err


def test_a_module_that_ships_none_says_what_its_author_does() -> None:
    with pytest.raises(MigrationError, match="`twinstore dev schema library`"):
        wanted_schema(LIBRARY)
