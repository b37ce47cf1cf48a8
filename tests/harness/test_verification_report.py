"""The verification report shows what JUnit files of real runs hold, and fails where a group has no case."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from tests import verification_report
from tests.server_supervisor import ROOT
from tests.verification_report import (
    DRIVERS,
    DRIVERS_OF_FILES,
    GROUPS,
    JUNIT,
    KITS,
    contracts_of_kits,
    main,
    read_run,
    support_of,
)
from twinstore.testing.methods import Case, matrix_of, missing_methods

SUBJECTS: Final = {word for words in GROUPS.values() for word in words.split()}
FILES: Final = {word for word in SUBJECTS if "/" in word}
SOME_CASES: Final = {contract: case for case, contract in contracts_of_kits().items()}


def tree() -> dict[str, str]:
    """Return a test file for each that a group names, with a case for each driver."""
    text = f"import pytest\n\n@pytest.mark.parametrize('driver', {list(DRIVERS)})\ndef test_it(driver): ...\n"
    return {**{f"tests/{file}.py": text for file in FILES}, **kits()}


def kits() -> dict[str, str]:
    """Return kits that have a case for each contract that a group names."""
    cases: dict[str, list[str]] = {}
    for contract in sorted(SUBJECTS - FILES):
        kit, test = SOME_CASES[contract]
        cases.setdefault(kit, []).append(f"        def {test}(self): ...\n")
    lines = "".join(f"    class {kit}:\n{''.join(tests)}" for kit, tests in cases.items())
    return {f"tests/{file}.py": f"class Test{driver.title()}:\n{lines}" for driver, file in KITS.items()}


def run(folder: Path, files: dict[str, str], *options: str, name: str = "test 0339f135189c") -> Path:
    """Run tests in a process of their own; return their JUnit file."""
    for path, text in {**files, "pytest.ini": "[pytest]\naddopts = --import-mode=importlib"}.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)
    words = ["-q", "-n", "0", "-p", "no:hypothesispytest", f"--junitxml={JUNIT.name}", *options]
    command = [sys.executable, "-m", "pytest", *words, *(["-o", f"junit_suite_name={name}"] if name else [])]
    done = subprocess.run(command, cwd=folder, capture_output=True, check=False, text=True, timeout=120)
    assert done.returncode < 2 or "error" in done.stdout, done.stdout + done.stderr
    return folder / JUNIT.name


def report(junit: Path, *options: str) -> tuple[int, str]:
    """Return the exit code and the report."""
    return main([str(junit), *options]), junit.with_suffix(".md").read_text("utf-8")


def row(text: str, group: str) -> list[str]:
    """Return the cells of a group, without the times."""
    (line,) = (line for line in text.splitlines() if line.startswith(f"| {group} |"))
    return [cell.strip().rpartition(", ")[0] for cell in line.split("|")[2:-1]]


def test_a_whole_run_passes_and_its_cases_are_counted_by_group_and_driver(tmp_path: Path) -> None:
    junit = run(tmp_path, tree())
    code, text = report(junit)
    assert code == 0, text
    assert "- result: **passed**" in text
    assert "- level: `make test`: of tests that have two forms, the bounded one" in text
    assert "- commit: 0339f135189c\n- started: 20" in text
    assert row(text, "workers") == ["1 passed", "1 passed", "1 passed", "", ""]
    # Of two files, one of which names a driver by itself.
    assert row(text, "determinism") == ["3 passed", "3 passed", "3 passed", "2 passed", ""]
    assert "## Failed" not in text
    assert "## Without" not in text


def test_a_driver_without_a_case_that_ran_fails_the_report(tmp_path: Path) -> None:
    skipped = "import pytest\n@pytest.mark.skip\ndef test_on_postgres(): ...\ndef test_on_mongo(): ...\n"
    code, text = report(run(tmp_path, {**tree(), "tests/contract/test_end_to_end.py": skipped}))
    assert code == 1
    assert "- result: **failed**" in text
    assert "## Without a case that ran\n\n- end to end on memory\n- end to end on postgres\n\n" in text
    assert row(text, "end to end") == ["", "1 passed", "0 passed, **1 skipped**", "", ""]


FAILING: Final = """
import pytest

@pytest.fixture
def broken():
    yield
    raise OSError

def test_error(broken): ...
def test_both(broken): assert False
class TestSome:
    @pytest.mark.parametrize("value", ["a|b"])
    def test_failure(self, value): assert False
"""


def test_every_failure_fails_the_report_and_is_named_also_outside_of_groups(tmp_path: Path) -> None:
    more, unreadable = "tests/unit/test_more.py", "tests/unit/test_unreadable.py"
    files = {**tree(), more: FAILING, unreadable: "import nothing_of_this_name"}
    code, text = report(run(tmp_path, files, "--continue-on-collection-errors"))
    assert code == 1
    failed = {f"{more}::{name}" for name in ("test_both", "test_error", "TestSome::test_failure[a|b]")}
    assert {f"- `{name}`" for name in (*failed, unreadable)} <= set(text.splitlines())
    assert "**4 failed**" in text
    assert "; 4 are in no group" in text


def test_a_baseline_of_one_driver_needs_no_cases_of_the_others(tmp_path: Path) -> None:
    files = {path: text for path, text in tree().items() if KITS["mongo"] not in path}
    junit = run(tmp_path, files)
    assert report(junit)[0] == 1
    code, text = report(junit, "--only", "postgres")
    assert code == 0
    assert "- drivers: postgres; a baseline of a fresh start, without the other drivers" in text
    assert "| Group | postgres | no driver |" in text


def test_what_is_no_whole_run_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(tmp_path / "none.xml")]) == 2
    assert "none.xml does not exist: run `make test`" in capsys.readouterr().err
    assert main([str(run(tmp_path, {"test_it.py": "def test_it(): ..."}, name=""))]) == 2
    assert (
        "holds a run of 'pytest': run `make test` or `make test-long` to its end" in capsys.readouterr().err
    )
    assert list(tmp_path.glob("*.md")) == []


def test_only_a_long_run_renews_the_pages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(verification_report, "SUPPORT", tmp_path / "support.json")
    junit = run(tmp_path, {"test_it.py": "def test_it(): ..."})
    assert main([str(junit), "--update-docs"]) == 2
    assert "holds a run of 'test': run `make test-long` to its end" in capsys.readouterr().err
    assert not (tmp_path / "support.json").exists()
    junit.write_text(junit.read_text("utf-8").replace('"test ', '"test-long '), "utf-8")
    code, text = report(junit, "--update-docs")
    assert code == 1
    assert "- level: `make test-long`: the full form of every test" in text
    assert json.loads((tmp_path / "support.json").read_text())["scheduler.runs.retry"] == []


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


def test_a_recorded_run_names_the_methods_that_its_cases_exercise(tmp_path: Path) -> None:
    file = f"tests/{KITS['memory']}.py"
    words = ["-p", "twinstore.testing.matrix", "--method-matrix=matrix.json"]
    run_ = read_run(run(tmp_path, {file: AUDIT}, *words))
    assert {case.outcome for case in run_.cases} == {"passed"}
    support = support_of(run_.cases)
    assert support["scheduler.audit_service.write"] == ["memory"]
    assert support["scheduler.runs.retry"] == []
    content = json.loads((tmp_path / "matrix.json").read_text())
    assert content["methods"]["scheduler.audit_service.write"]["Memory"]
    assert ["scheduler.runs.retry", "Memory"] in content["missing"]


def test_a_case_exercises_what_it_passed_with_and_was_answered_by() -> None:
    cases = [
        Case("a", driver="X", methods={"m": True, "n": False}),
        Case("b", driver="X", outcome="failed", methods={"m": True, "n": True}),
        Case("c", driver="Y", methods={"m": True}),
    ]
    matrix = matrix_of(cases, ("m", "n"), ("X",))
    assert matrix == {"m": {"X": ("a",)}, "n": {"X": ()}}
    assert missing_methods(matrix) == (("n", "X"),)


def test_groups_name_contracts_and_files_that_exist() -> None:
    assert SUBJECTS - FILES - SOME_CASES.keys() == set()
    assert {file for file in FILES if not (ROOT / "tests" / f"{file}.py").is_file()} == set()
    assert DRIVERS_OF_FILES.keys() - FILES == set()
