"""What could not be moved, kept with its reason and its original bytes; and what stood in the way."""

from __future__ import annotations

import os
from contextlib import contextmanager, suppress
from tempfile import SpooledTemporaryFile
from threading import Lock
from typing import TYPE_CHECKING, Final

import orjson

from twinstore import jsontext
from twinstore_backfill.files import sync_directory, write_whole

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from collections.abc import Set as AbstractSet
    from pathlib import Path
    from typing import IO

    from twinstore.bulk import Conflict, Job, Record
    from twinstore.catalog import Entity

__all__ = ["CONFLICTS", "QUARANTINE", "Journal", "conflict_entry", "quarantine_entry"]

QUARANTINE: Final = "quarantine.ndjson"
CONFLICTS: Final = "conflicts.ndjson"
KEPT_IN_MEMORY: Final = 4 * 1024 * 1024
Entry = dict[str, object]


def quarantine_entry(entity: Entity, record: Record, reason: str) -> Entry:
    """Return the line of a record that cannot be moved; what only the target refused comes from the model."""
    raw = record.raw
    if raw is None and record.model is not None:
        raw = jsontext.dumps({"doc": record.model.wire(), "storage": dict(record.storage)}).decode()
    return {
        "entity": entity.name,
        "tenant": record.tenant_id,
        "key": list(record.key) if record.key is not None else None,
        "reason": reason,
        "raw": raw,
    }


def conflict_entry(entity: Entity, conflict: Conflict) -> Entry:
    """Return the line of a row that the target had with other content."""
    return {
        "entity": entity.name,
        "tenant": conflict.tenant_id,
        "key": list(conflict.key),
        "overwritten": conflict.overwritten,
    }


class Journal:
    """A file of JSON lines to which ranges add what concerns them before they are committed.

    A crash between the two leaves lines of a range that is not live; :meth:`resume` drops them, because
    the next attempt writes them again.
    """

    def __init__(self, path: Path, job: Job) -> None:
        """Take the file and the job whose lines it holds."""
        self.path = path
        self._job = {"job": job.id, "generation": job.generation}
        self._lock = Lock()

    def begin(self) -> None:
        """Start an empty file, for a new generation of the job."""
        write_whole(self.path, b"")

    def resume(self, live: AbstractSet[int]) -> None:
        """Keep the lines of this job's live ranges only."""
        draft = self.path.with_name(f".{self.path.name}.draft")
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with draft.open("wb") as file:
            file.writelines(
                line for line, entry in self._lines() if self._mine(entry) and entry.get("range") in live
            )
            file.flush()
            os.fsync(file.fileno())
        draft.replace(self.path)
        sync_directory(self.path.parent)

    @contextmanager
    def range(self, number: int) -> Iterator[RangeLines]:
        """Collect the lines of one range; they reach the file by :meth:`RangeLines.commit` only."""
        with SpooledTemporaryFile(KEPT_IN_MEMORY) as spool:
            yield RangeLines(self, number, spool)

    def append(self, spool: IO[bytes]) -> None:
        """Append collected lines and force them to disk."""
        with self._lock, self.path.open("ab") as file:
            spool.seek(0)
            file.writelines(spool)
            file.flush()
            os.fsync(file.fileno())

    def line(self, entry: Mapping[str, object], number: int) -> bytes:
        """Return the line of an entry of a range."""
        return orjson.dumps({**entry, **self._job, "range": number}, option=orjson.OPT_APPEND_NEWLINE)

    def entries(self) -> Iterator[Entry]:
        """Return the entries of this generation."""
        return (entry for _, entry in self._lines() if self._mine(entry))

    def _mine(self, entry: Entry) -> bool:
        return self._job.items() <= entry.items()

    def _lines(self) -> Iterator[tuple[bytes, Entry]]:
        if not self.path.exists():
            return
        with self.path.open("rb") as file:
            for line in file:
                # A crash may have cut the last line short.
                with suppress(orjson.JSONDecodeError):
                    yield line, orjson.loads(line)


class RangeLines:
    """The lines of one range."""

    def __init__(self, journal: Journal, number: int, spool: IO[bytes]) -> None:
        """Take the journal, the range, and the place where the lines wait."""
        self._journal = journal
        self._number = number
        self._spool = spool
        self.count = 0

    def add(self, entry: Mapping[str, object]) -> None:
        """Collect one line."""
        self._spool.write(self._journal.line(entry, self._number))
        self.count += 1

    def commit(self) -> None:
        """Put the lines into the file, durably."""
        if self.count:
            self._journal.append(self._spool)
