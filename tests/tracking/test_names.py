"""The names by which hosts import tracking: the customer's enumerations, and classes by driver."""

from __future__ import annotations

import twinstore
from twinstore import aio, tracking
from twinstore.canonical import CanonicalModel
from twinstore.tracking.storage import TrackingStorage, TrackingUnit


def test_the_enumerations_have_the_customers_members() -> None:
    told = {
        kind.__name__: {member.name: member.value for member in kind}
        for kind in (tracking.SessionStatus, tracking.TaskStatus, tracking.MachineStatus)
    }
    assert told == {
        "SessionStatus": {
            "ACTIVE": "active",
            "PAUSED": "paused",
            "COMPLETED": "completed",
            "FAILED": "failed",
            "STALLED": "stalled",
        },
        "TaskStatus": {
            "PENDING": "pending",
            "IN_PROGRESS": "in_progress",
            "COMPLETED": "completed",
            "FAILED": "failed",
            "BLOCKED": "blocked",
        },
        "MachineStatus": {"ONLINE": "online", "OFFLINE": "offline", "MAINTENANCE": "maintenance"},
    }


def test_the_bound_repositories_have_another_name_than_the_model() -> None:
    assert (twinstore.TrackingUnit, twinstore.TrackingStorage) == (TrackingUnit, TrackingStorage)
    assert aio.AsyncTrackingUnit.__name__ == "AsyncTrackingUnit"
    assert not hasattr(twinstore, "TrackingSession")
    assert not hasattr(aio, "AsyncTrackingSession")
    assert issubclass(tracking.TrackingSession, CanonicalModel)
