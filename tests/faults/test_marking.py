"""Rows that somebody else holds are passed over by a claim, which takes the next ones."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, cast

import psycopg

import twinstore
from twinstore.scheduler import queries
from twinstore.scheduler.catalog import WORKERS
from twinstore.scheduler.workers import WorkerStatus
from twinstore.testing.instants import at
from twinstore.testing.scheduler.examples import make_worker

if TYPE_CHECKING:
    from tests.databases import PostgresDatabase
    from twinstore.access.protocol import Access

MINUTE = timedelta(minutes=1)


def test_a_claim_of_several_states_passes_over_locked_rows(postgres_database: PostgresDatabase) -> None:
    with (
        twinstore.add_scheduler_postgres_storage(postgres_database.config) as storage,
        psycopg.connect(postgres_database.superuser_url) as rival,
    ):
        for number, name in enumerate("abc"):
            storage.workers.register(make_worker("acme", name, last_heartbeat_at=at(number)))
        rival.execute("SELECT FROM scheduler.workers WHERE id = 'a' FOR UPDATE")
        access = cast("Access", vars(storage.workers)["_access"])  # no repository marks one row at a time
        query = queries.dead_workers(at() + 10 * MINUTE, MINUTE, limit=1)
        marked = access.mark(WORKERS, query, {"status": WorkerStatus.DEAD.value})
        assert [row.model.id for row in marked] == ["b"]
