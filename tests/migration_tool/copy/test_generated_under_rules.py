"""Generated documents under rules of every kind: nothing is rounded or lost, and a missing rule is found."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

from tests.migration_tool.copy.test_hostile_stores import judge_report
from tests.support.copies import unexpected_rows
from tests.support.data_modules import installed_module, opened
from tests.support.foreign import Document, insert
from tests.support.ruled import RULES, drawn
from twinstore_backfill.rules.model import JobRules

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pymongo.database import Database

    from tests.support.copies import Pair
    from tests.support.databases import MongoDatabase, MongoServer, PostgresDatabase

SEED: Final = 34
ALL: Final = JobRules(RULES)
NAMES: Final = ("readings", "owners", "stations")


@pytest.fixture
def source(mongo_server: MongoServer, empty_mongo_database: MongoDatabase) -> Database[Document]:
    return mongo_server.client[empty_mongo_database.name]


@pytest.fixture
def pair(
    source: Database[Document],
    empty_mongo_database: MongoDatabase,
    empty_postgres_database: PostgresDatabase,
    tmp_path: Path,
) -> Iterator[Pair]:
    """Return a source that the test fills, and a target of the module."""
    del source
    with (
        installed_module(tmp_path, "ruled", empty_postgres_database.config, "ruled"),
        opened("ruled", empty_mongo_database, empty_postgres_database, tmp_path / "copy") as pair,
    ):
        yield pair


def fill(database: Database[Document], total: int) -> None:
    for name in NAMES:
        insert(database[name], (item.document for item in drawn(total, SEED) if item.entity.name == name))


@pytest.mark.parametrize("total", [1000, pytest.param(1_000_000, marks=pytest.mark.long)])
def test_a_copy_gives_what_each_document_was_made_of_and_the_verification_agrees(
    source: Database[Document], pair: Pair, total: int
) -> None:
    fill(source, total)
    result = pair.copy(rules=ALL, range_size=max(500, total // 200))
    bad = sum(item.values is None for item in drawn(total, SEED))
    totals = result.totals.all()
    assert (totals["read"], totals["quarantined"], totals["written"]) == (total, bad, total - bad)
    kept = ((item.entity, item.row) for item in drawn(total, SEED) if item.values is not None)
    assert unexpected_rows(pair.target.bulk, kept) == []
    report = pair.verify(rules=ALL, range_size=max(500, total // 200))
    judge_report(report, result)
    assert report.documents_equal == total - bad
    # Both count the rows that are stored, and not the bad ones.
    assert sorted(filter(None, (item.rows for item in report.rules))) == sorted(result.totals.rules.values())


def test_a_verification_that_lacks_one_rule_does_not_pass(source: Database[Document], pair: Pair) -> None:
    fill(source, 48)
    # The one document of these that no rule can change.
    source["readings"].delete_one({"code": "00000000"})
    pair.copy(rules=ALL, range_size=100)
    assert pair.verify(rules=ALL, range_size=100).verdict == "PASS"
    passed = []
    for rule in RULES:
        others = JobRules(tuple(item for item in RULES if item is not rule))
        report = pair.verify(rules=others, entities=[rule.entity], range_size=100)
        if report.verdict not in {"FAIL", "INCONCLUSIVE"}:
            passed.append(f"{rule.kind} {rule.text}")
    assert passed == []
