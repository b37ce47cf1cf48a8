"""Instants in lists, and in lists of lists: read the same by the models and by native code."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

import bson
import pytest

from tests.unit.fast.exact_way import Oracle
from tests.unit.fast.hand_made import native_library
from twinstore.catalog.entity import Entity
from twinstore.catalog.keys import text
from twinstore.catalog.row import Row
from twinstore.catalog.tenancy import Tenancy
from twinstore.fast.program import Program, program_of
from twinstore.models.canonical import CanonicalModel
from twinstore.models.fields import Id, Timestamp
from twinstore_mongo.bulk.export import Exporter
from twinstore_mongo.bulk.records import documents_of
from twinstore_mongo.mapping.codec import codec_of

START: Final = datetime(2025, 10, 26, 14, 5, tzinfo=UTC)


class Visit(CanonicalModel):
    """Something that has an instant."""

    at: Timestamp


class Diary(CanonicalModel):
    """A row with instants in lists."""

    id: Id
    days: tuple[Timestamp, ...] = ()
    weeks: tuple[tuple[Timestamp, ...], ...] = ()
    visits: tuple[Visit, ...] = ()
    tours: tuple[tuple[Visit, ...], ...] = ()


ENTITY: Final = Entity(
    name="diaries",
    singular="diary",
    module="kit",
    model=Diary,
    key_parts=(text("id"),),
    tenancy=Tenancy.none(),
    group="kit",
)
LATER: Final = START + timedelta(milliseconds=7)
DIARIES: Final = {
    "instants": Diary(id="a", days=(START, LATER)),
    "lists of instants": Diary(id="a", weeks=((START,), (), (LATER, START))),
    "objects": Diary(id="a", visits=(Visit(at=START), Visit(at=LATER))),
    "lists of objects": Diary(id="a", tours=((Visit(at=START), Visit(at=LATER)), (Visit(at=LATER),))),
}


@pytest.mark.parametrize("diary", DIARIES.values(), ids=DIARIES)
def test_instants_in_lists_are_read_by_models_and_by_native_code(diary: Diary) -> None:
    codec, program = codec_of(ENTITY), program_of(ENTITY)
    raw = bson.encode(codec.encode(Row(diary)))
    (record,) = Exporter(codec).records(raw)
    assert (record.error, record.model, record.text_timestamp) == (None, diary, False)
    assert isinstance(program, Program)
    documents = documents_of(native_library(), program)
    assert documents is not None
    found = documents.read(raw)
    assert found is not None
    assert Oracle(program).wrong(raw, found.rows.tobytes()) == ""


@pytest.mark.parametrize("name", ["days", "weeks", "visits", "tours"])
def test_an_instant_in_a_list_that_is_stored_as_text_is_reported(name: str) -> None:
    said = "2025-10-26T14:05:00+00:00"
    value: dict[str, object] = {
        "days": [said],
        "weeks": [[said]],
        "visits": [{"at": said}],
        "tours": [[{"at": said}]],
    }
    (record,) = Exporter(codec_of(ENTITY)).records(bson.encode({"_id": "a", name: value[name]}))
    assert record.error is None
    assert record.text_timestamp
