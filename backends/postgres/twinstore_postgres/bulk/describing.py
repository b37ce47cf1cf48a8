"""What a scan selects: the columns that the server has, under the names of the description.

From the description come names, the numbers of enumerations, key, tenant, layout, retention and what
the wire form leaves out. Which columns there are and of which type, the catalog of the server says.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final, cast

from twinstore.catalog import Layout
from twinstore.errors import MigrationError, Outcome
from twinstore.shapes import Kind, left_out_values
from twinstore_postgres.bulk.converting import converter_of, digits_text, is_array
from twinstore_postgres.bulk.scanning import SelectedColumn, TableScan
from twinstore_postgres.columns import PAYLOAD, VERSION, column_name, has_column, key_in_payload
from twinstore_postgres.errors import translated
from twinstore_postgres.settings import DRIVER

if TYPE_CHECKING:
    from twinstore.catalog import Entity
    from twinstore.enums import NumberedEnum
    from twinstore_postgres.columns import Column
    from twinstore_postgres.connecting import Connection

__all__ = ["Scans", "described", "scan_of"]

TEXTS: Final = frozenset({"text", "varchar"})
# Every column with the name of its type; that of an array begins with an underscore.
COLUMNS: Final = """
SELECT a.attname, t.typname
  FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid
 WHERE a.attrelid = %s::regclass AND a.attnum > 0 AND NOT a.attisdropped
"""


class Scans:
    """What scans select; the catalog of the server is read once for each entity."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str], TableScan] = {}

    def of(self, connection: Connection, entity: Entity) -> TableScan:
        """Return what a scan of an entity selects; see :func:`scan_of`."""
        name = (entity.module, entity.name)
        scan = self._known.get(name)
        if scan is None:
            # A savepoint: a table that is not as described must not end the view.
            with translated(outcome=Outcome.NOT_APPLIED), connection.transaction():
                scan = self._known.setdefault(name, scan_of(connection, entity))
        return scan


def scan_of(connection: Connection, entity: Entity) -> TableScan:
    """Return what a scan of an entity selects, from the catalog of the server.

    Raises:
        MigrationError: as :func:`described` says, or there is no such table.
    """
    relation = f'"{entity.module}"."{entity.name}"'
    return described(entity, dict(connection.execute(COLUMNS, [relation]).fetchall()))


def described(entity: Entity, types: Mapping[str, str]) -> TableScan:
    """Return what a scan of an entity selects, from the types of the columns by their names.

    Raises:
        MigrationError: the table has another set of columns than the description.
    """
    check_columns(entity, types)
    payload = entity.layout is Layout.PAYLOAD
    repeated = entity.beside if payload else ()
    key = key_in_payload(entity)
    return TableScan(
        entity=entity,
        fields=parts(entity, types, [PAYLOAD] if payload else list(entity.shapes)),
        markers=parts(entity, types, entity.markers),
        beside=parts(entity, types, [*repeated, *derived_names(entity)]),
        apart=() if key is None else (apart(key),),
        counter=part(entity, VERSION, types[VERSION])
        if entity.versioned_table and VERSION in types
        else None,
        payload=payload,
        left_out=left_out_values(entity.model),
    )


def check_columns(entity: Entity, types: Mapping[str, str]) -> None:
    """Refuse a table whose columns the description does not name one by one.

    Raises:
        MigrationError: names the columns that only one of the two has.
    """
    table = f"{entity.module}.{entity.name}"
    known = {column_name(entity, name) for name in stored_names(entity)}
    if forgotten := sorted(types.keys() - known):
        raise MigrationError(
            f"The description of {entity.name} does not know column {', '.join(forgotten)} of table {table}, "
            "so it would be neither copied nor compared. Describe it, or drop it.",
            **entity.located(driver=DRIVER),
        )
    # Nobody reads the version of a row here, so the table of a source need not have one.
    if lacking := sorted(known - types.keys() - {VERSION}):
        raise MigrationError(
            f"The table {table} lacks column {', '.join(lacking)}, which the description of {entity.name} "
            "names. Run: twinstore migrate run",
            **entity.located(driver=DRIVER),
        )


def stored_names(entity: Entity) -> tuple[str, ...]:
    """Return every name for which there should be a column."""
    model = (*entity.beside, PAYLOAD) if entity.layout is Layout.PAYLOAD else tuple(entity.shapes)
    return (*model, *entity.markers, *derived_names(entity), *((VERSION,) if entity.versioned_table else ()))


def derived_names(entity: Entity) -> tuple[str, ...]:
    """Return the derived fields that tables have."""
    return tuple(item.name for item in entity.derived if has_column(item))


def apart(key: Column) -> SelectedColumn:
    """Return what is selected for a key that stands in the payload."""
    return SelectedColumn(name=key.field, column=key.name, member=key)


def parts(entity: Entity, types: Mapping[str, str], names: Sequence[str]) -> tuple[SelectedColumn, ...]:
    """Return what is selected for some names."""
    return tuple(part(entity, name, types[column_name(entity, name)]) for name in names)


def part(entity: Entity, name: str, type_name: str) -> SelectedColumn:
    """Return what is selected for one name; the type is that of the server."""
    shape = None if name in entity.markers else entity.shapes.get(name)
    numbers = None
    if shape is not None and shape.value.kind is Kind.NUMBERED:
        numbers = cast("type[NumberedEnum]", shape.value.cls)
    return SelectedColumn(
        name=name,
        column=column_name(entity, name),
        type_name=type_name,
        numbers=numbers,
        array=is_array(type_name),
        text=type_name in TEXTS,
        convert=digits_text if entity.known.get(name) is Kind.HEX else converter_of(type_name, numbers),
    )
