"""Single operations: the calls to the repositories, and how many per second."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import count, islice
from time import perf_counter
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

from benchmarks.schedule import Case, Group, Sample
from twinstore.scheduler import (
    ImpactImage,
    ImpactSet,
    Run,
    RunSnapshot,
    RunState,
    RunStats,
    RunSummary,
    RunTrigger,
    Schedule,
    Selector,
    SelectorScope,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from twinstore.scheduler.storage import SchedulerStorage

__all__ = ["TENANT", "BareDriver", "single_operations"]

T = TypeVar("T")

TENANT: Final = "tenant-1"
NOW: Final = datetime.now(UTC).replace(microsecond=0)
KEYS: Final = 100
CYCLE: Final = 2 * KEYS
SLICES: Final = 10


class BareDriver(Protocol):
    """The calls of a driver library that do the same as the repositories, the tenant set the same way.

    ``learn`` methods read the rows that the repository has stored, so that both write the same.
    """

    def get_run(self, run_id: str) -> object:
        """Read one run by tenant and id."""
        ...

    def learn_snapshot(self, snapshot_id: str) -> Callable[[], object]:
        """Return a call that stores what the snapshot is at present."""
        ...

    def learn_summary(self, schedule_id: str) -> Callable[[], object]:
        """Return a call that stores what the summary is at present."""
        ...

    def learn_run(self, run_id: str) -> tuple[Callable[[str], object], Callable[[str], object]]:
        """Return calls that insert such a run under an id, and that replace it if it did not change."""
        ...


@dataclass(slots=True)
class RepeatedOperation:
    """Runs an operation repeatedly; each call continues where the last one stopped."""

    operations: int
    _numbers: Iterator[int] = field(default_factory=count)

    def time(self, operation: Callable[[int], object]) -> Sample:
        """Return how fast the operation is."""
        numbers = list(islice(self._numbers, self.operations))
        began = perf_counter()
        for number in numbers:
            operation(number)
        return Sample(units=self.operations, seconds=perf_counter() - began)


def snapshot(key: str, version: int) -> ImpactSet:
    """Return one of two versions of a snapshot of about 700 bytes."""
    images = tuple(
        ImpactImage(
            image_digest=f"sha256:{image:064x}",
            registry="registry.example",
            repository=f"apps/service-{image}",
            namespaces=("checkout",),
            tags=("prod", f"v{version}"),
            labels={"team": "core"},
        )
        for image in range(2)
    )
    selector = Selector(scope=SelectorScope.BY_NAMESPACE, namespaces=("checkout",))
    return ImpactSet(selector=selector, images=images, generated_at=NOW, total=2 + version, snapshot_id=key)


def summary(key: str, version: int) -> RunSummary:
    """Return one of two versions of a run summary with three runs."""
    window = [
        RunSnapshot(
            run_id=f"run-{run}-of-{key}",
            trigger=RunTrigger.CRON,
            state=RunState.QUEUED,
            created_at=NOW + timedelta(seconds=run),
            stats=RunStats(candidates=40, queued=20),
        )
        for run in range(3)
    ]
    return RunSummary.of(TENANT, key, window, NOW + timedelta(seconds=version))


def run(run_id: str, candidates: int = 0) -> Run:
    """Return a new run."""
    stats = RunStats(candidates=candidates)
    return Run(
        id=run_id,
        tenant_id=TENANT,
        schedule_id="bench",
        trigger=RunTrigger.CRON,
        state=RunState.QUEUED,
        stats=stats,
        created_at=NOW,
    )


def schedule(key: str, version: int) -> Schedule:
    """Return one of two versions of a schedule."""
    return Schedule(
        id=key,
        tenant_id=TENANT,
        name=f"{key} v{version}",
        when_cron="0 3 * * *",
        selection=Selector(scope=SelectorScope.ALL_IMAGES),
        created_at=NOW,
        created_by="bench",
    )


def _both_versions(make: Callable[[int, int], T]) -> list[T]:
    """Return the first version for every key, then the second: taken in turn, each differs from the last."""
    return [make(key, version) for version in (0, 1) for key in range(KEYS)]


class SingleOperations:
    """Every operation twice: through the repositories and through the bare driver."""

    def __init__(self, storage: SchedulerStorage, bare: BareDriver, run_ids: list[str]) -> None:
        """Store what the operations need."""
        self._storage, self._bare = storage, bare
        self._run_ids = run_ids
        self._snapshots = _both_versions(lambda key, version: snapshot(f"ours-{key}", version))
        self._summaries = _both_versions(lambda key, version: summary(f"ours-{key}", version))
        self._schedules = _both_versions(lambda key, version: schedule(f"ours-{key}", version))
        self._bare_snapshots = _both_versions(
            lambda key, version: self._learn_snapshot(f"bare-{key}", version)
        )
        self._bare_summaries = _both_versions(
            lambda key, version: self._learn_summary(f"bare-{key}", version)
        )
        storage.runs.create(run("bench-origin"))
        self._bare_insert, self._bare_replace = bare.learn_run("bench-origin")
        self._new, self._bare_new = count(), count()
        self._counts: Counter[int] = Counter()
        for number in range(KEYS):
            storage.runs.create(run(f"bench-update-{number}"))
            self._bare_insert(f"bench-replace-{number}")

    def _learn_snapshot(self, key: str, version: int) -> Callable[[], object]:
        self._storage.impact_snapshots.upsert(TENANT, snapshot(key, version))
        return self._bare.learn_snapshot(key)

    def _learn_summary(self, key: str, version: int) -> Callable[[], object]:
        self._storage.run_summaries.upsert(summary(key, version))
        return self._bare.learn_summary(key)

    def get(self, number: int) -> object:
        """Read a run."""
        return self._storage.runs.get(TENANT, self._run_ids[number % len(self._run_ids)])

    def bare_get(self, number: int) -> object:
        """Read a run without the library."""
        return self._bare.get_run(self._run_ids[number % len(self._run_ids)])

    def upsert(self, number: int) -> object:
        """Replace a snapshot by its other version."""
        item = self._snapshots[number % CYCLE]
        return self._storage.impact_snapshots.upsert(TENANT, item)

    def bare_upsert(self, number: int) -> object:
        """Replace a snapshot without the library."""
        return self._bare_snapshots[number % CYCLE]()

    def upsert_summary(self, number: int) -> object:
        """Replace a run summary by its other version."""
        return self._storage.run_summaries.upsert(self._summaries[number % CYCLE])

    def bare_upsert_summary(self, number: int) -> object:
        """Replace a run summary without the library."""
        return self._bare_summaries[number % CYCLE]()

    def create(self, _number: int) -> object:
        """Insert a run."""
        return self._storage.runs.create(run(f"bench-created-{next(self._new)}"))

    def bare_create(self, _number: int) -> object:
        """Insert a run without the library."""
        return self._bare_insert(f"bench-inserted-{next(self._bare_new)}")

    def update(self, number: int) -> object:
        """Check a move against the stored run and write it."""
        chosen = number % KEYS
        self._counts[chosen] += 1
        return self._storage.runs.update(run(f"bench-update-{chosen}", self._counts[chosen]))

    def bare_update(self, number: int) -> object:
        """Read a run and replace it unless it changed, without the library."""
        return self._bare_replace(f"bench-replace-{number % KEYS}")

    def upsert_schedule(self, number: int) -> object:
        """Replace a schedule and its trigger."""
        return self._storage.schedules.upsert(self._schedules[number % CYCLE])


def single_operations(name: str, title: str, repertoire: SingleOperations, operations: int) -> Group:
    """Return the operations of one driver, each with its bare twin."""
    pairs = (
        ("get", repertoire.get, repertoire.bare_get),
        ("upsert", repertoire.upsert, repertoire.bare_upsert),
        ("upsert summary", repertoire.upsert_summary, repertoire.bare_upsert_summary),
        ("create run", repertoire.create, repertoire.bare_create),
        ("update run", repertoire.update, repertoire.bare_update),
    )
    share = max(operations // SLICES, 1)
    cases: list[Case] = []
    for what, ours, bare in pairs:
        cases += [_case(f"bare {what}", bare, share), _case(what, ours, share, against=(f"bare {what}",))]
    cases.append(_case("upsert schedule and trigger", repertoire.upsert_schedule, share))
    return Group(name=name, title=title, unit="operations", cases=cases, slices=SLICES)


def _case(
    name: str, operation: Callable[[int], object], operations: int, against: tuple[str, ...] = ()
) -> Case:
    operation_loop = RepeatedOperation(operations)
    return Case(name=name, run=lambda: operation_loop.time(operation), against=against)
