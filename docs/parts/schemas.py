"""The actual schema of a store after its migrations, read from the servers themselves."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from docs.parts.tables import NONE, code, codes, table

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    import psycopg
    from pymongo.database import Database

__all__ = ["collection_part", "collections", "policy_part", "table_part", "tables"]

TABLES: Final = """
SELECT relname FROM pg_class WHERE relnamespace = %s::regnamespace AND relkind = 'r' ORDER BY 1
"""
COLUMNS: Final = """
SELECT a.attname, format_type(a.atttypid, a.atttypmod), l.collname, a.attnotnull,
       pg_get_expr(d.adbin, d.adrelid)
FROM pg_attribute a
LEFT JOIN pg_attrdef d ON (d.adrelid, d.adnum) = (a.attrelid, a.attnum)
LEFT JOIN pg_collation l ON l.oid = a.attcollation
WHERE a.attrelid = %s::regclass AND a.attnum > 0 AND NOT a.attisdropped
ORDER BY a.attnum
"""
# Since version 18 a NOT NULL is a constraint too (type n); the columns show it on every version.
CONSTRAINTS: Final = """
SELECT conname, pg_get_constraintdef(oid, true) FROM pg_constraint
WHERE conrelid = %s::regclass AND contype IN ('p', 'u', 'f', 'c')
ORDER BY strpos('pufc', contype::text), conname
"""
INDEXES: Final = """
SELECT c.relname, i.indisunique, pg_get_indexdef(i.indexrelid)
FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid
WHERE i.indrelid = %s::regclass
  AND NOT EXISTS (SELECT FROM pg_constraint WHERE conindid = i.indexrelid AND contype IN ('p', 'u'))
ORDER BY c.relname
"""
SECURITY: Final = "SELECT relrowsecurity, relforcerowsecurity FROM pg_class WHERE oid = %s::regclass"
POLICIES: Final = """
SELECT policyname, cmd, qual, with_check FROM pg_policies WHERE schemaname = %s AND tablename = %s
ORDER BY policyname
"""
GRANTS: Final = """
SELECT p.name
FROM unnest(ARRAY['SELECT', 'INSERT', 'UPDATE', 'DELETE', 'TRUNCATE']) WITH ORDINALITY p(name, place)
WHERE has_table_privilege(%s, %s::regclass, p.name) ORDER BY p.place
"""


@dataclass(frozen=True, slots=True)
class Relational:
    """A migrated PostgreSQL database, and the application role that its migrations granted to."""

    connection: psycopg.Connection
    application_role: str

    def rows(self, statement: str, *arguments: str) -> list[tuple[Any, ...]]:
        """Return the answer of the server."""
        return self.connection.execute(statement.encode(), arguments).fetchall()


def tables(store: Relational, schema: str) -> tuple[str, ...]:
    """Return the names of all tables of a schema."""
    return tuple(name for (name,) in store.rows(TABLES, schema))


def table_part(store: Relational, schema: str, name: str) -> str:
    """Return columns, constraints, indexes, row-level security and grants of a table."""
    full = f"{schema}.{name}"
    columns = table(("Column", "Type", "Null", "Default"), map(_column, store.rows(COLUMNS, full)))
    constraints = [f"- {code(found)}: {code(text)}" for found, text in store.rows(CONSTRAINTS, full)]
    indexes = [_index(*row) for row in store.rows(INDEXES, full)]
    return "\n\n".join(
        [
            f"PostgreSQL table {code(full)}:",
            columns,
            *_listed("Constraints:", constraints),
            *_listed("Indexes:", indexes),
            f"{_security(store, schema, name)} {_grants(store, full)}",
        ]
    )


def _column(row: tuple[Any, ...]) -> tuple[str, ...]:
    name, kind, collation, required, default = row
    short = kind.replace("timestamp(3) with time zone", "timestamptz(3)")
    short = short.replace("timestamp with time zone", "timestamptz")
    collated = f' COLLATE "{collation}"' if collation not in {None, "default"} else ""
    return (
        code(name),
        code(short + collated),
        "no" if required else "yes",
        code(default) if default else NONE,
    )


def _index(name: str, unique: bool, definition: str) -> str:  # noqa: FBT001  # a row of the catalogue
    shown = definition.partition(" USING btree ")[2]
    return f"- {code(name)}{' unique' if unique else ''}: {code(shown)}"


def _listed(title: str, lines: list[str]) -> Iterator[str]:
    if lines:
        yield "\n".join([title, "", *lines])


def _security(store: Relational, schema: str, name: str) -> str:
    ((enabled, forced),) = store.rows(SECURITY, f"{schema}.{name}")
    if not enabled:
        return "No row-level security: it belongs to no tenant."
    policies = codes(policy for policy, *_ in store.rows(POLICIES, schema, name))
    return f"Row-level security: {'forced' if forced else 'enabled'}, policy {policies}."


def _grants(store: Relational, full: str) -> str:
    found = [name for (name,) in store.rows(GRANTS, store.application_role, full)]
    return f"The application role may {codes(found)}." if found else "The application role may do nothing."


def policy_part(store: Relational, schemas: Iterable[str]) -> str:
    """Return every distinct policy with the tables that it guards."""
    guarded: dict[tuple[str, ...], list[str]] = {}
    places = [(schema, name) for schema in schemas for name in tables(store, schema)]
    for place in places:
        name = place[1]
        for row in store.rows(POLICIES, *place):
            guarded.setdefault(tuple(" ".join(str(part).split()) for part in row), []).append(name)
    return "\n\n".join(
        f"Policy {code(policy)} for {code(command)} on {codes(names)}:\n\n"
        f"```sql\nUSING {using}\nWITH CHECK {check}\n```"
        for (policy, command, using, check), names in guarded.items()
    )


def collections(database: Database[dict[str, Any]]) -> tuple[str, ...]:
    """Return the names of all collections."""
    return tuple(sorted(database.list_collection_names()))


def collection_part(database: Database[dict[str, Any]], name: str) -> str:
    """Return indexes, age limit and validator of a collection."""
    indexes = sorted(database[name].list_indexes(), key=lambda item: (item["name"] != "_id_", item["name"]))
    (found,) = database.list_collections(filter={"name": name})
    schema = found["options"].get("validator", {}).get("$jsonSchema")
    return "\n\n".join(
        [
            f"MongoDB collection {code(name)}:",
            "\n".join(["Indexes:", "", *(f"- {_mongo_index(index)}" for index in indexes)]),
            *(_validator(found["options"], schema) if schema else ["No validator."]),
        ]
    )


def _mongo_index(index: Mapping[str, Any]) -> str:
    keys = ", ".join(f"{field}: {int(direction)}" for field, direction in index["key"].items())
    notes = [note for note in ("unique", "sparse") if index.get(note)]
    if "partialFilterExpression" in index:
        notes.append(f"where {code(_shown(index['partialFilterExpression']))}")
    if "expireAfterSeconds" in index:
        notes.append(f"TTL {int(index['expireAfterSeconds']):,} seconds")
    return " ".join([f"{code(index['name'])}: {code(f'{{{keys}}}')}", ", ".join(notes)]).strip()


def _shown(value: object) -> str:
    match value:
        case dict():
            return "{" + ", ".join(f"{name}: {_shown(inner)}" for name, inner in value.items()) + "}"
        case bool():
            return str(value).lower()
        case None:
            return "null"
        case _:
            return str(value)


def _validator(options: Mapping[str, Any], schema: Mapping[str, Any]) -> Iterator[str]:
    level, action = options.get("validationLevel", "strict"), options.get("validationAction", "error")
    yield f"Validator (level {code(level)}, action {code(action)}):"
    yield table(("Field", "BSON type", "Required", "Values"), _properties(schema, ""))


def _properties(schema: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, ...]]:
    required = schema.get("required", ())
    for name, inner in schema.get("properties", {}).items():
        kinds = inner.get("bsonType", "string")
        shown = codes(kinds) if isinstance(kinds, list) else code(kinds)
        yield (code(prefix + name), shown, "yes" if name in required else "no", _values(inner))
        yield from _properties(inner, f"{prefix}{name}.")
        yield from _properties(inner.get("items", {}), f"{prefix}{name}[].")


def _values(schema: Mapping[str, Any]) -> str:
    if "enum" in schema:
        return codes(schema["enum"])
    return "whole numbers" if schema.get("multipleOf") == 1 else NONE
