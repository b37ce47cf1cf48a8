"""Every statement that a run of the contract kit sends to PostgreSQL, explained on filled tables.

As the application sends it: by its role, under row-level security, with the tenant set. The values are those
of rows in the middle of a tenant with many rows, and of one with few.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import psycopg
import pytest

import twinstore
from tests.drivers.postgres.explained import Explainer, fill, reads_rows
from tests.support.plan_rows import LONG_ROWS, ROWS, SPECS, tenants_of
from tests.support.plans import POSTGRES, check_findings, figures
from twinstore.ledger import LEDGER_MODULE
from twinstore.plugins.statements import statements_of
from twinstore.storage.open import open_module
from twinstore_postgres.mapping.columns import index_name

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.databases import PostgresServer
    from twinstore.catalog.entity import Module
    from twinstore.plugins.module_spec import ModuleSpec

Connections = tuple[psycopg.Connection[Any], psycopg.Connection[Any]]


@pytest.fixture(scope="module")
def rows(request: pytest.FixtureRequest) -> int:
    return LONG_ROWS if request.getfixturevalue("long_form") else ROWS


# Statements are generated from descriptions, so those of one module represent all. Those of the scheduler
# and of tracking run only in the full form.
EVERY_PUSH: Final = ("taskrunner", LEDGER_MODULE.name)


@pytest.fixture(
    scope="module",
    params=[
        spec if spec.name in EVERY_PUSH else pytest.param(spec, marks=pytest.mark.long) for spec in SPECS
    ],
    ids=lambda spec: spec.name,
)
def spec(request: pytest.FixtureRequest) -> ModuleSpec[object]:
    found: ModuleSpec[object] = request.param
    return found


@pytest.fixture(scope="module")
def connections(
    postgres_server: PostgresServer, spec: ModuleSpec[object], rows: int
) -> Iterator[Connections]:
    with postgres_server.migrated_database() as database:
        if spec is LEDGER_MODULE:
            with twinstore.open_storage(database.config) as storage:
                storage.scheduler.bulk.ledger_initializer.ensure_migrations()
        else:
            with open_module(spec.name, "Postgres", database.config) as opened:
                opened.initializer.ensure_migrations()
        fill(database, spec.catalog, rows)
        with (
            psycopg.connect(database.superuser_url, autocommit=True) as admin,
            psycopg.connect(database.app_url) as app,
        ):
            yield admin, app


def indexes_of(module: Module) -> set[str]:
    """Return the names of the indexes that a module describes."""
    described = {index_name(entity, index) for entity in module.entities for index in entity.indexes}
    return described | {f"{entity.name}_pkey" for entity in module.entities}


def test_every_statement_reads_little_more_than_it_returns(
    connections: Connections, spec: ModuleSpec[object], rows: int
) -> None:
    module = spec.catalog
    explained = [
        item for item in statements_of(spec, "postgres") if item.entity != "session" and reads_rows(item)
    ]
    explainers = [Explainer(*connections, module, tenant) for tenant in tenants_of(module)]
    findings = [
        finding for explainer in explainers for item in explained for finding in explainer.explain(item)
    ]
    bad, unneeded = check_findings(findings, indexes_of(module), POSTGRES[spec.name], rows)
    print(figures(findings, bad, rows))  # noqa: T201  # shown with the failure, and by -rP
    # On few rows some statements do no harm that do so on many.
    needless = [f"strike from tests/support/plans.py: {item}" for item in unneeded if rows == LONG_ROWS]
    if bad or needless:
        pytest.fail("\n".join((*bad, *needless)))
