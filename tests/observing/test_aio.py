"""Calls from asyncio are observed in the context of the task that makes them."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from typing_extensions import override

from tests.observing.watching import REQUEST, Watch
from twinstore import aio
from twinstore.errors import ConcurrencyError
from twinstore.observing import Observer
from twinstore.testing.scheduler.builders import make_run
from twinstore.testing.workspace import unique

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from twinstore.observing import Operation
    from twinstore.scheduler.aio import AsyncSchedulerSession


def opened(observer: Observer) -> aio.AsyncStorage:
    settings = {"Persistence": {"Scheduler": "Memory", "Memory": {"Store": unique("observing")}}}
    return aio.open_storage(settings, observers=[observer])


def complete(work: Coroutine[object, object, None]) -> None:
    asyncio.run(asyncio.wait_for(work, timeout=100))


def test_a_call_has_the_context_variables_of_its_task() -> None:
    watch = Watch()

    async def ask(storage: aio.AsyncStorage, request: str) -> None:
        REQUEST.set(request)
        await storage.scheduler.runs.get("t", "r")
        async with storage.scheduler.transaction("t") as unit:
            await unit.runs.list("t")

    async def work() -> None:
        async with opened(watch) as storage:
            await asyncio.gather(*(ask(storage, f"request {number}") for number in range(5)))

    complete(work())
    operations = ("get", "list", "transaction")
    assert sorted(watch.requests) == [
        (operation, f"request {number}") for operation in operations for number in range(5)
    ]


def test_what_a_call_sets_is_not_seen_by_the_task_or_by_another_call() -> None:
    seen: list[str] = []

    class Setting(Observer):
        @override
        def started(self, operation: Operation) -> None:
            seen.append(REQUEST.get())
            REQUEST.set(operation.operation)

    async def work() -> None:
        async with opened(Setting()) as storage:
            await storage.scheduler.runs.get("t", "r")
            await storage.scheduler.runs.get("t", "r")
        assert REQUEST.get() == ""

    complete(work())
    assert seen == ["", ""]


def test_sessions_units_and_attempts_are_observed_once_each() -> None:
    watch = Watch()

    async def lose_once(unit: AsyncSchedulerSession) -> None:
        if watch.outcomes.count(("transaction", "concurrency")) == 0:
            raise ConcurrencyError
        await unit.runs.create(make_run("t", "r"))

    async def work() -> None:
        async with opened(watch) as storage:
            async with storage.scheduler.session("t") as session:
                await session.runs.get("t", "r")
            await storage.scheduler.transact(lose_once, tenant_id="t")
            await storage.scheduler.ensure_migrations()
            await storage.scheduler.check_ready()
            with pytest.raises(LookupError):
                async with storage.scheduler.transaction("t"):
                    raise LookupError

    complete(work())
    assert watch.outcomes == [
        ("get", "ok"),
        ("session", "ok"),
        ("transaction", "concurrency"),
        ("create", "ok"),
        ("transaction", "ok"),
        ("transact", "ok"),
        ("ensure_migrations", "ok"),
        ("check_ready", "ok"),
        ("transaction", "error"),
    ]


def test_system_scope_of_a_unit_is_told_once() -> None:
    watch = Watch()

    async def work() -> None:
        async with opened(watch) as storage:
            async with storage.scheduler.transaction(purpose="a look at all") as unit:
                await unit.runs.list_by_state(make_run("t", "r").state)
            async with storage.scheduler.session(purpose="another look"):
                pass

    complete(work())
    purposes = [opening.purpose for opening in watch.openings]
    assert purposes == ["a look at all", "list_by_state", "another look"]


def test_a_cancelled_unit_has_ended() -> None:
    watch = Watch()

    async def wait_inside(storage: aio.AsyncStorage, inside: asyncio.Event) -> None:
        async with storage.scheduler.transaction("t"):
            inside.set()
            await asyncio.Event().wait()

    async def work() -> None:
        async with opened(watch) as storage:
            inside = asyncio.Event()
            task = asyncio.ensure_future(wait_inside(storage, inside))
            await inside.wait()
            task.cancel()
            await asyncio.wait([task])

    complete(work())
    assert watch.outcomes == [("transaction", "error")]
    assert watch.calls[0].error == "asyncio.exceptions.CancelledError"
