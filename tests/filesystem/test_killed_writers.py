"""Writers that are killed at random: every file is whole, and nothing that was acknowledged is lost."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any, cast

from tests.filesystem.writer import RUNS
from twinstore.storage import open_module
from twinstore.taskrunner.storage import TaskRunnerStorage
from twinstore.testing.taskrunner.builders import make_pack_run

PROGRAM = Path(__file__).with_name("writer.py")


def start(root: Path, name: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, str(PROGRAM), str(root), name, name], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )


def killed(root: Path, kill: int, chosen: random.Random) -> list[list[Any]]:
    """Let two processes write, kill both after some acknowledged writes, and return what was acknowledged."""
    writers = [start(root, f"w{kill}-{number}") for number in range(2)]
    told: list[list[Any]] = []
    for writer in writers:
        assert writer.stdout is not None
        # By what was written and not by time, so that a busy machine kills at as many places.
        for _ in range(chosen.randint(3, 20)):
            line = writer.stdout.readline()
            assert line, writer.communicate()
            told.append(json.loads(line))
        writer.kill()
    for writer in writers:
        rest, problem = writer.communicate()
        assert problem == b""
        told += [json.loads(line) for line in rest.splitlines(keepends=True) if line.endswith(b"\n")]
    return told


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


def test_nothing_acknowledged_is_lost_and_every_file_is_whole(tmp_path: Path, *, long_form: bool) -> None:
    root = tmp_path / "tree"
    chosen = random.Random(20251122)
    with open_module("taskrunner", "Filesystem", {"Persistence": {"Filesystem": {"Root": str(root)}}}) as one:
        storage = cast("TaskRunnerStorage", one)
        for run in RUNS:
            storage.pack_runs.create(make_pack_run(None, run))
        for kill in range(60 if long_form else 3):
            told = killed(root, kill, chosen)
            assert_whole(root)
            assert_stored(storage, told)


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
            # Nobody was told of it; a part of it must not show.
            size = next(int(text.split(":")[2]) for text in texts if text.startswith(f"{mark}:"))
            assert count == size


def entries_of(storage: TaskRunnerStorage, run: str) -> list[Any]:
    """Return the whole log of a run."""
    found: list[Any] = []
    while entries := storage.pack_run_logs.read(run, after_sequence=len(found), limit=5000):
        found += entries
    return found
