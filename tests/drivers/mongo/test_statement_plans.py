"""Every command that a run of the contract kit sends to MongoDB, explained on filled collections.

The values are those of documents in the middle of a tenant with many of them, and of one with few.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pytest

from tests.drivers.mongo.explained import Explainer, fill
from tests.support.databases import without_retention
from tests.support.plan_rows import LONG_ROWS, SPECS, tenants_of
from tests.support.plans import MONGO, check_findings, figures
from twinstore.ledger import LEDGER_MODULE
from twinstore.plugins.statements import statements_of
from twinstore.storage.open import open_module
from twinstore_mongo.mapping.layout import ID, index_specs

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pymongo.database import Database

    from tests.support.databases import MongoServer
    from twinstore.plugins.module_spec import ModuleSpec

# Few are enough: this server follows an index wherever there is one.
ROWS: Final = 1_000


@pytest.fixture(scope="module")
def rows(request: pytest.FixtureRequest) -> int:
    return LONG_ROWS if request.getfixturevalue("long_form") else ROWS


@pytest.fixture(scope="module", params=SPECS, ids=lambda spec: spec.name)
def spec(request: pytest.FixtureRequest) -> ModuleSpec[object]:
    found: ModuleSpec[object] = request.param
    return found


@pytest.fixture(scope="module")
def filled(
    mongo_server: MongoServer, spec: ModuleSpec[object], rows: int
) -> Iterator[Database[dict[str, Any]]]:
    with mongo_server.database() as database:
        module = "scheduler" if spec is LEDGER_MODULE else spec.name
        with open_module(module, "Mongo", without_retention(database.config)) as opened:
            (
                opened.bulk.ledger_initializer if spec is LEDGER_MODULE else opened.initializer
            ).ensure_migrations()
        found: Database[dict[str, Any]] = mongo_server.client.get_database(database.name)
        fill(found, spec.catalog, rows)
        yield found


def test_every_command_reads_little_more_than_it_returns(
    filled: Database[dict[str, Any]], spec: ModuleSpec[object], rows: int
) -> None:
    module = spec.catalog
    explained = [item for item in statements_of(spec, "mongo") if item.entity != "session"]
    known = {f"{ID}_", *(index.name for entity in module.entities for index in index_specs(entity))}
    explainers = [Explainer(filled, module, tenant) for tenant in tenants_of(module)]
    findings = [
        finding for explainer in explainers for item in explained for finding in explainer.explain(item)
    ]
    bad, unneeded = check_findings(findings, known, MONGO[spec.name], rows)
    print(figures(findings, bad, rows))  # noqa: T201  # shown with the failure, and by -rP
    # On few rows some statements do no harm that do so on many.
    needless = [f"strike from tests/support/plans.py: {item}" for item in unneeded if rows == LONG_ROWS]
    if bad or needless:
        pytest.fail("\n".join((*bad, *needless)))
