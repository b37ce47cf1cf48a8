"""Whether the probe of the test module sees what it is asked for: the other contracts believe it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from twinstore.scheduler.catalog import RUNS, SCHEDULES
from twinstore.scheduler.enums import RunState
from twinstore.testing.base import Contract
from twinstore.testing.builders import at, moved
from twinstore.testing.scheduler.examples import SCHEDULER_EXAMPLES

if TYPE_CHECKING:
    from twinstore.testing.bench import Bench

__all__ = ["ProbeContract"]


class ProbeContract(Contract):
    """Counts, stamps and changes past the repositories."""

    def test_the_probe_reads_counts_and_stamps_one_row_of_each_entity(self, bench: Bench) -> None:
        rows = SCHEDULER_EXAMPLES.store_each(bench.storage.unbound, bench.tenant, bench.id("a"))
        for entity, key in rows.keys:
            assert bench.probe.read(entity, key) is not None
            assert bench.count(entity) >= 1
            assert bench.elsewhere.count(entity) <= bench.count(entity) - 1
            assert bench.stamp(entity, key) == bench.stamp(entity, key)

    def test_the_probe_sees_nothing_where_nothing_is(self, bench: Bench) -> None:
        for example in SCHEDULER_EXAMPLES.examples:
            key = example.key(bench.tenant, example.small(bench.tenant, bench.id("absent")))
            assert bench.probe.read(example.entity, key) is None
            assert bench.probe.stamp(example.entity, key) is None

    def test_a_stamp_changes_with_a_write_and_with_nothing_else(self, bench: Bench) -> None:
        run = bench.storage.runs.create(bench.run())
        first = bench.stamp(RUNS, (run.id,))
        bench.storage.runs.create(bench.run("other"))
        assert bench.storage.runs.get(bench.tenant, run.id) == run
        assert bench.stamp(RUNS, (run.id,)) == first
        assert bench.storage.runs.update(moved(run, RunState.QUEUED))
        assert bench.stamp(RUNS, (run.id,)) != first

    def test_the_probe_alters_what_it_is_told_and_nothing_else(self, bench: Bench) -> None:
        schedule = bench.storage.schedules.upsert(bench.schedule())
        deletion = {"deletedAt": at(9), "deletedBy": "eve"}
        bench.probe.alter(
            SCHEDULES, (schedule.id,), {"enabled": False, "mode": "content-refresh", **deletion}
        )
        found = bench.storage.schedules.get(bench.tenant, schedule.id, include_deleted=True)
        assert found == schedule.evolve(enabled=False, mode="content-refresh")
        row = bench.probe.read(SCHEDULES, (schedule.id,))
        assert row is not None
        assert dict(row.markers) == deletion
