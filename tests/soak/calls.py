"""What a thread of a service does, again and again, for one tenant and another."""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from tests.soak.plan import LEASE, LOCKS, SERVED
from twinstore.scheduler import ExecutionLogEntry
from twinstore.scheduler.runs import RunReason
from twinstore.testing.instants import START
from twinstore.testing.scheduler.builders import make_run

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from random import Random

    from tests.soak.notes import Notes
    from twinstore.scheduler.runs import Run
    from twinstore.scheduler.storage import SchedulerSession, SchedulerStorage

__all__ = ["Lane", "counter_of", "entries_of", "own_run", "strange", "unit_parts", "write_unit"]

REMEMBERED: Final = 50
# How long callers wait for a lock.
PATIENCE: Final = timedelta(milliseconds=100)
# After a refusal: who asks again at once only fills the journal.
PAUSE_SECONDS: Final = 0.05


def counter_of(tenant: str) -> str:
    """Return the id of the run that counts for a tenant."""
    return f"counter of {tenant}"


def own_run(tenant: str, key: str) -> Run:
    """Return a run that says in its content whose it is, beside its column."""
    return make_run(tenant, key, reason=RunReason(manual_reason=f"{tenant} {key}"))


def entries_of(tenant: str, run: str, messages: Iterable[str]) -> list[ExecutionLogEntry]:
    """Return lines for the log of a run; each says whose it is."""
    return [
        ExecutionLogEntry(tenant_id=tenant, run_id=run, logged_at=START, message=f"{tenant} {message}")
        for message in messages
    ]


def strange(tenant: str, rows: Iterable[Run | ExecutionLogEntry]) -> list[str]:
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

    def work(self, goes_on: Callable[[], bool]) -> None:
        """Do one thing after the other."""
        while goes_on():
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
            handle = self.storage.locks.try_acquire(key, PATIENCE, lease=LEASE, holder_id="one for all")
            if handle is None:
                journal.add("nothing", of=of)
                return
            told = {"key": key, "fence": handle.fence}
            journal.add("entered", **told, of=of, asked=asked)
            self.insert(tenant)
            journal.add("left", **told)
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
        for found in strange(tenant, rows):
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
            time.sleep(PAUSE_SECONDS)

    def _known(self, tenant: str) -> str | None:
        """Return a run that this lane has written for a tenant."""
        mine = [key for owner, key in self._mine if owner == tenant]
        return self.random.choice(mine) if mine else None
