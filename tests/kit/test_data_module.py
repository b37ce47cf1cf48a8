"""A module of data alone has a kit: its values, its migrations, and its rows in copies."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.distributions import install_distribution
from tests.support.films import FILMS, MODULE, SHOWINGS, VISITS, Film, Rating, Role, Showing, Visit
from twinstore.testing import DataContract
from twinstore.testing.examples import ModuleExamples, data_example
from twinstore.testing.instants import at
from twinstore_memory.testing import memory_deployments

if TYPE_CHECKING:
    from collections.abc import Iterator

    from twinstore.testing import BackendFactory


@pytest.fixture(scope="module")
def backend_factory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BackendFactory]:
    points = {"twinstore.modules": {"films": "tests.support.films:PLUGIN"}}
    with pytest.MonkeyPatch.context() as patch:
        install_distribution(patch, tmp_path_factory.mktemp("installed"), "acme-films", points)
        yield memory_deployments


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
    return Showing(id=name, film_id=name, ends_at=at())


def visit(tenant: str, name: str) -> Visit:
    """Return a visit."""
    del tenant
    return Visit(id=name, page="/", seen_at=at())


class TestFilms(DataContract):
    """Films without repositories."""

    module = ModuleExamples(
        MODULE,
        (
            data_example(entity=FILMS, small=film, rich=rich_film),
            data_example(entity=SHOWINGS, small=showing, rich=showing),
            data_example(entity=VISITS, small=visit, rich=visit),
        ),
    )
