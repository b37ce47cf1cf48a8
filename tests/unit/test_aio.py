"""The facade for asyncio is current, and behaves as the synchronous library under cancellation and errors."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from datetime import UTC, datetime
from threading import Event
from typing import TYPE_CHECKING

import pytest

from twinstore import add_scheduler_memory_storage
from twinstore.aio import open_storage
from twinstore.errors import ConcurrencyError, DuplicateError, TransactionAbortedError, ValidationError
from twinstore.scheduler import Run, RunState, RunTrigger

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from twinstore.aio import AsyncSchedulerSession, AsyncStorage
    from twinstore.scheduler import RunSummary
    from twinstore.scheduler.storage import SchedulerStorage

CREATED = datetime(2025, 10, 26, 14, 5, tzinfo=UTC)
MEMORY = {"Persistence": {"Scheduler": "Memory"}}


def run(number: int) -> Run:
    return Run(
        id=f"run-{number}",
        tenant_id="t",
        schedule_id="s",
        trigger=RunTrigger.CRON,
        state=RunState.PLANNING,
        created_at=CREATED,
    )


def storage() -> AsyncStorage:
    return open_storage(MEMORY)


def complete(work: Coroutine[object, object, None]) -> None:
    asyncio.run(asyncio.wait_for(work, timeout=100))


async def fail_inside_a_unit(opened: AsyncStorage) -> None:
    async with opened.scheduler.transaction("t") as unit:
        await unit.runs.create(run(2))
        raise LookupError


async def nothing(_: AsyncSchedulerSession) -> None:
    """Do nothing in a unit."""


async def swallow_a_store_error(opened: AsyncStorage) -> None:
    async with opened.scheduler.transaction("t") as unit:
        await unit.runs.create(run(2))
        with pytest.raises(DuplicateError):
            await unit.runs.create(run(1))


# `make check` asks the same.
@pytest.mark.long
def test_the_generated_module_is_current() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "twinstore.codegen.aio", "--check"],
        check=False,
        capture_output=True,
        text=True,
    )
    assert (done.stdout.strip(), done.returncode) == ("current", 0)


def test_calls_return_what_the_synchronous_ones_return() -> None:
    async def work() -> None:
        async with storage() as opened:
            await opened.scheduler.runs.create(run(1))
            assert await opened.scheduler.runs.get("t", "run-1") == run(1)
            assert await opened.scheduler.runs.get("u", "run-1") is None
            with pytest.raises(DuplicateError):
                await opened.scheduler.runs.create(run(1))

    complete(work())


def test_a_unit_of_work_commits_at_its_end_and_vanishes_after_an_exception() -> None:
    async def work() -> None:
        async with storage() as opened:
            async with opened.scheduler.transaction("t") as unit:
                await unit.runs.create(run(1))
                assert await opened.scheduler.runs.get("t", "run-1") is None
            assert await opened.scheduler.runs.get("t", "run-1") is not None
            with pytest.raises(LookupError):
                await fail_inside_a_unit(opened)
            assert await opened.scheduler.runs.get("t", "run-2") is None

    complete(work())


def test_a_unit_that_met_a_store_error_cannot_commit() -> None:
    async def work() -> None:
        async with storage() as opened:
            await opened.scheduler.runs.create(run(1))
            with pytest.raises(TransactionAbortedError):
                await swallow_a_store_error(opened)
            assert await opened.scheduler.runs.get("t", "run-2") is None

    complete(work())


def test_a_cancelled_unit_is_rolled_back_before_the_cancellation_is_seen() -> None:
    async def work() -> None:
        async with storage() as opened:
            entered = asyncio.Event()

            async def unit_that_hangs() -> None:
                async with opened.scheduler.transaction("t") as unit:
                    await unit.runs.create(run(1))
                    entered.set()
                    await asyncio.Event().wait()

            task = asyncio.create_task(unit_that_hangs())
            await entered.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert await opened.scheduler.runs.get("t", "run-1") is None
            await opened.scheduler.runs.create(run(1))

    complete(work())


def test_transact_repeats_a_lost_race_up_to_the_last_attempt() -> None:
    async def work() -> None:
        attempts: list[int] = []

        async def lose_twice(unit: AsyncSchedulerSession) -> str:
            attempts.append(1)
            if len(attempts) < 3:
                raise ConcurrencyError
            await unit.runs.create(run(1))
            return "won"

        async with storage() as opened:
            assert await opened.scheduler.transact(lose_twice, tenant_id="t") == "won"
            attempts.clear()
            with pytest.raises(ConcurrencyError):
                await opened.scheduler.transact(lose_twice, tenant_id="t", attempts=2)
            with pytest.raises(ValidationError):
                await opened.scheduler.transact(lose_twice, tenant_id="t", attempts=0)

    complete(work())


def test_a_second_unit_of_one_task_is_refused_and_the_first_goes_on() -> None:
    async def work() -> None:
        async with storage() as opened:
            async with opened.scheduler.transaction("t") as unit:
                await unit.runs.create(run(1))
                with pytest.raises(ValidationError, match="do not nest"):
                    async with opened.scheduler.transaction("t"):
                        pass
                with pytest.raises(ValidationError, match="do not nest"):
                    await opened.scheduler.transact(nothing, tenant_id="t")
                await unit.runs.create(run(2))
            assert len(await opened.scheduler.runs.get_pending_runs("t")) == 2
            async with opened.scheduler.transaction("t") as unit:
                await unit.runs.create(run(3))

    complete(work())


def test_tasks_that_use_the_synchronous_library_in_one_thread_have_a_unit_each() -> None:
    async def write(opened: SchedulerStorage, both: asyncio.Barrier, number: int) -> None:
        with opened.transaction("t") as unit:
            await both.wait()
            unit.runs.create(run(number))

    async def work() -> None:
        with add_scheduler_memory_storage() as opened:
            both = asyncio.Barrier(2)
            await asyncio.gather(write(opened, both, 1), write(opened, both, 2))
            assert len(opened.runs.get_pending_runs("t")) == 2

    complete(work())


def test_the_event_loop_goes_on_while_a_call_waits() -> None:
    async def work() -> None:
        async with storage() as opened:
            gate = Event()

            def wait_for_the_gate(stored: RunSummary | None) -> RunSummary | None:
                assert gate.wait(60)
                return stored

            waiting = asyncio.create_task(opened.scheduler.run_summaries.modify("t", "s", wait_for_the_gate))
            await asyncio.sleep(0)
            gate.set()
            assert await waiting is None

    complete(work())
