"""The classes that hosts import from a driver by name: initialisers and repositories of every module."""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module
from typing import Final

import pytest

import twinstore
from twinstore import scheduler
from twinstore.errors import ConfigurationError
from twinstore_memory.backend import MemoryBackend

DRIVERS: Final = {"Memory": "twinstore_memory", "Mongo": "twinstore_mongo", "Postgres": "twinstore_postgres"}
REPOSITORIES: Final = [
    *(name for name in scheduler.__all__ if name.endswith("Repository")),
    "DistributedLock",
    "GraphJobStore",
]


@pytest.mark.parametrize("driver", DRIVERS)
@pytest.mark.parametrize("name", REPOSITORIES)
def test_a_repository_of_a_driver_is_the_one_of_its_module(driver: str, name: str) -> None:
    found = getattr(import_module(DRIVERS[driver]), f"{driver}{name}")
    assert getattr(scheduler, name) in found.__mro__
    assert found.__name__ == f"{driver}{name}"
    # Two files of a host that import it have the same class, and it is found again where it was imported.
    assert found is getattr(import_module(found.__module__), f"{driver}{name}")
    assert found.__module__ == DRIVERS[driver]


def test_the_connection_source_of_the_scheduler_has_its_name() -> None:
    found = import_module("twinstore_postgres").SchedulerDataSource
    assert (found.__name__, callable(found.open_connection)) == ("SchedulerDataSource", True)


@pytest.mark.parametrize("driver", DRIVERS)
def test_an_initialiser_has_the_name_of_its_module(driver: str) -> None:
    found = getattr(import_module(DRIVERS[driver]), f"Scheduler{driver}Initializer")
    assert found.__name__ == f"Scheduler{driver}Initializer"
    assert callable(found.ensure_migrations)


def test_the_initialiser_of_a_storage_is_of_that_class() -> None:
    memory = import_module("twinstore_memory")
    with twinstore.add_scheduler_memory_storage() as storage:
        assert isinstance(storage.initializer, memory.SchedulerMemoryInitializer)


@pytest.mark.parametrize("driver", DRIVERS)
@pytest.mark.parametrize("module", ["Scheduler", "TaskRunner", "Tracking"])
def test_a_session_factory_has_the_name_of_module_and_driver_in_both_packages(
    driver: str, module: str
) -> None:
    name = f"{module}{driver}SessionFactory"
    assert (
        getattr(import_module(DRIVERS[driver]), name) is getattr(twinstore, name) is twinstore.SessionFactory
    )


def test_the_sessions_of_a_storage_are_opened_by_a_session_factory() -> None:
    with twinstore.add_scheduler_memory_storage() as storage:
        assert isinstance(storage.sessions, twinstore.SessionFactory)
        factory: twinstore.SchedulerMemorySessionFactory = storage.sessions
        with factory.open("tenant") as session:
            assert session.runs.get("tenant", "absent") is None


def test_a_bound_repository_takes_the_rows_of_its_driver_only() -> None:
    with twinstore.add_scheduler_memory_storage() as storage:
        backend = storage._backend  # noqa: SLF001  # what a host gets from a driver of its own
        assert isinstance(backend, MemoryBackend)
        access = backend.repositories.runs._access  # noqa: SLF001  # the rows of that driver
        runs = import_module("twinstore_memory").MemoryRunRepository(access)
        assert runs.get("tenant", "absent") is None
        with pytest.raises(ConfigurationError, match="MongoRunRepository takes the rows of Mongo"):
            import_module("twinstore_mongo").MongoRunRepository(access)


@pytest.mark.parametrize("driver", DRIVERS)
def test_another_name_is_none_of_a_driver(driver: str) -> None:
    package = import_module(DRIVERS[driver])
    with pytest.raises(AttributeError, match=f"module '{DRIVERS[driver]}' has no attribute 'NobodysInit'"):
        _ = package.NobodysInit


@pytest.mark.parametrize(
    ("package", "client"), [("twinstore_mongo", "pymongo"), ("twinstore_postgres", "psycopg")]
)
def test_a_package_is_imported_without_its_client(package: str, client: str) -> None:
    code = f"import sys, {package}; hasattr({package}, 'nothing'); sys.exit({client!r} in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
