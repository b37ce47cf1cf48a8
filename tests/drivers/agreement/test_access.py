"""Whatever is done to rows of any kind, every way through every driver answers and stores the same."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

import hypothesis
import psycopg
import pytest
from psycopg import sql
from pydantic import SecretStr

from tests.drivers.agreement.test_machine_can_fail import SEARCH
from tests.drivers.mongo.deployment import module_backend
from tests.drivers.postgres.deployment import make_tables, module_on
from tests.kit.wrong_access import CommitsEveryCall, FindsForeignRows, wrong_module
from tools.differential.access import AccessDivergenceError, AccessSide, run_access_machine
from twinstore.testing.entities import KIT, MODULE, MODULE_BY_DEFAULTS
from twinstore_memory.backend import MemoryBackend
from twinstore_mongo.settings import MongoSettings

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.databases import MongoDatabase, MongoServer, PostgresDatabase
    from twinstore.access.protocol import Access
    from twinstore.plugins.module_spec import ModuleSpec
    from twinstore.testing.entities import DefaultsOnly


def memory_access(name: str, module: ModuleSpec[Access]) -> AccessSide:
    """Return a side in memory."""
    backend = MemoryBackend(module)
    return AccessSide(name, backend, backend.store.clear)


@pytest.fixture
def mongo_access(mongo_server: MongoServer, empty_mongo_database: MongoDatabase) -> Iterator[AccessSide]:
    """Return a side on the shared mongod."""
    documents = mongo_server.client[empty_mongo_database.name]

    def wipe() -> None:
        for entity in KIT.entities:
            documents[entity.collection].delete_many({})

    settings = MongoSettings(
        connection_string=SecretStr(empty_mongo_database.url), database=empty_mongo_database.name
    )
    with module_backend(MODULE, settings) as backend:
        yield AccessSide("mongo", backend, wipe)


@pytest.fixture
def postgres_access(module_postgres_database: PostgresDatabase) -> Iterator[AccessSide]:
    """Return a side on the shared PostgreSQL; the superuser may delete what is only appended."""
    make_tables(module_postgres_database, KIT)
    tables = [sql.Identifier(KIT.name, entity.name) for entity in reversed(KIT.entities)]
    statement = sql.SQL("; ").join(sql.SQL("DELETE FROM {}").format(table) for table in tables)
    with (
        closing(psycopg.connect(module_postgres_database.superuser_url, autocommit=True)) as superuser,
        module_on(module_postgres_database, MODULE) as backend,
    ):
        yield AccessSide("postgres", backend, lambda: superuser.execute(statement))


def test_memory_mongo_and_postgres_agree_on_rows_of_any_kind(
    mongo_access: AccessSide, postgres_access: AccessSide, bounded_profile: hypothesis.settings
) -> None:
    run_access_machine([memory_access("memory", MODULE), mongo_access, postgres_access], bounded_profile)


def test_what_a_driver_overrides_and_the_defaults_of_core_agree(bounded_profile: hypothesis.settings) -> None:
    sides = [memory_access("overrides", MODULE), memory_access("defaults", MODULE_BY_DEFAULTS)]
    run_access_machine(sides, bounded_profile)


# The cases of the kit find more of them: tests/kit/test_access.py.
@pytest.mark.parametrize("wrong", [FindsForeignRows, CommitsEveryCall])
def test_a_way_that_is_wrong_in_one_point_is_found(wrong: type[DefaultsOnly]) -> None:
    sides = [memory_access("right", MODULE), memory_access("wrong", wrong_module(wrong))]
    with pytest.raises(AccessDivergenceError):
        run_access_machine(sides, SEARCH)


def test_two_equal_ways_agree() -> None:
    sides = [memory_access(name, MODULE) for name in ("left", "right")]
    run_access_machine(sides, hypothesis.settings(SEARCH, max_examples=10))
