"""Rows of the entities of the kit: known by number, with content from the edges of what a field may hold."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import TYPE_CHECKING, Final, Generic, TypeVar
from uuid import NAMESPACE_URL, uuid5

from twinstore.access.protocol import Ref
from twinstore.catalog.row import Row
from twinstore.catalog.tenancy import NO_TENANT, Owner, TenancyKind, Tenant
from twinstore.models.canonical import CanonicalModel, content_digest
from twinstore.models.fields import INT64_MAX, INT64_MIN, date_object
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
    STUBS,
    TICKETS,
    Colour,
    Counter,
    Device,
    Entry,
    Event,
    Fare,
    Level,
    Line,
    Note,
    Parcel,
    Part,
    Place,
    Scan,
    Spot,
    Stub,
    Ticket,
)
from twinstore.testing.instants import at
from twinstore.testing.scalars import EARLIEST, EDGE_TEXTS, LATEST, TYPED_OBJECTS
from twinstore.testing.typed_entities import CRATES, STAMPS, WARES, Crate, Offer, Stamp, Ware

if TYPE_CHECKING:
    from twinstore.access.protocol import Access
    from twinstore.catalog.entity import Entity
    from twinstore.catalog.keys import Key
    from twinstore.models.json_text import JsonObject, JsonValue

__all__ = ["OWNER_CASES", "ROW_FACTORIES", "Dataset", "OwnerCase", "RowFactory", "factory_of"]

M_co = TypeVar("M_co", bound=CanonicalModel, covariant=True)

NUMBERS: Final = (0, 1, -1, 2**31 - 1, -(2**31), 2**53 + 1, INT64_MAX, INT64_MIN)
# Free JSON with dates and other typed values, with what looks like one, and with none.
FREE: Final[tuple[JsonObject, ...]] = (
    {},
    {"at": date_object(at(1.001)), "among": [1, date_object(LATEST), {"a": {"b": date_object(EARLIEST)}}]},
    {"$date": "2025-10-26T14:05:00+00:00", "$ref": "runs", "$id": date_object(at(0))},
    {"a": {"$date": "2025-10-26T14:05:00Z"}, "b": {"$date": [1]}, "c": {**date_object(at(0)), "d": None}},
    date_object(at(0)),
    dict(zip("abcdefghijklm", TYPED_OBJECTS, strict=True)),
)
LISTS: Final[tuple[list[JsonValue], ...]] = (
    [],
    [None, 1.5, "a", [None, []], {"b": None}],
    [*TYPED_OBJECTS, date_object(at(0)), {"among": [*TYPED_OBJECTS]}],
    [{"$oid": 1}, {"$numberDecimal": 1.5}, {"$binary": "AA=="}],
)
# Properties that no field names. The last two names would be those of a reference to another document.
UNKNOWN: Final[tuple[JsonObject, ...]] = (
    {},
    {"_updatedBy": "ada", "_rev": 3, "old": None, "extra": {"extra": 1.5}, "others": [None, []]},
    {"a.b": date_object(at(1.001)), "$cost": TYPED_OBJECTS[3], "": TYPED_OBJECTS[1], "a": {"b.$c": True}},
    {"typed": [*TYPED_OBJECTS], "at": date_object(LATEST), "as text": "2025-10-26T14:05:00Z"},
    {"$ref": "runs", "$id": TYPED_OBJECTS[0], "$date": "2025-10-26T14:05:00+00:00"},
)
INSTANTS: Final = (None, at(0), at(1.001), EARLIEST, LATEST, at(0), at(-0.001), at(1.002))


@dataclass(frozen=True, slots=True)
class Dataset:
    """Where the rows of a test are: they have one owner and share a batch.

    Data sets of one batch have the same keys for every owner; other batches have other keys.
    """

    owner: Owner
    batch: str

    @property
    def tenant_id(self) -> str | None:
        """The tenant, ``None`` when there is none."""
        return self.owner.id if isinstance(self.owner, Tenant) else None

    @property
    def tenant(self) -> str:
        """The tenant of rows that must have one."""
        return self.tenant_id or f"owner of {self.batch}"

    def text(self, number: int) -> str:
        """Return a key that is text; its first characters try the order of text."""
        return f"{EDGE_TEXTS[number % len(EDGE_TEXTS)]}{number}@{self.batch}"

    def uuid(self, number: int) -> str:
        """Return a key that is a UUID."""
        return str(uuid5(NAMESPACE_URL, f"{self.batch}/{number}"))

    def object_id(self, number: int) -> str:
        """Return a key that is an ObjectId."""
        return uuid5(NAMESPACE_URL, f"{self.batch}/{number}").hex[:24]

    def number(self, number: int) -> int:
        """Return a key that is a number, below zero for every second data set."""
        digest = int(content_digest(self.batch.encode())[-13:], 16)
        return (digest if digest % 2 else -digest) * 1000 + number


@dataclass(frozen=True, slots=True, kw_only=True)
class RowFactory(Generic[M_co]):
    """How to make rows of one entity.

    Attributes:
        entity: the entity.
        model: makes the row of a number.
        change: other content for a row that stays under its key.
        markers: the storage markers of the row of a number.
    """

    entity: Entity[M_co]
    model: Callable[[Dataset, int], M_co]
    change: Mapping[str, object]
    markers: Callable[[int], Mapping[str, object]] = field(default=lambda _: {})

    def row(self, dataset: Dataset, number: int = 0, **changes: object) -> Row[M_co]:
        """Return the row of a number, with other values where they are given."""
        model = self.model(dataset, number)
        return Row(model.evolve(**changes) if changes else model, self.markers(number))

    def changed(self, dataset: Dataset, number: int = 0) -> Row[M_co]:
        """Return the row of a number with other content."""
        return self.row(dataset, number, **self.change)

    def rows(self, dataset: Dataset, count: int) -> list[Row[M_co]]:
        """Return the first rows in the order of their numbers."""
        return [self.row(dataset, number) for number in range(count)]

    def key(self, dataset: Dataset, number: int = 0) -> Key:
        """Return the key of the row of a number."""
        row = self.row(dataset, number)
        return self.entity.key_of(row.model, row.storage)

    def ref(self, dataset: Dataset, number: int = 0) -> Ref[M_co]:
        """Return where the row of a number is."""
        return Ref(self.entity, dataset.owner, self.key(dataset, number))

    def store_parents(self, access: Access, dataset: Dataset) -> None:
        """Store what the rows need: the parent of all of them, where there is one."""
        if self.entity.parent is not None:
            parent = factory_of(self.entity.parent.entity)
            parent.store_parents(access, dataset)
            access.put(parent.entity, dataset.owner, parent.row(dataset))

    def fill(self, access: Access, dataset: Dataset, count: int) -> list[Row[M_co]]:
        """Store the first rows, in an order that is not theirs, and return them in the order of numbers."""
        self.store_parents(access, dataset)
        rows = self.rows(dataset, count)
        for row in sorted(rows, key=lambda row: content_digest(repr(row).encode())):
            access.insert(self.entity, dataset.owner, row)
        return rows


def a_spot(number: int) -> Spot:
    """Return a nested model."""
    return Spot(
        label=EDGE_TEXTS[number % len(EDGE_TEXTS)],
        seen_at=at(number),
        remark=EDGE_TEXTS[-1] if number % 2 else None,
        details=FREE[(number + 1) % len(FREE)],
    )


def a_note(dataset: Dataset, number: int) -> Note:
    """Return a note."""
    text = EDGE_TEXTS[number % len(EDGE_TEXTS)]
    return Note(
        id=dataset.text(number),
        tenant_id=dataset.tenant,
        batch=dataset.batch,
        title=f"{text}{number}",
        level=list(Level)[number % 3],
        colour=(None, *Colour)[number % 3],
        urgent=number % 2 == 0,
        rank=NUMBERS[number % len(NUMBERS)],
        width=NUMBERS[number % 5],
        holder=text if number % 4 == 0 else None,
        attempts=number,
        due_at=INSTANTS[number % len(INSTANTS)],
        closed_at=at(number) if number % 3 else None,
        body=text if number % 2 else None,
        tags=tuple(EDGE_TEXTS[: number % 4]),
        steps=NUMBERS[: number % 9],
        seats=None if number % 4 == 0 else NUMBERS[5 - number % 4 : 1 : -1],
        words={text: text, "createdAt": "2025-10-26T14:05:00Z"} if number % 3 else {},
        extra=FREE[number % len(FREE)],
        spot=a_spot(number) if number % 2 else None,
        spots=tuple(map(a_spot, range(number % 3))),
    )


def markers_of_note(number: int) -> Mapping[str, object]:
    """Return the markers of a note: every third one is archived."""
    archived = {"archivedAt": at(number), "archivedBy": "ada", "revision": NUMBERS[number % len(NUMBERS)]}
    return archived if number % 3 == 2 else {}


def a_place(dataset: Dataset, number: int) -> Place:
    """Return a place; two share a shelf."""
    return Place(
        shelf=dataset.text(number // 2),
        slot=EDGE_TEXTS[-(number % len(EDGE_TEXTS)) - 1],
        tenant_id=dataset.tenant,
        batch=dataset.batch,
        amount=NUMBERS[number % len(NUMBERS)],
        checked_at=INSTANTS[number % len(INSTANTS)],
    )


def a_device(dataset: Dataset, number: int) -> Device:
    """Return a device."""
    text = EDGE_TEXTS[number % len(EDGE_TEXTS)]
    return Device(
        id=dataset.uuid(number),
        tenant_id=dataset.tenant_id,
        batch=dataset.batch,
        serial=f"{text}{number}@{dataset.batch}" if number % 2 else None,
        level=list(Level)[number % 3],
        urgent=number % 2 == 0,
        rank=NUMBERS[number % len(NUMBERS)],
        holder=text if number % 4 == 0 else None,
        attempts=number,
        due_at=INSTANTS[number % len(INSTANTS)],
        words={text: text, "createdAt": "2025-10-26T14:05:00Z"} if number % 3 else {},
        things=LISTS[number % len(LISTS)],
        labels=(None, text, None)[: number % 4],
        spots=tuple(map(a_spot, range(number % 3))),
    )


def markers_of_device(number: int) -> Mapping[str, object]:
    """Return the markers of a device."""
    return (
        {"importedBy": EDGE_TEXTS[number % len(EDGE_TEXTS)], "importedAt": at(number)} if number % 2 else {}
    )


def a_part(dataset: Dataset, number: int) -> Part:
    """Return a part of the first device."""
    return Part(
        device_id=dataset.uuid(0),
        name=f"{EDGE_TEXTS[number % len(EDGE_TEXTS)]}{number}",
        batch=dataset.batch,
        amount=NUMBERS[number % len(NUMBERS)],
        checked_at=INSTANTS[number % len(INSTANTS)],
    )


def an_entry(dataset: Dataset, number: int) -> Entry:
    """Return an entry in the log of the first device."""
    return Entry(
        device_id=dataset.uuid(0), sequence=number + 1, batch=dataset.batch, message=EDGE_TEXTS[number]
    )


def a_line(dataset: Dataset, number: int) -> Line:
    """Return a line in the log of the first note."""
    return Line(
        note_id=dataset.text(0),
        sequence=number + 1,
        tenant_id=dataset.tenant,
        batch=dataset.batch,
        message=EDGE_TEXTS[number],
        extra=UNKNOWN[number % len(UNKNOWN)],
    )


def an_event(dataset: Dataset, number: int) -> Event:
    """Return an event in the log of the first note."""
    return Event(
        event_id=dataset.uuid(number),
        note_id=dataset.text(0),
        sequence=number + 1,
        tenant_id=dataset.tenant,
        batch=dataset.batch,
        message=EDGE_TEXTS[number],
    )


def a_counter(dataset: Dataset, number: int) -> Counter:
    """Return a counter."""
    return Counter(
        number=dataset.number(number),
        batch=dataset.batch,
        amount=NUMBERS[number % len(NUMBERS)],
        holder=EDGE_TEXTS[number % len(EDGE_TEXTS)] if number % 2 else None,
        checked_at=INSTANTS[number % len(INSTANTS)],
    )


def a_parcel(dataset: Dataset, number: int) -> Parcel:
    """Return a parcel."""
    return Parcel(
        parcel_id=dataset.text(number),
        tenant_id=dataset.tenant,
        batch=dataset.batch,
        label=f"{EDGE_TEXTS[number % len(EDGE_TEXTS)]}{number}@{dataset.batch}" if number % 2 else None,
        amount=NUMBERS[number % len(NUMBERS)],
        checked_at=INSTANTS[number % len(INSTANTS)],
    )


def a_scan(dataset: Dataset, number: int) -> Scan:
    """Return a scan in the log of the first parcel."""
    return Scan(
        parcel_id=dataset.text(0), sequence=number + 1, batch=dataset.batch, message=EDGE_TEXTS[number]
    )


def a_ticket(dataset: Dataset, number: int) -> Ticket:
    """Return a ticket."""
    text = EDGE_TEXTS[number % len(EDGE_TEXTS)]
    return Ticket(
        number=dataset.number(number),
        tenant_id=dataset.tenant,
        batch=dataset.batch,
        amount=NUMBERS[number % len(NUMBERS)],
        updated_at=INSTANTS[number % len(INSTANTS)],
        revision=number,
        kind=text if number % 2 else None,
        seat_row=text if number % 3 else None,
        remark=text,
        price=NUMBERS[(number + 1) % len(NUMBERS)],
        place=text if number % 2 == 0 else None,
        fares=tuple(Fare(amount=NUMBERS[at], paid_at=INSTANTS[at]) for at in range(number % 3)),
        extra=UNKNOWN[number % len(UNKNOWN)],
    )


def a_stub(dataset: Dataset, number: int) -> Stub:
    """Return a stub of the first ticket."""
    return Stub(
        ticket=dataset.number(0),
        gate=f"{EDGE_TEXTS[number % len(EDGE_TEXTS)]}{number}",
        batch=dataset.batch,
        amount=NUMBERS[number % len(NUMBERS)],
        checked_at=INSTANTS[number % len(INSTANTS)],
        others=UNKNOWN[(number + 1) % len(UNKNOWN)],
    )


# Some are equal and have other digits; others differ where a double ends.
DECIMALS: Final = tuple(
    map(
        Decimal,
        (
            *("1.5", "-0.001", "1.500", "0", "9007199254740993", "9007199254740992.5", "1E+3", "0E-6176"),
            *("-1000", "1.50", "0.00", f"{'9' * 34}", f"-{'9' * 34}"),
        ),
    )
)
BYTES: Final = (b"", b"\x00", b"\xff\xfe", bytes(range(256)), b"hidden in base64")


def an_offer(dataset: Dataset, number: int) -> Offer:
    """Return a nested model."""
    return Offer(
        price=DECIMALS[number % len(DECIMALS)],
        buyer=dataset.object_id(number) if number % 2 else None,
        contract=dataset.uuid(number) if number % 3 else None,
        seal=BYTES[number % len(BYTES)] if number % 4 else None,
    )


def a_ware(dataset: Dataset, number: int) -> Ware:
    """Return a ware."""
    return Ware(
        id=dataset.object_id(number),
        tenant_id=dataset.tenant,
        batch=dataset.batch,
        name=EDGE_TEXTS[number % len(EDGE_TEXTS)],
        price=DECIMALS[number % len(DECIMALS)],
        maker=f"{number % 3:024x}" if number % 4 else None,
        design=dataset.uuid(number) if number % 2 else None,
        weight=DECIMALS[-(number % len(DECIMALS)) - 1] if number % 3 else None,
        image=BYTES[number % len(BYTES)],
        seal=BYTES[-(number % len(BYTES)) - 1] if number % 2 else None,
        makers=tuple(map(dataset.object_id, range(number % 3))),
        designs=tuple(map(dataset.uuid, range(number % 4))),
        weights=DECIMALS[: number % 5],
        seals=BYTES[: number % 4],
        offer=an_offer(dataset, number) if number % 2 else None,
        offers=tuple(an_offer(dataset, item) for item in range(number % 3)),
    )


def a_stamp(dataset: Dataset, number: int) -> Stamp:
    """Return a stamp of the first ware."""
    return Stamp(
        ware_id=dataset.object_id(0),
        stamp=dataset.uuid(number),
        batch=dataset.batch,
        value=DECIMALS[number % len(DECIMALS)],
        image=BYTES[number % len(BYTES)],
    )


def a_crate(dataset: Dataset, number: int) -> Crate:
    """Return a crate."""
    return Crate(
        id=dataset.uuid(number),
        tenant_id=dataset.tenant,
        batch=dataset.batch,
        price=DECIMALS[number % len(DECIMALS)],
        maker=f"{number % 3:024x}" if number % 4 else None,
        seal=BYTES[number % len(BYTES)] if number % 2 else None,
        offers=tuple(an_offer(dataset, item) for item in range(number % 3)),
        extra=UNKNOWN[(number + 2) % len(UNKNOWN)],
    )


NOTE: Final = RowFactory(entity=NOTES, model=a_note, markers=markers_of_note, change={"body": "other"})
PLACE: Final = RowFactory(entity=PLACES, model=a_place, change={"amount": 77})
DEVICE: Final = RowFactory(
    entity=DEVICES, model=a_device, markers=markers_of_device, change={"words": {"b": "c"}}
)
PART: Final = RowFactory(entity=PARTS, model=a_part, change={"amount": 77})
ENTRY: Final = RowFactory(entity=ENTRIES, model=an_entry, change={"message": "other"})
LINE: Final = RowFactory(entity=LINES, model=a_line, change={"message": "other"})
EVENT: Final = RowFactory(entity=EVENTS, model=an_event, change={"message": "other"})
COUNTER: Final = RowFactory(entity=COUNTERS, model=a_counter, change={"amount": 77})
PARCEL: Final = RowFactory(entity=PARCELS, model=a_parcel, change={"amount": 77})
SCAN: Final = RowFactory(entity=SCANS, model=a_scan, change={"message": "other"})
TICKET: Final = RowFactory(
    entity=TICKETS, model=a_ticket, change={"revision": 77, "price": 78, "place": "other"}
)
STUB: Final = RowFactory(entity=STUBS, model=a_stub, change={"amount": 77})
# The first price is 1.5; only its scale changes.
WARE: Final = RowFactory(entity=WARES, model=a_ware, change={"price": Decimal("1.50")})
STAMP: Final = RowFactory(entity=STAMPS, model=a_stamp, change={"value": Decimal("77.0")})
CRATE: Final = RowFactory(entity=CRATES, model=a_crate, change={"price": Decimal("1.50")})

ROW_FACTORIES: Final[tuple[RowFactory[CanonicalModel], ...]] = (
    NOTE,
    PLACE,
    DEVICE,
    PART,
    ENTRY,
    LINE,
    EVENT,
    COUNTER,
    PARCEL,
    SCAN,
    TICKET,
    STUB,
    WARE,
    STAMP,
    CRATE,
)


def factory_of(entity: Entity) -> RowFactory[CanonicalModel]:
    """Return how to make rows of an entity."""
    return next(factory for factory in ROW_FACTORIES if factory.entity == entity)


@dataclass(frozen=True, slots=True)
class OwnerCase:
    """Rows of one entity, with or without a tenant as owner."""

    factory: RowFactory[CanonicalModel]
    by_tenant: bool = True

    def dataset(self, tenant: str, batch: str) -> Dataset:
        """Return the data set of the rows; its owner is also the scope that sees them."""
        return Dataset(Tenant(tenant) if self.by_tenant else NO_TENANT, batch)

    def __str__(self) -> str:
        return f"{self.factory.entity.name} of {'a tenant' if self.by_tenant else 'nobody'}"


def ownerless(factory: RowFactory[CanonicalModel]) -> bool:
    """Whether rows of an entity may belong to no tenant."""
    entity = factory.entity
    if entity.parent is not None and entity.tenancy.kind is TenancyKind.PARENT:
        return ownerless(factory_of(entity.parent.entity))
    return entity.tenancy.kind is TenancyKind.OPTIONAL


OWNER_CASES: Final = (
    *(OwnerCase(factory) for factory in ROW_FACTORIES),
    *(OwnerCase(factory, by_tenant=False) for factory in ROW_FACTORIES if ownerless(factory)),
)
