"""What a job accepts with a reason: PASS, counted and named first; one row too many and the proof is open."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final
from xml.etree import ElementTree as ET

import pytest

from tests.support.copies import AS_OF, MemoryPair, fill, invoke, memory_pair
from twinstore.scheduler.catalog import RUNS, SCHEDULES, TRIGGERS
from twinstore.scheduler.checks import TRIGGERS_OF_SCHEDULES
from twinstore.scheduler.schedules import ScheduleQueryOptions
from twinstore.scheduler.triggers import trigger_id
from twinstore.testing.instants import at
from twinstore.testing.scheduler.builders import make_schedule
from twinstore_backfill.cli.copying import copy_texts
from twinstore_backfill.cli.options import Format
from twinstore_backfill.cli.output import emit
from twinstore_backfill.cli.verifying import report_texts
from twinstore_backfill.copy.report import copy_report
from twinstore_backfill.outcome import Exit
from twinstore_backfill.report.model import parse_report
from twinstore_backfill.report.writing import ReportFormat, render
from twinstore_backfill.rules.model import AcceptRule, JobRules
from twinstore_backfill.verify import stored_lists
from twinstore_backfill.verify.acceptance import Acceptance, names_of
from twinstore_backfill.verify.expected import Change
from twinstore_backfill.verify.needed_rows import count_lacking
from twinstore_backfill.verify.one_row import compare_row
from twinstore_memory.rows import store_unchecked, stored_rows

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from twinstore.catalog.entity import Entity
    from twinstore.plugins.checks import ListQuery
    from twinstore_backfill.report.model import ParityReport
    from twinstore_backfill.verify.lists import AnyStorage
    from twinstore_backfill.verify.stored_lists import FetchedList

TENANTS: Final = ("acme", "umbrella")


def accept(what: str, path: str, most: int | None = None, number: int = 1) -> AcceptRule:
    """Return one rule."""
    entity, *names = path.split(".")
    return AcceptRule(
        number=number,
        line=number,
        entity=entity,
        path=tuple(names),
        reason="agreed in the review",
        what=what,
        approved_by="Ada",
        most=most,
    )


def rules(*accepted: AcceptRule) -> JobRules:
    return JobRules(tuple(replace(item, number=number) for number, item in enumerate(accepted, 1)))


def change(pair: MemoryPair, entity: Entity, key: str, **values: object) -> None:
    """Store other values in a row of the source; ``...`` removes one."""
    row = stored_rows(pair.stores[0], entity)[key,]
    document = {name: value for name, value in {**row.document, **values}.items() if value is not ...}
    store_unchecked(pair.stores[0], replace(row, document=document))


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[MemoryPair]:
    """Return a copy of a source in which some runs are stored as other services store them."""
    with memory_pair(tmp_path) as pair:
        fill(pair.source.storage, TENANTS)
        for number, instant in ((1, "2026-01-01T10:00:00+02:00"), (2, "2025-12-31T03:00:00-05:00")):
            change(pair, RUNS, f"acme-run-{number}", createdAt=instant)
        for tenant in TENANTS:
            change(pair, RUNS, f"{tenant}-run-3", state="done")
        assert pair.copy().exit is Exit.INCONCLUSIVE
        yield pair


def checks_of(report: ParityReport) -> dict[str, str]:
    return {item.id: item.result for item in report.checks}


def test_without_a_decision_the_proof_is_open(pair: MemoryPair) -> None:
    report = pair.verify()
    assert (report.verdict, report.approved_exceptions, report.exceptions) == ("INCONCLUSIVE", 0, ())
    (runs,) = (item for item in report.entities if item.entity == "runs")
    assert {item.cause for item in runs.quarantined.shown} == {"model:state"}
    assert (runs.counts.unproved, runs.counts.quarantined) == (2, 2)


ACCEPTED: Final = rules(accept("text_timestamp", "runs.createdAt"), accept("model:state", "*", most=2))


def test_what_is_accepted_passes_and_is_listed_with_who_decided(pair: MemoryPair) -> None:
    report = pair.verify(rules=ACCEPTED)
    assert (report.verdict, report.exit_code, report.cutover_ready) == ("PASS", Exit.OK, True)
    assert (report.approved_exceptions, report.documents_equal) == (4, 56)
    assert [(item.kind, item.path, item.rows, item.approved_by) for item in report.exceptions] == [
        ("text_timestamp", "runs.createdAt", 2, "Ada"),
        ("model:state", "*", 2, "Ada"),
    ]
    lists = {name for check in report.checks for name in check.by_rows}
    # A text sorts otherwise, and the source cannot list what it cannot read.
    assert {"runs of acme, newest first", "runs of umbrella, newest first"} <= lists


@pytest.mark.parametrize(
    ("accepted", "code"),
    [
        (accept("model:state", "*", most=2), Exit.OK),
        (accept("model:state", "runs", most=9), Exit.OK),
        (accept("model:state", "runs", most=1), Exit.INCONCLUSIVE),
        (accept("model:state", "audit", most=9), Exit.INCONCLUSIVE),
        (accept("model:error", "runs", most=9), Exit.INCONCLUSIVE),
    ],
)
def test_a_copy_ends_well_where_each_quarantined_row_is_accepted(
    accepted: AcceptRule, code: Exit, pair: MemoryPair
) -> None:
    for options in ({"execute": False}, {}, {"retry_quarantine": True}):
        result = pair.copy(rules=rules(accepted), **options)
        report = copy_report(result)
        document = report.document()
        assert (result.exit, document["exit_code"], result.totals.all()["quarantined"]) == (code, code, 2)
        exceptions = [
            {"kind": "model:state", "path": accepted.text, "rows": 2, "most": accepted.most}
            | {"reason": "agreed in the review", "approved_by": "Ada"}
        ]
        assert document["exceptions"] == (exceptions if code is Exit.OK else [])
        said = f"Accepted by Ada: 2 of at most {accepted.most}, model:state of {accepted.text}"
        assert any(said in str(text) for text in copy_texts(report, pair.directory)) is (code is Exit.OK)


@pytest.mark.parametrize(
    ("accepted", "reason"),
    [
        (ACCEPTED.rules[:1], "C7 undecodable: runs: 2 in source cannot be copied"),
        (ACCEPTED.rules[1:], "C2 content: runs: 2 are equal only after normalising"),
        (
            (ACCEPTED.rules[0], accept("model:state", "*", most=1)),
            "C7 undecodable: *: 2 of model:state, but only 1",
        ),
        ((ACCEPTED.rules[0], accept("model:error", "runs", most=9)), "C7 undecodable: runs: 2 in source"),
        ((ACCEPTED.rules[0], accept("model:state", "audit", most=9)), "C7 undecodable: runs: 2 in source"),
        ((accept("text_timestamp", "runs.startedAt"), ACCEPTED.rules[1]), "C2 content: runs: 2 are equal"),
        (
            (accept("text_timestamp", "schedules.createdAt"), ACCEPTED.rules[1]),
            "C2 content: runs: 2 are equal",
        ),
        ((accept("whitespace", "runs.createdAt"), ACCEPTED.rules[1]), "C2 content: runs: 2 are equal"),
    ],
)
def test_whatever_else_is_accepted_the_proof_stays_open(
    accepted: tuple[AcceptRule, ...], reason: str, pair: MemoryPair
) -> None:
    report = pair.verify(rules=rules(*accepted))
    assert (report.verdict, report.cutover_ready) == ("INCONCLUSIVE", False)
    assert any(item.startswith(reason) for item in report.reasons), report.reasons


def test_a_difference_is_none_that_can_be_accepted(pair: MemoryPair) -> None:
    row = stored_rows(pair.stores[1], RUNS)["acme-run-1",]
    store_unchecked(pair.stores[1], replace(row, document={**row.document, "createdAt": at(5)}))
    report = pair.verify(rules=ACCEPTED)
    assert (report.verdict, report.exit_code) == ("FAIL", Exit.DIFFERENT)


def test_a_list_of_the_target_in_a_wrong_order_is_a_difference(
    pair: MemoryPair, monkeypatch: pytest.MonkeyPatch
) -> None:
    honest = stored_lists.fetch_pages

    def reversed_pages(query: ListQuery[AnyStorage], storage: AnyStorage) -> FetchedList:
        found = honest(query, storage)
        return replace(found, rows=found.rows[::-1])

    monkeypatch.setattr(stored_lists, "fetch_pages", reversed_pages)
    report = pair.verify(rules=ACCEPTED)
    assert checks_of(report)["C5"] == "fail"


@pytest.mark.parametrize("field", ["id", "tenantId", "name"])
def test_a_key_a_tenant_or_a_unique_value_is_never_accepted(field: str) -> None:
    acceptance = Acceptance(SCHEDULES, rules(accept("whitespace", "schedules.*"), accept("case", "*.*")))
    assert acceptance.equivalence(Change("whitespace", f"doc.{field}", field)) is None
    assert acceptance.equivalence(Change("whitespace", "doc.timezone", "timezone")) == 1


@pytest.mark.parametrize(
    ("path", "names"),
    [
        ("doc.events[2].timestamp", ("events", "timestamp")),
        ('doc.labels["a \\"b\\" \\\\.c"]', ("labels", 'a "b" \\.c')),
        ('doc["odd name"].x', ("odd name", "x")),
        ("beside.nextFireAt", ("nextFireAt",)),
        ("doc[0]", ()),
    ],
)
def test_a_place_is_matched_by_its_names(path: str, names: tuple[str, ...]) -> None:
    assert names_of(path) == names


def test_one_row_is_compared_in_the_same_way(pair: MemoryPair) -> None:
    key = ("acme-run-1",)
    assert compare_row(pair.source, pair.target, RUNS, key, AS_OF, rules=ACCEPTED).verdict == "equal"
    assert compare_row(pair.source, pair.target, RUNS, key, AS_OF).verdict == "unproved"


def test_what_the_target_refused_has_the_cause_that_its_quarantine_names(tmp_path: Path) -> None:
    with memory_pair(tmp_path) as pair:
        fill(pair.source.storage, ["acme"])
        taken = stored_rows(pair.stores[0], SCHEDULES)["acme-schedule-0",].document["name"]
        change(pair, SCHEDULES, "acme-schedule-1", name=taken)
        pair.copy()
        (schedules,) = (item for item in pair.verify().entities if item.entity == "schedules")
        (found,) = schedules.quarantined.shown
        assert (found.key, found.cause) == (("acme-schedule-1",), "unique:tenant_name")
        assert found.reason == (
            "a unique value is held by another row of the target: its name by the schedule 'acme-schedule-0'"
        )
        # Its trigger belongs to a row that is not there.
        accepted = rules(
            accept("unique:tenant_name", "schedules", most=1), accept("orphan", "triggers", most=1)
        )
        report = pair.verify(rules=accepted)
        assert (report.verdict, report.approved_exceptions) == ("PASS", 2)
        (lists,) = (item for item in report.checks if item.id == "C5")
        assert "1 of several entities only searched for repeated rows" in lists.summary
        assert not any(name.startswith("due schedules") for name in lists.by_rows)


@pytest.fixture
def silent(tmp_path: Path) -> Iterator[MemoryPair]:
    """Return a copy of two enabled schedules without triggers, and others that need none."""
    with memory_pair(tmp_path) as pair:
        fill(pair.source.storage, ["acme"])
        pair.source.storage.schedules.upsert(make_schedule("acme", "off", enabled=False))
        pair.source.storage.schedules.upsert(make_schedule("acme", "gone"))
        pair.source.storage.schedules.soft_delete("acme", "gone", "ada", at(7200))
        keys = ("acme-schedule-0", "acme-schedule-1", "off", "gone")
        with pair.source.bulk.writer(TRIGGERS, on_conflict="fail") as writer:
            writer.remove([(trigger_id("acme", key),) for key in keys])
            writer.flush()
            writer.commit()
        assert pair.copy().exit is Exit.OK
        yield pair


def test_schedules_that_would_never_fire_leave_the_proof_open_unless_they_are_accepted(
    silent: MemoryPair,
) -> None:
    report = silent.verify()
    assert (report.verdict, checks_of(report)["C4"]) == ("INCONCLUSIVE", "inconclusive")
    (reason,) = report.reasons
    assert reason.startswith("C4 next fire order: schedules without triggers: 2 schedules would never fire; ")
    assert "triggers.recalculate" in reason
    found = silent.verify(rules=rules(accept("no_trigger", "schedules")))
    assert (found.verdict, found.approved_exceptions, found.exceptions[0].rows) == ("PASS", 2, 2)
    assert silent.verify(rules=rules(accept("no_trigger", "schedules", most=1))).verdict == "INCONCLUSIVE"
    # Of other rows the check says nothing.
    assert silent.verify(entities=("runs",)).verdict == "PARTIAL"
    lacking = [
        count_lacking(silent.target, TRIGGERS_OF_SCHEDULES, names) for names in ((), ["acme"], ["other"])
    ]
    assert lacking == [2, 2, 0]
    # What the page says to do after the switch.
    for schedule in silent.target.storage.schedules.list(
        "acme", ScheduleQueryOptions(include_disabled=False)
    ):
        silent.target.storage.triggers.recalculate("acme", schedule.id, at(9000))
    assert count_lacking(silent.target, TRIGGERS_OF_SCHEDULES, ()) == 0


def test_every_form_of_the_report_lists_what_is_accepted_first(pair: MemoryPair) -> None:
    report = pair.verify(rules=ACCEPTED, require_no_exceptions=True)
    assert (report.verdict, report.exit_code, report.cutover_ready) == ("PASS", Exit.INCONCLUSIVE, True)
    forms = {name: render(report, name).decode() for name in ReportFormat}
    assert parse_report(forms[ReportFormat.JSON].encode(), "it") == report
    page, text = forms[ReportFormat.HTML], forms[ReportFormat.MARKDOWN]
    for form in (page, text):
        assert form.index("Approved exceptions") < form.index("next fire order")
        assert "4 approved exceptions." in form
        assert all(
            word in form.replace("\\", "") for word in ("agreed in the review", "Ada", "runs.createdAt")
        )
    root = ET.fromstring(forms[ReportFormat.JUNIT])  # noqa: S314  # made here
    values = {item.get("name"): item.get("value") for item in root.iter("property")}
    assert values["approved_exceptions"] == "4"
    problems = {case.get("name") for case in root.iter("testcase") if case.find("error") is not None}
    assert problems == {"no approved exceptions"}
    assert "agreed in the review" in (root.findtext(".//system-out") or "")


def test_a_terminal_shows_what_is_accepted_behind_the_verdict(
    pair: MemoryPair, capsys: pytest.CaptureFixture[str]
) -> None:
    emit(Format.TEXT, None, *report_texts(pair.verify(rules=ACCEPTED), None))
    first, *lines = capsys.readouterr().out.splitlines()
    assert first == "PASS: 56 documents equal. 4 approved exceptions."
    assert "agreed in the review" in "\n".join(lines[:8])


JOB: Final = """
[[accept]]
kind = "text_timestamp"
path = "runs.createdAt"
reason = "the old service wrote texts"
approved-by = "Ada"

[[accept]]
kind = "model:state"
entity = "runs"
most = 2
reason = "two runs of 2019"
approved-by = "Ada"
"""


@pytest.mark.parametrize(
    ("options", "code"), [((), Exit.OK), (("--require-no-exceptions",), Exit.INCONCLUSIVE)]
)
def test_a_job_file_accepts_and_the_command_may_refuse_exceptions(
    options: tuple[str, ...],
    code: Exit,
    pair: MemoryPair,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    job = tmp_path / "job.toml"
    job.write_text(JOB)
    answer = invoke(
        capsys, "backfill", "--job-file", job, "verify", *pair.sides, "--as-of", AS_OF.isoformat(), *options,
        "--require-cutover-ready", "--format", "json",
    )  # fmt: skip
    assert (answer.code, answer.json["verdict"], answer.json["approved_exceptions"]) == (code, "PASS", 4)
    assert answer.json["exceptions"][1] == {
        "kind": "model:state",
        "path": "runs",
        "rows": 2,
        "most": 2,
        "reason": "two runs of 2019",
        "approved_by": "Ada",
    }
