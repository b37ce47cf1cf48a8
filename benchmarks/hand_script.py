"""The script that a good engineer writes in a day: two processes, COPY into a stage, comparison in key order.

    python -m benchmarks.hand_script copy|verify MONGO_URL DATABASE POSTGRES_URL

It has no ledger, no checks of values and no row-level security: it connects as superuser.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from datetime import datetime
from functools import partial
from itertools import islice
from operator import itemgetter
from time import perf_counter
from typing import Any, Final, NamedTuple

import psycopg
from psycopg.types.json import Jsonb
from pymongo import MongoClient

__all__ = ["FILL", "MERGE", "STAGE", "Part", "copy", "verify"]

BATCH: Final = 5000
TRIGGERS: Final = ("cron", "manual", "concelier", "excititor", "policy", "content-refresh")
STATES: Final = ("planning", "queued", "running", "completed", "error", "cancelled")
NAMES: Final = (
    "id, tenant_id, schema_version, schedule_id, error, retry_of, trigger, state, stats, reason, deltas, "
    "created_at, started_at, finished_at"
)
TYPES: Final = (*["text"] * 6, *["int2"] * 2, *["jsonb"] * 3, *["timestamptz"] * 3)
STAGE: Final = "CREATE TEMP TABLE stage (LIKE scheduler.runs INCLUDING DEFAULTS) ON COMMIT DELETE ROWS"
FILL: Final = f"COPY stage ({NAMES}) FROM STDIN (FORMAT BINARY)"
# Afterwards the table holds every document of the batch with its present content.
MERGE: Final = f"""
INSERT INTO scheduler.runs ({NAMES}) SELECT {NAMES} FROM stage
ON CONFLICT (id) DO UPDATE SET
    tenant_id = excluded.tenant_id, schema_version = excluded.schema_version,
    schedule_id = excluded.schedule_id, error = excluded.error, retry_of = excluded.retry_of,
    trigger = excluded.trigger, state = excluded.state, stats = excluded.stats, reason = excluded.reason,
    deltas = excluded.deltas, created_at = excluded.created_at, started_at = excluded.started_at,
    finished_at = excluded.finished_at
"""  # noqa: S608  # constants
SELECT: Final = f"SELECT {NAMES} FROM scheduler.runs WHERE id >= %s AND id < %s ORDER BY id"  # noqa: S608  # constants
HIGHEST: Final = "\U0010ffff"

Document = dict[str, Any]
Row = tuple[Any, ...]


class Part(NamedTuple):
    """Where the documents are, where the rows are, and the half of the keys that a process takes."""

    mongo_url: str
    database: str
    postgres_url: str
    lower: str
    upper: str

    def documents(self) -> Iterator[Document]:
        """Yield the documents in the order of their keys."""
        client: MongoClient[Document] = MongoClient(self.mongo_url, tz_aware=True)
        keys = {"_id": {"$gte": self.lower, "$lt": self.upper}}
        with client, client[self.database]["runs"].find(keys, batch_size=BATCH).sort("_id") as found:
            yield from found

    def connect(self) -> psycopg.Connection:
        """Connect to PostgreSQL; instants come back in UTC."""
        return psycopg.connect(self.postgres_url, options="-c timezone=UTC")


def copy(part: Part) -> tuple[int, int]:
    """Copy the documents of a part; return how many, and no difference."""
    documents, copied = part.documents(), 0
    with part.connect() as connection, connection.cursor() as cursor:
        cursor.execute(STAGE)
        connection.commit()
        while batch := list(islice(documents, BATCH)):
            with cursor.copy(FILL) as stage:
                stage.set_types(TYPES)
                for document in batch:
                    stage.write_row(row_of(document, stored_json))
            cursor.execute(MERGE)
            connection.commit()
            copied += len(batch)
    return copied, 0


def verify(part: Part) -> tuple[int, int]:
    """Compare both sides of a part; return how many rows are equal, and how many are not."""
    equal = different = 0
    with part.connect() as connection, connection.cursor("rows", binary=True) as cursor:
        cursor.itersize = BATCH
        cursor.execute(SELECT, [part.lower, part.upper])
        rows, wanted = iter(cursor), (row_of(document, plain) for document in part.documents())
        found, row = next(wanted, None), next(rows, None)
        while found is not None or row is not None:
            if found == row:
                equal += 1
                found, row = next(wanted, None), next(rows, None)
                continue
            different += 1
            # Whose key is lower has no partner; with one key both sides go on.
            lower = min(filter(None, (found, row)), key=itemgetter(0))[0]
            if found is not None and found[0] == lower:
                found = next(wanted, None)
            if row is not None and row[0] == lower:
                row = next(rows, None)
    return equal, different


def row_of(document: Document, as_json: Any) -> Row:  # noqa: ANN401  # what makes JSON of a value
    """Return the columns of a document."""
    reason = document.get("reason")
    return (
        document["_id"],
        document["tenantId"],
        document["schemaVersion"],
        document.get("scheduleId"),
        document.get("error"),
        document.get("retryOf"),
        TRIGGERS.index(document["trigger"]),
        STATES.index(document["state"]),
        as_json(document["stats"]),
        None if reason is None else as_json(reason),
        as_json(document.get("deltas", [])),
        document["createdAt"],
        document.get("startedAt"),
        document.get("finishedAt"),
    )


def text_of(value: datetime) -> str:
    """Return an instant as the JSON columns hold it."""
    return value.isoformat(timespec="milliseconds" if value.microsecond else "seconds")


stored_json = partial(Jsonb, dumps=partial(json.dumps, default=text_of))


def plain(value: Any) -> Any:  # noqa: ANN401  # JSON of any kind
    """Return a value as JSON has it."""
    if isinstance(value, datetime):
        return text_of(value)
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    return [plain(item) for item in value] if isinstance(value, list) else value


def main() -> None:
    """Do what the command line says, in two processes; print the counts and the seconds as JSON."""
    began = perf_counter()
    command, mongo_url, database, postgres_url = sys.argv[1:]
    with MongoClient[Document](mongo_url) as client:
        runs = client[database]["runs"]
        half = runs.estimated_document_count() // 2
        middle = next(iter(runs.find({}, {"_id": 1}).sort("_id").skip(half).limit(1)), {"_id": ""})["_id"]
    parts = [Part(mongo_url, database, postgres_url, *bounds) for bounds in (("", middle), (middle, HIGHEST))]
    with ProcessPoolExecutor(2) as pool:
        results = list(pool.map({"copy": copy, "verify": verify}[command], parts))
    units, different = map(sum, zip(*results, strict=True))
    print(json.dumps({"units": units, "different": different, "seconds": perf_counter() - began}))


if __name__ == "__main__":
    main()
