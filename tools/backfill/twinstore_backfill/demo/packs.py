"""Pack runs of the demo: written as files, as a task runner without a server keeps them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

from twinstore.taskrunner import (
    ALL_TENANTS,
    LogLevel,
    PackApprovalStatus,
    PackArtifactStatus,
    PackRunApproval,
    PackRunArtifact,
    PackRunLogDraft,
    PackRunQueryOptions,
    PackRunStateFactory,
    PackRunStepKind,
    PackRunStepPlan,
)

if TYPE_CHECKING:
    from twinstore.taskrunner.pack_runs import PackRunState
    from twinstore.taskrunner.storage import TaskRunnerStorage

PACK_RUNS: Final = 60
EPOCH: Final = datetime(2025, 9, 1, 6, tzinfo=UTC)
TENANTS: Final = (None, "aurora-labs", "Çelik-Werke")
PAGE: Final = 20
STEPS: Final = (
    PackRunStepPlan(step_id="fetch"),
    PackRunStepPlan(step_id="release", kind=PackRunStepKind.GATE_APPROVAL, approval_id="release"),
    PackRunStepPlan(step_id="scan[0]::image"),
)


def write_packs(storage: TaskRunnerStorage) -> None:
    """Write pack runs with logs, artifacts and approvals through the repositories."""
    for number in range(PACK_RUNS):
        run = storage.pack_runs.create(_pack_run(number))
        tenant = run.tenant_id
        for line in ("step.started", "step.progress"):
            draft = PackRunLogDraft(
                timestamp=run.created_at,
                level=LogLevel.INFO,
                event_type=line,
                message=f"Abbild {number} wird geprüft",
                step_id="fetch",
            )
            storage.pack_run_logs.append_next(run.run_id, draft, tenant_id=tenant)
        storage.pack_artifacts.upload(_artifact(run), tenant_id=tenant)
        storage.pack_run_approvals.save(run.run_id, [_approval(run)], tenant_id=tenant)
        if number % 2:
            storage.pack_run_approvals.decide(
                run.run_id,
                "release",
                PackApprovalStatus.APPROVED,
                run.created_at + timedelta(minutes=2),
                actor_id="ops",
                plan_hash=run.plan_hash,
                tenant_id=tenant,
            )


def read_packs(storage: TaskRunnerStorage) -> tuple[tuple[object, ...], str | None]:
    """Return the first page of all runs with the log of each, and the token of the next one."""
    page = storage.pack_runs.list(PackRunQueryOptions(limit=PAGE), tenant_id=ALL_TENANTS)
    logs = (storage.pack_run_logs.read(run.run_id, tenant_id=ALL_TENANTS) for run in page)
    return tuple(zip(page, logs, strict=True)), page.next_page_token


def _pack_run(number: int) -> PackRunState:
    return PackRunStateFactory.create_initial(
        # No file has such a name: the driver encodes it.
        run_id=f"pack/{number:03} größer" if number % 10 == 0 else f"pack-{number:03}",
        plan_hash=f"sha256:{number:064x}",
        plan={"apiVersion": "packs/v1", "inputs": {"image": f"app:{number}", "ratio": number / 8}},
        steps=STEPS,
        now=EPOCH + timedelta(minutes=number),
        tenant_id=TENANTS[number % len(TENANTS)],
    )


def _artifact(run: PackRunState) -> PackRunArtifact:
    return PackRunArtifact(
        run_id=run.run_id,
        name="report",
        type="file",
        source_path="out/report.json",
        stored_path=f"bundles/{run.plan_hash[-8:]}/report.json",
        status=PackArtifactStatus.COPIED,
        captured_at=run.created_at + timedelta(minutes=1),
    )


def _approval(run: PackRunState) -> PackRunApproval:
    return PackRunApproval(
        run_id=run.run_id,
        approval_id="release",
        required_grants=("packs.approve",),
        step_ids=("release",),
        messages=("Publish to production?",),
        requested_at=run.created_at,
        tenant_id=run.tenant_id,
    )
