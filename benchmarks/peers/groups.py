"""Which ways of doing the work are compared, and with how many workers."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from statistics import quantiles
from typing import TYPE_CHECKING, Final

from benchmarks.databases import SOURCE
from benchmarks.peers.apscheduler_peer import apscheduler_stock
from benchmarks.peers.contender import FIRES, Endpoints, Kind, Work
from benchmarks.peers.procrastinate_peer import procrastinate_stock
from benchmarks.peers.servers import Meter
from benchmarks.peers.stock import Need, mongo_stock, postgres_stock
from benchmarks.peers.worker_pool import Order, WorkerPool
from benchmarks.schedule import Case, Group, Sample

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager

    from benchmarks.databases import BenchmarkDatabases
    from benchmarks.options import Options
    from benchmarks.peers.contender import Tally

    Refill = Callable[[Kind, int], None]
    Opened = Callable[[BenchmarkDatabases, Options], AbstractContextManager[Group]]

__all__ = ["BATCH", "PEER_GROUPS", "WORKERS"]

BATCH: Final = 100
WORKERS: Final = (1, 4, 16)
# So many times the number of single jobs wait for batches, which are over too soon otherwise.
QUEUES: Final = 5
ENDLESS: Final = 10**9
MISSING: Final = (
    "{} is not installed, so it is not measured; run: pip install --group bench (pip 25.1 or newer)\n"
)


@dataclass(frozen=True, slots=True)
class Entry:
    """One way of doing the work, in a group.

    Attributes:
        name: what the tables call it.
        work: what its workers do.
        amount: how many jobs or schedules are prepared, as a part of ``--operations``.
        against: the ways that it is divided by, where they are measured.
    """

    name: str
    work: Work
    amount: float = 1.0
    against: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Plan:
    """A group: its title, what it counts, and its ways, which take turns."""

    title: str
    unit: str
    entries: Sequence[Entry]


@dataclass(frozen=True, slots=True)
class Store:
    """A database: the name of the library's driver, and of the way without the library."""

    title: str
    driver: str
    bare: str
    has_peers: bool


POSTGRES: Final = Store("PostgreSQL", "Postgres", "bare PostgreSQL", has_peers=True)
MONGO: Final = Store("MongoDB", "Mongo", "bare MongoDB", has_peers=False)


def claims(store: Store) -> Plan:
    """Return claims of single jobs and of a hundred."""
    claim, many, queues = Kind.CLAIM, f"{BATCH}", float(QUEUES)
    # In every batch the single fetch of procrastinate is what a user of it has.
    ones, several = ("procrastinate, one", "apscheduler, one"), ("procrastinate, one", f"apscheduler, {many}")
    entries = [
        Entry("bare, one", Work(store.bare, claim)),
        Entry("lease, one", Work(store.driver, claim), against=("bare, one", *ones)),
        Entry(f"bare, {many}", Work(store.bare, claim, BATCH), queues),
        Entry(f"lease, {many}", Work(store.driver, claim, BATCH), queues, (f"bare, {many}", *several)),
    ]
    if store.has_peers:
        entries += [
            Entry("procrastinate, one", Work("procrastinate", claim)),
            Entry("apscheduler, one", Work("apscheduler", claim)),
            Entry(f"apscheduler, {many}", Work("apscheduler", claim, BATCH), queues),
        ]
    return Plan(f"Claims, {store.title}", "jobs", entries)


def lives(store: Store) -> Plan:
    """Return jobs that are enqueued, claimed and completed one by one, and processed while they wait."""
    life, process, many = Kind.LIFE, Kind.PROCESS, f"processed by {BATCH}"
    lived = ("bare, life", "procrastinate, life", "apscheduler, life")
    processed = (f"bare, {many}", "procrastinate, its worker", f"apscheduler, {many}")
    entries = [
        Entry("bare, life", Work(store.bare, life)),
        Entry("library, life", Work(store.driver, life), against=lived),
        Entry(f"bare, {many}", Work(store.bare, process, BATCH), 2),
        Entry(f"library, {many}", Work(store.driver, process, BATCH), 2, processed),
    ]
    if store.has_peers:
        entries += [
            Entry("procrastinate, life", Work("procrastinate", life)),
            Entry("apscheduler, life", Work("apscheduler", life)),
            Entry("procrastinate, its worker", Work("procrastinate", Kind.WORKER), 0.25),
            Entry(f"apscheduler, {many}", Work("apscheduler", process, BATCH), 0.25),
        ]
    return Plan(f"Lives of jobs, {store.title}", "jobs", entries)


def firing(store: Store) -> Plan:
    """Return due schedules: read in pages and fired one by one, all workers in one order or not."""
    fire, spread = Kind.FIRE, Kind.FIRE_SPREAD
    peers = ("procrastinate, periodic", "apscheduler, schedules")
    entries = [
        Entry("bare, in order", Work(store.bare, fire), 0.5),
        Entry("fire, in order", Work(store.driver, fire), 0.5, ("bare, in order", *peers)),
        Entry("bare, spread", Work(store.bare, spread), 0.5),
        Entry("fire, spread", Work(store.driver, spread), 0.5, ("bare, spread", *peers)),
    ]
    if store.has_peers:
        entries += [
            Entry("procrastinate, periodic", Work("procrastinate", fire), 0.5),
            Entry("apscheduler, schedules", Work("apscheduler", fire), 0.5),
        ]
    return Plan(f"Firing of due schedules, {store.title}", "firings", entries)


def locks(store: Store) -> Plan:
    """Return the comparison of the lock with a bare one, and with jobs that exclude each other."""
    lock, reconnect = Kind.LOCK, Kind.LOCK_RECONNECT
    opened, kept, jobs = "bare, own connection", "bare, connection kept", "procrastinate, jobs with one lock"
    if not store.has_peers:
        bare = "bare, findOneAndUpdate"
        entries = [
            Entry(bare, Work(store.bare, lock)),
            Entry("lock", Work(store.driver, lock), against=(bare,)),
        ]
    else:
        entries = [
            Entry(opened, Work(store.bare, reconnect)),
            Entry(kept, Work(store.bare, lock)),
            Entry("lock", Work(store.driver, lock), against=(opened, kept, jobs)),
            Entry(jobs, Work("procrastinate", lock)),
        ]
    return Plan(f"Locks, {store.title}", "locks", entries)


@dataclass(slots=True)
class Peers:
    """The workers and what they work on, for the groups of one database; kept open between its groups."""

    worker_pool: WorkerPool
    meter: Meter
    refills: dict[str, Refill] = field(default_factory=dict[str, "Refill"])

    def group(self, name: str, plan: Plan, options: Options) -> Group:
        """Return the cases of a plan: each way with each number of workers."""
        cases: list[Case] = []
        for workers in options.workers:
            entries = [entry for entry in plan.entries if entry.work.contender in self.refills]
            measured = {entry.name for entry in entries}
            cases += [self._case(entry, measured, workers, options) for entry in entries]
        return Group(name=name, title=plan.title, unit=plan.unit, cases=cases)

    def _case(self, entry: Entry, measured: set[str], workers: int, options: Options) -> Case:
        kind = entry.work.kind
        amount = amount_of(entry, options)
        refill = self.refills[entry.work.contender]
        order = Order(entry.work, options.seconds)
        endless = kind in {Kind.LIFE, Kind.LOCK, Kind.LOCK_RECONNECT}

        def run() -> Sample:
            before: list[float] = []
            left = ENDLESS if endless else amount
            tallies = self.worker_pool.run(
                order, workers, left, before=lambda: before.append(self.meter.read())
            )
            return joined(tallies, self.meter.read() - before[0])

        return Case(
            name=f"{entry.name}, {workers}",
            run=run,
            prepare=lambda: refill(kind, amount),
            against=tuple(f"{name}, {workers}" for name in entry.against if name in measured),
        )


def amount_of(entry: Entry, options: Options) -> int:
    """Return how many jobs or schedules are prepared: enough for every worker to find some."""
    return max(int(options.operations * entry.amount), 2 * max(options.workers))


def needed(plan: Plan, options: Options) -> Need:
    """Return what the tables are filled with."""

    def most(kinds: Collection[Kind]) -> int:
        return max(
            (amount_of(entry, options) for entry in plan.entries if entry.work.kind in kinds), default=0
        )

    return Need(jobs=most({Kind.CLAIM, Kind.PROCESS}), schedules=most(FIRES), locks=most({Kind.LOCK}))


def joined(tallies: Sequence[Tally], server: float) -> Sample:
    """Return what some workers have done together.

    The rates of the workers are added: the last of them may end long after the others.

    Raises:
        RuntimeError: they have done nothing.
    """
    units = sum(tally.units for tally in tallies)
    rate = sum(tally.units / tally.seconds for tally in tallies if tally.units)
    waits = sorted(wait for tally in tallies for wait in tally.waits)
    if not units:
        raise RuntimeError("no worker has found anything to do")
    parts = quantiles(waits, n=20) if len(waits) > 1 else waits * 19
    return Sample(
        units=units,
        seconds=units / rate,
        wait_seconds=parts[9],
        long_wait_seconds=parts[18],
        client_seconds=sum(tally.processor for tally in tallies),
        server_seconds=server,
    )


@contextmanager
def on_postgres(databases: BenchmarkDatabases, need: Need) -> Iterator[Peers]:
    """Open the workers for PostgreSQL, and fill the tables of all that is installed."""
    with WorkerPool(endpoints(databases)) as worker_pool:
        ours = postgres_stock(databases, need.jobs, need.schedules)
        peers = Peers(worker_pool, Meter.of_postgres(databases), {"bare PostgreSQL": ours, "Postgres": ours})
        for name, stock in (("procrastinate", procrastinate_stock), ("apscheduler", apscheduler_stock)):
            try:
                peers.refills[name] = stock(databases, need)
            except ImportError:
                sys.stderr.write(MISSING.format(name))
        yield peers


@contextmanager
def on_mongo(databases: BenchmarkDatabases, need: Need) -> Iterator[Peers]:
    """Open the workers for MongoDB, and fill collections apart from what other groups copy."""
    databases = databases.empty_source(f"{SOURCE}_peers")
    with WorkerPool(endpoints(databases)) as worker_pool:
        ours = mongo_stock(databases, need.jobs, need.schedules)
        yield Peers(worker_pool, Meter.of_mongo(databases), {"bare MongoDB": ours, "Mongo": ours})


def endpoints(databases: BenchmarkDatabases) -> Endpoints:
    """Return how workers reach the servers."""
    return Endpoints(
        mongo_url=databases.mongo_url,
        mongo_database=databases.runs().database.name,
        app_url=databases.app_url,
        superuser_url=databases.superuser_url,
        settings={driver: databases.settings(driver) for driver in ("Mongo", "Postgres")},
    )


PLANS: Final = {"claims": claims, "lives": lives, "firing": firing, "locks": locks}
STORES: Final = {"postgres": (POSTGRES, on_postgres), "mongo": (MONGO, on_mongo)}


def group_of(store: str, plan: str) -> Opened:
    """Return what opens one group."""
    (described, opened), planned = STORES[store], PLANS[plan]

    @contextmanager
    def group(databases: BenchmarkDatabases, options: Options) -> Iterator[Group]:
        entries = planned(described)
        with opened(databases, needed(entries, options)) as peers:
            yield peers.group(f"{store}-{plan}", entries, options)

    return group


PEER_GROUPS: Final = {f"{store}-{plan}": group_of(store, plan) for store in STORES for plan in PLANS}
