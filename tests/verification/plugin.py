"""A plug-in of pytest for the run behind the report: it takes the cases of the groups and their drivers.

A case is about the drivers that its id and its fixtures name. ``--only-driver`` leaves out what needs another
server.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

import pytest

from tests.verification.groups import DRIVERS, drivers_named, groups_of
from twinstore.testing.matrix import contract_of

ONLY: Final = "--only-driver"
DRIVERS_FILE: Final = "--drivers-file"
PROPERTY: Final = "drivers"
# It needs no server, so a run of one driver may use it as the other side of a copy.
SERVERLESS: Final = {"memory"}


def pytest_addoption(parser: pytest.Parser) -> None:
    """Take the options of the run."""
    parser.addoption(ONLY, choices=DRIVERS, help="leave out what another server is needed for")
    parser.addoption(DRIVERS_FILE, type=Path, help="write which drivers each case is about")


def pytest_configure(config: pytest.Config) -> None:
    """Collect in the controller."""
    file: Path | None = config.getoption(DRIVERS_FILE)
    if file is not None and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Drivers(file), "verification-drivers")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep the cases of the groups that the run is about."""
    only: str | None = config.getoption(ONLY)
    chosen: list[pytest.Item] = []
    for item in items:
        drivers = drivers_of(item)
        if groups_of(item.nodeid, contract_of(item)) and admitted(drivers, only):
            item.user_properties.append((PROPERTY, sorted(drivers)))
            chosen.append(item)
    config.hook.pytest_deselected(items=[item for item in items if item not in set(chosen)])
    items[:] = chosen


def drivers_of(item: pytest.Item) -> frozenset[str]:
    """Return the drivers that a case is about; none for one that needs no store."""
    named = drivers_named(item.nodeid)
    fixtures: list[str] = getattr(item, "fixturenames", [])
    return named or frozenset[str]().union(*map(drivers_named, fixtures))


def admitted(drivers: frozenset[str], only: str | None) -> bool:
    """Whether a run that is about one driver has a case."""
    return only is None or not drivers or (only in drivers and drivers <= {only, *SERVERLESS})


class Drivers:
    """Writes the drivers of each case when the run ends."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._found: dict[str, object] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Take the report of a phase of a case."""
        self._found[report.nodeid] = dict(report.user_properties).get(PROPERTY, [])

    def pytest_sessionfinish(self) -> None:
        """Write the file."""
        self._file.write_text(json.dumps(self._found), "utf-8")
