"""Deterministic pack runs, sessions and tasks as hosts write them: the same number gives the same rows."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import TYPE_CHECKING, Final

from twinstore.taskrunner import (
    LogLevel,
    PackArtifactStatus,
    PackRunApproval,
    PackRunArtifact,
    PackRunFailurePolicy,
    PackRunLogEntry,
    PackRunState,
    PackRunStep,
    PackRunStepKind,
    PackRunStepStatus,
)
from twinstore.tracking import TrackingMachine, TrackingSession, TrackingTask

if TYPE_CHECKING:
    from collections.abc import Iterator

    from twinstore.models.json_text import JsonObject

__all__ = ["MACHINES", "PackHistory", "WorkHistory", "machines", "pack_history", "start", "work_history"]

TENANTS: Final = (None, "aurora-labs", "borealis", "Çelik-Werke")
STEPS: Final = ("fetch", "scan", "approve", "publish")
LEVELS: Final = tuple(LogLevel)
ENTRIES: Final = 3  # of the log of a run
APPROVED_EVERY: Final = 4  # so many runs have one with an approval
MACHINES: Final = 1_000
SLOTS: Final = 8
FINISHED_EVERY: Final = 4  # one of so many sessions has ended
STEP: Final = timedelta(seconds=7)


@dataclass(frozen=True, slots=True, kw_only=True)
class PackHistory:
    """A pack run with everything below it."""

    run: PackRunState
    entries: tuple[PackRunLogEntry, ...]
    artifact: PackRunArtifact
    approvals: tuple[PackRunApproval, ...]
    decided: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkHistory:
    """A session with its task, and whether both have ended."""

    session: TrackingSession
    task: TrackingTask
    ended: bool
    end: datetime


def start() -> datetime:
    """Return a midnight, so recent that retention removes nothing while it is measured."""
    return datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0) - timedelta(days=12)


def pack_history(number: int, first: datetime) -> PackHistory:
    """Return one pack run."""
    seed = sha256(f"pack {number}".encode()).digest()
    created = first + number * STEP
    tenant = TENANTS[seed[0] % len(TENANTS)]
    run_id = f"pack-{number:07}"
    run = PackRunState(
        run_id=run_id,
        plan_hash=f"sha256:{seed.hex()}",
        plan=plan_of(seed),
        failure_policy=PackRunFailurePolicy(max_attempts=1 + seed[1] % 3, backoff_seconds=30),
        requested_at=created - timedelta(milliseconds=seed[2]),
        created_at=created,
        updated_at=created,
        steps=tuple(steps_of(number)),
        tenant_id=tenant,
    )
    approved = number % APPROVED_EVERY == 0
    approval = PackRunApproval(
        run_id=run_id,
        approval_id="release",
        required_grants=("packs.approve",),
        step_ids=("approve",),
        messages=("Publish to production?",),
        requested_at=created,
        tenant_id=tenant,
    )
    return PackHistory(
        run=run,
        entries=tuple(entries_of(run_id, seed, created)),
        artifact=PackRunArtifact(
            run_id=run_id,
            name="report",
            type="file",
            source_path="out/report.json",
            stored_path=f"bundles/{run_id}/report.json",
            status=PackArtifactStatus.COPIED,
            captured_at=created + timedelta(seconds=5),
        ),
        approvals=(approval,) if approved else (),
        decided=approved and seed[3] % 2 == 0,
    )


def plan_of(seed: bytes) -> JsonObject:
    """Return a plan of about 600 bytes."""
    return {
        "apiVersion": "packs/v1",
        "inputs": {
            "image": f"registry.example/app@sha256:{seed.hex()}",
            "depth": seed[4],
            "ratio": seed[5] / 8,
        },
        "steps": [
            {"id": name, "uses": f"builtin/{name}@1", "with": {"retries": seed[6] % 4}} for name in STEPS
        ],
        "outputs": [{"name": "report", "path": "out/report.json"}],
        "labels": {"team": "größer", "wave": str(seed[7] % 9)},
    }


def steps_of(number: int) -> Iterator[PackRunStep]:
    """Yield the steps of a run; some have a gate."""
    for name in STEPS:
        gate = name == "approve" and number % APPROVED_EVERY == 0
        yield PackRunStep(
            step_id=name,
            kind=PackRunStepKind.GATE_APPROVAL if gate else PackRunStepKind.RUN,
            approval_id="release" if gate else None,
            status=PackRunStepStatus.PENDING,
            status_reason="requires-approval" if gate else None,
        )


def entries_of(run_id: str, seed: bytes, created: datetime) -> Iterator[PackRunLogEntry]:
    """Yield the log of a run."""
    for sequence in range(1, ENTRIES + 1):
        yield PackRunLogEntry(
            run_id=run_id,
            sequence=sequence,
            timestamp=created + timedelta(seconds=sequence),
            level=LEVELS[seed[8 + sequence] % len(LEVELS)],
            event_type="step.started" if sequence == 1 else "step.progress",
            message=f"Schritt {STEPS[sequence % len(STEPS)]} läuft, {seed[sequence]} of 255",
            step_id=STEPS[sequence % len(STEPS)],
            metadata={"attempt": "1", "worker": f"worker-{seed[12] % 20}"},
        )


def machine(number: int, first: datetime) -> TrackingMachine:
    """Return one machine."""
    return TrackingMachine.new(
        machine_id=f"machine-{number:04}",
        hostname=f"host-{number:04}.example",
        docker_slots=range(SLOTS),
        now=first,
        metadata={"rack": number // 40, "zone": "zürich-1"},
    )


def machines(first: datetime) -> Iterator[TrackingMachine]:
    """Yield the machines that sessions run on."""
    return (machine(number, first) for number in range(MACHINES))


def work_history(number: int, first: datetime) -> WorkHistory:
    """Return one session with its task."""
    seed = sha256(f"work {number}".encode()).digest()
    began = first + number * STEP
    session_id = f"session-{number:07}"
    project = f"project-{seed[0] % 50:02}"
    session = TrackingSession.new(
        session_id=session_id,
        project_id=project,
        machine_id=f"machine-{number % MACHINES:04}",
        now=began,
        metadata={"agent": {"name": "größer", "version": [1, seed[1], 0.5]}, "branch": f"topic/{seed[2]}"},
    )
    task = TrackingTask.new(
        task_id=f"task-{number:07}",
        session_id=session_id,
        project_id=project,
        task_name=f"Investigate finding {seed[3]}",
        github_issue_id=str(number) if seed[4] % 2 else None,
        now=began,
    )
    ended = number % FINISHED_EVERY == 0
    return WorkHistory(session=session, task=task, ended=ended, end=began + timedelta(minutes=5))
