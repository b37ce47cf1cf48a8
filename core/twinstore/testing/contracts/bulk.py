"""What whole entities promise to tools: counts, ranges, export, scan and import."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

from twinstore import jsontext
from twinstore.bulk import KeyRange
from twinstore.errors import LeaseLostError
from twinstore.scheduler.catalog import (
    AUDIT,
    IMPACT_SNAPSHOTS,
    RUN_SUMMARIES,
    RUNS,
    SCHEDULER,
    SCHEDULES,
    TRIGGERS,
)
from twinstore.storage import add_scheduler_memory_storage
from twinstore.testing.base import Contract, needs
from twinstore.testing.bench import Bench
from twinstore.testing.builders import (
    at,
    make_audit_record,
    moved,
    rich_audit_record,
    rich_impact_set,
    rich_run_summary,
    rich_schedule,
)
from twinstore.testing.contracts.runs import finished
from twinstore.testing.copying import contents, copied, records_of, take_over
from twinstore.testing.scalars import EDGE_TEXTS

if TYPE_CHECKING:
    from twinstore.catalog import Entity
    from twinstore.scheduler.schedules import Schedule
    from twinstore.scheduler.storage import SchedulerStorage
    from twinstore.testing.probe import Deployment

__all__ = ["BulkContract"]

each_entity = pytest.mark.parametrize("entity", SCHEDULER.entities, ids=lambda entity: entity.name)
EVERYTHING: Final = KeyRange()


def populate(bench: Bench) -> None:
    """Store rows of every entity, ids in awkward order, soft-deleted and derived ones among them."""
    storage, tenant = bench.storage, bench.tenant
    for number, text in enumerate(EDGE_TEXTS):
        schedule = rich_schedule(tenant, bench.id(text), name=f"{text}{number}")
        storage.schedules.upsert(schedule)
        storage.audit.append(rich_audit_record(tenant, bench.id(text), occurred_at=at(-number)))
    storage.schedules.soft_delete(tenant, bench.id(EDGE_TEXTS[0]), "eve", at(99))
    storage.runs.create(bench.run("planned", schedule_id="s"))
    finished(bench, "finished", 5)
    storage.impact_snapshots.upsert(tenant, rich_impact_set(tenant))
    storage.impact_snapshots.upsert(tenant, rich_impact_set(tenant, snapshot_id=bench.id("own")), run_id="r")
    storage.run_summaries.upsert(rich_run_summary(tenant, bench.id("s")))
    storage.run_summaries.upsert(bench.summary("t"))


class BulkContract(Contract, capability="bulk"):
    """Reading and writing past the repositories, without losing anything."""

    @pytest.fixture(scope="class")
    @classmethod
    def filled(cls, deployment: Deployment, storage: SchedulerStorage) -> Bench:
        """Fill a tenant once for all tests of the class; none of them may change it."""
        bench = Bench(deployment, storage)
        populate(bench)
        return bench

    def test_the_entities_are_those_of_the_module(self, bench: Bench) -> None:
        assert bench.storage.bulk.entities() == SCHEDULER.entities

    def test_the_identity_names_the_store_and_no_secret(self, bench: Bench, lone_bench: Bench) -> None:
        with bench.storages(1) as (other,):
            assert other.bulk.identity == bench.storage.bulk.identity
        assert lone_bench.storage.bulk.identity != bench.storage.bulk.identity
        assert "@" not in bench.storage.bulk.identity

    @each_entity
    def test_rows_are_counted_by_tenant(self, lone_bench: Bench, entity: Entity) -> None:
        assert lone_bench.storage.bulk.counts(entity) == {}
        populate(lone_bench)
        populate(lone_bench.elsewhere)
        counts = lone_bench.storage.bulk.counts(entity)
        assert counts == {
            lone_bench.tenant: lone_bench.count(entity),
            lone_bench.foreign: lone_bench.elsewhere.count(entity),
        }
        only = lone_bench.storage.bulk.counts(entity, tenant_id=lone_bench.foreign)
        assert only == {lone_bench.foreign: counts[lone_bench.foreign]}
        assert lone_bench.storage.bulk.counts(entity, tenant_id="nobody") == {}

    @each_entity
    @pytest.mark.parametrize("rows", [1, 3, 1000])
    def test_ranges_cover_every_key_once_and_in_order(self, filled: Bench, entity: Entity, rows: int) -> None:
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
    def test_nothing_is_covered_by_one_unbounded_range(self, bench: Bench, entity: Entity) -> None:
        assert list(bench.storage.bulk.cut(entity, 10, tenant_id=bench.tenant)) == [EVERYTHING]
        assert records_of(bench.storage.bulk, entity, EVERYTHING, bench.tenant) == []

    @each_entity
    @pytest.mark.parametrize("batch_size", [2, 5, 1000])
    def test_batches_are_never_larger_than_asked(
        self, filled: Bench, entity: Entity, batch_size: int
    ) -> None:
        bulk = filled.storage.bulk
        exported = bulk.export(entity, EVERYTHING, tenant_id=filled.tenant, batch_size=batch_size)
        scanned = bulk.scan(entity, EVERYTHING, tenant_id=filled.tenant, batch_size=batch_size)
        for sizes in (list(map(len, exported)), list(map(len, scanned))):
            assert sum(sizes) == filled.count(entity)
            assert all(0 < size <= batch_size for size in sizes)

    @each_entity
    def test_a_range_includes_its_lower_and_excludes_its_upper_key(
        self, filled: Bench, entity: Entity
    ) -> None:
        bulk = filled.storage.bulk
        keys = [record.key for record in records_of(bulk, entity, EVERYTHING, filled.tenant)]
        within = KeyRange(keys[0], keys[-1])
        assert [record.key for record in records_of(bulk, entity, within, filled.tenant)] == keys[:-1]
        assert list(contents(bulk, entity, filled.tenant, within)) == keys[:-1]
        last = KeyRange(keys[-1], None)
        assert [record.key for record in records_of(bulk, entity, last, filled.tenant)] == keys[-1:]

    @each_entity
    def test_an_exported_row_is_the_model_with_its_markers(self, filled: Bench, entity: Entity) -> None:
        for record in records_of(filled.storage.bulk, entity, EVERYTHING, filled.tenant):
            assert record.key is not None
            row = filled.probe.read(entity, record.key)
            assert row is not None
            assert isinstance(record.model, entity.model)
            assert (record.tenant_id, record.error, record.raw) == (filled.tenant, None, None)
            assert (dict(record.storage), record.text_timestamp) == (dict(row.markers), False)

    @each_entity
    def test_a_scanned_row_has_the_canonical_bytes_of_model_and_markers(
        self, filled: Bench, entity: Entity
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
    def test_fetch_finds_single_rows_and_leaves_out_the_others(self, filled: Bench, entity: Entity) -> None:
        rows = contents(filled.storage.bulk, entity, filled.tenant)
        wanted = [key for key in list(rows)[::2] if key is not None]
        absent = tuple("absent" for _ in entity.key)
        found = {row.key: row.content for row in filled.storage.bulk.fetch(entity, [*wanted, absent])}
        assert found == {key: rows[key] for key in wanted}
        assert list(filled.storage.bulk.fetch(entity, [])) == []

    def test_the_instant_of_retention_is_scanned(self, filled: Bench) -> None:
        for entity, expected in ((RUNS, {None, at(5)}), (IMPACT_SNAPSHOTS, {at(0.123)}), (AUDIT, {None})):
            batches = filled.storage.bulk.scan(entity, EVERYTHING, tenant_id=filled.tenant)
            assert {row.expires for batch in batches for row in batch} == expected

    @each_entity
    def test_a_broken_row_is_exported_with_its_reason_and_still_scanned(
        self, bench: Bench, entity: Entity
    ) -> None:
        populate(bench)
        bulk = bench.storage.bulk
        before = contents(bulk, entity, bench.tenant)
        broken = next(iter(before))
        assert broken is not None
        bench.probe.poison(entity, broken, "p0is0n")
        records = records_of(bulk, entity, EVERYTHING, bench.tenant)
        bad = [record for record in records if record.error is not None]
        assert [(record.key, record.model, record.tenant_id) for record in bad] == [
            (broken, None, bench.tenant)
        ]
        assert "p0is0n" in (bad[0].raw or "")
        after = contents(bulk, entity, bench.tenant)
        assert {key for key in after if after[key] != before[key]} == {broken}
        assert b"p0is0n" in after[broken]

    @each_entity
    @needs("transactions")
    def test_a_copy_from_another_driver_and_back_is_byte_for_byte_equal(
        self, bench: Bench, entity: Entity
    ) -> None:
        with add_scheduler_memory_storage({}) as memory, add_scheduler_memory_storage({}) as third:
            populate(bench.on(memory))
            for step in SCHEDULER.entities:
                copied(memory, bench.storage, step, bench.tenant)
                copied(bench.storage, third, step, bench.tenant)
            expected = contents(memory.bulk, entity, bench.tenant)
            assert expected
            assert contents(bench.storage.bulk, entity, bench.tenant) == expected
            assert contents(third.bulk, entity, bench.tenant) == expected
            assert bench.count(entity) == len(expected)

    @each_entity
    @needs("transactions")
    def test_a_second_import_writes_nothing(self, bench: Bench, entity: Entity) -> None:
        with add_scheduler_memory_storage({}) as memory:
            populate(bench.on(memory))
            # The parents first: a trigger needs its schedule.
            for parent in SCHEDULER.entities[: SCHEDULER.entities.index(entity)]:
                copied(memory, bench.storage, parent, bench.tenant)
            first = copied(memory, bench.storage, entity, bench.tenant)
            keys = [key for key in contents(bench.storage.bulk, entity, bench.tenant) if key is not None]
            before = [bench.probe.stamp(entity, key) for key in keys]
            second = copied(memory, bench.storage, entity, bench.tenant)
        assert (dict(first.written), dict(first.unchanged)) == ({bench.tenant: len(keys)}, {})
        assert (dict(second.written), dict(second.unchanged)) == ({}, {bench.tenant: len(keys)})
        assert (second.conflicts, second.rejected) == ((), ())
        assert [bench.probe.stamp(entity, key) for key in keys] == before

    @needs("transactions")
    @pytest.mark.parametrize("overwrite", [False, True])
    def test_other_content_is_a_conflict_and_overwritten_on_request(
        self, bench: Bench, *, overwrite: bool
    ) -> None:
        with add_scheduler_memory_storage({}) as memory:
            there = bench.on(memory)
            theirs = [memory.schedules.upsert(there.schedule(name, updated_by="them")) for name in "abc"]
            mine = bench.storage.schedules.upsert(bench.schedule("b", updated_by="me"))
            result = copied(
                memory,
                bench.storage,
                SCHEDULES,
                bench.tenant,
                on_conflict="overwrite" if overwrite else "fail",
            )
        assert [(item.key, item.tenant_id, item.overwritten) for item in result.conflicts] == [
            ((mine.id,), bench.tenant, overwrite)
        ]
        assert dict(result.written) == {bench.tenant: 3 if overwrite else 2}
        expected: Schedule = theirs[1] if overwrite else mine
        assert bench.storage.schedules.get(bench.tenant, mine.id) == expected

    @needs("transactions")
    def test_an_append_only_row_is_never_overwritten(self, bench: Bench) -> None:
        mine = bench.storage.audit.append(bench.record("a", message="mine"))
        with add_scheduler_memory_storage({}) as memory:
            memory.audit.append(bench.record("a", message="theirs"))
            result = copied(memory, bench.storage, AUDIT, bench.tenant, on_conflict="overwrite")
        assert [item.overwritten for item in result.conflicts] == [False]
        assert dict(result.written) == {}
        assert bench.storage.audit.get(bench.tenant, mine.id) == mine

    @needs("transactions")
    def test_a_row_of_another_tenant_under_the_same_key_is_a_conflict(self, bench: Bench) -> None:
        theirs = bench.storage.audit.append(bench.elsewhere.record("a"))
        with add_scheduler_memory_storage({}) as memory:
            memory.audit.append(make_audit_record(bench.tenant, theirs.id))
            result = copied(memory, bench.storage, AUDIT, bench.tenant)
        assert len(result.conflicts) == 1
        assert bench.storage.audit.get(bench.foreign, theirs.id) == theirs

    @needs("transactions")
    def test_a_row_that_the_store_refuses_is_rejected_and_the_others_are_written(self, bench: Bench) -> None:
        bench.storage.schedules.upsert(bench.schedule("mine", name="taken"))
        with add_scheduler_memory_storage({}) as memory:
            there = bench.on(memory)
            for name in ("a", "taken", "z"):
                memory.schedules.upsert(there.schedule(name))
            result = copied(memory, bench.storage, SCHEDULES, bench.tenant)
        assert [item.record.key for item in result.rejected] == [(bench.id("taken"),)]
        assert result.rejected[0].reason
        assert dict(result.written) == {bench.tenant: 2}
        assert bench.storage.schedules.get(bench.tenant, bench.id("z")) is not None

    @needs("transactions")
    def test_a_lost_lease_writes_nothing(self, bench: Bench) -> None:
        with add_scheduler_memory_storage({}) as memory:
            memory.audit.append(bench.record("a"))
            with pytest.raises(LeaseLostError):
                copied(memory, bench.storage, AUDIT, bench.tenant, during=take_over)
        assert bench.count(AUDIT) == 0

    @needs("transactions")
    def test_a_failing_source_writes_nothing(self, bench: Bench) -> None:
        def fail(*_: object) -> None:
            raise ZeroDivisionError

        with add_scheduler_memory_storage({}) as memory:
            memory.audit.append(bench.record("a"))
            with pytest.raises(ZeroDivisionError):
                copied(memory, bench.storage, AUDIT, bench.tenant, during=fail)
        assert bench.count(AUDIT) == 0

    @needs("transactions")
    def test_an_imported_schedule_goes_on_like_any_other(self, bench: Bench) -> None:
        with add_scheduler_memory_storage({}) as memory:
            there = bench.on(memory)
            schedule = memory.schedules.upsert(there.schedule())
            run = memory.runs.create(there.run(schedule_id=schedule.id))
            for entity in (SCHEDULES, TRIGGERS, RUNS):
                copied(memory, bench.storage, entity, bench.tenant)
        moved_run = moved(run, run.state, deltas=())
        assert bench.storage.runs.update(moved_run) is True
        assert bench.storage.schedules.soft_delete(bench.tenant, schedule.id, "eve", at(9)) is True
        assert bench.storage.triggers.get_required(bench.tenant, schedule.id).enabled is False
        assert bench.storage.run_summary_service.rebuild(bench.tenant, schedule.id) is not None
        assert bench.count(RUN_SUMMARIES) == 1
