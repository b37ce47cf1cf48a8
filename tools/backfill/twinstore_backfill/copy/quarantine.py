"""Rows that could not be moved, kept with reason and original content; and conflicting rows of the target.

    record -> line, spooled while the range is read -> ledger, in the transaction of the range -> file

Both are lines of the ledger, committed with the range that they belong to. The files are exports of it.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from itertools import groupby
from logging import getLogger
from tempfile import SpooledTemporaryFile
from typing import TYPE_CHECKING, Final, Protocol, Self, cast

import orjson
from typing_extensions import override

from twinstore.bulk.rows import Original
from twinstore.ledger import ConflictLine, QuarantineLine
from twinstore.ledger.models import key_json, key_of_json
from twinstore.models import json_text
from twinstore_backfill.process.files import write_lines
from twinstore_backfill.reasons import CONFLICT, QUARANTINED, Reasons

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
    from pathlib import Path

    from twinstore.bulk.port import Conflict, Record
    from twinstore.catalog.entity import Entity
    from twinstore.ledger import Claim, CopyJob, Ledger
    from twinstore_backfill.reasons import Example

log = getLogger(__name__)

QUARANTINE: Final = "quarantine.ndjson"
CONFLICTS: Final = "conflicts.ndjson"
# A report should open in an editor; the files hold every line.
SHOWN: Final = 100
DIFFERS: Final = "the target holds the row with other content"
# For each thread; a range whose rows are all bad and large would otherwise be in memory as a whole.
SPOOL_MEMORY_BYTES: Final = 4 * 1024 * 1024
# MongoDB takes no document beyond 16 MB, and a reader pages through the parts.
LARGEST_PART: Final = 1_000_000
CONTINUES: Final = 0x80  # the first two bits of a byte that continues a character in UTF-8 are 10
JsonLine = dict[str, object]
# In the name of a file; the ids that copies give their jobs have nothing else.
UNSAFE: Final = re.compile(r"[^\w.-]")


def quarantine_entry(entity: Entity, record: Record, reason: str) -> JsonLine:
    """Return the line of a record that cannot be moved, without its content."""
    return {
        "entity": entity.name,
        "tenant": record.label,
        "key": _stored_key(record.stored_key) if record.key is None else list(record.key),
        "reason": storable(reason),
    }


def _stored_key(text: str | None) -> str | None:
    return None if text is None else storable(text)


def original_of(record: Record) -> Iterable[str] | None:
    """Return what is stored of a record in pieces, ``None`` where nothing is known of it.

    Of a driver that does not give it the model takes its place.
    """
    if isinstance(record.original, Original):
        return record.original.pieces()
    if record.original is not None:
        return (record.original,)
    if record.model is None:
        return None
    return (json_text.dumps({"doc": record.model.wire(), "storage": dict(record.storage)}).decode(),)


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
    """Takes the lines about single rows of a range."""

    def quarantine(self, entry: JsonLine, original: Iterable[str] | None) -> None:
        """Keep the line of a document that cannot be moved, with what is stored of it in pieces."""
        ...

    def conflict(self, entry: JsonLine) -> None:
        """Keep the line of a row that the target has with other content."""
        ...


class RangeLines(LineSink):
    """The lines of one range, on disk where they are many, until the transaction of the range takes them.

    They are given in the order of their keys: in which one rows are found unfit depends on how many are read
    and written at a time.
    """

    def __init__(self, claim: Claim) -> None:
        self._place = {"job_id": claim.job_id, "number": claim.number}
        self._claim = claim
        self._bad, self._conflicts = (SpooledTemporaryFile[bytes](SPOOL_MEMORY_BYTES) for _ in range(2))
        self._stored = 0
        self._line = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._bad.close()
        self._conflicts.close()

    @override
    def quarantine(self, entry: JsonLine, original: Iterable[str] | None) -> None:
        """Keep the line of a document that cannot be moved, and behind it a line for each part of it."""
        self._line += 1
        self._bad.write(line_of(entry))
        for part in parts_of(original):
            self._bad.write(orjson.dumps(part, option=orjson.OPT_APPEND_NEWLINE))

    @override
    def conflict(self, entry: JsonLine) -> None:
        """Keep the line of a row that the target has with other content."""
        self._conflicts.write(line_of(entry))

    def quarantined(self) -> Iterator[QuarantineLine]:
        """Return the lines for the ledger, long ones in parts."""
        values: JsonLine = {}
        line, part = self._stored, 0
        for item in lines_in(self._bad):
            if isinstance(item, dict):
                values, line, part = {**self._place, **with_key_as_json(item)}, line + 1, 0
                continue
            yield QuarantineLine.model_validate({**values, "line": line, "part": part, "raw": item})
            part += 1

    @property
    def stored(self) -> bool:
        """Whether some lines are in the ledger already."""
        return self._stored > 0

    def flush_to_ledger(self, ledger: Ledger) -> None:
        """Store the lines about documents that cannot be moved as soon as they are many megabytes.

        Raises:
            LeaseLostError: the range was taken over.
        """
        if self._bad.tell() > SPOOL_MEMORY_BYTES:
            ledger.store_lines_early(self._claim, self.quarantined(), more=self.stored)
            self._stored = self._line
            self._bad.seek(0)
            self._bad.truncate()

    def conflicts(self) -> Iterator[ConflictLine]:
        """Return the lines for the ledger."""
        for line, entry in enumerate(lines_in(self._conflicts), 1):
            if isinstance(entry, dict):
                values = {**self._place, **with_key_as_json(entry), "line": line}
                yield ConflictLine.model_validate(values)


def line_of(entry: Mapping[str, object]) -> bytes:
    """Return an entry as a line of JSON."""
    return orjson.dumps(entry, option=orjson.OPT_APPEND_NEWLINE)


def lines_in(spool: SpooledTemporaryFile[bytes]) -> Iterator[JsonLine | str | None]:
    """Return the kept lines by key: entries, and the parts of what is stored behind theirs."""
    for start in sorted_starts(spool):
        spool.seek(start)
        entry: JsonLine = orjson.loads(spool.readline())
        yield entry
        for line in spool:
            item: JsonLine | str | None = orjson.loads(line)
            if isinstance(item, dict):
                break
            yield item


def sorted_starts(spool: SpooledTemporaryFile[bytes]) -> list[int]:
    """Return where the entries begin, by key; those without a key come last, as they came."""
    found: list[tuple[int, object, int]] = []
    start = 0
    spool.seek(0)
    for line in spool:
        if line.startswith(b"{"):
            key = cast("JsonLine", orjson.loads(line))["key"]
            # Keys of several parts are lists; what is stored in place of a key is a text.
            found.append((0 if isinstance(key, list) else 1 if key else 2, key, start))
        start += len(line)
    return [start for _, _, start in sorted(found)]


def with_key_as_json(entry: JsonLine) -> JsonLine:
    """Return an entry with its key as the ledger has it: JSON of a list, or of what is in place of a key."""
    key = entry["key"]
    if isinstance(key, str):
        return {**entry, "key": json.dumps(key)}
    return {**entry, "key": key_json(tuple(key) if isinstance(key, list) else None)}


def parts_of(pieces: Iterable[str] | None) -> Iterator[str | None]:
    """Yield a text that comes in pieces in parts of at most 1 MB of UTF-8, cut between characters.

    There is at least one part; ``None`` for no text at all.
    """
    if pieces is None:
        yield None
        return
    waiting = b""
    for piece in (pieces,) if isinstance(pieces, str) else pieces:
        waiting += storable(piece).encode()
        while len(waiting) > LARGEST_PART:
            end = _cut(waiting, 0)
            yield waiting[:end].decode()
            waiting = waiting[end:]
    yield waiting.decode()


def _cut(content: bytes, start: int) -> int:
    """Return where the part that begins at ``start`` ends."""
    end = min(start + LARGEST_PART, len(content))
    # Back to the first byte of a character, so that each part is valid text by itself.
    while end < len(content) and content[end] & 0xC0 == CONTINUES:
        end -= 1
    return end


def export_lines(ledger: Ledger, job: CopyJob, directory: Path) -> ExportedLines:
    """Rewrite both files from the ledger, readable only by their owner; return their first lines.

    Files of another job are kept next to them, under a name that ends with the id of that job.
    """
    for name in (QUARANTINE, CONFLICTS):
        move_aside(directory / name, job.id)
    exported = ExportedLines()
    write_lines(directory / QUARANTINE, quarantine_lines(ledger, job, exported.add_quarantined))
    write_lines(directory / CONFLICTS, _conflict_lines(ledger, job, exported.add_conflict))
    return exported


def move_aside(path: Path, job_id: str) -> None:
    """Give a file another name when its lines are those of another job."""
    owner = job_of_file(path)
    if owner is not None and owner != job_id:
        aside = path.with_name(f"{path.stem}-{UNSAFE.sub('_', owner)}{path.suffix}")
        path.replace(aside)
        log.warning("%s held the lines of job %s, which are in %s now", path, owner, aside.name)


def job_of_file(path: Path) -> str | None:
    """Return the job that the first line of a file names, ``None`` if there is none."""
    try:
        with path.open("rb") as file:
            line: object = orjson.loads(file.readline())
    except (OSError, ValueError):
        return None
    job = cast("JsonLine", line).get("job") if isinstance(line, dict) else None
    return job if isinstance(job, str) else None


@dataclass(frozen=True, slots=True)
class ExportedLines:
    """The first lines of both files, without the original content, and the reasons of all."""

    quarantine: list[JsonLine] = field(default_factory=list[JsonLine])
    conflicts: list[JsonLine] = field(default_factory=list[JsonLine])
    reasons: Reasons = field(default_factory=Reasons)

    def add_quarantined(self, entry: JsonLine) -> None:
        """Count a document that could not be moved, and keep it while there is room."""
        count_line(self.reasons, entry)
        if len(self.quarantine) < SHOWN:
            self.quarantine.append(entry)

    def add_conflict(self, entry: JsonLine) -> None:
        """Count a row that the target has with other content, and keep it while there is room."""
        count_line(self.reasons, entry)
        if len(self.conflicts) < SHOWN:
            self.conflicts.append(entry)


def count_line(reasons: Reasons, entry: Mapping[str, object]) -> None:
    """Count a line of either file; a row that was overwritten needs nothing."""
    if entry.get("overwritten"):
        return
    kind = QUARANTINED if "reason" in entry else CONFLICT
    key = entry["key"]
    example = tuple(cast("list[str | int]", key)) if isinstance(key, list) else cast("Example", key)
    reasons.add(str(entry["entity"]), kind, str(entry.get("reason", DIFFERS)), example)


def quarantine_lines(
    ledger: Ledger,
    job: CopyJob,
    take: Callable[[JsonLine], object] | None = None,
    entities: Collection[str] = (),
) -> Iterator[bytes]:
    """Yield the lines of the quarantine in pieces, because one line may be larger than memory should be.

    Args:
        ledger: where they are stored.
        job: the job whose documents are wanted.
        take: takes the entries, without the original content.
        entities: of which entities; empty for all.
    """
    shown, end = False, b""
    for part in live_lines(ledger, job):
        if part.part:
            if shown:
                yield _inner(part.raw)
            continue
        if shown:
            yield end
        shown = not entities or part.entity in entities
        if not shown:
            continue
        entry, origin = _named(part), _origin(job, part.number)
        if take is not None:
            take({**entry, **origin})
        quote = b"" if part.raw is None else b'"'
        yield orjson.dumps(entry)[:-1] + b',"raw":' + quote + (_inner(part.raw) if quote else b"null")
        end = quote + b"," + orjson.dumps(origin, option=orjson.OPT_APPEND_NEWLINE)[1:]
    if shown:
        yield end


def _inner(text: str | None) -> bytes:
    """Return a piece of a JSON text without its quotes."""
    return orjson.dumps(text or "")[1:-1]


def _conflict_lines(ledger: Ledger, job: CopyJob, take: Callable[[JsonLine], object]) -> Iterator[bytes]:
    for entry in conflicts(ledger, job):
        take(entry)
        yield line_of(entry)


def quarantined(ledger: Ledger, job: CopyJob, *, content: bool = True) -> Iterator[JsonLine]:
    """Return the documents of a job that could not be moved; without ``content`` none is made whole."""
    for _, parts in groupby(live_lines(ledger, job), key=lambda item: (item.number, item.line)):
        first = next(parts)
        whole = content and first.raw is not None
        raw = "".join(part.raw or "" for part in (first, *parts)) if whole else None
        yield {**_named(first), "raw": raw, **_origin(job, first.number)}


def live_lines(ledger: Ledger, job: CopyJob) -> Iterator[QuarantineLine]:
    """Return the lines of the ranges that are live; those of others may have been stored ahead."""
    live = {item.number for item in ledger.noted_ranges(job)}
    return (line for line in ledger.quarantined(job.id) if line.number in live)


def _named(line: QuarantineLine) -> JsonLine:
    return {
        "entity": line.entity,
        "tenant": line.tenant,
        "key": key_of_json(line.key) or (line.key and json.loads(line.key)),
        "reason": line.reason,
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
