"""Functions that make the rows of each entity of each module, and how many rows one parent has."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Final

from benchmarks.entities.scheduler_data import LINES, SCHEDULER_ROWS
from benchmarks.modules.data import APPROVED_EVERY, ENTRIES, machine, pack_history, work_history
from twinstore.catalog.row import Row
from twinstore.tracking import SessionStatus, TaskStatus

__all__ = ["BELOW", "ROWS", "MakeRow"]

FILES: Final = 8  # of a pack run
GATES: Final = 32  # of a pack run that has any
MakeRow = Callable[[int, datetime], Row]


def pack_run(number: int, first: datetime) -> Row:
    """Return a pack run."""
    return Row(pack_history(number, first).run)


def pack_run_log(number: int, first: datetime) -> Row:
    """Return a line of the log of a pack run."""
    entry = pack_history(number // LINES, first).entries[number % ENTRIES]
    return Row(entry.evolve(sequence=1 + number % LINES))


def pack_artifact(number: int, first: datetime) -> Row:
    """Return the artifact of a pack run."""
    artifact = pack_history(number // FILES, first).artifact
    return Row(artifact.evolve(name=f"report-{number % FILES}"))


def pack_run_approval(number: int, first: datetime) -> Row:
    """Return the approval that a pack run waits for."""
    approval = pack_history(number // GATES * APPROVED_EVERY, first).approvals[0]
    return Row(approval.evolve(approval_id=f"release-{number % GATES}"))


def session(number: int, first: datetime) -> Row:
    """Return a session; every fourth one has ended."""
    history = work_history(number, first)
    ended = history.session.evolve(
        status=SessionStatus.COMPLETED, completed_at=history.end, updated_at=history.end
    )
    return Row(ended if history.ended else history.session)


def task(number: int, first: datetime) -> Row:
    """Return a task; every fourth one has ended."""
    history = work_history(number, first)
    ended = history.task.evolve(
        status=TaskStatus.COMPLETED,
        started_at=history.task.created_at,
        completed_at=history.end,
        updated_at=history.end,
    )
    return Row(ended if history.ended else history.task)


def tracked_machine(number: int, first: datetime) -> Row:
    """Return a machine."""
    return Row(machine(number, first))


ROWS: Final[Mapping[str, Mapping[str, MakeRow]]] = {
    "scheduler": SCHEDULER_ROWS,
    "tracking": {"sessions": session, "tasks": task, "machines": tracked_machine},
    "taskrunner": {
        "pack_runs": pack_run,
        "pack_run_logs": pack_run_log,
        "pack_artifacts": pack_artifact,
        "pack_run_approvals": pack_run_approval,
    },
}
# Rows below one row of the parent; of no parent are there fewer rows than these need.
BELOW: Final[Mapping[str, float]] = {
    "execution_logs": LINES,
    "pack_run_logs": LINES,
    "pack_artifacts": FILES,
    "pack_run_approvals": GATES / APPROVED_EVERY,
}
