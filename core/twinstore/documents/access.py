"""The operations on rows, over the unit of work of a store of documents.

Rows are held in one order: the parent of a new row, then its key. So callers that write the same rows wait
for each other instead of both waiting until one gives up. What would be refused is looked for before anything
is written.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

from typing_extensions import override

from twinstore.access import AccessDefaults, Binding, Moment, Row, UniqueKey
from twinstore.canonical import CanonicalModel
from twinstore.documents.content import content
from twinstore.documents.rows import amended, decode, encode, sort_key
from twinstore.documents.steps import OneUnit
from twinstore.errors import ConcurrencyError
from twinstore.failures import duplicate, not_found
from twinstore.forks import ending
from twinstore.query import Equals, Query, key_order
from twinstore.tenancy import ALL_TENANTS

if TYPE_CHECKING:
    from twinstore.access import Access, Ref, Rows, Rule, Values
    from twinstore.catalog import Entity, Key
    from twinstore.documents.rows import DocumentRow
    from twinstore.documents.steps import Steps
    from twinstore.documents.unit import DocumentUnit
    from twinstore.paging import Page
    from twinstore.scope import Scope
    from twinstore.tenancy import Tenants

__all__ = ["DocumentAccess"]

M = TypeVar("M", bound=CanonicalModel)
T = TypeVar("T")
# Children are removed in pages of this size, so that a parent with a million of them fits into memory.
CHILDREN: Final = 500


class DocumentAccess(AccessDefaults):
    """Implements :class:`~twinstore.access.Access`; every operation is one step in a unit of work."""

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
        found = self._steps.take(lambda unit: [seen(unit, entity, scope, key) for key in keys])
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
        self._steps.take(lambda unit: store(unit, scope, NOTHING, wanted))
        return row

    @override
    def put(self, entity: Entity[M], scope: Tenants, row: Row[M]) -> Row[M]:
        wanted = encode(entity, row.model, row.storage)

        def replace(unit: DocumentUnit) -> None:
            # Compared as it is stored, so that a broken row is replaced without being read.
            held = hold(unit, entity, scope, wanted.key)
            if held.row is not None and content(held.row) == content(wanted):
                return
            # An insert is refused for the reason that every insert tells first.
            store(unit, scope, NOTHING if entity.append_only else held, wanted)

        self._steps.take(replace)
        return row

    @override
    def change(self, refs: Sequence[Ref], rule: Rule) -> Rows:
        ruled = NoRetryRule(rule)
        try:
            return self._steps.take(lambda unit: self._changed(unit, refs, ruled))
        except RuleEndedError as ended:
            # With the cause that the rule gave it: the wrapper is ours and tells a caller nothing.
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
        with ending(unit.rollback):
            yield type(self)(OneUnit(unit), self._scope, self._entities, self._begin, self._driver)
            unit.commit()

    def _decoded(self, entity: Entity[M], row: DocumentRow | None) -> Row[M] | None:
        return None if row is None else self._row(entity, row)

    def _row(self, entity: Entity[M], row: DocumentRow) -> Row[M]:
        return decode(entity, row, self._driver)


class RuleEndedError(Exception):
    """Carries the error with which a rule ended its step past everything that repeats steps."""

    def __init__(self, error: ConcurrencyError) -> None:
        """Take the error."""
        super().__init__(str(error))
        self.error = error


class NoRetryRule:
    """A rule whose own error is never taken for a lost race."""

    def __init__(self, rule: Rule) -> None:
        """Take the rule."""
        self._rule = rule

    def __call__(self, rows: Rows, now: Moment) -> Rows:
        """Return what the rule returns."""
        try:
            return self._rule(rows, now)
        except ConcurrencyError as error:
            raise RuleEndedError(error) from error


def seen(unit: DocumentUnit, entity: Entity, scope: Tenants, key: Key | UniqueKey) -> DocumentRow | None:
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


NOTHING: Final = HeldRow()


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
        held = NOTHING if place is None else _held(unit, entity, scope, place)
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
