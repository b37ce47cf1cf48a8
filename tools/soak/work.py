"""The work of a worker process, repeated until it is killed or the time is over."""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass, field
from datetime import timedelta
from random import Random
from typing import TYPE_CHECKING, Final

from tests.support.claiming import BATCH, TENANTS, lease_end, leased
from tools.soak.plan import LEASE, LOCKS, SERVED
from twinstore.errors import LeaseLostError, Outcome, TwinstoreError, UnavailableError
from twinstore.scheduler import ExecutionLogEntry, GraphJobStatus, PolicyJobQueryOptions, PolicyRunJobStatus
from twinstore.scheduler.runs import RunReason
from twinstore.scheduler.states import graph_job_move_allowed
from twinstore.testing.instants import START
from twinstore.testing.scheduler.builders import as_ended, as_submitted, make_policy_job, make_run
from twinstore.testing.scheduler.graph_jobs import graph_moved, make_graph_build_job

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from tools.soak.journal import Journal, Notes
    from tools.soak.plan import Plan, SoakClock
    from twinstore.scheduler import PolicyRunJob
    from twinstore.scheduler.runs import Run
    from twinstore.scheduler.storage import SchedulerSession, SchedulerStorage

# After a refusal: the server is down, and asking again at once only fills the journal.
PAUSE_SECONDS: Final = 0.1
# How often it does not what it should: jobs that are forgotten.
FORGETS: Final = 0.1
# Of the newest graph jobs, so that workers meet.
MOVED: Final = 5
DISPATCHING, SUBMITTED, COMPLETED = (
    PolicyRunJobStatus.DISPATCHING,
    PolicyRunJobStatus.SUBMITTED,
    PolicyRunJobStatus.COMPLETED,
)


class Worker:
    """One process, and its random choices."""

    def __init__(self, storage: SchedulerStorage, journal: Journal, clock: SoakClock, name: str) -> None:
        """Take what it works with; ``name`` is its own, and the seed of its choices."""
        self._storage = storage
        self._journal = journal
        self._clock = clock
        self.name = name
        self._random = Random(name)
        self._made = 0
        # Intentions are numbered; of the last one, while it has no answer, the number.
        self._intents = 0
        self._open: dict[str, str] = {}

    def work(self, plan: Plan) -> None:
        """Do one thing after the other until the time is over."""
        activities = (self.fire, self.claim, self.finish, self.move)
        while time.monotonic_ns() < plan.end:
            self.attempt(self._random.choice(activities))

    def attempt(self, activity: Callable[[], None]) -> None:
        """Do one thing; note repeatable errors, and report any other error, which ends the worker."""
        began = time.monotonic_ns()
        self._open = {}
        try:
            activity()
        except TwinstoreError as error:
            details = f"{type(error).__name__}: {error.message}"
            if not error.retryable:
                self._journal.add("error", during=activity.__name__, error=details)
                raise
            outcome = error.outcome if isinstance(error, UnavailableError) else Outcome.NOT_APPLIED
            self._journal.add(
                "refused",
                during=activity.__name__,
                error=details,
                outcome=outcome.value,
                began=began,
                **self._open,
            )
            time.sleep(PAUSE_SECONDS)

    def _intend(self, what: str, **details: object) -> None:
        """Note what is about to be done."""
        self._intents += 1
        self._open = {"of": f"{self.name}/{self._intents}"}
        self._journal.add(what, **details, **self._open)

    def _answered(self, what: str = "nothing", **details: object) -> None:
        """Note what the intention before was answered; ``nothing`` where nothing was done."""
        self._journal.add(what, **details, **self._open)
        self._open = {}

    def fire(self) -> None:
        """Fire some of the triggers that are due."""
        now = self._clock.accelerated_now()
        claims = self._storage.schedules.claim_due(self.name, now, limit=self._random.randint(1, 6))
        for claim in claims[:3]:  # the others are due again when their leases have ended
            schedule = claim.schedule
            self._intend("fire", schedule=schedule.id)
            try:
                fired = self._storage.triggers.fire(schedule.tenant_id, schedule.id, now, claim=claim)
            except LeaseLostError:
                fired = None
            if fired is None:
                self._answered()
                continue
            due_at, run = fired.scheduled_for.isoformat(), fired.run
            self._answered("fired", schedule=schedule.id, run=run.id, due=due_at, created=fired.created)
            self._log(run)

    def _log(self, run: Run) -> None:
        """Append to the log of a run, and to that of a run that other processes may write to."""
        others = self._storage.runs.list(run.tenant_id).items
        for target in (run, self._random.choice(others)):
            messages = [self._next("line") for _ in range(self._random.randint(1, 3))]
            self._intend("append", run=target.id, messages=messages)
            entries = [
                ExecutionLogEntry(
                    tenant_id=target.tenant_id, run_id=target.id, logged_at=self._clock.now(), message=message
                )
                for message in messages
            ]
            stored = self._storage.execution_logs.append(entries)
            self._answered(
                "appended", run=target.id, lines=[[line.sequence, line.message] for line in stored]
            )

    def claim(self) -> None:
        """Create jobs, lease some, and submit them; some are forgotten."""
        jobs = self._storage.policy_jobs
        for _ in range(self._random.randint(0, 3)):
            tenant, name = self._random.choice(TENANTS), self._next("job")
            self._intend("create", job=name, tenant=tenant)
            jobs.create(make_policy_job(tenant, name))
            self._answered("created", job=name, tenant=tenant)
        now = self._clock.now()
        self._intend("lease", limit=BATCH)
        batch = leased(self._storage, self.name, self._random, now)
        self.record_leases(batch, now)
        if self._random.random() >= FORGETS:
            self.submit(batch)
        if self._random.random() < 1 / BATCH:
            jobs.release_expired(self._clock.now())

    def record_leases(self, batch: Sequence[PolicyRunJob], now: object) -> None:
        """Note the leases of some jobs."""
        for job in batch:
            self._journal.add(
                "leased", job=job.id, attempt=job.attempt_count, now=str(now), until=lease_end(job)
            )
        self._answered()

    def submit(self, batch: Sequence[PolicyRunJob]) -> None:
        """Submit leased jobs, one by one or all at once; only what is answered with true counts."""
        jobs, now = self._storage.policy_jobs, self._clock.now()
        after = [as_submitted(job, now) for job in batch]
        self._intend("submit", jobs=[job.id for job in after])
        if len(after) == 1:
            answers: tuple[bool, ...] = (self._submit_one(after[0]),)
        else:
            answers = jobs.complete_many(after, DISPATCHING, lease_owner=self.name, now=now)
        for job, answer in zip(after, answers, strict=True):
            if answer:
                self._journal.add("submitted", job=job.id, attempt=job.attempt_count)
        self._answered()

    def _submit_one(self, job: PolicyRunJob) -> bool:
        now = self._clock.now()
        try:
            return self._storage.policy_jobs.try_replace(job, DISPATCHING, lease_owner=self.name, now=now)
        except LeaseLostError:
            return False

    def finish(self) -> None:
        """Complete jobs that anybody has submitted; several workers meet at the same ones."""
        tenant = self._random.choice(TENANTS)
        wanted = PolicyJobQueryOptions(statuses=[SUBMITTED], limit=BATCH)
        for job in self._storage.policy_jobs.list(tenant, wanted):
            done = as_ended(job, COMPLETED, self._clock.now())
            self._intend("complete", jobs=[job.id])
            if self._storage.policy_jobs.try_replace(done, SUBMITTED):
                self._answered("completed", job=job.id)
            else:
                self._answered()

    def move(self) -> None:
        """Add a graph job now and then, and move one of the newest on by compare-and-set."""
        tenant, store = self._random.choice(TENANTS), self._storage.graph_job_store
        if self._random.random() < 0.3:
            job = make_graph_build_job(
                tenant, self._next("graph"), status="pending", created_at=self._clock.now()
            )
            self._intend("add", job=job.id, tenant=tenant)
            store.add(job)
            self._answered("added", job=job.id, tenant=tenant)
        found = self._storage.graph_jobs.list_build_jobs(tenant, None, MOVED)
        open_jobs = [job for job in found if not job.status.terminal]
        if not open_jobs:
            return
        job = self._random.choice(open_jobs)
        targets = [item for item in GraphJobStatus if graph_job_move_allowed(job.status, item)]
        target = self._random.choice([item for item in targets if item is not job.status])
        details = {"job": job.id, "origin": job.status.value, "target": target.value}
        self._intend("move", **details)
        if store.update(graph_moved(job, target, 60), job.status):
            self._answered("moved", **details)
        else:
            self._answered()

    def _next(self, kind: str) -> str:
        """Return a name that no other process uses, not even a later process of this worker."""
        self._made += 1
        return f"{kind}/{self.name}/{self._made}"


REMEMBERED: Final = 50
# How long callers wait for a lock.
LOCK_TIMEOUT: Final = timedelta(milliseconds=100)
# After a refusal: who asks again at once only fills the journal.
CALL_PAUSE_SECONDS: Final = 0.05


def counter_of(tenant: str) -> str:
    """Return the id of the run that counts for a tenant."""
    return f"counter of {tenant}"


def own_run(tenant: str, key: str) -> Run:
    """Return a run that names its tenant in its content, in addition to the column."""
    return make_run(tenant, key, reason=RunReason(manual_reason=f"{tenant} {key}"))


def entries_of(tenant: str, run: str, messages: Iterable[str]) -> list[ExecutionLogEntry]:
    """Return lines for the log of a run; each says whose it is."""
    return [
        ExecutionLogEntry(tenant_id=tenant, run_id=run, logged_at=START, message=f"{tenant} {message}")
        for message in messages
    ]


def foreign_rows(tenant: str, rows: Iterable[Run | ExecutionLogEntry]) -> list[str]:
    """Return the rows that are not of this tenant, by their column or by their content."""
    return [
        f"a row of {row.tenant_id} with {content_of(row)!r}"
        for row in rows
        if row.tenant_id != tenant or not content_of(row).startswith(f"{tenant} ")
    ]


def content_of(row: Run | ExecutionLogEntry) -> str:
    """Return the text of a row that says whose it is."""
    if isinstance(row, ExecutionLogEntry):
        return row.message
    return (row.reason.manual_reason if row.reason else None) or "nothing"


def unit_parts(tenant: str, token: str) -> list[str]:
    """Return what a unit writes."""
    first, second = f"{token}/a", f"{token}/b"
    return [f"run {first}", f"line {first} {tenant} 1", f"line {first} {tenant} 2", f"run {second}"]


def write_unit(unit: SchedulerSession, tenant: str, token: str) -> None:
    """Write in three steps what is stored as a whole or not at all."""
    unit.runs.create(own_run(tenant, f"{token}/a"))
    unit.execution_logs.append(entries_of(tenant, f"{token}/a", ("1", "2")))
    unit.runs.create(own_run(tenant, f"{token}/b"))


@dataclass(slots=True)
class Lane:
    """One thread, and its random choices.

    Attributes:
        storage: of the process, which all its threads share.
        notes: where each call is noted.
        random: decides what is done.
        tenants: for whom.
    """

    storage: SchedulerStorage
    notes: Notes
    random: Random
    tenants: tuple[str, ...] = SERVED
    _mine: deque[tuple[str, str]] = field(default_factory=lambda: deque[tuple[str, str]](maxlen=REMEMBERED))

    def work(self, is_running: Callable[[], bool]) -> None:
        """Do one thing after the other."""
        while is_running():
            self.step()

    def step(self) -> None:
        """Do one thing for one tenant."""
        calls = (
            self.insert, self.unit, self.transact, self.exclude,
            self.read, self.read, self.in_session,
        )  # fmt: skip
        self.random.choice(calls)(self.random.choice(self.tenants))

    def insert(self, tenant: str) -> None:
        """Create a run."""
        key = self.notes.token()
        self._write(
            "insert", tenant, [f"run {key}"], lambda: self.storage.runs.create(own_run(tenant, key)), key
        )

    def unit(self, tenant: str) -> None:
        """Write in a unit of work."""
        token = self.notes.token()

        def write() -> None:
            with self.storage.transaction(tenant) as unit:
                write_unit(unit, tenant, token)

        self._write("unit", tenant, unit_parts(tenant, token), write, f"{token}/a")

    def transact(self, tenant: str) -> None:
        """Count by one what everybody counts."""
        key = counter_of(tenant)

        def grow(unit: SchedulerSession) -> None:
            run = unit.runs.get_required(tenant, key)
            unit.runs.update(run.evolve(stats=run.stats.evolve(candidates=run.stats.candidates + 1)))

        parts = [f"count {key}"]
        self._write("transact", tenant, parts, lambda: self.storage.transact(grow, tenant_id=tenant))

    def exclude(self, tenant: str) -> None:
        """Take a lock, which all processes want, and write while it is held."""
        key, asked, of = self.random.choice(LOCKS), time.monotonic_ns(), self.notes.token()
        journal = self.notes.journal
        journal.add("ask", key=key, of=of)
        with self.notes.reading("exclude", tenant):
            handle = self.storage.locks.try_acquire(key, LOCK_TIMEOUT, lease=LEASE, holder_id="one for all")
            if handle is None:
                journal.add("nothing", of=of)
                return
            details = {"key": key, "fence": handle.fence}
            journal.add("entered", **details, of=of, asked=asked)
            self.insert(tenant)
            journal.add("left", **details)
            handle.release()

    def read(self, tenant: str) -> None:
        """Read what others have written, and what one has written oneself."""
        with self.notes.reading("read", tenant):
            rows = list(self.storage.runs.list(tenant).items)
            self._check(tenant, rows)
            run = self._known(tenant)
            if run is not None:
                self._check_own(tenant, run, self.storage.runs.get(tenant, run))

    def in_session(self, tenant: str) -> None:
        """Read in a session, which keeps a connection."""
        run = self._known(tenant)
        if run is None:
            return
        with self.notes.reading("session", tenant), self.storage.sessions.open(tenant) as session:
            lines = session.execution_logs.list(tenant, run, limit=20)
            self._check(tenant, lines)
            self._check_own(tenant, run, session.runs.get(tenant, run))

    def _check(self, tenant: str, rows: Iterable[Run | ExecutionLogEntry]) -> None:
        for found in foreign_rows(tenant, rows):
            self.notes.journal.add("foreign", tenant=tenant, lane=self.notes.lane, seen=found)

    def _check_own(self, tenant: str, key: str, row: Run | None) -> None:
        if row is None or row.id != key:
            self.notes.wrong("read", f"the run {key} was confirmed, and {row and row.id} was read")
        else:
            self._check(tenant, [row])

    def _write(
        self, kind: str, tenant: str, parts: list[str], call: Callable[[], object], made: str | None = None
    ) -> None:
        with self.notes.call(kind, tenant, parts) as noted:
            call()
        if noted.confirmed and made is not None:
            self._mine.append((tenant, made))
        elif not noted.confirmed:
            time.sleep(CALL_PAUSE_SECONDS)

    def _known(self, tenant: str) -> str | None:
        """Return a run that this lane has written for a tenant."""
        mine = [key for owner, key in self._mine if owner == tenant]
        return self.random.choice(mine) if mine else None
