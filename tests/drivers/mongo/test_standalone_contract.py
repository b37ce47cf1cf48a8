from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import uuid4

import pytest
from pymongo import MongoClient
from typing_extensions import override

import twinstore_embedded
from tests.drivers.mongo.deployment import MongoProbe, condition, module_backend
from tests.support.recording import is_about_answers
from twinstore.storage.open import open_module
from twinstore.testing import AccessContract, AccessDefaultsContract, DeploymentDefaults
from twinstore_mongo.settings import MongoSettings

if TYPE_CHECKING:
    from collections.abc import Iterator

    from twinstore.catalog.entity import Entity
    from twinstore.catalog.keys import Key
    from twinstore.clock import Clock
    from twinstore.plugins.backend import ModuleBackend
    from twinstore.plugins.module_spec import ModuleSpec
    from twinstore.storage.module import ModuleStorage
    from twinstore.testing import BackendFactory, Deployment

R = TypeVar("R")


class StandaloneProbe(MongoProbe):
    """There is no log: a stamp is the document itself, since only another one is a write."""

    @override
    def stamp(self, entity: Entity, key: Key) -> object | None:
        document = self._of(entity).find_one(condition(entity, key))
        return None if document is None else repr(document)


class StandaloneDeployment(DeploymentDefaults):
    """A database on a server without transactions."""

    remote = True

    def __init__(self, module: ModuleSpec[object], client: MongoClient[dict[str, Any]], url: str) -> None:
        self._module = module
        name = f"db_{uuid4().hex[:12]}"
        self.probe = StandaloneProbe(client, name, module.name)
        self._settings = {"ConnectionString": url, "Database": name, "AllowStandalone": True}

    def open(self, *, clock: Clock | None = None, expiring: bool = False) -> ModuleStorage[object, object]:
        del expiring
        settings = {"Persistence": {"Mongo": self._settings}}
        return open_module(self._module.name, "Mongo", settings, clock=clock)

    @contextmanager
    def open_module(self, module: ModuleSpec[R], *, clock: Clock | None = None) -> Iterator[ModuleBackend[R]]:
        del clock  # that of the server judges
        with module_backend(module, MongoSettings.model_validate(self._settings)) as backend:
            yield backend

    def handle(self, tenant_id: str) -> None:
        del tenant_id


@pytest.fixture(scope="module")
def backend_factory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BackendFactory]:
    server = twinstore_embedded.start_mongo(
        tmp_path_factory.mktemp("standalone"), replica_set=False, owned=True
    )

    @contextmanager
    def deployments(module: ModuleSpec[object], *, migrated: bool = True) -> Iterator[Deployment]:
        del migrated  # modules are opened with what they need
        yield StandaloneDeployment(module, client, server.url)

    with MongoClient[dict[str, Any]](server.url) as client:
        yield deployments
    server.stop()


def is_left_to_the_full_form(kit: type[object], test: str, case: str) -> bool:
    """Whether a case does the same with transactions and without."""
    return issubclass(kit, AccessDefaultsContract) or is_about_answers(kit, test, case)


class TestStandaloneAccess(AccessContract):
    """A server without transactions writes one row after the other, each of them atomically."""


class TestStandaloneDefaults(AccessDefaultsContract):
    """The same with the defaults of core alone."""
