"""Under faults of every kind nothing is lost, done twice, shown to others or kept, on both servers."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING, Final

import pytest

from tests.support.server_supervisor import ROOT
from tools.soak.plan import NETWORK
from tools.soak.servers import WAYS

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


@pytest.mark.parametrize("name", ["mongo", "postgres"])
def test_a_bad_network_loses_nothing_and_services_are_ready_soon_after_it(name: str, tmp_path: Path) -> None:
    words = ["--minutes", "2.5", "--journals", str(tmp_path), "--only", name, "--faults", "network"]
    command = [sys.executable, "-m", "tools.soak", *words]
    assert subprocess.run(command, check=False, cwd=ROOT, stdout=subprocess.PIPE).returncode == 0
    found = json.loads((tmp_path / "results.json").read_text())[name]
    assert set(found["outages"]) == {f"{NETWORK}{way}" for way in WAYS}
    assert found["refused"] > 0


def test_killed_commands_lose_nothing_and_find_what_differs() -> None:
    command = [sys.executable, "-m", "tools.soak.commands", "--kills", "60", "--rows", "4000"]
    done = subprocess.run(command, check=False, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert done.returncode == 0, done.stdout


def test_full_disks_lose_nothing_and_leave_no_false_report() -> None:
    command = [sys.executable, "-m", "tools.soak.full_disk", "--faults", "5", "--rows", "2000"]
    done = subprocess.run(command, check=False, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert done.returncode == 0, done.stdout
