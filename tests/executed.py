"""The map of a whole run: which files of the checkout the tests of each file execute.

``--write-map FILE`` records it, in this process, its forks, and every process that it starts with its own
environment. A process that a signal kills leaves nothing. What a module does when it is imported counts for
the file that runs first after it, not for those that use it later.

The map is JSON, ``{"core/twinstore/paging.py": ["tests/unit/test_paging.py"]}``, for :mod:`tests.changed`.
"""

from __future__ import annotations

import json
import os
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Final

import coverage
import coverage.exceptions

if TYPE_CHECKING:
    import pytest

__all__ = ["MAP", "ROOT", "Recorder", "start_in_fork", "write_map"]

ROOT: Final = Path(__file__).parents[1]
# Beside what else a checkout keeps for itself.
MAP: Final = ROOT / ".twinstore" / "tests-map.json"
# Whose tests run; the settings of each process that is started name it.
CURRENT: Final = "TWINSTORE_TEST_FILE"
SETTINGS: Final = "COVERAGE_PROCESS_START"
FOLDER: Final = "executed"
# A warning would stand in the stderr that a test looks at.
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


class Recorder:
    """Notes what is executed, in a process that runs tests."""

    def __init__(self, directory: Path) -> None:
        """Prepare it; the directory is that of the run."""
        folder = directory / FOLDER
        # Some tests start processes of another user.
        folder.mkdir(exist_ok=True)
        folder.chmod(0o1777)
        text = CONFIG.format(folder=folder)
        own, self._others = folder / "own.ini", folder / "others.ini"
        own.write_text(text)
        self._others.write_text(f"{text}context = ${{{CURRENT}}}\n")
        self._coverage = coverage.Coverage(config_file=str(own))
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
        # That of forks.
        self._coverage.set_option("run:context", file)
        self._coverage.switch_context(file)

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
    noted = coverage.Coverage(config_file=str(directory / FOLDER / "own.ini"))
    with warnings.catch_warnings():
        # A process that was killed while it wrote what it had noted.
        warnings.simplefilter("ignore", coverage.exceptions.CoverageWarning)
        noted.combine()
    data = noted.get_data()
    tests = {
        Path(file).relative_to(ROOT).as_posix(): {
            name for names in data.contexts_by_lineno(file).values() for name in names if name
        }
        for file in data.measured_files()
    }
    target.parent.mkdir(exist_ok=True)
    found = {file: sorted(names) for file, names in sorted(tests.items()) if names}
    target.write_text(json.dumps(found, indent=1) + "\n")
