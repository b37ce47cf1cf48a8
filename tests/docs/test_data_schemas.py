"""What the data schemas say is what `ensure_migrations()` creates; asked here in another way than there."""

from __future__ import annotations

import re
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import psycopg
import pytest
from bson import ObjectId
from pymongo import MongoClient

from docs.generate import PART
from docs.parts.entities import MODULES, retention
from tests.docs.pages import DOCS
from tests.support.databases import for_every_module, migrate
from twinstore import open_storage
from twinstore.catalog.conditions import IsNull
from twinstore.catalog.entity import Entity, Retention
from twinstore.scheduler.catalog import AUDIT, GRAPH_JOBS, RUNS, SCHEDULES, TRIGGERS
from twinstore.testing.examples import ModuleExamples
from twinstore.testing.scheduler.examples import SCHEDULER_EXAMPLES
from twinstore.testing.taskrunner.examples import TASKRUNNER_EXAMPLES
from twinstore.testing.tracking.examples import TRACKING_EXAMPLES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.databases import MongoDatabase, MongoServer, PostgresServer
    from tests.support.servers import Settings

PAGE: Final = (DOCS / "11_DATA_SCHEMAS.md").read_text("utf-8")
# What the page says of one collection or table, up to the next one, the next heading or the end of the part.
PIECE: Final = re.compile(
    r"^(?P<store>MongoDB collection|PostgreSQL table) `(?P<name>[\w.]+)`:\n(?P<body>.*?)"
    r"(?=^MongoDB collection |^PostgreSQL table |^#|^<!-- )",
    re.DOTALL | re.MULTILINE,
)
PREFIXES: Final = {"MongoDB collection": "mongo", "PostgreSQL table": "postgres"}
PARTS: Final = {
    **{match["name"]: match["body"] for match in PART.finditer(PAGE)},
    **{f"{PREFIXES[match['store']]}.{match['name']}": match["body"] for match in PIECE.finditer(PAGE)},
}
EVERY: Final = [entity for module in MODULES for entity in module.catalog.entities]
each_entity: Final = pytest.mark.parametrize("entity", EVERY, ids=str)
EXAMPLES: Final[tuple[ModuleExamples, ...]] = (SCHEDULER_EXAMPLES, TRACKING_EXAMPLES, TASKRUNNER_EXAMPLES)
TITLES: Final = {"scheduler": "Scheduler", "tracking": "Tracking", "taskrunner": "Task runner"}
COLUMNS: Final = """
SELECT column_name, data_type, udt_name, datetime_precision, collation_name, is_nullable
FROM information_schema.columns WHERE table_schema = %s AND table_name = %s ORDER BY ordinal_position
"""
Connection = psycopg.Connection[tuple[Any, ...]]


@pytest.fixture(scope="module")
def owner(postgres_server: PostgresServer) -> Iterator[Connection]:
    with postgres_server.empty_database() as database:
        migrate(for_every_module(database.config, "Postgres"))
        with closing(psycopg.connect(database.owner_url, autocommit=True)) as connection:
            yield connection


@pytest.fixture(scope="module")
def mongo_settings(mongo_server: MongoServer) -> Iterator[tuple[Settings, MongoDatabase]]:
    with mongo_server.database() as database:
        settings = for_every_module(database.config, "Mongo")
        migrate(settings)
        yield settings, database


@pytest.fixture(scope="module")
def mongo(mongo_settings: tuple[Settings, MongoDatabase]) -> Iterator[Any]:
    _, database = mongo_settings
    with closing(MongoClient[dict[str, Any]](database.url)) as client:
        yield client[database.name]


def rows_of(part: str) -> list[list[str]]:
    """Return the cells of a table of a part, without head and code marks."""
    lines = [line for line in PARTS[part].splitlines() if line.startswith("| `")]
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]


def items_of(part: str, title: str) -> dict[str, str]:
    """Return the entries of a list of a part by name."""
    listed = PARTS[part].partition(f"{title}:\n\n")[2].partition("\n\n")[0]
    return dict(re.findall(r"^- `(\w+)`(.*)$", listed, re.MULTILINE))


MICROSECONDS: Final = 6


def wanted_type(kind: str, udt: str, precision: int | None, collation: str | None) -> str:
    """Spell a type of the information schema as the page does."""
    # Microseconds are what a column without a precision has.
    instant = "timestamptz" if precision == MICROSECONDS else f"timestamptz({precision})"
    element = {"_text": "text[]", "_int4": "integer[]", "timestamptz": instant}.get(udt, kind)
    return f'{element} COLLATE "{collation}"' if collation else element


def test_every_entity_has_its_section_in_the_order_of_the_catalog() -> None:
    assert re.findall(r"^###+ (3\..*)$", PAGE, re.MULTILINE) == [
        title
        for number, module in enumerate(MODULES, 1)
        for title in (
            f"3.{number} {TITLES[module.name]}",
            *(f"3.{number}.{place} {entity.name}" for place, entity in enumerate(module.catalog.entities, 1)),
        )
    ]


OLD: Final = "`Scheduler:Storage:RunRetentionDays` after `updatedAt`"
AGED: Final = Retention(field="updatedAt", option="run_retention_days", where=(IsNull("nextFireAt"),))


@pytest.mark.parametrize(
    ("entity", "text"),
    [
        (SCHEDULES, "none"),
        (TRIGGERS, "with their schedule"),
        (AUDIT, "none; append-only"),
        (RUNS, "`Scheduler:Storage:RunRetentionDays` after `finishedAt`"),
        (
            replace(RUNS, append_only=True),
            "`Scheduler:Storage:RunRetentionDays` after `finishedAt`; append-only",
        ),
        (replace(TRIGGERS, retention=AGED), f"{OLD}, depending on `nextFireAt`; with their schedule"),
    ],
)
def test_the_retention_of_an_entity_is_that_of_its_description(entity: Entity, text: str) -> None:
    assert retention(entity) == text


@each_entity
def test_the_model_is_named_in_the_table_and_in_the_section(entity: Entity) -> None:
    kinds = ["GraphBuildJob", "GraphOverlayJob"]
    names = kinds if entity.name == GRAPH_JOBS.name else [entity.model.__name__]
    links = ", ".join(f"[`{name}`](api-{entity.module}.md#{name.lower()})" for name in names)
    assert re.search(rf"^\| \[{entity.name}\]\(#[\w-]+\) \| {re.escape(links)} \| ", PAGE, re.MULTILINE)
    assert re.search(rf"^#### [\d.]+ {entity.name}\n\nModel: {re.escape(links)}\.$", PAGE, re.MULTILINE)


@each_entity
def test_the_columns_are_those_of_the_table(owner: Connection, entity: Entity) -> None:
    wanted = [
        [f"`{column}`", f"`{wanted_type(kind, udt, precision, collation)}`", nullable.lower()]
        for column, kind, udt, precision, collation, nullable in owner.execute(
            COLUMNS, [entity.module, entity.name]
        )
    ]
    assert wanted
    assert [row[:3] for row in rows_of(f"postgres.{entity.module}.{entity.name}")] == wanted


@each_entity
def test_the_indexes_and_ages_are_those_of_the_collection(mongo: Any, entity: Entity) -> None:  # noqa: ANN401  # a pymongo database
    name = entity.collection
    found, listed = mongo[name].index_information(), items_of(f"mongo.{name}", "Indexes")
    assert set(found) == set(listed)
    for index, content in found.items():
        keys = ", ".join(f"{field}: {direction}" for field, direction in content["key"])
        assert f"`{{{keys}}}`" in listed[index]
        assert ("unique" in listed[index]) == content.get("unique", False)
        assert ("sparse" in listed[index]) == content.get("sparse", False)
        assert ("where" in listed[index]) == ("partialFilterExpression" in content)
        seconds = re.findall(r"TTL ([\d,]+) seconds", listed[index])
        age = content.get("expireAfterSeconds")
        assert [int(text.replace(",", "")) for text in seconds] == ([] if age is None else [age])


@each_entity
def test_the_validator_is_that_of_the_collection(mongo: Any, entity: Entity) -> None:  # noqa: ANN401  # a pymongo database
    name = entity.collection
    options = mongo[name].options()
    schema = options["validator"]["$jsonSchema"]
    top = {
        row[0].strip("`"): row for row in rows_of(f"mongo.{name}") if "." not in row[0] and "[" not in row[0]
    }
    assert set(top) == set(schema["properties"])
    assert {field for field, row in top.items() if row[2] == "yes"} == set(schema["required"])
    assert (options["validationLevel"], options["validationAction"]) == ("strict", "error")


def test_the_internal_fields_of_documents_are_named(
    mongo: Any,  # noqa: ANN401  # a pymongo database
    mongo_settings: tuple[Settings, MongoDatabase],
    tenant: str,
) -> None:
    with open_storage(mongo_settings[0]) as storage:
        for examples in EXAMPLES:
            examples.store_each(storage.module(examples.module.name).unbound, tenant, f"x@{tenant}")
    documents = {entity.name: list(mongo[entity.collection].find()) for entity in EVERY}
    stored = {
        name: {field for document in found for field in document if field.startswith("_")}
        for name, found in documents.items()
    }
    internal = set[str]().union(*stored.values())
    assert {"_id", "_version", "_runId"} <= internal
    assert {field for field in internal if f"`{field}`" not in PAGE.partition("## 3. ")[0]} == set()
    listed = {row[0]: set(re.findall(r"`(\w+)`", " ".join(row[1:]))) for row in rows_of("internal-fields")}
    for name, found in stored.items():
        assert found - {"_id"} <= listed.get(f"`{name}`", set()), name
    told = {row[0].strip("`"): row[1:] for row in rows_of("document-ids")}
    for entity in EVERY:
        check_identity(mongo[entity.collection], documents[entity.name], *told[entity.name])


def check_identity(
    collection: Any,  # noqa: ANN401  # a pymongo collection
    documents: list[dict[str, Any]],
    identity: str,
    key: str,
) -> None:
    """Compare what the page says of an ``_id`` and of what finds the key with documents and indexes."""
    assert documents, collection.name
    assert {"ObjectId" in identity} == {isinstance(item["_id"], ObjectId) for item in documents}
    names = re.findall(r"\w+", identity)
    for document in documents if "<" in identity else ():
        parts = [str(document[name]) for name in names]
        assert document["_id"] in {":".join(parts), "".join(f":{len(part)}:{part}" for part in parts)}
    if key == "`_id` itself":
        assert not any(identity.strip("`") in document for document in documents)
        return
    *fields, index = re.findall(r"`(\w+)`", key.partition(";")[0])
    content = collection.index_information()[index]
    assert (content["unique"], [field for field, _ in content["key"]]) == (True, fields)
