"""Growing a log in place: acknowledged entries stay, interrupted ones are never partly visible.

One entry is one line. Within one page of the file it is written at once and flushed; torn, it has no line
feed, is not JSON, and is ignored. The pages of more reach the disk in any order, and the entries of one call
are visible together, so such a write takes four steps:

    1  the file is made longer by their length and one byte: all zero
    2  everything but the first byte is written, and flushed
    3  the first byte is written, and flushed: from here on they are there
    4  the last zero byte is cut off

As long as the last byte of the file is zero, a line that begins with a zero byte ends the log for every
reader. A reader that starts from the end must then search for the end of the log. Afterwards the log ends
with the file, and a zero byte is damage like any other: a line that is not JSON.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from typing import Final

from twinstore_filesystem.tree import LARGEST

ZERO: Final = b"\x00"
FEED: Final = b"\n"
STEP: Final = 1 << 16
PAGE: Final = 4096  # the smallest unit in which a system writes a file to its disk
DECODER: Final = json.JSONDecoder()

Line = tuple[int, bytes]
"""Where a line begins, and the line without its line feed."""


class LogEnd:
    """Where a log ends.

    Attributes:
        position: behind its last whole line.
        unfinished: that line has no line feed yet.
        torn: remains of an interrupted write follow it.
    """

    __slots__ = ("position", "torn", "unfinished")

    def __init__(self, position: int, *, unfinished: bool = False, torn: bool = False) -> None:
        self.position = position
        self.unfinished = unfinished
        self.torn = torn


def is_entry(line: bytes) -> bool:
    """Whether a line without line feed is whole: no beginning of a JSON object is a JSON object."""
    try:
        return isinstance(json.loads(line), dict)
    except (ValueError, RecursionError):
        return False


def is_interrupted(line: bytes) -> bool:
    """Whether a line without line feed can be what an interrupted write left: the beginning of an object.

    Anything else, such as a log whose lines end otherwise, would be lost if it were cut off.
    """
    text = line.strip().decode("utf-8", "replace")
    if text[:1] != "{":
        return not text
    try:
        DECODER.raw_decode(text)
    except ValueError:
        return True
    except RecursionError:
        # No writer of ours nests so deep.
        return False
    return False


def is_unwritten(file: int, position: int) -> bool:
    """Whether a zero byte at the beginning of a line is that of a batch which is not there yet."""
    size = os.fstat(file).st_size
    if size - position > LARGEST + 1:
        return False  # no batch is so large
    # In this order: where the last byte is another one, a batch is complete and its first byte is there.
    return os.pread(file, 1, max(0, size - 1)) in {ZERO, b""} or os.pread(file, 1, position) != ZERO


def lines_of(file: int, start: int = 0) -> Iterator[Line]:
    """Yield the whole lines of a log in their order; one is in memory at a time.

    Of a line that is larger than any row it yields the beginning, which is larger too.
    """
    position = start
    # Closed with the stream; the descriptor of the caller stays open.
    with os.fdopen(os.dup(file), "rb", buffering=STEP) as stream:
        stream.seek(start)
        while line := stream.readline(LARGEST + 1):
            if line.startswith(ZERO) and is_unwritten(file, position):
                return
            whole = line.removesuffix(FEED)
            if whole == line and len(line) <= LARGEST and not is_entry(line) and is_interrupted(line):
                return
            yield position, whole
            position += len(line)
            while line and not line.endswith(FEED):
                line = stream.readline(STEP)
                position += len(line)


def log_end(file: int) -> LogEnd:
    """Return where a log ends."""
    size = os.fstat(file).st_size
    last = os.pread(file, 1, size - 1) if size else FEED
    if last == FEED:
        return LogEnd(size)
    if last == ZERO:
        return _end_by_reading(file, size)
    start = _last_feed(file, size) + 1
    if size - start > LARGEST:
        return LogEnd(size, unfinished=True)
    tail = os.pread(file, size - start, start)
    if is_entry(tail) or not is_interrupted(tail):
        return LogEnd(size, unfinished=True)
    return LogEnd(start, torn=True)


def lines_backwards(file: int) -> Iterator[Line]:
    """Yield the whole lines of a log from its end, as :func:`lines_of` does."""
    end = log_end(file)
    position = end.position - (0 if end.unfinished else 1)
    while position >= 0 and end.position:
        start = _last_feed(file, position) + 1
        yield start, os.pread(file, min(position - start, LARGEST + 1), start)
        position = start - 1


def append_lines(file: int, lines: Sequence[bytes]) -> None:
    """Append lines to a log, all or none of them, and flush it; what was torn there is cut off."""
    end = log_end(file)
    if os.fstat(file).st_size > end.position:
        os.ftruncate(file, end.position)
    position = end.position
    if end.unfinished:
        position += _put(file, FEED, position)
    body = FEED.join(lines) + FEED
    try:
        is_within_page = position // PAGE == (position + len(body) - 1) // PAGE
        _grow(file, body, position, atomic=len(lines) > 1 or not is_within_page)
    except OSError:
        # A full disk has taken a part of it; without it the log ends where it did.
        os.ftruncate(file, position)
        raise


def _grow(file: int, body: bytes, position: int, *, atomic: bool) -> None:
    if not atomic:
        _put(file, body, position)
        os.fsync(file)
        return
    os.ftruncate(file, position + len(body) + 1)
    _put(file, body[1:], position + 1)
    os.fsync(file)
    _put(file, body[:1], position)
    os.fsync(file)
    os.ftruncate(file, position + len(body))


def _put(file: int, data: bytes, position: int) -> int:
    """Write everything, which the system may do in parts."""
    rest = memoryview(data)
    while rest:
        written = os.pwrite(file, rest, position)
        rest, position = rest[written:], position + written
    return len(data)


def _end_by_reading(file: int, size: int) -> LogEnd:
    position = 0
    unfinished = False
    for start, line in lines_of(file):
        position = start + len(line) + 1 if len(line) <= LARGEST else size + 1
        unfinished = position > size
    return LogEnd(min(position, size), unfinished=unfinished, torn=position < size)


def _last_feed(file: int, end: int) -> int:
    """Return the position of the last line feed before a position, -1 if there is none."""
    while end > 0:
        start = max(0, end - STEP)
        found = os.pread(file, end - start, start).rfind(FEED)
        if found >= 0:
            return start + found
        end = start
    return -1
