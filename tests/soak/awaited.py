"""What the tasks of a service do, and how they are given up in the middle of it."""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from tests.soak.calls import entries_of, own_run, strange, unit_parts
from tests.soak.faults.cancels import given_up
from tests.soak.plan import SERVED

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from random import Random

    from tests.soak.notes import Notes
    from twinstore.aio import AsyncSchedulerStorage

__all__ = ["AwaitedLane"]

PAUSE_SECONDS: Final = 0.01


@dataclass(slots=True)
class AwaitedLane:
    """One task, and its random choices.

    Attributes:
        storage: of the process, which all its tasks share.
        notes: where each call is noted.
        random: decides what is done.
        cancelling: whether calls are given up.
    """

    storage: AsyncSchedulerStorage
    notes: Notes
    random: Random
    cancelling: bool
    # As trackers of errors do, which keep what the frames of an error hold.
    _kept: deque[BaseException] = field(default_factory=lambda: deque[BaseException](maxlen=100))

    async def work(self, goes_on: Callable[[], bool]) -> None:
        """Do one thing after the other."""
        while goes_on():
            call = self.random.choice((self.insert, self.unit, self.read, self.in_session))
            await call(self.random.choice(SERVED))
            await asyncio.sleep(PAUSE_SECONDS)

    async def insert(self, tenant: str) -> None:
        """Create a run."""
        key = self.notes.token()
        with self.notes.call("aio insert", tenant, [f"run {key}"]):
            await self._perhaps(self.storage.runs.create(own_run(tenant, key)))

    async def unit(self, tenant: str) -> None:
        """Write in a unit of work."""
        token = self.notes.token()
        with self.notes.call("aio unit", tenant, unit_parts(tenant, token)):
            await self._perhaps(self._write_unit(tenant, token))

    async def _write_unit(self, tenant: str, token: str) -> None:
        async with self.storage.transaction(tenant) as unit:
            await unit.runs.create(own_run(tenant, f"{token}/a"))
            await unit.execution_logs.append(entries_of(tenant, f"{token}/a", ("1", "2")))
            await unit.runs.create(own_run(tenant, f"{token}/b"))

    async def read(self, tenant: str) -> None:
        """Read what others have written."""
        with self.notes.reading("aio read", tenant):
            await self._perhaps(self._read(tenant))

    async def _read(self, tenant: str) -> None:
        page = await self.storage.runs.list(tenant)
        self._check(tenant, strange(tenant, page.items))

    async def in_session(self, tenant: str) -> None:
        """Read in a session, which keeps a connection."""
        with self.notes.reading("aio session", tenant):
            await self._perhaps(self._read_in_session(tenant))

    async def _read_in_session(self, tenant: str) -> None:
        async with self.storage.session(tenant) as session:
            page = await session.runs.list(tenant)
            self._check(tenant, strange(tenant, page.items))

    def _check(self, tenant: str, found: list[str]) -> None:
        for seen in found:
            self.notes.journal.add("foreign", tenant=tenant, lane=self.notes.lane, seen=seen)

    async def _perhaps(self, call: Awaitable[object]) -> None:
        """Wait for a call, or give it up."""
        if not self.cancelling:
            await call
            return
        try:
            await given_up(call, self.random)
        except BaseException as error:
            self._kept.append(error)
            raise
