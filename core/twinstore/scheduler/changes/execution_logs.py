"""What ``evolve`` of the models takes, as ``twinstore dev changes`` wrote it."""

from __future__ import annotations

from typing_extensions import TypedDict

from twinstore.fields import FreeObject, Id, OptionalText, PositiveInt, TenantId, Text, Timestamp
from twinstore.scheduler.enums import LogLevel

__all__ = ["ExecutionLogEntryChanges"]


class ExecutionLogEntryChanges(TypedDict, total=False):
    """What ``ExecutionLogEntry.evolve`` may change."""

    tenant_id: TenantId
    run_id: Id
    sequence: PositiveInt | None
    logged_at: Timestamp
    level: LogLevel
    logger: OptionalText
    message: Text
    data: FreeObject
