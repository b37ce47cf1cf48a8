"""Native code has ObjectIds, UUIDs, decimals and bytes as the exact way has them, or declines the row."""

from __future__ import annotations

import struct
from decimal import Decimal
from random import Random
from typing import TYPE_CHECKING, Any, Final

import bson
import pytest
from bson import Binary, Decimal128, Int64, ObjectId

from tests.unit.fast.exact_way import Oracle
from tests.unit.fast.hand_made import native_library
from tests.unit.fast.lines import line_of, row_of, scan_in_memory, values_of
from tests.unit.fast.scanned import is_plain
from tests.unit.fast.test_copy_rows import check, expected, sent, written
from twinstore.catalog.entity import Entity, Layout
from twinstore.catalog.keys import binary_uuid
from twinstore.catalog.tenancy import Tenancy
from twinstore.fast import digests
from twinstore.fast.program import Program, program_of
from twinstore.fast.records import copy_field
from twinstore.models.canonical import CanonicalModel
from twinstore.models.fields import BinaryUuid, Bytes, DecimalNumber, ObjectIdText
from twinstore.testing.typed_entities import STAMPS, WARES
from twinstore_mongo.bulk.digests import digest_form as document_data
from twinstore_mongo.bulk.records import native_documents
from twinstore_mongo.bulk.scan import CollectionScan
from twinstore_mongo.mapping.layout import joined_id
from twinstore_postgres.bulk.digests import digest_form as table_data
from twinstore_postgres.bulk.digests import unsupported_reason
from twinstore_postgres.bulk.export import values_of as fields_of
from twinstore_postgres.bulk.scan import described
from twinstore_postgres.mapping.table import table_of

if TYPE_CHECKING:
    from collections.abc import Callable


Document = dict[str, Any]
MOST: Final = 10**34 - 1
BIAS: Final = 6176


def decimal(number: int, exponent: int, sign: int = 0) -> Decimal128:
    """Return a decimal by its parts, also one that no client writes."""
    high = sign << 63 | (exponent + BIAS) << 49 | number >> 64
    return Decimal128.from_bid(struct.pack("<QQ", number & 2**64 - 1, high))


def typed(rng: Random) -> dict[str, object]:
    """Return a value of each type, as nearly all documents hold it."""
    number = rng.choice((0, 1, rng.randrange(10 ** rng.randrange(1, 35)), 10 ** rng.randrange(34), MOST))
    sign = int(bool(number) and rng.random() < 0.3)
    return {
        "id": ObjectId(rng.choice((b"\x00" * 12, b"\xff" * 12, rng.randbytes(12)))),
        "uuid": Binary(rng.randbytes(16), 4),
        "decimal": decimal(number, -rng.choice((0, 1, 2, rng.randrange(35))), sign),
        "bytes": rng.randbytes(rng.choice((0, 1, 2, 3, 4, 5, rng.randrange(200)))),
    }


# By type: what no fast path takes, whatever the exact way makes of it.
ODD: Final[dict[str, dict[str, object]]] = {
    "id": {
        "a text": "0" * 24,
        "bytes": bytes(12),
        "a UUID": Binary(bytes(16), 4),
        "an integer": 7,
    },
    "uuid": {
        "a text": "00000000-0000-4000-8000-000000000000",
        "the old subtype": Binary(bytes(16), 3),
        "bytes": bytes(16),
        "another subtype": Binary(bytes(16), 128),
        "another length": Binary(bytes(15), 4),
        "an ObjectId": ObjectId(bytes(12)),
    },
    "decimal": {
        "no number": Decimal128("NaN"),
        "a signalling one": Decimal128("sNaN"),
        "infinite": Decimal128("-Infinity"),
        "minus zero": Decimal128("-0.00"),
        "with an exponent": Decimal128("1E+3"),
        "zero with an exponent": Decimal128("0E+3"),
        "of many places": Decimal128("1E-35"),
        "of more digits than there may be": decimal(MOST + 1, 0),
        "of the other encoding": Decimal128.from_bid(struct.pack("<QQ", 1, 0x6C10 << 48)),
        "a text": "1.50",
        "an integer": 1,
        "a long": Int64(2**40),
        "a double": 1.5,
    },
    "bytes": {
        "a text": "AAAA",
        "another subtype": Binary(b"abc", 5),
        "a UUID": Binary(bytes(16), 4),
        "an old one": Binary(struct.pack("<i", 3) + b"abc", 2),
        "an ObjectId": ObjectId(bytes(12)),
    },
}


def a_ware(rng: Random, one: Callable[[str], object]) -> Document:
    """Return a document that has values of these types at every place."""

    def offer() -> Document:
        found = {"price": one("decimal"), "buyer": one("id"), "contract": one("uuid"), "seal": one("bytes")}
        return {name: value for name, value in found.items() if name == "price" or rng.random() < 0.5}

    def some(kind: str) -> list[object]:
        return [one(kind) for _ in range(rng.randrange(4))]

    found: Document = {"_id": one("id"), "tenantId": "acme", "batch": "b", "name": "n"}
    found |= {"price": one("decimal"), "maker": one("id"), "design": one("uuid"), "weight": one("decimal")}
    found |= {"image": one("bytes"), "seal": one("bytes"), "makers": some("id"), "designs": some("uuid")}
    found |= {"weights": some("decimal"), "seals": [one("bytes")], "offer": offer(), "offers": [offer()]}
    found["_version"] = Int64(1)
    may_lack = {"maker", "design", "weight", "seal", "seals", "offer", "offers"}
    return {name: value for name, value in found.items() if name not in may_lack or rng.random() < 0.7}


def some_ware(seed: int) -> Document:
    """Return such a document, the same one for the same seed."""
    rng = Random(seed)  # not for secrets
    return a_ware(rng, lambda kind: typed(rng)[kind])


def a_stamp(rng: Random, one: Callable[[str], object]) -> Document:
    """Return a document of which the key has two parts."""
    del rng
    ware, stamp = one("id"), one("uuid")
    scan = CollectionScan.of(STAMPS)
    key = tuple(scan.shown_part(name, part) for name, part in (("wareId", ware), ("stamp", stamp)))
    identity = joined_id(tuple(map(str, key)))
    found = {"_id": identity, "wareId": ware, "stamp": stamp, "batch": "b"}
    return {**found, "value": one("decimal"), "image": one("bytes")}


MADE: Final = ((WARES, a_ware), (STAMPS, a_stamp))
named = pytest.mark.parametrize(("entity", "made"), MADE, ids=lambda item: getattr(item, "name", ""))


def scanned(entity: Entity, raw: bytes) -> bytes | None:
    """Return the content of a document by native code, ``None`` where it is declined; checked by the scan."""
    native = native_library()
    content = digests.render_document(native, digests.document_form(native, document_data(entity)), raw)
    if content is not None:
        (row,) = CollectionScan.of(entity).rows(raw)
        assert (content, is_plain(row)) == (row.content, True)
    return content


def shown_line(entity: Entity, raw: bytes) -> None:
    """Check that the row of a document is shown as the document is."""
    native, scan = native_library(), scan_in_memory(entity)
    (row,) = CollectionScan.of(entity).rows(raw)
    values = values_of(scan, row)
    content = digests.render_line(native, digests.table_form(native, table_data(scan)), line_of(values))
    shown = row_of(scan, values)
    assert shown is not None
    assert content == shown.content == row.content


@named
def test_random_documents_are_those_of_the_exact_way_in_both_directions(
    entity: Entity,
    made: Callable[..., Document],
    long_form: bool,  # noqa: FBT001  # a fixture
) -> None:
    rng, program, documents = Random(f"typed {entity.name}"), program_of(entity), native_documents(entity)
    assert isinstance(program, Program)
    assert documents is not None
    oracle = Oracle(program)
    for _ in range(5000 if long_form else 150):
        raw = bson.encode(made(rng, lambda kind: typed(rng)[kind]))
        read = documents.read(raw)
        assert read is not None
        assert not read.declined
        assert oracle.wrong(raw, read.rows.tobytes()) == ""
        assert written(entity, raw) == expected(entity, raw)
        assert check(entity, sent(entity, raw))
        assert scanned(entity, raw) is not None
        shown_line(entity, raw)


@pytest.mark.parametrize(("kind", "name"), [(kind, name) for kind, odd in ODD.items() for name in odd])
def test_what_is_rare_is_declined_wherever_it_is(kind: str, name: str) -> None:
    fields = {
        "id": ("_id", "maker", "makers", "offer.buyer"),
        "uuid": ("design", "designs", "offers.contract"),
        "decimal": ("price", "weight", "weights", "offer.price"),
        "bytes": ("image", "seal", "seals", "offers.seal"),
    }
    documents = native_documents(WARES)
    assert documents is not None
    for field in fields[kind]:
        document = some_ware(1)
        head, _, inner = field.partition(".")
        value = {"price": Decimal128("1"), inner: ODD[kind][name]} if inner else ODD[kind][name]
        document[head] = [value] if head.endswith("s") else value
        raw = bson.encode(document)
        read = documents.read(raw)
        assert read is not None
        assert (len(read.declined), documents.accepts(raw)) == (1, False)
        assert scanned(WARES, raw) is None


@pytest.mark.parametrize(
    ("column", "field"),
    {
        "no number": ("price", struct.pack(">hhHH", 0, 0, 0xC000, 0)),
        "infinite": ("price", struct.pack(">hhHH", 0, 0, 0xD000, 0)),
        "minus zero": ("price", struct.pack(">hhHH", 0, 0, 0x4000, 2)),
        "more digits than 34": ("price", struct.pack(">hhHHh", 1, 8, 0, 0, 1000)),
        "many digits in one group": ("price", struct.pack(">hhHHh", 1, 0, 0, 0, 10_000)),
        "more places than 34": ("price", struct.pack(">hhHHh", 1, -9, 0, 36, 1)),
        "digits behind its scale": ("price", struct.pack(">hhHHh", 1, -1, 0, 1, 1)),
        "groups behind its scale": ("price", struct.pack(">hhHHhh", 2, 0, 0, 0, 1, 1)),
        "far behind the point": ("price", struct.pack(">hhHHh", 1, -30, 0, 2, 1)),
        "another length": ("price", struct.pack(">hhHHh", 2, 0, 0, 0, 1)),
        "no head": ("price", b"\x00\x01"),
        "upper-case digits": ("maker", b"A" * 24),
        "too few digits": ("maker", b"a" * 22),
        "no digits": ("maker", b"g" * 24),
        "another text": ("id", b"" * 24),
    }.values(),
)
def test_values_of_a_table_that_no_copy_writes_are_declined(column: str, field: bytes) -> None:
    message = sent(WARES, bson.encode(some_ware(2)))
    assert check(WARES, message)
    places = [each.name for each in table_of(WARES).columns]
    fields = list(fields_of(message))
    fields[places.index(column)] = field
    assert not check(WARES, len(fields).to_bytes(2, "big") + b"".join(map(copy_field, fields)))


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        *(
            ("decimal", text)
            for text in ("01", "+1", "1.", ".5", "1E3", "-0", "-0.0", "", "1.5.0", "NaN", "9" * 35)
        ),
        *(("uuid", text) for text in ("", "A" * 36, "0" * 32, "00000000-0000-4000-8000-00000000000g")),
        *(("id", text) for text in ("", "A" * 24, "0" * 23, "0" * 25)),
        *(
            ("bytes", text)
            for text in ("A", "AA", "AA=A", "AB==", "AAB=", "====", "AA==AAAA", "A-A=", "=", "A===")
        ),
    ],
)
def test_texts_of_json_that_no_copy_writes_are_declined(kind: str, text: str) -> None:
    places = [each.name for each in table_of(WARES).columns]
    name = {"decimal": "weights", "uuid": "designs", "id": "makers", "bytes": "seals"}[kind]
    fields = list(fields_of(sent(WARES, bson.encode(some_ware(3)))))
    fields[places.index(name)] = b'\x01["%b"]' % text.encode()
    assert not check(WARES, len(fields).to_bytes(2, "big") + b"".join(map(copy_field, fields)))


@pytest.mark.parametrize(
    ("column", "text"),
    [
        *(("price", text) for text in ("NaN", "-Infinity", "-0.00", "", "-", "1e5", "1.5.0", "1,5")),
        *(("image", text) for text in ("", "\\x0", "\\xAB", "abc", "\\xgg", "x00")),
    ],
)
def test_lines_that_no_copy_writes_are_not_shown(column: str, text: str) -> None:
    native, scan = native_library(), scan_in_memory(WARES)
    (row,) = CollectionScan.of(WARES).rows(bson.encode(some_ware(4)))
    form = digests.table_form(native, table_data(scan))
    values = values_of(scan, row)
    assert digests.render_line(native, form, line_of(values)) is not None
    values[[part.column for part in scan.parts].index(column)] = text
    assert digests.render_line(native, form, line_of(values)) is None


class Box(CanonicalModel):
    """A row that a table holds as one document, some of its fields next to it too."""

    id: BinaryUuid
    owner: ObjectIdText
    price: DecimalNumber
    seal: Bytes | None = None


BOXES: Final = Entity(
    name="boxes",
    singular="box",
    module="kit",
    model=Box,
    key_parts=(binary_uuid("id"),),
    tenancy=Tenancy.none(),
    group="kit",
    layout=Layout.PAYLOAD,
    beside=("id", "owner", "price"),
)


def test_a_table_that_holds_the_model_in_one_column_has_their_texts_there() -> None:
    rng = Random(6)  # not for secrets
    for _ in range(20):
        one = typed(rng)
        raw = bson.encode(
            {"_id": one["uuid"], "owner": one["id"], "price": one["decimal"], "seal": one["bytes"]}
        )
        assert written(BOXES, raw) == expected(BOXES, raw)
        assert check(BOXES, sent(BOXES, raw))
        fields = list(fields_of(sent(BOXES, raw)))
        # A column that names another key than the payload.
        fields[0] = bytes(16)
        assert not check(BOXES, len(fields).to_bytes(2, "big") + b"".join(map(copy_field, fields)))


def test_columns_of_another_type_are_compared_row_by_row() -> None:
    types = {part.column: part.type_name for part in scan_in_memory(WARES).parts}
    for changes in ({"price": "text"}, {"image": "text"}, {"price": "float8"}):
        assert (
            unsupported_reason(described(WARES, types | changes))
            == "decimals or bytes have a column of another type"
        )
    assert unsupported_reason(described(WARES, types)) is None


def test_every_decimal_of_few_digits_and_places_is_the_same_text() -> None:
    documents = native_documents(WARES)
    assert documents is not None
    document = some_ware(5)
    for number in (*range(-12, 13), 9999, 10_000, 10_001, 99_999_999, 100_000_000):
        for places in range(10):
            value = Decimal(f"{number}E-{places}")
            raw = bson.encode({**document, "price": Decimal128(value)})
            assert written(WARES, raw) == expected(WARES, raw)
            assert check(WARES, sent(WARES, raw))
            assert scanned(WARES, raw) is not None
