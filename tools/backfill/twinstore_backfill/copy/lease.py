"""Holding the lease of a job: taken over from a dead process at once, renewed while we live."""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass
from logging import getLogger
from pathlib import Path
from threading import Event, Thread
from typing import TYPE_CHECKING, Self

from twinstore.errors import LeaseLostError, TwinstoreError

if TYPE_CHECKING:
    from datetime import timedelta
    from types import TracebackType

    from twinstore.bulk import Lease, Ledger
    from twinstore_backfill.stopping import StopSwitch

__all__ = ["Holder", "LeaseKeeper", "acquire"]

log = getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Holder:
    """A process, told from others that had or will have its number by the time it started."""

    host: str
    pid: int
    started: str

    @classmethod
    def this_process(cls) -> Self:
        """Return the holder that is this process."""
        pid = os.getpid()
        return cls(socket.gethostname(), pid, start_time(pid) or "0")

    @classmethod
    def parse(cls, text: str) -> Self | None:
        """Return the holder that a lease names, ``None`` when it has another form."""
        host, _, rest = text.partition("/")
        pid, _, started = rest.partition("/")
        return cls(host, int(pid), started) if pid.isdecimal() and started else None

    def __str__(self) -> str:
        return f"{self.host}/{self.pid}/{self.started}"

    @property
    def dead(self) -> bool:
        """Whether the process ran on this host and is certainly gone."""
        return self.host == socket.gethostname() and start_time(self.pid) != self.started


def start_time(pid: int) -> str | None:
    """Return when a process started, in a form that only serves to compare; ``None`` when there is none.

    Where the system does not tell, a living process answers ``"0"``.
    """
    try:
        # The name of the program, in parentheses, may contain blanks and parentheses itself.
        fields = (
            Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        )
    except FileNotFoundError:
        return _portable_start_time(pid)
    except OSError:
        return None
    return None if fields[0] in {"Z", "X"} else fields[19]


def _portable_start_time(pid: int) -> str | None:
    if Path("/proc/self/stat").exists():
        return None
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return None
    except PermissionError:
        return "0"
    return "0"


def acquire(ledger: Ledger, job_id: str, duration: timedelta) -> Lease:
    """Take the lease of a job, also from a process of this host that is gone.

    Raises:
        LeaseLostError: somebody else holds it; names holder and expiry.
    """
    holder = str(Holder.this_process())
    try:
        return ledger.acquire(job_id, holder, duration)
    except LeaseLostError as error:
        previous = Holder.parse(error.key or "")
        if previous is None or not previous.dead:
            raise
        log.info("process %d, which held the lease, is gone; taking over", previous.pid)
        return ledger.acquire(job_id, holder, duration, dead=str(previous))


class LeaseKeeper:
    """Renews a lease in the background and gives it back at the end."""

    def __init__(self, ledger: Ledger, lease: Lease, duration: timedelta, stop: StopSwitch) -> None:
        """Take the lease; ``stop`` is flipped when it is lost."""
        self.lease = lease
        self.lost: LeaseLostError | None = None
        self._ledger = ledger
        self._duration = duration
        self._stop = stop
        self._done = Event()
        self._thread = Thread(target=self._renew, name="lease", daemon=True)

    def __enter__(self) -> Self:
        """Start renewing."""
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop renewing and release the lease; a server that is away only delays others by its term."""
        self._done.set()
        self._thread.join()
        try:
            self._ledger.release(self.lease)
        except TwinstoreError as problem:
            log.warning("the lease could not be released and expires by itself: %s", problem)

    def _renew(self) -> None:
        while not self._done.wait(self._duration.total_seconds() / 3):
            try:
                self.lease = self._ledger.renew(self.lease, self._duration)
            except LeaseLostError as error:
                self.lost = error
                self._stop.request()
                return
            except TwinstoreError as error:
                log.warning("the lease could not be renewed, trying again: %s", error)
