"""What ``evolve`` of the models takes, as ``twinstore dev changes`` wrote it."""

from __future__ import annotations

from typing_extensions import TypedDict

from twinstore.fields import Id, OptionalText, PositiveInt, Text, Timestamp, TrimmedKeyMap
from twinstore.taskrunner.enums import LogLevel
from twinstore.taskrunner.pack_runs import FilledText

__all__ = ["PackRunLogDraftChanges", "PackRunLogEntryChanges"]


class PackRunLogDraftChanges(TypedDict, total=False):
    """What ``PackRunLogDraft.evolve`` may change."""

    timestamp: Timestamp
    level: LogLevel
    event_type: FilledText
    message: Text
    step_id: OptionalText
    metadata: TrimmedKeyMap


class PackRunLogEntryChanges(TypedDict, total=False):
    """What ``PackRunLogEntry.evolve`` may change."""

    run_id: Id
    sequence: PositiveInt
    timestamp: Timestamp
    level: LogLevel
    event_type: FilledText
    message: Text
    step_id: OptionalText
    metadata: TrimmedKeyMap
