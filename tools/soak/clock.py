"""Steps of an hour of the clocks of a client and of a server, and a judge of what they did.

python -m tools.soak.clock [--minutes 3] [--seed 7] [--only postgres]

The servers, one client and the processes of a copy run behind ``stepped_clock.c``, which needs a C compiler.
Their clocks step while they work, their monotonic clocks do not. Every step is made forward and back.

On each database two clients, one of which has a clock that steps, hold one lock with a heartbeat, lease and
submit policy jobs and fire schedules. What must hold after steps of the client and of the server:

- fences grow, and two clients are never sure of the lock at once; after a step of a MongoDB forward they may
  be for a third of the lease, until the next renewal is refused
- a lock is acquired again within seconds; after a step back of the server one that no client holds is blocked
  until the end that it had before: one of a dead client until its lease ends, others until their release
- no job is submitted twice, and none is lost
- a minute of a schedule is fired once, or counted as missed
- retention goes by the server: a step of it makes an hour of difference, one of the client none

Then rows are copied in both directions by a coordinator and two workers with short leases, while the clock of
the target, of the source, or of the coordinator and one worker steps. A copy may end with an error after the
step; the next one ends with 0, and both sides are equal then.

The command prints a line for each case and exits with 1 on any violation.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import time
from collections import Counter
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import pairwise
from pathlib import Path
from random import Random
from shlex import quote
from struct import pack
from tempfile import TemporaryDirectory
from threading import Event, Thread
from typing import TYPE_CHECKING, Any, Final

from rich.console import Console

import twinstore
import twinstore_embedded
from tests.support.copies import AS_OF, COPIED, contents_of, open_store, write_config
from tests.support.outages import IN_MEMORY
from tests.support.servers import mongo_config, postgres_config
from tools.soak.commands import LIMIT_SECONDS, PROGRAM, empty, legs
from tools.soak.journal import Journal, read_journal
from twinstore.config import load_settings
from twinstore.errors import LeaseLostError, TwinstoreError
from twinstore.scheduler.catalog import LOCKS
from twinstore.scheduler.enums import PolicyRunJobStatus, RunState
from twinstore.scheduler.runs import RunQueryOptions
from twinstore.testing.scheduler.builders import as_submitted, make_policy_job, make_run, make_schedule
from twinstore_backfill.copy.engine import run_copy
from twinstore_backfill.copy.options import CopyOptions
from twinstore_backfill.outcome import Exit, PreflightError
from twinstore_backfill.process.stopping import StopSwitch
from twinstore_backfill.progress.record import SilentProgress
from twinstore_backfill.stores import has_ledger
from twinstore_embedded.binaries import (
    MONGOD_VARIABLE,
    POSTGRES_PROGRAMS,
    POSTGRES_VARIABLE,
    find_mongod,
    find_postgres,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from tools.soak.commands import Leg
    from tools.soak.journal import Line
    from twinstore.scheduler.storage import SchedulerStorage

    Lane = Callable[[], None]

MISSING: Final = "There is no C compiler (cc) here, so no clock was stepped."
HOUR: Final = 3600
TENANT: Final = "clock"
KEY: Final = "one for all"
LEASE: Final = timedelta(seconds=3)
LEASE_OF_JOBS: Final = timedelta(seconds=2)
# A holder keeps the lock for so long at most, and a starved machine adds to it.
HOLDING_SECONDS: Final = 4.0
SLACK_SECONDS: Final = 1.0
IDLE_SECONDS: Final = 20.0
JOBS: Final = 200
SCHEDULES: Final = 5
PHASE_SECONDS: Final = 5.0
MINUTE: Final = timedelta(minutes=1)
DISPATCHING: Final = PolicyRunJobStatus.DISPATCHING
# By name, how long ago a run ended, where finished runs are kept for a day.
AGES: Final = {
    name: timedelta(hours=hours)
    for name, hours in (("kept", 22), ("young", 23.5), ("old", 24.5), ("gone", 26))
}
REMOVED: Final = {
    HOUR: {"young", "old", "gone"},
    0: {"old", "gone"},
    -HOUR: {"gone"},
}
ROWS: Final = 1000
RATE: Final = 100
RANGE_SIZE: Final = 10
# Of the copy, after how many finished ranges a clock steps and steps back.
STEPS: Final = (10, 50)
POLL_SECONDS: Final = 0.2
SAID: Final = 1500


class Clock:
    """A clock that steps, of all processes that are started with its environment."""

    def __init__(self, path: Path, library: Path) -> None:
        self.environment = {"LD_PRELOAD": str(library), "STEPPED_CLOCK": str(path)}
        self._file = os.open(path, os.O_CREAT | os.O_RDWR, mode=0o644)
        self.seconds = 0
        self.step(0)

    def step(self, seconds: int) -> None:
        """Set the difference to the clock of the machine."""
        os.pwrite(self._file, pack("=q", seconds), 0)
        self.seconds = seconds


def compiled(directory: Path) -> Path | None:
    """Return the library in front of the clock, ``None`` without a compiler."""
    compiler, library = shutil.which("cc"), directory / "stepped_clock.so"
    if compiler is None:
        return None
    source = Path(__file__).with_name("stepped_clock.c")
    subprocess.run([compiler, "-O2", "-shared", "-fPIC", "-o", library, source], check=True)
    return library


@contextmanager
def wrapped(directory: Path, clocks: dict[str, Clock]) -> Iterator[None]:
    """Let embedded servers start with these clocks while the block lasts."""
    programs = {"mongod": find_mongod(), **{name: find_postgres() / name for name in POSTGRES_PROGRAMS}}
    directory.mkdir(mode=0o755)
    for name, program in programs.items():
        clock = clocks["mongo" if name == "mongod" else "postgres"]
        words = [f"{key}={quote(value)}" for key, value in clock.environment.items()]
        script = directory / name
        script.write_text(f'#!/bin/sh\nexec env {" ".join(words)} {quote(str(program))} "$@"\n')
        script.chmod(0o755)
    named = {MONGOD_VARIABLE: str(directory / "mongod"), POSTGRES_VARIABLE: str(directory)}
    before = {name: os.environ.get(name) for name in named}
    os.environ.update(named)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name)
            if value is not None:
                os.environ[name] = value


# ------------------------------------------------------------------------------------------- the clients


class Client:
    """One process with three lanes, each of which works until the input of the process ends."""

    def __init__(self, storage: SchedulerStorage, notes: Journal, name: str, seed: str) -> None:
        self.storage, self.notes, self.name = storage, notes, name
        self.random = Random(seed)
        self.done = Event()

    def run(self) -> None:
        """Work until the input ends."""
        lanes = [Thread(target=self._repeat, args=(lane,)) for lane in (self.hold, self.submit, self.fire)]
        for lane in lanes:
            lane.start()
        sys.stdout.write("at work\n")
        sys.stdout.flush()
        sys.stdin.read()
        self.done.set()
        for lane in lanes:
            lane.join()

    def _repeat(self, lane: Lane) -> None:
        while not self.done.wait(0.05):
            try:
                lane()
            except TwinstoreError as error:
                what = "refused" if error.retryable or isinstance(error, LeaseLostError) else "wrong"
                self.notes.add(what, lane=lane.__name__, error=f"{type(error).__name__}: {error}")
            except Exception as error:  # noqa: BLE001  # the judge reports it
                self.notes.add("wrong", lane=lane.__name__, error=repr(error))

    def hold(self) -> None:
        """Hold the lock for a while, and note until when this client was sure of it."""
        handle = self.storage.locks.try_acquire(KEY, timedelta(seconds=1), lease=LEASE, holder_id=self.name)
        if handle is None:
            return
        entered = sure = time.monotonic_ns()
        end = time.monotonic() + self.random.uniform(0.2, HOLDING_SECONDS)
        with handle, handle.keep_alive():
            while (before := time.monotonic_ns()) and handle.is_held() and time.monotonic() < end:
                sure = before
                time.sleep(0.01)
            self.notes.add("held", fence=handle.fence, entered=entered, sure=sure)

    def submit(self) -> None:
        """Lease some jobs and submit them, now and then after the lease has ended."""
        now, jobs = datetime.now(UTC), self.storage.policy_jobs
        leased = jobs.lease_many(self.name, now, limit=3, lease=LEASE_OF_JOBS)
        if not leased:
            jobs.release_expired(now)
            return
        late = self.random.random() < 0.1
        time.sleep(LEASE_OF_JOBS.total_seconds() + 0.5 if late else self.random.uniform(0, 0.4))
        now = datetime.now(UTC)
        after = [as_submitted(job, now) for job in leased]
        answers = jobs.complete_many(after, DISPATCHING, lease_owner=self.name, now=now)
        done = [job.id for job, answer in zip(leased, answers, strict=True) if answer]
        self.notes.add("submitted", jobs=done, refused=len(leased) - len(done))

    def fire(self) -> None:
        """Claim and fire what is due by this client's clock."""
        for claim in self.storage.schedules.claim_due(self.name, datetime.now(UTC), limit=2):
            fired = self.storage.triggers.fire(TENANT, claim.schedule.id, datetime.now(UTC), claim=claim)
            if fired is not None:
                self.notes.add("fired", schedule=claim.schedule.id, misfires=fired.misfires)


def client(config: str, journal: str, name: str, seed: str) -> int:
    """Be a client of the case."""
    with twinstore.open_storage(load_settings(Path(config), environ={})) as storage:
        Client(storage.scheduler, Journal(Path(journal)), name, seed).run()
    return 0


def coordinate(config: str, source: str, target: str, out: str, engine: str | None = None) -> int:
    """Copy as the command does, with a short lease."""
    settings = load_settings(Path(config), environ={})
    options = CopyOptions(
        engine=engine,
        lease=LEASE,
        range_size=RANGE_SIZE,
        max_rate=RATE,
        as_of=AS_OF,
        execute=True,
        out=Path(out),
    )
    with (
        open_store("scheduler", source, settings, read_only=True) as read,
        open_store("scheduler", target, settings) as written,
    ):
        return int(run_copy(read, written, options, SilentProgress(), StopSwitch()).exit)


# --------------------------------------------------------------------------------------------- the cases


@dataclass(slots=True)
class Steps:
    """What was done so far, and what was wrong with it."""

    random: Random
    directory: Path
    clocks: dict[str, Clock]
    console: Console
    violations: list[str] = field(default_factory=list[str])

    def say(self, case: str, before: int, **seen: object) -> None:
        """Print a line for a case."""
        wrong = len(self.violations) - before
        self.console.print(f"{case}: {seen}, {wrong} violations", markup=False, soft_wrap=True)

    # ------------------------------------------------------------------------------------- a database

    def on_mongo(self, number: int) -> None:
        """Step clocks while clients work on MongoDB."""
        # The monitor of expired documents comes once a minute by default.
        parameters = {"ttlMonitorSleepSecs": 1}
        server = twinstore_embedded.start_mongo(
            self.directory / f"mongo-{number}", parameters=parameters, owned=True
        )
        try:
            self._database(
                "mongo", mongo_config(f"{server.url}&serverSelectionTimeoutMS=30000", "soak"), number
            )
        finally:
            server.stop()

    def on_postgres(self, number: int) -> None:
        """Step clocks while clients work on PostgreSQL."""
        server = twinstore_embedded.start_postgres(
            self.directory / f"postgres-{number}", durable=False, owned=True
        )
        try:
            self._database("postgres", postgres_config(server.app_url(), server.owner_url()), number)
        finally:
            server.stop()

    def _database(self, name: str, settings: dict[str, Any], number: int) -> None:
        """Step the clocks of a client and of the server of a database while clients work."""
        before, journal = len(self.violations), self.directory / f"journal-{name}-{number}"
        config = write_config(
            self.directory / f"{name}.json", {**settings, "Scheduler": {"Storage": {"RunRetentionDays": 1}}}
        )
        with twinstore.open_storage(load_settings(config, environ={})) as opened, ExitStack() as stack:
            storage = opened.scheduler
            storage.initializer.ensure_migrations()
            jobs = {f"job-{number}-{job:04}" for job in range(JOBS)}
            for job in sorted(jobs):
                storage.policy_jobs.create(make_policy_job(TENANT, job))
            schedules = self._schedules(storage, number)
            for clock in (None, self.clocks["client"]):
                stack.enter_context(self._client(config, journal, clock))
            time.sleep(PHASE_SECONDS)
            notes = Journal(journal)
            cases = [(whose, sign * HOUR) for whose in ("client", name) for sign in (1, -1)]
            for whose, seconds in self.random.sample(cases, len(cases)):
                self._steps(name, storage, config, notes, whose, seconds)
            stack.close()
            lines = read_journal(journal)
            self._judge_locks(name, lines)
            self._judge_jobs(storage, jobs, lines)
            self._judge_schedules(storage, schedules)
        self.violations += [str(line) for line in lines if line["what"] == "wrong"]
        if not any(line["what"] == "fired" and line["misfires"] for line in lines):
            self.violations.append(f"no minute was missed on {name}, so the clock of the client did not step")
        self.say(f"{name}, round {number}", before, **summary(lines))

    def _schedules(self, storage: SchedulerStorage, number: int) -> dict[str, datetime]:
        """Return the ids of new schedules that fire every minute, and when each is due first."""
        found: dict[str, datetime] = {}
        for item in range(SCHEDULES):
            schedule = make_schedule(TENANT, f"minute-{number}-{item}", when_cron="* * * * *")
            storage.schedules.upsert(schedule.evolve(updated_at=datetime.now(UTC)))
            due = storage.triggers.get_required(TENANT, schedule.id).next_fire_at
            assert due is not None
            found[schedule.id] = due
        return found

    @contextmanager
    def _client(self, config: Path, journal: Path, clock: Clock | None) -> Iterator[None]:
        name = "steady" if clock is None else "stepped"
        command = sys.executable, "-m", "tools.soak.clock", "--as", "client", config, journal, name
        seed, more = str(self.random.random()), {} if clock is None else clock.environment
        words = [str(word) for word in (*command, seed)]
        process = subprocess.Popen(
            words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={**os.environ, **more}
        )
        assert process.stdout is not None
        process.stdout.readline()
        try:
            yield
        finally:
            process.communicate(timeout=LIMIT_SECONDS)
            if process.returncode:
                self.violations.append(f"the {name} client ended with {process.returncode}")

    def _steps(  # noqa: PLR0917  # what is stepped, and where it is seen
        self, name: str, storage: SchedulerStorage, config: Path, notes: Journal, whose: str, seconds: int
    ) -> None:
        """Step a clock and back, each in the midst of work."""
        key, of_server = f"of a dead client {self.random.random()}", whose != "client"
        with twinstore.open_storage(load_settings(config, environ={})) as dying:
            # It is not released: the storage closes under it, as if its process had died.
            dying.scheduler.locks.acquire(key, timedelta(seconds=5), lease=LEASE)
        self._step(notes, whose, seconds)
        time.sleep(self.random.uniform(1, PHASE_SECONDS))
        self._judge_retention(storage, config, f"{whose} {seconds:+d}", seconds if of_server else 0)
        # Its lease has ended by all clocks but that of a server that stepped back.
        time.sleep(LEASE.total_seconds())
        if self._is_free(storage, key) != (seconds > 0 or not of_server):
            self.violations.append(f"after {whose} {seconds:+d} on {name} the lock of the dead is wrong")
        self._step(notes, whose, 0)
        time.sleep(self.random.uniform(1, PHASE_SECONDS))
        # Where it was just released, that was an hour later by the clock of the server.
        if self._is_free(storage, key) != (seconds < 0 or not of_server):
            self.violations.append(f"when {whose} {seconds:+d} on {name} is over the lock is wrong")

    def _step(self, notes: Journal, whose: str, seconds: int) -> None:
        forward = seconds > self.clocks[whose].seconds
        notes.add("step", whose=whose, forward=forward)
        self.clocks[whose].step(seconds)

    def _is_free(self, storage: SchedulerStorage, key: str) -> bool:
        for _ in range(3):
            with suppress(TwinstoreError):
                handle = storage.locks.try_acquire(key, timedelta(seconds=1), lease=LEASE)
                return handle is not None and handle.release()
        return False

    def _judge_retention(self, storage: SchedulerStorage, config: Path, case: str, seconds: int) -> None:
        names = {name: f"{case} {name} {self.random.random()}" for name in AGES}
        for name, ago in AGES.items():
            ended = datetime.now(UTC) - ago
            run = storage.runs.create(make_run(TENANT, names[name], created_at=ended))
            storage.runs.update(run.evolve(state=RunState.CANCELLED, finished_at=ended))
        command = PROGRAM, "--config", str(config), "purge", "--module", "scheduler", "--execute"
        environment = {**os.environ, **self.clocks["client"].environment}
        done = subprocess.run(command, check=False, capture_output=True, text=True, env=environment)
        # The monitor of MongoDB comes every second.
        time.sleep(2)
        removed = {name for name in AGES if storage.runs.get(TENANT, names[name]) is None}
        if done.returncode or removed != REMOVED[seconds]:
            said = done.stderr[-SAID:]
            self.violations.append(f"{case}: purge ended with {done.returncode}, removed {removed}: {said}")

    def _judge_locks(self, name: str, lines: Sequence[Line]) -> None:
        held = sorted((line for line in lines if line["what"] == "held"), key=lambda line: line["entered"])
        for first, second in pairwise(held):
            if second["fence"] <= first["fence"]:
                self.violations.append(f"the fence {second['fence']} came after {first['fence']}")
            late = overlap(first, second)
            if late > allowed_overlap(name, lines, first, second):
                self.violations.append(f"two clients were sure of the lock for {late:.3f} s on {name}")
            if -late > IDLE_SECONDS and not stepped(
                name, lines, first["sure"], second["entered"], forward=False
            ):
                self.violations.append(f"no client got the lock for {-late:.1f} s on {name}")

    def _judge_jobs(self, storage: SchedulerStorage, jobs: set[str], lines: Sequence[Line]) -> None:
        submitted = Counter(job for line in lines if line["what"] == "submitted" for job in line["jobs"])
        twice = [job for job, times in submitted.items() if times > 1]
        if twice:
            self.violations.append(f"{len(twice)} jobs were submitted twice")
        # What a client leased whose clock was ahead is free an hour later.
        later = datetime.now(UTC) + timedelta(hours=3)
        storage.policy_jobs.release_expired(later, limit=JOBS)
        left = storage.policy_jobs.lease_many("judge", later, limit=JOBS)
        again = submitted.keys() & {job.id for job in left}
        lost = jobs - submitted.keys() - {job.id for job in left}
        unknown = sum(line["what"] == "refused" and line["lane"] == "submit" for line in lines)
        # A call with unknown outcome may have submitted what it leased.
        if again or len(lost) > 3 * unknown:
            self.violations.append(f"{len(again)} submitted jobs are pending, {len(lost)} are lost")

    def _judge_schedules(self, storage: SchedulerStorage, schedules: dict[str, datetime]) -> None:
        for schedule, first in schedules.items():
            trigger = storage.triggers.get_required(TENANT, schedule)
            runs = storage.runs.count(TENANT, RunQueryOptions(schedule_id=schedule))
            assert trigger.next_fire_at is not None
            minutes = (trigger.next_fire_at - first) // MINUTE
            if minutes != trigger.fire_count + trigger.misfire_count or runs != trigger.fire_count:
                self.violations.append(f"of {minutes} minutes {runs} have a run: {trigger!r}")

    # ----------------------------------------------------------------------------------------- a copy

    def copies(self, number: int) -> None:
        """Copy in both directions while each of the clocks steps."""
        directory = self.directory / f"copies-{number}"
        directory.mkdir(mode=0o711)
        with legs(ROWS, directory) as (servers, both):
            for leg in both:
                for whose in ("target", "source", "client"):
                    for seconds in self.random.sample((HOUR, -HOUR), 2):
                        empty(leg, servers)
                        self._copy(leg, whose, seconds)

    def _copy(self, leg: Leg, whose: str, seconds: int) -> None:
        before, out = len(self.violations), self.directory / "copy"
        migrate = PROGRAM, "--config", str(leg.config), "migrate", "run", "--module", "scheduler"
        subprocess.run([*migrate, "--backend", leg.target], check=True, stdout=subprocess.DEVNULL)
        clock = self.clocks[{"target": leg.target, "source": leg.source}.get(whose, whose).lower()]
        own = {**os.environ, **self.clocks["client"].environment}
        copy = [sys.executable, "-m", "tools.soak.clock", "--as", "coordinate"]
        copy += [str(leg.config), leg.source, leg.target, str(out)]
        work = leg.command("work", "--execute", "--progress", "none")
        began = time.monotonic()
        with (self.directory / "log").open("wb") as log:
            start = partial(subprocess.Popen[bytes], stdout=log, stderr=log)
            running = [start([*copy, "workers://"], env=own), start(work, env=own), start(work)]
            for least, offset in zip(STEPS, (seconds, 0), strict=True):
                while running[0].poll() is None and live_ranges(leg) < least:
                    time.sleep(POLL_SECONDS)
                if running[0].poll() is not None:
                    self.violations.append(f"the copy ended before {whose} {offset:+d}")
                clock.step(offset)
            codes = [process.wait(LIMIT_SECONDS) for process in running]
            took, again = time.monotonic() - began, start(copy).wait(LIMIT_SECONDS)
        settings = load_settings(leg.config, environ={})
        if again != Exit.OK or codes[0] not in {Exit.OK, Exit.FAILED, Exit.LEASE_HELD}:
            said = (self.directory / "log").read_text()[-SAID:]
            self.violations.append(f"the copies ended with {codes[0]} and {again}: {said}")
        with (
            open_store("scheduler", leg.source, settings) as source,
            open_store("scheduler", leg.target, settings) as target,
        ):
            for entity in [entity for entity in COPIED if entity is not LOCKS]:
                if contents_of(source.bulk, entity) != contents_of(target.bulk, entity):
                    self.violations.append(f"the {entity.name} differ")
            (job,) = target.ledger.jobs()
            ranges = list(target.ledger.ranges(job.id))
        seen = {"codes": codes, "again": again, "seconds": round(took, 1)}
        seen["fences"] = dict(Counter(item.fence for item in ranges))
        self.say(f"{leg.source} to {leg.target}, {whose} {seconds:+d}", before, **seen)


def live_ranges(leg: Leg) -> int:
    """Return how many ranges of a copy are finished; none while its ledger is being made."""
    settings = load_settings(leg.config, environ={})
    with suppress(PreflightError), open_store("scheduler", leg.target, settings) as target:
        jobs = list(target.ledger.jobs()) if has_ledger(target) else []
        return target.ledger.counts(jobs[0].id).get("live", 0) if jobs else 0
    return 0


def overlap(first: Line, second: Line) -> float:
    """Return the seconds for which the first was still sure of the lock after the second had it."""
    return float(first["sure"] - second["entered"]) / 1e9


def allowed_overlap(name: str, lines: Sequence[Line], first: Line, second: Line) -> float:
    """Return what a step may do: on PostgreSQL the connection of the holder excludes others all the same."""
    forward = stepped(name, lines, first["entered"], second["entered"], forward=True)
    return LEASE.total_seconds() / 3 + SLACK_SECONDS if forward and name == "mongo" else 0.0


def stepped(name: str, lines: Sequence[Line], since: int, until: int, *, forward: bool) -> bool:
    """Return whether the clock of a server stepped in that direction between two instants."""
    steps = [
        line["at"]
        for line in lines
        if line["what"] == "step" and line["whose"] == name and line["forward"] == forward
    ]
    return any(since <= at <= until for at in steps)


def summary(lines: Sequence[Line]) -> dict[str, object]:
    """Return what was seen in one case."""
    held = sorted((line for line in lines if line["what"] == "held"), key=lambda line: line["entered"])
    late = [overlap(*pair) for pair in pairwise(held)]
    refused = Counter(str(line["error"]).partition(":")[0] for line in lines if line["what"] == "refused")
    return {
        "steps": sum(line["what"] == "step" for line in lines),
        "holders": len(held),
        "longest overlap": round(max(0.0, *late), 3),
        "longest gap": round(max(0.0, *(-item for item in late)), 1),
        "submitted": sum(len(line["jobs"]) for line in lines if line["what"] == "submitted"),
        "late": sum(line["refused"] for line in lines if line["what"] == "submitted"),
        "fired": sum(line["what"] == "fired" for line in lines),
        "missed": sum(line["misfires"] for line in lines if line["what"] == "fired"),
        "refused": dict(refused),
    }


def main(given: Sequence[str] | None = None) -> int:
    """Step, judge and print."""
    parser = argparse.ArgumentParser(prog="python -m tools.soak.clock", description=__doc__)
    parser.add_argument("--minutes", type=float, default=3.0, help="after which no round begins")
    parser.add_argument("--seed", type=int, default=7, help="decides the order and the instants of steps")
    parser.add_argument("--only", choices=("mongo", "postgres", "copies"))
    parser.add_argument("--as", dest="part", nargs="+", help=argparse.SUPPRESS)
    options, console = parser.parse_args(given), Console()
    if options.part:
        part, *words = options.part
        inner: dict[str, Callable[..., int]] = {"client": client, "coordinate": coordinate}
        return inner[part](*words)
    with ExitStack() as stack:
        parent = IN_MEMORY if IN_MEMORY.is_dir() else None
        directory = Path(stack.enter_context(TemporaryDirectory(prefix="twinstore-soak-", dir=parent)))
        directory.chmod(0o711)
        library = compiled(directory)
        if library is None:
            console.print(MISSING)
            return Exit.USAGE
        names = "client", "mongo", "postgres"
        clocks = {name: Clock(directory / f"clock-{name}", library) for name in names}
        stack.enter_context(wrapped(directory / "programs", clocks))
        steps = Steps(Random(options.seed), directory, clocks, console)
        parts = {"mongo": steps.on_mongo, "postgres": steps.on_postgres, "copies": steps.copies}
        end, number = time.monotonic() + options.minutes * 60, 0
        while not number or (time.monotonic() < end and not steps.violations):
            number += 1
            for name in (options.only,) if options.only else parts:
                parts[name](number)
    for wrong in steps.violations:
        console.print(wrong, markup=False, soft_wrap=True)
    return int(bool(steps.violations))


if __name__ == "__main__":
    sys.exit(main())
