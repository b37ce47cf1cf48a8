"""The MongoDB of a scheduler that ran for seven years under two other programs, which read no model of ours.

Three of its collections exist: runs, audit and schedules; there is no trigger, and no index besides that of
``_id``. Each wart takes a share of the documents, and no document has two.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from zoneinfo import ZoneInfo

from bson import Int64, ObjectId

from twinstore.catalog.entity import Entity
from twinstore.models.canonical import CanonicalModel
from twinstore.scheduler.catalog import AUDIT, RUNS, SCHEDULES

Document = dict[str, Any]
ABSENT: Final = object()
WHOLE: Final = 200_000
SHARES: Final[Mapping[Entity, int]] = {SCHEDULES: 2_000, RUNS: 150_000, AUDIT: 48_000}
TENANTS: Final = 40
# Of those from a time before there were tenants.
FIRST_TENANT: Final = "tenant-00"
# After six in the morning, when no clock of Zurich is changed; days and minutes, as their forms have them.
START: Final = datetime(2019, 1, 7, 6, tzinfo=UTC)
DAYS: Final = 2557
ZURICH: Final = ZoneInfo("Europe/Zurich")
# Prime, and a divisor of no number of documents here: neighbours get different warts.
STRIDE: Final = 7919
STATES: Final = ("completed", "completed", "error", "cancelled", "running", "queued", "planning")
WORDS: Final = {
    "completed": "done",
    "error": "failed",
    "cancelled": "CANCELLED",
    "running": "active",
    "queued": "waiting",
    "planning": "new",
}
QUARTZ: Final = {"0 3 * * *": "0 0 3 * * ?", "30 6 * * 1": "0 30 6 ? * MON", "*/10 * * * *": "0 0/10 * * * ?"}
CRONS: Final = tuple(QUARTZ)
ZONES: Final = ("Europe/Zuerich", "MEZ")
NOTIFY: Final = {"onNewFindings": True, "includeKev": True, "includeQuietFindings": False}


@dataclass(frozen=True, slots=True)
class Wart:
    """What is wrong with some documents of a collection.

    Attributes:
        entity: of which documents.
        times: how many of the whole database have it.
        changes: the properties that differ from the good document of a number; :data:`ABSENT` removes one.
        meant: those of the row that an administrator means by such a document, where they differ as well.
        cause: why no rule makes a row of it; empty where one does.
    """

    entity: Entity
    times: int
    changes: Callable[[Document, int], Document]
    meant: Document = field(default_factory=dict[str, Any])
    cause: str = ""


@dataclass(frozen=True, slots=True)
class Stored:
    """A document, the row that it should become, and what is wrong with it."""

    entity: Entity
    document: Document
    meant: Document
    wart: Wart | None

    @property
    def place(self) -> tuple[str, str]:
        """The entity and the key of the row."""
        return self.entity.name, self.meant["_id"]

    @property
    def row(self) -> CanonicalModel:
        """The row, by the model and no rule."""
        given = {name: value for name, value in self.meant.items() if name != "_id" and value is not None}
        return self.entity.model.model_validate({"id": self.meant["_id"], **given})


def documents(total: int = WHOLE) -> Iterator[Stored]:
    """Yield so many documents of the same proportions, each wart at least once, by entity and key."""
    tenants = max(2, TENANTS * total // WHOLE)
    for entity, share in SHARES.items():
        count = share * total // WHOLE
        slots = [wart for wart in WARTS if wart.entity is entity for _ in range(planted(wart, total))]
        warts = [
            slots[place] if place < len(slots) else None
            for place in (number * STRIDE % count for number in range(count))
        ]
        for number, wart in enumerate(warts):
            other = namesake(warts, number, tenants) if wart is SAME_NAME else number
            yield stored(entity, f"tenant-{number % tenants:02}", number, wart, other)


def planted(wart: Wart, total: int) -> int:
    """Return how many documents have a wart."""
    return max(1, wart.times * total // WHOLE)


def namesake(warts: list[Wart | None], number: int, tenants: int) -> int:
    """Return the next document of the same tenant that has no wart."""
    others = range(number + tenants, number + len(warts) * tenants, tenants)
    usual = len(warts) - len(warts) % tenants
    return next(other % usual for other in others if warts[other % usual] is None)


def stored(entity: Entity, tenant: str, number: int, wart: Wart | None, other: int) -> Stored:
    meant = MAKERS[entity](number, tenant)
    if wart is None:
        return Stored(entity, as_stored(entity, meant), meant, None)
    changed = as_stored(entity, meant | wart.meant) | wart.changes(meant, other)
    document = {name: part for name, part in changed.items() if part is not ABSENT}
    # One of two rows of a name is copied, with that name.
    kept = {"name": changed["name"]} if wart is SAME_NAME else wart.meant
    return Stored(entity, document, meant | kept, wart)


def as_stored(entity: Entity, meant: Document) -> Document:
    """Return a good document as both programs have left it, with the names of their mappers."""
    if entity is AUDIT:
        return {**meant, "id": meant["_id"], "_class": "ch.acme.scheduler.Audit"}
    return {**meant, "__v": 0}


def moment(number: int) -> datetime:
    return START + timedelta(days=number % DAYS, hours=number % 16, minutes=number % 60)


def a_schedule(number: int, tenant: str) -> Document:
    return {
        "_id": f"schedule-{number:06}",
        "schemaVersion": "scheduler.schedule@1",
        "tenantId": tenant,
        "name": f"Schedule {number}",
        "enabled": True,
        "whenCron": CRONS[number % len(CRONS)],
        "timezone": "Europe/Zurich",
        "mode": "analysis-only",
        "selection": {
            "scope": "all-images",
            **{name: [] for name in ("namespaces", "repositories", "digests", "includeTags", "labels")},
            "resolvesTags": False,
        },
        "onlyIf": {},
        "notify": NOTIFY,
        "limits": {},
        "subscribers": [],
        "createdAt": moment(number),
        "createdBy": "ada",
        "updatedAt": moment(number),
        "updatedBy": "ada",
    }


def a_run(number: int, tenant: str) -> Document:
    state = STATES[number % len(STATES)]
    created = moment(number)
    started, finished = state in {"completed", "running"}, state in {"completed", "error", "cancelled"}
    jobs = number % 50
    found: Document = {
        "_id": f"run-{number:07}",
        "schemaVersion": "scheduler.run@1",
        "tenantId": tenant,
        "scheduleId": f"schedule-{number % 500:06}",
        "trigger": ("cron", "manual")[number % 2],
        "state": state,
        # One of the programs has doubles for all numbers.
        "stats": {"candidates": float(jobs + 7) if number % 3 == 0 else jobs + 7, "deduped": jobs}
        | {"queued": 5, "completed": 5, "deltas": 0}
        | dict.fromkeys(("newCriticals", "newHigh", "newMedium"), number % 4)
        # Never more in seven years, so that a run without it means the same.
        | {"newLow": 0},
        "createdAt": created,
        # One of the programs writes null for what does not exist.
        "error": "exit code 3" if state == "error" else None,
    }
    found |= {"startedAt": created + timedelta(seconds=10)} if started else {}
    return found | ({"finishedAt": created + timedelta(seconds=60)} if finished else {})


def an_audit_record(number: int, tenant: str) -> Document:
    return {
        "_id": f"audit-{number:06}",
        "tenantId": tenant,
        "category": "schedule",
        "action": ("schedule.created", "schedule.changed")[number % 2],
        "occurredAt": moment(number),
        "actor": {"actorId": f"u-{number % 9}", "displayName": "Élodie", "kind": "user"},
        "metadata": {"ip": "10.0.0.1"},
    }


def other_words(meant: Document, number: int) -> Document:  # noqa: ARG001  # as all of these
    return {"state": WORDS[meant["state"]]}


def unknown_property(meant: Document, number: int) -> Document:  # noqa: ARG001
    return {"priority": number % 3}


def other_instant(meant: Document, number: int) -> Document:
    created = meant["createdAt"]
    milliseconds = Int64(created.timestamp() * 1000)
    local = created.astimezone(ZURICH)
    return {"createdAt": (f"{local:%d.%m.%Y %H:%M}", milliseconds, str(milliseconds))[number % 3]}


def iso_texts(meant: Document, number: int) -> Document:
    zone = (UTC, ZURICH)[number % 2]
    spelled = ("seconds", "milliseconds")[number // 2 % 2]
    found = {name: meant[name] for name in ("createdAt", "startedAt", "finishedAt") if name in meant}
    texts = {name: instant.astimezone(zone).isoformat("T", spelled) for name, instant in found.items()}
    return {name: text.replace("+00:00", "Z") for name, text in texts.items()}


def without_counter(meant: Document, number: int) -> Document:  # noqa: ARG001
    return {"stats": {name: count for name, count in meant["stats"].items() if name != "newLow"}}


def text_for_number(meant: Document, number: int) -> Document:  # noqa: ARG001
    return {"stats": {**meant["stats"], "candidates": str(int(meant["stats"]["candidates"]))}}


def finished_first(meant: Document, number: int) -> Document:  # noqa: ARG001
    ended = {"state": "completed", "startedAt": meant["createdAt"] + timedelta(hours=1), "error": None}
    return {**ended, "finishedAt": meant["createdAt"] + timedelta(minutes=1)}


def no_tenant(meant: Document, number: int) -> Document:  # noqa: ARG001
    return {"tenantId": ABSENT}


def quartz(meant: Document, number: int) -> Document:  # noqa: ARG001
    return {"whenCron": QUARTZ[meant["whenCron"]]}


def no_zone(meant: Document, number: int) -> Document:  # noqa: ARG001
    return {"timezone": ZONES[number % 2]}


def same_name(meant: Document, number: int) -> Document:  # noqa: ARG001
    return {"name": f"Schedule {number}"}


def blank_notify(meant: Document, number: int) -> Document:  # noqa: ARG001
    return {"notify": (ABSENT, None, {})[number % 3]}


def id_beside(meant: Document, number: int) -> Document:  # noqa: ARG001
    return {"_id": ObjectId(f"{0x5C330000 + number:08x}{number:016x}")}


SAME_NAME: Final = Wart(SCHEDULES, 18, same_name, cause="unique:tenant_name")
WARTS: Final = (
    Wart(RUNS, 1_650, other_words),
    Wart(RUNS, 600, unknown_property),
    Wart(RUNS, 600, other_instant),
    Wart(RUNS, 80, finished_first, cause="model"),
    Wart(RUNS, 20, text_for_number),
    Wart(RUNS, 18, no_tenant, meant={"tenantId": FIRST_TENANT}),
    Wart(RUNS, 17_850, iso_texts),
    Wart(RUNS, 5_000, without_counter),
    Wart(SCHEDULES, 30, quartz),
    Wart(SCHEDULES, 22, no_zone),
    SAME_NAME,
    Wart(SCHEDULES, 73, blank_notify),
    Wart(AUDIT, 24_000, id_beside),
)
MAKERS: Final[Mapping[Entity, Callable[[int, str], Document]]] = {
    SCHEDULES: a_schedule,
    RUNS: a_run,
    AUDIT: an_audit_record,
}
