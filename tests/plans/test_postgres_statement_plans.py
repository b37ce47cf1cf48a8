"""Every statement that a run of the contract kit sends to PostgreSQL, explained on filled tables.

As the application sends it: by its role, under row-level security, with the tenant set. The values are those
of rows in the middle of a tenant with many rows, and of one with few.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import psycopg
import pytest

from tests.plans.allowances import POSTGRES
from tests.plans.filling import FEW, LONG_ROWS, MANY, ROWS
from tests.plans.judging import figures, judged
from tests.plans.postgres_explained import Explainer, fill, reads_rows
from twinstore.modules import module_spec
from twinstore.statements import statements_of
from twinstore_postgres.columns import index_name

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.databases import PostgresServer

SPEC: Final = module_spec("scheduler")
MODULE: Final = SPEC.catalog
EXPLAINED: Final = [
    item for item in statements_of(SPEC, "postgres") if item.entity != "session" and reads_rows(item)
]
INDEXES: Final = {
    *(index_name(entity, index) for entity in MODULE.entities for index in entity.indexes),
    *(f"{entity.name}_pkey" for entity in MODULE.entities),
}


@pytest.fixture(scope="module")
def rows(request: pytest.FixtureRequest) -> int:
    return LONG_ROWS if request.getfixturevalue("long_form") else ROWS


@pytest.fixture(scope="module")
def connections(
    postgres_server: PostgresServer, rows: int
) -> Iterator[tuple[psycopg.Connection[Any], psycopg.Connection[Any]]]:
    with postgres_server.migrated_database() as database:
        fill(database, MODULE, rows)
        with (
            psycopg.connect(database.superuser_url, autocommit=True) as admin,
            psycopg.connect(database.app_url) as app,
        ):
            yield admin, app


def test_every_statement_reads_little_more_than_it_returns(
    connections: tuple[psycopg.Connection[Any], psycopg.Connection[Any]], rows: int
) -> None:
    explainers = [Explainer(*connections, MODULE, tenant) for tenant in (MANY, FEW)]
    findings = [
        finding for explainer in explainers for item in EXPLAINED for finding in explainer.explain(item)
    ]
    bad, unneeded = judged(findings, INDEXES, POSTGRES, rows)
    print(figures(findings, bad, rows))  # noqa: T201  # shown with the failure, and by -rP
    # On few rows some statements do no harm that do so on many.
    needless = [f"strike from tests/plans/allowances.py: {item}" for item in unneeded if rows == LONG_ROWS]
    if bad or needless:
        pytest.fail("\n".join((*bad, *needless)))
