from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.contract.deployments.filesystem import filesystem_deployments
from twinstore.testing import AccessContract, AccessDefaultsContract
from twinstore.testing.taskrunner import TaskRunnerContract

if TYPE_CHECKING:
    from twinstore.testing import BackendFactory


@pytest.fixture(scope="module")
def backend_factory() -> BackendFactory:
    return filesystem_deployments


class TestFilesystemAccess(AccessContract):
    """The units, locks and lists of the driver over files of any entity, without transactions."""


class TestFilesystemDefaults(AccessDefaultsContract):
    """The same with the defaults of core alone."""


class TestFilesystemTaskRunner(TaskRunnerContract):
    """The kit of the module, on the layout of the driver."""
