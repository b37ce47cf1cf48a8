"""The largest proportional memory of a process and its children, watched at next to no cost.

The watcher shares the cores with what it watches, and only candidates are watched, not the references. So it
reads the children of the process from the process itself instead of walking all processes, and it measures
its own processor time.

The proportional set size (PSS) counts a page that several processes share once altogether. But the kernel
walks the whole page table for it, 2 to 4 ms for 100 MB. So it is read once a second and after each growth by
4 MB; at the looks between, pages that came since then count in full, so that the sum is never too small.
"""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass
from threading import Event, Thread
from time import perf_counter, thread_time
from typing import Final, Self

__all__ = ["PeakMemory", "family"]

POLL_SECONDS: Final = 0.2
TRUSTED_SECONDS: Final = 1.0
TRUSTED_PAGES: Final = 1024
PAGE: Final = os.sysconf("SC_PAGE_SIZE")
PSS: Final = b"\nPss:"
KILOBYTE: Final = 1024
LARGEST: Final = 1 << 16


@dataclass(frozen=True, slots=True)
class Reading:
    """What was read of one process: its resident pages, its proportional bytes, and when."""

    pages: int
    size: int
    at: float


class PeakMemory:
    """Adds up the proportional memory of a process and its children every 200 ms.

    Attributes:
        peak: the largest sum in bytes, ``None`` if the system does not report it.
        used_seconds: the processor time of the watcher.
    """

    def __init__(self, pid: int) -> None:
        """Take the process to watch."""
        self._pid = pid
        self._readings: dict[int, Reading] = {}
        self._done = Event()
        self._thread = Thread(target=self._watch, daemon=True)
        self.peak: int | None = None
        self.used_seconds = 0.0

    def __enter__(self) -> Self:
        """Start watching."""
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop watching."""
        self._done.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._done.wait(POLL_SECONDS):
            self.poll()
        self.used_seconds = thread_time()

    def poll(self) -> None:
        """Add up what the processes have at present."""
        now = sum(map(self._size, family(self._pid)))
        if now:
            self.peak = max(self.peak or 0, now)

    def _size(self, pid: int) -> int:
        """Return the proportional bytes of a process, 0 for one that has ended."""
        with suppress(OSError, IndexError):
            pages, last, now = resident_pages(pid), self._readings.get(pid), perf_counter()
            growth = pages if last is None else max(pages - last.pages, 0)
            if last and now - last.at < TRUSTED_SECONDS and growth < TRUSTED_PAGES:
                return last.size + growth * PAGE
            self._readings[pid] = Reading(pages, proportional_bytes(pid), now)
            return self._readings[pid].size
        return 0


def family(pid: int) -> list[int]:
    """Return a process and all below it; those that end meanwhile may be missing."""
    found = [pid]
    for member in found:
        with suppress(OSError):
            for thread in os.listdir(f"/proc/{member}/task"):  # noqa: PTH208  # a tenth of the time
                with suppress(OSError):
                    found += map(int, content(f"/proc/{member}/task/{thread}/children").split())
    return found


def resident_pages(pid: int) -> int:
    """Return how many pages of a process are in memory."""
    return int(content(f"/proc/{pid}/statm").split()[1])


def proportional_bytes(pid: int) -> int:
    """Return the memory of a process, of shared pages its part."""
    text = content(f"/proc/{pid}/smaps_rollup")
    return int(text.partition(PSS)[2].split(maxsplit=1)[0]) * KILOBYTE


def content(path: str) -> bytes:
    """Return a small file; without the layers of a Python file, which take longer than the kernel."""
    handle = os.open(path, os.O_RDONLY)
    try:
        return os.read(handle, LARGEST)
    finally:
        os.close(handle)
