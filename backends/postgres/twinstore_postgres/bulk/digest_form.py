"""What the columns of a scan hold, for native code that digests them.

As the scan itself it follows from the names of the description and from the types of the server; the program
of a copy has no part in it. What native code cannot show exactly has no form, and is compared row by row.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from twinstore.catalog import Layout, TenancyKind
from twinstore.fast.encoding import Writer
from twinstore.fast.removal import write_removal
from twinstore.jsontext import dumps_sorted
from twinstore.keys import KeyType
from twinstore_postgres.bulk.converting import CONVERTERS, is_array

if TYPE_CHECKING:
    from collections.abc import Sequence

    from twinstore.catalog import Entity
    from twinstore_postgres.bulk.scanning import SelectedColumn, TableScan

__all__ = ["digest_form", "why_no_digests", "why_not"]

# How the text of a column becomes a value, as native code numbers it.
TEXT, INTEGER, FLAG, NUMBER, INSTANT, JSON, ARRAY, MEMBER = range(8)
KINDS: Final = {
    "bool": FLAG,
    **dict.fromkeys(("int2", "int4", "int8"), INTEGER),
    **dict.fromkeys(("float4", "float8", "numeric"), NUMBER),
    "timestamptz": INSTANT,
    **dict.fromkeys(("json", "jsonb"), JSON),
}
MOST_PARTS: Final = 4
MOST_COLUMNS: Final = 256


def why_no_digests(entity: Entity) -> str | None:
    """Return why rows of an entity have no digests whatever its table is like, ``None`` where they may."""
    if entity.derived_key is not None:
        return "its key follows from its content"
    if entity.derived or entity.beside:
        return "tables hold beside the content what follows from it"
    if entity.layout is Layout.PAYLOAD:
        return "its table holds the whole model in one column"
    if entity.shapes.keys() & {*entity.markers}:
        return "a marker has the name of a field"
    if len(entity.key_parts) > MOST_PARTS or any(part.type is KeyType.HEX for part in entity.key_parts):
        return "its key is of a kind that native code does not know"
    return None


def why_not(scan: TableScan) -> str | None:
    """Return why the rows of a scan have no such form, ``None`` where they have."""
    if (reason := why_no_digests(scan.entity)) is not None:
        return reason
    if len(scan.parts) > MOST_COLUMNS:
        return "it has too many columns"
    wanted = kinds_of_places(scan.entity)
    if any(kind_of(part) != wanted.get(part.name, kind_of(part)) for part in scan.parts):
        return "its key, tenant or instant of retention has a column of another type"
    # Equal values of these are spelled alike.
    if any(value and type(value) not in {str, int, bool} for value in scan.left_out.values()):
        return "a value that is left out of its content has parts"
    return None


def kinds_of_places(entity: Entity) -> dict[str, int]:
    """Return how the text of the columns that native code looks into must become a value, by name."""
    wanted = {part.field: INTEGER if part.type.is_number else TEXT for part in entity.key_parts}
    if entity.tenant_field is not None:
        wanted[entity.tenant_field] = TEXT
    return wanted if entity.retention is None else wanted | {entity.retention.field: INSTANT}


def digest_form(scan: TableScan) -> bytes:
    """Return the form as native code reads it; see ``core/native/verifier/table_form.c``."""
    writer, entity = Writer(), scan.entity
    numbers = {part.name: number for number, part in enumerate(scan.parts)}
    writer.number(len(scan.parts))
    writer.number(sum(len(part.numbers) for part in scan.parts if kind_of(part) == MEMBER and part.numbers))
    for part in scan.parts:
        write_column(writer, part)
    left_out = {name: dumps_sorted(value) for name, value in scan.left_out.items()}
    write_parts(writer, scan.fields, numbers, left_out)
    write_parts(writer, scan.markers, numbers, {})
    writer.number(len(entity.key_parts))
    for key in entity.key_parts:
        writer.number(numbers[key.field])
        writer.number(key.type.is_number)
    write_number(writer, numbers, entity.tenant_field)
    writer.number(entity.tenancy.kind is not TenancyKind.REQUIRED)
    write_number(writer, numbers, None if entity.retention is None else entity.retention.field)
    write_number(writer, numbers, None if scan.counter is None else scan.counter.name)
    write_removal(writer, entity.retention, numbers.__getitem__)
    return writer.tobytes()


def kind_of(part: SelectedColumn) -> int:
    """Return how the text of a column becomes a value."""
    if part.numbers is not None and CONVERTERS.get(part.type_name) is int:
        return MEMBER
    return ARRAY if is_array(part.type_name) else KINDS.get(part.type_name, TEXT)


def write_column(writer: Writer, part: SelectedColumn) -> None:
    """Write the kind of a column, and the members of its enumeration."""
    kind = kind_of(part)
    members = tuple(part.numbers) if kind == MEMBER and part.numbers is not None else ()
    writer.number(kind)
    writer.number(len(members))
    for member in members:
        writer.number(member.number)
        writer.text(member.value)


def write_parts(
    writer: Writer, parts: Sequence[SelectedColumn], numbers: dict[str, int], left_out: dict[str, bytes]
) -> None:
    """Write the names of the content in their order, what leaves each out, and the column of each."""
    writer.number(len(parts))
    for part in sorted(parts, key=lambda part: part.name.encode()):
        writer.text(part.name)
        writer.text(left_out.get(part.name, b""))
        writer.number(numbers[part.name])


def write_number(writer: Writer, numbers: dict[str, int], name: str | None) -> None:
    """Write the number of a column and one, or zero for none."""
    writer.number(0 if name is None else numbers[name] + 1)
