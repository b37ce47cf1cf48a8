"""Deterministic rows of the scheduler, with the values that a service in use has: no edges, nothing rare."""

from __future__ import annotations

from datetime import datetime, timedelta
from hashlib import sha256
from typing import TYPE_CHECKING, Final
from uuid import UUID

from benchmarks.data import SCHEDULES, TENANTS, document
from twinstore.catalog.row import Row
from twinstore.scheduler import (
    AuditRecord,
    ExecutionLogEntry,
    GraphBuildJob,
    GraphJobEvent,
    ImpactSet,
    PolicyRunJob,
    Run,
    RunSnapshot,
    RunSummary,
    Schedule,
    Trigger,
)
from twinstore.scheduler.selectors import selector_digest

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["SCHEDULER_ROWS"]

STEP: Final = timedelta(seconds=3)
LINES: Final = 20  # of the log of a run
RECENT: Final = 10  # runs of a summary
CRONS: Final = ("0 3 * * *", "*/15 * * * *", "30 6 * * 1")
ZONES: Final = ("UTC", "Europe/Vienna", "America/New_York")


def seed_of(kind: str, number: int) -> bytes:
    """Return bytes that differ by kind and number and are the same every time."""
    return sha256(f"{kind} {number}".encode()).digest()


def tenant_of(number: int) -> str:
    """Return the tenant of a number."""
    return f"tenant-{number % TENANTS}"


def run(number: int, first: datetime) -> Row:
    """Return a run."""
    stored = document(number, first + number * STEP)
    wire = {name: value for name, value in stored.items() if not name.startswith("_")}
    return Row(Run.model_validate({**wire, "id": stored["_id"]}))


def schedule(number: int, first: datetime) -> Row:
    """Return a schedule with limits, a selection and subscribers."""
    seed, tenant, created = seed_of("schedule", number), tenant_of(number), first + number * STEP
    return Row(
        Schedule.model_validate(
            {
                "id": f"schedule-{number:07}",
                "tenant_id": tenant,
                "name": f"Nightly scan {number}",
                "enabled": True,
                "when_cron": CRONS[number % len(CRONS)],
                "timezone": ZONES[number % len(ZONES)],
                "mode": "analysis-only",
                "selection": {
                    "scope": "by-namespace",
                    "tenant_id": tenant,
                    "namespaces": ["checkout", "payments"],
                    "repositories": [f"team/service-{seed[0] % 50}"],
                    "include_tags": ["prod", "v*"],
                    "resolves_tags": True,
                },
                "only_if": {"last_report_older_than_days": seed[1] % 30},
                "notify": {"on_new_findings": True, "min_severity": "high", "include_kev": True},
                "limits": {"max_jobs": 100 + seed[2], "rate_per_second": 20, "parallelism": 4},
                "subscribers": [f"team-{seed[3] % 20}@example"],
                "created_at": created,
                "created_by": "ada",
                "updated_at": created + timedelta(seconds=seed[4]),
                "updated_by": "grace",
            }
        )
    )


def trigger(number: int, first: datetime) -> Row:
    """Return the trigger of the schedule of the same number."""
    created = first + number * STEP
    return Row(
        Trigger.model_validate(
            {
                "tenant_id": tenant_of(number),
                "schedule_id": f"schedule-{number:07}",
                "when_cron": CRONS[number % len(CRONS)],
                "timezone": ZONES[number % len(ZONES)],
                "next_fire_at": created.replace(microsecond=0) + timedelta(days=1),
                "last_fire_at": created,
                "fire_count": 1 + number % 900,
                "created_at": created,
                "updated_at": created + timedelta(seconds=1),
            }
        )
    )


def execution_log(number: int, first: datetime) -> Row:
    """Return a line of the log of a run."""
    of = number // LINES
    seed, stored = seed_of("log", number), document(of, first + of * STEP)
    return Row(
        ExecutionLogEntry.model_validate(
            {
                "tenant_id": stored["tenantId"],
                "run_id": stored["_id"],
                "sequence": 1 + number % LINES,
                "logged_at": first + of * STEP + timedelta(milliseconds=250 * (number % LINES)),
                "level": ("info", "info", "debug", "warn")[seed[0] % 4],
                "logger": "scheduler.planner",
                "message": f"Bild {seed[1]} von {seed[2]} geprüft",
                "data": {"image": f"sha256:{seed.hex()}", "attempt": seed[3] % 4, "cached": seed[4] % 2 == 0},
            }
        )
    )


def impact_snapshot(number: int, first: datetime) -> Row:
    """Return a snapshot of two images."""
    seed, tenant = seed_of("snapshot", number), tenant_of(number)
    images = [
        {
            "image_digest": f"sha256:{seed_of('image', 2 * number + image).hex()}",
            "registry": "registry.example",
            "repository": f"team/service-{seed[image] % 50}",
            "namespaces": ["checkout"],
            "tags": ["prod", f"v{seed[2 + image]}"],
            "used_by_entrypoint": seed[4] % 2 == 0,
            "labels": {"team": "core", "zone": "eu-1"},
        }
        for image in range(2)
    ]
    model = ImpactSet.model_validate(
        {
            "selector": {"scope": "by-namespace", "tenant_id": tenant, "namespaces": ["checkout"]},
            "images": sorted(images, key=lambda image: str(image["image_digest"])),
            "usage_only": False,
            "generated_at": first + number * STEP,
            "total": 2,
            "snapshot_id": f"impact-{number:07}",
        }
    )
    markers = {
        "snapshotId": model.snapshot_id,
        "tenantId": tenant,
        "runId": f"run-{number // 4}",
        "selectorDigest": selector_digest(model.selector, tenant),
    }
    return Row(model, markers)


def audit(number: int, first: datetime) -> Row:
    """Return an audit record of a change to a schedule."""
    seed = seed_of("audit", number)
    return Row(
        AuditRecord.model_validate(
            {
                "id": f"audit-{number:07}",
                "tenant_id": tenant_of(number),
                "category": "schedule",
                "action": "schedule.updated",
                "occurred_at": first + number * STEP,
                "actor": {"actor_id": f"u-{seed[0]}", "display_name": "Ada Größer", "kind": "user"},
                "schedule_id": f"schedule-{number % SCHEDULES:07}",
                "correlation_id": seed[1:9].hex(),
                "metadata": {"attempt": "1", "zone": "eu-1"},
                "message": f"limits.maxJobs {seed[9]} to {seed[10]}",
            }
        )
    )


def run_summary(number: int, first: datetime) -> Row:
    """Return a summary of the last runs of a schedule."""
    begin, fates = first + number * STEP, ("completed", "completed", "error", "queued")
    window = []
    for index in range(RECENT):
        seed, state = seed_of("recent", number * RECENT + index), fates[index % len(fates)]
        created = begin + timedelta(minutes=index)
        ended = {"finished_at": created + timedelta(seconds=seed[0])} if state != "queued" else {}
        started = {"started_at": created + timedelta(milliseconds=seed[1])} if state == "completed" else {}
        window.append(
            RunSnapshot.model_validate(
                {
                    "run_id": f"run-{number}-{index}",
                    "trigger": "cron",
                    "state": state,
                    "created_at": created,
                    "stats": {"candidates": 40 + seed[2], "queued": 20, "completed": 20},
                    **started,
                    **ended,
                    **({"error": "registry answered 503"} if state == "error" else {}),
                }
            )
        )
    updated = begin + timedelta(hours=1)
    return Row(RunSummary.of(tenant_of(number), f"schedule-{number:07}", window, updated))


def build_job(number: int, first: datetime) -> GraphBuildJob:
    """Return a completed build job."""
    seed, created = seed_of("graph", number), first + number * STEP
    return GraphBuildJob.model_validate(
        {
            "id": f"gbj_{seed[:16].hex()}",
            "tenant_id": tenant_of(number),
            "sbom_id": f"sbom-{number}",
            "sbom_version_id": f"sbom-{number}@{seed[0]}",
            "sbom_digest": f"sha256:{seed.hex()}",
            "graph_snapshot_id": f"graph-{number}",
            "status": "completed",
            "trigger": "sbom-version",
            "attempts": 1,
            "cartographer_job_id": f"carto-{seed[1]}",
            "correlation_id": seed[2:10].hex(),
            "created_at": created,
            "started_at": created + timedelta(milliseconds=500),
            "completed_at": created + timedelta(seconds=2),
            "metadata": {"zone": "eu-1", "team": "core"},
        }
    )


def graph_job(number: int, first: datetime) -> Row:
    """Return a completed build job with the instant of its last change."""
    job = build_job(number, first)
    return Row(job, {"updatedAt": job.completed_at})


def graph_job_event(number: int, first: datetime) -> Row:
    """Return the event that reports the end of a build job."""
    job = build_job(number, first)
    event = GraphJobEvent.model_validate(
        {
            "event_id": str(UUID(bytes=seed_of("event", number)[:16])),
            "kind": "scheduler.graph.job.completed",
            "tenant": job.tenant_id,
            "ts": job.completed_at,
            "payload": {
                "job_type": "build",
                "job": job,
                "status": job.status,
                "occurred_at": job.completed_at,
                "result_uri": f"cas://graphs/{number}",
            },
            "attributes": {"source": "cartographer"},
        }
    )
    return Row(event, {"seq": number + 1})


def policy_job(number: int, first: datetime) -> Row:
    """Return a completed policy job."""
    seed, created = seed_of("policy", number), first + number * STEP
    ended = created + timedelta(seconds=3)
    return Row(
        PolicyRunJob.model_validate(
            {
                "id": f"policy-run-{number:07}",
                "tenant_id": tenant_of(number),
                "policy_id": f"policy-{seed[0] % 40}",
                "policy_version": 1 + seed[1],
                "mode": "full",
                "priority": "normal",
                "run_id": f"policy-run-{number:07}",
                "requested_by": "ada",
                "correlation_id": seed[2:10].hex(),
                "metadata": {"team": "core"},
                "inputs": {
                    "sbom_set": [f"sbom:{seed[10]:03}", f"sbom:{seed[10]:03}-b"],
                    "environment": {"exposure": "internet", "zone": "eu-1"},
                },
                "queued_at": created,
                "status": "completed",
                "attempt_count": 1,
                "last_attempt_at": created + timedelta(seconds=1),
                "created_at": created,
                "updated_at": ended,
                "available_at": created,
                "submitted_at": created + timedelta(seconds=2),
                "completed_at": ended,
                "stats": {
                    "components": 100 + seed[11],
                    "rules_fired": seed[12],
                    "findings_written": seed[13],
                },
            }
        )
    )


SCHEDULER_ROWS: Final[Mapping[str, Callable[[int, datetime], Row]]] = {
    "schedules": schedule,
    "triggers": trigger,
    "runs": run,
    "execution_logs": execution_log,
    "impact_snapshots": impact_snapshot,
    "audit": audit,
    "run_summaries": run_summary,
    "graph_jobs": graph_job,
    "graph_job_events": graph_job_event,
    "policy_jobs": policy_job,
}
