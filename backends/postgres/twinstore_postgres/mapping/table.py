"""The table of an entity, derived from its description: names for statements, rows to models and back."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Final, Generic, LiteralString, cast

import pydantic
from psycopg import sql
from typing_extensions import TypeVar

from twinstore.access.protocol import UniqueKey
from twinstore.catalog.entity import Entity, Layout
from twinstore.catalog.row import NO_STORAGE, Row
from twinstore.catalog.tenancy import UNKNOWN_TENANT, TenancyKind, label_of, owner_of
from twinstore.errors import ValidationError
from twinstore.models.canonical import CanonicalModel, decode_stored, schema_validator, undecodable
from twinstore.models.json_text import loads
from twinstore_postgres.mapping.codec import UNREADABLE, compile_decoder, compile_encoder
from twinstore_postgres.mapping.columns import (
    PAYLOAD,
    VERSION,
    Column,
    Origin,
    column_name,
    columns_of,
    digits_of,
    key_in_payload,
)
from twinstore_postgres.settings import DRIVER

if TYPE_CHECKING:
    from twinstore.catalog.keys import Key
    from twinstore.catalog.tenancy import StoredOwner
    from twinstore_postgres.mapping.codec import Values

M = TypeVar("M", bound=CanonicalModel, default=Any)


@dataclass(frozen=True, eq=False)
class Table(Generic[M]):
    """One table and the two ways between its rows and models.

    Attributes:
        columns: those that reads return and inserts write, in this order.
    """

    entity: Entity[M]
    columns: tuple[Column, ...]

    # ------------------------------------------------------------------------------------- names

    @cached_property
    def name(self) -> sql.Identifier:
        """The qualified name."""
        return sql.Identifier(self.entity.module, self.entity.name)

    @cached_property
    def key(self) -> tuple[Column, ...]:
        """The columns of the key, or the expression that is the key."""
        return tuple(map(self.column, self.entity.key))

    @cached_property
    def has_own_key(self) -> bool:
        """Whether the table has a column for each part of the key."""
        return self.entity.key_in_payload is None

    @cached_property
    def key_order(self) -> sql.Composable:
        """The columns of the key as they are sorted and compared, see :func:`by_code_point`."""
        return sql.SQL(", ").join(map(by_code_point, self.key))

    @cached_property
    def tenant(self) -> str | None:
        """The column that names the tenant, ``None`` where there is none."""
        field = self.entity.tenant_field
        return None if field is None else column_name(self.entity, field)

    @cached_property
    def by_field(self) -> dict[str, Column]:
        """The columns by wire name, storage marker or derived field."""
        known = {column.field: column for column in self.columns if column.origin is not Origin.PAYLOAD}
        numbers = {
            derived.name: replace(known[derived.number_of], field=derived.name, numbers=None)
            for derived in self.entity.derived
            if derived.number_of is not None
        }
        key = key_in_payload(self.entity)
        return known | numbers if key is None else known | numbers | {key.field: key}

    def column(self, field: str) -> Column:
        """Return the column of a wire name, storage marker or derived field.

        Raises:
            ValidationError: there is none; names those that exist.
        """
        column = self.by_field.get(field)
        if column is None:
            known = ", ".join(sorted(self.by_field))
            raise ValidationError(f"{self.entity.name} has no field {field!r}; it has {known}.")
        return column

    def identifier(self, field: str) -> sql.Composable:
        """Return the column of a field for a statement."""
        return self.column(field).term()

    def locate(self, key: Key | UniqueKey) -> tuple[str | None, Values]:
        """Return the name of a unique index, ``None`` for the key, and the parameters that find the row."""
        if isinstance(key, UniqueKey):
            return key.index.name, self._parameters(key.index.names, key.values)
        return None, self._parameters(self.entity.key, key)

    def _parameters(self, names: tuple[str, ...], values: Key) -> Values:
        """Return what columns are compared with; text and numbers are parameters as they are."""
        if names in self._plain:  # as nearly every key
            return values
        named = zip(names, values, strict=True)
        return tuple(self.column(name).bound(value) for name, value in named)

    @cached_property
    def _plain(self) -> frozenset[tuple[str, ...]]:
        """The key and those unique values that are made of text and numbers alone."""
        found = (self.entity.key, *(index.names for index in self.entity.uniques))
        return frozenset(names for names in found if all(self.column(name).bound("") == "" for name in names))

    @cached_property
    def parts(self) -> dict[str, sql.Composable]:
        """What the templates of statements name, whatever else they need."""
        placeholders = [sql.Placeholder()] * len(self.columns)
        typed = [sql.SQL("%s::") + sql.SQL(column.sql_type) for column in self.columns]
        version = sql.SQL(", {0} = {1}.{0} + 1").format(sql.Identifier(VERSION), self.name)
        return {
            "table": self.name,
            "columns": listed(self.columns),
            "stored": distinguished(self.columns, self.name),
            "values": sql.SQL(", ").join(placeholders),
            "typed": sql.SQL(", ").join(typed),
            "key": listed(self.key),
            "version": version if self.entity.versioned_table else sql.SQL(""),
        }

    def statement(self, template: LiteralString, **more: sql.Composable) -> bytes:
        """Return a statement of a template that names :attr:`parts` and what is given."""
        return sql.SQL(template).format(**self.parts | more).as_bytes()

    # ------------------------------------------------------------------------------- rows to models

    @cached_property
    def encode(self) -> Callable[[Row[Any]], Values]:
        """The values of a row, from its model and its storage markers."""
        return compile_encoder(self.entity, self.columns)

    @cached_property
    def _document(self) -> Callable[[Values], object]:
        return compile_decoder(self.columns)

    @cached_property
    def _validate(self) -> Callable[..., M]:
        return schema_validator(self.entity.model).validate_python

    def decode(self, values: Values) -> M:
        """Return the model of a row.

        Raises:
            DocumentDecodeError: the row does not form a model; names entity and key.
        """
        return self.decode_with_document(values)[0]

    def decode_with_document(self, values: Values) -> tuple[M, Mapping[str, object]]:
        """Return the model of a row, with the properties of which it was made.

        Raises:
            DocumentDecodeError: the row does not form a model; names entity and key.
        """
        document = self._document(values)
        try:
            model = self._validate(document, by_alias=True, by_name=False)
        except pydantic.ValidationError:
            # Again for the message; a valid row does not need its name built.
            key = self.key_text(values)
            decode_stored(self.entity.model, document, entity=self.entity.name, key=key, driver=DRIVER)
            raise
        if self._repeated and (name := mismatched_column(self, self._repeated, model, values)) is not None:
            reason = f"its column {name} and its payload name different rows"
            raise undecodable(reason, entity=self.entity.name, key=self.key_text(values), driver=DRIVER)
        return model, cast("Mapping[str, object]", document)

    @cached_property
    def _repeated(self) -> tuple[tuple[int, Column], ...]:
        return repeated_columns(self)

    @cached_property
    def _marker_positions(self) -> tuple[tuple[str, int], ...]:
        return tuple(
            (column.field, number)
            for number, column in enumerate(self.columns)
            if column.origin is Origin.MARKER
        )

    def markers_of(self, values: Values) -> Mapping[str, object]:
        """Return the storage markers of a row, without the absent ones."""
        if not self._marker_positions:
            return NO_STORAGE
        return {name: values[at] for name, at in self._marker_positions if values[at] is not None}

    def checked_markers_of(self, values: Values) -> Mapping[str, object]:
        """Return the same.

        Raises:
            DocumentDecodeError: a required one is missing, or a stored value is not one of ours.
        """
        markers = self.markers_of(values)
        wrong = [name for name, value in markers.items() if value is UNREADABLE]
        wrong += [
            marker.name for marker in self.entity.storage if marker.required and marker.name not in markers
        ]
        if wrong:
            reason = f"its markers {', '.join(wrong)} are missing or hold what cannot be represented"
            raise undecodable(reason, entity=self.entity.name, key=self.key_text(values), driver=DRIVER)
        return markers

    def row(self, values: Values) -> Row[M]:
        """Return the model of a row with its storage markers.

        Raises:
            DocumentDecodeError: the row does not form a model; names entity and key.
        """
        markers = self.checked_markers_of(values) if self._marker_positions else NO_STORAGE
        if self.entity.layout is Layout.PAYLOAD and UNREADABLE in values:
            # A column next to the payload, by which lists sort.
            reason = "a column next to its payload holds a value that cannot be represented"
            raise undecodable(reason, entity=self.entity.name, key=self.key_text(values), driver=DRIVER)
        return Row(self.decode(values), markers)

    def field_getter(self, fields: Sequence[str]) -> Callable[[Values], Values]:
        """Return a function that takes the values of some fields out of a row."""
        names = [column.name for column in self.columns]
        wanted = [self.column(field) for field in fields]
        if any(column.digits or column.origin is Origin.MEMBER for column in wanted):
            return self._safe_field_getter(wanted, names)
        positions = [names.index(column.name) for column in wanted]
        return lambda values: tuple(values[position] for position in positions)

    @staticmethod
    def _safe_field_getter(wanted: Sequence[Column], names: list[str]) -> Callable[[Values], Values]:
        """Return the same where a value is not the one that a column holds."""
        getter: list[tuple[int, Callable[[object], object]]] = []
        for column in wanted:
            if column.origin is Origin.MEMBER:
                getter.append((names.index(PAYLOAD), partial(member_of, column.field)))
            else:
                getter.append((names.index(column.name), digits_of if column.digits else identity))
        return lambda values: tuple(take(values[position]) for position, take in getter)

    @cached_property
    def key_of(self) -> Callable[[Values], Values]:
        """Takes the key out of a row."""
        return self.field_getter(self.entity.key)

    def key_from(self, values: Values) -> Values:
        """Return the key of which the columns were read alone."""
        named = zip(self.key, values, strict=True)
        return tuple(digits_of(value) if column.digits else value for column, value in named)

    def wire_value(self, field: str, value: object) -> object:
        """Return the value of a column as the wire form has it; an unknown number of an enumeration stays."""
        numbers = self.column(field).numbers
        if numbers is None:
            return value
        return next((item.value for item in numbers if item.number == value), value)

    def key_text(self, values: Values) -> str:
        """Return the key of a row for messages."""
        return self.entity.key_text(self.key_of(values))

    # --------------------------------------------------------------------------------------- owners

    @cached_property
    def parent(self) -> Table | None:
        """The table of the parent."""
        return None if self.entity.parent is None else table_of(self.entity.parent.entity)

    @cached_property
    def owned(self) -> bool:
        """Whether it matters whose rows a statement is about."""
        match self.entity.tenancy.kind:
            case TenancyKind.NONE:
                return False
            case TenancyKind.PARENT:
                return self.parent is not None and self.parent.owned
            case _:
                return True

    @cached_property
    def keys_are_own(self) -> bool:
        """Whether a row under a key of the caller can only be the caller's."""
        return not self.owned or self.entity.tenant_field in self.entity.key

    @cached_property
    def parent_column(self) -> sql.Composable:
        """The column that holds the key of the parent."""
        parent = self.entity.parent
        if parent is None:
            raise LookupError(f"{self.entity.name} has no parent")  # met by programmers only
        return self.identifier(parent.field)

    def parent_key(self, row: Row) -> Key:
        """Return the key of the parent of a row."""
        parent = self.entity.parent
        found = None if parent is None else self.entity.value(row.model, row.storage, parent.field)
        return (found,) if isinstance(found, (str, int)) else ()

    @cached_property
    def tenant_expression(self) -> sql.Composable:
        """The expression of the tenant that a row names, for statements that answer with it."""
        return sql.SQL("NULL::text") if self.tenant is None else sql.Identifier(self.tenant)

    def owner_named(self, tenant: str | None) -> StoredOwner:
        """Return the owner of a row that names this tenant, or none."""
        required = self.entity.tenancy.kind is TenancyKind.REQUIRED
        return UNKNOWN_TENANT if tenant is None and required else owner_of(tenant)

    def tenant_in(self, values: Values) -> str | None:
        """Return the tenant that a row names."""
        at = self._tenant_position
        return None if at is None else values[at]

    def owner(self, values: Values) -> StoredOwner:
        """Return the owner of a row."""
        return self.owner_named(self.tenant_in(values))

    def labelled(self, counts: Iterable[tuple[str | None, int]]) -> dict[str, int]:
        """Return numbers of rows by the label of their owner, from those by the tenant that they name."""
        found: Counter[str] = Counter()
        for tenant, number in counts:
            found[label_of(self.owner_named(tenant))] += number
        return dict(found)

    @cached_property
    def _tenant_position(self) -> int | None:
        names = [column.name for column in self.columns]
        return None if self.tenant is None else names.index(self.tenant)


def by_code_point(column: Column) -> sql.Composable:
    """Return a column as it is sorted and compared: texts by code point, whatever collation it has.

    Our own tables have that collation; those of a source that we did not create may have another.
    """
    if column.sql_type != "text" or column.origin is Origin.MEMBER:
        return column.term()
    return sql.SQL('{} COLLATE "C"').format(column.term())


def listed(columns: Sequence[Column], relation: sql.Composable | None = None) -> sql.Composed:
    """Return columns, separated by commas; those of a relation are qualified by its name."""
    return sql.SQL(", ").join(column.term(relation) for column in columns)


def distinguished(columns: Sequence[Column], relation: sql.Composable) -> sql.Composed:
    """Return the columns of a relation so that no two different rows are equal: 1.0 is 1.00 to the server."""
    return sql.SQL(", ").join(
        column.term(relation) + sql.SQL("::text" if column.sql_type == "numeric" else "")
        for column in columns
    )


def member_of(name: str, payload: object) -> object:
    """Return the text that a payload, read or about to be written, has under a name; ``None`` for none."""
    document: object = loads(bytes(payload)) if isinstance(payload, bytes) else payload
    found = cast("Mapping[str, object]", document).get(name) if isinstance(document, dict) else None
    return found if isinstance(found, str) else None


def identity(value: object) -> object:
    """Return a value."""
    return value


# By identity, which costs less than comparing entities; a table keeps its entity, so no number comes again.
_tables: Final[dict[int, Table]] = {}


def table_of(entity: Entity[M]) -> Table[M]:
    """Return the table of an entity; it is derived at the first call."""
    table: Table[M] | None = _tables.get(id(entity))
    if table is None:
        table = _tables.setdefault(id(entity), Table(entity, columns_of(entity)))
    return table


# The columns that repeat key and tenant next to a payload.
#
# A row is found by its columns and read from its payload. Where the two name different rows, or different
# tenants, one would be shown under the name of the other.


def repeated_columns(table: Table) -> tuple[tuple[int, Column], ...]:
    """Return the columns that repeat key and tenant of a payload, with their positions in a row."""
    entity = table.entity
    if entity.layout is not Layout.PAYLOAD:
        return ()
    names = [column.name for column in table.columns]
    tenant = () if entity.tenant_field is None else (entity.tenant_field,)
    wanted = map(table.column, dict.fromkeys((*entity.key, *tenant)))
    return tuple(
        (names.index(column.name), column) for column in wanted if column.origin is not Origin.MEMBER
    )


def mismatched_column(
    table: Table, repeated: tuple[tuple[int, Column], ...], model: CanonicalModel, values: Values
) -> str | None:
    """Return the name of the first column that does not hold what follows from the payload."""
    markers = table.markers_of(values)
    for at, column in repeated:
        stored = digits_of(values[at]) if column.digits else values[at]
        if stored != table.entity.value(model, markers, column.field):
            return column.name
    return None
