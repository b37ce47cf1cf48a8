"""One unit of work on files: what it writes is kept aside until its end, under the locks of its runs.

A unit that writes one file is all or nothing. One that writes several, the state of a run and its log, writes
them one after the other, parents first: the driver declares no transactions.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from typing_extensions import override

from twinstore.access.query import pinned_key
from twinstore.catalog.conditions import After, Equals
from twinstore.catalog.tenancy import ALL_TENANTS, UNKNOWN_TENANT, TenancyKind, admits
from twinstore.documents import DocumentRow, DocumentUnit
from twinstore.documents.access import first_keys, first_rows, follows, is_true
from twinstore.errors import DocumentDecodeError, Outcome, TwinstoreError, UnavailableError
from twinstore.models.canonical import undecodable
from twinstore_filesystem.bulk_rows import scanned
from twinstore_filesystem.cursor import LogCursor
from twinstore_filesystem.errors import DRIVER
from twinstore_filesystem.files import Changes, Files
from twinstore_filesystem.names import encoded
from twinstore_filesystem.rows import FileRow

if TYPE_CHECKING:
    from datetime import datetime

    from twinstore.access.query import Query
    from twinstore.catalog.entity import Entity
    from twinstore.catalog.keys import Key, KeyRange
    from twinstore.catalog.tenancy import Tenants
    from twinstore_filesystem.forms import Staged
    from twinstore_filesystem.tree import Place


class FileUnit(DocumentUnit):
    """One unit of work."""

    driver = DRIVER

    def __init__(self, files: Files, *, read_only: bool = False) -> None:
        super().__init__(read_only=read_only)
        self._files = files
        self._staged: Changes = {}
        self._locks: dict[Place, list[tuple[Entity, str]]] = {}
        # What cannot change any more, because this unit holds the lock of its run.
        self._known: dict[tuple[Entity, str], list[FileRow]] = {}
        self._cursors: dict[tuple[Entity, str], LogCursor] = {}

    @override
    def now(self) -> datetime:
        return self._files.clock.now()

    @override
    def select(self, entity: Entity, query: Query) -> list[DocumentRow]:
        rows = self.matching(entity, query)
        if self._is_in_order(entity, query):
            return [row for row, _ in zip(rows, range(query.limit + 1), strict=False)]
        return first_rows(rows, query.order, query.limit + 1)

    @override
    def keys(self, entity: Entity, query: Query) -> list[Key]:
        rows = self.matching(entity, query)
        if self._is_in_order(entity, query):
            return [row.key for row, _ in zip(rows, range(query.limit), strict=False)]
        return first_keys(rows, query.order, query.limit)

    @override
    def scan(self, entity: Entity, within: KeyRange, scope: Tenants) -> Iterator[DocumentRow]:
        return (row for row in scanned(self._files, entity, within) if self.shows(scope, row))

    @override
    def get(self, entity: Entity, key: Key, scope: Tenants = ALL_TENANTS) -> DocumentRow | None:
        run = self._files.layout(entity).run_of(key)
        staged = self._staged.get(entity, {}).get(run, {})
        if key in staged:
            row = staged[key]
        elif (known := self._known_rows(entity, run)) is not None:
            row = next((item for item in known if item.whole or item.key == key), None)
        else:
            row = self._found(entity, run, key)
        return row if row is not None and self._is_seen(scope, row) else None

    def _found(self, entity: Entity, run: str, key: Key) -> FileRow | None:
        layout, file = self._files.layout(entity), self._files.file(entity, run)
        if not layout.form.in_order or layout.lock(key) not in self._locks:
            return layout.form.find(file, key)
        # No other writer changes it now, so one pass serves every lookup of this unit.
        if (entity, run) not in self._cursors:
            self._cursors[entity, run] = LogCursor(layout.form, file)
        return self._cursors[entity, run].find(key)

    @override
    def hold(self, entity: Entity, key: Key) -> None:
        layout = self._files.layout(entity)
        lock, run = layout.lock(key), layout.run_of(key)
        if self._files.locks.acquire(self, lock):
            self._locks[lock] = []
        if all(run != other for _, other in self._locks[lock]):
            self._files.remove_unfinished(run)
        self._locks[lock].append((entity, run))

    @override
    def write(self, row: DocumentRow) -> None:
        self._stage(row.entity, row.key, row)

    @override
    def delete(self, entity: Entity, key: Key) -> None:
        self._stage(entity, key, None)

    @override
    def commit(self) -> None:
        self.state.check_commit()
        self.state.check()
        is_begun = False
        # Parents first: readers must not see a row whose run does not exist yet.
        for entity in sorted(self._staged, key=lambda item: item.depth):
            for run, rows in self._staged[entity].items():
                try:
                    self._files.layout(entity).form.store(self._files.file(entity, run), rows)
                except UnavailableError as error:
                    error.outcome = Outcome.UNKNOWN if is_begun else error.outcome
                    raise
                is_begun = True
        self.rollback()

    @override
    def rollback(self) -> None:
        self.state.closed = True
        self._staged.clear()
        self._known.clear()
        for cursor in self._cursors.values():
            cursor.close()
        self._cursors.clear()
        kept = {lock: any(self._exists(*item) for item in held) for lock, held in self._locks.items()}
        self._locks.clear()
        self._files.locks.release(self, kept)

    def shows(self, scope: Tenants, row: FileRow) -> bool:
        """Whether a tool that reads a scope gets a row; only the scope of all tenants has unreadable ones."""
        if scope is ALL_TENANTS:
            return True
        try:
            return row.error is None and self._is_seen(scope, row)
        except DocumentDecodeError:
            return False

    def matching(self, entity: Entity, query: Query) -> Iterator[DocumentRow]:
        """Yield the rows of a list, in the order of the files; broken ones match every condition."""
        is_one = pinned_key(entity, query) is not None
        seen: dict[Key | None, bool] = {}
        for row in self._rows(entity, query):
            if query.after is not None and not follows(row, query.order, query.after):
                continue
            is_broken = isinstance(row, FileRow) and row.error is not None and (row.whole or not is_one)
            if not is_broken and not all(is_true(condition, row) for condition in query.where):
                continue
            if entity.tenancy.kind is not TenancyKind.PARENT:
                is_seen = self._is_seen(query.scope, row)
            else:
                # Once for each run: its state determines the owner of its rows.
                if row.parent_key not in seen:
                    seen[row.parent_key] = self._is_seen(query.scope, row)
                is_seen = seen[row.parent_key]
            if is_seen:
                yield row

    def _rows(self, entity: Entity, query: Query) -> Iterator[DocumentRow]:
        layout, staged = self._files.layout(entity), self._staged.get(entity, {})
        run = layout.pinned(entity, query)
        if run is None:
            waiting = {encoded(other): rows for other, rows in staged.items()}
            for file in self._files.all(entity):
                yield from with_staged(layout.form.rows(file), waiting.pop(file.name, {}))
            for rows in waiting.values():
                yield from with_staged(iter(()), rows)
            return
        file = self._files.file(entity, run)
        if self._is_in_order(entity, query) and query.order[-1].descending:
            yield from layout.form.backwards(file)
            return
        known, number = self._known_rows(entity, run), first_number_above(entity, query)
        if known is not None:
            stored: Iterator[FileRow] = iter(known)
        elif number is not None:
            stored = layout.form.rows_behind(file, number)
        else:
            stored = layout.form.rows(file)
        yield from with_staged(stored, staged.get(run, {}))

    def _is_in_order(self, entity: Entity, query: Query) -> bool:
        """Whether the file of the only run has the rows in the order of a list, or the reverse."""
        layout = self._files.layout(entity)
        run = layout.pinned(entity, query)
        if run is None or not layout.form.in_order or run in self._staged.get(entity, {}):
            return False
        fixed = {item.field for item in query.where if isinstance(item, Equals)}
        free = [key for key in query.order if key.field not in fixed]
        return [key.field for key in free] == [entity.key[-1]] and query.order[-1].field == entity.key[-1]

    def _exists(self, entity: Entity, run: str) -> bool:
        """Whether a run has a file of an entity; true also if that is unknown."""
        try:
            with self._files.tree.opened(self._files.layout(entity).place(run)) as file:
                return file is not None
        except TwinstoreError:
            # Asked for at the end of a unit, whose own error is what a caller must learn.
            return True

    def _known_rows(self, entity: Entity, run: str) -> list[FileRow] | None:
        """Return the rows of a file that is small and cannot change before this unit ends."""
        layout = self._files.layout(entity)
        if layout.form.in_order or all((entity, run) not in held for held in self._locks.values()):
            return None
        if (entity, run) not in self._known:
            self._known[entity, run] = list(layout.form.rows(self._files.file(entity, run)))
        return self._known[entity, run]

    def _stage(self, entity: Entity, key: Key, row: DocumentRow | None) -> None:
        run = self._files.layout(entity).run_of(key)
        self._staged.setdefault(entity, {}).setdefault(run, {})[key] = row

    def _is_seen(self, scope: Tenants, row: DocumentRow) -> bool:
        """Whether a scope sees a row; the owner of a file that cannot be read is unknown."""
        kind = row.entity.tenancy.kind
        if kind is TenancyKind.NONE or scope is ALL_TENANTS:
            return True
        if kind is TenancyKind.PARENT:
            return self._sees_parent(scope, row)
        owner = row.owner
        # A list must not skip it silently, so every caller gets the error that it cannot be read.
        is_whole = isinstance(row, FileRow) and row.whole
        return is_whole or (owner is not UNKNOWN_TENANT and admits(scope, owner))

    def _sees_parent(self, scope: Tenants, row: DocumentRow) -> bool:
        parent, key = row.entity.parent, row.parent_key
        if parent is None or key is None:
            return False
        found = self.get(parent.entity, key, scope)
        if isinstance(found, FileRow) and found.whole and found.original is not None:
            # No tenant may see anything of this run before it is repaired.
            reason = f"{found.original.where}: {found.error}"
            raise undecodable(reason, entity=parent.entity.name, key=found.key_text, driver=DRIVER)
        return found is not None


def with_staged(rows: Iterator[FileRow], staged: Staged) -> Iterator[DocumentRow]:
    """Yield the rows of a file with what is staged in their place, and behind them."""
    yield from (row for row in rows if row.key not in staged)
    yield from (row for row in staged.values() if row is not None)


def first_number_above(entity: Entity, query: Query) -> int | None:
    """Return the number up to which a list of one log has no row, ``None`` where it begins with the first."""
    name = entity.key[-1]
    bounds = [item.value for item in query.where if isinstance(item, After) and item.field == name]
    return max((bound for bound in bounds if type(bound) is int), default=None)
