"""A module of data alone has a kit: its values, its migrations, and its rows in copies."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from tests.drivers.mongo.deployment import mongo_deployments
from tests.drivers.postgres.deployment import postgres_deployments
from tests.support.distributions import install_distribution
from tests.support.films import FILMS, MODULE, SHOWINGS, VISITS, Film, Rating, Role, Showing, Visit
from twinstore.migrations.migration import TakesSnapshots
from twinstore.storage.open import open_module
from twinstore.testing import DataContract
from twinstore.testing.examples import ModuleExamples, data_example
from twinstore.testing.instants import at
from twinstore_backfill.cli.dev import drafts_of, written
from twinstore_memory.testing import memory_deployments

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.databases import MongoServer, PostgresServer
    from twinstore.testing import BackendFactory


@pytest.fixture(scope="module", autouse=True)
def package(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Install the module, with the package of its migrations, which `twinstore dev migration` writes."""
    points = {"twinstore.modules": {"films": "tests.support.films:PLUGIN"}}
    with pytest.MonkeyPatch.context() as patch:
        site = install_distribution(patch, tmp_path_factory.mktemp("installed"), "acme-films", points)
        package = site / "films"
        package.mkdir()
        (package / "__init__.py").touch()
        for draft in drafts_of(MODULE, None):
            written(MODULE, draft, "create_films")
        yield package
    sys.modules.pop("films", None)


@pytest.fixture(scope="module")
def backend_factory() -> BackendFactory:
    return memory_deployments


def film(tenant: str, name: str) -> Film:
    """Return a film; no tenant owns it."""
    del tenant
    return Film(id=name, title="Metropolis", updated_at=at())


def rich_film(tenant: str, name: str) -> Film:
    """Return a film with a value in every field."""
    rating = Rating(site="ofdb", score=8.5, votes=17)
    roles = (Role(actor="Brigitte Helm", part="Maria"), Role(actor="Heinrich George", part="Grot"))
    return film(tenant, name).evolve(genres=("drama", "sci-fi"), rating=rating, roles=roles)


def showing(tenant: str, name: str) -> Showing:
    """Return a showing of the film of that name."""
    del tenant
    return Showing(id=name, film_id=name, hall="Süd", ends_at=at())


def visit(tenant: str, name: str) -> Visit:
    """Return a visit."""
    del tenant
    return Visit(id=name, page="/", seen_at=at())


class FilmsContract(DataContract):
    """Films without repositories."""

    module = ModuleExamples(
        MODULE,
        (
            data_example(entity=FILMS, small=film, rich=rich_film),
            data_example(entity=SHOWINGS, small=showing, rich=showing),
            data_example(entity=VISITS, small=visit, rich=visit),
        ),
    )


class TestInMemory(FilmsContract):
    """Without a server."""


@pytest.mark.long
class TestOnMongo(FilmsContract):
    """A replica set."""

    @pytest.fixture(scope="class")
    @staticmethod
    def backend_factory(mongo_server: MongoServer) -> BackendFactory:
        """Return deployments on the server of the run."""
        return mongo_deployments(mongo_server)


@pytest.mark.long
class TestOnPostgres(FilmsContract):
    """A server whose schema is compared with a file."""

    @pytest.fixture(scope="class")
    @staticmethod
    def backend_factory(postgres_server: PostgresServer, package: Path) -> BackendFactory:
        """Write the file, and return deployments on the server of the run."""
        with (
            postgres_server.empty_database() as database,
            open_module("films", "Postgres", database.config) as storage,
        ):
            storage.initializer.ensure_migrations()
            assert isinstance(storage.initializer, TakesSnapshots)
            snapshot = storage.initializer.snapshot()
        (package / "migrations" / snapshot.folder / snapshot.name).write_text(snapshot.text)
        return postgres_deployments(postgres_server)
