"""Rights that are taken away while a copy, a worker, a verification or a repair works."""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING, Final

import psycopg
import pytest

from tests.resilience.test_identity import (
    DATABASE,
    SECRETS,
    TENANT,
    Documents,
    Identity,
    Tables,
    certificates,
    documents,
    tables,
)
from tests.support.certificates import OPENSSL, WITHOUT_OPENSSL
from tests.support.copies import write_config
from tests.support.outages import eventually
from tools.soak.commands import PROGRAM, merged
from twinstore import open_storage
from twinstore.testing.scheduler.builders import make_run
from twinstore_backfill.outcome import Exit

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["certificates", "documents", "tables"]
pytestmark = [pytest.mark.long, pytest.mark.skipif(OPENSSL is None, reason=WITHOUT_OPENSSL)]
ROWS: Final = 4_000
# A command loads for a while on a busy machine.
START_SECONDS: Final = 100.0
REFUSED: Final = {Exit.USAGE, Exit.FAILED, Exit.PREFLIGHT_REFUSED}
LIMIT_SECONDS: Final = 300.0


@pytest.fixture(scope="module")
def config(documents: Documents, tables: Tables, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Fill MongoDB, and return the settings of both stores."""
    with open_storage(documents.settings()) as storage:
        storage.scheduler.runs.create(make_run(TENANT, "r-0"))
    runs = documents.admin[DATABASE]["runs"]
    first = runs.find_one({})
    assert first is not None
    runs.insert_many([{**first, "_id": f"r-{number}"} for number in range(1, ROWS)])
    directory = tmp_path_factory.mktemp("config")
    return write_config(directory / "both.json", merged(documents.settings(), tables.settings()))


def empty(tables: Tables) -> None:
    """Remove the rows of the target, and what the ledger knows of them."""
    with psycopg.connect(tables.server.superuser_url(database="twinstore")) as admin:
        admin.execute("TRUNCATE scheduler.runs CASCADE")
        admin.execute("DROP SCHEMA IF EXISTS twinstore CASCADE")


def start(config: Path, out: Path, name: str) -> subprocess.Popen[str]:
    words = ["--module", "scheduler", "--from", "Mongo", "--to", "Postgres"]
    more = {
        "copy": ["--out", str(out), "--execute", "--range-size", "100", "--max-rate", "500"],
        "work": ["--slots", "1", "--execute"],
        "verify": ["--out", str(out), "--jobs", "1"],
        "repair": ["--in", str(out), "--execute"],
    }
    return subprocess.Popen(
        [PROGRAM, "--config", str(config), "backfill", name, *words, *more[name]],
        # So slow that it is at work when the rights go.
        env={**os.environ, "TWINSTORE_FAST_PATH": "off"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def run(process: subprocess.Popen[str]) -> tuple[int, str]:
    """Return how a command ends, and what it says, which shows no secret."""
    out, _ = process.communicate(timeout=LIMIT_SECONDS)
    assert not any(secret in out for secret in SECRETS)
    return process.returncode, out


def prepare(name: str, config: Path, out: Path, tables: Tables) -> int:
    """Leave what a command works on: nothing, a job that was stopped, or differences; count its rows."""
    empty(tables)
    if name == "work":
        copy = start(config, out, "copy")
        assert eventually(lambda: 0 < len(tables.stored()) < ROWS, START_SECONDS)
        copy.terminate()
        assert run(copy)[0] == Exit.TERMINATED
    if name == "repair":
        assert run(start(config, out, "verify"))[0] == Exit.DIFFERENT
    return len(tables.stored())


def lose_and_go_on(name: str, config: Path, out: Path, tables: Tables, lost: Identity) -> None:
    """Take rights away from a command at work, and give them back for the next run."""
    before = prepare(name, config, out, tables)
    command = start(config, out, name)
    assert eventually(lambda: before < len(tables.stored()) < ROWS, START_SECONDS)
    (lost.take_writes if lost is tables else lost.take_all)()
    code, said = run(command)
    lost.give_back()
    assert code in REFUSED
    assert lost.remedy in said or "needs the role read" in said
    assert len(tables.stored()) < ROWS
    for again in (name, "verify"):
        assert run(start(config, out, again))[0] == Exit.OK
    assert len(tables.stored()) == ROWS


@pytest.mark.parametrize("name", ["copy", "work", "repair"])
def test_a_command_that_may_no_longer_read_its_source_says_so_and_continues_later(
    name: str, config: Path, documents: Documents, tables: Tables, tmp_path: Path
) -> None:
    lose_and_go_on(name, config, tmp_path, tables, documents)


@pytest.mark.parametrize("name", ["copy", "work", "repair"])
def test_a_command_that_may_no_longer_write_its_target_says_so_and_continues_later(
    name: str, config: Path, tables: Tables, tmp_path: Path
) -> None:
    lose_and_go_on(name, config, tmp_path, tables, tables)


@pytest.mark.parametrize("side", ["source", "target"])
def test_a_verification_that_loses_its_rights_gives_no_verdict(
    side: str, config: Path, documents: Documents, tables: Tables, tmp_path: Path
) -> None:
    if len(tables.stored()) < ROWS:
        assert run(start(config, tmp_path, "copy"))[0] == Exit.OK
    lost: Identity = documents if side == "source" else tables
    with tables.reads_held() as is_waited_for:
        verify = start(config, tmp_path, "verify")
        assert eventually(is_waited_for, START_SECONDS)
        lost.take_all()
    code, said = run(verify)
    lost.give_back()
    assert code in REFUSED
    assert "PASS" not in said
    assert lost.remedy in said or "needs the role read" in said
    assert run(start(config, tmp_path, "verify"))[0] == Exit.OK
