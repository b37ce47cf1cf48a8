"""A program that holds locks, so that a test can stop and kill it; ``test_locks`` reads what it prints.

    python -m tests.resilience.locking SCENARIO < settings.json

Settings are the first line of its input. It prints one JSON object a line.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from contextlib import ExitStack
from datetime import timedelta
from importlib import import_module
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

import twinstore
from twinstore.errors import TwinstoreError
from twinstore.scheduler import held_lock
from twinstore.scheduler.locks import lock_number

if TYPE_CHECKING:
    from collections.abc import Callable

    from twinstore.scheduler.locks import LockHandle

    Report = dict[str, Any]

KEY: Final = "shared"
HOLDER: Final = "one name for all"
MINUTE: Final = timedelta(minutes=1)
OFTEN: Final = 30
# However slow the machine is, each process gets the lock at least this often.
LEAST_TURNS: Final = 2


def tell(**report: object) -> None:
    """Print one line."""
    sys.stdout.write(f"{json.dumps(report)}\n")
    sys.stdout.flush()


def answer(action: Callable[[], object]) -> str:
    """Return what a call came to, as text."""
    try:
        return str(action())
    except TwinstoreError as error:
        return type(error).__name__


def hold(settings: Report) -> None:
    """Hold the lock and do what each line of the input says."""
    options = settings.pop("Test")
    # Often, so that a machine that is busy for a moment loses no lease.
    pytest.MonkeyPatch().setattr(held_lock, "RENEWALS_PER_LEASE", OFTEN)
    with twinstore.open_storage(settings) as storage, ExitStack() as stack:
        lease = timedelta(seconds=options["lease"])
        handle = storage.scheduler.locks.acquire(KEY, MINUTE, lease=lease, holder_id=HOLDER)
        tell(**owned(handle), number=lock_number(handle.tenant_id, KEY))
        steps: dict[str, Callable[[], object]] = {
            "renew": handle.renew,
            "renew for a minute": lambda: handle.renew(lease=MINUTE),
            "release": handle.release,
            "is_held": handle.is_held,
            "keep_alive": lambda: stack.enter_context(handle.keep_alive()),
        }
        for line in sys.stdin:
            step = line.strip()
            tell(answer=in_child(handle) if step == "fork" else answer(steps[step]))


def owned(handle: LockHandle) -> Report:
    """Return what a test wants to know of an ownership."""
    return {"fence": handle.fence, "expires_at": handle.expires_at.isoformat()}


def in_child(handle: LockHandle) -> list[str]:
    """Return what a forked child can do with the handle."""
    receive, send = os.pipe()
    if os.fork() == 0:
        steps = (handle.is_held, handle.release, handle.renew)
        os.write(send, json.dumps([answer(step) for step in steps]).encode())
        os._exit(0)
    os.close(send)
    with os.fdopen(receive) as report:
        found: list[str] = json.load(report)
    os.wait()
    return found


def contend(settings: Report) -> None:
    """Let many processes request one lock for some time, each with a separate storage and connections."""
    options = settings.pop("Test")
    pipes = []
    # Once for all: sixteen processes that import the drivers would be busy with nothing else.
    import_module("twinstore.scheduler.module")
    for driver in ("mongo", "postgres"):
        import_module(f"twinstore_{driver}.backend")
        import_module(f"twinstore_{driver}.special.scheduler_locks")
    start = time.monotonic()
    for _ in range(options["processes"]):
        receive, send = os.pipe()
        if os.fork() == 0:
            os.write(send, json.dumps(lives(settings, options, start)).encode())
            os._exit(0)
        os.close(send)
        pipes.append(receive)
    reports: list[Report | None] = []
    for pipe in pipes:
        with os.fdopen(pipe) as report:
            reports += json.load(report)
        os.wait()
    tell(reports=reports)


def lives(settings: Report, options: Report, start: float) -> list[Report | None]:
    """Let a process want the lock, and another one in its place whenever it dies; return what each says."""
    reports: list[Report | None] = []
    while not reports or (reports[-1] is None and time.monotonic() < start + options["seconds"]):
        receive, send = os.pipe()
        if os.fork() == 0:
            os.write(send, json.dumps(turns(settings, options, start)).encode())
            os._exit(0)
        os.close(send)
        with os.fdopen(receive) as report:
            text = report.read()
        os.wait()
        # A process that died while it had the lock says nothing.
        reports.append(json.loads(text) if text else None)
    return reports


def turns(settings: Report, options: Report, start: float) -> Report:
    """Take the lock again and again; log each turn, and say which errors came."""
    wrong: list[str] = []
    lease, folder = timedelta(seconds=options["lease"]), Path(options["folder"])
    with twinstore.open_storage(settings) as storage:
        locks = storage.scheduler.locks
        end = start + options["seconds"]
        for turn in count():
            if turn >= LEAST_TURNS and time.monotonic() >= end:
                break
            try:
                with locks.acquire(KEY, MINUTE, lease=lease, holder_id=HOLDER) as handle:
                    begun = time.monotonic_ns()
                    append(folder / "fences", handle.fence)
                    # The very first one, and then one in every ``deaths``.
                    if options["deaths"] and handle.fence % options["deaths"] == 1:
                        os.kill(os.getpid(), signal.SIGKILL)
                    ended = time.monotonic_ns()
                    # If the machine was busy for longer than the lease, another process has the lock.
                    if handle.is_held():
                        append(folder / "turns", handle.fence, begun, ended)
            except TwinstoreError as error:
                wrong.append(f"{type(error).__name__}: {error.message}")
    return {"wrong": wrong}


def append(file: Path, *numbers: int) -> None:
    """Append a line, which the system does not divide."""
    with file.open("a") as log:
        log.write(f"{' '.join(map(str, numbers))}\n")


SCENARIOS: Final[dict[str, Callable[[Report], None]]] = {"hold": hold, "contend": contend}

if __name__ == "__main__":
    SCENARIOS[sys.argv[1]](json.loads(sys.stdin.readline()))
