"""What the repositories of schedules and triggers both read and write."""

from __future__ import annotations

from typing import TYPE_CHECKING

from twinstore.scheduler.catalog import SCHEDULES, TRIGGERS
from twinstore.scheduler.rules.missing import duplicate_id
from twinstore.scheduler.rules.schedules import StoredSchedule
from twinstore_mongo.errors import DRIVER
from twinstore_mongo.repository import one
from twinstore_mongo.scheduler.codecs import SCHEDULE_CODEC, TRIGGER_CODEC, deletion_of
from twinstore_mongo.writes import insert, replace

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from twinstore.errors import TwinstoreError
    from twinstore.scheduler.triggers import Trigger
    from twinstore_mongo.connection import Document
    from twinstore_mongo.units import Unit

__all__ = ["decoded", "own_schedule", "stored_trigger", "write_trigger"]


def own_schedule(unit: Unit, tenant: str, key: str) -> Document | None:
    """Return the document of a schedule of this tenant."""
    return one(unit, SCHEDULES, {"_id": key, "tenantId": tenant}, key)


def decoded(document: Mapping[str, Any] | None) -> StoredSchedule | None:
    """Return a schedule with its markers."""
    return (
        None if document is None else StoredSchedule(SCHEDULE_CODEC.decode(document), deletion_of(document))
    )


def stored_trigger(unit: Unit, tenant: str, schedule_id: str) -> Trigger | None:
    """Return the trigger of a schedule."""
    document = one(unit, TRIGGERS, {"scheduleId": schedule_id, "tenantId": tenant}, schedule_id)
    return None if document is None else TRIGGER_CODEC.decode(document)


def write_trigger(unit: Unit, stored: Trigger | None, trigger: Trigger) -> None:
    """Write a trigger unless it is stored already."""
    document = TRIGGER_CODEC.encode(trigger, trigger.id)
    if stored is None:
        insert(unit, TRIGGERS, document, lambda _: taken(trigger))
    elif stored != trigger:
        condition = {"_id": stored.id, "tenantId": stored.tenant_id}
        replace(unit, TRIGGERS, condition, document, lambda _: taken(trigger))


def taken(trigger: Trigger) -> TwinstoreError:
    """Return the error of a trigger whose id or schedule somebody else has."""
    return duplicate_id(TRIGGERS, trigger.id, DRIVER)
