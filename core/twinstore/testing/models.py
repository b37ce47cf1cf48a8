"""The models of the kit's own entities; see :mod:`twinstore.testing.entities`."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from pydantic import Field, StringConstraints

from twinstore.models.canonical import CanonicalModel
from twinstore.models.enums import NumberedEnum
from twinstore.models.fields import (
    Flag,
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

__all__ = [
    "Colour",
    "Counter",
    "Device",
    "Entry",
    "Event",
    "Level",
    "Line",
    "Note",
    "Parcel",
    "Part",
    "Place",
    "Scan",
    "Spot",
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
    """A nested model with an instant of its own."""

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
    spots: tuple[Spot, ...] = Field(default=(), exclude_if=is_empty)


class Part(CanonicalModel):
    """A row that belongs to whoever owns its device."""

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
    """A log entry of a note with a tenant of its own."""

    note_id: Id
    sequence: PositiveInt | None = None
    tenant_id: TenantId
    batch: Id
    message: Trimmed


class Event(CanonicalModel):
    """A log entry of a note with an id of its own; its number only orders it."""

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
