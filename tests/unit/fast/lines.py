"""Rows as a table would give them in a COPY in text form, made and changed without a server."""

from __future__ import annotations

import json
from base64 import b64decode
from typing import TYPE_CHECKING, Any, Final

from tests.support.hostile_rows import MAKERS
from twinstore_postgres.bulk.scan import described
from twinstore_postgres.mapping.columns import VERSION
from twinstore_postgres.mapping.table import table_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from random import Random

    from twinstore.bulk.rows import ScanRow
    from twinstore.catalog.entity import Entity
    from twinstore_postgres.bulk.scan import SelectedColumn, TableScan

ESCAPES: Final = str.maketrans(
    {"\\": "\\\\", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\v": "\\v"}
)
# Text that is in a line by chance, or in none at all.
ODD: Final = (
    *("", "t", "f", "true", "0", "-0", "01", "+1", " 1", "1 ", "9223372036854775807", "9223372036854775808"),
    *(
        "1.0",
        "0.1",
        "1.50",
        "1e5",
        "0.0001",
        "0.00001",
        "NaN",
        "[]",
        "{}",
        "null",
        '""',
        '"\\u0041"',
        "[1,2]",
    ),
    *('{"a": 1, "a": 2}', '{"b": 1, "a": [1.5, "\\u001f", "\\/"]}', '{"a":1}', '{"bounds": [1]}', "[1, 2] "),
    *("2025-10-26 14:05:00+00", "2025-10-26 14:05:00.5+00", "2025-10-26 14:05:00.123456+00", "infinity"),
    *("2025-02-30 14:05:00+00", "2025-10-26 14:05:00+01", "2025-10-26T14:05:00+00", "0001-01-01 00:00:00+00"),
    *(
        "\\",
        "\x7f",
        "\u00e9\U0001f41b",
        ":none",
        "a:b",
        "y" * 300,
        "k" * 5000,
        '{"\U0001f41b": {"z": 1, "y": 2}}',
    ),
)


def scan_in_memory(entity: Entity) -> TableScan:
    """Return the scan of the table that a migration makes."""
    types = {column.name: type_name(column.sql_type) for column in table_of(entity).columns}
    return described(entity, types | ({VERSION: "int8"} if entity.versioned_table else {}))


def type_name(sql_type: str) -> str:
    """Return the name of a type as the catalog has it."""
    return f"_{sql_type[:-2]}" if sql_type.endswith("[]") else sql_type


def values_of(scan: TableScan, row: ScanRow) -> list[str | None]:
    """Return the texts of the columns for a row as it is shown."""
    content = json.loads(row.content)
    values = {**scan.left_out, **content["doc"], **content["storage"]}
    return ["1" if part is scan.counter else value_text(part, values.get(part.name)) for part in scan.parts]


def value_text(part: SelectedColumn, value: Any) -> str | None:  # noqa: ANN401  # JSON
    """Return a value as the server writes that of a column."""
    if value is None:
        return None
    if part.numbers is not None:
        return str(part.numbers(value).number)
    if part.type_name in SHOWN:
        return SHOWN[part.type_name](value)
    if isinstance(value, dict | list):
        return json.dumps(value, ensure_ascii=False)
    return str(value)


def server_instant(text: str) -> str:
    """Return an instant without the zeros at the end of its fraction."""
    plain = text.removesuffix("+00:00").replace("T", " ")
    return f"{plain.rstrip('0') if '.' in plain else plain}+00"


SHOWN: Final[Mapping[str, Callable[[Any], str]]] = {
    "timestamptz": server_instant,
    "bool": lambda value: "t" if value else "f",
    "bytea": lambda value: f"\\x{b64decode(value).hex()}",
}


def altered(rng: Random, values: Sequence[str | None]) -> list[str | None]:
    """Return a row with some columns changed."""
    found = list(values)
    for _ in range(rng.choice((0, 0, 1, 1, 2))):
        place = rng.randrange(len(found))
        kind = rng.random()
        if kind < 0.1:  # a share
            found[place] = None
        elif kind < 0.5:  # a share
            found[place] = rng.choice(ODD)
        else:
            old = found[place]
            maker = "jsonb" if old is not None and old[:1] in {"{", "["} else "text"
            # A plain text, not a subclass.
            found[place] = str.__str__(MAKERS[maker](rng, old))
    return found


def line_of(values: Sequence[str | None]) -> bytes:
    """Return the line of a row, without its end."""
    return "\t".join("\\N" if value is None else value.translate(ESCAPES) for value in values).encode()


def row_of(scan: TableScan, values: Sequence[str | None]) -> ScanRow | None:
    """Return what the scan makes of a row, ``None`` where a value is none of the type of its column."""
    try:
        return scan.row(values)
    except (ValueError, OverflowError):
        return None
