"""How often a copy waits for a server: each round trip of a range is paid for by every range."""

from __future__ import annotations

import time
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import TYPE_CHECKING, Any, Final

import pytest

from tests.support.copies import Pair, open_store, server_settings
from tests.support.proxies import CountingProxy, through_proxy
from twinstore.bulk.port import Record
from twinstore.catalog.tenancy import Tenant
from twinstore.config import load_settings
from twinstore.ledger.ledger import RangeLedger
from twinstore.scheduler.catalog import AUDIT
from twinstore.testing.instants import at
from twinstore.testing.scheduler.builders import make_audit_record
from twinstore_backfill.outcome import Exit

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.databases import MongoDatabase, PostgresDatabase

RANGE: Final = 100
# PostgreSQL as a target: two for a claim, one for what is stored, two for COPY, one to insert, one to lock
# the range, one for its end and the commit. MongoDB: two for a claim, one for what is stored, one to insert,
# two for the end of the range, one for the commit.
EXPECTED: Final = {
    "mongo to postgres": {"mongo": 2, "postgres": 8},
    "postgres to mongo": {"postgres": 3, "mongo": 7},
}
MOST: Final = 10
LATENCY: Final = 0.3
SLOTS: Final = 32
OF_A_SLOT: Final = 12
LEAST_GAIN: Final = 24


@dataclass(frozen=True, slots=True)
class DistantPair(Pair):
    """A source and a target behind proxies."""

    proxies: dict[str, CountingProxy]

    def copy_ranges(self, tenant: str, *, jobs: int = 1) -> None:
        """Copy the rows of a tenant in ranges of :data:`RANGE` rows."""
        found = self.copy(entities=("audit",), tenants=(tenant,), range_size=RANGE, jobs=jobs)
        assert found.exit is Exit.OK

    def be_distant(self, seconds: float) -> None:
        """Let each round trip take longer."""
        for proxy in self.proxies.values():
            proxy.latency = seconds


Databases = dict[str, "MongoDatabase | PostgresDatabase"]


@pytest.fixture
def databases(mongo_database: MongoDatabase, postgres_database: PostgresDatabase) -> Databases:
    return {"mongo": mongo_database, "postgres": postgres_database}


@contextmanager
def opened(
    databases: Databases, direction: str, ranges: dict[str, int], directory: Path
) -> Iterator[DistantPair]:
    """Fill the source with some ranges of each tenant, and open both sides behind proxies."""
    source, target = direction.split(" to ")
    near = load_settings(server_settings(databases[source]), environ={})
    with open_store("scheduler", source, near) as store, store.bulk.writer(AUDIT) as writer:
        for tenant, number in ranges.items():
            for start in range(0, number * RANGE, 1000):
                numbers = range(start, min(start + 1000, number * RANGE))
                models = [make_audit_record(tenant, f"{tenant}-{n:06}", occurred_at=at(n)) for n in numbers]
                writer.write([Record((model.id,), Tenant(tenant), model) for model in models])
        writer.flush()
        writer.commit()
    with ExitStack() as stack:
        over = {name: through_proxy(server_settings(database)) for name, database in databases.items()}
        proxies = {name: stack.enter_context(proxy) for name, (proxy, _) in over.items()}
        left, right = (
            stack.enter_context(open_store("scheduler", name, load_settings(over[name][1], environ={})))
            for name in (source, target)
        )
        yield DistantPair(left, right, directory, proxies)


@pytest.mark.parametrize("direction", EXPECTED)
def test_a_range_takes_few_round_trips(
    databases: Databases, direction: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts: list[dict[str, int]] = []
    with opened(databases, direction, {"acme": 8}, tmp_path) as pair:
        finish = RangeLedger.finish

        def counted(self: RangeLedger, *arguments: Any) -> None:  # noqa: ANN401  # as it is
            counts.append({name: proxy.round_trips for name, proxy in pair.proxies.items()})
            finish(self, *arguments)

        monkeypatch.setattr(RangeLedger, "finish", counted)
        pair.copy_ranges("acme")
    # Once a second a copy also asks whether it is to go on.
    found = {
        name: median(after[name] - before[name] for before, after in pairwise(counts))
        for name in EXPECTED[direction]
    }
    assert found == EXPECTED[direction]
    assert sum(found.values()) <= MOST


@pytest.mark.long
@pytest.mark.parametrize("direction", EXPECTED)
def test_slots_wait_for_distant_servers_at_the_same_time(
    databases: Databases, direction: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seconds: dict[int, float] = {}
    ranges = {slots: slots * OF_A_SLOT for slots in (1, SLOTS)}
    with opened(databases, direction, {f"for-{slots}": ranges[slots] for slots in ranges}, tmp_path) as pair:
        take = RangeLedger.take_pending
        began: list[float] = []

        def taken(self: RangeLedger, *arguments: Any) -> Any:  # noqa: ANN401  # as it is
            pair.be_distant(LATENCY)
            began.append(time.monotonic())
            return take(self, *arguments)

        monkeypatch.setattr(RangeLedger, "take_pending", taken)
        for slots in ranges:
            began.clear()
            pair.copy_ranges(f"for-{slots}", jobs=slots)
            seconds[slots] = time.monotonic() - began[0]
            pair.be_distant(0)
    assert SLOTS * seconds[1] / seconds[SLOTS] >= LEAST_GAIN, seconds
