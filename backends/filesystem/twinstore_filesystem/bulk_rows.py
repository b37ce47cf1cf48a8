"""Reading the tree for a comparison, by other code than a copy reads it.

A fault in how a copy lists, opens, splits, parses or orders what is stored would otherwise hide from the
comparison. Shared are the layout, the names, and the sentences about what cannot be moved.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from decimal import Decimal, InvalidOperation
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Final

from twinstore.errors import ConfigurationError
from twinstore_filesystem.errors import foreign, translated
from twinstore_filesystem.forms import (
    OTHER_DIGITS,
    OTHER_RUN,
    TOO_LARGE,
    RunFile,
    problem_of,
    refuse_deep,
)
from twinstore_filesystem.names import decoded, encoded
from twinstore_filesystem.rows import FileOriginal, FileRow, broken_row, file_row
from twinstore_filesystem.tree import LARGEST, Place

if TYPE_CHECKING:
    from collections.abc import Iterable

    from twinstore.catalog.entity import Entity
    from twinstore.catalog.keys import Key, KeyRange
    from twinstore_filesystem.files import Files
    from twinstore_filesystem.layout import FileLayout
    from twinstore_filesystem.tree import Entry

PIECE: Final = 1 << 16
OPEN: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
KINDS: Final = {stat.S_IFREG: "file", stat.S_IFDIR: "folder", stat.S_IFLNK: "symbolic link"}


def scanned(files: Files, entity: Entity, within: KeyRange) -> Iterator[FileRow]:
    """Yield the rows of a range in the order of the key, and what cannot be a row in its place."""
    scan = Scan(files, entity)
    found, others = scan.listed()
    if within.lower is None:
        yield from others
    for run, name in found:
        is_beyond = within.upper is not None and (run,) > within.upper[:1]
        if not is_beyond and (within.lower is None or within.lower[:1] <= (run,)):
            yield from (row for place, row in scan.with_positions(run, name) if _is_within(place, within))


def _is_within(place: Key, within: KeyRange) -> bool:
    is_low = within.lower is not None and place < within.lower
    return not is_low and (within.upper is None or place < within.upper)


class Scan:
    """The files of one entity."""

    def __init__(self, files: Files, entity: Entity) -> None:
        self._tree, self._entity = files.tree, entity
        self._layouts, self._layout = files.layouts, files.layout(entity)
        self._is_one = len(entity.key) == 1

    def listed(self) -> tuple[list[tuple[str, str]], list[FileRow]]:
        """Return the runs with the names of their files, in order, and entries not ours or without a run."""
        runs: list[tuple[str, str]] = []
        others: list[FileRow] = []
        wanted = "folder" if self._layout.manifest else "file"
        for entry, kind in self._children(self._layout.folder):
            name = self._layout.name_of(entry) if kind == wanted else None
            if name is None:
                if not (kind == "file" and self._layout.is_auxiliary(entry)):
                    others.append(self._foreign(self._layout.folder, entry, kind))
                continue
            run = decoded(name) or self._run_inside(name)
            if run is None:
                others += [row for _, row in self.with_positions(None, name)]
            else:
                runs.append((run, name))
        if self._entity.parent is None:
            for folder, known in known_folders(self._layouts.values()).items():
                for entry, kind in self._children(folder):
                    if entry not in known:
                        others.append(self._foreign(folder, entry, kind))
        return sorted(runs), others

    def with_positions(self, run: str | None, name: str) -> Iterator[tuple[Key, FileRow]]:
        """Yield the rows of a file, each with its place in the order of the keys."""
        start: Key = () if run is None else (run,)
        try:
            rows = self._rows(start, name) if self._layout.form.in_order else iter(self._sorted(start, name))
            yield from self._checked(start, name, rows)
        except ConfigurationError as error:
            yield start, self._broken(start, error.message, self._layout.named(name), size=0)

    def _checked(self, start: Key, name: str, rows: Iterator[FileRow]) -> Iterator[tuple[Key, FileRow]]:
        orphaned = self._orphaned(name)
        highest: Key = ()
        for row in rows:
            if not self._entity.admits_key(row.key):
                yield start, row
            elif row.error is not None:
                yield row.key, row
            elif row.key < highest:
                yield start, self._rejected(row, OUT_OF_ORDER, start)
            else:
                reason = REPEATED if row.key == highest else orphaned
                highest = row.key
                yield row.key, row if reason is None else self._rejected(row, reason, row.key)

    def _rejected(self, row: FileRow, reason: str, key: Key) -> FileRow:
        return broken_row(self._entity, key, reason, row.original)

    def _sorted(self, start: Key, name: str) -> list[FileRow]:
        with_positions = [
            (row.key if self._entity.admits_key(row.key) else start, row) for row in self._rows(start, name)
        ]
        return [row for _, row in sorted(with_positions, key=itemgetter(0))]

    def _rows(self, start: Key, name: str) -> Iterator[FileRow]:
        place = self._layout.named(name)
        with self._open(place) as stream:
            if stream is None:
                return
            if self._layout.form.in_order:
                yield from self._lines(start, name, place, stream)
                return
            content = stream.read(min(LARGEST, os.fstat(stream.fileno()).st_size) + 1)
        try:
            value = value_of(content)
        except ValueError as error:
            yield self._broken(start, str(error), place)
            return
        values: object = [value] if self._is_one else value
        if not isinstance(values, list):
            yield self._broken(start, "it is not a JSON array", place)
            return
        for item in values:
            yield self._row(start, name, item, FileOriginal(self._tree, place))

    def _lines(self, start: Key, name: str, place: Place, stream: BinaryIO) -> Iterator[FileRow]:
        position, number = 0, 0
        while (line := stream.readline(LARGEST + 1)) and not (
            line[0] == 0 and is_batch(stream.fileno(), position)
        ):
            number += 1
            text = line.rstrip(b"\n")
            original = FileOriginal(self._tree, place, number, position, len(text))
            is_whole = line.endswith(b"\n") or len(line) > LARGEST
            position += len(line)
            while not line.endswith(b"\n") and (line := stream.readline(PIECE)):
                position += len(line)
            # What has no end was interrupted, where it is the beginning of an object and no more.
            if not text.strip() or not (is_whole or is_object(text) or is_more(text)):
                continue
            try:
                value = value_of(text)
            except ValueError as error:
                yield broken_row(self._entity, start, str(error), original)
            else:
                yield self._row(start, name, value, original)

    def _row(self, start: Key, name: str, value: object, original: FileOriginal) -> FileRow:
        try:
            row = file_row(self._entity, value, original)
        except ValueError as error:
            return broken_row(self._entity, start, str(error), original)
        run = row.key[0]
        if isinstance(run, str) and encoded(run) == name:
            return row
        return broken_row(self._entity, start, OTHER_RUN, original)

    def _run_inside(self, name: str) -> str | None:
        try:
            keys = (row.key[0] for row in self._rows((), name) if row.error is None)
            return next((key for key in keys if isinstance(key, str)), None)
        except ConfigurationError:
            return None

    def _orphaned(self, name: str) -> str | None:
        if self._entity.parent is None:
            return None
        place = self._layouts[self._entity.parent.entity.name].named(name)
        return None if os.path.lexists(self._tree.root / place.path) else no_state(place)

    def _children(self, folder: str) -> list[tuple[str, str]]:
        path = self._tree.root / folder
        for above in (path, *path.parents):
            if above == self._tree.root:
                break
            if kind_of(above) == "symbolic link":
                raise foreign(above)
        with translated(path):
            try:
                names = sorted(os.listdir(path))  # noqa: PTH208  # names, and not the objects of a walk
            except FileNotFoundError:
                return []
        found = ((name, kind_of(path / name)) for name in names)
        return [(name, kind) for name, kind in found if kind is not None]

    @contextmanager
    def _open(self, place: Place) -> Generator[BinaryIO | None]:
        path = self._tree.root / place.path
        with translated(path):
            try:
                file = os.open(path, OPEN)
            except FileNotFoundError:
                yield None
                return
        with translated(path), os.fdopen(file, "rb") as stream:
            if not stat.S_ISREG(os.fstat(file).st_mode):
                raise foreign(path)
            yield stream

    def _foreign(self, folder: str, entry: str, kind: str) -> FileRow:
        size = None if kind == "file" else 0
        return self._broken((), foreign_error(kind), Place(folder, entry), size=size)

    def _broken(self, key: Key, error: str, place: Place, *, size: int | None = None) -> FileRow:
        return broken_row(self._entity, key, error, FileOriginal(self._tree, place, size=size))


def kind_of(path: Path) -> str | None:
    """Return the kind of entry at a path, links not followed; ``None`` when it was renamed meanwhile."""
    with translated(path):
        try:
            return KINDS.get(stat.S_IFMT(path.lstat().st_mode), "special file")
        except FileNotFoundError:
            return None


def is_object(text: bytes) -> bool:
    """Whether a text is a JSON object, whatever its names and numbers."""
    try:
        return isinstance(json.loads(text), dict)
    except (ValueError, RecursionError):
        return False


def is_more(text: bytes) -> bool:
    """Whether a text is something else than an object that breaks off."""
    if not text.lstrip().startswith(b"{"):
        return True
    try:
        json.loads(text.decode("utf-8", "replace"))
    except json.JSONDecodeError as error:
        return error.msg == "Extra data"
    except RecursionError:
        return True
    return True


def is_batch(file: int, position: int) -> bool:
    """Whether the zero byte before a line says that a batch is being written there."""
    end = os.fstat(file).st_size
    if end - position > LARGEST + 1:
        return False
    last = os.pread(file, 1, end - 1) if end else b""
    return not last.strip(b"\0") or os.pread(file, 1, position) != b"\0"


def value_of(content: bytes) -> object:
    """Return the value of a JSON text.

    Raises:
        ValueError: it cannot be read; says why without any of it.
    """
    if len(content) > LARGEST:
        raise ValueError(TOO_LARGE)
    try:
        value = json.loads(
            content.decode("utf-8"),
            object_pairs_hook=once_each,
            parse_constant=refused,
            parse_float=unchanged,
        )
        refuse_deep(content, value)
    except (ValueError, RecursionError) as error:
        raise ValueError(problem_of(error)) from error
    return value


def once_each(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """Return an object whose names differ."""
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("duplicate key")
    return found


def unchanged(text: str) -> float:
    """Return a number as a double whose shortest text has the same value."""
    value = float(text)
    try:
        is_kept = Decimal(text) == Decimal(repr(value))
    except InvalidOperation:  # an exponent of more than eighteen digits, with which only zero is kept
        is_kept = not Decimal(text.lower().partition("e")[0])
    if is_kept:
        return value
    raise ValueError(OTHER_DIGITS)


def refused(name: str) -> None:
    """Refuse a number that JSON does not have."""
    raise ValueError(name)


# The files of an entity in the order of their runs, and foreign entries among them.


REPEATED: Final = "a row before it has the same key, and only the first is copied; remove one of them"
OUT_OF_ORDER: Final = "it follows a row with a higher key; put the lines in order"


def foreign_error(kind: str) -> str:
    """Return the error of an entry that is not part of the tree."""
    return f"a {kind} of this name is not part of the layout; move it out of the root"


def no_state(place: Place) -> str:
    """Say that the run of a row is missing."""
    return f"its run has no file {place.path}"


def covers(within: KeyRange, place: Key) -> bool:
    """Whether a range covers a place in the order of the keys; a row without a key precedes its run."""
    return (within.lower is None or within.lower <= place) and (within.upper is None or place < within.upper)


def known_folders(layouts: Iterable[FileLayout]) -> dict[str, set[str]]:
    """Return which entries the folders above those of the entities may have."""
    found: dict[str, set[str]] = {}
    for layout in layouts:
        parts = layout.folder.split("/")
        for depth, part in enumerate(parts):
            found.setdefault("/".join(parts[:depth]), set()).add(part)
    return found


def files_in_order(
    files: Files, entity: Entity
) -> tuple[list[FileRow], list[RunFile], list[tuple[str, RunFile]]]:
    """Return foreign entries, the files whose run is unknown, and the others in the order of their runs.

    All names are in memory, but no content.
    """
    layout = files.layout(entity)
    foreign_rows: list[FileRow] = []
    unidentified: list[RunFile] = []
    found: list[tuple[str, RunFile]] = []
    for entry in files.tree.entries(layout.folder):
        name = layout.name_of(entry.name) if entry.kind == ("folder" if layout.manifest else "file") else None
        if name is None:
            if entry.kind != "file" or not layout.is_auxiliary(entry.name):
                foreign_rows.append(_foreign(files, entity, layout.folder, entry))
            continue
        file = RunFile(files.tree, entity, layout.named(name), name, decoded(name))
        run = file.run or _stored_run_id(files, file)
        if run is None:
            foreign_rows += files.layout(file.entity).form.rows(file)
            unidentified.append(file)
        else:
            found.append((run, file))
    if entity.parent is None:
        # Once for the whole tree: with the entity that has no parent.
        for folder, known in known_folders(files.layouts.values()).items():
            others = (item for item in files.tree.entries(folder) if item.name not in known)
            foreign_rows += [_foreign(files, entity, folder, item) for item in others]
    foreign_rows.sort(key=lambda row: row.original.where if row.original else "")
    return foreign_rows, unidentified, sorted(found, key=lambda item: item[0])


def rows_in_order(files: Files, run: str, file: RunFile, within: KeyRange) -> Iterator[FileRow]:
    """Yield the rows of a file that a range covers, in the order of the key."""
    rows: Iterable[FileRow] = files.layout(file.entity).form.rows(file)
    if not files.layout(file.entity).form.in_order:
        rows = sorted(rows, key=lambda row: row.key if file.entity.admits_key(row.key) else (run,))
    missing_run = _missing_run(files, file)
    last: Key | None = None
    for row in rows:
        is_key = file.entity.admits_key(row.key)
        if row.error is None and is_key and last is not None and row.key < last:
            yield from _covered(within, run, _with(row, OUT_OF_ORDER, (run,)))
        elif row.error is not None or not is_key:
            yield from _covered(within, run, row)
        elif covers(within, row.key):
            error = REPEATED if row.key == last else missing_run
            yield row if error is None else _with(row, error, row.key)
            last = row.key
        else:
            last = row.key


def _covered(within: KeyRange, run: str, row: FileRow) -> Iterator[FileRow]:
    """Yield a row, which may lack a valid key, if a range covers its place."""
    place = row.key if row.entity.admits_key(row.key) else (run,)
    if covers(within, place):
        yield row


def _with(row: FileRow, error: str, key: Key) -> FileRow:
    return FileRow(row.entity, key, row.document, row.markers, row.derived, error, False, row.original)  # noqa: FBT003


def _stored_run_id(files: Files, file: RunFile) -> str | None:
    """Return the id stored in a file whose name does not contain it."""
    rows = (row for row in files.layout(file.entity).form.rows(file) if row.error is None)
    first = next(rows, None)
    return None if first is None else str(first.key[0])


def _missing_run(files: Files, file: RunFile) -> str | None:
    """Return why no row of a file can be moved: its run is missing."""
    if file.entity.parent is None:
        return None
    layout = files.layout(file.entity.parent.entity)
    place = layout.named(file.name)
    try:
        with files.tree.opened(place) as opened:
            return no_state(place) if opened is None else None
    except ConfigurationError:
        return None  # it exists, and is reported separately


def _foreign(files: Files, entity: Entity, folder: str, entry: Entry) -> FileRow:
    place = Place(folder, entry.name)
    original = FileOriginal(files.tree, place, size=None if entry.kind == "file" else 0)
    return broken_row(entity, (), foreign_error(entry.kind), original)
