"""An entity with lists of anything, lists that hold nulls, and a map of objects of free JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pydantic import Field

from twinstore.catalog.entity import Entity, Module
from twinstore.catalog.keys import text
from twinstore.catalog.tenancy import Tenancy
from twinstore.models.canonical import CanonicalModel
from twinstore.models.fields import (
    FreeList,
    FreeObject,
    Id,
    Int64,
    OptionalText,
    TenantId,
    Text,
    Timestamp,
    date_object,
)
from twinstore.plugins.module_spec import ModuleSpec
from twinstore.testing.datasets import LISTS
from twinstore.testing.entities import by_access
from twinstore.testing.instants import at
from twinstore.testing.scalars import TYPED_OBJECTS

if TYPE_CHECKING:
    from pydantic import JsonValue

    from twinstore.access.protocol import Access


class Spot(CanonicalModel):
    """A nested model with an instant."""

    seen_at: Timestamp
    details: FreeObject = Field(default_factory=dict)


class Mixed(CanonicalModel):
    """A row with each of them."""

    id: Id
    tenant_id: TenantId
    things: FreeList = Field(default_factory=list)
    labels: tuple[OptionalText, ...] = ()
    numbers: tuple[Int64 | None, ...] = ()
    instants: tuple[Timestamp | None, ...] = ()
    spots: tuple[Spot | None, ...] = ()
    notes: dict[Text, FreeObject] = Field(default_factory=dict)


MIXED: Final = Entity(
    name="mixed",
    singular="mixed row",
    module="lists",
    model=Mixed,
    key_parts=(text("id"),),
    tenancy=Tenancy.required(),
    group="lists",
)
MODULE: Final[ModuleSpec[Access]] = by_access(
    ModuleSpec(
        catalog=Module(name="lists", entities=(MIXED,)),
        repositories=lambda access: access,
        title="Lists",
        package="twinstore.testing",
    )
)


def a_mixed(number: int) -> Mixed:
    """Return a row."""
    typed: dict[str, JsonValue] = {f"n{number:02}": value for number, value in enumerate(TYPED_OBJECTS)}
    # In the order in which JSONB keeps names.
    notes: dict[str, dict[str, JsonValue]] = {"$oid": typed, "plain": {}}
    return Mixed(
        id=f"row-{number:02}",
        tenant_id="acme",
        things=LISTS[number % len(LISTS)],
        labels=(None, "a", None)[: number % 4],
        numbers=(1, None, 2**40)[: number % 4],
        instants=(None, at(0.001))[number % 2 :],
        spots=(None, Spot(seen_at=at(1), details={"at": date_object(at(1))}))[number % 3 :],
        notes=notes if number % 2 else {},
    )
