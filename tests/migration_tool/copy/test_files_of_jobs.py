"""The files of quarantine and conflicts when several jobs share a directory, and when a disk is full."""

from __future__ import annotations

import errno
import json
import os
from typing import IO, TYPE_CHECKING, Any

import pytest

from tests.support.copies import MemoryPair, fill, memory_pair
from twinstore.scheduler.catalog import RUNS
from twinstore.testing.scheduler.builders import make_run
from twinstore_backfill.copy.quarantine import CONFLICTS, QUARANTINE
from twinstore_backfill.copy.status import status_document
from twinstore_backfill.outcome import Exit
from twinstore_backfill.process import files
from twinstore_memory.rows import DocumentRow, encode, store_unchecked

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

Line = dict[str, Any]


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[MemoryPair]:
    """Return a source with bad documents of two tenants."""
    with memory_pair(tmp_path) as pair:
        fill(pair.source.storage)
        for tenant in ("acme", "umbrella"):
            for number in range(4):
                name = f"{tenant}-bad-{number}"
                good = encode(RUNS, make_run(tenant, name))
                store_unchecked(
                    pair.stores[0], DocumentRow(RUNS, (name,), {**good.document, "state": "lost"})
                )
        yield pair


def keys(path: Path) -> list[str]:
    lines: list[Line] = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    return [line["key"][0] for line in lines]


def bad(tenant: str) -> list[str]:
    return [f"{tenant}-bad-{number}" for number in range(4)]


def test_a_copy_of_another_tenant_keeps_the_lines_of_the_first(pair: MemoryPair) -> None:
    first = pair.copy(tenants=["acme"])
    assert keys(pair.directory / QUARANTINE) == bad("acme")
    second = pair.copy(tenants=["umbrella"])
    assert first.job is not None
    assert second.job is not None
    aside = pair.directory / f"quarantine-{first.job['id']}.ndjson"
    assert (keys(pair.directory / QUARANTINE), keys(aside)) == (bad("umbrella"), bad("acme"))
    assert aside.stat().st_mode & 0o777 == 0o600
    # The first one again: its own file takes the place of the older one, and the other is kept.
    pair.copy(tenants=["acme"])
    other = pair.directory / f"quarantine-{second.job['id']}.ndjson"
    assert (keys(pair.directory / QUARANTINE), keys(other)) == (bad("acme"), bad("umbrella"))
    # Without a line there is nothing to keep.
    assert not list(pair.directory.glob("conflicts-*"))


def test_the_same_job_rewrites_its_own_file(pair: MemoryPair) -> None:
    pair.copy()
    pair.copy()
    names = {path.name for path in pair.directory.iterdir()}
    assert names == {QUARANTINE, CONFLICTS, "backfill-report.json"}


@pytest.mark.parametrize("name", ["../../outside", "a b/c"])
def test_no_name_of_a_job_leads_out_of_the_directory(pair: MemoryPair, name: str) -> None:
    line = {"entity": "runs", "job": name}
    (pair.directory / QUARANTINE).write_text(f"{json.dumps(line)}\n")
    pair.copy()
    (aside,) = pair.directory.glob("quarantine-*")
    assert json.loads(aside.read_text()) == line


def test_a_disk_that_is_full_loses_no_line(pair: MemoryPair, monkeypatch: pytest.MonkeyPatch) -> None:
    """The lines are in the ledger, with their ranges; a file is there as a whole or as it was."""
    left = [0]

    def force(file: IO[bytes]) -> None:
        if left:
            left.pop()
            # Half of it is on the disk.
            os.truncate(file.fileno(), 40)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        file.flush()

    pair.copy(entities=["schedules"])
    before = (pair.directory / QUARANTINE).read_bytes()
    monkeypatch.setattr(files, "fsync", force)
    with pytest.raises(OSError, match="No space"):
        pair.copy()
    assert (pair.directory / QUARANTINE).read_bytes() == before
    result = pair.copy()
    assert result.exit is Exit.INCONCLUSIVE
    assert sorted(keys(pair.directory / QUARANTINE)) == sorted(bad("acme") + bad("umbrella"))
    assert len(result.quarantine) == 8


def test_status_names_the_directory_that_takes_no_file(
    pair: MemoryPair, monkeypatch: pytest.MonkeyPatch
) -> None:
    def force(_: IO[bytes]) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    pair.copy()
    monkeypatch.setattr(files, "fsync", force)
    with pytest.raises(files.FileError, match=f"written to {pair.directory}"):
        status_document(pair.target, out=pair.directory)
