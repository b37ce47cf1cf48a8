"""Why documents are not copied or not proved is reported before, while and after a copy, in one table."""

from __future__ import annotations

import re
import tomllib
from collections import Counter
from io import StringIO
from random import Random
from typing import TYPE_CHECKING, Any

import pydantic
import pytest
from rich.console import Console

from tests.support.copies import AS_OF, invoke, memory_pair
from twinstore.bulk.unique_moves import UNIQUE_VALUE_TAKEN
from twinstore.models.canonical import describe_failure
from twinstore.scheduler.catalog import AUDIT, RUNS, SCHEDULES
from twinstore.testing.scheduler.builders import make_audit_record, make_run, make_schedule
from twinstore_backfill.cli.copying import limit_texts
from twinstore_backfill.cli.output import cause_texts, warning_texts
from twinstore_backfill.copy import duplicates
from twinstore_backfill.copy.duplicates import SortedRecords
from twinstore_backfill.copy.options import CopyOptions
from twinstore_backfill.copy.reader import SourceRows
from twinstore_backfill.plan import Estimate, limit_of, plan_copy
from twinstore_backfill.process.messages import Messages
from twinstore_backfill.reasons import MOST, OTHER, Reasons
from twinstore_backfill.report.fast_path import fast_path_report
from twinstore_backfill.report.model import CauseReport, parse_report
from twinstore_backfill.report.texts import about, between, folded_warnings
from twinstore_backfill.report.trend import earlier_report, with_trend
from twinstore_backfill.report.writing import ReportFormat, render
from twinstore_backfill.rules.checking import check_rules
from twinstore_backfill.rules.reading import read_rules
from twinstore_backfill.survey import Survey, bounds_of
from twinstore_memory.rows import DocumentRow, encode, store_unchecked

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.copies import MemoryPair
    from twinstore.bulk.port import Record
    from twinstore.catalog.entity import Entity
    from twinstore.models.canonical import CanonicalModel

WARTS = 130  # more than a report lists
SAME_NAME = 5


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[MemoryPair]:
    """Return a source with what years leave behind, and an empty target."""
    with memory_pair(tmp_path / "copy") as pair:
        for number in range(WARTS):
            wart: dict[str, object] = {"state": "pl4nted"} if number % 2 else {"priority": 1}
            plant(pair, RUNS, make_run("acme", f"run-{number:03}"), wart)
        for number in range(SAME_NAME):
            plant(pair, SCHEDULES, make_schedule("acme", f"schedule-{number}"), {"name": "Twice"})
        yield pair


def plant(pair: MemoryPair, entity: Entity, model: CanonicalModel, changes: dict[str, object]) -> None:
    """Store a row in the source past every rule."""
    row = encode(entity, model)
    store_unchecked(pair.stores[0], DocumentRow(entity, row.key, {**row.document, **changes}, row.markers))


UNKNOWN = "Run priority: Unknown property; remove it or correct its name"
STATE = "Run state: Input should be 'planning', 'queued', 'running', 'completed', 'error' or 'cancelled'"
TAKEN = f"{UNIQUE_VALUE_TAKEN}: its name by another row"
MAP = {"map": [{"path": "runs.state", "values": {"…": "planning"}, "reason": "…"}]}
DROP = {"drop": [{"path": "runs.priority", "reason": "…"}]}
EXPECTED = {
    UNKNOWN: ("unknown:priority", WARTS // 2, ["run-000"], DROP),
    STATE: ("model:state", WARTS // 2, ["run-001"], MAP),
    TAKEN: ("unique:", SAME_NAME - 1, ["schedule-1"], None),
}


def test_every_command_reports_the_same_causes_with_their_remedy(
    pair: MemoryPair, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    commands: dict[str, list[object]] = {
        "plan": ["plan", "--full"],
        "dry run": ["copy"],
        "copy": ["copy", "--execute", "--out", tmp_path / "copied"],
        "verify": ["verify", "--out", tmp_path / "verified"],
    }
    for name, command in commands.items():
        found = invoke(capsys, "backfill", *command, *pair.sides, "--format", "json").json["causes"]
        assert {item["reason"] for item in found} == set(EXPECTED), name
        for item in found:
            cause, documents, example, rule = EXPECTED[item["reason"]]
            assert (item["documents"], item["example"]) == (documents, example), name
            assert item["cause"].startswith(cause), name
            if rule is not None:
                assert tomllib.loads(item["remedy"]) == rule
    # Once more on a terminal, from the reports.
    shown = invoke(capsys, "backfill", "report", "--in", tmp_path / "verified", "--format", "text").out
    for text in (UNKNOWN, "65  quarantined", "[[map]]", 'path = "runs.state"'):
        assert text in shown
    assert "pl4nted" not in shown


def test_the_next_step_names_causes_counts_and_a_command(pair: MemoryPair) -> None:
    pair.copy()
    step = pair.verify().next_step
    assert step.startswith(
        f"3 causes to solve, the largest first: 65 of runs: {UNKNOWN}; 65 of runs: Run state"
    )
    assert "`twinstore backfill quarantine list`" in step


def test_reasons_are_counted_beyond_the_rows_that_a_report_lists(pair: MemoryPair) -> None:
    pair.copy()
    runs = next(item for item in pair.verify().entities if item.entity == "runs")
    assert (runs.quarantined.count, len(runs.quarantined.shown)) == (WARTS, 100)


def test_a_dry_run_finds_names_that_occur_twice_and_lists_all_of_them(
    pair: MemoryPair, tmp_path: Path
) -> None:
    dry, copied = pair.copy(execute=False, out=tmp_path), pair.copy()
    for result in (dry, copied):
        found = result.totals.of("schedules")
        assert (found["written"], found["quarantined"], found["read"]) == (1, SAME_NAME - 1, SAME_NAME)
    lines = (tmp_path / "duplicates.ndjson").read_text().splitlines()
    assert [f'"key":["schedule-{number}"]' in line for number, line in enumerate(lines, 1)] == [True] * 4
    assert all("'schedule-0'" in line for line in lines)
    # What the target has already is what it keeps.
    again = pair.copy(execute=False).totals.of("schedules")
    assert (again["written"], again["unchanged"], again["quarantined"]) == (0, 1, SAME_NAME - 1)


def test_a_row_that_is_not_copied_takes_no_name(tmp_path: Path) -> None:
    with memory_pair(tmp_path / "copy") as pair:
        plant(pair, SCHEDULES, make_schedule("acme", "a"), {"name": "Twice", "unknown": 1})
        plant(pair, SCHEDULES, make_schedule("acme", "b"), {"name": "Twice"})
        plant(pair, SCHEDULES, make_schedule("other", "c"), {"name": "Twice"})
        found = pair.copy(execute=False).totals.of("schedules")
        assert (found["written"], found["quarantined"]) == (2, 1)


def test_records_are_sorted_over_several_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(duplicates, "RUN_RECORDS", 7)
    monkeypatch.setattr(duplicates, "READ_RECORDS", 2)
    numbers = [Random(number).randrange(50) for number in range(100)]
    with SortedRecords(2) as records:
        for number in numbers:
            records.add(number.to_bytes(2))
        assert [int.from_bytes(record) for record in records] == sorted(numbers)


def test_the_plan_samples_all_of_a_large_entity_and_decodes_no_more_for_its_estimate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    decoded = 0
    honest = SourceRows.records

    def counted(*arguments: Any) -> Iterator[list[Record]]:  # noqa: ANN401  # those of the original
        nonlocal decoded
        for batch in honest(*arguments):
            decoded += len(batch)
            yield batch

    monkeypatch.setattr(SourceRows, "records", counted)
    with memory_pair(tmp_path / "copy") as pair:
        for number in range(2500):
            # The first half is right, so that the first documents alone would show nothing.
            changes: dict[str, object] = {"category": " schedule "} if number >= 1250 else {}
            plant(pair, AUDIT, make_audit_record("acme", f"audit-{number:04}"), changes)
        document: Any = plan_copy(pair.source, pair.target, CopyOptions(as_of=AS_OF)).model_dump(mode="json")
        (found,) = document["causes"]
        assert found["kind"] == "unproved"
        assert found["low"] <= 1250 <= found["high"]
        assert (document["sampled"], decoded) == ({"audit": 2000}, 2000)


@pytest.mark.parametrize(
    ("documents", "sampled", "rows", "bounds"),
    [
        (5, 10, 10, (5, 5)),
        (0, 10, 10, (0, 0)),
        (20, 2000, 200_000, (1297, 3079)),
        (1, 2000, 200_000, (18, 565)),
        (2000, 2000, 2001, (2000, 2001)),
    ],
)
def test_a_sample_bounds_how_many_documents_have_a_cause(
    documents: int, sampled: int, rows: int, bounds: tuple[int, int]
) -> None:
    cause = CauseReport(entity="runs", kind="quarantined", reason="x", documents=documents)
    assert bounds_of(cause, sampled, rows) == bounds


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "less than a minute"),
        (29, "less than a minute"),
        (31, "about 1 minute"),
        (295.3, "about 5 minutes"),
        (1300, "about 20 minutes"),
        (3590, "about 1 hour"),
        (20_000, "about 6 hours"),
        (86_399, "about 1 day"),
        (900_000, "about 10 days"),
    ],
)
def test_an_estimate_is_rounded_as_a_person_would(seconds: float, text: str) -> None:
    assert about(seconds) == text


@pytest.mark.parametrize(
    ("seconds", "cpu", "limit", "text"),
    [
        (2.0, 1.9, "client", "it computed 95% of the time"),
        (2.0, 1.0, "client", "it computed 50% of the time"),
        # With threads of the client library, or a clock that is not exact.
        (2.0, 2.1, "client", "it computed 100% of the time"),
        (2.0, 0.2, "servers", "the client computed only 10% of the time"),
    ],
)
def test_what_took_most_of_the_time_of_a_sample_is_its_limit(
    seconds: float, cpu: float, limit: str, text: str
) -> None:
    computing = Survey(rows=Counter({"runs": 10}), seconds=seconds, cpu=cpu).computing
    assert limit_of(computing) == limit
    estimate = Estimate(
        documents_per_second=5, seconds=2, basis="", computing=computing, limit=limit_of(computing)
    )
    (sentence,) = limit_texts(estimate)
    assert f"The limit is the {limit}: {text}" in sentence


def test_a_plan_that_reads_nothing_names_no_limit(pair: MemoryPair) -> None:
    found = plan_copy(pair.source, pair.target, CopyOptions(entities=("runs",), as_of=AS_OF)).estimate
    assert (found.limit is None, found.computing is None) == (False, False)
    empty = plan_copy(pair.source, pair.target, CopyOptions(entities=("audit",), as_of=AS_OF)).estimate
    assert (empty.limit, empty.computing, list(limit_texts(empty))) == (None, None, [])


def test_bounds_have_two_digits() -> None:
    assert between(1297, 3079) == "1,300 to 3,100"
    assert between(7, 7) == "7"


def test_warnings_about_speed_are_one_line_and_with_quiet_none(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = ["rows are removed", "no index, reads 5", "no index, reads 6"]
    assert list(folded_warnings(texts, 2)) == [
        "Warning: rows are removed",
        "2 warnings (speed only); --log-level info shows the cost of each.",
    ]
    monkeypatch.setattr("twinstore_backfill.cli.output.message_settings", lambda: Messages(quiet=True))
    assert list(warning_texts(texts, 2)) == []


@pytest.mark.parametrize(("rows", "shown"), [(95, ""), (10, " (because)")])
def test_why_few_rows_took_the_fast_path_is_said(rows: int, shown: str) -> None:
    found = fast_path_report(rows, 100, "because")
    if found.state == "native":
        assert str(found) == f"fast path: native, {rows}.0 % of 100 rows{shown}"


def test_the_number_of_reasons_is_bounded_and_no_row_is_lost() -> None:
    whole, part = Reasons(), Reasons()
    for number in range(MOST + 10):
        part.add("runs", "quarantined", f"Run names.n{number}: no", ("a",))
    whole.merge(part)
    whole.merge(part)
    assert len(whole.counted) == MOST + 1
    assert sum(item.rows for item in whole.counted.values()) == 2 * (MOST + 10)
    assert whole.counted["runs", "quarantined", OTHER].rows == 20


@pytest.mark.parametrize(
    ("reason", "counted"),
    [
        ("Run deltas.17.imageDigest: no", "Run deltas.imageDigest: no"),
        (
            TAKEN.replace("another row", "the schedule 'x'").replace(
                "by the schedule 'x' of", "by another row of"
            ),
            TAKEN,
        ),
    ],
)
def test_what_a_reason_says_of_one_row_alone_is_not_counted_apart(reason: str, counted: str) -> None:
    found = Reasons()
    found.add("runs", "quarantined", reason, None)
    assert list(found.counted) == [("runs", "quarantined", counted)]


def test_the_page_begins_with_what_a_reader_needs_first(pair: MemoryPair) -> None:
    pair.copy()
    report = pair.verify(title="Orders of 2019").model_copy(
        update={"warnings": ("w4rning of speed",), "speed_only": 1}
    )
    page = render(report, ReportFormat.HTML).decode()
    assert "<title>INCONCLUSIVE: Orders of 2019</title>" in page
    header = page[page.index("<header") : page.index("</header>")]
    # Of 135 documents one schedule is equal.
    for text in ("Orders of 2019", "0.7 % proved (1)", "99.2 % refused (134)", "quarantine list"):
        assert text in header
    assert "w4rning" not in header
    wanted = ['id="causes"', "[[map]]", 'id="entities"', "without documents", 'id="checks"', 'id="digests"']
    places = [page.index(text) for text in (*wanted, 'id="warnings"', "w4rning")]
    assert places == sorted(places)
    # The entities that neither side has are folded away.
    (empty,) = re.findall(r"without documents</summary>\s*<p>(.*?)</p>", page)
    assert "triggers" in empty
    assert "runs" not in empty.split(", ")


def test_a_report_shows_what_was_open_in_earlier_ones_of_its_directory(
    pair: MemoryPair, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "verified"
    for copied, expected in ((False, []), (True, [0]), (True, [0, 1])):
        if copied:
            pair.copy()
        found = invoke(
            capsys, "backfill", "verify", *pair.sides, "--out", out, "--format", "json", "--title", "T"
        ).json
        assert [point["proved"] for point in found["envelope"]["trend"]] == expected
        assert found["title"] == "T"
        assert ('id="trend"' in (out / "parity-report.html").read_text()) is bool(expected)
    other = pair.verify(tenants=["acme"])
    earlier = earlier_report(out / "parity-report.json")
    assert with_trend(other, earlier) == other
    written = parse_report((out / "parity-report.json").read_bytes(), "")
    without: Any = {"exclude": {"entities": {"__all__": {"ranges"}}}}
    assert earlier is not None
    assert earlier.model_dump(**without) == written.model_dump(**without)
    assert [len(part.ranges) for part in earlier.entities] == [0] * len(written.entities)
    assert any(part.ranges for part in written.entities)
    (out / "parity-report.json").write_text("{}")
    assert earlier_report(out / "parity-report.json") is None


def refusal_of(entity: Entity, model: CanonicalModel, **changes: object) -> str:
    """Return the reason for which a stored document forms no model."""
    document = {name: value for name, value in {**model.wire(), **changes}.items() if value is not None}
    with pytest.raises(pydantic.ValidationError) as caught:
        entity.model.model_validate(document)
    return describe_failure(entity.model, caught.value, quote=False)


RUN = make_run("acme", "run-1")
SOLVED: list[tuple[Entity, str, str, str]] = [
    (RUNS, "quarantined", refusal_of(RUNS, RUN, priority=1), "drop"),
    (RUNS, "quarantined", refusal_of(RUNS, RUN, state="done"), "map"),
    (RUNS, "quarantined", refusal_of(RUNS, RUN, createdAt=None), "default"),
    (RUNS, "quarantined", refusal_of(RUNS, RUN, createdAt="1.2.2020 10:00"), "date"),
    (RUNS, "quarantined", refusal_of(RUNS, RUN, createdAt=1580551200), "date"),
    (RUNS, "quarantined", refusal_of(RUNS, RUN, stats={"completed": "7"}), "number"),
    (RUNS, "quarantined", refusal_of(RUNS, RUN, error="a\x00b"), "replace"),
    (AUDIT, "quarantined", "its fields _id and id differ", "key"),
    (AUDIT, "quarantined", "the stored key is not a string", "id"),
    (SCHEDULES, "quarantined", f"{UNIQUE_VALUE_TAKEN}: its name by another row", "accept"),
    (SCHEDULES, "quarantined", refusal_of(SCHEDULES, make_schedule("acme", "s"), timezone="Mars"), "map"),
    (SCHEDULES, "quarantined", refusal_of(SCHEDULES, make_schedule("acme", "s"), whenCron="0 0 * *"), "map"),
    (RUNS, "quarantined", refusal_of(RUNS, RUN, error=7), "accept"),
    (RUNS, "unproved", "doc.createdAt (text_timestamp)", "accept"),
    (RUNS, "unproved", "doc.stats.completed (default_for_absent)", "accept"),
    (AUDIT, "unproved", "doc.category (whitespace)", "trim"),
]


@pytest.mark.parametrize(("entity", "kind", "reason", "rule"), SOLVED)
def test_what_solves_a_cause_is_a_rule_that_a_job_file_takes(
    entity: Entity, kind: str, reason: str, rule: str
) -> None:
    found = Reasons()
    found.add(entity.name, kind, reason, ("key",))
    (cause,) = found.reports([entity])
    assert list(tomllib.loads(cause.remedy)) == [rule], reason
    # Only their owner knows what an absent value means, and why.
    text = cause.remedy.replace('value = "…"', 'value = "2025-01-01T00:00:00+00:00"').replace("…", "agreed")
    rules = read_rules(tomllib.loads(text), text, "job.toml")
    check_rules(rules, [entity])
    assert [item.kind.value for item in rules] == [rule]


@pytest.mark.parametrize("width", [60, 100, 120, 200])
def test_what_is_pasted_is_never_broken_by_a_narrow_terminal(width: int) -> None:
    remedy = '[[map]]\npath = "runs.state"\nvalues = { "…" = "planning" }'
    cause = CauseReport(entity="runs", kind="quarantined", reason=STATE, documents=1, remedy=remedy)
    written = StringIO()
    console = Console(file=written, width=width, markup=False, highlight=False)
    for text in cause_texts([cause], ""):
        console.print(text)
    assert all(line in written.getvalue() for line in remedy.splitlines())
