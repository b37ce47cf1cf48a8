"""What sessions of the scheduler promise."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from twinstore.errors import DuplicateError
from twinstore.testing.base import needs
from twinstore.testing.instants import at
from twinstore.testing.scheduler.cases import SchedulerCases

if TYPE_CHECKING:
    from twinstore.testing.scheduler.workspace import SchedulerWorkspace

__all__ = ["SchedulerSessionContract"]


class SchedulerSessionContract(SchedulerCases):
    """An error of one call, and methods that are atomic by themselves."""

    @needs("sessions")
    def test_an_error_of_one_call_does_not_end_the_session(self, workspace: SchedulerWorkspace) -> None:
        with workspace.storage.sessions.open(workspace.tenant) as session:
            session.runs.create(workspace.run("a"))
            with pytest.raises(DuplicateError):
                session.runs.create(workspace.run("a"))
            session.schedules.upsert(workspace.schedule("a", name="same"))
            with pytest.raises(DuplicateError):
                session.schedules.upsert(workspace.schedule("b", name="same"))
            session.runs.create(workspace.run("b"))
            assert len(session.runs.list(workspace.tenant)) == 2
        assert len(workspace.storage.runs.list(workspace.tenant)) == 2

    @needs("sessions")
    def test_atomic_methods_stay_atomic_in_a_session(self, workspace: SchedulerWorkspace) -> None:
        with workspace.storage.sessions.open(workspace.tenant) as session:
            schedule = session.schedules.upsert(workspace.schedule())
            assert session.schedules.soft_delete(workspace.tenant, schedule.id, "eve", at(5))
            assert session.triggers.get_required(workspace.tenant, schedule.id).enabled is False
