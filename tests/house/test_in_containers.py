"""Cases of the kit on servers that testcontainers runs on a real container engine."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Final

import pytest

from tests.support.servers import SERVERS, podman

pytestmark = [pytest.mark.long, pytest.mark.podman]

# The bounded kit of one module, and what every test expects of the servers.
CASES: Final = (
    "tests/drivers/mongo/test_contract.py::TestMongo::TestTracking",
    "tests/drivers/postgres/test_contract.py::TestPostgres::TestTracking",
    "tests/house/test_isolation.py",
)
OTHERS: Final = ("DOCKER_", "TESTCONTAINERS_", "TWINSTORE_TEST_", "PYTEST_")


def containers() -> set[str]:
    """Return the containers that exist."""
    listed = subprocess.run(podman("ps", "--all", "--quiet"), check=True, capture_output=True, text=True)
    return set(listed.stdout.split())


def test_cases_of_the_kit_pass_on_servers_in_containers_which_end_with_the_run() -> None:
    before = containers()
    environ = {name: value for name, value in os.environ.items() if not name.startswith(OTHERS)}
    environ[SERVERS] = "podman"
    command = [sys.executable, "-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider", *CASES]
    done = subprocess.run(command, check=False, capture_output=True, text=True, env=environ)
    assert done.returncode == 0, done.stdout + done.stderr
    assert containers() <= before
