"""Which session is on which machine and in which slot, decided over the rows of one step."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from twinstore.errors import ConflictError
from twinstore.tracking.catalog import MACHINES
from twinstore.tracking.machines import TrackingMachine
from twinstore.tracking.sessions import TrackingSession


def no_machines() -> dict[str, TrackingMachine]:
    """Return nothing."""
    return {}


def no_sessions() -> dict[str, TrackingSession]:
    """Return nothing."""
    return {}


@dataclass(frozen=True, slots=True)
class SlotState:
    """Some machines and sessions by id; those that do not exist are omitted.

    Attributes:
        machines: the machines.
        sessions: the sessions.
        unread: the unreadable sessions.
    """

    machines: Mapping[str, TrackingMachine] = field(default_factory=no_machines)
    sessions: Mapping[str, TrackingSession] = field(default_factory=no_sessions)
    unread: frozenset[str] = frozenset()

    def changed(self, other: SlotState) -> SlotState:
        """Return the same with what another one says."""
        machines, sessions = {**self.machines, **other.machines}, {**self.sessions, **other.sessions}
        return SlotState(machines, sessions, self.unread)


def occupied(
    machine: TrackingMachine, sessions: Mapping[str, TrackingSession], exclude: str = ""
) -> set[int]:
    """Return the slots that the sessions of a machine have, without one of these."""
    listed = (sessions.get(key) for key in machine.active_sessions if key != exclude)
    return {
        session.docker_slot
        for session in listed
        if session is not None
        and session.docker_slot is not None
        and session.machine_id == machine.machine_id
        and not session.status.ended
    }


def free_slots(machine: TrackingMachine, sessions: Mapping[str, TrackingSession]) -> tuple[int, ...]:
    """Return the free slots of a machine, in its order."""
    taken = occupied(machine, sessions)
    return tuple(slot for slot in machine.docker_slots if slot not in taken)


def assigned(
    state: SlotState, session: TrackingSession, machine: TrackingMachine, slot: int | None
) -> SlotState | None:
    """Return what changes when a session goes to a machine, ``None`` where it is there already.

    Raises:
        ConflictError: the slot is not to be had, or the session has ended.
    """
    if session.status.ended:
        raise conflict(
            machine,
            f"Session {session.session_id!r} is {session.status} and runs on no machine; recover a failed "
            "one, or start another.",
        )
    after = session.evolve(machine_id=machine.machine_id, docker_slot=slot)
    if after == session and session.session_id in machine.active_sessions:
        return None
    return moved(state, session, after, machine)


def moved(
    state: SlotState, session: TrackingSession, after: TrackingSession, machine: TrackingMachine
) -> SlotState:
    """Return what changes when a session goes to a machine: both machines, and the session afterwards.

    Raises:
        ConflictError: the slot is not to be had.
    """
    key = session.session_id
    check_read(machine, after.docker_slot, state.unread)
    check_slot(machine, after.docker_slot, occupied(machine, state.sessions, exclude=key))
    if key not in machine.active_sessions:
        machine = machine.evolve(active_sessions=(*machine.active_sessions, key))
    left = SlotState() if session.machine_id == machine.machine_id else unlisted(state, key)
    # The machine also where its list stays: it was decided that the slot is free.
    return left.changed(SlotState({machine.machine_id: machine}, {key: after}))


def released(state: SlotState, machine: TrackingMachine, session_id: str) -> SlotState | None:
    """Return what changes when a machine lets a session go, ``None`` where it has none of it."""
    session = state.sessions.get(session_id)
    is_here = session is not None and session.machine_id == machine.machine_id and not session.status.ended
    sessions: dict[str, TrackingSession] = {}
    if is_here and session is not None and session.docker_slot is not None:
        sessions[session_id] = session.evolve(docker_slot=None)
    if not sessions and session_id not in machine.active_sessions:
        return None
    return SlotState({machine.machine_id: without(machine, session_id)}, sessions)


def unlisted(state: SlotState, session_id: str) -> SlotState:
    """Return the machines that list a session, without it."""
    listing = {
        key: without(machine, session_id)
        for key, machine in state.machines.items()
        if session_id in machine.active_sessions
    }
    return SlotState(listing)


def without(machine: TrackingMachine, session_id: str) -> TrackingMachine:
    """Return a machine that does not list a session."""
    left = tuple(key for key in machine.active_sessions if key != session_id)
    return machine.evolve(active_sessions=left)


def check_read(machine: TrackingMachine, slot: int | None, unread: frozenset[str]) -> None:
    """Refuse a slot that an unreadable session may have.

    Raises:
        ConflictError: such a session is on the machine.
    """
    unknown = [key for key in machine.active_sessions if key in unread]
    if slot is not None and unknown:
        raise conflict(
            machine,
            f"Session {unknown[0]!r} on machine {machine.machine_id!r} cannot be read, so its slot is "
            f"unknown; repair it, or release it from the machine, before slot {slot} is given away.",
        )


def check_slot(machine: TrackingMachine, slot: int | None, taken: set[int]) -> None:
    """Refuse a slot that cannot be had.

    Raises:
        ConflictError: it is not offered, or occupied.
    """
    if slot is None or (slot in machine.docker_slots and slot not in taken):
        return
    offered = ", ".join(map(str, machine.docker_slots)) or "none"
    is_offered = slot in machine.docker_slots
    why = "is occupied; choose a free one" if is_offered else f"is not offered; it offers {offered}"
    raise conflict(machine, f"Slot {slot} of machine {machine.machine_id!r} {why}.")


def conflict(machine: TrackingMachine, text: str) -> ConflictError:
    """Return an error about a machine."""
    return ConflictError(text, module=MACHINES.module, entity=MACHINES.name, key=machine.machine_id)
