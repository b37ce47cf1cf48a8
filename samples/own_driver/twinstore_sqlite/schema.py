"""The one table, and the indexes that the descriptions of a module ask for."""

from __future__ import annotations

from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Final

from twinstore.catalog import StoreKind, TenancyKind
from twinstore.documents import Script, SqlText
from twinstore.jsontext import format_timestamp
from twinstore.tenancy import ALL_TENANTS, Tenant

if TYPE_CHECKING:
    from collections.abc import Iterator

    from twinstore.catalog import Entity, Index, Module
    from twinstore.tenancy import Tenants

COLUMNS: Final = """(
    entity TEXT NOT NULL,
    key TEXT NOT NULL,
    document TEXT NOT NULL CHECK (json_type(document) = 'object'),
    markers TEXT NOT NULL CHECK (json_type(markers) = 'object'),
    derived TEXT NOT NULL CHECK (json_type(derived) = 'object'),
    version TEXT NOT NULL,
    PRIMARY KEY (entity, key)
) WITHOUT ROWID"""


def column(entity: Entity, name: str) -> str:
    """Return the expression of a field; text sorts by code point, and instants are text that sorts like them."""
    place = "markers" if name in entity.markers else "document" if name in entity.shapes else "derived"
    return f"json_extract({place}, '$.{name}')"


def value(stored: object) -> object:
    """Return a value as such an expression gives it."""
    return format_timestamp(stored) if isinstance(stored, datetime) else stored


def title(entity: Entity) -> str:
    """Return what the table calls an entity."""
    return f"{entity.module}.{entity.name}"


def visible(entity: Entity, scope: Tenants, source: str = "rows") -> SqlText:
    """Return which rows of a source are of an entity and seen in a scope."""
    parts = [SqlText(f"entity = '{title(entity)}'")]
    if scope is not ALL_TENANTS and entity.tenancy.kind is TenancyKind.PARENT and entity.parent is not None:
        (key,) = entity.parent.entity.key
        owned = visible(entity.parent.entity, scope, source)
        parents = f"SELECT {column(entity.parent.entity, key)} FROM {source} WHERE {owned.text}"
        parts.append(SqlText(f"{column(entity, entity.parent.field)} IN ({parents})", owned.values))
    elif isinstance(scope, Tenant) and entity.tenant_field is not None:
        parts.append(SqlText(f"{column(entity, entity.tenant_field)} = ?", (scope.id,)))
    elif scope is not ALL_TENANTS and entity.tenant_field is not None:
        parts.append(SqlText(f"{column(entity, entity.tenant_field)} IS NULL"))
    return SqlText.joined(parts, " AND ")


def scripts_of(module: Module) -> Iterator[Script]:
    """Yield the table, and for each entity its key and its indexes, as migrations."""
    yield Script("rows", f"CREATE TABLE IF NOT EXISTS rows {COLUMNS}")
    for entity in module.entities:
        keys = ", ".join(column(entity, name) for name in entity.key)
        yield script_of(entity, "key", "UNIQUE INDEX", keys, [])
        for index in entity.indexes:
            if StoreKind.TABLES in index.stores:
                yield script_of_index(entity, index)


def script_of_index(entity: Entity, index: Index) -> Script:
    """Return the migration of a described index."""
    fields = ", ".join(
        f"{column(entity, name)}{' DESC' if descending else ''}" for name, descending in index.directions
    )
    where = [SqlText.condition(item, column(entity, item.field), value) for item in index.where]
    return script_of(entity, index.name, "UNIQUE INDEX" if index.unique else "INDEX", fields, where)


def script_of(entity: Entity, name: str, kind: str, fields: str, where: list[SqlText]) -> Script:
    """Return the migration of an index over the rows of one entity."""
    rows = SqlText.joined([visible(entity, ALL_TENANTS), *where], " AND ").literal
    return Script(
        f"{entity.name}.{name}", f'CREATE {kind} "{title(entity)}.{name}" ON rows ({fields}) WHERE {rows}'
    )
