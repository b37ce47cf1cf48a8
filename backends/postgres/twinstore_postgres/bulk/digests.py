"""Digests of the rows of a table, read in the order in which it has them.

Like the scan, this reads the same columns separately, in text form. Native code turns them into what the scan
would show; it shares nothing with the code that copies.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, LiteralString

import psycopg
from psycopg import sql
from psycopg.pq import DiagnosticField, ExecStatus

from twinstore.bulk.rows import Digestible, NoDigests
from twinstore.catalog.entity import Layout
from twinstore.catalog.keys import KeyType
from twinstore.catalog.tenancy import TenancyKind
from twinstore.errors import Outcome
from twinstore.fast.digests import Scanner, table_form, write_removal
from twinstore.fast.library import NO_LIBRARY, library
from twinstore.fast.program import Writer
from twinstore.models.json_text import dumps_sorted
from twinstore_postgres.bulk.scan import CONVERTERS, base64_text, foreign_text, is_array
from twinstore_postgres.connection.deadlines import NoAnswer
from twinstore_postgres.connection.errors import Subject, translated
from twinstore_postgres.connection.idle import readable

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Sequence
    from datetime import datetime

    from psycopg import Copy
    from psycopg.pq.abc import PGresult

    from twinstore.bulk.rows import RangeDigests
    from twinstore.catalog.entity import Entity
    from twinstore.catalog.keys import Key, KeyRange
    from twinstore_postgres.bulk.scan import SelectedColumn, TableScan
    from twinstore_postgres.bulk.snapshot import Snapshot
    from twinstore_postgres.connection.deadlines import Connection

# Of lines that are worked on at a time; a longer one comes alone.
PIECE_BYTES: Final = 250_000
# For the last word of the server, which comes with the last lines.
END_SECONDS: Final = 30.0
UTF8: Final = "utf-8"
# A table, or the partitions of one.
PARTS: Final = """
  FROM pg_class l
 WHERE l.relkind <> 'p'
   AND l.oid IN (SELECT %(table)s::regclass UNION ALL SELECT relid FROM pg_partition_tree(%(table)s))
"""
FILES: Final = f"SELECT string_agg(pg_relation_filenode(l.oid)::text, ',' ORDER BY l.oid) {PARTS}"
# Only a table knows which rows are on which page, and only one that no other inherits from: child tables have
# separate pages, and a key may be in several of them. Pages of one number in all partitions are one part.
TABLE: Final = f"""
SELECT (SELECT bool_and(l.relkind IN ('r', 'm') AND NOT l.relhassubclass) {PARTS}),
       (SELECT max(pg_relation_size(l.oid)) {PARTS}) / current_setting('block_size')::int8,
       ({FILES}),
       (c.relkind = 'p' OR c.relkind = 'r' AND NOT c.relhassubclass) AND EXISTS (
         SELECT FROM pg_index i
          WHERE i.indrelid = c.oid AND i.indisunique AND i.indisvalid
            AND i.indpred IS NULL AND i.indexprs IS NULL
            AND NOT EXISTS (
              SELECT FROM unnest(i.indkey::int2[]) AS part (number)
                JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum = part.number
               WHERE a.attname <> ALL (%(key)s)))
  FROM pg_class c
 WHERE c.oid = %(table)s::regclass
"""  # noqa: S608  # parts of the same statement


def digestible(entity: Entity) -> Digestible | NoDigests:
    """Return how rows of an entity are judged, or why there are no digests of them."""
    reason = NO_LIBRARY if library() is None else no_digests_reason(entity)
    return Digestible.ROWS if reason is None else NoDigests(reason)


class DigestScan:
    """Reads the rows of one entity."""

    def __init__(self, snapshot: Snapshot, scan: TableScan) -> None:
        self._snapshot, self._scan = snapshot, scan
        entity = scan.entity
        columns = {part.name: part.column for part in scan.parts}
        self._table = f'"{entity.module}"."{entity.name}"'
        found = self._query_row(TABLE, key=[columns[name] for name in entity.key])
        self._has_pages, self._pages, self._files, self._unique = found or (False, 0, None, False)

    def digests(
        self,
        pieces: Iterator[bytes],
        bounds: Sequence[Key],
        *,
        secret: bytes,
        folded: bool,
        cutoff: datetime | None,
        accepts: Callable[[bytes], bool] | None,
        on_progress: Callable[[int], None] | None,
    ) -> RangeDigests | NoDigests:
        """Return the digests of lines, or why native code shows none of them."""
        found, scan = library(), self._scan
        if found is None:
            return NoDigests(NO_LIBRARY)
        if (reason := unsupported_reason(scan)) is not None:
            return NoDigests(reason)
        if (encoding := self._snapshot.connection.info.encoding) != UTF8:
            return NoDigests(f"the connection has the encoding {encoding}, not {UTF8}")
        form = table_form(found, digest_form(scan))
        scanner = Scanner(
            found, form, scan.entity, bounds, secret=secret, folded=folded, cutoff=cutoff, accepts=accepts
        )
        for piece in pieces:
            number = scanner.add_lines(piece)
            del piece
            if on_progress is not None:
                on_progress(number)
        digests = scanner.result(unique=bool(self._unique))
        if self._has_pages:
            # Until the transaction ends, the name of the table cannot move to another table, but a partition
            # can be attached.
            digests.unplaced += self._query_row(FILES) != (self._files,)
            digests.file = f"{self._files} of {self._pages} pages"
        return digests

    def _query_row(self, statement: LiteralString, **values: object) -> tuple[Any, ...] | None:
        """Return the one row that the server reports about the table."""
        with translated(Subject(self._scan.entity), outcome=Outcome.NOT_APPLIED):
            return self._snapshot.connection.execute(statement, values | {"table": self._table}).fetchone()

    def lines(
        self, within: KeyRange, tenant_id: str | None, part: int, parts: int, *, nullable: bool
    ) -> Generator[bytes]:
        """Yield the lines of one of several parts of a range, some at a time."""
        # What has no pages is not divided.
        if part and not self._has_pages:
            return
        conditions = self._pages_of(part, parts) if self._has_pages else []
        with self._snapshot.copy(
            self._scan.unordered(within, tenant_id, conditions, nullable=nullable)
        ) as copy:
            yield from pieces_of(copy)

    def _pages_of(self, part: int, parts: int) -> list[sql.Composable]:
        """Return the condition of the pages of a part; the last one has whatever comes behind."""
        first, end = (self._pages * number // parts for number in (part, part + 1))
        conditions: list[sql.Composable] = []
        if part:
            conditions.append(sql.SQL("ctid >= {}::tid").format(sql.Literal(f"({first},0)")))
        if part + 1 < parts:
            conditions.append(sql.SQL("ctid < {}::tid").format(sql.Literal(f"({end},0)")))
        return conditions


def pieces_of(copy: Copy) -> Generator[bytes]:
    """Yield whole lines of a stream, some at a time.

    What has come already is taken from libpq itself; a call that may wait takes as long as all the rest.
    """
    take = copy.connection.pgconn.get_copy_data
    lines: list[memoryview] = []
    size = 0
    while True:
        length, line = take(1)
        if length < 0:
            await_end(copy.connection)
            break
        if not length and not (line := memoryview(copy.read())):
            break
        lines.append(line)
        size += len(line)
        if size >= PIECE_BYTES:
            piece = b"".join(lines)
            lines.clear()
            size = 0
            yield piece
            del piece
    if lines:
        yield b"".join(lines)


def await_end(connection: Connection) -> None:
    """Wait for what the server says at the end of a stream, which comes with the last lines.

    Raises:
        psycopg.Error: it says why it has ended early, or says nothing.
    """
    server = connection.pgconn
    while True:
        while server.is_busy():
            if not readable(connection.fileno(), END_SECONDS):
                connection.close()
                raise NoAnswer(f"no answer within {END_SECONDS:g} s")
            server.consume_input()
        result = server.get_result()
        if result is None:
            return
        if result.status != ExecStatus.COMMAND_OK:
            raise error_of(result)


def error_of(result: PGresult) -> psycopg.Error:
    """Return the error that a result reports."""
    state = (result.error_field(DiagnosticField.SQLSTATE) or b"").decode()
    text = result.get_error_message()
    try:
        return psycopg.errors.lookup(state)(text)
    except KeyError:
        return psycopg.DatabaseError(text)


# What the columns of a scan hold, for native code that digests them.
#
# As the scan itself it follows from the names of the description and from the types of the server; the
# program of a copy has no part in it. What native code cannot show exactly has no form, and is compared row
# by row.


# How the text of a column becomes a value, as native code numbers it.
TEXT, INTEGER, FLAG, NUMBER, INSTANT, JSON, ARRAY, MEMBER, DECIMAL, BYTES = range(10)
KINDS: Final = {
    "bool": FLAG,
    **dict.fromkeys(("int2", "int4", "int8"), INTEGER),
    **dict.fromkeys(("float4", "float8", "numeric"), NUMBER),
    "timestamptz": INSTANT,
    **dict.fromkeys(("json", "jsonb"), JSON),
}
MOST_PARTS: Final = 4
MOST_COLUMNS: Final = 256


def no_digests_reason(entity: Entity) -> str | None:
    """Return why rows of an entity have no digests whatever its table is like, ``None`` where they may."""
    if entity.derived_key is not None:
        return "its key follows from its content"
    if entity.derived or entity.beside:
        return "tables hold values that follow from the content"
    if entity.layout is Layout.PAYLOAD:
        return "its table holds the whole model in one column"
    if entity.shapes.keys() & {*entity.markers} or entity.has_free_names:
        return "a field has the name of a marker, or one that native code does not know"
    if len(entity.key_parts) > MOST_PARTS or any(part.type is KeyType.HEX for part in entity.key_parts):
        return "its key is of a kind that native code does not know"
    return None


def unsupported_reason(scan: TableScan) -> str | None:
    """Return why the rows of a scan have no such form, ``None`` where they have."""
    if (reason := no_digests_reason(scan.entity)) is not None:
        return reason
    if len(scan.parts) > MOST_COLUMNS:
        return "it has too many columns"
    if any(part.convert is foreign_text for part in scan.parts):
        return "decimals or bytes have a column of another type"
    wanted = kinds_of_places(scan.entity)
    if any(kind_of(part) != wanted.get(part.name, kind_of(part)) for part in scan.parts):
        return "its key, tenant or instant of retention has a column of another type"
    # Equal values of these are spelled alike.
    if any(value and type(value) not in {str, int, bool} for value in scan.left_out.values()):
        return "a value that is omitted from its content has parts"
    return None


def kinds_of_places(entity: Entity) -> dict[str, int]:
    """Return how the text of the columns that native code looks into must become a value, by name."""
    wanted = {part.field: INTEGER if part.type.is_number else TEXT for part in entity.key_parts}
    if entity.tenant_field is not None:
        wanted[entity.tenant_field] = TEXT
    return wanted if entity.retention is None else wanted | {entity.retention.field: INSTANT}


def digest_form(scan: TableScan) -> bytes:
    """Return the form as native code reads it; see ``core/native/verifier/table_form.c``."""
    writer, entity = Writer(), scan.entity
    numbers = {part.name: number for number, part in enumerate(scan.parts)}
    writer.number(len(scan.parts))
    writer.number(sum(len(part.numbers) for part in scan.parts if kind_of(part) == MEMBER and part.numbers))
    for part in scan.parts:
        write_column(writer, part)
    left_out = {name: dumps_sorted(value) for name, value in scan.left_out.items()}
    write_parts(writer, scan.fields, numbers, left_out)
    write_parts(writer, scan.markers, numbers, {})
    writer.number(len(entity.key_parts))
    for key in entity.key_parts:
        writer.number(numbers[key.field])
        writer.number(key.type.is_number)
    write_number(writer, numbers, entity.tenant_field)
    writer.number(entity.tenancy.kind is not TenancyKind.REQUIRED)
    write_number(writer, numbers, None if entity.retention is None else entity.retention.field)
    write_number(writer, numbers, None if scan.counter is None else scan.counter.name)
    write_removal(writer, entity.retention, numbers.__getitem__)
    return writer.tobytes()


def kind_of(part: SelectedColumn) -> int:
    """Return how the text of a column becomes a value."""
    if part.convert is base64_text:
        return BYTES
    # As it is: of all numbers only decimals are shown by their digits.
    if part.convert is str:
        return DECIMAL
    if part.numbers is not None and CONVERTERS.get(part.type_name) is int:
        return MEMBER
    return ARRAY if is_array(part.type_name) else KINDS.get(part.type_name, TEXT)


def write_column(writer: Writer, part: SelectedColumn) -> None:
    """Write the kind of a column, and the members of its enumeration."""
    kind = kind_of(part)
    members = tuple(part.numbers) if kind == MEMBER and part.numbers is not None else ()
    writer.number(kind)
    writer.number(len(members))
    for member in members:
        writer.number(member.number)
        writer.text(member.value)


def write_parts(
    writer: Writer, parts: Sequence[SelectedColumn], numbers: dict[str, int], left_out: dict[str, bytes]
) -> None:
    """Write the names of the content in their order, what leaves each out, and the column of each."""
    writer.number(len(parts))
    for part in sorted(parts, key=lambda part: part.name.encode()):
        writer.text(part.name)
        writer.text(left_out.get(part.name, b""))
        writer.number(numbers[part.name])


def write_number(writer: Writer, numbers: dict[str, int], name: str | None) -> None:
    """Write the number of a column and one, or zero for none."""
    writer.number(0 if name is None else numbers[name] + 1)
