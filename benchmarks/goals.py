"""The goals of the project and whether this run reached them. Nothing fails when it did not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from benchmarks.groups import FIRST, RAW_SCAN, ROOFLINE, SCRIPT
from benchmarks.peers.groups import BATCH, WORKERS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from benchmarks.schedule import Samples

__all__ = ["Goal", "GoalResult", "judge"]

MEGABYTES: Final = 150.0


@dataclass(frozen=True, slots=True)
class Goal:
    """A case that should reach a part of another one."""

    text: str
    group: str
    case: str
    reference: str
    wanted: float


@dataclass(frozen=True, slots=True)
class GoalResult:
    """A goal with what was measured; smaller is better only for memory."""

    text: str
    measured: float
    wanted: float
    unit: str = "x"

    @property
    def reached(self) -> bool:
        """Whether the median is on the right side."""
        return self.measured <= self.wanted if self.unit == "MB" else self.measured >= self.wanted


TENTH: Final = "copy, a tenth there"
EQUAL: Final = "verify, equal"
UNEQUAL: Final = "verify, ten differences"
SECOND: Final = "second copy, identical"
CLAIMED: Final = (("MongoDB", "mongo-claims", "pymongo"), ("PostgreSQL", "postgres-claims", "psycopg"))
FORMS: Final = (("one", "one job"), (f"{BATCH}", f"{BATCH} jobs"))


def claim_goals() -> Iterator[Goal]:
    """Yield the goals of claims, with one worker and with several."""
    for workers in WORKERS:
        told = "" if workers == 1 else f", {workers} workers"
        for title, group, bare in CLAIMED:
            for form, jobs in FORMS:
                text = f"{title} lease of {jobs}, of bare {bare}{told}"
                yield Goal(text, group, f"lease, {form}, {workers}", f"bare, {form}, {workers}", 0.75)
        for (form, jobs), wanted in zip(FORMS, (3.0, 20.0), strict=True):
            text = f"PostgreSQL lease of {jobs}, of procrastinate{told}"
            rival = f"procrastinate, one, {workers}"
            yield Goal(text, "postgres-claims", f"lease, {form}, {workers}", rival, wanted)


GOALS: Final = (
    Goal("idempotent copy, of the two-connection COPY", "copy", TENTH, ROOFLINE, 0.45),
    Goal("idempotent copy, of the typical script", "copy", TENTH, SCRIPT, 2.5),
    Goal("first copy, of the two-connection COPY", "copy", FIRST, ROOFLINE, 0.55),
    Goal("first copy, of the typical script", "copy", FIRST, SCRIPT, 2.5),
    Goal("first copy, stretch", "copy", FIRST, ROOFLINE, 0.75),
    Goal("second copy over identical data, of the first", "copy", SECOND, FIRST, 1.0),
    Goal("verify, of the raw COPY out", "verify", EQUAL, RAW_SCAN, 0.30),
    Goal("verify with ten differences, of verify", "verify", UNEQUAL, EQUAL, 0.90),
    Goal("MongoDB get, of bare pymongo", "mongo", "get", "bare get", 0.80),
    Goal("MongoDB upsert, of bare pymongo", "mongo", "upsert", "bare upsert", 0.80),
    Goal("PostgreSQL get, of bare psycopg", "postgres", "get", "bare get", 0.80),
    Goal("PostgreSQL upsert, of bare psycopg", "postgres", "upsert", "bare upsert", 0.80),
    *claim_goals(),
)


def judge(measured: Mapping[str, Samples]) -> Iterator[GoalResult]:
    """Return every goal whose group was measured, with what it is compared with."""
    for goal in GOALS:
        samples = measured.get(goal.group)
        if samples is not None and {goal.case, goal.reference} <= samples.by_case.keys():
            yield GoalResult(goal.text, samples.ratio(goal.case, goal.reference).middle, goal.wanted)
    peaks = [samples.peak(case) for samples in measured.values() for case in samples.by_case]
    known = [peak for peak in peaks if peak is not None]
    if known:
        yield GoalResult("client memory, the largest peak", max(known), MEGABYTES, "MB")
