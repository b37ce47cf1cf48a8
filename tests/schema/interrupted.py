"""A program that migrates, or takes a migration back; tests start eight of it at once, or let it be killed.

    python -m tests.schema.interrupted < plan.json

The first line of its input is the plan. It prints one JSON object a line. ``kill_before`` names a word and a
number: the process is killed when it is about to send, for that many times, a statement with the word.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from concurrent.futures import ProcessPoolExecutor
from importlib import import_module
from multiprocessing import get_context
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg import sql
from pymongo import monitoring

import twinstore
from twinstore.errors import EffectKind, TwinstoreError
from twinstore.migrations.migration import Consent
from twinstore.migrations.revert import RevertsMigrations

if TYPE_CHECKING:
    from multiprocessing.synchronize import Barrier

    from pymongo.monitoring import CommandFailedEvent, CommandStartedEvent, CommandSucceededEvent

    from twinstore.migrations.migration import Initializer


BARRIER: Barrier | None = None


class Killer:
    """Counts what is sent, and kills the process before it sends one thing too many."""

    def __init__(self, word: str, number: int) -> None:
        self.word, self.left = word, number

    def __call__(self, text: str) -> None:
        """Check the statement that is about to be sent."""
        self.left -= self.word in text
        if self.left <= 0:
            os.kill(os.getpid(), signal.SIGKILL)


class Commands(monitoring.CommandListener):
    """Shows a killer what is sent to MongoDB, as ``createIndexes runs``."""

    def __init__(self, killer: Killer) -> None:
        self.killer = killer

    def started(self, event: CommandStartedEvent) -> None:
        """Run before a command is sent."""
        self.killer(f"{event.command_name} {event.command.get(event.command_name)}")

    def succeeded(self, event: CommandSucceededEvent) -> None:
        """Not needed."""

    def failed(self, event: CommandFailedEvent) -> None:
        """Not needed."""


def watch(word: str, number: int) -> None:
    """Let the process be killed, whichever server it talks to."""
    killer = Killer(word, number)
    monitoring.register(Commands(killer))
    execute: Any = psycopg.Cursor.execute

    def watched(self: Any, query: Any, *more: Any, **options: Any) -> Any:  # noqa: ANN401  # as the original
        text = query.as_string() if isinstance(query, sql.Composable) else query
        killer(text.decode() if isinstance(text, bytes) else text)
        return execute(self, query, *more, **options)

    # To intercept statements on their way to the server; an assignment would have to repeat the overloads.
    setattr(psycopg.Cursor, "execute", watched)  # noqa: B010


def act(initializer: Initializer, plan: dict[str, Any]) -> dict[str, Any]:
    """Migrate, or take a migration back."""
    if "revert" not in plan:
        return {"applied": initializer.ensure_migrations().applied}
    assert isinstance(initializer, RevertsMigrations)
    accept = {Consent(EffectKind.DROP, name, rows) for name, rows in plan["accept"].items()}
    return {"done": initializer.revert(plan["revert"], accept=accept).done}


def tell(**report: object) -> None:
    """Print one line."""
    sys.stdout.write(f"{json.dumps(report)}\n")
    sys.stdout.flush()


def at_once(plan: dict[str, Any], count: int) -> list[dict[str, Any]]:
    """Let some processes migrate, none of which begins before all are ready."""
    # Once for all: processes that import the drivers would be busy with nothing else.
    for driver in ("mongo", "postgres"):
        import_module(f"twinstore_{driver}.backend")
    context = get_context("fork")
    barrier = context.Barrier(count)
    with ProcessPoolExecutor(count, context, initializer=keep, initargs=(barrier,)) as pool:
        return list(pool.map(together, [plan] * count))


def keep(barrier: Barrier) -> None:
    """Keep what a process cannot be given later."""
    global BARRIER  # noqa: PLW0603  # as its class asks for
    BARRIER = barrier


def together(plan: dict[str, Any]) -> dict[str, Any]:
    """Migrate in one process of several."""
    with twinstore.open_storage(plan["settings"]) as storage:
        initializer = storage.scheduler.initializer
        assert BARRIER is not None
        BARRIER.wait(240)
        return {**act(initializer, plan), "process": os.getpid()}


def main() -> None:
    """Do what the plan says, once the second line of the input comes."""
    plan = json.loads(sys.stdin.readline())
    if "processes" in plan:
        tell(reports=at_once(plan, plan["processes"]))
        return
    if "kill_before" in plan:
        watch(*plan["kill_before"])
    with twinstore.open_storage(plan["settings"]) as storage:
        initializer = storage.scheduler.initializer
        tell(ready=True)
        sys.stdin.readline()
        try:
            tell(**act(initializer, plan))
        except TwinstoreError as error:
            tell(error=type(error).__name__, message=error.message)


if __name__ == "__main__":
    main()
