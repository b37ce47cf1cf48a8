"""The goals of the project and whether this run reached them. Nothing fails when it did not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from benchmarks.entities.names import STANDARD, WAYS
from benchmarks.entities.tables import per_byte
from benchmarks.groups import (
    BACK,
    BULK_ROLE,
    EQUAL,
    FIRST,
    INSERT,
    RAW_SCAN,
    ROOFLINE,
    SECOND,
    TENTH,
    UNEQUAL,
)
from benchmarks.merge import OVERWRITE, STATEMENT
from benchmarks.peers.groups import BATCH, WORKERS
from benchmarks.script import SCRIPT, SCRIPT_VERIFY
from benchmarks.start import COPIES, HELPS, OPENED, REFERENCE, VERIFICATIONS, Imported

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from benchmarks.schedule import Group, Samples

__all__ = ["Goal", "GoalResult", "evaluate_goals"]

MEGABYTES: Final = 150.0
PER_BYTE: Final = 0.70
# The units of goals: at least a multiple, the same with the start of processes; at most a multiple of the
# time or of the processor time of servers, MB, modules.
LEAST, WHOLE, MOST, SERVER = "x", "x with start", "x the time", "x the server time"
MEMORY, MODULES = "MB", "modules"


@dataclass(frozen=True, slots=True)
class Goal:
    """A case that should reach a part of another one's rate, or take at most a multiple of its time."""

    text: str
    group: str
    case: str
    reference: str
    wanted: float
    unit: str = LEAST


@dataclass(frozen=True, slots=True)
class GoalResult:
    """A goal with what was measured: rates have a floor, everything else a ceiling.

    Attributes:
        instead: what is also accepted, where the figure is on the wrong side.
    """

    text: str
    measured: float
    wanted: float
    unit: str = LEAST
    instead: str = ""

    @property
    def bound(self) -> str:
        """Return on which side of the goal the figure should be."""
        return "at least" if self.unit in {LEAST, WHOLE} else "at most"

    @property
    def digits(self) -> int:
        """Return how many decimals are worth showing."""
        return 0 if self.unit in {MEMORY, MODULES} else 2

    @property
    def verdict(self) -> str:
        """Return what to say of it."""
        return "reached" if self.reached else self.instead or "not reached"

    @property
    def reached(self) -> bool:
        """Whether the median is on the right side."""
        floor = self.unit in {LEAST, WHOLE}
        return self.measured >= self.wanted if floor else self.measured <= self.wanted


CLAIMED: Final = (("MongoDB", "mongo-claims", "pymongo"), ("PostgreSQL", "postgres-claims", "psycopg"))
FORMS: Final = (("one", "one job"), (f"{BATCH}", f"{BATCH} jobs"))
STORES: Final = (("MongoDB", "mongo", "pymongo"), ("PostgreSQL", "postgres", "psycopg"))


def single_goals() -> Iterator[Goal]:
    """Yield the goals of single operations, the check of written models included."""
    for title, group, bare in STORES:
        for operation in ("get", "upsert"):
            yield Goal(f"{title} {operation}, of bare {bare}", group, operation, f"bare {operation}", 0.85)


def claim_goals() -> Iterator[Goal]:
    """Yield the goals of claims, with one worker and with several."""
    for workers in WORKERS:
        suffix = workers_text(workers)
        for title, group, bare in CLAIMED:
            for form, jobs in FORMS:
                text = f"{title} lease of {jobs}, of bare {bare}{suffix}"
                yield Goal(text, group, f"lease, {form}, {workers}", f"bare, {form}, {workers}", 0.75)
        for (form, jobs), wanted in zip(FORMS, (3.0, 20.0), strict=True):
            text = f"PostgreSQL lease of {jobs}, of procrastinate{suffix}"
            competitor = f"procrastinate, one, {workers}"
            yield Goal(text, "postgres-claims", f"lease, {form}, {workers}", competitor, wanted)


def peer_goals() -> Iterator[Goal]:
    """Yield the goals of firing, of lives of jobs and of locks. Workers that fire claim due schedules."""
    fire, life = "fire, in order", "library, life"
    for workers, wanted in zip(WORKERS, (0.9, 1.5, 2.0), strict=True):
        suffix = f"of procrastinate{workers_text(workers)}"
        text, competitor = f"PostgreSQL fire of claimed schedules, {suffix}", "procrastinate, periodic"
        yield Goal(text, "postgres-firing", f"{fire}, {workers}", f"{competitor}, {workers}", wanted)
        text, competitor = f"PostgreSQL life of a job, {suffix}", "procrastinate, life"
        yield Goal(text, "postgres-lives", f"{life}, {workers}", f"{competitor}, {workers}", 1.1)
    text = f"MongoDB fire of claimed schedules, of bare pymongo{workers_text(16)}"
    yield Goal(text, "mongo-firing", f"{fire}, 16", "bare, in order, 16", 0.8)
    text = "PostgreSQL lock, of bare psycopg that keeps its connection"
    yield Goal(text, "postgres-locks", "lock, 1", "bare, connection kept, 1", 0.3)


def workers_text(workers: int) -> str:
    """Return the end of the text of a goal; one worker is not named."""
    return "" if workers == 1 else f", {workers} workers"


def start_goals() -> Iterator[Goal]:
    """Yield the goals of short commands, whose time is mostly their start."""
    small = (*COPIES.values(), *VERIFICATIONS.values())
    for cases, wanted in ((HELPS, 1.0), (small, 3.0), (OPENED.values(), 1.8)):
        for case in cases:
            yield Goal(f"{case}, of the {REFERENCE}", "start", case, REFERENCE, wanted, MOST)


GOALS: Final = (
    Goal("first copy, of the two-connection COPY", "copy", FIRST, ROOFLINE, 0.60),
    Goal("first copy, of the hand-written script", "copy", FIRST, SCRIPT, 1.3, WHOLE),
    Goal(
        "first copy with the bulk role (stretch), of the two-connection COPY",
        "copy",
        BULK_ROLE,
        ROOFLINE,
        0.75,
    ),
    Goal("copy with a tenth there, of the two-connection COPY", "copy", TENTH, ROOFLINE, 0.55),
    Goal("second copy over identical data, of the first", "copy", SECOND, FIRST, 0.95),
    Goal("copy PostgreSQL to MongoDB, of insert_many on two threads", "return", BACK, INSERT, 0.50),
    Goal("verify, equal, of the raw COPY out", "verify", EQUAL, RAW_SCAN, 0.45),
    Goal("verify, of the hand-written comparison", "verify", EQUAL, SCRIPT_VERIFY, 1.6, WHOLE),
    Goal("verify with ten differences, of the time of verify", "verify", UNEQUAL, EQUAL, 1.15, MOST),
    Goal("overwrite of changed rows, of one statement", "merge", OVERWRITE, STATEMENT, 1.6, SERVER),
    *single_goals(),
    *start_goals(),
    *claim_goals(),
    *peer_goals(),
)
# Whose memory is judged: the largest peak of these cases in any round.
WATCHED: Final = (
    ("copy", "copy", (FIRST, BULK_ROLE, SECOND, TENTH)),
    ("copy PostgreSQL to MongoDB", "return", (BACK,)),
    ("verify", "verify", (EQUAL, UNEQUAL)),
)


def entity_goals(sizes: Mapping[str, float], samples: Samples) -> Iterator[GoalResult]:
    """Yield for each way the entity with the least rate per byte; its table lists the stages of all."""
    for way in WAYS:
        rates = {name: per_byte(sizes, samples, name, way) for name in sizes if name != STANDARD}
        least = min(rates, key=rates.__getitem__)
        below = sum(rate < PER_BYTE for rate in rates.values())
        text = f"{way} of every entity per byte, of runs: the least, {least}"
        listed = f"{below} of {len(rates)} below, listed by stage" if below else ""
        yield GoalResult(text, rates[least], PER_BYTE, instead=listed)


def module_goals(facts: Mapping[str, float]) -> Iterator[GoalResult]:
    """Yield how many modules a copy may import."""
    for name, wanted in ((Imported.ALL, 720.0), (Imported.OURS, 200.0)):
        yield GoalResult(f"modules imported by {name}", facts[name], wanted, MODULES)


def evaluate_goals(measured: Mapping[str, tuple[Group, Samples]]) -> Iterator[GoalResult]:
    """Return every goal whose group was measured, with what it is compared with."""
    yield from _judge({name: samples for name, (_, samples) in measured.items()})
    if "entities" in measured:
        group, samples = measured["entities"]
        yield from entity_goals(group.facts, samples)
    if "start" in measured:
        yield from module_goals(measured["start"][0].facts)


def _judge(measured: Mapping[str, Samples]) -> Iterator[GoalResult]:
    for goal in GOALS:
        samples = measured.get(goal.group)
        if samples is not None and {goal.case, goal.reference} <= samples.by_case.keys():
            pair = (goal.case, goal.reference)
            ratios = {
                LEAST: samples.ratio,
                WHOLE: samples.whole_ratio,
                MOST: samples.time_ratio,
                SERVER: samples.server_ratio,
            }
            if (spread := ratios[goal.unit](*pair)) is not None:
                yield GoalResult(goal.text, spread.middle, goal.wanted, goal.unit)
    for text, group, cases in WATCHED:
        samples = measured.get(group)
        peaks = [] if samples is None else [samples.peak(case) for case in cases]
        known = [peak for peak in peaks if peak is not None]
        if known:
            yield GoalResult(f"client memory, {text}, the largest peak", max(known), MEGABYTES, MEMORY)
