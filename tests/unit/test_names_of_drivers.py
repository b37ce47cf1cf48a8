"""The classes that hosts import from a driver by name: initialisers and repositories of every module."""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module
from typing import TYPE_CHECKING, Final

import pytest

import twinstore
from twinstore import scheduler, taskrunner, tracking
from twinstore.errors import ConfigurationError
from twinstore_memory.backend import MemoryBackend

if TYPE_CHECKING:
    from types import ModuleType

DRIVERS: Final = {"Memory": "twinstore_memory", "Mongo": "twinstore_mongo", "Postgres": "twinstore_postgres"}
MODULES: Final = {"Scheduler": scheduler, "TaskRunner": taskrunner, "Tracking": tracking}
REPOSITORIES: Final = [
    (package, name)
    for package in MODULES.values()
    for name in package.__all__
    if name == "DistributedLock" or name.endswith(("Repository", "Store", "Uploader"))
]


@pytest.mark.parametrize("driver", DRIVERS)
@pytest.mark.parametrize(("package", "name"), REPOSITORIES, ids=[name for _, name in REPOSITORIES])
def test_a_repository_of_a_driver_is_the_one_of_its_module(
    driver: str, package: ModuleType, name: str
) -> None:
    found = getattr(import_module(DRIVERS[driver]), f"{driver}{name}")
    assert getattr(package, name) in found.__mro__
    assert found.__name__ == f"{driver}{name}"
    # Two files of a host that import it have the same class, and it is found again where it was imported.
    assert found is getattr(import_module(found.__module__), f"{driver}{name}")
    assert found.__module__ == DRIVERS[driver]


@pytest.mark.parametrize("module", MODULES)
def test_initialisers_and_the_connection_source_have_the_name_of_their_module(module: str) -> None:
    for driver, package in DRIVERS.items():
        found = getattr(import_module(package), f"{module}{driver}Initializer")
        assert found.__name__ == f"{module}{driver}Initializer"
        assert callable(found.ensure_migrations)
    source = getattr(import_module("twinstore_postgres"), f"{module}DataSource")
    assert (source.__name__, callable(source.open_connection)) == (f"{module}DataSource", True)


def test_the_initialiser_of_a_storage_is_of_that_class() -> None:
    memory = import_module("twinstore_memory")
    with twinstore.add_scheduler_memory_storage() as storage:
        assert isinstance(storage.initializer, memory.SchedulerMemoryInitializer)


@pytest.mark.parametrize("driver", DRIVERS)
@pytest.mark.parametrize("module", MODULES)
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
