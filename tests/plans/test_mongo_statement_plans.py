"""Every command that a run of the contract kit sends to MongoDB, explained on filled collections.

The values are those of documents in the middle of a tenant with many of them, and of one with few.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pytest

import twinstore
from tests.plans.allowances import MONGO
from tests.plans.filling import FEW, LONG_ROWS, MANY, ROWS
from tests.plans.judging import figures, judged
from tests.plans.mongo_explained import Explainer, fill
from tests.stores import kept
from twinstore.modules import module_spec
from twinstore.statements import statements_of
from twinstore_mongo.derive import ID, index_specs

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pymongo.database import Database

    from tests.databases import MongoServer

SPEC: Final = module_spec("scheduler")
MODULE: Final = SPEC.catalog
EXPLAINED: Final = [item for item in statements_of(SPEC, "mongo") if item.entity != "session"]
INDEXES: Final = {f"{ID}_", *(spec.name for entity in MODULE.entities for spec in index_specs(entity))}


@pytest.fixture(scope="module")
def rows(request: pytest.FixtureRequest) -> int:
    return LONG_ROWS if request.getfixturevalue("long_form") else ROWS


@pytest.fixture(scope="module")
def filled(mongo_server: MongoServer, rows: int) -> Iterator[Database[dict[str, Any]]]:
    with mongo_server.database() as database:
        with twinstore.open_storage(kept(database.config)) as storage:
            storage.scheduler.initializer.ensure_migrations()
        found: Database[dict[str, Any]] = mongo_server.client.get_database(database.name)
        fill(found, MODULE, rows)
        yield found


def test_every_command_reads_little_more_than_it_returns(filled: Database[dict[str, Any]], rows: int) -> None:
    explainers = [Explainer(filled, MODULE, tenant) for tenant in (MANY, FEW)]
    findings = [
        finding for explainer in explainers for item in EXPLAINED for finding in explainer.explain(item)
    ]
    bad, unneeded = judged(findings, INDEXES, MONGO, rows)
    print(figures(findings, bad, rows))  # noqa: T201  # shown with the failure, and by -rP
    # On few rows some statements do no harm that do so on many.
    needless = [f"strike from tests/plans/allowances.py: {item}" for item in unneeded if rows == LONG_ROWS]
    if bad or needless:
        pytest.fail("\n".join((*bad, *needless)))
