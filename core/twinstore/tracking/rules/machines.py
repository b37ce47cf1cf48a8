"""What a write of a machine must satisfy against the stored machine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from twinstore.access.errors import invalid_transition
from twinstore.errors import ConflictError, ValidationError
from twinstore.tracking.catalog import MACHINES
from twinstore.tracking.enums import MachineStatus
from twinstore.tracking.rules.records import check_expected, check_unchanged, with_stored_fields
from twinstore.tracking.states import MACHINE_MOVES

if TYPE_CHECKING:
    from collections.abc import Collection
    from datetime import datetime

    from twinstore.tracking.machines import TrackingMachine

LISTED: Final = "active_sessions"


def check_new(machine: TrackingMachine) -> None:
    """Refuse a new machine that lists sessions: it is unknown whether they are on it."""
    if machine.active_sessions:
        raise ValidationError(
            f"Machine {machine.machine_id!r} lists {len(machine.active_sessions)} sessions; a new one has "
            "none. Create it without them and assign each with assign_session.",
            **MACHINES.located(machine.machine_id),
        )


def updated(
    stored: TrackingMachine,
    record: TrackingMachine,
    expected: MachineStatus | None,
    occupied: Collection[int],
) -> TrackingMachine:
    """Return what an update stores; the stored machine where nothing changes."""
    key = stored.machine_id
    # Before the comparison: who expects another status has not seen what is stored.
    check_expected(MACHINES, key, stored.status, expected)
    record = with_stored_fields(stored, record).evolve(
        last_heartbeat=max(stored.last_heartbeat, record.last_heartbeat)
    )
    if record == stored:
        return stored
    if record.status is not stored.status and record.status not in MACHINE_MOVES[stored.status]:
        move = stored.status, record.status
        raise invalid_transition(MACHINES.name, MACHINES.singular, key, move, "this move is not allowed")
    check_unchanged(
        MACHINES, stored, record, (LISTED,), "assign_session, release_session and ends of sessions do"
    )
    taken = sorted({*occupied} & ({*stored.docker_slots} - {*record.docker_slots}))
    if taken:
        raise ConflictError(
            f"Machine {key!r} cannot stop offering slot {', '.join(map(str, taken))}, which a session "
            "occupies; release it first.",
            **MACHINES.located(key),
        )
    return record


def alive(stored: TrackingMachine, now: datetime) -> TrackingMachine:
    """Return a machine after a heartbeat, which never lies before the last one; an offline one is online."""
    status = MachineStatus.ONLINE if stored.status is MachineStatus.OFFLINE else stored.status
    return stored.evolve(status=status, last_heartbeat=max(now, stored.last_heartbeat))
