"""How the rows of one run are stored in a file: one object, an array, or one object a line."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import TYPE_CHECKING, Final, cast

from typing_extensions import override

from twinstore.documents import DocumentRow
from twinstore.errors import ConfigurationError, ValidationError
from twinstore.models import json_text
from twinstore.models.canonical import undecodable
from twinstore_filesystem.appending import FEED, append_lines, lines_backwards, lines_of
from twinstore_filesystem.errors import DRIVER
from twinstore_filesystem.names import encoded
from twinstore_filesystem.rows import FileOriginal, FileRow, broken_row, file_row, text_of
from twinstore_filesystem.tree import LARGEST

if TYPE_CHECKING:
    from twinstore.catalog.entity import Entity
    from twinstore.catalog.keys import Key
    from twinstore_filesystem.tree import Place, Tree

Staged = Mapping["Key", DocumentRow | None]
"""What becomes of rows: stored in place of the one of their key, or removed."""
# No model nests this deep: free JSON ends at 90. Walking a much deeper value would exhaust the stack.
DEEPEST: Final = 128
OTHER_RUN: Final = "it belongs to a different run than the one in the file name"
TOO_LARGE: Final = f"it is larger than any row, which has at most {LARGEST:,} bytes"
OTHER_DIGITS: Final = "a number has more digits than a double keeps, or is too large or small for one"


class RunFile:
    """The file of one run and entity.

    Attributes:
        name: the encoded id of the run.
        run: the id, ``None`` if the name does not contain it.
    """

    def __init__(self, tree: Tree, entity: Entity, place: Place, name: str, run: str | None) -> None:
        self.tree, self.entity, self.place, self.name, self.run = tree, entity, place, name, run

    @property
    def key(self) -> Key:
        """What is known of the key of a row that cannot be read."""
        return () if self.run is None else (self.run,)

    def row(self, value: object, original: FileOriginal) -> FileRow:
        """Return the row of a value in the file, or a placeholder for one that cannot be read."""
        try:
            row = file_row(self.entity, value, original)
        except ValueError as error:
            return broken_row(self.entity, self.key, str(error), original)
        if not isinstance(row.key[0], str) or encoded(row.key[0]) != self.name:
            return broken_row(self.entity, self.key, OTHER_RUN, original)
        return row

    def original(self) -> FileOriginal:
        """Return the bytes of the whole file."""
        return FileOriginal(self.tree, self.place)


class Form(ABC):
    """How rows are stored in a file.

    Attributes:
        in_order: whether they are read in the order of the key, without the whole file in memory.
    """

    in_order: bool = False

    def rows(self, file: RunFile) -> Iterator[FileRow]:
        """Yield the rows of a file; what cannot be read is a row with an error. Absent file: nothing."""
        return opened_rows(file, self.read(file))

    def rows_behind(self, file: RunFile, number: int) -> Iterator[FileRow]:
        """Yield the rows of a file; rows whose key ends with a number up to this may be skipped."""
        del number
        return self.rows(file)

    def backwards(self, file: RunFile) -> Iterator[FileRow]:
        """Yield the rows of a file in the reverse order, where it is in order."""
        return opened_rows(file, self.read_backwards(file))

    @abstractmethod
    def read(self, file: RunFile) -> Iterator[FileRow]:
        """Yield the rows of a file that may be opened."""

    def read_backwards(self, file: RunFile) -> Iterator[FileRow]:
        """Yield them in the reverse order."""
        return reversed(list(self.read(file)))

    def find(self, file: RunFile, key: Key) -> FileRow | None:
        """Return the row of a key, or the one that hides whether it is there."""
        return next((row for row in self.rows(file) if row.whole or row.key == key), None)

    @abstractmethod
    def store(self, file: RunFile, staged: Staged) -> None:
        """Write rows; nothing where the file holds them already.

        Raises:
            DocumentDecodeError: the file cannot be read, and others of its rows would be lost.
        """


class ObjectForm(Form):
    """One row: the file is its JSON object."""

    @override
    def read(self, file: RunFile) -> Iterator[FileRow]:
        content = file.tree.read(file.place)
        if content is None:
            return
        try:
            value = parsed(content)
        except ValueError as error:
            yield broken_row(file.entity, file.key, str(error), file.original(), whole=True)
            return
        row = file.row(value, file.original())
        yield (
            row
            if row.error is None
            else broken_row(file.entity, file.key, row.error, row.original, whole=True)
        )

    @override
    def store(self, file: RunFile, staged: Staged) -> None:
        for row in staged.values():
            if row is None:
                file.tree.remove(file.place)
            elif file.tree.read(file.place) != (wanted := text_of(row.document)):
                file.tree.replace(file.place, [wanted])


class ArrayForm(Form):
    """Several rows: the file is a JSON array, in the order of the key."""

    @override
    def read(self, file: RunFile) -> Iterator[FileRow]:
        content = file.tree.read(file.place)
        if content is None:
            return
        try:
            values = parsed(content)
        except ValueError as error:
            yield broken_row(file.entity, file.key, str(error), file.original(), whole=True)
            return
        if not isinstance(values, list):
            yield broken_row(file.entity, file.key, "it is not a JSON array", file.original(), whole=True)
            return
        original = file.original()
        for value in values:
            yield file.row(value, original)

    @override
    def store(self, file: RunFile, staged: Staged) -> None:
        before = list(self.rows(file))
        refuse_broken(before)
        kept = {row.key: row for row in before}
        after: dict[Key, DocumentRow] = {**kept}
        for key, row in staged.items():
            if row is None:
                after.pop(key, None)
            else:
                after[key] = row
        if not after:
            file.tree.remove(file.place)
        elif before != (rows := [after[key] for key in sorted(after)]):
            content = b"[" + b",".join(text_of(row.document) for row in rows) + b"]"
            if len(content) > LARGEST:
                raise ValidationError(
                    f"The {file.entity.name} of one run would have {len(content):,} bytes, and at most "
                    f"{LARGEST:,} can be read; nothing was written. Distribute the rows over several runs.",
                    entity=file.entity.name,
                )
            file.tree.replace(file.place, [content])


class LinesForm(Form):
    """A log: one JSON object a line, in the order of the key."""

    in_order = True

    @override
    def read(self, file: RunFile) -> Iterator[FileRow]:
        with file.tree.opened(file.place) as opened:
            if opened is None:
                return
            for number, (start, line) in enumerate(lines_of(opened), 1):
                if line.strip():
                    yield self.row(file, line, start, number)

    @override
    def rows_behind(self, file: RunFile, number: int) -> Iterator[FileRow]:
        return opened_rows(file, self._read_behind(file, number))

    def _read_behind(self, file: RunFile, number: int) -> Iterator[FileRow]:
        # By the first bytes of a line in its canonical form: to parse all of a long log takes seconds.
        head = head_of(file.entity)
        with file.tree.opened(file.place) as opened:
            for place, (start, line) in enumerate(() if opened is None else lines_of(opened), 1):
                found = head.match(line)
                if line.strip() and (found is None or int(found[1]) > number):
                    yield self.row(file, line, start, place)

    @override
    def read_backwards(self, file: RunFile) -> Iterator[FileRow]:
        with file.tree.opened(file.place) as opened:
            if opened is None:
                return
            for start, line in lines_backwards(opened):
                if line.strip():
                    yield self.row(file, line, start)

    @override
    def find(self, file: RunFile, key: Key) -> FileRow | None:
        last = next(self.backwards(file), None)
        # A row to append is looked up first, and comes after all others.
        if last is None or (last.error is None and is_before(last.key, key)):
            return None
        for row in self.rows(file):
            if row.error is None and not is_before(row.key, key):
                return row if row.key == key else None
        return None

    @override
    def store(self, file: RunFile, staged: Staged) -> None:
        last = next(self.backwards(file), None)
        if last is not None:
            refuse_broken([last])
        new_rows = [(key, row) for key, row in sorted(staged.items()) if row is not None]
        is_behind = last is None or all(is_before(last.key, key) for key, _ in new_rows)
        if len(new_rows) == len(staged) and is_behind:
            with file.tree.open_for_append(file.place) as opened:
                append_lines(opened, [text_of(row.document) for _, row in new_rows])
        elif any(self._merged(file, staged)):
            file.tree.replace(file.place, self._merged(file, staged))
        else:
            file.tree.remove(file.place)

    def row(self, file: RunFile, line: bytes, start: int, number: int = 0) -> FileRow:
        """Return the row of a line."""
        original = FileOriginal(file.tree, file.place, number, start, len(line))
        try:
            value = parsed(line)
        except ValueError as error:
            return broken_row(file.entity, file.key, str(error), original)
        return file.row(value, original)

    def _merged(self, file: RunFile, staged: Staged) -> Iterator[bytes]:
        """Yield the lines of a log after some rows were stored or removed; what cannot be read stays.

        Raises:
            DocumentDecodeError: a line is too large to be copied.
        """
        waiting = [(key, row) for key, row in sorted(staged.items(), reverse=True) if row is not None]
        with file.tree.opened(file.place) as opened:
            for start, line in lines_of(opened) if opened is not None else ():
                row = self.row(file, line, start)
                if len(line) > LARGEST:
                    refuse_broken([row])
                while waiting and row.error is None and not is_before(row.key, waiting[-1][0]):
                    yield line_of(waiting.pop()[1])
                if row.error is not None or row.key not in staged:
                    yield line + FEED
        yield from (line_of(row) for _, row in reversed(waiting))


def opened_rows(file: RunFile, rows: Iterator[FileRow]) -> Iterator[FileRow]:
    """Yield rows; of a file that is never opened, such as a link, or may not be read, one that says so."""
    # What is wrong with the root is wrong with all files, and is raised.
    file.tree.prepare()
    try:
        yield from rows
    except ConfigurationError as error:
        nothing = FileOriginal(file.tree, file.place, size=0)
        yield broken_row(file.entity, file.key, error.message, nothing, whole=True)


@cache
def head_of(entity: Entity) -> re.Pattern[bytes]:
    """Return how a line of an entity begins: with the run and the number of the row."""
    run, number = (name.encode() for name in entity.key)
    return re.compile(rb'\{"%s":"(?:[^"\\]|\\.)*","%s":([0-9]{1,18})[,}]' % (run, number))


def line_of(row: DocumentRow) -> bytes:
    """Return a row as a line."""
    return text_of(row.document) + FEED


def is_before(one: Key, other: Key) -> bool:
    """Whether a key comes before another one of the same run; what is no key comes before none."""
    return type(one[-1]) is type(other[-1]) and one[1:] < other[1:]


def parsed(content: bytes) -> json_text.JsonValue:
    """Return the value of a JSON text.

    Raises:
        ValueError: it cannot be read; says why without any of it.
    """
    if len(content) > LARGEST:
        raise ValueError(TOO_LARGE)
    try:
        value = json_text.parse_json(content, exact_float)
        refuse_deep(content, value)
    except (ValueError, RecursionError) as error:
        raise ValueError(problem_of(error)) from error
    return value


def exact_float(text: str) -> float:
    """Return a number as a double.

    Raises:
        ValueError: the shortest text of the double has other digits.
    """
    value = float(text)
    if json_text.digits_of(text) != json_text.digits_of(repr(value)):
        raise ValueError(OTHER_DIGITS)
    return value


def refuse_deep(content: bytes, value: object) -> None:
    """Refuse the value of a JSON text that is nested deeper than :data:`DEEPEST` levels.

    Raises:
        RecursionError: it is.
    """
    # Nearly every text has too few brackets to be as deep.
    if content.count(b"[") + content.count(b"{") <= DEEPEST:
        return
    level = [value]
    for _ in range(DEEPEST):
        level = [inner for outer in level for inner in members(outer) if isinstance(inner, (dict, list))]
    if level:
        raise RecursionError


def members(value: object) -> Iterable[object]:
    """Return the content of a JSON object or array."""
    if isinstance(value, dict):
        return cast("dict[str, object]", value).values()
    return cast("list[object]", value) if isinstance(value, list) else ()


def problem_of(error: Exception) -> str:
    """Return why a text is not read, without any of it."""
    if isinstance(error, UnicodeDecodeError):
        return "it is not UTF-8"
    if isinstance(error, RecursionError):
        return "it is nested too deeply"
    if str(error) == OTHER_DIGITS:
        return OTHER_DIGITS
    name = type(error).__name__
    if name == "JSONDecodeError":
        return "it is not JSON"
    if "duplicate key" in str(error):
        return "a name occurs twice in one object"
    return "a number is too large" if "digits" in str(error) else "a number is not finite"


def refuse_broken(rows: Iterable[FileRow]) -> None:
    """Refuse to write a file in which a row cannot be read.

    Raises:
        DocumentDecodeError: there is one; names the file.
    """
    for row in rows:
        if row.error is not None and row.original is not None:
            reason = f"{row.original.where}: {row.error}"
            raise undecodable(reason, entity=row.entity.name, key=row.key_text, driver=DRIVER)
