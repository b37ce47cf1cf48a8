"""What a schema has otherwise than wanted, one sentence each: wanted, found, and how to mend it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from psycopg import sql

from twinstore_postgres.ddl import text
from twinstore_postgres.settings import DRIVER

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

__all__ = ["deviations"]

# The kinds of which a table has several, each under a name of its own; a grant is its whole line.
LINE: Final = re.compile(
    r"(?P<kind>table|column|constraint|index|policy|trigger|rule|child|grant|use) "
    r"(?:(?P<table>[^.: ]+)\.)?(?P<name>[^:]+): (?P<rest>.*)"
)
INDEXED: Final = re.compile(r"CREATE (?:UNIQUE )?INDEX \S+ ON [^.]+\.(?P<table>\S+) ")
COLUMN: Final = re.compile(
    r"(?P<type>.+?)(?: COLLATE (?P<collation>\S+))?(?P<required> NOT NULL)?(?: DEFAULT (?P<default>.+))?"
)
POLICY: Final = re.compile(
    r"(?P<permissive>\w+) (?P<command>\w+) to (?P<roles>.*?) "
    r"USING \((?P<qual>.*)\) WITH CHECK \((?P<check>.*)\)"
)
INVALID: Final = " (invalid)"
REPEATED: Final = frozenset({"grant", "use"})
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
        elif kind in {"table", "grant"}:
            table = name
        return cls(line, kind, table, name, rest)

    @property
    def identity(self) -> tuple[str, ...]:
        """What two lines have in common that tell of one thing."""
        return (self.line,) if self.kind in REPEATED else (self.kind, self.table, self.name)

    @property
    def is_plain_index(self) -> bool:
        """Whether it costs time and does nothing to a row."""
        return self.kind == "index" and self.rest.startswith("CREATE INDEX ")


def deviations(
    real: Collection[str], wanted: Collection[str], schema: str, role: str, *, additions: bool
) -> tuple[str, ...]:
    """Return what is missing or another one, then what is not wanted, each in order of its line.

    Args:
        real: the lines of the schema that is there.
        wanted: the lines of the one that should be.
        schema: its name.
        role: the application role.
        additions: also tables and plain indexes of somebody else, which do nothing to a row of ours.
    """
    mend = Mender(schema, role)
    has, should = parts_of(real), parts_of(wanted)
    absent, foreign = tables_of(should) - tables_of(has), tables_of(has) - tables_of(should)
    lost = [
        part
        for part in should.values()
        if part.line not in real and part.table not in absent and not implied(part, has, should)
    ]
    more = [
        part
        for part in has.values()
        if part.identity not in should
        and part.table not in foreign
        and not implied(part, should, has)
        and (additions or not part.is_plain_index)
    ]
    return (
        *(f"Missing: table {name}. To mend: {mend.script}" for name in sorted(absent)),
        *(missing(part, has.get(part.identity), mend) for part in sorted(lost)),
        *(f"Not wanted: {part.line}. To mend: {mend.removed(part)}" for part in sorted(more)),
        *(f"Not wanted: table {name}. It is none of ours." for name in sorted(foreign) if additions),
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


def missing(wanted: Part, found: Part | None, mend: Mender) -> str:
    """Return the sentence for a part that is missing, or there in another form."""
    if found is None:
        return f"Missing: {wanted.line}. To mend: {mend.made(wanted)}"
    return f"Missing: {wanted.line}. Found: {found.rest}. To mend: {mend.changed(wanted, found)}"


@dataclass(frozen=True, slots=True)
class Mender:
    """Writes the statements that bring a part in line; the owner runs them with psql."""

    schema: str
    role: str

    @property
    def script(self) -> str:
        """What makes tables, indexes, policies and grants that are missing, and leaves all others alone."""
        return f"twinstore migrate export --module {self.schema} --backend {DRIVER} | psql, as the owner"

    def made(self, part: Part) -> str:
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

    def changed(self, wanted: Part, found: Part) -> str:
        """Return what makes a part of another form the wanted one."""
        match wanted.kind:
            case "table":
                return self._switched(wanted, found)
            case "column":
                return f"ALTER TABLE {self._table(wanted)} {', '.join(column_changes(wanted, found))};"
            case "index" if found.rest == wanted.rest + INVALID:
                return f"REINDEX INDEX {self._named(wanted)};"
            case _:
                return f"{self.removed(found)} {self.made(wanted)}"

    def removed(self, part: Part) -> str:
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
                return f"REVOKE {part.rest} ON {self._target(part)} FROM {self._role};"

    @property
    def _role(self) -> str:
        return text(sql.Identifier(self.role))

    def _table(self, part: Part) -> str:
        return text(sql.Identifier(self.schema, part.table))

    def _named(self, part: Part) -> str:
        return text(sql.Identifier(self.schema, part.name))

    def _target(self, part: Part) -> str:
        if part.kind == "grant":
            return self._table(part)
        whole = part.name == WHOLE_SCHEMA
        return f"SCHEMA {text(sql.Identifier(self.schema))}" if whole else f"SEQUENCE {self._named(part)}"

    def _switched(self, wanted: Part, found: Part) -> str:
        """Return what changes the row-level security of a table, or whether a crash empties it."""
        actions = []
        if found.rest.endswith(UNLOGGED):
            actions.append("SET LOGGED")
        if found.rest.removesuffix(UNLOGGED) != wanted.rest:
            actions.append(SWITCHES[wanted.rest])
        return " ".join(f"ALTER TABLE {self._table(wanted)} {action};" for action in actions)

    def _policy(self, part: Part) -> str:
        match = POLICY.fullmatch(part.rest)
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
