"""The processor time that a server has used, with all its processes or threads."""

from __future__ import annotations

from contextlib import closing, suppress
from typing import TYPE_CHECKING

import psutil

if TYPE_CHECKING:
    from benchmarks.databases import BenchmarkDatabases

__all__ = ["Meter"]


class Meter:
    """Reads the processor time of one server process and its children, those that have ended included."""

    def __init__(self, pid: int) -> None:
        """Take the process; it runs on this machine."""
        self._process = psutil.Process(pid)

    @classmethod
    def of_postgres(cls, databases: BenchmarkDatabases) -> Meter:
        """Return the meter of the PostgreSQL of a benchmark, whose backends are children of one process."""
        with closing(databases.superuser()) as connection:
            return cls(psutil.Process(connection.info.backend_pid).ppid())

    @classmethod
    def of_mongo(cls, databases: BenchmarkDatabases) -> Meter:
        """Return the meter of the mongod of a benchmark."""
        return cls(int(databases.client.admin.command("serverStatus")["pid"]))

    def read(self) -> float:
        """Return the processor seconds up to now; each process is counted in hundredths of a second."""
        total = 0.0
        for process in (self._process, *self._process.children(recursive=True)):
            with suppress(psutil.Error):
                times = process.cpu_times()
                total += times.user + times.system
        # A child that has ended is counted in the time of its parent.
        ended = self._process.cpu_times()
        return total + ended.children_user + ended.children_system
