from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Final

import pytest

from twinstore.bulk.port import ImportOutcome, Record
from twinstore.bulk.rows import has_marks
from twinstore.catalog.entity import Entity
from twinstore.catalog.keys import KeyRange
from twinstore.catalog.tenancy import UNKNOWN_TENANT, Tenant
from twinstore.clock import ManualClock
from twinstore.errors import ConcurrencyError, NotFoundError, UnsupportedCapabilityError
from twinstore.ledger import Ledger, RangeTally
from twinstore.scheduler.catalog import AUDIT, RUNS, SCHEDULES, TRIGGERS
from twinstore.scheduler.module import MODULE
from twinstore.scheduler.storage import SchedulerStorage
from twinstore.testing.instants import START, at
from twinstore.testing.scheduler.builders import make_audit_record, make_run, make_schedule, make_trigger
from twinstore_memory.backend import MemoryBackend
from twinstore_memory.rows import DocumentRow, store_unchecked, stored_rows
from twinstore_memory.store import MemoryDatabase

if TYPE_CHECKING:
    from twinstore.bulk.port import OnConflict
    from twinstore.ledger import Claim, Lease

TENANT: Final = "tenant"
OWNER: Final = Tenant(TENANT)
MINUTE: Final = timedelta(minutes=1)
WHOLE: Final = KeyRange()


class World:
    """A store with a clock that the test moves."""

    def __init__(self) -> None:
        self.clock = ManualClock(datetime(2025, 1, 1, tzinfo=UTC))
        self.store = MemoryDatabase(clock=self.clock)
        self.storage = SchedulerStorage(MemoryBackend(MODULE, self.store), self.clock)
        self.bulk = self.storage.bulk
        self.ledger = Ledger(self.bulk.access())

    def lease(self, holder: str = "me") -> Lease:
        self.ledger.start("job", {}, self.clock.now())
        return self.ledger.acquire("job", holder, MINUTE)

    def claim(self, entity: Entity) -> Claim:
        self.ledger.plan(self.lease(), entity.name, [WHOLE])
        claim = self.ledger.take("job", "worker", entity.name, MINUTE)
        assert claim is not None
        return claim

    def write(self, entity: Entity, *records: Record, on_conflict: OnConflict = "fail") -> ImportOutcome:
        with self.bulk.writer(entity, on_conflict=on_conflict) as writer:
            writer.write(records)
            outcome = writer.flush()
            writer.commit()
        return outcome

    def finish(self, entity: Entity, claim: Claim, *records: Record) -> None:
        with self.bulk.writer(entity) as writer:
            writer.write(records)
            written = writer.flush().written
            self.ledger.finish(writer.access, claim, RangeTally(read={}, written=written))
            writer.commit()

    def records(self, entity: Entity, within: KeyRange = WHOLE) -> list[Record]:
        with self.bulk.view() as view:
            return [record for batch in view.records(entity, within) for record in batch]


@pytest.fixture
def world() -> World:
    return World()


def run_record(run_id: str, created_at: datetime = START) -> Record:
    return Record((run_id,), OWNER, make_run(TENANT, run_id, created_at=created_at))


class TestReading:
    def test_the_last_range_shows_keys_that_are_no_text(self, world: World) -> None:
        store_unchecked(world.store, DocumentRow(RUNS, (7,), {"tenantId": TENANT}))
        assert [record.key for record in world.records(RUNS, KeyRange(("zzz",), None))] == [None]
        assert world.records(RUNS, KeyRange(None, ("zzz",))) == []

    def test_an_instant_stored_as_text_is_marked(self, world: World) -> None:
        world.storage.runs.create(make_run(TENANT, "r"))
        with world.bulk.view() as view:
            ((dated,),) = view.rows(RUNS, WHOLE)
        row = stored_rows(world.store, RUNS)["r",]
        texted_at = {**row.document, "createdAt": "2025-10-26T16:05:00.000+02:00"}
        store_unchecked(world.store, DocumentRow(RUNS, row.key, texted_at))
        with world.bulk.view() as view:
            ((texted,),) = view.rows(RUNS, WHOLE)
        assert (has_marks(dated.content), has_marks(texted.content)) == (False, True)

    def test_there_is_no_past_to_read(self, world: World) -> None:
        assert world.bulk.position() is None
        with pytest.raises(UnsupportedCapabilityError), world.bulk.view(as_of="1"):
            pass

    def test_a_view_is_one_state_however_long_it_is_open(self, world: World) -> None:
        world.storage.runs.create(make_run(TENANT, "a"))
        with world.bulk.view() as view:
            first = next(view.records(RUNS, WHOLE))
            world.storage.runs.create(make_run(TENANT, "b"))
            world.storage.audit.append(make_audit_record(TENANT, "c"))
            assert list(view.records(RUNS, WHOLE)) == [first]
            assert list(view.rows_of(RUNS, [("b",)])) == []
            assert list(view.records(AUDIT, WHOLE)) == []
        assert len(world.records(RUNS)) == 2

    def test_a_row_whose_tenant_is_unknown_is_counted_as_such(self, world: World) -> None:
        for key, tenant in (("none", None), ("number", 17), ("nul", "a\x00b"), ("reserved", ":none")):
            document = {"id": key} if tenant is None else {"id": key, "tenantId": tenant}
            store_unchecked(world.store, DocumentRow(RUNS, (key,), document))
        world.storage.runs.create(make_run(TENANT, "r"))
        assert world.bulk.counts(RUNS) == {"": 4, TENANT: 1}
        owners = {record.key: record.owner for record in world.records(RUNS)}
        assert owners["none",] is owners["number",] is UNKNOWN_TENANT
        assert {record.label for record in world.records(RUNS)} == {"", TENANT}
        assert world.bulk.counts(RUNS, tenant_id=TENANT) == {TENANT: 1}


class TestLedger:
    def test_an_unknown_job_has_no_lease(self, world: World) -> None:
        with pytest.raises(NotFoundError):
            world.ledger.acquire("nothing", "me", MINUTE)

    def test_a_worker_presumed_dead_may_finish_a_range_that_no_other_took(self, world: World) -> None:
        claim = world.claim(RUNS)
        world.clock.advance(MINUTE)
        world.finish(RUNS, claim, run_record("a"))
        assert list(stored_rows(world.store, RUNS)) == [("a",)]

    def test_a_commit_holds_its_own_range_and_no_other_row_of_the_ledger(self, world: World) -> None:
        claim = world.claim(RUNS)
        with world.bulk.writer(RUNS) as writer:
            world.ledger.finish(writer.access, claim, RangeTally(read={}))
            world.ledger.heartbeat("job", claim.worker, MINUTE)
            world.ledger.renew(world.lease(), MINUTE)
            # A single thread cannot wait, so a locked row is refused at once.
            with pytest.raises(ConcurrencyError):
                world.ledger.give_back(claim)


class TestWriting:
    def test_children_are_removed_with_their_parent(self, world: World) -> None:
        for key in ("a", "b"):
            world.storage.schedules.upsert(make_schedule(TENANT, key, name=key))
            world.write(TRIGGERS, Record((key,), OWNER, make_trigger(TENANT, key)))
        with world.bulk.writer(SCHEDULES) as writer:
            writer.remove([("a",)])
            writer.commit()
        assert list(stored_rows(world.store, SCHEDULES)) == [("b",)]
        assert world.bulk.counts(TRIGGERS) == {TENANT: 1}

    @pytest.mark.parametrize(("on_conflict", "overwritten"), [("fail", False), ("overwrite", True)])
    def test_other_content_is_a_conflict_and_overwritten_on_demand_only(
        self, world: World, on_conflict: OnConflict, *, overwritten: bool
    ) -> None:
        world.write(RUNS, run_record("a"))
        outcome = world.write(RUNS, run_record("a", created_at=at(5)), on_conflict=on_conflict)
        (conflict,) = outcome.conflicts
        assert (conflict.key, conflict.owner, conflict.overwritten) == (("a",), OWNER, overwritten)
        found = world.storage.runs.get_required(TENANT, "a")
        assert (found.created_at == at(5)) is overwritten

    def test_append_only_rows_are_never_overwritten(self, world: World) -> None:
        old, new = (make_audit_record(TENANT, "a", message=text) for text in ("old", "new"))
        world.write(AUDIT, Record(("a",), OWNER, old))
        world.write(AUDIT, Record(("a",), OWNER, new), on_conflict="overwrite")
        assert world.storage.audit.get(TENANT, "a") == old

    def test_a_record_that_the_store_refuses_does_not_stop_the_others(self, world: World) -> None:
        schedule = partial(make_schedule, TENANT, name="one name")
        records = [Record((key,), OWNER, schedule(key), {}) for key in ("a", "b")]
        outcome = world.write(SCHEDULES, *records, Record(None, UNKNOWN_TENANT, None, error="unreadable"))
        assert outcome.written == {TENANT: 1}
        assert [item.reason for item in outcome.rejected] == [
            "a unique value is held by another row of the target: its name by the schedule 'a'",
            "unreadable",
        ]
