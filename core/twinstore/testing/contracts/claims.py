"""What the ledger promises about ranges: who copies which, and that nobody else commits it."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Final

import pytest

from twinstore.errors import LeaseLostError, NotFoundError
from twinstore.ledger import RangeState, RangeTally
from twinstore.ledger.ledger import MAX_ATTEMPTS, MAX_DEATHS
from twinstore.testing.base import CopyContract, needs, of_tenants
from twinstore.testing.copying import (
    HOUR,
    TALLY,
    claimed,
    finished,
    held,
    in_the_end,
    ledger_of,
    ranges_at,
    started,
    states,
    take_over,
    taken,
)
from twinstore.testing.workspace import outcomes, unique

if TYPE_CHECKING:
    from twinstore.testing.workspace import Workspace

__all__ = ["RangeClaimContract"]

BUSY_COMMITS: Final = 8


class RangeClaimContract(CopyContract, capability="bulk_target"):
    """Workers that share a job: each range is copied by one of them, and committed once."""

    @of_tenants
    @needs("transactions")
    def test_ranges_are_taken_in_order_and_each_once(self, workspace: Workspace) -> None:
        ledger = ledger_of(workspace.storage)
        ranges = ranges_at("ab")
        job_id = started(ledger, self.entity, ranges).job_id
        claims = [
            ledger.take(job_id, worker, self.entity.name, HOUR) for worker in ("one", "two", "one", "two")
        ]
        assert [claim.within for claim in claims if claim] == ranges
        assert claims[3] is None
        assert ledger.take(job_id, "one", "another_entity", HOUR) is None
        assert ledger.counts(job_id) == {"copying": 3}

    @of_tenants
    @needs("transactions")
    def test_rivals_take_different_ranges(self, workspace: Workspace) -> None:
        ledger = ledger_of(workspace.storage)
        job_id = started(ledger, self.entity, ranges_at("abcde")).job_id
        results = workspace.race(
            lambda storage, worker: taken(ledger_of(storage), job_id, self.entity.name, worker=worker),
            "abcdef",
        )
        assert outcomes(results) == {"ok": 6}
        assert ledger.counts(job_id) == {"copying": 6}

    @of_tenants
    @needs("transactions")
    def test_there_is_nothing_to_take_from_an_unknown_job(self, workspace: Workspace) -> None:
        ledger = ledger_of(workspace.storage)
        with pytest.raises(NotFoundError):
            ledger.take(unique("job"), "worker", self.entity.name, HOUR)
        job_id = started(ledger, self.entity).job_id
        with pytest.raises(NotFoundError):
            ledger.claim(job_id, "worker", 99)

    @of_tenants
    @needs("transactions")
    def test_the_ranges_of_a_dead_worker_are_taken_last(self, workspace: Workspace) -> None:
        ledger = ledger_of(workspace.storage)
        ranges = ranges_at("a")
        job_id = started(ledger, self.entity, ranges).job_id
        first = taken(ledger, job_id, self.entity.name, worker="dies")
        ledger.leave(job_id, "dies")
        second, third = (taken(ledger, job_id, self.entity.name, worker="lives") for _ in range(2))
        assert (second.within, third.within) == (ranges[1], ranges[0])
        assert third.fence > first.fence

    @of_tenants
    @needs("transactions")
    def test_the_ranges_of_a_silent_worker_are_free_when_its_time_is_up(self, workspace: Workspace) -> None:
        ledger = ledger_of(workspace.storage)
        job_id = started(ledger, self.entity).job_id
        ledger.take(job_id, "silent", self.entity.name, timedelta(milliseconds=1))
        claim = in_the_end(lambda: ledger.take(job_id, "other", self.entity.name, HOUR))
        assert claim.worker == "other"

    @of_tenants
    @needs("transactions")
    def test_a_sign_of_life_keeps_the_ranges_of_a_worker(self, workspace: Workspace) -> None:
        ledger = ledger_of(workspace.storage)
        job_id = started(ledger, self.entity).job_id
        ledger.take(job_id, "works", self.entity.name, timedelta(milliseconds=1))
        ledger.beat(job_id, "works", HOUR)
        assert ledger.take(job_id, "other", self.entity.name, HOUR) is None
        assert [item.worker for item in ledger.ranges(job_id)] == ["works"]

    @of_tenants
    @needs("transactions")
    def test_whoever_was_overtaken_finishes_nothing(self, workspace: Workspace) -> None:
        ledger = ledger_of(workspace.storage)
        claim = claimed(ledger, self.entity)
        thief = take_over(ledger, claim)
        for stale in (claim, replace(thief, worker=claim.worker)):
            with pytest.raises(LeaseLostError) as refusal:
                finished(workspace, stale)
            assert refusal.value.key == claim.worker
            with pytest.raises(LeaseLostError):
                held(workspace, stale)
        assert states(ledger, claim.job_id) == [RangeState.COPYING]
        finished(workspace, thief)
        assert states(ledger, claim.job_id) == [RangeState.LIVE]

    @of_tenants
    @needs("transactions")
    def test_a_worker_of_the_same_name_is_told_apart_by_its_fence(self, workspace: Workspace) -> None:
        ledger = ledger_of(workspace.storage)
        old = claimed(ledger, self.entity)
        assert ledger.give_back(old) is RangeState.PENDING
        new = taken(ledger, old.job_id, self.entity.name, worker=old.worker)
        assert (new.worker, new.number) == (old.worker, old.number)
        with pytest.raises(LeaseLostError):
            finished(workspace, old)
        assert ledger.give_back(old) is RangeState.COPYING
        assert states(ledger, old.job_id) == [RangeState.COPYING]
        finished(workspace, new)
        assert states(ledger, old.job_id) == [RangeState.LIVE]

    @of_tenants
    @needs("transactions")
    def test_a_duplicate_of_a_finished_range_neither_changes_its_tally_nor_opens_it(
        self, workspace: Workspace
    ) -> None:
        ledger = ledger_of(workspace.storage)
        claim = claimed(ledger, self.entity)
        finished(workspace, claim)
        before = list(ledger.ranges(claim.job_id))
        with pytest.raises(LeaseLostError):
            finished(workspace, claim, RangeTally(read={}))
        with pytest.raises(LeaseLostError):
            ledger.claim(claim.job_id, claim.worker, claim.number)
        assert ledger.take(claim.job_id, claim.worker, self.entity.name, HOUR) is None
        assert ledger.give_back(claim) is RangeState.LIVE
        assert list(ledger.ranges(claim.job_id)) == before

    @of_tenants
    @needs("transactions")
    def test_a_range_that_is_given_back_too_often_has_failed(self, workspace: Workspace) -> None:
        ledger = ledger_of(workspace.storage)
        lease = started(ledger, self.entity)
        given = [ledger.give_back(taken(ledger, lease.job_id, self.entity.name)) for _ in range(MAX_ATTEMPTS)]
        assert given == [*[RangeState.PENDING] * (MAX_ATTEMPTS - 1), RangeState.FAILED]
        assert ledger.take(lease.job_id, "worker", self.entity.name, HOUR) is None
        ledger.reopen(lease, [1])
        assert ledger.give_back(taken(ledger, lease.job_id, self.entity.name)) is RangeState.PENDING

    @of_tenants
    @needs("transactions")
    def test_a_range_whose_worker_dies_too_often_has_failed(self, workspace: Workspace) -> None:
        ledger = ledger_of(workspace.storage)
        lease = started(ledger, self.entity, ranges_at("a"))
        finished(workspace, taken(ledger, lease.job_id, self.entity.name))
        for _ in range(2):
            claim = taken(ledger, lease.job_id, self.entity.name)
            for number in range(MAX_DEATHS - 1):
                ledger.leave(lease.job_id, claim.worker)
                claim = taken(ledger, lease.job_id, self.entity.name, worker=f"worker-{number}")
            ledger.leave(lease.job_id, claim.worker)
            assert ledger.take(lease.job_id, "worker", self.entity.name, HOUR) is None
            assert states(ledger, lease.job_id) == [RangeState.LIVE, RangeState.FAILED]
            with pytest.raises(LeaseLostError):
                finished(workspace, claim)
            (failed,) = ledger.ranges(lease.job_id, state=RangeState.FAILED)
            assert (failed.deaths, failed.worker) == (MAX_DEATHS, None)
            # The second time shows that both counts begin at 0 again.
            ledger.reopen(lease, [failed.number])
            assert [(item.attempts, item.deaths) for item in ledger.ranges(lease.job_id)][1] == (0, 0)

    @of_tenants
    @needs("transactions")
    def test_a_worker_that_stops_in_order_gives_its_ranges_back_and_no_death_counts(
        self, workspace: Workspace
    ) -> None:
        ledger = ledger_of(workspace.storage)
        job_id = started(ledger, self.entity, ranges_at("a")).job_id
        other = taken(ledger, job_id, self.entity.name, worker="other")
        for _ in range(MAX_DEATHS + 1):
            claim = taken(ledger, job_id, self.entity.name)
            ledger.sign_off(job_id, claim.worker)
            with pytest.raises(LeaseLostError):
                finished(workspace, claim)
        assert states(ledger, job_id) == [RangeState.COPYING, RangeState.PENDING]
        assert [item.deaths for item in ledger.ranges(job_id)] == [0, 0]
        finished(workspace, other)

    @of_tenants
    @needs("transactions")
    def test_a_stopped_job_hands_out_no_range_until_it_is_resumed(self, workspace: Workspace) -> None:
        ledger = ledger_of(workspace.storage)
        lease = started(ledger, self.entity)
        ledger.stop(lease, "too many conflicts")
        job = ledger.find(lease.job_id)
        assert job is not None
        assert (job.stop, job.stop_reason) == (True, "too many conflicts")
        assert ledger.take(lease.job_id, "worker", self.entity.name, HOUR) is None
        ledger.resume(lease)
        assert taken(ledger, lease.job_id, self.entity.name).number == 1

    @of_tenants
    @needs("transactions")
    def test_busy_commits_keep_nobody_from_renewing_the_lease(self, workspace: Workspace) -> None:
        ledger = ledger_of(workspace.storage)
        ranges = ranges_at(map(str, range(BUSY_COMMITS - 1)))
        lease = started(ledger, self.entity, ranges)
        with ExitStack() as stack:
            writers = [stack.enter_context(workspace.storage.bulk.writer(self.entity)) for _ in ranges]
            for writer in writers:
                writer.flush()
                ledger.finish(writer.access, taken(ledger, lease.job_id, self.entity.name), TALLY)
            # Each of them holds whatever a commit locks.
            renewed = ledger.renew(lease, 2 * HOUR)
            ledger.beat(lease.job_id, "copier", HOUR)
            assert renewed.expires_at > lease.expires_at
            for writer in writers:
                writer.commit()
        assert ledger.counts(lease.job_id) == {"live": BUSY_COMMITS}
