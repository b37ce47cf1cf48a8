from __future__ import annotations

import pytest

from deployment import sqlite_deployments
from twinstore.testing import BackendFactory, DriverContract


@pytest.fixture(scope="module")
def backend_factory() -> BackendFactory:
    return sqlite_deployments


class TestSqlite(DriverContract):
    """Everything that a driver must do."""
