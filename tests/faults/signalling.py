"""A program whose calls are interrupted by the handler of a signal that raises; ``test_signals`` reads it.

    python -m tests.faults.signalling KIND CALLS < settings.json

``KIND`` is what the handler raises. The program prints one JSON object: what came out of the interrupted
calls, and how those after them went that nobody interrupted.
"""

from __future__ import annotations

import json
import random
import signal
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

import twinstore
from twinstore.errors import TwinstoreError
from twinstore.scheduler.enums import RunState
from twinstore.testing.scheduler.builders import make_run, make_run_summary, moved

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

    from twinstore.scheduler.storage import SchedulerStorage

TENANT: Final = "tenant"
SHORTEST: Final = 0.00002
LONGEST: Final = 0.004
CONNECTIONS: Final = 2


class Deadline(Exception):  # noqa: N818  # as task queues call theirs
    """What a handler raises that limits the time of a task."""


KINDS: Final[dict[str, type[BaseException]]] = {"exception": Deadline, "interrupt": KeyboardInterrupt}


def get(storage: SchedulerStorage) -> None:
    storage.runs.get(TENANT, "stored")


def change(storage: SchedulerStorage) -> None:
    storage.run_summaries.modify(TENANT, "schedule", lambda old: old or make_run_summary(TENANT, "schedule"))


def create(storage: SchedulerStorage) -> None:
    storage.runs.create(make_run(TENANT, uuid4().hex))


def session(storage: SchedulerStorage) -> None:
    with storage.sessions.open(TENANT) as opened:
        opened.runs.get(TENANT, "stored")
        opened.runs.list(TENANT)


def unit(storage: SchedulerStorage) -> None:
    with storage.transaction(TENANT) as opened:
        run = opened.runs.create(make_run(TENANT, uuid4().hex))
        opened.runs.update(moved(run, RunState.QUEUED))


CALLS: Final[list[Callable[[SchedulerStorage], None]]] = [get, change, create, session, unit]


def interrupted(storage: SchedulerStorage, kind: type[BaseException], wanted: int) -> dict[str, Any]:
    """Make calls until so many were interrupted; count what came out, and how long the longest took."""
    came, slowest = Counter[str](), 0.0

    def handle(number: int, frame: FrameType | None) -> None:
        del number, frame
        raise kind("the handler")

    signal.signal(signal.SIGALRM, handle)
    randomly = random.Random(7)
    done = 0
    while done < wanted:
        begun = time.monotonic()
        try:
            try:
                signal.setitimer(signal.ITIMER_REAL, randomly.uniform(SHORTEST, LONGEST))
                randomly.choice(CALLS)(storage)
            finally:
                signal.setitimer(signal.ITIMER_REAL, 0)
        except kind:
            done += 1
            came["handler"] += 1
        except TwinstoreError as error:
            done += 1
            came[f"{type(error).__name__}: {error.message}"[:300]] += 1
        except Exception as error:  # noqa: BLE001  # what must not come out is what is looked for
            done += 1
            came[f"{type(error).__module__}.{type(error).__name__}: {error}"[:300]] += 1
        slowest = max(slowest, time.monotonic() - begun)
    return {"came": dict(came), "slowest": round(slowest, 1)}


def afterwards(storage: SchedulerStorage) -> dict[str, Any]:
    """Use every connection at once, from this thread and from others, uninterrupted."""
    begun = time.monotonic()
    errors = list[str]()
    try:
        with ExitStack() as stack:
            for _ in range(CONNECTIONS):
                stack.enter_context(storage.sessions.open(TENANT)).runs.list(TENANT)
        with ThreadPoolExecutor(4) as pool:
            for done in [pool.submit(call, storage) for call in CALLS * 4]:
                done.result()
        for call in CALLS:
            call(storage)
    except TwinstoreError as error:
        errors.append(f"{type(error).__name__}: {error.message}")
    return {"errors": errors, "seconds": round(time.monotonic() - begun, 1)}


def main() -> None:
    """Interrupt calls, and see what they leave."""
    settings = json.load(sys.stdin)
    with twinstore.add_scheduler_storage(settings) as storage:
        if storage.runs.get(TENANT, "stored") is None:
            storage.runs.create(make_run(TENANT, "stored"))
        report = interrupted(storage, KINDS[sys.argv[1]], int(sys.argv[2]))
        print(json.dumps({**report, "after": afterwards(storage)}))  # noqa: T201  # the answer to the test


if __name__ == "__main__":
    main()
