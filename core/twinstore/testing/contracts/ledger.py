"""What the ledger of copies promises: one worker at a time, and nothing forgotten."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import TYPE_CHECKING, Final

import pytest

from twinstore.bulk import JobState, KeyRange, RangeState
from twinstore.errors import LeaseLostError
from twinstore.scheduler.catalog import AUDIT, RUNS
from twinstore.storage import add_scheduler_memory_storage
from twinstore.testing.base import Contract, needs
from twinstore.testing.bench import outcomes, unique
from twinstore.testing.builders import at
from twinstore.testing.copying import HOUR, claimed, copied

if TYPE_CHECKING:
    from twinstore.bulk import Claim, Lease, Ledger
    from twinstore.testing.bench import Bench

__all__ = ["LedgerContract"]

SETTINGS: Final = {"module": "scheduler", "tenant": "*", "naïve": "\N{SNOWMAN}"}
RANGES: Final = [
    KeyRange(None, ("\uffff", "b")),
    KeyRange(("\uffff", "b"), ("\U00010000", "")),
    KeyRange(("\U00010000", ""), None),
]
PATIENCE_SECONDS: Final = 10


def started(bench: Bench) -> tuple[Ledger, str]:
    """Start a job of its own."""
    ledger = bench.storage.bulk.ledger()
    return ledger, ledger.start(unique("job"), SETTINGS, at()).id


def acquired_in_the_end(ledger: Ledger, job_id: str) -> Lease:
    """Acquire a lease as soon as the server lets it expire."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            return ledger.acquire(job_id, "second", HOUR)
        except LeaseLostError:
            assert time.monotonic() < deadline, "the lease never expired"


class LedgerContract(Contract, capability="bulk"):
    """Jobs, leases and ranges, kept in the target."""

    @needs("transactions")
    def test_a_job_is_started_once(self, bench: Bench) -> None:
        ledger = bench.storage.bulk.ledger()
        job_id = unique("job")
        assert ledger.find(job_id) is None
        assert list(ledger.ranges(job_id)) == []
        job = ledger.start(job_id, SETTINGS, at(0.001))
        assert (job.id, dict(job.settings), job.as_of) == (job_id, SETTINGS, at(0.001))
        assert (job.state, job.generation) == (JobState.RUNNING, 1)
        assert ledger.start(job_id, {"other": "settings"}, at(9)) == job
        with bench.storages(1) as (other,):
            assert other.bulk.ledger().find(job_id) == job
            assert job in list(other.bulk.ledger().jobs())

    @needs("transactions")
    def test_the_lease_belongs_to_one_holder_and_its_fence_grows(self, bench: Bench) -> None:
        ledger, job_id = started(bench)
        assert ledger.lease(job_id) is None
        first = ledger.acquire(job_id, "first", HOUR)
        assert ledger.lease(job_id) == first
        with pytest.raises(LeaseLostError) as refusal:
            ledger.acquire(job_id, "second", HOUR)
        assert refusal.value.key == "first"
        assert "first" in refusal.value.message
        ledger.release(first)
        assert ledger.lease(job_id) is None
        second = ledger.acquire(job_id, "second", HOUR)
        assert second.fence > first.fence
        ledger.release(first)
        assert ledger.lease(job_id) == second

    @needs("transactions")
    def test_the_lease_of_a_dead_holder_is_taken_at_once(self, bench: Bench) -> None:
        ledger, job_id = started(bench)
        first = ledger.acquire(job_id, "first", HOUR)
        with pytest.raises(LeaseLostError):
            ledger.acquire(job_id, "second", HOUR, dead="somebody else")
        second = ledger.acquire(job_id, "second", HOUR, dead="first")
        assert second.fence > first.fence
        with pytest.raises(LeaseLostError):
            ledger.renew(first, HOUR)

    @needs("transactions")
    def test_a_lease_is_extended_by_its_holder(self, bench: Bench) -> None:
        ledger, job_id = started(bench)
        lease = ledger.acquire(job_id, "first", timedelta(minutes=1))
        renewed = ledger.renew(lease, HOUR)
        assert (renewed.holder, renewed.fence) == (lease.holder, lease.fence)
        assert renewed.expires_at > lease.expires_at
        assert ledger.lease(job_id) == renewed

    @needs("transactions")
    def test_an_expired_lease_is_lost_and_free(self, bench: Bench) -> None:
        ledger, job_id = started(bench)
        first = ledger.acquire(job_id, "first", timedelta(milliseconds=1))
        second = acquired_in_the_end(ledger, job_id)
        assert second.fence > first.fence
        for act in (
            lambda: ledger.renew(first, HOUR),
            lambda: ledger.plan(first, RUNS.name, RANGES),
            lambda: ledger.complete(first),
        ):
            with pytest.raises(LeaseLostError):
                act()
        assert list(ledger.ranges(job_id)) == []

    @needs("transactions")
    def test_ranges_are_planned_once_and_kept_in_order(self, bench: Bench) -> None:
        ledger, job_id = started(bench)
        lease = ledger.acquire(job_id, "first", HOUR)
        ledger.plan(lease, RUNS.name, RANGES)
        ledger.plan(lease, AUDIT.name, RANGES[:1])
        ledger.plan(lease, RUNS.name, [KeyRange()])
        planned = list(ledger.ranges(job_id))
        assert [item.within for item in planned] == [*RANGES, RANGES[0]]
        assert [item.number for item in planned] == sorted({item.number for item in planned})
        assert {item.state for item in planned} == {RangeState.PENDING}
        assert [item.within for item in ledger.ranges(job_id, RUNS.name)] == RANGES
        assert list(ledger.ranges(job_id, "no-entity")) == []

    @needs("transactions")
    def test_a_claimed_range_is_copying_for_everybody(self, bench: Bench) -> None:
        ledger, job_id = started(bench)
        lease = ledger.acquire(job_id, "first", HOUR)
        ledger.plan(lease, RUNS.name, RANGES)
        number = [item.number for item in ledger.ranges(job_id)][1]
        claim = ledger.claim(lease, number)
        assert (claim.lease, claim.number, claim.entity) == (lease, number, RUNS.name)
        assert claim.within == RANGES[1]
        with bench.storages(1) as (other,):
            states = [item.state for item in other.bulk.ledger().ranges(job_id)]
        assert states == [RangeState.PENDING, RangeState.COPYING, RangeState.PENDING]

    @needs("transactions")
    def test_a_stolen_lease_claims_nothing(self, bench: Bench) -> None:
        ledger, job_id = started(bench)
        lease = ledger.acquire(job_id, "first", HOUR)
        ledger.plan(lease, RUNS.name, RANGES)
        ledger.acquire(job_id, "second", HOUR, dead="first")
        number = next(ledger.ranges(job_id)).number
        with pytest.raises(LeaseLostError):
            ledger.claim(lease, number)
        assert {item.state for item in ledger.ranges(job_id)} == {RangeState.PENDING}

    @needs("transactions")
    def test_an_imported_range_is_live_with_its_tally_and_can_be_opened_again(self, bench: Bench) -> None:
        ledger = bench.storage.bulk.ledger()
        with add_scheduler_memory_storage({}) as memory:
            memory.audit.append(bench.record("a"))
            claims: list[Claim] = []
            copied(memory, bench.storage, AUDIT, bench.tenant, during=lambda _, claim: claims.append(claim))
        job_id = claims[0].lease.job_id
        (live,) = ledger.ranges(job_id)
        assert live.state is RangeState.LIVE
        assert live.tally is not None
        assert (dict(live.tally.read), dict(live.tally.written)) == ({bench.tenant: 1}, {bench.tenant: 1})
        assert (dict(live.tally.unchanged), dict(live.tally.conflicts)) == ({}, {})
        assert live.finished_at is not None
        ledger.claim(claims[0].lease, live.number)
        assert [item.state for item in ledger.ranges(job_id)] == [RangeState.COPYING]

    @needs("transactions")
    def test_a_complete_job_begins_a_new_generation(self, bench: Bench) -> None:
        ledger = bench.storage.bulk.ledger()
        claim = claimed(ledger, RUNS)
        ledger.complete(claim.lease)
        job = ledger.find(claim.lease.job_id)
        assert job is not None
        assert job.state is JobState.COMPLETE
        following = ledger.start(job.id, SETTINGS, at(9))
        assert (following.state, following.generation) == (JobState.RUNNING, job.generation + 1)
        assert (following.as_of, dict(following.settings)) == (at(9), SETTINGS)
        assert list(ledger.ranges(job.id)) == []

    @needs("transactions")
    def test_of_rivals_for_a_lease_exactly_one_wins(self, bench: Bench) -> None:
        _, job_id = started(bench)
        results = bench.race(
            lambda storage, holder: storage.bulk.ledger().acquire(job_id, holder, HOUR), "abcdef"
        )
        assert outcomes(results) == {"LeaseLostError": 5, "ok": 1}

    @needs("transactions")
    def test_rivals_starting_a_job_start_the_same(self, bench: Bench) -> None:
        job_id = unique("job")
        results = bench.race(
            lambda storage, second: storage.bulk.ledger().start(job_id, SETTINGS, at(second)), range(6)
        )
        assert outcomes(results) == {"ok": 6}
        assert results == [bench.storage.bulk.ledger().find(job_id)] * 6
