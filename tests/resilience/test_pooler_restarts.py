"""The pooler, or the server behind it, is killed and started again in the middle of calls."""

from __future__ import annotations

import shutil
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Final

import pytest

import twinstore
import twinstore_embedded
from tests.support.databases import PostgresServer
from tests.support.pgbouncer import pooler_before
from twinstore.errors import Outcome, UnavailableError
from twinstore.testing.scheduler.builders import make_run
from twinstore_embedded.postgres import Shutdown
from twinstore_embedded.state import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.support.databases import PostgresDatabase
    from twinstore.scheduler.storage import SchedulerStorage
    from twinstore_embedded.postgres import PostgresServer as Embedded

pytestmark = pytest.mark.pgbouncer

CALLERS: Final = 4
SECONDS: Final = 30.0
# Of a caller whose call was refused at once, as those of a service do before they try again.
PAUSE: Final = 0.02
TENANT: Final = "restarted"
MIDDLE: Final = "in the middle"


@dataclass
class Caller:
    """Writes one row after the other, alone or in a unit, and notes what became of each."""

    storage: SchedulerStorage
    number: int
    applied: list[str] = field(default_factory=list)
    failed: dict[str, UnavailableError] = field(default_factory=dict)

    def call_until(self, end: Event) -> None:
        """Call until the end; any other error than that of a store out of reach ends it at once."""
        count = 0
        while not end.is_set():
            count += 1
            key = f"{self.number}-{count}"
            try:
                self.call(key, alone=count % 2 == 0)
            except UnavailableError as error:
                self.failed[key] = error
                end.wait(PAUSE)
            else:
                self.applied.append(key)

    def call(self, key: str, *, alone: bool) -> None:
        """Write and read one row."""
        if alone:
            self.storage.runs.create(make_run(TENANT, key))
            return
        with self.storage.transaction(TENANT) as unit:
            unit.runs.create(make_run(TENANT, key))
            assert unit.runs.get(TENANT, key) is not None


@pytest.fixture
def own_server() -> Iterator[tuple[PostgresServer, Embedded]]:
    """Start a server of this test alone, which may be killed."""
    directory = Path(tempfile.mkdtemp(prefix="twinstore-restarted-"))
    directory.chmod(0o711)
    try:
        running = twinstore_embedded.start_postgres(directory, owned=True)
        server = PostgresServer(running.superuser_url(), directory)
        yield server, running
        server.admin.close()
    finally:
        twinstore_embedded.stop(directory)
        shutil.rmtree(directory)


def in_the_middle_of_a_unit(storage: SchedulerStorage, restart: Callable[[], None]) -> None:
    """Restart something while a unit is open: the calls of the others may all lie before or after it."""
    with storage.transaction(TENANT) as unit:
        unit.runs.create(make_run(TENANT, MIDDLE))
        restart()


def disturbed(storage: SchedulerStorage, restart: Callable[[], None]) -> list[Caller]:
    """Restart something while callers are at work, and let them go on until each has succeeded again."""
    callers = [Caller(storage, number) for number in range(CALLERS)]
    end = Event()
    with ThreadPoolExecutor(CALLERS) as threads:
        working = [threads.submit(caller.call_until, end) for caller in callers]
        try:
            assert wait_until(lambda: all(len(caller.applied) > 3 for caller in callers), SECONDS)
            with pytest.raises(UnavailableError):
                in_the_middle_of_a_unit(storage, restart)
            before = [len(caller.applied) for caller in callers]
            healed = wait_until(
                lambda: all(
                    len(caller.applied) > count + 3 for caller, count in zip(callers, before, strict=True)
                ),
                SECONDS,
            )
        finally:
            end.set()
        for each in working:
            each.result()
    assert healed
    return callers


def judged(storage: SchedulerStorage, callers: list[Caller]) -> None:
    """Look whether every call did what it said."""
    assert storage.runs.get(TENANT, MIDDLE) is None
    for caller in callers:
        for key in caller.applied:
            assert storage.runs.get(TENANT, key) is not None
        for key, error in caller.failed.items():
            if error.outcome is Outcome.NOT_APPLIED:
                assert storage.runs.get(TENANT, key) is None


def test_a_pooler_that_is_restarted_costs_the_calls_in_progress_and_no_others(
    postgres_server: PostgresServer, module_postgres_database: PostgresDatabase
) -> None:
    with (
        pooler_before(postgres_server.url) as pooler,
        twinstore.add_scheduler_postgres_storage(pooler.config(module_postgres_database)) as storage,
    ):
        judged(storage, disturbed(storage, pooler.restart))


def test_a_server_that_crashes_behind_the_pooler_is_found_again(
    own_server: tuple[PostgresServer, Embedded],
) -> None:
    server, running = own_server

    def restart() -> None:
        server.admin.close()
        running.halt(Shutdown.IMMEDIATE)
        running.resume()

    with server.migrated_database() as database, pooler_before(server.url) as pooler:
        with twinstore.add_scheduler_postgres_storage(pooler.config(database)) as storage:
            judged(storage, disturbed(storage, restart))
        pooler.stop()
        server.admin = server.admin.connect(server.url, autocommit=True)
