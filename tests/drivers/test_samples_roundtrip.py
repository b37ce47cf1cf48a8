"""Every sample is stored by its repository and comes back byte for byte, on every driver."""

from __future__ import annotations

import json
from contextlib import closing
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pytest
from bson.codec_options import CodecOptions
from pymongo import MongoClient

import twinstore
from docs.parts.samples import SAMPLES, folder_of, samples_of
from tests.support.databases import DRIVERS, fresh_settings, without_retention
from twinstore import scheduler
from twinstore.errors import TwinstoreError
from twinstore.models.canonical import CanonicalJsonSerializer, CanonicalModel
from twinstore.models.shapes import variants_of
from twinstore.scheduler.catalog import SCHEDULER
from twinstore.storage.open import open_module
from twinstore.testing.scheduler.examples import SCHEDULER_EXAMPLES
from twinstore.testing.taskrunner.examples import TASKRUNNER_EXAMPLES
from twinstore.testing.tracking.examples import TRACKING_EXAMPLES

if TYPE_CHECKING:
    from tests.support.databases import MongoDatabase
    from twinstore.catalog.entity import Entity
    from twinstore.testing.examples import Example, ModuleExamples

TENANT: Final = "acme"
# The pack run of the samples has none.
TENANTS: Final[dict[str, Any]] = {"taskrunner": None}
KITS: Final = (SCHEDULER_EXAMPLES, TRACKING_EXAMPLES, TASKRUNNER_EXAMPLES)
# Requests and answers are stored as the row of another model, or not at all.
NOT_STORED: Final = (scheduler.PolicyRunRequest, scheduler.PolicyRunStatus)


INVALID: Final[dict[str, dict[str, str]]] = json.loads((SAMPLES / "invalid" / "expected.json").read_text())


class Sample(NamedTuple):
    """A model of a file with samples."""

    name: str
    item: Example
    model: Any
    written: bytes

    @property
    def tenant(self) -> Any:  # noqa: ANN401  # a text or none
        return getattr(self.model, "tenant_id", None) or TENANTS.get(self.item.entity.module, TENANT)

    @property
    def is_writable(self) -> bool:
        """Whether its entity is not written with another one alone."""
        return self.item.drawn is not None


def samples(kit: ModuleExamples) -> list[Sample]:
    """Return the samples of a module, parents first."""
    return [
        Sample(name, item, CanonicalJsonSerializer.deserialize(model, text), text)
        for item in kit.examples
        for name, model in samples_of(kit.module).items()
        if model not in NOT_STORED and issubclass(model, item.entity.model)
        for text in texts((folder_of(kit.module) / name).read_bytes(), name)
    ]


def texts(content: bytes, name: str) -> list[bytes]:
    return content.splitlines(keepends=True) if name.endswith(".ndjson") else [content]


def text_of(model: CanonicalModel, name: str) -> bytes:
    if name.endswith(".ndjson"):
        return CanonicalJsonSerializer.serialize(model) + b"\n"
    return CanonicalJsonSerializer.serialize_pretty(model)


def test_every_sample_is_canonical_and_every_entity_of_a_module_has_one() -> None:
    for kit in KITS:
        found = samples(kit)
        assert {item.name for item in found} | {
            name for name, model in samples_of(kit.module).items() if model in NOT_STORED
        } == {path.name for path in folder_of(kit.module).iterdir() if path.is_file()}
        assert {item.item.entity for item in found} == {item.entity for item in kit.examples}
        assert [item.name for item in found if text_of(item.model, item.name) != item.written] == []
    found = samples(SCHEDULER_EXAMPLES)
    assert {item.item.entity.model.__name__ for item in found} <= {*scheduler.__all__}
    stored = {model for item in SCHEDULER.entities for model in variants_of(item.model) or (item.model,)}
    assert stored <= set(samples_of(SCHEDULER_EXAMPLES.module).values())
    assert {path.name for path in (SAMPLES / "invalid").iterdir()} == {*INVALID, "expected.json"}


@pytest.mark.parametrize("driver", DRIVERS)
@pytest.mark.parametrize("kit", KITS, ids=lambda kit: kit.module.name)
def test_a_stored_sample_comes_back_byte_for_byte(
    kit: ModuleExamples, driver: str, request: pytest.FixtureRequest
) -> None:
    with fresh_settings(driver, request) as settings:
        with open_module(kit.module.name, driver.capitalize(), settings) as writing:
            writing.initializer.ensure_migrations()
            for sample in samples(kit):
                if sample.is_writable:
                    sample.item.store(writing.unbound, sample.tenant, sample.model)
        with open_module(kit.module.name, driver.capitalize(), settings) as reading:
            for sample in samples(kit):
                found = sample.item.found(reading.unbound, sample.tenant, sample.model)
                assert isinstance(found, CanonicalModel), sample.name
                if sample.is_writable:
                    assert text_of(found, sample.name) == sample.written
                else:
                    # The derived id of the sample is the one that the write of its schedule gives.
                    key = sample.item.key(sample.tenant, found)
                    assert key == sample.item.key(sample.tenant, sample.model)


def test_the_stored_document_of_mongodb_is_the_sample(mongo_database: MongoDatabase) -> None:
    with (
        twinstore.open_storage(without_retention(mongo_database.config)) as storage,
        closing(MongoClient[dict[str, Any]](mongo_database.url)) as client,
    ):
        for sample in samples(SCHEDULER_EXAMPLES):
            if not sample.is_writable:
                continue
            sample.item.store(storage.scheduler.unbound, TENANT, sample.model)
            entity = sample.item.entity
            stored = wire_of(raw_document(client, mongo_database.name, sample), entity)
            wanted = json.loads(sample.written)
            assert stored == wanted, sample.name
            assert in_order(stored, entity) == in_order(wanted, entity), sample.name


def raw_document(client: MongoClient[dict[str, Any]], database: str, sample: Sample) -> dict[str, Any]:
    entity, row = sample.item.entity, sample.item.row(TENANT, sample.model)
    collection = client[database].get_collection(
        entity.collection, codec_options=CodecOptions[dict[str, Any]](tz_aware=True)
    )
    wanted = entity.key if entity.document_id is None else (entity.document_id,)
    names = wanted if entity.document_id is None else ("_id",)
    values = [entity.value(row.model, row.storage, name) for name in wanted]
    document = collection.find_one(dict(zip(names, values, strict=True)))
    assert document is not None, sample.name
    return document


def wire_of(document: dict[str, Any], entity: Entity) -> dict[str, Any]:
    """Turn a raw document into the wire form by the rules alone, without the driver."""
    assert next(iter(document)) == "_id"
    names = {"_id": entity.document_id or "_id"}
    named = {names.get(field, field): value for field, value in document.items()}
    return {field: json_value(value) for field, value in named.items() if not field.startswith("_")}


def in_order(values: dict[str, Any], entity: Entity) -> str:
    """Show values with the order of all fields but the id, which MongoDB keeps in front."""
    return json.dumps({field: value for field, value in values.items() if field != entity.document_id})


def json_value(value: object) -> Any:  # noqa: ANN401  # JSON
    if isinstance(value, datetime):
        return value.isoformat(timespec="milliseconds" if value.microsecond else "seconds")
    if isinstance(value, dict):
        return {field: json_value(inner) for field, inner in value.items()}
    if isinstance(value, list):
        return [json_value(inner) for inner in value]
    return value


@pytest.mark.parametrize("name", INVALID)
def test_an_invalid_sample_is_refused_for_the_stated_reason(name: str) -> None:
    expected = INVALID[name]
    model: type[CanonicalModel] = getattr(scheduler, expected["model"])
    with pytest.raises(TwinstoreError) as caught:
        CanonicalJsonSerializer.deserialize(model, (SAMPLES / "invalid" / name).read_bytes())
    assert caught.value.code == expected["code"]
    assert expected["mentions"] in str(caught.value)
    assert "\n" not in str(caught.value)
