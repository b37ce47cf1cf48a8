"""Sources of many rows: planned in coarse ranges, which workers cut. What counts as many is lowered here."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

import psycopg
import pytest
from typing_extensions import override

from tests.support.copies import AS_OF, Pair, open_store, server_settings
from twinstore.bulk.port import Record
from twinstore.catalog.tenancy import Tenant
from twinstore.config import load_settings
from twinstore.errors import UnavailableError
from twinstore.ledger import ledger
from twinstore.ledger.ledger import RangeLedger
from twinstore.ledger.models import MAX_DEATHS
from twinstore.scheduler.catalog import AUDIT
from twinstore.testing.instants import at
from twinstore.testing.scheduler.builders import make_audit_record
from twinstore_backfill.cli.copying import plan_texts
from twinstore_backfill.copy import engine, reader
from twinstore_backfill.copy.engine import run_copy
from twinstore_backfill.copy.options import CopyOptions
from twinstore_backfill.plan import plan_copy
from twinstore_backfill.process.stopping import StopSwitch
from twinstore_backfill.progress.record import Progress
from twinstore_memory.bulk import MemoryBulk
from twinstore_postgres.bulk import port as postgres_port

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.databases import MongoDatabase, PostgresDatabase
    from twinstore.access.protocol import Access
    from twinstore.ledger import Claim, RangeProgress, RangeTally
    from twinstore_backfill.copy.report import CopyResult

LEAST: Final = 200
MOST: Final = 1000
COARSE: Final = 40
ROWS: Final = {"mongo to postgres": 30_000, "postgres to mongo": 2000}
POISON: Final = ("audit-001234",)
OPTIONS: Final = CopyOptions(entities=("audit",), as_of=AS_OF, range_size=LEAST, jobs=2, execute=True)
GRANTED: Final = "GRANT SELECT ON ALL TABLES IN SCHEMA scheduler TO PUBLIC"
PARTITIONED: Final = (
    "ANALYZE scheduler.audit",
    "ALTER TABLE scheduler.audit RENAME TO plain",
    "CREATE TABLE scheduler.audit (LIKE scheduler.plain) PARTITION BY HASH (id)",
    "CREATE TABLE scheduler.one PARTITION OF scheduler.audit FOR VALUES WITH (MODULUS 2, REMAINDER 0)",
    "CREATE TABLE scheduler.two PARTITION OF scheduler.audit FOR VALUES WITH (MODULUS 2, REMAINDER 1)",
    "INSERT INTO scheduler.audit SELECT * FROM scheduler.plain",
    GRANTED,
    "ANALYZE scheduler.audit",
)


class Totals(Progress):
    """Keeps the total that it receives."""

    found: tuple[int, bool] | None = None

    @override
    def start(self, name: str, total: int, done: int = 0, *, estimated: bool = False) -> None:
        self.found = total, estimated


@pytest.fixture
def direction() -> str:
    return "mongo to postgres"


@pytest.fixture
def pair(
    mongo_database: MongoDatabase,
    postgres_database: PostgresDatabase,
    direction: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Pair]:
    monkeypatch.setattr(reader, "MANY_ROWS", 1000)
    monkeypatch.setattr(reader, "ROWS_OF_WORKERS", MOST)
    monkeypatch.setattr(engine, "COARSE_ROWS", ROWS[direction] // COARSE)
    settings = load_settings(server_settings(postgres_database, mongo_database), environ={})
    source, target = direction.split(" to ")
    with (
        open_store("scheduler", source, settings) as left,
        open_store("scheduler", target, settings) as right,
    ):
        left.storage.initializer.ensure_migrations()
        with left.bulk.writer(AUDIT) as writer:
            for start in range(0, ROWS[direction], 1000):
                models = [
                    make_audit_record("acme", f"audit-{start + n:06}", occurred_at=at(n)) for n in range(1000)
                ]
                writer.write([Record((model.id,), Tenant("acme"), model) for model in models])
            writer.flush()
            writer.commit()
        yield Pair(left, right, tmp_path)


def copied(pair: Pair, progress: Progress | None = None) -> CopyResult:
    return run_copy(pair.source, pair.target, OPTIONS, progress or Progress(), StopSwitch())


def copied_if_alive(pair: Pair) -> CopyResult | None:
    try:
        return copied(pair)
    except UnavailableError:
        return None


def ranges_of(pair: Pair) -> list[RangeProgress]:
    """Return the ranges in order of their keys, which are all keys."""
    (job,) = pair.target.ledger.jobs()
    found = sorted(pair.target.ledger.ranges(job.id), key=lambda item: item.within.lower or ())
    assert (found[0].within.lower, found[-1].within.upper) == (None, None)
    assert all(one.within.upper == other.within.lower for one, other in pairwise(found))
    assert sorted(item.number for item in found) == list(range(1, job.planned + 1))
    return found


def test_workers_cut_the_coarse_ranges_of_a_large_entity_and_each_row_is_copied_once(
    pair: Pair, direction: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = plan_copy(pair.source, pair.target, OPTIONS)
    rows = ROWS[direction]
    (found,) = plan.entities
    assert (found.rows, found.ranges, found.tenants, found.estimated) == (rows, rows / LEAST, {}, True)
    assert f"~{rows:,} rows" in "".join(map(str, plan_texts(plan)))

    def dies(*_: object) -> None:
        raise UnavailableError("in the middle of cutting")

    with monkeypatch.context() as patch:
        patch.setattr(ledger, "part_of", dies)
        with pytest.raises(UnavailableError):
            copied(pair)
    before = ranges_of(pair)
    assert all(item.coarse for item in before)
    assert COARSE / 2 < len(before) <= COARSE + 1
    progress = Totals()
    result = copied(pair, progress)
    assert (result.complete, result.totals.of("audit")["written"]) == (True, rows)
    assert progress.found == (rows, True)
    after = ranges_of(pair)
    sizes = [sum(item.tally.read.values()) for item in after if item.tally]
    assert len(before) < len(after) < rows / LEAST
    assert LEAST < max(sizes) <= MOST
    assert not any(item.coarse for item in after)
    assert copied(pair).totals.of("audit")["written"] == 0
    assert pair.verify(range_size=1000).verdict == "PASS"


@pytest.mark.parametrize("direction", ["postgres to mongo"])
def test_a_row_that_kills_workers_is_found_in_a_part_of_a_coarse_range(
    pair: Pair, direction: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    honest = RangeLedger.finish

    def finish(self: RangeLedger, access: Access, claim: Claim, tally: RangeTally) -> None:
        lower, upper = claim.within.lower, claim.within.upper
        if (lower or POISON) <= POISON < (upper or (*POISON, "")) and not tally.quarantined:
            raise UnavailableError("killed")
        honest(self, access, claim, tally)

    deaths = 0
    with monkeypatch.context() as patch:
        patch.setattr(RangeLedger, "finish", finish)
        # As if the process had ended by itself.
        patch.setattr(RangeLedger, "sign_off", RangeLedger.leave)
        while (result := copied_if_alive(pair)) is None:
            deaths += 1
    assert deaths <= 2 * MAX_DEATHS + MOST.bit_length()
    total = result.totals.of("audit")
    assert (total["quarantined"], total["written"]) == (1, ROWS[direction] - 1)
    (job,) = pair.target.ledger.jobs()
    (line,) = pair.target.ledger.quarantined(job.id)
    assert (line.reason, line.key) == ("its workers died", f'["{POISON[0]}"]')
    assert not any(item.coarse for item in ranges_of(pair))
    assert copied(pair).totals.of("audit")["written"] == 1
    assert pair.verify(range_size=1000).verdict == "PASS"


@pytest.mark.parametrize("direction", ["postgres to mongo"])
def test_a_large_table_is_not_counted(
    pair: Pair, direction: str, postgres_database: PostgresDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    def counted(*_: object, **__: object) -> Any:  # noqa: ANN401  # never
        raise AssertionError

    bulk = pair.source.bulk
    monkeypatch.setattr(postgres_port, "MANY_ROWS", 1000)
    # As long as the server has no estimate, it counts.
    assert bulk.estimated_count(AUDIT) == ROWS[direction]
    with psycopg.connect(postgres_database.superuser_url, autocommit=True) as connection:
        for statement in PARTITIONED:
            connection.execute(statement)
            if not statement.startswith("ANALYZE"):
                continue
            with monkeypatch.context() as patch:
                patch.setattr(postgres_port.PostgresBulk, "counts", counted)
                assert bulk.estimated_count(AUDIT) == ROWS[direction]
                assert 1 < len(bulk.sample_keys(AUDIT, COARSE)) <= COARSE
        connection.execute("DROP TABLE scheduler.audit")
        connection.execute("CREATE VIEW scheduler.audit AS SELECT * FROM scheduler.plain")
        connection.execute(GRANTED)
    assert (bulk.estimated_count(AUDIT), bulk.sample_keys(AUDIT, COARSE)) == (ROWS[direction], ())


@pytest.mark.parametrize(
    ("least", "rows", "speed", "expected"),
    [
        (10_000, 20_000_000, 0.0, 10_000),
        (10_000, 20_000_000, 100.0, 10_000),
        (10_000, 20_000_000, 2000.0, 30_000),
        (10_000, 20_000_000, 99_999.0, 100_000),
        (200_000, 20_000_000, 99_999.0, 200_000),
        (10, 50_000_001, 0.0, 51),
        (10_000, 10**11, 2000.0, 100_000),
    ],
)
def test_a_range_has_the_rows_of_some_seconds_and_a_job_has_not_too_many(
    least: int, rows: int, speed: float, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(MemoryBulk, "estimated_count", lambda *_: rows)
    with open_store("scheduler", "memory", load_settings({}, environ={})) as store:
        source = reader.SourceRows(store.bulk, CopyOptions(range_size=least))
        assert source.range_size(AUDIT, speed) == expected
