"""The faults of a soak, by kind."""

from __future__ import annotations

import asyncio
import os
import select
import signal
import subprocess
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from random import Random
from threading import Thread
from typing import TYPE_CHECKING, Final

import psutil

from tests.support.claiming import forked
from tools.soak.journal import Notes
from tools.soak.plan import SERVED
from tools.soak.work import Lane, unit_parts, write_unit
from twinstore.errors import TransactionAbortedError, TwinstoreError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator
    from pathlib import Path

    from twinstore.scheduler.storage import SchedulerSession

# How many calls are cancelled, and how long they have until then: some end sooner, most of them do not.
SHARE: Final = 0.4
LONGEST_SECONDS: Final = 0.03


async def cancel_sometimes(call: Awaitable[object], random: Random) -> None:
    """Wait for a call, or cancel it after a while by its task or by a deadline.

    Raises:
        TimeoutError: it was cancelled.
    """
    if random.random() >= SHARE:
        await call
        return
    seconds = random.uniform(0, LONGEST_SECONDS)
    if random.random() < 0.5:
        async with asyncio.timeout(seconds):
            await call
        return
    task = asyncio.ensure_future(call)
    await asyncio.wait({task}, timeout=seconds)
    task.cancel()
    await asyncio.wait({task})
    if task.cancelled():
        raise TimeoutError
    task.result()


# Far more than a soak stores; memory is taken for what is stored only.
ROOM: Final = "4g"
ATTEMPTS: Final = 100


@contextmanager
def small_disk(path: Path, size: str = ROOM) -> Iterator[bool]:
    """Mount a file system in memory for the length of the block; answer whether that was possible."""
    done = _mount("-t", "tmpfs", "-o", f"size={size},mode=0711", "tmpfs", str(path))
    try:
        yield done
    finally:
        if done:
            subprocess.run(["umount", str(path)], check=True)  # noqa: S607  # found where the system has it


def fill(path: Path, meanwhile: Callable[[], object]) -> None:
    """Leave no free space on the file system for a while.

    The file system is shrunk to the size of its content. A file that fills it would cost memory, and space
    would become free as soon as another file is removed.

    Raises:
        RuntimeError: the content grows faster than it can be limited.
    """
    if not any(_limit(path) for _ in range(ATTEMPTS)):
        raise RuntimeError(f"The file system of {path} could not be filled.")
    try:
        meanwhile()
    finally:
        _mount("-o", f"remount,size={ROOM}", str(path))


def _limit(path: Path) -> bool:
    now = os.statvfs(path)
    used = (now.f_blocks - now.f_bfree) * now.f_frsize
    return _mount("-o", f"remount,size={used}", str(path))


def _mount(*options: str) -> bool:
    done = subprocess.run(["mount", *options], check=False, capture_output=True)  # noqa: S607  # as above
    return done.returncode == 0


LONGEST_FORK_SECONDS: Final = 1.5
# A child that waits for a lock or a thread of its parent never ends.
TIMEOUT_SECONDS: Final = 60.0
POLL_SECONDS: Final = 0.05


@dataclass(slots=True)
class Forks:
    """The children of one service.

    Attributes:
        lane: of the thread that forks; a child does the same as it.
    """

    lane: Lane
    _running: dict[int, float] = field(default_factory=dict[int, float])

    def fork(self, choice: int) -> None:
        """Fork inside a session; reap the children that have ended meanwhile."""
        self.reap()
        random = Random(choice)
        tenant = random.choice(SERVED)
        journal = self.lane.notes.journal
        with suppress(TwinstoreError), self.lane.storage.sessions.open(tenant) as session:
            session.runs.list(tenant)
            parent, name = os.getpid(), f"{self.lane.notes.token()}/child"
            child = forked(lambda: self._child(parent, name, session, tenant, random))
            journal.add("fault", kind="forked", child=child)
            self._running[child] = time.monotonic() + TIMEOUT_SECONDS

    def _child(self, parent: int, name: str, session: SchedulerSession, tenant: str, random: Random) -> None:
        """Work for the other tenants until the time is over or the parent is gone."""
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        others = tuple(name for name in SERVED if name != tenant)
        # The runs that the parent remembers are the parent's to move.
        lane = Lane(self.lane.storage, Notes(self.lane.notes.journal, name), random, others)
        self._refused(lane, session, tenant)
        end = time.monotonic() + random.uniform(0.1, LONGEST_FORK_SECONDS)
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
            time.sleep(POLL_SECONDS)


# Three times as many as there are connections; together far below the time for which callers wait.
CALLERS_EACH: Final = 3
HOLD_SECONDS: Final = 0.2


def exhaust_pool(lane: Lane, pool: int, choice: int) -> None:
    """Open units all at once, and hold each for a while; every one of them gets a connection."""
    lane.notes.journal.add("fault", kind="crowded")
    threads = [
        Thread(
            target=_hold,
            args=(lane, f"{lane.notes.token()}/crowd", Random(f"{choice}/{number}")),
            daemon=True,
        )
        for number in range(CALLERS_EACH * pool)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _hold(lane: Lane, name: str, random: Random) -> None:
    notes, tenant = Notes(lane.notes.journal, name), random.choice(SERVED)
    token = notes.token()
    with notes.call("held unit", tenant, unit_parts(tenant, token)), lane.storage.transaction(tenant) as unit:
        write_unit(unit, tenant, token)
        time.sleep(random.uniform(0, HOLD_SECONDS))


def stall_process(find: Callable[[], int | None], meanwhile: Callable[[], object]) -> None:
    """Stop a server and its children; they keep their connections, and the system takes new ones for them."""
    pid = find()
    if pid is None:
        raise LookupError("The server to be stalled does not run.")
    server = psutil.Process(pid)
    # The parent first, so that no child is born meanwhile.
    _send_signal([server], signal.SIGSTOP)
    children = server.children(recursive=True)
    _send_signal(children, signal.SIGSTOP)
    try:
        meanwhile()
    finally:
        _send_signal([*children, server], signal.SIGCONT)


def _send_signal(processes: list[psutil.Process], what: signal.Signals) -> None:
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            process.send_signal(what)


@dataclass(frozen=True, slots=True)
class Gate:
    """Two pipes: one for those who have arrived, one that is closed for them to go on."""

    arrived: tuple[int, int]
    opened: tuple[int, int]

    @classmethod
    def new(cls) -> Gate:
        """Create a gate; processes that are forked afterwards can wait at it."""
        return cls(os.pipe(), os.pipe())

    def enter(self) -> None:
        """Join the waiting processes: close the pipe ends that would keep the gate closed."""
        os.close(self.opened[1])
        os.close(self.arrived[0])

    def wait(self) -> None:
        """Report that this process is paused, and wait until the gate is opened."""
        os.write(self.arrived[1], b".")
        os.read(self.opened[0], 1)

    def await_arrivals(self, number: int, seconds: float) -> int:
        """Wait until this many have arrived or the time is over; return how many have."""
        found, deadline = 0, time.monotonic() + seconds
        while found < number and (rest := deadline - time.monotonic()) > 0:
            if select.select([self.arrived[0]], [], [], rest)[0]:
                found += len(os.read(self.arrived[0], number))
        return found

    def open(self) -> None:
        """Let everybody go on, also those who arrive later."""
        os.close(self.opened[1])

    def close(self) -> None:
        """Give up the rest."""
        for end in (*self.arrived, self.opened[0]):
            os.close(end)
