"""Reading ranges of rows as models, streamed by a binary COPY."""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from decimal import Decimal
from itertools import chain
from typing import TYPE_CHECKING, Final
from uuid import UUID

from psycopg import sql
from typing_extensions import override

from twinstore.bulk.port import Record
from twinstore.bulk.rows import LONGEST_READABLE, Original, base64_pieces
from twinstore.catalog.keys import Key, KeyRange
from twinstore.catalog.tenancy import ALL_TENANTS, Tenant, Tenants
from twinstore.errors import DocumentDecodeError
from twinstore.fast.records import PackedBatch, Stored, read_copy
from twinstore.models.shapes import lossy_map, lossy_map_reason
from twinstore_postgres.bulk.snapshot import without_key
from twinstore_postgres.connection.cursors import TolerantInstantLoader
from twinstore_postgres.mapping.columns import storable_keys
from twinstore_postgres.mapping.table import table_of
from twinstore_postgres.mapping.tenancy import owner_condition, owner_values, scope_kind

if TYPE_CHECKING:
    from psycopg import Copy
    from psycopg.abc import Buffer

    from twinstore.fast.records import NativeColumns
    from twinstore_postgres.bulk.snapshot import Snapshot
    from twinstore_postgres.mapping.codec import Values
    from twinstore_postgres.mapping.columns import Column
    from twinstore_postgres.mapping.table import Table

# A batch ends at this size too; as objects rows take several times their bytes.
BATCH_BYTES: Final = 500_000
# COPY, because a cursor of the server takes five times as long. Binary, because values are wanted, not text;
# the scan of a comparison reads text, so that no common reader can hide a difference.
EXPORT: Final = (
    "COPY (SELECT {columns} FROM {table} WHERE {where} ORDER BY {order}) TO STDOUT (FORMAT BINARY)"
)
EXPORT_SOME: Final = (
    "COPY (SELECT {columns} FROM {table} WHERE ({order}) IN ({keys})) TO STDOUT (FORMAT BINARY)"
)
# Of one query, whose text grows with them.
SOME_KEYS: Final = 500
# A tenant as a parameter, compared by code point, whatever the collation of the column.
EXACTLY: Final = sql.SQL('%s::text COLLATE "C"')


def export_batches(
    snapshot: Snapshot, table: Table, within: KeyRange, tenant_id: str | None, batch_size: int
) -> Generator[list[Record]]:
    """Yield the rows of a range in key order, in batches; the server waits while the caller works."""
    found = snapshot.find(table)
    if found is None:
        return
    where, values = range_condition(table, within, tenant_id, nullable=found.nullable)
    statement = sql.SQL(EXPORT).format(**table.parts, where=where, order=table.key_order)
    batch: list[Record] = []
    size = 0
    for record, length in stored_records(snapshot, table, statement, values):
        size += length
        batch.append(record)
        del record
        if len(batch) == batch_size or size > BATCH_BYTES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def export_of(snapshot: Snapshot, table: Table, keys: Sequence[Key]) -> Generator[Record]:
    """Yield single rows; keys that no row can have are not asked for."""
    wanted = [] if snapshot.find(table) is None else storable_keys(table.entity, keys)
    one = sql.SQL("({})").format(sql.SQL(", ").join([sql.Placeholder()] * len(table.key)))
    for start in range(0, len(wanted), SOME_KEYS):
        some = wanted[start : start + SOME_KEYS]
        placeholders = sql.SQL(", ").join([one] * len(some))
        statement = sql.SQL(EXPORT_SOME).format(**table.parts, order=table.key_order, keys=placeholders)
        values = list(chain.from_iterable(some))
        yield from (record for record, _ in stored_records(snapshot, table, statement, values))


def stored_records(
    snapshot: Snapshot, table: Table, statement: sql.Composed, values: Sequence[object]
) -> Generator[tuple[Record, int]]:
    """Yield the records of the rows that a statement selects, each with the bytes that the server sent."""
    with snapshot.copy(statement, values) as copy:
        copy.cursor.adapters.register_loader("timestamptz", TolerantInstantLoader)
        copy.set_types([column.sql_type for column in table.columns])
        for message in copy:  # one for each row, the library says, and one at the end that is none
            row = copy.formatter.parse_row(message)
            record = None if row is None else record_of(table, row, message)
            del row
            if record is not None:
                yield record, len(message)
                del record


def range_condition(
    table: Table, within: KeyRange, tenant_id: str | None, *, nullable: bool
) -> tuple[sql.Composable, Sequence[object]]:
    """Return the condition of a range and its values; composed keys are compared as rows.

    Rows whose key is null belong to the open upper end. Only where there can be such rows the condition says
    so, because the server would not go along the index then.
    """
    conditions: list[sql.Composable] = []
    values: list[object] = []
    for operator, bound in ((sql.SQL(">="), within.lower), (sql.SQL("<"), within.upper)):
        if bound is not None:
            conditions.append(
                sql.SQL("({key}) {operator} ({values})").format(
                    key=table.key_order,
                    operator=operator,
                    values=sql.SQL(", ").join([sql.Placeholder()] * len(bound)),
                )
            )
            values += bound
    if conditions and nullable:
        kind = "(({0}) OR ({1}))" if within.upper is None else "(({0}) AND NOT ({1}))"
        conditions = [sql.SQL(kind).format(sql.SQL(" AND ").join(conditions), without_key(table))]
    owner, owned_by = tenant_condition(table, tenant_id)
    return sql.SQL(" AND ").join([*conditions, owner]), [*values, *owned_by]


def tenant_condition(table: Table, tenant_id: str | None) -> tuple[sql.Composable, Sequence[object]]:
    """Return the condition of the rows of a tenant, or of all, and its values."""
    scope: Tenants = ALL_TENANTS if tenant_id is None else Tenant(tenant_id)
    owner = owner_condition(table, scope_kind(scope), tenant=EXACTLY)
    return sql.SQL("true") if owner is None else owner, owner_values(table, scope)


def record_of(table: Table, row: Values, message: Buffer) -> Record:
    """Return the record of a row, decoded or with the reason why not."""
    original = RowOriginal(table.columns, message)
    stored = table.key_of(row)
    key: Key | None = stored if table.entity.admits_key(stored) else None
    owner = table.owner(row)
    record = Record(key, owner, None, original=original)
    try:
        record.storage = table.checked_markers_of(row)
        model, document = table.decode_with_document(row)
    except DocumentDecodeError as error:
        record.error = error.reason or error.message
        return record
    if (path := lossy_map(document, model)) is not None:
        record.error = lossy_map_reason(path)
        return record
    if (problem := table.entity.extra_problem(model)) is not None:
        record.error = problem
        return record
    record.model = model
    return record


# A batch ends at this size too: about as much as a target writes in one transaction.
PACKED_BATCH_BYTES: Final = 1_500_000
# Of rows that become objects, which take several times their bytes.
EXACT_BYTES: Final = 500_000
TRAILER: Final = b"\xff\xff"


def packed_batches(
    snapshot: Snapshot, columns: NativeColumns, within: KeyRange, tenant_id: str | None, batch_size: int
) -> Generator[Sequence[Record]]:
    """Yield the rows of a range in key order, in batches; the server waits while the caller works."""
    table = table_of(columns.program.entity)
    found = snapshot.find(table)
    if found is None:
        return
    where, values = range_condition(table, within, tenant_id, nullable=found.nullable)
    statement = sql.SQL(EXPORT).format(**table.parts, where=where, order=table.key_order)
    with snapshot.copy(statement, values) as copy:
        copy.cursor.adapters.register_loader("timestamptz", TolerantInstantLoader)
        copy.set_types([column.sql_type for column in table.columns])
        reader = PackedReader(table, columns, copy)
        for messages in batched(copy, batch_size):
            yield from reader.batches(messages)


def batched(copy: Copy, batch_size: int) -> Generator[list[memoryview]]:
    """Yield the rows that the server sends, in batches, each as it is sent; a large row is its own batch."""
    messages: list[memoryview] = []
    size = 0
    for message in copy:
        row = memoryview(message)
        if bytes(row[: len(HEADER)]) == HEADER:
            # Rows are parsed without it later on.
            copy.formatter.parse_row(bytes(row[:HEADER_BYTES]) + TRAILER)
            row = row[HEADER_BYTES:]
        if len(row) == len(TRAILER):  # no row is as short
            continue
        if messages and (len(messages) == batch_size or size + len(row) > PACKED_BATCH_BYTES):
            yield messages
            messages, size = [], 0
        messages.append(row)
        size += len(row)
        del row, message
    if messages:
        yield messages


class PackedReader:
    """Makes batches of what the server sends."""

    def __init__(self, table: Table, columns: NativeColumns, copy: Copy) -> None:
        """Take the table, how native code reads its rows, and the stream, which sets how values are read."""
        self._table = table
        self._columns = columns
        self._formatter = copy.formatter

    def batches(self, messages: list[memoryview]) -> Iterator[Sequence[Record]]:
        """Yield the rows of some messages, which are forgotten."""
        if len(messages) == 1 and len(messages[0]) > EXACT_BYTES:
            yield [self._record(messages.pop())]
            return
        data = b"".join(messages)
        read = read_copy(self._columns, data)
        if read is None or sum(size for _, size, _ in read.declined) > EXACT_BYTES:
            del data
            yield from self._records(messages)
            return
        messages.clear()
        exact = [
            (number + before, self._record(data[at : at + size]))
            for number, (at, size, before) in enumerate(read.declined)
        ]
        stored = Stored(data, read.places, self._record)
        yield PackedBatch(self._columns.program, read.rows, stored, exact)

    def _records(self, messages: list[memoryview]) -> Iterator[list[Record]]:
        """Yield the rows of some messages, all of them the exact way."""
        batch: list[Record] = []
        size = 0
        messages.reverse()
        while messages:
            size += len(messages[-1])
            batch.append(self._record(messages.pop()))
            if size > EXACT_BYTES or not messages:
                yield batch
                batch, size = [], 0

    def _record(self, message: bytes | memoryview) -> Record:
        """Return the record of a row, the exact way."""
        row = self._formatter.parse_row(message)
        if row is None:
            raise LookupError("the end of a stream is not a row")  # met by programmers only
        return record_of(self._table, row, message)


# The text output of values that came in binary form, as the server writes it in UTC with ISO dates.


DAY: Final = 86_400_000_000  # microseconds
# Days from 0000-03-01 to 2000-01-01, from which the server counts, and in 400 years of the calendar.
EPOCH_DAYS: Final = 730_425
ERA_DAYS: Final = 146_097
FIRST, LAST = b"-infinity", b"infinity"
# The server switches to an exponent here.
LARGEST_PLAIN: Final = 15
SMALLEST_PLAIN: Final = -4
QUOTED: Final = re.compile(rb'[\s{}",\\]|^$|^null$', re.IGNORECASE)


def instant_output(value: bytes) -> bytes:
    """Return the text of an instant: microseconds since the year 2000; the ends of 64 bits are infinite."""
    moment = int.from_bytes(value, signed=True)
    if abs(moment) >= 2**63 - 1:
        return FIRST if moment < 0 else LAST
    days, rest = divmod(moment, DAY)
    year, month, day = date_of(days)
    seconds, fraction = divmod(rest, 1_000_000)
    digits = f".{fraction:06}".rstrip("0") if fraction else ""
    clock = f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}{digits}+00"
    # There is no year 0: the one before the first is the year 1 BC.
    shown, era = (year, "") if year > 0 else (1 - year, " BC")
    return f"{shown:04}-{month:02}-{day:02} {clock}{era}".encode()


def date_of(days: int) -> tuple[int, int, int]:
    """Return year, month and day of a number of days since 2000-01-01, in the Gregorian calendar for ever."""
    # The year begins in March, so that the day of a leap year is its last.
    era, of_era = divmod(days + EPOCH_DAYS, ERA_DAYS)
    year = (of_era - of_era // 1460 + of_era // 36_524 - of_era // 146_096) // 365
    of_year = of_era - (365 * year + year // 4 - year // 100)
    month = (5 * of_year + 2) // 153
    day = of_year - (153 * month + 2) // 5 + 1
    real = month + 3 if month < 10 else month - 9  # noqa: PLR2004  # ten months from March to December
    return year + era * 400 + (real <= 2), real, day  # noqa: PLR2004  # January and February


def float_output(value: bytes) -> bytes:
    """Return the shortest text that gives a double back."""
    (number,) = struct.unpack(">d", value)
    if number - number != 0:
        return b"NaN" if number != number else b"Infinity" if number > 0 else b"-Infinity"  # noqa: PLR0124  # not a number
    sign, digits, exponent = Decimal(repr(number)).normalize().as_tuple()
    scale = len(digits) + int(exponent) - 1
    text = "".join(map(str, digits))
    minus = "-" if sign else ""
    if SMALLEST_PLAIN <= scale < LARGEST_PLAIN:
        return f"{minus}{format(Decimal((0, digits, int(exponent))), 'f')}".encode()
    point = f".{text[1:]}" if len(text) > 1 else ""
    return f"{minus}{text[0]}{point}e{'-' if scale < 0 else '+'}{abs(scale):02}".encode()


def numeric_output(value: bytes) -> bytes:
    """Return the text of a decimal: groups of four digits, the place of the first, the sign, the scale."""
    count, weight, sign, scale = struct.unpack_from(">hhHH", value)
    if sign & SPECIAL_SIGN == SPECIAL_SIGN:
        return NUMERIC_NAMES.get(sign, b"NaN")
    groups = struct.unpack_from(f">{count}h", value, 8)
    # The groups from the one of the ones down to the end of the scale, with those that are not stored.
    whole = b"".join(b"%04d" % (groups[n] if n < count else 0) for n in range(weight + 1)).lstrip(b"0")
    last = -(-scale // 4)
    places = range(weight + 1, weight + 1 + last)
    rest = b"".join(b"%04d" % (groups[n] if 0 <= n < count else 0) for n in places)[:scale]
    minus = b"-" if sign else b""
    return minus + (whole or b"0") + (b"." + rest if scale else b"")


# Of what is no number, and of the negative ones.
SPECIAL_SIGN: Final = 0xC000
NUMERIC_NAMES: Final = {0xC000: b"NaN", 0xD000: b"Infinity", 0xF000: b"-Infinity"}


def uuid_output(value: bytes) -> bytes:
    """Return the text of a UUID."""
    return str(UUID(bytes=value)).encode()


def integer_output(value: bytes) -> bytes:
    """Return the text of an integer of any width."""
    return b"%d" % int.from_bytes(value, signed=True)


def array_output(value: bytes, output: Callable[[bytes], bytes]) -> bytes:
    """Return the text of an array, with its bounds where they do not begin with one.

    Args:
        value: the array.
        output: returns the text of a member, quoted where it must be.
    """
    dimensions = int.from_bytes(value[:4], signed=True)
    if not dimensions:
        return b"{}"
    bounds = [struct.unpack_from(">ii", value, 12 + 8 * number) for number in range(dimensions)]
    members = members_of(value[12 + 8 * dimensions :], output)
    text = nested(members, [length for length, _ in bounds])
    if all(first == 1 for _, first in bounds):
        return text
    head = b"".join(b"[%d:%d]" % (first, first + length - 1) for length, first in bounds)
    return head + b"=" + text


def members_of(value: bytes, output: Callable[[bytes], bytes]) -> Iterator[bytes]:
    """Yield the members of an array as their text."""
    position = 0
    while position < len(value):
        length = int.from_bytes(value[position : position + 4], signed=True)
        position += 4
        yield b"NULL" if length < 0 else output(value[position : position + length])
        position += max(length, 0)


def quoted(member: bytes) -> bytes:
    """Return a member as the server writes it."""
    if QUOTED.search(member) is None:
        return member
    return b'"' + member.replace(b"\\", b"\\\\").replace(b'"', b'\\"') + b'"'


def nested(members: Iterator[bytes], lengths: list[int]) -> bytes:
    """Return some members in as many braces as there are dimensions."""
    length, *rest = lengths
    parts = (nested(members, rest) if rest else next(members) for _ in range(length))
    return b"{" + b",".join(parts) + b"}"


# A stored row for a quarantine: its text output, as the server writes it, made of what a binary COPY sent.
#
# The text is a line of ``COPY ... TO STDOUT``: columns separated by tabs, what separates escaped. It can be
# given back with ``COPY table (columns) FROM STDIN``.


HEADER: Final = b"PGCOPY\n\xff\r\n\x00"
# The signature, four bytes of flags, and the length of an extension that does not exist.
HEADER_BYTES: Final = len(HEADER) + 8
NULL: Final = b"\\N"
ESCAPED: Final = (
    (b"\\", b"\\\\"),
    (b"\b", b"\\b"),
    (b"\t", b"\\t"),
    (b"\n", b"\\n"),
    (b"\v", b"\\v"),
    (b"\f", b"\\f"),
    (b"\r", b"\\r"),
)
# The readable form skips larger values, so that the names and the small values fit.
LARGEST_READABLE: Final = 4096
# Of a longer one: enough to recognise it.
READABLE_PREFIX: Final = 64
DEEPEST_READABLE: Final = 100


class RowOriginal(Original):
    """A row as a binary COPY sent it."""

    __slots__ = ("_columns", "_message")

    def __init__(self, columns: Sequence[Column], message: Buffer) -> None:
        """Take the columns that were selected and what the server sent of one row."""
        self._columns = columns
        self._message = message

    @override
    def pieces(self) -> Iterator[str]:
        """Yield ``{"row": base64 of the line, "columns": [...], "document": the text of each column}``."""
        texts = [
            None if value is None else OUTPUTS[column.sql_type](value)
            for column, value in zip(self._columns, values_of(self._message), strict=True)
        ]
        yield '{"row":"'
        yield from base64_pieces(line_of(texts))
        yield f'","columns":{json.dumps([column.name for column in self._columns])},"document":{{'
        yield ",".join(members(self._columns, texts))
        yield "}}"


def values_of(message: Buffer) -> Iterator[bytes | None]:
    """Yield the values of a row: the number of columns, then each length with its bytes, -1 for null."""
    data = bytes(message)
    position = HEADER_BYTES + 2 if data.startswith(HEADER) else 2
    while position < len(data):
        length = int.from_bytes(data[position : position + 4], signed=True)
        position += 4
        yield None if length < 0 else data[position : position + length]
        position += max(length, 0)


def line_of(texts: Sequence[bytes | None]) -> bytes:
    """Return the line of a COPY in text form."""
    return b"\t".join(NULL if text is None else escaped(text) for text in texts) + b"\n"


def escaped(text: bytes) -> bytes:
    """Return a value as COPY writes it."""
    for plain, written in ESCAPED:
        text = text.replace(plain, written)
    return text


def members(columns: Sequence[Column], texts: Sequence[bytes | None]) -> Iterator[str]:
    """Yield the columns as members of a JSON object while there is room for them."""
    room = LONGEST_READABLE
    for column, text in zip(columns, texts, strict=True):
        member = f"{json.dumps(column.name)}:{shown(column, text)}"
        if len(member) > room:
            yield '"$omitted":true'
            return
        # The comma counts too.
        room -= len(member) + 1
        yield member


def shown(column: Column, text: bytes | None) -> str:
    """Return the text of a column as JSON; long values are skipped."""
    if text is None:
        return "null"
    if len(text) > LARGEST_READABLE:
        begin = json.dumps(text[:READABLE_PREFIX].decode(errors="backslashreplace"), ensure_ascii=False)
        return f'{{"$omitted":{len(text)},"begin":{begin}}}'
    # As it is, unless a reader could meet its limit of depth in it.
    if column.sql_type == "jsonb" and text.count(b"[") + text.count(b"{") <= DEEPEST_READABLE:
        return text.decode()
    return json.dumps(text.decode(errors="backslashreplace"), ensure_ascii=False)


OUTPUTS: Final[Mapping[str, Callable[[bytes], bytes]]] = {
    "bool": lambda value: b"t" if value == b"\x01" else b"f",
    "bytea": lambda value: b"\\x" + value.hex().encode(),
    "float8": float_output,
    "int2": integer_output,
    "int4": integer_output,
    "int8": integer_output,
    "int4[]": lambda value: array_output(value, integer_output),
    "int8[]": lambda value: array_output(value, integer_output),
    # The text follows the version of the binary form.
    "jsonb": lambda value: value[1:],
    "numeric": numeric_output,
    "text": bytes,
    "text[]": lambda value: array_output(value, quoted),
    "timestamptz": instant_output,
    "uuid": uuid_output,
}
