"""Rows: an entity as it is stored, that is its wire form by field and its storage markers."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, TypeVar

from twinstore.canonical import CanonicalModel, decode_stored
from twinstore.scheduler.catalog import SCHEDULES, TRIGGERS
from twinstore_memory.store import DRIVER, Store, Table, Unit

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping

    from twinstore.bulk import Key
    from twinstore.catalog import Entity

__all__ = ["Row", "decode", "encode", "table", "write"]

M = TypeVar("M", bound=CanonicalModel)
NO_MARKERS: Final[Mapping[str, object]] = {}


@dataclass(frozen=True, slots=True)
class Row:
    """One stored row. Neither mapping is ever changed."""

    entity: Entity
    key: Key
    document: Mapping[str, object]
    markers: Mapping[str, object] = field(default_factory=dict)

    @property
    def tenant_id(self) -> str | None:
        """The owner, ``None`` when it cannot be told."""
        tenant = self.value(self.entity.tenant_field)
        return tenant if isinstance(tenant, str) else None

    @property
    def key_text(self) -> str:
        """The key as messages show it."""
        return ":".join(map(str, self.key))

    def value(self, name: str) -> object:
        """Return a storage marker, or a property of the document; ``None`` when absent."""
        return (self.markers if name in self.entity.markers else self.document).get(name)

    @property
    def unique(self) -> tuple[Hashable, ...]:
        """The unique values that the row occupies beside its key."""
        if self.entity is SCHEDULES and self.value("deletedAt") is None:
            return (name_of(self.tenant_id, self.value("name")),)
        if self.entity is TRIGGERS:
            return (self.value("scheduleId"),)
        return ()


def name_of(tenant_id: object, name: object) -> Hashable:
    """Return the unique value that the name of a schedule occupies."""
    return ("name", tenant_id, name)


def table(entity: Entity) -> Table[Row]:
    """Return the table of an entity."""
    return Table(entity.name)


def encode(entity: Entity, model: CanonicalModel, markers: Mapping[str, object] = NO_MARKERS) -> Row:
    """Return the row of a model; absent markers are left out."""
    document = model.wire()
    present = {name: value for name, value in markers.items() if value is not None}
    key = tuple(str((present if name in entity.markers else document)[name]) for name in entity.key)
    return Row(entity, key, document, present)


def decode(row: Row, cls: type[M]) -> M:
    """Return the model of a row.

    Raises:
        DocumentDecodeError: the document does not form one.
    """
    return decode_stored(cls, row.document, entity=row.entity.name, key=row.key_text, driver=DRIVER)


def write(unit: Unit, row: Row) -> None:
    """Stage a row; its key and its unique values must be claimed and free."""
    unit.put(table(row.entity), row.key, row, row.unique)


def plant(store: Store, row: Row) -> None:
    """Write a row past every rule and check, also a broken one: for tests of what reads make of it."""
    unit = store.begin()
    unit.claim(table(row.entity), row.key)
    write(unit, row)
    unit.commit()


def stored_rows(store: Store, entity: Entity) -> dict[Key, Row]:
    """Return what is committed, past the repositories."""
    return {row.key: row for row in store.begin().values(table(entity))}
