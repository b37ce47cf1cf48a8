"""Scratch databases on the servers of the tests, and one self-test of which all tests read the report."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pytest

from tests.support.copies import COPIED, fill, open_store, server_settings, write_config
from tests.support.servers import mongo_config
from twinstore.config import load_settings
from twinstore.scheduler.catalog import EXECUTION_LOGS, IMPACT_SNAPSHOTS, RUN_SUMMARIES, TRIGGERS
from twinstore_backfill.cli import main

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.databases import MongoServer, PostgresServer
    from twinstore.catalog.entity import Entity

Settings = dict[str, Any]
SOME: Final = (TRIGGERS, RUN_SUMMARIES, IMPACT_SNAPSHOTS, EXECUTION_LOGS)
KEEP: Settings = {"Scheduler": {"Storage": {"RunRetentionDays": 0}}}


@dataclass(frozen=True, slots=True)
class Places:
    """Settings files: of a filled source, and of two empty databases."""

    source: Path
    scratch: Path
    directory: Path

    def run(self, *more: object) -> int:
        """Run the command and return its code."""
        options = ("--module", "scheduler", "--from", "Mongo", "--to", "Postgres", *more)
        return main(["--config", str(self.source), "backfill", "selftest", *map(str, options)])


@pytest.fixture(scope="module")
def places(
    mongo_server: MongoServer, postgres_server: PostgresServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Places]:
    """Fill a source and name two empty databases."""
    directory = tmp_path_factory.mktemp("selftest")
    with (
        mongo_server.database() as source,
        mongo_server.database() as documents,
        postgres_server.migrated_database() as tables,
    ):
        settings = {**mongo_config(source.url, source.name), **KEEP}
        with open_store("scheduler", "mongo", load_settings(settings, environ={})) as store:
            store.storage.initializer.ensure_migrations()
            fill(store.storage)
        yield Places(
            write_config(directory / "source.json", settings),
            write_config(directory / "scratch.json", server_settings(documents, tables)),
            directory,
        )


@pytest.fixture(scope="module")
def corrupted(*, long_form: bool) -> tuple[Entity, ...]:
    """Return the entities that are corrupted: all, or some that together have rows of every kind."""
    return COPIED if long_form else SOME


@pytest.fixture(scope="module")
def answer(places: Places, corrupted: tuple[Entity, ...]) -> tuple[int, Settings]:
    """Run the command once; return its code and its report."""
    only = () if corrupted == COPIED else (option for item in corrupted for option in ("--entity", item.name))
    code = places.run("--scratch", places.scratch, "--out", places.directory, *only)
    report: Settings = json.loads((places.directory / "selftest-report.json").read_text())
    return code, report


@pytest.fixture(scope="module")
def report(answer: tuple[int, Settings]) -> Settings:
    """Return the report of the one run."""
    return answer[1]
