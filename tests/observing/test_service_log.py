"""What a service reads in its log: connected, ready, migrated, lost and back, tried again, slow."""

from __future__ import annotations

import logging
import subprocess
import sys
from typing import TYPE_CHECKING, Final, cast

import pytest

import twinstore
from tests.wires import over
from twinstore import servicelog
from twinstore.errors import ConcurrencyError, ConfigurationError, TimeoutExceededError, UnavailableError
from twinstore.observing import SlowCalls
from twinstore.observing.events import Call, CallOutcome, Operation
from twinstore.servicelog import Limiter, note_back, note_lost, note_lost_race

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.databases import MongoDatabase, PostgresDatabase
    from tests.servers import Settings

TENANT: Final = "tenant-of-nobody"
SERVICE: Final = "twinstore.service"


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
    monkeypatch.setattr(servicelog, "_limiter", Limiter(clock=found))
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


def test_a_service_that_starts_says_where_it_is_connected_and_what_it_found(
    driver: str, settings: Settings, log: pytest.LogCaptureFixture
) -> None:
    servicelog._limiter.renew()  # noqa: SLF001  # who made the database has connected to it, too
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
def test_a_store_that_is_away_is_told_once_a_minute(
    name: str, section: dict[str, str], log: pytest.LogCaptureFixture, clock: Clock
) -> None:
    def code_of_a_call() -> str:
        with pytest.raises(UnavailableError) as caught:
            storage.scheduler.runs.get(TENANT, "r-1")
        return caught.value.code

    with twinstore.open_storage({"Persistence": {"Scheduler": name, name: section}}) as storage:
        code, *_ = [code_of_a_call() for _ in range(3)]
        clock.now += servicelog.PAUSE_SECONDS
        code_of_a_call()
    first, second = lines(log)
    assert first == (logging.WARNING, f"{name} cannot be reached ({code})")
    level, text = second
    assert level == logging.WARNING
    # Whoever connects may fail more than once in a call.
    assert "more like this since the last line" in text


def test_a_store_that_is_back_is_told_once(log: pytest.LogCaptureFixture) -> None:
    note_back("Mongo", lambda: "nowhere")
    note_lost(UnavailableError("gone", driver="Mongo"))
    note_lost(UnavailableError("gone", driver="Mongo"))
    note_back("Postgres", lambda: "nowhere")
    note_back("Mongo", lambda: "host:27017")
    note_back("Mongo", lambda: "host:27017")
    note_lost(UnavailableError("gone", driver="Mongo"))
    assert [level for level, _ in lines(log)] == [logging.WARNING, logging.INFO, logging.WARNING]
    assert lines(log)[1][1] == "Mongo is reached again at host:27017"


def is_reached(storage: twinstore.Storage) -> bool:
    """Return whether a call finds its store."""
    try:
        storage.scheduler.runs.get(TENANT, "r-1")
    except (TimeoutExceededError, UnavailableError):
        return False
    return True


def test_a_service_hears_that_its_store_is_reached_again(
    driver: str, settings: Settings, log: pytest.LogCaptureFixture
) -> None:
    wire, settings = over(settings)
    persistence = cast("dict[str, dict[str, object]]", settings["Persistence"])
    persistence["Mongo"] = {**persistence.get("Mongo", {}), "ServerSelectionTimeoutMs": 500}
    with wire, twinstore.open_storage(settings) as storage:
        storage.scheduler.runs.get(TENANT, "r-1")
        wire.cut()
        assert not is_reached(storage)
        wire.mend()
        # The client looks for its server every half second.
        assert any(is_reached(storage) for _ in range(20))
        lost, back = [text for level, text in lines(log) if level >= logging.INFO][-2:]
        assert lost.startswith(f"{driver} cannot be reached (")
        assert back.startswith(f"{driver} is reached again at 127.0.0.1:{wire.port}")


def test_a_call_that_took_too_long_is_no_lost_store(log: pytest.LogCaptureFixture) -> None:
    error = TimeoutExceededError("slow", driver="Mongo")
    assert note_lost(error) is error
    assert not lines(log)


def test_lost_races_are_told_once_a_minute_with_their_number(
    log: pytest.LogCaptureFixture, clock: Clock
) -> None:
    error = ConcurrencyError("lost", module="scheduler", entity="runs", key="r-1", driver="Mongo")
    for _ in range(1000):
        note_lost_race(error, 0.01)
    clock.now += servicelog.PAUSE_SECONDS
    note_lost_race(error, 0.01)
    told = [text for level, text in lines(log) if level == logging.WARNING]
    line = "lost against another writer on Mongo (runs); repeated in 10 ms"
    assert told == [line, f"{line} (999 more like this since the last line)"]
    # Each of them for whoever looks for them.
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


def test_slow_calls_of_a_storage_are_told(log: pytest.LogCaptureFixture) -> None:
    settings = {"Persistence": {"Scheduler": "Memory"}}
    with twinstore.open_storage(settings, observers=[SlowCalls(0)]) as storage:
        storage.scheduler.runs.get(TENANT, "r-1")
    ((level, text),) = lines(log)
    assert level == logging.WARNING
    assert text.startswith("scheduler.runs.get on Memory took 0.0")
    assert TENANT not in text


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


def test_a_program_without_a_log_is_told_nothing() -> None:
    program = (
        "from twinstore.errors import ConcurrencyError\n"
        "from twinstore.servicelog import note_lost_race\n"
        "note_lost_race(ConcurrencyError('lost', driver='Mongo'), 0.01)\n"
    )
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert (found.stdout, found.stderr) == ("", "")
