"""``twinstore up`` that is interrupted leaves no server behind."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.copies import invoke
from twinstore_embedded import mongod

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def folder() -> Iterator[Path]:
    """Make a directory that the user of PostgreSQL may pass, which pytest's own are not."""
    made = Path(tempfile.mkdtemp(prefix="twinstore-up-"))
    made.chmod(0o711)
    yield made
    shutil.rmtree(made)


def test_nothing_runs_that_did_not_run_before(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = [sys.executable, "-m", "twinstore_backfill", "up", "--data-dir", str(folder)]
    running = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    while mongod.find_mongo(folder) is None and running.poll() is None:
        pass
    running.send_signal(signal.SIGTERM)
    out, err = running.communicate()
    assert (running.returncode, out) == (143, "")
    assert err == "error: Interrupted by SIGTERM.\n"
    answer = invoke(capsys, "down", "--data-dir", folder, "--format", "json")
    assert json.loads(answer.out) == {"stopped": []}
