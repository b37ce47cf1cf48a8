"""What exists: the one description of every entity, from which drivers, tools, kit and documents derive.

An :class:`Entity` says what is stored and who may see it. It names no column type of a server where the model
says it already, no statement and no driver. Names of fields are wire names, or names of storage markers and
derived fields.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from enum import Enum
from functools import cached_property
from operator import attrgetter
from typing import TYPE_CHECKING, Final, Generic

from typing_extensions import TypeVar, override

from twinstore.catalog.conditions import IsNull, IsPresent
from twinstore.catalog.indexes import EVERYWHERE, Index, InnerPath, StoreKind, inner_path
from twinstore.catalog.keys import Key, KeyPart, KeyType
from twinstore.catalog.tenancy import (
    ALL_TENANTS,
    NO_TENANT,
    Owner,
    Tenancy,
    TenancyKind,
    Tenant,
    Tenants,
    admits,
)
from twinstore.errors import ValidationError
from twinstore.models.canonical import CanonicalModel
from twinstore.models.shapes import (
    TYPED,
    FieldShape,
    Kind,
    holds_typed,
    instant_paths,
    is_whole,
    shapes_of,
    typed_paths,
    variants_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from collections.abc import Set as AbstractSet

    from twinstore.catalog.conditions import Condition
    from twinstore.catalog.row import Row
    from twinstore.models.shapes import ValueShape

__all__ = [
    "NAME",
    "CopyPolicy",
    "Derived",
    "Entity",
    "Layout",
    "Marker",
    "Module",
    "Parent",
    "Release",
    "Retention",
    "RetentionUnit",
    "is_present",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Marker:
    """A storage marker: an internal field whose value survives a copy.

    Attributes:
        name: its name in records, reports and queries.
        kind: text, integer or instant.
        required: whether every row has it.
        plain: whether documents hold it under its own name; internal names start with ``_`` otherwise.
        assigned: whether it is the insertion number of a row, which
            ``Access.next_number`` gives: no two rows have the same, a later one has a
            higher one, and a copy keeps it.
    """

    name: str
    kind: Kind = Kind.TEXT
    required: bool = False
    plain: bool = False
    assigned: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Derived:
    """An internal field that follows from the model and its markers.

    Attributes:
        name: its name; documents prefix it with ``_``.
        kind: text, integer, or the digits of a UUID.
        value: computes it.
        of_content: computes the same from the canonical JSON of the model, for stores that make it anyway.
        bits: of an integer column.
        most: the largest value of an integer that begins at 0, which tables check.
        stores: the families of stores that have it.
        number_of: the field whose number of an enumeration this is. A table sorts by the column of that field
            and has none for this; documents hold the text of the field, which sorts otherwise.
    """

    name: str
    kind: Kind
    value: Callable[[CanonicalModel, Mapping[str, object]], object]
    of_content: Callable[[bytes], object] | None = None
    bits: int = 64
    most: int | None = None
    stores: frozenset[StoreKind] = EVERYWHERE
    number_of: str | None = None


class CopyPolicy(Enum):
    """What a copy does with the rows of an entity."""

    COPIED = "copied"
    LEFT_OUT = "skipped and counted on both sides: the rows are registered again at run time"
    RELEASED = "copied as released, with the higher of the two fences"


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """How a row that may be held is copied, so that the copy is not held.

    A comparison looks at key, tenant and fence alone, because the rest belongs to the last holder; the fence
    is the only value in which a target may be ahead.

    Attributes:
        end: the instant until which it is held; the copy has ``beginning`` there.
        beginning: the instant from which it was held.
        fence: the integer that grows with every new holder; of two stores the higher one counts.
    """

    end: str
    beginning: str
    fence: str


# An entity whose model does not matter is written without its parameter.
M_co = TypeVar("M_co", bound=CanonicalModel, covariant=True, default=CanonicalModel)


class Layout(Enum):
    """How a table holds the model; documents hold it by field in either case."""

    COLUMNS = "one column per field of the model"
    PAYLOAD = "the whole model in one JSON column, markers and repeated fields in columns next to it"


@dataclass(frozen=True, slots=True, kw_only=True)
class Parent:
    """The entity whose row must exist, and the field that holds its key; removing it removes its children."""

    entity: Entity
    field: str


class RetentionUnit(Enum):
    """What the option of a retention holds; 0 or ``False`` keeps all rows.

    ``DAYS`` and ``SECONDS``: the age at which rows are due. ``INSTANT``: whether rows are removed at all; the
    field itself holds the instant from which on a row is due.
    """

    DAYS = "days"
    SECONDS = "seconds"
    INSTANT = "instant"

    def age(self, value: int) -> timedelta | None:
        """Return the age at which rows are due by a value of the option, ``None`` if they never are."""
        if not value:
            return None
        return timedelta(0) if self is RetentionUnit.INSTANT else timedelta(**{self.value: value})


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """Rows whose instant in ``field`` is older than the option allows are due for removal.

    Attributes:
        field: the instant by which a row is judged.
        option: the option of the module that says when.
        where: narrows it to rows that are finished.
        unit: what the option holds.
    """

    field: str
    option: str
    where: tuple[Condition, ...] = ()
    unit: RetentionUnit = RetentionUnit.DAYS


# Without slots, which leave no place for cached properties; equal by name, since functions never are.
@dataclass(frozen=True, kw_only=True, eq=False)
class Entity(Generic[M_co]):
    """One stored entity.

    Attributes:
        name: name of the table inside the schema, and in commands and reports.
        singular: name in messages.
        module: the module it belongs to.
        model: what a row is to a caller; the base of several models, see
            :class:`~twinstore.models.shapes.VariantModel`, where they share a table.
        key_parts: what identifies a row, in order; unique across tenants. A field of the model that is stored
            only in the payload is an expression on it in tables, whose own primary key is the assigned
            marker.
        tenancy: how rows belong to tenants.
        group: logical group in parity reports.
        layout: how a table holds the model.
        beside: fields of the model that a payload layout repeats as columns.
        columns: names of columns that do not follow the convention, by wire name, marker or derived field.
        fixed_table: whether the table is a customer's: it has no column that counts changes, and its instants
            have six digits, into which the library writes whole milliseconds all the same.
        narrow: integer fields, or lists of integers, that a table holds in 32 bits.
        filled: text fields that a table refuses when they are empty.
        storage: storage markers.
        derived: internal fields that follow from model and markers, in the order of documents.
        derived_key: where the one part of the key is a marker: computes it for rows without their own key,
            from the markers and the canonical JSON of the model without its key. Such a model names the key
            only where it is not the computed one.
        indexes: all indexes but that of the key.
        parent: the entity this one belongs to.
        retention: which rows expire.
        dated: the instant of the last change of a row, or of its creation if no field has the last change;
            tools choose rows by it.
        append_only: rows are never changed, not even by a copy that overwrites.
        versioned: stores count the changes of each row, so that writing an equal row again still conflicts
            with another writer.
        copy_policy: what a copy does with the rows.
        release: of rows that are copied as released: how.
        local_keys: keys of rows that each store keeps to itself: neither copied, compared nor counted.
        sequence: the integer field of an ordered log that ``Access.append`` assigns.
        own_id: the field that is ``_id`` in documents where the key is another field that follows from it.
        generated_id: whether documents have a generated ``ObjectId`` as ``_id``, which is not part of the
            key; the fields of the key are stored under their own names, and a unique index finds a row.
        key_as_id: whether ``_id`` in documents holds a key of a number or of several parts as it is: the
            number, or a document with one name a part, in order. Otherwise ``_id`` joins it to a text.
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
    copy_policy: CopyPolicy = CopyPolicy.COPIED
    release: Release | None = None
    local_keys: tuple[Key, ...] = ()
    sequence: str | None = None
    own_id: str | None = None
    generated_id: bool = False
    key_as_id: bool = False
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
        return hash((self.module, self.name))

    @override
    def __eq__(self, other: object) -> bool:
        return isinstance(other, Entity) and (self.module, self.name) == (other.module, other.name)

    @override
    def __repr__(self) -> str:
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
    def is_owned(self) -> bool:
        """Whether rows belong to tenants, by themselves or through a parent; others have no tenant."""
        if self.tenancy.kind is TenancyKind.PARENT and self.parent is not None:
            return self.parent.entity.is_owned
        return self.tenancy.kind is not TenancyKind.NONE

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
    def inner_paths(self) -> dict[str, InnerPath]:
        """The indexed names that lead into a field: to a value of a nested model, or members of a list."""
        # Markers and derived fields are no part of the model, and a marker hides a field.
        plain = self._plain_fields - {item.name for item in self.derived}
        fields = {name: self.shapes[name] for name in plain}
        names = {name for index in self.indexes for name in index.names}
        found = {name: inner_path(fields, name) for name in names}
        return {
            name: path
            for name, path in found.items()
            if path is not None and (len(path.names) > 1 or path.list_depth is not None)
        }

    def is_inner(self, index: Index) -> bool:
        """Whether an index holds what is inside of a field, so that no query of twinstore uses it."""
        return not self.inner_paths.keys().isdisjoint(index.names)

    @cached_property
    def depth(self) -> int:
        """How many ancestors a row has; rows of one step are written in this order, parents first."""
        return 0 if self.parent is None else self.parent.entity.depth + 1

    @cached_property
    def queried(self) -> frozenset[str]:
        """The names by which lists filter, sort and count: those that have a column in either layout."""
        everywhere = {derived.name for derived in self.derived if derived.stores == EVERYWHERE}
        if self.layout is Layout.COLUMNS:
            fields = (wire for wire in self.shapes if self.known[wire] is not Kind.BYTES)
            return frozenset({*fields, *self.markers, *everywhere}) - self.unpathed
        column_names = {*self.key, *self.beside, *self.markers, *everywhere}
        return frozenset(column_names if self.tenant_field is None else {*column_names, self.tenant_field})

    @cached_property
    def typed_queried(self) -> dict[str, Kind]:
        """The ObjectIds, UUIDs and decimals among :attr:`queried`, with their kinds."""
        return {name: self.known[name] for name in self.queried if self.known[name] in TYPED}

    @cached_property
    def typed(self) -> dict[tuple[str, ...], Kind]:
        """The kinds of all ObjectIds, UUIDs, decimals and bytes of a row, by their wire paths."""
        return dict(typed_paths(self.model))

    @cached_property
    def instants(self) -> tuple[tuple[str, ...], ...]:
        """The paths of all instants of a row, markers included."""
        return (*instant_paths(self.model), *((name,) for name in self.marker_times))

    @cached_property
    def identity(self) -> dict[str, str]:
        """The wire names of key and tenant that are fields of the model, each with its Python name.

        Those that are storage markers are omitted.
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
        """The one field that is ``_id`` in documents; ``None`` where that has several, or is generated."""
        if self.key_as_id and len(self.key) == 1:
            return self.key[0]
        return None if self.generated_id else self.own_id or self.single_key

    @cached_property
    def has_free_names(self) -> bool:
        """Whether a field, also of a nested model, has another name than letters, digits and ``_`` inside."""
        return not all(map(WIRE_NAME.fullmatch, names_in(self.model)))

    @cached_property
    def unpathed(self) -> frozenset[str]:
        """The fields of the model that no path of a document leads to; no query may name them."""
        return frozenset(wire for wire in self.shapes if not is_path(wire) or wire == self.extra)

    @cached_property
    def extra(self) -> str | None:
        """The field that holds the properties that no other field names."""
        return next((shape.wire for shape in shapes_of(self.model) if shape.keeps_unknown), None)

    @cached_property
    def taken_names(self) -> frozenset[str]:
        """The names of properties that documents use themselves, so that no unknown one has them."""
        made = (name for name, _ in made_names(self))
        fields = (wire for wire in self.shapes if wire != self.extra)
        return frozenset({*fields, *self.markers, *made})

    def extra_problem(self, model: CanonicalModel) -> str | None:
        """Return why the unknown properties of a model cannot be stored; mostly ``None``."""
        if self.extra is None:
            return None
        taken = self.taken_names.intersection(getattr(model, self.shapes[self.extra].name))
        if not taken:
            return None
        names = ", ".join(sorted(taken))
        return f"{self.extra}: holds {names}, which {self.name} has for itself; move it to where it belongs"

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
        """The unique indexes except that of the key."""
        return tuple(index for index in self.indexes if index.unique and set(index.names) != set(self.key))

    def unique(self, name: str) -> Index:
        """Return the unique index of that name; ``LookupError`` when there is none."""
        for index in self.uniques:
            if index.name == name:
                return index
        raise LookupError(f"{self.name} has no unique value {name!r}")  # met by programmers only

    @cached_property
    def _accessors(self) -> dict[str, Accessor]:
        return accessors_of(self)

    def value(self, model: CanonicalModel, storage: Mapping[str, object], name: str) -> object:
        """Return what a row holds under a wire name, marker or derived field."""
        return self._accessors[name](model, storage)

    def key_of(self, model: CanonicalModel, storage: Mapping[str, object]) -> Key:
        """Return the key of a row."""
        # Most keys have one part, and each call of a repository passes here: no list is built for them.
        if self._single_accessor is not None:
            return (_key_value(self._single_accessor(model, storage)),)
        return tuple([_key_value(self._accessors[name](model, storage)) for name in self.key])

    @cached_property
    def _single_accessor(self) -> Accessor | None:
        return self._accessors[self.key[0]] if len(self.key) == 1 else None

    @cached_property
    def _identity_accessors(self) -> tuple[Accessor, ...]:
        wanted = self.key if self.tenant_field is None else (*self.key, self.tenant_field)
        return tuple(self._accessors[name] for name in dict.fromkeys(wanted))

    def is_same(self, one: Row, other: Row) -> bool:
        """Whether two rows have one key and one tenant."""
        return all(
            read(one.model, one.storage) == read(other.model, other.storage)
            for read in self._identity_accessors
        )

    def owner_of(self, model: CanonicalModel, storage: Mapping[str, object]) -> Owner:
        """Return who owns a row; rows of an entity without its own tenant have no owner."""
        tenant = self.tenant_of(model, storage)
        return NO_TENANT if tenant is None else Tenant(tenant)

    def tenant_of(self, model: CanonicalModel, storage: Mapping[str, object]) -> str | None:
        """Return the tenant that a row names, if it names one."""
        if self.tenant_field is None:
            return None
        tenant = self._accessors[self.tenant_field](model, storage)
        return tenant if isinstance(tenant, str) else None

    def is_seen(self, scope: Tenants, model: CanonicalModel, storage: Mapping[str, object]) -> bool:
        """Whether a row is known to be seen in a scope; for a row that belongs to a parent it is unknown."""
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
        """Refuse entities that cannot be distinguished or do not belong together."""
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


# What takes a value out of a row by its name, made once for each entity: every call asks for some.


Accessor = Callable[[CanonicalModel, Mapping[str, object]], object]
"""Takes one value out of a row: out of its model or its storage markers."""


def accessors_of(entity: Entity) -> dict[str, Accessor]:
    """Return what reads each name that a row has; a marker hides a field."""
    # Of several models in one table not each has every field.
    of = optional_field_accessor if variants_of(entity.model) else field_accessor
    fields = {wire: of(shape.name) for wire, shape in entity.shapes.items()}
    derived: dict[str, Accessor] = {item.name: item.value for item in entity.derived}
    return derived | fields | {name: marker_accessor(name) for name in entity.markers}


def field_accessor(name: str) -> Accessor:
    """Return what reads a field of the model by its Python name."""
    read: Callable[[CanonicalModel], object] = attrgetter(name)
    return lambda model, _: read(model)


def optional_field_accessor(name: str) -> Accessor:
    """Return what reads a field that not every model has; a model without it lacks a value."""
    return lambda model, _: getattr(model, name, None)


def marker_accessor(name: str) -> Accessor:
    """Return what reads a storage marker; an absent one is ``None``."""
    return lambda _, storage: storage.get(name)


# A name is a table, a schema, a part of the names of indexes, constraints and functions, and an attribute in
# Python. PostgreSQL cuts what is longer than 63 bytes, silently, so that it would never be found again.
NAME: Final = re.compile(r"[a-z][a-z0-9_]{0,39}")
NAME_RULE: Final = "use at most 40 lower-case letters, digits and underscores, a letter first"


def problems(entity: Entity) -> Iterator[str]:
    """Yield what is wrong with a description, as the end of a sentence about the entity."""
    yield from _problems_of_names(entity)
    unknown = sorted(set(_named(entity)) - entity.known.keys())
    if unknown:
        yield f"has no field {', '.join(unknown)}"
    wide = [
        name for name in entity.narrow if name in entity.shapes and not is_whole(entity.shapes[name].value)
    ]
    if wide:
        yield f"holds {', '.join(wide)} in 32 bits, which is neither an integer nor a list of integers"
    yield from problems_of_stored_names(entity)
    yield from problems_of_forms(entity)
    yield from _problems_of_parent(entity)
    for derived in entity.derived:
        source = entity.shapes.get(derived.number_of or "")
        if derived.number_of is not None and (
            source is None or source.value.kind is not Kind.NUMBERED or source.wire not in entity.queried
        ):
            yield f"sorts by the number of {derived.number_of}, which has no column with numbers"
    parent = None if entity.parent is None else entity.parent.entity
    if entity.sequence is not None and (parent is None or not parent.versioned):
        # Two appends wait for each other because both write the parent.
        yield "is an ordered log, but names no parent that is versioned"
    yield from _problems_of_release(entity)
    yield from problems_of_inner_indexes(entity)
    yield from problems_of_retention(entity)
    if entity.dated is not None and (
        entity.known.get(entity.dated) is not Kind.INSTANT or not is_present(entity, entity.dated)
    ):
        yield f"is dated by {entity.dated}, which is not a timestamp that every row has"
    for index in entity.uniques:
        # Some stores hold two absent values to be equal, others do not.
        absent = [name for name in index.names if not is_present(entity, name, index.where)]
        if absent:
            yield f"may lack {', '.join(absent)} of {index.name}; narrow it with IsPresent"


SCALARS: Final = frozenset(
    {Kind.TEXT, Kind.INTEGER, Kind.NUMBER, Kind.FLAG, Kind.INSTANT, Kind.NUMBERED, Kind.NAMED}
)


def problems_of_inner_indexes(entity: Entity) -> Iterator[str]:
    """Yield what no store can index inside of a field, or would index in another way than another one."""
    for index in filter(entity.is_inner, entity.indexes):
        paths = {name: entity.inner_paths[name] for name in index.names if name in entity.inner_paths}
        for name, path in paths.items():
            if path.value.kind not in SCALARS and path.list_depth != len(path.names):
                kind = path.value.kind.value
                yield f"has the index {index.name} on {name}, which is a {kind}; name a value in it"
        if index.unique or index.expires or index.nulls_first or index.sparse_unless:
            yield f"has the index {index.name} inside of a field; such an index can only find rows"
        lists = {path.names[: path.list_depth] for path in paths.values() if path.list_depth is not None}
        if len(lists) > 1:
            yield f"has the index {index.name} on two lists; MongoDB indexes one of a document"
        if lists and StoreKind.TABLES in index.stores and len(index.fields) > 1:
            yield (
                f"has the index {index.name} on a list and other fields, which tables cannot have; give it "
                "stores=frozenset({StoreKind.DOCUMENTS}), and tables an index on the list alone"
            )
        if lists and any(descending for _, descending in index.directions):
            yield f"has the index {index.name} on a list in descending order, which lists do not have"


def problems_of_retention(entity: Entity) -> Iterator[str]:
    """Yield by what rows cannot expire."""
    retention = entity.retention
    if retention is not None and entity.known.get(retention.field) is not Kind.INSTANT:
        yield f"expires by {retention.field}, which is not a timestamp"
    for index in entity.indexes:
        if index.expires and (retention is None or index.names != (retention.field,)):
            yield f"expires rows by the index {index.name}, which must be on its retention's field alone"


def problems_of_module(module: Module) -> Iterator[str]:
    """Yield what is wrong with the entities of a module together, as the end of a sentence about it."""
    if not NAME.fullmatch(module.name):
        yield f"cannot be a name; {NAME_RULE}"
    for entity in module.entities:
        if entity.module != module.name:
            yield f"has the entity {entity.name}, which says that it belongs to {entity.module}"
    for kind in ("name", "collection"):
        for value, count in Counter(getattr(entity, kind) for entity in module.entities).items():
            if count > 1:
                yield f"has {count} entities with the {kind} {value}"
    before: set[Entity] = set()
    for entity in module.entities:
        if entity.parent is not None and entity.parent.entity not in before:
            # Whatever goes through the entities in order stores a child below its parent.
            yield f"names {entity.name} before its parent {entity.parent.entity.name}; put the parent first"
        before.add(entity)


def _problems_of_names(entity: Entity) -> Iterator[str]:
    if not NAME.fullmatch(entity.name):
        yield f"cannot be a name; {NAME_RULE}"
    if "$" in entity.collection or "\0" in entity.collection or entity.collection.startswith("system."):
        yield f"has the collection {entity.collection!r}, which MongoDB refuses; choose another name"
    for index in entity.indexes:
        if not NAME.fullmatch(index.name):
            yield f"has the index {index.name!r}; {NAME_RULE}"
    names = Counter((index.name, store) for index in entity.indexes for store in index.stores)
    for (name, store), count in names.items():
        if count > 1:
            yield f"has {count} indexes with the name {name} for {store.value}"


# The names that native code knows; aliases that follow the convention are such names.
WIRE_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9_]*")


def is_path(name: str) -> bool:
    """Whether a query of documents can name a field as a path: no dot, and no dollar sign in front."""
    return "." not in name and not name.startswith("$")


def problems_of_stored_names(entity: Entity) -> Iterator[str]:
    """Yield which names of fields no store holds, which documents use already, and which no query reaches."""
    for wire in dict.fromkeys(names_in(entity.model)):
        if not wire or "\0" in wire:
            yield f"has a field with the name {wire!r}; use a text that is not empty and has no U+0000"
    for name, setting in made_names(entity):
        if name in entity.shapes:
            yield f"has the field {name}, but documents need that name themselves; {setting}"
    used = [*_named(entity, columns=False), entity.dated]
    if found := sorted({name for name in used if name in entity.unpathed}):
        yield (
            f"uses {', '.join(map(repr, found))} as a key, index, condition or repeated field, but documents "
            "have no path to a name with a dot, or with a dollar sign in front, and to unknown properties"
        )


def names_in(model: type[CanonicalModel], known: AbstractSet[type] = frozenset()) -> Iterator[str]:
    """Yield the wire names of a model and of the models inside it; a ``known`` one holds itself."""
    for shape in () if model in known else shapes_of(model):
        yield shape.wire
        value: ValueShape | None = shape.value
        while value is not None:
            if value.kind is Kind.OBJECT:
                yield from names_in(value.model, {*known, model})
            value = value.item


def made_names(entity: Entity) -> Iterator[tuple[str, str]]:
    """Yield the names that documents of an entity use themselves, each with what frees it."""
    yield "_id", "it is the key or joins it, so give the field another alias"
    for part in entity.key:
        yield f"_id.{part}", "it is a part of the key, so give the field another alias"
    if entity.versioned:
        yield "_version", "set versioned to False, or give the field another alias"
    for marker in entity.storage:
        if not marker.plain:
            yield f"_{marker.name}", f"make the marker {marker.name} plain, or rename it"
    for derived in entity.derived:
        if StoreKind.DOCUMENTS in derived.stores:
            yield f"_{derived.name}", f"keep the derived field {derived.name} to tables, or rename it"


def _problems_of_parent(entity: Entity) -> Iterator[str]:
    if entity.parent is None:
        if entity.tenancy.kind is TenancyKind.PARENT:
            yield "belongs to the tenant of a parent, but names none"
        return
    if len(entity.parent.entity.key_parts) != 1:
        yield f"has the parent {entity.parent.entity.name}, whose key has several parts"
    above, (part, *_) = entity.parent.entity, entity.parent.entity.key_parts
    if above.key_in_payload is not None:
        yield f"has the parent {above.name}, whose key is in a payload; no foreign key can refer to that"
    if entity.retention is None and any(index.expires for index in above.indexes):
        yield f"has the parent {above.name}, which a server removes by itself, but no retention"
    if needed_kind(part.type) is not own_kind(entity, entity.parent.field):
        # One of the two would be a UUID in tables, and the other one a text.
        yield f"refers to {above.name} by {entity.parent.field}, which is not {part.type.value} as its key is"
    if entity.tenancy.kind is TenancyKind.PARENT and not is_present(entity, entity.parent.field):
        yield f"belongs to the tenant of a parent, but may lack {entity.parent.field}"
    if entity.tenancy.kind is TenancyKind.PARENT and entity.parent.field not in entity.key:
        # The key alone must identify the parent that decides who sees the row.
        yield f"belongs to the tenant of a parent, but {entity.parent.field} is not part of its key"


def _problems_of_release(entity: Entity) -> Iterator[str]:
    if (entity.release is None) == (entity.copy_policy.name == "RELEASED"):
        yield "is copied as released exactly where it says how; give both life and release, or neither"
    if entity.release is not None:
        wanted = {entity.release.end: Kind.INSTANT, entity.release.beginning: Kind.INSTANT}
        wanted[entity.release.fence] = Kind.INTEGER
        for name, kind in wanted.items():
            if name not in entity.shapes or entity.known[name] is not kind or not is_present(entity, name):
                yield f"is released by {name}, which is not a model field that always holds {kind.value}"
    for key in entity.local_keys:
        if not entity.admits_key(key):
            yield f"keeps {key!r} apart, which is not a key of it"


def _named(entity: Entity, *, columns: bool = True) -> Iterator[str]:
    """Yield every field that a description names; those that matter to columns alone only on request."""
    yield from (*entity.key, *entity.beside)
    if columns:
        yield from (*entity.narrow, *entity.filled, *entity.columns)
    for index in entity.indexes:
        yield from (name for name in index.names if name not in entity.inner_paths)
        yield from (condition.field for condition in index.where)
    if entity.retention is not None:
        yield from (entity.retention.field, *(condition.field for condition in entity.retention.where))
    if entity.parent is not None:
        yield entity.parent.field
    yield from (name for name in (entity.tenancy.field, entity.sequence, entity.own_id) if name is not None)


def is_present(entity: Entity, name: str, where: tuple[Condition, ...] = ()) -> bool:
    """Whether every row that satisfies some conditions has a field."""
    if any(item.field == name and not isinstance(item, IsNull) for item in where):
        return True
    for marker in entity.storage:
        if marker.name == name:
            return marker.required
    shape = entity.shapes.get(name)
    return shape is None or shape.always_written


def problems_of_forms(entity: Entity) -> Iterator[str]:
    """Yield what is wrong with a description, as the end of a sentence about the entity."""
    yield from problems_of_variants(entity)
    yield from problems_of_key(entity)
    markers = (marker.kind in TYPED for marker in entity.storage)
    if any(markers) or any(holds_typed(shape.value) for shape in entity.shapes.values()):
        yield from problems_of_typed(entity)
    yield from problems_of_extra(entity)
    yield from problems_of_own_id(entity)
    yield from problems_of_generated_id(entity)
    yield from problems_of_key_as_id(entity)
    yield from problems_of_assigned(entity)
    yield from problems_of_derived(entity)
    for name, number in Counter(entity.columns.values()).items():
        if number > 1:
            yield f"names {number} columns {name}"


def problems_of_extra(entity: Entity) -> Iterator[str]:
    """Yield what is wrong with the fields for unknown properties."""
    variants = variants_of(entity.model)
    shapes = (shape for model in variants or (entity.model,) for shape in shapes_of(model))
    found = [shape for shape in shapes if shape.keeps_unknown]
    if found and variants:
        yield "holds several models, of which none can keep unknown properties"
    if len(found) > 1:
        yield f"keeps unknown properties in {' and '.join(shape.wire for shape in found)}; one field can"
    if found and not variants and entity.model.model_fields[found[0].name].is_required():
        yield f"has the field {found[0].wire} without a default; write Field(default_factory=dict)"
    for shape in shapes_of(entity.model):
        if any(keeps_unknown(model) for model in models_in(shape.value)):
            yield f"has a model in {shape.wire} that keeps unknown properties; only the model of rows can"


def keeps_unknown(model: type[CanonicalModel]) -> bool:
    """Whether a model has a field for properties that it does not name."""
    return any(shape.keeps_unknown for shape in shapes_of(model))


def models_in(value: ValueShape, around: tuple[type, ...] = ()) -> Iterator[type[CanonicalModel]]:
    """Yield the models that a value may hold; ``around`` are those above it."""
    if value.item is not None:
        yield from models_in(value.item, around)
    if value.kind is Kind.OBJECT and value.cls not in around:
        yield value.model
        for shape in shapes_of(value.model):
            yield from models_in(shape.value, (*around, value.cls))


def problems_of_variants(entity: Entity) -> Iterator[str]:
    """Yield what several models in one table lack."""
    variants = variants_of(entity.model)
    if variants and entity.layout.name != "PAYLOAD":
        yield "holds several models, whose fields have no columns in common; use Layout.PAYLOAD"
    # Fields that stores search by name must exist in every model.
    tenant = () if entity.tenant_field is None else (entity.tenant_field,)
    wanted = {*entity.beside, *entity.key, *tenant} & entity.shapes.keys()
    for variant in variants:
        lacking = wanted - {shape.wire for shape in shapes_of(variant)}
        if lacking:
            yield f"holds {variant.__name__}, which has no field {', '.join(sorted(lacking))}"


def problems_of_key(entity: Entity) -> Iterator[str]:
    """Yield what is wrong with the types of the key."""
    for part in entity.key_parts:
        found = own_kind(entity, part.field)
        if needed_kind(part.type) is found:
            continue
        hint = "write digits(...) for a derived field of Kind.HEX, and for no other"
        if Kind.HEX not in {found, needed_kind(part.type)}:
            hint = (
                "write object_id(...) for an ObjectIdText and binary_uuid(...) for a BinaryUuid, and for "
                "nothing else; decimals and bytes are no keys"
            )
        what = f"has the key part {part.field} of type {part.type.value}, which the field does not hold"
        yield f"{what}; {hint}"
    name = entity.key_in_payload
    if name is None:
        return
    if entity.key_parts[0].type is not KeyType.TEXT:
        yield f"has the key {name} in its payload alone, where only texts compare alike in every store"
    if entity.assigned is None:
        yield (
            f"has the key {name} in its payload alone, so its table needs its own primary key; name it "
            "too, or give it a marker that is assigned"
        )
    holding = [index for index in entity.indexes if index.names == (name,) and index.unique]
    if not any(StoreKind.TABLES in index.stores and not index.where for index in holding):
        yield f"has the key {name} in its payload alone, but no unique index of it on tables"


# The kinds of fields that need a type of their own in a key, and nothing else may have it.
KEY_KINDS: Final[Mapping[KeyType, Kind]] = {
    KeyType.HEX: Kind.HEX,
    KeyType.OBJECT_ID: Kind.OBJECT_ID,
    KeyType.BINARY_UUID: Kind.UUID,
}
OWN_KINDS: Final = TYPED | {Kind.HEX}


def needed_kind(part: KeyType) -> Kind | None:
    """Return the only kind of field that a part of a key takes, ``None`` where it takes texts or integers."""
    return KEY_KINDS.get(part)


def own_kind(entity: Entity, name: str) -> Kind | None:
    """Return the kind of a field that is neither a text nor an integer, ``None`` for all others."""
    kind = entity.known.get(name)
    return kind if kind in OWN_KINDS else None


def problems_of_typed(entity: Entity) -> Iterator[str]:
    """Yield where an ObjectId, UUID, decimal or bytes stand that not every store could treat alike."""
    for path in maps_of_typed(entity.model):
        yield f"holds an ObjectId, UUID, decimal or bytes in the map {path}; make it a list of nested models"
    for marker in entity.storage:
        if marker.kind in TYPED:
            yield f"has the marker {marker.name}, which is {marker.kind.value}; make it a field of the model"
    typed = {name for name, kind in entity.known.items() if kind in TYPED}
    if entity.tenant_field in typed:
        yield f"has the tenant {entity.tenant_field}, which is {entity.known[entity.tenant_field].value}"
    if wrong := sorted(typed.intersection(entity.filled)):
        yield f"wants {', '.join(wrong)} to be filled, which is no text"
    for index in entity.indexes:
        yield from problems_of_typed_index(entity, index)
    if bytes_beside := [name for name in entity.beside if entity.known.get(name) is Kind.BYTES]:
        yield f"repeats {', '.join(bytes_beside)} next to its payload, but no list compares bytes"
    where = () if entity.retention is None else entity.retention.where
    for condition in (*where, *(item for index in entity.indexes for item in index.where)):
        if condition.field in typed and not isinstance(condition, IsNull | IsPresent):
            yield f"compares {condition.field} in a rule of the store; there it may be null or present only"


def problems_of_typed_index(entity: Entity, index: Index) -> Iterator[str]:
    """Yield which fields of an index the stores would order or compare differently."""
    for name in index.names:
        inside = entity.inner_paths.get(name)
        kind = entity.known.get(name) if inside is None else inside.value.kind
        if kind is Kind.BYTES:
            yield f"has the index {index.name} of {name}, which is bytes; stores order them differently"
        if kind is Kind.DECIMAL and index.unique:
            yield f"has the unique index {index.name} of {name}: 1.0 and 1.00 are equal and not the same"


def maps_of_typed(
    model: type[CanonicalModel], path: str = "", around: tuple[type, ...] = ()
) -> Iterator[str]:
    """Yield the paths of maps that hold values with a type of their own; ``around`` are the models above."""
    for shape in shapes_of(model):
        value, place = shape.value, f"{path}{shape.wire}"
        while value.kind is Kind.LIST and value.item is not None:
            value = value.item
        if value.kind is Kind.MAP and value.item is not None and holds_typed(value.item):
            yield place
        elif value.kind is Kind.OBJECT and value.cls not in around:
            yield from maps_of_typed(value.model, f"{place}.", (*around, value.cls))


def problems_of_own_id(entity: Entity) -> Iterator[str]:
    """Yield what is wrong with an ``_id`` that is not the key."""
    name = entity.own_id
    if name is None:
        return
    shape = entity.shapes.get(name)
    if entity.single_key is None or name in entity.key:
        yield f"has the own id {name}, which is for a key of one other field that follows from it"
    if (
        shape is None
        or name in entity.markers
        or not shape.always_written
        or shape.value.kind is not Kind.TEXT
    ):
        yield f"has the own id {name}, which must be a text that every model has"


def problems_of_generated_id(entity: Entity) -> Iterator[str]:
    """Yield what contradicts an ``_id`` that does not follow from the row."""
    if not entity.generated_id:
        return
    if entity.own_id is not None:
        yield f"has the own id {entity.own_id} and a generated one, but documents have one _id"
    if entity.derived_key is not None:
        yield "has a generated id and a key that follows from the content, which is the id; leave out either"
    hidden = [name for name in entity.key if name not in entity.shapes]
    if hidden:
        yield (
            f"has a generated id and the key {', '.join(hidden)}, which is not a field of its model; "
            "programs that know documents by a generated id find them by other fields"
        )


def problems_of_key_as_id(entity: Entity) -> Iterator[str]:
    """Yield what contradicts a key that is stored as ``_id`` as it is."""
    if not entity.key_as_id:
        return
    key = ", ".join(entity.key)
    if entity.generated_id or entity.own_id is not None or entity.derived_key is not None:
        yield f"has the key {key} as its id and another id, but documents have one _id; leave out either"
    if entity.single_key is not None:
        yield f"has the key {key} as its id, which a key of one text always is; leave out key_as_id"
    hidden = [name for name in entity.key if name not in entity.shapes or name in entity.markers]
    if hidden:
        yield f"has the key {', '.join(hidden)} as its id, which is not a field of its model"


def problems_of_assigned(entity: Entity) -> Iterator[str]:
    """Yield what is wrong with the marker that numbers rows."""
    found = [marker for marker in entity.storage if marker.assigned]
    if len(found) > 1:
        yield f"has {len(found)} markers that are assigned; rows have one order of insertion"
    for marker in found:
        if marker.kind is not Kind.INTEGER or not marker.required:
            yield f"has the assigned marker {marker.name}, which must be a required integer"
        holding = [index for index in entity.uniques if index.names == (marker.name,)]
        if not any(index.stores == EVERYWHERE and not index.where for index in holding):
            # Only so does a second row with one number fail, and the highest one cost one look.
            yield f"has the assigned marker {marker.name}, but no unique index of it alone on every store"


def problems_of_derived(entity: Entity) -> Iterator[str]:
    """Yield which derived fields are looked for where they are not stored, or cannot be."""
    partial = {item.name for item in entity.derived if item.stores != EVERYWHERE}
    named = {*entity.key, entity.tenant_field, None if entity.parent is None else entity.parent.field}
    if missing := sorted(named & partial, key=str):
        yield f"needs {', '.join(map(str, missing))} on every store"
    for index in entity.indexes:
        for item in entity.derived:
            if item.name in index.names and not index.stores <= item.stores:
                yield f"has the index {index.name} on stores that lack {item.name}"
    for item in entity.derived:
        if item.kind not in {Kind.TEXT, Kind.INTEGER, Kind.HEX}:
            yield f"derives {item.name}, which is {item.kind.value}; use text, integer or {Kind.HEX.value}"
