"""References by another field than the key, as a copy and a verification each resolve them."""

from __future__ import annotations

from copy import deepcopy
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

import bson
import pytest
from bson import Binary, Code, Int64, ObjectId
from bson.binary import UUID_SUBTYPE
from typing_extensions import override

from twinstore.bulk.changes import ChangedDocument, ChangeRefusedError, DocumentChange, FoundRow, Lookup
from twinstore.catalog.keys import KeyType
from twinstore.catalog.tenancy import NO_TENANT, UNKNOWN_TENANT, StoredOwner, Tenant
from twinstore.errors import UnsupportedCapabilityError
from twinstore.scheduler.catalog import AUDIT, RUN_SUMMARIES, RUNS, SCHEDULES
from twinstore.taskrunner.catalog import PACK_RUNS
from twinstore.testing.typed_entities import WARES
from twinstore.tracking.catalog import SESSIONS
from twinstore_backfill.copy.rules import copier_changes
from twinstore_backfill.rules.model import (
    DefaultRule,
    DeriveRule,
    IdRule,
    JobRules,
    LookupRule,
    MapRule,
    RenameRule,
    ReplaceRule,
    Rule,
    TrimRule,
)
from twinstore_backfill.verify.rules import verifier_changes
from twinstore_mongo.bulk.export import Exporter
from twinstore_mongo.bulk.lookups import FindingValues, conditions_of, serves_lookup
from twinstore_mongo.bulk.scan import CollectionScan
from twinstore_mongo.client.types import EXACT
from twinstore_mongo.mapping.codec import codec_of
from twinstore_mongo.mapping.object_ids import ReplacedIds
from twinstore_mongo.mapping.stored_values import MONGO_VALUES, MongoValues

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from twinstore.bulk.changes import DocumentChanges
    from twinstore_mongo.bulk.lookups import Wanted

Document = dict[str, Any]
ENTITIES: Final = (SCHEDULES, RUNS, AUDIT, RUN_SUMMARIES, PACK_RUNS, WARES, SESSIONS)
SIDES: Final = (copier_changes, verifier_changes)
ACME: Final = Tenant("acme")
OTHER: Final = Tenant("other")
OID: Final = ObjectId("65a1b2c3d4e5f60718293a4b")
UUID_TEXT: Final = "018cffa2-49b8-7d4e-97d8-1c60a4e92c00"


def rule(kind: Callable[..., Rule], path: str, number: int = 1, **more: Any) -> Rule:  # noqa: ANN401  # of any rule
    """Return a rule from its path with the entity in front."""
    entity, *names = path.split(".")
    return kind(number=number, line=number, entity=entity, path=tuple(names), reason="r", **more)


def lookup(path: str, other: str = "schedules", by: str = "name", take: str | None = None) -> Rule:
    """Return a rule that looks rows up."""
    return rule(LookupRule, path, other=other, by=by, take=take)


class Rows(MongoValues):
    """Finds all rows that there are, whatever is asked for."""

    def __init__(self, rows: Sequence[FoundRow]) -> None:
        self._rows = rows

    @override
    def found(self, lookup: Lookup, owner: StoredOwner, values: Sequence[object]) -> Sequence[FoundRow]:
        return self._rows


def row(value: object, *key: str | int, owner: StoredOwner = ACME) -> FoundRow:
    """Return a row that is found."""
    return FoundRow(value, owner, key)


def change_of(side: Callable[..., DocumentChanges], entity: str, *rules: Rule) -> DocumentChange:
    """Return the change of an entity on one side."""
    return side(JobRules(rules), ENTITIES).documents[entity]


RUN: Final = lookup("runs.scheduleId")
NIGHTLY: Final = (row("nightly", "s1"), row("nightly", "s2", owner=OTHER), row("hourly", "s3"))
MOVED: Final = rule(RenameRule, "runs.firma", 2, to=("tenantId",))
SEVERAL: Final = "runs.scheduleId: [[lookup]] finds more than one schedule of its tenant by name"
NONE: Final = "runs.scheduleId: [[lookup]] finds no schedule of its tenant by name"
# Rules, the document of a tenant, the rows that a store has, and what becomes of it.
CASES: Final[tuple[tuple[tuple[Rule, ...], Document, Sequence[FoundRow], Document | str], ...]] = (
    ((RUN,), {"tenantId": "acme", "scheduleId": "nightly"}, NIGHTLY, {"scheduleId": "s1"}),
    ((RUN,), {"tenantId": "other", "scheduleId": "nightly"}, NIGHTLY, {"scheduleId": "s2"}),
    ((RUN,), {"tenantId": "other", "scheduleId": "hourly"}, NIGHTLY, NONE),
    ((RUN,), {"scheduleId": "nightly"}, (*NIGHTLY, row("nightly", "s4", owner=NO_TENANT)), NONE),
    ((RUN,), {"tenantId": 1, "scheduleId": "nightly"}, NIGHTLY, NONE),
    ((RUN,), {"tenantId": "acme", "scheduleId": "nightly"}, (*NIGHTLY, row("nightly", "s9")), SEVERAL),
    # A row that a server gives twice is one row.
    ((RUN,), {"tenantId": "acme", "scheduleId": "hourly"}, (*NIGHTLY, *NIGHTLY), {"scheduleId": "s3"}),
    # A value of another type is another value.
    ((RUN,), {"tenantId": "acme", "scheduleId": Int64(1)}, (row(1, "s1"),), {"scheduleId": "s1"}),
    *(
        ((RUN,), {"tenantId": "acme", "scheduleId": value}, (row(1, "s1"), row("1", "s2")), NONE)
        for value in (1.0, True, {"a": 1}, b"1")
    ),
    # Kinds before it, and what decides about the tenant behind it.
    (
        (RUN, rule(MapRule, "runs.scheduleId", 2, values={"n": "nightly"})),
        {"tenantId": "acme", "scheduleId": "n"},
        NIGHTLY,
        {"scheduleId": "s1"},
    ),
    ((RUN, MOVED), {"firma": "other", "scheduleId": "nightly"}, NIGHTLY, {"scheduleId": "s2"}),
    (
        (RUN, rule(DefaultRule, "runs.tenantId", 2, value="other")),
        {"tenantId": None, "scheduleId": "nightly"},
        NIGHTLY,
        {"scheduleId": "s2"},
    ),
    (
        (RUN, rule(DeriveRule, "runs.tenantId", 2, how="first", of=("owners",))),
        {"owners": ["other"], "scheduleId": "nightly"},
        NIGHTLY,
        {"scheduleId": "s2"},
    ),
    (
        (RUN, MOVED),
        {"firma": "other", "tenantId": "acme", "scheduleId": "nightly"},
        NIGHTLY,
        "runs.firma: [[rename]] finds another value at the new place",
    ),
    # Places: a list, a place that is moved, and null, which names no row.
    (
        (lookup("audit.metadata.plans.*"),),
        {"tenantId": "acme", "metadata": {"plans": [{"a": "nightly", "b": ["hourly", None]}]}},
        NIGHTLY,
        {"metadata": {"plans": [{"a": "s1", "b": ["s3", None]}]}},
    ),
    (
        (lookup("wares.dwg", "wares", "batch"), rule(RenameRule, "wares.dwg", 2, to=("maker",))),
        {"tenantId": "acme", "dwg": "b1"},
        (row("b1", str(OID)),),
        {"maker": OID},
    ),
    # A text that is not in the form of the type stays a text, which the model judges.
    *(
        ((lookup(f"wares.{field}"),), {"tenantId": "acme", field: "r"}, (row("r", key),), {field: key})
        for field, key in (
            ("maker", "s1"),
            ("maker", str(OID).upper()),
            ("design", UUID_TEXT.replace("-", "")),
            ("price", "1_0"),
            ("image", "AA=="),
        )
    ),
    # Keys of other types, of several parts, and rows without tenants.
    (
        (lookup("wares.design", "wares", "name"),),
        {"tenantId": "acme", "design": "x"},
        (row("x", UUID_TEXT),),
        {"design": Binary(UUID(UUID_TEXT).bytes, UUID_SUBTYPE)},
    ),
    (
        (lookup("runs.scheduleId", "run_summaries", "x", "scheduleId"),),
        {"tenantId": "acme", "scheduleId": OID},
        (row(MONGO_VALUES.read(OID), "acme", "s7"),),
        {"scheduleId": "s7"},
    ),
    (
        (lookup("runs.scheduleId", "sessions", "project_id"),),
        {"tenantId": "acme", "scheduleId": "p"},
        (row("p", "session", owner=NO_TENANT),),
        {"scheduleId": "session"},
    ),
    (
        (lookup("pack_runs.planHash", "pack_runs", "planId"),),
        {"planHash": "p"},
        (row("p", "r1"), row("p", "r2", owner=NO_TENANT)),
        {"planHash": "r2"},
    ),
)


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize(("rules", "document", "rows", "wanted"), CASES)
def test_a_value_becomes_the_key_of_the_one_row_of_its_tenant(
    side: Callable[..., DocumentChanges],
    rules: tuple[Rule, ...],
    document: Document,
    rows: Sequence[FoundRow],
    wanted: Document | str,
) -> None:
    change = change_of(side, rules[0].entity, *rules)
    if isinstance(wanted, str):
        with pytest.raises(ChangeRefusedError) as caught:
            change(deepcopy(document), Rows(rows))
        assert str(caught.value) == wanted
        return
    found = change(deepcopy(document), Rows(rows))
    assert {name: found.document.get(name) for name in wanted} == wanted
    assert found.rules[0] == 1


@pytest.mark.parametrize("side", SIDES)
def test_nothing_is_looked_up_for_null_or_an_absent_value(side: Callable[..., DocumentChanges]) -> None:
    change = change_of(side, "runs", RUN)
    for document in ({}, {"scheduleId": None}, {"scheduleId": [None]}):
        # These values find nothing.
        assert change({**document}, MONGO_VALUES) == ChangedDocument({**document}, [])
    with pytest.raises(UnsupportedCapabilityError, match="Rules cannot look up schedules"):
        change({"tenantId": "acme", "scheduleId": "x"}, MONGO_VALUES)


@pytest.mark.parametrize("side", SIDES)
def test_rows_are_found_as_their_own_rules_leave_them(side: Callable[..., DocumentChanges]) -> None:
    rules = (
        RUN,
        lookup("schedules.createdBy"),
        rule(IdRule, "schedules._id", 3, to="text"),
        rule(MapRule, "schedules.tenantId", 4, values={"A": "acme"}),
    )
    changes = side(JobRules(tuple(rules)), ENTITIES)
    (found,) = changes.documents["runs"].lookups
    assert (found.entity, found.by, found.keeps_tenant) == (SCHEDULES, "name", False)
    assert [item.entity for item in changes.lookups(SCHEDULES)] == [SCHEDULES, SCHEDULES]
    assert found.change is not None
    # Without its own look-up.
    after = found.change({"_id": OID, "tenantId": "A", "createdBy": "nightly"}, MONGO_VALUES)
    assert after.document == {"_id": str(OID), "tenantId": "acme", "createdBy": "nightly"}
    (plain,) = change_of(side, "runs", RUN).lookups
    assert (plain.change, plain.keeps_tenant) == (None, True)


def test_rules_of_the_other_rows_count_in_the_digest() -> None:
    ids = rule(IdRule, "schedules._id", 2, to="text")
    jobs = ((RUN,), (RUN, ids), (ids,), (lookup("runs.scheduleId", by="id"),))
    assert len({JobRules(rules).digest(RUNS) for rules in jobs}) == 4


# What MongoDB is asked for.

BY_NAME: Final = Lookup(SCHEDULES, "name", None, keeps_tenant=True)
MOVING: Final = Lookup(SCHEDULES, "name", None, keeps_tenant=False)


@pytest.mark.parametrize(
    ("given", "wanted", "conditions"),
    [
        (BY_NAME, [(ACME, "a"), (ACME, 1)], [{"tenantId": "acme", "name": {"$in": ["a", 1]}}]),
        (
            BY_NAME,
            [(ACME, "a"), (OTHER, "b"), (OTHER, "c")],
            [
                {
                    "$or": [
                        {"tenantId": "acme", "name": {"$in": ["a"]}},
                        {"tenantId": "other", "name": {"$in": ["b", "c"]}},
                    ]
                }
            ],
        ),
        # Tenants that share values are asked for by value.
        (
            BY_NAME,
            [(ACME, "a"), (OTHER, "a"), (NO_TENANT, "b")],
            [
                {
                    "$or": [
                        {"name": "a", "tenantId": {"$in": ["acme", "other"]}},
                        {"name": "b", "tenantId": {"$in": [None]}},
                    ]
                }
            ],
        ),
        (MOVING, [(ACME, "a"), (OTHER, "b")], [{"name": {"$in": ["a", "b"]}}]),
        (Lookup(SESSIONS, "x", None, keeps_tenant=True), [(NO_TENANT, "a")], [{"x": {"$in": ["a"]}}]),
        (
            MOVING,
            [(ACME, number) for number in range(1001)],
            [{"name": {"$in": [*range(1000)]}}, {"name": {"$in": [1000]}}],
        ),
    ],
)
def test_values_are_asked_for_by_tenant_and_some_at_a_time(
    given: Lookup, wanted: Wanted, conditions: list[Document]
) -> None:
    assert list(conditions_of(given, wanted)) == conditions


@pytest.mark.parametrize(
    ("index", "serves"),
    [
        ({"key": {"name": 1}}, (True, True)),
        ({"key": {"name": -1, "x": 1}, "unique": True, "sparse": True}, (True, True)),
        ({"key": {"tenantId": 1, "name": 1}}, (True, False)),
        ({"key": {"tenantId": 1, "x": 1, "name": 1}}, (False, False)),
        ({"key": {"name": 1}, "partialFilterExpression": {"deletedAt": None}}, (False, False)),
        ({"key": {"name": 1}, "collation": {"locale": "de"}}, (False, False)),
        ({"key": {"name": 1}, "hidden": True}, (False, False)),
    ],
)
def test_an_index_serves_that_leads_to_the_value(index: Document, serves: tuple[bool, bool]) -> None:
    assert (serves_lookup(index, BY_NAME), serves_lookup(index, MOVING)) == serves


def test_the_rows_of_a_batch_are_read_once_and_remembered() -> None:
    asked: list[list[tuple[StoredOwner, object]]] = []

    def find(_: Lookup, wanted: Wanted) -> Iterator[FoundRow]:
        asked.append(list(wanted))
        return (row(value, f"{value}{number}", owner=owner) for owner, value in wanted for number in range(9))

    values, change = FindingValues(find), change_of(copier_changes, "runs", RUN)
    pairs = (("acme", "a"), ("acme", "b"), ("acme", "a"), ("other", "a"), ("acme", "Z_"))
    batch = b"".join(bson.encode({"tenantId": tenant, "scheduleId": name}) for tenant, name in pairs)
    values.prepare(change, batch.replace(b"Z_", b"Z\xfc"), EXACT)
    assert asked == [[(ACME, "a"), (ACME, "b"), (OTHER, "a")]]
    (given,) = change.lookups
    # Two are enough to know that a value names no single row.
    assert [item.key for item in values.found(given, ACME, ["a"])] == [("a0",), ("a1",)]
    # No server has a wrong byte, names are short, and what is not remembered is read.
    more = values.found(given, ACME, ["b", "c\udc80", "e" * 5000, "d"])
    assert [item.value for item in more] == ["b", "b", "d", "d"]
    assert asked[1:] == [[(ACME, "d")]]


STORED: Final[Document] = {"_id": "s1", "tenantId": "acme", "name": "nightly", "mode": "Z_"}
MENDED: Final = rule(ReplaceRule, "schedules.mode", what="invalid-utf-8", by="?")
TO_TEXT: Final = rule(IdRule, "schedules._id", to="text")
TRIMMED: Final = rule(TrimRule, "schedules.tenantId", empty=True)
REFUSING: Final = rule(RenameRule, "schedules.mode", to=("tenantId",))


@pytest.mark.parametrize(
    ("rules", "stored", "wanted"),
    [
        ((), {"mode": "x"}, row("nightly", "s1")),
        ((), {"tenantId": ["acme"]}, row("nightly", "s1", owner=UNKNOWN_TENANT)),
        ((), {"name": Int64(5), "tenantId": "other"}, row(5, "s1", owner=OTHER)),
        # A server also finds lists by what is in them, and doubles by integers.
        ((), {"name": ["nightly"]}, None),
        ((), {"name": 5.0}, None),
        ((), {"_id": 7}, None),
        ((), {"mode": "Z_broken"}, None),
        ((MENDED,), {"mode": "Z_broken"}, row("nightly", "s1")),
        ((MENDED,), {"name": "Z_broken"}, None),
        ((TO_TEXT,), {"_id": OID}, row("nightly", str(OID))),
        ((TO_TEXT,), {}, None),
        ((REFUSING,), {}, None),
        # Code is no text for a rule, as it is none for a copy.
        ((rule(MapRule, "schedules.mode", values={"a": "b"}),), {"mode": Code("a")}, row("nightly", "s1")),
        ((TRIMMED,), {"tenantId": Code(" acme", {"a": 1})}, row("nightly", "s1", owner=UNKNOWN_TENANT)),
    ],
)
def test_both_sides_find_the_same_row_in_a_document(
    rules: tuple[Rule, ...], stored: Document, wanted: FoundRow | None
) -> None:
    raw = bson.encode({**STORED, **stored}).replace(b"Z_broken", b"Z\xfcbroken")
    copied, verified = (side(JobRules(rules), ENTITIES) for side in SIDES)
    ids = ReplacedIds.of(KeyType.TEXT, "text") if copied.ids else None
    exporter = Exporter(codec_of(SCHEDULES), change=copied.documents.get("schedules"), ids=ids)
    scan = CollectionScan.of(SCHEDULES, verified)
    assert exporter.looked_up(raw, "name") == scan.looked_up(raw, "name") == wanted
