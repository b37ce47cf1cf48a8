"""Looks up many entries of one log in one pass, while its run is held and the file cannot change."""

from __future__ import annotations

from typing import TYPE_CHECKING

from twinstore_filesystem.forms import is_before

if TYPE_CHECKING:
    from collections.abc import Generator

    from twinstore.catalog.keys import Key
    from twinstore_filesystem.forms import Form, RunFile
    from twinstore_filesystem.rows import FileRow


class LogCursor:
    """A place in a log that only goes on: a repeated append asks for its entries in their order."""

    def __init__(self, form: Form, file: RunFile) -> None:
        """Take the file; it is read at the first look."""
        self._form = form
        self._file = file
        self._last = next(form.backwards(file), None)
        self._rows: Generator[FileRow] | None = None
        self._current: FileRow | None = None

    def find(self, key: Key) -> FileRow | None:
        """Return the row of a key."""
        last = self._last
        # A row to append is looked up first, and comes after all others.
        if last is None or (last.error is None and is_before(last.key, key)):
            return None
        if self._current is None or is_before(key, self._current.key):
            self.close()
            self._rows = (row for row in self._form.rows(self._file))
        while self._current is None or is_before(self._current.key, key):
            self._current = self._following()
            if self._current is None:
                return None
        return self._current if self._current.key == key else None

    def close(self) -> None:
        """Close the file; the next look begins again."""
        if self._rows is not None:
            self._rows.close()
        self._rows = self._current = None

    def _following(self) -> FileRow | None:
        """Return the next row that can be read; others hide no key."""
        return next((row for row in self._rows or () if row.error is None), None)
