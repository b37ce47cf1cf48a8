"""Copies that meet what others hold: leases, late renewals, and transactions of killed processes."""

from __future__ import annotations

import json
import logging
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, cast
from uuid import uuid4

import psycopg
import pytest
from pymongo import MongoClient
from typing_extensions import override

import twinstore
from tests.support.copies import AS_OF, MemoryPair, Pair, fill, open_store, rows_of
from twinstore.bulk.port import Conflict
from twinstore.catalog.keys import KeyRange
from twinstore.catalog.tenancy import Tenant
from twinstore.config import load_settings
from twinstore.errors import ConcurrencyError, LeaseLostError
from twinstore.fast.records import PackedBatch
from twinstore.ledger import JobState, Ledger
from twinstore.ledger.catalog import JOBS, RANGES
from twinstore.scheduler.catalog import AUDIT, RUNS, SCHEDULES
from twinstore.testing.scheduler.builders import make_run, make_schedule
from twinstore_backfill.copy import engine
from twinstore_backfill.copy.engine import run_copy
from twinstore_backfill.copy.lease import RETRY_SECONDS, ConflictRetry, LeaseKeeper, ProcessIdentity
from twinstore_backfill.copy.options import CopyOptions
from twinstore_backfill.outcome import Exit, InterruptedRunError
from twinstore_backfill.process.stopping import StopSwitch
from twinstore_backfill.progress.record import SilentProgress
from twinstore_backfill.repair.engine import Repair, empty_reported_rows
from twinstore_backfill.verify.findings import FindingKind

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from concurrent.futures import Future
    from pathlib import Path

    from pymongo.client_session import ClientSession

    from tests.support.databases import MongoDatabase, PostgresDatabase
    from twinstore.bulk.port import BulkPort, ImportOutcome, OnConflict, Record
    from twinstore.catalog.entity import Entity
    from twinstore.ledger import CopyJob, Lease
    from twinstore_backfill.copy.report import CopyResult

Document = dict[str, Any]
LEASE: Final = timedelta(minutes=10)


class Impatient(StopSwitch):
    """Waits for nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.pauses: list[float] = []

    @override
    def pause(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.check()


def copied(pair: Pair, stop: StopSwitch | None = None) -> CopyResult:
    options = CopyOptions(out=pair.directory, as_of=AS_OF, execute=True, jobs=1)
    return run_copy(pair.source, pair.target, options, SilentProgress(), stop or Impatient())


def job_of(pair: Pair) -> CopyJob:
    (job,) = pair.target.ledger.jobs()
    return job


def losing(monkeypatch: pytest.MonkeyPatch, name: str, times: int) -> list[int]:
    """Let a step of the ledger lose against another writer some times; return what is left."""
    honest: Callable[..., Any] = getattr(Ledger, name)
    left = [0] * times

    def step(self: Ledger, *given: Any, **more: Any) -> Any:  # noqa: ANN401  # as the step has them
        if left:
            left.pop()
            raise ConcurrencyError("Another writer changed the same data.")
        return honest(self, *given, **more)

    monkeypatch.setattr(Ledger, name, step)
    return left


class TestPatience:
    @pytest.mark.parametrize("step", ["start", "acquire", "take_pending", "resume", "finish"])
    def test_a_step_that_a_killed_process_blocks_is_waited_for(
        self,
        pair: MemoryPair,
        monkeypatch: pytest.MonkeyPatch,
        caplog: pytest.LogCaptureFixture,
        step: str,
    ) -> None:
        left = losing(monkeypatch, step, 20)
        stop = Impatient()
        with caplog.at_level(logging.WARNING):
            result = copied(pair, stop)
        assert (result.exit, result.complete, left) == (Exit.OK, True, [])
        assert len(stop.pauses) == 20
        told = [record.getMessage() for record in caplog.records if "has to wait" in record.getMessage()]
        assert len(told) == 1
        assert {item.attempts for item in pair.target.ledger.ranges(job_of(pair).id)} == {1}

    def test_it_has_an_end(self) -> None:
        ticks = [0.0]

        class Ticking(StopSwitch):
            @override
            def pause(self, seconds: float) -> None:
                ticks[0] += seconds

        def lose() -> None:
            raise ConcurrencyError("lost")

        with pytest.raises(ConcurrencyError):
            ConflictRetry(Ticking(), ticks=lambda: ticks[0]).run("It", lose)
        assert RETRY_SECONDS <= ticks[0] < RETRY_SECONDS + 3

    @pytest.mark.parametrize("step", ["start", "acquire"])
    def test_a_signal_ends_it(self, pair: MemoryPair, monkeypatch: pytest.MonkeyPatch, step: str) -> None:
        losing(monkeypatch, step, 20)
        stop = StopSwitch()
        monkeypatch.setattr("twinstore_backfill.copy.lease.RETRY_DELAYS", ())
        monkeypatch.setattr(StopSwitch, "pause", lambda self, _: (self.request(2), self.check()))
        with pytest.raises(InterruptedRunError):
            copied(pair, stop)


@contextmanager
def into_mongo(database: MongoDatabase, directory: Path) -> Iterator[Pair]:
    name = uuid4().hex
    persistence = cast("Document", database.config["Persistence"])
    settings = {
        "Persistence": {**persistence, "Memory": {"Store": name}},
        "Scheduler": {"Storage": {"RunRetentionDays": 0, "ImpactRetentionDays": 0}},
    }
    loaded = load_settings(settings, environ={})
    with ExitStack() as stack:
        source = stack.enter_context(open_store("scheduler", "memory", loaded))
        target = stack.enter_context(open_store("scheduler", "mongo", loaded))
        fill(source.storage)
        target.storage.initializer.ensure_migrations()
        yield Pair(source, target, directory)


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch, dead: ClientSession) -> list[str]:
    """Let the server end what a dead process left open when a copy says that it waits; note what for."""
    told: list[str] = []

    def end(self: ConflictRetry, what: str) -> None:
        del self
        told.append(what)
        dead.abort_transaction()

    monkeypatch.setattr(ConflictRetry, "_warn", end)
    monkeypatch.setattr("twinstore_backfill.copy.lease.WARN_AFTER", 0)
    return told


@pytest.fixture
def dead(mongo_database: MongoDatabase) -> Iterator[ClientSession]:
    """Yield the session of a process that was killed; nobody else ends its transaction soon."""
    with (
        closing(MongoClient[Document](mongo_database.url)) as client,
        client.start_session() as session,
    ):
        session.start_transaction()
        yield session


def test_the_open_transaction_of_a_dead_process_only_delays_a_copy(
    mongo_database: MongoDatabase, tmp_path: Path, dead: ClientSession, told: list[str]
) -> None:
    with into_mongo(mongo_database, tmp_path) as pair:
        left: Document = {"_id": "acme-audit-0"}
        insert = {"insert": AUDIT.collection, "documents": [left], "bypassDocumentValidation": True}
        dead.client[mongo_database.name].command(insert, session=dead)
        result = copied(pair, StopSwitch())
        assert (result.exit, result.complete, result.failed.count) == (Exit.OK, True, 0)
        assert len(told) == 1
        assert told[0].endswith("of audit")
        assert rows_of(pair.target.bulk)["audit"] == rows_of(pair.source.bulk)["audit"]


def hold(database: MongoDatabase, dead: ClientSession, entity: Entity, where: Document) -> None:
    """Let a dead process have changed a row in its transaction."""
    rows = dead.client[database.name][entity.collection]
    assert rows.update_one(where, {"$inc": {"_version": 1}}, session=dead).modified_count


def test_the_range_that_a_dead_process_holds_only_delays_a_copy(
    mongo_database: MongoDatabase, tmp_path: Path, dead: ClientSession, told: list[str]
) -> None:
    with into_mongo(mongo_database, tmp_path) as pair:

        class Dying(SilentProgress):
            """Takes a range of the audit in the name of a process that dies while it commits it."""

            @override
            def start(self, name: str, total: int, done: int = 0, *, estimated: bool = False) -> None:
                del total, done, estimated
                if name == AUDIT.name:
                    assert pair.target.ledger.take(job_of(pair).id, "dead", name, timedelta(milliseconds=1))
                    hold(mongo_database, dead, RANGES, {"worker": "dead"})

        options = CopyOptions(out=pair.directory, as_of=AS_OF, execute=True, jobs=1)
        result = run_copy(pair.source, pair.target, options, Dying(), StopSwitch())
        assert (result.exit, result.complete, result.failed.count) == (Exit.OK, True, 0)
        assert told[-1] == "Taking over a range"
        assert rows_of(pair.target.bulk) == rows_of(pair.source.bulk)


@pytest.mark.parametrize(
    "kind", [FindingKind.DIFFERENT, pytest.param(FindingKind.EXTRA, marks=pytest.mark.long)]
)
def test_the_row_that_a_dead_process_holds_only_delays_a_repair(
    mongo_database: MongoDatabase,
    tmp_path: Path,
    dead: ClientSession,
    told: list[str],
    kind: FindingKind,
) -> None:
    with into_mongo(mongo_database, tmp_path) as pair, empty_reported_rows([RUNS]) as named:
        if kind is FindingKind.DIFFERENT:
            pair.source.storage.runs.create(make_run("acme", "held"))
        pair.target.storage.runs.create(make_run("acme", "held", schedule_id="another"))
        hold(mongo_database, dead, RUNS, {"_id": "held"})
        named.take([json.dumps({"entity": "runs", "kind": kind, "key": ["held"]}).encode()])
        done = Repair(pair.source, pair.target, AS_OF, StopSwitch()).run([RUNS], named, remove=True)
        assert (done.written.total(), done.removed.total()) == ((1, 0) if kind != "extra" else (0, 1))
        assert told == ["A repair of runs"]
        assert pair.target.storage.runs.get("acme", "held") == pair.source.storage.runs.get("acme", "held")


@pytest.mark.long
def test_the_job_that_a_dead_process_holds_only_delays_a_copy(
    mongo_database: MongoDatabase, tmp_path: Path, dead: ClientSession, told: list[str]
) -> None:
    with into_mongo(mongo_database, tmp_path) as pair:
        copied(pair, StopSwitch())
        hold(mongo_database, dead, JOBS, {})
        result = copied(pair, StopSwitch())
        assert (result.exit, result.complete) == (Exit.OK, True)
        assert told == ["Taking the job"]


UNSHARE: Final = ("unshare", "--pid", "--fork", "--mount-proc")
NO_NAMESPACES: Final = shutil.which("unshare") is None or bool(
    subprocess.run([*UNSHARE, "true"], check=False, capture_output=True).returncode
)


@pytest.mark.skipif(NO_NAMESPACES, reason="this system allows no pid namespace")
def test_a_living_holder_is_not_taken_for_dead_from_another_pid_namespace() -> None:
    """Two containers on the network of a host have its name; neither sees the processes of the other."""
    ask = (
        "import sys; from twinstore_backfill.copy.lease import ProcessIdentity; "
        "print(ProcessIdentity.parse(sys.argv[1]).dead)"
    )
    gone = replace(ProcessIdentity.this_process(), started="1")
    answers = [
        subprocess.run([*where, sys.executable, "-c", ask, str(gone)], check=True, capture_output=True).stdout
        for where in ((), UNSHARE)
    ]
    assert answers == [b"True\n", b"False\n"]


class TestLateRenewals:
    def keeper(self, pair: Pair, lease: Lease, stop: StopSwitch) -> LeaseKeeper:
        return LeaseKeeper(pair.target.ledger, lease, lease.holder, LEASE, stop)

    def lease(self, pair: Pair, duration: timedelta = timedelta(0)) -> Lease:
        """Take a lease that has run out at once."""
        pair.target.ledger.start("job", {}, AS_OF)
        return pair.target.ledger.acquire("job", "me", duration)

    def test_a_lease_that_no_one_has_taken_is_not_lost(self, pair: MemoryPair) -> None:
        """It ran out because the server was suspended, or because a lock of ours took long."""
        lease = self.lease(pair)
        with self.keeper(pair, lease, StopSwitch()) as keeper:
            again = keeper.refresh()
        assert again.expires_at > lease.expires_at

    def test_one_that_another_process_has_taken_is(self, pair: MemoryPair) -> None:
        lease = self.lease(pair)
        pair.target.ledger.acquire("job", "thief", LEASE)
        with self.keeper(pair, lease, StopSwitch()) as keeper, pytest.raises(LeaseLostError) as lost:
            keeper.refresh()
        assert "ranges that are finished are saved" in lost.value.message

    def test_a_whole_copy_survives_leases_that_run_out(
        self, pair: MemoryPair, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        honest = Ledger.acquire

        def short(self: Ledger, job_id: str, holder: str, *_: timedelta, dead: str | None = None) -> Lease:
            return honest(self, job_id, holder, timedelta(0), dead=dead)

        monkeypatch.setattr(Ledger, "acquire", short)
        result = copied(pair)
        assert (result.exit, result.complete) == (Exit.OK, True)

    def test_no_failure_of_a_renewal_ends_the_thread(
        self, pair: MemoryPair, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        lease = self.lease(pair, LEASE)
        outcomes = [RuntimeError("a bug"), LeaseLostError("taken"), LeaseLostError("taken")]

        def renew(self: Ledger, lease: Lease, duration: timedelta) -> Lease:
            del self, lease, duration
            raise outcomes.pop(0)

        monkeypatch.setattr(Ledger, "renew", renew)
        monkeypatch.setattr(Ledger, "regain", renew)
        stop = StopSwitch()
        keeper = LeaseKeeper(pair.target.ledger, lease, "me", timedelta(milliseconds=3), stop)
        with keeper:
            # The second round finds the lease lost and asks for the stop.
            assert stop._event.wait(20)  # noqa: SLF001  # the switch has no other way to wait
        assert isinstance(keeper.lost, LeaseLostError)
        assert outcomes == []


class TestTheNextCopy:
    def test_one_that_starts_while_the_last_one_reports_does_not_take_its_counts(
        self, pair: MemoryPair, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The job is complete by then, and its lease is still held."""
        honest = engine.Copy._result  # noqa: SLF001  # the moment that is meant
        competitors: list[Exception] = []

        def result(self: engine.Copy, *given: Any) -> CopyResult:  # noqa: ANN401  # as the step has them
            if not competitors:
                competitors.append(RuntimeError("not refused"))
                try:
                    copied(pair)
                except LeaseLostError as error:
                    competitors[0] = error
            return honest(self, *given)

        monkeypatch.setattr(engine.Copy, "_result", result)
        first = copied(pair)
        assert isinstance(competitors[0], LeaseLostError)
        assert first.totals.all()["written"] == sum(rows_of(pair.source.bulk).values())
        assert first.job is not None
        assert (first.job["generation"], first.job["state"]) == (1, JobState.COMPLETE.value)
        monkeypatch.undo()
        assert copied(pair).totals.all()["written"] == 0
        assert job_of(pair).generation == 2

    def test_a_refused_one_forgets_nothing(self, pair: MemoryPair) -> None:
        copied(pair)
        job, ledger = job_of(pair), pair.target.ledger
        before = list(ledger.ranges(job.id))
        lease = ledger.acquire(job.id, "somebody", LEASE)
        with pytest.raises(LeaseLostError):
            copied(pair)
        assert list(ledger.ranges(job.id)) == before
        ledger.release(lease)
        assert copied(pair).complete


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
    """The steps of a concurrent transaction while the merge waits for it, and what becomes of the range.

    Attributes:
        steps: of the concurrent transaction, see :data:`EACH`.
        end: of its transaction.
        written: how many rows are written.
        conflicts: the rows with other content.
        b: who wrote the row that was missing, ``None`` if no one did.
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


def await_waiting(connection: psycopg.Connection[Any], competitor: int, waiting: Future[Any]) -> None:
    """Return as soon as a session waits for what another one holds."""
    waits = "SELECT count(*) FROM pg_stat_activity WHERE %s = ANY(pg_blocking_pids(pid))"
    while connection.execute(waits, [competitor]).fetchone() == (0,):
        assert not waiting.done()


@pytest.mark.native
@pytest.mark.parametrize("packed", [True, False], ids=["packed", "records"])
@pytest.mark.parametrize("name", CASES)
def test_what_a_concurrent_writer_does_meanwhile_is_seen(
    bulk: BulkPort,
    admin: psycopg.Connection[Any],
    module_postgres_database: PostgresDatabase,
    name: str,
    *,
    packed: bool,
) -> None:
    case = CASES[name]
    batch = read(bulk, packed=packed)
    with ThreadPoolExecutor(1) as pool, psycopg.connect(module_postgres_database.superuser_url) as competitor:
        competitor.execute(KEEP)
        competitor.commit()
        for statement in (MISSING, CHANGED):
            admin.execute(statement)
        for step in case.steps.split():
            competitor.execute(EACH[step[0]].encode(), [step[1:]])
        waiting = pool.submit(merged, bulk, batch, case.on_conflict)
        await_waiting(admin, competitor.info.backend_pid, waiting)
        (competitor.commit if case.end == "commit" else competitor.rollback)()
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
