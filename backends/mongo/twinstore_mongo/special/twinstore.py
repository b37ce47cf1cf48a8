"""The ledger of copies: what 0.1.0 kept of it next to the data is carried over once, and stays where it is.

A job comes after its ranges, so an interrupted carry-over resumes, and a complete one does not start again:
ranges of an already carried job are not copied, whatever became of it since.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from twinstore.ledger.catalog import JOBS, RANGES
from twinstore.ledger.models import RangeState
from twinstore_mongo.special import CarryOver

if TYPE_CHECKING:
    from collections.abc import Mapping

    from twinstore_mongo.client.types import Document


OLD_JOBS: Final = "backfill_jobs"
OLD_RANGES: Final = "backfill_ranges"
LARGEST_INT: Final = 2**31 - 1
# What JSON does not hold as it is; the backslash comes first, because the others bring new ones.
ESCAPES: Final = {"\\": "\\\\", '"': '\\"'} | {chr(code): f"\\u{code:04x}" for code in range(32)}


def long(value: object) -> Document:
    """Return an integer of 64 bits."""
    return {"$toLong": value}


def joined(*parts: object) -> Document:
    """Return texts put together."""
    return {"$concat": list(parts)}


def escaped(value: str) -> Any:  # noqa: ANN401  # an expression
    """Return a text as JSON writes it between quotation marks."""
    escaped_value: Any = value
    for find, replacement in ESCAPES.items():
        escaped_value = {"$replaceAll": {"input": escaped_value, "find": find, "replacement": replacement}}
    return escaped_value


def key_json(field: str) -> Document:
    """Return the end of a range as JSON, no field where it is open."""
    quoted = {"$map": {"input": field, "as": "part", "in": joined('"', escaped("$$part"), '"')}}
    comma = {"$cond": [{"$eq": ["$$value", ""]}, "", ","]}
    parts = {"$reduce": {"input": quoted, "initialValue": "", "in": joined("$$value", comma, "$$this")}}
    return {"$cond": [{"$isArray": [field]}, joined("[", parts, "]"), "$$REMOVE"]}


def range_id() -> Document:
    """Return the ``_id`` of a range from job and number, as the mapping joins it from a key."""
    return joined("$jobId", ":", {"$toString": {"$add": ["$number", 1]}})


def tally_lines() -> Document:
    """Return a tally as lines; the old one has a list for each kind."""
    count = {"$cond": [{"$lte": ["$$item.count", LARGEST_INT]}, {"$toInt": "$$item.count"}, "$$item.count"]}
    line = {"kind": "$$kind.k", "label": "$$item.tenant", "count": count}
    of_kind = {"$map": {"input": "$$kind.v", "as": "item", "in": line}}
    kinds = {"$map": {"input": {"$objectToArray": "$tally"}, "as": "kind", "in": of_kind}}
    return {"$reduce": {"input": kinds, "initialValue": [], "in": {"$concatArrays": ["$$value", "$$this"]}}}


IS_LIVE: Final = {"$eq": ["$state", RangeState.LIVE.value]}
# The settings were a list, because a name may hold a dot.
SETTINGS: Final = {
    "$arrayToObject": {
        "$map": {"input": "$settings", "as": "item", "in": {"k": "$$item.name", "v": "$$item.value"}}
    }
}
JOB: Final[Document] = {
    "_id": "$_id",
    "settings": SETTINGS,
    "state": "$state",
    "generation": "$generation",
    "asOf": "$asOf",
    "startedAt": "$startedAt",
    "position": "$position",
    "planned": "$planned",
    "holder": "$holder",
    "fence": "$fence",
    "expiresAt": "$expiresAt",
    "stop": {"$literal": False},
    "_version": long(1),
}
# Ranges in progress are open again, because no worker of this version holds them.
RANGE: Final[Document] = {
    "_id": range_id(),
    "jobId": "$jobId",
    "number": {"$add": ["$number", 1]},
    "entity": "$entity",
    "lower": key_json("$lower"),
    "upper": key_json("$upper"),
    "state": {
        "$cond": [{"$eq": ["$state", RangeState.COPYING.value]}, RangeState.PENDING.value, "$state"],
    },
    "fence": long(0),
    "attempts": long(0),
    "tally": {"$cond": [IS_LIVE, tally_lines(), []]},
    "position": "$position",
    "finishedAt": {"$cond": [IS_LIVE, "$finishedAt", "$$REMOVE"]},
    "_version": long(1),
}


def merge_stage(collection: str) -> Mapping[str, Any]:
    """Return the stage that writes what is not there yet.

    With ``keepExisting`` the server would store the fields in the order of their names.
    """
    unchanged = [{"$replaceWith": "$$ROOT"}]
    return {"$merge": {"into": collection, "whenMatched": unchanged, "whenNotMatched": "insert"}}


def lookup_stage(collection: str, name: str) -> Mapping[str, Any]:
    """Return the stage that finds the job of a range."""
    return {"$lookup": {"from": collection, "localField": "jobId", "foreignField": "_id", "as": name}}


CARRY_OVERS: Final[Mapping[str, tuple[CarryOver, ...]]] = {
    "001_create_ledger": (
        CarryOver(
            OLD_RANGES,
            (
                lookup_stage(JOBS.collection, "here"),
                {"$match": {"here": []}},
                lookup_stage(OLD_JOBS, "job"),
                # Of the generation that the job is in; others are left-overs.
                {"$match": {"$expr": {"$in": ["$generation", "$job.generation"]}}},
                {"$replaceWith": RANGE},
                merge_stage(RANGES.collection),
            ),
        ),
        CarryOver(OLD_JOBS, ({"$replaceWith": JOB}, merge_stage(JOBS.collection))),
    )
}
