"""Records what the MongoDB driver sends, as pymongo reports it: the shape of a command, not its values."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from bson import Int64, ObjectId
from pymongo import monitoring
from typing_extensions import override

from tests.support.databases import StartedListener
from tests.support.recording import call_of, statement_name
from twinstore.catalog.conditions import Equals, OneOf
from twinstore_mongo.mapping.codec import codec_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tests.support.recording import Recorded
    from twinstore.catalog.entity import Entity

PACKAGE: Final = "twinstore_mongo"
COMMANDS: Final = ("find", "aggregate", "insert", "update", "delete", "findAndModify", "count", "distinct")
SESSION: Final = ("commitTransaction", "abortTransaction")
# How a command is carried, not what it asks for.
CARRIAGE: Final = frozenset(
    {
        "lsid",
        "$db",
        "$clusterTime",
        "readConcern",
        "writeConcern",
        "maxTimeMS",
        "txnNumber",
        "cursor",
        "autocommit",
        "startTransaction",
        "$readPreference",
        "ordered",
        "bypassDocumentValidation",
        "singleBatch",
        "collation",
        "allowDiskUse",
    }
)
# The parts of a command that are recorded unchanged.
AS_IT_IS: Final = ("sort", "hint", "projection", "fields", "new", "upsert", "multi")
TYPES: Final = {str: "text", int: "int", Int64: "long", float: "double", bytes: "bytes", ObjectId: "id"}
COUNTED: Final = {"limit", "skip", "batchSize"}


@contextmanager
def recording(recorded: Recorded) -> Iterator[None]:
    """Record what clients send that are made until the block ends.

    The listener stays registered, because pymongo cannot forget one; it then notes nothing.
    """
    listener = Listener(recorded)
    monitoring.register(listener)
    try:
        yield
    finally:
        listener.recorded = None


class Listener(StartedListener):
    """Notes the commands of the driver."""

    def __init__(self, recorded: Recorded | None) -> None:
        self.recorded = recorded

    @override
    def started(self, event: monitoring.CommandStartedEvent) -> None:
        if self.recorded is not None and event.command_name in {*COMMANDS, *SESSION}:
            note(self.recorded, event)


def note(recorded: Recorded, event: monitoring.CommandStartedEvent) -> None:
    """Record a command if the driver sends it."""
    call = call_of(PACKAGE)
    if call is None:
        return
    command = event.command_name
    if command in SESSION:
        recorded.session(command, command)
        return
    collection = str(event.command[command])
    entity = recorded.entities.get(collection)
    if entity is None:
        return
    kept = {name: part for name, part in event.command.items() if name not in CARRIAGE}
    name = statement_name(call, entity.name, "" if command in {"find", "aggregate"} else command)
    recorded.add(recorded.module_of(entity), name, text_of(kept, literals_of(entity)))


def literals_of(entity: Entity) -> frozenset[tuple[str, object]]:
    """Return the values, by stored name, that say whether an index holds a document; they are shown."""
    names = codec_of(entity).names
    held = [item for index in entity.indexes for item in index.where if isinstance(item, Equals | OneOf)]
    return frozenset(
        (names[item.field], value)
        for item in held
        for value in (item.values if isinstance(item, OneOf) else (item.value,))
    )


def text_of(command: Mapping[str, Any], literals: frozenset[tuple[str, object]]) -> str:
    """Return a command, one line for each of its parts."""
    lines = []
    for name, part in command.items():
        if name == "documents":
            shown: object = ["document"]
        elif name in COUNTED:
            shown = "int"
        elif name in AS_IT_IS or isinstance(part, str):
            shown = part
        elif name == "update":
            shown = changes(part)
        else:
            shown = shape(part, literals, "")
        lines.append(f"{name}: {json.dumps(shown, default=str)}")
    return "\n".join(lines)


def shape(value: Any, literals: frozenset[tuple[str, object]], field: str) -> Any:  # noqa: ANN401  # a part of a command
    """Return a part of a command with types in place of values."""
    if isinstance(value, dict):
        return shape_of_document(value, literals, field)
    if isinstance(value, list | tuple):
        shapes: list[Any] = []
        for item in value:
            found = shape(item, literals, field)
            if found not in shapes:
                shapes.append(found)
        return shapes
    if value is None or isinstance(value, bool) or (isinstance(value, str) and value.startswith("$")):
        return value
    if (field, value) in literals:
        return value
    if isinstance(value, datetime):
        return "<date>"
    return f"<{TYPES.get(type(value), type(value).__name__)}>"


def shape_of_document(value: Mapping[str, Any], literals: frozenset[tuple[str, object]], field: str) -> Any:  # noqa: ANN401  # a part of a command
    shown: dict[str, Any] = {}
    for name, part in value.items():
        if name == "u":
            shown[name] = changes(part)
        elif name in AS_IT_IS or name in {"$sort", "$type"}:
            shown[name] = part
        elif name == "$literal":
            shown[name] = shape(part, frozenset(), "") if not isinstance(part, dict | list) else "<value>"
        else:
            shown[name] = shape(part, literals, field if name.startswith("$") else name)
    return shown


def changes(update: Mapping[str, Any] | Sequence[Mapping[str, Any]]) -> object:
    """Return what an update does: its stages, the fields of its operators, or that it replaces."""
    if not isinstance(update, Mapping):
        return [next(iter(stage)) for stage in update]
    if not all(name.startswith("$") for name in update):
        return "<document>"
    return {name: sorted(part) for name, part in update.items()}
