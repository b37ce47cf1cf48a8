"""What whole entities promise to tools: counts, ranges, views and range writers.

A range is written as a whole or not at all, and without any unrequested rows.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

import pytest

from twinstore.bulk.port import ImportOutcome
from twinstore.catalog.keys import KeyRange
from twinstore.catalog.tenancy import ALL_TENANTS, NO_TENANT, Owner, TenancyKind, Tenant, label_of
from twinstore.clock import truncate_to_millisecond
from twinstore.errors import LeaseLostError
from twinstore.ledger import RangeState
from twinstore.models import json_text
from twinstore.testing.base import BulkCases, CopyContract, each, needs, of_tenants, where
from twinstore.testing.copying import (
    claimed,
    contents,
    copied,
    ledger_of,
    owner_in,
    records_of,
    take_over,
    tally_of,
    write_all,
)
from twinstore.testing.examples import absent_key
from twinstore.testing.workspace import Workspace

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from twinstore.bulk.port import Record
    from twinstore.catalog.entity import Entity
    from twinstore.catalog.keys import Key
    from twinstore.ledger import Claim, Ledger
    from twinstore.testing.probe import BackendFactory

__all__ = ["BulkContract", "RangeWriterContract"]

each_entity = each("entity", lambda kit: kit.module.entities)
EVERYTHING: Final = KeyRange()


def owner_of(entity: Entity, workspace: Workspace) -> Owner:
    """Return the owner that the rows of an entity name which the tenant of a workspace stored."""
    return Tenant(workspace.tenant) if entity.tenant_field is not None else NO_TENANT


class BulkContract(BulkCases, capability="bulk"):
    """Reading whole entities past the repositories, without losing anything."""

    @pytest.fixture(scope="class")
    @classmethod
    def filled(cls, backend_factory: BackendFactory) -> Iterator[Workspace]:
        """Fill a tenant once for all tests of the class; none of them may change it."""
        with backend_factory(cls.module.module) as deployment, deployment.open() as storage:
            workspace = cls.workspace_class(deployment, storage)
            cls.populate(workspace)
            yield workspace

    @pytest.fixture(scope="class")
    @classmethod
    def counts_when_empty(cls) -> dict[str, Mapping[str, int]]:
        """Return where the counts of an empty store by entity are kept."""
        return {}

    @pytest.fixture(scope="class")
    @classmethod
    def of_two_tenants(
        cls, backend_factory: BackendFactory, counts_when_empty: dict[str, Mapping[str, int]]
    ) -> Iterator[Workspace]:
        """Count the rows of an empty store, then fill two tenants for all tests of the class to read."""
        with backend_factory(cls.module.module) as deployment, deployment.open() as storage:
            workspace = cls.workspace_class(deployment, storage)
            for entity in cls.module.entities if storage.capabilities.bulk else ():
                counts_when_empty[entity.name] = storage.bulk.counts(entity)
            cls.populate(workspace)
            cls.populate(workspace.elsewhere)
            yield workspace

    @pytest.fixture(scope="class")
    @classmethod
    def mutable_workspace(cls, backend_factory: BackendFactory) -> Iterator[Workspace]:
        """Fill a tenant in which each entity has one test that may change its rows."""
        with backend_factory(cls.module.module) as deployment, deployment.open() as storage:
            workspace = cls.workspace_class(deployment, storage)
            cls.populate(workspace)
            yield workspace

    def test_the_entities_are_those_of_the_module(self, workspace: Workspace) -> None:
        assert workspace.storage.bulk.entities() == self.module.entities

    def test_the_identity_names_the_store_and_no_secret(
        self, workspace: Workspace, isolated_workspace: Workspace
    ) -> None:
        with workspace.storages(1) as (other,):
            assert other.bulk.identity == workspace.storage.bulk.identity
            assert other.bulk.place == workspace.storage.bulk.place
        assert isolated_workspace.storage.bulk.identity != workspace.storage.bulk.identity
        assert "@" not in workspace.storage.bulk.identity + workspace.storage.bulk.place

    def test_the_time_is_that_of_the_store(self, workspace: Workspace) -> None:
        first, second = workspace.storage.bulk.now(), workspace.storage.bulk.now()
        assert first <= second
        # As instants are stored, so that retention can be judged by it on every store alike.
        assert first == truncate_to_millisecond(first)
        with workspace.storages(1) as (other,):
            assert other.bulk.now() >= second

    @each_entity
    def test_rows_are_counted_by_tenant(
        self, of_two_tenants: Workspace, counts_when_empty: Mapping[str, Mapping[str, int]], entity: Entity
    ) -> None:
        workspace, bulk = of_two_tenants, of_two_tenants.storage.bulk
        assert counts_when_empty[entity.name] == {}
        counts = bulk.counts(entity)
        if not entity.is_owned:
            assert counts == {label_of(NO_TENANT): workspace.count(entity)}
            return
        if entity.tenancy.kind is TenancyKind.PARENT:
            # Such a row names no tenant; only a count for one tenant shows which rows belong to it.
            mine, theirs = workspace.count(entity), workspace.elsewhere.count(entity)
            assert counts == {label_of(NO_TENANT): mine + theirs}
            assert bulk.counts(entity, tenant_id=workspace.foreign) == {label_of(NO_TENANT): theirs}
            assert bulk.counts(entity, tenant_id="nobody") == {}
            return
        assert counts == {
            workspace.tenant: workspace.count(entity),
            workspace.foreign: workspace.elsewhere.count(entity),
        }
        only = bulk.counts(entity, tenant_id=workspace.foreign)
        assert only == {workspace.foreign: counts[workspace.foreign]}
        assert bulk.counts(entity, tenant_id="nobody") == {}

    @each_entity
    @pytest.mark.parametrize("rows", [1, 3, 1000])
    def test_ranges_cover_every_key_once_and_in_order(
        self, filled: Workspace, entity: Entity, rows: int
    ) -> None:
        bulk = filled.storage.bulk
        ranges = list(bulk.cut(entity, rows, tenant_id=owner_in(entity, filled.tenant)))
        assert (ranges[0].lower, ranges[-1].upper) == (None, None)
        assert [item.upper for item in ranges[:-1]] == [item.lower for item in ranges[1:]]
        found = [
            record.key for within in ranges for record in records_of(bulk, entity, within, filled.tenant)
        ]
        assert found == sorted(found, key=lambda key: key or ())
        assert len(found) == len(set(found)) == filled.count(entity)

    @each_entity
    def test_a_range_is_cut_alone_and_sampled_keys_are_those_of_rows(
        self, filled: Workspace, entity: Entity
    ) -> None:
        bulk = filled.storage.bulk
        keys = [record.key for record in records_of(bulk, entity, EVERYTHING, filled.tenant)]
        for within in (KeyRange(None, keys[-1]), KeyRange(keys[1], keys[-1]), KeyRange(keys[1], None)):
            ranges = list(bulk.cut(entity, 3, tenant_id=owner_in(entity, filled.tenant), within=within))
            assert KeyRange(ranges[0].lower, ranges[-1].upper) == within
            assert [item.upper for item in ranges[:-1]] == [item.lower for item in ranges[1:]]
            assert all(None not in (item.lower, item.upper) for item in ranges[1:-1])
        sampled = list(bulk.sample_keys(entity, 3))
        assert len(sampled) <= 3
        assert sampled == sorted(set(sampled))
        with bulk.view() as view:
            assert len(list(view.rows_of(entity, sampled))) == len(sampled)
        # A cluster of several servers would name where each of them begins.
        assert len(bulk.placement(entity)) != 1

    @each_entity
    def test_nothing_is_covered_by_one_unbounded_range(
        self, exclusive_workspace: Workspace, entity: Entity
    ) -> None:
        bulk, tenant = exclusive_workspace.storage.bulk, exclusive_workspace.tenant
        assert list(bulk.cut(entity, 10, tenant_id=owner_in(entity, tenant))) == [EVERYTHING]
        assert records_of(bulk, entity, EVERYTHING, tenant) == []

    @each_entity
    @pytest.mark.parametrize("batch_size", [2, 5, 1000])
    def test_batches_are_never_larger_than_asked(
        self, filled: Workspace, entity: Entity, batch_size: int
    ) -> None:
        bulk = filled.storage.bulk
        for read in ("records", "rows"):
            with bulk.view() as view:
                batches = getattr(view, read)(
                    entity, EVERYTHING, tenant_id=owner_in(entity, filled.tenant), batch_size=batch_size
                )
                sizes = list(map(len, batches))
            assert sum(sizes) == filled.count(entity)
            assert all(0 < size <= batch_size for size in sizes)

    @each_entity
    def test_a_range_includes_its_lower_and_excludes_its_upper_key(
        self, filled: Workspace, entity: Entity
    ) -> None:
        bulk = filled.storage.bulk
        keys = [record.key for record in records_of(bulk, entity, EVERYTHING, filled.tenant)]
        within = KeyRange(keys[0], keys[-1])
        assert [record.key for record in records_of(bulk, entity, within, filled.tenant)] == keys[:-1]
        assert list(contents(bulk, entity, filled.tenant, within)) == keys[:-1]
        last = KeyRange(keys[-1], None)
        assert [record.key for record in records_of(bulk, entity, last, filled.tenant)] == keys[-1:]

    @each_entity
    def test_an_exported_row_is_the_model_with_its_markers(self, filled: Workspace, entity: Entity) -> None:
        for record in records_of(filled.storage.bulk, entity, EVERYTHING, filled.tenant):
            assert record.key is not None
            row = filled.probe.read(entity, record.key)
            assert row is not None
            assert isinstance(record.model, entity.model)
            assert (record.owner, record.error, record.raw) == (owner_of(entity, filled), None, None)
            assert (dict(record.storage), record.text_timestamp) == (dict(row.markers), False)

    @each_entity
    def test_a_scanned_row_has_the_canonical_bytes_of_model_and_markers(
        self, filled: Workspace, entity: Entity
    ) -> None:
        bulk = filled.storage.bulk
        expected = {
            record.key: json_text.dumps_sorted({"doc": record.model.wire(), "storage": dict(record.storage)})
            for record in records_of(bulk, entity, EVERYTHING, filled.tenant)
            if record.model is not None
        }
        assert contents(bulk, entity, filled.tenant) == expected
        assert list(contents(bulk, entity, filled.tenant)) == list(expected)

    @each_entity
    def test_fetch_finds_single_rows_and_skips_the_others(self, filled: Workspace, entity: Entity) -> None:
        bulk = filled.storage.bulk
        rows = contents(bulk, entity, filled.tenant)
        wanted = [key for key in list(rows)[::2] if key is not None]
        absent = absent_key(entity)
        with bulk.view() as view:
            found = {row.key: row.content for row in view.rows_of(entity, [absent, *wanted])}
            assert found == {key: rows[key] for key in wanted}
            assert list(view.rows_of(entity, [])) == []

    @each_entity
    def test_single_records_are_those_of_the_range(self, filled: Workspace, entity: Entity) -> None:
        bulk = filled.storage.bulk
        all_records = {item.key: item for item in records_of(bulk, entity, EVERYTHING, filled.tenant)}
        wanted = [key for key in list(all_records)[::2] if key is not None]
        absent = absent_key(entity)
        with bulk.view() as view:
            found = {item.key: item for item in view.records_of(entity, [absent, *wanted])}
            assert found == {key: all_records[key] for key in wanted}
            assert list(view.records_of(entity, [])) == []

    @each("entity", lambda kit: [entity for entity in kit.module.entities if entity.retention is not None])
    def test_each_row_is_scanned_with_the_instant_by_which_it_expires(
        self, filled: Workspace, entity: Entity
    ) -> None:
        assert entity.retention is not None
        expected = {
            record.key: entity.value(record.model, record.storage, entity.retention.field)
            for record in records_of(filled.storage.bulk, entity, EVERYTHING, filled.tenant)
            if record.model is not None
        }
        with filled.storage.bulk.view() as view:
            batches = view.rows(entity, EVERYTHING, tenant_id=owner_in(entity, filled.tenant))
            assert {row.key: row.expires for batch in batches for row in batch} == expected

    def test_a_view_reads_one_list_after_the_other(self, filled: Workspace) -> None:
        with filled.storage.bulk.view() as view:
            for entity in self.module.entities:
                tenant = owner_in(entity, filled.tenant)
                records = view.records(entity, EVERYTHING, tenant_id=tenant)
                rows = view.rows(entity, EVERYTHING, tenant_id=tenant)
                keys = [record.key for batch in records for record in batch]
                assert keys == [row.key for batch in rows for row in batch] != []

    def test_a_list_may_be_left_half_read(self, filled: Workspace) -> None:
        entity = self.module.entities[0]
        with filled.storage.bulk.view() as view:
            tenant = owner_in(entity, filled.tenant)
            first = next(view.records(entity, EVERYTHING, tenant_id=tenant, batch_size=1))
        assert len(first) == 1
        assert records_of(filled.storage.bulk, entity, EVERYTHING, filled.tenant)[0].key == first[0].key

    @each_entity
    def test_a_broken_row_is_exported_with_its_reason_and_still_scanned(
        self, mutable_workspace: Workspace, entity: Entity
    ) -> None:
        workspace, bulk = mutable_workspace, mutable_workspace.storage.bulk
        before = contents(bulk, entity, workspace.tenant)
        broken = next(iter(before))
        assert broken is not None
        workspace.probe.poison(entity, broken, "p0is0n")
        records = records_of(bulk, entity, EVERYTHING, workspace.tenant)
        bad = [record for record in records if record.error is not None]
        assert [(record.key, record.model, record.owner) for record in bad] == [
            (broken, None, owner_of(entity, workspace))
        ]
        assert "p0is0n" in (bad[0].raw or "")
        after = contents(bulk, entity, workspace.tenant)
        assert {key for key in after if after[key] != before[key]} == {broken}
        assert b"p0is0n" in after[broken]


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
        additional = [item for item in self.module.of_tenants if item.entity.parent is None][-1]
        model = additional.small(workspace.tenant, workspace.id("beside"))
        with workspace.storage.bulk.writer(self.entity) as writer:
            writer.flush()
            writer.access.insert(additional.entity, ALL_TENANTS, additional.row(workspace.tenant, model))
            assert workspace.count(additional.entity) == 0
            writer.commit()
        assert additional.found(workspace.storage.unbound, workspace.tenant, model) == model


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
