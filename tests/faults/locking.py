"""A program that holds locks, so that a test can stop and kill it; ``test_locks`` reads what it prints.

    python -m tests.faults.locking SCENARIO < settings.json

Settings are the first line of its input. It prints one JSON object a line.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
from contextlib import ExitStack
from datetime import timedelta
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import twinstore
from twinstore.errors import TwinstoreError
from twinstore.scheduler.locks import lock_number

if TYPE_CHECKING:
    from collections.abc import Callable

    from twinstore.scheduler.locks import LockHandle

    Report = dict[str, Any]

KEY: Final = "shared"
HOLDER: Final = "one name for all"
MINUTE: Final = timedelta(minutes=1)
SECOND: Final = timedelta(seconds=1)


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
    with twinstore.open_storage(settings) as storage, ExitStack() as stack:
        lease = timedelta(seconds=options["lease"])
        handle = storage.scheduler.locks.acquire(KEY, MINUTE, lease=lease, holder_id=HOLDER)
        tell(**owned(handle), number=lock_number(handle.tenant_id, KEY))
        steps: dict[str, Callable[[], object]] = {
            "renew": handle.renew,
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
    """Let many processes want one lock for some time, each with a storage and connections of its own."""
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
    """Take the lock again and again; log the fences, and say what was wrong while it was held."""
    wrong: list[str] = []
    dice, lease = random.Random(os.getpid()), timedelta(seconds=options["lease"])
    with twinstore.open_storage(settings) as storage:
        locks = storage.scheduler.locks
        end = start + options["seconds"]
        while time.monotonic() < end:
            try:
                with locks.acquire(KEY, MINUTE, lease=lease, holder_id=HOLDER) as handle:
                    with Path(options["folder"], "log").open("a") as log:
                        log.write(f"{handle.fence}\n")
                    if dice.random() < options["deaths"]:
                        os.kill(os.getpid(), signal.SIGKILL)
                    wrong += alone(Path(options["folder"]), handle.fence)
            except TwinstoreError as error:
                wrong.append(f"{type(error).__name__}: {error.message}")
    return {"wrong": wrong}


def alone(folder: Path, fence: int) -> list[str]:
    """Use what the lock protects; say so if anybody else does, or has done with a higher fence."""
    claim, seen = folder / "claimed", folder / "fence"
    try:
        os.close(os.open(claim, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return [f"fence {fence} met another owner"]
    try:
        before = int(seen.read_text()) if seen.exists() else 0
        seen.write_text(str(fence))
        return [] if fence > before else [f"fence {fence} came after {before}"]
    finally:
        claim.unlink()


SCENARIOS: Final[dict[str, Callable[[Report], None]]] = {"hold": hold, "contend": contend}

if __name__ == "__main__":
    SCENARIOS[sys.argv[1]](json.loads(sys.stdin.readline()))
