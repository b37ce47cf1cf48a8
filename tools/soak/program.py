"""Runs one soak: stores what is needed, lets workers and services work, kills them, finishes, and judges."""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from contextlib import closing, suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Final

import twinstore
from tests.support.claiming import BATCH, TENANTS, forked
from tools.soak.faults import Gate
from tools.soak.journal import Journal, read_journal
from tools.soak.plan import BASE, NANOSECONDS, SERVED, SoakClock, kills_of, outages_of
from tools.soak.service import Service, settled
from tools.soak.stored import stored_in
from tools.soak.violations import violations
from tools.soak.work import Worker, counter_of, own_run
from twinstore.errors import Outcome
from twinstore.scheduler import PolicyRunJobStatus
from twinstore.testing.scheduler.builders import make_schedule

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from tools.soak.journal import Line
    from tools.soak.plan import Plan
    from tools.soak.servers import Server
    from twinstore.scheduler.storage import SchedulerStorage

# The counted operations, and the line of the journal for each: only answered ones.
OPERATIONS: Final = {
    "runs fired": "fired",
    "jobs created": "created",
    "leases": "leased",
    "jobs completed": "completed",
    "graph moves": "moved",
    "log appends": "appended",
    "locks held": "entered",
    "writes of services": "written",
    "reads of services": "seen",
}
DONE: Final = PolicyRunJobStatus.COMPLETED
SECOND: Final = timedelta(seconds=1)
POLL_SECONDS: Final = 0.05
# A worker that does not end by itself after the time is over hangs.
TIMEOUT_SECONDS: Final = 90
# How long the server may take to notice that its clients have disconnected or cancelled.
GRACE_SECONDS: Final = 30.0


@dataclass(frozen=True, slots=True)
class Result:
    """The result of a soak.

    Attributes:
        operations: how many of each kind were answered.
        kills: how many workers were killed.
        outages: how often each thing happened to the server.
        faults: how often each thing happened inside a service.
        left_out: the faults that cannot happen here, and why.
        refused: how many calls were refused while it was down.
        unknown: how many calls ended with an unknown outcome, cancelled ones included.
        violations: what is wrong, each in one sentence.
    """

    operations: dict[str, int]
    kills: int
    outages: dict[str, int]
    faults: dict[str, int]
    left_out: tuple[str, ...]
    refused: int
    unknown: int
    violations: tuple[str, ...]


def soak(plan: Plan, server: Server) -> Result:
    """Work, kill, finish and judge. No storage is open while workers are forked.

    Args:
        plan: what is done.
        server: what it is done to.
    """
    plan.journal.unlink(missing_ok=True)
    with twinstore.open_storage(plan.settings) as storage:
        first = _prepared(storage.scheduler, plan)
    # Once for all: otherwise each worker would import them again.
    import_module(f"twinstore_{storage.scheduler.driver.lower()}.special.scheduler_locks")
    with closing(Journal(plan.journal)) as journal:
        Supervisor(plan, journal, server).run()
        for found in settled(server.watch.connections, GRACE_SECONDS):
            journal.add("leaked", seen=f"{found}, although all processes have ended")
        with twinstore.open_storage(plan.settings) as storage:
            _finish(storage.scheduler, journal, plan)
            stored = stored_in(storage.scheduler, plan, first)
    lines = read_journal(plan.journal)
    return Result(
        operations={name: _count(lines, what) for name, what in OPERATIONS.items()},
        kills=_count(lines, "killed"),
        outages=_kinds(lines, "outage"),
        faults=_kinds(lines, "fault") | {"cancelled": _count(lines, "given up")},
        left_out=server.left_out,
        refused=_count(lines, "refused"),
        unknown=sum(line.get("outcome") == Outcome.UNKNOWN for line in lines),
        violations=tuple(violations(lines, stored)),
    )


def _kinds(lines: Sequence[Line], what: str) -> dict[str, int]:
    return dict(sorted(Counter(line["kind"] for line in lines if line["what"] == what).items()))


def _count(lines: Sequence[Line], what: str) -> int:
    return sum(line["what"] == what for line in lines)


def _prepared(storage: SchedulerStorage, plan: Plan) -> dict[str, datetime]:
    """Store the schedules; return the instant that is due first, by schedule."""
    storage.initializer.ensure_migrations()
    first: dict[str, datetime] = {}
    for tenant, name in plan.schedule_names():
        storage.schedules.upsert(make_schedule(tenant, name, when_cron="* * * * *", created_at=BASE))
        due = storage.triggers.get_required(tenant, name).next_fire_at
        assert due is not None
        first[name] = due
    for tenant in SERVED:
        storage.runs.create(own_run(tenant, counter_of(tenant)))
    return first


class Supervisor:
    """Starts workers and services, kills them as the plan says, and starts others in their place."""

    def __init__(self, plan: Plan, journal: Journal, server: Server) -> None:
        self._plan = plan
        self._journal = journal
        self._server = server
        self._gate = Gate.new()
        self._running: dict[int, int] = {}
        self._started = 0

    def run(self) -> None:
        """Kill until the time is over; then let the last workers end by themselves."""
        try:
            self._run()
        except BaseException:
            for child in self._running.values():
                # Some have ended, and were waited for, by now.
                with suppress(ProcessLookupError):
                    os.kill(child, signal.SIGKILL)
            raise

    def _run(self) -> None:
        # A separate process: a restart takes seconds, during which workers are still killed and started.
        interrupter = forked(partial(interrupt, self._plan, self._server))
        for number in range(self._plan.processes + self._plan.services):
            self._start(number)
        for kill in kills_of(self._plan):
            self._wait_until(self._plan.start + int(kill.after * NANOSECONDS))
            self._kill(kill.worker)
            self._start(kill.worker)
        self._wait_until(self._plan.end)
        if os.waitpid(interrupter, 0)[1] != 0:
            raise RuntimeError("The server did not come back after an outage; what it said stands above.")
        self._check_idle_server()
        self._await_workers()
        self._gate.close()

    def _check_idle_server(self) -> None:
        """Ask the server what is open while every service is paused."""
        arrived = self._gate.await_arrivals(self._plan.services, TIMEOUT_SECONDS)
        if arrived < self._plan.services:
            error = f"{arrived} of {self._plan.services} services came to a rest"
            self._journal.add("error", during="the end", error=error)
        for found in settled(self._server.watch.open_work, GRACE_SECONDS):
            self._journal.add("leaked", seen=f"{found}, although every service stands still")
        self._gate.open()

    def _start(self, number: int) -> None:
        plan, name = self._plan, f"{self._plan.seed}/{number}/{self._started}"
        self._started += 1
        self._running[number] = forked(partial(self._work if number < plan.processes else self._serve, name))

    def _work(self, name: str) -> None:
        plan, clock = self._plan, SoakClock(self._plan.start)
        with closing(Journal(plan.journal)) as journal, twinstore.open_storage(plan.settings) as storage:
            Worker(storage.scheduler, journal, clock, name).work(plan)

    def _serve(self, name: str) -> None:
        with closing(Journal(self._plan.journal)) as journal:
            Service(self._plan, journal, name, self._gate).run()

    def _kill(self, number: int) -> None:
        """Kill a worker; one that has ended by itself has met an error."""
        victim = self._running.pop(number)
        os.kill(victim, signal.SIGKILL)
        self._check(number, os.waitpid(victim, 0)[1])
        self._journal.add("killed", victim=victim)

    def _check(self, number: int, status: int) -> None:
        """Note the error of a worker that did not end well by itself."""
        if os.WIFEXITED(status) and os.WEXITSTATUS(status) != 0:
            self._journal.add("error", during=f"worker {number}", error="it ended with an error")

    def _wait_until(self, instant: int) -> None:
        while (rest := (instant - time.monotonic_ns()) / NANOSECONDS) > 0:
            time.sleep(min(rest, POLL_SECONDS))

    def _await_workers(self) -> None:
        deadline = time.monotonic() + TIMEOUT_SECONDS
        for number, child in sorted(self._running.items()):
            while (ended := os.waitpid(child, os.WNOHANG))[0] == 0:
                if time.monotonic() > deadline:
                    os.kill(child, signal.SIGKILL)
                    os.waitpid(child, 0)
                    self._journal.add("error", during=f"worker {number}", error="it did not end in time")
                    break
                time.sleep(POLL_SECONDS)
            self._check(number, ended[1])


def interrupt(plan: Plan, server: Server) -> None:
    """Let happen to the server what the plan says, and note when it begins and is over."""
    kinds, back = server.kinds, time.monotonic()
    with closing(Journal(plan.journal)) as journal:
        for outage in outages_of(plan, sorted(kinds)):
            # Whatever took longer than planned moves the others: in between, all answer again.
            earliest = max(plan.start / NANOSECONDS + outage.after, back + plan.outage_interval / 2)
            time.sleep(max(0.0, earliest - time.monotonic()))
            if time.monotonic_ns() > plan.quiet_from:
                return
            journal.add("outage", kind=outage.kind)
            kinds[outage.kind](partial(time.sleep, outage.seconds))
            journal.add("back", kind=outage.kind)
            back = time.monotonic()


def _finish(storage: SchedulerStorage, journal: Journal, plan: Plan) -> None:
    """Take every job to its end, as a last worker that is not killed."""
    clock = SoakClock(plan.start)
    last = Worker(storage, journal, clock, f"{plan.seed}/last")
    while any(set(storage.policy_jobs.count_by_status(tenant)) - {DONE} for tenant in TENANTS):
        # Leases of killed workers are over a moment from now; until then there may be nothing to do.
        now = clock.now()
        storage.policy_jobs.release_expired(now, limit=1000)
        batch = storage.policy_jobs.lease_many(last.name, now, limit=BATCH * BATCH)
        last.record_leases(batch, now)
        last.submit(batch)
        last.finish()
        if clock.now() > BASE + 2 * (plan.seconds + TIMEOUT_SECONDS) * SECOND:
            journal.add("error", during="the end", error="jobs are left that nobody can finish")
            break
