"""Which cases stand against which."""

from __future__ import annotations

from contextlib import closing, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from psycopg_pool import ConnectionPool

from benchmarks import mongo_limits, postgres_limits
from benchmarks.cli_cases import Candidates, Differences
from benchmarks.mongo_singles import BareMongo
from benchmarks.postgres_singles import BarePostgres
from benchmarks.schedule import Case, Group
from benchmarks.script import typical_script
from benchmarks.singles import TENANT, Repertoire, single_operations
from twinstore import add_scheduler_mongo_storage, add_scheduler_postgres_storage

if TYPE_CHECKING:
    from collections.abc import Iterator

    from psycopg import Connection

    from benchmarks.databases import Place
    from benchmarks.options import Options

__all__ = ["FIRST", "GROUPS", "RAW_SCAN", "ROOFLINE", "SCRIPT"]

ROOFLINE: Final = "COPY, two connections"
SCRIPT: Final = "typical script"
FIRST: Final = "first copy"
RAW_SCAN: Final = "raw COPY out"
GET_KEYS: Final = 1000
KEYS: Final = "SELECT id FROM scheduler.runs WHERE tenant_id = %s LIMIT %s"


@contextmanager
def copying(place: Place, options: Options) -> Iterator[Group]:
    """MongoDB to PostgreSQL."""
    tool = Candidates(place, options.documents, options.jobs, profile=options.profile)
    place.empty_postgres()
    typical_script(place)
    rows = postgres_limits.prebuilt_rows(place)
    limits = [
        Case(name="MongoDB raw batches", run=partial(mongo_limits.raw_scan, place.runs())),
        Case(
            name="COPY, one connection",
            prepare=place.empty_postgres,
            run=partial(postgres_limits.copy_in, place, rows, 1),
        ),
        Case(
            name=ROOFLINE,
            prepare=place.empty_postgres,
            run=partial(postgres_limits.copy_in, place, rows, 2),
        ),
        Case(
            name=SCRIPT,
            prepare=place.empty_postgres,
            run=partial(typical_script, place),
            against=(ROOFLINE,),
        ),
    ]

    def fill_a_tenth() -> None:
        place.empty_postgres()
        postgres_limits.copy_in(place, rows[::10], 1)

    against = (ROOFLINE, SCRIPT)
    candidates = [
        Case(name=FIRST, prepare=place.empty_postgres, run=partial(tool.copy, FIRST), against=against),
        Case(
            name="second copy, identical",
            prepare=place.settle_postgres,
            run=partial(tool.copy, "second copy, identical", "unchanged"),
            against=(*against, FIRST),
        ),
        Case(
            name="copy, a tenth there",
            prepare=fill_a_tenth,
            run=partial(tool.copy, "copy, a tenth there"),
            against=against,
        ),
    ]
    title = "MongoDB to PostgreSQL"
    yield Group(name="copy", title=title, unit="documents", cases=[*limits, *candidates])


@contextmanager
def verifying(place: Place, options: Options) -> Iterator[Group]:
    """Full content of both sides."""
    tool = Candidates(place, options.documents, options.jobs, profile=options.profile)
    place.empty_postgres()
    typical_script(place)
    place.settle_postgres()
    differences = Differences(place)
    equal, unequal = "verify, equal", "verify, ten differences"
    cases = [
        Case(name="MongoDB raw batches", run=partial(mongo_limits.raw_scan, place.runs())),
        Case(name=RAW_SCAN, prepare=differences.remove, run=partial(postgres_limits.copy_out, place)),
        Case(name=equal, run=partial(tool.verify, equal), against=(RAW_SCAN,)),
        Case(
            name=unequal,
            prepare=differences.plant,
            run=lambda: tool.verify(unequal, named=differences.keys),
            against=(RAW_SCAN, equal),
        ),
    ]
    yield Group(name="verify", title="Verification, full content", unit="documents", cases=cases)


@contextmanager
def returning(place: Place, options: Options) -> Iterator[Group]:
    """PostgreSQL to MongoDB."""
    tool = Candidates(place, options.documents, options.jobs, profile=options.profile)
    place.empty_postgres()
    typical_script(place)
    place.settle_postgres()
    documents = mongo_limits.prebuilt_documents(place.runs())
    limit, back = "insert_many, two threads", "copy back"

    insert = partial(mongo_limits.insert_prebuilt, place.runs(back=True), documents, 2)
    cases = [
        Case(name=RAW_SCAN, run=partial(postgres_limits.copy_out, place)),
        Case(name=limit, prepare=place.empty_mongo, run=insert),
        Case(name=back, prepare=place.empty_mongo, run=partial(tool.copy_back, back), against=(limit,)),
    ]
    yield Group(name="return", title="PostgreSQL to MongoDB", unit="documents", cases=cases)


@contextmanager
def mongo_singles(place: Place, options: Options) -> Iterator[Group]:
    """Single operations on MongoDB."""
    keys = place.runs().find({"tenantId": TENANT}, {"_id": 1}).limit(GET_KEYS)
    run_ids = [document["_id"] for document in keys]
    with add_scheduler_mongo_storage(place.settings()) as storage:
        repertoire = Repertoire(storage, BareMongo(place), run_ids)
        yield single_operations("mongo", "Single operations, MongoDB", repertoire, options.operations)
    place.runs().delete_many({"_id": {"$regex": "^bench-"}})  # other groups count on what was loaded


@contextmanager
def postgres_singles(place: Place, options: Options) -> Iterator[Group]:
    """Single operations on PostgreSQL."""
    place.empty_postgres()
    typical_script(place)
    place.settle_postgres()
    with closing(place.superuser()) as connection:
        keys = connection.execute(KEYS, [TENANT, GET_KEYS])
        run_ids = [str(row[0]) for row in keys]
    pool: ConnectionPool[Connection[tuple[Any, ...]]] = ConnectionPool(
        place.app_url, kwargs={"autocommit": True}, min_size=1, open=False
    )
    with add_scheduler_postgres_storage(place.settings()) as storage, pool:
        repertoire = Repertoire(storage, BarePostgres(pool), run_ids)
        yield single_operations("postgres", "Single operations, PostgreSQL", repertoire, options.operations)


GROUPS: Final = {
    "copy": copying,
    "verify": verifying,
    "return": returning,
    "mongo": mongo_singles,
    "postgres": postgres_singles,
}
