"""Rows of a binary COPY that native code writes are byte for byte those that the client sends.

Only the names of models have another order in their JSON: that in which the server keeps them.
"""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta
from itertools import chain
from random import Random
from typing import TYPE_CHECKING, Any, Final

import bson
import psycopg
import pytest
from bson import Int64
from hypothesis import given, settings
from psycopg import adapters, pq
from psycopg.adapt import AdaptersMap, PyFormat, Transformer

from tests.support.copies import open_store
from tests.support.hostile_documents import ENTITIES
from tests.support.hostile_rows import drop_rules, good_lines, hostile_rows, insert_hostile_rows
from tests.unit.fast.hand_made import ANY_TEXT, NativeRows, native_library, packed_values, program_with
from tests.unit.fast.programs import as_written
from twinstore.bulk.port import Record
from twinstore.catalog.keys import KeyRange
from twinstore.catalog.row import Row
from twinstore.catalog.tenancy import Tenant, label_of
from twinstore.config import load_settings
from twinstore.fast.library import Buffer
from twinstore.fast.nodes import ExpiryCondition, Node, NodeField, NodeKind, NodeText, Presence
from twinstore.fast.program import Program, program_of
from twinstore.fast.records import Identity, PackedBatch, Stored, copy_field, read_copy, write_documents
from twinstore.testing.datasets import NOTE, ROW_FACTORIES, Dataset
from twinstore.testing.entities import NOTES
from twinstore.testing.scalars import TYPED_OBJECTS
from twinstore.testing.scheduler.examples import SCHEDULER_EXAMPLES
from twinstore.testing.taskrunner.examples import TASKRUNNER_EXAMPLES
from twinstore.testing.tracking.examples import TRACKING_EXAMPLES
from twinstore_mongo.bulk.export import Exporter
from twinstore_mongo.bulk.records import native_documents
from twinstore_mongo.mapping.codec import codec_of
from twinstore_mongo.mapping.layout import derived_fields
from twinstore_postgres.bulk.export import record_of, values_of
from twinstore_postgres.bulk.writer import native_columns, readable_columns
from twinstore_postgres.connection.cursors import TolerantInstantLoader
from twinstore_postgres.mapping.codec import register_loaders
from twinstore_postgres.mapping.columns import Origin
from twinstore_postgres.mapping.table import table_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pydantic import JsonValue

    from tests.support.databases import PostgresServer
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
    record = Exporter(codec_of(entity)).careful_record(raw)
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


@pytest.mark.parametrize("typed", TYPED_OBJECTS, ids=repr)
def test_typed_objects_in_free_json_go_the_exact_way_in_both_directions(typed: JsonValue) -> None:
    row = NOTE.row(Dataset(Tenant(TENANT), "typed"), extra={"a": [{"b": typed}]})
    raw = stored(NOTES, row)
    assert written(NOTES, raw) is None
    message = sent(NOTES, raw)
    assert exact(NOTES, message).model == row.model
    assert not check(NOTES, message)


EACH: Final = 150
PLANTED: Final = [entity for entity in ENTITIES if readable_columns(entity) and not derived_fields(entity)]
# Texts that occur anywhere in JSON, and what becomes of them.
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
            insert_hostile_rows(connection, entity, hostile_rows(entity, good, 11))
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


NOON: Final = datetime(2025, 10, 26, 12, tzinfo=UTC)
STATES: Final = ("open", "closed", "gone")
MODEL: Final = Node(
    kind=NodeKind.OBJECT,
    fields=(
        NodeField(name="id", node=1, presence=Presence.REQUIRED),
        NodeField(name="owner", node=1),
        NodeField(name="end", node=2),
        NodeField(name="state", node=3),
    ),
)
NODES: Final = (
    MODEL,
    ANY_TEXT,
    Node(kind=NodeKind.INSTANT),
    Node(kind=NodeKind.ENUM, texts=tuple(NodeText(text, number) for number, text in enumerate(STATES))),
)
ROLES: Final[dict[str, Any]] = {"tenant": 1, "tenant_may_lack": True, "expires": 2}
NAMES: Final = ("", "owner", "end", "state")


def batch_of(
    program: Program, documents: Sequence[dict[str, object]], names: Sequence[str] = NAMES
) -> PackedBatch:
    """Return a batch of documents that are all packed."""
    raw = b"".join(map(bson.encode, documents))
    identity = Identity.SLOT if "" in names else Identity.JOINED
    found = NativeRows(program, names, identity).documents.read(raw)
    assert found is not None
    assert not found.declined

    def record_of(stored: bytes) -> Record:
        raise AssertionError(stored)

    return PackedBatch(program, found.rows, Stored(raw, found.places, record_of))


def documents_of(count: int, owners: int) -> list[dict[str, object]]:
    """Return documents whose keys rise, by several owners; one in seven has none."""
    seeded = Random(count)
    found = list[dict[str, object]]()
    for number in range(count):
        owner = seeded.randrange(owners)
        row: dict[str, object] = {"_id": f"k{number:06}"}
        if owner % 7:
            row["owner"] = f"owner {owner}"
        if number % 3:
            row["end"] = NOON + timedelta(milliseconds=seeded.randrange(-3, 4))
        found.append(row)
    return found


@pytest.mark.parametrize("owners", [1, 3, 700])
def test_rows_are_counted_by_owner_and_expired_ones_are_reported(owners: int) -> None:
    documents = documents_of(1500, owners)
    found = batch_of(program_with(NODES, **ROLES), documents).examined(NOON)
    assert found is not None
    labels = [str(item.get("owner", ":none")) for item in documents]
    ends = [item.get("end") for item in documents]
    due = [number for number, end in enumerate(ends) if isinstance(end, datetime) and end <= NOON]
    assert found.read == Counter(labels)
    assert list(found.due) == due
    assert found.expired == Counter(labels[number] for number in due)
    assert 0 < len(due) < len(documents)


def test_without_a_limit_nothing_is_due() -> None:
    found = batch_of(program_with(NODES, **ROLES), documents_of(100, 2)).examined()
    assert found is not None
    assert not found.due
    assert found.read.total() == 100


def test_without_an_instant_of_removal_nothing_is_due() -> None:
    found = batch_of(program_with(NODES, tenant=1, tenant_may_lack=True), documents_of(100, 2)).examined(NOON)
    assert found is not None
    assert not found.due


def test_rows_are_due_where_all_conditions_hold() -> None:
    conditions = (ExpiryCondition(3, (1, 2)), ExpiryCondition(1, ()))
    program = program_with(NODES, **ROLES, expiry_conditions=conditions)
    documents = list[dict[str, object]]()
    for number, owned in enumerate((True, False, True)):
        for state in ("", "closed", "gone", "open"):
            row: dict[str, object] = {"_id": f"{number}{state}", "end": NOON + timedelta(milliseconds=number)}
            documents.append(row | ({"state": state} if state else {}) | ({"owner": "a"} if owned else {}))
    documents.sort(key=lambda item: str(item["_id"]))
    found = batch_of(program, documents).examined(NOON)
    assert found is not None
    assert [documents[number]["_id"] for number in found.due] == ["0closed", "0gone"]


def keyed(*keys: tuple[object, ...]) -> bool:
    """Return whether rows with these keys, of a text and a number, are examined."""
    fields = (
        NodeField(name="a", node=1, presence=Presence.REQUIRED),
        NodeField(name="b", node=2, presence=Presence.REQUIRED),
    )
    nodes = (Node(kind=NodeKind.OBJECT, fields=fields), ANY_TEXT, Node(kind=NodeKind.INT, low=-9, high=99))
    documents: list[dict[str, object]] = [{"_id": "x", "a": text, "b": number} for text, number in keys]
    return batch_of(program_with(nodes, key=(0, 1)), documents, ("a", "b")).examined() is not None


def test_keys_rise_part_by_part_texts_by_bytes_and_numbers_as_numbers() -> None:
    assert keyed(
        ("a", -1), ("a", 2), ("a", Int64(10)), ("aa", 1), ("b", 0), ("ä", -9), ("\uffff", 0), ("😀", 0)
    )
    for later, sooner in (
        (("a", 10), ("a", 9)),
        (("a", 1), ("a", 1)),
        (("b", 1), ("a", 2)),
        (("aa", 1), ("a", 2)),
    ):
        assert keyed(sooner, later) is (later != sooner)
        assert not keyed(later, sooner)


def test_members_are_compared_by_their_texts() -> None:
    fields = (NodeField(name="s", node=2, presence=Presence.REQUIRED),)
    program = program_with([Node(kind=NodeKind.OBJECT, fields=fields), ANY_TEXT, NODES[3]])
    for states, rises in ((("closed", "gone", "open"), True), (STATES, False)):
        documents: list[dict[str, object]] = [{"_id": "x", "s": state} for state in states]
        assert (batch_of(program, documents, ["s"]).examined() is not None) is rises


@pytest.mark.parametrize("due", [[0], [1], [0, 1, 2], [2, 5, 9], [9], list(range(10))])
def test_rows_are_skipped_by_number(due: list[int]) -> None:
    documents = documents_of(10, 1)
    batch = batch_of(program_with(NODES, **ROLES), documents)
    rows = packed_values(batch.rows.tobytes(), 4)
    left = batch.without(due)
    assert packed_values(left.rows.tobytes(), 4) == [
        row for number, row in enumerate(rows) if number not in due
    ]
    assert len(left) == 10 - len(due)


def test_a_batch_without_packed_rows_has_nothing_to_examine() -> None:
    batch = batch_of(program_with(NODES, **ROLES), [])
    found = batch.examined(NOON)
    assert found is not None
    assert (found.read, found.expired, list(found.due)) == (Counter(), Counter(), [])
    left = batch_of(program_with(NODES, **ROLES), documents_of(1, 1)).without([0])
    assert (len(left), left.rows.tobytes()) == (0, b"")
    assert left.examined() is not None
