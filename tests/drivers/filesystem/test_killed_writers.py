"""Writers that are killed at random: every file is whole, and nothing that was acknowledged is lost."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from tests.drivers.filesystem.writer import RUNS
from twinstore.storage.open import open_module

if TYPE_CHECKING:
    from twinstore.taskrunner.storage import TaskRunnerStorage

PROGRAM = Path(__file__).with_name("writer.py")


def killed(writers: subprocess.Popen[bytes], kill: int, chosen: random.Random) -> list[list[Any]]:
    """Let two processes write, kill both after some acknowledged writes, and return what was acknowledged."""
    assert writers.stdin is not None
    assert writers.stdout is not None
    writers.stdin.write(b"w%d\n" % kill)
    writers.stdin.flush()
    told: list[list[Any]] = []
    pids: list[int] = []
    dying = False
    # By what was written and not by time, so that a busy machine kills at as many places.
    wanted = chosen.randint(2, 60)
    while line := writers.stdout.readline():
        match json.loads(line):
            case []:
                return told
            case [int(pid)]:
                pids.append(pid)
            case written:
                told.append(written)
        # The first one may have written as much before the second one is there.
        if len(pids) == 2 and len(told) >= wanted and not dying:
            dying = True
            for pid in pids:
                os.kill(pid, signal.SIGKILL)
    raise AssertionError(writers.communicate())


def assert_whole(root: Path) -> None:
    """Assert that every file is what its name says, past the driver."""
    for path in root.rglob("*.json"):
        json.loads(path.read_bytes())
    for path in (root / "logs").rglob("*.ndjson"):
        # A line that begins with a zero byte ends the log, and so does one without a line feed.
        content = path.read_bytes().partition(b"\n\x00")[0]
        lines = content.split(b"\n")
        sequences = [json.loads(line)["sequence"] for line in lines[:-1]]
        assert sequences == list(range(1, len(sequences) + 1))


def test_nothing_acknowledged_is_lost_and_every_file_is_whole(root: Path, *, long_form: bool) -> None:
    chosen = random.Random(20251122)
    pipe = subprocess.PIPE
    with (
        subprocess.Popen([sys.executable, PROGRAM, root], stdin=pipe, stdout=pipe, stderr=pipe) as writers,
        open_module("taskrunner", "Filesystem", {"Persistence": {"Filesystem": {"Root": str(root)}}}) as one,
    ):
        storage = cast("TaskRunnerStorage", one)
        for kill in range(60 if long_form else 4):
            told = killed(writers, kill, chosen)
            assert_whole(root)
            assert_stored(storage, told)
        assert writers.communicate()[1] == b""


def assert_stored(storage: TaskRunnerStorage, told: list[list[Any]]) -> None:
    """Assert that what was acknowledged is there, and that a batch is there as a whole or not at all."""
    messages = {run: [entry.message for entry in entries_of(storage, run)] for run in RUNS}
    batches = {
        run: Counter(text.split(":")[0] for text in texts if ":" in text) for run, texts in messages.items()
    }
    for run, kind, mark, *more in told:
        if kind == "next":
            assert messages[run][more[0] - 1] == mark
        elif kind == "batch":
            assert batches[run].pop(mark) == more[0]
        elif kind == "state":
            assert storage.pack_runs.get(mark) is not None
        elif kind == "artifact":
            assert storage.pack_artifacts.get(run, mark) is not None
        else:
            assert storage.pack_run_approvals.get(run, mark) is not None
    for run, texts in messages.items():
        for mark, count in batches[run].items():
            # It was never acknowledged; a part of it must not be visible.
            size = next(int(text.split(":")[2]) for text in texts if text.startswith(f"{mark}:"))
            assert count == size


def entries_of(storage: TaskRunnerStorage, run: str) -> list[Any]:
    """Return the whole log of a run."""
    found: list[Any] = []
    while entries := storage.pack_run_logs.read(run, after_sequence=len(found), limit=5000):
        found += entries
    return found
