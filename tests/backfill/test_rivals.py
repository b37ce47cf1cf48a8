"""Copies that meet what somebody else holds: leases, late renewals, and transactions of killed processes."""

from __future__ import annotations

import logging
import shutil
import subprocess
import sys
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, cast
from uuid import uuid4

import pytest
from pymongo import MongoClient
from typing_extensions import override

from tests.backfill.toolkit import AS_OF, MemoryPair, Pair, fill, memory_pair, open_store, rows_of
from twinstore.config import load_settings
from twinstore.errors import ConcurrencyError, LeaseLostError
from twinstore.ledger import JobState, Ledger
from twinstore.scheduler.catalog import AUDIT
from twinstore_backfill.copy import engine
from twinstore_backfill.copy.engine import run_copy
from twinstore_backfill.copy.lease import PATIENCE_SECONDS, Holder, LeaseKeeper, Patience
from twinstore_backfill.copy.options import CopyOptions
from twinstore_backfill.outcome import Exit, InterruptedRunError
from twinstore_backfill.process.stopping import StopSwitch
from twinstore_backfill.progress.record import SilentProgress

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.databases import MongoDatabase
    from twinstore.ledger import CopyJob, Lease
    from twinstore_backfill.copy.report import CopyResult

Document = dict[str, Any]
LEASE: Final = timedelta(minutes=10)


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[MemoryPair]:
    with memory_pair(tmp_path) as pair:
        fill(pair.source.storage)
        yield pair


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
    @pytest.mark.parametrize("step", ["start", "acquire", "take", "resume", "finish"])
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
            Patience(Ticking(), ticks=lambda: ticks[0]).outlast("It", lose)
        assert PATIENCE_SECONDS <= ticks[0] < PATIENCE_SECONDS + 3

    @pytest.mark.parametrize("step", ["start", "acquire"])
    def test_a_signal_ends_it(self, pair: MemoryPair, monkeypatch: pytest.MonkeyPatch, step: str) -> None:
        losing(monkeypatch, step, 20)
        stop = StopSwitch()
        monkeypatch.setattr("twinstore_backfill.copy.lease.PAUSES", ())
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


def test_the_open_transaction_of_a_dead_process_only_delays_a_copy(
    mongo_database: MongoDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it wrote stays locked until the server ends it, here when the copy says that it waits."""
    with (
        into_mongo(mongo_database, tmp_path) as pair,
        closing(MongoClient[Document](mongo_database.url)) as client,
        client.start_session() as session,
    ):
        session.start_transaction()
        dead: Document = {"_id": "acme-audit-0"}
        insert = {"insert": AUDIT.collection, "documents": [dead], "bypassDocumentValidation": True}
        client[mongo_database.name].command(insert, session=session)
        told: list[str] = []

        def end(self: Patience, what: str) -> None:
            del self
            told.append(what)
            session.abort_transaction()

        monkeypatch.setattr(Patience, "_tell", end)
        monkeypatch.setattr("twinstore_backfill.copy.lease.TOLD_AFTER", 0)
        result = copied(pair, StopSwitch())
        assert (result.exit, result.complete, result.failed.count) == (Exit.OK, True, 0)
        assert len(told) == 1
        assert told[0].endswith("of audit")
        assert rows_of(pair.target.bulk)["audit"] == rows_of(pair.source.bulk)["audit"]


UNSHARE: Final = ("unshare", "--pid", "--fork", "--mount-proc")
NO_NAMESPACES: Final = shutil.which("unshare") is None or bool(
    subprocess.run([*UNSHARE, "true"], check=False, capture_output=True).returncode
)


@pytest.mark.skipif(NO_NAMESPACES, reason="this system lets nobody make a pid namespace")
def test_a_living_holder_is_not_taken_for_dead_from_another_pid_namespace() -> None:
    """Two containers on the network of a host have its name; neither sees the processes of the other."""
    ask = (
        "import sys; from twinstore_backfill.copy.lease import Holder; print(Holder.parse(sys.argv[1]).dead)"
    )
    gone = replace(Holder.this_process(), started="1")
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

    def test_a_lease_that_nobody_has_taken_is_not_lost(self, pair: MemoryPair) -> None:
        """As after a server that stood still, or a lock of our own that lasted."""
        lease = self.lease(pair)
        with self.keeper(pair, lease, StopSwitch()) as keeper:
            again = keeper.refresh()
        assert again.expires_at > lease.expires_at

    def test_one_that_somebody_has_taken_is(self, pair: MemoryPair) -> None:
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
        rivals: list[Exception] = []

        def result(self: engine.Copy, *given: Any) -> CopyResult:  # noqa: ANN401  # as the step has them
            if not rivals:
                rivals.append(RuntimeError("not refused"))
                try:
                    copied(pair)
                except LeaseLostError as error:
                    rivals[0] = error
            return honest(self, *given)

        monkeypatch.setattr(engine.Copy, "_result", result)
        first = copied(pair)
        assert isinstance(rivals[0], LeaseLostError)
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
