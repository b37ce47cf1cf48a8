"""What every store of the records of outputs must do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

from twinstore.errors import InvalidTransitionError, NotFoundError, TwinstoreError, ValidationError
from twinstore.taskrunner.catalog import PACK_ARTIFACTS
from twinstore.taskrunner.enums import PackArtifactStatus
from twinstore.testing.instants import at
from twinstore.testing.scalars import EDGE_TEXTS
from twinstore.testing.taskrunner.builders import make_artifact
from twinstore.testing.taskrunner.cases import TaskRunnerCases
from twinstore.testing.workspace import outcomes

if TYPE_CHECKING:
    from twinstore.taskrunner.storage import TaskRunnerStorage
    from twinstore.testing.taskrunner.cases import TaskRunnerWorkspace

__all__ = ["PackArtifactContract"]

# What each status needs.
WHOLE: Final = {
    PackArtifactStatus.COPIED: {"stored_path": "s3://x"},
    PackArtifactStatus.MATERIALIZED: {"type": "object"},
    PackArtifactStatus.SKIPPED: {"notes": "empty"},
}
LACKING: Final = {
    "copied": {"notes": "x"},
    "skipped": {"stored_path": "x"},
    "materialized": {"type": "file", "stored_path": "x", "notes": "x"},
}


class PackArtifactContract(TaskRunnerCases):
    """A run has one record for each name, which is final after its first move."""

    @pytest.mark.parametrize("status", WHOLE)
    def test_a_pending_record_moves_once(
        self, workspace: TaskRunnerWorkspace, status: PackArtifactStatus
    ) -> None:
        run, store = workspace.created(), workspace.storage.pack_artifacts
        pending = make_artifact(run.run_id, "report")
        assert store.upload(pending, tenant_id=workspace.tenant) == pending
        noted = pending.evolve(notes="soon")
        assert store.upload(noted, tenant_id=workspace.tenant) == noted
        moved = pending.evolve(status=status, captured_at=at(1), **WHOLE[status])
        assert store.upload(moved, tenant_id=workspace.tenant) == moved
        stamp = workspace.stamp(PACK_ARTIFACTS, (run.run_id, "report"))
        assert store.upload(moved, tenant_id=workspace.tenant) == moved
        assert workspace.stamp(PACK_ARTIFACTS, (run.run_id, "report")) == stamp
        for other in (pending, moved.evolve(captured_at=at(2))):
            with pytest.raises(InvalidTransitionError):
                store.upload(other, tenant_id=workspace.tenant)
        assert store.list(run.run_id, tenant_id=workspace.tenant) == (moved,)

    @pytest.mark.parametrize("status", LACKING)
    def test_a_record_has_what_its_status_needs(self, workspace: TaskRunnerWorkspace, status: str) -> None:
        run, store = workspace.created(), workspace.storage.pack_artifacts
        with pytest.raises(ValidationError):
            store.upload(
                make_artifact(run.run_id, "report", status=status, **LACKING[status]),
                tenant_id=workspace.tenant,
            )
        assert store.list(run.run_id, tenant_id=workspace.tenant) == ()

    def test_records_are_listed_by_name_each_run_for_itself(self, workspace: TaskRunnerWorkspace) -> None:
        one, other, store = workspace.created("a"), workspace.created("b"), workspace.storage.pack_artifacts
        for run in (one, other):
            for name in reversed(EDGE_TEXTS):
                store.upload(make_artifact(run.run_id, name), tenant_id=workspace.tenant)
        found = store.list(one.run_id, tenant_id=workspace.tenant)
        assert [(item.run_id, item.name) for item in found] == [
            (one.run_id, name) for name in sorted(EDGE_TEXTS)
        ]

    def test_a_record_needs_its_run(self, workspace: TaskRunnerWorkspace) -> None:
        store = workspace.storage.pack_artifacts
        with pytest.raises(NotFoundError):
            store.upload(make_artifact(workspace.id("missing"), "report"), tenant_id=workspace.tenant)
        assert store.list(workspace.id("missing"), tenant_id=workspace.tenant) == ()

    def test_of_uploads_at_once_one_is_stored(self, workspace: TaskRunnerWorkspace) -> None:
        run = workspace.created()

        def upload(storage: TaskRunnerStorage, number: int) -> object:
            record = make_artifact(run.run_id, "report", status="copied", stored_path=f"s3://{number}")
            return storage.pack_artifacts.upload(record, tenant_id=workspace.tenant)

        results = workspace.race(upload, range(8))
        assert outcomes(results) == {"InvalidTransitionError": 7, "ok": 1}
        (winner,) = [result for result in results if not isinstance(result, TwinstoreError)]
        assert workspace.storage.pack_artifacts.list(run.run_id, tenant_id=workspace.tenant) == (winner,)
