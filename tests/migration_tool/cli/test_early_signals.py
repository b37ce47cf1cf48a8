"""A signal before a command has begun: reports of an earlier run do not remain."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING, Final

import pytest

from twinstore_backfill.copy.report import REPORT_FILE
from twinstore_backfill.process import process
from twinstore_backfill.report.writing import REPORT_FILES

if TYPE_CHECKING:
    from pathlib import Path

ALL: Final = {"backfill-report.json", "parity-report.json", "other"}
# As the command is while it imports its modules.
STARTING: Final = """
import os, signal, sys
from twinstore_backfill.process import process
process.begin()
os.kill(os.getpid(), signal.SIGTERM)
"""


def test_the_files_are_those_that_the_commands_write() -> None:
    assert {command: set(names) for command, names in process.REPORTS.items()} == {
        "copy": {REPORT_FILE},
        "verify": set(REPORT_FILES),
    }


@pytest.mark.parametrize(
    ("words", "left"),
    [
        (("backfill", "verify", "--out", "{}"), {"backfill-report.json", "other"}),
        (("backfill", "--job-file", "verify", "copy", "--out={}"), {"parity-report.json", "other"}),
        (
            ("backfill", "report", "--in", "verify", "--out", "{}"),
            ALL,
        ),
        (("migrate", "verify", "--out", "{}"), ALL),
    ],
    ids=["verify", "copy", "report", "no backfill"],
)
def test_a_report_of_an_earlier_run_does_not_outlive_it(
    words: tuple[str, ...], left: set[str], tmp_path: Path
) -> None:
    for name in ALL:
        (tmp_path / name).touch()
    given = [word.format(tmp_path) for word in words]
    done = subprocess.run(
        [sys.executable, "-c", STARTING, *given], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (143, "error: Interrupted by SIGTERM.\n")
    assert {path.name for path in tmp_path.iterdir()} == left
