"""Workers that are killed while everything moves lose nothing and do nothing twice, on both servers."""

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

BOUNDED: Final = 8
FULL: Final = 120


@pytest.mark.parametrize("driver", ["mongo", "postgres"])
def test_killed_workers_lose_nothing_and_do_nothing_twice(
    driver: str, request: pytest.FixtureRequest, tmp_path: Path, *, long_form: bool
) -> None:
    """In the full form on servers of their own, which are restarted meanwhile."""
    if long_form:
        found = soaked(tmp_path, "--only", driver, seconds=FULL)[driver]
        assert found["outages"]
        assert found["refused"] > 0
    else:
        with fresh_settings(driver, request) as settings:
            file = tmp_path / "settings.json"
            file.write_text(json.dumps({driver: settings}))
            found = soaked(tmp_path, "--settings", str(file), seconds=BOUNDED)[driver]
        assert found["outages"] == {}
        assert found["refused"] == 0
    assert found["violations"] == []
    assert min(found["operations"].values()) > 0
    assert found["kills"] >= (FULL if long_form else BOUNDED) / 3


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
