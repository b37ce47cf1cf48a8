"""Rows as a store of documents holds them: the wire form by field, storage markers and derived fields."""

from __future__ import annotations

import base64
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Final, TypeVar, cast
from uuid import UUID

from pydantic_core import PydanticCustomError
from typing_extensions import override

from twinstore.access.protocol import Unset
from twinstore.access.query import holds
from twinstore.bulk.changes import ChangeRefusedError, StoredObjectId, StoredValues
from twinstore.bulk.port import Record
from twinstore.bulk.rows import ScanRow, marked, unmarked
from twinstore.catalog.row import Row
from twinstore.catalog.tenancy import NO_TENANT, UNKNOWN_TENANT, TenancyKind, Tenant
from twinstore.errors import DocumentDecodeError
from twinstore.models import json_text
from twinstore.models.canonical import CanonicalModel, decode_stored
from twinstore.models.fields import bytes_value, decimal_number, parse_timestamp
from twinstore.models.shapes import Kind, lossy_map, lossy_map_reason

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator, Sequence

    from twinstore.access.paging import SortKey, SortValue
    from twinstore.bulk.changes import DocumentChange
    from twinstore.catalog.entity import Entity
    from twinstore.catalog.indexes import Index
    from twinstore.catalog.keys import Key
    from twinstore.catalog.tenancy import StoredOwner
    from twinstore.models.shapes import FieldPath

M = TypeVar("M", bound=CanonicalModel)
NO_MARKERS: Final[Mapping[str, object]] = {}


@dataclass(frozen=True, slots=True)
class DocumentRow:
    """One stored row, with any content. None of the mappings is ever changed.

    Attributes:
        entity: what it is.
        key: the values of its key.
        document: the properties by wire name; absent ones are omitted.
        markers: the storage markers of the entity; absent ones are omitted.
        derived: the internal fields that follow from model and markers.
    """

    entity: Entity
    key: Key
    document: Mapping[str, object]
    markers: Mapping[str, object] = field(default_factory=dict[str, object])
    derived: Mapping[str, object] = field(default_factory=dict[str, object])

    @property
    def owner(self) -> StoredOwner:
        """Who owns the row; rows of an entity without its own tenant have no owner."""
        name = self.entity.tenant_field
        tenant = None if name is None else self.value(name)
        if isinstance(tenant, str):
            return Tenant(tenant)
        required = self.entity.tenancy.kind is TenancyKind.REQUIRED
        # Broken is not the same as without: no caller may see a row whose tenant is unknown.
        return UNKNOWN_TENANT if required or tenant is not None else NO_TENANT

    @property
    def tenant_id(self) -> str | None:
        """The tenant, ``None`` when there is none or it is unknown."""
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
        """The unique values that the row occupies in addition to its key."""
        return tuple(
            (index, unique_value(index, tuple(self.value(name) for name in index.names)))
            for index in self.entity.uniques
            if all(holds(condition, self.value(condition.field)) for condition in index.where)
        )


def unique_value(index: Index, values: tuple[object, ...]) -> Hashable:
    """Return the stored form of the values of a unique index."""
    return (index.name, *values)


def encode(entity: Entity, model: CanonicalModel, markers: Mapping[str, object] = NO_MARKERS) -> DocumentRow:
    """Return the row of a model; absent markers are omitted."""
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
    # A null under a name means an absent value, as on every driver.
    document = {name: value for name, value in row.document.items() if value is not None}
    model = decode_stored(entity.model, document, entity=entity.name, key=row.key_text, driver=driver)
    return Row(model, row.markers)


def row_of_json(entity: Entity, document: str, markers: str, derived: str) -> DocumentRow:
    """Return a row that a store keeps as three JSON objects, as ``OneTable.values`` writes them.

    An instant in its canonical spelling is an instant again. Another spelling comes from another program: it
    stays text, and bulk reports it as such.

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
    if entity.typed_queried:
        # Other names are what a table needs to sort by decimals.
        derived = {item.name: derived[item.name] for item in entity.derived if item.name in derived}
    values = [_restored(entity, members) for members in (document, markers, derived)]
    # First without a key, which is read from the values as any other field.
    row = DocumentRow(entity, (), *values)
    # The stored value may be of another type all the same; ``admits_key`` checks it where it matters.
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
    if key.decimal and isinstance(value, int | Decimal):
        return Decimal(value)
    return None if value is None else str(value)


def instant(value: object) -> datetime | None:
    """Return a stored instant, also one that is stored as text; ``None`` for anything else."""
    try:
        return None if value is None else parse_timestamp(value)
    except PydanticCustomError:
        return None


def _object(text: str) -> Mapping[str, object]:
    value = json_text.parse_json(text)
    if not isinstance(value, dict):
        raise ValueError("a stored row consists of JSON objects")  # noqa: TRY004  # one error for every bad text
    return cast("Mapping[str, object]", value)


def _restored(entity: Entity, document: Mapping[str, object]) -> Mapping[str, object]:
    # Only branches that can hold an instant are walked; most documents have few.
    places = {path[0] for path in entity.instants}
    found = {
        name: _with_instants(entity, value, (name,)) if name in places else value
        for name, value in document.items()
    }
    for path, kind in entity.typed.items():
        if kind in RESTORED and path[0] in found:
            found[path[0]] = _with_typed(found[path[0]], path[1:], RESTORED[kind])
    return found


def _with_typed(value: object, path: FieldPath, restore: Callable[[object], object]) -> object:
    """Return a value with what is at a path restored; lists on the way do not count."""
    if isinstance(value, list):
        return [_with_typed(item, path, restore) for item in cast("list[object]", value)]
    if not path:
        return restore(value)
    if not isinstance(value, Mapping):
        return value
    members = cast("Mapping[str, object]", value)
    if path[0] not in members:
        return members
    return {**members, path[0]: _with_typed(members[path[0]], path[1:], restore)}


def _decimal(value: object) -> object:
    """Return the decimal of a text that is spelled as we write it; anything else is a finding, and stays."""
    try:
        found = decimal_number(value) if isinstance(value, str) else None
    except PydanticCustomError:
        return value
    return value if found is None or json_text.format_decimal(found) != value else found


def _bytes(value: object) -> object:
    """Return the bytes of a text in base64; anything else stays."""
    try:
        return bytes_value(value) if isinstance(value, str) else value
    except PydanticCustomError:
        return value


# What a text of JSON is again. The others are texts in models, too.
RESTORED: Final[Mapping[Kind, Callable[[object], object]]] = {Kind.DECIMAL: _decimal, Kind.BYTES: _bytes}


def _with_instants(entity: Entity, value: object, path: FieldPath) -> object:
    if isinstance(value, str):
        found = instant(value) if path in entity.instants else None
        # Only the spelling that we write: another one is a finding, and would be lost as a datetime.
        return found if found is not None and json_text.format_timestamp(found) == value else value
    if isinstance(value, Mapping):
        members = cast("Mapping[str, object]", value)  # JSON has no other
        return {name: _with_instants(entity, item, (*path, name)) for name, item in members.items()}
    if isinstance(value, list):
        return [_with_instants(entity, item, path) for item in cast("list[object]", value)]
    return value


# Rows as tools read them: canonical bytes straight from the stored values, and records for a copy.


def record_of(row: DocumentRow, driver: str) -> Record:
    """Return a row for a copy: decoded, or with the reason why it cannot be."""
    record = Record(
        key=key_of(row),
        owner=row.owner,
        model=None,
        storage=row.markers,
        text_timestamp=has_text_timestamp(row),
    )
    try:
        model = decode(row.entity, row, driver).model
    except DocumentDecodeError as error:
        record.error, record.original = error.reason or error.message, extended_json(row)
        return record
    if (path := lossy_map(row.document, model)) is not None:
        record.error, record.original = lossy_map_reason(path), extended_json(row)
        return record
    if (problem := row.entity.extra_problem(model)) is not None:
        record.error, record.original = problem, extended_json(row)
        return record
    record.model = model
    return record


def changed_record(row: DocumentRow, driver: str, change: DocumentChange | None) -> Record:
    """Return a row for a copy after the change of its document; markers stay as they are stored."""
    if change is None:
        return record_of(row, driver)
    try:
        changed = change(_copied(row.document), JSON_VALUES)
    except ChangeRefusedError as error:
        known = row if error.document is None else with_document(row, error.document)
        return Record(key_of(known), known.owner, None, error=str(error), original=extended_json(row))
    found = record_of(with_document(row, changed.document), driver)
    found.rules = changed.rules
    if changed.rules:
        # What is stored, and not what became of it.
        found.original = extended_json(row)
    return found


def changed_model(entity: Entity, record: Record, driver: str, change: DocumentChange | None) -> Record:
    """Return a decoded row for a copy after the change of its wire form; any other row as it is."""
    if change is None or record.model is None:
        return record
    found = changed_record(encode(entity, record.model, record.storage), driver, change)
    found.original = record.original
    return found


def changed_content(entity: Entity, row: ScanRow, change: DocumentChange | None) -> ScanRow:
    """Return a scanned row after the change of the document in its content."""
    parts = None if change is None or row.error is not None else json_text.loads(row.content)
    document = parts["doc"] if isinstance(parts, dict) else None
    if not isinstance(parts, dict) or not isinstance(document, dict) or unmarked({**document}) is not None:
        return row
    markers = cast("dict[str, object]", parts["storage"])
    found = changed_scan_row(row_of_values(entity, document, markers), change)
    if not found.rules and found.error is None:
        return row
    found.key, found.beside = row.key, row.beside
    return found


def with_document(row: DocumentRow, document: Mapping[str, object]) -> DocumentRow:
    """Return a row with another document, and so with the key that is in it."""
    found = replace(row, document=document)
    return replace(found, key=tuple(cast("str | int", found.value(name)) for name in row.entity.key))


def _copied(value: Mapping[str, object]) -> dict[str, object]:
    """Return a document that may be changed at any depth."""
    return {name: _copied_value(item) for name, item in value.items()}


def _copied_value(value: object) -> object:
    if isinstance(value, Mapping):
        return _copied(cast("Mapping[str, object]", value))
    if isinstance(value, (list, tuple)):
        return list(map(_copied_value, cast("Sequence[object]", value)))
    return value


class JsonValues(StoredValues):
    """Values of documents that hold ObjectIds and UUIDs as their texts."""

    @override
    def read(self, value: object) -> object:
        return value

    @override
    def write(self, value: object) -> object:
        if isinstance(value, StoredObjectId):
            return value.digits
        return str(value) if isinstance(value, UUID) else value


JSON_VALUES: Final = JsonValues()


def scan_row(row: DocumentRow) -> ScanRow:
    """Return a row for comparison."""
    retention = row.entity.retention
    beside = {item.name: plain(row, row.derived.get(item.name)) for item in row.entity.derived}
    return ScanRow(
        key=key_of(row),
        owner=row.owner,
        content=content(row),
        beside=json_text.dumps_sorted(beside),
        expires=None if retention is None else instant(row.value(retention.field)),
    )


def changed_scan_row(row: DocumentRow, change: DocumentChange | None) -> ScanRow:
    """Return a row for comparison after the change of its document; markers stay as they are stored."""
    if change is None:
        return scan_row(row)
    try:
        changed = change(_copied(row.document), JSON_VALUES)
    except ChangeRefusedError as error:
        known = row if error.document is None else with_document(row, error.document)
        nothing = json_text.dumps_sorted({"doc": marked("refused", str(error)), "storage": {}})
        return ScanRow(key_of(known), known.owner, nothing, error=str(error))
    found = scan_row(with_document(row, changed.document))
    found.rules = tuple(changed.rules)
    return found


def content(row: DocumentRow) -> bytes:
    """Return the bytes that are equal exactly when two rows hold the same; see :class:`ScanRow`."""
    parts = {"doc": plain(row, row.document), "storage": plain(row, row.markers)}
    return json_text.dumps_sorted(parts)


def extended_json(row: DocumentRow) -> str:
    """Return a row that cannot be decoded, with everything that is there."""
    return json_text.dumps_sorted(
        {
            "_id": [plain(row, part) for part in row.key],
            "doc": plain(row, row.document),
            "storage": plain(row, row.markers),
        }
    ).decode()


def key_of(row: DocumentRow) -> Key | None:
    """Return the key of a row, ``None`` when it cannot be a key of the entity."""
    return row.key if row.entity.admits_key(row.key) else None


def has_text_timestamp(row: DocumentRow) -> bool:
    """Whether an instant was stored as text."""
    sources = (row.document, row.markers)
    return any(isinstance(value, str) for source in sources for value in instants(row.entity, source))


def instants(entity: Entity, value: object, path: FieldPath = ()) -> Iterator[object]:
    """Yield what is stored where instants belong, at any depth."""
    if path in entity.instants:
        yield value
    elif isinstance(value, Mapping):
        for name, item in cast("Mapping[str, object]", value).items():
            yield from instants(entity, item, (*path, name))
    elif isinstance(value, (list, tuple)):
        for item in cast("Sequence[object]", value):
            yield from instants(entity, item, path)


def plain(row: DocumentRow, value: object, path: FieldPath = ()) -> object:
    """Return a stored value as canonical JSON has it; what is never written so is marked."""
    if isinstance(value, datetime):
        return value if path in row.entity.instants and is_canonical(value) else marked("date", str(value))
    if (kind := row.entity.typed.get(path)) is not None:
        return typed_or_other(row, kind, value, path)
    if isinstance(value, Mapping):
        members = cast("Mapping[str, object]", value).items()
        return {str(key): plain(row, item, (*path, key)) for key, item in members}
    if isinstance(value, (list, tuple)):
        return [plain(row, item, path) for item in cast("Sequence[object]", value)]
    if isinstance(value, str):
        # A lone surrogate has no UTF-8 and would end the comparison; as an escape it takes part in it.
        text = str(value).encode("utf-8", "backslashreplace").decode()
        return marked("text", text) if path in row.entity.instants else text
    return value if value is None or isinstance(value, bool) else number_or_other(value)


def typed_or_other(row: DocumentRow, kind: Kind, value: object, path: FieldPath) -> object:
    """Return what is stored in the place of a typed value; what a copy would store otherwise is marked."""
    if isinstance(value, (list, tuple)):
        return [typed_or_other(row, kind, item, path) for item in cast("Sequence[object]", value)]
    if kind is Kind.BYTES and type(value) is bytes:
        return json_text.format_bytes(value)
    if isinstance(value, str):
        return value if kind in {Kind.OBJECT_ID, Kind.UUID} else marked("string", value)
    if kind is Kind.DECIMAL and isinstance(value, Decimal | int) and not isinstance(value, bool):
        if isinstance(value, int):
            return marked("int64", value)
        return value if is_plain(value) else marked("decimal", str(value))
    return value if value is None else marked(type(value).__name__, repr(value))


def is_plain(value: Decimal) -> bool:
    """Whether a decimal is written without an exponent and is none that models refuse."""
    exponent = value.as_tuple().exponent
    return isinstance(exponent, int) and exponent <= 0 and not (value.is_zero() and value.is_signed())


def is_canonical(value: datetime) -> bool:
    """Whether an instant is in UTC and has whole milliseconds."""
    return value.tzinfo is UTC and value.microsecond % 1000 == 0


def number_or_other(value: object) -> object:
    """Return a number that a model may hold as it is, and anything else under a mark."""
    if isinstance(value, int) and json_text.INT64_MIN <= value <= json_text.INT64_MAX:
        return value
    if isinstance(value, float) and math.isfinite(value) and not value.is_integer():
        return value
    if isinstance(value, float):
        return marked("double", repr(value))
    if isinstance(value, (bytes, bytearray)):
        return marked("bytes", base64.b64encode(value).decode())
    return marked(type(value).__name__, repr(value))
