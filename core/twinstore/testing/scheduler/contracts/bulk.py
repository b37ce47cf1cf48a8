"""What a scan tells of the rows of the scheduler."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from twinstore.bulk import KeyRange
from twinstore.scheduler.catalog import (
    AUDIT,
    IMPACT_SNAPSHOTS,
    RUNS,
)
from twinstore.testing.instants import at
from twinstore.testing.scheduler.cases import SchedulerCases

if TYPE_CHECKING:
    from twinstore.testing.scheduler.workspace import SchedulerWorkspace

EVERYTHING: Final = KeyRange()

__all__ = ["SchedulerBulkContract"]


class SchedulerBulkContract(SchedulerCases, capability="bulk"):
    """The instant by which each row expires, as a scan tells it."""

    def test_the_instant_of_retention_is_scanned(self, workspace: SchedulerWorkspace) -> None:
        self.populate(workspace)
        for entity, expected in ((RUNS, {None, at(5)}), (IMPACT_SNAPSHOTS, {at(0.123)}), (AUDIT, {None})):
            with workspace.storage.bulk.view() as view:
                batches = view.rows(entity, EVERYTHING, tenant_id=workspace.tenant)
                assert {row.expires for batch in batches for row in batch} == expected
