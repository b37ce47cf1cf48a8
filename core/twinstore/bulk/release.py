"""What a copy does with rows that a process may hold, and with those that a store keeps to itself.

A row that is copied as released is written by the rule of its description: the copy has no holder, and of two
fences the higher one remains. The rule is decided while the row of the target is locked, because a service
may take it at any moment, and a fence that falls would let two owners pass for one.
"""

from __future__ import annotations

from collections import Counter
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol, TypeVar, cast

import orjson
from typing_extensions import override

from twinstore.access.protocol import Ref
from twinstore.access.query import query_of_key
from twinstore.bulk.parts import WriteCounts
from twinstore.bulk.port import Conflict, RangeWriter, Rejected
from twinstore.bulk.rows import NUMBERS, has_marks, unmarked
from twinstore.catalog.row import Row
from twinstore.catalog.tenancy import ALL_TENANTS
from twinstore.errors import DocumentDecodeError

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Mapping, Sequence

    from twinstore.access.protocol import Access, Rows, ServerClock
    from twinstore.bulk.port import BulkPort, CommitCheck, ImportOutcome, OnConflict, Record
    from twinstore.catalog.entity import Entity
    from twinstore.catalog.keys import Key
    from twinstore.models.canonical import CanonicalModel


class HasKey(Protocol):
    """A row with its key, however it was read."""

    @property
    def key(self) -> Key | None:
        """The key; ``None`` when what is stored is not one."""
        ...


T = TypeVar("T", bound=HasKey)


def copyable_rows(entity: Entity, rows: Iterable[T]) -> list[T]:
    """Return the rows of a batch without those that each store keeps to itself."""
    return [row for row in rows if row.key not in entity.local_keys]


def copy_counts(port: BulkPort, entity: Entity, *, tenant_id: str | None = None) -> dict[str, int]:
    """Return the number of rows by the label of their owner, without those that a store keeps to itself."""
    return without_local_rows(port, entity, port.counts(entity, tenant_id=tenant_id))


def without_local_rows(port: BulkPort, entity: Entity, counted: Mapping[str, int]) -> dict[str, int]:
    """Return numbers of rows by the label of their owner without those that a store keeps to itself."""
    counts = Counter(counted)
    if entity.local_keys and counts:
        with port.view() as view:
            found = Counter(row.label for row in view.rows_of(entity, entity.local_keys))
        counts -= Counter({label: number for label, number in found.items() if label in counts})
    return dict(counts)


def released(entity: Entity, model: CanonicalModel) -> CanonicalModel:
    """Return a row as its copy is stored, without a holder."""
    if entity.release is None:
        return model
    end, beginning = (entity.shapes[name].name for name in (entity.release.end, entity.release.beginning))
    return model.evolve(**{end: getattr(model, beginning)})


def fence_in(entity: Entity, content: bytes) -> int | None:
    """Return the fence in the content of a scanned row, ``None`` if it is not there as a number."""
    if entity.release is None:
        return None
    document: object = orjson.loads(content)["doc"]
    known = cast("dict[str, object]", document) if isinstance(document, dict) else {}
    found = known.get(entity.release.fence)
    if isinstance(found, dict):
        return whole_number(cast("dict[str, object]", found))
    return found if type(found) is int else None


def whole_number(shown: dict[str, object]) -> int | None:
    """Return the number that a service reads from a value of another type, ``None`` if it reads none."""
    form, value = unmarked(shown) or ("", None)
    if form not in NUMBERS:
        return None
    number = float(str(value))
    # From 2^53 on a double may equal another integer.
    return int(number) if number.is_integer() and abs(number) < 2**53 else None


@contextmanager
def copy_writer(
    port: BulkPort, entity: Entity, *, on_conflict: OnConflict = "fail", check: CommitCheck | None = None
) -> Generator[RangeWriter]:
    """Open a writer for a range of a copy; see :meth:`~twinstore.bulk.port.BulkPort.writer`."""
    with port.writer(entity, on_conflict=on_conflict, check=check) as writer:
        if entity.release is None:
            yield writer
        else:
            yield ReleasingWriter(writer, port, entity, overwrite=on_conflict == "overwrite")


class ReleasingWriter(RangeWriter):
    """Writes rows as released, in the transaction of another writer. There are few, so each is a step.

    A row of the target whose fence is as high is unchanged, whatever else it holds: it was copied before, or
    a service of the target has had it since. One with a lower fence is a conflict like any other, as is one
    that no driver writes in this form.
    """

    def __init__(self, inner: RangeWriter, port: BulkPort, entity: Entity, *, overwrite: bool) -> None:
        """Take the writer whose transaction it is, the target, and what happens to conflicts."""
        self._inner = inner
        self._port = port
        self._entity = entity
        self._overwrite = overwrite
        self._records: list[Record] = []
        self._counts = WriteCounts()

    @override
    def write(self, records: Sequence[Record]) -> None:
        self._records.extend(records)

    @override
    def remove(self, keys: Sequence[Key]) -> None:
        self._inner.remove(keys)

    @override
    def flush(self) -> ImportOutcome:
        """Write what waits, inside the transaction that the other writer has open from its own flush on."""
        records, self._records = self._records, []
        foreign = self._foreign_keys(records)
        inner = self._inner.flush()
        for record in records:
            self._write(record, is_foreign=record.key in foreign)
        self._counts.removed = inner.removed
        return self._counts.outcome()

    @property
    @override
    def access(self) -> Access:
        return self._inner.access

    @override
    def commit(self) -> None:
        self.flush()
        self._inner.commit()

    def _write(self, record: Record, *, is_foreign: bool) -> None:
        if record.model is None or record.key is None:
            self._counts.rejected.append(Rejected(record, record.error or "the record holds no model"))
            return
        row = Row(released(self._entity, record.model), record.storage)
        fence = self._fence_of(row)
        before: Row | None = None

        def advanced(rows: Rows, now: ServerClock) -> Rows:
            nonlocal before
            del now
            (before,) = rows
            advances = before is not None and not is_foreign and self._fence_of(before) < fence
            return (row if before is None or (self._overwrite and advances) else None,)

        try:
            self.access.change((Ref(self._entity, ALL_TENANTS, record.key),), advanced)
        except DocumentDecodeError:
            self._replace(record, row, self._stored_fence(record.key))
            return
        if before is not None and is_foreign:
            self._replace(record, row, self._fence_of(before))
        elif before is not None and self._fence_of(before) >= fence:
            self._counts.unchanged[record.label] += 1
        else:
            self._count_written(record, overwritten=before is not None)

    def _foreign_keys(self, records: Sequence[Record]) -> set[Key | None]:
        """Return whose rows the target holds in a form that no driver writes: another type or identity."""
        keys = [record.key for record in records if record.key is not None]
        if not keys:
            return set()
        with self._port.view() as view:
            rows = view.rows_of(self._entity, keys)
            return {row.key for row in rows if has_marks(row.content + row.beside)}

    def _replace(self, record: Record, row: Row, stored: int | None) -> None:
        """Replace a row that services cannot use, or only by chance; a higher fence in it still counts.

        The step before has read the row in the same transaction, so that no service can have changed it.
        """
        if self._overwrite and record.key is not None:
            if stored is not None and stored > self._fence_of(row):
                row = Row(row.model.evolve(**{self._fence: stored}), row.storage)
            self.access.remove(self._entity, query_of_key(self._entity, ALL_TENANTS, record.key))
            self.access.insert(self._entity, ALL_TENANTS, row)
        self._count_written(record, overwritten=True)

    def _count_written(self, record: Record, *, overwritten: bool) -> None:
        """Count a row that was written, or that differs and was left."""
        if overwritten:
            self._counts.conflicts.append(Conflict(record.key or (), record.owner, self._overwrite))
        if not overwritten or self._overwrite:
            self._counts.written[record.label] += 1

    @property
    def _fence(self) -> str:
        release = self._entity.release
        return "" if release is None else self._entity.shapes[release.fence].name

    def _fence_of(self, row: Row) -> int:
        return cast("int", getattr(row.model, self._fence))

    def _stored_fence(self, key: Key) -> int | None:
        with self._port.view() as view:
            found = [fence_in(self._entity, row.content) for row in view.rows_of(self._entity, [key])]
        return next(iter(found), None)
