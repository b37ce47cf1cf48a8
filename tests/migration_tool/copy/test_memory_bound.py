"""The memory of a copy and of a verification does not grow with the size of the documents or their number."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any, Final

import pytest
from pymongo import MongoClient

from tests.support.copies import AS_OF, open_store, server_settings, write_config
from twinstore.config import load_settings
from twinstore.scheduler.enums import RunState
from twinstore.testing.scheduler.builders import make_run
from twinstore_backfill.outcome import Exit

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tests.support.databases import MongoDatabase, PostgresDatabase

MEGABYTE: Final = 1_000_000
# 150 or 600 MB: with Python and the libraries above the ceiling, were all in memory in any form.
DOCUMENTS: Final = 150
DOCUMENT_BYTES: Final = {"bounded": MEGABYTE, "full": 4 * MEGABYTE}
# What Python and the libraries take, and a few documents at a time in each of their forms.
CEILING: Final = {"bounded": 200 * MEGABYTE, "full": 300 * MEGABYTE}
COPY: Final = ("copy", "--execute", "--jobs", "1")
# What one process runs; with another one for each command, it would start twice for the same answer.
COMMANDS: Final[dict[str, dict[str, tuple[tuple[str, ...], ...]]]] = {
    "bounded": {"copy and verify": (COPY, ("verify",))},
    "full": {"dry run": (("copy",),), "copy": (COPY,), "second copy": (COPY,), "verify": (("verify",),)},
}
PROGRAM: Final = """
import json, sys
from twinstore_backfill.cli import main
codes = [main(arguments) for arguments in json.loads(sys.argv[1])]
# Of this program alone: what getrusage tells includes the process that has started it.
(peak,) = [line for line in open("/proc/self/status") if line.startswith("VmHWM:")]
print("PEAK", int(peak.split()[1]) * 1024, file=sys.stderr)
sys.exit(max(codes))
"""


@pytest.fixture
def form(*, long_form: bool) -> str:
    return "full" if long_form else "bounded"


@pytest.fixture
def config(
    empty_mongo_database: MongoDatabase,
    postgres_database: PostgresDatabase,
    tmp_path: Path,
    form: str,
) -> Path:
    path = write_config(tmp_path / "settings.json", server_settings(empty_mongo_database, postgres_database))
    with open_store("scheduler", "mongo", load_settings(path, environ={})) as source:
        source.storage.initializer.ensure_migrations()
        source.storage.runs.create(make_run("acme", "run-0"))
    error = make_run("acme", "run-1", state=RunState.ERROR)
    with MongoClient[dict[str, Any]](empty_mongo_database.url) as client:
        runs = client[empty_mongo_database.name]["runs"]
        model = {**(runs.find_one() or {}), "state": "error", "finishedAt": error.finished_at}
        for number in range(1, DOCUMENTS):
            # Hard to compress, so that nothing makes it small on the way.
            text = "".join(chr(97 + (number * 7 + place * place) % 26) for place in range(1000))
            runs.insert_one(
                {**model, "_id": f"run-{number:03}", "error": text * (DOCUMENT_BYTES[form] // 1000)}
            )
    return path


def peak(config: Path, commands: Sequence[Sequence[str]]) -> int:
    sides = ["--module", "scheduler", "--from", "Mongo", "--to", "Postgres", "--as-of", AS_OF.isoformat()]
    more = [*sides, "--entity", "runs", "--out", str(config.parent / "out")]
    lines = [["--config", str(config), "backfill", name, *more, *options] for name, *options in commands]
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, json.dumps(lines)], check=False, capture_output=True, text=True
    )
    assert done.returncode == Exit.OK, done.stdout + done.stderr
    return int(done.stderr.rpartition("PEAK ")[2])


def test_large_documents_are_never_all_in_memory(config: Path, form: str) -> None:
    peaks = {name: peak(config, commands) for name, commands in COMMANDS[form].items()}
    assert {name: size for name, size in peaks.items() if size > CEILING[form]} == {}
