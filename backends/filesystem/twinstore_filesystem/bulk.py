"""Whole entities for tools: the tree as the source of a copy. It is never the target of one.

Files and rows that cannot be moved are reported with their path: foreign files, invalid JSON, rows without a
run, duplicates. Ranges are cut between runs, so that each reads whole files.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from typing_extensions import override

from twinstore.bulk.parts import VIEW
from twinstore.bulk.port import EVERY_KEY, Inventory, Record
from twinstore.bulk.rows import ScanRow, marked
from twinstore.catalog.keys import INT64_MIN, KeyRange, KeyType, can_bound
from twinstore.catalog.tenancy import NO_TENANT, UNKNOWN_TENANT, StoredOwner, TenancyKind
from twinstore.documents import DocumentBulk, DocumentView
from twinstore.documents.access import batched, scope_of, unowned
from twinstore.documents.rows import changed_record, changed_scan_row, key_of
from twinstore.errors import ConfigurationError
from twinstore.models.json_text import dumps_sorted
from twinstore.runtime.forks import cleanup_unless_forked, guard_stream
from twinstore_filesystem.appending import log_end
from twinstore_filesystem.bulk_rows import covers, files_in_order, rows_in_order
from twinstore_filesystem.errors import DRIVER, translated
from twinstore_filesystem.forms import RunFile
from twinstore_filesystem.rows import FileRow
from twinstore_filesystem.unit import FileUnit

if TYPE_CHECKING:
    from pathlib import Path

    from twinstore.bulk.changes import DocumentChange
    from twinstore.bulk.port import CommitCheck, OnConflict, Position
    from twinstore.catalog.entity import Entity
    from twinstore.catalog.keys import Key
    from twinstore.documents import DocumentRow, DocumentWriter
    from twinstore.documents.bulk import BulkBackend
    from twinstore.migrations.migration import Initializer
    from twinstore_filesystem.files import Files


class FilesystemBulk(DocumentBulk):
    """Implements :class:`~twinstore.bulk.port.BulkPort` for a source."""

    def __init__(self, backend: BulkBackend, files: Files, entities: Sequence[Entity]) -> None:
        place = f"file:{files.tree.root}"
        super().__init__(
            backend, entities, identity=place, place=place, ledger_initializer=backend.initializer
        )
        self._files = files

    @property
    @override
    def identity(self) -> str:
        """The root, with its links resolved: one folder has one identity."""
        return f"file:{self._files.tree.root.resolve()}"

    @property
    @override
    def ledger_initializer(self) -> Initializer:
        """Refuse: nothing is copied into files, so they hold no ledger."""
        self._backend.capabilities.require("bulk_target")
        return super().ledger_initializer

    @override
    def inventory(self) -> tuple[Inventory, ...]:
        """Return the entities; of a source that has none of their folders none is there.

        Raises:
            ConfigurationError: the root of a source is absent.
        """
        tree = self._files.tree
        folders = [tree.root / self._files.layout(entity).folder for entity in self._entities]
        if tree.read_only and not tree.root.is_dir():
            raise ConfigurationError(
                f"The root {tree.root} is not a directory; give that of the source.", driver=DRIVER
            )
        present = not tree.read_only or any(map(is_folder, folders))
        return tuple(Inventory(entity=entity.name, present=present) for entity in self._entities)

    @override
    def cut(
        self, entity: Entity, rows: int, *, tenant_id: str | None = None, within: KeyRange = EVERY_KEY
    ) -> Iterator[KeyRange]:
        lower = within.lower
        count, last = 0, None
        with self.view() as view:
            for batch in view.rows(entity, within, tenant_id=tenant_id):
                for row in batch:
                    count += 1
                    if row.key is None or row.key[0] == last or not can_bound(row.key):
                        continue
                    last = row.key[0]
                    if count > rows:
                        yield KeyRange(lower, upper := (last, *_least(entity)))
                        lower, count = upper, 1
        yield KeyRange(lower, within.upper)

    @contextmanager
    @override
    def view(self, *, as_of: Position | None = None) -> Generator[FilesystemView]:
        """Open a view; each file is read as it is then."""
        if as_of is not None:
            self._backend.capabilities.require("point_in_time_reads")
        unit = FileUnit(self._files, read_only=True)
        with cleanup_unless_forked(unit.rollback):
            view = FilesystemView(unit, self._files)
            view.changes = self._changes
            yield view

    @contextmanager
    @override
    def writer(
        self, entity: Entity, *, on_conflict: OnConflict = "fail", check: CommitCheck | None = None
    ) -> Generator[DocumentWriter]:
        """Refuse: nothing is copied into files."""
        self._backend.capabilities.require("bulk_target")
        with super().writer(entity, on_conflict=on_conflict, check=check) as writer:
            yield writer


class FilesystemView(DocumentView):
    """Implements :class:`~twinstore.bulk.port.BulkView` over the tree."""

    def __init__(self, unit: FileUnit, files: Files) -> None:
        super().__init__(unit)
        self._files = files
        self._sees = unit.shows

    @override
    def records(
        self, entity: Entity, within: KeyRange, *, tenant_id: str | None = None, batch_size: int = 1000
    ) -> Iterator[list[Record]]:
        return guard_stream(batched(self._records(entity, within, tenant_id), batch_size), VIEW)

    @override
    def records_of(self, entity: Entity, keys: Sequence[Key]) -> Iterator[Record]:
        for run, wanted in self._by_run(entity, keys).items():
            rows = rows_in_order(self._files, run, self._files.file(entity, run), KeyRange())
            yield from (self._record(row) for row in rows if row.key in wanted)

    @override
    def rows_of(self, entity: Entity, keys: Sequence[Key]) -> Iterator[ScanRow]:
        for wanted in self._by_run(entity, keys).values():
            first, last = min(wanted), max(wanted)
            within = KeyRange(first, (*last[:-1], _following(last[-1])))
            yield from (
                self._scanned(row)
                for row in self._unit.scan(entity, within, scope_of(None))
                if row.key in wanted
            )

    @override
    def _record(self, row: DocumentRow) -> Record:
        change = self.changes.documents.get(row.entity.name)
        return record(row, change) if isinstance(row, FileRow) else super()._record(row)

    def _by_run(self, entity: Entity, keys: Iterable[Key]) -> dict[str, set[Key]]:
        """Return keys by the run whose file has their rows, so that each file is read once."""
        found: defaultdict[str, set[Key]] = defaultdict(set)
        for key in keys:
            found[self._files.layout(entity).run_of(key)].add(key)
        return found

    @override
    def _scanned(self, row: DocumentRow) -> ScanRow:
        return shown(row, self.changes.documents.get(row.entity.name))

    def _records(self, entity: Entity, within: KeyRange, tenant_id: str | None) -> Iterator[Record]:
        if unowned(entity, tenant_id):
            return
        scope = scope_of(tenant_id)
        foreign_rows, unidentified, found = files_in_order(self._files, entity)
        if within.lower is None:
            yield from (self._record(row) for row in foreign_rows if self._sees(scope, row))
            if tenant_id is None:
                yield from (torn_tail() for file in unidentified if self._is_torn(file))
        for run, file in found:
            if (within.lower is not None and (run,) < within.lower[:1]) or (
                within.upper is not None and (run,) > within.upper[:1]
            ):
                continue
            is_seen = tenant_id is None
            for row in rows_in_order(self._files, run, file, within):
                if self._sees(scope, row):
                    is_seen = True
                    yield self._record(row)
            if is_seen and covers(within, (run,)) and self._is_torn(file):
                yield torn_tail()

    def _is_torn(self, file: RunFile) -> bool:
        if not self._files.layout(file.entity).form.in_order:
            return False
        try:
            with self._files.tree.opened(file.place) as opened:
                return opened is not None and log_end(opened).torn
        except ConfigurationError:
            return False  # it may not be opened, which its row reports


def is_folder(path: Path) -> bool:
    """Whether a folder is there.

    Raises:
        ConfigurationError: this process may not look.
    """
    with translated(path):
        return path.is_dir()


def torn_tail() -> Record:
    """Say that a log ends with what an interrupted writer left."""
    return Record(key=None, owner=NO_TENANT, model=None, torn_tail=True)


def record(row: FileRow, change: DocumentChange | None) -> Record:
    """Return a row for a copy after its change: decoded, or with the path and the reason why it cannot be."""
    if row.error is not None:
        return Record(key_of(row), owner_of(row), None, error=why(row), original=row.original)
    found = changed_record(row, DRIVER, change)
    # Also of rows that can be read: the target may refuse one, and then its bytes are kept.
    found.original = row.original
    if found.error is not None and row.original is not None:
        found.error = f"{row.original.where}: {found.error}"
    return found


def shown(row: DocumentRow, change: DocumentChange | None) -> ScanRow:
    """Return a row for comparison after its change."""
    if not isinstance(row, FileRow) or row.error is None:
        return changed_scan_row(row, change)
    # Equal to nothing that is stored, so that nothing is taken for a copy of it.
    content = dumps_sorted({"doc": marked("unreadable", row.error), "storage": {}})
    return ScanRow(key_of(row), owner_of(row), content, error=why(row))


def why(row: FileRow) -> str:
    """Return where a row that cannot be moved is stored, and why it cannot."""
    return f"{row.original.where}: {row.error}" if row.original is not None else str(row.error)


def owner_of(row: FileRow) -> StoredOwner:
    """Return who owns a row that cannot be read."""
    through = row.entity.tenancy.kind in {TenancyKind.PARENT, TenancyKind.NONE}
    return NO_TENANT if through else UNKNOWN_TENANT


def _least(entity: Entity) -> Key:
    """Return what comes before every key of one run, without the run."""
    return tuple(INT64_MIN if part.type is KeyType.INT64 else "" for part in entity.key_parts[1:])


def _following(part: str | int) -> str | int:
    return part + 1 if isinstance(part, int) else f"{part}\x00"
