"""What follows from the six operations that every driver has: seven others, an append to a log among them."""

from __future__ import annotations

from abc import ABC
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final, Generic, Self, TypeVar, cast

from typing_extensions import override

from twinstore.access.errors import not_found, sequence_exhausted, sequence_taken
from twinstore.access.guard import MAX_BYTES, max_row_size
from twinstore.access.paging import SortKey, decode_token
from twinstore.access.protocol import (
    Access,
    Add,
    FieldUpdates,
    Ref,
    Rows,
    ServerClock,
    ServerTime,
    Unset,
    Values,
)
from twinstore.access.query import Query, assigned_marker, holds, key_order, label_of_value, newest_query
from twinstore.access.retry import retry
from twinstore.catalog.conditions import AtLeast, Equals
from twinstore.catalog.row import Row
from twinstore.catalog.tenancy import Tenants
from twinstore.errors import DocumentDecodeError, Outcome, UnavailableError
from twinstore.models.canonical import CanonicalModel
from twinstore.models.json_text import INT64_MAX

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import TracebackType

    from twinstore.access.paging import Page
    from twinstore.catalog.conditions import Condition
    from twinstore.catalog.entity import Entity
    from twinstore.catalog.keys import Key

__all__ = [
    "AccessDefaults",
    "Log",
    "MarkRule",
    "PartialProgress",
    "append_rows",
    "every_page",
    "first_keys",
    "first_readable",
    "highest_number",
    "keys_of",
    "mark_in_batches",
    "matches",
    "sequence_field",
]


M = TypeVar("M", bound=CanonicalModel)


def append_rows(
    access: AccessDefaults, entity: Entity[M], parent: Ref, rows: Sequence[Row[M]]
) -> tuple[Row[M], ...]:
    """Append rows in one unit; see :meth:`twinstore.access.protocol.Access.append`.

    The parent is written although nothing in it changes: a lock alone would be invisible to a writer whose
    snapshot is older, and two of them would assign one sequence twice. Everything is decided before anything
    is inserted, so that a refusal leaves the unit of a caller as it was.
    """
    with access.unit(parent.scope, atomic=False) as unit:
        # First, so that two appends to one parent come one after the other from here to the commit.
        (held,) = unit.change([parent], lambda found, _: found)
        if held is None:
            raise not_found(parent.entity, key_text_of(parent), access.binding.driver)
        keys = keys_of(entity, rows)
        found = unit.find(entity, parent.scope, keys) if keys else ()
        stored = [row for row in found if row is not None]
        log = Log(entity, access.binding.driver, stored, lambda: last_number(unit, entity, parent))
        appended = tuple(log.place(row) for row in rows)
        for row in log.new:
            unit.insert(entity, parent.scope, row)
        return appended


def key_text_of(ref: Ref) -> str:
    """Return the key of a ref as messages show it."""
    key = ref.key if isinstance(ref.key, tuple) else ref.key.values
    return ref.entity.key_text(key)


def sequence_field(entity: Entity[M]) -> str:
    """Return the field that numbers the entries of an ordered log."""
    if entity.sequence is None:
        raise LookupError(f"{entity.name} is not an ordered log")  # met by programmers only
    return entity.sequence


def sequence_of(entity: Entity[M], row: Row[M]) -> int | None:
    """Return the number of an entry, ``None`` when it is still to be assigned."""
    number = entity.value(row.model, row.storage, sequence_field(entity))
    return number if isinstance(number, int) else None


def with_sequence(entity: Entity[M], row: Row[M], number: int) -> Row[M]:
    """Return an entry with its number."""
    name = entity.shapes[sequence_field(entity)].name
    return Row(row.model.evolve(**{name: number}), row.storage)


def keys_of(entity: Entity[M], rows: Sequence[Row[M]]) -> list[Key]:
    """Return the keys under which some entries may be stored already, each once."""
    return list(dict.fromkeys(key for row in rows if (key := key_of(entity, row)) is not None))


def key_of(entity: Entity[M], row: Row[M]) -> Key | None:
    """Return the key of an entry, ``None`` while its number is missing from it."""
    if sequence_field(entity) in entity.key and sequence_of(entity, row) is None:
        return None
    return entity.key_of(row.model, row.storage)


def last_number(unit: Access, entity: Entity[M], parent: Ref) -> int:
    """Return the highest number under a parent, 0 for none."""
    if entity.parent is None or not isinstance(parent.key, tuple):
        raise LookupError(f"{entity.name} is appended to a parent, which must be named by its key")
    name = sequence_field(entity)
    query = Query(
        entity=entity.name,
        scope=parent.scope,
        # The key of a parent has one part; the checks of the catalog see to that.
        where=(Equals(entity.parent.field, parent.key[-1]),),
        order=(SortKey(name, descending=True, number=True),),
        limit=1,
    )
    if name in entity.key:
        # The number alone: the entry that has it may be large.
        for key in unit.keys(entity, query):
            number = key[entity.key.index(name)]
            return number if isinstance(number, int) else 0
        return 0
    found = unit.page(entity, query)
    return (sequence_of(entity, found[0]) or 0) if found else 0


class Log(Generic[M]):
    """The log of one parent while entries are appended to it; ``new`` are those to be inserted."""

    def __init__(
        self, entity: Entity[M], driver: str, stored: Iterable[Row[M]], last: Callable[[], int]
    ) -> None:
        """Take what is known of the log, which its parent guards against other writers.

        Args:
            entity: what the entries are.
            driver: the name of the driver, for messages.
            stored: the entries under those of :func:`keys_of` that are stored.
            last: returns the highest stored number; asked for at most once.
        """
        self.new: list[Row[M]] = []
        self._entity = entity
        self._driver = driver
        self._known = {entity.key_of(row.model, row.storage): row for row in stored}
        self._last = last
        self._next: int | None = None

    def place(self, row: Row[M]) -> Row[M]:
        """Return an entry as it is stored, or will be: with its own number.

        Raises:
            ConflictError: its key is taken by other content, or there is no number left for it.
        """
        key = key_of(self._entity, row)
        if key is not None and key in self._known:
            return self._same(row, self._known[key], key)
        number = sequence_of(self._entity, row)
        placed = with_sequence(self._entity, row, self._following()) if number is None else row
        # A number that a caller gives may lie ahead of the assigned ones; the next must not meet it.
        if self._next is not None and number is not None:
            self._next = max(self._next, number + 1)
        # Two entries of one call may be the same one, which is then appended once.
        self._known[self._entity.key_of(placed.model, placed.storage)] = placed
        self.new.append(placed)
        return placed

    def _same(self, row: Row[M], known: Row[M], key: Key) -> Row[M]:
        """Return the known entry of a key when it has the content of this one."""
        number = sequence_of(self._entity, known)
        unnumbered = sequence_of(self._entity, row) is None and number is not None
        if (with_sequence(self._entity, row, number or 0) if unnumbered else row) != known:
            raise sequence_taken(self._entity, self._entity.key_text(key), self._driver)
        return known

    def _following(self) -> int:
        """Return the next number, and count it as taken."""
        # Asked for only when a number must be assigned: it costs a statement.
        if self._next is None:
            given = (sequence_of(self._entity, row) or 0 for row in self.new)
            self._next = max(self._last(), *given, 0) + 1
        if self._next > INT64_MAX:
            raise sequence_exhausted(self._entity, self._driver)
        self._next += 1
        return self._next - 1


def highest_number(access: Access, entity: Entity) -> int:
    """Return the highest insertion number that a row has, 0 for none; rows that cannot be read count."""
    name = assigned_marker(entity)
    found = newest(access, entity)
    if found is None:
        return highest_by_search(access, entity, name)
    value = entity.value(found[0].model, found[0].storage, name) if found else 0
    return value if isinstance(value, int) else 0


def newest(access: Access, entity: Entity, *conditions: Condition) -> Page[Row] | None:
    """Return the last row of some, ``None`` where it cannot be read."""
    try:
        return access.page(entity, newest_query(entity, *conditions))
    except DocumentDecodeError:
        return None


def highest_by_search(access: Access, entity: Entity, name: str) -> int:
    """Return the same if the last row cannot be read: a list shows only that it exists, not its number."""
    low, high = 0, 1
    while is_reached(access, entity, AtLeast(name, high)):
        low, high = high, high * 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if is_reached(access, entity, AtLeast(name, middle)) else (low, middle)
    return low


def is_reached(access: Access, entity: Entity, condition: Condition) -> bool:
    """Whether some row satisfies a condition."""
    page = newest(access, entity, condition)
    return page is None or bool(page)


# Rows are counted page by page; larger pages save round trips, and all rows of one are in memory.
PAGE: Final = 500


def first_readable(access: Access, entity: Entity[M], query: Query) -> tuple[Row[M], ...]:
    """Return the first rows of a list that can be read, as many as its limit says."""
    page, limit = access.page(entity, query), query.limit
    while not page.items and page.next_page_token is not None:
        # None of them could be read; the next ones may.
        query = replace(query, limit=2 * query.limit)
        page = access.page(entity, query)
    return page.items[:limit]


def first_keys(access: Access, entity: Entity, query: Query) -> tuple[Key, ...]:
    """Return the keys of the first rows of a list that can be read, as many as its limit says."""
    found: tuple[Key, ...] = ()
    wanted = query.limit
    while True:
        page = access.page(entity, query)
        found += tuple(entity.key_of(row.model, row.storage) for row in page)
        token = page.next_page_token
        # A page of all tenants is shorter by what it passed over.
        if token is None or len(found) >= wanted:
            return found[:wanted]
        query = replace(query, after=decode_token(token, query.entity, query.fingerprint, query.order))


def every_page(access: Access, entity: Entity[M], query: Query) -> Iterator[Page[Row[M]]]:
    """Yield a whole list page by page in the order of the key, which is total; a count sees no order."""
    query = replace(query, order=key_order(entity), limit=PAGE, after=None)
    while True:
        page = access.page(entity, query)
        yield page
        if (token := page.next_page_token) is None:
            return
        query = replace(query, after=decode_token(token, query.entity, query.fingerprint, query.order))


# Of the largest rows there are, so many do no harm.
MIN_BATCH: Final = 4
BATCH_GROWTH: Final = 10


def mark_in_batches(
    access: Access, entity: Entity[M], query: Query, sets: FieldUpdates
) -> Iterator[tuple[Row[M], ...]]:
    """Mark the rows of a list until none matches, at most ``query.limit`` at a time; yield each portion.

    A mark reads the rows that it changes. The first portion is small; the next ones grow while the rows
    found so far say that they would fit into one document of the largest size.
    """
    batch = MIN_BATCH
    while marked := access.mark(entity, replace(query, limit=min(batch, query.limit)), sets):
        yield marked
        fitting = MAX_BYTES // max(map(max_row_size, marked))
        batch = max(MIN_BATCH, min(BATCH_GROWTH * batch, fitting))


class PartialProgress:
    """Once a step is done, the failure of a later step does not report that nothing was applied.

    If the store is unreachable for the last batch of a purge, the error would otherwise report for the whole
    call that nothing was removed.
    """

    __slots__ = ("_in_unit", "_some_done")

    def __init__(self, *, in_unit: bool) -> None:
        """Take whether the steps belong to a unit, of which nothing is applied before its end."""
        self._in_unit = in_unit
        self._some_done = False

    def done(self) -> None:
        """Note that a step was done."""
        self._some_done = True

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Put right what an error of a later step says of the call."""
        if self._some_done and not self._in_unit and isinstance(error, UnavailableError):
            error.outcome = Outcome.UNKNOWN


class AccessDefaults(Access, ABC):
    """Base of a driver's access: the seven operations that the other six can do."""

    @override
    def special(self, operation: str) -> Callable[..., object] | None:
        """Return nothing: every operation goes the general way."""
        del operation
        return None

    @override
    def put(self, entity: Entity[M], scope: Tenants, row: Row[M]) -> Row[M]:
        key = entity.key_of(row.model, row.storage)
        is_taken = False

        def replaced(rows: Rows, now: ServerClock) -> Rows:
            nonlocal is_taken
            del now
            # Decided where the row is held: a look before it could be overtaken by another insert.
            is_taken = entity.append_only and rows[0] is not None and rows[0] != row
            # A write of the same row would still count as a change, and make another writer of it lose.
            return (None if rows[0] == row or is_taken else row,)

        # Replaced as a whole, so that it need not be readable; one that must not change does.
        ref = Ref(entity, scope, key, replaces_unreadable=not entity.append_only)
        self.change([ref], replaced)
        # An insert is refused for the reason that every insert reports first, which may be the parent.
        return self.insert(entity, scope, row) if is_taken else row

    @override
    def count(self, entity: Entity, query: Query, by: str) -> dict[str, int]:
        counted = Counter[str]()
        for page in every_page(self, entity, query):
            counted.update(label_of_value(entity.value(row.model, row.storage, by)) for row in page)
            # A row that cannot be read counts too; nobody knows what its field holds.
            counted.update(label_of_value(None) for _ in page.undecodable)
        return dict(counted)

    @override
    def keys(self, entity: Entity, query: Query) -> tuple[Key, ...]:
        return first_keys(self, entity, query)

    @override
    def mark(self, entity: Entity[M], query: Query, sets: FieldUpdates) -> tuple[Row[M], ...]:
        marked: list[Row[M]] = []
        with PartialProgress(in_unit=self.binding.in_unit) as steps:
            for row in first_readable(self, entity, query):
                # One step per row: rows are read without locks, so each must match again once it is locked.
                ref = Ref(entity, query.scope, entity.key_of(row.model, row.storage))
                marking = MarkRule(entity, query, sets)
                self.change([ref], marking)
                if marking.done is not None:
                    marked.append(marking.done)
                    steps.done()
        return tuple(marked)

    @override
    def amend(self, entity: Entity, query: Query, sets: Values) -> int:
        """Set fields of rows that can be read; the others need a statement of the driver's own."""
        return len(self.mark(entity, query, sets))

    @override
    def next_number(self, entity: Entity) -> int:
        """Return one more than the highest stored number; of two callers with one number one stores it."""
        return highest_number(self, entity) + 1

    @override
    def insert_all(self, entity: Entity[M], scope: Tenants, rows: Sequence[Row[M]]) -> None:
        for row in rows:
            self.insert(entity, scope, row)

    @override
    def append(self, entity: Entity[M], parent: Ref, rows: Sequence[Row[M]]) -> tuple[Row[M], ...]:
        if self.binding.in_unit:
            return append_rows(self, entity, parent, rows)
        # Stores without locks find out when they write that another append was faster.
        return retry(lambda: append_rows(self, entity, parent, rows))


class MarkRule(Generic[M]):
    """The rule of one marked row; ``done`` is the row as the last call of the rule left it."""

    def __init__(self, entity: Entity[M], query: Query, sets: FieldUpdates) -> None:
        self.done: Row[M] | None = None
        self._entity = entity
        self._query = query
        self._sets = sets

    def __call__(self, rows: Rows, now: ServerClock) -> Rows:
        """Return the row with the fields set, unless it matches no longer."""
        # The rule may be called again after a lost race, so nothing of an earlier call may stay.
        (stored,) = rows
        if stored is None or not matches(self._entity, self._query, stored):
            self.done = None
            return (None,)
        # As a whole: a change may break a rule between two fields. By its own class: a variant stays one.
        markers = self._values(stored, now, markers=True)
        fields = {self._entity.shapes[name].name: value for name, value in self._values(stored, now).items()}
        model = cast("M", stored.model.evolve(**fields) if fields else stored.model)
        storage = {name: value for name, value in {**stored.storage, **markers}.items() if value is not None}
        self.done = Row(model, storage)
        return (self.done,)

    def _values(self, stored: Row, now: ServerClock, *, markers: bool = False) -> dict[str, object]:
        """Return the new values of fields or markers, by their name in the description."""
        return {
            name: changed_value(self._entity.value(stored.model, stored.storage, name), change, now)
            for name, change in self._sets.items()
            if (name in self._entity.markers) is markers
        }


def changed_value(stored: object, change: object, now: ServerClock) -> object:
    """Return a value after one change of ``mark``."""
    if isinstance(change, Add):
        return (stored if isinstance(stored, int) else 0) + change.number
    if isinstance(change, ServerTime):
        return now() + change.later
    return None if isinstance(change, Unset) else change


def matches(entity: Entity, query: Query, row: Row) -> bool:
    """Whether a row satisfies the conditions of a list; its scope is not looked at."""
    return all(holds(item, entity.value(row.model, row.storage, item.field)) for item in query.where)
