"""What could not be moved, kept with its reason and its original content; and what stood in the way.

    record -> line, spooled while the range is read -> ledger, in the transaction of the range -> file

Both are lines of the ledger, committed with the range that they belong to. The files are exports of it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import count, groupby
from logging import getLogger
from tempfile import SpooledTemporaryFile
from typing import TYPE_CHECKING, Final, Protocol, Self, cast

import orjson
from typing_extensions import override

from twinstore import jsontext
from twinstore.ledger import ConflictLine, QuarantineLine
from twinstore.ledger.records import key_json, key_of_json
from twinstore_backfill.files import write_lines

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path
    from types import TracebackType

    from twinstore.bulk import Conflict, Record
    from twinstore.catalog import Entity
    from twinstore.ledger import Claim, CopyJob, Ledger

__all__ = [
    "CONFLICTS",
    "QUARANTINE",
    "SHOWN",
    "ExportedLines",
    "LineSink",
    "RangeLines",
    "conflict_entry",
    "export_lines",
    "quarantine_entry",
]

log = getLogger(__name__)

QUARANTINE: Final = "quarantine.ndjson"
CONFLICTS: Final = "conflicts.ndjson"
# A report should open in an editor; the files hold every line.
SHOWN: Final = 100
# For each thread; a range whose rows are all bad and large would otherwise be in memory as a whole.
KEPT_IN_MEMORY: Final = 4 * 1024 * 1024
# MongoDB takes no document beyond 16 MB, and a reader pages through the parts.
LARGEST_PART: Final = 1_000_000
CONTINUES: Final = 0x80  # the first two bits of a byte that continues a character in UTF-8 are 10
JsonLine = dict[str, object]
# In the name of a file; the ids that copies give their jobs have nothing else.
UNSAFE: Final = re.compile(r"[^\w.-]")


def quarantine_entry(entity: Entity, record: Record, reason: str) -> JsonLine:
    """Return the line of a record that cannot be moved; what only the target refused comes from the model."""
    raw = record.raw
    if raw is None and record.model is not None:
        raw = jsontext.dumps({"doc": record.model.wire(), "storage": dict(record.storage)}).decode()
    return {
        "entity": entity.name,
        "tenant": record.label,
        "key": None if record.key is None else list(record.key),
        "reason": storable(reason),
        "raw": None if raw is None else storable(raw),
    }


def conflict_entry(entity: Entity, conflict: Conflict) -> JsonLine:
    """Return the line of a row that the target had with other content."""
    return {
        "entity": entity.name,
        "tenant": conflict.label,
        "key": list(conflict.key),
        "overwritten": conflict.overwritten,
    }


def storable(text: str) -> str:
    """Return a text that every store takes: without U+0000 and lone surrogates, which appear as escapes."""
    return text.encode("utf-8", "backslashreplace").decode().replace("\x00", "\\u0000")


class LineSink(Protocol):
    """Takes what is to be said about single rows of a range."""

    def quarantine(self, entry: JsonLine) -> None:
        """Keep the line of a document that cannot be moved."""
        ...

    def conflict(self, entry: JsonLine) -> None:
        """Keep the line of a row that the target has with other content."""
        ...


class RangeLines(LineSink):
    """The lines of one range, on disk where they are many, until the transaction of the range takes them."""

    def __init__(self, claim: Claim) -> None:
        """Take the range."""
        self._place = {"job_id": claim.job_id, "number": claim.number}
        self._bad, self._conflicts = (SpooledTemporaryFile[bytes](KEPT_IN_MEMORY) for _ in range(2))

    def __enter__(self) -> Self:
        """Begin without lines."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Forget the lines."""
        self._bad.close()
        self._conflicts.close()

    @override
    def quarantine(self, entry: JsonLine) -> None:
        """Keep the line of a document that cannot be moved."""
        self._bad.write(line_of(entry))

    @override
    def conflict(self, entry: JsonLine) -> None:
        """Keep the line of a row that the target has with other content."""
        self._conflicts.write(line_of(entry))

    def quarantined(self) -> Iterator[QuarantineLine]:
        """Return the lines for the ledger, long ones in parts."""
        for line, entry in zip(count(1), entries_in(self._bad)):
            for part, raw in enumerate(parts_of(entry.pop("raw"))):
                values = {**self._place, **entry, "line": line, "part": part, "raw": raw}
                yield QuarantineLine.model_validate(values)

    def conflicts(self) -> Iterator[ConflictLine]:
        """Return the lines for the ledger."""
        for line, entry in zip(count(1), entries_in(self._conflicts)):
            yield ConflictLine.model_validate({**self._place, **entry, "line": line})


def line_of(entry: Mapping[str, object]) -> bytes:
    """Return an entry as a line of JSON."""
    return orjson.dumps(entry, option=orjson.OPT_APPEND_NEWLINE)


def entries_in(spool: SpooledTemporaryFile[bytes]) -> Iterator[JsonLine]:
    """Return the kept entries in order, with their keys as the ledger has them."""
    spool.seek(0)
    for line in spool:
        entry: JsonLine = orjson.loads(line)
        key = entry["key"]
        yield {**entry, "key": key_json(tuple(key) if isinstance(key, list) else None)}


def parts_of(text: object) -> Iterator[str | None]:
    """Yield a text in parts of at most 1 MB of UTF-8, cut between characters; at least one part."""
    if not isinstance(text, str):
        yield None
        return
    content = text.encode()
    end = _cut(content, 0)
    yield content[:end].decode()
    while end < len(content):
        start, end = end, _cut(content, end)
        yield content[start:end].decode()


def _cut(content: bytes, start: int) -> int:
    """Return where the part that begins at ``start`` ends."""
    end = min(start + LARGEST_PART, len(content))
    # Back to the first byte of a character, so that each part is text of its own.
    while end < len(content) and content[end] & 0xC0 == CONTINUES:
        end -= 1
    return end


def export_lines(ledger: Ledger, job: CopyJob, directory: Path) -> ExportedLines:
    """Rewrite both files from the ledger, readable by their owner alone; return their first lines.

    Those of another job are kept beside them, under a name that ends with the id of that job.
    """
    for name in (QUARANTINE, CONFLICTS):
        keep_aside(directory / name, job.id)
    return ExportedLines(
        _export(quarantined(ledger, job), directory / QUARANTINE),
        _export(conflicts(ledger, job), directory / CONFLICTS),
    )


def keep_aside(path: Path, job_id: str) -> None:
    """Give a file another name when its lines are those of another job."""
    owner = job_of_file(path)
    if owner is not None and owner != job_id:
        aside = path.with_name(f"{path.stem}-{UNSAFE.sub('_', owner)}{path.suffix}")
        path.replace(aside)
        log.warning("%s held the lines of job %s, which are in %s now", path, owner, aside.name)


def job_of_file(path: Path) -> str | None:
    """Return the job that the first line of a file names, ``None`` where there is none."""
    try:
        with path.open("rb") as file:
            line: object = orjson.loads(file.readline())
    except (OSError, ValueError):
        return None
    job = cast("JsonLine", line).get("job") if isinstance(line, dict) else None
    return job if isinstance(job, str) else None


@dataclass(frozen=True, slots=True)
class ExportedLines:
    """The first lines of both files, without the original content."""

    quarantine: Sequence[JsonLine] = ()
    conflicts: Sequence[JsonLine] = ()


def _export(entries: Iterator[JsonLine], path: Path) -> list[JsonLine]:
    first: list[JsonLine] = []

    def lines() -> Iterator[bytes]:
        for entry in entries:
            if len(first) < SHOWN:
                first.append({name: value for name, value in entry.items() if name != "raw"})
            yield line_of(entry)

    write_lines(path, lines())
    return first


def quarantined(ledger: Ledger, job: CopyJob) -> Iterator[JsonLine]:
    """Return the documents of a job that could not be moved, each whole again."""
    for _, parts in groupby(ledger.quarantined(job.id), key=lambda item: (item.number, item.line)):
        first, *more = parts
        raw = None if first.raw is None else "".join(part.raw or "" for part in (first, *more))
        yield {
            "entity": first.entity,
            "tenant": first.tenant,
            "key": key_of_json(first.key),
            "reason": first.reason,
            "raw": raw,
            **_origin(job, first.number),
        }


def conflicts(ledger: Ledger, job: CopyJob) -> Iterator[JsonLine]:
    """Return the rows that the target of a job had with other content."""
    for line in ledger.conflicts(job.id):
        yield {
            "entity": line.entity,
            "tenant": line.tenant,
            "key": key_of_json(line.key),
            "overwritten": line.overwritten,
            **_origin(job, line.number),
        }


def _origin(job: CopyJob, number: int) -> JsonLine:
    return {"job": job.id, "generation": job.generation, "range": number}
