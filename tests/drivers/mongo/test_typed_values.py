"""ObjectIds, UUIDs, decimals and bytes in documents: what is written, and how other forms of them are read.

The copier and the verifier share no code for that, and must agree.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Any, Final
from uuid import UUID

import bson
import pytest
from bson import Binary, Decimal128, Int64, ObjectId
from pydantic import Field

from twinstore.catalog.entity import Entity
from twinstore.catalog.keys import KeyRange, binary_uuid, int64, object_id
from twinstore.catalog.row import Row
from twinstore.catalog.tenancy import Tenancy, Tenant
from twinstore.errors import DocumentDecodeError
from twinstore.models import json_text
from twinstore.models.canonical import CanonicalModel
from twinstore.models.fields import BinaryUuid, DecimalNumber, FreeList, ObjectIdText
from twinstore.models.fields import Int64 as Whole
from twinstore.testing.datasets import CRATE, DECIMALS, STAMP, WARE, Dataset, RowFactory
from twinstore.testing.typed_entities import WARES
from twinstore_backfill.verify.expected import Expected, RowExpectation
from twinstore_mongo.bulk.export import Exporter, conditions_of
from twinstore_mongo.bulk.scan import CollectionScan
from twinstore_mongo.mapping.codec import codec_of
from twinstore_mongo.mapping.key_order import key_in, keys_from
from twinstore_mongo.schema.validators import validator_of

DATASET: Final = Dataset(Tenant("t"), "batch")
OTHER: Final = ObjectId("65a1b2c3d4e5f60718293a4b")
UUID_BYTES: Final = UUID("6f0c1a52-7b0e-4f5e-9d0a-2c8f6f6e5b02").bytes
each_factory = pytest.mark.parametrize("factory", [WARE, STAMP, CRATE], ids=lambda item: item.entity.name)


def a_document(**changes: object) -> dict[str, Any]:
    """Return the document of a ware with other values."""
    return codec_of(WARES).encode(WARE.row(DATASET, 5)) | changes


@each_factory
def test_what_is_written_is_read_and_shown_as_the_wire_form(factory: RowFactory[CanonicalModel]) -> None:
    entity = factory.entity
    for row in factory.rows(DATASET, 2 * len(DECIMALS)):
        raw = bson.encode(codec_of(entity).encode(row))
        record = Exporter(codec_of(entity)).careful_record(raw)
        assert (record.error, record.key) == (None, entity.key_of(row.model, row.storage))
        assert Row(record.model or row.model) == row
        (shown,) = CollectionScan.of(entity).rows(raw)
        assert shown.content == json_text.dumps_sorted({"doc": row.model.wire(), "storage": {}})
        assert (shown.key, shown.owner) == (record.key, record.owner)
        assert RowExpectation(entity).is_normal(shown.content)


def test_each_type_is_that_of_the_database() -> None:
    document = bson.decode(bson.encode(a_document()))
    types = {name: type(document[name]) for name in ("_id", "maker", "design", "price", "image")}
    expected = [ObjectId, ObjectId, Binary, Decimal128, bytes]
    assert list(types.values()) == expected
    assert (document["design"].subtype, str(document["price"])) == (4, "9007199254740992.5")
    properties = validator_of(WARES)["$jsonSchema"]["properties"]
    assert [properties[name]["bsonType"] for name in types] == [
        "objectId",
        "objectId",
        "binData",
        ["decimal", "int", "long"],
        "binData",
    ]


@pytest.mark.parametrize(
    ("name", "value", "kind"),
    [
        ("maker", str(OTHER), "text_value"),
        ("design", str(UUID(bytes=UUID_BYTES)), "text_value"),
        ("price", "1.50", "text_value"),
        ("price", 5, "number_type"),
        ("price", Int64(5), "number_type"),
        ("price", Decimal128("1E+3"), "decimal_exponent"),
        ("price", Decimal128("0E+9"), "decimal_exponent"),
        ("makers", [OTHER, str(OTHER)], "text_value"),
        ("offer", {"price": Decimal128("1.0"), "buyer": str(OTHER)}, "text_value"),
        ("maker", None, "null_for_absent"),
    ],
)
def test_another_form_that_models_read_is_a_named_equivalence(name: str, value: object, kind: str) -> None:
    raw = bson.encode(a_document(**{name: value}))
    record = Exporter(codec_of(WARES)).careful_record(raw)
    (shown,) = CollectionScan.of(WARES).rows(raw)
    expected = RowExpectation(WARES).of(shown)
    assert isinstance(expected, Expected), expected
    assert [change.kind for change in expected.changes] == [kind]
    assert record.error is None
    assert record.model is not None
    assert expected.content == json_text.dumps_sorted({"doc": record.model.wire(), "storage": {}})


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("maker", "65A1B2C3D4E5F60718293A4B", "maker: Text is no ObjectId"),
        ("maker", 5, "maker: Input should be a valid string"),
        ("maker", Binary(OTHER.binary, 0), "maker: "),
        ("design", Binary(UUID_BYTES, 3), "design: binary data of subtype 3, a UUID whose bytes"),
        ("design", Binary(UUID_BYTES, 0), "design: binary data of subtype 0"),
        ("design", Binary(UUID_BYTES[:15], 4), "design: binary data of subtype 4"),
        ("design", OTHER, "design: "),
        ("price", 1.5, "price: Input should be a Decimal, an integer or a text of digits, and no float"),
        ("price", 2.0, "price: Input should be a Decimal"),
        ("price", True, "price: Input should be a Decimal"),
        ("price", Decimal128("NaN"), "price: NaN is no decimal"),
        ("price", Decimal128("-Infinity"), "price: Infinity is no decimal"),
        ("price", Decimal128("-0.0"), "price: Minus zero"),
        ("price", Decimal128("1E+34"), "price: Decimal has more than 34 significant digits"),
        ("price", "NaN", "price: NaN is no decimal"),
        ("image", "aGk=", "image: a text, and not binary data"),
        ("image", Binary(b"hi", 128), "image: binary data of subtype 128"),
        ("image", OTHER, "image: Input should be bytes"),
        ("offers", [{"price": Decimal128("1"), "seal": Binary(b"", 5)}], "offers.0.seal: binary data of su"),
        ("batch", OTHER, "batch: Input should be a valid string"),
        ("_id", str(OTHER), "its _id is not an ObjectId"),
        ("_id", 7, "its _id is not an ObjectId"),
    ],
)
def test_anything_else_goes_to_quarantine_with_its_path_and_reason(
    name: str, value: object, reason: str
) -> None:
    raw = bson.encode(a_document(**{name: value}))
    record = Exporter(codec_of(WARES)).careful_record(raw)
    assert reason in (record.error or "")
    (shown,) = CollectionScan.of(WARES).rows(raw)
    # A row without a key goes there whatever it holds.
    assert (record.key, shown.key) == (None, None) if name == "_id" else record.key == shown.key
    if name != "_id":
        assert not isinstance(RowExpectation(WARES).of(shown), Expected)
    with pytest.raises(DocumentDecodeError):
        codec_of(WARES).decode(bson.decode(raw))


def test_a_document_stays_as_it_is_when_it_is_read() -> None:
    document = a_document()
    before = bson.encode(document)
    codec_of(WARES).decode(document)
    assert bson.encode(document) == before


def test_a_decimal_keeps_its_scale() -> None:
    one, other = (a_document(price=Decimal128(text)) for text in ("1.0", "1.00"))
    rows = [codec_of(WARES).decode(document) for document in (one, other)]
    assert rows[0].model.price == rows[1].model.price == Decimal(1)
    assert rows[0] != rows[1]
    contents = {CollectionScan.of(WARES).rows(bson.encode(item))[0].content for item in (one, other)}
    assert len(contents) == 2


class Label(CanonicalModel):
    """A row whose id is a document of an ObjectId, a number and a UUID."""

    ware: ObjectIdText
    number: Whole
    design: BinaryUuid
    makers: tuple[ObjectIdText | None, ...] = ()
    prices: tuple[DecimalNumber | None, ...] = ()
    notes: FreeList = Field(default_factory=list[Any])


LABELS: Final = Entity(
    name="labels",
    singular="label",
    module="kit",
    model=Label,
    key_parts=(object_id("ware"), int64("number"), binary_uuid("design")),
    tenancy=Tenancy.none(),
    group="kit",
    key_as_id=True,
)
LABEL: Final = Label(
    ware=str(OTHER),
    number=7,
    design=str(UUID(bytes=UUID_BYTES)),
    makers=(str(OTHER), None),
    prices=(None, Decimal("1.50")),
    notes=[{"$oid": str(OTHER)}, None, {"$numberDecimal": "1.50"}, "text"],
)
IDENTITY: Final = {"ware": OTHER, "number": Int64(7), "design": Binary(UUID_BYTES, 4)}
LABEL_KEY: Final = (LABEL.ware, 7, LABEL.design)


def test_an_id_of_several_parts_holds_each_in_the_type_of_the_database() -> None:
    codec, scan = codec_of(LABELS), CollectionScan.of(LABELS)
    document = codec.encode(Row(LABEL))
    assert document == {
        "_id": IDENTITY,
        "makers": [OTHER, None],
        "prices": [None, Decimal128("1.50")],
        "notes": [OTHER, None, Decimal128("1.50"), "text"],
    }
    raw = bson.encode(document)
    record = Exporter(codec).careful_record(raw)
    assert (record.error, record.key, record.model) == (None, LABEL_KEY, LABEL)
    assert codec.decode(bson.decode(raw)) == Row(LABEL)
    (shown,) = scan.rows(raw)
    assert (shown.error, shown.key) == (None, LABEL_KEY)
    assert shown.content == json_text.dumps_sorted({"doc": LABEL.wire(), "storage": {}})
    assert RowExpectation(LABELS).is_normal(shown.content)


def test_such_an_id_is_found_by_the_types_of_the_database() -> None:
    codec, scan, stored = codec_of(LABELS), CollectionScan.of(LABELS), {"_id": IDENTITY}
    assert (codec.place(LABEL_KEY), codec.key_of(stored)) == (stored, LABEL_KEY)
    raw = bson.encode(stored)
    assert codec.first_values(raw) == scan.first_key_of(raw) == key_in(raw, codec) == LABEL_KEY
    assert keys_from(codec, LABEL_KEY)["min"] == stored
    assert list(conditions_of(codec, [LABEL_KEY])) == [{"_id": {"$in": [IDENTITY]}}]
    assert scan.any_of([LABEL_KEY]) == {"_id": {"$in": [IDENTITY]}}
    bound = {"$expr": {"$and": [{"$gte": ["$_id", {"$literal": IDENTITY}]}]}}
    assert scan.matching(KeyRange(lower=LABEL_KEY)) == bound
    parts = validator_of(LABELS)["$jsonSchema"]["properties"]["_id"]["properties"]
    assert [part["bsonType"] for part in parts.values()] == [
        "objectId",
        ["int", "long", "double"],
        "binData",
    ]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("ware", str(OTHER)),
        ("ware", Binary(OTHER.binary, 0)),
        ("ware", None),
        ("design", LABEL.design),
        ("design", Binary(UUID_BYTES, 3)),
        ("design", UUID_BYTES),
        ("design", OTHER),
    ],
)
def test_an_id_with_a_part_of_another_type_is_no_key(name: str, value: object) -> None:
    raw = bson.encode(codec_of(LABELS).encode(Row(LABEL)) | {"_id": {**IDENTITY, name: value}})
    reason = f"its _id holds {name} in another type than that of the key"
    record = Exporter(codec_of(LABELS)).careful_record(raw)
    assert (record.key, record.error) == (None, reason)
    (shown,) = CollectionScan.of(LABELS).rows(raw)
    assert (shown.key, shown.error) == (None, reason)
    assert CollectionScan.of(LABELS).first_key_of(raw) is None
    with pytest.raises(DocumentDecodeError, match=reason):
        codec_of(LABELS).decode(bson.decode(raw))
