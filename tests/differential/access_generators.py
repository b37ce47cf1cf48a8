"""The rows, keys and lists that operations of the access are made of: few, so that they collide.

Rows of two tenants and of nobody want the same keys and unique values. Whatever an operation is made of
follows from one seed, as in :mod:`tests.differential.generators`.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any, Final

from twinstore.access.paging import SortKey
from twinstore.access.protocol import UNSET, Add, UniqueKey
from twinstore.access.query import Query, build_query, key_order
from twinstore.catalog.conditions import After, AtLeast, AtMost, Equals, IsNull, IsPresent, OneOf
from twinstore.catalog.row import Row
from twinstore.catalog.tenancy import ALL_TENANTS, NO_TENANT, TenancyKind, Tenant
from twinstore.models.fields import date_object
from twinstore.testing.datasets import Dataset, factory_of
from twinstore.testing.entities import (
    COUNTERS,
    DEVICES,
    ENTRIES,
    EVENTS,
    LINES,
    NOTES,
    PARCELS,
    PARTS,
    PLACES,
    SCANS,
    Level,
    Spot,
)
from twinstore.testing.instants import at

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from twinstore.access.protocol import Sets
    from twinstore.catalog.conditions import Condition
    from twinstore.catalog.entity import Entity
    from twinstore.catalog.keys import Key
    from twinstore.catalog.tenancy import Owner, Tenants

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

# What varies between two rows of one key, by Python name.
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
        "spots": ((), (SPOT,)),
    },
    PARTS.name: {"amount": (0, 1), "checked_at": INSTANTS},
    ENTRIES.name: {"message": ("m", "m", "n")},
    LINES.name: {"message": ("m", "m", "n")},
    EVENTS.name: {"message": ("m", "m", "n")},
    COUNTERS.name: {"amount": (0, 1, -1), "holder": (None, "w")},
    PARCELS.name: {"label": (None, "l1", "l2"), "amount": (0, 1), "checked_at": INSTANTS},
    SCANS.name: {"message": ("m", "m", "n")},
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
}
MARKED: Final[Mapping[str, Sequence[Sets]]] = {
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
}
UNIQUES: Final[Mapping[str, Sequence[tuple[str, ...]]]] = {
    NOTES.name: tuple((OURS.id, BATCH, title) for title in ("t1", "t2", "t3")),
    DEVICES.name: (("s1",), ("s2",)),
    PARCELS.name: (("l1",), ("l2",)),
}
ENTITIES: Final[tuple[Entity[Any], ...]] = (
    *([NOTES] * 4),
    *([DEVICES] * 4),
    *([PLACES, PARTS, LINES, ENTRIES, EVENTS, COUNTERS, PARCELS, SCANS] * 2),
)
CHANGEABLE: Final = tuple(entity for entity in ENTITIES if not entity.append_only)
LOGS: Final = (ENTRIES, LINES, EVENTS, SCANS)


class AccessGenerator(Random):
    """Draws what operations are made of; ``unit_scope`` is the scope of the open unit."""

    def __init__(self, seed: int, unit_scope: Tenants = ALL_TENANTS) -> None:
        super().__init__(seed)
        self._unit_scope = unit_scope

    def an_owner(self, entity: Entity[Any]) -> Owner:
        """Return who owns a row; nobody only where the entity admits that."""
        if self._unit_scope is NO_TENANT or isinstance(self._unit_scope, Tenant):
            return self._unit_scope
        return NO_TENANT if admits_nobody(entity) and self.randrange(4) == 0 else self.choice(OWNERS)

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


def admits_nobody(entity: Entity[Any]) -> bool:
    """Whether rows of an entity may belong to no tenant."""
    if entity.tenancy.kind is TenancyKind.PARENT and entity.parent is not None:
        return admits_nobody(entity.parent.entity)
    return entity.tenancy.kind in {TenancyKind.OPTIONAL, TenancyKind.NONE}
