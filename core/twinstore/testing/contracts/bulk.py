"""What whole entities promise to tools: counts, ranges, views and range writers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

from twinstore import jsontext
from twinstore.bulk import KeyRange
from twinstore.scheduler.catalog import (
    AUDIT,
    IMPACT_SNAPSHOTS,
    RUNS,
    SCHEDULER,
    SCHEDULES,
)
from twinstore.tenancy import Tenant
from twinstore.testing.base import Contract
from twinstore.testing.builders import (
    at,
    rich_audit_record,
    rich_impact_set,
    rich_run_summary,
    rich_schedule,
)
from twinstore.testing.contracts.runs import finished
from twinstore.testing.copying import (
    contents,
    records_of,
)
from twinstore.testing.scalars import EDGE_TEXTS
from twinstore.testing.scheduler.examples import SCHEDULER_EXAMPLES
from twinstore.testing.workspace import Workspace

if TYPE_CHECKING:
    from twinstore.catalog import Entity
    from twinstore.scheduler.storage import SchedulerStorage
    from twinstore.testing.probe import Deployment

__all__ = ["BulkContract"]

each_entity = pytest.mark.parametrize("entity", SCHEDULER.entities, ids=lambda entity: entity.name)
EVERYTHING: Final = KeyRange()


def populate(workspace: Workspace) -> None:
    """Store rows of every entity, ids in awkward order, soft-deleted and derived ones among them."""
    storage, tenant = workspace.storage, workspace.tenant
    for number, text in enumerate(EDGE_TEXTS):
        schedule = rich_schedule(tenant, workspace.id(text), name=f"{text}{number}")
        storage.schedules.upsert(schedule)
        storage.audit.append(rich_audit_record(tenant, workspace.id(text), occurred_at=at(-number)))
    storage.schedules.soft_delete(tenant, workspace.id(EDGE_TEXTS[0]), "eve", at(99))
    storage.runs.create(workspace.run("planned", schedule_id="s"))
    finished(workspace, "finished", 5)
    storage.impact_snapshots.upsert(tenant, rich_impact_set(tenant))
    storage.impact_snapshots.upsert(
        tenant, rich_impact_set(tenant, snapshot_id=workspace.id("own")), run_id="r"
    )
    storage.run_summaries.upsert(rich_run_summary(tenant, workspace.id("s")))
    storage.run_summaries.upsert(workspace.summary("t"))
    for item in SCHEDULER_EXAMPLES.of_the_system:
        for text in EDGE_TEXTS:
            item.store(storage.unbound, tenant, item.rich(tenant, workspace.id(text)))


class BulkContract(Contract, capability="bulk"):
    """Reading whole entities past the repositories, without losing anything."""

    @pytest.fixture(scope="class")
    @classmethod
    def filled(cls, deployment: Deployment, storage: SchedulerStorage) -> Workspace:
        """Fill a tenant once for all tests of the class; none of them may change it."""
        workspace = Workspace(deployment, storage)
        populate(workspace)
        return workspace

    def test_the_entities_are_those_of_the_module(self, workspace: Workspace) -> None:
        assert workspace.storage.bulk.entities() == SCHEDULER.entities

    def test_the_identity_names_the_store_and_no_secret(
        self, workspace: Workspace, isolated_workspace: Workspace
    ) -> None:
        with workspace.storages(1) as (other,):
            assert other.bulk.identity == workspace.storage.bulk.identity
            assert other.bulk.place == workspace.storage.bulk.place
        assert isolated_workspace.storage.bulk.identity != workspace.storage.bulk.identity
        assert "@" not in workspace.storage.bulk.identity + workspace.storage.bulk.place

    @each_entity
    def test_rows_are_counted_by_tenant(self, isolated_workspace: Workspace, entity: Entity) -> None:
        assert isolated_workspace.storage.bulk.counts(entity) == {}
        populate(isolated_workspace)
        populate(isolated_workspace.elsewhere)
        counts = isolated_workspace.storage.bulk.counts(entity)
        assert counts == {
            isolated_workspace.tenant: isolated_workspace.count(entity),
            isolated_workspace.foreign: isolated_workspace.elsewhere.count(entity),
        }
        only = isolated_workspace.storage.bulk.counts(entity, tenant_id=isolated_workspace.foreign)
        assert only == {isolated_workspace.foreign: counts[isolated_workspace.foreign]}
        assert isolated_workspace.storage.bulk.counts(entity, tenant_id="nobody") == {}

    @each_entity
    @pytest.mark.parametrize("rows", [1, 3, 1000])
    def test_ranges_cover_every_key_once_and_in_order(
        self, filled: Workspace, entity: Entity, rows: int
    ) -> None:
        bulk = filled.storage.bulk
        ranges = list(bulk.cut(entity, rows, tenant_id=filled.tenant))
        assert (ranges[0].lower, ranges[-1].upper) == (None, None)
        assert [item.upper for item in ranges[:-1]] == [item.lower for item in ranges[1:]]
        found = [
            record.key for within in ranges for record in records_of(bulk, entity, within, filled.tenant)
        ]
        assert found == sorted(found, key=lambda key: key or ())
        assert len(found) == len(set(found)) == filled.count(entity)

    @each_entity
    def test_nothing_is_covered_by_one_unbounded_range(self, workspace: Workspace, entity: Entity) -> None:
        assert list(workspace.storage.bulk.cut(entity, 10, tenant_id=workspace.tenant)) == [EVERYTHING]
        assert records_of(workspace.storage.bulk, entity, EVERYTHING, workspace.tenant) == []

    @each_entity
    @pytest.mark.parametrize("batch_size", [2, 5, 1000])
    def test_batches_are_never_larger_than_asked(
        self, filled: Workspace, entity: Entity, batch_size: int
    ) -> None:
        bulk = filled.storage.bulk
        for read in ("records", "rows"):
            with bulk.view() as view:
                batches = getattr(view, read)(
                    entity, EVERYTHING, tenant_id=filled.tenant, batch_size=batch_size
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
            assert (record.owner, record.error, record.raw) == (Tenant(filled.tenant), None, None)
            assert (dict(record.storage), record.text_timestamp) == (dict(row.markers), False)

    @each_entity
    def test_a_scanned_row_has_the_canonical_bytes_of_model_and_markers(
        self, filled: Workspace, entity: Entity
    ) -> None:
        bulk = filled.storage.bulk
        expected = {
            record.key: jsontext.dumps_sorted({"doc": record.model.wire(), "storage": dict(record.storage)})
            for record in records_of(bulk, entity, EVERYTHING, filled.tenant)
            if record.model is not None
        }
        assert contents(bulk, entity, filled.tenant) == expected
        assert list(contents(bulk, entity, filled.tenant)) == list(expected)

    @each_entity
    def test_fetch_finds_single_rows_and_leaves_out_the_others(
        self, filled: Workspace, entity: Entity
    ) -> None:
        bulk = filled.storage.bulk
        rows = contents(bulk, entity, filled.tenant)
        wanted = [key for key in list(rows)[::2] if key is not None]
        absent = tuple("absent" for _ in entity.key)
        with bulk.view() as view:
            found = {row.key: row.content for row in view.rows_of(entity, [*wanted, absent])}
            assert found == {key: rows[key] for key in wanted}
            assert list(view.rows_of(entity, [])) == []

    @each_entity
    def test_single_records_are_those_of_the_range(self, filled: Workspace, entity: Entity) -> None:
        bulk = filled.storage.bulk
        all_records = {item.key: item for item in records_of(bulk, entity, EVERYTHING, filled.tenant)}
        wanted = [key for key in list(all_records)[::2] if key is not None]
        absent = tuple("absent" for _ in entity.key)
        with bulk.view() as view:
            found = {item.key: item for item in view.records_of(entity, [*wanted, absent])}
            assert found == {key: all_records[key] for key in wanted}
            assert list(view.records_of(entity, [])) == []

    def test_a_view_reads_one_list_after_the_other(self, filled: Workspace) -> None:
        with filled.storage.bulk.view() as view:
            for entity in SCHEDULER.entities:
                records = view.records(entity, EVERYTHING, tenant_id=filled.tenant)
                rows = view.rows(entity, EVERYTHING, tenant_id=filled.tenant)
                keys = [record.key for batch in records for record in batch]
                assert keys == [row.key for batch in rows for row in batch] != []

    def test_a_list_may_be_left_half_read(self, filled: Workspace) -> None:
        with filled.storage.bulk.view() as view:
            first = next(view.records(SCHEDULES, EVERYTHING, tenant_id=filled.tenant, batch_size=1))
        assert len(first) == 1
        assert records_of(filled.storage.bulk, SCHEDULES, EVERYTHING, filled.tenant)[0].key == first[0].key

    def test_the_instant_of_retention_is_scanned(self, filled: Workspace) -> None:
        for entity, expected in ((RUNS, {None, at(5)}), (IMPACT_SNAPSHOTS, {at(0.123)}), (AUDIT, {None})):
            with filled.storage.bulk.view() as view:
                batches = view.rows(entity, EVERYTHING, tenant_id=filled.tenant)
                assert {row.expires for batch in batches for row in batch} == expected

    @each_entity
    def test_a_broken_row_is_exported_with_its_reason_and_still_scanned(
        self, workspace: Workspace, entity: Entity
    ) -> None:
        populate(workspace)
        bulk = workspace.storage.bulk
        before = contents(bulk, entity, workspace.tenant)
        broken = next(iter(before))
        assert broken is not None
        workspace.probe.poison(entity, broken, "p0is0n")
        records = records_of(bulk, entity, EVERYTHING, workspace.tenant)
        bad = [record for record in records if record.error is not None]
        assert [(record.key, record.model, record.owner) for record in bad] == [
            (broken, None, Tenant(workspace.tenant))
        ]
        assert "p0is0n" in (bad[0].raw or "")
        after = contents(bulk, entity, workspace.tenant)
        assert {key for key in after if after[key] != before[key]} == {broken}
        assert b"p0is0n" in after[broken]
