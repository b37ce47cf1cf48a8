"""What writing a range promises: all of it or nothing, and nothing that nobody asked for."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

import pytest

from twinstore.bulk.port import ImportOutcome
from twinstore.catalog.keys import KeyRange
from twinstore.catalog.tenancy import ALL_TENANTS, label_of
from twinstore.errors import LeaseLostError
from twinstore.ledger import RangeState
from twinstore.testing.base import CopyContract, needs, of_tenants, where
from twinstore.testing.contracts.bulk import owner_of
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
    from collections.abc import Sequence

    from twinstore.bulk.port import Record
    from twinstore.catalog.entity import Entity
    from twinstore.catalog.keys import Key
    from twinstore.ledger import Claim, Ledger
    from twinstore.testing.workspace import Workspace

__all__ = ["RangeWriterContract"]

EVERYTHING: Final = KeyRange()


class RangeWriterContract(CopyContract, capability="bulk_target"):
    """Writing past the repositories, each range together with its entry in the ledger."""

    @needs("transactions")
    def test_a_copy_from_another_driver_and_back_is_byte_for_byte_equal(
        self, isolated_workspace: Workspace
    ) -> None:
        workspace = isolated_workspace
        with self.in_memory() as memory, self.in_memory() as third:
            self.populate(workspace.on(memory))
            # In this order the parents come first: a child needs its own.
            for entity in self.module.entities:
                copied(memory, workspace.storage, entity, workspace.tenant)
                copied(workspace.storage, third, entity, workspace.tenant)
                expected = contents(memory.bulk, entity, workspace.tenant)
                assert expected, entity.name
                assert contents(workspace.storage.bulk, entity, workspace.tenant) == expected
                assert contents(third.bulk, entity, workspace.tenant) == expected
                assert workspace.count(entity) == len(expected), entity.name

    @needs("transactions")
    def test_a_second_import_writes_only_what_is_absent(self, isolated_workspace: Workspace) -> None:
        workspace, tenant = isolated_workspace, isolated_workspace.tenant
        with self.in_memory() as memory:
            self.populate(workspace.on(memory))
            # In this order the parents come first: a child needs its own.
            for entity in self.module.entities:
                records = records_of(memory.bulk, entity, EVERYTHING, tenant)
                stored: dict[Key, object] = {}
                for part in (records[::2], records, records):
                    outcome = written(workspace, entity, part)
                    assert sum(outcome.written.values()) == len(part) - len(stored), entity.name
                    assert sum(outcome.unchanged.values()) == len(stored), entity.name
                    assert {*outcome.written, *outcome.unchanged} == {label_of(owner_of(entity, workspace))}
                    assert (outcome.conflicts, outcome.rejected) == ((), ())
                    keys = [record.key for record in part if record.key is not None]
                    stamps = {key: workspace.probe.stamp(entity, key) for key in keys}
                    assert {key: stamps[key] for key in stored} == stored, entity.name
                    stored = stamps

    @where(lambda kit: bool(kit.module.of_tenants) and kit.module.typical.shares_keys)
    @needs("transactions")
    def test_a_row_of_another_tenant_under_the_same_key_is_a_conflict(self, workspace: Workspace) -> None:
        typical, name = self.module.typical, workspace.id("a")
        theirs = typical.small(workspace.foreign, name)
        typical.store(workspace.storage.unbound, workspace.foreign, theirs)
        with self.in_memory() as memory:
            typical.store(memory.unbound, workspace.tenant, typical.small(workspace.tenant, name))
            result = copied(memory, workspace.storage, self.entity, workspace.tenant)
        assert len(result.conflicts) == 1
        assert typical.found(workspace.storage.unbound, workspace.foreign, theirs) == theirs

    @of_tenants
    @needs("transactions")
    def test_a_lost_lease_writes_nothing(self, workspace: Workspace) -> None:
        with self.in_memory() as memory:
            self.store_typical(memory.unbound, workspace)
            with pytest.raises(LeaseLostError):
                copied(memory, workspace.storage, self.entity, workspace.tenant, during=take_over)
        assert workspace.count(self.entity) == 0

    @of_tenants
    @needs("transactions")
    def test_a_failing_source_writes_nothing(self, workspace: Workspace) -> None:
        def fail(*_: object) -> None:
            raise ZeroDivisionError

        with self.in_memory() as memory:
            self.store_typical(memory.unbound, workspace)
            with pytest.raises(ZeroDivisionError):
                copied(memory, workspace.storage, self.entity, workspace.tenant, during=fail)
        assert workspace.count(self.entity) == 0

    @of_tenants
    @needs("transactions")
    def test_a_failure_after_everything_was_written_leaves_no_row(self, workspace: Workspace) -> None:
        def fail(ledger: Ledger, claim: Claim) -> None:
            raise ZeroDivisionError(*ledger.ranges(claim.job_id))

        with self.in_memory() as memory:
            for name in "abc":
                self.store_typical(memory.unbound, workspace, name)
            with pytest.raises(ZeroDivisionError) as failure:
                copied(memory, workspace.storage, self.entity, workspace.tenant, before_commit=fail)
        assert workspace.count(self.entity) == 0
        (seen_by_others,) = failure.value.args
        assert seen_by_others.state is RangeState.COPYING

    @of_tenants
    @needs("transactions")
    def test_a_range_that_the_ledger_refuses_leaves_no_row(self, workspace: Workspace) -> None:
        ledger = ledger_of(workspace.storage)
        claim = claimed(ledger, self.entity)
        with self.in_memory() as memory:
            for name in "abc":
                self.store_typical(memory.unbound, workspace, name)
            with memory.bulk.view() as view, workspace.storage.bulk.writer(self.entity) as writer:
                write_all(view, writer, claim, self.entity, workspace.tenant)
                outcome = writer.flush()
                stale = replace(claim, fence=claim.fence - 1)
                with pytest.raises(LeaseLostError):
                    ledger.finish(writer.access, stale, tally_of(outcome))
        assert workspace.count(self.entity) == 0
        assert [item.tally for item in ledger.ranges(claim.job_id)] == [None]

    @of_tenants
    @needs("transactions")
    def test_what_was_not_committed_is_rolled_back(self, workspace: Workspace) -> None:
        with self.in_memory() as memory:
            self.store_typical(memory.unbound, workspace)
            with workspace.storage.bulk.writer(self.entity) as writer:
                writer.write(records_of(memory.bulk, self.entity, EVERYTHING, workspace.tenant))
                assert dict(writer.flush().written) == {workspace.tenant: 1}
        assert workspace.count(self.entity) == 0

    @where(lambda kit: any(entity.assigned for entity in kit.module.entities))
    @needs("transactions")
    def test_numbers_go_on_above_those_that_were_given(self, workspace: Workspace) -> None:
        entities = self.module.entities
        (entity,) = (item for item in entities if item.assigned)
        with self.in_memory() as memory:
            self.populate(workspace.on(memory))
            # The parents first: a child needs its own.
            for parent in entities[: entities.index(entity)]:
                copied(memory, workspace.storage, parent, workspace.tenant)
            (record, *_) = records_of(memory.bulk, entity, EVERYTHING, workspace.tenant)
        first, second = (next_number(workspace, entity) for _ in range(2))
        written(workspace, entity, [replace(record, storage={**record.storage, str(entity.assigned): first})])
        assert next_number(workspace, entity) > second

    @of_tenants
    @needs("transactions")
    def test_nothing_is_written_by_a_range_without_rows(self, workspace: Workspace) -> None:
        with workspace.storage.bulk.writer(self.entity) as writer:
            writer.write([])
            writer.remove([])
            outcome = writer.flush()
            writer.commit()
        assert outcome == ImportOutcome({}, {})

    @of_tenants
    @needs("transactions")
    def test_rows_of_any_entity_change_with_the_range(self, workspace: Workspace) -> None:
        beside = [item for item in self.module.of_tenants if item.entity.parent is None][-1]
        model = beside.small(workspace.tenant, workspace.id("beside"))
        with workspace.storage.bulk.writer(self.entity) as writer:
            writer.flush()
            writer.access.insert(beside.entity, ALL_TENANTS, beside.row(workspace.tenant, model))
            assert workspace.count(beside.entity) == 0
            writer.commit()
        assert beside.found(workspace.storage.unbound, workspace.tenant, model) == model


def written(workspace: Workspace, entity: Entity, records: Sequence[Record]) -> ImportOutcome:
    """Write records as one range."""
    with workspace.storage.bulk.writer(entity) as writer:
        writer.write(records)
        outcome = writer.flush()
        writer.commit()
    return outcome


def next_number(workspace: Workspace, entity: Entity) -> int:
    """Return a number for a new row of an entity, which is given to no row."""
    with workspace.storage.bulk.writer(entity) as writer:
        writer.flush()
        number = writer.access.next_number(entity)
        writer.commit()
    return number
