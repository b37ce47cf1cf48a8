"""A verification on an engine: whatever happens to its processes, the report is the same."""

from __future__ import annotations

import os
import pickle
import signal
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field, replace
from random import Random
from threading import Event, Thread
from typing import TYPE_CHECKING, Any, Final

import psutil
import pytest

from tests.support.clusters import DaskCluster, running
from tests.support.copies import (
    AS_OF,
    fill,
    invoke,
    open_store,
    server_settings,
    write_config,
)
from twinstore.config import load_settings
from twinstore.errors import TwinstoreError, ValidationError
from twinstore.fast.library import fast_path
from twinstore.testing.scheduler.builders import make_audit_record
from twinstore_backfill.engines import pool as pools
from twinstore_backfill.engines.pool import Refused, delay
from twinstore_backfill.engines.processes import Processes
from twinstore_backfill.outcome import Exit, exit_code
from twinstore_backfill.process.stopping import StopSwitch
from twinstore_backfill.report.model import Envelope, ParityReport, parse_report
from twinstore_backfill.stores import StoreSpec
from twinstore_backfill.verify import processes
from twinstore_backfill.verify.context import Task, VerifyContext
from twinstore_backfill.verify.digest_ranges import DigestTask
from twinstore_backfill.verify.processes import Done, Failed, WorkerPool, run_tasks
from twinstore_backfill.verify.tasks import OpenPartsTask, RangeTask

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from tests.support.copies import MemoryPair
    from tests.support.databases import MongoDatabase, PostgresDatabase

PASSWORD: Final = "hunter2Zq9Kx"  # not a real one
ROWS: Final = 400
KILLS: Final = 10
ENVELOPE: Final = Envelope(generated_at="", host="", as_of="", seconds=0)


@pytest.fixture
def config(mongo_database: MongoDatabase, postgres_database: PostgresDatabase, tmp_path: Path) -> Path:
    """Return settings of two servers whose records differ here and there."""
    settings = server_settings(mongo_database, postgres_database)
    place = settings["Persistence"]["Postgres"]
    assert "?" not in place["ConnectionString"]
    # Of the key of a client, which it has none of.
    place["ConnectionString"] += f"?sslpassword={PASSWORD}"
    path = write_config(tmp_path / "settings.json", settings)
    for name in ("mongo", "postgres"):
        with open_store("scheduler", name, load_settings(path, environ={})) as store:
            store.storage.initializer.ensure_migrations()
            fill(store.storage, ["acme"])
            for number in range(ROWS):
                if name == "mongo" or number % 50:
                    store.storage.audit.append(
                        make_audit_record("acme", f"audit-{number:04}", occurred_at=AS_OF)
                    )
    return path


def verified(
    config: Path, out: Path, capsys: pytest.CaptureFixture[str], *more: object
) -> tuple[ParityReport, bytes]:
    """Return the report without its envelope, and the differences."""
    sides = ("--module", "scheduler", "--from", "mongo", "--to", "postgres", "--as-of", AS_OF.isoformat())
    command = ("--config", config, "backfill", "verify", *sides, "--range-size", 20, *more)
    answer = invoke(capsys, *command, "--out", out)
    assert answer.code == Exit.DIFFERENT, answer.err
    report = parse_report((out / "parity-report.json").read_bytes(), "report")
    return report.model_copy(update={"envelope": ENVELOPE}), (out / "differences.ndjson").read_bytes()


def killed_at_its_end(function: Callable[..., Any], *arguments: Any) -> None:  # noqa: ANN401  # as there
    """Do all the work, but let the process be killed before the parent hears of it."""
    function(*arguments)
    os.kill(os.getpid(), signal.SIGKILL)


class Recorded(Processes):
    """Child processes, of which some are killed at work; what they are given is kept."""

    given: Final[list[tuple[Any, ...]]] = []
    kills = 0

    def submit(self, function: Callable[..., Any], /, *arguments: Any) -> Future[Any]:  # noqa: ANN401  # as there
        self.given.append(arguments)
        if self.kills and isinstance(arguments[2], OpenPartsTask | RangeTask):
            self.kills -= 1
            return super().submit(killed_at_its_end, function, *arguments)
        return super().submit(function, *arguments)


class Foreign:
    """Processes that open the stores from their own settings."""

    def __init__(self, number: int) -> None:
        self._engine = Recorded(str(number))
        self.slots, self.submit, self.close = self._engine.slots, self._engine.submit, self._engine.close


@pytest.fixture
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let small work be worth a process, and small ranges have digests."""
    monkeypatch.setattr("twinstore_backfill.verify.plan.WORTH_A_PROCESS", 0)
    monkeypatch.setattr("twinstore_backfill.verify.partition.ROWS_PER_DIGEST", 10)
    Recorded.given.clear()


@pytest.mark.usefixtures("often")
def test_the_report_is_the_same_on_engines_whose_processes_are_killed_or_open_the_stores_themselves(
    config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TWINSTORE_CONFIG", str(config))
    alone = verified(config, tmp_path / "alone", capsys)
    monkeypatch.setattr(processes, "Processes", Recorded)
    children = Recorded("2")
    children.kills = 1
    for number, engine in enumerate((children, Foreign(1))):
        monkeypatch.setattr(processes, "open_engine", lambda _url, engine=engine: engine)
        Recorded.given.clear()
        assert verified(config, tmp_path / str(number), capsys, "--engine", "some://where") == alone
        kinds = {type(task) for _, _, task, *_ in Recorded.given}
        assert kinds == ({OpenPartsTask, DigestTask, RangeTask} if fast_path().is_on else {RangeTask})
    assert not children.kills
    foreign = Recorded.given
    assert foreign
    assert all(specs is turns is None for *_, specs, turns in foreign)
    sent = [pickle.dumps(given) for given in foreign]
    assert not [text for text in sent if PASSWORD.encode() in text]
    tickets = {pickle.dumps(ticket) for ticket, *_ in foreign}
    assert max(map(len, tickets)) < 400
    keys = {task.secret for _, _, task, *_ in foreign if isinstance(task, DigestTask)}
    assert len(keys) == int(fast_path().is_on)
    assert not [key for key in keys for ticket in tickets if key in ticket]
    assert not [task for _, _, task, *_ in foreign for key in keys if repr(key) in repr(task)]


@pytest.mark.long
@pytest.mark.usefixtures("often")
def test_the_report_does_not_depend_on_the_number_of_processes(
    config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    forms = [("--jobs", n) for n in (1, 2, 5)] + [("--engine", f"processes://{n}") for n in (1, 2, 5)]
    first, *others = (
        verified(config, tmp_path / str(number), capsys, *form) for number, form in enumerate(forms)
    )
    assert all(other == first for other in others)


@pytest.mark.long
@pytest.mark.usefixtures("often")
def test_on_dask_with_killed_workers_the_report_is_the_same_and_no_secret_is_kept(
    config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TWINSTORE_CONFIG", str(config))
    alone = verified(config, tmp_path / "alone", capsys)
    over, kills = Event(), [0]
    with running(DaskCluster, 3) as cluster:

        def strike() -> None:
            random = Random(5)
            while not over.wait(4):
                with suppress(psutil.NoSuchProcess):
                    for victim in random.sample(cluster.processes(), 1):
                        victim.kill()
                        kills[0] += 1

        striking = Thread(target=strike)
        striking.start()
        try:
            while kills[0] < KILLS:
                assert verified(config, tmp_path / "dask", capsys, "--engine", cluster.url) == alone
        finally:
            over.set()
            striking.join()
        # The name of a function shows that such things can be found there.
        assert [cluster.holds(text) for text in (b"twinstore_backfill", PASSWORD.encode())] == [True, False]


def test_an_engine_cannot_open_a_store_of_this_process(
    pair: MemoryPair, capsys: pytest.CaptureFixture[str]
) -> None:
    answer = invoke(capsys, "backfill", "verify", *pair.sides, "--engine", "processes://2")
    assert (answer.code, "no other process can open" in answer.err) == (Exit.USAGE, True), answer.err


def test_an_engine_that_lends_nothing_is_refused(context: VerifyContext) -> None:
    with pytest.raises(ValidationError, match="lends nothing to a verification"):
        WorkerPool(context, 1, "workers://")


# What an engine may do to a task. These have no processes: each step of the engine is one of the script.


@dataclass(frozen=True)
class Numbered(Task[int]):
    """A task whose result is its number."""

    number: int
    local: bool = False

    @property
    def is_local(self) -> bool:
        return self.local

    def run(self, context: VerifyContext) -> int:
        del context
        RUN_HERE.append(self.number)
        return self.number


RUN_HERE: Final[list[int]] = []


@dataclass
class Scripted:
    """An engine that does with each attempt what the script says; at its end all is well."""

    steps: Iterable[Callable[[Scripted, Numbered], object]] = ()
    number: int = 2
    attempts: list[int] = field(default_factory=list[int])
    future: Future[Any] = field(default_factory=Future[Any])
    most: int = 0
    open: list[Future[Any]] = field(default_factory=list[Future[Any]])
    closed: int = 0

    def __post_init__(self) -> None:
        self.script = iter(self.steps)

    def slots(self) -> int:
        # Time goes on when it is asked.
        for future in self.open:
            if not future.done():
                future.set_result(Done(vars(future)["number"]))
        self.open.clear()
        if self.number < 0:
            self.number = 2
            raise ConnectionError("forgotten")
        return self.number

    def submit(self, function: object, /, *arguments: Any) -> Future[Any]:  # noqa: ANN401  # as there
        del function
        task = arguments[2]
        assert isinstance(task, Numbered)
        self.attempts.append(task.number)
        self.future = Future()
        vars(self.future)["number"] = task.number
        next(self.script, Scripted.good)(self, task)
        return self.future

    def good(self, task: Numbered) -> None:
        self.future.set_result(Done(task.number))

    def lost(self, _task: Numbered) -> None:
        self.future.set_exception(ChildProcessError("killed"))

    def refused(self, _task: Numbered) -> None:
        self.future.set_result(Refused("elsewhere", "a store is another here"))

    def failed(self, _task: Numbered) -> None:
        self.future.set_result(Failed(ValidationError("the task cannot be done"), "where"))

    def cancelled(self, _task: Numbered) -> None:
        self.future.cancel()

    def slow(self, _task: Numbered) -> None:
        self.open.append(self.future)
        self.most = max(self.most, len(self.open))

    def forgotten(self, _task: Numbered) -> None:
        """Never finish, because the whole engine has forgotten it."""
        self.number = -1

    def close(self) -> None:
        self.closed += 1


@pytest.fixture
def context(pair: MemoryPair, monkeypatch: pytest.MonkeyPatch) -> VerifyContext:
    """Return two stores that other processes could open; no failure is waited for."""
    monkeypatch.setattr(pools, "delay", lambda _failures: 0.0)
    monkeypatch.setattr(pools, "LOOK_SECONDS", 0.0)
    monkeypatch.setattr(pools, "TICK_SECONDS", 0.001)
    RUN_HERE.clear()
    spec = StoreSpec("scheduler", "Memory", {})
    return VerifyContext(replace(pair.source, spec=spec), replace(pair.target, spec=spec), AS_OF, 100)


def results(
    engine: Scripted, context: VerifyContext, patch: pytest.MonkeyPatch, tasks: Iterable[Numbered | None]
) -> list[int]:
    """Return the results of tasks on an engine."""
    patch.setattr(processes, "open_engine", lambda _url: engine)
    with WorkerPool(context, 1, "some://where") as workers:
        return list(run_tasks(tasks, context, workers, StopSwitch()))


TASKS: Final = [Numbered(0), Numbered(1), Numbered(2, local=True), None, Numbered(3), Numbered(4)]
STEPS: Final = (Scripted.lost, Scripted.refused, Scripted.cancelled, Scripted.slow, Scripted.forgotten)


@pytest.mark.parametrize("step", STEPS)
def test_what_an_engine_does_to_a_task_changes_no_result(
    step: Callable[[Scripted, Numbered], None], context: VerifyContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = Scripted([step, Scripted.good, step, step, Scripted.good, step])
    assert results(engine, context, monkeypatch, TASKS) == [0, 1, 2, 3, 4]
    # The process that verifies does only what is not worth another one.
    assert RUN_HERE == [2]
    assert set(engine.attempts) == {0, 1, 3, 4}
    # An engine that has forgotten us is opened again.
    assert (engine.closed > 1) == (step == Scripted.forgotten)


def test_a_result_that_comes_late_is_taken_once(
    context: VerifyContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    late: list[Future[Any]] = []

    def forgotten(engine: Scripted, task: Numbered) -> None:
        late.append(engine.future)
        engine.forgotten(task)

    def good(engine: Scripted, task: Numbered) -> None:
        engine.good(task)
        late.pop().set_result(Done(task.number))

    engine = Scripted([forgotten, good])
    assert results(engine, context, monkeypatch, [Numbered(0), None, Numbered(1)]) == [0, 1]
    assert engine.attempts == [0, 0, 1]


def test_no_more_than_two_tasks_a_slot_are_under_way(
    context: VerifyContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pools, "LOOK_SECONDS", 0.05)
    engine = Scripted([Scripted.slow] * 40, number=3)
    assert results(engine, context, monkeypatch, map(Numbered, range(40))) == list(range(40))
    assert engine.most == 6
    assert RUN_HERE == []


def test_a_task_whose_process_is_lost_each_time_is_the_failure(
    context: VerifyContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = Scripted([Scripted.lost] * 4)
    with pytest.raises(TwinstoreError, match=r"was killed or ran out of memory.* fewer processes") as raised:
        results(engine, context, monkeypatch, [Numbered(0)])
    assert (len(engine.attempts), exit_code(raised.value), engine.closed) == (4, Exit.FAILED, 1)


def test_the_failure_of_a_task_is_not_tried_again(
    context: VerifyContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = Scripted([Scripted.failed])
    with pytest.raises(ValidationError, match="the task cannot be done"):
        results(engine, context, monkeypatch, [Numbered(0)])
    assert engine.attempts == [0]


def test_a_worker_that_refuses_is_named_once(
    context: VerifyContext, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    engine = Scripted([Scripted.refused] * 9)
    assert results(engine, context, monkeypatch, map(Numbered, range(4))) == [0, 1, 2, 3]
    assert caplog.messages == ["a worker on elsewhere cannot take part: a store is another here"]


def test_a_task_goes_elsewhere_although_the_engine_prefers_the_worker_that_refuses(
    context: VerifyContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[int] = []

    def stubborn(engine: Scripted, task: Numbered) -> None:
        # Only a second one that is sent at once finds this worker busy.
        seen.append(task.number)
        (engine.good if len(seen) > 2 and seen[-2] == task.number else engine.refused)(task)

    engine = Scripted([stubborn] * 9, number=2)
    assert results(engine, context, monkeypatch, [Numbered(0)]) == [0]
    assert engine.attempts == [0, 0, 0]


@pytest.mark.parametrize(
    ("step", "slots", "problem"),
    [(Scripted.refused, 2, "a store is another here"), (Scripted.good, 0, "it has no slots")],
)
def test_an_engine_that_does_nothing_for_long_ends_the_verification(
    step: Callable[[Scripted, Numbered], None],
    slots: int,
    problem: str,
    context: VerifyContext,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = [0.0]

    def later() -> float:
        clock[0] += 5
        return clock[0]

    monkeypatch.setattr(pools, "monotonic", later)
    engine = Scripted([step] * 1000, number=slots)
    with pytest.raises(TwinstoreError, match=f"for 5 minutes: {problem}") as raised:
        results(engine, context, monkeypatch, [Numbered(0)])
    assert exit_code(raised.value) == Exit.FAILED


@pytest.mark.parametrize("seconds", [0, 30])
@pytest.mark.parametrize("slots", [1, 3])
def test_an_engine_on_which_every_call_fails_ends_a_copy(
    seconds: int, slots: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [0.0]
    monkeypatch.setattr(pools, "monotonic", lambda: clock[0])
    engine = Scripted(number=slots)
    pool = pools.Pool(lambda: engine, "some://where")
    with pytest.raises(TwinstoreError, match="for 5 minutes: ChildProcessError"):
        fail_all(pool, engine, clock, seconds)
    assert 300 <= clock[0] < 400


def fail_all(pool: pools.Pool, engine: Scripted, clock: list[float], seconds: int) -> None:
    """Let time go on; each call of a pool fails after some seconds."""
    running = list[tuple[float, Future[Any]]]()

    def submitted(*_: object) -> Future[Any]:
        running.append((clock[0] + seconds, Future()))
        return running[-1][1]

    vars(engine)["submit"] = submitted
    while clock[0] < 1000:
        clock[0] += 1
        pool.send(len)
        for item in [item for item in running if item[0] <= clock[0]]:
            running.remove(item)
            item[1].set_exception(ChildProcessError("killed"))


def test_the_delays_grow() -> None:
    assert [delay(number) for number in (1, 2, 3, 4, 5, 6, 7, 100)] == [0.2, 1, 2, 4, 8, 16, 30, 30]
