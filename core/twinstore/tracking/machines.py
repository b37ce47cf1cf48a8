"""Machines: what sessions run on, their slots, and the contract of their repository."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, Self

from pydantic import Field

from twinstore.models.fields import Actor, FreeObject, Id, Timestamp
from twinstore.tracking.enums import MachineStatus
from twinstore.tracking.records import IdList, SlotList, TrackingRecord, started_now

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable
    from datetime import datetime

    from twinstore.access.paging import Page
    from twinstore.models.json_text import JsonObject

__all__ = ["MachineAvailability", "TrackingMachine", "TrackingMachineRepository"]


class TrackingMachine(TrackingRecord):
    """One machine, with the slots that it offers and the sessions that run on it.

    ``created_at`` and ``updated_at`` are set by the repository, ``active_sessions`` by the methods that
    assign, release and end sessions.
    """

    machine_id: Id
    hostname: Actor
    docker_slots: SlotList = ()
    active_sessions: IdList = ()
    status: MachineStatus
    last_heartbeat: Timestamp
    metadata: FreeObject = Field(default_factory=dict)
    created_at: Timestamp
    updated_at: Timestamp

    @classmethod
    def new(
        cls,
        *,
        machine_id: str,
        hostname: str,
        docker_slots: Iterable[int] = (),
        now: datetime | None = None,
        metadata: JsonObject | None = None,
    ) -> Self:
        """Return a machine that is online and has no sessions."""
        instant = started_now(now)
        return cls(
            machine_id=machine_id,
            hostname=hostname,
            docker_slots=tuple(docker_slots),
            status=MachineStatus.ONLINE,
            last_heartbeat=instant,
            metadata=metadata or {},
            created_at=instant,
            updated_at=instant,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineAvailability:
    """A machine with its free slots, in the order in which it offers them."""

    machine: TrackingMachine
    free_slots: tuple[int, ...]


class TrackingMachineRepository(Protocol):
    """Machines; they have no tenant.

    A slot is occupied while a session that the machine lists has it and is neither completed nor failed.
    ``created_at`` and ``updated_at`` are set by the clock of the storage, whatever a record says there. All
    methods raise ``ValidationError`` for bad arguments, ``TenantScopeError`` in a session of one tenant,
    ``UnavailableError`` when the store cannot be reached and ``DocumentDecodeError`` for a stored document
    that does not form a machine.
    """

    def create(self, record: TrackingMachine) -> TrackingMachine:
        """Insert a machine that lists no sessions yet; return what is stored.

        Raises:
            DuplicateError: the id exists.
            ValidationError: it lists sessions; they are assigned afterwards.
        """
        ...

    def get(self, machine_id: str) -> TrackingMachine | None:
        """Return one machine. Absent: ``None``."""
        ...

    def get_required(self, machine_id: str) -> TrackingMachine:
        """Return one machine as :meth:`get` does.

        Raises:
            NotFoundError: where ``get`` answers ``None``.
        """
        ...

    def list(
        self,
        *,
        statuses: Collection[MachineStatus] | None = None,
        limit: int = 20,
        page_token: str | None = None,
    ) -> Page[TrackingMachine]:
        """Return a page of machines. Order: machine_id. Limit 20, at most 100. No statuses: nothing."""
        ...

    def count(self, *, statuses: Collection[MachineStatus] | None = None) -> int:
        """Return how many machines all pages of :meth:`list` have together. Empty: 0."""
        ...

    def update(self, record: TrackingMachine, *, expected_status: MachineStatus | None = None) -> bool:
        """Replace a machine; a heartbeat never goes back. Absent: false. Equal: true, nothing is written.

        Atomic.

        Raises:
            ConflictError: the stored status is not the expected one, or an occupied slot would go.
            InvalidTransitionError: the state machine forbids the move.
            ValidationError: ``active_sessions`` is not as it is stored.
        """
        ...

    def heartbeat(self, machine_id: str, now: datetime) -> TrackingMachine:
        """Note that a machine lives, never backwards; offline becomes online, maintenance stays. Atomic.

        Raises:
            NotFoundError: it does not exist.
        """
        ...

    def assign_session(
        self, machine_id: str, session_id: str, *, docker_slot: int | None = None
    ) -> TrackingMachine:
        """Let a session run on a machine, in a slot or in none; return the machine.

        The machine that listed the session before lists it no more. Repeated call: nothing changes. Atomic
        over the machines and the session.

        Raises:
            NotFoundError: the machine or the session does not exist.
            ConflictError: the slot is occupied or not offered, or the session has ended.
        """
        ...

    def release_session(self, machine_id: str, session_id: str) -> TrackingMachine:
        """Take a session off a machine, and its slot from it; return the machine.

        The session keeps its status and ``machine_id``. Not listed, or repeated: nothing changes. Atomic.

        Raises:
            NotFoundError: the machine does not exist.
        """
        ...

    def list_available(self, *, limit: int = 20, page_token: str | None = None) -> Page[MachineAvailability]:
        """Return a page of the machines that are online and have a free slot, with the free slots.

        Order: machine_id. Limit 20, at most 100. What is free follows from the sessions, so a call reads the
        machines that are online page by page, each with its sessions in one round trip more, until the page
        is full or 20 pages were read; while all are full it goes on. So a call costs two round trips for
        each ``limit`` machines that it passes over, and may return a page that is not full.
        """
        ...

    def delete(self, machine_id: str) -> bool:
        """Remove one machine; its sessions keep its id. Absent or repeated: false."""
        ...
