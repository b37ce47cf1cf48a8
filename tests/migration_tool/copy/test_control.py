"""A running copy is paused, resumed and given another rate through its row in the ledger."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from threading import Event
from typing import TYPE_CHECKING, Final

import pytest
from typing_extensions import override

from tests.support.copies import AS_OF, Answer, MemoryPair, invoke, rows_of, write_config
from twinstore_backfill.copy import ranges
from twinstore_backfill.copy.control import RateLimiter
from twinstore_backfill.copy.engine import run_copy
from twinstore_backfill.copy.options import CopyOptions
from twinstore_backfill.copy.ranges import RangeQueue
from twinstore_backfill.outcome import Exit, InterruptedRunError
from twinstore_backfill.process.stopping import StopSwitch
from twinstore_backfill.progress.record import SilentProgress

if TYPE_CHECKING:
    from pathlib import Path

    from twinstore.ledger import CopyJob
    from twinstore_backfill.copy.report import CopyResult

Tell = Callable[..., Answer]
PATIENCE: Final = 30.0


@pytest.fixture
def tell(pair: MemoryPair, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Tell:
    """Return a way to say something to the copy into the target."""
    config = write_config(tmp_path / "target.json", {"Persistence": {"Memory": {"Store": pair.names[1]}}})
    target = ("--module", "scheduler", "--to", "memory", "--target-config", config, "--format", "json")

    def run(name: str, *arguments: object) -> Answer:
        return invoke(capsys, "backfill", name, *arguments, *target)

    return run


def job_of(pair: MemoryPair) -> CopyJob:
    (job,) = pair.target.ledger.jobs()
    return job


class AtEntity(SilentProgress):
    """Does something when an entity begins."""

    def __init__(self, name: str, action: Callable[[], object]) -> None:
        self._name = name
        self._action = action

    @override
    def start(self, name: str, total: int, done: int = 0, *, estimated: bool = False) -> None:
        if name == self._name:
            self._action()


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a small copy look at its job before each range."""
    monkeypatch.setattr(ranges, "LOOK_SECONDS", 0.0)


def copied(pair: MemoryPair, progress: SilentProgress, stop: StopSwitch | None = None) -> CopyResult:
    options = CopyOptions(out=pair.directory, as_of=AS_OF, range_size=3, execute=True, jobs=1)
    return run_copy(pair.source, pair.target, options, progress, stop or StopSwitch())


def test_a_paused_copy_waits_and_goes_on(
    pair: MemoryPair, tell: Tell, monkeypatch: pytest.MonkeyPatch
) -> None:
    idle = Event()
    honest = RangeQueue._look  # noqa: SLF001  # each look at the job

    def obey(self: RangeQueue) -> CopyJob | None:
        job = honest(self)
        if job is not None and job.paused:
            idle.set()
        return job

    monkeypatch.setattr(RangeQueue, "_look", obey)
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(
            copied, pair, AtEntity("runs", lambda: pair.target.ledger.pause(job_of(pair).id))
        )
        assert idle.wait(PATIENCE)
        idle.clear()
        # A second look: it has waited for some time, and nothing was written meanwhile.
        assert idle.wait(PATIENCE)
        before = rows_of(pair.target.bulk)
        assert before["runs"] < rows_of(pair.source.bulk)["runs"]
        assert before["audit"] == 0
        (shown,) = tell("status").json["jobs"]
        assert (shown["paused"], shown["stopped"], shown["lease"] is None) == (True, None, False)
        assert not running.done()
        answer = tell("resume")
        assert (answer.code, answer.json["paused"]) == (Exit.OK, False)
        result = running.result(PATIENCE)
    assert (result.exit, result.complete) == (Exit.OK, True)
    assert pair.verify().verdict == "PASS"


def test_a_paused_copy_can_be_interrupted_and_the_next_one_goes_on(pair: MemoryPair) -> None:
    stop = StopSwitch()

    def pause() -> None:
        pair.target.ledger.pause(job_of(pair).id)
        stop.request(15)

    with pytest.raises(InterruptedRunError):
        copied(pair, AtEntity("runs", pause), stop)
    assert job_of(pair).paused
    result = copied(pair, SilentProgress())
    assert (result.exit, result.complete, job_of(pair).stop) == (Exit.OK, True, False)


def test_another_rate_counts_from_the_next_range_on(
    pair: MemoryPair, tell: Tell, monkeypatch: pytest.MonkeyPatch
) -> None:
    rates: list[float | None] = []
    honest = RateLimiter.set_rate

    def set_rate(self: RateLimiter, rate: float | None) -> None:
        rates.append(rate)
        honest(self, rate)

    monkeypatch.setattr(RateLimiter, "set_rate", set_rate)
    answers: list[Answer] = []
    progress = AtEntity("runs", lambda: answers.append(tell("rate", 5000)))
    assert copied(pair, progress).complete
    (answer,) = answers
    assert (answer.code, answer.json["max_rate"]) == (Exit.OK, 5000)
    assert rates == [5000.0]
    # The next run begins as its command line says.
    assert copied(pair, SilentProgress()).complete
    assert (job_of(pair).max_rate, rates) == (None, [5000.0])


def test_a_limiter_with_another_rate_owes_nothing() -> None:
    waits: list[float] = []

    class Noting(StopSwitch):
        @override
        def pause(self, seconds: float) -> None:
            waits.append(seconds)

    limiter = RateLimiter(1, Noting(), lambda: 0.0)
    limiter.take(100)
    limiter.set_rate(50)
    limiter.take(100)
    limiter.set_rate(None)
    limiter.take(1000)
    assert waits == [100.0, 2.0]


@pytest.mark.parametrize(
    "rate", ["0", "-1", "1.5", "many", "", "1" * 5000, "1000000001", "\N{ARABIC-INDIC DIGIT ONE}"]
)
def test_a_rate_is_a_whole_number_or_none(tell: Tell, pair: MemoryPair, rate: str) -> None:
    pair.target.ledger.start("job", {}, AS_OF)
    answer = tell("rate", "--", rate) if rate.startswith("-") else tell("rate", rate)
    assert answer.code == Exit.USAGE
    assert tell("rate", "none").json["max_rate"] is None


def test_the_job_is_the_only_one_that_is_not_complete(tell: Tell, pair: MemoryPair) -> None:
    nothing = tell("pause")
    assert nothing.code == Exit.USAGE
    ledger = pair.target.ledger
    for name in ("one", "two"):
        ledger.start(name, {}, AS_OF)
    several = tell("pause")
    assert several.code == Exit.USAGE
    assert "say which with --job" in several.out
    assert tell("pause", "--job", "two").json == {"job": "two", "paused": True, "max_rate": None}
    ledger.complete(ledger.acquire("one", "me", timedelta(minutes=1)))
    # A pause does not take the place of another stop, and ends none.
    assert tell("resume").json == {"job": "two", "paused": False, "max_rate": None}
    ledger.stop(ledger.acquire("two", "me", timedelta(minutes=1)), "enough")
    assert tell("pause").json["paused"] is False
    tell("resume")
    found = ledger.find("two")
    assert found is not None
    assert (found.stop, found.stop_reason) == (True, "enough")
    assert tell("pause", "--job", "one").code == Exit.USAGE
