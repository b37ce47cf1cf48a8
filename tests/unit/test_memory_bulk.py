from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

import pytest

from twinstore.bulk import Claim, ImportOutcome, JobState, KeyRange, RangeState, RangeTally, Record
from twinstore.clock import ManualClock
from twinstore.errors import LeaseLostError, NotFoundError, UnsupportedCapabilityError
from twinstore.scheduler.catalog import AUDIT, RUNS, SCHEDULES
from twinstore.scheduler.module import MODULE
from twinstore.scheduler.storage import SchedulerStorage
from twinstore.testing.builders import START, at, make_audit_record, make_run, make_schedule
from twinstore_memory.backend import MemoryBackend
from twinstore_memory.rows import StoredRow, plant, stored_rows
from twinstore_memory.store import Store

if TYPE_CHECKING:
    from twinstore.bulk import Lease, OnConflict
    from twinstore.catalog import Entity

TENANT: Final = "tenant"
MINUTE: Final = timedelta(minutes=1)
WHOLE: Final = KeyRange()


class World:
    """A store with a clock that the test moves."""

    def __init__(self) -> None:
        self.clock = ManualClock(datetime(2025, 1, 1, tzinfo=UTC))
        self.store = Store(clock=self.clock)
        self.storage = SchedulerStorage(MemoryBackend(MODULE, self.store), self.clock)
        self.bulk = self.storage.bulk
        self.ledger = self.bulk.ledger()

    def lease(self, holder: str = "me") -> Lease:
        self.ledger.start("job", {}, self.clock.now())
        return self.ledger.acquire("job", holder, MINUTE)

    def claim(self, entity: Entity) -> Claim:
        lease = self.lease()
        self.ledger.plan(lease, entity.name, [WHOLE])
        return self.ledger.claim(lease, next(self.ledger.ranges("job", entity.name)).number)

    def take(
        self, entity: Entity, *records: Record, claim: Claim | None = None, on_conflict: OnConflict = "fail"
    ) -> ImportOutcome:
        with self.bulk.importing() as importer:
            return importer.import_range(
                entity,
                iter([list(records)]),
                on_conflict=on_conflict,
                claim=claim or self.claim(entity),
                tally=lambda outcome: RangeTally(read={}, written=outcome.written),
            )


@pytest.fixture
def world() -> World:
    return World()


def run_record(run_id: str, created_at: datetime = START) -> Record:
    return Record((run_id,), TENANT, make_run(TENANT, run_id, created_at=created_at))


def test_ranges_cover_every_key_once(world: World) -> None:
    for number in range(7):
        world.storage.runs.create(make_run(TENANT, f"r{number}"))
    ranges = list(world.bulk.cut(RUNS, 3))
    keys = [record.key for within in ranges for batch in world.bulk.export(RUNS, within) for record in batch]
    assert len(ranges) == 3
    assert keys == [(f"r{number}",) for number in range(7)]


def test_the_last_range_shows_keys_that_are_no_text(world: World) -> None:
    plant(world.store, StoredRow(RUNS, (7,), {"tenantId": TENANT}))  # what a foreign writer left behind
    (batch,) = world.bulk.export(RUNS, KeyRange(("zzz",), None))
    assert [record.key for record in batch] == [None]
    assert list(world.bulk.export(RUNS, KeyRange(None, ("zzz",)))) == []


def test_a_row_that_cannot_be_decoded_is_exported_with_its_reason_and_content(world: World) -> None:
    plant(world.store, StoredRow(RUNS, ("bad",), {"id": "bad", "tenantId": TENANT, "state": "nonsense"}))
    ((record,),) = world.bulk.export(RUNS, WHOLE)
    assert record.model is None
    assert "nonsense" not in (record.error or "")
    assert "nonsense" in (record.raw or "")


def test_an_instant_stored_as_text_counts_and_compares_as_an_instant(world: World) -> None:
    world.storage.runs.create(make_run(TENANT, "r"))
    ((dated,),) = world.bulk.scan(RUNS, WHOLE)
    row = stored_rows(world.store, RUNS)["r",]
    plant(
        world.store, StoredRow(RUNS, row.key, {**row.document, "createdAt": "2025-10-26T16:05:00.000+02:00"})
    )
    ((texted,),) = world.bulk.scan(RUNS, WHOLE)
    assert (dated.text_timestamp, texted.text_timestamp) == (False, True)
    assert dated.content == texted.content


def test_there_is_no_past_to_read(world: World) -> None:
    assert world.bulk.position() is None
    with pytest.raises(UnsupportedCapabilityError):
        list(world.bulk.scan(RUNS, WHOLE, as_of="1"))


def test_only_one_holder_has_the_lease_until_it_expires(world: World) -> None:
    first = world.lease("first")
    with pytest.raises(LeaseLostError, match="first works on job 'job'") as refusal:
        world.lease("second")
    assert refusal.value.key == "first"
    world.clock.advance(MINUTE)
    assert world.lease("second").fence == first.fence + 1
    with pytest.raises(LeaseLostError):
        world.ledger.renew(first, MINUTE)


def test_the_lease_of_a_dead_holder_is_taken_before_it_expires(world: World) -> None:
    first = world.lease("first")
    assert world.ledger.acquire("job", "second", MINUTE, dead="first").fence == first.fence + 1


def test_a_released_lease_is_free_and_its_fence_keeps_growing(world: World) -> None:
    first = world.lease("first")
    world.ledger.release(first)
    assert world.ledger.lease("job") is None
    assert world.lease("second").fence == first.fence + 1


def test_a_complete_job_starts_again_without_ranges(world: World) -> None:
    claim = world.claim(RUNS)
    world.ledger.complete(claim.lease)
    again = world.ledger.start("job", {}, world.clock.now())
    assert (again.generation, again.state) == (2, JobState.RUNNING)
    assert list(world.ledger.ranges("job")) == []


def test_an_unknown_job_has_no_lease(world: World) -> None:
    with pytest.raises(NotFoundError):
        world.ledger.acquire("nothing", "me", MINUTE)


def test_rows_and_ledger_change_together(world: World) -> None:
    outcome = world.take(RUNS, run_record("a"), run_record("b"))
    (progress,) = world.ledger.ranges("job", RUNS.name)
    assert outcome.written == {TENANT: 2}
    assert (progress.state, progress.finished_at) == (RangeState.LIVE, world.clock.now())
    assert progress.tally == RangeTally(read={}, written={TENANT: 2})


def test_a_worker_that_lost_its_lease_writes_nothing(world: World) -> None:
    claim = world.claim(RUNS)
    world.clock.advance(MINUTE)
    with pytest.raises(LeaseLostError):
        world.take(RUNS, run_record("a"), claim=claim)
    assert stored_rows(world.store, RUNS) == {}


def test_a_second_import_finds_everything_unchanged(world: World) -> None:
    world.take(RUNS, run_record("a"))
    outcome = world.take(RUNS, run_record("a"))
    assert (outcome.written, outcome.unchanged) == ({}, {TENANT: 1})


@pytest.mark.parametrize(("on_conflict", "overwritten"), [("fail", False), ("overwrite", True)])
def test_other_content_is_a_conflict_and_overwritten_on_demand_only(
    world: World, on_conflict: OnConflict, *, overwritten: bool
) -> None:
    world.take(RUNS, run_record("a"))
    outcome = world.take(RUNS, run_record("a", created_at=at(5)), on_conflict=on_conflict)
    (conflict,) = outcome.conflicts
    assert (conflict.key, conflict.overwritten) == (("a",), overwritten)
    found = world.storage.runs.get_required(TENANT, "a")
    assert (found.created_at == at(5)) is overwritten


def test_append_only_rows_are_never_overwritten(world: World) -> None:
    old, new = (make_audit_record(TENANT, "a", message=text) for text in ("old", "new"))
    world.take(AUDIT, Record(("a",), TENANT, old))
    world.take(AUDIT, Record(("a",), TENANT, new), on_conflict="overwrite")
    assert world.storage.audit.get(TENANT, "a") == old


def test_a_record_that_the_store_refuses_does_not_stop_the_others(world: World) -> None:
    records = [Record((key,), TENANT, make_schedule(TENANT, key, name="one name"), {}) for key in ("a", "b")]
    outcome = world.take(SCHEDULES, *records, Record(None, None, None, error="unreadable"))
    assert outcome.written == {TENANT: 1}
    assert [item.reason for item in outcome.rejected] == [
        "The schedule name 'one name' is taken in this tenant; choose another name.",
        "unreadable",
    ]
