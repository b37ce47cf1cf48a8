"""What exists: modules and entities with key, order, retention and storage markers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from twinstore.errors import ValidationError

if TYPE_CHECKING:
    from pydantic.fields import FieldInfo

    from twinstore.canonical import CanonicalModel

__all__ = ["Entity", "Module", "Retention"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """Rows whose instant in ``field`` is older than the option allows are due for removal."""

    field: str
    option: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Entity:
    """One stored entity.

    Attributes:
        name: name of the collection, of the table inside the schema, and in commands and reports.
        singular: name in messages.
        key: wire names (or storage markers) that identify a row, in key order; unique across tenants.
        tenant_field: wire name or storage marker that holds the tenant.
        group: logical group in parity reports.
        markers: storage markers, internal fields whose value survives a backfill.
        marker_times: those markers that are instants.
        append_only: rows are never changed, not even by a backfill that overwrites.
    """

    name: str
    singular: str
    module: str
    model: type[CanonicalModel]
    key: tuple[str, ...]
    tenant_field: str
    group: str
    markers: tuple[str, ...] = ()
    marker_times: tuple[str, ...] = ()
    retention: Retention | None = None
    append_only: bool = False

    @property
    def identity(self) -> dict[str, str]:
        """The wire names of key and tenant that stand in the model, each with its Python name.

        Those that are storage markers are left out.
        """
        names = {field.serialization_alias or field.alias or name: name for name, field in self._fields}
        return {wire: names[wire] for wire in (*self.key, self.tenant_field) if wire not in self.markers}

    @property
    def _fields(self) -> list[tuple[str, FieldInfo]]:
        return list(self.model.model_fields.items())


@dataclass(frozen=True, slots=True, kw_only=True)
class Module:
    """A module with its entities in the order in which they are copied: parents first."""

    name: str
    entities: tuple[Entity, ...]

    def entity(self, name: str) -> Entity:
        """Return the entity with that name.

        Raises:
            ValidationError: there is none; names those that exist.
        """
        for entity in self.entities:
            if entity.name == name:
                return entity
        known = ", ".join(entity.name for entity in self.entities)
        raise ValidationError(f"Module {self.name} has no entity {name!r}; it has {known}.", module=self.name)
