"""A fault between job and event: neither is stored, on both servers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import psycopg
import pytest
from pymongo import MongoClient

import twinstore
from twinstore.errors import TwinstoreError
from twinstore.scheduler.enums import GraphJobStatus
from twinstore.testing.scheduler.graph_jobs import graph_moved, make_graph_build_job, make_graph_overlay_job

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support.databases import MongoDatabase, PostgresDatabase
    from twinstore.scheduler.storage import SchedulerStorage

TENANT: Final = "acme"
REFUSING: Final = "RAISE EXCEPTION 'no event today'"
CUTTING: Final = "PERFORM pg_terminate_backend(pg_backend_pid()); PERFORM pg_sleep(10)"
TRIGGER: Final = """
CREATE FUNCTION scheduler.fault() RETURNS trigger LANGUAGE plpgsql AS
$$ BEGIN {}; RETURN NEW; END $$;
CREATE TRIGGER fault BEFORE INSERT ON scheduler.graph_job_events
    FOR EACH ROW EXECUTE FUNCTION scheduler.fault();
"""


def assert_neither(
    storage: SchedulerStorage, breaking: Callable[[], object], mending: Callable[[], object]
) -> None:
    """Add and update while no event can be written, and check what is stored; then both work."""
    store, jobs = storage.graph_job_store, storage.graph_jobs
    known, new = make_graph_build_job(TENANT, "known"), make_graph_overlay_job(TENANT, "new")
    store.add(known)
    running = graph_moved(known, GraphJobStatus.RUNNING)
    breaking()
    with pytest.raises(TwinstoreError):
        store.add(new)
    with pytest.raises(TwinstoreError):
        store.update(running, GraphJobStatus.QUEUED)
    assert (store.get(TENANT, new.id), store.get(TENANT, known.id)) == (None, known)
    assert len(jobs.list_events(TENANT, known.id)) == 1
    mending()
    assert (store.add(new), store.update(running, GraphJobStatus.QUEUED)) == (new, True)
    assert [len(jobs.list_events(TENANT, job.id)) for job in (known, new)] == [2, 1]


@pytest.mark.parametrize("fault", [REFUSING, CUTTING], ids=["refused", "cut"])
def test_postgresql_stores_job_and_event_or_neither(
    empty_postgres_database: PostgresDatabase, fault: str
) -> None:
    database = empty_postgres_database
    with (
        twinstore.add_scheduler_postgres_storage(database.config) as storage,
        psycopg.connect(database.superuser_url, autocommit=True) as admin,
    ):
        storage.initializer.ensure_migrations()
        assert_neither(
            storage,
            lambda: admin.execute(TRIGGER.format(fault).encode()),
            lambda: admin.execute("DROP TRIGGER fault ON scheduler.graph_job_events"),
        )


def test_mongodb_stores_job_and_event_or_neither(empty_mongo_database: MongoDatabase) -> None:
    def refuse(database: Any, *, refused: bool) -> None:  # noqa: ANN401  # of pymongo
        validator = {"$expr": False} if refused else {}
        database.command("collMod", "graph_job_events", validator=validator)

    with (
        twinstore.add_scheduler_mongo_storage(empty_mongo_database.config) as storage,
        MongoClient[dict[str, Any]](empty_mongo_database.url) as client,
    ):
        storage.initializer.ensure_migrations()
        database = client[empty_mongo_database.name]
        assert_neither(
            storage, lambda: refuse(database, refused=True), lambda: refuse(database, refused=False)
        )
