"""Rows as a store of documents holds them: the wire form by field, storage markers and derived fields."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TYPE_CHECKING, Final, TypeVar, cast

from pydantic_core import PydanticCustomError

from twinstore import jsontext
from twinstore.access import Row, Unset
from twinstore.canonical import CanonicalModel, decode_stored
from twinstore.catalog import TenancyKind
from twinstore.fields import parse_timestamp
from twinstore.query import holds
from twinstore.tenancy import NO_TENANT, UNKNOWN_TENANT, Tenant

if TYPE_CHECKING:
    from collections.abc import Hashable

    from twinstore.catalog import Entity, Index, Key
    from twinstore.paging import SortKey, SortValue
    from twinstore.shapes import FieldPath
    from twinstore.tenancy import StoredOwner

__all__ = [
    "DocumentRow",
    "amended",
    "decode",
    "encode",
    "instant",
    "row_of_json",
    "row_of_values",
    "sort_key",
    "sort_value",
    "unique_value",
]

M = TypeVar("M", bound=CanonicalModel)
NO_MARKERS: Final[Mapping[str, object]] = {}


@dataclass(frozen=True, slots=True)
class DocumentRow:
    """One stored row, whatever it holds. None of the mappings is ever changed.

    Attributes:
        entity: what it is.
        key: the values of its key.
        document: the properties by wire name; absent ones are left out.
        markers: the storage markers of the entity; absent ones are left out.
        derived: the internal fields that follow from model and markers.
    """

    entity: Entity
    key: Key
    document: Mapping[str, object]
    markers: Mapping[str, object] = field(default_factory=dict[str, object])
    derived: Mapping[str, object] = field(default_factory=dict[str, object])

    @property
    def owner(self) -> StoredOwner:
        """Who owns the row; of an entity without a tenant of its own nobody does."""
        name = self.entity.tenant_field
        tenant = None if name is None else self.value(name)
        if isinstance(tenant, str):
            return Tenant(tenant)
        required = self.entity.tenancy.kind is TenancyKind.REQUIRED
        # Broken is not the same as without: nobody may see a row whose tenant cannot be told.
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


def encode(entity: Entity, model: CanonicalModel, markers: Mapping[str, object] = NO_MARKERS) -> DocumentRow:
    """Return the row of a model; absent markers are left out."""
    present = {name: value for name, value in markers.items() if value is not None}
    derived = {item.name: item.value(model, present) for item in entity.derived}
    return DocumentRow(entity, entity.key_of(model, present), model.wire(), present, derived)


def amended(row: DocumentRow, values: Mapping[str, object]) -> DocumentRow:
    """Return a row with some fields set, whatever else it holds; what is derived stays as it is."""
    document, markers = dict(row.document), dict(row.markers)
    for name, value in values.items():
        part = markers if name in row.entity.markers else document
        part.pop(name, None)
        if not isinstance(value, Unset):
            part[name] = value
    return replace(row, document=document, markers=markers)


def decode(entity: Entity[M], row: DocumentRow, driver: str) -> Row[M]:
    """Return the model of a row with its markers.

    Raises:
        DocumentDecodeError: the document does not form one.
    """
    model = decode_stored(entity.model, row.document, entity=entity.name, key=row.key_text, driver=driver)
    return Row(model, row.markers)


def row_of_json(entity: Entity, document: str, markers: str, derived: str) -> DocumentRow:
    """Return a row that a store keeps as three JSON objects, each written by ``jsontext.dumps``.

    An instant in its canonical spelling is an instant again. In any other spelling somebody else has written
    it: it stays text, and bulk reports it as such.

    Raises:
        ValueError: a text is not a JSON object; the store must refuse such a row by a constraint.
    """
    return row_of_values(entity, _object(document), _object(markers), _object(derived))


def row_of_values(
    entity: Entity,
    document: Mapping[str, object],
    markers: Mapping[str, object] = NO_MARKERS,
    derived: Mapping[str, object] = NO_MARKERS,
) -> DocumentRow:
    """Return the row of three JSON objects that are read already; see :func:`row_of_json`."""
    values = [_restored(entity, members) for members in (document, markers, derived)]
    # First without a key, which is read from the values as any other field.
    row = DocumentRow(entity, (), *values)
    # What is stored may be of another type all the same; ``admits_key`` tells where it matters.
    key = tuple(cast("str | int", row.value(name)) for name in entity.key)
    return DocumentRow(entity, key, *values)


def sort_key(row: DocumentRow, order: tuple[SortKey, ...]) -> tuple[SortValue, ...]:
    """Return the values by which a row is sorted, for a page token."""
    return tuple(sort_value(row, key) for key in order)


def sort_value(row: DocumentRow, key: SortKey) -> SortValue:
    """Return one sort value of a row; what is stored with a wrong type counts as its text."""
    value = row.value(key.field)
    if key.time and (found := instant(value)) is not None:
        return found
    if key.number and isinstance(value, int):
        return value
    return None if value is None else str(value)


def instant(value: object) -> datetime | None:
    """Return a stored instant, also one that is stored as text; ``None`` for anything else."""
    try:
        return None if value is None else parse_timestamp(value)
    except PydanticCustomError:
        return None


def _object(text: str) -> Mapping[str, object]:
    value = jsontext.parse_json(text)
    if not isinstance(value, dict):
        raise ValueError("a stored row consists of JSON objects")  # noqa: TRY004  # one error for every bad text
    return cast("Mapping[str, object]", value)


def _restored(entity: Entity, document: Mapping[str, object]) -> Mapping[str, object]:
    # Only branches that can hold an instant are walked; most documents have few.
    places = {path[0] for path in entity.instants}
    return {
        name: _with_instants(entity, value, (name,)) if name in places else value
        for name, value in document.items()
    }


def _with_instants(entity: Entity, value: object, path: FieldPath) -> object:
    if isinstance(value, str):
        found = instant(value) if path in entity.instants else None
        # Only the spelling that we write: another one is a finding, and would be lost as a datetime.
        return found if found is not None and jsontext.format_timestamp(found) == value else value
    if isinstance(value, Mapping):
        members = cast("Mapping[str, object]", value)  # JSON has no other
        return {name: _with_instants(entity, item, (*path, name)) for name, item in members.items()}
    if isinstance(value, list):
        return [_with_instants(entity, item, path) for item in cast("list[object]", value)]
    return value
