"""Scratch databases on the servers of the tests, and one self-test of which all tests read the report."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from tests.backfill.toolkit import fill, open_store, write_config
from tests.servers import mongo_config
from twinstore.config import load_settings
from twinstore_backfill.cli import main

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.databases import MongoServer, PostgresServer

Settings = dict[str, Any]
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
        persistence = {**persistence_of(documents.config), **persistence_of(tables.config)}
        yield Places(
            write_config(directory / "source.json", settings),
            write_config(directory / "scratch.json", {"Persistence": persistence}),
            directory,
        )


def persistence_of(config: Settings) -> Settings:
    section: Settings = config["Persistence"]
    return section


@pytest.fixture(scope="module")
def answer(places: Places) -> tuple[int, Settings]:
    """Run the whole command once; return its code and its report."""
    code = places.run("--scratch", places.scratch, "--out", places.directory)
    report: Settings = json.loads((places.directory / "selftest-report.json").read_text())
    return code, report


@pytest.fixture(scope="module")
def report(answer: tuple[int, Settings]) -> Settings:
    """Return the report of the one run."""
    return answer[1]
