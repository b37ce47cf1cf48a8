"""Rows as the files hold them, with where each is stored and why it cannot be read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeGuard, TypeVar, cast

from typing_extensions import override

from twinstore.bulk.rows import LONGEST_READABLE, PIECE_BYTES, Original, base64_pieces
from twinstore.catalog.row import Row
from twinstore.documents import DocumentRow, decode
from twinstore.documents.rows import row_of_values
from twinstore.errors import ConfigurationError, DocumentDecodeError
from twinstore.models import json_text
from twinstore.models.canonical import CanonicalModel, undecodable
from twinstore_filesystem.errors import DRIVER

if TYPE_CHECKING:
    from twinstore.catalog.entity import Entity
    from twinstore.catalog.keys import Key
    from twinstore_filesystem.tree import Place, Tree

M = TypeVar("M", bound=CanonicalModel)


@dataclass(frozen=True, slots=True)
class FileOriginal(Original):
    """The bytes of a file, or of a part of it, as they are at the time of the request."""

    tree: Tree
    place: Place
    line: int = 0
    start: int = 0
    size: int | None = None

    @property
    def where(self) -> str:
        """The path below the root, with the line."""
        return f"{self.place.path}, line {self.line}" if self.line else self.place.path

    @override
    def pieces(self) -> Iterator[str]:
        """Yield ``{"path": …, "line": …, "bytes": base64, "text": its beginning}``."""
        head = {"path": self.place.path, **({"line": self.line} if self.line else {})}
        yield json_text.dumps(head).decode()[:-1] + ',"bytes":"'
        first = b""
        # One that may not be read has its path and reason alone.
        with suppress(ConfigurationError):
            for piece in self.tree.pieces(self.place, self.start, self.size, PIECE_BYTES):
                first += piece[: max(0, LONGEST_READABLE - len(first))]
                yield from base64_pieces(piece)
        shown = first.decode("utf-8", "backslashreplace")[:LONGEST_READABLE]
        yield '","text":' + json_text.dumps(shown).decode() + "}"


@dataclass(frozen=True, slots=True)
class FileRow(DocumentRow):
    """A row as a file holds it.

    Attributes:
        error: why it cannot be read, ``None`` when it is JSON in its place; decoding shows whether the JSON
            forms a model.
        whole: the file as a whole cannot be read, so only the run of the row is known.
        original: its bytes.
    """

    error: str | None = None
    whole: bool = False
    original: FileOriginal | None = field(default=None, compare=False)


def file_row(entity: Entity, value: object, original: FileOriginal | None = None) -> FileRow:
    """Return the row of a JSON object.

    Raises:
        ValueError: the value is none.
    """
    if not isinstance(value, dict):
        raise ValueError("it is not a JSON object")  # noqa: TRY004  # one error for every bad text
    values = cast("Mapping[str, object]", value)
    normalized = {name: int(part) for name in entity.key if is_whole(part := values.get(name))}
    row = row_of_values(entity, {**values, **normalized} if normalized else values)
    if not entity.admits_key(row.key):
        wanted = ", ".join(f"{part.field} ({part.type.value})" for part in entity.key_parts)
        raise ValueError(f"its key is not made of {wanted}")
    return FileRow(entity, row.key, row.document, row.markers, row.derived, None, False, original)  # noqa: FBT003


def is_whole(part: object) -> TypeGuard[float]:
    """Whether a part of a key is a whole number in another spelling."""
    return isinstance(part, float) and part.is_integer()


def broken_row(
    entity: Entity, key: Key, error: str, original: FileOriginal | None, *, whole: bool = False
) -> FileRow:
    """Return a placeholder for a row that cannot be read; its key is as much of it as is known."""
    known = dict(zip(entity.key, key, strict=False))
    return FileRow(entity, key, known, {}, {}, error, whole, original)


def decoded_row(entity: Entity[M], row: DocumentRow) -> Row[M]:
    """Return the model of a row.

    Raises:
        DocumentDecodeError: the stored row does not form one; names the file.
    """
    original = row.original if isinstance(row, FileRow) else None
    where = "" if original is None else f"{original.where}: "
    if isinstance(row, FileRow) and row.error is not None:
        raise undecodable(where + row.error, entity=entity.name, key=row.key_text, driver=DRIVER)
    try:
        return decode(entity, row, DRIVER)
    except DocumentDecodeError as error:
        raise undecodable(
            f"{where}{error.reason}", entity=entity.name, key=row.key_text, driver=DRIVER
        ) from error


def text_of(document: Mapping[str, object]) -> bytes:
    """Return the canonical JSON of a row."""
    text = json_text.dumps(document)
    if not json_text.may_need_repr(text):
        return text
    return json_text.dumps(json_text.encodable(cast("json_text.JsonValue", _lists(document))))


def _lists(value: object) -> object:
    """Return a value with lists in place of tuples, which are not searched for numbers."""
    if isinstance(value, Mapping):
        return {name: _lists(item) for name, item in cast("Mapping[str, object]", value).items()}
    if isinstance(value, (list, tuple)):
        return [_lists(item) for item in cast("list[object]", value)]
    return value
