"""What exists: the one description of every entity, from which drivers, tools, kit and documents derive.

An :class:`Entity` says what is stored and who may see it. It names no column type of a server where the model
says it already, no statement and no driver. Names of fields are wire names, or names of storage markers and
derived fields.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property
from typing import TYPE_CHECKING, Generic

from typing_extensions import TypeVar, override

from twinstore.canonical import CanonicalModel
from twinstore.catalog_checks import problems, problems_of_module
from twinstore.catalog_fields import Derived, Marker
from twinstore.copylife import LifeInCopy, Release
from twinstore.errors import ValidationError
from twinstore.indexes import EVERYWHERE, Index, StoreKind
from twinstore.keys import Key, KeyPart, KeyType, digits, int64, text, uuid
from twinstore.readers import Read, readers_of
from twinstore.shapes import FieldShape, Kind, instant_paths, shapes_of
from twinstore.tenancy import ALL_TENANTS, NO_TENANT, Owner, Tenancy, TenancyKind, Tenant, Tenants, admits

if TYPE_CHECKING:
    from twinstore.access import Row
    from twinstore.query import Condition

__all__ = [
    "Derived",
    "Entity",
    "Index",
    "Key",
    "KeyPart",
    "KeyType",
    "Layout",
    "LifeInCopy",
    "Marker",
    "Module",
    "Parent",
    "Release",
    "Retention",
    "StoreKind",
    "Tenancy",
    "TenancyKind",
    "digits",
    "int64",
    "text",
    "uuid",
]

# An entity whose model does not matter is written without its parameter.
M_co = TypeVar("M_co", bound=CanonicalModel, covariant=True, default=CanonicalModel)


class Layout(Enum):
    """How a table holds the model; documents hold it by field in either case."""

    COLUMNS = "one column per field of the model"
    PAYLOAD = "the whole model in one JSON column, markers and repeated fields beside it"


@dataclass(frozen=True, slots=True, kw_only=True)
class Parent:
    """The entity whose row must exist, and the field that holds its key; removing it removes its children."""

    entity: Entity
    field: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """Rows whose instant in ``field`` is older than the option allows are due for removal.

    ``where`` narrows it to rows that are finished.
    """

    field: str
    option: str
    where: tuple[Condition, ...] = ()


# Without slots, which leave no place for cached properties; equal by name, since functions never are.
@dataclass(frozen=True, kw_only=True, eq=False)
class Entity(Generic[M_co]):
    """One stored entity.

    Attributes:
        name: name of the table inside the schema, and in commands and reports.
        singular: name in messages.
        module: the module it belongs to.
        model: what a row is to a caller; the base of several models, see
            :class:`~twinstore.variants.VariantModel`, where they share a table.
        key_parts: what identifies a row, in order; unique across tenants. A field of the model that stands in
            the payload alone is an expression on it in tables, whose own primary key is the assigned marker.
        tenancy: how rows belong to tenants.
        group: logical group in parity reports.
        layout: how a table holds the model.
        beside: fields of the model that a payload layout repeats as columns.
        columns: names of columns that do not follow the custom, by wire name, marker or derived field.
        fixed_table: whether the table is a customer's: it has no column that counts changes, and its instants
            have six digits, into which the library writes whole milliseconds all the same.
        narrow: integer fields, or lists of integers, that a table holds in 32 bits.
        filled: text fields that a table refuses when they are empty.
        storage: storage markers.
        derived: internal fields that follow from model and markers, in the order of documents.
        derived_key: where the one part of the key is a marker: computes it for rows without a key of their
            own, from the markers and the canonical JSON of the model without its key. Such a model names the
            key only where it is not the computed one.
        indexes: all indexes but that of the key.
        parent: the entity this one belongs to.
        retention: which rows are due for removal.
        dated: the instant of the last change of a row, or of its making where nothing tells the last change;
            tools choose rows by it.
        append_only: rows are never changed, not even by a copy that overwrites.
        versioned: stores count the changes of each row, so that writing an equal row again still conflicts
            with another writer.
        life: what a copy does with the rows.
        release: of rows that are copied as released: how.
        kept_apart: keys of rows that each store keeps to itself: neither copied, compared nor counted.
        sequence: the integer field of an ordered log that :meth:`~twinstore.access.Access.append` assigns.
        own_id: the field that is ``_id`` in documents where the key is another one that follows from it.
        generated_id: whether documents have a generated ``ObjectId`` as ``_id``, which is no part of the key:
            its fields stand under their own names, and a unique index finds a row.
        collection: name of the collection; default: ``name``.
        collection_setting: the setting of the driver that may replace the name of the collection.
    """

    name: str
    singular: str
    module: str
    model: type[M_co]
    key_parts: tuple[KeyPart, ...]
    tenancy: Tenancy
    group: str
    layout: Layout = Layout.COLUMNS
    beside: tuple[str, ...] = ()
    columns: Mapping[str, str] = field(default_factory=dict[str, str])
    fixed_table: bool = False
    narrow: tuple[str, ...] = ()
    filled: tuple[str, ...] = ()
    storage: tuple[Marker, ...] = ()
    derived: tuple[Derived, ...] = ()
    derived_key: Callable[[Mapping[str, object], bytes], str] | None = None
    indexes: tuple[Index, ...] = ()
    parent: Parent | None = None
    retention: Retention | None = None
    dated: str | None = None
    append_only: bool = False
    versioned: bool = False
    life: LifeInCopy = LifeInCopy.COPIED
    release: Release | None = None
    kept_apart: tuple[Key, ...] = ()
    sequence: str | None = None
    own_id: str | None = None
    generated_id: bool = False
    collection: str = ""
    collection_setting: str | None = None

    def __post_init__(self) -> None:
        """Refuse a description that contradicts itself, or that the stores would understand differently."""
        if not self.collection:
            # The class is frozen, and the default follows from another field.
            object.__setattr__(self, "collection", self.name)
        problem = next(problems(self), None)
        if problem is not None:
            raise ValueError(f"{self.name} {problem}")  # met by programmers only

    @override
    def __hash__(self) -> int:
        """Return a hash by identity of module and name."""
        return hash((self.module, self.name))

    @override
    def __eq__(self, other: object) -> bool:
        """Whether it is the entity of the same module and name."""
        return isinstance(other, Entity) and (self.module, self.name) == (other.module, other.name)

    @override
    def __repr__(self) -> str:
        """Return module and name."""
        return f"<Entity {self.module}.{self.name}>"

    @cached_property
    def key(self) -> tuple[str, ...]:
        """The fields of the key, in order."""
        return tuple(part.field for part in self.key_parts)

    @cached_property
    def tenant_field(self) -> str | None:
        """The field that names the tenant."""
        return self.tenancy.field

    @cached_property
    def markers(self) -> tuple[str, ...]:
        """The names of the storage markers."""
        return tuple(marker.name for marker in self.storage)

    @cached_property
    def marker_times(self) -> tuple[str, ...]:
        """The storage markers that are instants."""
        return tuple(marker.name for marker in self.storage if marker.kind is Kind.INSTANT)

    @cached_property
    def shapes(self) -> dict[str, FieldShape]:
        """The fields of the model by wire name, in canonical order."""
        return {shape.wire: shape for shape in shapes_of(self.model)}

    @cached_property
    def known(self) -> dict[str, Kind]:
        """Every name that a query, key or index may use, with its kind; a marker hides a field."""
        kinds = {wire: shape.value.kind for wire, shape in self.shapes.items()}
        kinds |= {derived.name: derived.kind for derived in self.derived}
        # Markers last: where a model repeats one as a field, the marker is what stores index.
        return kinds | {marker.name: marker.kind for marker in self.storage}

    @cached_property
    def depth(self) -> int:
        """How many ancestors a row has; rows of one step are written in this order, parents first."""
        return 0 if self.parent is None else self.parent.entity.depth + 1

    @cached_property
    def queried(self) -> frozenset[str]:
        """The names by which lists filter, sort and count: those that have a column in either layout."""
        everywhere = {derived.name for derived in self.derived if derived.stores == EVERYWHERE}
        if self.layout is Layout.COLUMNS:
            return frozenset({*self.shapes, *self.markers, *everywhere})
        apart = {*self.key, *self.beside, *self.markers, *everywhere}
        return frozenset(apart if self.tenant_field is None else {*apart, self.tenant_field})

    @cached_property
    def instants(self) -> tuple[tuple[str, ...], ...]:
        """The paths of all instants of a row, markers included."""
        return (*instant_paths(self.model), *((name,) for name in self.marker_times))

    @cached_property
    def identity(self) -> dict[str, str]:
        """The wire names of key and tenant that stand in the model, each with its Python name.

        Those that are storage markers are left out.
        """
        wanted = self.key if self.tenant_field is None else (*self.key, self.tenant_field)
        return {wire: self.shapes[wire].name for wire in wanted if wire in self._plain_fields}

    @cached_property
    def _plain_fields(self) -> frozenset[str]:
        """The fields of the model that no marker hides."""
        return frozenset(self.shapes.keys() - {*self.markers})

    @cached_property
    def single_key(self) -> str | None:
        """The one text or UUID field that identifies a row, ``None`` where several or a number do."""
        (first, *rest) = self.key_parts
        return first.field if not rest and first.type is not KeyType.INT64 else None

    @property
    def versioned_table(self) -> bool:
        """Whether tables count the changes of each row in a column."""
        return self.versioned and not self.fixed_table

    @cached_property
    def document_id(self) -> str | None:
        """The one field that is ``_id`` in documents; ``None`` where that joins the key, or is generated."""
        return None if self.generated_id else self.own_id or self.single_key

    @cached_property
    def key_in_payload(self) -> str | None:
        """The key, where a table holds it in the payload alone; ``None`` where it has a column."""
        name = self.single_key
        alone = self.layout is Layout.PAYLOAD and name in self._plain_fields and name not in self.beside
        return name if alone else None

    @cached_property
    def assigned(self) -> str | None:
        """The marker that is the insertion number of a row."""
        return next((marker.name for marker in self.storage if marker.assigned), None)

    @cached_property
    def uniques(self) -> tuple[Index, ...]:
        """The unique indexes beside the key."""
        return tuple(index for index in self.indexes if index.unique and set(index.names) != set(self.key))

    def unique(self, name: str) -> Index:
        """Return the unique index of that name; ``LookupError`` when there is none."""
        for index in self.uniques:
            if index.name == name:
                return index
        raise LookupError(f"{self.name} has no unique value {name!r}")  # met by programmers only

    @cached_property
    def _readers(self) -> dict[str, Read]:
        return readers_of(self)

    def value(self, model: CanonicalModel, storage: Mapping[str, object], name: str) -> object:
        """Return what a row holds under a wire name, marker or derived field."""
        return self._readers[name](model, storage)

    def key_of(self, model: CanonicalModel, storage: Mapping[str, object]) -> Key:
        """Return the key of a row."""
        # Most keys have one part, and each call of a repository passes here: no list is built for them.
        if self._single_reader is not None:
            return (_key_value(self._single_reader(model, storage)),)
        return tuple([_key_value(self._readers[name](model, storage)) for name in self.key])

    @cached_property
    def _single_reader(self) -> Read | None:
        return self._readers[self.key[0]] if len(self.key) == 1 else None

    @cached_property
    def _identity_readers(self) -> tuple[Read, ...]:
        wanted = self.key if self.tenant_field is None else (*self.key, self.tenant_field)
        return tuple(self._readers[name] for name in dict.fromkeys(wanted))

    def is_same(self, one: Row, other: Row) -> bool:
        """Whether two rows have one key and one tenant."""
        return all(
            read(one.model, one.storage) == read(other.model, other.storage)
            for read in self._identity_readers
        )

    def owner_of(self, model: CanonicalModel, storage: Mapping[str, object]) -> Owner:
        """Return who owns a row; of an entity without a tenant of its own nobody does."""
        tenant = self.tenant_of(model, storage)
        return NO_TENANT if tenant is None else Tenant(tenant)

    def tenant_of(self, model: CanonicalModel, storage: Mapping[str, object]) -> str | None:
        """Return the tenant that a row names, if it names one."""
        if self.tenant_field is None:
            return None
        tenant = self._readers[self.tenant_field](model, storage)
        return tenant if isinstance(tenant, str) else None

    def is_seen(self, scope: Tenants, model: CanonicalModel, storage: Mapping[str, object]) -> bool:
        """Whether a row is known to be seen in a scope; a row of a parent does not tell."""
        match self.tenancy.kind:
            case TenancyKind.NONE:
                return True
            case TenancyKind.PARENT:
                return scope is ALL_TENANTS
            case _:
                return admits(scope, self.owner_of(model, storage))

    def key_text(self, key: Key) -> str:
        """Return a key as messages and reports show it."""
        return ":".join(map(str, key))

    def located(self, key: str | None = None, *, driver: str | None = None) -> dict[str, str | None]:
        """Return where an error of a row happened, as errors take it; ``key`` as messages show it."""
        return {"module": self.module, "entity": self.name, "key": key, "driver": driver}

    def admits_key(self, key: tuple[object, ...]) -> bool:
        """Whether stored values can be a key of this entity."""
        return len(key) == len(self.key_parts) and all(
            part.type.admits(value) for part, value in zip(self.key_parts, key, strict=True)
        )


def _key_value(value: object) -> str | int:
    if isinstance(value, (str, int)):
        return value
    raise TypeError(f"{type(value).__name__} cannot be part of a key")  # met by programmers only


@dataclass(frozen=True, slots=True, kw_only=True)
class Module:
    """A module with its entities in the order in which they are copied: parents first."""

    name: str
    entities: tuple[Entity, ...] = field(default_factory=tuple)

    def __post_init__(self) -> None:
        """Refuse entities that cannot be told apart or do not belong together."""
        problem = next(problems_of_module(self), None)
        if problem is not None:
            raise ValueError(f"module {self.name} {problem}")  # met by programmers only

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
