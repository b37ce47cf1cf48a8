"""The next migration of a module: what its descriptions want and no shipped file creates.

The shipped schema is known as the lines of its ``schema.txt``; see
:mod:`twinstore_postgres.schema.comparison`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, LiteralString

from psycopg import sql

from twinstore.migrations.migration import MigrationDraft
from twinstore.models.shapes import Kind
from twinstore_postgres.mapping import columns
from twinstore_postgres.mapping.table import table_of
from twinstore_postgres.schema import ddl
from twinstore_postgres.schema.comparison import SCHEMA_FILE, wanted_schema
from twinstore_postgres.schema.files import ROLE_VARIABLE
from twinstore_postgres.schema.migrator import STORE

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

    from twinstore.catalog.entity import Entity, Module
    from twinstore.plugins.module_spec import ModuleSpec

# ``column runs.id: text COLLATE "C" NOT NULL``; an index is listed without its table.
LINE: Final = re.compile(r"(?P<kind>\w+) (?:(?P<table>\w+)\.)?(?P<name>\w+): (?P<rest>.*)")
# Types as the server writes them, by how a description writes them.
DISPLAYED_TYPES: Final = {
    "SMALLINT": "smallint",
    "INTEGER": "integer",
    "BIGINT": "bigint",
    "DOUBLE PRECISION": "double precision",
    "BOOLEAN": "boolean",
    "TIMESTAMPTZ(3)": "timestamp(3) with time zone",
    "TIMESTAMPTZ": "timestamp with time zone",
    "BIGSERIAL": "bigint",
    "JSONB": "jsonb",
    "UUID": "uuid",
    "NUMERIC": "numeric",
    "BYTEA": "bytea",
    "TEXT": "text",
}
DEFAULT: Final = " DEFAULT "
SUFFIX: Final = ".sql"
# What a statement makes, by its first words up to the name; of a privilege, all of it.
CREATES: Final = re.compile(
    r"CREATE (?:TABLE|INDEX|UNIQUE INDEX) IF NOT EXISTS [\w.\"]+"
    r"|ALTER TABLE [\w.\"]+ (?:ADD COLUMN IF NOT EXISTS|DROP CONSTRAINT IF EXISTS) [\w\"]+"
    r"|CREATE POLICY [\w\"]+ ON [\w.\"]+"
    r"|GRANT [^;]+"
)
# UPDATE too, because a copy lets new rows be numbered above those that it brought.
NUMBERING: Final = ("USAGE", "UPDATE")


@dataclass(frozen=True, slots=True)
class ShippedSchema:
    """What the shipped files create: kind, table, name, and what is said of each thing."""

    objects: frozenset[tuple[str, str, str, str]]

    @classmethod
    def of(cls, lines: Sequence[str]) -> ShippedSchema:
        """Return what the lines of a schema say."""
        found = (match for match in map(LINE.fullmatch, lines) if match is not None)
        return cls(frozenset((m["kind"], m["table"] or "", m["name"], m["rest"]) for m in found))

    def named(self, kind: str, table: str) -> dict[str, str]:
        """Return the things of a kind in a table by name, with what is said of each."""
        return {name: rest for item, owner, name, rest in self.objects if (item, owner) == (kind, table)}

    def privileges(self, table: str) -> set[str]:
        """Return what the application role may do with a table."""
        return {rest for kind, _, name, rest in self.objects if (kind, name) == ("grant", table)}

    def uses(self, sequence: str) -> set[str]:
        """Return what the application role may do with a sequence."""
        return {rest for kind, _, name, rest in self.objects if (kind, name) == ("use", sequence)}


def draft_of(module: ModuleSpec[object]) -> MigrationDraft:
    """Return what the descriptions want and no shipped file creates."""
    folder = module.migrations(STORE)
    shipped = wanted_schema(module) if (folder / SCHEMA_FILE).is_file() else ()
    text = proposed_migration(module.catalog, shipped)
    return MigrationDraft(
        folder=STORE,
        suffix=SUFFIX,
        text=text,
        contradictions=tuple(contradictions(module.catalog, shipped)),
        repeats=tuple(repeats(text, folder)) if text is not None and folder.is_dir() else (),
    )


def repeats(text: str, folder: Traversable) -> Iterator[str]:
    """Yield the names of the files in a folder that make a part of a proposal already."""
    wanted = created_by(text)
    for file in sorted(folder.iterdir(), key=lambda file: file.name):
        if file.name.endswith(SUFFIX) and wanted & created_by(file.read_text(encoding="utf-8")):
            yield file.name


def created_by(text: str) -> set[str]:
    """Return what the statements of a file make, however they are broken into lines."""
    return set(CREATES.findall(" ".join(text.split())))


def proposed_migration(module: Module, shipped: Sequence[str]) -> str | None:
    """Return the text of the next migration, for a person to read and to number; ``None`` for none.

    It only adds. What the description wants otherwise is named by :func:`contradictions`.

    Args:
        module: the module as it is described now.
        shipped: the lines of its ``schema.txt``.
    """
    known = ShippedSchema.of(shipped)
    statements = [item for entity in module.entities for item in _statements(entity, known)]
    if statements and not known.objects:
        schema = columns.text(sql.Identifier(module.name))
        statements += [
            f"GRANT USAGE ON SCHEMA {schema} TO {ROLE_VARIABLE};",
            f"GRANT SELECT ON {schema}.schema_migrations TO {ROLE_VARIABLE};",
        ]
    return "\n\n".join(statements) + "\n" if statements else None


def contradictions(module: Module, shipped: Sequence[str]) -> Iterator[str]:
    """Yield what a shipped table has otherwise than its description, as sentences; defaults do not count."""
    known = ShippedSchema.of(shipped)
    for entity in module.entities:
        wanted = {piece.name: _displayed(piece.sql) for piece in ddl.columns(entity)}
        for name, rest in sorted(known.named("column", entity.name).items()):
            if name not in wanted:
                yield f"The description of {entity.name} does not know the column {name}."
            elif rest.partition(DEFAULT)[0] != wanted[name]:
                yield f"The column {name} of {entity.name} is {rest}, but described as {wanted[name]}."


def _statements(entity: Entity, known: ShippedSchema) -> Iterator[str]:
    """Yield the missing parts of one entity."""
    table = columns.text(table_of(entity).name)
    if entity.name in known.named("table", ""):
        yield from _additions(entity, known)
    else:
        yield ddl.create_table(entity)
    for piece in ddl.indexes(entity):
        if piece.name not in known.named("index", ""):
            yield piece.sql
    secured = ddl.row_security(entity)
    if secured is not None and ddl.POLICY not in known.named("policy", entity.name):
        yield secured
    granted = known.privileges(entity.name)
    missing = [privilege for privilege in ddl.grants(entity) if privilege not in granted]
    if missing:
        yield f"GRANT {', '.join(missing)} ON {table} TO {ROLE_VARIABLE};"
    yield from _numbering(entity, known)


def _numbering(entity: Entity, known: ShippedSchema) -> Iterator[str]:
    """Yield what lets the application role number the rows of an entity."""
    if entity.assigned is None:
        return
    # As the server names the one of a BIGSERIAL.
    sequence = f"{entity.name}_{table_of(entity).column(entity.assigned).name}_seq"
    missing = [privilege for privilege in NUMBERING if privilege not in known.uses(sequence)]
    if missing:
        name = columns.text(sql.Identifier(entity.module, sequence))
        yield f"GRANT {', '.join(missing)} ON SEQUENCE {name} TO {ROLE_VARIABLE};"


def _additions(entity: Entity, known: ShippedSchema) -> Iterator[str]:
    """Yield the columns and constraints that an existing table lacks."""
    table = columns.text(table_of(entity).name)
    for piece in ddl.columns(entity):
        if piece.name not in known.named("column", entity.name):
            name = columns.text(sql.Identifier(piece.name))
            moved = moved_property(entity, piece.name, known)
            # Until the values are there, the column may be empty.
            kind = piece.sql if moved is None else piece.sql.removesuffix(REQUIRED)
            yield f"ALTER TABLE {table} ADD COLUMN IF NOT EXISTS {name} {kind};"
            if moved is not None:
                yield moved
            if kind != piece.sql:
                yield f"ALTER TABLE {table} ALTER COLUMN {name} SET{REQUIRED};"
    for piece in ddl.constraints(entity):
        if piece.name not in known.named("constraint", entity.name):
            name = columns.text(sql.Identifier(piece.name))
            # There is no IF NOT EXISTS for constraints, and a file should be able to run twice.
            yield f"ALTER TABLE {table} DROP CONSTRAINT IF EXISTS {name}, ADD CONSTRAINT {name} {piece.sql};"


# A property that the table kept as an unknown one, by the kind of its new column: its value there, and when
# that has the right type. What has another one stays where it is, so that a copy names it.
# An object with other names beside this one is no value of the type.
ONE_NAME: Final = "{{value}} = jsonb_build_object('{0}', {{value}} -> '{0}') AND {{value}} ->> '{0}' ~ '{1}'"
BINARY: Final = "decode({value} #>> '{{$binary,base64}}', 'base64')"
BINARY_ONLY: Final = (
    "{{value}} = jsonb_build_object('$binary', jsonb_build_object("
    "'base64', {{value}} #> '{{{{$binary,base64}}}}', 'subType', '{}'))"
)
MOVED: Final[Mapping[Kind, tuple[LiteralString, LiteralString]]] = {
    Kind.TEXT: ("{value} #>> '{{}}'", "jsonb_typeof({value}) = 'string'"),
    Kind.NAMED: ("{value} #>> '{{}}'", "jsonb_typeof({value}) = 'string'"),
    Kind.FLAG: ("({value})::boolean", "jsonb_typeof({value}) = 'boolean'"),
    Kind.INTEGER: ("({value})::numeric", "jsonb_typeof({value}) = 'number' AND ({value})::text !~ '[.]'"),
    Kind.NUMBER: ("({value})::float8", "jsonb_typeof({value}) = 'number'"),
    Kind.INSTANT: ("({value} ->> '$date')::timestamptz", ONE_NAME.format("$date", "^[0-9-]{{10}}T")),
    Kind.OBJECT_ID: ("{value} ->> '$oid'", ONE_NAME.format("$oid", "^[0-9a-f]{{24}}$")),
    Kind.DECIMAL: ("({value} ->> '$numberDecimal')::numeric", ONE_NAME.format("$numberDecimal", "[0-9]$")),
    Kind.UUID: (f"encode({BINARY}, 'hex')::uuid", BINARY_ONLY.format("04")),
    Kind.BYTES: (BINARY, BINARY_ONLY.format("00")),
    Kind.MAP: ("{value}", "jsonb_typeof({value}) = 'object'"),
    Kind.LIST: ("{value}", "jsonb_typeof({value}) = 'array'"),
}
MOVE: Final = "UPDATE {table} SET {column} = {moved}, {extra} = {extra} - {name} WHERE {right};"
REQUIRED: Final = " NOT NULL"


def moved_property(entity: Entity, name: str, known: ShippedSchema) -> str | None:
    """Return what moves an unknown property into its new column; ``None`` where the table keeps none.

    Of a nested model, a list with described items and an enumeration with numbers it is a remark.
    """
    table = table_of(entity)
    kept = None if entity.extra is None else table.by_field[entity.extra]
    column = next((item for item in table.columns if item.name == name), None)
    if kept is None or kept.name not in known.named("column", entity.name) or column is None:
        return None
    shape = entity.shapes.get(column.field)
    if shape is None:
        return None
    if shape.value.kind not in MOVED or shape.value.item is not None:
        what = f"the property {column.field} of {kept.name}"
        return f"-- {what} has another form in a separate column: move it here, if there may be any."
    value, right = MOVED[shape.value.kind]
    property_name = sql.Literal(column.field)
    at = sql.SQL("({} -> {})").format(kept.term(), property_name)
    move = sql.SQL(MOVE).format(
        table=table.name,
        column=column.term(),
        moved=sql.SQL(value).format(value=at),
        extra=kept.term(),
        name=property_name,
        right=sql.SQL(right).format(value=at),
    )
    return columns.text(move)


def _displayed(declared: str) -> str:
    """Return a column as the server shows it."""
    for ours, theirs in DISPLAYED_TYPES.items():
        if declared.startswith(ours):
            return theirs + declared.removeprefix(ours).partition(DEFAULT)[0]
    raise LookupError(f"{declared} is not a column")  # met by programmers only
