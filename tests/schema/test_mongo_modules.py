"""Modules in one database of MongoDB, where no schema keeps their collections apart."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

import pytest

import tests.support.library.module
import twinstore
from tests.support.distributions import LIBRARY, install_distribution
from tests.support.library.module import BOOKS
from twinstore.catalog.entity import Module
from twinstore.errors import ConfigurationError
from twinstore.ledger.catalog import LEDGER
from twinstore.plugins.options import ModuleOptions
from twinstore.storage.open import open_module
from twinstore_mongo.schema.migrator import MongoInitializer
from twinstore_mongo.schema.steps import parse_step

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pymongo.database import Database

    from tests.support.databases import MongoDatabase
    from twinstore.scheduler.storage import SchedulerStorage


@pytest.fixture
def scheduler(empty_mongo_database: MongoDatabase) -> Iterator[SchedulerStorage]:
    with twinstore.add_scheduler_storage(empty_mongo_database.config) as storage:
        yield storage


@pytest.fixture
def books_are_runs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Module:
    """Install a library that keeps its books in a collection of the scheduler."""
    catalog = Module(name="library", entities=(replace(BOOKS, collection="runs"),))
    monkeypatch.setattr(
        tests.support.library.module, "MODULE", replace(tests.support.library.module.MODULE, catalog=catalog)
    )
    install_distribution(monkeypatch, tmp_path, "acme-library", LIBRARY)
    return catalog


def initializer_of(catalog: Module, scheduler: SchedulerStorage) -> MongoInitializer:
    """Return what migrates a module into the database of the scheduler."""
    collections = [{"name": entity.collection, "indexes": []} for entity in catalog.entities]
    step = parse_step("001_create", json.dumps({"collections": collections}).encode())
    assert isinstance(scheduler.initializer, MongoInitializer)
    return MongoInitializer(scheduler.initializer.connection, catalog, ModuleOptions(), (step,))


def test_a_module_is_not_migrated_into_a_collection_of_another_one(
    database: Database[dict[str, Any]], scheduler: SchedulerStorage, books_are_runs: Module
) -> None:
    scheduler.initializer.ensure_migrations()
    before = list(database["_migrations"].find()), database.command("listCollections")["cursor"]["firstBatch"]
    with pytest.raises(ConfigurationError, match="would write into runs, which the module scheduler has"):
        initializer_of(books_are_runs, scheduler).ensure_migrations()
    after = list(database["_migrations"].find()), database.command("listCollections")["cursor"]["firstBatch"]
    assert after == before


def test_ours_is_not_migrated_into_a_collection_of_an_outsider_either(
    database: Database[dict[str, Any]], scheduler: SchedulerStorage, books_are_runs: Module
) -> None:
    initializer_of(books_are_runs, scheduler).ensure_migrations()
    with pytest.raises(ConfigurationError, match="would write into runs, which the module library has"):
        scheduler.initializer.ensure_migrations()
    with pytest.raises(ConfigurationError, match="nothing was changed"):
        scheduler.initializer.effects()
    assert database["schedules"].index_information() == {}


def test_modules_with_collections_of_their_own_share_a_database(
    scheduler: SchedulerStorage, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    install_distribution(monkeypatch, tmp_path, "acme-library", LIBRARY)
    scheduler.initializer.ensure_migrations()
    books = initializer_of(Module(name="library", entities=(BOOKS,)), scheduler)
    assert books.ensure_migrations().applied == ("001_create",)
    assert books.ensure_migrations().applied == ()
    scheduler.check_ready()


@pytest.mark.parametrize("first", ["scheduler", "taskrunner"])
def test_a_collection_that_a_setting_names_belongs_to_one_module_whichever_is_opened_first(
    first: str, empty_mongo_database: MongoDatabase
) -> None:
    with twinstore.open_storage(named_like_runs(empty_mongo_database)) as storage:
        second = "taskrunner" if first == "scheduler" else "scheduler"
        storage.module(first)
        with pytest.raises(ConfigurationError, match=f"The module {second} would write into runs, which the"):
            storage.module(second)


@pytest.mark.parametrize("first", ["scheduler", "taskrunner"])
def test_it_is_not_migrated_into_either_by_the_second_module(
    first: str, empty_mongo_database: MongoDatabase
) -> None:
    settings = named_like_runs(empty_mongo_database)
    second = "taskrunner" if first == "scheduler" else "scheduler"
    with open_module(first, config=settings) as storage:
        storage.initializer.ensure_migrations()
    # A separate storage, as another process would have: only the database knows of the first one.
    with (
        open_module(second, config=settings) as storage,
        pytest.raises(ConfigurationError, match=f"which the module {first} has in"),
    ):
        storage.initializer.ensure_migrations()


@pytest.mark.parametrize("name", [*(entity.collection for entity in LEDGER.entities), "backfill_ranges"])
def test_a_collection_of_the_ledger_belongs_to_no_module(
    name: str, empty_mongo_database: MongoDatabase
) -> None:
    settings = named_like_runs(empty_mongo_database, name)
    with (
        twinstore.open_storage(settings) as storage,
        pytest.raises(ConfigurationError, match=f"would write into {name}, which the ledger of copies has"),
    ):
        storage.module("taskrunner")


def named_like_runs(database: MongoDatabase, name: str = "runs") -> dict[str, object]:
    """Return settings in which the task runner keeps its runs in a collection of that name."""
    persistence = cast("dict[str, object]", database.config["Persistence"])
    storage = {"Mode": "Mongo", "Mongo": {"RunsCollection": name}}
    return {"Persistence": {**persistence, "TaskRunner": "Mongo"}, "TaskRunner": {"Storage": storage}}
