"""Servers in containers: selection, start, mapped ports, readiness, removal, against an engine of our own."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from tests.harness.engine import running_engine

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.harness.engine import Engine

# One test that needs both servers, and their roles.
TESTS: Final = (
    "tests/harness/test_isolation.py::test_mongo_is_a_replica_set_that_can_run_a_transaction",
    "tests/harness/test_isolation.py::test_neither_role_can_pass_row_level_security",
)
IMAGES: Final = ("mongo:7.0", "postgres:17")
OURS: Final = ("DOCKER_", "TESTCONTAINERS_", "TWINSTORE_TEST_", "TC_", "PYTEST_")


@pytest.fixture
def engine() -> Iterator[Engine]:
    # Not below tmp_path: the path of a socket may have about a hundred characters.
    with tempfile.TemporaryDirectory(prefix="twinstore-engine-") as name:
        home = Path(name)
        home.chmod(0o711)  # PostgreSQL runs as another user than root
        with running_engine(home) as engine:
            yield engine


def run(engine: Engine) -> subprocess.CompletedProcess[str]:
    """Run the tests on containers."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith(OURS)}
    environ |= {
        "TWINSTORE_TEST_SERVERS": "containers",
        "DOCKER_HOST": engine.address,
        # In a container of its own, this process would look for the network between the two.
        "TESTCONTAINERS_CONNECTION_MODE": "docker_host",
        "TESTCONTAINERS_HOST_OVERRIDE": "127.0.0.1",
        "TC_POOLING_INTERVAL": "0.05",
        "HOME": str(engine.home),
    }
    command = [sys.executable, "-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider", *TESTS]
    return subprocess.run(command, check=False, capture_output=True, text=True, env=environ)


def test_a_run_takes_its_servers_from_containers_and_removes_them(engine: Engine) -> None:
    done = run(engine)
    assert "2 passed" in done.stdout, done.stdout + done.stderr
    assert engine.containers == {}
    assert {*IMAGES} <= {*engine.pulled}
    for image in IMAGES:
        assert [step for step in engine.done if image in step] == [f"start {image}", f"remove {image}"]
