"""The operations on rows, over the unit of work of a store of documents.

Rows are held in one order: the parent of a new row, then its key. So callers that write the same rows wait
for each other instead of both waiting until one gives up. What would be refused is looked for before anything
is written.
"""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from datetime import datetime
from decimal import Decimal
from functools import partial, total_ordering
from heapq import nsmallest
from itertools import islice
from operator import itemgetter
from threading import RLock, get_ident
from typing import TYPE_CHECKING, ClassVar, Final, Protocol, TypeVar

from typing_extensions import override

from twinstore.access.defaults import AccessDefaults
from twinstore.access.errors import duplicate, not_found
from twinstore.access.protocol import Binding, ServerClock, UniqueKey
from twinstore.access.query import Query, holds, key_order, label_of_value, query_of_key
from twinstore.access.retry import retry
from twinstore.access.unit_state import UnitState
from twinstore.catalog.conditions import Comparison, Condition, Equals, NotAfter
from twinstore.catalog.row import Row
from twinstore.catalog.tenancy import ALL_TENANTS, TenancyKind, Tenant
from twinstore.documents.rows import amended, content, decode, encode, instant, key_of, sort_key
from twinstore.documents.rows import sort_value as part
from twinstore.errors import ConcurrencyError
from twinstore.models.canonical import CanonicalModel
from twinstore.runtime.forks import Renewable, cleanup_unless_forked, renew_in_child

if TYPE_CHECKING:
    from collections.abc import Hashable

    from twinstore.access.paging import Page, SortKey, SortValue
    from twinstore.access.protocol import Access, Ref, Rows, Rule, Values
    from twinstore.access.scope import Scope
    from twinstore.catalog.entity import Entity
    from twinstore.catalog.keys import Key, KeyRange
    from twinstore.catalog.tenancy import Tenants
    from twinstore.documents.rows import DocumentRow

M = TypeVar("M", bound=CanonicalModel)
T = TypeVar("T")
# Children are removed in pages of this size, so that a parent with a million of them fits into memory.
CHILDREN: Final = 500
COUNTED: Final = 500


class DocumentAccess(AccessDefaults):
    """Implements :class:`~twinstore.access.protocol.Access`.

    Every operation is one step in a unit of work.
    """

    def __init__(
        self,
        steps: Steps,
        scope: Scope,
        entities: Sequence[Entity],
        begin: Callable[[], DocumentUnit],
        driver: str,
    ) -> None:
        """Take the way to the store, and what a unit of work needs to open another access.

        Args:
            steps: which unit answers a call.
            scope: the tenant or purpose of the session.
            entities: those of the module, among which children are found.
            begin: opens a unit that is not isolated.
            driver: the name of the driver.
        """
        self._steps = steps
        self._scope = scope
        self._entities = entities
        self._begin = begin
        self._driver = driver

    @property
    @override
    def binding(self) -> Binding:
        steps = self._steps
        return Binding(
            self._driver, self._scope, steps.state, read_only=steps.read_only, in_unit=steps.in_unit
        )

    @override
    def find(
        self, entity: Entity[M], scope: Tenants, keys: Sequence[Key | UniqueKey]
    ) -> tuple[Row[M] | None, ...]:
        found = self._steps.take(lambda unit: [visible_row(unit, entity, scope, key) for key in keys])
        return tuple(self._decoded(entity, row) for row in found)

    @override
    def page(self, entity: Entity[M], query: Query) -> Page[Row[M]]:
        rows = self._steps.take(lambda unit: unit.select(entity, query))
        return query.page(
            rows,
            lambda row: self._row(entity, row),
            lambda row: sort_key(row, query.order),
            lambda row: row.tenant_id,
        )

    @override
    def insert(self, entity: Entity[M], scope: Tenants, row: Row[M]) -> Row[M]:
        wanted = encode(entity, row.model, row.storage)
        self._steps.take(lambda unit: store(unit, scope, NO_ROW, wanted))
        return row

    @override
    def put(self, entity: Entity[M], scope: Tenants, row: Row[M]) -> Row[M]:
        wanted = encode(entity, row.model, row.storage)

        def replace(unit: DocumentUnit) -> None:
            # Compared as it is stored, so that a broken row is replaced without being read.
            held = hold(unit, entity, scope, wanted.key)
            if held.row is not None and content(held.row) == content(wanted):
                return
            # An insert is refused for the reason that every insert reports first.
            store(unit, scope, NO_ROW if entity.append_only else held, wanted)

        self._steps.take(replace)
        return row

    @override
    def change(self, refs: Sequence[Ref], rule: Rule) -> Rows:
        ruled = NoRetryRule(rule)
        try:
            return self._steps.take(lambda unit: self._changed(unit, refs, ruled))
        except RuleEndedError as ended:
            # With the cause that the rule gave it: the wrapper is ours and is of no use to a caller.
            raise ended.error from ended.error.__cause__

    def _changed(self, unit: DocumentUnit, refs: Sequence[Ref], rule: Rule) -> Rows:
        # All are held before the first is read, so that the rule sees rows which stay as they are.
        held = [hold(unit, ref.entity, ref.scope, ref.key) for ref in refs]
        before = tuple(
            ref.read(partial(self._decoded, ref.entity), found.row)
            for ref, found in zip(refs, held, strict=True)
        )
        after = rule(before, unit.now)
        # Parents first: a new row is refused without its parent, and one step may insert both.
        writes = sorted(zip(refs, held, after, strict=True), key=lambda write: write[0].entity.depth)
        for ref, found, changed in writes:
            if changed is not None:
                store(unit, ref.scope, found, encode(ref.entity, changed.model, changed.storage))
        return tuple(old if new is None else new for old, new in zip(before, after, strict=True))

    @override
    def count(self, entity: Entity, query: Query, by: str) -> dict[str, int]:
        return self._steps.take(lambda unit: counted(unit, entity, query, by))

    @override
    def amend(self, entity: Entity, query: Query, sets: Values) -> int:
        return self._steps.take(lambda unit: amend_first(unit, entity, query, sets))

    @override
    def remove(self, entity: Entity, query: Query) -> int:
        return self._steps.take(lambda unit: remove_first(unit, self._entities, entity, query))

    @contextmanager
    @override
    def unit(self, scope: Tenants, *, atomic: bool = True) -> Generator[Access]:
        del scope, atomic  # a unit here is always atomic, and sees whatever its calls name
        if self._steps.in_unit:
            yield self
            return
        unit = self._begin()
        with cleanup_unless_forked(unit.rollback):
            yield type(self)(SingleUnit(unit), self._scope, self._entities, self._begin, self._driver)
            unit.commit()

    def _decoded(self, entity: Entity[M], row: DocumentRow | None) -> Row[M] | None:
        return None if row is None else self._row(entity, row)

    def _row(self, entity: Entity[M], row: DocumentRow) -> Row[M]:
        return decode(entity, row, self._driver)


class RuleEndedError(Exception):
    """Carries the error with which a rule ended its step past everything that repeats steps."""

    def __init__(self, error: ConcurrencyError) -> None:
        super().__init__(str(error))
        self.error = error


class NoRetryRule:
    """A rule whose own error is never taken for a lost race."""

    def __init__(self, rule: Rule) -> None:
        self._rule = rule

    def __call__(self, rows: Rows, now: ServerClock) -> Rows:
        """Apply the rule.

        Raises:
            RuleEndedError: the rule raised a ``ConcurrencyError``.
        """
        try:
            return self._rule(rows, now)
        except ConcurrencyError as error:
            raise RuleEndedError(error) from error


def visible_row(
    unit: DocumentUnit, entity: Entity, scope: Tenants, key: Key | UniqueKey
) -> DocumentRow | None:
    """Return a row of a scope, found by its key or by a unique value."""
    place = unit.holder(entity, key) if isinstance(key, UniqueKey) else key
    return None if place is None else unit.get(entity, place, scope)


@dataclass(frozen=True, slots=True)
class HeldRow:
    """What was found when a row was held. Others may commit afterwards, but then this unit will not.

    Attributes:
        key: what is held; ``None`` when no row has a unique value.
        row: the row, when it is seen in the scope.
        taken: a row is there that is not seen.
    """

    key: Key | None = None
    row: DocumentRow | None = None
    taken: bool = False


NO_ROW: Final = HeldRow()


def hold(unit: DocumentUnit, entity: Entity, scope: Tenants, key: Key | UniqueKey) -> HeldRow:
    """Find a row that no other unit can change until this one ends.

    Where there is none under a key, no other unit can insert it.
    """
    if not isinstance(key, UniqueKey):
        return _held(unit, entity, scope, key)
    # Another unit may have moved the value to another row before this one was held, so look again.
    while True:
        if (place := unit.holder(entity, key)) is None:
            unit.hold_value(entity, key)
        held = NO_ROW if place is None else _held(unit, entity, scope, place)
        if unit.holder(entity, key) == place:
            return held


def _held(unit: DocumentUnit, entity: Entity, scope: Tenants, key: Key) -> HeldRow:
    # Before it is read: what is read afterwards cannot change any more.
    unit.hold(entity, key)
    row = unit.get(entity, key, scope)
    if row is not None or scope is ALL_TENANTS or unit.get(entity, key) is None:
        return HeldRow(key, row)
    # Another process may have inserted it between the two looks; foreign is what is not seen even now.
    row = unit.get(entity, key, scope)
    return HeldRow(key, row, taken=row is None)


def store(unit: DocumentUnit, scope: Tenants, held: HeldRow, row: DocumentRow) -> None:
    """Replace the row that is held, or insert one where none is.

    Raises:
        DuplicateError: the key or a unique value is taken.
        NotFoundError: the parent is absent or foreign.
    """
    # A row that keeps its parent needs no look: the parent cannot have gone without it.
    known = None if held.row is None else held.row.parent_key
    if row.parent_key is not None and known != row.parent_key:
        hold_parent(unit, row.entity, scope, row.parent_key)
    if held.row is not None and held.key is not None and held.key != row.key:
        # One that could not be read and was found by a unique value.
        unit.delete(row.entity, held.key)
    # Found by a unique value that no row had, so the place of the new row is held only here.
    if held.key != row.key:
        held = _held(unit, row.entity, ALL_TENANTS, row.key)
        if held.row is not None:
            raise duplicate(row.entity, row.key, unit.driver)
    if held.taken:
        raise duplicate(row.entity, row.key, unit.driver)
    # After the row is held, because who holds the same row could have written the value meanwhile.
    check_unique(unit, row)
    unit.write(row)


def hold_parent(unit: DocumentUnit, entity: Entity, scope: Tenants, key: Key) -> None:
    """Keep the parent of a new row from being removed.

    Raises:
        NotFoundError: it is absent or foreign.
    """
    if entity.parent is None:
        raise LookupError(f"{entity.name} has no parent")  # met by programmers only
    parent = entity.parent.entity
    if hold(unit, parent, scope, key).row is None:
        raise not_found(parent, parent.key_text(key), unit.driver)


def check_unique(unit: DocumentUnit, row: DocumentRow) -> None:
    """Look for other rows with a unique value of this one; absent values are never taken.

    Raises:
        DuplicateError: there is one.
    """
    for index, _ in row.unique:
        values = tuple(row.value(name) for name in index.names)
        texts = tuple(value for value in values if isinstance(value, (str, int)))
        if len(texts) < len(values):
            continue
        # Before the look, which may be one at an older state.
        unit.hold_value(row.entity, UniqueKey(index, texts))
        if unit.holder(row.entity, UniqueKey(index, texts)) not in {None, row.key}:
            raise duplicate(row.entity, row.key, unit.driver, index, values[-1])


def counted(unit: DocumentUnit, entity: Entity, query: Query, by: str) -> dict[str, int]:
    """Return how many rows all pages of a list have, by a stored value, also of those that form no model."""
    found: Counter[str] = Counter()
    # By key: that order is total, and no concurrent change moves a row in it.
    query = replace(query, order=key_order(entity), limit=COUNTED, after=None)
    while True:
        rows = unit.select(entity, query)
        found.update(label_of_value(row.value(by)) for row in rows[:COUNTED])
        if len(rows) <= COUNTED:
            return dict(found)
        query = replace(query, after=sort_key(rows[COUNTED - 1], query.order))


def amend_first(unit: DocumentUnit, entity: Entity, query: Query, values: Values) -> int:
    """Set fields of the first rows of a list, whatever else they hold; return how many."""
    rows = unit.select(entity, query)[: query.limit]
    for row in rows:
        unit.hold(entity, row.key)
    # Others may have changed them before they were held.
    matching = {row.key: row for row in unit.select(entity, query)[: query.limit]}
    for row in rows:
        if row.key in matching:
            unit.write(amended(matching[row.key], values))
    return sum(row.key in matching for row in rows)


def remove_first(unit: DocumentUnit, entities: Iterable[Entity], entity: Entity, query: Query) -> int:
    """Remove the first rows of a list, with their children; return how many."""
    removed = 0
    # Rows that another unit changed meanwhile may match no longer; others then take their place.
    while not removed and (keys := unit.keys(entity, query)):
        for key in keys:
            unit.hold(entity, key)
        matching = set(unit.keys(entity, query))
        for key in keys:
            if key in matching:
                discard(unit, entities, entity, key)
                removed += 1
    return removed


def discard(unit: DocumentUnit, entities: Iterable[Entity], entity: Entity, key: Key) -> None:
    """Remove a row that is held, with its children and theirs."""
    unit.delete(entity, key)
    for child in entities:
        if child.parent is None or child.parent.entity != entity:
            continue
        query = Query(
            entity=child.name,
            scope=ALL_TENANTS,
            # The key of a parent has one part; the checks of the catalog see to that.
            where=(Equals(child.parent.field, key[-1]),),
            order=key_order(child),
            limit=CHILDREN,
        )
        while keys := unit.keys(child, query):
            for place in keys:
                unit.hold(child, place)
                discard(unit, entities, child, place)


class Steps(Protocol):
    """How an access reaches the store.

    Attributes:
        state: whether the access can still be used.
        read_only: the unit was opened for reading.
        in_unit: the caller ends the unit.
    """

    state: UnitState
    read_only: bool
    in_unit: bool

    def take(self, action: Callable[[DocumentUnit], T]) -> T:
        """Return what one step gives; all of its writes are kept, or none."""
        ...


class UnitPerCall(Steps):
    """Each step is a separate unit: an access without a transaction."""

    read_only = False
    in_unit = False

    def __init__(
        self, begin: Callable[[], DocumentUnit], *, unbound: bool = False, repeats: bool = True
    ) -> None:
        """Take the way to units.

        Args:
            begin: opens a unit.
            unbound: the access belongs to no session.
            repeats: a step that lost a race is repeated; not where units wait for each other.
        """
        self._repeats = repeats
        self.state = UnitState(unbound=unbound)
        self._begin = begin

    @override
    def take(self, action: Callable[[DocumentUnit], T]) -> T:
        """Commit the unit of one step at its end."""
        return retry(lambda: self._once(action)) if self._repeats else self._once(action)

    def _once(self, action: Callable[[DocumentUnit], T]) -> T:
        unit = self._begin()
        with cleanup_unless_forked(unit.rollback):
            result = action(unit)
            unit.commit()
            return result


class SingleUnit(Steps):
    """All steps belong to one unit, which the caller ends: an access in a transaction."""

    in_unit = True

    def __init__(self, unit: DocumentUnit) -> None:
        self.state = unit.state
        self.read_only = unit.read_only
        self._unit = unit

    @override
    def take(self, action: Callable[[DocumentUnit], T]) -> T:
        """Take the step in the unit; one that fails takes back what it wrote, where the store can."""
        # A caller may catch the error of a step and commit; half of the step must not be in it then.
        with self._unit.part():
            return action(self._unit)


# Exclusive rights to rows between the units of one process, for stores that lock no rows themselves.


# As long as the memory driver waits, so that competing writers lose alike on both.
LOCK_TIMEOUT_SECONDS: Final = 5.0


class RowLocks(Renewable):
    """Who may write which row. Between processes the store compares when it commits: see the guide.

    Of two units of callers the first writer wins, so the other one loses at once instead of waiting for a
    lock that it could not use. A call outside a unit waits, and then uses the committed row.

    Attributes:
        waiting: how many calls wait for a row at the moment; tests may ask.
    """

    def __init__(self, driver: str, timeout: float = LOCK_TIMEOUT_SECONDS) -> None:
        """Take the name of the driver, for messages, and how long to wait, in seconds.

        Forked children begin without rights; nothing needs to be registered.
        """
        self._driver = driver
        self._timeout = timeout
        self.waiting = 0
        self._holders: dict[Hashable, tuple[object, int, bool]] = {}
        # Entered itself and not through the condition, whose ``with`` a signal could leave locked.
        self._lock = RLock()
        self._changed = threading.Condition(self._lock)
        renew_in_child(self)

    @override
    def renew(self) -> None:
        self._holders, self._lock = {}, RLock()
        self._changed = threading.Condition(self._lock)

    def acquire(self, unit: object, row: Hashable, *, isolated: bool) -> None:
        """Give a unit the right to a row until :meth:`release`.

        Args:
            unit: whose right it is; called in the thread that will end the unit.
            row: what identifies the row.
            isolated: the unit is one that a caller opened.

        Raises:
            ConcurrencyError: another unit wrote first, kept it too long, or would have to end in this thread.
        """
        thread = get_ident()
        with self._lock:
            deadline = time.monotonic() + self._timeout
            while (found := self._holders.get(row, (unit, thread, isolated)))[0] is not unit:
                _, of_thread, of_caller = found
                remaining = deadline - time.monotonic()
                # The holder can only end in its own thread, so waiting for it in that thread would never end.
                if of_thread == thread or (isolated and of_caller) or remaining <= 0:
                    raise ConcurrencyError(
                        "Another unit of work has changed the same row and has not ended; try again later.",
                        driver=self._driver,
                    )
                self.waiting += 1
                try:
                    self._changed.wait(remaining)
                finally:
                    self.waiting -= 1
            self._holders[row] = (unit, thread, isolated)

    def release(self, unit: object) -> None:
        """Take back every right of a unit; a second call does nothing."""
        with self._lock:
            self._holders = {row: holder for row, holder in self._holders.items() if holder[0] is not unit}
            # All, because each waits for its own rows, and only it knows whether they are free now.
            self._changed.notify_all()


class DocumentUnit(ABC):
    """Stored rows of any entity in one unit of work. Used by one thread at a time.

    Reads see what the unit has written. In an isolated unit they otherwise see one state of the store, that
    of its first call; in other units, what is committed at the moment.

    Attributes:
        driver: the name of the driver, for messages.
        state: whether the unit can still be used.
        read_only: the unit will not write.
    """

    driver: ClassVar[str]

    def __init__(self, *, read_only: bool = False) -> None:
        self.state = UnitState()
        self.read_only = read_only

    @abstractmethod
    def now(self) -> datetime:
        """Return the time that judges leases, whole milliseconds in UTC: that of the server if it has one."""

    @abstractmethod
    def select(self, entity: Entity, query: Query) -> list[DocumentRow]:
        """Return the first ``limit + 1`` rows of a list, in its order; broken rows like any other."""

    @abstractmethod
    def scan(self, entity: Entity, within: KeyRange, scope: Tenants) -> Iterator[DocumentRow]:
        """Yield the rows of a range in the order of the key, by a separate statement.

        It is what a comparison reads, so it shares no paging with :meth:`select`. Memory is bounded.
        """

    @abstractmethod
    def hold(self, entity: Entity, key: Key) -> None:
        """Prevent others from changing, inserting or removing this row until the unit ends.

        A store without locks notes the stored row, and compares when it commits.

        Raises:
            ConcurrencyError: another unit has changed it first, or holds it for too long.
        """

    def hold_value(self, entity: Entity, unique: UniqueKey) -> None:
        """Keep others from taking unique values until the unit ends, if a store can lock unused values."""
        del entity, unique

    @abstractmethod
    def write(self, row: DocumentRow) -> None:
        """Store a row in place of the one of its key. It is held, and its unique values are free."""

    @abstractmethod
    def delete(self, entity: Entity, key: Key) -> None:
        """Remove a row that is held."""

    @abstractmethod
    def commit(self) -> None:
        """Make everything visible at once and end the unit; call :meth:`UnitState.check_commit` first.

        A store without locks compares what it holds under the lock of the commit: no case of the kit can act
        in between.

        If it raises, the caller calls :meth:`rollback`.

        Raises:
            ConcurrencyError: a row that was held has changed after all, or a unique value was taken.
        """

    @abstractmethod
    def rollback(self) -> None:
        """End the unit without a trace; nothing after the end."""

    def keys(self, entity: Entity, query: Query) -> list[Key]:
        """Return the keys of the first ``limit`` rows of a list, in its order.

        A store that can return them without the rows does so: the rows may be large.
        """
        return [row.key for row in self.select(entity, query)[: query.limit]]

    def part(self) -> AbstractContextManager[object]:
        """Bound a step whose writes vanish when it fails, in a transaction that the caller will commit.

        Every write of a unit from ``DocumentBackend.joined`` happens inside one.
        """
        return nullcontext()

    def get(self, entity: Entity, key: Key, scope: Tenants = ALL_TENANTS) -> DocumentRow | None:
        """Return the row of a key, when it is seen in a scope."""
        found = self.select(entity, query_of_key(entity, scope, key))
        return found[0] if found else None

    def holder(self, entity: Entity, unique: UniqueKey) -> Key | None:
        """Return the key of the row that has some unique values, regardless of its owner."""
        equal = (Equals(name, value) for name, value in zip(unique.index.names, unique.values, strict=True))
        query = Query(
            entity=entity.name,
            scope=ALL_TENANTS,
            where=(*equal, *unique.index.where),
            order=key_order(entity),
            limit=1,
        )
        found = self.select(entity, query)
        return found[0].key if found else None


class ScanningUnit(DocumentUnit):
    """A unit over a database that evaluates no queries: lists are evaluated over all rows of an entity.

    A driver writes :meth:`rows` and the operations on single rows. Override :meth:`get` and :meth:`holder` if
    the database finds a row by its key; by default they scan.
    """

    @abstractmethod
    def rows(self, entity: Entity) -> Iterable[DocumentRow]:
        """Return all rows of an entity as the unit sees them, in any order."""

    @override
    def select(self, entity: Entity, query: Query) -> list[DocumentRow]:
        return evaluate(self.visible(entity, query.scope), query)

    @override
    def scan(self, entity: Entity, within: KeyRange, scope: Tenants) -> Iterator[DocumentRow]:
        return iter(sorted((row for row in self.visible(entity, scope) if covers(within, row)), key=place))

    @override
    def get(self, entity: Entity, key: Key, scope: Tenants = ALL_TENANTS) -> DocumentRow | None:
        rows = (row for row in self.rows(entity) if row.key == key and self.is_visible(row, scope))
        return next(rows, None)

    def visible(self, entity: Entity, scope: Tenants) -> Iterator[DocumentRow]:
        """Yield the rows that are seen in a scope, in the order of :meth:`rows`."""
        return (row for row in self.rows(entity) if self.is_visible(row, scope))

    def is_visible(self, row: DocumentRow, scope: Tenants) -> bool:
        """Whether a row is seen in a scope. A row owned through its parent is seen if the parent is."""
        kind, parent = row.entity.tenancy.kind, row.entity.parent
        if scope is ALL_TENANTS or kind is TenancyKind.NONE:
            return True
        if kind is not TenancyKind.PARENT or parent is None:
            return row.owner == scope
        return row.parent_key is not None and self.get(parent.entity, row.parent_key, scope) is not None


def covers(within: KeyRange, row: DocumentRow) -> bool:
    """Whether a range covers a row; an unbounded end also covers what cannot be a key."""
    key = key_of(row)
    if key is None:
        return within.upper is None
    return (within.lower is None or within.lower <= key) and (within.upper is None or key < within.upper)


def place(row: DocumentRow) -> tuple[bool, tuple[str | int, ...]]:
    """Return the place of a row in the order of the keys; what cannot be a key comes last."""
    key = key_of(row)
    return (key is None, tuple(map(repr, row.key)) if key is None else key)


def scope_of(tenant_id: str | None) -> Tenants:
    """Return whose rows a tool asks for."""
    return ALL_TENANTS if tenant_id is None else Tenant(tenant_id)


def unowned(entity: Entity, tenant_id: str | None) -> bool:
    """Whether rows are asked for of a tenant although none has one."""
    return tenant_id is not None and entity.tenancy.kind is TenancyKind.NONE


def batched(items: Iterator[T], size: int) -> Iterator[list[T]]:
    """Yield the items in order, at most ``size`` at a time."""
    while batch := list(islice(items, size)):
        yield batch


# Answers a :class:`~twinstore.access.query.Query` from rows, for stores that cannot be asked one.


OrderValue = tuple[int, str | int | datetime | Decimal]


def evaluate(rows: Iterable[DocumentRow], query: Query) -> list[DocumentRow]:
    """Return the first ``limit + 1`` rows that satisfy a query, in its order; ignores its scope."""
    return ordered(rows, query)[: query.limit + 1]


def first_rows(rows: Iterable[DocumentRow], order: tuple[SortKey, ...], count: int) -> list[DocumentRow]:
    """Return the first rows of a stream in an order; no more than so many are in memory."""
    return nsmallest(count, rows, key=lambda row: SortPosition(row, order))


def first_keys(rows: Iterable[DocumentRow], order: tuple[SortKey, ...], count: int) -> list[Key]:
    """Return the keys of the first rows of a stream in an order; of the rows one is in memory at a time."""
    found = nsmallest(count, ((SortPosition(row, order), row.key) for row in rows), key=itemgetter(0))
    return [key for _, key in found]


@total_ordering
class SortPosition:
    """The position of a row in an order, comparable with the others."""

    __slots__ = ("_parts",)

    def __init__(self, row: DocumentRow, order: tuple[SortKey, ...]) -> None:
        self._parts = tuple((order_value(part(row, key)), key.descending) for key in order)

    @override
    def __eq__(self, other: object) -> bool:
        return isinstance(other, SortPosition) and self._parts == other._parts

    @override
    def __hash__(self) -> int:
        return hash(self._parts)

    def __lt__(self, other: SortPosition) -> bool:
        for (mine, descending), (theirs, _) in zip(self._parts, other._parts, strict=True):
            if mine != theirs:
                return (mine > theirs) if descending else (mine < theirs)
        return False


def ordered(rows: Iterable[DocumentRow], query: Query) -> list[DocumentRow]:
    """Return all rows of a query, in its order."""
    found = [row for row in rows if matches(row, query)]
    # Sorting is stable, so the least significant key comes first.
    for key in reversed(query.order):
        found.sort(key=lambda row, key=key: order_value(part(row, key)), reverse=key.descending)  # type: ignore[misc]  # mypy cannot infer a lambda with a default
    return found


def matches(row: DocumentRow, query: Query) -> bool:
    """Whether a row satisfies the conditions of the list and follows its starting point."""
    if not all(is_true(condition, row) for condition in query.where):
        return False
    return query.after is None or follows(row, query.order, query.after)


def is_true(condition: Condition, row: DocumentRow) -> bool:
    """Whether one condition is true of a row; an instant that is stored as text compares as the instant."""
    value = row.value(condition.field)
    timed = isinstance(condition, Comparison | NotAfter) and isinstance(condition.value, datetime)
    return holds(condition, instant(value) if timed else value)


def follows(row: DocumentRow, order: tuple[SortKey, ...], after: tuple[SortValue, ...]) -> bool:
    """Whether a row comes strictly after a sort key."""
    for key, bound in zip(order, after, strict=True):
        mine, other = order_value(part(row, key)), order_value(bound)
        if mine != other:
            return (mine > other) is not key.descending
    return False


def order_value(value: SortValue) -> OrderValue:
    """Return a value that is comparable with every other: nulls first, then text, instants and numbers."""
    if value is None:  # first in every store
        return (0, "")
    if isinstance(value, str):
        return (1, value)
    return (2, value) if isinstance(value, datetime) else (3, value)
