"""Digests of many tenants and of many ranges take little more memory and time than those of few."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any, Final

import pytest
from pymongo import MongoClient

from tests.migration_tool.copy.test_between_servers import DIRECTIONS, opened
from tests.support import executed
from tests.support.copies import server_settings
from twinstore.catalog.row import Row
from twinstore.fast.library import fast_path
from twinstore.scheduler.catalog import RUNS
from twinstore.testing.scheduler.builders import make_run
from twinstore_mongo.mapping.codec import codec_of

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.databases import MongoDatabase, PostgresDatabase

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(not fast_path().is_on, reason="the native library is off"),
]
BATCH: Final = 5000
# In kilobytes, as the system counts them.
MOST_MEMORY: Final = 150_000
PROGRAM: Final = """
import os, sys
from twinstore_backfill.cli import main
code = main(sys.argv[1:])
# Of this program alone: what getrusage tells includes the process that has started it.
(peak,) = [line for line in open("/proc/self/status") if line.startswith("VmHWM:")]
print("USED", peak.split()[1], sum(os.times()[:2]), file=sys.stderr)
sys.exit(code)
"""


def runs_of(numbers: range, tenants: int) -> list[dict[str, Any]]:
    """Return runs as they are stored, of some tenants in turn."""
    one = codec_of(RUNS).encode(Row(make_run("acme", "run")))
    return [{**one, "_id": f"run-{number:07}", "tenantId": f"t{number % tenants}"} for number in numbers]


def verified(settings: Path, out: Path, range_size: int) -> tuple[dict[str, Any], float]:
    """Return the report of a verification in a process with little memory, and its processor time."""
    stores = ("--source-config", str(settings), "--target-config", str(settings))
    command = ("backfill", "verify", "--module", "scheduler", "--from", "mongo", "--to", "postgres")
    given = (*command, *stores, "--entity", "runs", "--jobs", "1", "--range-size", str(range_size))
    program = [sys.executable, "-c", PROGRAM, *given, "--out", str(out)]
    # To note what it executes for the map of the tests would take time and memory too.
    environ = {name: value for name, value in os.environ.items() if name != executed.SETTINGS}
    done = subprocess.run(program, check=True, capture_output=True, text=True, env=environ)
    kilobytes, seconds = map(float, done.stderr.rpartition("USED ")[2].split())
    assert kilobytes <= MOST_MEMORY
    report: dict[str, Any] = json.loads((out / "parity-report.json").read_bytes())
    assert report["envelope"]["ranges"]["row_by_row"] == 0
    return report, seconds


def loaded(
    mongo: MongoDatabase, postgres: PostgresDatabase, directory: Path, tenants: int, rows: int
) -> Path:
    """Fill both sides with the same runs; return the file of their settings."""
    settings = server_settings(mongo, postgres)
    with opened(settings, DIRECTIONS[0], directory) as pair:
        with MongoClient[dict[str, Any]](mongo.url) as client:
            for start in range(0, rows, BATCH):
                client[mongo.name]["runs"].insert_many(
                    runs_of(range(start, min(start + BATCH, rows)), tenants), ordered=False
                )
        pair.copy(range_size=10_000)
    file = directory / "settings.json"
    file.touch(0o600)
    file.write_text(json.dumps(settings), encoding="utf-8")
    return file


@pytest.mark.parametrize("tenants", [8, 8001])
def test_owners_are_folded(
    empty_mongo_database: MongoDatabase, postgres_database: PostgresDatabase, tmp_path: Path, tenants: int
) -> None:
    settings = loaded(empty_mongo_database, postgres_database, tmp_path, tenants, 100_000)
    report, _ = verified(settings, tmp_path / "out", 10_000)
    (runs,) = report["entities"]
    assert (len(runs["tenants"]), len(runs["ranges"])) == (tenants, 10)
    assert sum(tenant["source"]["count"] for tenant in runs["tenants"]) == 100_000
    assert sum(part["source"]["count"] for part in runs["ranges"]) == 100_000


def test_many_ranges_are_read_some_at_a_time(
    empty_mongo_database: MongoDatabase, postgres_database: PostgresDatabase, tmp_path: Path
) -> None:
    settings = loaded(empty_mongo_database, postgres_database, tmp_path, 8, 1_000_010)
    (few, few_seconds), (many, seconds) = (
        verified(settings, tmp_path / str(size), size) for size in (10_000, 10)
    )
    assert [len(report["entities"][0]["ranges"]) for report in (few, many)] == [101, 100_001]
    assert few["entities"][0]["tenants"] == many["entities"][0]["tenants"]
    assert seconds <= 1.3 * few_seconds
