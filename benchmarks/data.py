"""Deterministic runs of about 700 bytes: the same number and day give the same document."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Document", "document", "documents", "recent_start"]

Document = dict[str, object]

TENANTS: Final = 8
SCHEDULES: Final = 25
FATES: Final = ("completed", "completed", "completed", "completed", "error", "cancelled", "running", "queued")
TRIGGERS: Final = ("cron", "cron", "cron", "manual", "concelier", "excititor", "policy", "content-refresh")
SEVERITIES: Final = ("critical", "high", "medium", "low")
DAYS: Final = 30


def recent_start(now: datetime | None = None) -> datetime:
    """Return a midnight, so recent that no finished run is due for removal while it is measured."""
    today = (now or datetime.now(UTC)).replace(hour=0, minute=0, second=0, microsecond=0)
    return today - timedelta(days=DAYS + 2)


def documents(count: int, start: datetime) -> Iterator[Document]:
    """Return the runs in the order of their creation, in which tenants and schedules alternate."""
    step = timedelta(days=DAYS) / max(count, 1)
    return (document(number, start + number * step) for number in range(count))


def document(number: int, instant: datetime) -> Document:
    """Return one run as the repositories store it in MongoDB."""
    seed = sha256(str(number).encode()).digest()
    created = _milliseconds(instant)
    tenant, schedule = number % TENANTS, number // TENANTS % SCHEDULES
    state = FATES[seed[0] % len(FATES)]
    return {
        "_id": f"run:tenant-{tenant}:schedule-{schedule:03}:{created:%Y%m%dT%H%M%SZ}:{number:07}",
        "schemaVersion": "scheduler.run@1",
        "tenantId": f"tenant-{tenant}",
        "scheduleId": f"schedule-{schedule:03}",
        "trigger": TRIGGERS[seed[1] % len(TRIGGERS)],
        "state": state,
        "stats": _stats(seed, done=state == "completed"),
        "reason": _reason(seed, created),
        "createdAt": created,
        **_course(state, seed, created),
        "_version": 1,
    }


def _milliseconds(instant: datetime) -> datetime:
    return instant.replace(microsecond=instant.microsecond // 1000 * 1000)


def _stats(seed: bytes, *, done: bool) -> Document:
    candidates = 40 + seed[2]
    return {
        "candidates": candidates,
        "deduped": seed[3] % 40,
        "queued": candidates // 2,
        "completed": candidates // 2 if done else 0,
        "deltas": 1 if done else 0,
        "newCriticals": 0,
        "newHigh": seed[4] % 4 if done else 0,
        "newMedium": 0,
        "newLow": 0,
    }


def _reason(seed: bytes, created: datetime) -> Document:
    return {
        "cursor": f"cursor:{seed[5:13].hex()}",
        "impactWindowFrom": created - timedelta(hours=1),
        "impactWindowTo": created,
    }


def _course(state: str, seed: bytes, created: datetime) -> Document:
    """Return what depends on how far the run has come, in canonical order."""
    if state == "queued":
        return {}
    started = created + timedelta(milliseconds=100 + seed[6])
    if state == "running":
        return {"startedAt": started}
    finished = started + timedelta(seconds=seed[7], milliseconds=seed[8])
    ended: Document = {"startedAt": started, "finishedAt": finished}
    if state == "error":
        return {**ended, "error": f"registry answered 503 später, attempt {seed[9]}"}
    return {**ended, "deltas": [_delta(seed, finished)]} if state == "completed" else ended


def _delta(seed: bytes, finished: datetime) -> Document:
    high = seed[4] % 4
    finding = {
        "purl": f"pkg:pypi/example-{seed[10] % 50}@{seed[11] % 9}.{seed[12] % 20}.0",
        "vulnerabilityId": f"CVE-2026-{seed[13] * 37:04}",
        "severity": SEVERITIES[seed[14] % len(SEVERITIES)],
    }
    return {
        "imageDigest": f"sha256:{seed.hex()}",
        "newFindings": high + seed[15] % 5,
        "newCriticals": 0,
        "newHigh": high,
        "newMedium": 0,
        "newLow": 0,
        "kevHits": ["CVE-2026-0001"] if high else [],
        "topFindings": [finding],
        "reportUrl": f"https://reports.example/{seed[16:24].hex()}",
        "detectedAt": finished,
    }
