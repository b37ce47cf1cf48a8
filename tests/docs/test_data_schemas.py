"""What the data schemas say is what `ensure_migrations()` creates; asked here in another way than there."""

from __future__ import annotations

import re
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import psycopg
import pytest
from pymongo import MongoClient

from docs.generate import PART
from docs.parts.entities import identity, retention
from tests.docs.pages import DOCS
from twinstore import open_storage
from twinstore.catalog import Entity, Retention
from twinstore.query import IsNull
from twinstore.scheduler.catalog import AUDIT, RUNS, SCHEDULER, SCHEDULES, TRIGGERS
from twinstore.testing.entities import SCANS
from twinstore.testing.scheduler.examples import SCHEDULER_EXAMPLES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.databases import MongoDatabase, PostgresDatabase

PAGE: Final = (DOCS / "11_DATA_SCHEMAS.md").read_text("utf-8")
# What the page says of one collection or table, up to the next one, the next heading or the end of the part.
PIECE: Final = re.compile(
    r"^(?P<store>MongoDB collection|PostgreSQL table) `(?:\w+\.)?(?P<name>\w+)`:\n(?P<body>.*?)"
    r"(?=^MongoDB collection |^PostgreSQL table |^#|^<!-- )",
    re.DOTALL | re.MULTILINE,
)
PREFIXES: Final = {"MongoDB collection": "mongo", "PostgreSQL table": "postgres"}
PARTS: Final = {
    **{match["name"]: match["body"] for match in PART.finditer(PAGE)},
    **{f"{PREFIXES[match['store']]}.{match['name']}": match["body"] for match in PIECE.finditer(PAGE)},
}
ENTITIES: Final = [entity.name for entity in SCHEDULER.entities]
SECONDS_PER_DAY: Final = 86_400
COLUMNS: Final = """
SELECT column_name, data_type, udt_name, datetime_precision, collation_name, is_nullable
FROM information_schema.columns WHERE table_schema = 'scheduler' AND table_name = %s ORDER BY ordinal_position
"""
Connection = psycopg.Connection[tuple[Any, ...]]


@pytest.fixture(scope="module")
def owner(module_postgres_database: PostgresDatabase) -> Iterator[Connection]:
    with closing(psycopg.connect(module_postgres_database.owner_url, autocommit=True)) as connection:
        yield connection


@pytest.fixture(scope="module")
def mongo(module_mongo_database: MongoDatabase) -> Iterator[Any]:
    with closing(MongoClient[dict[str, Any]](module_mongo_database.url)) as client:
        yield client[module_mongo_database.name]


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
    element = {"_text": "text[]", "timestamptz": instant}.get(udt, kind)
    return f'{element} COLLATE "{collation}"' if collation else element


def test_every_entity_has_its_section_in_the_order_of_the_catalog() -> None:
    assert re.findall(r"^#+ (3\.1\b.*)$", PAGE, re.MULTILINE) == [
        "3.1 Scheduler",
        *(f"3.1.{number} {name}" for number, name in enumerate(ENTITIES, 1)),
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


@pytest.mark.parametrize("name", ENTITIES)
def test_the_columns_are_those_of_the_table(owner: Connection, name: str) -> None:
    wanted = [
        [f"`{column}`", f"`{wanted_type(kind, udt, precision, collation)}`", nullable.lower()]
        for column, kind, udt, precision, collation, nullable in owner.execute(COLUMNS, [name])
    ]
    assert wanted
    assert [row[:3] for row in rows_of(f"postgres.{name}")] == wanted


@pytest.mark.parametrize("name", ENTITIES)
def test_the_indexes_and_constraints_are_those_of_the_table(owner: Connection, name: str) -> None:
    statement = "SELECT indexname, indexdef FROM pg_indexes WHERE schemaname = 'scheduler' AND tablename = %s"
    found: dict[str, str] = dict(owner.execute(statement, [name]).fetchall())
    indexes, constraints = (items_of(f"postgres.{name}", title) for title in ("Indexes", "Constraints"))
    keys = {each for each, text in constraints.items() if re.search("`(PRIMARY KEY|UNIQUE) ", text)}
    assert set(found) == set(indexes) | keys
    for index, text in indexes.items():
        assert found[index].endswith(re.findall(r"`(.+)`$", text)[0])
        assert ("UNIQUE" in found[index]) == (" unique" in text)


@pytest.mark.parametrize("name", ENTITIES)
def test_row_level_security_is_forced_by_the_policy_that_is_named(owner: Connection, name: str) -> None:
    policies = owner.execute(
        "SELECT policyname FROM pg_policies WHERE schemaname = 'scheduler' AND tablename = %s", [name]
    ).fetchall()
    flags = owner.execute(
        "SELECT relrowsecurity AND relforcerowsecurity FROM pg_class WHERE oid = to_regclass(%s)",
        [f"scheduler.{name}"],
    ).fetchone()
    assert flags == (True,)
    assert [f"policy `{policy}`" in PARTS[f"postgres.{name}"] for (policy,) in policies] == [True]
    assert f"`{name}`" in PARTS["policies"]


def test_every_table_is_listed_and_no_other(owner: Connection) -> None:
    found = {
        name for (name,) in owner.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'scheduler'")
    }
    assert set(re.findall(r"PostgreSQL table `scheduler\.(\w+)`", PAGE)) == found


def test_every_collection_is_listed_and_no_other(mongo: Any) -> None:  # noqa: ANN401  # a pymongo database
    assert set(re.findall(r"MongoDB collection `(\w+)`", PAGE)) == set(mongo.list_collection_names())


@pytest.mark.parametrize("name", ENTITIES)
def test_the_indexes_and_ages_are_those_of_the_collection(mongo: Any, name: str) -> None:  # noqa: ANN401  # a pymongo database
    found, listed = mongo[name].index_information(), items_of(f"mongo.{name}", "Indexes")
    assert set(found) == set(listed)
    for index, content in found.items():
        keys = ", ".join(f"{field}: {direction}" for field, direction in content["key"])
        assert f"`{{{keys}}}`" in listed[index]
        assert ("unique" in listed[index]) == content.get("unique", False)
        assert ("where" in listed[index]) == ("partialFilterExpression" in content)
        seconds = re.findall(r"TTL ([\d,]+) seconds", listed[index])
        age = content.get("expireAfterSeconds")
        assert [int(text.replace(",", "")) for text in seconds] == ([] if age is None else [age])


def test_finished_runs_expire_after_the_default_age() -> None:
    assert f"TTL {180 * SECONDS_PER_DAY:,} seconds" in items_of("mongo.runs", "Indexes")["ttl_finishedAt"]


@pytest.mark.parametrize("name", ENTITIES)
def test_the_validator_is_that_of_the_collection(mongo: Any, name: str) -> None:  # noqa: ANN401  # a pymongo database
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
    module_mongo_database: MongoDatabase,
    tenant: str,
) -> None:
    with open_storage(module_mongo_database.config) as storage:
        SCHEDULER_EXAMPLES.store_each(storage.scheduler.unbound, tenant, f"x@{tenant}")
    stored = {
        name: {field for document in mongo[name].find() for field in document if field.startswith("_")}
        for name in ENTITIES
    }
    internal = set[str]().union(*stored.values())
    assert {"_id", "_version", "_runId"} <= internal
    assert {field for field in internal if f"`{field}`" not in PAGE.partition("## 3. ")[0]} == set()
    listed = {row[0]: set(re.findall(r"`(\w+)`", " ".join(row[1:]))) for row in rows_of("internal-fields")}
    for name, found in stored.items():
        assert found - {"_id"} <= listed.get(f"`{name}`", set()), name


def test_the_id_of_a_document_and_the_way_to_its_key_are_as_the_page_says(
    mongo: Any,  # noqa: ANN401  # a pymongo database
    module_mongo_database: MongoDatabase,
    tenant: str,
) -> None:
    with open_storage(module_mongo_database.config) as storage:
        SCHEDULER_EXAMPLES.store_each(storage.scheduler.unbound, tenant, f"x@{tenant}")
    for name in ENTITIES:
        said = re.search(rf" {name}\n.*?^(Documents have [^\n]*)$", PAGE, re.MULTILINE | re.DOTALL)
        assert said is not None
        document, told = mongo[name].find_one(), said[1]
        joined = [part for text in re.findall("joined as `(.+?)`", told) for part in text[1:-1].split(">:<")]
        if joined:
            assert document["_id"] == ":".join(str(document[part]) for part in joined)
        named = re.findall(r"unique index `(\w+)`", told)
        beside = [
            field
            for text in re.findall(r"((?:`\w+`, )*`\w+`) stands? beside", told)
            for field in re.findall(r"\w+", text)
        ]
        assert [bool(named)] == [bool(beside)]
        for index in named:
            content = mongo[name].index_information()[index]
            assert (content["unique"], [field for field, _ in content["key"]]) == (True, beside)
        if not named:
            (key,) = re.findall(r"the key `(\w+)` as `_id`", told)
            assert (type(document["_id"]), key in document) == (str, False)


def test_a_generated_id_is_told_with_what_finds_the_key() -> None:
    told = identity(SCANS)
    assert told.startswith("Documents have a generated ObjectId as `_id`")
    assert "`parcelId`, `sequence` stand beside it, and the unique index `ux_parcelId_sequence` finds" in told
    assert "as of a point in time" in told
