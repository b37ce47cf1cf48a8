"""One fact has one cause, however a driver, a copy or a verification says it."""

from __future__ import annotations

from itertools import combinations
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final, cast

import bson
import pytest
from bson import Code, ObjectId
from bson.binary import Binary

from twinstore.bulk.port import NO_PARENT, TOO_LARGE
from twinstore.bulk.unique_moves import UniqueConflict, conflict_reason, index_taken
from twinstore.catalog.keys import KeyRange
from twinstore.catalog.row import Row
from twinstore.scheduler.catalog import RUNS, SCHEDULES
from twinstore.testing.scheduler.builders import make_run, make_schedule
from twinstore_backfill.causes import OTHER, REPEATED, cause_of, no_key
from twinstore_backfill.copy.reader import RangeReader
from twinstore_backfill.rules.kinds import acceptable
from twinstore_backfill.rules.model import NO_RULES
from twinstore_backfill.subset import EVERYTHING
from twinstore_backfill.verify.expected import Refused, RowExpectation
from twinstore_backfill.verify.findings import FindingKind, RangeResult
from twinstore_backfill.verify.ranges import RowComparison
from twinstore_mongo.bulk.export import Exporter
from twinstore_mongo.bulk.scan import CollectionScan
from twinstore_mongo.mapping.codec import codec_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from twinstore.catalog.entity import Entity

BUILT: Final[dict[Any, Any]] = {SCHEDULES: make_schedule("acme", "s-1"), RUNS: make_run("acme", "r-1")}


class Reasons:
    """Keeps the reasons of a copy."""

    def __init__(self) -> None:
        self.found: list[str] = []

    def quarantine(self, entry: dict[str, object], original: Iterable[str] | None) -> None:
        """Keep one."""
        del original
        self.found.append(str(entry["reason"]))

    def conflict(self, entry: dict[str, object]) -> None:
        """Refuse: there is no target."""
        raise AssertionError(entry)


def document(entity: Entity, changes: dict[str, Any]) -> bytes:
    """Return a stored document with some values changed; those that are ``...`` are removed."""
    found = {**codec_of(entity).encode(Row(BUILT[entity])), **changes}
    return bson.encode({name: value for name, value in found.items() if value is not ...})


def twice(entity: Entity) -> bytes:
    """Return a document that holds a name twice."""
    content = document(entity, {})[4:-1] + bson.encode({"name": "other"})[4:-1]
    return (len(content) + 5).to_bytes(4, "little") + content + b"\0"


@pytest.mark.parametrize(
    ("entity", "raw", "cause"),
    [
        (RUNS, document(RUNS, {"state": "done"}), "model:state"),
        (RUNS, document(RUNS, {"stats": {"queued": "many"}}), "model:stats"),
        (RUNS, document(RUNS, {"priority": 3}), "unknown:priority"),
        (RUNS, document(RUNS, {"stats": {"old": 1}}), "unknown:stats.old"),
        (RUNS, document(RUNS, {"startedAt": "05.03.2019 11:00"}), "model:startedAt"),
        (RUNS, document(RUNS, {"state": "completed", "finishedAt": ...}), "model"),
        (RUNS, document(RUNS, {"tenantId": ...}), "tenant"),
        (RUNS, document(RUNS, {"tenantId": " acme"}), "tenant"),
        (RUNS, document(RUNS, {"error": Code("x")}), "model:error"),
        (SCHEDULES, document(SCHEDULES, {"whenCron": "0 0 12 * * ?"}), "model:whenCron"),
        (SCHEDULES, document(SCHEDULES, {"name": Binary(b"x", 7)}), "model:name"),
        (SCHEDULES, document(SCHEDULES, {"id": "other"}), "key"),
        (SCHEDULES, document(SCHEDULES, {"_id": ObjectId()}), "key"),
        (SCHEDULES, document(SCHEDULES, {"_id": " s-1", "id": ...}), "key"),
        (SCHEDULES, document(SCHEDULES, {"deletedAt": 5}), "model:deletedAt"),
        (SCHEDULES, twice(SCHEDULES), "model:name"),
    ],
)
def test_a_copy_and_a_verification_give_the_same_cause(entity: Entity, raw: bytes, cause: str) -> None:
    record = Exporter(codec_of(entity)).careful_record(raw)
    reasons = Reasons()
    assert RangeReader(entity, expired=None, lines=reasons).wanted([record]) == []
    (row,) = CollectionScan.of(entity).rows(raw)
    judged = RowExpectation(entity).of(row)
    assert isinstance(judged, Refused)
    of_scan = row.error or no_key(entity) if row.key is None else judged.reason
    assert [str(cause_of(entity, text)) for text in (*reasons.found, of_scan)] == [cause, cause]


WORK: Final[dict[str, Any]] = {"drops": (), "rules": NO_RULES, "ignored_fields": (), "subset": EVERYTHING}
WORK.update(cutoff=None, removals=None)
FAULTS: Final[tuple[tuple[Entity, dict[str, Any]], ...]] = (
    (RUNS, {"state": "done"}),
    (RUNS, {"priority": 3}),
    (RUNS, {"ahead": 3, "stats": {"queued": "many", "old": 1}}),
    (RUNS, {"tenantId": ...}),
    (RUNS, {"tenantId": " acme"}),
    (RUNS, {"error": Code("x")}),
    (RUNS, {"_id": " r"}),
    (SCHEDULES, {"whenCron": "0 0 12 * * ?", "old": 1}),
    (SCHEDULES, {"timezone": "UTC+1"}),
    (SCHEDULES, {"id": "other"}),
    (SCHEDULES, {"name": 5}),
    (SCHEDULES, {"deletedAt": 5}),
)


def test_of_several_faults_both_name_the_same() -> None:
    pairs = ((one, two) for one, two in combinations(FAULTS, 2) if one[0] is two[0])
    for (entity, one), (_, two) in pairs:
        raw, reasons = document(entity, one | two), Reasons()
        result = RangeResult(entity.name, None, KeyRange())
        record = Exporter(codec_of(entity)).careful_record(raw)
        # The second has the key of the first as well.
        RangeReader(entity, expired=None, lines=reasons).wanted([record, record])
        (row,) = CollectionScan.of(entity).rows(raw)
        comparison = RowComparison(cast("Any", SimpleNamespace(**WORK, entity=entity)), result)
        comparison.pairs([(row, None)])
        comparison.source_repeated(row)
        found = result.findings.first[FindingKind.QUARANTINED]
        causes = {*(str(cause_of(entity, text)) for text in reasons.found), *(item.cause for item in found)}
        assert len(causes) == 1, (one, two, reasons.found, [item.reason for item in found])


@pytest.mark.parametrize(
    ("reason", "cause"),
    [
        (conflict_reason(SCHEDULES, UniqueConflict(SCHEDULES.uniques[0], ("a: b",))), "unique:tenant_name"),
        (conflict_reason(SCHEDULES, UniqueConflict(SCHEDULES.uniques[0], None)), "unique:tenant_name"),
        (index_taken(SCHEDULES.uniques[0]), "unique:tenant_name"),
        ("a unique value of index of_users is taken in the target", "target"),
        (NO_PARENT, "orphan"),
        (TOO_LARGE, "target"),
        (REPEATED, "repeated_key"),
        ("the validator of the target refuses it", "target"),
        ("schedules.createdAt: [[date]] two formats give different instants", "rule:createdAt"),
        ('schedules.limits."a.b".c: number: it has a fraction', 'rule:limits."a.b".c'),
        ("schedules/s-1.json: Schedule name: Required property is missing", "model:name"),
        (
            "runs/a.ndjson line 3: a row before it has the same key, and only the first is copied",
            "repeated_key",
        ),
        ("labels: names that are blank, or differ only in case or outer blanks, would lose", "map_names"),
        ("somebody's own driver says no", "other"),
    ],
)
def test_a_sentence_has_the_cause_that_it_begins_with(reason: str, cause: str) -> None:
    found = cause_of(SCHEDULES, reason)
    assert str(found) == cause
    assert (acceptable(cause) is None) == (found.name == OTHER)
