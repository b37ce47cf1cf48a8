"""A run on a machine without pgbouncer lists what it skipped."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.support.pgbouncer import SKIP_NOTE, VARIABLE

pytestmark = pytest.mark.long

NEEDS_IT = "tests/drivers/postgres/test_pooler_refusals.py"
DOES_NOT = "tests/drivers/postgres/test_queries.py"


def summary(*arguments: str) -> str:
    """Return what a run without the program says."""
    command = [sys.executable, "-m", "pytest", "-q", *arguments]
    environ = {**os.environ, VARIABLE: ""}
    return subprocess.run(command, check=False, capture_output=True, text=True, env=environ).stdout


@pytest.mark.parametrize("workers", ["0", "1"])
def test_what_needs_the_program_is_skipped_and_the_summary_says_so(workers: str) -> None:
    said = summary("-n", workers, NEEDS_IT)
    assert SKIP_NOTE in said
    assert "passed" not in said
    assert "failed" not in said


def test_a_run_that_needs_it_nowhere_says_nothing() -> None:
    said = summary("-n", "0", "--collect-only", DOES_NOT)
    assert SKIP_NOTE not in said
    assert "deselected" not in said
