"""Changing rows past the driver, for the self-test of the verification; see :mod:`twinstore.planting`."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any, Final, cast
from uuid import UUID

import psycopg
from psycopg import sql
from typing_extensions import override

from twinstore.catalog import KeyType, Layout
from twinstore.planting import (
    STORED_NULL,
    Doubled,
    Planter,
    PlantRefusedError,
    RawRow,
    Role,
    SchemaPart,
    StoredPlace,
)
from twinstore.scope import SYSTEM_TENANT
from twinstore_postgres.columns import (
    VERSION,
    Origin,
    column_name,
    columns_of,
    digits_of,
    key_in_payload,
)
from twinstore_postgres.derive import member_of
from twinstore_postgres.planting_schema import drop_part, schema_parts
from twinstore_postgres.targets import MIGRATIONS, direct_target

if TYPE_CHECKING:
    from twinstore.backend import BackendSettings
    from twinstore.catalog import Entity
    from twinstore.keys import Key
    from twinstore_postgres.settings import PostgresSettings

__all__ = ["planter_of"]

TREES: Final = frozenset({"json", "jsonb"})
# What the client gives as plain values; all others are read and written as text.
PLAIN: Final = frozenset(
    {"text", "varchar", "bool", "int2", "int4", "int8", "float8", "timestamptz", "_text", "_int4", "_int8"}
)
COLUMNS: Final = """
SELECT column_name, udt_name FROM information_schema.columns
 WHERE table_schema = %s AND table_name = %s ORDER BY ordinal_position
"""
ROLES: Final = {
    Origin.MARKER: (Role.MARKER, "storage"),
    Origin.DERIVED: (Role.DERIVED, "beside"),
    Origin.PAYLOAD: (Role.PAYLOAD, "doc"),
    Origin.FIELD: (Role.FIELD, "doc"),
}
Values = Mapping[str, object]


@contextmanager
def planter_of(settings: BackendSettings, entities: Sequence[Entity]) -> Iterator[Planter]:
    """Open a planter as the owner of the schema, which row-level security shows every row."""
    own = cast("PostgresSettings", settings)
    target = direct_target(MIGRATIONS, own, own.owner_connection_string)
    with closing(target.connect()) as connection:
        connection.execute("SELECT set_config('app.tenant_id', %s, false)", [SYSTEM_TENANT])
        # What is planted is read back at once and thrown away afterwards, so nothing is waited for.
        connection.execute("SET synchronous_commit = off")
        yield PostgresPlanter(connection, entities)


class PostgresPlanter(Planter):
    """Implements :class:`~twinstore.planting.Planter`; a row is found again by its place in the table."""

    def __init__(self, connection: psycopg.Connection[Any], entities: Sequence[Entity]) -> None:
        """Take the connection of the owner and whose tables there are."""
        self._connection = connection
        # By the entity and not by its name, which another module may have too.
        self._types = {entity: self._columns(entity) for entity in entities}

    def _columns(self, entity: Entity) -> dict[str, str]:
        return dict(self._connection.execute(COLUMNS, [entity.module, entity.name]).fetchall())

    @property
    @override
    def tabular(self) -> bool:
        return True

    @override
    def places(self, entity: Entity) -> tuple[StoredPlace, ...]:
        return tuple(place_of(entity, name, kind) for name, kind in self._types[entity].items())

    @override
    def rows(self, entity: Entity) -> list[RawRow]:
        statement = sql.SQL("SELECT {} FROM {}").format(self._selected(entity), table(entity))
        return [self._row(entity, values) for values in self._connection.execute(statement).fetchall()]

    @override
    def change(self, entity: Entity, row: RawRow | None, values: Values | None) -> RawRow | None:
        # Taken back where nothing changed, because even so the row would stand elsewhere.
        with refusals({}), self._connection.transaction():
            return self._change(entity, row, values)

    @override
    def change_all(
        self, entity: Entity, changes: Sequence[tuple[RawRow | None, Values | None]]
    ) -> Sequence[RawRow | PlantRefusedError | None]:
        """Change rows in one transaction; one by one where the server refuses one of them."""
        try:
            with refusals({}), self._connection.transaction():
                return [self._change(entity, row, values) for row, values in changes]
        except PlantRefusedError:
            return super().change_all(entity, changes)

    def _change(self, entity: Entity, row: RawRow | None, values: Values | None) -> RawRow | None:
        if values is None:
            if row is not None:
                where = sql.SQL("DELETE FROM {} WHERE ctid = {}::tid").format(table(entity), str(row.place))
                self._connection.execute(where)
            return None
        changed = values if row is None else {name: values[name] for name in differing(row.values, values)}
        if not changed:
            raise PlantRefusedError("the table keeps it as it was")
        types = {name: self._types[entity][name] for name in changed}
        statement = self._insert(entity, types) if row is None else self._update(entity, row, types)
        parameters = [parameter(value, types[name]) for name, value in changed.items()]
        with refusals(types):
            found = self._connection.execute(statement, parameters).fetchone()
        stored = None if found is None else self._row(entity, found)
        if row is not None and stored is not None and not differing(row.values, stored.values):
            raise PlantRefusedError(f"the type {', '.join(sorted(set(types.values())))} keeps it as it was")
        return stored

    def _insert(self, entity: Entity, types: Mapping[str, str]) -> sql.Composed:
        return sql.SQL("INSERT INTO {} ({}) VALUES ({}) RETURNING {}").format(
            table(entity),
            sql.SQL(", ").join(map(sql.Identifier, types)),
            sql.SQL(", ").join(map(placeholder, types.values())),
            self._selected(entity),
        )

    def _update(self, entity: Entity, row: RawRow, types: Mapping[str, str]) -> sql.Composed:
        sets = [
            sql.SQL("{} = {}").format(sql.Identifier(name), placeholder(kind)) for name, kind in types.items()
        ]
        return sql.SQL("UPDATE {} SET {} WHERE ctid = {}::tid RETURNING {}").format(
            table(entity), sql.SQL(", ").join(sets), str(row.place), self._selected(entity)
        )

    @override
    def forms(self, place: StoredPlace, value: object) -> Iterator[tuple[str, object]]:
        """Return the other spellings of a number inside of JSON; a column has one type."""
        if not place.nests:
            return
        if isinstance(value, bool):
            yield "number", int(value)
        elif isinstance(value, int) and int(float(value)) == value:
            yield "number with a fraction", float(value)

    @override
    def parts(self, entity: Entity) -> Iterator[SchemaPart]:
        return schema_parts(self._connection, entity)

    @override
    def drop(self, entity: Entity, part: SchemaPart) -> Callable[[], None]:
        return drop_part(self._connection, entity, part)

    @override
    def clear(self, entity: Entity) -> None:
        self._connection.execute(sql.SQL("DELETE FROM {}").format(table(entity)))

    def _selected(self, entity: Entity) -> sql.Composable:
        names = [selected(name, kind) for name, kind in self._types[entity].items()]
        return sql.SQL(", ").join([sql.SQL("ctid::text"), *names])

    def _row(self, entity: Entity, found: Sequence[Any]) -> RawRow:
        place, *texts = found
        types = self._types[entity]
        values = {
            name: value_of(value, kind) for (name, kind), value in zip(types.items(), texts, strict=True)
        }
        return RawRow(place, key_of(entity, values), values)


def table(entity: Entity) -> sql.Identifier:
    """Return the table of an entity."""
    return sql.Identifier(entity.module, entity.name)


def place_of(entity: Entity, name: str, kind: str) -> StoredPlace:
    """Return what a column holds."""
    column = next((column for column in columns_of(entity) if column.name == name), None)
    field = name if column is None else column.field
    role, part = (Role.COUNTER, "beside") if name == VERSION else (Role.FIELD, "doc")
    if column is not None:
        role, part = ROLES[column.origin]
    if entity.layout is Layout.PAYLOAD and field in entity.beside:
        role, part = Role.REPEATED, "beside"
    if field in entity.key:
        role = Role.KEY
    elif field == entity.tenant_field:
        role = Role.TENANT
    return StoredPlace(name=name, field=field, part=part, role=role, type=kind, nests=kind in TREES)


def key_of(entity: Entity, values: Values) -> Key | None:
    """Return the key of a row, ``None`` where a part of it is missing."""
    member = key_in_payload(entity)
    if member is not None:
        key: tuple[object, ...] = (member_of(member.field, values[member.name]),)
    else:
        types = (part.type for part in entity.key_parts)
        found = (values[column_name(entity, field)] for field in entity.key)
        key = tuple(map(key_value, found, types))
    return cast("Key", key) if entity.admits_key(key) else None


def key_value(value: object, kind: KeyType) -> object:
    """Return a part of a key as the description has it."""
    if kind is KeyType.HEX:
        return digits_of(value)
    return str(value) if isinstance(value, UUID) else value


def selected(name: str, kind: str) -> sql.Composable:
    """Return what is selected of a column."""
    column = sql.Identifier(name)
    return column if kind in PLAIN else sql.SQL("{}::text").format(column)


def placeholder(kind: str) -> sql.Composable:
    """Return a parameter of the type of a column."""
    return sql.SQL("%s::{}").format(sql.Identifier(kind))


def value_of(value: Any, kind: str) -> object:  # noqa: ANN401  # what the client returns
    """Return a value of a column as the planter shows it."""
    if kind not in TREES or value is None:
        return cast("object", value)
    tree: object = json.loads(value)
    return STORED_NULL if tree is None else tree


def parameter(value: object, kind: str) -> object:
    """Return a value as the parameter of a column."""
    return value if kind not in TREES or value is None else text_of(value)


def text_of(value: object) -> str:
    """Return the JSON of a value in which names may stand twice."""
    if isinstance(value, dict):
        content = cast("dict[str, object]", value)
        members = [*content.items()]
        if isinstance(value, Doubled):
            members.append((value.name, value[value.name]))
        return f"{{{','.join(f'{json.dumps(name)}:{text_of(item)}' for name, item in members)}}}"
    if isinstance(value, list):
        return f"[{','.join(map(text_of, cast('list[object]', value)))}]"
    return json.dumps(None if value is STORED_NULL else value)


def differing(one: Values, other: Values) -> list[str]:
    """Return the names whose values differ, ``1`` and ``1.0`` among them."""
    return [name for name in other if not is_equal(one.get(name), other[name])]


def is_equal(one: object, other: object) -> bool:
    """Whether two values are the same, down to the type of a number and the order of names."""
    if one is other:
        return True
    if type(one) is not type(other) or one != other:
        return False
    if isinstance(one, dict):
        pair = cast("dict[str, object]", one), cast("dict[str, object]", other)
        named_alike = [*pair[0]] == [*pair[1]] and not isinstance(one, Doubled)
        return named_alike and all(map(is_equal, pair[0].values(), pair[1].values()))
    if isinstance(one, list):
        return all(map(is_equal, cast("list[object]", one), cast("list[object]", other)))
    return True


@contextmanager
def refusals(types: Mapping[str, str]) -> Iterator[None]:
    """Turn a refusal of the server into one of ours, which names the constraint or the type."""
    try:
        yield
    except psycopg.errors.NotNullViolation as error:
        raise PlantRefusedError(f"not null of {error.diag.column_name}") from error
    except psycopg.IntegrityError as error:
        unique = isinstance(error, psycopg.errors.UniqueViolation)
        raise PlantRefusedError(str(error.diag.constraint_name), unique=unique) from error
    except psycopg.DataError as error:
        raise PlantRefusedError(f"the type {', '.join(sorted(set(types.values())))}") from error
