"""What fails beside other tests and passes alone is named; anything else fails the run."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.alone import MOST
from tests.verification_report import read_run

ROOT = Path(__file__).parents[2]
BESIDE_OTHERS = 'os.environ.get("PYTEST_XDIST_WORKER")'


def run(directory: Path, conditions: list[str], *options: str) -> tuple[int, str]:
    """Run a test for each condition, which fails where it holds; return the exit code and the output."""
    tests = "".join(
        f"def test_{number}():\n    assert not ({one})\n\n" for number, one in enumerate(conditions)
    )
    (directory / "test_some.py").write_text(f"import os\n\n{tests}")
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "tests.alone",
            "-n",
            "1",
            "--rootdir",
            ".",
            "-p",
            "no:cacheprovider",
            *options,
            ".",
        ],
        cwd=directory,
        # It is no worker, whoever runs this test.
        env={name: value for name, value in os.environ.items() if not name.startswith("PYTEST_XDIST_")}
        | {"PYTHONPATH": str(ROOT)},
        check=False,
        capture_output=True,
        text=True,
    )
    return done.returncode, done.stdout


def test_what_passes_alone_fails_no_run_and_is_named_at_its_end(tmp_path: Path) -> None:
    code, said = run(
        tmp_path, ["False", BESIDE_OTHERS], "--junitxml=run.xml", "-o", "junit_suite_name=test 0339f135189c"
    )
    assert code == 0
    assert said.endswith("a defect to look for:\n  test_some.py::test_1\n\n")
    found = read_run(tmp_path / "run.xml")
    assert {case.id: case.outcome for case in found.cases} == {
        "test_some.py::test_0": "passed",
        "test_some.py::test_1": "passed",
    }
    assert found.again == ["test_some.py::test_1"]


@pytest.mark.parametrize(
    "conditions",
    [
        ["False", "True"],
        [BESIDE_OTHERS, "True"],
        [BESIDE_OTHERS] * (MOST + 1),
        [f"{BESIDE_OTHERS} and os._exit(1)"],
    ],
    ids=["always", "one of two", "too many", "a worker that crashed"],
)
def test_every_other_failure_fails_the_run(tmp_path: Path, conditions: list[str]) -> None:
    code, said = run(tmp_path, conditions)
    assert code == pytest.ExitCode.TESTS_FAILED
    assert "passed alone" not in said


def test_a_run_that_ends_at_its_first_failure_fails(tmp_path: Path) -> None:
    assert run(tmp_path, [BESIDE_OTHERS], "-x")[0] != 0


def test_a_file_that_cannot_be_read_fails_the_run(tmp_path: Path) -> None:
    (tmp_path / "test_broken.py").write_text("import nothing_of_this_name\n")
    assert run(tmp_path, [BESIDE_OTHERS])[0] not in {0, pytest.ExitCode.NO_TESTS_COLLECTED}
