"""Retention is judged by the clock of the source, never by a future instant."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, cast

import pytest

from tests.support.copies import AS_OF, MemoryPair, invoke, rows_of, write_config
from tests.support.databases import without_retention
from twinstore.clock import FixedClock
from twinstore.errors import ValidationError
from twinstore.models.json_text import format_timestamp
from twinstore_backfill.copy.options import CopyOptions
from twinstore_backfill.plan import plan_copy

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.databases import MongoDatabase, PostgresDatabase

FUTURE: Final = datetime(2099, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize("execute", [False, True], ids=["dry", "execute"])
def test_a_copy_refuses_an_instant_to_come_and_writes_nothing(pair: MemoryPair, *, execute: bool) -> None:
    with pytest.raises(ValidationError, match="is in the future"):
        pair.copy(as_of=FUTURE, execute=execute)
    assert not any(rows_of(pair.target.bulk).values())
    assert not list(pair.target.ledger.jobs())


def test_a_plan_and_a_verification_refuse_it_too(pair: MemoryPair) -> None:
    pair.copy()
    with pytest.raises(ValidationError, match="is in the future"):
        plan_copy(pair.source, pair.target, CopyOptions(as_of=FUTURE))
    with pytest.raises(ValidationError, match="is in the future"):
        pair.verify(as_of=FUTURE)
    # A millisecond is enough: the clock of the source decides, not that of this process.
    for store in pair.stores:
        store.clock = FixedClock(AS_OF)
    with pytest.raises(ValidationError, match="is in the future"):
        pair.verify(as_of=AS_OF + timedelta(milliseconds=1))
    assert pair.verify(as_of=AS_OF).verdict == "PASS"


def test_without_an_instant_the_clock_of_the_source_decides(pair: MemoryPair) -> None:
    """The clock of this process is far ahead of that of the source; nothing has expired there yet."""
    for store in pair.stores:
        store.clock = FixedClock(AS_OF)
    result = pair.copy(as_of=None)
    assert result.as_of == AS_OF
    assert result.totals.all()["expired"] == 0
    report = pair.verify(as_of=None)
    assert report.envelope.as_of == format_timestamp(AS_OF)
    assert report.verdict == "PASS"
    assert sum(item.counts.expired_source for item in report.entities) == 0


def test_rows_lost_on_the_target_are_missing_whatever_the_clock_of_the_client_says(pair: MemoryPair) -> None:
    for store in pair.stores:
        store.clock = FixedClock(AS_OF)
    pair.copy(as_of=None)
    pair.stores[1].clear()
    assert pair.verify(as_of=None).verdict == "FAIL"


@pytest.fixture(params=[("Mongo", "Postgres"), ("Postgres", "Mongo")], ids="-".join)
def sides(request: pytest.FixtureRequest) -> tuple[str, str]:
    chosen: tuple[str, str] = request.param
    return chosen


@pytest.fixture
def config(
    mongo_database: MongoDatabase, postgres_database: PostgresDatabase, tmp_path: Path, sides: tuple[str, str]
) -> Path:
    persistence: dict[str, Any] = {}
    for database in (mongo_database, postgres_database):
        persistence |= cast("dict[str, Any]", database.config["Persistence"])
    settings: dict[str, object] = {"Persistence": {**persistence, "Scheduler": sides[0]}}
    return write_config(tmp_path / "settings.json", without_retention(settings))


@pytest.mark.parametrize("command", [("plan",), ("copy",), ("copy", "--execute"), ("verify",)], ids="".join)
def test_every_command_ends_with_a_wrong_command_line(
    config: Path, sides: tuple[str, str], capsys: pytest.CaptureFixture[str], command: tuple[str, ...]
) -> None:
    given = ("--config", config)
    for backend in sides:
        migrate = ("migrate", "run", "--module", "scheduler", "--backend", backend)
        assert invoke(capsys, *given, *migrate).code == 0
    chosen = ("--module", "scheduler", "--from", sides[0], "--to", sides[1])
    as_of = ("--as-of", "2099-01-01T00:00:00Z")
    answer = invoke(capsys, *given, "backfill", command[0], *chosen, *command[1:], *as_of)
    assert answer.code == 2, answer.err
    assert "is in the future: the clock of " in answer.err
