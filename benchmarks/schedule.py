"""Cases that alternate, round by round, and what their samples amount to."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf
from statistics import median, quantiles
from time import monotonic
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

__all__ = ["Case", "Group", "Sample", "Samples", "Spread", "measure"]

MEGABYTE: Final = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One measurement.

    Attributes:
        units: documents or operations.
        seconds: the time they took, without the start of a process.
        whole_seconds: the time including the start of the process, for candidates.
        peak_bytes: largest sum of the proportional memory of the process and its children, for candidates.
        wait_seconds, long_wait_seconds: how long a unit was waited for, the median and what one in twenty
            exceeds, where units are waited for.
        client_seconds, server_seconds: processor time of all workers and of the servers, where it was read.
        mongo_seconds: the part of ``server_seconds`` that mongod used, where both servers were used.
        fast: the part of the rows that native code moved or compared, 0 to 1.
        watch_seconds: processor time that the watcher of the memory took from the same cores.
    """

    units: int
    seconds: float
    whole_seconds: float | None = None
    peak_bytes: int | None = None
    wait_seconds: float | None = None
    long_wait_seconds: float | None = None
    client_seconds: float | None = None
    server_seconds: float | None = None
    mongo_seconds: float | None = None
    fast: float | None = None
    watch_seconds: float | None = None

    @property
    def rate(self) -> float:
        """Units per second."""
        return self.units / self.seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """Something to measure.

    Attributes:
        against: names of the cases that this one is divided by.
        prepare: brings the stores into the state that the case expects; not measured.
    """

    name: str
    run: Callable[[], Sample]
    against: tuple[str, ...] = ()
    prepare: Callable[[], object] = lambda: None


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Cases that alternate.

    Attributes:
        unit: what is counted: documents or operations.
        slices: how often the cases take turns within one round; short cases need more than one.
        facts: what else belongs to the results, by its name.
        lines: the tables of the results as Markdown, where those that every group has do not suit.
    """

    name: str
    title: str
    unit: str
    cases: Sequence[Case]
    slices: int = 1
    facts: Mapping[str, float] = field(default_factory=dict[str, float])
    lines: Callable[[Samples], Iterable[str]] | None = None


@dataclass(frozen=True, slots=True)
class Spread:
    """The middle and the ends of some values, and the ends of their middle half."""

    middle: float
    least: float
    most: float
    lower: float
    upper: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        """Return the spread of at least one value."""
        ordered = sorted(values)
        lower, _, upper = quantiles(ordered, n=4, method="inclusive") if len(ordered) > 1 else 3 * ordered
        return cls(median(ordered), ordered[0], ordered[-1], lower, upper)

    def document(self) -> dict[str, float]:
        """Return the spread for the results file."""
        ends = {"min": self.least, "max": self.most}
        return {"median": self.middle, **ends, "lower_quartile": self.lower, "upper_quartile": self.upper}


@dataclass(slots=True)
class Samples:
    """The samples of the cases of a group; those with the same position belong to one round."""

    by_case: dict[str, list[Sample]] = field(default_factory=dict[str, list[Sample]])

    def add(self, case: str, sample: Sample) -> None:
        """Remember one sample."""
        self.by_case.setdefault(case, []).append(sample)

    def rate(self, case: str) -> Spread:
        """Return the units per second of a case."""
        return Spread.of([sample.rate for sample in self.by_case[case]])

    def ratio(self, case: str, reference: str) -> Spread:
        """Return the rate of a case as a part of another's, divided round by round."""
        pairs = zip(self.by_case[case], self.by_case[reference], strict=True)
        return Spread.of([sample.rate / other.rate for sample, other in pairs])

    def whole_ratio(self, case: str, reference: str) -> Spread | None:
        """Return :meth:`ratio` with the start of both processes, ``None`` where one has none."""
        return self.cost_ratio(reference, case, lambda sample: sample.whole_seconds)

    def time_ratio(self, case: str, reference: str) -> Spread:
        """Return how many times as long a case takes for a unit as another one, divided round by round."""
        pairs = zip(self.by_case[case], self.by_case[reference], strict=True)
        return Spread.of([other.rate / sample.rate for sample, other in pairs])

    def server_ratio(self, case: str, reference: str) -> Spread | None:
        """Return :meth:`cost_ratio` of the processor time of the servers."""
        return self.cost_ratio(case, reference, lambda sample: sample.server_seconds)

    def cost_ratio(self, case: str, reference: str, cost: Callable[[Sample], float | None]) -> Spread | None:
        """Return how many times as much a unit costs in a case as in another, divided round by round.

        It is ``None`` where one of them has no cost.
        """
        known = [
            (ours / sample.units) / (theirs / other.units)
            for sample, other in zip(self.by_case[case], self.by_case[reference], strict=True)
            if (ours := cost(sample)) and (theirs := cost(other))
        ]
        return Spread.of(known) if known else None

    def waits(self, case: str) -> tuple[float, float] | None:
        """Return the medians of both waiting times of a case, in milliseconds."""
        found = [
            (1000 * sample.wait_seconds, 1000 * sample.long_wait_seconds)
            for sample in self.by_case[case]
            if sample.wait_seconds is not None and sample.long_wait_seconds is not None
        ]
        return (median(wait for wait, _ in found), median(long for _, long in found)) if found else None

    def middle(self, case: str, value: Callable[[Sample], float | None]) -> float | None:
        """Return the median of a value of the samples of a case, ``None`` where none has it."""
        found = [known for known in map(value, self.by_case[case]) if known is not None]
        return median(found) if found else None

    def processor(self, case: str) -> tuple[float, float] | None:
        """Return the medians of the processor time of client and server per unit, in microseconds."""
        found = [
            (1e6 * sample.client_seconds / sample.units, 1e6 * sample.server_seconds / sample.units)
            for sample in self.by_case[case]
            if sample.client_seconds is not None and sample.server_seconds is not None
        ]
        if not found:
            return None
        return median(client for client, _ in found), median(server for _, server in found)

    def peak(self, case: str) -> float | None:
        """Return the largest peak memory of a case in megabytes (10^6 bytes)."""
        peaks = [sample.peak_bytes for sample in self.by_case[case] if sample.peak_bytes is not None]
        return max(peaks) / MEGABYTE if peaks else None

    def watched(self, case: str) -> float | None:
        """Return the part of a core that the watcher of the memory took, the largest of all rounds."""
        parts = [
            sample.watch_seconds / sample.whole_seconds
            for sample in self.by_case[case]
            if sample.watch_seconds is not None and sample.whole_seconds
        ]
        return max(parts, default=None)

    def whole_rate(self, case: str) -> Spread | None:
        """Return the units per second of a case with the start of its process."""
        whole = [sample.units / sample.whole_seconds for sample in self.by_case[case] if sample.whole_seconds]
        return Spread.of(whole) if whole else None


def measure(group: Group, runs: int, log: Callable[[str], None], seconds: float = inf) -> Samples:
    """Run every case once per round, one after the other, so that noise meets all of them alike.

    After ``seconds`` no further round is begun, and none that would last beyond them as the first one did.
    """
    samples = Samples()
    began = monotonic()
    first = 0.0
    for number in range(1, runs + 1):
        if monotonic() - began + first > seconds:
            log(f"{group.name}: its time is over after {number - 1} of {runs} rounds")
            break
        for case, sample in _round(group).items():
            samples.add(case, sample)
            digits = 0 if sample.rate >= 10 else 2
            log(f"{group.name} {number}/{runs}  {case}: {sample.rate:,.{digits}f} {group.unit}/s")
        first = first or monotonic() - began
    return samples


def _round(group: Group) -> dict[str, Sample]:
    parts: dict[str, list[Sample]] = {case.name: [] for case in group.cases}
    for _ in range(group.slices):
        for case in group.cases:
            case.prepare()
            parts[case.name].append(case.run())
    return {case: _together(samples) for case, samples in parts.items()}


def _together(parts: Sequence[Sample]) -> Sample:
    if len(parts) == 1:
        return parts[0]
    return Sample(units=sum(part.units for part in parts), seconds=sum(part.seconds for part in parts))
