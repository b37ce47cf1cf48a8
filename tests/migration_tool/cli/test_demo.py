"""The demo runs completely on its own servers and ends with a proof."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from twinstore_backfill.demo.run import STEPS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.distributions import Installed

pytestmark = pytest.mark.long

# Every entity is corrupted by the tests of the self-test; here it only has to run and to be shown.
PROGRAM: Final = """
import sys
from pathlib import Path
from twinstore_backfill.demo.run import run_demo

print(run_demo(Path(sys.argv[1]), runs=200, sample=1, corrupted=["audit"]))
"""


@pytest.fixture
def folder() -> Iterator[Path]:
    """Make a directory that the user of PostgreSQL may pass, which pytest's own are not."""
    made = Path(tempfile.mkdtemp(prefix="twinstore-demo-"))
    made.chmod(0o711)
    yield made
    shutil.rmtree(made)


def test_the_demo_of_the_wheel_ends_with_a_proof_and_leaves_all_reports(
    installed: Installed, folder: Path
) -> None:
    # Whatever the environment says of the stores of the user, none of them is touched.
    nowhere = dict.fromkeys(
        ("Scheduler__Storage__Postgres__ConnectionString", "scheduler__storage__mongo__database"),
        "postgresql://nobody@127.0.0.1:1/nowhere",
    )
    variables = {"PATH": os.environ["PATH"], **nowhere, "TWINSTORE_CONFIG": str(folder / "of-the-user.json")}
    done = subprocess.run(
        [installed.python, "-P", "-c", PROGRAM, folder],
        cwd=folder,
        env=variables,
        capture_output=True,
        check=False,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    *story, last, counted = done.stdout.splitlines()
    proved = int(counted)
    assert re.fullmatch(rf"PASS: {proved:,} documents proved equal, in \d+\.\d s", last)
    assert "about a minute" in story[1]
    begun = [line.removeprefix(".. ") for line in story if line.startswith(".. ")]
    ended = [re.sub(r" \(\d+\.\d s\)$", "", line[3:]) for line in story if line.startswith("-- ")]
    assert begun == ended
    assert len(begun) == STEPS
    assert sum("planted corruptions; no false alarms" in line for line in story) == 1
    names = ("", "tracking", "taskrunner")
    reports = [json.loads((folder / name / "parity-report.json").read_text()) for name in names]
    assert [report["verdict"] for report in reports] == ["PASS"] * len(names)
    assert sum(report["documents_equal"] for report in reports) == proved
    assert proved > 200
    assert {path.suffix for path in folder.glob("parity-report.*")} == {".json", ".xml", ".md", ".html"}
