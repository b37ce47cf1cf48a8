"""Setting fields of rows as they are stored, without reading them: for rows that nobody can read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from psycopg import sql

from twinstore import jsontext
from twinstore.access import Unset
from twinstore.catalog import Layout
from twinstore_postgres.codec import Json
from twinstore_postgres.columns import PAYLOAD, VERSION, Origin
from twinstore_postgres.compile import compile_selection

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from twinstore.access import Values
    from twinstore.query import Query
    from twinstore_postgres.derive import Table
    from twinstore_postgres.execution import Step

__all__ = ["compile_amendment"]

COLUMN: Final = sql.SQL("{} = %s")
MERGED: Final = sql.SQL("{0} = ({0} || %s) - %s::text[]")
COUNTED: Final = sql.SQL("{0} = {0} + 1")


def compile_amendment(query: Query, table: Table, values: Values) -> Step:
    """Return the statement that sets fields of the first rows of a list."""
    parts = list(assignments(table, values))
    changed = sql.SQL(", ").join(part for part, _ in parts)
    statement, given = compile_selection(
        sql.SQL("UPDATE {} SET {}").format(table.name, changed), query, table
    )
    return statement, [*(value for _, several in parts for value in several), *given]


def assignments(table: Table, values: Values) -> Iterator[tuple[sql.Composable, tuple[object, ...]]]:
    """Yield what sets the columns, each with its parameters."""
    for name, value in values.items():
        column = table.by_field.get(name)
        if column is not None and column.origin in {Origin.FIELD, Origin.MARKER}:
            yield (
                COLUMN.format(sql.Identifier(column.name)),
                (None if isinstance(value, Unset) else column.bound(value),),
            )
    inside = in_payload(table, values)
    if inside:
        kept = {name: value for name, value in inside.items() if not isinstance(value, Unset)}
        gone = [name for name in inside if name not in kept]
        yield MERGED.format(sql.Identifier(PAYLOAD)), (Json(jsontext.dumps(kept)), gone)
    if table.entity.versioned_table:
        yield COUNTED.format(sql.Identifier(VERSION)), ()


def in_payload(table: Table, values: Values) -> Mapping[str, object]:
    """Return the fields that a payload holds, whether or not a column repeats them."""
    if table.entity.layout is not Layout.PAYLOAD:
        return {}
    return {name: value for name, value in values.items() if name not in table.entity.markers}
