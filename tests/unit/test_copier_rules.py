"""The rules of a job as a copy applies them: each kind on documents, and the records of changed ones."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Context, Decimal
from typing import TYPE_CHECKING, Any
from uuid import UUID
from zoneinfo import ZoneInfo

import bson
import pytest
from bson import Binary, DBRef, Decimal128, Int64, ObjectId
from bson.binary import UUID_SUBTYPE
from hypothesis import given
from hypothesis import strategies as st

from twinstore.bulk.changes import NO_CHANGES, ChangeRefusedError
from twinstore.bulk.rows import Original
from twinstore.catalog.tenancy import Tenant
from twinstore.errors import ValidationError
from twinstore.models.shapes import Kind
from twinstore.scheduler.catalog import AUDIT, RUNS, SCHEDULES
from twinstore.taskrunner.catalog import PACK_RUN_LOGS, PACK_RUNS
from twinstore.testing.typed_entities import WARES
from twinstore_backfill.copy.rules import copier_changes
from twinstore_backfill.copy.rules.dates import LocalTimeError, reader_of
from twinstore_backfill.copy.rules.ids import digits_of, uuid_of
from twinstore_backfill.copy.rules.numbers import InexactError, product
from twinstore_backfill.copy.rules.selection import check_selection, decides_tenant
from twinstore_backfill.copy.rules.tallies import RuleTally, counted_rules
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
from twinstore_mongo.bulk.export import Exporter
from twinstore_mongo.bulk.places import codec_after, place_of
from twinstore_mongo.mapping.object_ids import ReplacedIds
from twinstore_mongo.mapping.stored_values import MONGO_VALUES

if TYPE_CHECKING:
    from twinstore.bulk.port import Record
    from twinstore.catalog.entity import Entity

HEX = "5f43a1b2c3d4e5f60718293a"
# 1598267826 seconds are 0x0174202f9f50 milliseconds; then c3d, and 4e5f60718293a with ten bits behind it.
UUID_TEXT = "0174202f-9f50-7c3d-9397-d81c60a4e800"
NOON = datetime(2021, 7, 1, 12)  # noqa: DTZ001  # as the client gives instants
RUN = {
    "_id": "r1",
    "schemaVersion": "scheduler.run@1",
    "tenantId": "acme",
    "trigger": "manual",
    "state": "queued",
    "stats": dict.fromkeys(
        (
            "candidates",
            "completed",
            "deduped",
            "deltas",
            "newCriticals",
            "newHigh",
            "newLow",
            "newMedium",
            "queued",
        ),
        0,
    ),
    "createdAt": NOON,
}


def rule(kind: type[Rule], path: str, number: int = 1, entity: str = "runs", **more: Any) -> Any:  # noqa: ANN401
    """Return a rule of any kind."""
    return kind(number=number, line=number, entity=entity, path=tuple(path.split(".")), **more)


def changed(
    document: dict[str, object], *rules: Rule, entity: Entity = RUNS
) -> tuple[dict[str, object], list[int]]:
    """Return a document after rules, and the numbers of those that changed it."""
    changes = copier_changes(JobRules(rules), [entity])
    found = changes.documents[entity.name](document, MONGO_VALUES)
    return found.document, list(found.rules)


def date(*formats: str, zone: str | None = None) -> Rule:
    """Return a rule for the instant of a run."""
    found: Rule = rule(DateRule, "createdAt", formats=formats, zone=zone)
    return found


WORDS = {"Done": "completed", "7": "error", "false": "queued"}
MAP = rule(MapRule, "state", values=WORDS, absent=("", "n/a"))
SWISS = date("%d.%m.%Y %H:%M", "epoch-milliseconds", zone="Europe/Zurich")
QUEUED = rule(NumberRule, "stats.queued", source="text")
CENTS = rule(NumberRule, "stats.queued", source="text", factor=Decimal(100))

CASES: tuple[tuple[Rule, dict[str, object], dict[str, object] | str], ...] = (
    (rule(ReplaceRule, "error", old="a.c", by="-"), {"error": "a.c abc a.c"}, {"error": "- abc -"}),
    (
        rule(ReplaceRule, "reason", what="nul", by=" "),
        {"reason": {"a\0": ["x\0", 1]}},
        {"reason": {"a ": ["x ", 1]}},
    ),
    (
        rule(ReplaceRule, "reason", what="nul"),
        {"reason": {"a\0": 1, "a": 2}},
        "makes two names of an object equal",
    ),
    (rule(TrimRule, "error"), {"error": "\u00a0 a\n"}, {"error": "a"}),
    (rule(TrimRule, "error", empty=True), {"error": " \t", "x": ""}, {"x": ""}),
    (rule(TrimRule, "tags", empty=True), {"tags": ["", "a ", {}]}, {"tags": ["a"]}),
    (rule(TrimRule, "tags", empty=True), {"tags": ["", []]}, {}),
    (MAP, {"state": "Done"}, {"state": "completed"}),
    (MAP, {"state": Int64(7)}, {"state": "error"}),
    (MAP, {"state": False}, {"state": "queued"}),
    (MAP, {"state": "n/a"}, {}),
    (MAP, {"state": ["Done", "", "Done."]}, {"state": ["completed", "Done."]}),
    (rule(MapRule, "m.*.on", values={"yes": True}), {"m": {"a": {"on": "yes"}}}, {"m": {"a": {"on": True}}}),
    (SWISS, {"createdAt": "01.07.2021 14:00"}, {"createdAt": NOON}),
    (SWISS, {"createdAt": 1625140800000}, {"createdAt": NOON}),
    (SWISS, {"createdAt": "1625140800000"}, {"createdAt": NOON}),
    (SWISS, {"createdAt": "31.10.2021 02:30"}, "finds a local time that its zone has twice or never"),
    (SWISS, {"createdAt": "28.03.2021 02:30"}, "finds a local time that its zone has twice or never"),
    (
        date("%d/%m/%Y", "%m/%d/%Y", zone="UTC"),
        {"createdAt": "02/03/2021"},
        "finds two formats that give different",
    ),
    (
        date("%d/%m/%Y %H", "%m/%d/%Y %H", zone="UTC"),
        {"createdAt": "07/07/2021 12"},
        {"createdAt": NOON + timedelta(6)},
    ),
    (date("%A, %d %B %Y %I %p %z"), {"createdAt": "thursday, 1 July 2021 02 PM +0200"}, {"createdAt": NOON}),
    (
        date("%Y-%m-%dT%H:%M:%S.%fZ", zone="UTC"),
        {"createdAt": "2021-07-01T12:00:00.0009Z"},
        {"createdAt": NOON},
    ),
    (QUEUED, {"stats": {"queued": "-0042.0"}}, {"stats": {"queued": -42}}),
    (
        QUEUED,
        {"stats": {"queued": "9223372036854775808"}},
        "finds a number that the field does not hold exactly",
    ),
    (QUEUED, {"stats": {"queued": "0.5"}}, "finds a number that the field does not hold exactly"),
    (CENTS, {"stats": {"queued": "0.5"}}, {"stats": {"queued": 50}}),
    (rule(IdRule, "scheduleId", to="text"), {"scheduleId": ObjectId(HEX)}, {"scheduleId": HEX}),
    (
        rule(IdRule, "scheduleId", to="uuid"),
        {"scheduleId": DBRef("x", HEX.upper())},
        {"scheduleId": UUID_TEXT},
    ),
    (
        rule(DeriveRule, "finishedAt", how="max", of=("e", "at")),
        {"e": [{"at": 2}, {}, {"at": 5}]},
        {"e": [{"at": 2}, {}, {"at": 5}], "finishedAt": 5},
    ),
    (
        rule(DeriveRule, "finishedAt", how="min", of=("e", "at")),
        {"e": [{"at": 2}, {"at": "3"}]},
        "finds values that cannot be compared",
    ),
    (
        rule(DeriveRule, "error", how="first", of=("e",)),
        {"e": [None, {"a": 1}]},
        {"e": [None, {"a": 1}], "error": {"a": 1}},
    ),
    (
        rule(DeriveRule, "stats.queued", how="count", of=("e",)),
        {"e": [1, 2], "stats": {}},
        {"e": [1, 2], "stats": {"queued": 2}},
    ),
    (rule(RenameRule, "old.at", to=("createdAt",)), {"old": {"at": NOON}}, {"old": {}, "createdAt": NOON}),
    (rule(RenameRule, "at", to=("x", "y"), keep=True), {"at": [1]}, {"at": [1], "x": {"y": [1]}}),
    (rule(RenameRule, "d.a", to=("d", "b")), {"d": [{"a": 1}, {"b": 2}]}, {"d": [{"b": 1}, {"b": 2}]}),
    (rule(RenameRule, "a", to=("a", "b")), {"a": {"c": 1}}, {"a": {"b": {"c": 1}}}),
    (rule(RenameRule, "a", to=("b",)), {"a": 1, "b": 2}, "finds another value at the new place"),
    (rule(RenameRule, "a.x", to=("b",)), {"a": [{"x": 1}]}, "finds several values for one place"),
    (rule(RenameRule, "a", to=("b", "c")), {"a": 1, "b": 2}, "finds no object around the new place"),
    (rule(DropRule, "stats.*.old"), {"stats": {"a": [{"old": 1}], "b": 2}}, {"stats": {"a": [{}], "b": 2}}),
    (rule(DefaultRule, "error", value=["a", {"b": 1}]), {"error": None}, {"error": ["a", {"b": 1}]}),
    (rule(DefaultRule, "createdAt", value="2021-07-01T14:00:00+02:00"), {}, {"createdAt": NOON}),
    (rule(DefaultRule, "d.n", value=0), {"d": [{}, {"n": 1}]}, {"d": [{"n": 0}, {"n": 1}]}),
)


@pytest.mark.parametrize(("given_rule", "before", "after"), CASES)
def test_a_rule_changes_or_refuses(
    given_rule: Rule, before: dict[str, object], after: dict[str, object] | str
) -> None:
    if isinstance(after, str):
        with pytest.raises(ChangeRefusedError, match=f"{given_rule.kind}.* {after}") as caught:
            changed(before, given_rule)
        assert str(caught.value).startswith(f"{given_rule.text}: ")
        return
    found = changed(before, given_rule)
    assert found == (after, [1])
    assert bson.encode(found[0]) == bson.encode(after)  # also of the same types, in this order


UNCHANGED: tuple[tuple[Rule, dict[str, object]], ...] = (
    (rule(ReplaceRule, "error", old="a"), {"error": {"a": "a"}}),
    (rule(TrimRule, "error", empty=True), {"error": None, "other": " "}),
    (MAP, {"state": "done"}),
    (MAP, {"state": 7.0}),
    (rule(MapRule, "state", values={"a": "a"}), {"state": "a"}),
    (SWISS, {"createdAt": "30.02.2021 12:00"}),
    (SWISS, {"createdAt": "2021-07-01T12:00:00Z"}),
    (date("epoch-seconds"), {"createdAt": "1e9"}),
    (date("epoch-seconds"), {"createdAt": 10**15}),
    (date("%d%m%Y", zone="UTC"), {"createdAt": "1112021"}),  # which may be the 1st of November
    (QUEUED, {"stats": {"queued": "1,5"}}),
    (CENTS, {"stats": {"queued": 5}}),
    (rule(IdRule, "scheduleId", to="text"), {"scheduleId": HEX}),
    (rule(IdRule, "scheduleId", to="uuid"), {"scheduleId": UUID_TEXT}),
    (rule(DeriveRule, "error", how="last", of=("e",)), {"error": None, "e": ["a"]}),
    (rule(DeriveRule, "error", how="count", of=("e", "x")), {"e": [{}]}),
    (rule(RenameRule, "a.b", to=("c",)), {"a": 1}),
    (rule(RenameRule, "a", to=("c",), keep=True), {"a": 1, "c": 1}),
    (rule(DefaultRule, "stats.queued", value=0), {"stats": 1}),
)


@pytest.mark.parametrize(("given_rule", "document"), UNCHANGED)
def test_a_rule_leaves_what_it_does_not_cover(given_rule: Rule, document: dict[str, object]) -> None:
    before = bson.encode(document)
    assert changed(document, given_rule)[1] == []
    assert bson.encode(document) == before


def test_kinds_apply_in_order_and_a_refusal_does_not_stop_the_others() -> None:
    rules = (
        rule(DefaultRule, "trigger", 1, value="cron"),
        rule(RenameRule, "firma", 2, to=("tenantId",)),
        rule(MapRule, "firma", 3, values={"A": "acme"}),
        rule(TrimRule, "firma", 4),
        rule(NumberRule, "stats.queued", 5, source="text"),
    )
    assert changed({"firma": " A ", "stats": {}}, *rules) == (
        {"tenantId": "acme", "trigger": "cron", "stats": {}},
        [1, 2, 3, 4],
    )
    with pytest.raises(ChangeRefusedError) as caught:
        changed({"firma": " A ", "stats": {"queued": "0.1"}}, *rules)
    assert caught.value.document is not None
    assert caught.value.document["tenantId"] == "acme"


def test_results_have_the_type_of_the_field_where_they_end() -> None:
    rules = (
        rule(NumberRule, "cost", 1, "wares", source="text", factor=Decimal("0.1")),
        rule(RenameRule, "cost", 2, "wares", to=("price",)),
        rule(IdRule, "design", 3, "wares", to="uuid"),
        rule(IdRule, "maker", 4, "wares", to="text"),
        rule(DefaultRule, "weight", 5, "wares", value="1.50"),
    )
    given_document = {"cost": "12.5", "design": ObjectId(HEX), "maker": DBRef("makers", ObjectId(HEX))}
    assert changed(given_document, *rules, entity=WARES)[0] == {
        "design": Binary(UUID(UUID_TEXT).bytes, UUID_SUBTYPE),
        "maker": ObjectId(HEX),
        "price": Decimal128("1.25"),
        "weight": Decimal128("1.50"),
    }


@pytest.mark.parametrize(
    ("digits", "uuid"),
    [
        ("0" * 24, "00000000-0000-7000-8000-000000000000"),
        ("000000010000000000000001", "00000000-03e8-7000-8000-000000000400"),
        (HEX, UUID_TEXT),
        ("f" * 24, "03e7ffff-fc18-7fff-bfff-fffffffffc00"),
    ],
)
def test_the_uuid_of_an_object_id_has_these_bits(digits: str, uuid: str) -> None:
    found = uuid_of(digits)
    assert (str(found), found.version, found.variant) == (uuid, 7, "specified in RFC 4122")
    assert digits_of(found) == digits


@pytest.mark.parametrize(
    "uuid",
    [
        # Another version, variant, part of a second, last bit, and a second that no ObjectId has.
        "00000000-03e8-4000-8000-000000000400",
        "00000000-03e8-7000-c000-000000000400",
        "00000000-03e9-7000-8000-000000000400",
        "00000000-03e8-7000-8000-000000000401",
        "03e80000-0000-7000-8000-000000000400",
        "ffffffff-ffff-ffff-ffff-ffffffffffff",
    ],
)
def test_any_other_uuid_comes_of_no_object_id(uuid: str) -> None:
    assert digits_of(UUID(uuid)) is None


@given(st.binary(min_size=12, max_size=12), st.binary(min_size=12, max_size=12))
def test_uuids_sort_as_their_object_ids_and_are_those_that_the_driver_reads_back(
    one: bytes, other: bytes
) -> None:
    assert (str(uuid_of(one.hex())) < str(uuid_of(other.hex()))) == (one < other)
    ids = ReplacedIds.of(RUNS.key_parts[0].type, "uuid")
    assert ids.stored([(str(uuid_of(one.hex())),)]) == [ObjectId(one)]


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_a_double_written_out_is_read_as_itself(value: float) -> None:
    digits = Decimal(repr(value))
    assert product(digits, Decimal(1), Kind.NUMBER) == value
    with pytest.raises(InexactError):
        product(Context(prec=2000).add(digits, Decimal("1e-400")), Decimal(1), Kind.NUMBER)


@given(st.datetimes(datetime(1800, 1, 1), datetime(2200, 1, 1)))  # noqa: DTZ001  # local
def test_a_local_time_is_read_as_the_one_instant_that_shows_it(local: datetime) -> None:
    zone = ZoneInfo("America/New_York")
    read = reader_of("%Y-%m-%d %H:%M:%S.%f", "America/New_York")
    near = [local.replace(tzinfo=UTC) + timedelta(minutes=minutes) for minutes in range(200, 320)]
    meant = {instant for instant in near if instant.astimezone(zone).replace(tzinfo=None) == local}
    try:
        found = read(local.strftime("%Y-%m-%d %H:%M:%S.%f"))
    except LocalTimeError:
        found = None
    if len(meant) == 1:
        assert {found} == meant


# Records of the driver.


def exporter(*rules: Rule, entity: Entity = RUNS) -> Exporter:
    """Return what reads documents of an entity under rules."""
    changes = copier_changes(JobRules(rules), [entity]) if rules else NO_CHANGES
    to = changes.ids.get(entity.name)
    return Exporter(
        codec_after(entity, changes),
        change=changes.documents.get(entity.name),
        place=place_of(entity, changes),
        ids=None if to is None else ReplacedIds.of(entity.key_parts[0].type, to),
    )


def read(document: dict[str, object] | bytes, *rules: Rule, entity: Entity = RUNS) -> Record:
    """Return the record of a document under rules."""
    raw = document if isinstance(document, bytes) else bson.encode(document)
    (record,) = exporter(*rules, entity=entity).records(raw)
    return record


def test_a_record_is_that_of_the_changed_document_and_keeps_the_stored_one() -> None:
    raw = bson.encode({**RUN, "state": "Done", "tenantId": "A"})
    (record,) = exporter(MAP, rule(MapRule, "tenantId", 2, values={"A": "acme"})).records(raw)
    assert (record.key, record.owner, list(record.rules)) == (("r1",), Tenant("acme"), [1, 2])
    assert record.model is None  # a completed run has to have a finishedAt
    assert record.error is not None
    assert "finishedAt" in record.error
    (again,) = exporter(MAP, rule(DefaultRule, "finishedAt", 2, value="2021-07-01T12:00:00Z")).records(raw)
    assert again.model is not None
    assert isinstance(again.original, Original)
    assert '"Done"' in "".join(again.original.pieces())
    assert not again.text_timestamp


def test_a_refused_row_has_the_key_and_the_owner_that_the_other_rules_give_it() -> None:
    move = rule(RenameRule, "firma", 2, to=("tenantId",))
    document: dict[str, object] = {**RUN, "firma": "acme", "stats": {"queued": "x.5", "deltas": "0.5"}}
    del document["tenantId"]
    record = read(document, rule(NumberRule, "stats.deltas", source="text"), move)
    assert (record.key, record.owner) == (("r1",), Tenant("acme"))
    assert record.error == "runs.stats.deltas: [[number]] finds a number that the field does not hold exactly"


def test_the_object_id_becomes_the_key_and_another_one_is_refused() -> None:
    to_uuid = rule(IdRule, "_id", to="uuid")
    assert read({**RUN, "_id": ObjectId(HEX)}, to_uuid).key == (UUID_TEXT,)
    assert read({**RUN, "_id": ObjectId(HEX)}, rule(IdRule, "_id", to="text")).key == (HEX,)
    other = read({**RUN, "_id": HEX}, to_uuid)
    assert (other.key, other.error) == (None, "its _id is not an ObjectId")


def test_a_field_becomes_the_key() -> None:
    key = rule(KeyRule, "no", entity="audit")
    event = {
        "_id": ObjectId(HEX),
        "no": "a1",
        "tenantId": "acme",
        "category": "run",
        "action": "made",
        "occurredAt": NOON,
        "actor": {"actorId": "a", "displayName": "A", "kind": "user"},
    }
    record = read(event, key, entity=AUDIT)
    assert (record.key, record.error, list(record.rules)) == (("a1",), None, [1])
    absences: tuple[dict[str, object], ...] = ({"no": None}, {"no": 5}, {})
    for absent in absences:
        left: dict[str, object] = {name: value for name, value in event.items() if name != "no"} | absent
        assert read(left, key, entity=AUDIT).key is None
    assert place_of(AUDIT, copier_changes(JobRules((key,)), [AUDIT])).key == ("no",)


@pytest.mark.parametrize(
    ("path", "error"), [("scheduleId", None), ("error", "holds text that is not UTF-8"), ("*", None)]
)
def test_wrong_bytes_are_read_only_where_a_rule_replaces_them(path: str, error: str | None) -> None:
    raw = bson.encode({**RUN, "scheduleId": "Z_rich"}).replace(b"Z_rich", b"Z\xfcrich")
    record = read(raw, rule(ReplaceRule, path, what="invalid-utf-8", by="?"))
    assert (record.error or "").startswith(error or "")
    assert (record.error is None) == (error is None)
    assert (record.key, record.owner) == (("r1",), Tenant("acme"))


def test_a_name_that_occurs_twice_is_seen_behind_wrong_bytes_too() -> None:
    twice = bson.encode({**RUN, "error": "Z_rich", "stata": "x"})
    twice = twice.replace(b"Z_rich", b"Z\xfcrich").replace(b"stata", b"state")
    record = read(twice, rule(ReplaceRule, "error", what="invalid-utf-8"))
    assert record.error == "state: the name occurs twice"


# Counts, and whose rows are read.


def test_rules_are_counted_by_a_name_that_stays_when_others_are_added() -> None:
    old, new = rule(ReplaceRule, "error", 1, old="a"), rule(ReplaceRule, "error", 2, old="b", reason="b")
    tally = RuleTally(JobRules((old, new)), RUNS)
    tally.add([1, 2])
    tally.add([2])
    assert tally.counts() == {"replace runs.error": 1, "replace runs.error (2)": 2}
    listed = counted_rules(JobRules((rule(DropRule, "x", 0), old, new)), tally.counts())
    assert [item["rows"] for item in listed] == [0, 1, 2]
    assert listed[2] == {"kind": "replace", "path": "runs.error", "reason": "b", "rows": 2}


def test_skipped_names_count_for_the_rules_that_drop_them_and_for_no_other_entity() -> None:
    drops = JobRules((rule(DropRule, "a", 1), rule(DropRule, "__v", 2, "*"), rule(DropRule, "b", 3, "audit")))
    tally = RuleTally(drops, RUNS)
    tally.add_dropped(4)
    assert tally.counts() == {"drop runs.a": 4, "drop *.__v": 4}
    with_more = RuleTally(JobRules((*drops, rule(TrimRule, "error", 4))), RUNS)
    with_more.add_dropped(4)
    assert with_more.counts() == {}
    assert with_more.drops([2, 4])
    assert not with_more.drops([4])


def test_only_rules_that_do_more_than_drop_at_the_top_take_the_fast_path_away() -> None:
    top, deep = rule(DropRule, "a"), rule(DropRule, "a.b")
    for rules, dropped in (((top,), {"a"}), ((deep,), None), ((top, MAP), None)):
        change = copier_changes(JobRules(rules), [RUNS, AUDIT]).documents["runs"]
        assert change.dropped == dropped
    assert "audit" not in copier_changes(JobRules((top,)), [RUNS, AUDIT]).documents


def test_a_rule_on_the_tenant_selects_rows_later_and_children_cannot_follow() -> None:
    moved = JobRules((rule(RenameRule, "firma", to=("tenantId",)),))
    mapped = JobRules((rule(MapRule, "tenantId", values={}),))
    assert decides_tenant(moved, RUNS)
    assert decides_tenant(mapped, RUNS)
    assert not decides_tenant(mapped, SCHEDULES)
    assert not decides_tenant(JobRules((MAP,)), RUNS)
    check_selection(mapped, [RUNS, SCHEDULES])
    owned = JobRules((rule(DefaultRule, "tenantId", entity="pack_runs", value="acme"),))
    with pytest.raises(ValidationError, match="--tenant selects the rows of pack_run_logs by their pack run"):
        check_selection(owned, [PACK_RUNS, PACK_RUN_LOGS])
