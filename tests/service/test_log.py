"""What a service reads in its log: connected, ready, migrated, lost and back, tried again, slow."""

from __future__ import annotations

import asyncio
import logging
import re
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final, cast
from uuid import uuid4

import pytest

import twinstore
from tests.support.proxies import through_proxy
from twinstore import aio
from twinstore.errors import ConcurrencyError, ConfigurationError, TimeoutExceededError, UnavailableError
from twinstore.observing import SlowCalls
from twinstore.observing.observer import Call, CallOutcome, Operation
from twinstore.runtime import service_log
from twinstore.runtime.service_log import Limiter, log_lost_race, log_recovered, log_unavailable
from twinstore.testing.scheduler.builders import make_run

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.support.databases import MongoDatabase, PostgresDatabase
    from tests.support.servers import Settings
    from twinstore.scheduler import Run
    from twinstore.scheduler.aio import AsyncSchedulerSession
    from twinstore.scheduler.storage import SchedulerSession, SchedulerStorage

TENANT: Final = "tenant-of-nobody"
SERVICE: Final = "twinstore.service"
# The client of MongoDB looks at its servers twice a second.
BACK_SECONDS: Final = 20.0
# While a server is away, that client goes on with a call that it has begun until the time of the call is up.
CALL_MS: Final = 3_000


class Clock:
    """Seconds that a test sets."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """Let each test begin as a process does."""
    found = Clock()
    monkeypatch.setattr(service_log, "_limiter", Limiter(clock=found))
    return found


@pytest.fixture(params=["Mongo", "Postgres"])
def driver(request: pytest.FixtureRequest) -> str:
    """Return the name of a driver with a server."""
    return str(request.param)


@pytest.fixture
def settings(driver: str, request: pytest.FixtureRequest) -> Settings:
    """Return the settings of a migrated database."""
    database: MongoDatabase | PostgresDatabase = request.getfixturevalue(f"{driver.lower()}_database")
    return database.config


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture) -> Iterator[pytest.LogCaptureFixture]:
    with caplog.at_level(logging.DEBUG, SERVICE):
        yield caplog


def lines(log: pytest.LogCaptureFixture) -> list[tuple[int, str]]:
    """Return level and text of each line."""
    return [(record.levelno, record.getMessage()) for record in log.records if record.name == SERVICE]


def warnings(log: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    """Return the warnings of the service log; what other tests have left may warn in others."""
    return [record for record in log.records if record.name == SERVICE and record.levelno == logging.WARNING]


def impatient(settings: Settings) -> Settings:
    """Return settings with calls to MongoDB that end soon when their server is away."""
    persistence = dict(cast("dict[str, dict[str, object]]", settings["Persistence"]))
    if "Mongo" in persistence:
        section = dict(persistence["Mongo"])
        section["ConnectionString"] = f"{section['ConnectionString']}&timeoutMS={CALL_MS}"
        persistence["Mongo"] = {**section, "ServerSelectionTimeoutMs": 500}
    return {**settings, "Persistence": persistence}


def reached(storage: SchedulerStorage) -> bool:
    """Whether a call is answered."""
    try:
        storage.runs.get(TENANT, "r-1")
    except UnavailableError:
        return False
    return True


def get_a_run(settings: Settings) -> None:
    """Ask for a run while every call is slow."""
    with twinstore.open_storage(settings, observers=[SlowCalls(0)]) as storage:
        storage.scheduler.runs.get(TENANT, "r-1")


def get_a_run_with_asyncio(settings: Settings) -> None:
    """Do the same in a task."""

    async def get() -> None:
        async with aio.open_storage(settings, observers=[SlowCalls(0)]) as storage:
            await storage.scheduler.runs.get(TENANT, "r-1")

    asyncio.run(get())


def counted(run: Run, more: int) -> Run:
    """Return a run with more candidates."""
    return run.evolve(stats=run.stats.evolve(candidates=run.stats.candidates + more))


def write_with_a_conflict(settings: Settings, key: str) -> int:
    """Change a run in a unit while another writer does; return how many candidates it has in the end."""
    with twinstore.open_storage(settings) as opened, ThreadPoolExecutor() as other:
        storage = opened.scheduler
        storage.runs.create(make_run(TENANT, key))
        competitors = [1]

        def step(unit: SchedulerSession) -> None:
            run = unit.runs.get_required(TENANT, key)
            if competitors:
                other.submit(storage.runs.update, counted(run, competitors.pop())).result()
            unit.runs.update(counted(run, 10))

        storage.transact(step, tenant_id=TENANT)
        return storage.runs.get_required(TENANT, key).stats.candidates


def write_with_a_conflict_with_asyncio(settings: Settings, key: str) -> int:
    """Do the same in a task."""

    async def write() -> int:
        async with aio.open_storage(settings) as opened:
            storage = opened.scheduler
            await storage.runs.create(make_run(TENANT, key))
            competitors = [1]

            async def step(unit: AsyncSchedulerSession) -> None:
                run = await unit.runs.get_required(TENANT, key)
                if competitors:
                    await asyncio.create_task(storage.runs.update(counted(run, competitors.pop())))
                await unit.runs.update(counted(run, 10))

            await storage.transact(step, tenant_id=TENANT)
            return (await storage.runs.get_required(TENANT, key)).stats.candidates

    return asyncio.run(write())


def test_a_service_that_starts_says_where_it_is_connected_and_what_it_found(
    driver: str, settings: Settings, log: pytest.LogCaptureFixture
) -> None:
    service_log._limiter.renew()  # noqa: SLF001  # who made the database has connected to it, too
    with twinstore.open_storage(settings) as storage:
        assert not lines(log)
        storage.scheduler.check_ready()
        storage.scheduler.runs.get(TENANT, "r-1")
        storage.scheduler.check_ready()
        version = storage.scheduler.capabilities.server_version
    with twinstore.open_storage(settings) as again:
        again.scheduler.check_ready()
    found = [record for record in log.records if record.name == SERVICE]
    # Once each: a probe asks every few seconds.
    assert [record.levelno for record in found] == [logging.INFO] * 2
    assert found[0].getMessage().startswith(f"connected to {driver} {version}, database ")
    assert found[1].getMessage().startswith(f"scheduler is ready on {driver} {version}, schema level 0")
    facts = vars(found[0])
    assert (facts["twinstore_driver"], facts["twinstore_server_version"]) == (driver, version)
    assert facts["twinstore_database"] in found[0].getMessage()
    assert vars(found[1])["twinstore_schema"] in found[1].getMessage()
    everything = " ".join(f"{record.getMessage()} {vars(record)}" for record in found)
    assert TENANT not in everything
    for value in str(settings).split("'"):
        # Neither a connection string nor the password in it.
        assert "://" not in value or value not in everything


def test_a_migration_says_what_it_has_done(
    driver: str, request: pytest.FixtureRequest, log: pytest.LogCaptureFixture
) -> None:
    database: MongoDatabase | PostgresDatabase = request.getfixturevalue(f"empty_{driver.lower()}_database")
    with twinstore.open_storage(database.config) as storage:
        first = storage.scheduler.initializer.ensure_migrations()
        storage.scheduler.initializer.ensure_migrations()
    found = [record for record in log.records if hasattr(record, "twinstore_applied")]
    assert [record.levelno for record in found] == [logging.INFO] * 2
    assert (
        found[0].getMessage().startswith(f"schema of scheduler on {driver}: {len(first.applied)} migrations")
    )
    assert all(name in found[0].getMessage() for name in first.applied)
    assert (vars(found[1])["twinstore_applied"], vars(found[1])["twinstore_already_applied"]) == (
        [],
        len(first.applied),
    )


@pytest.mark.parametrize(
    ("name", "section"),
    [
        ("Mongo", {"ConnectionString": "mongodb://127.0.0.1:1/db?serverSelectionTimeoutMS=20"}),
        ("Postgres", {"ConnectionString": "postgresql://127.0.0.1:1/db"}),
    ],
)
def test_an_unreachable_store_is_logged_once_a_minute(
    name: str, section: dict[str, str], log: pytest.LogCaptureFixture, clock: Clock
) -> None:
    def code_of_a_call() -> str:
        with pytest.raises(UnavailableError) as caught:
            storage.scheduler.runs.get(TENANT, "r-1")
        return caught.value.code

    with twinstore.open_storage({"Persistence": {"Scheduler": name, name: section}}) as storage:
        code, *_ = [code_of_a_call() for _ in range(3)]
        clock.now += service_log.LOG_INTERVAL_SECONDS
        code_of_a_call()
    first, second = lines(log)
    assert first == (logging.WARNING, f"{name} cannot be reached ({code})")
    level, text = second
    assert level == logging.WARNING
    # A call may fail to connect more than once.
    assert "more like this since the last line" in text


def test_a_recovered_store_is_logged_once(log: pytest.LogCaptureFixture) -> None:
    log_recovered("Mongo", lambda: "nowhere")
    log_unavailable(UnavailableError("gone", driver="Mongo"))
    log_unavailable(UnavailableError("gone", driver="Mongo"))
    log_recovered("Postgres", lambda: "nowhere")
    log_recovered("Mongo", lambda: "host:27017")
    log_recovered("Mongo", lambda: "host:27017")
    log_unavailable(UnavailableError("gone", driver="Mongo"))
    assert [level for level, _ in lines(log)] == [logging.WARNING, logging.INFO, logging.WARNING]
    assert lines(log)[1][1] == "Mongo is reached again at host:27017"


def test_a_call_that_took_too_long_is_no_lost_store(log: pytest.LogCaptureFixture) -> None:
    error = TimeoutExceededError("slow", driver="Mongo")
    assert log_unavailable(error) is error
    assert not lines(log)


def test_lost_races_are_logged_once_a_minute_with_their_number(
    log: pytest.LogCaptureFixture, clock: Clock
) -> None:
    error = ConcurrencyError("lost", module="scheduler", entity="runs", key="r-1", driver="Mongo")
    for _ in range(1000):
        log_lost_race(error, 0.01)
    clock.now += service_log.LOG_INTERVAL_SECONDS
    log_lost_race(error, 0.01)
    told = [text for level, text in lines(log) if level == logging.WARNING]
    line = "lost against another writer on Mongo (runs); repeated in 10 ms"
    assert told == [line, f"{line} (999 more like this since the last line)"]
    # Every one of them is logged at a lower level.
    assert len(lines(log)) == 1001
    assert not any("r-1" in text for _, text in lines(log))


def test_slow_calls_are_named_and_others_are_not(log: pytest.LogCaptureFixture) -> None:
    observer = SlowCalls(0.5)
    for seconds in (0.1, 0.6, 0.7, 0.4):
        for operation in (
            Operation("scheduler", "runs", "list", "Mongo"),
            Operation("tracking", "tasks", "get", "Mongo"),
        ):
            ending = observer.started(operation)
            assert ending is not None
            ending(Call(*operation, CallOutcome.OK, seconds, None))
    assert lines(log) == [
        (logging.WARNING, "scheduler.runs.list on Mongo took 0.60 s (ok)"),
        (logging.WARNING, "tracking.tasks.get on Mongo took 0.60 s (ok)"),
    ]


@pytest.mark.parametrize("way", [get_a_run, get_a_run_with_asyncio])
def test_slow_calls_of_a_storage_are_logged(
    way: Callable[[Settings], None], driver: str, settings: Settings, log: pytest.LogCaptureFixture
) -> None:
    way(settings)
    (found,) = warnings(log)
    assert re.match(rf"scheduler\.runs\.get on {driver} took \d+\.\d\d s", found.getMessage())
    facts = vars(found)
    named = ("module", "entity", "operation", "driver", "outcome")
    assert [facts[f"twinstore_{name}"] for name in named] == ["scheduler", "runs", "get", driver, "ok"]
    assert isinstance(facts["twinstore_seconds"], float)
    assert TENANT not in str(facts)


def test_an_outage_and_a_recovery_of_a_server_are_logged_once_each(
    driver: str, settings: Settings, log: pytest.LogCaptureFixture
) -> None:
    wire, over_it = through_proxy(settings)
    place = f"127.0.0.1:{wire.port}"
    with wire, twinstore.open_storage(impatient(over_it)) as storage:
        storage.scheduler.runs.get(TENANT, "r-1")
        with wire.unavailable(), pytest.raises(UnavailableError):
            storage.scheduler.runs.get(TENANT, "r-1")
        deadline = time.monotonic() + BACK_SECONDS
        while not reached(storage.scheduler) and time.monotonic() < deadline:
            pass
    # Who made the database has connected to it, too; a line about a lost server names none.
    found = [
        record
        for record in log.records
        if record.name == SERVICE and place in vars(record).get("twinstore_server", place)
    ]
    assert [record.levelno for record in found] == [logging.INFO, logging.WARNING, logging.INFO]
    assert [record.getMessage().partition(" at ")[0].partition(" (")[0] for record in found][1:] == [
        f"{driver} cannot be reached",
        f"{driver} is reached again",
    ]
    lost, back = map(vars, found[1:])
    assert (lost["twinstore_driver"], back["twinstore_driver"]) == (driver, driver)
    assert place in back["twinstore_server"]
    assert TENANT not in str((lost, back))


@pytest.mark.parametrize("way", [write_with_a_conflict, write_with_a_conflict_with_asyncio])
def test_a_unit_that_is_repeated_is_logged(
    way: Callable[[Settings, str], int], driver: str, settings: Settings, log: pytest.LogCaptureFixture
) -> None:
    key = uuid4().hex
    assert way(settings, key) == 11
    (found,) = warnings(log)
    assert found.getMessage().startswith(f"lost against another writer on {driver} (runs); repeated in ")
    facts = vars(found)
    assert [facts[f"twinstore_{name}"] for name in ("driver", "module", "entity")] == [
        driver,
        "scheduler",
        "runs",
    ]
    assert facts["twinstore_pause_ms"] >= 0
    assert TENANT not in str(facts)
    assert key not in str(facts)


@pytest.mark.parametrize("seconds", [-1, float("nan"), "1", None, True])
def test_a_threshold_that_is_no_time_is_refused(seconds: float) -> None:
    with pytest.raises(ConfigurationError, match="seconds"):
        SlowCalls(seconds)


def test_a_storm_of_many_kinds_takes_no_memory_for_what_is_over() -> None:
    limiter = Limiter(60, Clock())
    assert limiter.passes("a") == 0
    assert limiter.passes("a") is None
    assert limiter.passes("b") == 0
    assert limiter.forget("a")
    assert not limiter.forget("a")
    assert limiter.passes("a") == 0


def test_a_program_without_a_log_sees_nothing() -> None:
    program = (
        "from twinstore.errors import ConcurrencyError\n"
        "from twinstore.runtime.service_log import log_lost_race\n"
        "log_lost_race(ConcurrencyError('lost', driver='Mongo'), 0.01)\n"
    )
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert (found.stdout, found.stderr) == ("", "")
