"""A state machine that drives the access of several drivers with one sequence of operations.

The sides are parameters: two ways through one driver, or several drivers. Their modules hold the entities of
:mod:`twinstore.testing.entities`; see :class:`AccessSide` for what a side needs.
"""

from __future__ import annotations

from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from decimal import Decimal
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any, Final, NoReturn, cast

from hypothesis import note
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    precondition,
    rule,
    run_state_machine_as_test,
)
from typing_extensions import override

from tools.differential.machine import RollBackError, comparable, differing, observe
from twinstore.access.paging import SortKey
from twinstore.access.protocol import UNSET, Add, Ref, UniqueKey
from twinstore.access.query import Query, build_query, key_order, query_of_key
from twinstore.access.scope import Scope
from twinstore.catalog.conditions import After, AtLeast, AtMost, Equals, IsNull, IsPresent, NotAfter, OneOf
from twinstore.catalog.row import Row
from twinstore.catalog.tenancy import ALL_TENANTS, NO_TENANT, TenancyKind, Tenant
from twinstore.errors import ValidationError
from twinstore.models.fields import date_object
from twinstore.models.typed_objects import oid_object
from twinstore.testing.datasets import DEVICE, NOTE, Dataset, factory_of
from twinstore.testing.entities import (
    COUNTERS,
    DEVICES,
    ENTRIES,
    EVENTS,
    KIT,
    LINES,
    NOTES,
    PARCELS,
    PARTS,
    PLACES,
    SCANS,
    STUBS,
    TICKETS,
    Level,
    Spot,
)
from twinstore.testing.instants import at
from twinstore.testing.typed_entities import CRATES, STAMPS, WARES, Offer
from twinstore.testing.workspace import all_pages

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from hypothesis import settings

    from twinstore.access.protocol import Access, FieldUpdates, Rows, ServerClock
    from twinstore.catalog.conditions import Condition
    from twinstore.catalog.entity import Entity
    from twinstore.catalog.keys import Key
    from twinstore.catalog.tenancy import Owner, Tenants
    from twinstore.plugins.backend import ModuleBackend

AnyRow = Row[Any]
BATCH: Final = "machine"
OURS: Final = Tenant("ta")
THEIRS: Final = Tenant("tb")
# Most of it happens in one tenant, so that there is something to find.
OWNERS: Final[tuple[Owner, ...]] = (*([OURS] * 8), THEIRS)
OTHERS: Final[tuple[Tenants, ...]] = (ALL_TENANTS, ALL_TENANTS, THEIRS, NO_TENANT)
KEYS: Final = (0, 0, 1, 2, 3)
PARENTS: Final = (0, 0, 1)
EVERYTHING: Final = 1000
SPOT: Final = Spot(label="s", seen_at=at(3))
INSTANTS: Final = (None, at(0), at(0), at(1))
# Two of these are equal, and not the same.
PRICES: Final = (Decimal("1.0"), Decimal("1.00"), Decimal("-0.5"), Decimal(1000))
IDS: Final = (f"{1:024x}", f"{2:024x}")
DESIGNS: Final = ("00000000-0000-4000-8000-000000000001", "00000000-0000-4000-8000-000000000002")
# The values that vary between two rows of one key, by Python name.
VARIED: Final[Mapping[str, Mapping[str, Sequence[object]]]] = {
    NOTES.name: {
        "title": ("t1", "t2", "t3"),
        "holder": (None, None, "w"),
        "level": tuple(Level),
        "rank": (0, 1, 2**40),
        "attempts": (0, 1),
        "due_at": INSTANTS,
        "closed_at": INSTANTS,
        "steps": ((), (2**40, 1)),
        "seats": (None, (), (2, 1)),
        "extra": ({}, {"at": date_object(at(1))}),
    },
    PLACES.name: {"amount": (0, 1), "checked_at": INSTANTS},
    DEVICES.name: {
        "serial": (None, "s1", "s2"),
        "holder": (None, None, "w"),
        "level": tuple(Level),
        "rank": (0, 1, -(2**40)),
        "due_at": INSTANTS,
        "things": ([], [None, oid_object("0" * 24), {"at": date_object(at(1))}]),
        "labels": ((), (None, "l")),
        "spots": ((), (SPOT,)),
    },
    PARTS.name: {"amount": (0, 1), "checked_at": INSTANTS},
    ENTRIES.name: {"message": ("m", "m", "n")},
    LINES.name: {"message": ("m", "m", "n")},
    EVENTS.name: {"message": ("m", "m", "n")},
    COUNTERS.name: {"amount": (0, 1, -1), "holder": (None, "w")},
    PARCELS.name: {"label": (None, "l1", "l2"), "amount": (0, 1), "checked_at": INSTANTS},
    SCANS.name: {"message": ("m", "m", "n")},
    TICKETS.name: {
        "price": (0, 1, 2**40),
        "place": (None, "left"),
        "updated_at": INSTANTS,
        "revision": (0, 1),
    },
    STUBS.name: {"amount": (0, 1), "checked_at": INSTANTS},
    WARES.name: {
        "price": PRICES,
        "weight": (None, *PRICES),
        "maker": (None, *IDS),
        "design": (None, *DESIGNS),
        "seal": (None, b"", b"\xff"),
        "makers": ((), IDS),
        "offers": ((), (Offer(price=Decimal("1.0"), buyer=IDS[0], seal=b"s"),)),
    },
    STAMPS.name: {"value": PRICES, "image": (b"", b"\x00")},
    CRATES.name: {"price": PRICES, "maker": (None, *IDS), "seal": (None, b"\xff")},
}
MARKERS: Final[Mapping[str, Sequence[Mapping[str, object]]]] = {
    NOTES.name: ({}, {}, {"archivedAt": at(1), "archivedBy": "ada", "revision": 3}),
    DEVICES.name: ({}, {"importedBy": "x", "importedAt": at(2)}),
}
CONDITIONS: Final[Mapping[str, Sequence[Condition]]] = {
    NOTES.name: (
        Equals("title", "t1"),
        IsNull("holder"),
        OneOf("level", ("low", "high")),
        OneOf("level", ()),
        AtLeast("rank", 1),
        AtMost("dueAt", at(0)),
        IsPresent("closedAt"),
        IsNull("archivedAt"),
        NotAfter("archivedAt", at(0)),
        Equals("archivedBy", "ada"),
    ),
    PLACES.name: (Equals("amount", 1), IsNull("checkedAt"), After("checkedAt", at(0))),
    DEVICES.name: (
        Equals("serial", "s1"),
        IsNull("holder"),
        Equals("level", "middle"),
        Equals("spotCount", 1),
        IsPresent("importedBy"),
        AtMost("rank", 0),
        AtMost("dueAt", at(1)),
    ),
    PARTS.name: (AtLeast("amount", 1), IsPresent("checkedAt")),
    ENTRIES.name: (AtLeast("sequence", 2), Equals("message", "m")),
    LINES.name: (AtLeast("sequence", 2), Equals("message", "m")),
    EVENTS.name: (AtLeast("sequence", 2), Equals("message", "m")),
    COUNTERS.name: (AtLeast("amount", 0), IsNull("holder")),
    PARCELS.name: (Equals("label", "l1"), AtLeast("amount", 1), IsNull("checkedAt")),
    SCANS.name: (AtLeast("sequence", 2), Equals("message", "m")),
    TICKETS.name: (AtLeast("__v", 1), IsNull("_updatedAt"), AtLeast("number", 0)),
    STUBS.name: (AtLeast("amount", 1), AtLeast("ticket", 0), IsPresent("checkedAt")),
    WARES.name: (
        Equals("price", Decimal("1.000")),
        AtLeast("price", 1),
        NotAfter("weight", Decimal(0)),
        OneOf("maker", IDS),
        IsNull("design"),
        Equals("design", DESIGNS[0]),
    ),
    STAMPS.name: (After("value", Decimal("0.5")), Equals("value", 1)),
    CRATES.name: (AtMost("price", Decimal("1.0")), Equals("maker", IDS[0]), IsNull("maker")),
}
ORDERS: Final[Mapping[str, Sequence[SortKey]]] = {
    NOTES.name: (
        SortKey("rank", descending=True, number=True),
        SortKey("title"),
        SortKey("dueAt", time=True, nullable=True),
    ),
    PLACES.name: (SortKey("checkedAt", descending=True, time=True, nullable=True),),
    DEVICES.name: (SortKey("spotCount", number=True), SortKey("dueAt", time=True, nullable=True)),
    PARTS.name: (SortKey("amount", number=True),),
    COUNTERS.name: (SortKey("amount", descending=True, number=True),),
    PARCELS.name: (SortKey("amount", number=True),),
    TICKETS.name: (SortKey("_updatedAt", time=True, nullable=True), SortKey("__v", number=True)),
    STUBS.name: (SortKey("amount", number=True), SortKey("checkedAt", time=True, nullable=True)),
    WARES.name: (
        SortKey("price", descending=True, decimal=True),
        SortKey("weight", decimal=True, nullable=True),
        SortKey("design", descending=True, nullable=True),
    ),
    STAMPS.name: (SortKey("value", decimal=True),),
    CRATES.name: (SortKey("price", decimal=True), SortKey("maker", nullable=True)),
}
COUNTED: Final[Mapping[str, Sequence[str]]] = {
    NOTES.name: ("level", "holder", "urgent", "rank", "archivedBy"),
    PLACES.name: ("amount",),
    DEVICES.name: ("level", "serial", "spotCount", "importedBy"),
    PARTS.name: ("amount",),
    ENTRIES.name: ("message",),
    LINES.name: ("message",),
    EVENTS.name: ("message",),
    COUNTERS.name: ("holder",),
    PARCELS.name: ("label", "amount"),
    SCANS.name: ("message",),
    TICKETS.name: ("__v", "_class", "number"),
    STUBS.name: ("amount", "gate"),
    WARES.name: ("maker", "design"),
    STAMPS.name: ("batch",),
    CRATES.name: ("maker",),
}
MARKED: Final[Mapping[str, Sequence[FieldUpdates]]] = {
    NOTES.name: (
        {"holder": "w", "attempts": Add(1)},
        {"holder": UNSET, "level": "high", "urgent": True},
        {"dueAt": at(5), "rank": Add(-1)},
        {"closedAt": UNSET},
    ),
    PLACES.name: ({"amount": Add(1)}, {"checkedAt": at(4)}),
    DEVICES.name: ({"holder": "w", "attempts": Add(1)}, {"serial": UNSET, "level": "low"}, {"dueAt": UNSET}),
    PARTS.name: ({"amount": Add(2), "checkedAt": at(0)},),
    COUNTERS.name: ({"amount": Add(1), "holder": "w"}, {"holder": UNSET}),
    PARCELS.name: ({"amount": Add(1)}, {"label": UNSET, "checkedAt": at(4)}),
    TICKETS.name: ({"__v": Add(1), "_updatedAt": at(4)}, {"$price": Add(1), "hall.place": UNSET}),
    STUBS.name: ({"amount": Add(1)}, {"checkedAt": UNSET}),
    WARES.name: ({"price": Decimal("1.000"), "maker": IDS[1]}, {"design": UNSET, "seal": b"m"}),
    STAMPS.name: ({"value": Decimal("2.50")},),
    CRATES.name: ({"price": Decimal("1.00"), "maker": UNSET},),
}
UNIQUES: Final[Mapping[str, Sequence[tuple[str, ...]]]] = {
    NOTES.name: tuple((OURS.id, BATCH, title) for title in ("t1", "t2", "t3")),
    DEVICES.name: (("s1",), ("s2",)),
    PARCELS.name: (("l1",), ("l2",)),
    WARES.name: tuple((design,) for design in DESIGNS),
}
ENTITIES: Final[tuple[Entity[Any], ...]] = (
    *([NOTES] * 4),
    *([DEVICES] * 4),
    *([PLACES, PARTS, LINES, ENTRIES, EVENTS, COUNTERS, PARCELS, SCANS, TICKETS, STUBS] * 2),
    *([WARES, WARES, STAMPS, CRATES] * 2),
)
CHANGEABLE: Final = tuple(entity for entity in ENTITIES if not entity.append_only)
LOGS: Final = (ENTRIES, LINES, EVENTS, SCANS)


class AccessGenerator(Random):
    """Draws what operations are made of; ``unit_scope`` is the scope of the open unit."""

    def __init__(self, seed: int, unit_scope: Tenants = ALL_TENANTS) -> None:
        super().__init__(seed)
        self._unit_scope = unit_scope

    def an_owner(self, entity: Entity[Any]) -> Owner:
        """Return the owner of a row; none only if the entity allows rows without an owner."""
        if self._unit_scope is NO_TENANT or isinstance(self._unit_scope, Tenant):
            return self._unit_scope
        return NO_TENANT if admits_no_tenant(entity) and self.randrange(4) == 0 else self.choice(OWNERS)

    def a_scope(self, owner: Owner) -> Tenants:
        """Return the scope of a call: that of the owner, now and then a wider or another one."""
        if self._unit_scope is NO_TENANT or isinstance(self._unit_scope, Tenant):
            return self._unit_scope
        return owner if self.randrange(20) < 16 else self.choice(OTHERS)

    def a_dataset(self, entity: Entity[Any]) -> Dataset:
        return Dataset(self.an_owner(entity), BATCH)

    def a_row(self, entity: Entity[Any], dataset: Dataset) -> AnyRow:
        """Return a row of any content under one of few keys."""
        changes = {name: self.choice(values) for name, values in VARIED[entity.name].items()}
        number = self.choice(KEYS)
        if entity.parent is not None:
            parent = self.choice(PARENTS)
            field = entity.shapes[entity.parent.field].name
            changes[field] = factory_of(entity.parent.entity).key(dataset, parent)[0]
            if entity is EVENTS:
                changes["event_id"] = dataset.uuid(10 * parent + number)
        markers = self.choice(MARKERS.get(entity.name, ({},)))
        return Row(factory_of(entity).row(dataset, number).model.evolve(**changes), markers)

    def a_key(self, entity: Entity[Any], dataset: Dataset) -> Key:
        row = self.a_row(entity, dataset)
        return entity.key_of(row.model, row.storage)

    def a_unique(self, entity: Entity[Any]) -> UniqueKey | None:
        """Return one of few unique values, where the entity has any."""
        values = UNIQUES.get(entity.name)
        return None if values is None else UniqueKey(entity.uniques[0], self.choice(values))

    def conditions(self, entity: Entity[Any], dataset: Dataset, scope: Tenants) -> tuple[Condition, ...]:
        """Return none to two conditions, and the parent where a list must name it."""
        found = tuple(self.sample(CONDITIONS[entity.name], self.choice((0, 0, 1, 1, 2))))
        if entity.parent is None or (scope is ALL_TENANTS and self.random() < 0.5):
            return found
        parent = factory_of(entity.parent.entity).key(dataset, self.choice(PARENTS))
        return (Equals(entity.parent.field, parent[0]), *found)

    def a_query(self, entity: Entity[Any], limits: Sequence[int] = (1, 2, 3, 50)) -> Query:
        dataset = self.a_dataset(entity)
        scope = self.a_scope(dataset.owner)
        orders = ORDERS.get(entity.name, ())
        order = [self.choice(orders)] if orders and self.random() < 0.6 else []
        return build_query(
            entity.name,
            scope=scope,
            where=self.conditions(entity, dataset, scope),
            order=(*order, *key_order(entity)),
            limit=self.choice(limits),
            maximum=EVERYTHING,
        )


def admits_no_tenant(entity: Entity[Any]) -> bool:
    """Whether rows of an entity may belong to no tenant."""
    if entity.tenancy.kind is TenancyKind.PARENT and entity.parent is not None:
        return admits_no_tenant(entity.parent.entity)
    return entity.tenancy.kind in {TenancyKind.OPTIONAL, TenancyKind.NONE}


@dataclass(frozen=True)
class Find:
    """Look rows up, all by key or all by a unique value."""

    entity: Entity[Any]
    scope: Tenants
    keys: tuple[Key | UniqueKey, ...]

    def __call__(self, access: Access) -> object:
        return access.find(self.entity, self.scope, self.keys)


@dataclass(frozen=True)
class ListAll:
    """Turn all pages of a list."""

    entity: Entity[Any]
    query: Query

    def __call__(self, access: Access) -> object:
        def page(token: str | None) -> Any:  # noqa: ANN401  # pages of any entity
            query = self.query
            return access.page(
                self.entity,
                build_query(
                    query.entity,
                    scope=query.scope,
                    where=query.where,
                    order=query.order,
                    limit=query.limit,
                    maximum=EVERYTHING,
                    page_token=token,
                ),
            )

        return tuple(all_pages(page)), page(None)


@dataclass(frozen=True)
class CountBy:
    """Count the rows of a list."""

    entity: Entity[Any]
    query: Query
    by: str

    def __call__(self, access: Access) -> object:
        return access.count(self.entity, self.query, self.by)


@dataclass(frozen=True)
class AccessUnderTest:
    """Insert or put a row."""

    way: str
    entity: Entity[Any]
    scope: Tenants
    row: AnyRow

    def __call__(self, access: Access) -> object:
        write: Callable[..., object] = getattr(access, self.way)
        return write(self.entity, self.scope, self.row)


@dataclass(frozen=True)
class Answer:
    """The answer of a rule about one row.

    ``keep`` returns none, ``same`` what was given, ``other`` other content under whatever key was given, or a
    new row; ``refuse`` raises.
    """

    kind: str
    row: AnyRow
    change: Mapping[str, object]

    def __call__(self, given: AnyRow | None) -> AnyRow | None:
        if self.kind == "refuse":
            raise ValidationError("refused by the rule")
        if self.kind == "keep":
            return None
        if given is None:
            return self.row
        return given if self.kind == "same" else Row(given.model.evolve(**self.change), given.storage)


@dataclass(frozen=True)
class ChangeRows:
    """Take one step over some rows."""

    refs: tuple[Ref[Any], ...]
    answers: tuple[Answer, ...]

    def __call__(self, access: Access) -> object:
        def rule(rows: Rows, now: ServerClock) -> Rows:
            del now
            return tuple(answer(row) for answer, row in zip(self.answers, rows, strict=True))

        return access.change(self.refs, rule)


@dataclass(frozen=True)
class MarkFirst:
    """Set fields of the first rows of a list."""

    entity: Entity[Any]
    query: Query
    sets: FieldUpdates

    def __call__(self, access: Access) -> object:
        return access.mark(self.entity, self.query, self.sets)


@dataclass(frozen=True)
class AppendRows:
    """Append to a log."""

    entity: Entity[Any]
    parent: Ref[Any]
    rows: tuple[AnyRow, ...]

    def __call__(self, access: Access) -> object:
        return access.append(self.entity, self.parent, self.rows)


@dataclass(frozen=True)
class RemoveFirst:
    """Remove the first rows of a list."""

    entity: Entity[Any]
    query: Query

    def __call__(self, access: Access) -> object:
        return access.remove(self.entity, self.query)


AccessOperation = (
    Find | ListAll | CountBy | AccessUnderTest | ChangeRows | MarkFirst | AppendRows | RemoveFirst
)


def a_find(generator: AccessGenerator) -> AccessOperation:
    entity = generator.choice(ENTITIES)
    dataset = generator.a_dataset(entity)
    unique = generator.a_unique(entity) if generator.randrange(3) == 0 else None
    keys: tuple[Key | UniqueKey, ...]
    if unique is not None:
        keys = (unique,)
    else:
        keys = tuple(generator.a_key(entity, dataset) for _ in range(generator.randint(1, 4)))
    return Find(entity, generator.a_scope(dataset.owner), keys)


def a_list(generator: AccessGenerator) -> AccessOperation:
    entity = generator.choice(ENTITIES)
    return ListAll(entity, generator.a_query(entity))


def a_count(generator: AccessGenerator) -> AccessOperation:
    entity = generator.choice(ENTITIES)
    return CountBy(entity, generator.a_query(entity), generator.choice(COUNTED[entity.name]))


def a_store(generator: AccessGenerator) -> AccessOperation:
    entity = generator.choice(ENTITIES)
    dataset = generator.a_dataset(entity)
    way = generator.choice(("insert", "put", "put"))
    return AccessUnderTest(way, entity, generator.a_scope(dataset.owner), generator.a_row(entity, dataset))


def a_change(generator: AccessGenerator) -> AccessOperation:
    refs: list[Ref[Any]] = []
    answers: list[Answer] = []
    for _ in range(generator.choice((1, 1, 2, 3))):
        entity = generator.choice(ENTITIES)
        dataset = generator.a_dataset(entity)
        row = generator.a_row(entity, dataset)
        unique = generator.a_unique(entity) if generator.randrange(4) == 0 else None
        key = entity.key_of(row.model, row.storage) if unique is None else unique
        ref = Ref(entity, generator.a_scope(dataset.owner), key)
        if not any(other.entity == entity for other in refs):  # no row may occur twice in a step
            refs.append(ref)
            kind = generator.choice(("keep", "same", *(["other"] * 8), "refuse"))
            answers.append(Answer(kind, row, factory_of(entity).change))
    return ChangeRows(tuple(refs), tuple(answers))


def a_mark(generator: AccessGenerator) -> AccessOperation:
    entity = generator.choice(CHANGEABLE)
    return MarkFirst(entity, generator.a_query(entity), generator.choice(MARKED[entity.name]))


def an_append(generator: AccessGenerator) -> AccessOperation:
    entity = generator.choice(LOGS)
    dataset = generator.a_dataset(entity)
    rows = [generator.a_row(entity, dataset) for _ in range(generator.randint(1, 4))]
    assert entity.parent is not None
    parent = entity.value(rows[0].model, {}, entity.parent.field)
    alike = [row for row in rows if entity.value(row.model, {}, entity.parent.field) == parent]
    free = [
        Row(row.model.evolve(sequence=None)) if generator.random() < 0.6 else row  # the store numbers it
        for row in (alike if generator.randrange(8) else rows)
    ]
    ref = Ref(entity.parent.entity, generator.a_scope(dataset.owner), (str(parent),))
    return AppendRows(entity, ref, tuple(free))


def a_removal(generator: AccessGenerator) -> AccessOperation:
    entity = generator.choice(CHANGEABLE)
    dataset = generator.a_dataset(entity)
    if generator.random() < 0.4:
        query = query_of_key(entity, generator.a_scope(dataset.owner), generator.a_key(entity, dataset))
        return RemoveFirst(entity, query)
    return RemoveFirst(entity, generator.a_query(entity, limits=(1, 1, 2)))


# Each with its weight.
MAKERS: Final[dict[Callable[[AccessGenerator], AccessOperation], int]] = {
    a_store: 10,
    a_change: 6,
    an_append: 5,
    a_mark: 4,
    a_find: 3,
    a_list: 4,
    a_count: 2,
    a_removal: 3,
}
FIRST: Final = (
    *(
        AccessUnderTest("put", factory.entity, OURS, factory.row(Dataset(OURS, BATCH), number))
        for number in (0, 1)
        for factory in (NOTE, DEVICE)
        if (factory, number) != (DEVICE, 1)
    ),
    AccessUnderTest("put", DEVICES, NO_TENANT, DEVICE.row(Dataset(NO_TENANT, BATCH), 1)),
)
"""Parents, so that their children find them."""
LATEST_SEED: Final = 2**32 - 1
access_seeds: Final = st.integers(0, LATEST_SEED)
access_histories: Final = st.lists(access_seeds, min_size=5, max_size=25)


def access_operation(seed: int, owner_case: Tenants) -> AccessOperation:
    """Return the operation that follows from a seed, within a scope."""
    generator = AccessGenerator(seed, owner_case)
    return generator.choices(list(MAKERS), list(MAKERS.values()))[0](generator)


def a_read(seed: int, owner_case: Tenants) -> AccessOperation:
    """Return an operation that only reads."""
    generator = AccessGenerator(seed, owner_case)
    return generator.choice((a_find, a_list, a_count))(generator)


# Bound to a tenant, or in system scope.
BINDINGS: Final = st.sampled_from((OURS, OURS, OURS, THEIRS, ALL_TENANTS))
SCOPES: Final = st.sampled_from((OURS, OURS, OURS, THEIRS, NO_TENANT, ALL_TENANTS))
# An error ends the unit, so more would hardly ever be reached.
MOST_IN_ONE: Final = 4


class AccessDivergenceError(AssertionError):
    """Two sides answered differently, or store different rows."""


@dataclass(slots=True)
class AccessSide:
    """One side of a comparison.

    Attributes:
        name: name in reports.
        backend: the module of the kit on a driver.
        wipe: empties the store; every example starts with it.
        opened: the access of the unit of work that is open.
    """

    name: str
    backend: ModuleBackend[Access]
    wipe: Callable[[], object]
    opened: Access | None = None
    _open: ExitStack = field(default_factory=ExitStack)

    @property
    def outside(self) -> Access:
        """The access past an open unit."""
        return self.backend.repositories

    @property
    def access(self) -> Access:
        """Where the next call goes."""
        return self.opened or self.outside

    def enter(self, scope: Tenants, *, read_only: bool) -> None:
        """Open a unit of work."""
        bound = Scope(scope.id) if isinstance(scope, Tenant) else Scope(purpose="test")
        self.opened = self._open.enter_context(self.backend.transaction(bound, read_only=read_only))

    def leave(self, *, commit: bool = True) -> None:
        """Commit it or roll it back."""
        opened, self._open, self.opened = self._open, ExitStack(), None
        if commit:
            opened.close()
            return
        with suppress(RollBackError), opened:
            raise RollBackError

    def stored(self) -> list[tuple[str, object]]:
        """Return all rows of all entities in order, past an open unit."""
        return [
            (entity.name, comparable(row))
            for entity in KIT.entities
            for row in self.outside.page(
                entity,
                Query(
                    entity=entity.name, scope=ALL_TENANTS, where=(), order=key_order(entity), limit=EVERYTHING
                ),
            )
        ]


class AccessesAgree(RuleBasedStateMachine):
    """Performs each operation on every side; each difference is a failure."""

    def __init__(self, sides: Sequence[AccessSide]) -> None:
        super().__init__()
        self.sides = sides
        self.home: Tenants = ALL_TENANTS

    @initialize(history=access_histories)
    def start(self, history: list[int]) -> None:
        for side in self.sides:
            side.wipe()
        for operation in FIRST:
            self.perform(operation)
        self.perform_all(history)

    @rule(history=access_histories)
    def perform_all(self, history: list[int]) -> None:
        """Perform some operations where calls go now, and compare the stored rows at the end."""
        for seed in history:
            self.perform(access_operation(seed, self.home))
        self.compare_stored("these operations")

    def perform(self, operation: AccessOperation) -> None:
        note(operation)
        self.compare(operation, lambda side: operation(side.access))

    @property
    def is_open(self) -> bool:
        """Whether a unit of work is open."""
        return self.sides[0].opened is not None

    @precondition(lambda self: not self.is_open)
    @rule(scope=BINDINGS, read_only=st.sampled_from((False, False, False, True)))
    def begin(self, scope: Tenants, *, read_only: bool) -> None:
        self.compare(("begin", scope), lambda side: side.enter(scope, read_only=read_only))
        self.home = scope

    @precondition(lambda self: self.is_open)
    @rule(commit=st.sampled_from((True, True, False)))
    def end(self, *, commit: bool) -> None:
        """Commit or roll back a unit, also one that failed."""
        self.home = ALL_TENANTS
        self.compare(("end", commit), lambda side: side.leave(commit=commit))
        self.compare_stored("the end")

    @precondition(lambda self: self.is_open)
    @rule(seed=access_seeds)
    def read_outside_unit(self, seed: int) -> None:
        """Read past the open unit: what it wrote must not be seen yet."""
        operation = a_read(seed, self.home)
        self.compare(operation, lambda side: operation(side.outside))

    @rule(scope=SCOPES, history=access_histories, commit=st.sampled_from((True, True, False)))
    def together(self, scope: Tenants, history: list[int], *, commit: bool) -> None:
        """Perform some operations in a unit as a repository opens it, within the open one if there is one."""
        home = scope if self.home is ALL_TENANTS else self.home
        steps = [access_operation(seed, home) for seed in history][:MOST_IN_ONE]
        note(("together", home, steps, commit))

        def act(side: AccessSide) -> object:
            with suppress(RollBackError), side.access.unit(home) as unit:
                results = tuple(step(unit) for step in steps)
                if not commit:
                    raise RollBackError
                return results
            return "rolled back"

        self.compare(("together", steps), act)
        self.compare_stored(steps)

    def compare(self, what: object, act: Callable[[AccessSide], object]) -> None:
        """Do something on every side and compare what a caller observes."""
        outcomes = [observe(partial(act, side)) for side in self.sides]
        for side, outcome in zip(self.sides[1:], outcomes[1:], strict=True):
            if outcome != outcomes[0]:
                self.fail(what, outcomes[0], side, outcome)

    def compare_stored(self, what: object) -> None:
        """Compare what is really stored, past an open unit of work."""
        for side, mine, other in differing(self.sides):
            self.fail(f"rows after {what}", mine, side, other)

    def fail(self, what: object, mine: object, side: AccessSide, other: object) -> NoReturn:
        raise AccessDivergenceError(f"{what}\n{self.sides[0].name}: {mine!r}\n{side.name}: {other!r}")

    @override
    def teardown(self) -> None:
        for side in self.sides:
            side.leave(commit=False)


def run_access_machine(sides: Sequence[AccessSide], profile: settings) -> None:
    """Search for a sequence of operations after which the sides differ."""
    run_state_machine_as_test(cast("Any", partial(AccessesAgree, sides)), settings=profile)
