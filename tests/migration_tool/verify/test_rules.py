"""Verifying under the rules of a job: a target is right if it holds the rows after them."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from typing import TYPE_CHECKING, Final, cast

import pytest

from tests.support.copies import AS_OF, MemoryPair, fill, memory_pair
from twinstore.scheduler.catalog import RUNS
from twinstore.testing.instants import at
from twinstore_backfill.outcome import Exit
from twinstore_backfill.report.markdown import markdown
from twinstore_backfill.rules.model import (
    DateRule,
    DefaultRule,
    DeriveRule,
    DropRule,
    JobRules,
    MapRule,
    NumberRule,
    RenameRule,
    ReplaceRule,
    Rule,
    TrimRule,
)
from twinstore_backfill.verify.one_row import compare_row
from twinstore_memory.rows import store_unchecked, stored_rows

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from twinstore.documents import DocumentRow
    from twinstore_backfill.report.model import ParityReport

RULES: Final[tuple[Rule, ...]] = (
    ReplaceRule(number=1, line=1, entity="runs", path=("plan",), reason="r", old="#", by="-"),
    TrimRule(number=2, line=2, entity="runs", path=("state",), reason="r"),
    MapRule(
        number=3,
        line=3,
        entity="runs",
        path=("state",),
        reason="words of 2019",
        values={"CANCELED": "cancelled", "1": "planning"},
    ),
    DateRule(
        number=4,
        line=4,
        entity="runs",
        path=("createdAt",),
        reason="r",
        formats=("%d.%m.%Y %H:%M:%S",),
        zone="Europe/Zurich",
    ),
    NumberRule(
        number=5,
        line=5,
        entity="runs",
        path=("stats", "queued"),
        reason="r",
        source="text",
        factor=Decimal("0.1"),
    ),
    DeriveRule(
        number=6, line=6, entity="runs", path=("finishedAt",), reason="r", how="max", of=("events", "at")
    ),
    RenameRule(number=7, line=7, entity="runs", path=("plan",), reason="r", to=("scheduleId",)),
    DropRule(number=8, line=8, entity="runs", path=("stats", "old"), reason="r"),
    DropRule(number=9, line=9, entity="*", path=("events",), reason="r"),
    DefaultRule(number=10, line=10, entity="runs", path=("trigger",), reason="r", value="manual"),
)


def warts(number: int, row: DocumentRow) -> DocumentRow:
    """Return a run as a service of 2019 left it."""
    document = dict(row.document)
    stats = cast("dict[str, object]", document.pop("stats"))
    document["stats"] = {**stats, "queued": "00", "old": 1}
    document["createdAt"] = f"26.10.2025 15:05:{number:02}"
    document["plan"] = str(document.pop("scheduleId")).replace("-", "#")
    document["state"] = " CANCELED" if document["state"] == "cancelled" else 1
    document.pop("trigger")
    if "finishedAt" in document:
        document["events"] = [{"at": at(number)}, {"at": document.pop("finishedAt")}]
    return replace(row, document=document)


@pytest.fixture
def old(tmp_path: Path) -> Iterator[MemoryPair]:
    """Return a source with such runs, and a target that holds what they are."""
    with memory_pair(tmp_path) as pair:
        fill(pair.source.storage, ["acme"])
        assert pair.copy().exit is Exit.OK
        for number in range(7):
            row = stored_rows(pair.stores[0], RUNS)[f"acme-run-{number}",]
            store_unchecked(pair.stores[0], warts(number, row))
        yield pair


def without(number: int) -> JobRules:
    """Return the rules without one of them; without a rename also without those on the place it moves."""
    (missing,) = (rule for rule in RULES if rule.number == number)
    place = missing.path if isinstance(missing, RenameRule) else None
    return JobRules(tuple(rule for rule in RULES if rule is not missing and rule.path != place))


def counts(report: ParityReport) -> dict[str, int]:
    """Return what became of the runs, without zeros."""
    (runs,) = (item for item in report.entities if item.entity == "runs")
    return {name: number for name, number in runs.counts.model_dump().items() if number}


def test_a_target_with_the_rows_after_the_rules_is_proved(old: MemoryPair) -> None:
    report = old.verify(rules=JobRules(RULES))
    assert (report.verdict, report.exit_code, report.cutover_ready) == ("PASS", Exit.OK, True)
    assert [item.rows for item in report.rules] == [7, 3, 7, 7, 7, 3, 7, 7, 3, 7]
    assert {item.name for item in report.equivalences} == {"ignored"}
    (lists,) = (item for item in report.checks if item.id == "C5")
    assert "runs of acme, newest first" in lists.by_rows
    text = markdown(report)
    assert "| map | runs.state | 7 | words of 2019 |" in text


@pytest.mark.parametrize("number", [rule.number for rule in RULES])
def test_a_rule_that_only_the_verification_lacks_is_found(number: int, old: MemoryPair) -> None:
    report = old.verify(rules=without(number))
    assert report.verdict == "FAIL"
    wrong = counts(report)
    assert wrong.get("stale", 0) + wrong.get("different", 0) >= 3


def test_a_copy_under_the_rules_is_proved(tmp_path: Path, old: MemoryPair) -> None:
    with memory_pair(tmp_path) as fresh:
        pair = replace(old, target=fresh.target)
        assert pair.copy(rules=JobRules(RULES)).exit is Exit.OK
        assert pair.verify(rules=JobRules(RULES)).verdict == "PASS"


def test_without_a_reason_a_drop_leaves_the_proof_open(old: MemoryPair) -> None:
    rules = JobRules(tuple(replace(rule, reason="") if rule.number == 8 else rule for rule in RULES))
    report = old.verify(rules=rules)
    assert report.verdict == "INCONCLUSIVE"
    assert counts(report) == {"unproved": 7}


def test_one_row_is_compared_after_the_rules(old: MemoryPair) -> None:
    key = ("acme-run-3",)
    assert compare_row(old.source, old.target, RUNS, key, AS_OF, rules=JobRules(RULES)).verdict == "equal"
    assert compare_row(old.source, old.target, RUNS, key, AS_OF, rules=without(10)).verdict == "stale"


def test_a_rule_on_the_tenant_decides_whose_rows_count(old: MemoryPair) -> None:
    for row in stored_rows(old.stores[0], RUNS).values():
        store_unchecked(old.stores[0], replace(row, document={**row.document, "tenantId": "ACME"}))
    owner = MapRule(
        number=11, line=11, entity="runs", path=("tenantId",), reason="r", values={"ACME": "acme"}
    )
    rules = JobRules((*RULES, owner))
    report = old.verify(rules=rules)
    assert report.verdict == "PASS"
    (runs,) = (item for item in report.entities if item.entity == "runs")
    assert [(item.tenant, item.stored_source, item.stored_target) for item in runs.tenants] == [
        ("acme", 7, 7)
    ]
    assert old.verify(rules=rules, tenants=["acme"]).verdict == "PARTIAL"
    assert old.verify(rules=JobRules(RULES)).verdict == "FAIL"
