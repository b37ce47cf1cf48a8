"""The script that a typical engineer writes: find, then executemany upsert in batches of 1,000."""

from __future__ import annotations

import json
from contextlib import closing
from datetime import datetime
from functools import partial
from itertools import islice
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final

from psycopg.types.json import Jsonb

from benchmarks.schedule import Sample

if TYPE_CHECKING:
    from benchmarks.databases import BenchmarkDatabases

__all__ = ["typical_script"]

BATCH: Final = 1000
TRIGGERS: Final = ("cron", "manual", "concelier", "excititor", "policy", "content-refresh")
STATES: Final = ("planning", "queued", "running", "completed", "error", "cancelled")
# Afterwards the table holds every document of the batch with its present content.
UPSERT: Final = """
INSERT INTO scheduler.runs (id, tenant_id, schema_version, schedule_id, error, retry_of, trigger, state,
                            stats, reason, deltas, created_at, started_at, finished_at)
VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s)
ON CONFLICT (id) DO UPDATE SET
    tenant_id = excluded.tenant_id, schema_version = excluded.schema_version,
    schedule_id = excluded.schedule_id, error = excluded.error, retry_of = excluded.retry_of,
    trigger = excluded.trigger, state = excluded.state, stats = excluded.stats, reason = excluded.reason,
    deltas = excluded.deltas, created_at = excluded.created_at, started_at = excluded.started_at,
    finished_at = excluded.finished_at
"""


def typical_script(databases: BenchmarkDatabases) -> Sample:
    """Copy the runs; superuser and no ledger, which favours the script."""
    began = perf_counter()
    copied = 0
    with closing(databases.superuser()) as connection:
        connection.autocommit = False
        documents = databases.runs().find()
        while batch := list(islice(documents, BATCH)):
            with connection.cursor() as cursor:
                cursor.executemany(UPSERT, [_row(document) for document in batch])
            connection.commit()
            copied += len(batch)
    return Sample(units=copied, seconds=perf_counter() - began)


def _row(document: dict[str, Any]) -> tuple[object, ...]:
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
        _jsonb(document["stats"]),
        None if reason is None else _jsonb(reason),
        _jsonb(document.get("deltas", [])),
        document["createdAt"],
        document.get("startedAt"),
        document.get("finishedAt"),
    )


def _instant(value: datetime) -> str:
    # pymongo decodes to naive UTC by default; PostgreSQL reads those in its time zone, which is UTC here.
    return value.isoformat(timespec="milliseconds" if value.microsecond else "seconds") + "+00:00"


_jsonb = partial(Jsonb, dumps=partial(json.dumps, default=_instant))
