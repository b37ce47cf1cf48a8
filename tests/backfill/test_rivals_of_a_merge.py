"""Sessions that write rows of a range while PostgreSQL merges it: the outcome says what became of them."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

import psycopg
import pytest

import twinstore
from twinstore.bulk.port import Conflict
from twinstore.catalog.keys import KeyRange
from twinstore.catalog.tenancy import Tenant
from twinstore.fast.records import PackedBatch
from twinstore.scheduler.catalog import SCHEDULES
from twinstore.testing.scheduler.builders import make_schedule

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from concurrent.futures import Future

    from tests.databases import PostgresDatabase
    from twinstore.bulk.port import BulkPort, ImportOutcome, OnConflict, Record

T: Final = "acme"
# Read before anything else happens: the range that is merged has all of them.
NAMES: Final = "abcde"
KEEP: Final = "CREATE TEMPORARY TABLE kept AS SELECT * FROM scheduler.schedules"
# What the target has when the merge begins: b is missing, and d is another.
MISSING: Final = "DELETE FROM scheduler.schedules WHERE id = 'b'"
CHANGED: Final = "UPDATE scheduler.schedules SET updated_by = 'other' WHERE id = 'd'"
INSERT: Final = "INSERT INTO scheduler.schedules SELECT * FROM kept WHERE id = %s"
DELETE: Final = "DELETE FROM scheduler.schedules WHERE id = %s"
UPDATE: Final = "UPDATE scheduler.schedules SET updated_by = 'rival' WHERE id = %s"
# Under another key, with the same name.
MOVE: Final = "UPDATE scheduler.schedules SET id = 'taker' WHERE id = %s"
EACH: Final = {"+": INSERT, "-": DELETE, "~": UPDATE, ">": MOVE}
RIVAL: Final = "rival"
OTHER: Final = "other"
OURS: Final = "ada"


class Case(NamedTuple):
    """What a rival does in one transaction while the merge waits for it, and what becomes of the range.

    Attributes:
        steps: of the rival, see :data:`EACH`.
        end: of its transaction.
        written: how many rows are written.
        conflicts: the rows with other content.
        b: who wrote the row that was missing, ``None`` for nobody.
        d: who wrote the row that was another.
        rejected: the rows that are refused.
    """

    steps: str
    end: Literal["commit", "rollback"]
    on_conflict: OnConflict
    written: int
    conflicts: str
    b: str | None
    d: str | None
    rejected: str = ""


CASES: Final = {
    "an insert is undone": Case("+b ~b", "rollback", "fail", 1, "d", OURS, OTHER),
    "an equal row comes": Case("+b", "commit", "fail", 0, "d", OURS, OTHER),
    "another row comes": Case("+b ~b", "commit", "fail", 0, "bd", RIVAL, OTHER),
    "one comes, another goes": Case("+b ~b -d", "commit", "fail", 1, "b", RIVAL, OURS),
    "one comes, two go": Case("+b -d -a", "commit", "fail", 2, "", OURS, OURS),
    "the name is taken": Case("+b >b", "commit", "fail", 0, "d", None, OTHER, "b"),
    "the name is not taken": Case("+b >b", "rollback", "fail", 1, "d", OURS, OTHER),
    "what differs goes": Case("-d", "commit", "overwrite", 2, "", OURS, OURS),
    "what differs stays": Case("-d", "rollback", "overwrite", 2, "d", OURS, OURS),
    "what differs goes and comes": Case("-d +d ~d", "commit", "overwrite", 2, "d", OURS, OURS),
    "what differs changes": Case("~d", "commit", "overwrite", 2, "d", OURS, OURS),
    "what differs becomes equal": Case("-d +d", "commit", "overwrite", 1, "", OURS, OURS),
    "one changes, one comes, one goes": Case("+b ~b ~a -d", "commit", "overwrite", 3, "ab", OURS, OURS),
    "one comes and is overwritten": Case("+b ~b -d", "commit", "overwrite", 2, "b", OURS, OURS),
}


@pytest.fixture
def bulk(module_postgres_database: PostgresDatabase) -> Iterator[BulkPort]:
    with twinstore.add_scheduler_postgres_storage(module_postgres_database.config) as storage:
        for name in NAMES:
            storage.schedules.upsert(make_schedule(T, name, name=name))
        yield storage.bulk


@pytest.fixture
def admin(module_postgres_database: PostgresDatabase) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(module_postgres_database.superuser_url, autocommit=True) as connection:
        yield connection
        connection.execute("DELETE FROM scheduler.schedules")


def read(bulk: BulkPort, *, packed: bool) -> Sequence[Record]:
    with bulk.view() as view:
        (batch,) = (view.packed if packed else view.records)(SCHEDULES, KeyRange())
    assert isinstance(batch, PackedBatch) == packed
    return batch


def merged(bulk: BulkPort, batch: Sequence[Record], on_conflict: OnConflict) -> ImportOutcome:
    with bulk.writer(SCHEDULES, on_conflict=on_conflict) as writer:
        writer.write(batch)
        outcome = writer.flush()
        writer.commit()
    return outcome


def await_waiting(connection: psycopg.Connection[Any], rival: int, waiting: Future[Any]) -> None:
    """Return as soon as a session waits for what another one holds."""
    waits = "SELECT count(*) FROM pg_stat_activity WHERE %s = ANY(pg_blocking_pids(pid))"
    while connection.execute(waits, [rival]).fetchone() == (0,):
        assert not waiting.done()


@pytest.mark.native
@pytest.mark.parametrize("packed", [True, False], ids=["packed", "records"])
@pytest.mark.parametrize("name", CASES)
def test_what_a_rival_does_meanwhile_is_seen(
    bulk: BulkPort,
    admin: psycopg.Connection[Any],
    module_postgres_database: PostgresDatabase,
    name: str,
    *,
    packed: bool,
) -> None:
    case = CASES[name]
    batch = read(bulk, packed=packed)
    with ThreadPoolExecutor(1) as pool, psycopg.connect(module_postgres_database.superuser_url) as rival:
        rival.execute(KEEP)
        rival.commit()
        for statement in (MISSING, CHANGED):
            admin.execute(statement)
        for step in case.steps.split():
            rival.execute(EACH[step[0]].encode(), [step[1:]])
        waiting = pool.submit(merged, bulk, batch, case.on_conflict)
        await_waiting(admin, rival.info.backend_pid, waiting)
        (rival.commit if case.end == "commit" else rival.rollback)()
        outcome = waiting.result()
    overwritten = case.on_conflict == "overwrite"
    assert set(outcome.conflicts) == {Conflict((key,), Tenant(T), overwritten) for key in case.conflicts}
    assert [item.record.key for item in outcome.rejected] == [(key,) for key in case.rejected]
    left_alone = 0 if overwritten else len(case.conflicts)
    equal = len(NAMES) - case.written - left_alone - len(case.rejected)
    assert (sum(outcome.written.values()), sum(outcome.unchanged.values())) == (case.written, equal)
    found = admin.execute("SELECT id, updated_by FROM scheduler.schedules WHERE id <> 'taker'")
    wanted = {**dict.fromkeys(NAMES, OURS), "b": case.b, "d": case.d}
    assert dict(found.fetchall()) == {key: who for key, who in wanted.items() if who is not None}


# Of an owner who has changed names in capitals: what is overwritten never equals what is stored.
CAPITALS: Final = """
CREATE FUNCTION scheduler.capitals() RETURNS trigger LANGUAGE plpgsql
AS $$ BEGIN NEW.updated_by := upper(NEW.updated_by); RETURN NEW; END $$;
CREATE TRIGGER capitals BEFORE UPDATE ON scheduler.schedules
    FOR EACH ROW EXECUTE FUNCTION scheduler.capitals();
"""
NO_CAPITALS: Final = "DROP FUNCTION scheduler.capitals CASCADE"


@pytest.mark.native
@pytest.mark.parametrize("packed", [True, False], ids=["packed", "records"])
def test_what_a_trigger_changes_is_overwritten_once(
    bulk: BulkPort, admin: psycopg.Connection[Any], *, packed: bool
) -> None:
    batch = read(bulk, packed=packed)
    admin.execute(MISSING)
    admin.execute(CAPITALS)
    try:
        admin.execute(CHANGED)
        outcome = merged(bulk, batch, "overwrite")
    finally:
        admin.execute(NO_CAPITALS)
    assert set(outcome.conflicts) == {Conflict(("d",), Tenant(T), overwritten=True)}
    assert (sum(outcome.written.values()), sum(outcome.unchanged.values())) == (2, 3)
    found = admin.execute("SELECT id, updated_by FROM scheduler.schedules")
    assert dict(found.fetchall()) == {**dict.fromkeys(NAMES, OURS), "d": OURS.upper()}
