"""Under faults of every kind nothing is lost, done twice, shown to others or kept, on both servers."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any, Final

import pytest

from tests.server_supervisor import ROOT
from tests.stores import fresh_settings

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.long

BOUNDED: Final = 7
FULL: Final = 120
# What services do to themselves.
INSIDE: Final = ("cancelled", "crowded", "forked", "interrupted")


@pytest.mark.parametrize("driver", ["mongo", "postgres"])
def test_faults_lose_nothing_do_nothing_twice_show_nobody_else_and_leave_nothing(
    driver: str, request: pytest.FixtureRequest, tmp_path: Path, *, long_form: bool
) -> None:
    """In the full form on servers of their own, which are restarted meanwhile and run out of disk."""
    if long_form:
        found = soaked(tmp_path, "--only", driver, seconds=FULL)[driver]
        assert {"stalled server", "killed"} <= set(found["outages"])
        assert found["refused"] > 0
        assert set(INSIDE) <= {kind for kind, number in found["faults"].items() if number}
    else:
        with fresh_settings(driver, request) as settings:
            file = tmp_path / "settings.json"
            file.write_text(json.dumps({driver: settings}))
            found = soaked(tmp_path, "--settings", str(file), seconds=BOUNDED)[driver]
        # How many there are depends on the machine; what happens first, on the seed.
        assert found["outages"]
        assert set(found["outages"]) <= {"stalled network", "cut connections"}
    assert found["violations"] == []
    assert min(found["operations"].values()) > 0
    assert any(found["faults"].get(kind) for kind in INSIDE)
    assert found["kills"] >= (FULL if long_form else BOUNDED) / 3


@pytest.mark.long
def test_a_set_of_three_that_loses_its_primary_loses_nothing(tmp_path: Path) -> None:
    found = soaked(tmp_path, "--only", "mongo-set", seconds=FULL)["mongo-set"]
    assert found["violations"] == []
    assert set(found["outages"]) == {"stepped down", "primary killed", "all killed", "stalled primary"}


def soaked(folder: Path, *options: str, seconds: float) -> dict[str, Any]:
    """Run the program as `make soak` does; return what it came to."""
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "tests.soak",
            "--minutes",
            str(seconds / 60),
            "--journals",
            str(folder),
            *options,
        ],
        capture_output=True,
        check=False,
        cwd=ROOT,
        text=True,
        timeout=seconds + 120,
    )
    results = folder / "results.json"
    assert results.exists(), done.stderr
    found: dict[str, Any] = json.loads(results.read_text())
    assert done.returncode == int(any(result["violations"] for result in found.values()))
    assert "violations" in done.stdout
    return found
