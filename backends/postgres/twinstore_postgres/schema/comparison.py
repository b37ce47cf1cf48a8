"""What a schema really looks like, line by line, and how it differs from what the migrations make."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Final

import psycopg
from psycopg import sql
from psycopg.rows import scalar_row

from twinstore.errors import MigrationError
from twinstore.migrations.migration import SchemaSnapshot, no_migrations
from twinstore_postgres.connection.cursors import OwnCursor, own_cursor
from twinstore_postgres.connection.roles import unknown_sentence
from twinstore_postgres.mapping.columns import text
from twinstore_postgres.schema.migrator import STORE
from twinstore_postgres.schema.partitions import (
    FORMS,
    LINES,
    PARTITIONS,
    impossible_indexes,
    partition_differences,
    partitions_of_others,
)
from twinstore_postgres.settings import DRIVER

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
    from collections.abc import Set as AbstractSet

    from twinstore.plugins.module_spec import ModuleSpec
    from twinstore_postgres.connection.deadlines import Connection

SCHEMA_FILE: Final = "schema.txt"
LEDGER: Final = "schema_migrations"
# The deparsed name of a sub-select's column differs between versions of the server and means nothing.
COLUMN_ALIAS: Final = re.compile(r' AS (?:"\w+"|\w+)\)')
CONSTRAINT: Final = re.compile(
    r"constraint (?P<table>[^.]+)\.(?P<name>.+?): (?P<key>(?:PRIMARY KEY|UNIQUE|FOREIGN KEY) .*)"
)
UNIQUE_INDEX: Final = re.compile(r"index (?P<name>\w+): CREATE UNIQUE INDEX \w+ ON \w+\.(?P<table>\w+) .*")
TABLE_OR_COLUMN: Final = re.compile(r"(?:table|column) (?P<table>[^.:]+)[.:].*")
# The server leaves the schema out where the search path of the role has it.
REFERENCED: Final = re.compile(r"(?<=REFERENCES )\w+\.")
# How servers of different versions write the expressions of a policy differs; that it is there does not.
POLICY_BODY: Final = re.compile(r"(?P<policy>policy (?P<table>[^.]+)\..+?: .*?) USING .*")

# Shown without its schema where the settings of a role or database let the connection look into that.
SEQUENCE: Final = re.compile(r"nextval\('([^'.]+)'")

CURRENT_ROLE: Final = "SELECT current_user::text"
# What the statements below, and those about sequences, read.
CATALOGS: Final = (
    "pg_attrdef",
    "pg_attribute",
    "pg_class",
    "pg_collation",
    "pg_constraint",
    "pg_index",
    "pg_inherits",
    "pg_namespace",
    "pg_policies",
    "pg_policy",
    "pg_roles",
    "pg_rules",
    "pg_sequence",
    "pg_trigger",
)
UNREADABLE: Final = """
SELECT current_user::text, array_agg(name ORDER BY name) FROM unnest(%s::text[]) AS c (name)
 WHERE NOT has_table_privilege('pg_catalog.' || name, 'SELECT')
"""
# Kinds of parts that are compared with more care than the others.
PROTECTION: Final = ("table ", "policy ")

TABLES: Final = b"""
SELECT format('table %%s: row-level security %%s%%s', c.relname,
              CASE WHEN c.relforcerowsecurity AND c.relrowsecurity THEN 'forced'
                   WHEN c.relrowsecurity THEN 'enabled' ELSE 'off' END,
              CASE c.relpersistence WHEN 'u' THEN ', unlogged' ELSE '' END)
  FROM pg_class c
 WHERE c.relnamespace = to_regnamespace(%s) AND c.relkind IN ('r', 'p') AND NOT c.relispartition
"""
COLUMNS: Final = b"""
SELECT concat_ws(' ', format('column %%s.%%s:', c.relname, a.attname), format_type(a.atttypid, a.atttypmod),
                 'COLLATE ' || quote_ident(nullif(l.collname, 'default')),
                 CASE WHEN a.attnotnull THEN 'NOT NULL' END, 'DEFAULT ' || pg_get_expr(d.adbin, d.adrelid))
  FROM pg_attribute a
  JOIN pg_class c ON c.oid = a.attrelid
  LEFT JOIN pg_collation l ON l.oid = a.attcollation
  LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
 WHERE c.relnamespace = to_regnamespace(%s) AND c.relkind IN ('r', 'p') AND NOT c.relispartition
   AND a.attnum > 0 AND NOT a.attisdropped
"""
# Newer servers list NOT NULL as constraints too; the columns show it already. What a partition inherits is
# that of its parent, and a reference to a parent is repeated for each partition.
CONSTRAINTS: Final = b"""
SELECT format('constraint %%s.%%s: %%s', c.relname, k.conname, pg_get_constraintdef(k.oid))
  FROM pg_constraint k JOIN pg_class c ON c.oid = k.conrelid
 WHERE k.connamespace = to_regnamespace(%s) AND k.contype <> 'n' AND k.conparentid = 0
   AND NOT (c.relispartition AND k.coninhcount > 0)
"""
INDEXES: Final = b"""
SELECT format('index %%s: %%s', c.relname, replace(pg_get_indexdef(i.indexrelid), ' ON ONLY ', ' ON ') ||
              CASE WHEN NOT i.indisvalid AND c.relkind = 'I' THEN ' (not on every partition)'
                   WHEN NOT i.indisvalid THEN ' (invalid)'
                   WHEN NOT (i.indisready AND i.indislive) THEN ' (not ready)' ELSE '' END)
  FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid
 WHERE c.relnamespace = to_regnamespace(%s) AND NOT c.relispartition
"""
POLICIES: Final = b"""
SELECT format('policy %%s.%%s: %%s %%s to %%s USING (%%s) WITH CHECK (%%s)', tablename, policyname,
              permissive, cmd, array_to_string(roles, ', '), qual, with_check)
  FROM pg_policies WHERE schemaname = %s
"""
# Those of a constraint are named only if they have been switched off.
TRIGGERS: Final = b"""
SELECT format('trigger %%s.%%s: %%s', c.relname, t.tgname,
              CASE WHEN t.tgisinternal THEN 'switched off' ELSE pg_get_triggerdef(t.oid) END)
  FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid
 WHERE c.relnamespace = to_regnamespace(%s)
   AND (NOT t.tgisinternal AND t.tgparentid = 0 OR t.tgenabled IN ('D', 'R'))
"""
RULES: Final = (
    b"SELECT format('rule %%s.%%s: %%s', tablename, rulename, definition) FROM pg_rules WHERE schemaname = %s"
)
USES: Final = b"""
SELECT format('use schema: %%s', p.privilege) FROM unnest(ARRAY['USAGE', 'CREATE']) AS p (privilege)
 WHERE to_regnamespace(%s) IS NOT NULL
   AND EXISTS (SELECT FROM pg_roles WHERE rolname = %s)
   AND has_schema_privilege(%s, to_regnamespace(%s), p.privilege)
 UNION ALL
SELECT format('use %%s: %%s', c.relname, p.privilege)
  FROM pg_class c CROSS JOIN unnest(ARRAY['USAGE', 'UPDATE']) AS p (privilege)
 WHERE c.relnamespace = to_regnamespace(%s) AND c.relkind = 'S'
   AND EXISTS (SELECT FROM pg_roles WHERE rolname = %s)
   AND has_sequence_privilege(%s, c.oid, p.privilege)
"""
GRANTS: Final = b"""
SELECT format('grant %%s: %%s', c.relname, p.privilege)
  FROM pg_class c
 CROSS JOIN unnest(ARRAY['SELECT', 'INSERT', 'UPDATE', 'DELETE', 'TRUNCATE', 'REFERENCES', 'TRIGGER'])
         AS p (privilege)
 WHERE c.relnamespace = to_regnamespace(%s) AND c.relkind IN ('r', 'p') AND NOT c.relispartition
   AND EXISTS (SELECT FROM pg_roles WHERE rolname = %s)
   AND has_table_privilege(%s, c.oid, p.privilege)
"""
# A grant on one column is not a grant on the table, and can change a row as well.
COLUMN_GRANTS: Final = b"""
SELECT format('grant %%s: %%s (%%I)', c.relname, p.privilege, a.attname)
  FROM pg_class c
  JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
 CROSS JOIN unnest(ARRAY['SELECT', 'INSERT', 'UPDATE', 'REFERENCES']) AS p (privilege)
 WHERE c.relnamespace = to_regnamespace(%s) AND c.relkind IN ('r', 'p') AND NOT c.relispartition
   AND a.attacl IS NOT NULL
   AND EXISTS (SELECT FROM pg_roles WHERE rolname = %s)
   AND has_column_privilege(%s, c.oid, a.attnum, p.privilege)
   AND NOT has_table_privilege(%s, c.oid, p.privilege)
"""
# What every role of the server may do. The use of the schema alone reads and changes nothing.
PUBLIC: Final = b"""
SELECT format('public use schema: %%s', a.privilege_type)
  FROM pg_namespace n CROSS JOIN LATERAL aclexplode(n.nspacl) AS a
 WHERE n.oid = to_regnamespace(%s) AND a.grantee = 0 AND a.privilege_type <> 'USAGE'
 UNION ALL
SELECT format('public %%s %%s: %%s', CASE c.relkind WHEN 'S' THEN 'use' ELSE 'grant' END, c.relname,
              a.privilege_type)
  FROM pg_class c CROSS JOIN LATERAL aclexplode(c.relacl) AS a
 WHERE c.relnamespace = to_regnamespace(%s) AND c.relkind IN ('r', 'p', 'S') AND NOT c.relispartition
   AND a.grantee = 0
 UNION ALL
SELECT format('public grant %%s: %%s (%%I)', c.relname, a.privilege_type, t.attname)
  FROM pg_class c JOIN pg_attribute t ON t.attrelid = c.oid
 CROSS JOIN LATERAL aclexplode(t.attacl) AS a
 WHERE c.relnamespace = to_regnamespace(%s) AND c.relkind IN ('r', 'p') AND NOT c.relispartition
   AND a.grantee = 0 AND NOT t.attisdropped
"""
# Rows of such a table are read with those of ours, and no key and no policy of ours holds for them.
CHILDREN: Final = b"""
SELECT format('child %%s.%%s: inherits', c.relname, i.inhrelid::regclass)
  FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhparent
 WHERE c.relnamespace = to_regnamespace(%s) AND c.relkind = 'r'
"""


def describe_schema(connection: Connection, schema: str, role: str = "") -> tuple[str, ...]:
    """Return one line per table, column, constraint, index, policy, trigger and grant to ``role`` or all.

    Sorted; one round trip. The connection may be a caller's own, whose cursors answer otherwise.
    """
    queries = (TABLES, COLUMNS, CONSTRAINTS, INDEXES, POLICIES, TRIGGERS, RULES, CHILDREN, FORMS, PARTITIONS)
    statement = b" UNION ALL ".join([*queries, PUBLIC, GRANTS, COLUMN_GRANTS, USES])
    granted = [schema, role, role]
    values = [schema] * (len(queries) + 3) + [*granted, *granted, role, schema, role, role, schema, *granted]
    cursor = OwnCursor(connection, scalar_row)
    lines: list[str] = cursor.execute(statement, values).fetchall()
    whole = (SEQUENCE.sub(rf"nextval('{schema}.\1'", line) for line in lines)
    return tuple(sorted(COLUMN_ALIAS.sub(")", " ".join(line.split())) for line in whole))


class UnknownParts(str):
    """A sentence: what the role may not read of the catalogue, and the grant that is missing."""

    __slots__ = ()


def or_unknown(connection: Connection, read: Callable[[], Iterable[str]]) -> tuple[str, ...]:
    """Return what is read of the catalogue; if the role may not read it, the grant that is missing."""
    try:
        return tuple(read())
    except psycopg.errors.InsufficientPrivilege:
        unknown = unreadable_parts(connection)
        if not unknown:
            raise
        return unknown


def unreadable_parts(connection: Connection) -> tuple[UnknownParts, ...]:
    """Return a sentence with the grant that is missing, if there is one."""
    ((role, lacking),) = own_cursor(connection).execute(UNREADABLE, [list(CATALOGS)]).fetchall()
    return (UnknownParts(unknown_sentence(role, "parts of the schema", *lacking)),) if lacking else ()


@cache
def wanted_schema(module: ModuleSpec[object]) -> tuple[str, ...]:
    """Return the same lines as they are when every migration has been applied."""
    try:
        text = (module.migrations(STORE) / SCHEMA_FILE).read_text(encoding="utf-8")
    except FileNotFoundError as error:
        if not module.migrations(STORE).is_dir():
            raise no_migrations(module.name, DRIVER) from error
        raise MigrationError(
            f"The module {module.name} ships no {SCHEMA_FILE} next to its migrations for {STORE}; its author "
            f"writes it with `twinstore dev schema {module.name}`.",
            module=module.name,
            driver=DRIVER,
        ) from error
    return tuple(text.splitlines())


def snapshot_of(connection: Connection, module: ModuleSpec[object], role: str) -> SchemaSnapshot:
    """Return what a server holds of a module, in the form of the file shipped with its migrations."""
    text = "\n".join((*describe_schema(connection, module.name, role), ""))
    return SchemaSnapshot(folder=STORE, name=SCHEMA_FILE, text=text)


def shape_of(lines: Iterable[str]) -> dict[str, set[str]]:
    """Return what a service relies on, by table: row-level security, columns, keys, unique indexes, policies.

    The ledger of the migrations is excluded: no row depends on it.
    """
    shape: dict[str, set[str]] = {}
    for table, part in _parts(lines):
        shape.setdefault(table, set()).add(part)
    shape.pop(LEDGER, None)
    return shape


def _parts(lines: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yield the parts with their tables; a key is given without its name, which has no effect."""
    keys: set[str] = set()
    for line in sorted(lines):  # constraints come before the indexes that some of them are made of
        if match := CONSTRAINT.fullmatch(line):
            keys.add(match["name"])
            yield match["table"], f"key {match['table']}: {REFERENCED.sub('', match['key'])}"
        elif match := UNIQUE_INDEX.fullmatch(line):
            if match["name"] not in keys:
                yield match["table"], line
        elif match := POLICY_BODY.fullmatch(line):
            yield match["table"], match["policy"]
        elif match := TABLE_OR_COLUMN.fullmatch(line):
            yield match["table"], line


def undone(connection: Connection, module: ModuleSpec[object], *, bound: bool) -> tuple[str, ...]:
    """Return one sentence for each part of the wanted schema that a service relies on and that is not so.

    First the partitions and what protects tenants, then columns and keys, of which more than wanted does not
    matter.

    Args:
        connection: as the role that answers requests.
        module: the module.
        bound: whether row-level security has to bind the role, which should then have no right too many.
    """
    ((role,),) = own_cursor(connection).execute(CURRENT_ROLE).fetchall()
    lines, shipped = describe_schema(connection, module.name, role), wanted_schema(module)
    unprotected = protection_differences(lines, shipped, module.name, role, rights=bound)
    real, wanted = shape_of(lines), shape_of(shipped)
    unusable = dict(unusable_indexes(lines, shipped, RepairWriter(module.name, role)))
    lacking = (
        part for table in sorted(set(wanted) & set(real)) for part in sorted(wanted[table] - real[table])
    )
    absent = (part for part in lacking if not part.startswith(PROTECTION) and part not in unusable)
    divided = partition_differences(lines, shipped)
    return (*divided, *unprotected, *unusable.values(), *(f"Missing: {part}." for part in absent))


def unusable_indexes(
    real: Collection[str], wanted: Iterable[str], repair: RepairWriter
) -> Iterator[tuple[str, str]]:
    """Yield the lines of indexes with which a write or an answer is wrong, each with its sentence.

    A plain index that is not valid only costs time.
    """
    for part in map(Part.of, wanted):
        states = (NOT_READY,) if part.is_plain_index else (NOT_READY, INVALID, NOT_ON_ALL)
        for found in (part.line + state for state in states if part.kind == "index"):
            if found in real:
                yield part.line, missing(part, Part.of(found), repair)


def missing_parts(table: str, wanted: AbstractSet[str], real: Mapping[str, AbstractSet[str]]) -> list[str]:
    """Return one sentence for each part that a table lacks, or one for the table."""
    if table not in real:
        return [f"Missing: table {table}."]
    return [f"Missing: {part}." for part in sorted(wanted - real[table])]


def schema_differences(
    connection: Connection, module: ModuleSpec[object], role: str, *, additions: bool
) -> tuple[str, ...]:
    """Return how the schema differs from the wanted one, one sentence each."""
    real = describe_schema(connection, module.name, role)
    return differences(real, wanted_schema(module), module.name, role, additions=additions)


# How a schema differs from the wanted one, one sentence each: wanted, found, and how to repair it.


# The kinds of which a table has several, each under a separate name; a grant is its whole line.
LINE: Final = re.compile(
    r"(?P<kind>table|column|constraint|index|policy|trigger|rule|child|(?:public )?(?:grant|use)) "
    r"(?:(?P<table>[^.: ]+)\.)?(?P<name>[^:]+): (?P<rest>.*)"
)
INDEXED: Final = re.compile(r"CREATE (?:UNIQUE )?INDEX \S+ ON [^.]+\.(?P<table>\S+) ")
COLUMN: Final = re.compile(
    r"(?P<type>.+?)(?: COLLATE (?P<collation>\S+))?(?P<required> NOT NULL)?(?: DEFAULT (?P<default>.+))?"
)
POLICY_REST: Final = re.compile(
    r"(?P<permissive>\w+) (?P<command>\w+) to (?P<roles>.*?) "
    r"USING \((?P<qual>.*)\) WITH CHECK \((?P<check>.*)\)"
)
# An index that the server does not use, or that gets no new rows.
INVALID: Final = " (invalid)"
NOT_READY: Final = " (not ready)"
NOT_ON_ALL: Final = " (not on every partition)"
REPEATED: Final = frozenset({"grant", "use", "public grant", "public use"})
SWITCHES: Final = {
    "row-level security forced": "ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY",
    "row-level security enabled": "ENABLE ROW LEVEL SECURITY, NO FORCE ROW LEVEL SECURITY",
    "row-level security off": "NO FORCE ROW LEVEL SECURITY, DISABLE ROW LEVEL SECURITY",
}
# A trigger of a key.
SWITCHED_OFF: Final = "switched off"
WHOLE_SCHEMA: Final = "schema"
UNLOGGED: Final = ", unlogged"


@dataclass(frozen=True, slots=True, order=True)
class Part:
    """One line of a schema; ``table`` is the one it belongs to, empty for none."""

    line: str
    kind: str
    table: str
    name: str
    rest: str

    @classmethod
    def of(cls, line: str) -> Part:
        """Read a line."""
        match = LINE.fullmatch(line)
        if match is None:
            return cls(line, "", "", line, "")
        kind, table, name, rest = match["kind"], match["table"] or "", match["name"], match["rest"]
        if kind == "index" and (indexed := INDEXED.match(rest)):
            table = indexed["table"]
        elif kind in {"table", "grant", "public grant"}:
            table = name
        return cls(line, kind, table, name, rest)

    @property
    def identity(self) -> tuple[str, ...]:
        """What two lines that describe the same thing have in common."""
        return (self.line,) if self.kind in REPEATED else (self.kind, self.table, self.name)

    @property
    def is_plain_index(self) -> bool:
        """Whether it costs time and does nothing to a row."""
        return self.kind == "index" and self.rest.startswith("CREATE INDEX ")


def differences(
    real: Collection[str], wanted: Collection[str], schema: str, role: str, *, additions: bool
) -> tuple[str, ...]:
    """Return missing or different lines, then unwanted ones, each in order of its line.

    Args:
        real: the lines of the existing schema.
        wanted: the lines of the one that should be.
        schema: its name.
        role: the application role.
        additions: include tables and plain indexes that are not ours, which do not affect our rows.
    """
    repair = RepairWriter(schema, role)
    has, should = parts_of([line for line in real if not line.startswith(LINES)]), parts_of(wanted)
    impossible, unknown = impossible_indexes(real, wanted), partitions_of_others(real, tables_of(should))
    absent, foreign = tables_of(should) - tables_of(has), tables_of(has) - tables_of(should)
    lost = [
        part
        for part in should.values()
        if part.line not in real
        and part.table not in absent
        and part.name not in impossible
        and not implied(part, has, should)
    ]
    more = [
        part
        for part in has.values()
        if part.identity not in should
        and part.table not in foreign | unknown
        # A right of all roles is named as such; to revoke it from one role does nothing.
        and f"public {part.line}" not in real
        and not implied(part, should, has)
        and (additions or not part.is_plain_index)
    ]
    return (
        *partition_differences(real, wanted),
        *(f"Missing: table {name}. To fix: {repair.script}" for name in sorted(absent)),
        *(missing(part, has.get(part.identity), repair) for part in sorted(lost)),
        *(f"Not wanted: {part.line}. To fix: {repair.removal(part)}" for part in sorted(more)),
        *(f"Not wanted: table {name}. twinstore did not create it." for name in sorted(foreign) if additions),
    )


def parts_of(lines: Collection[str]) -> dict[tuple[str, ...], Part]:
    """Return the parts of a schema by what they are."""
    return {part.identity: part for part in map(Part.of, lines)}


def tables_of(parts: Mapping[tuple[str, ...], Part]) -> set[str]:
    """Return the names of the tables."""
    return {part.name for part in parts.values() if part.kind == "table"}


def implied(part: Part, there: Mapping[tuple[str, ...], Part], here: Mapping[tuple[str, ...], Part]) -> bool:
    """Whether an index is that of a key which the other side lacks or has otherwise: the key says it."""
    key = ("constraint", part.table, part.name)
    return part.kind == "index" and key in here and there.get(key) != here[key]


def missing(wanted: Part, found: Part | None, repair: RepairWriter) -> str:
    """Return the sentence for a part that is missing, or there in another form."""
    if found is None:
        return f"Missing: {wanted.line}. To fix: {repair.creation(wanted)}"
    return f"Missing: {wanted.line}. Found: {found.rest}. To fix: {repair.alteration(wanted, found)}"


@dataclass(frozen=True, slots=True)
class RepairWriter:
    """Writes the statements that bring a part in line; the owner runs them with psql."""

    schema: str
    role: str

    @property
    def script(self) -> str:
        """What makes tables, indexes, policies and grants that are missing, and leaves all others alone."""
        return f"twinstore migrate export --module {self.schema} --backend {DRIVER} | psql, as the owner"

    def creation(self, part: Part) -> str:
        """Return what makes a part that is missing."""
        table, name = self._table(part), text(sql.Identifier(part.name))
        match part.kind:
            case "column":
                return f"ALTER TABLE {table} ADD COLUMN {name} {part.rest};"
            case "constraint":
                return f"ALTER TABLE {table} ADD CONSTRAINT {name} {part.rest};"
            case "index":
                return f"{part.rest};"
            case "policy":
                return self._policy(part)
            case "grant" | "use":
                return f"GRANT {part.rest} ON {self._target(part)} TO {self._role};"
            case _:
                return self.script

    def alteration(self, wanted: Part, found: Part) -> str:
        """Return what makes a part of another form the wanted one."""
        match wanted.kind:
            case "table":
                return self._rls_change(wanted, found)
            case "column":
                return f"ALTER TABLE {self._table(wanted)} {', '.join(column_changes(wanted, found))};"
            case "index" if found.rest in {wanted.rest + INVALID, wanted.rest + NOT_READY}:
                return f"REINDEX INDEX {self._named(wanted)};"
            case _:
                return f"{self.removal(found)} {self.creation(wanted)}"

    def removal(self, part: Part) -> str:
        """Return what takes a part away."""
        table, name = self._table(part), text(sql.Identifier(part.name))
        match part.kind:
            case "column" | "constraint":
                return f"ALTER TABLE {table} DROP {part.kind.upper()} {name};"
            case "index":
                return f"DROP INDEX {self._named(part)};"
            case "trigger" if part.rest == SWITCHED_OFF:
                return f"ALTER TABLE {table} ENABLE TRIGGER {name};"
            case "child":
                return f"ALTER TABLE {part.name} NO INHERIT {table};"
            case "policy" | "trigger" | "rule":
                return f"DROP {part.kind.upper()} {name} ON {table};"
            case _:
                role = "PUBLIC" if part.kind.startswith("public ") else self._role
                return f"REVOKE {part.rest} ON {self._target(part)} FROM {role};"

    @property
    def _role(self) -> str:
        return text(sql.Identifier(self.role))

    def _table(self, part: Part) -> str:
        return text(sql.Identifier(self.schema, part.table))

    def _named(self, part: Part) -> str:
        return text(sql.Identifier(self.schema, part.name))

    def _target(self, part: Part) -> str:
        if part.kind.endswith("grant"):
            return self._table(part)
        whole = part.name == WHOLE_SCHEMA
        return f"SCHEMA {text(sql.Identifier(self.schema))}" if whole else f"SEQUENCE {self._named(part)}"

    def _rls_change(self, wanted: Part, found: Part) -> str:
        """Return what changes the row-level security of a table, or whether a crash empties it."""
        actions = []
        if found.rest.endswith(UNLOGGED):
            actions.append("SET LOGGED")
        if found.rest.removesuffix(UNLOGGED) != wanted.rest:
            actions.append(SWITCHES[wanted.rest])
        return " ".join(f"ALTER TABLE {self._table(wanted)} {action};" for action in actions)

    def _policy(self, part: Part) -> str:
        match = POLICY_REST.fullmatch(part.rest)
        if match is None:
            return self.script
        conditions = "".join(
            f" {word} ({match[group]})"
            for word, group in (("USING", "qual"), ("WITH CHECK", "check"))
            if match[group]
        )
        name = text(sql.Identifier(part.name))
        return (
            f"CREATE POLICY {name} ON {self._table(part)} AS {match['permissive']} "
            f"FOR {match['command']} TO {match['roles']}{conditions};"
        )


def column_changes(wanted: Part, found: Part) -> Iterator[str]:
    """Yield what changes a column, as actions of ALTER TABLE."""
    should, real = COLUMN.fullmatch(wanted.rest), COLUMN.fullmatch(found.rest)
    if should is None or real is None:
        return
    column = f"ALTER COLUMN {text(sql.Identifier(wanted.name))}"
    if should.group("type", "collation") != real.group("type", "collation"):
        collation = f" COLLATE {should['collation']}" if should["collation"] else ""
        yield f"{column} TYPE {should['type']}{collation}"
    if should["required"] != real["required"]:
        yield f"{column} {'SET' if should['required'] else 'DROP'} NOT NULL"
    if should["default"] != real["default"]:
        default = f"SET DEFAULT {should['default']}" if should["default"] else "DROP DEFAULT"
        yield f"{column} {default}"


POLICY: Final = "policy"
GRANT: Final = "grant"
RIGHTS: Final = REPEATED
KINDS: Final = frozenset({"table", POLICY, *RIGHTS})
# Where a policy decides row by row; it has no say in TRUNCATE.
POLICED: Final = frozenset({"SELECT", "INSERT", "UPDATE", "DELETE"})
SURPLUS: Final = ("Not wanted: grant ", "Not wanted: use ")
# How servers of different versions write an expression, and whether they name the schema of its objects.
NORMALIZED_AWAY: Final = re.compile(r"::\"?\w+\"?|\bAS \w+|[()\s]")


def protection_differences(
    real: Collection[str], wanted: Collection[str], schema: str, role: str, *, rights: bool
) -> tuple[str, ...]:
    """Return what is lost or added of the protection of our tables, each with the statement that repairs it.

    A missing right is not a danger: the call that needs it reports it. Tables that are not ours do not
    matter.

    Args:
        real: the lines of the existing schema.
        wanted: the lines of the one that should be.
        schema: its name.
        role: the role that answers requests.
        rights: whether that role should have no rights beyond the wanted ones.
    """
    should = tuple(line for line in wanted if Part.of(line).kind in KINDS)
    tables = tables_of(parts_of(should))
    uses = {part.name for part in map(Part.of, should) if part.kind == "use"}
    kinds = KINDS if rights else KINDS - RIGHTS
    guarded = {Part.of(line).table for line in should if Part.of(line).kind == POLICY}
    has = {
        line
        for line in real
        if is_of(Part.of(line), kinds, tables | uses) and not is_bound(Part.of(line), guarded)
    }
    found = differences(
        frozenset(normalized(has, should, schema)),
        tuple(line for line in should if Part.of(line).kind not in RIGHTS or line in has),
        schema,
        role,
        additions=False,
    )
    elsewhere = f" (it may also come through a role of which {role} is a member)"
    return tuple(line + elsewhere if line.startswith(SURPLUS) else line for line in found)


def is_of(part: Part, kinds: AbstractSet[str], names: AbstractSet[str]) -> bool:
    """Whether a part is of one of these kinds, and of one of these tables, or the schema or a sequence."""
    return part.kind in kinds and (part.table or part.name) in names


def is_bound(part: Part, guarded: AbstractSet[str]) -> bool:
    """Whether policies apply to a right; then it may be granted, as a repair of append-only rows needs it."""
    return part.kind == GRANT and part.rest in POLICED and part.table in guarded


def normalized(real: Collection[str], wanted: Collection[str], schema: str) -> Iterator[str]:
    """Yield the lines of a schema, policies that say the same as a wanted one in the words of that."""
    known = {normal_form(line, schema): line for line in wanted if line.startswith(POLICY)}
    for line in real:
        yield known.get(normal_form(line, schema), line) if line.startswith(POLICY) else line


def normal_form(line: str, schema: str) -> str:
    """Return what two lines have in common that say the same of a policy."""
    return NORMALIZED_AWAY.sub("", line.replace(f"{schema}.", "").replace(f'"{schema}".', ""))
