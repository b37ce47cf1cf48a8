"""Dropping keys, indexes and policies, and making them again; see :mod:`twinstore.planting`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, LiteralString

from psycopg import sql

from twinstore.planting import SchemaPart

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import psycopg

    from twinstore.catalog import Entity

__all__ = ["drop_part", "schema_parts"]

PARTS: Final = """
WITH relation AS (SELECT oid, relrowsecurity, relforcerowsecurity, relname
                    FROM pg_class WHERE oid = %s::regclass)
SELECT conname, CASE contype WHEN 'p' THEN 'primary key' WHEN 'u' THEN 'unique key' ELSE 'foreign key' END
  FROM pg_constraint, relation WHERE conrelid = relation.oid AND contype IN ('p', 'u', 'f')
UNION ALL
SELECT indexrelid::regclass::text, CASE WHEN indisunique THEN 'unique index' ELSE 'index' END
  FROM pg_index, relation WHERE indrelid = relation.oid
   AND NOT EXISTS (SELECT FROM pg_constraint WHERE conindid = indexrelid AND contype IN ('p', 'u'))
UNION ALL
SELECT polname, 'policy' FROM pg_policy, relation WHERE polrelid = relation.oid
UNION ALL
SELECT relname, 'row-level security' FROM relation WHERE relrowsecurity
UNION ALL
SELECT relname, 'forced row-level security' FROM relation WHERE relforcerowsecurity
ORDER BY 2, 1
"""
# Those of the table itself, and of others that lean on one of its keys.
CONSTRAINTS: Final = """
SELECT conrelid::regclass::text, conname, pg_get_constraintdef(oid) FROM pg_constraint
 WHERE (conrelid = %(table)s::regclass AND conname = %(name)s)
    OR (contype = 'f' AND conindid = (SELECT conindid FROM pg_constraint
                                       WHERE conrelid = %(table)s::regclass AND conname = %(name)s
                                         AND contype <> 'f'))
 ORDER BY contype = 'f' DESC
"""
POLICY: Final = """
SELECT permissive, roles, cmd, qual, with_check FROM pg_policies
 WHERE schemaname = %s AND tablename = %s AND policyname = %s
"""
SWITCHES: Final[dict[str, tuple[LiteralString, LiteralString]]] = {
    "row-level security": ("DISABLE ROW LEVEL SECURITY", "ENABLE ROW LEVEL SECURITY"),
    "forced row-level security": ("NO FORCE ROW LEVEL SECURITY", "FORCE ROW LEVEL SECURITY"),
}
KEYS: Final = frozenset({"primary key", "unique key", "foreign key"})


def schema_parts(connection: psycopg.Connection[Any], entity: Entity) -> Iterator[SchemaPart]:
    """Return keys, indexes and policies of a table; the name of an index stands without its schema."""
    for name, kind in connection.execute(PARTS, [f'"{entity.module}"."{entity.name}"']).fetchall():
        yield SchemaPart(name.rpartition(".")[2].strip('"'), kind)


def drop_part(connection: psycopg.Connection[Any], entity: Entity, part: SchemaPart) -> Callable[[], None]:
    """Drop a part and return what makes it again."""
    if part.kind in KEYS:
        down, up = of_constraint(connection, entity, part.name)
    elif part.kind in SWITCHES:
        down, up = of_switch(entity, part.kind)
    elif part.kind == "policy":
        down, up = of_policy(connection, entity, part.name)
    else:
        down, up = of_index(connection, entity, part.name)
    for statement in down:
        connection.execute(statement)

    def make() -> None:
        for statement in up:
            connection.execute(statement)

    return make


Statements = tuple[list[sql.Composed], list[sql.Composed | sql.SQL]]


def of_constraint(connection: psycopg.Connection[Any], entity: Entity, name: str) -> Statements:
    """Return what drops a key with all that leans on it, and what makes them again."""
    values = {"table": f'"{entity.module}"."{entity.name}"', "name": name}
    found = connection.execute(CONSTRAINTS, values).fetchall()
    alter = [
        (sql.SQL("ALTER TABLE {} ").format(sql.SQL(table)), sql.Identifier(constraint), sql.SQL(definition))
        for table, constraint, definition in found
    ]
    down = [table + sql.SQL("DROP CONSTRAINT {}").format(constraint) for table, constraint, _ in alter]
    up = [
        table + sql.SQL("ADD CONSTRAINT {} {}").format(constraint, definition)
        for table, constraint, definition in alter
    ]
    return down, [*reversed(up)]


def of_switch(entity: Entity, kind: str) -> Statements:
    """Return what switches row-level security off and on."""
    off, on = SWITCHES[kind]
    table = sql.Identifier(entity.module, entity.name)
    return (
        [sql.SQL("ALTER TABLE {} ").format(table) + sql.SQL(off)],
        [sql.SQL("ALTER TABLE {} ").format(table) + sql.SQL(on)],
    )


def of_policy(connection: psycopg.Connection[Any], entity: Entity, name: str) -> Statements:
    """Return what drops a policy and makes it again."""
    found = connection.execute(POLICY, [entity.module, entity.name, name]).fetchone()
    if found is None:
        raise LookupError(f"{entity.name} has no policy {name}")  # met by programmers only
    permissive, roles, command, using, check = found
    table = sql.Identifier(entity.module, entity.name)
    up = sql.SQL("CREATE POLICY {} ON {} AS {} FOR {} TO {}").format(
        sql.Identifier(name),
        table,
        sql.SQL(permissive),
        sql.SQL(command),
        sql.SQL(", ").join(sql.SQL("PUBLIC") if role == "public" else sql.Identifier(role) for role in roles),
    )
    if using is not None:
        up += sql.SQL(" USING ({})").format(sql.SQL(using))
    if check is not None:
        up += sql.SQL(" WITH CHECK ({})").format(sql.SQL(check))
    return [sql.SQL("DROP POLICY {} ON {}").format(sql.Identifier(name), table)], [up]


def of_index(connection: psycopg.Connection[Any], entity: Entity, name: str) -> Statements:
    """Return what drops an index and makes it again."""
    index = sql.Identifier(entity.module, name)
    found = connection.execute(
        "SELECT pg_get_indexdef(%s::regclass)", [f'"{entity.module}"."{name}"']
    ).fetchone()
    if found is None:
        raise LookupError(f"{entity.name} has no index {name}")  # met by programmers only
    return [sql.SQL("DROP INDEX {}").format(index)], [sql.SQL(found[0])]
