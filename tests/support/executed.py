"""The map of a whole run: which files of the checkout the tests of each file execute.

``--write-map FILE`` records it, in this process, its forks, and every process that it starts with its own
environment. A process that a signal kills leaves nothing. A file counts as executed when the body of one of
its functions is. Mere imports are not recorded, so a file without such a body is not in the map.

The map is JSON, ``{"core/twinstore/access/paging.py": ["tests/unit/test_paging.py"]}``, for
:mod:`tests.support.changed`.
"""

from __future__ import annotations

import ast
import json
import os
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Final

import coverage
import coverage.exceptions

if TYPE_CHECKING:
    import pytest

ROOT: Final = Path(__file__).parents[2]
# In the directory for the private files of a checkout.
MAP: Final = ROOT / ".twinstore" / "tests-map.json"
# Names the test file, for the settings of each process that is started.
CURRENT: Final = "TWINSTORE_TEST_FILE"
SETTINGS: Final = "COVERAGE_PROCESS_START"
FOLDER: Final = "executed"
OWN: Final = "own.ini"
OTHERS: Final = "others.ini"
# A warning would appear in the stderr that a test checks.
CONFIG: Final = f"""\
[run]
source = {ROOT}
omit = {ROOT}/.*
data_file = {{folder}}/data
parallel = true
patch =
  fork
  _exit
disable_warnings =
  couldnt-parse
  module-not-imported
  module-not-measured
  module-not-python
  no-data-collected
  previously-imported
  trace-changed
"""


def prepare(directory: Path) -> None:
    """Write the settings of coverage for a run, before a worker or a child process reads them."""
    folder = directory / FOLDER
    folder.mkdir()
    # Some tests start processes of another user.
    folder.chmod(0o1777)
    text = CONFIG.format(folder=folder)
    (folder / OWN).write_text(text)
    (folder / OTHERS).write_text(f"{text}context = ${{{CURRENT}}}\n")


class Recorder:
    """Notes what is executed, in a process that runs tests."""

    def __init__(self, directory: Path) -> None:
        """Take the directory of the run."""
        self._others = directory / FOLDER / OTHERS
        self._coverage = coverage.Coverage(config_file=str(directory / FOLDER / OWN))
        self._file = ""

    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        """Count what follows for the file of a test."""
        file = item.path.relative_to(ROOT).as_posix()
        if file == self._file:
            return
        if not self._file:
            os.environ[SETTINGS] = str(self._others)
            self._coverage.start()
        self._file = os.environ[CURRENT] = file
        self._coverage.switch_context(file)
        # A fork of this process starts again with its settings.
        self._coverage.set_option("run:context", file)

    def pytest_sessionfinish(self) -> None:
        """Keep what was noted."""
        if self._file:
            self._coverage.stop()
            self._coverage.save()
            del os.environ[SETTINGS]


def start_in_fork() -> None:
    """Note what a fork of the fork server executes, if its environment wants that."""
    if SETTINGS in os.environ:
        coverage.process_startup()


def write_map(directory: Path, target: Path) -> None:
    """Write the map of what all processes of a run have noted."""
    measured = coverage.Coverage(config_file=str(directory / FOLDER / OWN))
    with warnings.catch_warnings():
        # A process that was killed while it wrote what it had noted.
        warnings.simplefilter("ignore", coverage.exceptions.CoverageWarning)
        measured.combine()
    data = measured.get_data()
    found: dict[str, list[str]] = {}
    # Templates of reports are measured too, as far as their code has lines of theirs.
    for file in sorted(name for name in data.measured_files() if name.endswith(".py")):
        by_line = data.contexts_by_lineno(file)
        names = {name for line in bodies(Path(file)) for name in by_line.get(line, ()) if name}
        if names:
            found[Path(file).relative_to(ROOT).as_posix()] = sorted(names)
    target.parent.mkdir(exist_ok=True)
    target.write_text(json.dumps(found, indent=1) + "\n")


def bodies(file: Path) -> set[int]:
    """Return the lines of a file that belong to bodies of functions; an import executes the others."""
    functions = (
        node
        for node in ast.walk(ast.parse(file.read_bytes()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    )
    return {line for node in functions for line in range(node.body[0].lineno, (node.end_lineno or 0) + 1)}
