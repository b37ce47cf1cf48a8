"""The commands behind a transaction pooler: they work past it, or name the setting that is missing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

from tests.support.copies import fill, invoke, write_config
from tests.support.databases import without_retention
from tests.support.pgbouncer import pooler_before
from twinstore import open_storage
from twinstore.testing.scheduler.builders import make_image, make_impact_set

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.databases import MongoDatabase, PostgresDatabase, PostgresServer
    from tests.support.pgbouncer import Pooler

pytestmark = pytest.mark.pgbouncer

# More than a message of the pooler or a packet of it, less than a document of MongoDB may have.
LARGE: Final = 2_000  # values of a thousand characters
LARGE_OF_LONG: Final = 8_000
COPY: Final = (
    "backfill",
    "copy",
    "--module",
    "scheduler",
    "--from",
    "postgres",
    "--to",
    "memory",
    "--execute",
)


@pytest.fixture(scope="module", params=["transaction", pytest.param("session", marks=pytest.mark.long)])
def pooler(postgres_server: PostgresServer, request: pytest.FixtureRequest) -> Iterator[Pooler]:
    with pooler_before(postgres_server.url, pool_mode=request.param) as pooler:
        yield pooler


def test_what_was_stored_through_it_is_smoked_copied_and_proved_equal(
    pooler: Pooler,
    postgres_database: PostgresDatabase,
    mongo_database: MongoDatabase,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    *,
    long_form: bool,
) -> None:
    settings = without_retention(pooler.config(postgres_database))
    source = write_config(tmp_path / "postgres.json", settings)
    target = write_config(tmp_path / "mongo.json", without_retention(mongo_database.config))
    with open_storage(settings) as storage:
        fill(storage.scheduler, ("acme",))
        labels = {f"{n:08}": "x" * 1000 for n in range(LARGE_OF_LONG if long_form else LARGE)}
        large = make_impact_set(images=(make_image(1, labels=labels),))
        key = storage.scheduler.impact_snapshots.upsert("acme", large, run_id="large")
        assert storage.scheduler.impact_snapshots.get("acme", key) == large
    assert invoke(capsys, "--config", source, "smoke").code == 0
    route = ("--module", "scheduler", "--from", "postgres", "--to", "mongo", "--out", tmp_path / "report")
    stores = (*route, "--source-config", source, "--target-config", target)
    assert invoke(capsys, "backfill", "copy", *stores, "--execute").code == 0
    assert invoke(capsys, "backfill", "verify", *stores).code == 0


@pytest.mark.parametrize("command", [("smoke",), COPY], ids=["smoke", "copy"])
def test_without_the_address_of_the_server_the_setting_is_named(
    pooler: Pooler,
    postgres_database: PostgresDatabase,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    command: tuple[str, ...],
) -> None:
    settings = pooler.config(postgres_database, DirectConnectionString=None, OwnerConnectionString=None)
    answer = invoke(capsys, "--config", write_config(tmp_path / "settings.json", settings), *command)
    assert answer.code == 2
    assert "DirectConnectionString" in answer.out + answer.err
