"""Copy and verification where PostgreSQL is on either side, or on both; MongoDB is not needed."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import psycopg
import pytest

from tests.backfill.toolkit import COPIED, DOCUMENTS_PER_TENANT, Pair, contents_of, fill, open_store, rows_of
from twinstore.config import load_settings
from twinstore.errors import ValidationError
from twinstore.scheduler.catalog import AUDIT, SCHEDULES
from twinstore_backfill.outcome import Exit
from twinstore_memory.store import drop_store

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.databases import PostgresDatabase, PostgresServer
    from tests.servers import Settings

ROWS = 2 * DOCUMENTS_PER_TENANT


@pytest.fixture
def memory() -> Iterator[Settings]:
    name = uuid4().hex
    yield {"Persistence": {"Memory": {"Store": name}}}
    drop_store(name)


def opened(
    stack: ExitStack, sides: tuple[tuple[str, Settings], tuple[str, Settings]], directory: Path
) -> Pair:
    source, target = (
        stack.enter_context(open_store("scheduler", driver, load_settings(settings, environ={})))
        for driver, settings in sides
    )
    return Pair(source, target, directory)


@pytest.fixture(params=["postgres to postgres", "memory to postgres", "postgres to memory"])
def pair(
    request: pytest.FixtureRequest, postgres_server: PostgresServer, memory: Settings, tmp_path: Path
) -> Iterator[Pair]:
    with ExitStack() as stack:
        sides = tuple(
            (driver, memory)
            if driver == "memory"
            else (driver, stack.enter_context(postgres_server.migrated_database()).config)
            for driver in request.param.split(" to ")
        )
        pair = opened(stack, (sides[0], sides[1]), tmp_path)
        fill(pair.source.storage)
        yield pair


def test_what_was_copied_is_proved_equal_and_not_written_twice(pair: Pair) -> None:
    result = pair.copy(jobs=4)
    assert (result.exit, result.complete) == (Exit.OK, True)
    for entity in COPIED:
        assert contents_of(pair.target.bulk, entity) == contents_of(pair.source.bulk, entity) != []
    report = pair.verify()
    assert (report.verdict, report.reasons, report.documents_equal) == ("PASS", (), ROWS)
    second = pair.copy(jobs=4).totals.all()
    assert (second["written"], second["unchanged"]) == (0, ROWS)


def test_one_tenant_is_copied_and_compared_alone(pair: Pair) -> None:
    assert pair.copy(tenants=("acme",)).totals.all()["written"] == DOCUMENTS_PER_TENANT
    assert pair.target.bulk.counts(SCHEDULES) == {"acme": 3}
    assert pair.verify(tenants=("acme",)).verdict == "PARTIAL"
    assert pair.verify().verdict == "FAIL"


def test_what_differs_is_found_and_overwritten_on_request(pair: Pair) -> None:
    pair.copy()
    schedule = pair.target.storage.schedules.get_required("acme", "acme-schedule-0")
    pair.target.storage.schedules.upsert(schedule.evolve(name="other"))
    assert pair.verify().verdict == "FAIL"
    kept = pair.copy(max_conflicts=1).totals.all()
    assert (kept["conflicts"], kept["unchanged"]) == (1, ROWS - 1)
    assert pair.copy(on_conflict="overwrite").totals.all()["written"] == 1
    assert pair.verify().verdict == "PASS"


def test_a_dry_run_writes_nothing(pair: Pair) -> None:
    assert pair.copy(execute=False).totals.all()["written"] == ROWS
    assert set(rows_of(pair.target.bulk).values()) == {0}


def test_the_same_database_under_another_name_is_refused(
    postgres_database: PostgresDatabase, tmp_path: Path
) -> None:
    other = str(postgres_database.app_url).replace("127.0.0.1", "localhost")
    elsewhere: Settings = {"Persistence": {"Postgres": {"ConnectionString": other}}}
    sides = (("postgres", postgres_database.config), ("postgres", elsewhere))
    with ExitStack() as stack:
        pair = opened(stack, sides, tmp_path)
        assert pair.source.bulk.place != pair.target.bulk.place
        assert pair.source.bulk.identity == pair.target.bulk.identity
        with pytest.raises(ValidationError, match="the same store"):
            pair.copy()


def test_a_refused_row_is_quarantined_with_its_reason(
    postgres_server: PostgresServer, tmp_path: Path
) -> None:
    with ExitStack() as stack:
        source, target = (stack.enter_context(postgres_server.migrated_database()) for _ in range(2))
        pair = opened(stack, (("postgres", source.config), ("postgres", target.config)), tmp_path)
        fill(pair.source.storage)
        with psycopg.connect(target.superuser_url) as admin:
            admin.execute("ALTER TABLE scheduler.audit ADD CHECK (id <> 'acme-audit-1')")
        with psycopg.connect(source.superuser_url) as admin:
            bad: list[Any] = ["acme-audit-2"]
            admin.execute("UPDATE scheduler.audit SET actor = '{\"a\": 1}' WHERE id = %s", bad)
        result = pair.copy(entities=(AUDIT.name,)).totals.all()
        job = next(pair.target.ledger.jobs())
        lines = {line.key: line for line in pair.target.ledger.quarantined(job.id)}
    assert (result["quarantined"], result["written"]) == (2, 6)
    assert set(lines) == {'["acme-audit-1"]', '["acme-audit-2"]'}
    assert "23514" in lines['["acme-audit-1"]'].reason
    assert '"a"' in (lines['["acme-audit-2"]'].raw or "")
