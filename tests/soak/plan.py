"""What a soak does: how long, with how many workers, and who is killed when; every choice from one seed."""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from random import Random
from typing import TYPE_CHECKING, Any, Final

from tests.faults.claiming import TENANTS

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

__all__ = ["Kill", "Outage", "Plan", "SoakClock", "kills_of", "outages_of"]

# From one kill to the next, on average: a worker needs about a tenth of it to open its storage.
KILL_SECONDS: Final = 0.6
# From one outage to the next, on average: with the way back about half of the time is without one.
OUTAGE_SECONDS: Final = 12.0
# At most so long a server is away before it is started again; its start and an election come on top.
AWAY_SECONDS: Final = 2.0
# The last outage ends well before the workers do.
CALM_SECONDS: Final = 10.0
# No kill while the first workers start.
GRACE_SECONDS: Final = 0.5
BASE: Final = datetime(2026, 1, 1, tzinfo=UTC)
NANOSECONDS: Final = 1_000_000_000
# How much faster the instants of triggers pass: what fires every minute falls due ten times a second.
HASTE: Final = 600


@dataclass(frozen=True, slots=True)
class Plan:
    """One soak of one database.

    Attributes:
        settings: of the store.
        journal: the file that all processes append to.
        seed: decides every random choice.
        seconds: how long workers work and are killed.
        start: the monotonic instant of the beginning, in nanoseconds, the same in every process.
        processes: how many workers there are at a time.
        schedules: how many fall due again and again.
    """

    settings: dict[str, Any]
    journal: Path
    seed: int
    seconds: float
    start: int
    processes: int = 4
    schedules: int = 6

    @property
    def end(self) -> int:
        """The monotonic instant at which workers stop, in nanoseconds."""
        return self.start + int(self.seconds * NANOSECONDS)

    def schedule_names(self) -> list[tuple[str, str]]:
        """Return tenant and id of each schedule."""
        return [
            (TENANTS[number % len(TENANTS)], f"every-minute-{number}") for number in range(self.schedules)
        ]


@dataclass(frozen=True, slots=True)
class Kill:
    """Who is killed when: seconds after the beginning, and the number of the worker."""

    after: float
    worker: int


def kills_of(plan: Plan) -> tuple[Kill, ...]:
    """Return the kills in order; the same seed gives the same."""
    random = Random(f"{plan.seed}/kills")
    found: list[Kill] = []
    after = GRACE_SECONDS + random.expovariate(1 / KILL_SECONDS)
    while after < plan.seconds:
        found.append(Kill(after, random.randrange(plan.processes)))
        after += random.expovariate(1 / KILL_SECONDS)
    return tuple(found)


@dataclass(frozen=True, slots=True)
class Outage:
    """What happens to a server when: seconds after the beginning, its name, and how long it is away."""

    after: float
    kind: str
    seconds: float


def outages_of(plan: Plan, kinds: Sequence[str]) -> tuple[Outage, ...]:
    """Return the outages in order; the same seed gives the same."""
    random = Random(f"{plan.seed}/outages")
    found: list[Outage] = []
    after = GRACE_SECONDS + random.uniform(0, OUTAGE_SECONDS)
    while after < plan.seconds - CALM_SECONDS:
        found.append(Outage(after, random.choice(kinds), random.uniform(0, AWAY_SECONDS)))
        after += random.uniform(0.5, 1.5) * OUTAGE_SECONDS
    return tuple(found)


@dataclass(frozen=True, slots=True)
class SoakClock:
    """Instants for the store, by the monotonic clock of the machine, which no correction turns back."""

    start: int

    def now(self) -> datetime:
        """Return the instant for leases."""
        return _rounded(BASE + self._elapsed())

    def hurried(self) -> datetime:
        """Return the instant for triggers, which passes faster."""
        return _rounded(BASE + HASTE * self._elapsed())

    def _elapsed(self) -> timedelta:
        return timedelta(microseconds=(time.monotonic_ns() - self.start) // 1000)


def _rounded(instant: datetime) -> datetime:
    return instant.replace(microsecond=instant.microsecond // 1000 * 1000)
