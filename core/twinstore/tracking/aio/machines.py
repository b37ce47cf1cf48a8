"""Machines for asyncio, as ``twinstore dev aio`` wrote it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from twinstore.aio.calls import Awaited
from twinstore.tracking.machines import TrackingMachineRepository

if TYPE_CHECKING:
    from collections.abc import Collection
    from datetime import datetime

    from twinstore.access.paging import Page
    from twinstore.tracking.enums import MachineStatus
    from twinstore.tracking.machines import MachineAvailability, TrackingMachine


__all__ = ["AsyncTrackingMachineRepository"]


class AsyncTrackingMachineRepository(Awaited[TrackingMachineRepository]):
    """Awaits a :class:`TrackingMachineRepository`, whose contracts hold."""

    async def create(self, record: TrackingMachine) -> TrackingMachine:
        """Insert a machine that lists no sessions yet; return what is stored."""
        return await self._threads.run(self._sync.create, record)

    async def get(self, machine_id: str) -> TrackingMachine | None:
        """Return one machine. Absent: ``None``."""
        return await self._threads.run(self._sync.get, machine_id)

    async def get_required(self, machine_id: str) -> TrackingMachine:
        """Return one machine as :meth:`get` does."""
        return await self._threads.run(self._sync.get_required, machine_id)

    async def list(
        self,
        *,
        statuses: Collection[MachineStatus] | None = None,
        limit: int = 20,
        page_token: str | None = None,
    ) -> Page[TrackingMachine]:
        """Return a page of machines. Order: machine_id. Limit 20, at most 100. No statuses: nothing."""
        return await self._threads.run(self._sync.list, statuses=statuses, limit=limit, page_token=page_token)

    async def count(self, *, statuses: Collection[MachineStatus] | None = None) -> int:
        """Return how many machines all pages of :meth:`list` have together. Empty: 0."""
        return await self._threads.run(self._sync.count, statuses=statuses)

    async def update(self, record: TrackingMachine, *, expected_status: MachineStatus | None = None) -> bool:
        """Replace a machine; a heartbeat never goes back. Absent: false. Equal: true, nothing is written."""
        return await self._threads.run(self._sync.update, record, expected_status=expected_status)

    async def heartbeat(self, machine_id: str, now: datetime) -> TrackingMachine:
        """Note that a machine lives, never backwards; offline becomes online, maintenance stays. Atomic."""
        return await self._threads.run(self._sync.heartbeat, machine_id, now)

    async def assign_session(
        self, machine_id: str, session_id: str, *, docker_slot: int | None = None
    ) -> TrackingMachine:
        """Let a session run on a machine, in a slot or in none; return the machine."""
        return await self._threads.run(
            self._sync.assign_session, machine_id, session_id, docker_slot=docker_slot
        )

    async def release_session(self, machine_id: str, session_id: str) -> TrackingMachine:
        """Take a session off a machine, and its slot from it; return the machine."""
        return await self._threads.run(self._sync.release_session, machine_id, session_id)

    async def list_available(
        self, *, limit: int = 20, page_token: str | None = None
    ) -> Page[MachineAvailability]:
        """Return a page of the machines that are online and have a free slot, with the free slots."""
        return await self._threads.run(self._sync.list_available, limit=limit, page_token=page_token)

    async def delete(self, machine_id: str) -> bool:
        """Remove one machine; its sessions keep its id. Absent or repeated: false."""
        return await self._threads.run(self._sync.delete, machine_id)
