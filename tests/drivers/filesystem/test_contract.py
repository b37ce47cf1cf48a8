from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.drivers.filesystem.deployment import filesystem_deployments
from twinstore.testing import AccessContract, AccessDefaultsContract
from twinstore.testing.contracts.access_changing import AccessChangeContract
from twinstore.testing.contracts.access_units import AccessUnitContract
from twinstore.testing.taskrunner import TaskRunnerContract

if TYPE_CHECKING:
    from twinstore.testing import BackendFactory


@pytest.fixture(scope="module")
def backend_factory() -> BackendFactory:
    return filesystem_deployments


class TestFilesystemTaskRunner(TaskRunnerContract):
    """The kit of the module, on the layout of the driver."""


class TestFilesystemSteps(AccessChangeContract, AccessUnitContract):
    """Units and locks over files of any entity, without transactions."""


@pytest.mark.long
class TestFilesystemAccess(AccessContract):
    """Every operation over files of any entity, a file for each row."""


@pytest.mark.long
class TestFilesystemDefaults(AccessDefaultsContract):
    """The same with the defaults of core alone."""
