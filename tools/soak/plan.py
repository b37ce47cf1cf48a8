"""The plan of a soak: how long, with how many workers, and which faults when; all choices from one seed."""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from random import Random
from typing import TYPE_CHECKING, Any, Final

from tests.support.claiming import TENANTS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

# From one kill to the next, on average: a worker needs about a tenth of it to open its storage.
KILL_SECONDS: Final = 0.6
# From one outage to the next, on average: with recovery about half of the time is without one.
OUTAGE_SECONDS: Final = 12.0
# At most so long a server is away before it is started again; its start and an election come on top.
DOWNTIME_SECONDS: Final = 2.0
# A stalled server does not answer for that much longer than another one is away: beyond the limit of a call.
STALL_FACTOR: Final = 4
STALLED: Final = "stalled"
# What happens to the network lasts one of these, if the soak is ten times as long.
NETWORK: Final = "network: "
NETWORK_SECONDS: Final = (1.0, 10.0, 60.0)
# The last outage ends well before the workers do.
QUIET_SECONDS: Final = 10.0
# What a service does to itself, from one time to the next on average.
DISTURBANCE_SECONDS: Final = 1.5
# Tenants of the services; those of the workers are others, so that neither judge meets rows of the other.
SERVED: Final = ("red", "green", "blue")
# The locks that services use, and for how long the store keeps one.
LOCKS: Final = ("reports", "imports")
LEASE: Final = timedelta(seconds=1)
# No kill while the first workers start.
GRACE_SECONDS: Final = 0.5
BASE: Final = datetime(2026, 1, 1, tzinfo=UTC)
NANOSECONDS: Final = 1_000_000_000
# How much faster the instants of triggers pass: what fires every minute falls due ten times a second.
ACCELERATION: Final = 600


class Fault(StrEnum):
    """What may be asked for with ``--faults``."""

    KILL = "kill"
    STALL = "stall"
    CUT = "cut"
    NETWORK = "network"
    DISK = "disk"
    FORK = "fork"
    CANCEL = "cancel"
    POOL = "pool"


# Those of the network last for minutes together; they are asked for by name.
USUAL_FAULTS: Final = frozenset(Fault) - {Fault.NETWORK}
# Those that a service meets from time to time; cancelled tasks are there all the time.
DISTURBANCES: Final = frozenset({Fault.FORK, Fault.POOL})


@dataclass(frozen=True, slots=True)
class Plan:
    """One soak of one database.

    Attributes:
        settings: of the store.
        journal: the file that all processes append to.
        seed: decides every random choice.
        seconds: how long workers work and are killed.
        start: the monotonic instant of the beginning, in nanoseconds, the same in every process.
        faults: the kinds of faults.
        processes: how many workers there are at a time.
        services: how many services there are at a time; the last one is never killed.
        schedules: how many fall due again and again.
        pool: how many connections a storage has at most.
        rarer: how many times rarer kills and outages are than usual, for more writes in the same time.
    """

    settings: dict[str, Any]
    journal: Path
    seed: int
    seconds: float
    start: int
    faults: frozenset[Fault] = USUAL_FAULTS
    processes: int = 4
    services: int = 2
    schedules: int = 6
    pool: int = 4
    rarer: float = 1

    @property
    def end(self) -> int:
        """The monotonic instant at which workers stop, in nanoseconds."""
        return self.start + int(self.seconds * NANOSECONDS)

    @property
    def quiet_from(self) -> int:
        """The monotonic instant from which nothing happens to the server any more, in nanoseconds."""
        return self.end - int(self.quiet_seconds * NANOSECONDS)

    @property
    def outage_interval(self) -> float:
        """How many seconds are from one outage to the next on average."""
        return min(OUTAGE_SECONDS * self.rarer, self.seconds / 6)

    @property
    def quiet_seconds(self) -> float:
        """For how many seconds at the end nothing happens to the server."""
        return min(QUIET_SECONDS, 0.3 * self.seconds)

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
    """Return the kills in order; the same seed gives the same.

    The last service is spared: what leaks shows in a process that lives long.
    """
    if Fault.KILL not in plan.faults:
        return ()
    random, often = Random(f"{plan.seed}/kills"), 1 / (KILL_SECONDS * plan.rarer)
    found: list[Kill] = []
    after = GRACE_SECONDS + random.expovariate(often)
    while after < plan.seconds:
        found.append(Kill(after, random.randrange(plan.processes + plan.services - 1)))
        after += random.expovariate(often)
    return tuple(found)


@dataclass(frozen=True, slots=True)
class Outage:
    """What happens to a server when: seconds after the beginning, its name, and how long it is away."""

    after: float
    kind: str
    seconds: float


def outages_of(plan: Plan, kinds: Sequence[str]) -> tuple[Outage, ...]:
    """Return the outages in order; the same seed gives the same. Each kind comes before one comes again."""
    random = Random(f"{plan.seed}/outages")
    outage_interval, downtime = plan.outage_interval, min(DOWNTIME_SECONDS, plan.seconds / 10)
    found: list[Outage] = []
    left: list[str] = []
    after = GRACE_SECONDS + random.uniform(0.5, 1.5) * outage_interval
    while kinds and after < plan.seconds - plan.quiet_seconds:
        left = left or random.sample(kinds, len(kinds))
        kind = left.pop()
        longest = downtime * STALL_FACTOR if kind.startswith(STALLED) else downtime
        seconds = random.uniform(0, longest)
        if kind.startswith(NETWORK):
            lengths = [length for length in NETWORK_SECONDS if 10 * length <= plan.seconds]
            seconds = random.choice(lengths or [seconds])
        found.append(Outage(after, kind, seconds))
        after += random.uniform(0.5, 1.5) * outage_interval
    return tuple(found)


@dataclass(frozen=True, slots=True)
class Disturbance:
    """What a service does to itself: seconds after the one before, the kind, and a number to choose by."""

    pause: float
    kind: Fault
    choice: int


def disturbances_of(plan: Plan, name: str) -> Iterator[Disturbance]:
    """Return without end what a service of this name does to itself; the same name gives the same.

    Each kind comes before one comes again.
    """
    random, kinds = Random(f"{name}/disturbances"), sorted(plan.faults & DISTURBANCES)
    while kinds:
        for kind in random.sample(kinds, len(kinds)):
            pause = random.uniform(0.5, 1.5) * DISTURBANCE_SECONDS
            yield Disturbance(pause, kind, random.randrange(2**32))


@dataclass(frozen=True, slots=True)
class SoakClock:
    """Instants for the store, by the monotonic clock of the machine, which no correction turns back."""

    start: int

    def now(self) -> datetime:
        """Return the instant for leases."""
        return _rounded(BASE + self._elapsed())

    def accelerated_now(self) -> datetime:
        """Return the instant for triggers, which passes faster."""
        return _rounded(BASE + ACCELERATION * self._elapsed())

    def _elapsed(self) -> timedelta:
        return timedelta(microseconds=(time.monotonic_ns() - self.start) // 1000)


def _rounded(instant: datetime) -> datetime:
    return instant.replace(microsecond=instant.microsecond // 1000 * 1000)
