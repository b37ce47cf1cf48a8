"""Builders of valid models with deterministic content; every omitted argument has a fixed value."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from twinstore.taskrunner.enums import PackRunStepKind, PackRunStepStatus
from twinstore.taskrunner.pack_artifacts import PackRunArtifact
from twinstore.taskrunner.pack_run_approvals import PackRunApproval
from twinstore.taskrunner.pack_run_logs import PackRunLogDraft, PackRunLogEntry
from twinstore.taskrunner.pack_runs import PackRunState, PackRunStep
from twinstore.testing.instants import START, at

if TYPE_CHECKING:
    from twinstore.models.json_text import JsonObject

__all__ = [
    "PLAN",
    "make_approval",
    "make_artifact",
    "make_draft",
    "make_log_entry",
    "make_pack_run",
    "make_step",
    "rich_approval",
    "rich_artifact",
    "rich_log_entry",
    "rich_pack_run",
]

# Names and values that a store could lose, reorder or take for an internal one.
PLAN: Final[JsonObject] = {
    "z": [1.0, 0.1, -1e-7, True, None, {"b.c": [], "$a": {}}],
    "\N{BUG}": {"": 2**63 - 1, "_id": "no id", "__v": 3},
    "A": "\t",
    "when": "2025-10-26T14:05:00+00:00",
    "metadata": {"name": "scan", "inputs": {"$ref": "x", "$db": 1}},
}


def make_step(step_id: str, **changes: object) -> PackRunStep:
    """Return a step that waits to be started."""
    return PackRunStep.model_validate({"step_id": step_id, "status": PackRunStepStatus.PENDING, **changes})


def make_pack_run(tenant_id: str | None, run_id: str, **changes: object) -> PackRunState:
    """Return a run of one step."""
    defaults = {
        "run_id": run_id,
        "plan_hash": "hash",
        "plan": {"name": "scan"},
        "requested_at": START,
        "created_at": START,
        "updated_at": START,
        "steps": (make_step("a"),),
        "tenant_id": tenant_id,
    }
    return PackRunState.model_validate({**defaults, **changes})


def rich_pack_run(tenant_id: str | None, run_id: str) -> PackRunState:
    """Return a run with a value in every field."""
    gate = make_step(
        "gate",
        kind=PackRunStepKind.GATE_APPROVAL,
        approval_id="release",
        gate_message="May it go out?",
        status_reason="requires-approval",
    )
    scan = make_step(
        "scan[0]::\N{BUG}",
        kind=PackRunStepKind.MAP,
        enabled=True,
        continue_on_error=True,
        max_parallel=4,
        status=PackRunStepStatus.PENDING,
        attempts=2,
        last_transition_at=at(1.001),
        next_attempt_at=at(31.001),
        status_reason="exit code 3",
    )
    return make_pack_run(
        tenant_id,
        run_id,
        plan_hash=" sha256:0 ",
        plan=PLAN,
        failure_policy={"max_attempts": 3, "backoff_seconds": 30, "continue_on_error": True},
        requested_at=at(5.5),
        updated_at=at(2.007),
        steps=(scan, gate),
    )


def make_log_entry(run_id: str, sequence: int = 1, **changes: object) -> PackRunLogEntry:
    """Return an entry of the log of a run."""
    values = {"timestamp": at(), "level": "info", "event_type": "step.started", "message": "started"}
    return PackRunLogEntry.model_validate({"run_id": run_id, "sequence": sequence, **values, **changes})


def make_draft(**changes: object) -> PackRunLogDraft:
    """Return what a log entry says before it has a number."""
    values = {"timestamp": at(), "level": "info", "event_type": "step.started", "message": "started"}
    return PackRunLogDraft.model_validate({**values, **changes})


def rich_log_entry(run_id: str, sequence: int = 1) -> PackRunLogEntry:
    """Return an entry with a value in every field."""
    return make_log_entry(
        run_id,
        sequence,
        timestamp=at(0.001),
        level="error",
        event_type=" step.failed ",
        message=" line one\nline two \N{COLLISION SYMBOL} ",
        step_id="scan[0]::image",
        metadata={"$ref": "x", "B": " 1 ", "a.b": "", "\N{BUG}": "2"},
    )


def make_artifact(run_id: str, name: str, **changes: object) -> PackRunArtifact:
    """Return the record of an output that is still to be copied."""
    values = {"type": "file", "status": "pending", "captured_at": at()}
    return PackRunArtifact.model_validate({"run_id": run_id, "name": name, **values, **changes})


def rich_artifact(run_id: str, name: str) -> PackRunArtifact:
    """Return a record with a value in every field."""
    paths = {"source_path": " /tmp/out ", "stored_path": "s3://evidence/\N{BUG}", "notes": "as planned"}
    return make_artifact(run_id, name, type="object", status="materialized", captured_at=at(3.003), **paths)


def make_approval(
    tenant_id: str | None, run_id: str, approval_id: str = "release", **changes: object
) -> PackRunApproval:
    """Return an approval that waits for a decision."""
    values = {"run_id": run_id, "approval_id": approval_id, "requested_at": at(), "tenant_id": tenant_id}
    return PackRunApproval.model_validate({**values, **changes})


def rich_approval(tenant_id: str | None, run_id: str, approval_id: str = "release") -> PackRunApproval:
    """Return an approval with a value in every field."""
    return make_approval(
        tenant_id,
        run_id,
        approval_id,
        required_grants=("packs.approve", "Zebra"),
        step_ids=("gate", "scan[0]::image"),
        messages=("second", "first", "\N{BUG}"),
        reason_template="because {reason}",
        status="approved",
        actor_id="ada",
        completed_at=at(4.004),
        summary="fine",
    )
