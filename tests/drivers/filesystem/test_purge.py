"""A purge reads each log once, however small its batches and however large its entries are."""

from __future__ import annotations

import tracemalloc
from collections import Counter
from typing import TYPE_CHECKING, Final

import pytest

from twinstore.testing.instants import at
from twinstore.testing.taskrunner.builders import make_log_entry, make_pack_run
from twinstore_filesystem.forms import LinesForm
from twinstore_filesystem.names import encoded

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from twinstore.taskrunner.storage import TaskRunnerStorage
    from twinstore_filesystem.forms import RunFile
    from twinstore_filesystem.rows import FileRow

LONG: Final = "\N{BUG}" * 256
ENTRIES: Final = 6


def logged(storage: TaskRunnerStorage, run: str, old: int, text: str = "said") -> None:
    """Store a run with a log whose first entries are old."""
    storage.pack_runs.create(make_pack_run(None, run))
    storage.pack_run_logs.append(
        [
            make_log_entry(run, number, timestamp=at(number if number <= old else 1000), message=text)
            for number in range(1, ENTRIES + 1)
        ]
    )


def sequences(storage: TaskRunnerStorage, run: str) -> list[int]:
    return [entry.sequence for entry in storage.pack_run_logs.read(run)]


def test_every_log_is_read_as_often_whatever_the_size_of_a_batch(
    storage: TaskRunnerStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = LinesForm.read
    opened: Counter[str] = Counter()

    def counted(form: LinesForm, file: RunFile) -> Iterator[FileRow]:
        opened[file.name] += 1
        return read(form, file)

    logged(storage, "all", ENTRIES)
    logged(storage, "half", 3)
    logged(storage, "none", 0)
    logged(storage, LONG, 2)
    monkeypatch.setattr(LinesForm, "read", counted)
    assert storage.pack_run_logs.purge(at(100), batch_size=1) == ENTRIES + 3 + 2
    # Once to check, again under the lock of the run, and again for the id if the name does not contain it.
    assert opened == {"all": 2, "half": 2, "none": 1, encoded(LONG): 3}
    assert [sequences(storage, run) for run in ("all", "half", "none", LONG)] == [
        [],
        [4, 5, 6],
        [1, 2, 3, 4, 5, 6],
        [3, 4, 5, 6],
    ]


def test_a_line_that_cannot_be_read_stays_and_keeps_no_other(storage: TaskRunnerStorage, root: Path) -> None:
    logged(storage, "run", 3)
    file = root / "logs/runs/run.ndjson"
    lines = file.read_bytes().splitlines(keepends=True)
    file.write_bytes(b"".join([lines[0], b'{"broken":1}\n', *lines[1:]]))
    assert storage.pack_run_logs.purge(at(100), batch_size=2) == 3
    assert file.read_bytes() == b"".join([b'{"broken":1}\n', *lines[3:]])
    assert storage.pack_run_logs.purge(at(100)) == 0


def test_large_entries_are_in_memory_one_at_a_time(storage: TaskRunnerStorage) -> None:
    for number in range(6):
        logged(storage, f"run-{number}", ENTRIES, "x" * 1_000_000)
    tracemalloc.start()
    try:
        assert storage.pack_run_logs.purge(at(100)) == 6 * ENTRIES
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 12_000_000
