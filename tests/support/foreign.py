"""A scheduler that another service wrote: plain documents and rows, without anything of this library."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

import bson
from bson.codec_options import CodecOptions
from bson.raw_bson import RawBSONDocument

from twinstore.scheduler.enums import RunState
from twinstore.testing.instants import at
from twinstore.testing.scheduler.builders import (
    make_impact_set,
    make_run,
    make_schedule,
    make_trigger,
    moved,
    rich_run_summary,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pymongo import MongoClient
    from pymongo.collection import Collection
    from pymongo.database import Database

Document = dict[str, Any]
RAW: Final = CodecOptions(document_class=RawBSONDocument)
# Of a server whose writes are counted: else it keeps a list of sessions, every five minutes.
NO_OWN_WRITES: Final = {"disableLogicalSessionCacheRefresh": "true"}
COMMANDS_THAT_WRITE: Final = (
    "insert",
    "update",
    "delete",
    "findAndModify",
    "bulkWrite",
    "create",
    "createIndexes",
    "collMod",
    "drop",
    "dropDatabase",
    "dropIndexes",
    "renameCollection",
    "convertToCapped",
    "applyOps",
)


def plain(value: Any) -> Any:  # noqa: ANN401  # any part of a wire form
    """Return a value as a program that knows no models would store it."""
    if isinstance(value, dict):
        return {name: plain(item) for name, item in value.items()}
    if isinstance(value, tuple):
        return [plain(item) for item in value]
    return str(value) if isinstance(value, str) else value


def document(wire: Mapping[str, Any], **changes: Any) -> Document:  # noqa: ANN401  # any stored value
    """Return the document of a wire form, with its id where MongoDB has it."""
    whole = plain(dict(wire))
    key = {"_id": whole.pop("id")} if "id" in whole else {}
    return {**key, **whole, **changes}


def foreign_runs(tenant: str, count: int, *, ended: datetime | None = None) -> list[Document]:
    """Return runs; those that have ``ended`` did so at that instant."""
    runs = [make_run(tenant, f"{tenant}-{number:03}", created_at=at(number)) for number in range(count)]
    if ended is None:
        return [document(run.wire()) for run in runs]
    done = (moved(run, RunState.CANCELLED) for run in runs)
    start = ended - timedelta(hours=1)
    return [document(run.wire(), createdAt=start, finishedAt=ended) for run in done]


def fill_with_pymongo(database: Database[Document], tenants: Iterable[str] = ("acme", "umbrella")) -> None:
    """Write a scheduler by plain inserts: without audit records, without an index of ours.

    The service has its own validator and index, and runs that our retention would remove.
    """
    database.create_collection(
        "runs", validator={"tenantId": {"$exists": True}}, validationLevel="moderate", validationAction="warn"
    )
    database["runs"].create_index([("state", -1)], name="theirs")
    long_ago = datetime.now(UTC).replace(microsecond=0) - timedelta(days=400)
    for tenant in tenants:
        schedules = [make_schedule(tenant, f"{tenant}-s-{number}") for number in range(3)]
        database["schedules"].insert_many(document(item.wire()) for item in schedules)
        triggers = [make_trigger(tenant, item.id) for item in schedules]
        database["triggers"].insert_many(document(item.wire()) for item in triggers)
        database["runs"].insert_many(foreign_runs(tenant, 25))
        database["runs"].insert_many(foreign_runs(f"old-{tenant}", 5, ended=long_ago))
        snapshot = {"_id": f"{tenant}-snap", "_tenantId": tenant, "_selectorDigest": "sha256:0"}
        database["impact_snapshots"].insert_one({**snapshot, **document(make_impact_set().wire())})
        # The key of a summary is not its _id, so only an index of ours would have it in order.
        summaries = [rich_run_summary(tenant, f"s-{number}") for number in (3, 1, 2)]
        database["run_summaries"].insert_many(document(item.wire()) for item in summaries)
    database["orders"].insert_one({"_id": 1, "of": "the same service"})


def insert(collection: Collection[Document], documents: Iterable[Document]) -> None:
    """Insert any number of documents, which are never in memory at once."""
    waiting = iter(documents)
    while batch := list(islice(waiting, 5000)):
        collection.insert_many(batch)


@dataclass(frozen=True, slots=True)
class Footprint:
    """Everything that a reader must leave as it is."""

    content: dict[str, list[bytes]]
    indexes: dict[str, Document]
    collections: list[Document]
    databases: list[str]
    writes: dict[str, int]
    oplog: int


def footprint(admin: MongoClient[Document], name: str) -> Footprint:
    """Look at a database with the eyes of an administrator; writes nothing itself."""
    database = admin[name]
    collections = sorted(database.list_collections(), key=lambda item: str(item["name"]))
    names = [item["name"] for item in collections if item["type"] == "collection"]
    return Footprint(
        content={each: raw_content(database[each]) for each in names},
        indexes={each: dict(database[each].index_information()) for each in names},
        collections=[bson.decode(bson.encode(item)) for item in collections],
        databases=sorted(admin.list_database_names()),
        writes=counted_writes(admin),
        oplog=admin["local"]["oplog.rs"].count_documents({"ns": {"$regex": f"^{name}\\."}}),
    )


def raw_content(collection: Collection[Document]) -> list[bytes]:
    """Return the bytes of every document in the order of storage."""
    found = collection.with_options(codec_options=RAW).find().sort("$natural", 1)
    return [bytes(item.raw) for item in found]


def counted_writes(admin: MongoClient[Document]) -> dict[str, int]:
    """Return how often the server wrote, by kind of operation and by command; see ``NO_OWN_WRITES``."""
    status = admin.admin.command("serverStatus")
    commands = status["metrics"]["commands"]
    return {kind: status["opcounters"][kind] for kind in ("insert", "update", "delete")} | {
        f"command {command}": commands.get(command, {}).get("total", 0) for command in COMMANDS_THAT_WRITE
    }
