"""What earlier releases left on the servers: a dump with data of each, and how that release read it.

The dumps never change. The programs that made them ran once, on the code of those releases; `git log` of the
folder has them.
"""

from __future__ import annotations

import json
from functools import cache
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import psycopg
from bson import json_util
from pymongo import MongoClient

from twinstore.catalog.keys import KeyRange
from twinstore.catalog.tenancy import Tenant
from twinstore.models import json_text
from twinstore.scheduler.audit import AuditQueryOptions
from twinstore.scheduler.runs import RunQueryOptions
from twinstore.scheduler.schedules import ScheduleQueryOptions

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from datetime import datetime

    from tests.support.databases import MongoDatabase, PostgresDatabase
    from twinstore.access.paging import Page
    from twinstore.bulk.port import BulkPort
    from twinstore.catalog.entity import Entity
    from twinstore.ledger import CopyJob, Lease, Ledger, RangeProgress
    from twinstore.models.canonical import CanonicalModel
    from twinstore.scheduler.storage import SchedulerStorage

FOLDER: Final = Path(__file__).parents[1] / "schema" / "release_0_1_0"
EVERYTHING: Final = KeyRange()
PAGE: Final = 4
# The counts of a range as 0.1.0 stored them; a later release may know more.
TALLY: Final = ("read", "written", "unchanged", "conflicts", "quarantined", "expired", "text_timestamp")

Document: TypeAlias = dict[str, Any]


def restore_postgres(database: PostgresDatabase) -> None:
    """Make the schema of 0.1.0 with its data in an empty database; the roles of the tests must exist."""
    with psycopg.connect(database.superuser_url, autocommit=True) as connection:
        connection.execute((FOLDER / "postgres.sql").read_bytes())


@cache
def mongo_collections() -> tuple[Document, ...]:
    """Return the collections of 0.1.0: name, options, indexes, documents."""
    text = (FOLDER / "mongo.json").read_text(encoding="utf-8")
    return tuple(json_util.loads(text, json_options=json_util.CANONICAL_JSON_OPTIONS)["collections"])


def restore_mongo(database: MongoDatabase) -> None:
    """Make the collections of 0.1.0 with their validators, indexes and documents."""
    with MongoClient[Document](database.url) as client:
        target = client[database.name]
        for collection in mongo_collections():
            name = collection["name"]
            target.command({"create": name, **collection["options"]})
            # A store may hold documents that are older than its validators.
            target[name].insert_many(collection["documents"], bypass_document_validation=True)
            indexes = [index for index in collection["indexes"] if index["name"] != "_id_"]
            if indexes:
                target.command({"createIndexes": name, "indexes": indexes})


@cache
def expected() -> Document:
    """Return what 0.1.0 read from both servers; ``make.py`` next to the file says how it was made."""
    document: Document = json.loads((FOLDER / "expected.json").read_text(encoding="utf-8"))
    return document


def row_text(row: object) -> str:
    """Return a row as one line, in which the order of the properties counts."""
    return json.dumps(row, ensure_ascii=False, separators=(",", ":"))


def wire(model: CanonicalModel) -> Any:  # noqa: ANN401  # JSON
    """Return the canonical wire form of a model as JSON."""
    return json.loads(json_text.dumps(model.wire()))


def exported_rows(bulk: BulkPort, entity: Entity) -> list[Document]:
    """Return the rows of an entity as the bulk export reads them, in key order.

    A row that cannot be decoded has neither document nor markers.
    """
    with bulk.view() as view:
        return [
            {
                "key": list(record.key or ()),
                "tenant": record.owner.id if isinstance(record.owner, Tenant) else None,
                "document": None if record.model is None else wire(record.model),
                "storage": {} if record.model is None else markers(record.storage),
            }
            for record in chain.from_iterable(view.records(entity, EVERYTHING, batch_size=PAGE))
        ]


def markers(storage: Mapping[str, object]) -> Any:  # noqa: ANN401  # JSON
    """Return storage markers as JSON, by name."""
    return json.loads(json_text.dumps_sorted(dict(storage)))


def read_row(storage: SchedulerStorage, entity: str, row: Mapping[str, Any]) -> CanonicalModel | None:
    """Return a row as its repository reads it."""
    tenant, key, document = row["tenant"], row["key"], row["document"]
    readers: Mapping[str, Callable[[], CanonicalModel | None]] = {
        "schedules": lambda: storage.schedules.get(tenant, key[0], include_deleted=True),
        "triggers": lambda: storage.triggers.get(tenant, document["scheduleId"]),
        "runs": lambda: storage.runs.get(tenant, key[0]),
        "impact_snapshots": lambda: storage.impact_snapshots.get(tenant, key[0]),
        "audit": lambda: storage.audit.get(tenant, key[0]),
        "run_summaries": lambda: storage.run_summaries.get(tenant, key[1]),
    }
    return readers[entity]()


def listed(storage: SchedulerStorage, entity: str, tenant: str) -> list[Any]:
    """Return the whole list of a tenant in its order, page by page, as JSON."""
    found: list[Any] = []
    token: str | None = None
    while True:
        page = page_of(storage, entity, tenant, token)
        found += map(wire, page)
        token = page.next_page_token
        if token is None:
            return found


def page_of(storage: SchedulerStorage, entity: str, tenant: str, token: str | None) -> Page[Any]:
    """Return one page of a list, soft-deleted schedules included."""
    match entity:
        case "schedules":
            options = ScheduleQueryOptions(include_deleted=True, limit=PAGE, page_token=token)
            return storage.schedules.list(tenant, options)
        case "triggers":
            return storage.triggers.list(tenant, limit=PAGE, page_token=token)
        case "runs":
            return storage.runs.list(tenant, RunQueryOptions(limit=PAGE, page_token=token))
        case "impact_snapshots":
            return storage.impact_snapshots.list(tenant, limit=PAGE, page_token=token)
        case "audit":
            return storage.audit.list(tenant, AuditQueryOptions(limit=PAGE, page_token=token))
        case _:
            return storage.run_summaries.list(tenant, limit=PAGE, page_token=token)


def carried_over(job: Document) -> Document:
    """Return a job of 0.1.0 as a later ledger holds it.

    Ranges are numbered from 1, and none is in progress, because no worker of a later release holds one.
    """
    ranges = [{**item, "number": number} for number, item in enumerate(job["ranges"], 1)]
    closed = {"tally": None, "finished_at": None}
    return {
        **job,
        "ranges": [
            item if item["state"] == "live" else {**item, "state": "pending", **closed} for item in ranges
        ],
    }


def ledger_content(ledger: Ledger) -> list[Document]:
    """Return the jobs of a ledger, the latest start first, each with its lease and its ranges."""
    return [job_content(ledger, job) for job in ledger.jobs()]


def job_content(ledger: Ledger, job: CopyJob) -> Document:
    """Return one job as JSON."""
    return {
        "id": job.id,
        "settings": dict(sorted(job.settings.items())),
        "state": job.state.value,
        "generation": job.generation,
        "as_of": instant_text(job.as_of),
        "started_at": instant_text(job.started_at),
        "position": job.position,
        "lease": lease_content(ledger.lease(job.id)),
        "ranges": [range_content(item) for item in ledger.ranges(job.id)],
    }


def lease_content(lease: Lease | None) -> Document | None:
    """Return a lease as JSON."""
    if lease is None:
        return None
    return {"holder": lease.holder, "fence": lease.fence, "expires_at": instant_text(lease.expires_at)}


def range_content(item: RangeProgress) -> Document:
    """Return a range as JSON."""
    within, tally = item.within, item.tally
    return {
        "number": item.number,
        "entity": item.entity,
        "lower": None if within.lower is None else list(within.lower),
        "upper": None if within.upper is None else list(within.upper),
        "state": item.state.value,
        "tally": None
        if tally is None
        else {name: dict(sorted(getattr(tally, name).items())) for name in TALLY},
        "position": item.position,
        "finished_at": instant_text(item.finished_at),
    }


def instant_text(instant: datetime | None) -> str | None:
    """Return an instant as JSON has it."""
    return None if instant is None else json_text.format_timestamp(instant)
