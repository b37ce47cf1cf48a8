"""A plug-in of pytest that writes which methods the cases of a kit exercise on a driver.

    pytest -p twinstore.testing.matrix --method-matrix matrix.json tests

The calls are observed while the cases run. The run fails where a method of a module whose kit ran has no
case that passed and was answered; see :func:`~twinstore.testing.methods.matrix_of`. Workers of pytest-xdist
send what they saw. Without the option nothing is observed.
"""

from __future__ import annotations

import json
from collections.abc import Generator
from dataclasses import asdict
from pathlib import Path
from typing import Final, cast

import pytest

from twinstore.plugins.modules import complete_modules, module_spec
from twinstore.testing.base import Contract
from twinstore.testing.methods import Case, matrix_of, method_names, missing_methods
from twinstore.testing.recording import Calls, record_sessions
from twinstore.testing.workspace import Workspace

__all__ = ["PROPERTY", "Recorder", "pytest_addoption", "pytest_configure"]

OPTION: Final = "--method-matrix"
# The property of a case with its driver, module and calls as JSON. Workers send it; a JUnit file has it, too.
PROPERTY: Final = "twinstore_case"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Let a run name the file."""
    parser.addoption(OPTION, type=Path, metavar="FILE", help="write which methods the cases exercise")


def pytest_configure(config: pytest.Config) -> None:
    """Observe the run where it named a file."""
    file: Path | None = config.getoption(OPTION)
    if file is None:
        return
    config.pluginmanager.register(Recorder(config), "twinstore-recorder")
    if not hasattr(config, "workerinput"):  # of a worker, whose controller writes
        config.pluginmanager.register(Writer(file), "twinstore-matrix")


class Recorder:
    """Observes each case in the process that runs it."""

    def __init__(self, config: pytest.Config) -> None:
        self._calls = Calls()
        patch = pytest.MonkeyPatch()
        config.add_cleanup(patch.undo)
        for spec in complete_modules():
            if spec.storage is not None and spec.session is not None:
                record_sessions(spec, self._calls, patch)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        """Observe what a case of a kit opens, and what is opened for its class."""
        kit: object = getattr(item, "cls", None)
        self._calls.observing = isinstance(kit, type) and issubclass(kit, Contract)
        return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, object, object]:
        """Note what a case calls."""
        workspace = _workspace_of(item)
        if workspace is None:
            return (yield)
        driver = workspace.storage.driver
        self._calls.begin(driver)
        try:
            return (yield)
        finally:
            seen = {"driver": driver, "module": _module_of(item), "methods": self._calls.end()}
            item.user_properties.append((PROPERTY, json.dumps(seen)))


def _workspace_of(item: pytest.Item) -> Workspace | None:
    arguments: dict[str, object] = getattr(item, "funcargs", {})
    for value in arguments.values():
        if isinstance(value, Workspace):
            return cast("Workspace", value)
    return None


def _module_of(item: pytest.Item) -> str | None:
    kit: object = getattr(item, "cls", None)
    if isinstance(kit, type) and issubclass(kit, Contract) and hasattr(kit, "module"):
        return kit.module.module.name
    return None


class Writer:
    """Collects what became of all cases, and writes it when the run ends."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._cases: dict[str, Case] = {}
        self._missing: tuple[tuple[str, str], ...] = ()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Take the report of a phase of a case, its own process's or a worker's."""
        case = self._cases.setdefault(report.nodeid, Case(report.nodeid))
        case.seconds += report.duration
        if report.outcome != "passed" and case.outcome != "failed":
            case.outcome = report.outcome
        for name, seen in report.user_properties:
            if name == PROPERTY and report.when == "call":
                for field, value in json.loads(str(seen)).items():
                    setattr(case, field, value)

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Write the file; a method without a case fails the run."""
        cases = [self._cases[name] for name in sorted(self._cases)]
        modules = sorted({case.module for case in cases if case.module is not None})
        drivers = {case.driver for case in cases if case.driver is not None}
        methods = [name for module in modules for name in method_names(module_spec(module))]
        matrix = matrix_of(cases, methods, drivers)
        self._missing = missing_methods(matrix)
        content = {"cases": [asdict(case) for case in cases], "methods": matrix, "missing": self._missing}
        self._file.write_text(json.dumps(content, indent=1), "utf-8")
        if self._missing and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Name each method without a case."""
        for method, driver in self._missing:
            terminalreporter.write_line(f"{method} has no case on {driver} that passed and was answered")
