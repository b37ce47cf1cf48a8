"""What is wrong is said first, and counted in one place, wherever people or pipelines look."""

from __future__ import annotations

import re
import sys
from importlib.metadata import version
from io import StringIO
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

import orjson
import pytest
from rich.console import Console

from tests.support.copies import AS_OF, DOCUMENTS_PER_TENANT, fill, invoke, memory_pair, write_config
from twinstore.scheduler.catalog import AUDIT, RUNS, SCHEDULES
from twinstore.testing.scheduler.builders import make_run
from twinstore_backfill.cli.options import Format
from twinstore_backfill.cli.output import emit, table, toned
from twinstore_backfill.report.texts import headline
from twinstore_backfill.report.writing import ReportFormat, render
from twinstore_memory.rows import DocumentRow, encode, store_unchecked, stored_rows

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.copies import MemoryPair
    from twinstore_backfill.report.model import ParityReport


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[MemoryPair]:
    """Return two stores that hold the same."""
    with memory_pair(tmp_path / "copy") as pair:
        fill(pair.source.storage, ["acme"])
        pair.copy()
        yield pair


def _parts(value: object) -> list[str]:
    return ["yes"] if value is True else str(value).split()


def damage(pair: MemoryPair, *, extra: int = 0) -> None:
    """Change a schedule, make a run unreadable on the target, and plant rows that only the target has."""
    schedule = stored_rows(pair.stores[1], SCHEDULES)["acme-schedule-1",]
    store_unchecked(pair.stores[1], _with(schedule, name="Renamed"))
    store_unchecked(pair.stores[1], _with(stored_rows(pair.stores[1], RUNS)["acme-run-1",], state="x"))
    for number in range(extra):
        store_unchecked(pair.stores[1], encode(RUNS, make_run("acme", f"extra-{number:02}")))


def _with(row: DocumentRow, **changes: object) -> DocumentRow:
    return DocumentRow(row.entity, row.key, {**row.document, **changes}, row.markers)


def junit_of(report: ParityReport) -> ET.Element:
    return ET.fromstring(render(report, ReportFormat.JUNIT))  # noqa: S314  # made a moment ago


def verify(pair: MemoryPair, capsys: pytest.CaptureFixture[str], *more: object) -> list[str]:
    return compared("verify", pair, capsys, *more)


def compared(name: str, pair: MemoryPair, capsys: pytest.CaptureFixture[str], *more: object) -> list[str]:
    command = ("backfill", name, *pair.sides, "--as-of", AS_OF.isoformat(), *more)
    return invoke(capsys, *command).out.splitlines()


def test_a_recheck_of_no_rows_says_that_nothing_was_compared(
    pair: MemoryPair, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = tmp_path / "found"
    verify(pair, capsys, "--out", found)
    assert (found / "differences.ndjson").read_bytes() == b""
    lines = compared("recheck", pair, capsys, "--in", found)
    assert lines[0] == "PARTIAL: Nothing was compared: the list of differences names no row to compare."
    assert lines[-1] == "PARTIAL. This proves nothing, because no row was compared; verify again in full."
    assert not [line for line in lines if "No difference" in line or "0 rows that" in line]
    # With a row to compare it says what it said.
    damage(pair, extra=1)
    verify(pair, capsys, "--out", found)
    lines = compared("recheck", pair, capsys, "--in", found, "--entity", "schedules")
    assert lines[0].startswith("FAIL: ")


def test_a_failure_names_what_differs_before_what_is_equal(
    pair: MemoryPair, capsys: pytest.CaptureFixture[str]
) -> None:
    damage(pair, extra=2)
    said = "The source and the target differ: 1 different in schedules; 2 extra, 1 different in runs."
    assert headline(pair.verify()).startswith(said)
    lines = verify(pair, capsys)
    assert f"FAIL: {said} {DOCUMENTS_PER_TENANT - 2} documents equal." in lines


def test_where_no_row_differs_the_checks_are_named(pair: MemoryPair) -> None:
    report = pair.verify()
    lists = next(check for check in report.checks if check.id == "C5")
    failed = lists.model_copy(update={"result": "fail", "count": 1, "findings": ("runs: other order",)})
    checks = tuple(failed if check is lists else check for check in report.checks)
    changed = report.model_copy(update={"verdict": "FAIL", "exit_code": 1, "checks": checks})
    assert headline(changed).startswith(
        f"The source and the target differ: C5 list order. {DOCUMENTS_PER_TENANT} documents equal."
    )


def test_an_open_proof_names_its_gaps(pair: MemoryPair) -> None:
    store_unchecked(
        pair.stores[0], _with(stored_rows(pair.stores[0], AUDIT)["acme-audit-0",], category=" schedule ")
    )
    said = "The proof has gaps: 1 unproved in audit; C2 content. No difference between "
    assert headline(pair.verify()).startswith(said)


def test_what_the_target_cannot_decode_is_named_by_the_check_of_decoding(pair: MemoryPair) -> None:
    damage(pair)
    check = next(check for check in pair.verify().checks if check.id == "C7")
    assert (check.result, check.summary) == ("fail", "some documents cannot be decoded")
    assert check.findings == ("runs: 1 cannot be decoded in target (counted as different)",)


def test_only_lists_of_what_is_stored_in_another_spelling_are_excused_by_it(pair: MemoryPair) -> None:
    store_unchecked(
        pair.stores[0], _with(stored_rows(pair.stores[0], AUDIT)["acme-audit-0",], category=" schedule ")
    )
    damage(pair)
    check = next(check for check in pair.verify().checks if check.id == "C5")
    excused = [text for text in check.findings if "stored in another spelling" in text]
    assert check.result == "fail"
    assert len(excused) < len(check.findings)
    assert all("audit" in text for text in excused)


def test_why_a_document_cannot_be_moved_stands_in_every_report(pair: MemoryPair) -> None:
    row = stored_rows(pair.stores[0], RUNS)["acme-run-1",]
    store_unchecked(
        pair.stores[0], DocumentRow(RUNS, ("bad",), {**row.document, "id": "bad", "state": "pl4nted"}, {})
    )
    report = pair.verify()
    (named,) = next(item for item in report.entities if item.entity == "runs").quarantined.shown
    assert named.reason
    assert "state" in named.reason
    for output in ReportFormat:
        shown = render(report, output).decode()
        assert "pl4nted" not in shown
        assert "bad" in shown
        assert named.reason.split(":")[0] in shown.replace("\\", "")


class TestJunit:
    def test_says_what_failed_and_not_what_was_compared(self, pair: MemoryPair) -> None:
        damage(pair, extra=2)
        problems = {
            case.get("name"): problem.get("message")
            for case in junit_of(pair.verify()).iter("testcase")
            for problem in case.findall("failure")
        }
        assert problems["C2 content"] == "schedules: 1 different (and 2 more)"
        assert problems["C1 counts"] == "runs, tenant acme: 7 in source, 9 in target"

    def test_says_when_where_how_long_and_of_what(self, pair: MemoryPair) -> None:
        root = junit_of(pair.verify())
        assert float(root.get("time", "x")) >= 0
        for suite in root:
            assert re.fullmatch(r"\d{4}-\d\d-\d\dT[\d:.]+", suite.get("timestamp", ""))
            assert suite.get("hostname")
        given = {item.get("name"): item.get("value") for item in root[-1].iter("property")}
        assert (given["mode"], given["verdict"], given["exit_code"]) == ("full", "PASS", "0")
        assert (given["from"], given["to"]) == ("Memory", "Memory")
        assert given["as_of"] == AS_OF.isoformat()
        assert given["tool_version"] == version("twinstore")
        assert given["Source"] != given["Target"]

    def test_is_not_green_where_readiness_was_required(self, pair: MemoryPair) -> None:
        root = junit_of(pair.verify(tenants=["acme"], require_ready=True))
        (case,) = [case for case in root.iter("testcase") if case.find("error") is not None]
        assert case.get("name") == "ready for cut-over"
        assert junit_of(pair.verify(require_ready=True)).get("errors") == "0"


class TestTerminal:
    def test_says_the_verdict_first_and_again_after_what_it_lists(
        self, pair: MemoryPair, capsys: pytest.CaptureFixture[str]
    ) -> None:
        damage(pair, extra=13)
        lines = verify(pair, capsys)
        assert lines[0].startswith("FAIL: The source and the target differ: ")
        (again,) = [at for at, line in enumerate(lines) if line.startswith("FAIL. Look at what differs.")]
        assert "… and 3 more extra in runs" in lines[:again]

    def test_says_why_a_document_cannot_be_moved(
        self, pair: MemoryPair, capsys: pytest.CaptureFixture[str]
    ) -> None:
        row = stored_rows(pair.stores[0], RUNS)["acme-run-1",]
        bad = DocumentRow(RUNS, ("bad",), {**row.document, "id": "bad", "state": "pl4nted"}, {})
        store_unchecked(pair.stores[0], bad)
        (line,) = [line for line in verify(pair, capsys) if line.startswith("quarantined runs")]
        assert line.startswith(
            'quarantined runs "bad": in source, cannot be decoded; not in target: Run state'
        )

    @pytest.mark.parametrize(
        ("terminal", "refused", "coloured"), [(True, "", True), (True, "1", False), (False, "", False)]
    )
    def test_has_colours_on_a_terminal_only(  # fixtures and parameters
        self,
        pair: MemoryPair,
        capsys: pytest.CaptureFixture[str],
        monkeypatch: pytest.MonkeyPatch,
        *,
        terminal: bool,
        refused: str,
        coloured: bool,
    ) -> None:
        monkeypatch.setenv("TERM", "xterm-256color")
        monkeypatch.setenv("NO_COLOR", refused)
        monkeypatch.setattr(sys.stdout, "isatty", lambda: terminal)
        shown = "\n".join(verify(pair, capsys))
        assert ("\x1b[1;32mPASS" in shown) == coloured
        assert f"PASS: {DOCUMENTS_PER_TENANT} documents equal." in shown

    def test_one_is_not_many(self, pair: MemoryPair, capsys: pytest.CaptureFixture[str]) -> None:
        store_unchecked(
            pair.stores[0], _with(stored_rows(pair.stores[0], AUDIT)["acme-audit-0",], message=" told ")
        )
        store_unchecked(
            pair.stores[1], _with(stored_rows(pair.stores[1], AUDIT)["acme-audit-0",], message="told")
        )
        assert "Equal after normalisation: 1 document (whitespace)." in verify(pair, capsys)

    @pytest.mark.parametrize("width", [40, 60, 80, 200])
    @pytest.mark.parametrize(
        "values", [("b" * 60,), ("b " * 30, "c" * 20), (1234567, True), ("pass", 7, "x" * 9)]
    )
    def test_breaks_no_word_however_narrow_it_is(self, width: int, values: tuple[object, ...]) -> None:
        names = [f"column{number}" for number in range(len(values))]
        rows = [("a" * 38, *values), ("impact_snapshots", *values)]
        written = StringIO()
        console = Console(file=written, width=width, force_terminal=False)
        console.print(table(("entity", *names), rows))
        shown = written.getvalue()
        assert max(map(len, shown.splitlines())) <= width or width < 60
        words = shown.replace(",", "").replace(":", "").split()
        assert {"a" * 38, "impact_snapshots", *names} <= set(words)
        if width >= 80:
            assert {part for value in values for part in _parts(value)} <= set(words)

    def test_one_long_word_leaves_a_table_a_table(self) -> None:
        rows = [("one", "w" * 100), *((name, "as it must be") for name in ("two", "three", "four", "five"))]
        written = StringIO()
        console = Console(file=written, width=80)
        console.print(table(("step", "what"), rows))
        shown = written.getvalue()
        assert shown.startswith("step   what")
        assert "".join(shown.split()).count("w") == 102

    def test_is_never_folded_in_a_pipe(self, capsys: pytest.CaptureFixture[str]) -> None:
        emit(Format.TEXT, {}, "k" * 300, table(("key", "value"), [("a" * 300, "b" * 300)]))
        assert [len(word) for word in capsys.readouterr().out.split()] == [300, 3, 5, 300, 300]

    def test_has_colours_in_a_pipe_on_request(
        self, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("FORCE_COLOR", "1")
        monkeypatch.setenv("TERM", "xterm")
        monkeypatch.delenv("NO_COLOR", raising=False)
        emit(Format.TEXT, {}, toned("PASS", "pass"))
        assert capsys.readouterr().out == "\x1b[1;32mPASS\x1b[0m\n"
        monkeypatch.setenv("NO_COLOR", "1")
        emit(Format.TEXT, {}, toned("PASS", "pass"))
        assert "32m" not in capsys.readouterr().out


def test_a_report_is_printed_as_the_command_printed_it(
    pair: MemoryPair, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "report"
    shown = verify(pair, capsys, "--out", out)
    answer = invoke(capsys, "backfill", "report", "--in", out, "--format", "text")
    assert answer.code == 0
    assert answer.out.splitlines() == [line for line in shown if str(out) not in line]
    assert orjson.loads(invoke(capsys, "backfill", "report", "--in", out, "--format", "json").out)


def test_an_empty_source_has_no_estimate(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = write_config(tmp_path / "c.json", {"Persistence": {"Memory": {"Store": "nothing-here"}}})
    other = write_config(tmp_path / "o.json", {"Persistence": {"Memory": {"Store": "nor-here"}}})
    sides = ("--from", "memory", "--to", "memory", "--source-config", config, "--target-config", other)
    answer = invoke(capsys, "backfill", "plan", "--module", "scheduler", *sides)
    assert "The source has no rows to copy." in answer.out
