"""The workspace of a test about the scheduler: it builds models for its tenant."""

from __future__ import annotations

from typing import TYPE_CHECKING

from twinstore.clock import FixedClock
from twinstore.scheduler.storage import SchedulerStorage
from twinstore.testing.scheduler import builders
from twinstore.testing.workspace import Workspace

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from twinstore.scheduler.audit import AuditRecord
    from twinstore.scheduler.impact_snapshots import ImpactSet
    from twinstore.scheduler.run_summaries import RunSummary
    from twinstore.scheduler.runs import Run
    from twinstore.scheduler.schedules import Schedule
    from twinstore.scheduler.storage import SchedulerSession

__all__ = ["SchedulerWorkspace"]


class SchedulerWorkspace(Workspace[SchedulerStorage]):
    """What a contract test of the scheduler works with."""

    __slots__ = ()

    def opened_at(self, now: datetime) -> SchedulerStorage:
        """Open another storage on the same data, whose clock is stopped; the caller closes it."""
        storage = self.deployment.open(clock=FixedClock(now))
        assert isinstance(storage, SchedulerStorage)
        return storage

    def schedule(self, name: str = "a", /, **changes: object) -> Schedule:
        """Build a schedule of the tenant."""
        return builders.make_schedule(self.tenant, self.id(name), **{"name": name, **changes})

    def run(self, name: str = "a", /, **changes: object) -> Run:
        """Build a run of the tenant."""
        return builders.make_run(self.tenant, self.id(name), **changes)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]  # the model checks the values

    def snapshot(self, name: str = "a", /, **changes: object) -> ImpactSet:
        """Build an impact snapshot with an own id."""
        return builders.make_impact_set(**{"snapshot_id": self.id(name), **changes})

    def record(self, name: str = "a", /, **changes: object) -> AuditRecord:
        """Build an audit record of the tenant."""
        return builders.make_audit_record(self.tenant, self.id(name), **changes)

    def summary(self, name: str = "a", /, *runs: Run) -> RunSummary:
        """Build the summary of a schedule of the tenant."""
        return builders.make_run_summary(self.tenant, self.id(name), runs)

    def commit(self, *steps: Callable[[SchedulerSession], object]) -> None:
        """Run some steps in one unit of work."""
        with self.storage.transaction(self.tenant) as unit:
            for step in steps:
                step(unit)
