"""Rows: an entity as it is stored, that is its wire form by field, its storage markers and derived fields."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, TypeVar

from twinstore.access import Row
from twinstore.canonical import CanonicalModel, decode_stored
from twinstore.catalog import TenancyKind
from twinstore.query import holds
from twinstore.tenancy import NO_TENANT, UNKNOWN_TENANT, Tenant
from twinstore_memory.store import DRIVER, Store, Table, Unit

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping

    from twinstore.catalog import Entity, Index, Key
    from twinstore.tenancy import StoredOwner

__all__ = ["StoredRow", "decode", "encode", "table", "write"]

M = TypeVar("M", bound=CanonicalModel)
NO_MARKERS: Final[Mapping[str, object]] = {}


@dataclass(frozen=True, slots=True)
class StoredRow:
    """One stored row. None of the mappings is ever changed."""

    entity: Entity
    key: Key
    document: Mapping[str, object]
    markers: Mapping[str, object] = field(default_factory=dict)
    derived: Mapping[str, object] = field(default_factory=dict)

    @property
    def owner(self) -> StoredOwner:
        """Who owns the row; of an entity without a tenant of its own nobody does."""
        name = self.entity.tenant_field
        tenant = None if name is None else self.value(name)
        if isinstance(tenant, str):
            return Tenant(tenant)
        required = self.entity.tenancy.kind is TenancyKind.REQUIRED
        return UNKNOWN_TENANT if required or tenant is not None else NO_TENANT

    @property
    def tenant_id(self) -> str | None:
        """The tenant, ``None`` when there is none or it cannot be told."""
        owner = self.owner
        return owner.id if isinstance(owner, Tenant) else None

    @property
    def parent_key(self) -> Key | None:
        """The key of the parent, ``None`` when there is none."""
        parent = self.entity.parent
        value = None if parent is None else self.value(parent.field)
        return (value,) if isinstance(value, (str, int)) else None

    @property
    def key_text(self) -> str:
        """The key as messages show it."""
        return self.entity.key_text(self.key)

    def value(self, name: str) -> object:
        """Return a storage marker, a property of the document or a derived field; ``None`` when absent."""
        if name in self.entity.markers:
            return self.markers.get(name)
        return self.document.get(name, self.derived.get(name))

    @property
    def unique(self) -> tuple[tuple[Index, Hashable], ...]:
        """The unique values that the row occupies beside its key."""
        return tuple(
            (index, unique_value(index, tuple(self.value(name) for name in index.names)))
            for index in self.entity.uniques
            if all(holds(condition, self.value(condition.field)) for condition in index.where)
        )


def unique_value(index: Index, values: tuple[object, ...]) -> Hashable:
    """Return what stands in the store for the values of a unique index."""
    return (index.name, *values)


def table(entity: Entity) -> Table[StoredRow]:
    """Return the table of an entity."""
    return Table(f"{entity.module}.{entity.name}")


def encode(entity: Entity, model: CanonicalModel, markers: Mapping[str, object] = NO_MARKERS) -> StoredRow:
    """Return the row of a model; absent markers are left out."""
    present = {name: value for name, value in markers.items() if value is not None}
    derived = {item.name: item.value(model, present) for item in entity.derived}
    return StoredRow(entity, entity.key_of(model, present), model.wire(), present, derived)


def decode(entity: Entity[M], row: StoredRow) -> Row[M]:
    """Return the model of a row with its markers.

    Raises:
        DocumentDecodeError: the document does not form one.
    """
    model = decode_stored(entity.model, row.document, entity=entity.name, key=row.key_text, driver=DRIVER)
    return Row(model, row.markers)


def write(unit: Unit, row: StoredRow) -> None:
    """Stage a row; its key and its unique values must be claimed and free."""
    unit.put(table(row.entity), row.key, row, (value for _, value in row.unique))


def plant(store: Store, row: StoredRow) -> None:
    """Write a row past every rule and check, also a broken one: for tests of what reads make of it."""
    unit = store.begin()
    unit.claim(table(row.entity), row.key)
    write(unit, row)
    unit.commit()


def stored_rows(store: Store, entity: Entity) -> dict[Key, StoredRow]:
    """Return what is committed, past the repositories."""
    return {row.key: row for row in store.begin().values(table(entity))}
