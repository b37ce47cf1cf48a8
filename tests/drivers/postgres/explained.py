"""Explains recorded statements on filled tables of PostgreSQL, with the values of a row that is there."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import psycopg
from psycopg import sql

from tests.support.plan_rows import rows_of
from tests.support.plans import Finding
from twinstore.catalog.conditions import OneOf
from twinstore_postgres.mapping.table import Table, listed, table_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tests.support.databases import PostgresDatabase
    from twinstore.catalog.entity import Entity, Module
    from twinstore.plugins.statements import Statement

Connection = psycopg.Connection[Any]
Node = dict[str, Any]

# Rows of a page, and keys of a call that names several.
PAGE: Final = 20
KEYS: Final = 20
SYSTEM: Final = "system"
PLACE: Final = re.compile(r"%s|%\((\w+)\)s|%%")
NAMED: Final = {
    "number": "1",
    "key": "locks.lock_key",
    "tenant": "locks.tenant_id",
    "holder": "locks.holder_id",
    "fence": "locks.fence",
    "lease": "'60 s'::interval",
    "metadata": "'{}'",
    "idle": "'60000'",
}
MEMBER: Final = r"\(?(?:\"?\w+\"?\.)?\"?payload\"?->>'\w+'\)?"
COMPARED: Final = re.compile(
    rf"(?P<term>(?:{MEMBER}|(?:\"?\w+\"?\.)?\"?\w+\"?)(?: COLLATE \"C\")?)\)* (?P<operator>=|<=|>=|<|>) \(?$"
)
PAYLOAD: Final = re.compile(r"\(?(?:\"?\w+\"?\.)?\"?payload\"?->>'(?P<name>\w+)'\)?")
BEFORE_GROUP: Final = re.compile(
    r"(?: IN \(SELECT \* FROM unnest| AS \(VALUES|\s+VALUES| = ROW| IN| [<>]=?| =)\s*$"
)
# What remains of the sorts then is what no index spares; without the second one, but for ties.
AVOIDED: Final = ("enable_sort", "enable_bitmapscan", "enable_seqscan", "enable_hashagg")
TIES: Final = ("enable_incremental_sort",)
VALUE: Final = "SELECT ({term})::text FROM {table} WHERE ctid = '{row}'"
MEDIAN: Final = """
SELECT max(x::text) FROM (SELECT {term} AS x FROM {table} WHERE {term} IS NOT NULL
 ORDER BY 1 LIMIT (SELECT count({term}) / 2 + 1 FROM {table})) y
"""
SEVERAL: Final = "SELECT array_agg({term} ORDER BY ctid)::text FROM {table} WHERE ctid = ANY (ARRAY[{rows}])"
MIDDLE: Final = """
SELECT array_agg(place) FROM (SELECT ctid::text AS place FROM {table} {mine}
 ORDER BY ctid OFFSET (SELECT count(*) / 2 FROM {table} {mine}) LIMIT {keys}) y
"""
QUOTE: Final = '"'
ABOVE: Final = "SELECT {key} FROM {table} WHERE {mine}"
SHIFTED: Final = "SELECT (%s::timestamptz + %s * interval '30 days')::text"


def fill(database: PostgresDatabase, module: Module, count: int) -> None:
    """Fill each table of a module with this many rows, and let the server count them."""
    with psycopg.connect(database.superuser_url) as connection:
        for entity in module.entities:
            table = table_of(entity)
            statement = sql.SQL("COPY {} ({}) FROM STDIN").format(table.name, listed(table.columns))
            with connection.cursor() as cursor, cursor.copy(statement) as copy:
                for row in rows_of(entity, count):
                    copy.write_row(table.encode(row))
        connection.commit()
        connection.autocommit = True
        connection.execute("VACUUM (ANALYZE)")


@dataclass
class Explainer:
    """Explains statements as the application sends them: by its role, with the tenant set.

    Attributes:
        admin: a connection that sees every row.
        app: a connection of the application.
        module: whose statements they are.
        tenant: of the rows whose values are asked for.
    """

    admin: Connection
    app: Connection
    module: Module
    tenant: str
    _rows: dict[str, list[str]] = field(default_factory=dict)
    _values: dict[tuple[str, str], str | None] = field(default_factory=dict)

    def explain(self, statement: Statement) -> Iterator[Finding]:
        """Yield what the server does for a statement, by each kind of plan that it may choose."""
        entity = self.module.entity(statement.entity)
        for mode in ("custom", "generic") if "[prepared]" in statement.name else ("custom",):
            plan, page = self._plan(entity, statement, mode)
            sorts = sorts_of(plan)
            if sorts:
                sorts = self._needed_sorts(entity, statement, mode)
            yield self._finding(statement, plan, page, mode, sorts)

    def _needed_sorts(self, entity: Entity, statement: Statement, mode: str) -> tuple[str, ...]:
        """Return the sorts that no index spares: of ties, where one has a part of the order, or of all."""
        spared = sorts_of(self._plan(entity, statement, mode, AVOIDED + TIES)[0])
        return sorts_of(self._plan(entity, statement, mode, AVOIDED)[0]) if spared else ()

    def _plan(
        self, entity: Entity, statement: Statement, mode: str, avoided: Sequence[str] = ()
    ) -> tuple[Node, int]:
        """Return the plan and the rows of a page; what avoids something is planned and not run."""
        binder = Binder(self, entity, " ".join(statement.text.split()))
        scope = self.tenant if table_of(entity).owned and binder.names_tenant else SYSTEM
        try:
            self.app.execute("SELECT set_config('app.tenant_id', %s, true)", [scope])
            self.app.execute("SELECT set_config('plan_cache_mode', %s, true)", [f"force_{mode}_plan"])
            for setting in avoided:
                self.app.execute("SELECT set_config(%s, 'off', true)", [setting])
            self._stage(entity, statement)
            self.app.execute(b"PREPARE explained AS " + binder.prepared.encode())
            values = sql.SQL(", ").join(map(sql.Literal, binder.values))
            call = sql.SQL("EXECUTE explained ({})" if binder.values else "EXECUTE explained").format(values)
            how = "EXPLAIN (FORMAT JSON) " if avoided else "EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) "
            found = self.app.execute(sql.SQL(how) + call).fetchone()
            self.app.execute("DEALLOCATE explained")
        finally:
            self.app.rollback()
            self.app.execute("DEALLOCATE ALL")
            self.app.rollback()
        assert found is not None
        return dict(found[0][0]["Plan"]), binder.page

    def _stage(self, entity: Entity, statement: Statement) -> None:
        """Fill the stage of a bulk writer, where a statement reads it, with rows that are stored."""
        if "pg_temp" not in statement.text:
            return
        table = table_of(entity)
        stage = sql.Identifier("pg_temp", f"twinstore_stage_{entity.name}")
        columns = listed(table.columns)
        # As the writer sets it: the stage has no statistics.
        self.app.execute(
            "SELECT set_config('enable_hashjoin', 'off', true), set_config('enable_mergejoin', 'off', true)"
        )
        self.app.execute(
            sql.SQL(
                "CREATE TEMPORARY TABLE {} ON COMMIT DROP AS SELECT {} FROM {} ORDER BY {} LIMIT {}"
            ).format(stage, columns, table.name, table.key_order, PAGE)
        )

    def _finding(
        self, statement: Statement, plan: Node, page: int, mode: str, sorts: tuple[str, ...]
    ) -> Finding:
        scans = [node for node in nodes(plan) if "Relation Name" in node and "Scan" in node["Node Type"]]
        ours = [node for node in scans if "twinstore_stage" not in node["Relation Name"]]
        examined = sum(read_by(node) for node in ours)
        writes = any(node["Node Type"] == "ModifyTable" for node in nodes(plan))
        blocks = plan.get("Shared Hit Blocks", 0) + plan.get("Shared Read Blocks", 0)
        return Finding(
            statement=statement.name,
            mode=mode,
            examined=examined,
            returned=returned_by(plan),
            page=page,
            blocks=0 if writes else blocks,
            indexes=frozenset(node["Index Name"] for node in nodes(plan) if "Index Name" in node),
            # Of two ways to ask for a parent one is planned and not gone.
            scans_all=any(node["Node Type"] == "Seq Scan" and node.get("Actual Loops", 1) for node in ours),
            sorts=sorts,
            reads=bool(ours),
        )

    def value(self, entity: Entity, term: str) -> str | None:
        """Return a value of the row in the middle; of another row where that one has none."""
        known = (entity.name, term)
        if known not in self._values:
            self._values[known] = self._read(entity, term)
        return self._values[known]

    def own_value(self, entity: Entity, term: str) -> str | None:
        """Return a value of the row in the middle, also where it has none."""
        described = table_of(entity)
        above = described.parent
        if described.tenant is None and above is not None and term.strip(QUOTE) == above.tenant:
            return self.tenant
        table = described.name.as_string()
        row = self.rows(entity)[0]
        found = self._one(VALUE, term=term, table=table, row=row)
        return None if found is None else str(found)

    def _read(self, entity: Entity, term: str) -> str | None:
        own = self.own_value(entity, term)
        if own is not None:
            return own
        table = table_of(entity).name.as_string()
        other = self._one(MEDIAN, term=term, table=table)
        return None if other is None else str(other)

    def values(self, entity: Entity, term: str) -> str:
        """Return the values of some rows, as an array."""
        table = table_of(entity).name.as_string()
        rows = ", ".join(f"'{row}'::tid" for row in self.rows(entity))
        return str(self._one(SEVERAL, term=term, table=table, rows=rows))

    def rows(self, entity: Entity) -> list[str]:
        """Return where some rows of the tenant are, those in the middle of its time."""
        if entity.name not in self._rows:
            table = table_of(entity)
            mine = self._of_the_tenant(table)
            found = self._one(
                MIDDLE, table=table.name.as_string(), mine=mine and f"WHERE {mine}", keys=str(KEYS)
            )
            assert isinstance(found, list), f"{self.tenant} has no {entity.name}"
            self._rows[entity.name] = found
        return self._rows[entity.name]

    def _of_the_tenant(self, table: Table) -> str:
        """Return the condition of the rows of the tenant, nothing where rows have none."""
        if table.tenant is not None:
            return f"{table.tenant} = '{self.tenant}'"
        if table.parent is None or not table.owned:
            return ""
        key = table.parent.parts["key"].as_string()
        above = ABOVE.format(
            key=key, table=table.parent.name.as_string(), mine=self._of_the_tenant(table.parent)
        )
        return f"{table.parent_column.as_string()} IN ({above})"

    def _one(self, template: str, **parts: str) -> object:
        """Return the one value that a statement over names and terms of a table answers."""
        found = self.admin.execute(template.format(**parts).encode()).fetchone()
        return None if found is None else found[0]


# What is marked as deleted is disabled. A sample is all rows.
WRITTEN: Final = {
    "payload || ": "{}",
    'SET "enabled" = ': False,
    "TABLESAMPLE SYSTEM (": 100,
    "random() < ": 1,
}


class Binder:
    """Gives each place holder of a statement a value, by the column that it is compared with or written to.

    Attributes:
        prepared: the statement with numbered parameters.
        values: their values.
        page: how many rows it may return at most, by its limit or its keys.
        names_tenant: whether it, or the call, is about one tenant.
    """

    def __init__(self, explainer: Explainer, entity: Entity, text: str) -> None:
        self._explainer = explainer
        self._entity = entity
        self.values: list[object] = []
        self.page = 1
        body = re.sub(r"^COPY \((.*)\) TO STDOUT.*$", r"\1", text)
        self._text = body
        self.names_tenant = (
            bool(re.search(r"tenant_id\"?(?: COLLATE \"C\")? = %", body)) or "%(tenant)s" in body
        )
        if "pg_temp" in body:
            self.page = PAGE
        literal = re.search(r"LIMIT (\d+)", body)
        if literal is not None:
            self.page = int(literal[1])
        self.prepared = PLACE.sub(self._bound, body)

    def _bound(self, place: re.Match[str]) -> str:
        if place[0] == "%%":
            return "%"
        if place[1] is not None:
            named = NAMED[place[1]]
            table, _, column = named.partition(".")
            if table != "locks":
                return named
            return sql.Literal(self._explainer.value(self._entity, column)).as_string()
        self.values.append(self._value(place.start()))
        return f"${len(self.values)}"

    def _value(self, start: int) -> object:
        before = self._text[:start]
        if before.endswith("LIMIT "):
            self.page = PAGE
            return PAGE
        if before.endswith("OFFSET "):
            return PAGE
        for end, value in WRITTEN.items():
            if before.endswith(end):
                return value
        if (found := re.search(r"(\S+) = ANY ?\($", before)) is not None:
            self.page = KEYS
            return self._retained(bare(found[1])) or self._explainer.values(self._entity, bare(found[1]))
        if (found := COMPARED.search(before)) is not None:
            return self._compared(before, bare(found["term"]), found["operator"])
        return self._grouped(before)

    def _retained(self, term: str) -> list[str] | None:
        """Return what a removal by age names: other values lead to another index."""
        kept = self._entity.retention
        if kept is None or not self._text.startswith("DELETE "):
            return None
        named = (
            list(one.values)
            for one in kept.where
            if isinstance(one, OneOf) and one.field == term.strip(QUOTE)
        )
        return next(named, None)

    def _compared(self, before: str, term: str, operator: str) -> object:
        value = self._explainer.value(self._entity, term)
        if is_instant(value) and depth(before) == 0 and operator != "=":
            # A separate window, next to the place where a page begins.
            return self._shifted(value, -1 if operator in {">", ">="} else 1)
        return value

    def _shifted(self, value: str | None, windows: int) -> str:
        found = self._explainer.admin.execute(SHIFTED, [value, windows]).fetchone()
        assert found is not None
        return str(found[0])

    def _grouped(self, before: str) -> object:
        """Return a value by its place in a row that replaces, or is compared with, a row of columns."""
        opened = opening(before)
        place = before[opened:].count("%s")
        head = before[:opened].rstrip()
        while head.endswith("("):
            head = head[:-1].rstrip()
        found = BEFORE_GROUP.search(" " + head if head.startswith("VALUES") else head)
        assert found is not None, (before[-200:], head[-100:])
        columns = head[: found.start()].rstrip()
        assert columns.endswith(")"), (before[-200:], columns[-100:])
        inner = columns[closing_start(columns) + 1 : -1]
        term = bare(split(inner)[place])
        if found[0].endswith(("VALUES", "ROW")):
            return self._explainer.own_value(self._entity, term)
        if "unnest" in found[0]:
            self.page = KEYS
            return self._explainer.values(self._entity, term)
        return self._explainer.value(self._entity, term)


def reads_rows(statement: Statement) -> bool:
    """Return whether a statement reads stored rows; one that only adds rows has no plan to judge."""
    text = " ".join(statement.text.split())
    if text.startswith(("CREATE ", "TRUNCATE ")) or text.endswith("FROM STDIN (FORMAT BINARY)"):
        return False
    return not text.startswith("INSERT INTO ") or "ON CONFLICT" in text


def bare(term: str) -> str:
    """Return a column, or a member of the payload, without qualification and collation."""
    if (member := PAYLOAD.search(term)) is not None:
        return f"payload->>'{member['name']}'"
    plain = re.sub(r' COLLATE "C"|::\w+', "", term).strip("() ")
    return plain.rsplit(".", 1)[-1]


def is_instant(value: object) -> bool:
    return isinstance(value, str) and re.match(r"\d{4}-\d\d-\d\d \d\d:", value) is not None


def depth(before: str) -> int:
    """Return how many brackets of conditions enclose the end of a text, within the last WHERE."""
    where = before.rpartition("WHERE ")[2]
    return where.count("(") - where.count(")")


def opening(before: str) -> int:
    """Return the place behind the bracket that is open at the end of a text."""
    level = 0
    for place in range(len(before) - 1, -1, -1):
        level += {")": 1, "(": -1}.get(before[place], 0)
        if level < 0:
            return place + 1
    raise AssertionError(before)


def closing_start(text: str) -> int:
    """Return where the bracket begins that ends a text."""
    level = 0
    for place in range(len(text) - 1, -1, -1):
        level += {")": 1, "(": -1}.get(text[place], 0)
        if level == 0:
            return place
    raise AssertionError(text)


def split(inner: str) -> list[str]:
    """Return the parts of a list that commas divide outside of brackets."""
    parts, level = [""], 0
    for char in inner:
        level += {"(": 1, ")": -1}.get(char, 0)
        if char == "," and level == 0:
            parts.append("")
        else:
            parts[-1] += char
    return [part.strip() for part in parts]


def sorts_of(plan: Node) -> tuple[str, ...]:
    """Return the kinds of sorts in a plan."""
    return tuple(sorted({node["Node Type"] for node in nodes(plan)} & {"Sort", "Incremental Sort"}))


def nodes(node: Node) -> Iterator[Node]:
    yield node
    for child in node.get("Plans", ()):
        yield from nodes(child)


def read_by(node: Node) -> int:
    """Return how many rows a scan has examined."""
    removed = sum(int(node.get(f"Rows Removed by {why}", 0)) for why in ("Filter", "Index Recheck"))
    return int((node["Actual Rows"] + removed) * node["Actual Loops"])


def returned_by(plan: Node) -> int:
    """Return how many rows a statement returns, or writes where it returns none."""
    written = [node for node in nodes(plan) if node["Node Type"] == "ModifyTable"]
    rows = [int(plan["Actual Rows"])]
    rows += [int(child["Actual Rows"]) for node in written for child in node.get("Plans", ())[:1]]
    return max(rows)
