"""The rows of every entity in one SQL table, each as JSON: its statements, and its schema from descriptions.

A table ``rows`` has the columns ``entity``, ``key`` (a JSON array), ``document``, ``markers``, ``derived``
(JSON objects) and ``version``. Fields are expressions over them, so that a new field changes no column.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from json import dumps
from typing import TYPE_CHECKING, Final

from twinstore import jsontext
from twinstore.catalog import StoreKind, TenancyKind
from twinstore.documents.scripts import Script
from twinstore.documents.sqltext import SqlText
from twinstore.tenancy import ALL_TENANTS, Tenant

if TYPE_CHECKING:
    from twinstore.bulk import KeyRange
    from twinstore.catalog import Entity, Index, Key, Module
    from twinstore.documents.rows import DocumentRow
    from twinstore.query import Query
    from twinstore.tenancy import Tenants

__all__ = ["OneTable"]

READ_KEYS: Final = "SELECT key FROM {source} WHERE {where} ORDER BY {order}"
READ: Final = "SELECT document, markers, derived FROM {source} WHERE {where} ORDER BY {order}"


@dataclass(frozen=True, slots=True)
class OneTable:
    """The statements of such a table in the SQL of one server.

    Attributes:
        create: the statement that makes the table; it does nothing where it is.
        field: the expression of a field, with ``{column}`` and ``{name}``. It gives text that compares by
            code point, or a number; absent fields are NULL and sort before every value.
    """

    create: str
    field: str = "json_extract({column}, '$.{name}')"

    def title(self, entity: Entity) -> str:
        """Return what the column ``entity`` holds."""
        return f"{entity.module}.{entity.name}"

    def place(self, entity: Entity, key: Key) -> tuple[str, str]:
        """Return the values of the columns ``entity`` and ``key``."""
        return self.title(entity), dumps(key)

    def values(self, row: DocumentRow) -> tuple[str, str, str]:
        """Return the values of the columns ``document``, ``markers`` and ``derived``."""
        parts = (row.document, row.markers, row.derived)
        document, markers, derived = (jsontext.dumps(part).decode() for part in parts)
        return document, markers, derived

    def expression(self, entity: Entity, name: str) -> str:
        """Return the expression of a field, marker or derived field."""
        column = "markers" if name in entity.markers else "document" if name in entity.shapes else "derived"
        return self.field.format(column=column, name=name)

    def select(self, entity: Entity, query: Query, source: str = "rows") -> SqlText:
        """Return the statement of a list: the first ``limit + 1`` rows of a table or view."""
        # One row more than asked for tells whether there is a next page.
        return self._listed(READ, entity, query, source, query.limit + 1)

    def select_keys(self, entity: Entity, query: Query, source: str = "rows") -> SqlText:
        """Return the statement of the keys of a list, as JSON arrays: of the first ``limit`` rows."""
        return self._listed(READ_KEYS, entity, query, source, query.limit)

    def _listed(self, template: str, entity: Entity, query: Query, source: str, limit: int) -> SqlText:
        by_name = partial(self.expression, entity)
        where = [self.visible(entity, query.scope, source), SqlText.conditions(query, by_name, as_text)]
        order = f"{SqlText.order(query, by_name)} LIMIT {limit}"
        return reading(source, SqlText.joined(where, " AND "), order, template)

    def scan(self, entity: Entity, within: KeyRange, scope: Tenants, source: str = "rows") -> SqlText:
        """Return the statement of a whole range, in the order of the key."""
        fields = self.key_fields(entity)
        marks = ", ".join("?" for _ in entity.key)
        bounds = [(">=", within.lower), ("<", within.upper)]
        where = [SqlText(f"({fields}) {sign} ({marks})", key) for sign, key in bounds if key is not None]
        return reading(source, SqlText.joined([self.visible(entity, scope, source), *where], " AND "), fields)

    def visible(self, entity: Entity, scope: Tenants, source: str = "rows") -> SqlText:
        """Return the condition of the rows of an entity that are seen in a scope."""
        parts = [SqlText(f"entity = '{self.title(entity)}'")]
        if scope is ALL_TENANTS:
            pass
        elif entity.tenancy.kind is TenancyKind.PARENT and entity.parent is not None:
            parent = entity.parent.entity
            seen = self.visible(parent, scope, source)
            keys = f"SELECT {self.key_fields(parent)} FROM {source} WHERE {seen.text}"  # noqa: S608  # names of descriptions
            parts.append(SqlText(f"{self.expression(entity, entity.parent.field)} IN ({keys})", seen.values))
        elif entity.tenant_field is not None:
            tenant = self.expression(entity, entity.tenant_field)
            named = SqlText(f"{tenant} = ?", (scope.id,)) if isinstance(scope, Tenant) else None
            parts.append(named or SqlText(f"{tenant} IS NULL"))
        return SqlText.joined(parts, " AND ")

    def scripts(self, module: Module) -> Iterator[Script]:
        """Yield the migrations of a module: the table, and the key and the indexes of each entity."""
        yield Script("rows", self.create)
        for entity in module.entities:
            yield self._index(entity, "key", "UNIQUE INDEX", self.key_fields(entity), [])
            for index in entity.indexes:
                if StoreKind.TABLES in index.stores:
                    yield self._described(entity, index)

    def key_fields(self, entity: Entity) -> str:
        """Return the expressions of the key, in order."""
        return ", ".join(self.expression(entity, name) for name in entity.key)

    def _described(self, entity: Entity, index: Index) -> Script:
        directions = ((name, " DESC" if descending else "") for name, descending in index.directions)
        fields = ", ".join(f"{self.expression(entity, name)}{direction}" for name, direction in directions)
        where = [
            SqlText.condition(item, self.expression(entity, item.field), as_text) for item in index.where
        ]
        kind = "UNIQUE INDEX" if index.unique else "INDEX"
        return self._index(entity, index.name, kind, fields, where)

    def _index(self, entity: Entity, name: str, kind: str, fields: str, where: list[SqlText]) -> Script:
        rows = SqlText.joined([self.visible(entity, ALL_TENANTS), *where], " AND ").literal
        # Partial, because all entities share the table: each index holds the rows of one.
        text = f'CREATE {kind} "{self.title(entity)}.{name}" ON rows ({fields}) WHERE {rows}'
        return Script(f"{entity.name}.{name}", text)


def reading(source: str, where: SqlText, order: str, template: str = READ) -> SqlText:
    """Return the statement that reads the rows of a table or view."""
    return SqlText(template.format(source=source, where=where.text, order=order), where.values)


def as_text(value: object) -> object:
    """Return a value as the expression of its field gives it: instants are text that sorts like them."""
    # The offset is always the same, and the "+" before it sorts before the "." of a fraction.
    return jsontext.format_timestamp(value) if isinstance(value, datetime) else value
