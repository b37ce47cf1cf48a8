"""What each kind of column makes of packed values, and what it declines."""

from __future__ import annotations

import ctypes
import struct
from datetime import UTC, datetime, timedelta
from random import Random
from typing import TYPE_CHECKING, Any, Final, cast
from uuid import UUID

import pytest
from psycopg import adapters, pq
from psycopg.adapt import PyFormat, Transformer

from tests.unit.fast.hand_made import ANY_TEXT, native_library, program_with
from twinstore.fast.library import Buffer
from twinstore.fast.nodes import Node, NodeField, NodeKind, NodeText
from twinstore.fast.records import NO_SLOT, NULL, ColumnKind, ColumnLayout, NativeColumns, copy_field
from twinstore_postgres.mapping.codec import Json

if TYPE_CHECKING:
    from collections.abc import Sequence

    from twinstore.fast.program import Program

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
ID: Final = "0c9a1f36-29a4-4d8f-9d4e-0d1f5b3a7c11"
ABSENT, TEXT, INTEGER, FLAG, INSTANT, JSON, ENUM, NUMBER = range(8)
LATEST: Final = 253_402_300_799_999
EARLIEST: Final = -62_135_596_800_000


class Rows:
    """Bytes where the library writes; what it reads, it reads from one of its buffers."""

    def __init__(self, rows: bytes) -> None:
        self._kept = ctypes.create_string_buffer(rows, max(len(rows), 1))
        self._size = len(rows)
        self.address = ctypes.addressof(self._kept)

    def __len__(self) -> int:
        return self._size


def packed(*values: tuple[int, Any]) -> bytes:
    """Return a packed row."""
    content = bytearray()
    for tag, value in values:
        content.append(tag)
        if tag in {TEXT, JSON}:
            content += struct.pack("<I", len(value)) + value
        elif tag != ABSENT:
            content += struct.pack({FLAG: "<B", ENUM: "<B", NUMBER: "<d"}.get(tag, "<q"), value)
    return struct.pack("<I", len(content) + 4) + bytes(content)


def program_of(*nodes: Node, fields: Sequence[NodeField] | None = None) -> Program:
    """Return a program whose fields have these nodes."""
    made = fields or [NodeField(name=f"f{at}", node=at + 1) for at in range(len(nodes))]
    return program_with([Node(kind=NodeKind.OBJECT, fields=tuple(made)), *nodes])


def columns_of(*layouts: ColumnLayout, program: Program | None = None) -> NativeColumns:
    return NativeColumns(native_library(), program or program_of(ANY_TEXT), layouts)


def written(columns: NativeColumns, row: bytes) -> bytes | None:
    """Return the rows of a COPY, ``None`` where a column holds no such value."""
    out = Buffer(native_library())
    return out.tobytes() if columns.write(cast("Buffer", Rows(row)), out) else None


def column(kind: ColumnKind, tag: int, value: object, **layout: Any) -> bytes | None:  # noqa: ANN401  # attributes
    """Return the field that a column of one kind has of one value."""
    row = written(columns_of(ColumnLayout(0, kind, **layout)), packed((tag, value)))
    if row is None:
        return None
    assert row[:2] == b"\x00\x01"
    return row[2:]


def sent(sql_type: str, value: object) -> bytes:
    """Return the field that the client sends."""
    transformer = Transformer()
    transformer.set_dumper_types((adapters.types.get_oid(sql_type),), pq.Format.BINARY)
    (field,) = transformer.dump_sequence((value,), (PyFormat.BINARY,))
    return copy_field(None if field is None else bytes(field))


@pytest.mark.parametrize(
    ("kind", "sql_type", "tag", "value", "plain"),
    [
        (ColumnKind.TEXT, "text", TEXT, "gr\u00fc\u00dfe \U0001f4d6".encode(), "gr\u00fc\u00dfe \U0001f4d6"),
        (ColumnKind.TEXT, "text", TEXT, b"", ""),
        (ColumnKind.INT2, "int2", INTEGER, -(2**15), -(2**15)),
        (ColumnKind.INT2, "int2", INTEGER, 2**15 - 1, 2**15 - 1),
        (ColumnKind.INT4, "int4", INTEGER, -(2**31), -(2**31)),
        (ColumnKind.INT4, "int4", INTEGER, 2**31 - 1, 2**31 - 1),
        (ColumnKind.INT8, "int8", INTEGER, -(2**63), -(2**63)),
        (ColumnKind.INT8, "int8", INTEGER, 2**63 - 1, 2**63 - 1),
        (ColumnKind.BOOL, "bool", FLAG, 1, True),
        (ColumnKind.BOOL, "bool", FLAG, 0, False),
        (ColumnKind.FLOAT8, "float8", NUMBER, -1.5e300, -1.5e300),
        (ColumnKind.UUID, "uuid", TEXT, ID.encode(), UUID(ID)),
        (ColumnKind.JSONB, "jsonb", JSON, b'{"a":1}', Json(b'{"a":1}')),
        (ColumnKind.TEXTS, "text[]", JSON, b"[]", []),
        (
            ColumnKind.TEXTS,
            "text[]",
            JSON,
            '["","a,b","\\"\\\\\\b\\f\\n\\r\\t\\u0001\\u001f","\u00fc"]'.encode(),
            ["", "a,b", '"\\\b\f\n\r\t\x01\x1f', "\u00fc"],
        ),
        (ColumnKind.INT4S, "int4[]", JSON, b"[0,-1,2147483647]", [0, -1, 2**31 - 1]),
        (ColumnKind.INT8S, "int8[]", JSON, b"[-9223372036854775808]", [-(2**63)]),
        (ColumnKind.INT8S, "int8[]", JSON, b"[9223372036854775807,7]", [2**63 - 1, 7]),
        *(
            (ColumnKind.TIMESTAMPTZ, "timestamptz", INSTANT, instant, EPOCH + timedelta(milliseconds=instant))
            for instant in (EARLIEST, -1, 0, 946_684_800_000, 1_761_487_501_001, LATEST)
        ),
    ],
)
def test_a_field_is_the_one_that_the_client_sends(
    kind: ColumnKind, sql_type: str, tag: int, value: object, plain: object
) -> None:
    assert column(kind, tag, value) == sent(sql_type, plain)


@pytest.mark.parametrize(
    ("kind", "tag", "value"),
    [
        (ColumnKind.TEXT, TEXT, b"a\x00b"),
        (ColumnKind.TEXT, INTEGER, 1),
        (ColumnKind.INT2, INTEGER, 2**15),
        (ColumnKind.INT4, INTEGER, -(2**31) - 1),
        (ColumnKind.INT8, TEXT, b"1"),
        (ColumnKind.BOOL, FLAG, 2),
        (ColumnKind.UUID, TEXT, ID.upper().encode()),
        (ColumnKind.UUID, TEXT, ID.replace("-", "").encode()),
        (ColumnKind.UUID, TEXT, ID[:-1].encode()),
        (ColumnKind.TIMESTAMPTZ, INSTANT, LATEST + 1),
        (ColumnKind.TIMESTAMPTZ, INSTANT, EARLIEST - 1),
        (ColumnKind.JSONB, TEXT, b"{}"),
        (ColumnKind.TEXTS, JSON, b'["\\u0000"]'),
        (ColumnKind.TEXTS, JSON, b'["\\ud800"]'),
        (ColumnKind.TEXTS, JSON, b'["a"'),
        (ColumnKind.TEXTS, JSON, b'["a",]'),
        (ColumnKind.TEXTS, JSON, b"[1]"),
        (ColumnKind.TEXTS, JSON, b'["a"]]'),
        (ColumnKind.TEXTS, JSON, b'{"a":1}'),
        (ColumnKind.INT4S, JSON, b"[2147483648]"),
        (ColumnKind.INT8S, JSON, b"[9223372036854775808]"),
        (ColumnKind.INT8S, JSON, b"[-]"),
        (ColumnKind.INT8S, JSON, b"[1.5]"),
        (ColumnKind.ENUM, ENUM, 2),
        (ColumnKind.TEXT, ABSENT, None),
    ],
)
def test_what_a_column_does_not_hold_is_declined(kind: ColumnKind, tag: int, value: object) -> None:
    members = (copy_field(b"\x00\x01"), copy_field(b"\x00\x02"))
    assert column(kind, tag, value, absent=b"", members=members) is None


def test_an_enumeration_and_an_absent_value_are_the_fields_of_the_layout() -> None:
    members = (copy_field(b"\x00\x07"), copy_field(b"word"))
    assert column(ColumnKind.ENUM, ENUM, 0, members=members) == members[0]
    assert column(ColumnKind.ENUM, ENUM, 1, members=members) == members[1]
    assert column(ColumnKind.JSONB, ABSENT, None) == NULL
    assert column(ColumnKind.JSONB, ABSENT, None, absent=copy_field(b"\x01[]")) == copy_field(b"\x01[]")


def test_columns_come_in_the_order_of_the_layout() -> None:
    program = program_of(ANY_TEXT, Node(kind=NodeKind.INT))
    layouts = [ColumnLayout(1, ColumnKind.INT4), ColumnLayout(0, ColumnKind.TEXT)]
    found = written(columns_of(*layouts, program=program), packed((TEXT, b"a"), (INTEGER, 5)) * 2)
    row = b"\x00\x02" + copy_field(b"\x00\x00\x00\x05") + copy_field(b"a")
    assert found == row * 2


def test_a_payload_is_the_json_of_the_model() -> None:
    kinds = (NodeKind.TEXT, NodeKind.INT, NodeKind.FLAG, NodeKind.INSTANT, NodeKind.JSON, NodeKind.NUMBER)
    texts = (NodeText("low"), NodeText("high"))
    nodes = [*(Node(kind=kind) for kind in kinds), Node(kind=NodeKind.ENUM, texts=texts), ANY_TEXT]
    fields = [NodeField(name=f"n{at}", node=at + 1) for at in range(len(nodes))]
    columns = columns_of(ColumnLayout(NO_SLOT, ColumnKind.PAYLOAD), program=program_of(*nodes, fields=fields))
    row = packed(
        (TEXT, '"\u00fc\n'.encode()),
        (INTEGER, -5),
        (FLAG, 1),
        (INSTANT, 1),
        (JSON, b"[1,2]"),
        (NUMBER, 0.5),
        (ENUM, 1),
        (ABSENT, None),
    )
    expected = (
        '{"n0":"\\"\u00fc\\n","n1":-5,"n2":true,"n3":"1970-01-01T00:00:00.001+00:00","n4":[1,2],"n5":0.5,'
        '"n6":"high"}'
    )
    assert written(columns, row) == b"\x00\x01" + copy_field(b"\x01" + expected.encode())
    # A model of which no field is there.
    empty = packed(*([(ABSENT, None)] * len(nodes)))
    assert written(columns, empty) == b"\x00\x01" + copy_field(b"\x01{}")


def test_a_layout_that_means_nothing_is_refused() -> None:
    for layout in (
        ColumnLayout(1, ColumnKind.TEXT),
        ColumnLayout(-2, ColumnKind.TEXT),
        ColumnLayout(0, ColumnKind.TEXT, absent=b"\x00\x00\x00\x02a"),
        ColumnLayout(0, ColumnKind.ENUM, members=(b"",)),
        ColumnLayout(0, cast("ColumnKind", 16)),
    ):
        with pytest.raises(ValueError, match="rebuild the library"):
            columns_of(layout)


def test_broken_rows_are_declined_and_never_read_past(long_form: bool) -> None:  # noqa: FBT001  # a fixture
    rng = Random(13)  # not for secrets
    values = [(TEXT, b"abc"), (INTEGER, 5), (JSON, b'["a","b\\n"]'), (ENUM, 0), (FLAG, 1), (INSTANT, 7)]
    nodes = [Node(kind=NodeKind.TEXT)] * len(values)
    kinds = (
        ColumnKind.TEXT,
        ColumnKind.INT4,
        ColumnKind.TEXTS,
        ColumnKind.ENUM,
        ColumnKind.BOOL,
        ColumnKind.TIMESTAMPTZ,
    )
    layouts = [ColumnLayout(at, kind, members=(copy_field(b"x"),)) for at, kind in enumerate(kinds)]
    layouts.append(ColumnLayout(NO_SLOT, ColumnKind.PAYLOAD))
    columns = columns_of(*layouts, program=program_of(*nodes))
    good = packed(*values) * 2
    declined = 0
    for _ in range(200_000 if long_form else 5000):
        row = bytearray(good)
        for _ in range(rng.choice((1, 1, 2, 3))):
            row[rng.randrange(len(row))] = rng.randrange(256)
        declined += (
            written(columns, bytes(row[: rng.choice((len(row), rng.randrange(len(row)))) or 1])) is None
        )
    assert declined
