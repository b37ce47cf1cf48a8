"""ObjectIds, UUIDs, decimals and bytes in tables: their columns, and how copier and verifier read them."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

import psycopg
import pytest
from psycopg import pq

from twinstore.bulk.rows import ScanRow
from twinstore.catalog.row import Row
from twinstore.catalog.tenancy import Tenant
from twinstore.models import json_text
from twinstore.testing.datasets import BYTES, CRATE, DECIMALS, STAMP, WARE, Dataset, RowFactory
from twinstore.testing.typed_entities import WARES, Offer
from twinstore_backfill.verify.expected import Expected, RowExpectation
from twinstore_postgres.bulk.export import OUTPUTS
from twinstore_postgres.bulk.scan import described, stored_names
from twinstore_postgres.mapping.codec import Json
from twinstore_postgres.mapping.columns import column_name
from twinstore_postgres.mapping.table import table_of
from twinstore_postgres.schema.ddl import create_table, indexes

if TYPE_CHECKING:
    from twinstore.models.canonical import CanonicalModel

DATASET: Final = Dataset(Tenant("t"), "batch")
each_factory = pytest.mark.parametrize("factory", [WARE, STAMP, CRATE], ids=lambda item: item.entity.name)
WARES_TABLE: Final = """\
CREATE TABLE IF NOT EXISTS kit.wares (
    id TEXT COLLATE "C" NOT NULL,
    tenant_id TEXT COLLATE "C" NOT NULL,
    batch TEXT COLLATE "C" NOT NULL,
    name TEXT COLLATE "C" NOT NULL,
    price NUMERIC NOT NULL,
    maker TEXT COLLATE "C",
    design UUID,
    weight NUMERIC,
    image BYTEA NOT NULL,
    seal BYTEA,
    makers JSONB NOT NULL,
    designs JSONB NOT NULL,
    weights JSONB NOT NULL,
    seals JSONB NOT NULL,
    offer JSONB,
    offers JSONB NOT NULL,
    row_version BIGINT NOT NULL DEFAULT 1,
    CONSTRAINT wares_pkey PRIMARY KEY (id),
    CONSTRAINT wares_id_check CHECK (id ~ '^[0-9a-f]{24}$'),
    CONSTRAINT wares_maker_check CHECK (maker ~ '^[0-9a-f]{24}$')
);"""


def bound(value: object) -> object:
    """Return a value as a statement returns it: JSON read, and a UUID as its text."""
    if isinstance(value, UUID):
        return str(value)
    return json_text.loads(bytes(value)) if isinstance(value, Json) else value


def copied(value: Any, sql_type: str) -> str | None:  # noqa: ANN401  # any value of a row
    """Return a value as a COPY in text form has it."""
    if value is None:
        return None
    oid = psycopg.adapters.types.get_oid(sql_type)
    dumper = psycopg.adapters.get_dumper_by_oid(oid, pq.Format.BINARY)(type(value))
    sent = dumper.dump(value) if sql_type != "jsonb" else b"\x01" + bytes(value)
    return OUTPUTS[sql_type](bytes(sent or b"")).decode()


def test_the_table_has_the_types_and_the_checks() -> None:
    assert create_table(WARES) == WARES_TABLE
    (design, price, _) = indexes(WARES)
    assert design.sql.endswith("ON kit.wares (design) WHERE design IS NOT NULL;")
    assert price.sql.endswith("ON kit.wares (tenant_id, batch, price, id);")


@each_factory
def test_what_is_written_is_read_again(factory: RowFactory[CanonicalModel]) -> None:
    table = table_of(factory.entity)
    for row in factory.rows(DATASET, 2 * len(DECIMALS)):
        values = tuple(map(bound, table.encode(row)))
        assert Row(table.decode(values)) == row


@each_factory
def test_a_scan_shows_the_wire_form(factory: RowFactory[CanonicalModel]) -> None:
    entity, table = factory.entity, table_of(factory.entity)
    types = {column.name: column.sql_type for column in table.columns} | {"row_version": "int8"}
    names = {column_name(entity, name) for name in stored_names(entity)}
    scan = described(entity, {name: kind for name, kind in types.items() if name in names})
    columns = {column.name: at for at, column in enumerate(table.columns)}
    for row in factory.rows(DATASET, 2 * len(DECIMALS)):
        texts = [
            copied(value, column.sql_type)
            for value, column in zip(table.encode(row), table.columns, strict=True)
        ]
        given = ["1" if part.column == "row_version" else texts[columns[part.column]] for part in scan.parts]
        shown = scan.row(given)
        assert shown.content == json_text.dumps_sorted({"doc": row.model.wire(), "storage": {}})
        assert shown.key == entity.key_of(row.model, row.storage)


@pytest.mark.parametrize(("name", "kind", "text"), [("price", "text", "1.5"), ("image", "text", "aGk=")])
def test_a_column_of_another_type_is_marked(name: str, kind: str, text: str) -> None:
    types: dict[str, str] = {column.name: column.sql_type for column in table_of(WARES).columns}
    scan = described(WARES, types | {"row_version": "int8", name: kind})
    (part,) = [part for part in scan.parts if part.name == name]
    assert part.convert is not None
    assert part.convert(text) == {"\x00column": text}


@pytest.mark.parametrize(
    "text",
    ["0", "0.00", "1", "-1", "1.50", "10000", "0.0001", "0.00010", "123456789.000000001", "-0.5", "1e3"],
)
def test_the_text_of_a_decimal_is_that_of_the_server(text: str) -> None:
    value: Any = Decimal(text)
    assert copied(value, "numeric") == format(value, "f")


@pytest.mark.parametrize(
    "value", [*DECIMALS, Decimal("NaN"), Decimal("Infinity"), Decimal("-Infinity")], ids=str
)
def test_so_is_that_of_each_decimal_of_the_kit(value: Decimal) -> None:
    expected = format(value, "f") if value.is_finite() else str(value)
    assert copied(value, "numeric") == expected


@pytest.mark.parametrize("value", BYTES, ids=repr)
def test_bytes_are_shown_in_hexadecimal_digits(value: bytes) -> None:
    assert copied(value, "bytea") == f"\\x{value.hex()}"


def test_an_integer_in_json_is_another_type_of_the_same_decimal() -> None:
    row = WARE.row(DATASET, 1, offer=Offer(price=Decimal(5)))
    wire = row.model.wire()
    content = json_text.dumps_sorted({"doc": wire | {"offer": {"price": 5}}, "storage": {}})
    expected = RowExpectation(WARES).of(ScanRow(WARE.key(DATASET, 1), Tenant("t"), content))
    assert isinstance(expected, Expected)
    assert [(change.kind, change.path) for change in expected.changes] == [("number_type", "doc.offer.price")]
