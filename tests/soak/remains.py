"""What a process must not keep once it has closed its storages: threads and open files."""

from __future__ import annotations

import gc
import os
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["Remains"]

# Threads of a closed pool end by themselves, on a busy machine after a while.
GRACE_SECONDS: Final = 30.0
LOOK_SECONDS: Final = 0.05
FILES: Final = Path("/proc/self/fd")


@dataclass(frozen=True, slots=True)
class Remains:
    """The threads by name, and the open files by number."""

    threads: frozenset[str]
    files: Mapping[int, str]

    @classmethod
    def now(cls) -> Self:
        """Return those of this process."""
        files: dict[int, str] = {}
        for name in os.listdir(FILES):  # noqa: PTH208  # the one that lists is gone when it is looked at
            with suppress(FileNotFoundError):
                files[int(name)] = os.readlink(FILES / name)  # noqa: PTH115  # a text, and often no path
        return cls(frozenset(f"{thread.name} ({thread.ident})" for thread in threading.enumerate()), files)

    def more_than(self, before: Remains) -> list[str]:
        """Return what was not there before."""
        threads = [f"the thread {name}" for name in sorted(self.threads - before.threads)]
        files = [
            f"the file {number} ({what})"
            for number, what in sorted(self.files.items())
            if before.files.get(number) != what
        ]
        return threads + files

    def left_over(self) -> list[str]:
        """Return what there is now and was not then, and does not go by itself."""
        deadline = time.monotonic() + GRACE_SECONDS
        # An error and its frames hold each other, and with them the connection that was not made.
        gc.collect()
        while (found := Remains.now().more_than(self)) and time.monotonic() < deadline:
            time.sleep(LOOK_SECONDS)
        return found
