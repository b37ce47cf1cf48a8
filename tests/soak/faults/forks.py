"""A process that forks while its threads are at work; both go on, for different tenants."""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, Final

from tests.faults.claiming import forked
from tests.soak.calls import Lane
from tests.soak.notes import Notes
from tests.soak.plan import SERVED
from twinstore.errors import TransactionAbortedError, TwinstoreError

if TYPE_CHECKING:
    from twinstore.scheduler.storage import SchedulerSession

__all__ = ["Forks"]

LONGEST_SECONDS: Final = 1.5
# A child that waits for a lock or a thread of its parent never ends.
PATIENCE_SECONDS: Final = 60.0
LOOK_SECONDS: Final = 0.05


@dataclass(slots=True)
class Forks:
    """The children of one service.

    Attributes:
        lane: of the thread that forks; a child does the same as it.
    """

    lane: Lane
    _running: dict[int, float] = field(default_factory=dict[int, float])

    def fork(self, choice: int) -> None:
        """Fork inside of a session; reap whoever has ended meanwhile."""
        self.reap()
        random = Random(choice)
        tenant = random.choice(SERVED)
        journal = self.lane.notes.journal
        with suppress(TwinstoreError), self.lane.storage.sessions.open(tenant) as session:
            session.runs.list(tenant)
            parent, name = os.getpid(), f"{self.lane.notes.token()}/child"
            child = forked(lambda: self._child(parent, name, session, tenant, random))
            journal.add("fault", kind="forked", child=child)
            self._running[child] = time.monotonic() + PATIENCE_SECONDS

    def _child(self, parent: int, name: str, session: SchedulerSession, tenant: str, random: Random) -> None:
        """Work for the other tenants until the time is over or the parent is gone."""
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        others = tuple(name for name in SERVED if name != tenant)
        # The runs that the parent remembers are the parent's to move.
        lane = Lane(self.lane.storage, Notes(self.lane.notes.journal, name), random, others)
        self._refused(lane, session, tenant)
        end = time.monotonic() + random.uniform(0.1, LONGEST_SECONDS)
        lane.work(lambda: time.monotonic() < end and os.getppid() == parent)
        if random.random() < 0.5:
            lane.storage.close()

    def _refused(self, lane: Lane, session: SchedulerSession, tenant: str) -> None:
        try:
            session.runs.list(tenant)
        except TransactionAbortedError:
            return
        lane.notes.wrong("fork", "a session that the parent opened was used in the child")

    def reap(self) -> None:
        """Note the children that have ended badly, or not in time."""
        for child, deadline in list(self._running.items()):
            ended, status = os.waitpid(child, os.WNOHANG)
            if ended == 0 and time.monotonic() > deadline:
                os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)
                status = 1
                self.lane.notes.wrong("fork", f"the child {child} did not end in time")
            elif ended == 0:
                continue
            elif status != 0:
                self.lane.notes.wrong("fork", f"the child {child} ended with {status}")
            del self._running[child]

    def await_all(self) -> None:
        """Wait until all have ended."""
        while self._running:
            self.reap()
            time.sleep(LOOK_SECONDS)
