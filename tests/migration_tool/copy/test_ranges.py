"""What becomes of ranges: those that fail, those that several workers share, and those a dead worker left."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from contextlib import closing
from dataclasses import replace
from datetime import timedelta
from math import log2
from threading import Timer
from typing import TYPE_CHECKING, Any, Final

import pytest
from pymongo import MongoClient
from typing_extensions import override

from tests.migration_tool.copy.poisoned import repeat
from tests.migration_tool.copy.test_concurrent_writers import Impatient, job_of
from tests.support.copies import (
    AS_OF,
    COPIED,
    MemoryPair,
    invoke,
    open_store,
    rows_of,
    server_settings,
    write_config,
)
from twinstore.catalog.keys import KeyRange
from twinstore.config import load_settings
from twinstore.documents import DocumentWriter
from twinstore.errors import ConcurrencyError, ConfigurationError, TwinstoreError, UnavailableError
from twinstore.ledger import RangeState, RangeTally
from twinstore.ledger.ledger import MAX_ATTEMPTS
from twinstore.ledger.models import MAX_DEATHS
from twinstore.migrations.migration import MigrationState, MigrationStatus
from twinstore.scheduler.catalog import RUNS, SCHEDULES
from twinstore.testing.copying import in_the_end
from twinstore.testing.instants import at
from twinstore.testing.scheduler.builders import make_audit_record, make_run
from twinstore_backfill.copy import ranges
from twinstore_backfill.copy.engine import run_copy
from twinstore_backfill.copy.lease import LeaseKeeper, ProcessIdentity, start_time, worker_id
from twinstore_backfill.copy.options import (
    CopyOptions,
    dropping_settings,
    job_id,
    job_settings,
    released_settings,
)
from twinstore_backfill.outcome import Exit, InterruptedRunError
from twinstore_backfill.process.stopping import StopSwitch
from twinstore_backfill.progress.record import SilentProgress
from twinstore_backfill.rules.model import NO_RULES, JobRules
from twinstore_backfill.rules.reading import with_options
from twinstore_memory.bulk import MemoryBulk

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from tests.support.databases import MongoDatabase, PostgresDatabase
    from twinstore.bulk.port import Record
    from twinstore.catalog.entity import Entity
    from twinstore.catalog.keys import Key
    from twinstore.errors import Effect
    from twinstore.ledger import Claim, RangeProgress
    from twinstore_backfill.copy.report import CopyResult
    from twinstore_backfill.stores import Store

LONG: Final = timedelta(hours=1)
BAD: Final = ("acme-run-1",)
PATIENCE_SECONDS: Final = 20


def copied(pair: MemoryPair, stop: StopSwitch | None = None, **options: object) -> CopyResult:
    given = {"out": pair.directory, "as_of": AS_OF, "range_size": 3, "execute": True, "jobs": 1, **options}
    return run_copy(pair.source, pair.target, CopyOptions(**given), SilentProgress(), stop or Impatient())  # type: ignore[arg-type]  # the options of a test


def failing(monkeypatch: pytest.MonkeyPatch, key: Key, problems: Sequence[Exception]) -> list[Exception]:
    """Let writing a row fail with each of the problems once; return those that are left."""
    honest, left = DocumentWriter.write, list(problems)

    def write(self: DocumentWriter, records: Sequence[Record]) -> None:
        if left and any(record.key == key for record in records):
            raise left.pop(0)
        honest(self, records)

    monkeypatch.setattr(DocumentWriter, "write", write)
    return left


def stopping(monkeypatch: pytest.MonkeyPatch, key: Key, stop: StopSwitch) -> None:
    """Let SIGTERM arrive while a row is written."""
    honest = DocumentWriter.write

    def write(self: DocumentWriter, records: Sequence[Record]) -> None:
        if any(record.key == key for record in records):
            stop.request(signal.SIGTERM)
            stop.check()
        honest(self, records)

    monkeypatch.setattr(DocumentWriter, "write", write)


def ranges_of(pair: MemoryPair, entity: str) -> list[RangeProgress]:
    return list(pair.target.ledger.ranges(job_of(pair).id, entity))


class TestFailures:
    def test_a_range_that_lost_a_race_is_repeated_as_a_whole_after_a_pause(
        self, pair: MemoryPair, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        failing(monkeypatch, BAD, [ConcurrencyError("lost"), ConcurrencyError("again")])
        stop = Impatient()
        result = copied(pair, stop)
        assert (result.exit, result.complete) == (Exit.OK, True)
        assert stop.pauses == sorted(stop.pauses)
        assert len(stop.pauses) == 2
        assert {item.attempts for item in ranges_of(pair, "runs")} == {1}
        assert result.totals.of("runs")["written"] == 14

    def test_a_range_that_was_copied_is_not_waited_for(self, pair: MemoryPair) -> None:
        stop = StopSwitch()
        # A copy that does not see its own range as finished would wait until the lease of it ends.
        limit = Timer(PATIENCE_SECONDS, stop.request)
        limit.start()
        result = copied(pair, stop)
        limit.cancel()
        assert (result.exit, result.complete) == (Exit.OK, True)

    def test_a_range_that_fails_is_tried_again_and_the_others_go_on(
        self, pair: MemoryPair, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        failing(monkeypatch, BAD, [TwinstoreError("no room"), RuntimeError("a bug")])
        result = copied(pair)
        assert (result.exit, result.complete, result.failed.count) == (Exit.OK, True, 0)
        assert max(item.attempts for item in ranges_of(pair, "runs")) == 3
        assert rows_of(pair.target.bulk) == rows_of(pair.source.bulk)

    def test_a_range_that_fails_too_often_is_named_and_the_job_is_not_complete(
        self, pair: MemoryPair, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        left = failing(monkeypatch, BAD, [TwinstoreError("there is no room")] * (MAX_ATTEMPTS + 3))
        result = copied(pair)
        assert (result.exit, result.complete) == (Exit.FAILED, False)
        assert len(left) == 3
        (failed,) = [item for item in ranges_of(pair, "runs") if item.state is RangeState.FAILED]
        report = json.loads((pair.directory / "backfill-report.json").read_text())
        assert (report["exit_code"], report["complete"]) == (Exit.FAILED, False)
        (shown,) = report["failed_ranges"]["shown"]
        assert (shown["entity"], shown["range"]) == ("runs", failed.number)
        assert (shown["lower"], shown["reason"]) == (None, "there is no room")
        there = rows_of(pair.target.bulk)
        assert there["runs"] == rows_of(pair.source.bulk)["runs"] - 3
        # Rows that belong to a missing run are quarantined.
        logs = there["execution_logs"]
        assert {**there, "runs": 14, "execution_logs": logs} == {
            **rows_of(pair.source.bulk),
            "execution_logs": logs,
        }

    def test_the_same_command_tries_a_failed_range_again(
        self, pair: MemoryPair, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        failing(monkeypatch, BAD, [TwinstoreError("no room")] * MAX_ATTEMPTS)
        assert copied(pair).exit is Exit.FAILED
        result = copied(pair)
        assert (result.exit, result.complete, result.failed.count) == (Exit.OK, True, 0)
        assert pair.verify().verdict == "PASS"

    def test_an_unexpected_failure_is_reported_without_stored_values(
        self, pair: MemoryPair, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        failing(monkeypatch, BAD, [KeyError("s3cret content")] * MAX_ATTEMPTS)
        (shown,) = copied(pair).failed.shown
        assert shown["reason"] == "unexpected KeyError"

    def test_entities_that_refer_to_a_failed_range_wait_and_the_others_do_not(
        self, pair: MemoryPair, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        failing(monkeypatch, ("acme-schedule-1",), [TwinstoreError("no room")] * MAX_ATTEMPTS)
        result = copied(pair)
        assert result.exit is Exit.FAILED
        assert {item.state for item in ranges_of(pair, "triggers")} == {RangeState.PENDING}
        there = rows_of(pair.target.bulk)
        assert (there["schedules"], there["triggers"], there["runs"]) == (3, 0, 14)

    @pytest.mark.parametrize(
        "problem", [UnavailableError("the server is gone"), ConfigurationError("no right")]
    )
    def test_a_store_that_is_away_ends_the_run_and_fails_no_range(
        self, problem: TwinstoreError, pair: MemoryPair, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        failing(monkeypatch, BAD, [problem])
        with pytest.raises(type(problem)):
            copied(pair)
        assert {item.state for item in ranges_of(pair, "runs")} == {RangeState.PENDING}
        assert copied(pair).complete
        assert {item.deaths for item in ranges_of(pair, "runs")} == {0}
        assert pair.verify().verdict == "PASS"

    def test_a_range_in_which_a_signal_stops_the_copy_again_and_again_does_not_fail(
        self, pair: MemoryPair, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        times = max(MAX_ATTEMPTS, MAX_DEATHS) + 1
        for _ in range(times):
            stop = StopSwitch()
            with monkeypatch.context() as patch:
                stopping(patch, BAD, stop)
                with pytest.raises(InterruptedRunError):
                    copied(pair, stop)
            assert {item.state for item in ranges_of(pair, "runs")} == {RangeState.PENDING}
        result = copied(pair)
        assert (result.exit, result.complete) == (Exit.OK, True)

    def test_the_command_names_the_ranges_and_ends_with_code_4(
        self,
        pair: MemoryPair,
        monkeypatch: pytest.MonkeyPatch,
        tmp_path: Path,
        capsys: pytest.CaptureFixture[str],
    ) -> None:
        failing(monkeypatch, BAD, [TwinstoreError("there is no room")] * MAX_ATTEMPTS)
        answer = invoke(capsys, "backfill", "copy", *pair.sides, "--execute", "--out", tmp_path)
        assert answer.code == Exit.FAILED
        assert "Ranges that failed: 1." in answer.out
        assert ": there is no room" in answer.out
        status = invoke(capsys, "backfill", "status", *target_of(pair), "--format", "json")
        (job,) = status.json["jobs"]
        assert (job["failed_ranges"]["count"], job["state"]) == (1, "running")


def target_of(pair: MemoryPair) -> tuple[object, ...]:
    return (*pair.sides[:2], *pair.sides[4:6], *pair.sides[8:])


class TestSharing:
    def test_a_range_that_another_worker_copies_is_waited_for_and_not_copied_twice(
        self, pair: MemoryPair
    ) -> None:
        ledger = pair.target.ledger
        claims: list[Claim] = []

        class Colleague(SilentProgress):
            """Takes a range of the runs as soon as they begin, and finishes it when the audit is done."""

            @override
            def start(self, name: str, total: int, done: int = 0, *, estimated: bool = False) -> None:
                del total, done, estimated
                if name == "runs" and (claim := ledger.take(job_of(pair).id, "colleague", "runs", LONG)):
                    claims.append(claim)

            @override
            def finish(self, name: str) -> None:
                if name == "audit":
                    copy_one(pair, claims[0])

        options = CopyOptions(execute=True, out=pair.directory, as_of=AS_OF, range_size=3, jobs=1)
        result = run_copy(pair.source, pair.target, options, Colleague(), StopSwitch())
        assert result.complete
        assert {item.worker == "colleague" for item in ranges_of(pair, "runs")} == {True, False}
        assert result.totals.of("runs")["written"] == 14
        assert pair.verify().verdict == "PASS"

    def test_a_stop_of_the_job_is_obeyed_and_the_same_command_goes_on(
        self, pair: MemoryPair, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(ranges, "LOOK_SECONDS", 0.0)
        ledger = pair.target.ledger

        class Operator(SilentProgress):
            """Stops the job when the runs begin."""

            @override
            def start(self, name: str, total: int, done: int = 0, *, estimated: bool = False) -> None:
                del total, done, estimated
                if name == "runs":
                    lease = ledger.lease(job_of(pair).id)
                    assert lease is not None
                    ledger.stop(lease, "the disk is nearly full")

        options = CopyOptions(execute=True, out=pair.directory, as_of=AS_OF, range_size=3, jobs=1)
        result = run_copy(pair.source, pair.target, options, Operator(), StopSwitch())
        assert (result.stopped, result.complete) == ("the disk is nearly full", False)
        assert result.exit is Exit.FAILED
        assert rows_of(pair.target.bulk)["runs"] == 0
        assert copied(pair).complete
        assert pair.verify().verdict == "PASS"

    def test_too_many_conflicts_stop_the_job_for_every_worker(self, pair: MemoryPair) -> None:
        pair.target.storage.runs.create(make_run("acme", "acme-run-1", created_at=at(77)))
        result = copied(pair)
        job = job_of(pair)
        assert (job.stop, job.stop_reason) == (True, "more than 0 conflicts (--max-conflicts)")
        assert pair.target.ledger.take(job.id, "colleague", "audit", LONG) is None
        assert result.stopped == job.stop_reason


def copy_one(pair: MemoryPair, claim: Claim) -> None:
    """Copy a claimed range as another process would."""
    with pair.source.bulk.view() as view, pair.target.bulk.writer(RUNS) as writer:
        for batch in view.records(RUNS, claim.within):
            writer.write(batch)
        written = writer.flush().written
        pair.target.ledger.finish(writer.access, claim, RangeTally(read=written, written=written))
        writer.commit()


class TestDeadWorkers:
    @pytest.mark.parametrize("change", [{}, {"boot": "another"}, {"namespace": "1"}, {"host": "elsewhere"}])
    def test_only_a_process_that_ran_right_here_is_known_to_be_dead(self, change: dict[str, str]) -> None:
        me = ProcessIdentity.this_process()
        assert not me.dead
        host, boot, namespace = (
            change.get(name, mine)
            for name, mine in (("host", me.host), ("boot", me.boot), ("namespace", me.namespace))
        )
        gone = ProcessIdentity(host, me.pid, "1", boot, namespace)
        assert gone.dead is (not change)
        assert ProcessIdentity.parse(str(gone)) == gone

    def test_a_holder_of_an_earlier_release_is_never_known_to_be_dead(self) -> None:
        me = ProcessIdentity.this_process()
        earlier = ProcessIdentity.parse(f"{me.host}/{me.pid}/1")
        assert earlier is not None
        assert not earlier.dead
        assert ProcessIdentity.parse("somebody") is None

    def test_every_run_of_a_process_is_a_worker_of_its_own(self) -> None:
        assert worker_id() != worker_id()
        assert start_time(1) != start_time(ProcessIdentity.this_process().pid)

    def test_its_ranges_are_taken_at_once(self, pair: MemoryPair) -> None:
        ledger = pair.target.ledger
        dead = str(replace(ProcessIdentity.this_process(), started="1"))
        settings = settings_of(pair, job_settings)
        job = ledger.start(job_id(settings), settings, AS_OF)
        lease = ledger.acquire(job.id, dead, LONG)
        ledger.plan(lease, "runs", [KeyRange()])
        ledger.take(job.id, dead, "runs", LONG)
        assert copied(pair).complete
        assert [(item.attempts, item.deaths) for item in ranges_of(pair, "runs")] == [(1, 1)]
        assert rows_of(pair.target.bulk)["runs"] == 14

    def test_its_unfinished_ranges_are_all_that_is_copied_again(self, pair: MemoryPair) -> None:
        with pytest.MonkeyPatch.context() as patch:
            failing(patch, BAD, [UnavailableError("gone")])
            with pytest.raises(UnavailableError):
                copied(pair)
        before = [item for item in ranges_of(pair, "schedules") if item.state is RangeState.LIVE]
        assert copied(pair).complete
        assert ranges_of(pair, "schedules") == before


def settings_of(
    pair: MemoryPair,
    make: Callable[[CopyOptions, Store, Store, Sequence[Entity]], Mapping[str, str]],
    rules: JobRules = NO_RULES,
) -> Mapping[str, str]:
    """Return the settings of the job of :func:`copied`."""
    return make(CopyOptions(as_of=AS_OF, rules=rules), pair.source, pair.target, COPIED)


class TestSignsOfLife:
    def test_one_sign_serves_the_lease_and_the_ranges_of_all_threads(self, pair: MemoryPair) -> None:
        ledger, short = pair.target.ledger, timedelta(seconds=0.3)
        job = ledger.start("job", {}, AS_OF)
        lease = ledger.acquire(job.id, "me", short)
        ledger.plan(lease, "runs", [KeyRange(None, ("m",)), KeyRange(("m",), None)])
        with LeaseKeeper(ledger, lease, "me", short, StopSwitch()) as keeper:
            claims = [ledger.take(job.id, "me", "runs", short) for _ in range(2)]
            # Three renewals: without them lease and ranges would be free by then.
            in_the_end(lambda: keeper.lease.expires_at > lease.expires_at + short or None)
            assert ledger.take(job.id, "other", "runs", short) is None
            assert ledger.lease(job.id) == keeper.lease
        assert keeper.lost is None
        assert ledger.lease(job.id) is None
        assert [ledger.take(job.id, "other", "runs", LONG) for _ in claims] != [None, None]

    def test_a_lease_that_another_process_took_stops_the_run(self, pair: MemoryPair) -> None:
        ledger, short, stop = pair.target.ledger, timedelta(seconds=0.3), StopSwitch()
        job = ledger.start("job", {}, AS_OF)
        lease = ledger.acquire(job.id, "me", short)
        with LeaseKeeper(ledger, lease, "me", short, stop) as keeper:
            thief = ledger.acquire(job.id, "thief", LONG, dead="me")
            in_the_end(lambda: keeper.lost)
        assert stop.requested
        assert ledger.lease(job.id) == thief


class Unmigrated:
    """The initialiser of a ledger that is not there yet; notes when it is asked to make it."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def status(self) -> tuple[MigrationStatus, ...]:
        state = MigrationState.APPLIED if self.calls else MigrationState.PENDING
        return (MigrationStatus(name="001_create_ledger", category="schema", checksum="", state=state),)

    def effects(self) -> tuple[Effect, ...]:
        return ()

    def ensure_migrations(self) -> None:
        self.calls.append("ensure_migrations")


class TestTargetsWithoutLedger:
    @pytest.fixture(autouse=True)
    def initializer(self, monkeypatch: pytest.MonkeyPatch) -> Unmigrated:
        initializer = Unmigrated()
        monkeypatch.setattr(MemoryBulk, "ledger_initializer", initializer)
        return initializer

    def test_status_says_that_there_are_no_jobs(
        self, pair: MemoryPair, capsys: pytest.CaptureFixture[str]
    ) -> None:
        answer = invoke(capsys, "backfill", "status", *target_of(pair))
        assert (answer.code, "No copy into" in answer.out) == (Exit.OK, True)

    def test_a_plan_names_what_is_pending_and_makes_nothing(
        self, pair: MemoryPair, initializer: Unmigrated, capsys: pytest.CaptureFixture[str]
    ) -> None:
        answer = invoke(capsys, "backfill", "plan", *pair.sides, "--format", "json")
        assert answer.json["pending_migrations"] == ["001_create_ledger"]
        assert copied(pair, execute=False).exit is Exit.OK
        assert initializer.calls == []

    def test_a_copy_makes_it(self, pair: MemoryPair, initializer: Unmigrated) -> None:
        assert copied(pair).complete
        assert initializer.calls == ["ensure_migrations"]


class TestJobsOfEarlierReleases:
    @pytest.fixture(autouse=True)
    def places(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Let stores have a place that says something else than their identity."""
        monkeypatch.setattr(MemoryBulk, "place", property(lambda bulk: f"Memory here {bulk.identity[-6:]}"))

    def test_one_that_identified_stores_by_their_place_resumes(self, pair: MemoryPair) -> None:
        earlier = settings_of(pair, released_settings)
        assert job_id(earlier) != job_id(settings_of(pair, job_settings))
        ledger = pair.target.ledger
        job = ledger.start(job_id(earlier), earlier, AS_OF)
        lease = ledger.acquire(job.id, "before", LONG)
        ledger.plan(lease, SCHEDULES.name, [KeyRange()])
        ledger.release(lease)
        assert copied(pair).complete
        assert job_of(pair).id == job.id
        assert len(ranges_of(pair, "schedules")) == 1

    def test_one_whose_id_follows_from_dropped_properties_resumes(self, pair: MemoryPair) -> None:
        rules = with_options(NO_RULES, ["runs.legacy"])
        earlier = settings_of(pair, dropping_settings, rules)
        job = pair.target.ledger.start(job_id(earlier), earlier, AS_OF)
        assert copied(pair, rules=rules).complete
        assert job_of(pair).id == job.id != job_id(settings_of(pair, job_settings, rules))

    def test_a_new_job_is_identified_by_what_the_servers_report(self, pair: MemoryPair) -> None:
        result = copied(pair)
        assert job_of(pair).id == job_id(settings_of(pair, job_settings))
        assert result.settings["source"] == pair.source.bulk.identity
        assert result.settings["source_place"] == pair.source.bulk.place


KILLED: Final = -9
COUNT: Final = 40
OF_ONE: Final = 32


@pytest.fixture
def settings(mongo_database: MongoDatabase, postgres_database: PostgresDatabase, tmp_path: Path) -> Path:
    return write_config(tmp_path / "settings.json", server_settings(mongo_database, postgres_database))


@pytest.fixture
def short_transactions(mongo_database: MongoDatabase) -> Iterator[None]:
    """Let the server end what a killed process left open after a second instead of a minute."""
    name = "transactionLifetimeLimitSeconds"
    with closing(MongoClient[dict[str, Any]](mongo_database.url)) as client:
        was = client.admin.command({"setParameter": 1, name: 1})["was"]
        yield
        client.admin.command({"setParameter": 1, name: was})


# What the ledger does is in the kit, on every driver.
@pytest.mark.usefixtures("short_transactions")
@pytest.mark.parametrize(
    ("source", "target"), [("Mongo", "Postgres"), pytest.param("Postgres", "Mongo", marks=pytest.mark.long)]
)
def test_a_row_that_kills_every_process_is_named_and_all_others_are_copied(
    source: str, target: str, settings: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    loaded = load_settings(settings, environ={})
    with open_store("scheduler", source, loaded) as store:
        for number in range(COUNT):
            store.storage.runs.create(make_run("acme", f"run-{number:02}", created_at=at(number)))
        store.storage.audit.append(make_audit_record("acme", "audit-1"))
    sides = ["--module", "scheduler", "--from", source, "--to", target, "--as-of", AS_OF.isoformat()]
    options = ["--execute", "--jobs", "4", "--range-size", str(OF_ONE), "--out", str(tmp_path)]
    command = ["--config", str(settings), "backfill", "copy", *sides, *options]

    program = [sys.executable, "-m", repeat.__module__, *command]
    done = subprocess.run(program, check=False, capture_output=True, text=True, timeout=240)
    # Five deaths of the range, one of each half down to two rows, and five of the row.
    deaths = MAX_DEATHS + int(log2(OF_ONE)) - 1 + MAX_DEATHS
    assert done.stderr.splitlines()[-1:] == [str([*[KILLED] * deaths, int(Exit.INCONCLUSIVE)])], done.stderr
    lines = list(map(json.loads, (tmp_path / "quarantine.ndjson").read_text().splitlines()))
    assert {(line["entity"], line["reason"]) for line in lines} == {("runs", "its workers died")}
    assert [line["key"] for line in lines] == [["run-07"]]
    with open_store("scheduler", target, loaded) as store:
        assert sum(store.bulk.counts(RUNS).values()) == COUNT - 1
    verified = ("verify", *sides[:-2], "--format", "json")
    report = invoke(capsys, "--config", settings, "backfill", *verified).json
    assert report["verdict"] == "INCONCLUSIVE"

    # What killed the processes is gone.
    retried = ("quarantine", "retry", *sides, "--execute")
    invoke(capsys, "--config", settings, "backfill", *retried)
    assert invoke(capsys, "--config", settings, "backfill", *verified).json["verdict"] == "PASS"
