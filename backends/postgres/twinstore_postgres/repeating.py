"""The columns that repeat key and tenant beside a payload.

A row is found by its columns and read from its payload. Where the two name different rows, or different
tenants, one would be shown under the name of the other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from twinstore.catalog import Layout
from twinstore_postgres.columns import Origin, digits_of

if TYPE_CHECKING:
    from twinstore.canonical import CanonicalModel
    from twinstore_postgres.codec import Row
    from twinstore_postgres.columns import Column
    from twinstore_postgres.derive import Table

__all__ = ["contradiction", "repeated_columns"]


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


def contradiction(
    table: Table, repeated: tuple[tuple[int, Column], ...], model: CanonicalModel, values: Row
) -> str | None:
    """Return the name of the first column that does not hold what follows from the payload."""
    markers = table.markers_of(values)
    for at, column in repeated:
        stored = digits_of(values[at]) if column.digits else values[at]
        if stored != table.entity.value(model, markers, column.field):
            return column.name
    return None
