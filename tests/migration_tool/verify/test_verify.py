"""What a verification finds, on memory stores where anything can be planted."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from tests.support.copies import AS_OF, DOCUMENTS_PER_TENANT, MemoryPair, fill, memory_pair
from twinstore.access.paging import Page
from twinstore.bulk.rows import ScanRow
from twinstore.catalog.keys import KeyRange
from twinstore.catalog.tenancy import Tenant
from twinstore.errors import TwinstoreError, ValidationError
from twinstore.scheduler.catalog import AUDIT, IMPACT_SNAPSHOTS, RUNS, SCHEDULES, TRIGGERS
from twinstore.scheduler.enums import RunState
from twinstore.testing.instants import at
from twinstore.testing.scheduler.builders import make_run
from twinstore_backfill.outcome import Exit
from twinstore_backfill.verify.expected import Expected, RowExpectation, changes, differing_paths
from twinstore_backfill.verify.ranges import keyed
from twinstore_backfill.verify.set_digest import Digest, document_number
from twinstore_memory.rows import DocumentRow, encode, store_unchecked, stored_rows, table

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from twinstore.catalog.entity import Entity
    from twinstore.models.canonical import CanonicalModel
    from twinstore.models.json_text import JsonObject
    from twinstore.scheduler.runs import Run, RunRepository
    from twinstore_backfill.report.model import Check, EntityReport, ParityReport
    from twinstore_memory.store import MemoryDatabase

pytestmark = pytest.mark.usefixtures("copied")

NO_TEXT = (17,)


def change(store: MemoryDatabase, entity: Entity, key: str | int, **changes: object) -> None:
    """Change stored values past every rule; ``None`` removes one."""
    row = stored_rows(store, entity)[key,]
    document = {**row.document, **changes}
    store_unchecked(
        store,
        DocumentRow(
            entity,
            row.key,
            {name: document[name] for name in document if document[name] is not None},
            row.markers,
        ),
    )


def remove(store: MemoryDatabase, entity: Entity, key: str) -> None:
    unit = store.begin()
    unit.lock(table(entity), (key,))
    unit.remove(table(entity), (key,))
    unit.commit()


def entity_of(report: ParityReport, name: str) -> EntityReport:
    return next(entity for entity in report.entities if entity.entity == name)


def check_of(report: ParityReport, name: str) -> Check:
    return next(check for check in report.checks if check.id == name)


def test_equal_stores_pass_every_check(pair: MemoryPair) -> None:
    report = pair.verify()
    assert (report.verdict, report.exit_code, report.cutover_ready) == ("PASS", 0, True)
    assert {check.id: check.result for check in report.checks} == dict.fromkeys(
        ("C1", "C2", "C3", "C4", "C5", "C6", "C7", "C8"), "pass"
    )
    assert report.documents_equal == 2 * DOCUMENTS_PER_TENANT
    assert all(tenant.source == tenant.target for entity in report.entities for tenant in entity.tenants)
    assert all(part.equal for entity in report.entities for part in entity.ranges)


def test_a_document_in_quarantine_may_name_a_tenant_that_no_call_accepts(pair: MemoryPair) -> None:
    row = stored_rows(pair.stores[0], RUNS)["acme-run-1",]
    document = {**row.document, "id": "stray", "tenantId": "a:b"}
    store_unchecked(pair.stores[0], DocumentRow(RUNS, ("stray",), document, row.markers))
    report = pair.verify()
    assert report.verdict == "INCONCLUSIVE"
    assert entity_of(report, "runs").counts.missing == 0


def test_one_changed_one_missing_and_one_extra_row_are_named_with_paths(pair: MemoryPair) -> None:
    target = pair.stores[1]
    change(target, SCHEDULES, "acme-schedule-1", name="Renamed", whenCron="5 * * * *")
    remove(target, RUNS, "umbrella-run-3")
    store_unchecked(target, encode(AUDIT, _audit_like(pair, "zzz-last")))
    report = pair.verify()
    assert (report.verdict, report.exit_code, report.cutover_ready) == ("FAIL", 1, False)
    (different,) = entity_of(report, "schedules").different.shown
    assert (different.key, different.paths) == (("acme-schedule-1",), ("doc.name", "doc.whenCron"))
    assert different.source_digest != different.target_digest
    assert [item.key for item in entity_of(report, "runs").missing.shown] == [("umbrella-run-3",)]
    assert [item.key for item in entity_of(report, "audit").extra.shown] == [("zzz-last",)]
    assert check_of(report, "C1").findings == (
        "runs, tenant umbrella: 7 in source, 6 in target",
        "audit, tenant acme: 4 in source, 5 in target",
    )


def _audit_like(pair: MemoryPair, key: str) -> CanonicalModel:
    record = pair.source.storage.audit.list("acme")[0]
    return record.evolve(id=key)


def test_lists_are_capped_but_count_truly(pair: MemoryPair) -> None:
    for number in range(130):
        store_unchecked(pair.stores[1], encode(RUNS, make_run("acme", f"extra-{number:03}")))
    extra = entity_of(pair.verify(), "runs").extra
    assert (extra.count, len(extra.shown)) == (130, 100)
    assert [item.key for item in extra.shown] == sorted(item.key for item in extra.shown if item.key)


def test_a_soft_deleted_schedule_must_be_deleted_on_both_sides(pair: MemoryPair) -> None:
    target = pair.stores[1]
    row = stored_rows(target, SCHEDULES)["acme-schedule-2",]
    store_unchecked(
        target, DocumentRow(SCHEDULES, row.key, row.document, {**row.markers, "deletedBy": "eve"})
    )
    (different,) = entity_of(pair.verify(), "schedules").different.shown
    assert different.paths == ("storage.deletedBy",)


def test_a_null_for_a_missing_value_a_key_case_and_a_millisecond_are_seen(pair: MemoryPair) -> None:
    target = pair.stores[1]
    change(target, RUNS, "acme-run-1", createdAt=at(1.001))
    change(target, RUNS, "acme-run-2", scheduleId="acme-schedule-0 x")
    change(target, RUNS, "acme-run-4", Error="x")
    paths = {item.key[0]: item.paths for item in entity_of(pair.verify(), "runs").different.shown}
    assert paths["acme-run-1"] == ("doc.createdAt",)
    assert paths["acme-run-2"] == ("doc.scheduleId",)
    assert paths["acme-run-4"] == ("doc (cannot be decoded in target)", "doc.Error (only in target)")


def test_spellings_without_a_difference_in_meaning_are_equal_and_counted(pair: MemoryPair) -> None:
    change(pair.stores[0], SCHEDULES, "acme-schedule-1", createdAt="2025-10-26T14:05:00Z")
    change(pair.stores[0], AUDIT, "acme-audit-0", message=" told ")
    change(pair.stores[0], AUDIT, "acme-audit-1", metadata={"KEY": "v"})
    for number, values in ((0, {"message": "told"}), (1, {"metadata": {"key": "v"}})):
        change(pair.stores[1], AUDIT, f"acme-audit-{number}", **values)
    report = pair.verify()
    assert {item.name: item.documents for item in report.equivalences} == {
        "key_case": 1,
        "text_timestamp": 1,
        "whitespace": 1,
    }
    assert all(tenant.source == tenant.target for tenant in entity_of(report, "audit").tenants)
    assert report.verdict == "PASS"


@pytest.mark.parametrize(
    ("entity", "key", "given", "path"),
    [
        (RUNS, "acme-run-1", {"createdAt": "2025-10-26T14:05:01Z"}, "doc.createdAt (text_timestamp)"),
        (AUDIT, "acme-audit-0", {"category": " schedule "}, "doc.category (whitespace)"),
        (RUNS, "acme-run-0", {"state": "canceled"}, "doc.state (normalised)"),
    ],
)
def test_a_spelling_that_the_lists_of_the_source_do_not_find_leaves_the_proof_open(
    pair: MemoryPair, entity: Entity, key: str, given: dict[str, object], path: str
) -> None:
    change(pair.stores[0], entity, key, **given)
    report = pair.verify()
    assert (report.verdict, check_of(report, "C2").result) == ("INCONCLUSIVE", "inconclusive")
    (shown,) = entity_of(report, entity.name).unproved.shown
    assert (shown.key, shown.paths) == ((key,), (path,))
    assert f'{path} of ["{key}"]' in check_of(report, "C2").findings[0]


def test_only_lists_of_an_entity_in_another_spelling_may_differ_for_it(pair: MemoryPair) -> None:
    change(pair.stores[0], RUNS, "acme-run-0", state="canceled")
    change(pair.stores[1], AUDIT, "acme-audit-2", occurredAt=at(99))
    report = pair.verify()
    findings = check_of(report, "C5").findings
    assert check_of(report, "C5").result == "fail"
    assert any("another spelling" in text for text in findings if text.startswith("runs"))
    assert not any("another spelling" in text for text in findings if text.startswith("audit"))


def test_a_document_that_neither_side_can_read_fails(pair: MemoryPair) -> None:
    for store in pair.stores:
        change(store, RUNS, "acme-run-1", state="lost")
    report = pair.verify()
    assert report.verdict == "FAIL"
    assert [item.key for item in entity_of(report, "runs").undecodable.shown] == [("acme-run-1",)]


def test_a_document_that_only_the_target_cannot_read_is_different(pair: MemoryPair) -> None:
    change(pair.stores[1], TRIGGERS, next(iter(stored_rows(pair.stores[1], TRIGGERS)))[0], fireCount="many")
    (different,) = entity_of(pair.verify(), "triggers").different.shown
    assert different.paths[0] == "doc (cannot be decoded in target)"


def test_expired_rows_are_skipped_on_both_sides_and_counted(pair: MemoryPair) -> None:
    old = make_run("acme", "old", state=RunState.CANCELLED, created_at=AS_OF - timedelta(days=200))
    store_unchecked(pair.stores[0], encode(RUNS, old))
    report = pair.verify()
    assert report.verdict == "PASS"
    assert entity_of(report, "runs").counts.expired_source == 1


def test_an_expired_row_that_no_copy_takes_leaves_the_proof_open(pair: MemoryPair) -> None:
    old = encode(
        RUNS, make_run("acme", "old", state=RunState.CANCELLED, created_at=AS_OF - timedelta(days=200))
    )
    late = {**old.document, "createdAt": AS_OF}
    store_unchecked(pair.stores[0], DocumentRow(RUNS, old.key, late))
    report = pair.verify()
    assert (report.verdict, report.cutover_ready) == ("INCONCLUSIVE", False)
    assert entity_of(report, "runs").quarantined.count == 1


def test_rows_without_a_text_key_in_the_target_are_extra(pair: MemoryPair) -> None:
    row = stored_rows(pair.stores[1], RUNS)["acme-run-1",]
    store_unchecked(pair.stores[1], DocumentRow(RUNS, NO_TEXT, row.document, {}))
    report = pair.verify()
    assert report.verdict == "FAIL"
    assert [item.key for item in entity_of(report, "runs").extra.shown] == [None]


def test_an_empty_source_does_not_hide_rows_of_the_target(tmp_path: Path) -> None:
    with memory_pair(tmp_path) as pair:
        fill(pair.target.storage)
        report = pair.verify()
        assert report.verdict == "FAIL"
        assert sum(entity.extra.count for entity in report.entities) == 2 * DOCUMENTS_PER_TENANT


def test_a_wrong_order_of_the_lists_fails_though_every_document_is_equal(
    pair: MemoryPair, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = type(pair.target.storage.runs)
    honest = runs.get_pending_runs

    def reversed_order(
        self: RunRepository, tenant_id: str, *, limit: int = 200, page_token: str | None = None
    ) -> Page[Run]:
        found = honest(self, tenant_id, limit=limit, page_token=page_token)
        if self is not pair.target.storage.runs:
            return found
        return Page(tuple(reversed(found.items)), found.next_page_token)

    monkeypatch.setattr(runs, "get_pending_runs", reversed_order)
    report = pair.verify()
    assert check_of(report, "C5").result == "fail"
    assert check_of(report, "C2").result == "pass"
    assert "pending runs of acme: page 1, row 1: acme-run-1 in source" in check_of(report, "C5").findings[0]


def test_next_instants_are_compared_in_order(pair: MemoryPair) -> None:
    key = next(
        key for key, row in stored_rows(pair.stores[1], TRIGGERS).items() if "nextFireAt" in row.document
    )
    change(pair.stores[1], TRIGGERS, key[0], nextFireAt=at(999_999))
    report = pair.verify()
    assert check_of(report, "C4").result == "fail"
    assert check_of(report, "C4").count == 1


def test_entities_and_tenants_can_be_chosen_but_then_nothing_is_ready_for_cut_over(pair: MemoryPair) -> None:
    remove(pair.stores[1], RUNS, "umbrella-run-3")
    report = pair.verify(tenants=["acme"], entities=["runs", "schedules"])
    assert (report.verdict, report.cutover_ready) == ("PARTIAL", False)
    assert [entity.entity for entity in report.entities] == ["schedules", "runs"]
    assert {tenant.tenant for entity in report.entities for tenant in entity.tenants} == {"acme"}


def test_lists_of_which_none_was_asked_for_are_not_said_to_be_alike(pair: MemoryPair) -> None:
    report = pair.verify(entities=["runs"])
    due, lists = check_of(report, "C4"), check_of(report, "C5")
    assert (due.result, due.summary) == ("skipped", "there is no list of this kind to compare")
    assert (lists.result, report.verdict, report.exit_code) == ("pass", "PARTIAL", Exit.OK)


class TestSample:
    def test_a_sample_never_says_equal(self, pair: MemoryPair) -> None:
        report = pair.verify(mode="sample", sample_size=4)
        assert (report.verdict, report.exit_code) == ("INCONCLUSIVE", Exit.INCONCLUSIVE)
        assert "95 % confidence" in check_of(report, "C3").findings[0]
        assert check_of(report, "C1").result == "pass"

    def test_a_difference_in_the_sample_fails(self, pair: MemoryPair) -> None:
        for key in list(stored_rows(pair.stores[1], RUNS)):
            change(pair.stores[1], RUNS, key[0], createdAt=at(-5))
        assert pair.verify(mode="sample", sample_size=4).verdict == "FAIL"

    def test_the_seed_chooses_the_documents(self, pair: MemoryPair) -> None:
        def digests(seed: int) -> list[object]:
            report = pair.verify(mode="sample", sample_size=6, seed=seed)
            return [tenant.source for entity in report.entities for tenant in entity.tenants]

        assert digests(1) == digests(1)
        assert digests(1) != digests(2)

    def test_counts_stay_full_despite_expired_and_undecodable_rows(self, pair: MemoryPair) -> None:
        old = make_run("acme", "old", state=RunState.CANCELLED, created_at=AS_OF - timedelta(days=200))
        store_unchecked(pair.stores[0], encode(RUNS, old))
        store_unchecked(
            pair.stores[0],
            DocumentRow(
                RUNS,
                ("bad",),
                {**encode(RUNS, old).document, "id": "bad", "state": "x", "finishedAt": AS_OF},
                {},
            ),
        )
        report = pair.verify(mode="sample", sample_size=2)
        assert check_of(report, "C1").result == "pass"
        assert report.verdict == "INCONCLUSIVE"
        remove(pair.stores[1], RUNS, "acme-run-5")
        assert check_of(pair.verify(mode="sample", sample_size=2), "C1").result == "fail"


def test_two_verifications_differ_in_their_envelope_only(pair: MemoryPair) -> None:
    change(pair.stores[1], SCHEDULES, "acme-schedule-1", name="Renamed")
    first, second = (pair.verify().model_dump(mode="json") for _ in range(2))
    del first["envelope"], second["envelope"]
    assert json.dumps(first) == json.dumps(second)


def test_a_store_is_never_compared_with_itself(pair: MemoryPair) -> None:
    same = MemoryPair(pair.source, pair.source, pair.directory)
    with pytest.raises(ValidationError, match="the same store"):
        same.verify()


def scanned(*keys: str) -> Iterator[list[ScanRow]]:
    yield [ScanRow((key,), Tenant("acme"), b"{}") for key in keys]


@pytest.mark.parametrize("keys", [("b", "a"), ("a", "a"), ("A", "b"), ("b", "z")])
def test_a_scan_that_is_out_of_order_or_out_of_range_is_not_trusted(keys: tuple[str, ...]) -> None:
    with pytest.raises(TwinstoreError, match="cannot be trusted"):
        list(keyed(scanned(*keys), RUNS, KeyRange(("a",), ("x",)), "source", lambda _: None))


def test_digests_of_ranges_combine_in_any_order() -> None:
    numbers = [document_number(text.encode()) for text in "abcdef"]
    whole, left, right = Digest(), Digest(), Digest()
    for number in numbers:
        whole.add(number)
    for number in reversed(numbers[:2]):
        right.add(number)
    for number in numbers[2:]:
        left.add(number)
    left.merge(right)
    assert left == whole


def test_a_document_that_occurs_twice_changes_the_digest() -> None:
    once, thrice = Digest(), Digest()
    once.add(7)
    for _ in range(3):
        thrice.add(7)
    assert once.xor == thrice.xor
    assert once.sum != thrice.sum


def test_paths_name_places_and_types_but_no_values() -> None:
    source: JsonObject = {"a": 1, "b": {"c d": [1, 2]}, "e": None, "g": "secret-1"}
    target: JsonObject = {"a": "1", "b": {"c d": [1]}, "f": True, "g": "secret-2"}
    assert differing_paths(source, target) == [
        "a (number in source, text in target)",
        'b["c d"][1] (only in source)',
        "e (only in source)",
        "f (only in target)",
        "g",
    ]


@pytest.mark.parametrize("entity", [SCHEDULES, TRIGGERS, RUNS, IMPACT_SNAPSHOTS, AUDIT])
def test_the_fast_way_to_judge_a_content_agrees_with_the_slow_one(pair: MemoryPair, entity: Entity) -> None:
    expectation = RowExpectation(entity)
    with pair.source.bulk.view() as view:
        rows = [row for batch in view.rows(entity, KeyRange()) for row in batch]
    for row in rows:
        expected = expectation.of(row)
        assert expectation.accepts(row.content)
        assert isinstance(expected, Expected)
        assert (expected.content, expected.changes) == (row.content, ())
        broken = replace(row, content=row.content.replace(b'"tenantId":"', b'"tenantId":"a:', 1))
        assert expectation.accepts(broken.content) == isinstance(expectation.of(broken), Expected)


def test_names_that_collide_in_a_large_map_are_reported_quickly() -> None:
    given = {f"K{number}": "v" for number in range(20_000)} | {"a": "1", "A": "2"}
    stored = {name.casefold(): value for name, value in given.items() if name != "A"}
    kinds = Counter(change.kind for change in changes({"doc": {"m": given}}, {"doc": {"m": stored}}))
    assert kinds == {"key_case": 20_000, "key_collision": 1}
