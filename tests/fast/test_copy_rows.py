"""Rows of a binary COPY that native code writes are byte for byte those that the client sends.

Only the names of models have another order in their JSON: that in which the server keeps them.
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Any

import bson
import pytest
from hypothesis import given, settings
from psycopg import adapters, pq
from psycopg.adapt import PyFormat, Transformer

from tests.fast.hand_made import native_library
from tests.fast.written_order import as_written
from twinstore.catalog.row import Row
from twinstore.catalog.tenancy import Tenant
from twinstore.fast.library import Buffer
from twinstore.fast.program import Program, program_of
from twinstore.fast.records import copy_field
from twinstore.testing.datasets import ROW_FACTORIES, Dataset
from twinstore.testing.scheduler.examples import SCHEDULER_EXAMPLES
from twinstore.testing.taskrunner.examples import TASKRUNNER_EXAMPLES
from twinstore.testing.tracking.examples import TRACKING_EXAMPLES
from twinstore_mongo.bulk.export import Exporter
from twinstore_mongo.bulk.records import native_documents
from twinstore_mongo.mapping.codec import codec_of
from twinstore_postgres.bulk.writer import native_columns
from twinstore_postgres.mapping.columns import Origin
from twinstore_postgres.mapping.table import table_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from twinstore.catalog.entity import Entity
    from twinstore.models.canonical import CanonicalModel
    from twinstore.testing.datasets import RowFactory
    from twinstore.testing.examples import Example

EXAMPLES = [
    item
    for item in chain.from_iterable(
        module.examples for module in (SCHEDULER_EXAMPLES, TRACKING_EXAMPLES, TASKRUNNER_EXAMPLES)
    )
    if isinstance(program_of(item.entity), Program) and item.drawn is not None
]
FACTORIES = [item for item in ROW_FACTORIES if isinstance(program_of(item.entity), Program)]
TENANT = "acme"


def stored(entity: Entity, row: Row[Any]) -> bytes:
    """Return the document of a row as it is stored."""
    return bson.encode(codec_of(entity).encode(row))


def sent(entity: Entity, raw: bytes) -> bytes:
    """Return the row of a binary COPY that the client makes of a stored document."""
    return row_of(fields_sent(entity, raw))


def expected(entity: Entity, raw: bytes) -> bytes:
    """Return the same row with the names of models in the order in which native code writes them."""
    program, table = program_of(entity), table_of(entity)
    assert isinstance(program, Program)
    slots = {slot.name: slot.node for slot in program.slots}
    fields = fields_sent(entity, raw)
    for number, (column, field) in enumerate(zip(table.columns, fields, strict=True)):
        if column.sql_type == "jsonb" and field is not None:
            node = program.root if column.origin is Origin.PAYLOAD else slots[column.field]
            fields[number] = field[:1] + as_written(field[1:], program.nodes[node], program.nodes)
    return row_of(fields)


def row_of(fields: Sequence[bytes | None]) -> bytes:
    """Return a row of a binary COPY."""
    return len(fields).to_bytes(2, "big") + b"".join(map(copy_field, fields))


def fields_sent(entity: Entity, raw: bytes) -> list[bytes | None]:
    """Return the values of the columns that the client makes of a stored document."""
    table = table_of(entity)
    record = Exporter(codec_of(entity)).cautious(raw)
    assert record.model is not None
    values = table.encode(Row(record.model, record.storage))
    transformer = Transformer()
    oids = [adapters.types.get_oid(column.sql_type) for column in table.columns]
    transformer.set_dumper_types(oids, pq.Format.BINARY)
    fields = transformer.dump_sequence(values, [PyFormat.BINARY] * len(values))
    return [None if field is None else bytes(field) for field in fields]


def written(entity: Entity, raw: bytes) -> bytes | None:
    """Return the same of native code, ``None`` where it declines the document."""
    documents, columns = native_documents(entity), native_columns(entity)
    assert documents is not None
    assert columns is not None
    read = documents.read(raw)
    assert read is not None
    if read.declined:
        return None
    out = Buffer(native_library())
    return out.tobytes() if columns.write(read.rows, out) else None


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda item: item.name)
def test_rows_of_drawn_models_are_those_that_the_client_sends(
    example: Example,
    long_form: bool,  # noqa: FBT001  # a fixture
) -> None:
    entity, draw = example.entity, example.drawn
    assert draw is not None
    found: list[bool] = []

    @settings(max_examples=2000 if long_form else 15, database=None)
    @given(draw(TENANT, "drawn"))
    def compare(model: CanonicalModel) -> None:
        raw = stored(entity, Row(model, example.markers(TENANT, model)))
        row = written(entity, raw)
        found.append(row is not None)
        assert row is None or row == expected(entity, raw)

    compare()
    assert any(found)


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda item: item.name)
def test_rows_with_few_values_go_the_fast_path_and_those_with_all_if_at_all(example: Example) -> None:
    few, full = (
        stored(example.entity, Row(model, example.markers(TENANT, model)))
        for model in (example.small(TENANT, "one"), example.rich(TENANT, "one"))
    )
    assert written(example.entity, few) == expected(example.entity, few)
    # Some have names in maps that native code declines.
    assert written(example.entity, full) in {None, expected(example.entity, full)}


@pytest.mark.parametrize("factory", FACTORIES, ids=lambda item: item.entity.name)
def test_rows_of_the_kit_are_those_that_the_client_sends(factory: RowFactory[CanonicalModel]) -> None:
    rows = factory.rows(Dataset(Tenant(TENANT), "copied"), 7)
    raws = [stored(factory.entity, row) for row in rows]
    found = [written(factory.entity, raw) for raw in raws]
    assert any(found)
    for raw, row in zip(raws, found, strict=True):
        assert row is None or row == expected(factory.entity, raw)
