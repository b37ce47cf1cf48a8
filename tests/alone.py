"""Run the tests, and those that failed beside others once more, alone.

``python -m tests.alone [arguments of pytest]``

Workers share the cores of a machine, and some tests are about moments: who gives up first, who still waits.
What fails there and passes in a process of its own does not fail the run, but it is named at its end, because
something is wrong with the test or with the product. Many such failures are no accident, and fail the run; so
does a worker that has crashed. The JUnit file of the run gets a suite "alone" for each of them.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Final
from xml.etree import ElementTree as ET

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

MOST: Final = 3
# Which tests there are depends on them.
KEPT: Final = ("--long",)
JUNIT: Final = "--junitxml="
# With them most tests may never have run.
EARLY: Final = ("-x", "--exitfirst", "--maxfail")
STEPS: Final = ("setup", "call", "teardown")


class Failures:
    """What failed in a run."""

    def __init__(self) -> None:
        """Nothing has failed yet."""
        self.tests: dict[str, None] = {}
        self.others = False

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note a test that failed; a worker that crashed has a step of another name."""
        if report.failed and report.when in STEPS:
            self.tests[report.nodeid] = None
        elif report.failed:
            self.others = True

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Note a file that could not be read."""
        self.others = self.others or report.failed


def main(arguments: Sequence[str]) -> int:
    """Run pytest with these arguments; return its exit code, or 0 where what failed passed alone."""
    environment, failures = dict(os.environ), Failures()
    code = int(pytest.main([*arguments], plugins=[failures]))
    ends_early = any(argument.startswith(EARLY) for argument in arguments)
    accident = not failures.others and 0 < len(failures.tests) <= MOST
    if code != pytest.ExitCode.TESTS_FAILED or ends_early or not accident:
        return code
    say("Failed beside other tests; each runs once more, alone:", failures.tests)
    options = [option for option in KEPT if option in arguments]
    reports = [argument.partition("=")[2] for argument in arguments if argument.startswith(JUNIT)]
    if not all(passes(name, options, environment, reports) for name in failures.tests):
        return code
    say("Failed beside other tests and passed alone, which is a defect to look for:", failures.tests)
    return 0


def say(what: str, names: Iterable[str]) -> None:
    """Print a line, and names below it."""
    sys.stdout.write("".join((f"\n{what}\n", *(f"  {name}\n" for name in names), "\n")))
    sys.stdout.flush()


def passes(name: str, options: Sequence[str], environment: Mapping[str, str], reports: Iterable[str]) -> bool:
    """Whether a test passes in a process of its own; its result is added to the JUnit files of the run."""
    with TemporaryDirectory() as folder:
        result = Path(folder, "alone.xml")
        options = [*options, f"{JUNIT}{result}", "-o", "junit_suite_name=alone"]
        command = [sys.executable, "-m", "pytest", "-n", "0", *options, name]
        code = subprocess.run(command, env=environment, check=False).returncode
        for report in reports if result.is_file() else ():
            whole = ET.parse(report)  # noqa: S314  # pytest wrote both
            whole.getroot().extend(ET.parse(result).getroot())  # noqa: S314
            whole.write(report, "utf-8", xml_declaration=True)
    return code == 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
