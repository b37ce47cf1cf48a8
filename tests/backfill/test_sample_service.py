"""The sample service prints the same on either store: configuration alone decides who answers."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tests import forked
from tests.stores import environment_of, kept
from twinstore import open_storage
from twinstore.scheduler import RunQueryOptions, RunState

if TYPE_CHECKING:
    from tests.databases import MongoDatabase, PostgresDatabase
    from tests.servers import Settings

SERVICE: Final = Path(__file__).parents[2] / "samples/service/nightly.py"
TENANT: Final = "acme"
TOKEN: Final = re.compile(r"next (\S+)$", re.MULTILINE)
EXPECTED: Final = """\
schedule hourly: next at 2025-10-26 03:00:00+00:00
schedule nightly: next at 2025-10-27 00:30:00+00:00
schedule weekly: next at 2025-10-27 02:00:00+00:00
runs acme-run-07=completed acme-run-06=completed acme-run-05=completed next TOKEN
runs acme-run-04=completed acme-run-03=completed acme-run-02=completed next TOKEN
runs acme-run-01=completed acme-run-00=completed next None
summary: 8 runs, 7 new high
audit: 32 records, latest run.completed
"""


def output_of_service(settings: Settings) -> str:
    """Run the service as a process of its own and return what it prints."""
    done = forked.run([SERVICE, "--tenant", TENANT], env=environment_of(settings))
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_sample_service_prints_the_same_on_both_stores(
    empty_mongo_database: MongoDatabase, empty_postgres_database: PostgresDatabase
) -> None:
    stores = kept(empty_mongo_database.config), kept(empty_postgres_database.config)
    on_mongo, on_postgres = map(output_of_service, stores)
    assert TOKEN.sub(lambda match: match[0] if match[1] == "None" else "next TOKEN", on_mongo) == EXPECTED
    assert on_mongo == on_postgres
    # Nothing it does fails or changes anything the second time.
    assert output_of_service(stores[1]) == on_postgres
    # Equal output could also mean that both wrote to one store.
    for settings in stores:
        with open_storage(settings) as storage:
            page = storage.scheduler.runs.list(TENANT, RunQueryOptions(states=[RunState.COMPLETED]))
            assert len(page) == 8, settings
