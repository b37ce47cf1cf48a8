"""Locks between processes on real servers: exclusion, and what becomes of an owner that dies or hangs."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from contextlib import contextmanager
from datetime import datetime, timedelta
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final, cast

import psycopg
import pytest

import twinstore
from tests.resilience.locking import HOLDER, KEY
from tests.support import forked
from tests.support.outages import eventually
from tests.support.server_supervisor import ROOT
from twinstore.errors import LeaseLostError, UnavailableError
from twinstore.scheduler.locks import lock_number
from twinstore_postgres.connection import idle

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.databases import MongoDatabase, PostgresDatabase
    from tests.support.servers import Settings
    from twinstore.scheduler.locks import LockHandle, LockInfo
    from twinstore.scheduler.storage import SchedulerStorage

    Report = dict[str, Any]

NOW: Final = timedelta(0)
SECOND: Final = timedelta(seconds=1)
MINUTE: Final = timedelta(minutes=1)
PROCESSES: Final = 16
DRIVERS: Final = ("mongo", "postgres")
SMOKE_NUMBER: Final = 6742659038311058692


@pytest.fixture(params=DRIVERS)
def settings(request: pytest.FixtureRequest) -> Settings:
    """Return the settings of a fresh, migrated store."""
    database: MongoDatabase | PostgresDatabase = request.getfixturevalue(f"{request.param}_database")
    with twinstore.open_storage(database.config) as storage:
        storage.scheduler.initializer.ensure_migrations()
    return database.config


@pytest.fixture
def storage(settings: Settings) -> Iterator[SchedulerStorage]:
    with twinstore.open_storage(settings) as storage:
        yield storage.scheduler


class Holder:
    """A process that holds the lock."""

    def __init__(self, process: forked.Popen) -> None:
        """Wait until it has the lock."""
        self.process = process
        self.first = self._line()

    def __call__(self, step: str) -> Any:  # noqa: ANN401  # whatever it prints
        """Let it take a step and return what that came to."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{step}\n")
        self.process.stdin.flush()
        return self._line()["answer"]

    @property
    def expires_at(self) -> datetime:
        """When its first lease ends."""
        return datetime.fromisoformat(self.first["expires_at"])

    def _line(self) -> Report:
        assert self.process.stdout is not None
        return cast("Report", json.loads(self.process.stdout.readline()))


def started(scenario: str, settings: Settings, **options: object) -> forked.Popen:
    """Start the program."""
    process = forked.Popen(
        ["-m", "tests.resilience.locking", scenario], stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT
    )
    assert process.stdin is not None
    process.stdin.write(f"{json.dumps({**settings, 'Test': options})}\n")
    process.stdin.flush()
    return process


@contextmanager
def holding(settings: Settings, lease: float) -> Iterator[Holder]:
    """Let another process hold the lock; it is killed at the end, in whatever step it is."""
    process = started("hold", settings, lease=lease)
    try:
        yield Holder(process)
    finally:
        process.kill()
        process.communicate()


def lock_of(storage: SchedulerStorage) -> LockInfo:
    found = storage.locks.inspect(KEY)
    assert found is not None
    return found


def test_of_sixteen_processes_one_has_the_lock_at_a_time(
    settings: Settings, tmp_path: Path, *, long_form: bool
) -> None:
    seconds = 180 if long_form else 6
    reports = contended(settings, tmp_path, seconds=seconds, lease=60, deaths=0)
    assert reports == [{"wrong": []}] * PROCESSES
    assert fences_in(tmp_path) > PROCESSES
    assert one_at_a_time(tmp_path) > PROCESSES


def test_owners_that_are_killed_again_and_again_leave_one_owner_at_a_time(
    settings: Settings, storage: SchedulerStorage, tmp_path: Path, *, long_form: bool
) -> None:
    seconds, deaths = (120, 50) if long_form else (6, 10)
    reports = contended(settings, tmp_path, seconds=seconds, lease=1, deaths=deaths)
    assert [report for report in reports if report and report["wrong"]] == []
    assert None in reports
    one_at_a_time(tmp_path)
    with storage.locks.acquire(KEY, MINUTE) as owner:
        assert owner.fence == fences_in(tmp_path) + 1


def contended(settings: Settings, folder: Path, *, seconds: int, **options: object) -> list[Report | None]:
    """Let the processes want the lock; return what each says of its turns, ``None`` for one that died."""
    process = started(
        "contend", settings, processes=PROCESSES, seconds=seconds, folder=str(folder), **options
    )
    out, _ = process.communicate(timeout=seconds + 120)
    return cast("list[Report | None]", json.loads(out)["reports"])


def fences_in(folder: Path) -> int:
    """Return how many fences were given: each once, without a gap."""
    fences = [int(line) for line in (folder / "fences").read_text().splitlines()]
    assert sorted(fences) == list(range(1, len(fences) + 1))
    return len(fences)


def one_at_a_time(folder: Path) -> int:
    """Look at the turns in the order of their fences, by one clock: each begins after the last has ended."""
    lines = (folder / "turns").read_text().splitlines()
    turns = sorted(cast("tuple[int, int, int]", tuple(map(int, line.split()))) for line in lines)
    for (_, _, ended), (fence, begun, _) in pairwise(turns):
        assert begun > ended, f"the owner with fence {fence} was not alone"
    return len(turns)


def test_a_killed_owner_keeps_the_lock_until_its_lease_ends(
    settings: Settings, storage: SchedulerStorage
) -> None:
    with holding(settings, lease=3) as holder:
        os.kill(holder.process.pid, signal.SIGKILL)
        holder.process.wait()
        # By the server clock, which proves more than a failed attempt does.
        with storage.locks.acquire(KEY, MINUTE) as owner:
            assert (holder.first["fence"], owner.fence) == (1, 2)
            assert owner.acquired_at >= holder.expires_at


def test_a_stopped_owner_loses_the_lock_and_changes_nothing_when_it_wakes_up(
    settings: Settings, storage: SchedulerStorage
) -> None:
    with holding(settings, lease=3) as holder:
        assert holder("keep_alive") == "None"
        assert eventually(lambda: lock_of(storage).expires_at > holder.expires_at)
        os.kill(holder.process.pid, signal.SIGSTOP)
        before = lock_of(storage)
        with storage.locks.acquire(KEY, MINUTE, holder_id=HOLDER) as owner:
            assert (owner.fence, owner.holder_id) == (2, before.holder_id)
            assert owner.acquired_at >= before.expires_at
            os.kill(holder.process.pid, signal.SIGCONT)
            # It has the name of the new owner; only its fence distinguishes it.
            assert [holder(step) for step in ("is_held", "renew", "release")] == [
                "False",
                "LeaseLostError",
                "False",
            ]
            assert (lock_of(storage).fence, lock_of(storage).expires_at) == (2, owner.expires_at)
            assert owner.renew() > owner.acquired_at


def test_an_owner_that_renews_in_time_keeps_the_lock(settings: Settings, storage: SchedulerStorage) -> None:
    with holding(settings, lease=3) as holder:
        assert datetime.fromisoformat(holder("renew")) > holder.expires_at
        last = datetime.fromisoformat(holder("renew for a minute"))
        assert last > holder.expires_at + MINUTE / 2
        # Longer than its first lease.
        assert storage.locks.try_acquire(KEY, 3 * SECOND) is None
        assert [holder("release"), holder("release")] == ["True", "False"]
        with storage.locks.acquire(KEY, NOW) as owner:
            assert owner.fence == 2


def test_a_forked_child_does_not_hold_what_its_parent_holds(
    settings: Settings, storage: SchedulerStorage
) -> None:
    with holding(settings, lease=60) as holder:
        assert holder("fork") == ["False", "False", "TransactionAbortedError"]
        assert holder("is_held") == "True"
        assert datetime.fromisoformat(holder("renew")) >= holder.expires_at
        assert storage.locks.try_acquire(KEY, NOW) is None
        assert holder("release") == "True"


@pytest.mark.parametrize("settings", ["postgres"], indirect=True)
def test_the_number_of_a_lock_is_the_same_in_every_process_and_on_the_server(
    settings: Settings, postgres_database: PostgresDatabase
) -> None:
    # Fixed for ever: processes of two releases must exclude each other.
    assert lock_number("system", "twinstore:smoke") == SMOKE_NUMBER
    with holding(settings, lease=60) as holder:
        assert holder.first["number"] == lock_number("system", KEY)
        assert [number for number, _ in advisory_locks(postgres_database)] == [lock_number("system", KEY)]


def advisory_locks(database: PostgresDatabase) -> list[tuple[int, int]]:
    """Return the numbers of the advisory locks in a database, each with the session that holds it."""
    with psycopg.connect(database.superuser_url) as connection:
        return connection.execute(
            "SELECT (classid::bigint << 32) | objid::bigint, pid"
            " FROM pg_locks l JOIN pg_database d ON d.oid = l.database"
            " WHERE locktype = 'advisory' AND granted AND d.datname = current_database()"
        ).fetchall()


def session_of(database: PostgresDatabase, lock: LockHandle) -> int:
    """Return the session that holds the only lock, which is released then."""
    with lock:
        ((_, session),) = advisory_locks(database)
    return session


def is_open(database: PostgresDatabase, session: int) -> bool:
    with psycopg.connect(database.superuser_url) as connection:
        query = "SELECT 1 FROM pg_stat_activity WHERE pid = %s"
        return connection.execute(query, [session]).fetchone() is not None


@pytest.fixture
def narrow(postgres_database: PostgresDatabase) -> Iterator[SchedulerStorage]:
    """Open a storage that may have two connections for locks, and one in its pool."""
    narrowed = {"PoolMax": 1, "LockConnectionsMax": 2}
    persistence: dict[str, Any] = dict(cast("dict[str, Any]", postgres_database.config["Persistence"]))
    persistence["Postgres"] = {**persistence["Postgres"], **narrowed}
    config: Settings = {"Persistence": persistence}
    with twinstore.open_storage(config) as storage:
        yield storage.scheduler


def test_locks_take_no_connection_of_the_pool_and_no_more_than_they_may(narrow: SchedulerStorage) -> None:
    locks = narrow.locks
    with narrow.sessions.open("acme"), locks.acquire("a", NOW) as first, locks.acquire("b", NOW):
        with pytest.raises(UnavailableError, match=r"All 2 connections for locks \(LockConnectionsMax\)"):
            locks.try_acquire("c", 0.05 * SECOND)
        first.release()
        # An attempt in vain gives its connection back, and so does an owner that is forgotten.
        assert locks.try_acquire("b", NOW) is None
        assert locks.acquire("c", NOW).fence == 1
        with locks.acquire("d", NOW):
            pass
    assert narrow.runs.get("acme", "absent") is None


def test_locks_one_after_the_other_share_a_connection(
    narrow: SchedulerStorage, postgres_database: PostgresDatabase
) -> None:
    locks = narrow.locks
    first = session_of(postgres_database, locks.acquire("a", NOW))
    with locks.acquire("a", NOW) as held:
        # An attempt in vain needs a second connection, which is not the next one to be used.
        assert [locks.try_acquire("a", NOW) for _ in range(3)] == [None] * 3
        assert held.renew() >= held.acquired_at
    assert session_of(postgres_database, locks.acquire("b", NOW)) == first
    narrow.close()
    assert eventually(lambda: not is_open(postgres_database, first))


def test_a_connection_whose_lease_ran_out_is_not_used_again(
    narrow: SchedulerStorage, postgres_database: PostgresDatabase
) -> None:
    """It still has the advisory lock, which no statement has released."""
    with narrow.locks.acquire(KEY, NOW) as late:
        ((_, session),) = advisory_locks(postgres_database)
        with psycopg.connect(postgres_database.superuser_url) as connection:
            connection.execute("UPDATE scheduler.locks SET acquired_at = 'epoch', expires_at = 'epoch'")
        with pytest.raises(LeaseLostError):
            late.renew()
    assert session_of(postgres_database, narrow.locks.acquire(KEY, MINUTE)) != session


@pytest.mark.parametrize("silently", [False, True])
def test_an_idle_connection_that_has_ended_costs_another_one(
    narrow: SchedulerStorage,
    postgres_database: PostgresDatabase,
    monkeypatch: pytest.MonkeyPatch,
    *,
    silently: bool,
) -> None:
    if silently:  # as behind a broken network, and after more than a second
        monkeypatch.setattr(idle, "readable", lambda _: False)
        monkeypatch.setattr(idle, "TRUSTED_SECONDS", -1.0)
    session = session_of(postgres_database, narrow.locks.acquire(KEY, NOW))
    with psycopg.connect(postgres_database.superuser_url) as connection:
        connection.execute("SELECT pg_terminate_backend(%s, 10000)", [session])
    assert session_of(postgres_database, narrow.locks.acquire(KEY, NOW)) != session


def test_an_idle_connection_is_closed_by_itself_and_a_held_one_is_not(
    narrow: SchedulerStorage, postgres_database: PostgresDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(idle, "KEPT_SECONDS", 0.0)
    with narrow.locks.acquire("held", NOW) as held:
        ((_, first),) = advisory_locks(postgres_database)
        second = narrow.locks.acquire("a", NOW)
        (session,) = {pid for _, pid in advisory_locks(postgres_database)} - {first}
        assert second.release()
        assert eventually(lambda: not is_open(postgres_database, session))
        assert held.renew() > held.acquired_at


def test_the_server_does_not_end_an_idle_connection_with_the_last_lease(
    narrow: SchedulerStorage, postgres_database: PostgresDatabase
) -> None:
    """It would log an error for each."""
    hung = narrow.locks.acquire("hung", NOW, lease=SECOND)
    ((_, first),) = advisory_locks(postgres_database)
    brief = narrow.locks.acquire("a", NOW, lease=SECOND)
    (session,) = {pid for _, pid in advisory_locks(postgres_database)} - {first}
    assert brief.release()
    hung.renew()
    assert eventually(lambda: not is_open(postgres_database, first))
    assert is_open(postgres_database, session)


def test_a_lost_connection_is_a_lost_lock_that_is_free_when_its_lease_ends(
    narrow: SchedulerStorage, postgres_database: PostgresDatabase
) -> None:
    handle = narrow.locks.acquire(KEY, NOW, lease=5 * SECOND)
    with psycopg.connect(postgres_database.superuser_url) as connection:
        connection.execute(
            "SELECT pg_terminate_backend(l.pid) FROM pg_locks l JOIN pg_database d ON d.oid = l.database"
            " WHERE locktype = 'advisory' AND d.datname = current_database()"
        )
    with pytest.raises(LeaseLostError, match="connection was lost"):
        handle.renew()
    assert (handle.is_held(), handle.release()) == (False, False)
    with narrow.locks.acquire(KEY, MINUTE) as owner:
        assert (owner.fence, owner.acquired_at >= handle.expires_at) == (2, True)
