"""Documents that native code makes of packed rows are byte for byte those that the driver encodes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import bson
import pytest
from bson import ObjectId
from hypothesis import given, settings

from tests.unit.fast.test_copy_rows import EXAMPLES, FACTORIES, TENANT, stored
from twinstore.catalog.row import Row
from twinstore.catalog.tenancy import Tenant
from twinstore.fast.records import highest, write_documents
from twinstore.models.fields import INT64_MIN
from twinstore.testing.datasets import Dataset
from twinstore_mongo.bulk.records import native_documents
from twinstore_mongo.mapping.codec import codec_of
from twinstore_mongo.mapping.layout import derived_fields

if TYPE_CHECKING:
    from collections.abc import Sequence

    from twinstore.catalog.entity import Entity
    from twinstore.fast.records import WrittenDocuments
    from twinstore.models.canonical import CanonicalModel
    from twinstore.testing.datasets import RowFactory
    from twinstore.testing.examples import Example

WRITTEN = [item for item in EXAMPLES if not derived_fields(item.entity)]
KIT = [item for item in FACTORIES if not derived_fields(item.entity)]


def written(entity: Entity, raws: Sequence[bytes]) -> tuple[list[bytes], WrittenDocuments]:
    """Return the documents that native code takes, and what it makes of their rows."""
    documents = native_documents(entity)
    assert documents is not None
    taken = []
    for raw in raws:
        read = documents.read(raw)
        assert read is not None
        taken += [] if read.declined else [raw]
    read = documents.read(b"".join(taken))
    assert read is not None
    assert not read.declined
    ids = [bson.decode(raw)["_id"] for raw in taken]
    given_ids = b"".join(item.binary for item in ids if isinstance(item, ObjectId))
    found = write_documents(documents, read.rows, given_ids if entity.generated_id else None)
    assert found is not None
    return taken, found


def check(entity: Entity, rows: Sequence[Row[Any]]) -> int:
    """Check the documents of some rows; return how many native code has taken."""
    taken, found = written(entity, [stored(entity, row) for row in rows])
    assert found.declined == []
    assert [found.document(number) for number in range(len(found))] == taken
    return len(taken)


@pytest.mark.parametrize("example", WRITTEN, ids=lambda item: item.name)
def test_documents_of_drawn_models_are_those_that_the_driver_encodes(
    example: Example,
    long_form: bool,  # noqa: FBT001  # a fixture
) -> None:
    draw = example.drawn
    assert draw is not None
    found = 0

    @settings(max_examples=2000 if long_form else 12, database=None)
    @given(draw(TENANT, "drawn"))
    def compare(model: CanonicalModel) -> None:
        nonlocal found
        found += check(example.entity, [Row(model, example.markers(TENANT, model))])

    compare()
    assert found


@pytest.mark.parametrize("example", WRITTEN, ids=lambda item: item.name)
def test_rows_of_a_batch_are_counted_by_their_owner(example: Example) -> None:
    models = [example.small(TENANT, f"counted{number}") for number in range(9)]
    rows = [Row(model, example.markers(TENANT, model)) for model in models]
    keyed = {example.entity.key_of(row.model, row.storage): row for row in rows}
    _, found = written(example.entity, [stored(example.entity, keyed[key]) for key in sorted(keyed)])
    labels = found.counts(0, len(found))
    assert labels.total() == len(found) == len(keyed) > 4  # cut there
    assert labels == found.counts(0, 4) + found.counts(4, len(found))


@pytest.mark.parametrize("factory", KIT, ids=lambda item: item.entity.name)
def test_documents_of_the_kit_are_those_that_the_driver_encodes(factory: RowFactory[CanonicalModel]) -> None:
    rows = factory.rows(Dataset(Tenant(TENANT), "written"), 9)
    assert check(factory.entity, rows)


def test_the_highest_number_of_a_marker_is_found() -> None:
    (entity,) = (item.entity for item in FACTORIES if item.entity.name == "notes")
    (factory,) = (item for item in FACTORIES if item.entity is entity)
    rows = [
        Row(row.model, {"revision": number})
        for row, number in zip(
            factory.rows(Dataset(Tenant(TENANT), "high"), 5), (3, -1, 2**62, 7, 0), strict=True
        )
    ]
    taken, found = written(entity, [stored(entity, row) for row in rows])
    (slot,) = (number for number, item in enumerate(found.program.slots) if item.name == "revision")
    wanted = max(bson.decode(raw)[codec_of(entity).names["revision"]] for raw in taken)
    assert highest(found.program, found.rows, slot) == wanted


def test_a_row_too_large_for_native_code_is_declined_and_the_others_are_written() -> None:
    (factory,) = (item for item in FACTORIES if item.entity.name == "notes")
    (small, *_) = factory.rows(Dataset(Tenant(TENANT), "large"), 1)
    # Such numbers take fewer bytes in a document than as text.
    changes: list[dict[str, Any]] = [{"id": "a"}, {"id": "b", "steps": (INT64_MIN,) * 13_000}, {"id": "c"}]
    rows = [Row(small.model.evolve(**change), small.storage) for change in changes]
    taken, found = written(factory.entity, [stored(factory.entity, row) for row in rows])
    assert found.declined == [1]
    assert [found.document(0), found.document(1)] == [taken[0], taken[2]]
    assert [found.counts(0, 1).total(), found.counts(1, 2).total()] == [1, 1]
