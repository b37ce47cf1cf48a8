"""The rules of a job as a verification applies them: each kind by examples, then the rows of a scan."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any, cast
from uuid import UUID

import bson
import orjson
import pytest
from bson import DBRef, Decimal128, Int64, ObjectId
from bson.binary import UUID_SUBTYPE, Binary

from twinstore.bulk.changes import ChangeRefusedError, DocumentChanges
from twinstore.bulk.rows import has_marks
from twinstore.catalog.keys import KeyRange, KeyType
from twinstore.catalog.row import Row
from twinstore.errors import ValidationError
from twinstore.scheduler.catalog import AUDIT, POLICY_JOBS, RUNS, TRIGGERS
from twinstore.testing.scheduler.examples import SCHEDULER_EXAMPLES
from twinstore.testing.typed_entities import STAMPS, WARES
from twinstore_backfill.rules.model import (
    DateRule,
    DefaultRule,
    DeriveRule,
    DropRule,
    IdRule,
    JobRules,
    KeyRule,
    MapRule,
    NumberRule,
    RenameRule,
    ReplaceRule,
    Rule,
    TrimRule,
)
from twinstore_backfill.verify.expected import Expected, RowExpectation
from twinstore_backfill.verify.rules import check_tenants, moves_tenants, ranges_after, verifier_changes
from twinstore_mongo.bulk.scan import CollectionScan
from twinstore_mongo.mapping.codec import codec_of
from twinstore_mongo.mapping.object_ids import ReplacedIds
from twinstore_mongo.mapping.stored_values import MONGO_VALUES

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from twinstore.bulk.changes import ChangedDocument
    from twinstore.bulk.rows import ScanRow
    from twinstore.catalog.entity import Entity
    from twinstore.scheduler.policy_jobs import PolicyRunJob

OID = ObjectId("65a1b2c3d4e5f60718293a4b")
OID_UUID = "018cffa2-49b8-7d4e-97d8-1c60a4e92c00"
DATE = datetime(2024, 3, 1, 12, 30)  # noqa: DTZ001  # as the client gives dates


def rule(
    kind: Callable[..., Rule],
    path: str,
    entity: str = "runs",
    number: int = 1,
    **more: Any,  # noqa: ANN401  # the parts of any rule
) -> Rule:
    """Return a rule."""
    return kind(number=number, line=number, entity=entity, path=tuple(path.split(".")), reason="why", **more)


def local(path: str = "createdAt", **more: Any) -> Rule:  # noqa: ANN401  # the parts of a rule
    """Return a rule about dates."""
    return rule(DateRule, path, **{"formats": ("%d.%m.%Y %H:%M",), "zone": "Europe/Zurich", **more})


def changed(rules: Sequence[Rule], document: dict[str, object], entity: Entity = RUNS) -> ChangedDocument:
    """Return a document after rules."""
    changes = verifier_changes(JobRules(tuple(rules)), [entity])
    return changes.documents[entity.name](document, MONGO_VALUES)


STATE = rule(
    MapRule, "state", values={"done": "completed", "1": "running", "true": "queued"}, absent=("n/a", "2")
)

EXAMPLES = [
    (rule(ReplaceRule, "error", old="ab", by="x"), {"error": "abcab"}, {"error": "xcx"}),
    (rule(ReplaceRule, "tags", old="a"), {"tags": ["a", "ba", 1]}, {"tags": ["", "b", 1]}),
    (rule(ReplaceRule, "m", what="nul", by="?"), {"m": {"a\0": ["\0b"]}}, {"m": {"a?": ["?b"]}}),
    (rule(ReplaceRule, "m", what="invalid-utf-8", by="."), {"m": "a\udcff\udc80"}, {"m": "a.."}),
    (rule(TrimRule, "error"), {"error": "\u2003a b\n"}, {"error": "a b"}),
    (rule(TrimRule, "error"), {"error": "  "}, {"error": ""}),
    (rule(TrimRule, "tags", empty=True), {"tags": [" ", {}, "a "]}, {"tags": ["a"]}),
    (rule(TrimRule, "tags", empty=True), {"tags": ["", []]}, {}),
    (STATE, {"state": "done"}, {"state": "completed"}),
    (STATE, {"state": Int64(1)}, {"state": "running"}),
    (STATE, {"state": True}, {"state": "queued"}),
    (STATE, {"state": "n/a"}, {}),
    (STATE, {"state": ["done", "n/a", 2]}, {"state": ["completed"]}),
    (local(), {"createdAt": "01.03.2024 13:30"}, {"createdAt": DATE}),
    (local(), {"createdAt": "1.3.2024 13:30"}, {"createdAt": DATE}),
    (
        local(formats=("%d %B %Y %I:%M %p %z",), zone=None),
        {"createdAt": "1 march 2024 1:30 PM +0100"},
        {"createdAt": DATE},
    ),
    (
        local(formats=("%j/%Y, %a",), zone="UTC"),
        {"createdAt": "061/2024, Fri"},
        {"createdAt": DATE.replace(hour=0, minute=0)},
    ),
    (local(formats=("epoch-milliseconds",)), {"createdAt": "1709296200000"}, {"createdAt": DATE}),
    (local(formats=("epoch-seconds",)), {"createdAt": 1709296200.0}, {"createdAt": DATE}),
    (local(formats=("epoch-microseconds",)), {"createdAt": Int64(1709296200000000)}, {"createdAt": DATE}),
    (
        local("deltas.detectedAt"),
        {"deltas": [{"detectedAt": "01.03.2024 13:30"}]},
        {"deltas": [{"detectedAt": DATE}]},
    ),
    (
        rule(NumberRule, "stats.queued", source="text"),
        {"stats": {"queued": "-012"}},
        {"stats": {"queued": -12}},
    ),
    (
        rule(NumberRule, "stats.queued", source="text", factor=Decimal("0.01")),
        {"stats": {"queued": "1200"}},
        {"stats": {"queued": 12}},
    ),
    (
        rule(NumberRule, "stats.queued", source="decimal"),
        {"stats": {"queued": Decimal128("1E+3")}},
        {"stats": {"queued": 1000}},
    ),
    (rule(NumberRule, "legacy", source="text"), {"legacy": "0.1"}, {"legacy": 0.1}),
    (rule(IdRule, "scheduleId", to="uuid"), {"scheduleId": OID}, {"scheduleId": OID_UUID}),
    (rule(IdRule, "scheduleId", to="uuid"), {"scheduleId": str(OID).upper()}, {"scheduleId": OID_UUID}),
    (
        rule(IdRule, "scheduleId", to="text"),
        {"scheduleId": DBRef("schedules", OID)},
        {"scheduleId": str(OID)},
    ),
    (
        rule(DeriveRule, "finishedAt", how="max", of=("events", "at")),
        {"events": [{"at": DATE}, {"at": None}, {}]},
        {"events": [{"at": DATE}, {"at": None}, {}], "finishedAt": DATE},
    ),
    (
        rule(DeriveRule, "error", how="last", of=("log",)),
        {"log": ["a", "b"]},
        {"log": ["a", "b"], "error": "b"},
    ),
    (
        rule(DeriveRule, "stats.queued", how="count", of=("log",)),
        {"log": [], "stats": {}},
        {"log": [], "stats": {"queued": 0}},
    ),
    (rule(RenameRule, "made", to=("createdAt",)), {"made": DATE}, {"createdAt": DATE}),
    (
        rule(RenameRule, "deltas.at", to=("deltas", "detectedAt")),
        {"deltas": [{"at": 1}, {}]},
        {"deltas": [{"detectedAt": 1}, {}]},
    ),
    (
        rule(RenameRule, "old.q", to=("stats", "queued"), keep=True),
        {"old": {"q": 1}},
        {"old": {"q": 1}, "stats": {"queued": 1}},
    ),
    (rule(DropRule, "stats.old"), {"stats": {"old": 1, "queued": 2}}, {"stats": {"queued": 2}}),
    (
        rule(DropRule, "m.*.old"),
        {"m": {"a": {"old": 1}, "b": [{"old": 2, "c": 3}]}},
        {"m": {"a": {}, "b": [{"c": 3}]}},
    ),
    (rule(DefaultRule, "trigger", value="manual"), {"trigger": None}, {"trigger": "manual"}),
    (rule(DefaultRule, "createdAt", value="2024-03-01T12:30:00Z"), {}, {"createdAt": DATE}),
    (
        rule(DefaultRule, "deltas.newHigh", value=0),
        {"deltas": [{}, {"newHigh": 1}]},
        {"deltas": [{"newHigh": 0}, {"newHigh": 1}]},
    ),
]


@pytest.mark.parametrize(("given", "before", "after"), EXAMPLES)
def test_a_rule_changes_what_it_covers(
    given: Rule, before: dict[str, object], after: dict[str, object]
) -> None:
    found = changed([given], before)
    assert found.document == after
    assert list(map(type, found.document.values())) == list(map(type, after.values()))
    assert found.rules == [1]


LEFT = [
    (STATE, {"state": "Done"}),
    (STATE, {"state": 1.0}),
    (rule(TrimRule, "error"), {"error": None}),
    (rule(TrimRule, "a.b"), {"a": 1}),
    (local(), {"createdAt": "31.02.2024 10:00"}),
    (local(), {"createdAt": DATE}),
    (local(formats=("%Y-%m-%d",)), {"createdAt": "2024-03-01x"}),
    (local(formats=("epoch-seconds",)), {"createdAt": True}),
    (local(formats=("epoch-seconds",)), {"createdAt": "9" * 20}),
    (rule(NumberRule, "stats.queued", source="text"), {"stats": {"queued": " 1"}}),
    (rule(NumberRule, "stats.queued", source="text", factor=Decimal(10)), {"stats": {"queued": 1}}),
    (rule(IdRule, "scheduleId", to="text"), {"scheduleId": str(OID)}),
    (rule(IdRule, "scheduleId", to="uuid"), {"scheduleId": OID_UUID}),
    (rule(DeriveRule, "error", how="first", of=("log",)), {"error": None, "log": ["a"]}),
    (rule(DeriveRule, "stats.queued", how="count", of=("log",)), {"stats": {}}),
    (rule(RenameRule, "made.at", to=("createdAt",)), {"made": None}),
    (rule(DefaultRule, "stats.queued", value=1), {}),
]


@pytest.mark.parametrize(("given", "document"), LEFT)
def test_a_rule_leaves_everything_else(given: Rule, document: dict[str, object]) -> None:
    found = changed([given], dict(document))
    assert (found.document, found.rules) == (document, [])


REFUSED = [
    (local(formats=("%d.%m.%Y", "%m.%d.%Y")), {"createdAt": "02.03.2024"}, "different instants"),
    (local(), {"createdAt": "27.10.2024 02:30"}, "twice or never"),
    (local(), {"createdAt": "31.03.2024 02:30"}, "twice or never"),
    (rule(NumberRule, "stats.queued", source="text"), {"stats": {"queued": "1.5"}}, "exactly"),
    (rule(NumberRule, "stats.queued", source="text"), {"stats": {"queued": str(2**63)}}, "exactly"),
    (rule(NumberRule, "legacy", source="text"), {"legacy": "0.1000000000000000055"}, "exactly"),
    (rule(DeriveRule, "error", how="max", of=("log",)), {"log": ["a", 1]}, "compared"),
    (rule(RenameRule, "made", to=("createdAt",)), {"made": DATE, "createdAt": "x"}, "another value"),
    (rule(RenameRule, "log.at", to=("createdAt",)), {"log": [{"at": DATE}]}, "several values"),
    (rule(ReplaceRule, "m", what="nul"), {"m": {"a\0": 1, "a": 2}}, "equal"),
]


@pytest.mark.parametrize(("given", "document", "why"), REFUSED)
def test_what_a_rule_cannot_change_is_refused_without_its_value(
    given: Rule, document: dict[str, object], why: str
) -> None:
    with pytest.raises(ChangeRefusedError, match=why) as caught:
        changed([given], document)
    assert str(caught.value).startswith(f"{given.text}: [[{given.kind}]] ")
    assert "2024" not in str(caught.value)


def test_kinds_apply_in_their_order_whatever_the_file_has() -> None:
    rules = [
        rule(DefaultRule, "error", number=1, value="none"),
        rule(RenameRule, "err", number=2, to=("error",)),
        rule(MapRule, "err", number=3, values={"bad": "worse"}, absent=("no",)),
        rule(TrimRule, "err", number=4),
    ]
    assert changed(rules, {"err": " bad "}).document == {"error": "worse"}
    assert changed(rules, {"err": " no "}).document == {"error": "none"}
    assert changed(rules, {"err": " bad "}).rules == [2, 3, 4]


def test_types_follow_the_field_of_the_model() -> None:
    wares = [
        rule(NumberRule, "price", "wares", source="text", factor=Decimal("0.01")),
        rule(IdRule, "design", "wares", number=2, to="uuid"),
        rule(DefaultRule, "maker", "wares", number=3, value=str(OID)),
        rule(NumberRule, "cost", "wares", number=4, source="text"),
        rule(RenameRule, "cost", "wares", number=5, to=("weight",)),
    ]
    given = {"price": "150", "design": OID, "cost": "1.0"}
    assert changed(wares, given, WARES).document == {
        "price": Decimal128("1.50"),
        "design": Binary(UUID(OID_UUID).bytes, UUID_SUBTYPE),
        "maker": OID,
        "weight": Decimal128("1.0"),
    }


@pytest.mark.parametrize(
    ("digits", "uuid"),
    [
        ("000000000000000000000000", "00000000-0000-7000-8000-000000000000"),
        (str(OID), OID_UUID),
        ("65a1b2c3ffffffffffffffff", "018cffa2-49b8-7fff-bfff-fffffffffc00"),
        ("ffffffffffffffffffffffff", "03e7ffff-fc18-7fff-bfff-fffffffffc00"),
    ],
)
def test_the_uuid_of_an_object_id_is_this_one(digits: str, uuid: str) -> None:
    assert changed([rule(IdRule, "scheduleId", to="uuid")], {"scheduleId": digits}).document == {
        "scheduleId": uuid
    }
    ids = ReplacedIds.of(KeyType.TEXT, "uuid")
    assert ids.key_of(ObjectId(digits)) == (uuid,)
    assert ids.stored([(uuid,)]) == [ObjectId(digits)]
    assert ids.stored([(f"{uuid[:-1]}1",)]) == []


def test_drops_at_the_top_alone_keep_digests() -> None:
    drops = (
        DropRule(number=1, line=1, entity="runs", path=("old",), reason="why"),
        DropRule(number=2, line=2, entity="audit", path=("metadata", "old")),
    )
    changes = verifier_changes(JobRules(drops), [RUNS, AUDIT])
    assert {name: change.dropped for name, change in changes.documents.items()} == {
        "runs": {"old"},
        "audit": None,
    }
    assert not verifier_changes(JobRules(), [RUNS])


def test_a_rule_that_reaches_the_tenant_moves_rows_between_tenants() -> None:
    moving = (rule(MapRule, "tenantId", values={"a": "b"}), rule(RenameRule, "owner", to=("tenantId",)))
    assert all(moves_tenants(JobRules((item,)), RUNS) for item in moving)
    assert not moves_tenants(JobRules((STATE,)), RUNS)


def test_a_tenant_cannot_select_children_of_a_parent_that_changes_its_own() -> None:
    item = rule(MapRule, "tenantId", "wares", values={"a": "b"})
    with pytest.raises(ValidationError, match="stamps"):
        check_tenants(JobRules((item,)), [WARES, STAMPS])
    check_tenants(JobRules((item,)), [WARES])


RUN = {
    "_id": "r1",
    "schemaVersion": "scheduler.run@1",
    "tenantId": "t",
    "trigger": "manual",
    "state": "done",
    "stats": {"candidates": 0, "completed": 0, "deduped": 0, "deltas": 0, "newCriticals": 0, "newHigh": 0}
    | {"newLow": 0, "newMedium": 0, "queued": 0},
    "createdAt": DATE,
}


def scanned(rules: Sequence[Rule], entity: Entity, *documents: dict[str, Any]) -> list[ScanRow]:
    """Return the rows of documents under rules."""
    scan = CollectionScan.of(entity, verifier_changes(JobRules(tuple(rules)), [entity]))
    return scan.rows(b"".join(map(bson.encode, documents)))


def test_a_scan_shows_a_row_as_it_is_after_the_rules() -> None:
    plain, same = scanned([STATE], RUNS, RUN, {**RUN, "state": "completed"})
    assert plain.content == same.content
    assert (plain.rules, same.rules) == ((1,), ())
    (moved,) = scanned([rule(MapRule, "tenantId", values={"t": "u"})], RUNS, RUN)
    assert moved.label == "u"


def test_a_refused_row_keeps_its_key_and_shows_no_value() -> None:
    (row,) = scanned([local()], RUNS, {**RUN, "createdAt": "27.10.2024 02:30"})
    assert row.key == ("r1",)
    assert row.label == "t"
    assert row.error is not None
    assert b"2024" not in row.content + row.error.encode()


def test_the_id_of_mongodb_becomes_the_key_in_the_same_order() -> None:
    rules = [rule(IdRule, "_id", to="uuid")]
    first, other = scanned(rules, RUNS, {**RUN, "_id": OID}, RUN)
    assert first.key == (OID_UUID,)
    assert orjson.loads(first.content)["doc"]["id"] == OID_UUID
    assert other.key is None
    assert other.error == "its _id is not an ObjectId"
    changes = verifier_changes(JobRules(tuple(rules)), [RUNS])
    scan = CollectionScan.of(RUNS, changes)
    (within,) = ranges_after(changes, RUNS, [KeyRange((str(OID),), None)])
    assert within.lower == (OID_UUID,)
    assert scan.matching(within) == scan.matching(KeyRange((str(OID),), None))
    assert scan.any_of([(OID_UUID,), ("x",)]) == {"_id": {"$in": [OID]}}


def test_a_field_becomes_the_key_instead_of_the_id() -> None:
    record = {"_id": OID, "no": "a1", "tenantId": "t", "category": "c", "action": "a", "occurredAt": DATE}
    rules = [rule(KeyRule, "no", "audit")]
    row, without = scanned(rules, AUDIT, record, {name: record[name] for name in record if name != "no"})
    assert (row.key, row.rules) == (("a1",), (1,))
    assert orjson.loads(row.content)["doc"]["id"] == "a1"
    assert (without.key, without.error) == (None, "audit.no: [[key]] finds no value for the key")
    scan = CollectionScan.of(AUDIT, verifier_changes(JobRules(tuple(rules)), [AUDIT]))
    assert scan.any_of([("a1",)]) == {"no": {"$in": ["a1"]}}


def test_broken_texts_are_read_only_for_a_rule_that_replaces_them() -> None:
    raw = bson.encode({**RUN, "state": "completed", "scheduleId": "ab"}).replace(b"ab\x00", b"a\xff\x00")
    rules = [rule(ReplaceRule, "scheduleId", what="invalid-utf-8", by="?")]
    changes = verifier_changes(JobRules(tuple(rules)), [RUNS])
    (mended,) = CollectionScan.of(RUNS, changes).rows(raw)
    assert orjson.loads(mended.content)["doc"]["scheduleId"] == "a?"
    elsewhere = JobRules((replace(rules[0], path=("error",)),))
    for other in (DocumentChanges(), verifier_changes(elsewhere, [RUNS])):
        (broken,) = CollectionScan.of(RUNS, other).rows(raw)
        assert b"u0000bson" in broken.content
    assert mended.rules == (1,)


def test_a_whole_number_of_a_rule_has_the_bits_of_its_field() -> None:
    counted = rule(NumberRule, "fireCount", "triggers", source="text")
    trigger = {"_id": "t1", "tenantId": "t", "misfireCount": Int64(0)}
    row, other = scanned([counted], TRIGGERS, {**trigger, "fireCount": "3"}, {**trigger, "fireCount": 3})
    assert orjson.loads(row.content)["doc"]["fireCount"] == 3
    # What no rule changed is shown as it is stored.
    assert not has_marks(row.content)
    assert has_marks(other.content)


def test_what_follows_from_a_document_before_the_rules_contradicts_nothing() -> None:
    job = cast("PolicyRunJob", SCHEDULER_EXAMPLES.of(POLICY_JOBS).small("t", "j1"))
    stored = codec_of(POLICY_JOBS).encode(Row(job))
    stored["priority"], stored["_priorityRank"] = "urgent", Int64(7)
    rules = [rule(MapRule, "priority", "policy_jobs", values={"urgent": job.priority.value})]
    (row,) = scanned(rules, POLICY_JOBS, stored)
    expected = RowExpectation(POLICY_JOBS).of(row)
    assert isinstance(expected, Expected)
    assert expected.changes == ()
    row.rules = ()
    contradicting = RowExpectation(POLICY_JOBS).of(row)
    assert isinstance(contradicting, Expected)
    assert [change.kind for change in contradicting.changes] == ["beside"]
