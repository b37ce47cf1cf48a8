"""What the migrations of tracking make on a real MongoDB: indexes and validators."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

import pytest
from pymongo import MongoClient
from pymongo.errors import DuplicateKeyError, WriteError

import twinstore
from tests.support.modules import settings_of, tracking_on
from twinstore.errors import ConsentRequiredError
from twinstore.testing.tracking.builders import make_machine, make_session, make_task, put_record
from twinstore.tracking.catalog import MACHINES, SESSIONS, TASKS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pymongo.database import Database

    from tests.support.databases import MongoServer

Document = dict[str, Any]
Keys = list[tuple[str, int]]
ENDED: Final[Document] = {"completed_at": {"$exists": True}, "status": {"$in": ["completed", "failed"]}}
THIRTY_DAYS: Final = 2_592_000
# The customer's document, word for word: what must be there exactly so.
FIXED: Final[dict[str, list[tuple[Keys, Document]]]] = {
    "sessions": [
        ([("session_id", 1)], {"unique": True}),
        ([("project_id", 1)], {}),
        ([("machine_id", 1)], {}),
        ([("status", 1)], {}),
        ([("last_heartbeat", 1)], {}),
        ([("project_id", 1), ("status", 1)], {}),
        ([("machine_id", 1), ("status", 1)], {}),
        ([("completed_at", 1)], {"expireAfterSeconds": THIRTY_DAYS, "partialFilterExpression": ENDED}),
    ],
    "tasks": [
        ([("task_id", 1)], {"unique": True}),
        ([("session_id", 1)], {}),
        ([("project_id", 1)], {}),
        ([("status", 1)], {}),
        ([("session_id", 1), ("status", 1)], {}),
        ([("project_id", 1), ("status", 1)], {}),
        ([("completed_at", 1)], {"expireAfterSeconds": THIRTY_DAYS, "partialFilterExpression": ENDED}),
    ],
    "machines": [
        ([("machine_id", 1)], {"unique": True}),
        ([("status", 1)], {}),
        ([("last_heartbeat", 1)], {}),
    ],
}
# Our further indexes, each for a list that would sort or scan the collection otherwise.
LATEST: Final = [("started_at", -1), ("session_id", 1)]
OLDEST: Final = [("created_at", 1), ("task_id", 1)]
BESIDE: Final[dict[str, list[Keys]]] = {
    "sessions": [
        LATEST,
        *([(name, 1), *LATEST] for name in ("status", "project_id", "machine_id")),
        [("project_id", 1), ("status", 1), *LATEST],
        [("machine_id", 1), ("status", 1), *LATEST],
        [("status", 1), ("last_heartbeat", 1), ("session_id", 1)],
    ],
    "tasks": [
        OLDEST,
        *([(name, 1), *OLDEST] for name in ("status", "session_id", "project_id")),
        [("session_id", 1), ("status", 1), *OLDEST],
        [("project_id", 1), ("status", 1), *OLDEST],
    ],
    "machines": [[("status", 1), ("machine_id", 1)]],
}
REQUIRED: Final[dict[str, set[str]]] = {
    "sessions": {"session_id", "project_id", "machine_id", "status", "last_heartbeat", "started_at"},
    "tasks": {"task_id", "session_id", "project_id", "task_name", "status"},
    "machines": {"machine_id", "hostname", "status", "last_heartbeat"},
}
AUTOMATIC: Final = {"created_at", "updated_at"}


@pytest.fixture(scope="module")
def database(mongo_server: MongoServer) -> Iterator[Database[Document]]:
    """Migrate tracking, store one row of each kind, and open the database past the library."""
    with (
        mongo_server.database() as fresh,
        tracking_on(settings_of(fresh.url, fresh.name)) as storage,
        MongoClient[Document](fresh.url, appname="twinstore") as client,
    ):
        unbound = storage.unbound
        put_record(unbound, "tracking_sessions", SESSIONS, make_session("", "s"))
        put_record(unbound, "tasks", TASKS, make_task("", "t"))
        put_record(unbound, "machines", MACHINES, make_machine("", "m"))
        yield client[fresh.name]


@pytest.mark.parametrize("collection", FIXED)
def test_the_indexes_are_the_customers_and_those_of_ours(
    database: Database[Document], collection: str
) -> None:
    found = database[collection].index_information()
    assert found.pop("_id_")["key"] == [("_id", 1)]
    real = {
        tuple(index["key"]): {name: value for name, value in index.items() if name not in {"key", "v"}}
        for index in found.values()
    }
    wanted = {tuple(keys): options for keys, options in FIXED[collection]}
    assert real == wanted | {tuple(keys): {} for keys in BESIDE[collection]}
    assert len(real) == len(found)
    assert all(name.startswith(("ix_", "ux_", "ttl_")) for name in found)


@pytest.mark.parametrize("collection", FIXED)
def test_a_document_has_the_customers_names_and_a_generated_id(
    database: Database[Document], collection: str
) -> None:
    (document,) = database[collection].find()
    assert type(document["_id"]).__name__ == "ObjectId"
    assert not [name for name in document if name != name.lower()]
    assert REQUIRED[collection] | AUTOMATIC <= document.keys()


@pytest.mark.parametrize(
    ("collection", "name"),
    [(collection, name) for collection, names in REQUIRED.items() for name in sorted(names)],
)
def test_the_server_refuses_a_document_without_a_required_field(
    database: Database[Document], collection: str, name: str
) -> None:
    document = database[collection].find_one({}, {"_id": 0})
    assert document is not None
    del document[name]
    if not name.endswith(f"{collection[:-1]}_id"):
        document[f"{collection[:-1]}_id"] = "another"
    with pytest.raises(WriteError, match="Document failed validation"):
        database[collection].insert_one(document)


@pytest.mark.parametrize("collection", FIXED)
def test_the_server_refuses_an_unknown_status_and_a_second_document_of_an_id(
    database: Database[Document], collection: str
) -> None:
    document = database[collection].find_one({}, {"_id": 0})
    assert document is not None
    with pytest.raises(DuplicateKeyError):
        database[collection].insert_one(dict(document))
    with pytest.raises(WriteError, match="Document failed validation"):
        database[collection].insert_one({**document, f"{collection[:-1]}_id": "b", "status": "asleep"})
    database[collection].insert_one({**document, f"{collection[:-1]}_id": "b", "anything": {"else": [1]}})
    assert database[collection].delete_one({f"{collection[:-1]}_id": "b"}).deleted_count == 1


@pytest.mark.parametrize("days", [7, 90])
def test_an_age_under_the_name_that_mongoose_gives_is_brought_in_line(
    mongo_server: MongoServer, days: int
) -> None:
    expiry = {"completed_at": {"$exists": True}, "status": {"$in": ["completed", "failed"]}}
    with mongo_server.database() as fresh, MongoClient[Document](fresh.url, appname="twinstore") as client:
        sessions = client[fresh.name]["sessions"]
        sessions.create_index("completed_at", expireAfterSeconds=days * 86400, partialFilterExpression=expiry)
        ended = datetime.now(UTC) - timedelta(days=60)
        settings = settings_of(fresh.url, fresh.name)
        with twinstore.add_tracking_storage(settings) as storage:
            if days > 30:  # then a shorter age removes rows
                sessions.insert_one({"session_id": "s", "status": "completed", "completed_at": ended})
                with pytest.raises(ConsentRequiredError, match="remove"):
                    storage.initializer.ensure_migrations()
                sessions.delete_many({})
            storage.initializer.ensure_migrations()
            assert storage.initializer.verify() == ()
        found = {
            name: index.get("expireAfterSeconds") for name, index in sessions.index_information().items()
        }
    assert found["completed_at_1"] == 30 * 86400
    assert "ttl_completed_at" not in found
