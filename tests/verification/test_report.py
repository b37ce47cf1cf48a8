"""What the verification report says of a run, and that its groups name what there is."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any, Final

import pytest

from tests.server_supervisor import ROOT
from tests.verification import __main__ as command
from tests.verification.groups import DRIVERS, GROUPS, KITS, drivers_named, files_of_groups, groups_of
from tests.verification.plugin import admitted
from tests.verification.report import Facts, markdown, report_of
from twinstore.clock import FixedClock
from twinstore.testing import DriverContract
from twinstore.testing.instants import START
from twinstore.testing.methods import Case, matrix_of, missing_methods

if TYPE_CHECKING:
    from pathlib import Path

FACTS: Final = Facts("1.2.3", "abc", "2025-10-26T14:05:00+00:00", "3.11.9", DRIVERS)
KIT: Final = "tests/contract/test_postgres_contract.py::TestPostgres::TestScheduler::test_it"


def case(name: str = KIT, **parts: object) -> dict[str, Any]:
    """Return a case as the plug-in writes it."""
    told = {
        "contract": "LockContract",
        "driver": "Postgres",
        "server": "18.6",
        "outcome": "passed",
        "seconds": 1,
    }
    return {"id": name, **told, **parts}


def run_of(*cases: dict[str, Any], methods: dict[str, dict[str, list[str]]] | None = None) -> dict[str, Any]:
    return {"cases": list(cases), "methods": methods or {"scheduler.locks.acquire": {"Postgres": [KIT]}}}


def test_a_group_counts_its_cases_by_driver_and_says_where_it_has_none() -> None:
    failed = case("tests/faults/test_locks.py::test_x[postgres]", outcome="failed", contract="", driver=None)
    drivers = {KIT: ["postgres"], failed["id"]: ["postgres"], "tests/unit/test_cron.py::test_y": []}
    rules = case("tests/unit/test_cron.py::test_y", contract="", driver=None)
    report = report_of(run_of(case(), failed, rules), drivers, FACTS)
    (locks,) = [group for group in report["groups"] if group["name"] == "locks"]
    assert locks["without_case"] == ["memory", "mongo"]
    assert locks["drivers"]["postgres"] == {
        "cases": 2,
        "passed": 1,
        "failed": 1,
        "skipped": 0,
        "seconds": 2,
        "failures": ["tests/faults/test_locks.py::test_x[postgres]"],
    }
    text = markdown(report)
    assert "| locks | **no test** | **no test** | 1 passed, **1 failed**, 2 s | – |" in text  # noqa: RUF001
    assert "**No test on memory, mongo**" in text
    assert "- **task runner**" in text
    assert "| triggers | **no test** | **no test** | **no test** | 1 passed, 1 s |" in text
    assert report["servers"] == {"postgres": "18.6"}


def test_a_method_without_case_on_a_driver_fails_the_report_and_is_named() -> None:
    report = report_of(run_of(case()), {KIT: ["postgres"]}, FACTS)
    assert report["result"] == "failed"
    assert report["missing"] == ["scheduler.locks.acquire on memory", "scheduler.locks.acquire on mongo"]
    assert "- scheduler.locks.acquire on mongo" in markdown(report)


def test_a_baseline_of_one_driver_asks_nothing_of_the_others() -> None:
    alone = Facts("1.2.3", "abc", FACTS.written_at, "3.11.9", ("postgres",))
    report = report_of(run_of(case()), {KIT: ["postgres"]}, alone)
    assert (report["result"], report["missing"]) == ("passed", [])
    text = markdown(report)
    assert "a baseline of a fresh start on postgres alone" in text
    assert "mongo" not in text.partition("## Groups")[0]
    assert "100 %" in text


def test_a_failed_case_fails_the_report() -> None:
    alone = Facts("1.2.3", "abc", FACTS.written_at, "3.11.9", ("postgres",))
    assert report_of(run_of(case(outcome="failed")), {}, alone)["result"] == "failed"


def test_a_run_without_any_method_proves_nothing() -> None:
    assert report_of({"cases": [], "methods": {}}, {}, FACTS)["result"] == "failed"


def test_a_case_exercises_what_it_passed_with_and_was_answered_by() -> None:
    cases = [
        Case("a", driver="X", methods={"m": True, "n": False}),
        Case("b", driver="X", outcome="failed", methods={"m": True, "n": True}),
        Case("c", driver="Y", methods={"m": True}),
    ]
    matrix = matrix_of(cases, ("m", "n"), ("X",))
    assert matrix == {"m": {"X": ("a",)}, "n": {"X": ()}}
    assert missing_methods(matrix) == (("n", "X"),)


def test_the_facts_of_a_run_are_those_of_the_clock_and_the_working_copy() -> None:
    facts = command.facts_of("postgres", FixedClock(START))
    assert (facts.written_at, facts.drivers) == ("2025-10-26T14:05:00+00:00", ("postgres",))
    assert command.files_of("postgres")[0] == KITS["postgres"]
    assert KITS["mongo"] not in command.files_of("postgres")


def test_groups_name_contracts_and_files_that_exist() -> None:
    contracts = {cls.__name__ for kit in DriverContract.kits().values() for cls in kit.__mro__}
    assert set[str]().union(*(group.contracts for group in GROUPS)) - contracts == set()
    assert [file for file in files_of_groups() if not (ROOT / file).is_file()] == []
    assert [group.name for group in GROUPS if not (group.contracts or group.files)] == []


def test_a_case_of_a_kit_belongs_to_groups_by_its_contract() -> None:
    assert [group.name for group in groups_of(KIT, "LockContract")] == ["CRUD", "locks"]
    assert groups_of(KIT.replace("TestScheduler", "TestAccess"), "LockContract") == ()
    assert groups_of("tests/unit/test_cli_commands.py::test_x", "") == ()


@pytest.mark.parametrize(
    ("name", "admits"),
    [("x[postgres]", True), ("x[memory to postgres]", True), ("x", True), ("x[mongo]", False)],
)
def test_a_run_of_one_driver_takes_what_needs_no_other_server(name: str, admits: bool) -> None:  # noqa: FBT001
    assert admitted(drivers_named(name), "postgres") is admits


AUDIT: Final = """
import pytest
from twinstore.testing.scheduler import AuditServiceContract
from twinstore_memory.testing import memory_deployments

@pytest.fixture(scope="module")
def backend_factory():
    return memory_deployments

class TestAudit(AuditServiceContract):
    pass
"""


def test_a_run_with_few_cases_fails_and_names_every_method_without_one(tmp_path: Path) -> None:
    """As a driver's author runs it, with two workers, so that what they saw travels to the one who writes."""
    (tmp_path / "test_audit.py").write_text(AUDIT)
    (tmp_path / "pytest.ini").write_text("[pytest]")
    words = ["-p", "twinstore.testing.matrix", "--method-matrix=matrix.json", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-n", "2", *words],
        capture_output=True,
        check=False,
        cwd=tmp_path,
        text=True,
        timeout=120,
    )
    assert done.returncode == 1, done.stdout
    assert "scheduler.runs.retry has no case on Memory that passed and was answered" in done.stdout
    assert "scheduler.audit_service.write has no case" not in done.stdout
    content = json.loads((tmp_path / "matrix.json").read_text())
    assert content["methods"]["scheduler.audit_service.write"]["Memory"]
    assert ["scheduler.runs.retry", "Memory"] in content["missing"]
