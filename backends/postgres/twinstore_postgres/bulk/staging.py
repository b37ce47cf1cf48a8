"""Rows go into a temporary table by COPY and from there into their own.

COPY straight into a table under row-level security is not possible. A role that no policy binds may do so,
which pays where nothing of the rows is stored yet.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from enum import Enum
from functools import cache
from typing import TYPE_CHECKING, Final, LiteralString, Protocol
from uuid import UUID, uuid4

import psycopg
from psycopg import sql
from typing_extensions import override

from twinstore.bulk.parts import WriteCounts
from twinstore.bulk.port import NO_PARENT, Conflict, Record, Rejected
from twinstore.bulk.unique_moves import conflict_reason, unique_conflicts
from twinstore.catalog.tenancy import label_of
from twinstore.errors import ConcurrencyError, ConfigurationError
from twinstore.models.shapes import Kind
from twinstore_postgres.connection.deadlines import LongRunningConnection
from twinstore_postgres.connection.errors import Subject, translate
from twinstore_postgres.mapping.columns import VERSION, column_name, digits_of
from twinstore_postgres.mapping.table import listed
from twinstore_postgres.settings import DRIVER

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from twinstore.access.protocol import Access
    from twinstore.catalog.entity import Entity
    from twinstore_postgres.connection.deadlines import Connection
    from twinstore_postgres.connection.transaction import Transaction
    from twinstore_postgres.mapping.codec import Values
    from twinstore_postgres.mapping.columns import Column
    from twinstore_postgres.mapping.table import Table

# The table may be there from an earlier range: it lasts as long as the connection.
CREATE: Final = (
    "CREATE TEMPORARY TABLE IF NOT EXISTS {stage} ON COMMIT DELETE ROWS"
    " AS SELECT {columns} FROM {table} WITH NO DATA"
)
EMPTY: Final = "TRUNCATE {stage}"
# Binary: the client has values, not text, and the server need not parse.
FILL: Final = "COPY {stage} ({columns}) FROM STDIN (FORMAT BINARY)"
DIRECT: Final = "COPY {table} ({columns}) FROM STDIN (FORMAT BINARY)"
# What is stored nearest to the two ends of some keys; both answers come from the index of the key.
FIRST: Final = "SELECT {key} FROM {table} WHERE ({key}) >= ({values}) ORDER BY {key} LIMIT 1"
LAST: Final = "SELECT {key} FROM {table} WHERE ({key}) <= ({values}) ORDER BY {descending} LIMIT 1"
# All staged rows are inserted, or the statement fails.
INSERT_ALL: Final = "INSERT INTO {table} ({columns}) SELECT {columns} FROM {stage}"
# The keys of staged rows that are not stored as they are, and whether they are missing.
COMPARE: Final = """
SELECT {staged_key}, {missing}
  FROM {stage} AS staged LEFT JOIN {table} AS stored ON ({stored_key}) = ({staged_key})
 WHERE ({stored_values}) IS DISTINCT FROM ({staged_values})
"""
# New rows are inserted, and rows that exist stay or become equal to the staged ones. First each row is
# classified, before anything is written; a later comparison would also see what was inserted. Returns the
# number of new ones by the tenant that they name, the number of rows that exist and of those with other
# content, and the keys of what was overwritten.
PROBED: Final = """
WITH probed AS MATERIALIZED (
    SELECT {staged_columns}, {missing} AS twinstore_missing,
           NOT ({missing}) AND ({stored_values}) IS DISTINCT FROM ({staged_values}) AS twinstore_other
      FROM {stage} AS staged LEFT JOIN {table} AS stored ON ({stored_key}) = ({staged_key})
), written AS (
    INSERT INTO {table} ({columns}) SELECT {columns} FROM probed WHERE twinstore_missing
    ON CONFLICT ({key}) DO NOTHING RETURNING {tenant} AS tenant
)"""
COUNTED: Final = """
SELECT tenant, count(*), NULL::bigint, {no_key} FROM written GROUP BY tenant
UNION ALL
SELECT NULL, count(*), count(*) FILTER (WHERE twinstore_other), {no_key}
  FROM probed WHERE NOT twinstore_missing
"""
CHANGED: Final = """, changed AS (
    UPDATE {table} AS stored SET ({columns}) = ROW({staged_columns}){version} FROM probed AS staged
     WHERE ({stored_key}) = ({staged_key}) AND twinstore_other RETURNING {staged_key}
)"""
OVERWRITTEN: Final = "UNION ALL SELECT NULL, NULL, NULL, changed.* FROM changed"
# Stored rows with other content give up their unique values: by a change, or where no text can be changed by
# going. Not so where other tables refer to this one, because their rows would go too.
PARK: Final = """
UPDATE {table} AS stored SET {parked} FROM {stage} AS staged
 WHERE ({stored_key}) = ({staged_key}) AND ({stored_values}) IS DISTINCT FROM ({staged_values})
"""
DISPLACE: Final = """
DELETE FROM {table} AS stored USING {stage} AS staged
 WHERE ({stored_key}) = ({staged_key}) AND ({stored_values}) IS DISTINCT FROM ({staged_values})
   AND NOT EXISTS (SELECT FROM pg_constraint WHERE contype = 'f' AND confrelid = stored.tableoid)
"""


# How often to merge rows that other transactions remove between the statements. Once is nearly always enough.
MERGES: Final = 3
STORED: Final = sql.Identifier("stored")
STAGED: Final = sql.Identifier("staged")


class StagedRows(Protocol):
    """Rows on their way into a stage."""

    def __len__(self) -> int: ...

    def owners(self) -> Counter[str]:
        """Return their number by the label of their owner."""
        ...

    def write(self, copy: psycopg.Copy) -> None:
        """Write them to a COPY in the binary form."""
        ...


@dataclass(frozen=True, slots=True)
class ValueRows(StagedRows):
    """Rows as values, in the order of the columns."""

    table: Table
    rows: Sequence[Values]

    @override
    def __len__(self) -> int:
        return len(self.rows)

    @override
    def owners(self) -> Counter[str]:
        return Counter(label_of(self.table.owner(row)) for row in self.rows)

    @override
    def write(self, copy: psycopg.Copy) -> None:
        copy.set_types([column.sql_type for column in self.table.columns])
        for row in self.rows:
            copy.write_row(row)


class Presence(Enum):
    """What the ends of some keys suggest about all of them; only a hint, because others write too."""

    NONE = "nothing is stored there"
    SOME = "some rows are stored there"
    ALL = "the first and the last row are stored"


@dataclass(frozen=True, slots=True)
class Merged:
    """What became of the staged rows."""

    written: Mapping[str, int]
    others: Sequence[Values]


@dataclass(frozen=True, slots=True, kw_only=True)
class Statements:
    """The statements of one stage."""

    create: bytes
    empty: bytes
    fill: bytes
    direct: bytes
    first: bytes
    last: bytes
    insert_all: bytes
    compare: bytes
    insert_new: bytes
    overwrite: bytes
    displace: bytes


class Stage:
    """The temporary table of one entity on one connection, in one transaction."""

    def __init__(self, transaction: Transaction, table: Table, *, direct: bool = False) -> None:
        """Take the transaction; the table is there.

        With ``direct`` the role may copy into the table itself, past its policies.
        """
        self._transaction = transaction
        self._direct = direct
        self._table = table
        self._used = False
        self._statements = statements_of(table)

    @property
    def is_probed(self) -> bool:
        """Whether the index of the key finds the stored row of a staged one."""
        return self._table.has_own_key

    def presence(self, first: Values, last: Values) -> Presence:
        """Return what is stored around rows between two keys."""
        found = self._transaction.send((self._statements.first, first), (self._statements.last, last))
        after, before = (self._key(answer.first) for answer in found)
        if after is None or after > last:
            return Presence.NONE
        return Presence.ALL if (after, before) == (first, last) else Presence.SOME

    def merge(self, rows: StagedRows, presence: Presence, *, overwrite: bool) -> Merged:
        """Insert the rows that are new; overwrite, or only find, those with other content.

        Raises:
            psycopg.errors.UniqueViolation: also for a key that is stored, where ``presence`` is ``NONE``.
        """
        if presence is Presence.NONE and self._direct:
            self._fill(self._statements.direct, rows)
            return Merged(rows.owners(), ())
        self._stage(rows)
        if presence is Presence.NONE:
            self._rows(self._statements.insert_all)
            return Merged(rows.owners(), ())
        if presence is Presence.ALL and not overwrite:
            found = self._rows(self._statements.compare)
            if not any(missing for *_, missing in found):
                return Merged({}, self._keys(key for *key, _ in found))
        return self._merge(len(rows), overwrite=overwrite)

    def changed(self, rows: Sequence[Values]) -> dict[Values, bool]:
        """Return the keys of the rows that are not stored as they are, and whether they are missing."""
        self._stage(ValueRows(self._table, rows))
        found = self._rows(self._statements.compare)
        keys = self._keys(key for *key, _ in found)
        return {key: bool(missing) for key, (*_, missing) in zip(keys, found, strict=True)}

    def write_moves(self, rows: Sequence[Values]) -> Merged:
        """Write rows whose unique values move between them; those with other content are overwritten.

        Raises:
            psycopg.errors.UniqueViolation: a row that is not among them has a value of theirs.
        """
        changed = self.changed(rows)
        self._rows(self._statements.displace)
        self._merge(len(rows), overwrite=True)
        others = [key for key, missing in changed.items() if not missing]
        new = Counter(
            label_of(self._table.owner(row)) for row in rows if changed.get(self._table.key_of(row))
        )
        return Merged(new, others)

    def _stage(self, rows: StagedRows) -> None:
        if self._used:  # at its first use in a transaction it is empty: rows end with the last one
            self._transaction.later((self._statements.empty, ()))
        self._used = True
        self._fill(self._statements.fill, rows)

    def _fill(self, statement: bytes, rows: StagedRows) -> None:
        self._transaction.send()
        with self._transaction.connection.cursor() as cursor, cursor.copy(statement) as copy:
            rows.write(copy)

    def _rows(self, statement: bytes) -> list[Values]:
        """Return what a statement without parameters answers."""
        return self._transaction.send((statement, ()))[0].rows

    def _merge(self, staged: int, *, overwrite: bool) -> Merged:
        written: Counter[str] = Counter()
        others: dict[Values, None] = {}
        statement = self._statements.overwrite if overwrite else self._statements.insert_new
        for _ in range(MERGES):
            found = self._rows(statement)
            new = self._table.labelled((tenant, n) for tenant, n, other, *_ in found if n and other is None)
            equal = sum(number - other for _, number, other, *_ in found if other is not None)
            overwritten = self._keys(key for _, number, _, *key in found if number is None)
            written.update(new)
            others.update(dict.fromkeys(overwritten))
            done = equal + sum(new.values()) + len(overwritten)
            if done == staged:
                return Merged(written, [*others])
            # Otherwise some differ, or were written concurrently; each statement sees committed changes.
            changed = self._rows(self._statements.compare)
            if not changed or not (overwrite or any(missing for *_, missing in changed)):
                return Merged(written, [*others, *self._keys(key for *key, _ in changed)])
        raise ConcurrencyError(
            f"Rows of {self._table.entity.name} were changed or removed again and again while they were "
            "written; repeat the range.",
            driver=DRIVER,
            entity=self._table.entity.name,
        )

    def _key(self, found: Sequence[object] | None) -> Values | None:
        """Return a key that a statement answers with, as those of the rows are."""
        return None if found is None else self._keys((found,))[0]

    def _keys(self, found: Iterable[Sequence[object]]) -> list[Values]:
        """Return the keys that a statement answers with, as those of the rows are."""
        key = self._table.key
        return [tuple(map(as_in_rows, key, item)) for item in found]


def as_in_rows(column: Column, value: object) -> object:
    """Return a value that a statement answers with, as rows that are written have it."""
    if column.digits:
        return digits_of(value)
    return UUID(str(value)) if column.sql_type == "uuid" else value


def create_stage(connection: Connection, table: Table) -> None:
    """Make the table of a stage, unless this was done on the connection; outside of a transaction.

    Raises:
        ConfigurationError: the role may not create temporary tables.
    """
    made: set[object] = connection.stages if isinstance(connection, LongRunningConnection) else set()
    if table in made:
        return
    try:
        connection.execute(statements_of(table).create)
    except psycopg.errors.InsufficientPrivilege as error:
        info = connection.info
        raise ConfigurationError(
            f"The role {info.user!r} may not create temporary tables, which an import needs. "
            f"An administrator must run: GRANT TEMPORARY ON DATABASE "
            f"{sql.Identifier(info.dbname).as_string()} TO {sql.Identifier(info.user).as_string()};",
            driver=DRIVER,
        ) from error
    made.add(table)


@cache
def statements_of(table: Table) -> Statements:
    """Return the statements of the stage of a table, made once."""
    parts = names(table)

    def rendered(template: LiteralString) -> bytes:
        return sql.SQL(template).format(**parts).as_bytes()

    return Statements(
        create=rendered(CREATE),
        empty=rendered(EMPTY),
        fill=rendered(FILL),
        direct=rendered(DIRECT),
        first=rendered(FIRST),
        last=rendered(LAST),
        insert_all=rendered(INSERT_ALL),
        compare=rendered(COMPARE),
        insert_new=rendered(PROBED + COUNTED),
        overwrite=rendered(PROBED + CHANGED + COUNTED + OVERWRITTEN),
        displace=rendered(PARK if parked_columns(table.entity) else DISPLACE),
    )


def names(table: Table) -> dict[str, sql.Composable]:
    """Return what the statements are made of."""
    version = sql.SQL(", {0} = {1}.{0} + 1").format(sql.Identifier(VERSION), STORED)
    return table.parts | {
        "stage": sql.Identifier("pg_temp", f"twinstore_stage_{table.entity.name}"),
        "values": sql.SQL(", ").join([sql.Placeholder()] * len(table.key)),
        "descending": sql.SQL(", ").join(sql.SQL("{} DESC").format(column.term()) for column in table.key),
        "missing": sql.SQL("{} IS NULL").format(table.key[0].term(STORED)),
        "tenant": table.tenant_expression,
        "stored_key": listed(table.key, STORED),
        "staged_key": listed(table.key, STAGED),
        "no_key": sql.SQL(", ").join(sql.SQL("NULL::" + column.sql_type) for column in table.key),
        "staged_columns": listed(table.columns, STAGED),
        "stored_values": compared(table, STORED),
        "staged_values": compared(table, STAGED),
        "version": version if table.entity.versioned_table else sql.SQL(""),
        "parked": parked(table),
    }


def parked_columns(entity: Entity) -> tuple[str, ...]:
    """Return, for each unique index, a column whose text can change for a moment; nothing if one has none.

    One that refers to another row cannot, and a key must stay.
    """
    fixed = {*entity.key, entity.tenant_field, None if entity.parent is None else entity.parent.field}
    found: list[str] = []
    for index in entity.uniques:
        free = [name for name in index.names if name not in fixed and is_plain_text(entity, name)]
        if not free:
            return ()
        found.append(column_name(entity, free[-1]))
    return tuple(dict.fromkeys(found))


def is_plain_text(entity: Entity, name: str) -> bool:
    """Whether a name can hold any text; an enumeration accepts only its members."""
    shape = entity.shapes.get(name)
    return name not in entity.markers and shape is not None and shape.value.kind is Kind.TEXT


def parked(table: Table) -> sql.Composable:
    """Return what makes the unique texts of stored rows give way, and differ from each other as before."""
    suffix = sql.Literal(f" {uuid4().hex}")
    return sql.SQL(", ").join(
        sql.SQL("{0} = {1}.{0} || {2}").format(sql.Identifier(name), STORED, suffix)
        for name in parked_columns(table.entity)
    )


def compared(table: Table, relation: sql.Identifier) -> sql.Composable:
    """Return the columns of a row as a copy compares them; a verification finds the same ones different.

    To the server the numbers ``1`` and ``1.0`` are equal, though it keeps and shows them as they are.
    """
    columns = [
        sql.SQL("{}{}").format(column.term(relation), sql.SQL("::text" if column.sql_type in SCALED else ""))
        for column in table.columns
    ]
    return sql.SQL(", ").join(columns)


# Of these the server calls some values equal whose texts differ.
SCALED: Final = frozenset({"jsonb", "numeric"})


if TYPE_CHECKING:
    Pair = tuple[Record, Values]

# Errors that a single row causes: bad data, a broken constraint, a value too large for an index.
ROW_ERRORS: Final = frozenset({"22", "23", "54"})


@dataclass(slots=True)
class MergeCounts(WriteCounts):
    """What became of the records so far, merge by merge."""

    def add_merge(
        self,
        owners: Counter[str],
        written: Mapping[str, int],
        conflicts: Sequence[Conflict],
        *,
        overwrite: bool,
    ) -> None:
        """Note what a merge did to rows; ``owners`` are all of them by label, and end as those unchanged."""
        self.written.update(written)
        self.conflicts += conflicts
        different = Counter(conflict.label for conflict in conflicts)
        owners.subtract(different)
        if overwrite:
            self.written.update(different)
        owners.subtract(written)
        self.unchanged.update(owners)


@dataclass(frozen=True, slots=True)
class Merger:
    """Merges some records; if one is refused, tries the halves until that record is isolated.

    Attributes:
        access: the rows of the target inside the transaction.
    """

    transaction: Transaction
    stage: Stage
    table: Table
    counts: MergeCounts
    overwrite: bool
    access: Callable[[], Access]

    def merge(self, pairs: Sequence[Pair]) -> None:
        """Write the records that the store takes and note the reasons of the others."""
        try:
            self._merge(pairs)
        except psycopg.errors.UniqueViolation:
            # Of a name, or of a key inserted since by another transaction; only the careful path can decide.
            self._merge_carefully(pairs)
        except psycopg.Error as error:
            self._bisect(pairs, error)

    def _merge_carefully(self, pairs: Sequence[Pair]) -> None:
        try:
            self._merge(pairs, Presence.SOME)
        except psycopg.errors.UniqueViolation as error:
            if self.overwrite:
                self._move(pairs)
            else:
                self._bisect(pairs, error)
        except psycopg.Error as error:
            self._bisect(pairs, error)

    def _move(self, pairs: Sequence[Pair]) -> None:
        """Merge rows whose unique values move between them; name what is in the way of the others."""
        entity = self.table.entity
        with self.transaction.savepoint():
            changed = self.stage.changed([row for _, row in pairs])
        moving = [record for record, row in pairs if self.table.key_of(row) in changed]
        found = unique_conflicts(self.access(), entity, moving)
        self.counts.rejected += [
            Rejected(record, conflict_reason(entity, found[record.key]))
            for record in moving
            if record.key in found
        ]
        free = [pair for pair in pairs if pair[0].key not in found]
        try:
            if free:
                with self.transaction.savepoint():
                    merged = self.stage.write_moves([row for _, row in free])
                self._count(free, merged)
        except psycopg.Error as other:
            # Another rule refuses a row, or another transaction has taken a value since.
            self._bisect(free, other)

    def _merge(self, pairs: Sequence[Pair], presence: Presence | None = None) -> None:
        rows = [row for _, row in pairs]
        # A savepoint: a refused row must not end the transaction of the range.
        with self.transaction.savepoint():
            ends = self.table.key_of(rows[0]), self.table.key_of(rows[-1])
            found = presence or self.stage.presence(*ends)
            merged = self.stage.merge(ValueRows(self.table, rows), found, overwrite=self.overwrite)
        self._count(pairs, merged)

    def _bisect(self, pairs: Sequence[Pair], error: psycopg.Error) -> None:
        if not is_row_error(error):
            raise error
        if len(pairs) == 1:
            record = pairs[0][0]
            self.counts.rejected.append(Rejected(record, self._reason(record, error)))
            return
        # One bad row among thousands is found by about two dozen merges.
        middle = len(pairs) // 2
        self._merge_carefully(pairs[:middle])
        self._merge_carefully(pairs[middle:])

    def _reason(self, record: Record, error: psycopg.Error) -> str:
        """Return why a record was refused; a taken value is named with the row that has it."""
        entity = self.table.entity
        if isinstance(error, psycopg.errors.UniqueViolation):
            for obstacle in unique_conflicts(self.access(), entity, [record]).values():
                return conflict_reason(entity, obstacle)
        if isinstance(error, psycopg.errors.ForeignKeyViolation):
            return NO_PARENT
        return reason_of(error, Subject(entity, record.key))

    def _count(self, pairs: Sequence[Pair], merged: Merged) -> None:
        conflicts = self._conflicts(pairs, merged.others) if merged.others else []
        owners = Counter(label_of(self.table.owner(row)) for _, row in pairs)
        self.counts.add_merge(owners, merged.written, conflicts, overwrite=self.overwrite)

    def _conflicts(self, pairs: Sequence[Pair], others: Sequence[Values]) -> list[Conflict]:
        """Return the conflicts of the keys whose rows have other content."""
        records = {self.table.key_of(row): (record, row) for record, row in pairs}
        return [self._conflict(*records[key]) for key in others]

    def _conflict(self, record: Record, row: Values) -> Conflict:
        return Conflict(record.key or (), self.table.owner(row), self.overwrite)


def is_row_error(error: psycopg.Error) -> bool:
    """Whether the store refuses a row, not the whole work."""
    if error.sqlstate is None:
        return isinstance(error, psycopg.DataError)
    return error.sqlstate[:2] in ROW_ERRORS


def reason_of(error: psycopg.Error, subject: Subject) -> str:
    """Return why a row was refused: rule and code, no values."""
    return translate(error, subject).message
