"""References by another field than the key, from documents of MongoDB to rows of PostgreSQL."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial
from tempfile import TemporaryFile
from typing import TYPE_CHECKING, Any, Final

import psycopg
import pytest
from bson import ObjectId
from pymongo import MongoClient

from tests.migration_tool.copy.test_between_servers import DIRECTIONS, opened
from tests.migration_tool.copy.test_rules import (
    EVENT,
    NOON,
    RUN,
    job,
    make_stored_schedule,
    reasons,
    rows_by_rule,
    wires,
)
from tests.support.copies import AS_OF, Pair, memory_pair, server_settings
from twinstore.bulk.port import NO_PARENT
from twinstore.scheduler.catalog import AUDIT, RUNS, SCHEDULES, TRIGGERS
from twinstore_backfill.copy.options import CopyOptions
from twinstore_backfill.outcome import PreflightError
from twinstore_backfill.plan import plan_copy
from twinstore_backfill.process.stopping import StopSwitch
from twinstore_backfill.repair.engine import Repair, ReportedRows
from twinstore_backfill.rules.model import (
    DropRule,
    IdRule,
    JobRules,
    KeyRule,
    LookupRule,
    RenameRule,
    TrimRule,
)
from twinstore_backfill.verify.one_row import compare_row
from twinstore_mongo.bulk import inventory

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pymongo.database import Database

    from tests.support.databases import MongoDatabase, PostgresDatabase
    from twinstore_backfill.report.model import ParityReport

Document = dict[str, Any]
BY_NAME: Final[Document] = {"other": "schedules", "by": "name"}
RULES: Final = job(
    (LookupRule, "runs.scheduleId", BY_NAME),
    (LookupRule, "triggers.scheduleId", BY_NAME),
    (LookupRule, "audit.runId", {"other": "runs", "by": "_id"}),
    (TrimRule, "runs.scheduleId", {}),
    (IdRule, "schedules._id", {"to": "text"}),
    (KeyRule, "runs.no", {}),
    (RenameRule, "schedules.firma", {"to": ("tenantId",)}),
    (RenameRule, "triggers.firma", {"to": ("tenantId",)}),
    (DropRule, "*.__v", {}),
)
IDS: Final = [ObjectId(f"5f43a1b2c3d4e5f6071829{number:02}") for number in range(10)]
SCHEDULE: Final = {
    **make_stored_schedule("x"),
    "enabled": False,
    "whenCron": "0 2 * * *",
    "selection": {"scope": "all-images"},
}
del SCHEDULE["cronExpression"]
TRIGGER: Final = {"whenCron": "0 2 * * *", "enabled": False, "createdAt": NOON, "updatedAt": NOON}
STORED: Final[tuple[Document, ...]] = (
    {"_id": IDS[0], "name": "nightly"},
    {"_id": IDS[1], "name": "nightly", "tenantId": None, "firma": "globex"},
    {"_id": IDS[2], "name": "twice"},
    {"_id": IDS[3], "name": "twice", "deletedAt": NOON, "deletedBy": "ada"},
    {"_id": IDS[4], "name": "contradicted", "firma": "globex"},
    {"_id": IDS[5], "name": "wrong", "mode": "none"},
    {"_id": "text", "name": "misplaced"},
)
NONE: Final = "runs.scheduleId: [[lookup]] finds no schedule of its tenant by name"
SEVERAL: Final = "runs.scheduleId: [[lookup]] finds more than one schedule of its tenant by name"
# The stored reference of a run of a tenant, and the one that it gets or why it is refused.
CASES: Final[tuple[tuple[str, object, str | None], ...]] = (
    ("acme", "nightly", str(IDS[0])),
    ("globex", " nightly ", str(IDS[1])),
    ("acme", None, None),
    # Its schedule is in quarantine by its model, and no rule refuses it.
    ("acme", "wrong", str(IDS[5])),
    ("acme", "twice", SEVERAL),
    ("globex", "twice", NONE),
    ("umbrella", "nightly", NONE),
    ("acme", "Nightly", NONE),
    ("acme", "contradicted", NONE),
    ("acme", "misplaced", NONE),
    ("acme", 7, NONE),
)
RUN_IDS: Final = [ObjectId(f"6f43a1b2c3d4e5f6071829{number:02}") for number in range(len(CASES))]


def stored() -> dict[str, list[Document]]:
    """Return the documents of each collection."""
    triggers = (("acme", "nightly"), ("globex", "nightly"), ("acme", "wrong"))
    audit = (("acme", 0), ("globex", 1), ("globex", 0))
    return {
        "schedules": [{**SCHEDULE, **item} for item in STORED],
        "runs": [
            {**RUN, "_id": RUN_IDS[number], "no": f"r{number:02}", "tenantId": tenant, "scheduleId": name}
            for number, (tenant, name, _) in enumerate(CASES)
        ],
        "audit": [
            {**EVENT, "_id": f"a{number}", "tenantId": tenant, "runId": RUN_IDS[run]}
            for number, (tenant, run) in enumerate(audit)
        ],
        "triggers": [
            {**TRIGGER, "_id": f"t{number}", "firma": firma, "scheduleId": name}
            for number, (firma, name) in enumerate(triggers)
        ],
    }


@pytest.fixture
def source(mongo_database: MongoDatabase) -> Iterator[Database[Document]]:
    """Return the database of the source."""
    with MongoClient[Document](mongo_database.url) as client:
        yield client[mongo_database.name]


@pytest.fixture
def pair(
    source: Database[Document],
    mongo_database: MongoDatabase,
    postgres_database: PostgresDatabase,
    tmp_path: Path,
) -> Iterator[Pair]:
    """Return a source whose rows name each other by names and lost ids, and an empty PostgreSQL."""
    with opened(server_settings(mongo_database, postgres_database), DIRECTIONS[0], tmp_path) as pair:
        for name, documents in stored().items():
            # Without our indexes and validators.
            source.drop_collection(name)
            source[name].insert_many(documents)
        yield pair


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_value_becomes_the_key_of_the_only_row_of_its_tenant_that_has_it(pair: Pair, jobs: int) -> None:
    result = pair.copy(rules=RULES, jobs=jobs)
    found, refused = wires(pair, RUNS), reasons(pair, RUNS)
    for number, (_, _, wanted) in enumerate(CASES):
        key = f"r{number:02}"
        if wanted in {NONE, SEVERAL}:
            assert refused.get(key) == wanted, key
        else:
            assert found[key].get("scheduleId") == wanted, refused.get(key)
    assert {key: wire["runId"] for key, wire in wires(pair, AUDIT).items()} == {"a0": "r00", "a1": "r01"}
    triggers = {key: wire["scheduleId"] for key, wire in wires(pair, TRIGGERS).items()}
    assert triggers == {"t0": str(IDS[0]), "t1": str(IDS[1])}
    assert reasons(pair, TRIGGERS) == {"t2": NO_PARENT}
    assert len(wires(pair, SCHEDULES)) == 4, reasons(pair, SCHEDULES)
    rows = rows_by_rule(result)
    places = ("runs.scheduleId", "triggers.scheduleId", "audit.runId")
    assert [rows[f"lookup {place}"] for place in places] == [3, 3, 2]


WRONG: Final = ("missing", "extra", "different", "stale")


def wrong_rows(report: ParityReport) -> dict[str, int]:
    """Return by entity how many rows of the target are wrong, without zeros."""
    counts = {item.entity: item.counts.model_dump() for item in report.entities}
    found = {entity: sum(item[name] for name in WRONG) for entity, item in counts.items()}
    return {entity: rows for entity, rows in found.items() if rows}


def test_a_verification_looks_up_by_itself(pair: Pair, postgres_database: PostgresDatabase) -> None:
    pair.copy(rules=RULES)
    assert wrong_rows(pair.verify(rules=RULES)) == {}
    for missing in RULES.rules[:3]:
        left = JobRules(tuple(rule for rule in RULES if rule is not missing), "job.toml")
        assert missing.entity in wrong_rows(pair.verify(rules=left)), missing.text
    with psycopg.connect(postgres_database.superuser_url) as connection:
        connection.execute("UPDATE scheduler.runs SET schedule_id = %s WHERE id = 'r00'", [str(IDS[1])])
    report = pair.verify(rules=RULES)
    assert (report.verdict, wrong_rows(report)) == ("FAIL", {"runs": 1})
    # Single rows are looked up alike.
    with TemporaryFile() as spool:
        rows = ReportedRows(pair.source.bulk.entities(), spool)
        rows.take([json.dumps({"entity": "runs", "kind": "different", "key": ["r00"]}).encode() + b"\n"])
        Repair(pair.source, pair.target, AS_OF, StopSwitch(), RULES).run([RUNS], rows, remove=False)
    assert wrong_rows(pair.verify(rules=RULES)) == {}
    assert compare_row(pair.source, pair.target, RUNS, ("r00",), AS_OF, rules=RULES).verdict == "unproved"


def test_rows_that_an_earlier_look_up_made_are_replaced(pair: Pair, source: Database[Document]) -> None:
    source["schedules"].update_one({"_id": IDS[5]}, {"$set": {"alias": "nightly"}})
    source["schedules"].update_many({}, [{"$set": {"code": {"$toString": "$_id"}}}])
    alias = job(
        (DropRule, "schedules.alias", {}),
        (KeyRule, "schedules.code", {}),
        (LookupRule, "runs.scheduleId", {**BY_NAME, "by": "alias"}),
    )
    rest = (*alias.rules[:2], *(rule for rule in RULES.rules[1:] if not isinstance(rule, IdRule)))
    for first, wanted in ((alias.rules[2], IDS[5]), (RULES.rules[0], IDS[0])):
        rules = JobRules(tuple(replace(item, number=number) for number, item in enumerate((first, *rest), 1)))
        assert pair.copy(rules=rules).complete
        assert wires(pair, RUNS)["r00"]["scheduleId"] == str(wanted)
        assert wrong_rows(pair.verify(rules=rules)) == {}


def test_a_larger_collection_without_an_index_is_refused_before_anything_is_written(
    pair: Pair, source: Database[Document], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inventory, "MOST_WITHOUT_INDEX", 5)
    plan = partial(plan_copy, pair.source, pair.target)
    for command in (lambda rules: plan(CopyOptions(rules=rules, as_of=AS_OF)), pair.copy, pair.verify):
        with pytest.raises(PreflightError, match="7 documents and no index that begins with name,"):
            command(rules=RULES)
    source["schedules"].create_index({"name": 1, "mode": 1})
    causes = plan(CopyOptions(rules=RULES, as_of=AS_OF)).causes
    assert "rule:scheduleId" in str(causes)
    assert pair.copy(rules=RULES, execute=False).complete


def test_a_store_that_finds_no_rows_is_refused(tmp_path: Path) -> None:
    with memory_pair(tmp_path) as pair, pytest.raises(PreflightError, match="cannot look up rows in memory"):
        pair.copy(rules=RULES)
