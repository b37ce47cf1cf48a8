"""ObjectIds, UUIDs, decimals and bytes: what models take and write, and which descriptions are refused."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from twinstore.access.paging import SortKey, decode_token, encode_token
from twinstore.catalog.conditions import AtLeast, Equals, IsNull
from twinstore.catalog.entity import Entity, Marker, Retention
from twinstore.catalog.indexes import Index
from twinstore.catalog.keys import KeyType, binary_uuid, object_id, text, uuid
from twinstore.catalog.row import Row
from twinstore.catalog.tenancy import Tenancy, Tenant
from twinstore.documents.one_table import sort_text
from twinstore.errors import ValidationError as Refusal
from twinstore.models.canonical import CanonicalJsonSerializer, CanonicalModel
from twinstore.models.fields import BinaryUuid, Bytes, DecimalNumber, Id, ObjectIdText, Text
from twinstore.models.shapes import Kind, VariantModel, shapes_of
from twinstore.testing.datasets import CRATE, STAMP, WARE, Dataset, RowFactory
from twinstore.testing.drawing import rows
from twinstore.testing.scalars import decimals
from twinstore.testing.typed_entities import CRATES, STAMPS, WARES, Ware

DATASET: Final = Dataset(Tenant("t"), "batch")
DECIMAL: Final[TypeAdapter[Decimal]] = TypeAdapter(DecimalNumber)
BYTES: Final[TypeAdapter[bytes]] = TypeAdapter(Bytes)
OBJECT_ID: Final[TypeAdapter[str]] = TypeAdapter(ObjectIdText)
UUID: Final[TypeAdapter[str]] = TypeAdapter(BinaryUuid)
HEX: Final = "65a1b2c3d4e5f60718293a4b"
NAME: Final = "6f0c1a52-7b0e-4f5e-9d0a-2c8f6f6e5b02"


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (Decimal("1.50"), "1.50"),
        ("1.50", "1.50"),
        (7, "7"),
        (-(10**33), f"-1{'0' * 33}"),
        ("1E+3", "1000"),
        ("-12E+32", f"-12{'0' * 32}"),
        ("0E+99", "0"),
        ("0.00", "0.00"),
        ("+5", "5"),
        ("1E-7", "0.0000001"),
    ],
)
def test_a_decimal_is_written_without_exponent_and_keeps_its_scale(given: object, expected: str) -> None:
    assert DECIMAL.dump_json(DECIMAL.validate_python(given)).decode() == f'"{expected}"'


@pytest.mark.parametrize(
    ("given", "rule"),
    [
        (1.5, "no float"),
        (True, "no float"),
        (" 1", "no float"),
        ("1_000", "no float"),
        ("\u0661", "no float"),
        ("", "no float"),
        ("NaN", "NaN is no decimal"),
        (Decimal("sNaN"), "NaN is no decimal"),
        (Decimal("Infinity"), "Infinity is no decimal"),
        ("-inf", "Infinity is no decimal"),
        ("-0", "Minus zero"),
        (Decimal("-0.00"), "Minus zero"),
        (10**34, "more than 34 significant digits"),
        ("1E+34", "more than 34 significant digits"),
        (f"1.{'0' * 34}", "more than 34 significant digits"),
        ("1E-6177", "more than 6176 digits after the point"),
        ("1E+99999", "more than 34 significant digits"),
    ],
)
def test_what_no_store_shares_is_no_decimal(given: object, rule: str) -> None:
    with pytest.raises(ValidationError, match=rule):
        DECIMAL.validate_python(given)


@pytest.mark.parametrize("given", [b"", b"\x00\xff", bytearray(b"a")])
def test_bytes_are_written_in_base64(given: bytes) -> None:
    value = BYTES.validate_python(given)
    assert type(value) is bytes
    assert BYTES.validate_json(BYTES.dump_json(value)) == value


@pytest.mark.parametrize(
    "given", ["aGk", "aGl=", "aG k=", "a-_=", 1, None, type("Other", (bytes,), {})(b"a")]
)
def test_nothing_else_is_bytes(given: object) -> None:
    with pytest.raises(ValidationError, match="base64"):
        BYTES.validate_python(given)


@pytest.mark.parametrize(
    "given", [HEX.upper(), HEX[:-1], f"{HEX}0", f"{HEX[:9]} {HEX[9:]}", "", 5, b"a" * 12]
)
def test_an_object_id_has_one_form(given: object) -> None:
    assert OBJECT_ID.validate_python(f" {HEX} ") == HEX
    assert not KeyType.OBJECT_ID.admits(given)
    with pytest.raises(ValidationError):
        OBJECT_ID.validate_python(given)


@pytest.mark.parametrize("given", [NAME.upper(), NAME.replace("-", ""), f"{{{NAME}}}", "", 5])
def test_a_binary_uuid_has_one_form(given: object) -> None:
    assert UUID.validate_python(NAME) == NAME
    assert not KeyType.BINARY_UUID.admits(given)
    with pytest.raises(ValidationError):
        UUID.validate_python(given)


def test_the_kind_is_in_the_annotation_and_a_text_stays_one() -> None:
    kinds = {shape.wire: shape.value.kind for shape in shapes_of(Ware)}
    assert (kinds["id"], kinds["maker"]) == (Kind.OBJECT_ID, Kind.OBJECT_ID)
    assert (kinds["design"], kinds["price"], kinds["image"]) == (Kind.UUID, Kind.DECIMAL, Kind.BYTES)
    assert (kinds["batch"], kinds["makers"]) == (Kind.TEXT, Kind.LIST)
    assert WARES.typed["id",] is Kind.OBJECT_ID
    assert WARES.typed["offers", "seal"] is Kind.BYTES


@pytest.mark.parametrize("factory", [WARE, STAMP, CRATE], ids=lambda item: item.entity.name)
def test_json_gives_each_value_back(factory: RowFactory[CanonicalModel]) -> None:
    for row in factory.rows(DATASET, 30):
        again = CanonicalJsonSerializer.deserialize(factory.entity.model, row.content)
        assert (Row(again), Row(again).content) == (row, row.content)


@given(rows(WARES, "t", HEX))
def test_drawn_rows_are_of_every_type(ware: Ware) -> None:
    assert ware.id == HEX
    assert Row(CanonicalJsonSerializer.deserialize(Ware, CanonicalJsonSerializer.serialize(ware))) == Row(
        ware
    )


def test_models_and_rows_differ_in_a_scale() -> None:
    one, other = (Row(WARE.row(DATASET).model.evolve(price=Decimal(text))) for text in ("1.0", "1.00"))
    assert (one.model == other.model, one == other) == (False, False)


def test_a_token_holds_texts() -> None:
    order = (SortKey("price", decimal=True), SortKey("id"))
    token = encode_token("wares", "print", (Decimal("1.50"), HEX))
    price, key = decode_token(token, "wares", "print", order)
    assert (str(price), key) == ("1.50", HEX)
    for wrong in ("NaN", "1,5", "1E"):
        with pytest.raises(Refusal, match="malformed"):
            decode_token(encode_token("wares", "print", (wrong, HEX)), "wares", "print", order)


@given(st.lists(decimals(), min_size=2, max_size=8))
def test_the_texts_that_decimals_are_sorted_by_have_their_order(drawn: list[Decimal]) -> None:
    values = [
        DECIMAL.validate_python(value) for value in drawn if not (value.is_zero() and value.is_signed())
    ]
    for one in values:
        for other in values:
            texts = (sort_text(one), sort_text(other))
            assert ((one < other), (one == other)) == ((texts[0] < texts[1]), (texts[0] == texts[1]))


class Mapped(CanonicalModel):
    """A model with such a value under a free name."""

    id: Id
    prices: dict[Text, DecimalNumber]


class Both(CanonicalModel):
    """A model with a value of several types."""

    id: Id
    price: DecimalNumber | Text


class Goods(VariantModel, discriminator="id"):
    """A base of models that differ in the type of a field."""

    id: Id


class Bulk(Goods, discriminator_prefix="bulk"):
    """One of them."""

    amount: DecimalNumber


class Piece(Goods, discriminator_prefix="piece"):
    """The other one."""

    amount: Text


@pytest.mark.parametrize(
    ("entity", "changes", "problem"),
    [
        (WARES, {"key_parts": (text("id"),)}, "wares has the key part id of type text"),
        (WARES, {"key_parts": (object_id("batch"),)}, "wares has the key part batch of type ObjectId"),
        (WARES, {"key_parts": (object_id("price"),)}, "wares has the key part price of type ObjectId"),
        (WARES, {"key_parts": (text("image"),)}, "decimals and bytes are no keys"),
        (CRATES, {"key_parts": (uuid("id"),)}, "crates has the key part id of type uuid"),
        (CRATES, {"beside": (*CRATES.beside, "seal")}, "repeats seal next to its payload"),
        (STAMPS, {"key_parts": (binary_uuid("stamp"), text("wareId"))}, "has the key part wareId of type"),
        (WARES, {"tenancy": Tenancy.required("maker")}, "has the tenant maker, which is ObjectId"),
        (WARES, {"filled": ("maker",)}, "wants maker to be filled"),
        (WARES, {"storage": (Marker(name="by", kind=Kind.UUID),)}, "has the marker by, which is binary UUID"),
        (
            WARES,
            {"indexes": (Index(fields=("image",), name="image"),)},
            "has the index image of image, which is bytes",
        ),
        (
            WARES,
            {"indexes": (Index(fields=("seals",), name="seals"),)},
            "has the index seals of seals, which is bytes",
        ),
        (
            WARES,
            {"indexes": (Index(fields=("offer.price",), name="price"),)},
            "has the index price on offer.price, which is a decimal number",
        ),
        (WARES, {"key_as_id": True}, "has the key id as its id, which a key of one text always is"),
        (
            WARES,
            {"indexes": (Index(fields=("price",), name="price", unique=True),)},
            "has the unique index price of price",
        ),
        (
            WARES,
            {"indexes": (Index(fields=("batch",), name="b", where=(AtLeast("price", 1),)),)},
            "compares price in a rule of the store",
        ),
        (
            WARES,
            {"retention": Retention(field="price", option="days", where=(Equals("maker", HEX),))},
            "compares maker in a rule of the store",
        ),
    ],
)
def test_a_description_that_stores_would_treat_differently_is_refused(
    entity: Entity, changes: dict[str, Any], problem: str
) -> None:
    with pytest.raises(ValueError, match=problem):
        replace(entity, **changes)


def test_null_and_presence_may_be_rules_of_a_store() -> None:
    index = Index(fields=("batch",), name="b", where=(IsNull("maker"),))
    assert replace(WARES, indexes=(index,)).indexes == (index,)


@pytest.mark.parametrize(("model", "problem"), [(Mapped, "in the map prices"), (Both, "of several types")])
def test_no_store_has_such_a_value_in_a_map_or_beside_others(
    model: type[CanonicalModel], problem: str
) -> None:
    described: Entity[Any] = WARES
    with pytest.raises((ValueError, TypeError), match=problem):
        replace(described, model=model, key_parts=(text("id"),), tenancy=Tenancy.none(), indexes=())


def test_models_of_one_table_agree_on_such_a_value() -> None:
    with pytest.raises(TypeError, match="means something else in another"):
        shapes_of(Goods)
