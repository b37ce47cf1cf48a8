"""Who holds a lease or a range: one process, told from every other that ever had its number."""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Final, Self

from typing_extensions import override

__all__ = ["Holder", "start_time", "worker_id"]

BOOT: Final = Path("/proc/sys/kernel/random/boot_id")
NAMESPACE: Final = Path("/proc/self/ns/pid")

_runs = count(1)


@dataclass(frozen=True, slots=True)
class Holder:
    """A process: pids are reused within a boot, and two containers may share a host name but no pids.

    Attributes:
        host: name of the host.
        pid: number of the process in its namespace.
        started: when it started, in a form that only serves to compare.
        boot: id of the boot of the host, empty where the system does not tell.
        namespace: inode of the pid namespace, empty where the system does not tell.
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
    return f"{Holder.this_process()}/{next(_runs)}"


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
