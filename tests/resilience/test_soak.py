"""Under faults of every kind nothing is lost, done twice, shown to others or kept, on both servers."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING, Final

import pytest

from tests.support.server_supervisor import ROOT

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.long

SECONDS: Final = 120
# What happens to each database, at least.
OUTAGES: Final = {
    "mongo": {"stalled server", "killed"},
    "postgres": {"stalled server", "killed"},
    "mongo-set": {"stepped down", "primary killed", "all killed", "stalled primary"},
}


@pytest.mark.parametrize("name", OUTAGES)
def test_faults_lose_nothing_do_nothing_twice_show_no_other_tenant_and_leave_nothing(
    name: str, tmp_path: Path
) -> None:
    words = ["--minutes", str(SECONDS / 60), "--journals", str(tmp_path), "--only", name]
    command = [sys.executable, "-m", "tools.soak", *words]
    done = subprocess.run(command, check=False, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    found = json.loads((tmp_path / "results.json").read_text())[name]
    assert found["violations"] == []
    assert done.returncode == 0
    assert min(found["operations"].values()) > 0
    assert OUTAGES[name] <= set(found["outages"])
    assert found["refused"] > 0
    # Two of them are reported even if there was none.
    assert all(found["faults"].get(kind) for kind in ("cancelled", "crowded", "forked"))
    assert found["kills"] >= SECONDS / 3
