"""What the ledger of copies promises: one coordinator at a time, each range once, and nothing forgotten.

It records which worker copies each range, and no other worker commits it.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from datetime import timedelta
from itertools import pairwise
from typing import TYPE_CHECKING, Final

import pytest

from twinstore.catalog.keys import KeyRange
from twinstore.errors import LeaseLostError, NotFoundError
from twinstore.ledger import ConflictLine, JobState, QuarantineLine, RangeState, RangeTally, Suspicion
from twinstore.ledger.ledger import MAX_ATTEMPTS, PLANNED_AT_ONCE
from twinstore.ledger.models import CHANCE_DEATHS, MAX_DEATHS
from twinstore.testing.base import CopyContract, needs, of_tenants
from twinstore.testing.copying import (
    HOUR,
    TALLY,
    check_owned,
    claimed,
    copied,
    entity_of,
    finished,
    in_the_end,
    ledger_of,
    ranges_at,
    started,
    states,
    take_over,
    taken,
)
from twinstore.testing.instants import at
from twinstore.testing.workspace import outcomes, unique

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from twinstore.ledger import Claim, Ledger
    from twinstore.testing.workspace import Workspace

__all__ = ["LedgerContract", "RangeClaimContract"]

# The ledger knows entities by name alone.
ANOTHER: Final = "another_entity"

SETTINGS: Final = {"module": "library", "tenant": "*", "naïve": "\N{SNOWMAN}"}
RANGES: Final = [
    KeyRange(None, ("\uffff", "b")),
    KeyRange(("\uffff", "b"), ("\U00010000", "")),
    KeyRange(("\U00010000", ""), None),
]


def started_job(workspace: Workspace) -> tuple[Ledger, str]:
    """Start a separate job."""
    ledger = ledger_of(workspace.storage)
    return ledger, ledger.start(unique("job"), SETTINGS, at()).id


def quarantine_line(claim: Claim, line: int, part: int = 0, **changes: object) -> QuarantineLine:
    """Return a line, or a part of one."""
    values: dict[str, object] = {"tenant": "", "reason": "no model", "raw": " half\n", **changes}
    place = {"job_id": claim.job_id, "number": claim.number, "line": line, "part": part}
    return QuarantineLine.model_validate({**place, "entity": claim.entity, **values})


def conflict_line(claim: Claim, line: int) -> ConflictLine:
    """Return a line."""
    return ConflictLine(
        job_id=claim.job_id, number=claim.number, line=line, entity=claim.entity, tenant="acme", key='["k"]'
    )


class LedgerContract(CopyContract, capability="bulk_target"):
    """Jobs, leases, ranges and lines, kept in the target."""

    @of_tenants
    @needs("transactions")
    def test_a_job_is_started_once(self, workspace: Workspace) -> None:
        ledger = ledger_of(workspace.storage)
        job_id = unique("job")
        assert ledger.find(job_id) is None
        assert list(ledger.ranges(job_id)) == []
        job = ledger.start(job_id, SETTINGS, at(0.001))
        assert (job.id, dict(job.settings), job.as_of) == (job_id, SETTINGS, at(0.001))
        assert (job.state, job.generation) == (JobState.RUNNING, 1)
        assert ledger.start(job_id, {"other": "settings"}, at(9)) == job
        with workspace.storages(1) as (other,):
            assert ledger_of(other).find(job_id) == job
            assert job in list(ledger_of(other).jobs())

    @of_tenants
    @needs("transactions")
    def test_the_lease_belongs_to_one_holder_and_its_fence_grows(self, workspace: Workspace) -> None:
        ledger, job_id = started_job(workspace)
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

    @of_tenants
    @needs("transactions")
    def test_the_lease_of_a_dead_holder_is_taken_at_once(self, workspace: Workspace) -> None:
        ledger, job_id = started_job(workspace)
        first = ledger.acquire(job_id, "first", HOUR)
        with pytest.raises(LeaseLostError):
            ledger.acquire(job_id, "second", HOUR, dead="somebody else")
        second = ledger.acquire(job_id, "second", HOUR, dead="first")
        assert second.fence > first.fence
        with pytest.raises(LeaseLostError):
            ledger.renew(first, HOUR)

    @of_tenants
    @needs("transactions")
    def test_a_lease_is_extended_by_its_holder(self, workspace: Workspace) -> None:
        ledger, job_id = started_job(workspace)
        lease = ledger.acquire(job_id, "first", timedelta(minutes=1))
        renewed = ledger.renew(lease, HOUR)
        assert (renewed.holder, renewed.fence) == (lease.holder, lease.fence)
        assert renewed.expires_at > lease.expires_at
        assert ledger.lease(job_id) == renewed

    @of_tenants
    @needs("transactions")
    def test_an_expired_lease_is_lost_and_free(self, workspace: Workspace) -> None:
        ledger, job_id = started_job(workspace)
        first = ledger.acquire(job_id, "first", timedelta(milliseconds=1))
        second = in_the_end(lambda: ledger.acquire(job_id, "second", HOUR))
        assert second.fence > first.fence
        acts: list[Callable[[], object]] = [
            lambda: ledger.renew(first, HOUR),
            lambda: ledger.plan(first, self.entity.name, RANGES),
            lambda: ledger.complete(first),
        ]
        for act in acts:
            with pytest.raises(LeaseLostError):
                act()
        assert list(ledger.ranges(job_id)) == []

    @of_tenants
    @needs("transactions")
    def test_an_expired_lease_is_regained_until_another_worker_has_taken_it(
        self, workspace: Workspace
    ) -> None:
        ledger, job_id = started_job(workspace)
        first = ledger.acquire(job_id, "first", timedelta(milliseconds=1))
        in_the_end(lambda: True if ledger.lease(job_id) is None else None)
        regained = ledger.regain(first, timedelta(milliseconds=1))
        assert (regained.holder, regained.fence) == (first.holder, first.fence)
        second = in_the_end(lambda: ledger.acquire(job_id, "second", HOUR))
        with pytest.raises(LeaseLostError):
            ledger.regain(first, HOUR)
        # Nor after the other one has given it back: the job may have ended in between.
        ledger.release(second)
        with pytest.raises(LeaseLostError):
            ledger.regain(first, HOUR)

    @of_tenants
    @needs("transactions")
    def test_ranges_are_planned_once_and_kept_in_order(self, workspace: Workspace) -> None:
        ledger, job_id = started_job(workspace)
        lease = ledger.acquire(job_id, "first", HOUR)
        ledger.plan(lease, self.entity.name, RANGES)
        ledger.plan(lease, ANOTHER, RANGES[:1])
        ledger.plan(lease, self.entity.name, [KeyRange()])
        planned = list(ledger.ranges(job_id))
        assert [item.within for item in planned] == [*RANGES, RANGES[0]]
        assert [item.number for item in planned] == sorted({item.number for item in planned})
        assert {item.state for item in planned} == {RangeState.PENDING}
        assert [item.within for item in ledger.ranges(job_id, self.entity.name)] == RANGES
        assert list(ledger.ranges(job_id, "no-entity")) == []
        assert ledger.counts(job_id) == {"pending": 4}
        assert (ledger.counts(job_id, ANOTHER), ledger.counts(job_id, "no-entity")) == ({"pending": 1}, {})

    @of_tenants
    @needs("transactions")
    def test_ranges_of_an_interrupted_plan_are_taken_by_nobody_and_forgotten(
        self, workspace: Workspace
    ) -> None:
        ledger, job_id = started_job(workspace)
        lease = ledger.acquire(job_id, "first", HOUR)

        def interrupted() -> Iterator[KeyRange]:
            yield from ranges_at(f"{number:04}" for number in range(PLANNED_AT_ONCE))
            raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            ledger.plan(lease, self.entity.name, interrupted())
        assert ledger.counts(job_id) == {"pending": PLANNED_AT_ONCE}
        assert ledger.take(job_id, "worker", self.entity.name, HOUR) is None
        ledger.plan(lease, ANOTHER, RANGES[:1])
        ledger.plan(lease, self.entity.name, RANGES)
        assert [item.within for item in ledger.ranges(job_id)] == [RANGES[0], *RANGES]
        assert len({item.number for item in ledger.ranges(job_id)}) == 1 + len(RANGES)
        assert taken(ledger, job_id, self.entity.name).within == RANGES[0]

    @of_tenants
    @needs("transactions")
    def test_what_a_later_run_looks_at_is_found_without_the_other_ranges(self, workspace: Workspace) -> None:
        ledger = ledger_of(workspace.storage)
        lease = started(ledger, self.entity, ranges_at("abc"))
        tallies = [
            RangeTally(read={"acme": 1}),
            RangeTally(read={"acme": 2}, conflicts={"acme": 1}, under={"one": 1}),
            RangeTally(read={"acme": 2}, quarantined={"": 1}, under={"two": 1}),
        ]
        for tally in tallies:
            finished(workspace, taken(ledger, lease.job_id, self.entity.name), tally)
        job = ledger.find(lease.job_id)
        assert job is not None
        assert [item.tally for item in ledger.noted_ranges(job)] == tallies[1:]
        others = [
            set(ledger.copied_otherwise(job.id, self.entity.name, under)) for under in (None, "one", "none")
        ]
        assert others == [{2, 3}, {1, 3}, {1, 2, 3}]
        ledger.reopen(lease, [1, 3])
        assert [item.number for item in ledger.noted_ranges(job)] == [2]
        assert set(ledger.copied_otherwise(job.id, self.entity.name, "one")) == set()

    @of_tenants
    @needs("transactions")
    def test_the_ends_of_a_range_may_be_texts_and_numbers(self, workspace: Workspace) -> None:
        ledger, job_id = started_job(workspace)
        lease = ledger.acquire(job_id, "first", HOUR)
        ends = [("run:\x00\ud800", 2**63 - 1), ("run:\x01", -(2**63))]
        ranges = [KeyRange(None, ends[0]), KeyRange(*ends), KeyRange(ends[1], None)]
        ledger.plan(lease, self.entity.name, ranges)
        assert [item.within for item in ledger.ranges(job_id)] == ranges

    @of_tenants
    @needs("transactions")
    def test_a_claimed_range_is_copying_for_everybody(self, workspace: Workspace) -> None:
        ledger, job_id = started_job(workspace)
        lease = ledger.acquire(job_id, "first", HOUR)
        ledger.plan(lease, self.entity.name, RANGES)
        number = [item.number for item in ledger.ranges(job_id)][1]
        claim = ledger.claim(job_id, "worker", number)
        assert (claim.job_id, claim.number, claim.worker) == (job_id, number, "worker")
        assert (claim.entity, claim.within) == (self.entity.name, RANGES[1])
        with workspace.storages(1) as (other,):
            found = states(ledger_of(other), job_id)
        assert found == [RangeState.PENDING, RangeState.COPYING, RangeState.PENDING]

    @of_tenants
    @needs("transactions")
    def test_a_stolen_lease_plans_reopens_completes_and_stops_nothing(self, workspace: Workspace) -> None:
        ledger = ledger_of(workspace.storage)
        lease = started(ledger, self.entity, RANGES)
        finished(workspace, taken(ledger, lease.job_id, self.entity.name))
        ledger.acquire(lease.job_id, "thief", HOUR, dead=lease.holder)
        before = ledger.find(lease.job_id), list(ledger.ranges(lease.job_id))
        acts: list[Callable[[], None]] = [
            lambda: ledger.plan(lease, ANOTHER, RANGES),
            lambda: ledger.reopen(lease, [1]),
            lambda: ledger.complete(lease),
            lambda: ledger.stop(lease, "why"),
            lambda: ledger.resume(lease),
        ]
        for act in acts:
            with pytest.raises(LeaseLostError):
                act()
        assert (ledger.find(lease.job_id), list(ledger.ranges(lease.job_id))) == before

    @of_tenants
    @needs("transactions")
    def test_an_imported_range_is_live_with_its_tally_and_can_be_opened_again(
        self, workspace: Workspace
    ) -> None:
        ledger = ledger_of(workspace.storage)
        with self.in_memory() as memory:
            self.store_typical(memory.unbound, workspace)
            claims: list[Claim] = []
            copied(
                memory,
                workspace.storage,
                self.entity,
                workspace.tenant,
                during=lambda _, claim: claims.append(claim),
            )
        job_id = claims[0].job_id
        (live,) = ledger.ranges(job_id)
        assert live.state is RangeState.LIVE
        assert live.tally is not None
        assert (dict(live.tally.read), dict(live.tally.written)) == (
            {workspace.tenant: 1},
            {workspace.tenant: 1},
        )
        assert (dict(live.tally.unchanged), dict(live.tally.conflicts)) == ({}, {})
        assert live.finished_at is not None
        holder = ledger.lease(job_id)
        assert holder is not None
        ledger.reopen(holder, [live.number])
        (reopened,) = ledger.ranges(job_id)
        assert (reopened.state, reopened.tally, reopened.finished_at) == (RangeState.PENDING, None, None)
        assert taken(ledger, job_id, self.entity.name).fence > claims[0].fence

    @of_tenants
    @needs("transactions")
    def test_a_tally_keeps_every_label(self, workspace: Workspace) -> None:
        ledger = ledger_of(workspace.storage)
        claim = claimed(ledger, self.entity)
        finished(workspace, claim)
        assert [item.tally for item in ledger.ranges(claim.job_id)] == [TALLY]

    @of_tenants
    @needs("transactions")
    def test_a_complete_job_begins_a_new_generation(self, workspace: Workspace) -> None:
        ledger = ledger_of(workspace.storage)
        lease = started(ledger, self.entity)
        claim = taken(ledger, lease.job_id, self.entity.name)
        with workspace.storage.bulk.writer(self.entity) as writer:
            writer.flush()
            ledger.store_lines(writer.access, claim, [quarantine_line(claim, 1)], [conflict_line(claim, 1)])
            ledger.finish(writer.access, claim, TALLY)
            writer.commit()
        ledger.complete(lease)
        job = ledger.find(lease.job_id)
        assert job is not None
        assert job.state is JobState.COMPLETE
        following = ledger.start(job.id, SETTINGS, at(9))
        assert (following.state, following.generation) == (JobState.RUNNING, job.generation + 1)
        assert (following.as_of, dict(following.settings)) == (at(9), SETTINGS)
        assert list(ledger.ranges(job.id)) == []
        assert [*ledger.quarantined(job.id), *ledger.conflicts(job.id)] == []

    @of_tenants
    @needs("transactions")
    def test_of_concurrent_requests_for_a_lease_exactly_one_wins(self, workspace: Workspace) -> None:
        _, job_id = started_job(workspace)
        results = workspace.race(
            lambda storage, holder: ledger_of(storage).acquire(job_id, holder, HOUR), "abcdef"
        )
        assert outcomes(results) == {"LeaseLostError": 5, "ok": 1}

    @of_tenants
    @needs("transactions")
    def test_concurrent_starts_of_a_job_start_the_same(self, workspace: Workspace) -> None:
        job_id = unique("job")
        results = workspace.race(
            lambda storage, second: ledger_of(storage).start(job_id, SETTINGS, at(second)), range(6)
        )
        assert outcomes(results) == {"ok": 6}
        assert results == [ledger_of(workspace.storage).find(job_id)] * 6

    @of_tenants
    @needs("transactions")
    def test_lines_are_stored_with_their_range_and_forgotten_when_it_is_opened(
        self, workspace: Workspace
    ) -> None:
        ledger = ledger_of(workspace.storage)
        lease = started(ledger, self.entity, RANGES[:2])
        claims = [taken(ledger, lease.job_id, self.entity.name) for _ in range(2)]
        expected = [recorded_lines(workspace, claim) for claim in reversed(claims)]
        bad, conflicts = zip(*reversed(expected), strict=True)
        assert list(ledger.quarantined(lease.job_id)) == [line for lines in bad for line in lines]
        assert list(ledger.conflicts(lease.job_id)) == [line for lines in conflicts for line in lines]
        ledger.reopen(lease, [claims[0].number])
        assert list(ledger.quarantined(lease.job_id)) == bad[1]
        assert list(ledger.conflicts(lease.job_id)) == conflicts[1]

    @of_tenants
    @needs("transactions")
    def test_lines_of_a_range_that_was_not_committed_do_not_exist(self, workspace: Workspace) -> None:
        ledger = ledger_of(workspace.storage)
        claim = claimed(ledger, self.entity)
        with workspace.storage.bulk.writer(self.entity) as writer:
            writer.flush()
            ledger.store_lines(writer.access, claim, [quarantine_line(claim, 1)], [conflict_line(claim, 1)])
        assert [*ledger.quarantined(claim.job_id), *ledger.conflicts(claim.job_id)] == []

    @of_tenants
    @needs("transactions")
    def test_lines_of_an_attempt_that_failed_are_replaced(self, workspace: Workspace) -> None:
        ledger = ledger_of(workspace.storage)
        claim = claimed(ledger, self.entity)
        early = [quarantine_line(claim, number) for number in (1, 9)]
        # Under the same claim again, as after a race that was lost.
        for _ in range(2):
            ledger.store_lines_early(claim, early, more=False)
        ledger.give_back(claim)
        # By another process, which knows only what is stored.
        ledger = ledger_of(workspace.storage)
        claim = taken(ledger, claim.job_id, self.entity.name)
        bad, conflicts = recorded_lines(workspace, claim, ledger)
        assert list(ledger.quarantined(claim.job_id)) == bad
        assert list(ledger.conflicts(claim.job_id)) == conflicts

    @of_tenants
    @needs("transactions")
    def test_long_lines_and_many_of_them_come_back_in_order(self, workspace: Workspace) -> None:
        ledger = ledger_of(workspace.storage)
        claim = claimed(ledger, self.entity)
        lines = [quarantine_line(claim, 1, part, raw=f"{part}" * 1_000_000) for part in range(3)]
        lines += [quarantine_line(claim, number, raw=None, key=None) for number in range(2, 50)]
        with workspace.storage.bulk.writer(self.entity) as writer:
            writer.flush()
            ledger.store_lines(writer.access, claim, lines, ())
            ledger.finish(writer.access, claim, TALLY)
            writer.commit()
        assert list(ledger.quarantined(claim.job_id)) == lines
        # The three parts of the long one are one document.
        assert ledger.quarantine_counts(claim.job_id, self.entity.name) == {lines[0].reason: 49}


def recorded_lines(
    workspace: Workspace, claim: Claim, ledger: Ledger | None = None
) -> tuple[list[QuarantineLine], list[ConflictLine]]:
    """Finish a range with lines; return them in order."""
    bad = [
        quarantine_line(claim, 1, 0, tenant=":none", key='["a",1]'),
        quarantine_line(claim, 1, 1, tenant=":none", key='["a",1]', raw="the other\x01 half "),
        quarantine_line(claim, 2, 0, raw=None),
    ]
    conflicts = [conflict_line(claim, 1), conflict_line(claim, 2)]
    with workspace.storage.bulk.writer(entity_of(workspace, claim)) as writer:
        writer.flush()
        ledger = ledger or ledger_of(workspace.storage)
        ledger.store_lines(writer.access, claim, iter(bad), iter(conflicts))
        ledger.finish(writer.access, claim, TALLY)
        writer.commit()
    return bad, conflicts


BUSY_COMMITS: Final = 8
# Seconds after which something waits for a lock that it should not need.
PATIENCE: Final = 10


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
    def test_concurrent_workers_take_different_ranges(self, workspace: Workspace) -> None:
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
        ledger.heartbeat(job_id, "works", HOUR)
        assert ledger.take(job_id, "other", self.entity.name, HOUR) is None
        assert [item.worker for item in ledger.ranges(job_id)] == ["works"]

    @of_tenants
    @needs("transactions")
    def test_an_overtaken_worker_finishes_nothing(self, workspace: Workspace) -> None:
        ledger = ledger_of(workspace.storage)
        claim = claimed(ledger, self.entity)
        successor = take_over(ledger, claim)
        for stale in (claim, replace(successor, worker=claim.worker)):
            with pytest.raises(LeaseLostError) as refusal:
                finished(workspace, stale)
            assert refusal.value.key == claim.worker
            with pytest.raises(LeaseLostError):
                check_owned(workspace, stale)
        assert states(ledger, claim.job_id) == [RangeState.COPYING]
        finished(workspace, successor)
        assert states(ledger, claim.job_id) == [RangeState.LIVE]

    @of_tenants
    @needs("transactions")
    def test_a_worker_of_the_same_name_is_distinguished_by_its_fence(self, workspace: Workspace) -> None:
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
    def test_a_range_whose_workers_die_is_cut_until_one_row_is_left(self, workspace: Workspace) -> None:
        ledger = ledger_of(workspace.storage)
        lease = started(ledger, self.entity, ranges_at("k"))
        finished(workspace, taken(ledger, lease.job_id, self.entity.name))

        def after_deaths(claim: Claim, times: int) -> Claim:
            for number in range(times):
                assert not claim.kills
                ledger.leave(lease.job_id, claim.worker)
                claim = taken(ledger, lease.job_id, self.entity.name, worker=f"worker-{number}")
            assert (claim.kills, claim.deaths) == (True, times)
            return claim

        whole = after_deaths(taken(ledger, lease.job_id, self.entity.name), MAX_DEATHS)
        ledger.split(whole, ("p",), lower=Suspicion.PART, upper=Suspicion.ROW)
        acts: list[Callable[[], object]] = [
            lambda: finished(workspace, whole),
            lambda: ledger.split(whole, ("n",), lower=Suspicion.ROW, upper=Suspicion.ROW),
            lambda: ledger.suspect(whole),
            lambda: ledger.finish_unread(whole, quarantine_line(whole, 1)),
        ]
        for act in acts:
            with pytest.raises(LeaseLostError):
                act()
        found = [(item.number, item.within, item.suspicion) for item in ledger.ranges(lease.job_id)]
        assert found[1:] == [
            (2, KeyRange(("k",), ("p",)), Suspicion.PART),
            (3, KeyRange(("p",), None), Suspicion.ROW),
        ]
        part, row = (taken(ledger, lease.job_id, self.entity.name, worker=name) for name in "ab")
        finished(workspace, row)
        ledger.suspect(after_deaths(part, 1))
        row = after_deaths(taken(ledger, lease.job_id, self.entity.name), MAX_DEATHS)
        ledger.finish_unread(row, quarantine_line(row, 1, raw=None))
        job = ledger.find(lease.job_id)
        assert job is not None
        assert [item.number for item in ledger.noted_ranges(job)] == [part.number]
        assert [line.key for line in ledger.quarantined(job.id)] == [None]
        ledger.reopen(lease, [part.number])
        # It is a range like any other then, and its line is forgotten.
        again = taken(ledger, job.id, self.entity.name)
        assert (again.deaths, again.suspicion, list(ledger.quarantined(job.id))) == (0, None, [])
        assert ledger.counts(job.id) == {"live": 2, "copying": 1}

    @of_tenants
    @needs("transactions")
    def test_a_range_that_may_kill_its_worker_is_handed_out_on_request_only(
        self, workspace: Workspace
    ) -> None:
        ledger, name = ledger_of(workspace.storage), self.entity.name
        job_id = started(ledger, self.entity).job_id
        claim = taken(ledger, job_id, name)

        def next_range(worker: str, *, dangerous: bool) -> Claim | None:
            assert ledger.take_pending(job_id, worker, name, HOUR) is None
            found, entities = ledger.take_over(job_id, worker, [name], HOUR, dangerous=dangerous)
            assert entities == {name}
            return found

        for number in range(CHANCE_DEATHS):
            ledger.leave(job_id, claim.worker)
            found = next_range(f"worker-{number}", dangerous=False)
            assert found is not None
            assert not found.dangerous
            claim = found
        ledger.leave(job_id, claim.worker)
        assert next_range("careful", dangerous=False) is None
        found = next_range("bold", dangerous=True)
        assert found is not None
        assert found.dangerous
        ledger.split(found, ("k",), lower=Suspicion.PART, upper=Suspicion.ROW)
        assert next_range("careful", dangerous=False) is None
        part, row = (next_range("bold", dangerous=True) for _ in range(2))
        assert part is not None
        assert row is not None
        assert (part.suspicion, row.suspicion) == (Suspicion.PART, Suspicion.ROW)
        assert (part.deaths, part.dangerous, row.deaths, row.dangerous) == (0, True, 0, True)

    @of_tenants
    @needs("transactions")
    def test_a_coarse_range_is_cut_by_its_worker_and_by_no_other(self, workspace: Workspace) -> None:
        ledger = ledger_of(workspace.storage)
        job = ledger.start(unique("job"), {}, at())
        lease = ledger.acquire(job.id, "first", HOUR)
        coarse = ranges_at("m")
        ledger.plan(lease, self.entity.name, coarse, coarse=True)
        dead, other = (taken(ledger, job.id, self.entity.name, worker=name) for name in ("dead", "other"))

        def interrupted() -> Iterator[KeyRange]:
            yield KeyRange(None, ("b",))
            raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            ledger.cut(dead, interrupted())
        claim = take_over(ledger, dead)
        assert (claim.coarse, claim.within, claim.deaths) == (True, coarse[0], 1)
        with pytest.raises(LeaseLostError):
            ledger.cut(dead, [coarse[0]])
        assert [item.within for item in ledger.ranges(job.id)] == coarse
        keys = [None, *((f"{number:04}",) for number in range(PLANNED_AT_ONCE + 1)), ("m",)]
        parts = [KeyRange(*ends) for ends in pairwise(keys)]
        first = ledger.cut(claim, parts)
        assert first == replace(claim, within=parts[0], coarse=False, deaths=0)
        # What one step did not take is coarse, and follows all others.
        rest = KeyRange(parts[PLANNED_AT_ONCE].lower, ("m",))
        found = [(item.within, item.coarse) for item in ledger.ranges(job.id)]
        wanted = [(parts[0], False), (coarse[1], True), *((part, False) for part in parts[1:PLANNED_AT_ONCE])]
        assert found == [*wanted, (rest, True)]
        assert ledger.counts(job.id) == {"copying": 2, "pending": PLANNED_AT_ONCE}
        finished(workspace, first)
        assert ledger.cut(other, [coarse[1]]).within == coarse[1]
        assert taken(ledger, job.id, self.entity.name).within == parts[1]

    @of_tenants
    @needs("transactions")
    def test_a_range_that_cannot_be_cut_fails_at_its_workers_last_death(self, workspace: Workspace) -> None:
        ledger = ledger_of(workspace.storage)
        lease = started(ledger, self.entity)
        for _ in range(2):
            claim = taken(ledger, lease.job_id, self.entity.name)
            while not claim.kills:
                ledger.leave(lease.job_id, claim.worker)
                claim = taken(ledger, lease.job_id, self.entity.name, worker=f"worker-{claim.fence}")
            assert ledger.give_back(claim) is RangeState.FAILED
            # The second time shows that the count begins at 0 again.
            ledger.reopen(lease, [1])

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
    def test_what_was_finished_after_a_moment_is_found_in_order_of_time(self, workspace: Workspace) -> None:
        ledger = ledger_of(workspace.storage)
        lease = started(ledger, self.entity, ranges_at("km"))
        before = workspace.storage.bulk.now() - HOUR
        claims = [taken(ledger, lease.job_id, self.entity.name) for _ in range(3)]
        assert list(ledger.finished_after(lease.job_id, before)) == []
        for claim in reversed(claims[1:]):
            finished(workspace, claim)
        found = list(ledger.finished_after(lease.job_id, before))
        # Both may be of one millisecond.
        assert sorted(item.number for item in found) == [2, 3]
        assert [item.tally for item in found] == [TALLY, TALLY]
        moments = [item.finished_at for item in found if item.finished_at is not None]
        assert moments == sorted(moments)
        latest = moments[-1]
        assert list(ledger.finished_after(lease.job_id, latest)) == []
        ledger.reopen(lease, [3])
        assert [item.number for item in ledger.finished_after(lease.job_id, before)] == [2]

    @of_tenants
    @needs("transactions")
    def test_workers_are_listed_until_they_leave_or_the_job_begins_again(self, workspace: Workspace) -> None:
        ledger = ledger_of(workspace.storage)
        lease = started(ledger, self.entity)
        for worker in ("b", "a"):
            ledger.heartbeat(lease.job_id, worker, HOUR)
        assert [item.worker for item in ledger.workers(lease.job_id)] == ["a", "b"]
        ledger.leave(lease.job_id, "a")
        assert [item.worker for item in ledger.workers(lease.job_id)] == ["b"]
        ledger.complete(lease)
        ledger.start(lease.job_id, {}, at())
        assert list(ledger.workers(lease.job_id)) == []

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
    def test_busy_commits_do_not_prevent_renewing_the_lease(self, workspace: Workspace) -> None:
        ledger = ledger_of(workspace.storage)
        ranges = ranges_at(map(str, range(BUSY_COMMITS - 1)))
        lease = started(ledger, self.entity, ranges)
        # Outside of the writers: a renewal that waits for them goes on when they are rolled back.
        with ThreadPoolExecutor(1) as pool, ExitStack() as stack:
            writers = [stack.enter_context(workspace.storage.bulk.writer(self.entity)) for _ in ranges]
            for writer in writers:
                writer.flush()
                ledger.finish(writer.access, taken(ledger, lease.job_id, self.entity.name), TALLY)
                # Each of them holds whatever a commit locks.
                renewed = pool.submit(ledger.renew, lease, 2 * HOUR).result(PATIENCE)
                pool.submit(ledger.heartbeat, lease.job_id, "copier", HOUR).result(PATIENCE)
                assert renewed.expires_at > lease.expires_at
            for writer in writers:
                writer.commit()
        assert ledger.counts(lease.job_id) == {"live": BUSY_COMMITS}
