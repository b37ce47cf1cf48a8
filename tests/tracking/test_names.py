"""The names by which hosts import tracking: the enumerations of the customer."""

from __future__ import annotations

from twinstore import tracking


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
