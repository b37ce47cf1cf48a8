"""How far a job of the ledger is and how fast it goes, for everything that shows it while it runs."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from twinstore_backfill.report.texts import number_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

Job = dict[str, Any]
# The last looks at a job give its rates.
LOOKS: Final = 10


class Rates:
    """Ranges and rows per second of each entity, from what was done at the last looks."""

    def __init__(self) -> None:
        self._looks = deque[tuple[float, dict[str, tuple[int, int]]]](maxlen=LOOKS)

    def add(self, job: Job, now: float) -> None:
        """Remember how much is done now."""
        done = {item["entity"]: (item["ranges"]["live"], item.get("read") or 0) for item in job["entities"]}
        self._looks.append((now, done))

    def of(self, entity: str) -> tuple[float, float]:
        """Return the rates of an entity, each 0 before there is one."""
        (since, before), (now, after) = self._looks[0], self._looks[-1]
        pairs = zip(after[entity], before.get(entity, (0, 0)), strict=True)
        # A new generation begins at 0 again.
        ranges, rows = (max(new - old, 0) / (now - since) if now > since else 0.0 for new, old in pairs)
        return ranges, rows


@dataclass(frozen=True, slots=True)
class EntityProgress:
    """How far one entity is.

    Attributes:
        entity: its name.
        live, ranges: ranges that are done, and all of them.
        read, quarantined: rows of the ranges that are done; ``None`` if they are not counted.
        rate: rows per second, 0 if they are not counted.
        seconds_left: at this rate; ``None`` if it is unknown or nothing is left.
    """

    entity: str
    live: int
    ranges: int
    read: int | None
    rate: float
    seconds_left: float | None
    quarantined: int

    @classmethod
    def of(cls, item: Mapping[str, Any], rates: Rates) -> EntityProgress:
        """Return the progress of an entity of a job."""
        live, every, read = item["ranges"]["live"], sum(item["ranges"].values()), item.get("read", 0)
        ranges, rate = rates.of(item["entity"])
        # Ranges have about the same number of rows each.
        left = (every - live) / ranges if ranges and live < every else None
        return cls(item["entity"], live, every, read, rate, left, item.get("quarantined", 0))


def has_ended(job: Job) -> bool:
    """Whether no process works on a job any more, or will without a command."""
    return job["state"] == "complete" or job["stopped"] is not None or not (job["lease"] or living(job))


def living(job: Job) -> int:
    """Return how many workers of a job give signs of life."""
    return sum(item["alive"] for item in job["workers"])


def state_text(job: Job) -> str:
    """Return the state of a job in words."""
    if job["stopped"] is not None:
        return f"stopped: {job['stopped']}"
    if job["state"] != "complete" and job["lease"] is None:
        if count := living(job):
            return f"{number_of(count, 'worker')} without a coordinator; run the copy again"
        return "no process works on it; run the copy again"
    return "paused" if job["paused"] else str(job["state"])


def worker_texts(job: Job) -> Iterator[str]:
    """Yield the workers of a job, each with the age of its last sign of life."""
    for item in job["workers"]:
        host, pid = (*item["worker"].split("/"), "")[:2]
        dead = "" if item["alive"] else ": dead"
        yield f"{pid} on {host}, last sign {max(0.0, item['seconds_since_sign']):.0f} s ago{dead}"
