"""The kit of tracking: what its drivers must do, and what cannot be derived from its description.

``TrackingContract`` is the sum of the contracts named here and of those that hold for every module. The
module ``builders`` makes valid models for any test. Needs ``twinstore[testing]``.
"""

from __future__ import annotations

from twinstore.testing.contracts.driver import ModuleContract
from twinstore.testing.tracking.builders import TrackingWorkspace
from twinstore.testing.tracking.cases import TrackingCases
from twinstore.testing.tracking.contracts.decoding import BrokenRecordContract
from twinstore.testing.tracking.contracts.machines import MachineRepositoryContract, SlotContract
from twinstore.testing.tracking.contracts.sessions import SessionRepositoryContract
from twinstore.testing.tracking.contracts.tasks import TaskRepositoryContract
from twinstore.testing.tracking.contracts.units import UnitContract
from twinstore.testing.tracking.examples import TRACKING_EXAMPLES

__all__ = [
    "TRACKING_EXAMPLES",
    "MachineRepositoryContract",
    "SessionRepositoryContract",
    "SlotContract",
    "TaskRepositoryContract",
    "TrackingCases",
    "TrackingContract",
    "TrackingWorkspace",
    "UnitContract",
]


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
