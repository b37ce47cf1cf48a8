"""Many workers of one copy under fire: they are killed and stopped while they copy, the coordinator too."""

from __future__ import annotations

import sys
import time
from contextlib import ExitStack, contextmanager, suppress
from random import Random
from typing import TYPE_CHECKING, Any, Final

import psutil
import psycopg
import pytest

from tests.migration_tool.copy import fleet
from tests.migration_tool.copy.test_between_servers import DIRECTIONS, opened
from tests.support.clusters import DaskCluster, running
from tests.support.copies import contents_of, server_settings, write_config
from twinstore.scheduler.catalog import RUNS
from twinstore.testing.scheduler.builders import make_run
from twinstore_backfill.outcome import Exit

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.support.copies import Pair
    from tests.support.databases import MongoDatabase, PostgresDatabase

ROWS: Final = 6000
RANGE_SIZE: Final = 12
WORKERS: Final = 3
KILLS: Final = 100
STOPS: Final = 20
COORDINATORS: Final = 10
SCHEDULERS: Final = 5
LIMIT_SECONDS: Final = 900
# Written in the transaction of the range, by whoever commits it.
EVIDENCE: Final = """
CREATE TABLE public.evidence (number bigint, worker text, fence bigint);
CREATE FUNCTION public.note() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$
BEGIN INSERT INTO public.evidence VALUES (NEW.number, NEW.worker, NEW.fence); RETURN NULL; END $$;
CREATE TRIGGER evidence AFTER UPDATE ON twinstore.ranges FOR EACH ROW
    WHEN (NEW.state = 'live' AND OLD.state <> 'live') EXECUTE FUNCTION public.note();
"""


@pytest.fixture
def settings(mongo_database: MongoDatabase, postgres_database: PostgresDatabase) -> dict[str, Any]:
    return server_settings(mongo_database, postgres_database)


@pytest.fixture
def pair(settings: dict[str, Any], tmp_path: Path) -> Iterator[Pair]:
    with opened(settings, DIRECTIONS[0], tmp_path) as pair:
        for number in range(ROWS):
            pair.source.storage.runs.create(make_run("acme", f"many-{number:05}"))
        yield pair


class Fleet:
    """The processes of one copy, as the test strikes them."""

    def __init__(self, config: Path, directory: Path, url: str) -> None:
        self._config, self._directory, self._url = config, directory, url
        self.coordinator = self._coordinate()
        self._frozen: list[tuple[float, psutil.Process]] = []

    def _start(self, *arguments: str) -> psutil.Popen:
        with (self._directory / "log").open("a") as log:
            return psutil.Popen([sys.executable, "-m", fleet.__name__, *arguments], stderr=log)

    def _coordinate(self) -> psutil.Popen:
        where = str(self._config), self._url, str(RANGE_SIZE), str(self._directory)
        return self._start("coordinate", *where)

    @contextmanager
    def supervised(self) -> Iterator[psutil.Popen]:
        """Start the process that starts workers."""
        process = self._start("supervise", str(self._config), str(WORKERS))
        try:
            yield process
        finally:
            process.terminate()
            process.wait()

    def restart(self) -> None:
        """Kill the coordinator, and start another one."""
        self.end()
        self.coordinator = self._coordinate()

    def end(self) -> None:
        """Kill the coordinator and its children."""
        with suppress(psutil.NoSuchProcess):
            for process in (*self.coordinator.children(), self.coordinator):
                process.kill()
        self.coordinator.wait()

    def freeze(self, process: psutil.Process) -> None:
        """Stop a process for longer than a lease."""
        process.suspend()
        self._frozen.append((time.monotonic() + 1.5 * fleet.LEASE.total_seconds(), process))

    def thaw(self, *, all_of_them: bool = False) -> None:
        """Let those go on that were stopped long enough."""
        due = [item for item in self._frozen if all_of_them or time.monotonic() > item[0]]
        for item in due:
            self._frozen.remove(item)
            with suppress(psutil.NoSuchProcess):
                item[1].resume()


def strike(
    random: Random,
    blow: str,
    fleet: Fleet,
    workers: Callable[[], list[psutil.Process]],
    cluster: DaskCluster | None,
) -> bool:
    """Strike once; return whether there was anything to strike."""
    if blow == "coordinator":
        fleet.restart()
        return True
    if blow == "scheduler" and cluster is not None:
        # Its workers do not come back by themselves.
        cluster.kill()
        cluster.start()
        return True
    with suppress(psutil.NoSuchProcess):
        found = [item for item in workers() if item.status() != psutil.STATUS_STOPPED]
        if found:
            victim = random.choice(found)
            if blow == "kill":
                victim.kill()
            else:
                fleet.freeze(victim)
            return True
    return False


@pytest.fixture
def config(settings: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Write the settings; the workers of Dask are not informed of where they are."""
    found = write_config(tmp_path / "settings.json", settings)
    monkeypatch.setenv("TWINSTORE_CONFIG", str(found))
    return found


@contextmanager
def evidence_in(url: str) -> Iterator[Callable[[], list[int]]]:
    """Yield what returns the numbers of the ranges, as often as each became live."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(EVIDENCE)
        read = "SELECT number FROM public.evidence ORDER BY number"
        yield lambda: [number for (number,) in connection.execute(read)]


@pytest.mark.long
@pytest.mark.parametrize("url", ["workers://", f"processes://{WORKERS}", "dask://"])
def test_under_fire_each_range_is_live_once_and_nothing_is_lost(
    pair: Pair, config: Path, url: str, postgres_database: PostgresDatabase
) -> None:
    pair.target.storage.initializer.ensure_migrations()
    pair.target.bulk.ledger_initializer.ensure_migrations()
    with evidence_in(postgres_database.superuser_url) as evidence, ExitStack() as stack:
        code, left = burn(pair, stack, config, url)
        assert (code, left) == (Exit.OK, []), (config.parent / "log").read_text()[-3000:]
        (job,) = pair.target.ledger.jobs()
        ranges = list(pair.target.ledger.ranges(job.id))
        assert evidence() == sorted(item.number for item in ranges)
    written = sum(sum(item.tally.read.values()) for item in ranges if item.tally)
    assert written == sum(pair.target.bulk.counts(RUNS).values()) == ROWS
    assert contents_of(pair.target.bulk, RUNS) == contents_of(pair.source.bulk, RUNS)
    assert pair.verify().verdict == "PASS"


def burn(pair: Pair, stack: ExitStack, config: Path, url: str) -> tuple[int, list[str]]:
    """Copy under blows; return the exit code of the coordinator and the blows that are left."""
    random, cluster = Random(7), None
    blows = ["kill"] * KILLS + ["freeze"] * STOPS + ["coordinator"] * COORDINATORS
    if url == "dask://":
        cluster = stack.enter_context(running(DaskCluster, WORKERS))
        url, blows = cluster.url, [*blows, *["scheduler"] * SCHEDULERS]
    random.shuffle(blows)
    run = Fleet(config, config.parent, url)
    parent = stack.enter_context(run.supervised()) if url == "workers://" else None
    stack.callback(run.end)
    stack.callback(run.thaw, all_of_them=True)

    def workers() -> list[psutil.Process]:
        if cluster is not None:
            return cluster.processes()
        with suppress(psutil.NoSuchProcess):
            found = (parent or run.coordinator).children()
            # Not the process in which Python tracks semaphores.
            return [item for item in found if parent or "spawn_main" in " ".join(item.cmdline())]
        return []

    deadline, seen = time.monotonic() + LIMIT_SECONDS, 0
    while (code := run.coordinator.poll()) is None:
        assert time.monotonic() < deadline
        run.thaw()
        jobs = list(pair.target.ledger.jobs()) if blows else []
        live = pair.target.ledger.counts(jobs[0].id).get("live", 0) if jobs else 0
        # After progress, so that the copy ends.
        if blows and live > seen and strike(random, blows[-1], run, workers, cluster):
            seen = live
            blows.pop()
        time.sleep(0.05)
    return code, blows
