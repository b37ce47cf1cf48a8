"""What writing a range promises: all of it or nothing, and nothing that nobody asked for."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

import pytest

from twinstore import add_scheduler_memory_storage
from twinstore.access import Row
from twinstore.bulk import ImportOutcome, KeyRange
from twinstore.errors import LeaseLostError
from twinstore.ledger import RangeState
from twinstore.scheduler.catalog import AUDIT, RUN_SUMMARIES, RUNS, SCHEDULER, SCHEDULES, TRIGGERS
from twinstore.tenancy import ALL_TENANTS, Tenant
from twinstore.testing.base import CopyContract, needs
from twinstore.testing.builders import at, make_audit_record, moved
from twinstore.testing.contracts.bulk import each_entity, populate
from twinstore.testing.copying import (
    claimed,
    contents,
    copied,
    ledger_of,
    records_of,
    take_over,
    tally_of,
    write_all,
)

if TYPE_CHECKING:
    from twinstore.catalog import Entity
    from twinstore.ledger import Claim, Ledger
    from twinstore.scheduler.schedules import Schedule
    from twinstore.testing.workspace import Workspace

__all__ = ["RangeWriterContract"]

EVERYTHING: Final = KeyRange()


class RangeWriterContract(CopyContract, capability="bulk"):
    """Writing past the repositories, each range together with its entry in the ledger."""

    @each_entity
    @needs("transactions")
    def test_a_copy_from_another_driver_and_back_is_byte_for_byte_equal(
        self, workspace: Workspace, entity: Entity
    ) -> None:
        with add_scheduler_memory_storage({}) as memory, add_scheduler_memory_storage({}) as third:
            populate(workspace.on(memory))
            for step in SCHEDULER.entities:
                copied(memory, workspace.storage, step, workspace.tenant)
                copied(workspace.storage, third, step, workspace.tenant)
            expected = contents(memory.bulk, entity, workspace.tenant)
            assert expected
            assert contents(workspace.storage.bulk, entity, workspace.tenant) == expected
            assert contents(third.bulk, entity, workspace.tenant) == expected
            assert workspace.count(entity) == len(expected)

    @each_entity
    @needs("transactions")
    def test_a_second_import_writes_nothing(self, workspace: Workspace, entity: Entity) -> None:
        with add_scheduler_memory_storage({}) as memory:
            populate(workspace.on(memory))
            # The parents first: a trigger needs its schedule.
            for parent in SCHEDULER.entities[: SCHEDULER.entities.index(entity)]:
                copied(memory, workspace.storage, parent, workspace.tenant)
            first = copied(memory, workspace.storage, entity, workspace.tenant)
            keys = [
                key for key in contents(workspace.storage.bulk, entity, workspace.tenant) if key is not None
            ]
            before = [workspace.probe.stamp(entity, key) for key in keys]
            second = copied(memory, workspace.storage, entity, workspace.tenant)
        assert (dict(first.written), dict(first.unchanged)) == ({workspace.tenant: len(keys)}, {})
        assert (dict(second.written), dict(second.unchanged)) == ({}, {workspace.tenant: len(keys)})
        assert (second.conflicts, second.rejected) == ((), ())
        assert [workspace.probe.stamp(entity, key) for key in keys] == before

    @needs("transactions")
    @pytest.mark.parametrize("overwrite", [False, True])
    def test_other_content_is_a_conflict_and_overwritten_on_request(
        self, workspace: Workspace, *, overwrite: bool
    ) -> None:
        with add_scheduler_memory_storage({}) as memory:
            there = workspace.on(memory)
            theirs = [memory.schedules.upsert(there.schedule(name, updated_by="them")) for name in "abc"]
            mine = workspace.storage.schedules.upsert(workspace.schedule("b", updated_by="me"))
            result = copied(
                memory,
                workspace.storage,
                SCHEDULES,
                workspace.tenant,
                on_conflict="overwrite" if overwrite else "fail",
            )
        assert [(item.key, item.owner, item.overwritten) for item in result.conflicts] == [
            ((mine.id,), Tenant(workspace.tenant), overwrite)
        ]
        assert dict(result.written) == {workspace.tenant: 3 if overwrite else 2}
        expected: Schedule = theirs[1] if overwrite else mine
        assert workspace.storage.schedules.get(workspace.tenant, mine.id) == expected

    @needs("transactions")
    def test_an_append_only_row_is_never_overwritten(self, workspace: Workspace) -> None:
        mine = workspace.storage.audit.append(workspace.record("a", message="mine"))
        with add_scheduler_memory_storage({}) as memory:
            memory.audit.append(workspace.record("a", message="theirs"))
            result = copied(memory, workspace.storage, AUDIT, workspace.tenant, on_conflict="overwrite")
        assert [item.overwritten for item in result.conflicts] == [False]
        assert dict(result.written) == {}
        assert workspace.storage.audit.get(workspace.tenant, mine.id) == mine

    @needs("transactions")
    def test_a_row_of_another_tenant_under_the_same_key_is_a_conflict(self, workspace: Workspace) -> None:
        theirs = workspace.storage.audit.append(workspace.elsewhere.record("a"))
        with add_scheduler_memory_storage({}) as memory:
            memory.audit.append(make_audit_record(workspace.tenant, theirs.id))
            result = copied(memory, workspace.storage, AUDIT, workspace.tenant)
        assert len(result.conflicts) == 1
        assert workspace.storage.audit.get(workspace.foreign, theirs.id) == theirs

    @needs("transactions")
    def test_a_row_that_the_store_refuses_is_rejected_and_the_others_are_written(
        self, workspace: Workspace
    ) -> None:
        workspace.storage.schedules.upsert(workspace.schedule("mine", name="taken"))
        with add_scheduler_memory_storage({}) as memory:
            there = workspace.on(memory)
            for name in ("a", "taken", "z"):
                memory.schedules.upsert(there.schedule(name))
            result = copied(memory, workspace.storage, SCHEDULES, workspace.tenant)
        assert [item.record.key for item in result.rejected] == [(workspace.id("taken"),)]
        assert result.rejected[0].reason
        assert dict(result.written) == {workspace.tenant: 2}
        assert workspace.storage.schedules.get(workspace.tenant, workspace.id("z")) is not None

    @needs("transactions")
    def test_a_lost_lease_writes_nothing(self, workspace: Workspace) -> None:
        with add_scheduler_memory_storage({}) as memory:
            memory.audit.append(workspace.record("a"))
            with pytest.raises(LeaseLostError):
                copied(memory, workspace.storage, AUDIT, workspace.tenant, during=take_over)
        assert workspace.count(AUDIT) == 0

    @needs("transactions")
    def test_a_failing_source_writes_nothing(self, workspace: Workspace) -> None:
        def fail(*_: object) -> None:
            raise ZeroDivisionError

        with add_scheduler_memory_storage({}) as memory:
            memory.audit.append(workspace.record("a"))
            with pytest.raises(ZeroDivisionError):
                copied(memory, workspace.storage, AUDIT, workspace.tenant, during=fail)
        assert workspace.count(AUDIT) == 0

    @needs("transactions")
    def test_a_failure_after_everything_was_written_leaves_no_row(self, workspace: Workspace) -> None:
        def fail(ledger: Ledger, claim: Claim) -> None:
            raise ZeroDivisionError(*ledger.ranges(claim.job_id))

        with add_scheduler_memory_storage({}) as memory:
            for name in "abc":
                memory.audit.append(workspace.record(name))
            with pytest.raises(ZeroDivisionError) as failure:
                copied(memory, workspace.storage, AUDIT, workspace.tenant, before_commit=fail)
        assert workspace.count(AUDIT) == 0
        (seen_by_others,) = failure.value.args
        assert seen_by_others.state is RangeState.COPYING

    @needs("transactions")
    def test_a_range_that_the_ledger_refuses_leaves_no_row(self, workspace: Workspace) -> None:
        ledger = ledger_of(workspace.storage)
        claim = claimed(ledger, AUDIT)
        with add_scheduler_memory_storage({}) as memory:
            for name in "abc":
                memory.audit.append(workspace.record(name))
            with memory.bulk.view() as view, workspace.storage.bulk.writer(AUDIT) as writer:
                write_all(view, writer, claim, AUDIT, workspace.tenant)
                outcome = writer.flush()
                stale = replace(claim, fence=claim.fence - 1)
                with pytest.raises(LeaseLostError):
                    ledger.finish(writer.access, stale, tally_of(outcome))
        assert workspace.count(AUDIT) == 0
        assert [item.tally for item in ledger.ranges(claim.job_id)] == [None]

    @needs("transactions")
    def test_what_was_not_committed_is_rolled_back(self, workspace: Workspace) -> None:
        with add_scheduler_memory_storage({}) as memory:
            memory.audit.append(workspace.record("a"))
            with workspace.storage.bulk.writer(AUDIT) as writer:
                writer.write(records_of(memory.bulk, AUDIT, EVERYTHING, workspace.tenant))
                assert dict(writer.flush().written) == {workspace.tenant: 1}
        assert workspace.count(AUDIT) == 0

    @needs("transactions")
    def test_nothing_is_written_by_a_range_without_rows(self, workspace: Workspace) -> None:
        with workspace.storage.bulk.writer(AUDIT) as writer:
            writer.write([])
            writer.remove([])
            outcome = writer.flush()
            writer.commit()
        assert outcome == ImportOutcome({}, {})

    @needs("transactions")
    def test_rows_are_removed_by_key_with_their_children(self, workspace: Workspace) -> None:
        kept, gone = (workspace.storage.schedules.upsert(workspace.schedule(name)) for name in "ab")
        with workspace.storage.bulk.writer(SCHEDULES) as writer:
            writer.remove([(gone.id,), (workspace.id("absent"),)])
            outcome = writer.flush()
            writer.commit()
        assert outcome.removed == 1
        assert (workspace.count(SCHEDULES), workspace.count(TRIGGERS)) == (1, 1)
        assert workspace.storage.schedules.get(workspace.tenant, kept.id) == kept

    @needs("transactions")
    def test_rows_of_any_entity_change_with_the_range(self, workspace: Workspace) -> None:
        run = workspace.run("beside")
        with workspace.storage.bulk.writer(AUDIT) as writer:
            writer.flush()
            writer.access.insert(RUNS, ALL_TENANTS, Row(run))
            assert workspace.count(RUNS) == 0
            writer.commit()
        assert workspace.storage.runs.get(workspace.tenant, run.id) == run

    @needs("transactions")
    def test_an_imported_schedule_goes_on_like_any_other(self, workspace: Workspace) -> None:
        with add_scheduler_memory_storage({}) as memory:
            there = workspace.on(memory)
            schedule = memory.schedules.upsert(there.schedule())
            run = memory.runs.create(there.run(schedule_id=schedule.id))
            for entity in (SCHEDULES, TRIGGERS, RUNS):
                copied(memory, workspace.storage, entity, workspace.tenant)
        moved_run = moved(run, run.state, deltas=())
        assert workspace.storage.runs.update(moved_run) is True
        assert workspace.storage.schedules.soft_delete(workspace.tenant, schedule.id, "eve", at(9)) is True
        assert workspace.storage.triggers.get_required(workspace.tenant, schedule.id).enabled is False
        assert workspace.storage.run_summary_service.rebuild(workspace.tenant, schedule.id) is not None
        assert workspace.count(RUN_SUMMARIES) == 1
