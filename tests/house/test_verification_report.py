"""The verification report shows what JUnit files of real runs hold, and fails where a group has no case."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Final
from xml.etree import ElementTree as ET

import pytest

from tests.support import verification_report
from tests.support.server_supervisor import ROOT
from tests.support.verification_report import (
    DRIVERS,
    DRIVERS_OF_FILES,
    GROUPS,
    JUNIT,
    KITS,
    case_of,
    contracts_of_kits,
    main,
    read_run,
    support_of,
)
from twinstore.testing.matrix import Case, matrix_of, missing_methods

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

SUBJECTS: Final = {word for words in GROUPS.values() for word in words.split()}
FILES: Final = {word for word in SUBJECTS if "/" in word}
SOME_CASES: Final = {contract: case for case, contract in contracts_of_kits().items()}
MORE, UNREADABLE = "unit/test_more", "unit/test_unreadable"
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


def tree() -> dict[str, str]:
    """Return a file for each that a group names, with a case for each driver, and the kits."""
    text = f"import pytest\n\n@pytest.mark.parametrize('driver', {list(DRIVERS)})\ndef test_it(driver): ...\n"
    cases: dict[str, list[str]] = {}
    for contract in sorted(SUBJECTS - FILES):
        kit, test = SOME_CASES[contract]
        cases.setdefault(kit, []).append(f"        def {test}(self): ...\n")
    lines = "".join(f"    class {kit}:\n{''.join(tests)}" for kit, tests in cases.items())
    kits = {file: f"class Test{driver.title()}:\n{lines}" for driver, file in KITS.items()}
    return dict.fromkeys(FILES, text) | kits


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the JUnit file of a real run with cases of every group, which fail outside of groups."""
    folder = tmp_path_factory.mktemp("run")
    files = {**tree(), MORE: FAILING, UNREADABLE: "import nothing_of_this_name"}
    files[KITS["memory"]] += AUDIT
    for name, text in files.items():
        path = folder / "tests" / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    words = "-q -n 0 -p no:hypothesispytest --import-mode=importlib --continue-on-collection-errors"
    written = [f"--junitxml={JUNIT.name}", "--method-matrix=matrix.json", "-p", "twinstore.testing.matrix"]
    command = [sys.executable, "-m", "pytest", *words.split(), *written, "-c", os.devnull, "--rootdir=."]
    subprocess.run([*command, "-o", "junit_suite_name=test 0339f135189c"], cwd=folder, check=False)
    return folder / JUNIT.name


@pytest.fixture
def junit(real: Path, tmp_path: Path) -> Callable[..., Path]:
    """Return what writes that file without the cases of some test files, and with some that were skipped."""

    def written(*left_out: str, skipped: str = "nothing") -> Path:
        (suite,) = ET.parse(real).getroot()  # noqa: S314  # pytest wrote it
        for element in list(suite):
            case = case_of(element)
            if case.file in left_out:
                suite.remove(element)
            elif case.file == skipped and "mongo" not in case.name:
                ET.SubElement(element, "skipped")
        path = tmp_path / JUNIT.name
        path.write_bytes(ET.tostring(suite))
        return path

    return written


def report(junit: Path, *options: str) -> tuple[int, str]:
    """Return the exit code and the report."""
    return main([str(junit), *options]), junit.with_suffix(".md").read_text("utf-8")


def row(text: str, group: str) -> list[str]:
    """Return the cells of a group, without the times."""
    (line,) = (line for line in text.splitlines() if line.startswith(f"| {group} |"))
    return [cell.strip().rpartition(", ")[0] for cell in line.split("|")[2:-1]]


def test_a_whole_run_passes_and_its_cases_are_counted_by_group_and_driver(junit: Callable[..., Path]) -> None:
    code, text = report(junit(MORE, UNREADABLE))
    assert code == 0, text
    assert "- result: **passed**" in text
    assert "- level: `make test`: of tests that have two forms, the bounded one" in text
    assert "- commit: 0339f135189c\n- started: 20" in text
    assert row(text, "workers") == ["1 passed", "1 passed", "1 passed", "", ""]
    # Of two files, one of which names a driver by itself.
    assert row(text, "determinism") == ["3 passed", "3 passed", "3 passed", "2 passed", ""]
    assert "## Failed" not in text
    assert "## Without" not in text


def test_a_driver_without_a_case_that_ran_fails_the_report(junit: Callable[..., Path]) -> None:
    code, text = report(junit(MORE, UNREADABLE, skipped="drivers/test_end_to_end"))
    assert code == 1
    assert "- result: **failed**" in text
    assert "## Without a case that ran\n\n- end to end on memory\n- end to end on postgres\n\n" in text
    none = "0 passed, **1 skipped**"
    assert row(text, "end to end") == [none, "1 passed", none, none, ""]


def test_every_failure_fails_the_report_and_is_named_also_outside_of_groups(
    junit: Callable[..., Path],
) -> None:
    code, text = report(junit(KITS["memory"]))
    assert code == 1
    names = ("test_both", "test_error", "TestSome::test_failure[a|b]")
    failed = {f"tests/{UNREADABLE}.py", *(f"tests/{MORE}.py::{name}" for name in names)}
    assert {f"- `{name}`" for name in failed} <= set(text.splitlines())
    assert "**4 failed**" in text
    assert "; 4 are in no group" in text


def test_a_baseline_of_one_driver_needs_no_cases_of_the_others(junit: Callable[..., Path]) -> None:
    path = junit(MORE, UNREADABLE, KITS["mongo"])
    assert report(path)[0] == 1
    code, text = report(path, "--only", "postgres")
    assert code == 0
    assert "- drivers: postgres; a baseline of a fresh start, without the other drivers" in text
    assert "| Group | postgres | no driver |" in text


def test_what_is_no_whole_run_is_refused(
    junit: Callable[..., Path], capsys: pytest.CaptureFixture[str]
) -> None:
    path = junit()
    assert main([str(path.with_name("none.xml"))]) == 2
    assert "none.xml does not exist: run `make test`" in capsys.readouterr().err
    path.write_text(path.read_text("utf-8").replace('"test 0339f135189c"', '"pytest"'), "utf-8")
    assert main([str(path)]) == 2
    assert (
        "holds a run of 'pytest': run `make test` or `make test-long` to its end" in capsys.readouterr().err
    )
    assert list(path.parent.glob("*.md")) == []


def test_only_a_long_run_renews_the_pages(
    junit: Callable[..., Path], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = junit()
    support = path.with_name("support.json")
    monkeypatch.setattr(verification_report, "SUPPORT", support)
    assert main([str(path), "--update-docs"]) == 2
    assert "holds a run of 'test': run `make test-long` to its end" in capsys.readouterr().err
    assert not support.exists()
    path.write_text(path.read_text("utf-8").replace('"test ', '"test-long '), "utf-8")
    code, text = report(path, "--update-docs")
    assert code == 1
    assert "- level: `make test-long`: the full form of every test" in text
    assert json.loads(support.read_text())["scheduler.runs.retry"] == []


def test_a_recorded_run_names_the_methods_that_its_cases_exercise(real: Path) -> None:
    support = support_of(read_run(real).cases)
    assert support["scheduler.audit_service.write"] == ["memory"]
    assert support["scheduler.runs.retry"] == []
    content = json.loads(real.with_name("matrix.json").read_text())
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
