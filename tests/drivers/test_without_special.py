"""The one statement of each driver that moves a graph job, against what core does without it."""

from __future__ import annotations

from contextlib import closing, contextmanager
from datetime import datetime
from functools import partial
from itertools import product
from typing import TYPE_CHECKING, Final

import pytest
from pydantic import SecretStr

from tests.drivers.mongo.deployment import mongo_deployments
from tests.drivers.postgres.deployment import module_on, postgres_deployments
from twinstore.catalog.tenancy import ALL_TENANTS
from twinstore.errors import TwinstoreError
from twinstore.plugins.options import ModuleOptions
from twinstore.plugins.resources import SharedResources
from twinstore.scheduler.catalog import GRAPH_JOBS
from twinstore.scheduler.enums import GraphJobStatus
from twinstore.scheduler.module import MODULE
from twinstore.scheduler.repositories.graph_jobs import REPLACE
from twinstore.testing.instants import at
from twinstore.testing.scheduler import LockContract
from twinstore.testing.scheduler.graph_jobs import graph_moved, make_graph_build_job, make_graph_overlay_job
from twinstore_mongo.backend import MongoBackend
from twinstore_mongo.client.connection import Connection
from twinstore_mongo.settings import MongoSettings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from contextlib import AbstractContextManager

    from tests.support.databases import MongoDatabase
    from twinstore.scheduler.graph_jobs import GraphBuildJob
    from twinstore.scheduler.repositories import Repositories
    from twinstore.testing import BackendFactory
    from twinstore_postgres.backend import PostgresBackend

    Backend = MongoBackend[Repositories] | PostgresBackend[Repositories]
    Opened = Callable[..., AbstractContextManager[Backend]]


TENANT: Final = "acme"
CHANGES: Final[tuple[dict[str, object], ...]] = (
    {},
    {"attempts": 7},
    {"created_at": at(-5)},
    {"started_at": at(0.5)},
    {"tenant_id": "globex"},
    {"correlation_id": "trace", "metadata": {"a": "b"}},
)


def answers(jobs: Repositories, number: str) -> list[object]:
    """Return what every replacement of a job answers, and what is stored then."""
    found: list[object] = []
    for case, (origin, target, changes) in enumerate(product(GraphJobStatus, GraphJobStatus, CHANGES)):
        stored = graph_moved(make_graph_build_job(TENANT, f"{number} {case}"), origin)
        jobs.graph_jobs.insert(stored)
        try:
            wanted: GraphBuildJob = graph_moved(stored, target, 9).evolve(**changes)
            found.append(jobs.graph_jobs.try_replace(wanted, origin))
        except TwinstoreError as error:
            found.append((type(error), error.message.replace(stored.id, "id")))
        now = jobs.graph_jobs.get_required(TENANT, stored.id)
        found.append(now.evolve(id=make_graph_build_job(TENANT, "x").id))
    return found


@contextmanager
def on_mongo(database: MongoDatabase, *, special: bool = True) -> Iterator[Backend]:
    """Open the scheduler on collections that exist."""
    settings = MongoSettings(connection_string=SecretStr(database.url), database=database.name)
    with SharedResources() as resources:
        connection = Connection(settings, resources)
        with closing(MongoBackend(MODULE, connection, ModuleOptions(), special=special)) as backend:
            yield backend


@pytest.fixture(params=["mongo", "postgres"])
def opened(request: pytest.FixtureRequest) -> Opened:
    """Return what opens the scheduler on an empty database of each driver."""
    if request.param == "mongo":
        return partial(on_mongo, request.getfixturevalue("module_mongo_database"))
    return partial(module_on, request.getfixturevalue("module_postgres_database"), MODULE)


def test_the_statement_answers_and_stores_as_core_does(opened: Opened) -> None:
    outcomes: list[list[object]] = []
    for special in (True, False):
        with opened(special=special) as backend:
            assert (backend.unbound().special(REPLACE) is not None) == special
            outcomes.append(answers(backend.repositories, str(special)))
    assert outcomes[0] == outcomes[1]
    assert {True, False} <= {answer for answer in outcomes[0] if isinstance(answer, bool)}


def test_an_overlay_job_with_the_same_digits_is_left_alone(opened: Opened) -> None:
    with opened() as backend:
        jobs = backend.repositories.graph_jobs
        build = make_graph_build_job(TENANT, "twin")
        jobs.insert(build)
        twin = graph_moved(make_graph_overlay_job(TENANT, "twin"), GraphJobStatus.RUNNING)
        assert jobs.try_replace_overlay(twin, GraphJobStatus.QUEUED) is False
        assert jobs.get(TENANT, build.id) == build


@pytest.mark.parametrize("status", [GraphJobStatus.RUNNING, GraphJobStatus.CANCELED])
def test_the_instant_of_the_change_is_that_of_the_server(opened: Opened, status: GraphJobStatus) -> None:
    with opened() as backend:
        jobs, job = backend.repositories.graph_jobs, make_graph_build_job(TENANT, f"timed {status}")
        jobs.insert(job)
        assert jobs.try_replace(graph_moved(job, status), GraphJobStatus.QUEUED)
        (row,) = backend.unbound().find(GRAPH_JOBS, ALL_TENANTS, [(job.uuid,)])
        assert row is not None
        changed = row.storage["updatedAt"]
        assert isinstance(changed, datetime)
        assert changed > job.created_at
        assert changed.microsecond % 1000 == 0


def no_statements(module: str) -> Mapping[str, object]:
    del module
    return {}


@pytest.fixture(scope="module", params=["mongo", "postgres"])
def backend_factory(request: pytest.FixtureRequest) -> Iterator[BackendFactory]:
    server = request.getfixturevalue(f"{request.param}_server")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(f"twinstore_{request.param}.backend.specials_of", no_statements)
        yield mongo_deployments(server) if request.param == "mongo" else postgres_deployments(server)


class TestGeneral(LockContract):
    """A row that ``Access.change`` decides about, by the server clock."""
