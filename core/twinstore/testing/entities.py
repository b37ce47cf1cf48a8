"""A module that exists for tests alone: between them its entities have every feature of a description.

It has no repositories: opened on a driver, it hands out the access itself, so that contracts and the
differential machine can call the operations.

    notes      text key, tenant required, columns; markers, unique among those not archived, retention of some
    places     key of two texts, tenant required, columns; plain rows
    devices    UUID key, tenant optional, payload; markers, derived fields, unique where present, versioned
    parts      key of UUID and text, tenant of the device, columns
    entries    key of UUID and number, tenant of the device; an ordered log
    lines      key of text and number, tenant required, columns; an ordered log of a note
    events     UUID key, tenant required, payload; an ordered log of a note whose key is not its number
    counters   key of a number, no tenant, columns
    parcels    text key and a generated id, tenant required, columns; unique where present, versioned
    scans      key of text and number, and a generated id, tenant of the parcel; an ordered log
    tickets    key of a number that is the id, tenant required, columns; fields under any name
    stubs      key of number and text that is the id, tenant of the ticket, columns; versioned

Those of :mod:`~twinstore.testing.typed_entities` are among them too.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Final, TypeVar, cast

from pydantic import Field, JsonValue, StringConstraints
from typing_extensions import override

from twinstore.access.defaults import AccessDefaults
from twinstore.access.guard import GuardedAccess
from twinstore.catalog.conditions import IsNull, IsPresent, OneOf
from twinstore.catalog.entity import Derived, Entity, Layout, Marker, Module, Parent, Retention
from twinstore.catalog.indexes import Index
from twinstore.catalog.keys import int64, text, uuid
from twinstore.catalog.tenancy import Tenancy
from twinstore.models.canonical import CanonicalJsonSerializer, CanonicalModel
from twinstore.models.enums import NumberedEnum
from twinstore.models.fields import (
    ExtraProperties,
    Flag,
    FreeList,
    FreeObject,
    Id,
    Int64,
    Name,
    OptionalReference,
    OptionalText,
    PositiveInt,
    StringSet,
    TenantId,
    TextMap,
    Timestamp,
    Trimmed,
    is_empty,
)
from twinstore.models.shapes import Kind
from twinstore.plugins.module_spec import ModuleSpec
from twinstore.plugins.options import Days, ModuleOptions
from twinstore.testing.typed_entities import TYPED_ENTITIES

if TYPE_CHECKING:
    from twinstore.access.paging import Page
    from twinstore.access.protocol import Access, Binding, Ref, Rows, Rule, UniqueKey
    from twinstore.access.query import Query
    from twinstore.catalog.keys import Key
    from twinstore.catalog.row import Row
    from twinstore.catalog.tenancy import Tenants

__all__ = [
    "COUNTERS",
    "DEVICES",
    "ENTRIES",
    "EVENTS",
    "KIT",
    "LINES",
    "MODULE",
    "MODULE_BY_DEFAULTS",
    "NOTES",
    "PARCELS",
    "PARTS",
    "PLACES",
    "SCANS",
    "STUBS",
    "TICKETS",
    "Colour",
    "Counter",
    "DefaultsOnly",
    "Device",
    "Entry",
    "Event",
    "KitOptions",
    "Level",
    "Line",
    "Note",
    "Parcel",
    "Part",
    "Place",
    "Scan",
    "Spot",
    "Stub",
    "Ticket",
    "by_access",
]

UuidText = Annotated[
    str, StringConstraints(strict=True, pattern=r"^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$")
]
Small = Annotated[int, Field(strict=True, ge=-(2**31), le=2**31 - 1)]


class Level(NumberedEnum):
    """An enumeration with numbers."""

    LOW = "low"
    MIDDLE = "middle"
    HIGH = "high"


class Colour(StrEnum):
    """An enumeration of texts."""

    RED = "red"
    DARK_GREEN = "dark-green"


class Spot(CanonicalModel):
    """A nested model that has an instant."""

    label: Trimmed
    seen_at: Timestamp
    remark: OptionalText = None
    details: FreeObject = Field(default_factory=dict)


class Note(CanonicalModel):
    """A row with a value of every kind."""

    id: Id
    tenant_id: TenantId
    batch: Id
    title: Name
    level: Level = Level.LOW
    colour: Colour | None = None
    urgent: Flag = False
    rank: Int64 = 0
    width: Small = 0
    holder: OptionalReference = None
    attempts: Int64 = 0
    due_at: Timestamp | None = None
    closed_at: Timestamp | None = None
    body: OptionalText = None
    tags: StringSet = ()
    steps: tuple[Int64, ...] = ()
    seats: tuple[Small, ...] | None = None
    words: TextMap = Field(default_factory=dict)
    extra: FreeObject = Field(default_factory=dict)
    spot: Spot | None = None
    spots: tuple[Spot, ...] = Field(default=(), exclude_if=is_empty)


class Place(CanonicalModel):
    """A row with a key of two texts."""

    shelf: Id
    slot: Id
    tenant_id: TenantId
    batch: Id
    amount: Int64 = 0
    checked_at: Timestamp | None = None


class Device(CanonicalModel):
    """A row that may be without tenant, held as one document everywhere."""

    id: UuidText
    tenant_id: TenantId | None = None
    batch: Id
    serial: OptionalReference = None
    level: Level = Level.LOW
    urgent: Flag = False
    rank: Int64 = 0
    holder: OptionalReference = None
    attempts: Int64 = 0
    due_at: Timestamp | None = None
    words: TextMap = Field(default_factory=dict)
    things: FreeList = Field(default_factory=list[JsonValue])
    labels: tuple[Trimmed | None, ...] = ()
    spots: tuple[Spot, ...] = Field(default=(), exclude_if=is_empty)


class Part(CanonicalModel):
    """A row that belongs to the owner of its device."""

    device_id: UuidText
    name: Id
    batch: Id
    amount: Int64 = 0
    checked_at: Timestamp | None = None


class Entry(CanonicalModel):
    """A log entry of a device; its number is a part of its key."""

    device_id: UuidText
    sequence: PositiveInt | None = None
    batch: Id
    message: Trimmed


class Line(CanonicalModel):
    """A log entry of a note that names its own tenant."""

    note_id: Id
    sequence: PositiveInt | None = None
    tenant_id: TenantId
    batch: Id
    message: Trimmed
    extra: ExtraProperties = Field(default_factory=dict, exclude_if=is_empty)


class Event(CanonicalModel):
    """A log entry of a note that has its own id; its number only orders it."""

    event_id: UuidText
    note_id: Id
    sequence: PositiveInt | None = None
    tenant_id: TenantId
    batch: Id
    message: Trimmed


class Counter(CanonicalModel):
    """A row that no tenant owns."""

    number: Int64
    batch: Id
    amount: Int64 = 0
    holder: OptionalReference = None
    checked_at: Timestamp | None = None


class Parcel(CanonicalModel):
    """A row that other programs know by an id which documents generate."""

    parcel_id: Id
    tenant_id: TenantId
    batch: Id
    label: OptionalReference = None
    amount: Int64 = 0
    checked_at: Timestamp | None = None


class Scan(CanonicalModel):
    """A log entry of a parcel, with such an id too."""

    parcel_id: Id
    sequence: PositiveInt | None = None
    batch: Id
    message: Trimmed


class Fare(CanonicalModel):
    """A nested model whose fields have names that no path leads to."""

    amount: Annotated[Int64, Field(alias="$amount")] = 0
    paid_at: Annotated[Timestamp | None, Field(alias="paid.at")] = None


class Ticket(CanonicalModel):
    """A row that other programs know by its number, with fields under the names that they use."""

    number: Int64
    tenant_id: TenantId
    batch: Id
    amount: Int64 = 0
    updated_at: Annotated[Timestamp | None, Field(alias="_updatedAt")] = None
    revision: Annotated[Int64, Field(alias="__v")] = 0
    kind: Annotated[OptionalText, Field(alias="_class")] = None
    seat_row: Annotated[OptionalText, Field(alias="seat_row")] = None
    remark: Annotated[OptionalText, Field(alias='it\'s "50%"')] = None
    price: Annotated[Int64, Field(alias="$price")] = 0
    place: Annotated[OptionalText, Field(alias="hall.place")] = None
    fares: Annotated[tuple[Fare, ...], Field(alias="_fares")] = ()
    extra: ExtraProperties = Field(default_factory=dict)


class Stub(CanonicalModel):
    """A row of a ticket, with a key of two parts in its id."""

    ticket: Int64
    gate: Id
    batch: Id
    amount: Int64 = 0
    checked_at: Timestamp | None = None
    others: ExtraProperties = Field(default_factory=dict, exclude_if=is_empty)


NAME: Final = "kit"


class KitOptions(ModuleOptions):
    """Options of the module; nothing expires unless a test says so."""

    note_retention_days: Days = 0


NOTES: Final = Entity(
    name="notes",
    singular="note",
    module=NAME,
    model=Note,
    key_parts=(text("id"),),
    tenancy=Tenancy.required(),
    group="kit",
    narrow=("width", "seats"),
    storage=(
        Marker(name="archivedAt", kind=Kind.INSTANT, plain=True),
        Marker(name="archivedBy"),
        Marker(name="revision", kind=Kind.INTEGER),
    ),
    indexes=(
        Index(
            fields=("tenantId", "batch", "title"),
            name="tenant_title",
            unique=True,
            where=(IsNull("archivedAt"),),
            noun="title",
        ),
        Index(fields=("tenantId", "batch", "-rank", "id"), name="tenant_rank"),
        Index(fields=("closedAt", "id"), name="closed"),
        Index(fields=("batch", "spot.label", "-spot.seenAt"), name="spot"),
        Index(fields=("tags",), name="tags"),
    ),
    retention=Retention(
        field="closedAt", option="note_retention_days", where=(OneOf("level", ("low", "middle")),)
    ),
    versioned=True,
)
PLACES: Final = Entity(
    name="places",
    singular="place",
    module=NAME,
    model=Place,
    key_parts=(text("shelf"), text("slot")),
    tenancy=Tenancy.required(),
    group="kit",
)


def content_digest_of(model: CanonicalModel, storage: Mapping[str, object]) -> str:
    """Return the digest of the whole model."""
    del storage
    return CanonicalJsonSerializer.digest(model)


def spot_count_of(model: CanonicalModel, storage: Mapping[str, object]) -> int:
    """Return the number of spots of a device."""
    del storage
    return len(cast("Device", model).spots)


DEVICES: Final = Entity(
    name="devices",
    singular="device",
    module=NAME,
    model=Device,
    key_parts=(uuid("id"),),
    tenancy=Tenancy.optional(),
    group="kit",
    layout=Layout.PAYLOAD,
    beside=(
        "id",
        "tenantId",
        "batch",
        "serial",
        "level",
        "urgent",
        "rank",
        "holder",
        "attempts",
        "dueAt",
    ),
    storage=(Marker(name="importedBy"), Marker(name="importedAt", kind=Kind.INSTANT)),
    derived=(
        Derived(name="contentDigest", kind=Kind.TEXT, value=content_digest_of),
        Derived(name="spotCount", kind=Kind.INTEGER, value=spot_count_of, bits=32),
    ),
    indexes=(
        Index(fields=("serial",), name="serial", unique=True, where=(IsPresent("serial"),), noun="serial"),
        Index(fields=("tenantId", "batch", "dueAt", "id"), name="tenant_due"),
        Index(fields=("spots.label",), name="spots"),
    ),
    versioned=True,
)
PARTS: Final = Entity(
    name="parts",
    singular="part",
    module=NAME,
    model=Part,
    key_parts=(uuid("deviceId"), text("name")),
    tenancy=Tenancy.through_parent(),
    group="kit",
    parent=Parent(entity=DEVICES, field="deviceId"),
)
ENTRIES: Final = Entity(
    name="entries",
    singular="entry",
    module=NAME,
    model=Entry,
    key_parts=(uuid("deviceId"), int64("sequence")),
    tenancy=Tenancy.through_parent(),
    group="kit",
    parent=Parent(entity=DEVICES, field="deviceId"),
    append_only=True,
    sequence="sequence",
)
LINES: Final = Entity(
    name="lines",
    singular="line",
    module=NAME,
    model=Line,
    key_parts=(text("noteId"), int64("sequence")),
    tenancy=Tenancy.required(),
    group="kit",
    parent=Parent(entity=NOTES, field="noteId"),
    append_only=True,
    sequence="sequence",
)
EVENTS: Final = Entity(
    name="events",
    singular="event",
    module=NAME,
    model=Event,
    key_parts=(uuid("eventId"),),
    tenancy=Tenancy.required(),
    group="kit",
    layout=Layout.PAYLOAD,
    beside=("eventId", "noteId", "sequence", "tenantId", "batch"),
    parent=Parent(entity=NOTES, field="noteId"),
    indexes=(Index(fields=("tenantId", "noteId", "-sequence"), name="note"),),
    append_only=True,
    sequence="sequence",
)
COUNTERS: Final = Entity(
    name="counters",
    singular="counter",
    module=NAME,
    model=Counter,
    key_parts=(int64("number"),),
    tenancy=Tenancy.none(),
    group="kit",
)
PARCELS: Final = Entity(
    name="parcels",
    singular="parcel",
    module=NAME,
    model=Parcel,
    key_parts=(text("parcelId"),),
    tenancy=Tenancy.required(),
    group="kit",
    indexes=(
        Index(fields=("label",), name="label", unique=True, where=(IsPresent("label"),), noun="label"),
        Index(fields=("tenantId", "batch", "amount", "parcelId"), name="tenant_amount"),
    ),
    versioned=True,
    generated_id=True,
)
SCANS: Final = Entity(
    name="scans",
    singular="scan",
    module=NAME,
    model=Scan,
    key_parts=(text("parcelId"), int64("sequence")),
    tenancy=Tenancy.through_parent(),
    group="kit",
    parent=Parent(entity=PARCELS, field="parcelId"),
    append_only=True,
    sequence="sequence",
    generated_id=True,
)
TICKETS: Final = Entity(
    name="tickets",
    singular="ticket",
    module=NAME,
    model=Ticket,
    key_parts=(int64("number"),),
    tenancy=Tenancy.required(),
    group="kit",
    indexes=(Index(fields=("tenantId", "_updatedAt", "number"), name="tenant_updated"),),
    key_as_id=True,
)
STUBS: Final = Entity(
    name="stubs",
    singular="stub",
    module=NAME,
    model=Stub,
    key_parts=(int64("ticket"), text("gate")),
    tenancy=Tenancy.through_parent(),
    group="kit",
    parent=Parent(entity=TICKETS, field="ticket"),
    versioned=True,
    key_as_id=True,
)
KIT: Final = Module(
    name=NAME,
    entities=(
        *(NOTES, PLACES, DEVICES, PARTS, ENTRIES, LINES, EVENTS, COUNTERS, PARCELS, SCANS),
        *(TICKETS, STUBS, *TYPED_ENTITIES),
    ),
)


def by_access(module: ModuleSpec[object]) -> ModuleSpec[Access]:
    """Return a module that hands out the access in place of its repositories."""
    return ModuleSpec(catalog=module.catalog, title=module.title, package=module.package)


MODULE: Final[ModuleSpec[Access]] = ModuleSpec(catalog=KIT, title="Kit", package="twinstore.testing")
"""The module as a driver opens it; it has no migrations, its tables follow from the description."""


M = TypeVar("M", bound=CanonicalModel)


@dataclass(frozen=True, slots=True)
class DefaultsOnly(AccessDefaults):
    """Hides that a driver overrides ``put``, ``count``, ``mark`` and ``append``."""

    inner: Access

    @property
    @override
    def binding(self) -> Binding:
        return self.inner.binding

    @override
    def find(
        self, entity: Entity[M], scope: Tenants, keys: Sequence[Key | UniqueKey]
    ) -> tuple[Row[M] | None, ...]:
        return self.inner.find(entity, scope, keys)

    @override
    def page(self, entity: Entity[M], query: Query) -> Page[Row[M]]:
        return self.inner.page(entity, query)

    @override
    def insert(self, entity: Entity[M], scope: Tenants, row: Row[M]) -> Row[M]:
        return self.inner.insert(entity, scope, row)

    @override
    def change(self, refs: Sequence[Ref], rule: Rule) -> Rows:
        return self.inner.change(refs, rule)

    @override
    def remove(self, entity: Entity, query: Query) -> int:
        return self.inner.remove(entity, query)

    @contextmanager
    @override
    def unit(self, scope: Tenants, *, atomic: bool = True) -> Generator[Access]:
        with self.inner.unit(scope, atomic=atomic) as access:
            yield type(self)(access)


def by_defaults(access: Access) -> Access:
    """Return the guarded access of a driver without what it overrides."""
    assert isinstance(access, GuardedAccess)
    return replace(access, inner=DefaultsOnly(access.inner))


MODULE_BY_DEFAULTS: Final[ModuleSpec[Access]] = replace(MODULE, repositories=by_defaults)
