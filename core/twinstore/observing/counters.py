"""The bundled observer: five metrics in the memory of the process, to be scraped or printed."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from typing import TYPE_CHECKING, Final

from typing_extensions import override

from twinstore.observing.observer import Ending, Observer
from twinstore.runtime.forks import ForkSafeLock, Renewable, renew_in_child

if TYPE_CHECKING:
    from collections.abc import Mapping

    from twinstore.observing.observer import Call, CallOutcome, LockWait, Operation, SystemScopeOpening

# From half a millisecond, about what one round trip to a server nearby takes, in steps of 2 to 2.5, so that
# no quantile is off by more than that factor. `transact` gives up after 10 s and a statement by default after
# 30 s: what is slower than that is not worth a bucket.
OPERATION_BUCKETS: Final = (
    0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0,
)  # fmt: skip
# One who waits asks after 10 ms, doubling to 250 ms, so finer steps would show the pauses of the library.
# Up to five minutes, because a caller may wait for that long and longer.
LOCK_WAIT_BUCKETS: Final = (
    0.001,
    0.005,
    0.01,
    0.025,
    0.05,
    0.1,
    0.25,
    0.5,
    1.0,
    2.5,
    5.0,
    10.0,
    30.0,
    60.0,
    300.0,
)


@dataclass(frozen=True, slots=True)
class Metric:
    """What a metric is called and means.

    Attributes:
        name: its name in Prometheus and OpenTelemetry.
        help: one sentence.
        labels: the names of its labels in the order of the keys of a :class:`Snapshot`.
        buckets: the upper bounds of a histogram in seconds; ``None`` for a counter.
    """

    name: str
    help: str
    labels: tuple[str, ...]
    buckets: tuple[float, ...] | None = None


METRICS: Final = (
    Metric(
        "twinstore_operations_total",
        "Calls that have ended, by how they ended.",
        ("module", "entity", "operation", "driver", "outcome"),
    ),
    Metric(
        "twinstore_operation_seconds",
        "How long calls took, however they ended.",
        # Without the outcome, which would make a histogram of each error that ever occurred.
        ("module", "entity", "operation", "driver"),
        OPERATION_BUCKETS,
    ),
    Metric(
        "twinstore_lock_wait_seconds",
        "How long callers waited until they had a lock or gave up.",
        ("module", "entity", "driver"),
        LOCK_WAIT_BUCKETS,
    ),
    Metric(
        "twinstore_lock_contention_total",
        "Attempts to acquire a lock that another owner held at first.",
        ("module", "entity", "driver"),
    ),
    Metric(
        "twinstore_system_scope_total",
        "Openings of system scope, in which all tenants are seen.",
        ("module", "driver", "purpose"),
    ),
)


@dataclass(frozen=True, slots=True)
class Distribution:
    """A histogram at one moment.

    Attributes:
        buckets: how many values were at most each of the bounds, from the smallest bound on.
        count: how many values there were.
        total: their sum in seconds.
    """

    buckets: tuple[int, ...]
    count: int
    total: float


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All numbers at one moment, by the values of the labels as :data:`METRICS` orders them."""

    operations: Mapping[tuple[str, ...], int]
    operation_seconds: Mapping[tuple[str, ...], Distribution]
    lock_wait_seconds: Mapping[tuple[str, ...], Distribution]
    lock_contention: Mapping[tuple[str, ...], int]
    system_scope: Mapping[tuple[str, ...], int]


class Histogram:
    """Values in buckets. Used by one thread at a time."""

    __slots__ = ("_bounds", "_counts", "_total")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        """Take the upper bounds; one more bucket is for what is above them."""
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self._total = 0.0

    def add(self, seconds: float) -> None:
        """Count a value."""
        self._counts[bisect_left(self._bounds, seconds)] += 1
        self._total += seconds

    def distribution(self) -> Distribution:
        """Return what was counted."""
        *upto, count = accumulate(self._counts)
        return Distribution(tuple(upto), count, self._total)


class OperationNumbers:
    """The numbers of one operation. Used by one thread at a time."""

    __slots__ = ("outcomes", "seconds")

    def __init__(self) -> None:
        """Start with nothing."""
        self.outcomes: Counter[CallOutcome] = Counter()
        self.seconds = Histogram(OPERATION_BUCKETS)


class Counters(Observer, Renewable):
    """Counts what one or more storages do. Thread-safe.

    A number appears with the first event it counts, and only grows. A forked child begins at nothing, because
    the parent goes on to show what it has counted.
    """

    def __init__(self) -> None:
        """Start with nothing."""
        self._lock = ForkSafeLock()
        self.renew()
        renew_in_child(self)

    @override
    def renew(self) -> None:
        """Begin again at nothing, as in a forked child."""
        self._operations: dict[Operation, OperationNumbers] = {}
        self._endings: dict[Operation, Ending] = {}
        self._waits: dict[tuple[str, ...], Histogram] = {}
        self._contention: Counter[tuple[str, ...]] = Counter()
        self._openings: Counter[tuple[str, ...]] = Counter()

    @override
    def started(self, operation: Operation) -> Ending:
        return self._endings.get(operation) or self._ending(operation)

    @override
    def lock_waited(self, wait: LockWait) -> None:
        labels = (wait.module, wait.entity, wait.driver)
        with self._lock:
            if labels not in self._waits:
                self._waits[labels] = Histogram(LOCK_WAIT_BUCKETS)
            self._waits[labels].add(wait.seconds)
            self._contention[labels] += wait.contended

    @override
    def system_scope_opened(self, opening: SystemScopeOpening) -> None:
        with self._lock:
            self._openings[opening.module, opening.driver, opening.purpose] += 1

    def snapshot(self) -> Snapshot:
        """Return all numbers of one moment."""
        with self._lock:
            return Snapshot(
                operations={
                    (*operation, outcome.value): count
                    for operation, numbers in self._operations.items()
                    for outcome, count in numbers.outcomes.items()
                },
                operation_seconds={
                    tuple(operation): numbers.seconds.distribution()
                    for operation, numbers in self._operations.items()
                },
                lock_wait_seconds={labels: waits.distribution() for labels, waits in self._waits.items()},
                lock_contention=dict(self._contention),
                system_scope=dict(self._openings),
            )

    def _ending(self, operation: Operation) -> Ending:
        """Return what counts the calls to an operation; it is looked up once and not at every end."""
        with self._lock:
            if operation not in self._endings:
                self._endings[operation] = partial(self._count, operation)
            return self._endings[operation]

    def _count(self, operation: Operation, call: Call) -> None:
        with self._lock:
            numbers = self._operations.get(operation)
            # Here and not at the beginning: what has not ended yet has no number.
            if numbers is None:
                numbers = self._operations[operation] = OperationNumbers()
            numbers.outcomes[call.outcome] += 1
            numbers.seconds.add(call.seconds)
