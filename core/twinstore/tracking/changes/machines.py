"""What ``evolve`` of the models takes, as ``twinstore dev changes`` wrote it."""

from __future__ import annotations

from typing_extensions import TypedDict

from twinstore.fields import Actor, FreeObject, Id, Timestamp
from twinstore.tracking.enums import MachineStatus
from twinstore.tracking.records import IdList, SlotList

__all__ = ["TrackingMachineChanges"]


class TrackingMachineChanges(TypedDict, total=False):
    """What ``TrackingMachine.evolve`` may change."""

    machine_id: Id
    hostname: Actor
    docker_slots: SlotList
    active_sessions: IdList
    status: MachineStatus
    last_heartbeat: Timestamp
    metadata: FreeObject
    created_at: Timestamp
    updated_at: Timestamp
