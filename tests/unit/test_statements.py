"""The files of recorded statements, and the command that prints them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.copies import invoke
from tests.support.library.module import MODULE as LIBRARY
from tests.support.plans import Allowance, Fault, Finding, check_findings
from tests.support.recording import Recorded
from twinstore.errors import ConfigurationError
from twinstore.plugins.statements import Statement, format_statements, parse_statements, statements_of
from twinstore.scheduler.module import MODULE

if TYPE_CHECKING:
    from pathlib import Path

FIRST = Statement("runs.find a tenant, by key", 'SELECT "id", "state"\n FROM runs\n WHERE "id" = %s')
SECOND = Statement("audit.page a tenant", "find: audit\nlimit: int")
COLUMNS = {"runs": '"id", "state"'}


def test_a_file_says_what_went_into_it() -> None:
    text = format_statements("# title", [FIRST, SECOND], COLUMNS)
    assert parse_statements(text) == (SECOND, FIRST)
    assert text.startswith("# title\n\n== audit.page a tenant\nfind: audit\n")
    assert '<columns> of runs: "id", "state"\n' in text
    assert "SELECT <columns>\n" in text


def test_the_entity_stands_before_the_first_dot() -> None:
    assert (FIRST.entity, SECOND.entity) == ("runs", "audit")


def test_a_module_without_recorded_statements_says_where_they_come_from() -> None:
    with pytest.raises(ConfigurationError, match="make statements"):
        statements_of(LIBRARY, "postgres")


@pytest.fixture
def recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Recorded:
    monkeypatch.setattr(Recorded, "_path", lambda _, spec: tmp_path / "made" / f"{spec.name}.txt")
    monkeypatch.setattr("tests.support.recording.cases_file", lambda store: tmp_path / f"{store}.txt")
    found = Recorded("postgres", {})
    found.add(MODULE.catalog, "runs.find", "SELECT 1")
    found.write()
    return found


def test_a_run_that_sends_the_same_differs_in_nothing(recorded: Recorded) -> None:
    assert recorded.differences(complete=True) == ""
    assert recorded.differences(complete=False) == ""


@pytest.mark.parametrize("complete", [True, False])
def test_a_new_text_is_a_difference_that_names_the_command(recorded: Recorded, complete: bool) -> None:  # noqa: FBT001  # both forms
    recorded.add(MODULE.catalog, "runs.find", "SELECT 2")
    found = recorded.differences(complete=complete)
    assert "SELECT 2" in found
    assert "make statements" in found


def test_what_is_sent_no_longer_is_a_difference_of_a_whole_run_only(recorded: Recorded) -> None:
    nothing = Recorded("postgres", {})
    assert "-SELECT 1" in nothing.differences(complete=True)
    assert nothing.differences(complete=False) == ""
    assert recorded.differences(complete=True) == ""


def test_the_command_prints_the_statements_of_an_entity(capsys: pytest.CaptureFixture[str]) -> None:
    answer = invoke(capsys, "dev", "sql", "scheduler", "--driver", "postgres", "--entity", "locks")
    assert answer.code == 0
    assert answer.out.startswith("-- scheduler on Postgres\n\n-- locks.")
    assert "pg_try_advisory_lock" in answer.out
    assert "<columns>" not in answer.out


def test_the_command_prints_all_drivers_and_modules(capsys: pytest.CaptureFixture[str]) -> None:
    answer = invoke(capsys, "dev", "sql")
    titles = ("scheduler on Mongo", "scheduler on Postgres", "twinstore on Mongo", "twinstore on Postgres")
    assert [title for title in titles if f"-- {title}\n" not in answer.out] == []


def test_the_error_for_an_unknown_entity_names_the_known_ones(capsys: pytest.CaptureFixture[str]) -> None:
    answer = invoke(capsys, "dev", "sql", "scheduler", "--entity", "no-such")
    assert answer.code == 2  # wrong arguments
    assert "'no-such'" in answer.err
    assert "run_summaries, runs, schedules" in answer.err


def test_a_driver_without_recorded_statements_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    answer = invoke(capsys, "dev", "sql", "scheduler", "--backend", "Memory")
    assert "No statements of Memory are recorded" in answer.err


def finding(**changes: object) -> Finding:
    values = {
        "statement": "runs.page",
        "examined": 20,
        "returned": 20,
        "page": 20,
        "indexes": frozenset({"idx"}),
        "scans_all": False,
        "sorts": (),
        "reads": True,
    }
    return Finding(**{**values, **changes})  # type: ignore[arg-type]  # one at a time


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"scans_all": True}, Fault.SCANS),
        ({"examined": 401}, Fault.EXAMINES),
        ({"blocks": 461}, Fault.EXAMINES),
        ({"sorts": ("Sort",)}, Fault.SORTS),
        ({"indexes": frozenset({"other"})}, Fault.INDEX),
        ({"indexes": frozenset()}, Fault.INDEX),
    ],
)
def test_a_plan_is_judged_and_allowed_by_name(changes: dict[str, object], fault: Fault) -> None:
    found = finding(**changes)
    (bad,), _ = check_findings([found], {"idx"}, ())
    assert bad.startswith(fault.value)
    allowed = Allowance("runs.*", frozenset({fault}), "because")
    assert check_findings([found], {"idx"}, [allowed]) == ([], [])


def test_an_allowance_that_nothing_needs_is_named() -> None:
    allowed = Allowance("runs.*", frozenset({Fault.SORTS}), "because")
    assert check_findings([finding(examined=400)], {"idx"}, [allowed]) == ([], ["runs.*: sorts"])
