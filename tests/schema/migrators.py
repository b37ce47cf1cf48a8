"""Processes of :mod:`tests.schema.interrupted`, and databases of both servers for them."""

from __future__ import annotations

import json
import signal
import subprocess
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import psycopg
from pymongo import MongoClient

from tests.support import forked

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pytest

    from tests.support.databases import MongoServer, PostgresServer
    from tests.support.servers import Settings

ROOT: Final = Path(__file__).parents[2]
DRIVERS: Final = ("mongo", "postgres")
PATIENCE: Final = 240
Report = dict[str, Any]


@contextmanager
def empty_database(driver: str, request: pytest.FixtureRequest) -> Iterator[Settings]:
    """Give the settings of a database without a schema."""
    if driver == "mongo":
        mongo: MongoServer = request.getfixturevalue("mongo_server")
        with mongo.database() as found:
            yield found.config
    else:
        postgres: PostgresServer = request.getfixturevalue("postgres_server")
        with postgres.empty_database() as made:
            yield made.config


def start(settings: Settings, **plan: object) -> forked.Popen:
    """Start the program; it waits for :func:`begin`."""
    process = forked.Popen(
        ["-m", "tests.schema.interrupted"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT
    )
    assert process.stdin is not None
    process.stdin.write(f"{json.dumps({'settings': settings, **plan})}\n")
    process.stdin.flush()
    return process


def begin(process: forked.Popen) -> None:
    """Let it begin, once it has said that it is ready."""
    assert process.stdin is not None
    assert process.stdout is not None
    assert json.loads(process.stdout.readline()) == {"ready": True}
    process.stdin.write("\n")
    process.stdin.flush()


def at_once(settings: Settings, count: int) -> list[Report]:
    """Let some processes migrate, of which none begins before all are ready; return what each says."""
    output, _ = start(settings, processes=count).communicate(timeout=PATIENCE)
    reports: list[Report] = json.loads(output)["reports"]
    assert len({report["process"] for report in reports}) == count
    return reports


def killed(settings: Settings, word: str, number: int, *, expire: bool = True, **plan: object) -> None:
    """Let a process run until it is killed before it sends a word for the given time.

    With ``expire`` no other process has to wait for its lease.
    """
    process = start(settings, kill_before=[word, number], **plan)
    begin(process)
    output, _ = process.communicate(timeout=PATIENCE)
    assert (process.returncode, output) == (-signal.SIGKILL, "")
    if expire:
        expire_lease(settings)


def expire_lease(settings: Settings) -> None:
    """Let the lease of a dead process run out now; a lock of PostgreSQL ends with its connection."""
    chosen: Any = settings["Persistence"]
    if (mongo := chosen.get("Mongo")) is not None:
        with MongoClient[Report](mongo["ConnectionString"]) as client:
            ledger = client[mongo["Database"]]["_migrations"]
            ledger.update_one({"_id": "_migration_lock"}, [{"$set": {"expiresAt": "$$NOW"}}])


def ledger_of(settings: Settings) -> list[str]:
    """Return the names of the applied migrations as the server has them, in their order."""
    chosen: Any = settings["Persistence"]
    if "Mongo" in chosen:
        with MongoClient[Report](chosen["Mongo"]["ConnectionString"]) as client:
            rows = client[chosen["Mongo"]["Database"]]["_migrations"].find(
                {"migration_name": {"$exists": True}}
            )
            return sorted(row["migration_name"] for row in rows)
    with psycopg.connect(chosen["Postgres"]["OwnerConnectionString"]) as connection:
        found = connection.execute(
            "SELECT migration_name FROM scheduler.schema_migrations ORDER BY 1"
        ).fetchall()
    return [name for (name,) in found]
