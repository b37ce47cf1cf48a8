"""The full forms of tests are there, and only for those who ask."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytestmark = pytest.mark.long

BOTH_FORMS = "tests/backfill/test_killed_copy.py"


def collected(*options: str) -> set[str]:
    """Return the names of the tests that a run with these options would perform."""
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-n", "0", *options, BOTH_FORMS]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return {line.split("::")[1] for line in done.stdout.splitlines() if "::" in line}


@pytest.mark.parametrize("options", [(), ("--long",)], ids=["make test", "make test-long"])
def test_a_full_form_runs_only_when_it_is_asked_for(options: tuple[str, ...]) -> None:
    kills = {name.split("_")[2] for name in collected(*options) if name.startswith("test_killed_")}
    assert kills == ({"three", "twenty"} if options else {"three"})
