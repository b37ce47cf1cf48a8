"""How far a job of the ledger is and how fast it goes, for everything that shows it while it runs."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

Job = dict[str, Any]
# The last looks at a job give its rates.
LOOKS: Final = 10


class Rates:
    """Rows per second of each entity, from what was read at the last looks."""

    def __init__(self) -> None:
        self._looks = deque[tuple[float, dict[str, int]]](maxlen=LOOKS)

    def add(self, job: Job, now: float) -> None:
        """Remember how many rows are read now."""
        self._looks.append((now, {item["entity"]: item.get("read", 0) for item in job["entities"]}))

    def of(self, entity: str) -> float:
        """Return the rate of an entity, 0 before there is one."""
        (since, before), (now, after) = self._looks[0], self._looks[-1]
        # A new generation begins at 0 again.
        new = max(after[entity] - before.get(entity, 0), 0)
        return new / (now - since) if now > since else 0.0


@dataclass(frozen=True, slots=True)
class EntityProgress:
    """How far one entity is.

    Attributes:
        entity: its name.
        live, ranges: ranges that are done, and all of them.
        read, quarantined: rows of the ranges that are done.
        rate: rows per second.
        seconds_left: at this rate; ``None`` if it is unknown or nothing is left.
    """

    entity: str
    live: int
    ranges: int
    read: int
    rate: float
    seconds_left: float | None
    quarantined: int

    @classmethod
    def of(cls, item: Mapping[str, Any], rates: Rates) -> EntityProgress:
        """Return the progress of an entity of a job."""
        live, every, read = item["ranges"]["live"], sum(item["ranges"].values()), item.get("read", 0)
        rate = rates.of(item["entity"])
        # Ranges have about the same number of rows each.
        left = read / live * (every - live) / rate if rate and live < every else None
        return cls(item["entity"], live, every, read, rate, left, item.get("quarantined", 0))


def has_ended(job: Job) -> bool:
    """Whether no process works on a job any more, or will without a command."""
    return job["state"] == "complete" or job["stopped"] is not None or job["lease"] is None


def state_text(job: Job) -> str:
    """Return the state of a job in words."""
    if job["stopped"] is not None:
        return f"stopped: {job['stopped']}"
    if job["state"] != "complete" and job["lease"] is None:
        return "no process works on it; run the copy again"
    return "paused" if job["paused"] else str(job["state"])
