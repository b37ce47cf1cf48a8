"""Holding a job: its lease, taken over from a dead process at once, and a sign of life while we work.

:class:`ConflictRetry` repeats a step of a copy or a repair that lost against another writer.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain, count, repeat
from logging import getLogger
from pathlib import Path
from threading import Event, Lock, Thread
from typing import TYPE_CHECKING, Final, Self, TypeVar

from typing_extensions import override

from twinstore.errors import ConcurrencyError, LeaseLostError, TwinstoreError
from twinstore.ledger import RangeState

if TYPE_CHECKING:
    from datetime import timedelta

    from twinstore.ledger import Lease, Ledger
    from twinstore_backfill.process.stopping import StopSwitch

log = getLogger(__name__)


def acquire(ledger: Ledger, job_id: str, worker: str, duration: timedelta) -> Lease:
    """Acquire the lease of a job, also from a process of this host that has ended.

    Raises:
        LeaseLostError: another process holds it; names holder and expiry.
    """
    try:
        return ledger.acquire(job_id, worker, duration)
    except LeaseLostError as error:
        previous = ProcessIdentity.parse(error.key or "")
        # Only a process that certainly ran here and has ended; for any other host only time decides.
        if previous is None or not previous.dead:
            raise
        log.info("process %d, which held the lease, has ended; taking over", previous.pid)
        return ledger.acquire(job_id, worker, duration, dead=error.key)


def release_dead_workers(ledger: Ledger, job_id: str) -> None:
    """Free the ranges of workers whose process ran here and is gone, before their time is up."""
    held = {item.worker for item in ledger.ranges(job_id, state=RangeState.COPYING)}
    for worker in held - {None}:
        process = ProcessIdentity.parse(worker or "")
        if worker is not None and process is not None and process.dead:
            log.info("process %d, which copied a range, has ended; its ranges are free", process.pid)
            ledger.leave(job_id, worker)


class LeaseKeeper:
    """Renews the lease every third of its duration and reports the worker of all threads here as alive.

    Losing the lease to another process stops the run. A late renewal does not: if the server was frozen for
    longer than a lease, no process loses anything, and the fence of a range decides about its commit.
    """

    def __init__(
        self, ledger: Ledger, lease: Lease, worker: str | None, duration: timedelta, stop: StopSwitch
    ) -> None:
        """Take the lease and the worker, ``None`` for none; ``stop`` is flipped when the lease is lost."""
        self.lease = lease
        self.lost: LeaseLostError | None = None
        self._ledger = ledger
        self._worker = worker
        self._duration = duration
        self._stop = stop
        self._renewing = Lock()
        self._done = Event()
        self._thread = Thread(target=self._keep, name="lease", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop renewing, leave and release; a server that is away only delays others by the lease."""
        self._done.set()
        self._thread.join()
        # The worker first: its ranges are free then when the next coordinator gets the lease.
        if (worker := self._worker) is not None:
            _try_release("left", lambda: self._ledger.sign_off(self.lease.job_id, worker))
        _try_release("released", lambda: self._ledger.release(self.lease))

    def refresh(self) -> Lease:
        """Renew the lease now and return it.

        Raises:
            LeaseLostError: another process has taken it.
        """
        with self._renewing:
            try:
                self.lease = self._ledger.renew(self.lease, self._duration)
            except LeaseLostError:
                # It may only have expired; then it is ours until another process requests it.
                self.lease = self._ledger.regain(self.lease, self._duration)
            return self.lease

    def _keep(self) -> None:
        # A third, so that one renewal may fail and the next still comes in time.
        while not self._done.wait(self._duration.total_seconds() / 3):
            try:
                self.refresh()
                if self._worker is not None:
                    self._ledger.heartbeat(self.lease.job_id, self._worker, self._duration)
            except LeaseLostError as error:
                self.lost = error
                # Another coordinator may reopen ranges and complete the job now; this one must not go on.
                self._stop.request()
                return
            except TwinstoreError as error:
                log.warning("the lease could not be renewed, trying again: %s", error)
            except Exception as error:  # noqa: BLE001  # a thread that ends in silence would lose the lease
                log.warning("the lease could not be renewed, trying again: %s", type(error).__name__)


def _try_release(what: str, action: Callable[[], None]) -> None:
    try:
        action()
    except TwinstoreError as problem:
        log.warning("the job could not be %s; its lease expires by itself: %s", what, problem)


BOOT: Final = Path("/proc/sys/kernel/random/boot_id")
NAMESPACE: Final = Path("/proc/self/ns/pid")

_runs = count(1)


@dataclass(frozen=True, slots=True)
class ProcessIdentity:
    """A process: pids are reused within a boot, and two containers may share a host name but not pids.

    Attributes:
        host: name of the host.
        pid: number of the process in its namespace.
        started: when it started, in a form that only serves to compare.
        boot: id of the boot of the host, empty if the system does not report it.
        namespace: inode of the pid namespace, empty if the system does not report it.
    """

    host: str
    pid: int
    started: str
    boot: str = ""
    namespace: str = ""

    @classmethod
    def this_process(cls) -> Self:
        """Return the holder that is this process."""
        pid = os.getpid()
        return cls(socket.gethostname(), pid, start_time(pid) or "0", _boot(), _namespace())

    @classmethod
    def parse(cls, text: str) -> Self | None:
        """Return the holder that a lease or a range names, ``None`` when it has another form.

        0.1.0 wrote neither boot nor namespace, so what it names is never known to be gone.
        """
        host, pid, started, boot, namespace = (*text.split("/"), *([""] * 4))[:5]
        return cls(host, int(pid), started, boot, namespace) if pid.isdecimal() and started else None

    @override
    def __str__(self) -> str:
        return "/".join((self.host, str(self.pid), self.started, self.boot, self.namespace))

    @property
    def dead(self) -> bool:
        """Whether the process ran where this one runs and is certainly gone."""
        # All three: a container may have the host name of another one, and after a boot pids begin again.
        here = (socket.gethostname(), _boot(), _namespace())
        if not all(here) or (self.host, self.boot, self.namespace) != here:
            return False
        found = start_time(self.pid)
        return found != self.started if found is not None else not _exists(self.pid)


def worker_id() -> str:
    """Return the id of a new worker of this process: one run has one, however many threads it uses.

    A later run of the same process is another worker, so that it is free to take what this one left behind.
    """
    return f"{ProcessIdentity.this_process()}/{next(_runs)}"


def start_time(pid: int) -> str | None:
    """Return when a process started, in clock ticks since the boot; empty for one that has ended.

    ``None`` when nothing can be seen of it.
    """
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    # The name of the program, in parentheses, may contain blanks and parentheses itself.
    fields = stat.rpartition(")")[2].split()
    # A zombie keeps its pid until it is reaped, but it commits nothing any more. The start is field 22 of the
    # file, of which pid and name are cut off here.
    return "" if fields[0] in {"Z", "X"} else fields[19]


def _exists(pid: int) -> bool:
    """Whether a process has that number; one of another user may be hidden from ``/proc``."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _boot() -> str:
    try:
        return BOOT.read_text(encoding="ascii").strip()
    except OSError:
        # As on macOS; then no process is ever known to be gone, and its lease has to expire.
        return ""


def _namespace() -> str:
    try:
        return str(NAMESPACE.stat().st_ino)
    except OSError:
        # The same.
        return ""


# Wait, within a bound, for rows that another transaction holds.
#
# A process that was killed may leave its transaction open, with every document that it wrote. A server ends
# such a one after its own limit, as a rule 60 s, and looks for them only every half of that. Until then all
# others lose against it.


T = TypeVar("T")

# Twice what the server usually needs. A client that writes for longer is alive, and the copy should end.
RETRY_SECONDS: Final = 180.0
# A call that lost against a live writer succeeds soon; at once it would conflict with the same writer again.
RETRY_DELAYS: Final = (0.1, 0.5)
MAX_RETRY_DELAY: Final = 2.0
# The driver has tried for 10 s by then, so this is not an ordinary race.
WARN_AFTER: Final = len(RETRY_DELAYS)


class ConflictRetry:
    """Repeats what lost against another writer until it gets through."""

    def __init__(self, stop: StopSwitch, ticks: Callable[[], float] = time.monotonic) -> None:
        """Take the switch that ends a wait early, and the seconds."""
        self._stop = stop
        self._ticks = ticks

    def run(self, what: str, action: Callable[[], T]) -> T:
        """Return the result of an action, repeated after a ``ConcurrencyError``.

        Args:
            what: names it in the log.
            action: fails without a trace; another transaction may hold what it writes.

        Raises:
            ConcurrencyError: it still loses after :data:`RETRY_SECONDS`.
            StopRequestedError: a stop was requested while waiting.
        """
        for number, pause in self._delays():
            try:
                return action()
            except ConcurrencyError as error:
                log.info("%s is repeated: %s", what, error)
                if number == WARN_AFTER:
                    self._warn(what)
                self._stop.pause(pause)
        return action()

    def _delays(self) -> Iterator[tuple[int, float]]:
        end = self._ticks() + RETRY_SECONDS
        for number, pause in enumerate(chain(RETRY_DELAYS, repeat(MAX_RETRY_DELAY))):
            if self._ticks() >= end:
                return
            yield number, pause

    def _warn(self, what: str) -> None:
        # A warning, because a copy without progress for a minute looks like one that hangs.
        log.warning(
            "%s has to wait: another transaction holds what it writes, such as one that a killed command "
            "left open and that its server ends, as a rule after 60 to 90 s. Trying again for up to %.0f s; "
            "nothing is lost.",
            what,
            RETRY_SECONDS,
        )
