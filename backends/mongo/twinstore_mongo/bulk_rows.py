"""The rows of the ledger of a backfill, to and from what tools see."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from bson.int64 import Int64

from twinstore.bulk import Job, JobState, KeyRange, Lease, RangeProgress, RangeState, RangeTally

if TYPE_CHECKING:
    from twinstore.bulk import Key
    from twinstore_mongo.connection import Document

__all__ = ["job_of", "lease_of", "progress_of", "range_document", "tally_document", "within_of"]


def job_of(row: Mapping[str, Any]) -> Job:
    """Return a stored job."""
    return Job(
        id=row["_id"],
        settings={item["name"]: item["value"] for item in row["settings"]},
        state=JobState(row["state"]),
        generation=int(row["generation"]),
        as_of=row["asOf"],
        started_at=row["startedAt"],
        position=row.get("position"),
    )


def lease_of(row: Mapping[str, Any]) -> Lease | None:
    """Return the lease of a stored job."""
    holder = row.get("holder")
    return None if holder is None else Lease(row["_id"], holder, int(row["fence"]), row["expiresAt"])


def range_document(owner: Mapping[str, Any], entity: str, number: int, within: KeyRange) -> Document:
    """Return the document of a planned range."""
    ends = {"lower": within.lower, "upper": within.upper}
    return {
        **owner,
        "entity": entity,
        "number": Int64(number),
        **{name: list(key) for name, key in ends.items() if key is not None},
        "state": RangeState.PENDING.value,
    }


def progress_of(row: Mapping[str, Any]) -> RangeProgress:
    """Return a stored range."""
    return RangeProgress(
        number=int(row["number"]),
        entity=row["entity"],
        within=within_of(row),
        state=RangeState(row["state"]),
        tally=tally_of(row["tally"]) if "tally" in row else None,
        position=row.get("position"),
        finished_at=row.get("finishedAt"),
    )


def within_of(row: Mapping[str, Any]) -> KeyRange:
    """Return the keys of a stored range."""
    return KeyRange(key_of(row.get("lower")), key_of(row.get("upper")))


def key_of(values: Sequence[str] | None) -> Key | None:
    """Return a stored end of a range."""
    return None if values is None else tuple(values)


def tally_document(tally: RangeTally) -> Document:
    """Return a tally as lists: tenants are values, never field names."""
    return {
        item.name: [
            {"tenant": tenant, "count": Int64(count)}
            for tenant, count in sorted(getattr(tally, item.name).items())
        ]
        for item in fields(tally)
    }


def tally_of(document: Mapping[str, Any]) -> RangeTally:
    """Return a stored tally."""
    counts = {
        name: {item["tenant"]: int(item["count"]) for item in items} for name, items in document.items()
    }
    return RangeTally(**counts)
