"""Rows of a binary COPY that native code takes are those that the models make of them."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any, Final

import bson
import psycopg
import pytest
from psycopg import adapters, pq
from psycopg.adapt import AdaptersMap, Transformer

from tests.backfill.hostile.documents import ENTITIES
from tests.backfill.hostile.rows import drop_rules, good_lines, hostile_rows, plant_rows
from tests.backfill.toolkit import open_store
from tests.fast.test_copy_rows import EXAMPLES, FACTORIES, TENANT, sent, stored
from twinstore.catalog.keys import KeyRange
from twinstore.catalog.row import Row
from twinstore.catalog.tenancy import Tenant, label_of
from twinstore.config import load_settings
from twinstore.fast.records import PackedBatch, copy_field, read_copy, write_documents
from twinstore.testing.datasets import Dataset
from twinstore_mongo.bulk.records import native_documents
from twinstore_mongo.mapping.codec import codec_of
from twinstore_mongo.mapping.layout import derived_fields
from twinstore_postgres.bulk.export import record_of, values_of
from twinstore_postgres.bulk.writer import readable_columns
from twinstore_postgres.connection.cursors import TolerantInstantLoader
from twinstore_postgres.mapping.codec import register_loaders
from twinstore_postgres.mapping.table import table_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.databases import PostgresServer
    from twinstore.bulk.port import Record
    from twinstore.catalog.entity import Entity

EACH: Final = 150
PLANTED: Final = [entity for entity in ENTITIES if readable_columns(entity) and not derived_fields(entity)]
# Texts that stand anywhere in JSON, and what becomes of them.
SWAPS: Final = (
    (b": ", b":"),
    (b'"', b'\\"'),
    (b"1", b"1.0"),
    (b"1", b"01"),
    (b"2", b"1e3"),
    (b"true", b"null"),
    (b"+00:00", b"Z"),
    (b"[", b"[null, "),
    (b"{", b'{"unknown": 1, '),
    (b"e", b"\\u0065"),
    (b'"', b' "'),
    (b"}", b", }"),
)


class Loaders:
    """What the export reads values with."""

    connection = None

    def __init__(self) -> None:
        """Take those of the client, and ours."""
        self.adapters = AdaptersMap(adapters)
        register_loaders(self)
        self.adapters.register_loader("timestamptz", TolerantInstantLoader)


def exact(entity: Entity, message: bytes) -> Record:
    """Return the record that the models make of a row."""
    table = table_of(entity)
    transformer = Transformer(Loaders())
    oids = [adapters.types.get_oid(column.sql_type) for column in table.columns]
    transformer.set_loader_types(oids, pq.Format.BINARY)
    return record_of(table, tuple(transformer.load_sequence(list(values_of(message)))), message)


def check(entity: Entity, message: bytes) -> bool:
    """Check that a row is declined, or becomes the document of the models; return which."""
    columns, documents = readable_columns(entity), native_documents(entity)
    assert columns is not None
    assert documents is not None
    read = read_copy(columns, message)
    assert read is not None
    # The client is asked for the others only: it reads beyond the end of what is cut off.
    if read.declined:
        return False
    record = exact(entity, message)
    assert record.error is None
    assert record.model is not None
    wanted = stored(entity, Row(record.model, record.storage))
    identity = bson.decode(wanted)["_id"]
    found = write_documents(documents, read.rows, identity.binary if entity.generated_id else None)
    assert found is not None
    assert found.raw == wanted
    return True


def changed(rng: Random, message: bytes, other: bytes) -> bytes:
    """Return a row with a column changed, or with that of another row."""
    fields, others = list(values_of(message)), list(values_of(other))
    for _ in range(rng.choice((1, 1, 2))):
        place = rng.randrange(len(fields))
        field = fields[place]
        way = rng.randrange(4)
        if way == 0 or not field:
            fields[place] = others[place] if rng.random() < 0.7 else None  # a share
        elif way == 1:
            at = rng.randrange(len(field))
            # No server sends a text that is none, and the client reads also those that the model does not.
            bits = 128 if field.isascii() else 256
            fields[place] = field[:at] + bytes([rng.randrange(bits)]) + field[at + 1 :]
        elif way == 2:
            fields[place] = field[: rng.randrange(len(field))]
        else:
            fields[place] = field.replace(*rng.choice(SWAPS), 1)
    return len(fields).to_bytes(2, "big") + b"".join(map(copy_field, fields))


def attacked(entity: Entity, messages: Sequence[bytes], times: int) -> int:
    """Check changed rows; return how many of them were taken."""
    rng = Random(entity.name)  # not for secrets
    return sum(check(entity, changed(rng, rng.choice(messages), rng.choice(messages))) for _ in range(times))


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda item: item.name)
def test_changed_rows_are_declined_or_read_as_the_models_do(
    example: Any,  # noqa: ANN401  # an example of any module
    long_form: bool,  # noqa: FBT001  # a fixture
) -> None:
    if derived_fields(example.entity):
        pytest.skip("its documents are not made by native code")
    models = [example.small(TENANT, "a"), example.rich(TENANT, "b"), example.vary(TENANT, "c", 3)]
    rows = [stored(example.entity, Row(model, example.markers(TENANT, model))) for model in models]
    messages = [sent(example.entity, raw) for raw in rows]
    assert any(check(example.entity, message) for message in messages)
    assert attacked(example.entity, messages, 20_000 if long_form else 150)


@pytest.mark.parametrize("factory", FACTORIES, ids=lambda item: item.entity.name)
def test_changed_rows_of_the_kit_are_declined_or_read_as_the_models_do(
    factory: Any,  # noqa: ANN401  # a factory of any entity
    long_form: bool,  # noqa: FBT001  # a fixture
) -> None:
    entity = factory.entity
    if derived_fields(entity) or readable_columns(entity) is None:
        pytest.skip("its rows are not read by native code")
    rows = factory.rows(Dataset(Tenant(TENANT), "attacked"), 7)
    messages = [sent(entity, stored(entity, row)) for row in rows]
    assert any(check(entity, message) for message in messages)
    assert attacked(entity, messages, 20_000 if long_form else 150)


def test_wild_rows_of_a_server_are_packed_as_the_models_read_them(postgres_server: PostgresServer) -> None:
    with (
        postgres_server.migrated_database() as source,
        open_store("scheduler", "postgres", load_settings(source.config, environ={})) as store,
        psycopg.connect(source.superuser_url, autocommit=True) as connection,
    ):
        for entity in PLANTED:
            good = good_lines(connection, store.bulk, entity, EACH)
            drop_rules(connection, entity)
            plant_rows(connection, entity, hostile_rows(entity, good, 11))
        packed = rows = 0
        with store.bulk.view() as view:
            for entity in PLANTED:
                found = list(view.packed(entity, KeyRange(), batch_size=60))
                wanted = [record for batch in view.records(entity, KeyRange()) for record in batch]
                # Each is still the record that it was.
                assert [record for batch in found for record in batch] == wanted
                for batch in found:
                    packed += compared(entity, batch) if isinstance(batch, PackedBatch) else 0
                rows += len(wanted)
        assert rows == EACH * len(PLANTED)
        assert rows / 5 < packed < rows


def compared(entity: Entity, batch: PackedBatch) -> int:
    """Compare the documents of the packed rows of a batch with those of its records."""
    documents = native_documents(entity)
    assert documents is not None
    found = write_documents(documents, batch.rows)
    assert found is not None
    assert found.declined == []
    for number in range(len(found)):
        record = batch.record(number)
        assert record.model is not None
        assert found.document(number) == bson.encode(
            codec_of(entity).encode(Row(record.model, record.storage))
        )
        assert (batch.key_of(number), label_of(batch.owner_of(number))) == (record.key, record.label)
    return len(found)
