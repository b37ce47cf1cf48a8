"""Verification and copy agree about rows that both sides hold alike, in a form that no copy writes."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import pytest

from tests.migration_tool.verify.test_verify import change, check_of, entity_of
from tests.support.copies import MemoryPair, invoke
from twinstore.scheduler.catalog import AUDIT, IMPACT_SNAPSHOTS, RUNS, SCHEDULES
from twinstore.scheduler.runs import DeltaSummary
from twinstore_backfill.outcome import Exit
from twinstore_backfill.rules.model import DropRule, JobRules
from twinstore_memory.rows import encode, store_unchecked, stored_rows

if TYPE_CHECKING:
    from pathlib import Path

    from twinstore.catalog.entity import Entity

pytestmark = pytest.mark.usefixtures("copied")

DELTAS: Final = [
    {**DeltaSummary(image_digest=f"sha256:{digit * 64}").wire(), "kevHits": [], "topFindings": []}
    for digit in "ba"
]
# What no copy writes, and what it is called; values of the last ones decide what lists show.
HARMLESS: Final[dict[str, tuple[Entity, str, dict[str, Any]]]] = {
    "whitespace": (AUDIT, "acme-audit-0", {"message": " told "}),
    "key_case": (AUDIT, "acme-audit-0", {"metadata": {"KEY": "v"}}),
    "set_order": (RUNS, "acme-run-1", {"deltas": DELTAS}),
    "null_for_absent": (RUNS, "acme-run-1", {"deltas": []}),
}
OPEN: Final[dict[str, tuple[Entity, str, dict[str, Any]]]] = {
    "case": (AUDIT, "acme-audit-0", {"category": "SCHEDULE"}),
    "default_for_absent": (SCHEDULES, "acme-schedule-1", {"timezone": None}),
}


def hold_alike(pair: MemoryPair, entity: Entity, key: str, given: dict[str, Any]) -> None:
    for store in pair.stores:
        change(store, entity, key, **given)


def left_alone(pair: MemoryPair, entity: Entity, kind: str) -> None:
    """Check that a copy of an entity leaves its rows, and counts them as a verification does."""
    for execute in (False, True):
        result = pair.copy(execute=execute, entities=(entity.name,))
        counts = result.totals.of(entity.name)
        assert (result.exit, counts["conflicts"], counts["written"]) == (Exit.OK, 0, 0)
        assert (counts["unchanged"], dict(result.totals.equivalences)) == (counts["read"], {kind: 1})


@pytest.mark.parametrize("kind", HARMLESS)
def test_what_both_hold_in_another_form_is_counted_by_verification_and_copy(
    pair: MemoryPair, kind: str
) -> None:
    hold_alike(pair, *HARMLESS[kind])
    report = pair.verify()
    assert (report.verdict, report.cutover_ready) == ("PASS", True)
    assert {item.name: item.documents for item in report.equivalences} == {kind: 1}
    left_alone(pair, HARMLESS[kind][0], kind)


@pytest.mark.parametrize("kind", OPEN)
def test_where_lists_may_filter_by_it_the_proof_stays_open(pair: MemoryPair, kind: str) -> None:
    entity, key, given = OPEN[kind]
    hold_alike(pair, entity, key, given)
    report = pair.verify()
    assert (report.verdict, check_of(report, "C2").result) == ("INCONCLUSIVE", "inconclusive")
    (shown,) = entity_of(report, entity.name).unproved.shown
    assert (shown.key, shown.paths) == ((key,), (f"doc.{next(iter(given))} ({kind})",))
    left_alone(pair, entity, kind)


def test_a_row_that_also_differs_elsewhere_is_different_and_a_conflict(pair: MemoryPair) -> None:
    hold_alike(pair, *HARMLESS["whitespace"])
    change(pair.stores[1], AUDIT, "acme-audit-0", action="another")
    assert entity_of(pair.verify(), "audit").counts.different == 1
    result = pair.copy(entities=("audit",))
    assert (result.exit, result.totals.all()["conflicts"]) == (Exit.DIFFERENT, 1)
    assert not result.totals.equivalences


def test_a_key_that_no_copy_takes_is_not_equal_because_both_sides_have_it(pair: MemoryPair) -> None:
    hold_alike(pair, AUDIT, "acme-audit-0", {"tenantId": " acme"})
    assert pair.verify().verdict == "FAIL"
    assert pair.copy(entities=("audit",), max_quarantine=None).exit is Exit.INCONCLUSIVE


def test_what_may_be_dropped_at_the_source_hides_no_other_form(pair: MemoryPair) -> None:
    entity, key, given = HARMLESS["set_order"]
    hold_alike(pair, entity, key, given)
    change(pair.stores[0], entity, key, legacy=1)
    drop = DropRule(number=1, line=1, entity=entity.name, path=("legacy",), reason="left by a mapper")
    rules = JobRules((drop,))
    report = pair.verify(rules=rules)
    assert {item.name: item.documents for item in report.equivalences} == {"ignored": 1, "set_order": 1}
    result = pair.copy(entities=(entity.name,), rules=rules)
    assert (result.exit, result.totals.equivalences) == (Exit.OK, {"ignored": 1, "set_order": 1})


def test_overwriting_stores_the_normal_form(pair: MemoryPair) -> None:
    hold_alike(pair, *HARMLESS["set_order"])
    result = pair.copy(entities=("runs",), on_conflict="overwrite")
    assert (result.exit, result.totals.all()["written"]) == (Exit.OK, 1)
    run = pair.target.storage.runs.get_required("acme", "acme-run-1")
    assert stored_rows(pair.stores[1], RUNS)["acme-run-1",].document == encode(RUNS, run).document
    assert not pair.copy(entities=("runs",)).totals.equivalences


def test_repair_stores_the_normal_form_of_what_leaves_the_proof_open(
    pair: MemoryPair, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    entity, key, given = OPEN["case"]
    hold_alike(pair, entity, key, given)
    report = tmp_path / "report"
    assert invoke(capsys, "backfill", "verify", *pair.sides, "--out", report).code == Exit.INCONCLUSIVE
    invoke(capsys, "backfill", "repair", *pair.sides, "--in", report, "--execute")
    assert stored_rows(pair.stores[1], entity)[key,].document["category"] == "schedule"


def test_a_copy_names_the_kinds_it_left_and_the_option_that_normalises_them(
    pair: MemoryPair, capsys: pytest.CaptureFixture[str]
) -> None:
    hold_alike(pair, *HARMLESS["set_order"])
    answer = invoke(capsys, "backfill", "copy", *pair.sides)
    assert answer.code == Exit.OK
    text = " ".join(answer.out.split())
    assert (
        "in a form that no copy writes, left as they are: set_order 1. With --on-conflict overwrite" in text
    )


def test_a_derived_value_that_does_not_follow_is_a_conflict_in_a_dry_run_and_in_a_copy(
    pair: MemoryPair,
) -> None:
    key, row = next(iter(stored_rows(pair.stores[1], IMPACT_SNAPSHOTS).items()))
    store_unchecked(pair.stores[1], replace(row, derived={**row.derived, "contentDigest": "sha256:0"}))
    assert pair.verify().verdict == "FAIL"
    for how, kind in (("fail", "conflicts"), ("overwrite", "written")):
        for execute in (False, True):
            copied = pair.copy(
                execute=execute, max_conflicts=1, on_conflict=how, entities=(IMPACT_SNAPSHOTS.name,)
            )
            assert copied.totals.all()[kind] == 1
    assert stored_rows(pair.stores[1], IMPACT_SNAPSHOTS)[key] == row
    assert pair.verify().verdict == "PASS"
