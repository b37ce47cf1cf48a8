"""The files of an entity in the order of their runs, and what stands among them that is not ours."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from twinstore.errors import ConfigurationError
from twinstore_filesystem.forms import RunFile
from twinstore_filesystem.names import decoded
from twinstore_filesystem.rows import FileOriginal, FileRow, broken_row
from twinstore_filesystem.tree import Place

if TYPE_CHECKING:
    from collections.abc import Iterable

    from twinstore.catalog.entity import Entity
    from twinstore.catalog.keys import Key, KeyRange
    from twinstore_filesystem.layout import FileLayout
    from twinstore_filesystem.tree import Entry
    from twinstore_filesystem.unit import Files

__all__ = [
    "OUT_OF_ORDER",
    "REPEATED",
    "covers",
    "files_in_order",
    "foreign_error",
    "known_folders",
    "no_state",
    "rows_in_order",
]

REPEATED: Final = (
    "another row of the same key stands before it, and only the first is moved; remove one of them"
)
OUT_OF_ORDER: Final = "it stands behind a row of a higher key; put the lines in order"


def foreign_error(kind: str) -> str:
    """Say that something in the tree is no part of it."""
    return f"a {kind} of this name is no part of the layout; move it out of the root"


def no_state(place: Place) -> str:
    """Say that the run of a row is missing."""
    return f"its run has no file {place.path}"


def covers(within: KeyRange, place: Key) -> bool:
    """Whether a range covers a place in the order of the keys; what has no key stands before its run."""
    return (within.lower is None or within.lower <= place) and (within.upper is None or place < within.upper)


def known_folders(layouts: Iterable[FileLayout]) -> dict[str, set[str]]:
    """Return what may stand in the folders above those of the entities."""
    found: dict[str, set[str]] = {}
    for layout in layouts:
        parts = layout.folder.split("/")
        for depth, part in enumerate(parts):
            found.setdefault("/".join(parts[:depth]), set()).add(part)
    return found


def files_in_order(
    files: Files, entity: Entity
) -> tuple[list[FileRow], list[RunFile], list[tuple[str, RunFile]]]:
    """Return what is not ours, the files that tell no run, and the others in the order of their runs.

    The names of all are in memory, and no content.
    """
    layout = files.layout(entity)
    strange: list[FileRow] = []
    untold: list[RunFile] = []
    found: list[tuple[str, RunFile]] = []
    for entry in files.tree.entries(layout.folder):
        name = layout.name_of(entry.name) if entry.kind == ("folder" if layout.manifest else "file") else None
        if name is None:
            if entry.kind != "file" or not layout.is_aside(entry.name):
                strange.append(_foreign(files, entity, layout.folder, entry))
            continue
        file = RunFile(files.tree, entity, layout.named(name), name, decoded(name))
        run = file.run or _told(files, file)
        if run is None:
            strange += files.layout(file.entity).form.rows(file)
            untold.append(file)
        else:
            found.append((run, file))
    if entity.parent is None:
        # Once for the whole tree: with the entity that has no parent.
        for folder, known in known_folders(files.layouts.values()).items():
            others = (item for item in files.tree.entries(folder) if item.name not in known)
            strange += [_foreign(files, entity, folder, item) for item in others]
    strange.sort(key=lambda row: row.original.where if row.original else "")
    return strange, untold, sorted(found, key=lambda item: item[0])


def rows_in_order(files: Files, run: str, file: RunFile, within: KeyRange) -> Iterator[FileRow]:
    """Yield the rows of a file that a range covers, in the order of the key."""
    rows: Iterable[FileRow] = files.layout(file.entity).form.rows(file)
    if not files.layout(file.entity).form.in_order:
        rows = sorted(rows, key=lambda row: row.key if file.entity.admits_key(row.key) else (run,))
    lacking = _lacking(files, file)
    last: Key | None = None
    for row in rows:
        is_key = file.entity.admits_key(row.key)
        if row.error is None and is_key and last is not None and row.key < last:
            yield from _covered(within, run, _with(row, OUT_OF_ORDER, (run,)))
        elif row.error is not None or not is_key:
            yield from _covered(within, run, row)
        elif covers(within, row.key):
            error = REPEATED if row.key == last else lacking
            yield row if error is None else _with(row, error, row.key)
            last = row.key
        else:
            last = row.key


def _covered(within: KeyRange, run: str, row: FileRow) -> Iterator[FileRow]:
    """Yield a row without a key of its own where a range covers its place."""
    place = row.key if row.entity.admits_key(row.key) else (run,)
    if covers(within, place):
        yield row


def _with(row: FileRow, error: str, key: Key) -> FileRow:
    return FileRow(row.entity, key, row.document, row.markers, row.derived, error, False, row.original)  # noqa: FBT003


def _told(files: Files, file: RunFile) -> str | None:
    """Return the id that stands in a file whose name does not tell it."""
    rows = (row for row in files.layout(file.entity).form.rows(file) if row.error is None)
    first = next(rows, None)
    return None if first is None else str(first.key[0])


def _lacking(files: Files, file: RunFile) -> str | None:
    """Return why no row of a file can be moved: its run is missing."""
    if file.entity.parent is None:
        return None
    layout = files.layout(file.entity.parent.entity)
    place = layout.named(file.name)
    try:
        with files.tree.opened(place) as opened:
            return no_state(place) if opened is None else None
    except ConfigurationError:
        return None  # it is there, and told of by itself


def _foreign(files: Files, entity: Entity, folder: str, entry: Entry) -> FileRow:
    place = Place(folder, entry.name)
    original = FileOriginal(files.tree, place, size=None if entry.kind == "file" else 0)
    return broken_row(entity, (), foreign_error(entry.kind), original)
