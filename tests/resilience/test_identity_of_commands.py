"""Rights that are taken away while a copy or a verification works."""

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
    words = ["--module", "scheduler", "--from", "Mongo", "--to", "Postgres", "--out", str(out)]
    copied = ["--execute", "--range-size", "100", "--max-rate", "500"] if name == "copy" else ["--jobs", "1"]
    return subprocess.Popen(
        [PROGRAM, "--config", str(config), "backfill", name, *words, *copied],
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


@pytest.mark.parametrize("side", ["source", "target"])
def test_a_copy_that_loses_its_rights_says_so_and_continues_when_they_are_back(
    side: str, config: Path, documents: Documents, tables: Tables, tmp_path: Path
) -> None:
    empty(tables)
    copy = start(config, tmp_path, "copy")
    assert eventually(lambda: 0 < len(tables.stored()) < ROWS, START_SECONDS)
    lost: Identity = documents if side == "source" else tables
    (documents.take_all if side == "source" else tables.take_writes)()
    code, said = run(copy)
    lost.give_back()
    assert code in REFUSED
    assert lost.remedy in said or "needs the role read" in said
    assert len(tables.stored()) < ROWS
    for name in ("copy", "verify"):
        assert run(start(config, tmp_path, name))[0] == Exit.OK
    assert len(tables.stored()) == ROWS


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
