"""Rows of tracking and of the task runner as services have them after half a year."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Final

from tests.plans.filling import Numbers
from twinstore.catalog.row import Row
from twinstore.taskrunner.enums import LogLevel, PackApprovalStatus
from twinstore.taskrunner.pack_run_logs import PackRunLogEntry
from twinstore.testing.taskrunner.builders import make_approval, make_artifact, make_pack_run
from twinstore.tracking import (
    MachineStatus,
    SessionStatus,
    TaskStatus,
    TrackingMachine,
    TrackingSession,
    TrackingTask,
)

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["MODULE_ROWS"]

ENTRIES: Final = 40  # of each run that has a log
BELOW: Final = 4  # artifacts, and approvals, of each run that has some
SESSION_FATES: Final = (SessionStatus.COMPLETED,) * 40 + tuple(SessionStatus)
TASK_FATES: Final = (TaskStatus.COMPLETED,) * 40 + tuple(TaskStatus)
# Half of them are full, so that the list of those with a free slot passes over many.
SLOTS: Final = (0, 1, 2, 3)


def project_of(n: Numbers) -> str:
    """Return a project: the first one has a quarter of all rows."""
    return n.tenant.replace("tenant", "project")


def session(n: Numbers) -> Row:
    """Most are completed; a session runs on one of many machines."""
    status = SESSION_FATES[n.pick(0, len(SESSION_FATES))]
    model = TrackingSession.new(
        session_id=f"session-{n.name}",
        project_id=project_of(n),
        machine_id=f"machine-{n.pick(1, 200)}",
        now=n.instant,
    )
    ended = n.instant + timedelta(minutes=9) if status.ended else None
    return Row(model.evolve(status=status, completed_at=ended))


def task(n: Numbers) -> Row:
    """A few for each session; most are completed."""
    status = TASK_FATES[n.pick(0, len(TASK_FATES))]
    owner = Numbers(n.number // 3, n.count)
    model = TrackingTask.new(
        task_id=f"task-{n.name}",
        session_id=f"session-{owner.name}",
        project_id=project_of(owner),
        task_name="Investigate",
        now=n.instant,
    )
    return Row(model.evolve(status=status, completed_at=n.instant if status.ended else None))


def machine(n: Numbers) -> Row:
    """Most are online, and one in ten is silent."""
    status = list(MachineStatus)[n.pick(0, 12) // 10]
    model = TrackingMachine.new(
        machine_id=f"machine-{n.name}", hostname="host", docker_slots=SLOTS, now=n.instant
    )
    return Row(model.evolve(status=status))


def owner_of(n: Numbers) -> str | None:
    """Return the tenant of a pack run; one in five has none."""
    return n.tenant if n.number % 5 else None


def pack_run(n: Numbers) -> Row:
    """One in five belongs to nobody."""
    return Row(make_pack_run(owner_of(n), f"pack-{n.name}", created_at=n.instant, updated_at=n.instant))


def log_entry(n: Numbers) -> Row:
    """Logs of forty entries, in the order of the runs that have some."""
    owner = Numbers(n.number // ENTRIES, n.count)
    model = PackRunLogEntry(
        run_id=f"pack-{owner.name}",
        sequence=n.number % ENTRIES + 1,
        timestamp=n.instant,
        level=LogLevel.INFO,
        event_type="step.progress",
        message="step done",
    )
    return Row(model)


def artifact(n: Numbers) -> Row:
    """A few for each run that has some."""
    owner = Numbers(n.number // BELOW, n.count)
    return Row(make_artifact(f"pack-{owner.name}", f"output-{n.number % BELOW}"))


def approval(n: Numbers) -> Row:
    """A few for each run that has some; most wait for nobody."""
    owner = Numbers(n.number // BELOW, n.count)
    model = make_approval(owner_of(owner), f"pack-{owner.name}", f"gate-{n.number % BELOW}")
    if n.pick(0, 10) == 0:
        return Row(model)
    status = PackApprovalStatus.APPROVED
    return Row(model.evolve(status=status, actor_id="ops", completed_at=model.requested_at))


MODULE_ROWS: Final[dict[str, Callable[[Numbers], Row]]] = {
    "sessions": session,
    "tasks": task,
    "machines": machine,
    "pack_runs": pack_run,
    "pack_run_logs": log_entry,
    "pack_artifacts": artifact,
    "pack_run_approvals": approval,
}
