"""The rules of a job mean the same in a copy and in a verification, which share no code of theirs."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Literal
from uuid import UUID

import bson
import pytest
from bson import DBRef, Decimal128, ObjectId
from bson.binary import UUID_SUBTYPE, Binary
from bson.errors import InvalidDocument
from bson.int64 import Int64
from hypothesis import example, given, settings
from hypothesis import strategies as st
from typing_extensions import override

from twinstore.bulk.changes import ChangeRefusedError, DocumentChange, FoundRow, Lookup
from twinstore.catalog.tenancy import StoredOwner, Tenant
from twinstore.models import json_text
from twinstore.scheduler.catalog import AUDIT, RUNS, SCHEDULES
from twinstore.testing.typed_entities import WARES
from twinstore_backfill.copy.rules import backward_changes, copier_changes
from twinstore_backfill.copy.rules.ids import uuid_of
from twinstore_backfill.rules.model import (
    DateRule,
    DefaultRule,
    DeriveRule,
    DropRule,
    IdRule,
    JobRules,
    KeyRule,
    LookupRule,
    MapRule,
    NumberRule,
    RenameRule,
    ReplaceRule,
    Rule,
    TrimRule,
)
from twinstore_backfill.verify.expected import Expected, Refused, RowExpectation
from twinstore_backfill.verify.rules import verifier_changes
from twinstore_mongo.bulk.export import Exporter
from twinstore_mongo.bulk.places import codec_after, place_of
from twinstore_mongo.bulk.scan import CollectionScan
from twinstore_mongo.mapping.object_ids import ReplacedIds
from twinstore_mongo.mapping.stored_values import MONGO_VALUES, MongoValues

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

ENTITIES = {entity.name: entity for entity in (RUNS, WARES, AUDIT, SCHEDULES)}
OID = ObjectId("65a1b2c3d4e5f60718293a4b")
WORDS = (
    "done",
    "a\uf8ffb",
    "n/a",
    "1",
    "true",
    "",
    " ",
    "\u2003a\n",
    "\x1fa ",
    "a\0b",
    "x\udcffy",
    "ab",
    "aab",
)
DATES: tuple[str, ...] = (
    "01.03.2024 13:30",
    "1.3.24 1:30",
    "27.10.2024 02:30",
    "31.03.2024 02:30",
    "31.02.2024 10:00",
)
DATES += ("02.03.2024", "2024-03-01", "1709296200", "-1", "1 March 2024 1:05 pm", "2024-03-01T00:00:00Z")
DATES += ("Fri, 01 Mar 2024 12:30:00 +0100", "MAR 1 2024", "20240301", "9" * 19, "1709296200123456")
NUMBERS: tuple[str, ...] = (
    "0",
    "-0",
    "12",
    "-12.50",
    "0.1",
    "1.10",
    "007",
    "+1",
    "1e3",
    "1.",
    ".5",
    "9223372036854775808",
)
NUMBERS += ("0.30000000000000004", "0.1000000000000000055", "123456789012345678", "1" * 40, "0.00001")
IDS = (str(OID), str(OID).upper(), str(OID)[1:], f"{OID}0")
TEXTS = st.sampled_from((*WORDS, *DATES, *NUMBERS, *IDS))
SCALARS = st.one_of(
    TEXTS,
    st.none(),
    st.booleans(),
    st.sampled_from((0, 1, -1, 12, 1709296200, 1709296200000)),
    st.sampled_from((Int64(1), Int64(1709296200000000), Int64(2**62))),
    st.sampled_from((0.1, 1.0, -0.0, 12.5, 1709296200.0, 1e300, float("nan"), float("inf"))),
    st.sampled_from(("0", "1.50", "12E+2", "-1.5E-3", "1E+40", "NaN", "-0")).map(Decimal128),
    st.just(OID),
    st.sampled_from((OID, str(OID), "x", None)).map(lambda value: DBRef("schedules", value)),
    st.sampled_from((datetime(2024, 3, 1, 12, 30), datetime(1960, 1, 1))),  # noqa: DTZ001  # as the client has them
    st.just(Binary(bytes(16), UUID_SUBTYPE)),
    st.just(b"bytes"),
)
NAMES = ("a", "at", "old", "queued", "newHigh", "detectedAt", "b.c", "a\0", "A")
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=3),
    max_leaves=5,
)
OBJECTS = st.dictionaries(st.sampled_from(NAMES), VALUES, max_size=4)
TOPS = {
    "_id": st.sampled_from(("r1", OID, str(OID))),
    "id": SCALARS,
    "state": SCALARS,
    "error": VALUES,
    "createdAt": SCALARS,
    "price": SCALARS,
    "design": SCALARS,
    "weights": st.lists(SCALARS, max_size=3),
    "stats": OBJECTS | VALUES,
    "deltas": st.lists(OBJECTS | VALUES, max_size=3) | VALUES,
    "m": OBJECTS | VALUES,
    "legacy": VALUES,
    "tenantId": st.sampled_from(("t", "u", "t", "u", None, 1)),
    # A name that documents have for themselves.
    "deletedBy": SCALARS,
}
OPTIONAL: dict[Any, st.SearchStrategy[Any]] = {name: values for name, values in TOPS.items() if name != "_id"}
REQUIRED: dict[Any, st.SearchStrategy[Any]] = {"_id": TOPS["_id"]}
DOCUMENTS = st.fixed_dictionaries(REQUIRED, optional=OPTIONAL)
PATHS = st.sampled_from(
    (
        *((name,) for name in TOPS if name not in {"_id", "id"}),
        ("stats", "queued"),
        ("stats", "old"),
        ("deltas", "at"),
        ("deltas", "detectedAt"),
        ("deltas", "newHigh"),
        ("m", "*"),
        ("m", "*", "a"),
        ("m", "b.c"),
        ("m", "a", "at"),
    )
)
MODEL_PATHS = st.sampled_from(
    (("state",), ("error",), ("createdAt",), ("price",), ("stats", "queued"), ("deltas", "detectedAt"))
)
FORMATS: tuple[str, ...] = (
    "%d.%m.%Y %H:%M",
    "%d.%m.%Y",
    "%m.%d.%Y",
    "%Y-%m-%d",
    "%d %B %Y %I:%M %p",
    "%b %d %Y",
    "%Y%m%d",
)
FORMATS += ("%a, %d %b %Y %H:%M:%S %z", "epoch-seconds", "epoch-milliseconds", "epoch-microseconds")


def of(
    kind: type[Rule],
    path: st.SearchStrategy[tuple[str, ...]] = PATHS,
    **more: Any,  # noqa: ANN401  # the parts of any rule
) -> st.SearchStrategy[Rule]:
    """Return rules of a kind."""
    return st.builds(kind, number=st.just(0), line=st.just(1), entity=st.just("*"), path=path, **more)


def moves(item: Rule) -> bool:
    """Whether a rule moves a value out of its place; who checks rules refuses the others."""
    return isinstance(item, RenameRule) and not all(
        one == other for one, other in zip(item.path, item.to, strict=False)
    )


RULES = st.one_of(
    of(ReplaceRule, old=st.sampled_from(("a", "ab", ".", "\0")), by=st.sampled_from(("", "z", "aa"))),
    of(ReplaceRule, what=st.sampled_from(("nul", "invalid-utf-8")), by=st.sampled_from(("", "?"))),
    of(TrimRule, empty=st.booleans()),
    of(
        MapRule,
        values=st.dictionaries(
            st.sampled_from(("done", "1", "true", "", "12", "a")),
            st.sampled_from(("x", 1, 2.5, True)),
            max_size=3,
        ),
        absent=st.sampled_from(((), ("n/a", ""), ("false", "-1"))),
    ).filter(lambda item: isinstance(item, MapRule) and item.values.keys().isdisjoint(item.absent)),
    of(
        DateRule,
        formats=st.lists(st.sampled_from(FORMATS), min_size=1, max_size=3, unique=True).map(tuple),
        zone=st.sampled_from(("Europe/Zurich", "UTC")),
    ),
    of(
        NumberRule,
        source=st.sampled_from(("text", "decimal")),
        factor=st.sampled_from(tuple(map(Decimal, ("1", "60", "0.001", "100", "1E+3", "-2")))),
    ),
    of(IdRule, to=st.sampled_from(("uuid", "text"))),
    of(IdRule, path=st.just(("_id",)), to=st.sampled_from(("uuid", "text"))),
    of(
        DeriveRule,
        path=MODEL_PATHS,
        how=st.sampled_from(("max", "min", "first", "last", "count")),
        of=st.sampled_from(
            (("deltas",), ("deltas", "at"), ("m", "*"), ("m", "*", "a"), ("weights",), ("legacy", "a"))
        ),
    ),
    of(RenameRule, to=MODEL_PATHS, keep=st.booleans()).filter(moves),
    of(DropRule),
    of(KeyRule, path=st.just(("id",))),
    of(
        DefaultRule,
        path=MODEL_PATHS,
        value=st.sampled_from(("x", 1, 2.0, False, "2024-03-01T12:30:00Z", ["a"], {"a": 1})),
    ),
)


def separate(rules: list[Rule]) -> tuple[Rule, ...]:
    """Return the rules that a job may have together, with their numbers."""
    kept: list[Rule] = []
    for item in rules:
        overlaps = any(
            (type(item) is type(other) and item.path == other.path and not isinstance(item, ReplaceRule))
            or inside(item, other)
            or inside(other, item)
            for other in kept
        )
        if not overlaps:
            kept.append(item)
    return tuple(with_number(item, number) for number, item in enumerate(kept, 1))


def inside(one: Rule, other: Rule) -> bool:
    """Whether a rule drops what another one changes there; what a rename takes out is moved before."""
    drops = isinstance(one, DropRule) and not isinstance(other, RenameRule)
    return drops and other.path[: len(one.path)] == one.path


def with_number(item: Rule, number: int) -> Rule:
    """Return a rule with its place in the file."""
    found = deepcopy(item)
    object.__setattr__(found, "number", number)
    return found


def outcome(change: DocumentChange | None, document: dict[str, object]) -> object:
    """Return a document after a change, with the types of its values, or that it is refused."""
    if change is None:
        return form(document), ()
    try:
        changed = change(deepcopy(document), ROWS)
    except ChangeRefusedError as error:
        return str(error)
    return form(changed.document), tuple(changed.rules)


def form(value: object) -> object:
    """Return a stored value so that values of two types differ; of integers the bits do not count."""
    if isinstance(value, dict):
        return {name: form(item) for name, item in value.items()}
    if isinstance(value, list):
        return list(map(form, value))
    if isinstance(value, Int64):
        return "int", int(value)
    if isinstance(value, datetime) and value.tzinfo is not None:
        value = value.astimezone(UTC).replace(tzinfo=None)
    return type(value).__name__, repr(value)


class Rows(MongoValues):
    """Finds no row, one, or several, and one of another tenant."""

    @override
    def found(self, lookup: Lookup, owner: StoredOwner, values: Sequence[object]) -> Iterator[FoundRow]:
        for value in map(self.read, values):
            for number in range((1, 1, 0, 2)[len(str(value)) % 4]):
                yield FoundRow(value, owner, (f"{number}{str(OID)[1:]}",))
            yield FoundRow(value, Tenant("another"), (str(OID),))


ROWS = Rows()
OTHERS: dict[str, Any] = {"other": st.sampled_from(("schedules", "wares")), "by": st.just("name")}
JOBS = {
    "rules": st.lists(RULES | of(LookupRule, **OTHERS), min_size=1, max_size=4).map(separate),
    "document": DOCUMENTS,
    "name": st.sampled_from(tuple(ENTITIES)),
}


LONG_NUMBER = NumberRule(
    number=1, line=1, entity="*", path=("price",), source="text", factor=Decimal("0.001")
)


@settings(max_examples=400)
@given(**JOBS)
@example(
    rules=separate(
        [NumberRule(number=1, line=1, entity="*", path=("price",), source="text", factor=Decimal("0.001"))]
    ),
    document={"_id": "r1", "price": "1" * 31},
    name="wares",
)
def test_a_copy_and_a_verification_change_every_document_alike(
    rules: tuple[Rule, ...], document: dict[str, object], name: str
) -> None:
    agree(rules, document, name)


def agree(rules: tuple[Rule, ...], document: dict[str, object], name: str) -> None:
    """Compare the two changes of one document."""
    job, entities = JobRules(rules), list(ENTITIES.values())
    copied, verified = copier_changes(job, entities), verifier_changes(job, entities)
    assert (copied.keys, copied.ids) == (verified.keys, verified.ids)
    assert copied.documents.keys() == verified.documents.keys()
    both = (copied.documents.get(name), verified.documents.get(name))
    assert getattr(both[0], "dropped", None) == getattr(both[1], "dropped", None)
    assert outcome(both[0], document) == outcome(both[1], document)


@settings(max_examples=200)
@given(
    item=of(LookupRule, st.sampled_from((("state",), ("legacy",))), **OTHERS),
    more=st.lists(RULES, max_size=2),
    document=st.fixed_dictionaries(
        {"_id": TOPS["_id"], "tenantId": TOPS["tenantId"], "state": TEXTS, "legacy": st.lists(SCALARS)}
    ),
)
def test_they_look_rows_up_alike(item: Rule, more: list[Rule], document: dict[str, object]) -> None:
    agree(separate([item, *more]), document, "runs")


@pytest.mark.long
@settings(max_examples=20_000)
@given(**JOBS)
def test_they_agree_about_many_more_documents(
    rules: tuple[Rule, ...], document: dict[str, object], name: str
) -> None:
    agree(rules, document, name)


BACKWARDS = st.one_of(
    of(
        MapRule,
        values=st.dictionaries(
            st.sampled_from(("done", "", "a", "ab")), st.sampled_from(("x", "n/a", 12, True)), max_size=3
        ),
    ).filter(lambda item: isinstance(item, MapRule) and len(set(item.values.values())) == len(item.values)),
    of(IdRule, to=st.sampled_from(("uuid", "text"))),
    of(RenameRule, to=MODEL_PATHS).filter(moves),
)
# What those rules make of an ObjectId, and what some UUID is.
MADE = st.sampled_from((uuid_of(str(OID)), UUID(int=1))).flatmap(
    lambda found: st.sampled_from((str(found), found.hex, Binary(found.bytes, UUID_SUBTYPE)))
)


@settings(max_examples=400)
@given(
    rules=st.lists(BACKWARDS, min_size=1, max_size=4).map(separate),
    document=st.fixed_dictionaries(
        REQUIRED, optional={**OPTIONAL, "state": MADE | SCALARS, "price": MADE | SCALARS}
    ),
    name=st.sampled_from(tuple(ENTITIES)),
)
def test_what_a_copy_writes_backwards_reads_forward_as_the_same_or_is_refused(
    rules: tuple[Rule, ...], document: dict[str, object], name: str
) -> None:
    job = JobRules(rules, reverse=True)
    written = backward_changes(job, [ENTITIES[name]]).written
    if name not in written:
        return
    try:
        back = written[name](deepcopy(document), MONGO_VALUES).document
    except ChangeRefusedError:
        return
    forward = verifier_changes(job, [ENTITIES[name]]).documents[name]
    assert form(forward(back, MONGO_VALUES).document) == form(document)


OLD = st.sampled_from(("done", "", "a", "other", OID, None, 3, 0.5, b"bytes", datetime(2024, 3, 1)))  # noqa: DTZ001  # as the client has them


@given(
    st.fixed_dictionaries(
        {"_id": st.just("r1")},
        optional={
            "status": OLD,
            "error": OLD | st.lists(OLD, max_size=3),
            "problem": OLD,
            "stats": st.dictionaries(st.sampled_from(("pending", "at")), OLD) | OLD,
            "deltas": st.lists(st.dictionaries(st.sampled_from(("at", "b.c")), OLD), max_size=3),
            "scheduleId": OLD,
        },
    ),
    st.sampled_from(("uuid", "text")),
)
def test_a_document_of_the_old_form_goes_forward_and_comes_back(
    document: dict[str, object], to: Literal["uuid", "text"]
) -> None:
    parts: dict[str, Any] = {"line": 1, "entity": "runs"}
    rules = (
        MapRule(number=1, path=("status",), values={"done": "completed", "a": True}, **parts),
        MapRule(number=2, path=("deltas", "at"), values={"": "none", "a": "b"}, **parts),
        RenameRule(number=3, path=("status",), to=("state",), **parts),
        RenameRule(number=4, path=("stats", "pending"), to=("stats", "queued"), **parts),
        RenameRule(number=5, path=("problem",), to=("reason",), **parts),
        RenameRule(number=6, path=("deltas", "at"), to=("deltas", "detectedAt"), **parts),
        IdRule(number=7, path=("scheduleId",), to=to, **parts),
        IdRule(number=8, path=("deltas", "b.c"), to=to, **parts),
    )
    changes = backward_changes(JobRules(rules, reverse=True), [RUNS])
    forward = changes.documents["runs"](deepcopy(document), MONGO_VALUES).document
    assert form(changes.written["runs"](forward, MONGO_VALUES).document) == form(document)


NOON = datetime(2024, 3, 1, 12)  # noqa: DTZ001  # as the client has dates
BASES: dict[str, dict[str, object]] = {
    "schedules": {
        "schemaVersion": "scheduler.schedule@1",
        "tenantId": "t",
        "name": "s",
        "enabled": False,
        "whenCron": "0 * * * *",
        "timezone": "UTC",
        "mode": "analysis-only",
        "selection": {"scope": "all-images"},
        "createdAt": NOON,
        "createdBy": "ada",
        "updatedAt": NOON,
        "updatedBy": "ada",
    },
    "runs": {
        "schemaVersion": "scheduler.run@1",
        "tenantId": "t",
        "trigger": "manual",
        "state": "queued",
        "createdAt": NOON,
    },
    "audit": {
        "tenantId": "t",
        "category": "c",
        "action": "a",
        "occurredAt": NOON,
        "actor": {"actorId": "a", "displayName": "A", "kind": "user"},
    },
    "wares": {"tenantId": "t", "batch": "b", "name": "n", "price": Decimal128("1.5"), "_version": Int64(1)},
}
# Three bytes, which become three wrong ones.
BROKEN = "\uf8ff"


@settings(max_examples=400)
@given(**JOBS)
def test_a_copy_stores_what_a_verification_expects(
    rules: tuple[Rule, ...], document: dict[str, object], name: str
) -> None:
    entity, job = ENTITIES[name], JobRules(rules)
    try:
        raw = bson.encode({**BASES[name], **document})
    except (InvalidDocument, UnicodeEncodeError):
        return  # no document of a server
    raw = raw.replace(BROKEN.encode(), b"\xff\xff\xff")
    copied = copier_changes(job, list(ENTITIES.values()))
    ids = None if name not in copied.ids else ReplacedIds.of(entity.key_parts[0].type, copied.ids[name])
    place, change = place_of(entity, copied), copied.documents.get(name)
    exporter = Exporter(codec_after(entity, copied), frozenset(), change, place, ids, ROWS)
    (record,) = exporter.records(raw)
    scan = CollectionScan.of(entity, verifier_changes(job, list(ENTITIES.values())))
    (row,) = replace(scan, values=ROWS).rows(raw)
    expected = RowExpectation(entity, job.of(entity, DropRule)).of(row)
    if record.model is None:
        assert row.key is None or isinstance(expected, Refused)
        return
    assert isinstance(expected, Expected)
    assert (record.key, record.owner, tuple(record.rules)) == (row.key, row.owner, row.rules)
    stored = json_text.dumps_sorted({"doc": record.model.wire(), "storage": dict(record.storage)})
    assert stored == expected.content


# At the ends of what stores hold, and beyond.
ODD = [
    *(
        "0.5" + "0" * 397,
        "1" + "0" * 399,
        "0." + "0" * 397 + "1",
        "-" + "9" * 399,
        "0" * 400,
        "4.9" + "0" * 390,
    ),
    *(Decimal128(text) for text in ("1E-6000", "-1E-6000", "0E-6000", "0E+6000", "1E+6000", "1E+20", "-0")),
    *(5e-324, 1e308, -1e-300, 1e20, 1e19, Int64(2**62)),
]


@pytest.mark.parametrize(
    "item",
    [
        *(
            DateRule(number=1, line=1, entity="runs", path=("createdAt",), formats=(text,))
            for text in ("epoch-seconds", "epoch-milliseconds", "epoch-microseconds")
        ),
        *(
            NumberRule(number=1, line=1, entity="*", path=(name,), source=source, factor=Decimal(factor))
            for name in ("createdAt", "price")
            for source in ("text", "decimal")
            for factor in ("1", "0.001", "1E-400", "1E+400", "1E-395", "-7", "1E+308")
        ),
    ],
)
def test_they_read_odd_numbers_alike(item: Rule) -> None:
    for value in ODD:
        for name in ("runs", "wares"):
            agree((item,), {"_id": "r1", item.path[0]: value}, name)


def test_they_count_the_values_of_any_names_alike() -> None:
    rule = DeriveRule(number=1, line=1, entity="runs", path=("stats", "queued"), how="count", of=("m", "*"))
    agree((rule,), {"_id": "r1", "stats": {}, "m": {"a": 1, "b": None}}, "runs")
