"""Programs of a fleet: a coordinator with a short lease, and a process that forks workers."""

from __future__ import annotations

import os
import signal
import sys
from contextlib import suppress
from datetime import timedelta
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tests.migration_tool.copy.poisoned import PRELOADED
from tests.support.copies import AS_OF
from twinstore.config import load_settings
from twinstore_backfill.cli import main
from twinstore_backfill.copy.engine import run_copy
from twinstore_backfill.copy.options import CopyOptions
from twinstore_backfill.process.stopping import StopSwitch
from twinstore_backfill.progress.record import SilentProgress
from twinstore_backfill.stores import open_store

if TYPE_CHECKING:
    from types import FrameType

LEASE: Final = timedelta(seconds=4)
SIDES: Final = ("--module", "scheduler", "--from", "Mongo", "--to", "Postgres")


def coordinate(config: str, url: str, range_size: str, out: str) -> int:
    """Copy by an engine; return the exit code."""
    settings = load_settings(Path(config), environ={})
    with (
        open_store("scheduler", "Mongo", settings, read_only=True) as source,
        open_store("scheduler", "Postgres", settings) as target,
    ):
        options = CopyOptions(
            engine=url,
            lease=LEASE,
            range_size=int(range_size),
            as_of=AS_OF,
            execute=True,
            out=Path(out),
        )
        return int(run_copy(source, target, options, SilentProgress(), StopSwitch()).exit)


def supervise(config: str, number: str) -> int:
    """Keep so many workers running until none of them has anything left to do."""
    for name in PRELOADED:
        import_module(name)
    living: set[int] = set()

    def end(_number: int, _frame: FrameType | None) -> None:
        for pid in living:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        os._exit(0)

    signal.signal(signal.SIGTERM, end)
    codes: list[int] = []
    while codes.count(0) < int(number):
        while len(living) < int(number) - codes.count(0):
            # Nothing is connected in this process, and it has one thread.
            child = os.fork()
            if child == 0:
                signal.signal(signal.SIGTERM, signal.SIG_DFL)
                command = ("--config", config, "backfill", "work", *SIDES, "--execute", "--slots", "1")
                os._exit(main([*command, "--progress", "none"]))
            living.add(child)
        pid, status = os.wait()
        living.discard(pid)
        codes.append(os.waitstatus_to_exitcode(status))
    return 0


if __name__ == "__main__":
    program = coordinate if sys.argv[1] == coordinate.__name__ else supervise
    sys.exit(program(*sys.argv[2:]))
