"""Entities of the kit with the types that databases have and JSON has not, as fields and as keys.

    wares      key of an ObjectId, tenant required, columns; unique where present, versioned
    stamps     key of an ObjectId and a UUID, tenant of the ware, columns
    crates     key of a UUID, tenant required, payload; an ObjectId and a decimal are columns too

No driver knows them by name.
"""

from __future__ import annotations

from typing import Final

from pydantic import Field

from twinstore.catalog.conditions import IsPresent
from twinstore.catalog.entity import Entity, Layout, Parent
from twinstore.catalog.indexes import Index
from twinstore.catalog.keys import binary_uuid, object_id
from twinstore.catalog.tenancy import Tenancy
from twinstore.models.canonical import CanonicalModel
from twinstore.models.fields import (
    BinaryUuid,
    Bytes,
    DecimalNumber,
    ExtraProperties,
    Id,
    Name,
    ObjectIdText,
    TenantId,
    is_empty,
)

__all__ = ["CRATES", "STAMPS", "TYPED_ENTITIES", "WARES", "Crate", "Offer", "Stamp", "Ware"]

NAME: Final = "kit"


class Offer(CanonicalModel):
    """A nested model with such values."""

    price: DecimalNumber
    buyer: ObjectIdText | None = None
    contract: BinaryUuid | None = None
    seal: Bytes | None = None


class Ware(CanonicalModel):
    """A row with a value of every such type, alone, absent, in lists and nested."""

    id: ObjectIdText
    tenant_id: TenantId
    batch: Id
    name: Name
    price: DecimalNumber
    maker: ObjectIdText | None = None
    design: BinaryUuid | None = None
    weight: DecimalNumber | None = None
    image: Bytes = b""
    seal: Bytes | None = None
    makers: tuple[ObjectIdText, ...] = ()
    designs: tuple[BinaryUuid, ...] = ()
    weights: tuple[DecimalNumber, ...] = ()
    seals: tuple[Bytes, ...] = Field(default=(), exclude_if=is_empty)
    offer: Offer | None = None
    offers: tuple[Offer, ...] = Field(default=(), exclude_if=is_empty)


class Stamp(CanonicalModel):
    """A row that belongs to the owner of its ware."""

    ware_id: ObjectIdText
    stamp: BinaryUuid
    batch: Id
    value: DecimalNumber
    image: Bytes = b""


class Crate(CanonicalModel):
    """A row that is held as one document everywhere."""

    id: BinaryUuid
    tenant_id: TenantId
    batch: Id
    price: DecimalNumber
    maker: ObjectIdText | None = None
    seal: Bytes | None = None
    offers: tuple[Offer, ...] = Field(default=(), exclude_if=is_empty)
    extra: ExtraProperties = Field(default_factory=dict, exclude_if=is_empty)


WARES: Final = Entity(
    name="wares",
    singular="ware",
    module=NAME,
    model=Ware,
    key_parts=(object_id("id"),),
    tenancy=Tenancy.required(),
    group="kit",
    indexes=(
        Index(fields=("design",), name="design", unique=True, where=(IsPresent("design"),), noun="design"),
        Index(fields=("tenantId", "batch", "price", "id"), name="tenant_price"),
        Index(fields=("tenantId", "batch", "maker", "id"), name="tenant_maker"),
    ),
    versioned=True,
)
STAMPS: Final = Entity(
    name="stamps",
    singular="stamp",
    module=NAME,
    model=Stamp,
    key_parts=(object_id("wareId"), binary_uuid("stamp")),
    tenancy=Tenancy.through_parent(),
    group="kit",
    parent=Parent(entity=WARES, field="wareId"),
)
CRATES: Final = Entity(
    name="crates",
    singular="crate",
    module=NAME,
    model=Crate,
    key_parts=(binary_uuid("id"),),
    tenancy=Tenancy.required(),
    group="kit",
    layout=Layout.PAYLOAD,
    beside=("id", "tenantId", "batch", "price", "maker"),
    indexes=(Index(fields=("tenantId", "batch", "-price", "id"), name="tenant_price"),),
)
TYPED_ENTITIES: Final = (WARES, STAMPS, CRATES)
