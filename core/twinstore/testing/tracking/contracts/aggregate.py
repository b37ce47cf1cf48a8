"""All contracts of tracking in one class."""

from __future__ import annotations

from twinstore.testing.contracts.module import ModuleContract
from twinstore.testing.tracking.contracts.decoding import BrokenRecordContract
from twinstore.testing.tracking.contracts.machines import MachineRepositoryContract, SlotContract
from twinstore.testing.tracking.contracts.sessions import SessionRepositoryContract
from twinstore.testing.tracking.contracts.tasks import TaskRepositoryContract
from twinstore.testing.tracking.contracts.units import UnitContract

__all__ = ["TrackingContract"]


class TrackingContract(
    SessionRepositoryContract,
    TaskRepositoryContract,
    MachineRepositoryContract,
    SlotContract,
    BrokenRecordContract,
    UnitContract,
    ModuleContract,
):
    """Everything that a driver of tracking must do."""
