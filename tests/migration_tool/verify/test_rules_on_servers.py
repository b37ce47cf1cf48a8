"""The rules of a job over documents of MongoDB: in ranges of ids, by another key, in several processes."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta
from tempfile import TemporaryFile
from typing import TYPE_CHECKING, Any, Final

import bson
import psycopg
import pytest
from bson import DBRef, ObjectId
from bson.raw_bson import RawBSONDocument
from pymongo import MongoClient

from tests.migration_tool.verify.test_corruptions import merged_settings
from tests.migration_tool.verify.test_rules import RULES
from tests.support.copies import AS_OF, Pair, open_store
from twinstore.config import load_settings
from twinstore.errors import ValidationError
from twinstore.scheduler.catalog import AUDIT, RUNS
from twinstore.testing.instants import at
from twinstore.testing.scheduler.builders import make_audit_record, make_run
from twinstore_backfill.causes import cause_of
from twinstore_backfill.outcome import Exit, PreflightError
from twinstore_backfill.process.stopping import StopSwitch
from twinstore_backfill.repair.engine import Repair, ReportedRows
from twinstore_backfill.rules.model import IdRule, JobRules, KeyRule, RenameRule, ReplaceRule, Rule
from twinstore_backfill.subset import Subset
from twinstore_backfill.verify.expected import Refused, RowExpectation
from twinstore_mongo.bulk.scan import CollectionScan

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.databases import MongoDatabase, PostgresDatabase

Document = dict[str, Any]
# By hand: milliseconds, version, 12 bits, variant, 52 bits, 10 zeros.
IDS: Final = {
    "000000000000000000000000": "00000000-0000-7000-8000-000000000000",
    "65a1b2c3d4e5f60718293a4b": "018cffa2-49b8-7d4e-97d8-1c60a4e92c00",
    "65a1b2c3ffffffffffffffff": "018cffa2-49b8-7fff-bfff-fffffffffc00",
    "ffffffffffffffffffffffff": "03e7ffff-fc18-7fff-bfff-fffffffffc00",
}
MORE: Final[tuple[Rule, ...]] = (
    IdRule(number=11, line=11, entity="runs", path=("_id",), reason="r", to="uuid"),
    IdRule(number=12, line=12, entity="runs", path=("retryOf",), reason="r", to="uuid"),
    KeyRule(number=13, line=13, entity="audit", path=("no",), reason="r"),
    ReplaceRule(number=14, line=14, entity="audit", path=("message",), what="invalid-utf-8", by="?"),
)  # fmt: skip
ALL: Final = JobRules((*(replace(rule, entity="runs") for rule in RULES), *MORE))


def warts(document: Document, digits: str) -> Document:
    """Return a run as a service of 2019 left it."""
    document["_id"] = ObjectId(digits)
    document["stats"] |= {"queued": "00", "old": 1}
    local = document["createdAt"] + timedelta(hours=1)
    document["createdAt"] = f"{local:%d.%m.%Y %H:%M:%S}"
    document["plan"] = document.pop("scheduleId").replace("-", "#")
    document["state"] = " 1"
    document["retryOf"] = DBRef("runs", ObjectId(digits))
    del document["trigger"]
    return document


@pytest.fixture
def pair(
    mongo_database: MongoDatabase, postgres_database: PostgresDatabase, tmp_path: Path
) -> Iterator[Pair]:
    """Return a source in MongoDB with such documents, and what they are in PostgreSQL."""
    settings = load_settings(merged_settings(mongo_database, postgres_database), environ={})
    with (
        open_store("scheduler", "mongo", settings) as source,
        open_store("scheduler", "postgres", settings) as target,
        MongoClient[Document](mongo_database.url) as client,
    ):
        pair, database = Pair(source, target, tmp_path), client[mongo_database.name]
        source.storage.initializer.ensure_migrations()
        for number, uuid in enumerate(IDS.values()):
            run = make_run("acme", uuid, created_at=at(number), schedule_id="a-b", retry_of=uuid)
            source.storage.runs.create(run)
            record = make_audit_record("acme", f"a{number}", occurred_at=at(number), message="ab?")
            source.storage.audit.append(record)
        assert pair.copy().exit is Exit.OK
        runs, audit = database["runs"], database["audit"]
        for digits, uuid in IDS.items():
            document = runs.find_one_and_delete({"_id": uuid})
            assert document is not None
            runs.insert_one(warts(document, digits), bypass_document_validation=True)
        for document in list(audit.find()):
            audit.delete_one({"_id": document["_id"]})
            raw = bson.encode({**document, "_id": ObjectId(), "no": document["_id"]})
            broken = RawBSONDocument(raw.replace(b"ab?", b"ab\xff"))
            audit.insert_one(broken, bypass_document_validation=True)
        yield pair


@pytest.mark.parametrize("jobs", [1, 2])
def test_documents_of_another_service_are_proved_under_the_rules(pair: Pair, jobs: int) -> None:
    report = pair.verify(rules=ALL, jobs=jobs)
    assert (report.verdict, report.reasons) == ("PASS", ())
    rows = {f"{item.kind} {item.path}": item.rows for item in report.rules}
    assert rows["id runs._id"] == rows["map runs.state"] == rows["key audit.no"] == 4
    (lists,) = (item for item in report.checks if item.id == "C5")
    assert "audit of acme" in lists.by_rows


def test_each_rule_that_only_the_verification_lacks_is_found(pair: Pair) -> None:
    for missing in ALL:
        # Without a rename, rules on the place that it moves mean nothing.
        place = missing.path if isinstance(missing, RenameRule) else None
        rules = JobRules(tuple(rule for rule in ALL if rule is not missing and rule.path != place))
        verdict = pair.verify(rules=rules, entities=["runs", "audit"]).verdict
        # Nothing is to be derived here, and an unknown property without a rule keeps rows back.
        assert (verdict == "PARTIAL") is (missing.number in {6, 9}), missing.text


def test_a_driver_that_cannot_change_its_rows_is_refused(pair: Pair) -> None:
    back = Pair(pair.target, pair.source, pair.directory)
    with pytest.raises(PreflightError, match="cannot be applied to what Postgres"):
        back.verify(rules=ALL)


def test_keys_that_a_rule_makes_do_not_bound_a_copy(pair: Pair) -> None:
    part = Subset(key_from=(min(IDS.values()),))
    with pytest.raises(ValidationError, match="--key-from"):
        pair.copy(rules=ALL, entities=["runs"], subset=part)
    rest = pair.copy(rules=ALL, entities=["audit"], subset=Subset(key_from=("a1",)), execute=False)
    assert rest.totals.all()["read"] == len(IDS) - 1


def test_rows_are_repaired_under_the_rules(pair: Pair, postgres_database: PostgresDatabase) -> None:
    with psycopg.connect(postgres_database.superuser_url) as connection:
        connection.execute("DELETE FROM scheduler.runs")
    with TemporaryFile() as spool:
        rows = ReportedRows(pair.source.bulk.entities(), spool)
        found = ({"entity": "runs", "kind": "missing", "key": [uuid]} for uuid in IDS.values())
        rows.take(json.dumps(line).encode() + b"\n" for line in found)
        Repair(pair.source, pair.target, AS_OF, StopSwitch(), ALL).run([RUNS], rows, remove=False)
    report = pair.verify(rules=ALL)
    assert (report.verdict, report.reasons) == ("PASS", ())


def test_a_document_that_cannot_be_decoded_has_the_cause_that_a_job_accepts() -> None:
    raw = bson.encode({"_id": "a1", "tenantId": "t", "action": "??"}).replace(b"??", b"\xff\xfe")
    (row,) = CollectionScan.of(AUDIT).rows(raw)
    refused = RowExpectation(AUDIT, ()).of(row)
    assert isinstance(refused, Refused)
    assert str(cause_of(AUDIT, refused.reason)) == "broken"
