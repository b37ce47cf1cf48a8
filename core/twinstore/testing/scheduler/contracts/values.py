"""Every value that a model of the scheduler admits comes back as it was written."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from twinstore.errors import ValidationError
from twinstore.models.fields import INT64_MAX
from twinstore.scheduler.catalog import AUDIT, IMPACT_SNAPSHOTS, RUN_SUMMARIES, RUNS, SCHEDULES, TRIGGERS
from twinstore.scheduler.enums import RunState
from twinstore.scheduler.runs import RunStats
from twinstore.scheduler.schedules import ScheduleQueryOptions
from twinstore.testing.base import examples
from twinstore.testing.contracts.values import any_id, assert_stored, same_bytes
from twinstore.testing.instants import at
from twinstore.testing.scalars import EARLIEST, EDGE_TEXTS, LATEST, ids
from twinstore.testing.scheduler.builders import (
    make_run,
    make_schedule,
    moved,
    rich_audit_record,
    rich_impact_set,
    rich_run,
    rich_run_summary,
    rich_schedule,
)
from twinstore.testing.scheduler.cases import SchedulerCases
from twinstore.testing.scheduler.strategies import impact_sets, runs, schedules
from twinstore.testing.workspace import all_pages, unique

if TYPE_CHECKING:
    from datetime import datetime

    from twinstore.testing.scheduler.workspace import SchedulerWorkspace

__all__ = ["SchedulerValueContract"]


class SchedulerValueContract(SchedulerCases):
    """Round trips of each model over the full range of its values."""

    @examples(12)
    @given(data=st.data())
    def test_any_schedule_comes_back(self, workspace: SchedulerWorkspace, data: st.DataObject) -> None:
        tenant = unique("t")
        schedule = data.draw(schedules(tenant, any_id(data)))
        assert workspace.storage.schedules.upsert(schedule) == schedule
        assert same_bytes(workspace.storage.schedules.get(tenant, schedule.id), schedule)
        assert tuple(workspace.storage.schedules.list(tenant)) == (schedule,)
        assert_stored(workspace, SCHEDULES, (schedule.id,), schedule)
        trigger = workspace.storage.triggers.get_required(tenant, schedule.id)
        assert_stored(workspace, TRIGGERS, (trigger.id,), trigger)

    @examples(12)
    @given(data=st.data())
    def test_any_finished_run_comes_back(self, workspace: SchedulerWorkspace, data: st.DataObject) -> None:
        tenant = unique("t")
        run = data.draw(runs(tenant, any_id(data), (RunState.ERROR, RunState.CANCELLED)))
        planned = moved(run, RunState.PLANNING, stats=RunStats(), deltas=(), reason=None)
        workspace.storage.runs.create(planned)
        assert workspace.storage.runs.update(run) is True
        assert same_bytes(workspace.storage.runs.get(tenant, run.id), run)
        assert_stored(workspace, RUNS, (run.id,), run)

    @examples(12)
    @given(data=st.data())
    def test_any_snapshot_comes_back(self, workspace: SchedulerWorkspace, data: st.DataObject) -> None:
        tenant = unique("t")
        own = data.draw(st.booleans())
        snapshot = data.draw(impact_sets(tenant)).evolve(snapshot_id=any_id(data) if own else None)
        key = workspace.storage.impact_snapshots.upsert(tenant, snapshot, run_id=data.draw(st.none() | ids()))
        assert same_bytes(workspace.storage.impact_snapshots.get(tenant, key), snapshot)
        assert (
            workspace.storage.impact_snapshots.get_latest_by_selector(tenant, snapshot.selector) == snapshot
        )
        assert_stored(workspace, IMPACT_SNAPSHOTS, (key,), snapshot)

    def test_models_with_every_field_are_stored_as_their_canonical_form(
        self, workspace: SchedulerWorkspace
    ) -> None:
        storage, tenant = workspace.storage, workspace.tenant
        schedule = storage.schedules.upsert(rich_schedule(tenant, workspace.id("a")))
        assert_stored(workspace, SCHEDULES, (schedule.id,), schedule)
        run = storage.runs.create(
            rich_run(
                tenant,
                workspace.id("a"),
                state=RunState.QUEUED,
                started_at=None,
                finished_at=None,
                error=None,
            )
        )
        assert_stored(workspace, RUNS, (run.id,), run)
        failed = rich_run(tenant, workspace.id("a"))
        assert storage.runs.update(failed) is True
        assert_stored(workspace, RUNS, (run.id,), failed)
        snapshot = rich_impact_set(tenant)
        key = storage.impact_snapshots.upsert(tenant, snapshot)
        assert_stored(workspace, IMPACT_SNAPSHOTS, (key,), snapshot)
        record = storage.audit.append(rich_audit_record(tenant, workspace.id("a")))
        assert_stored(workspace, AUDIT, (record.id,), record)
        summary = storage.run_summaries.upsert(rich_run_summary(tenant, workspace.id("a")))
        assert_stored(workspace, RUN_SUMMARIES, (tenant, summary.schedule_id), summary)

    @pytest.mark.parametrize("text", EDGE_TEXTS, ids=ascii)
    def test_ids_and_tenants_of_full_length_come_back(self, workspace: SchedulerWorkspace, text: str) -> None:
        tenant = (unique("t") + text[0] * 128)[:128].strip()
        key = (unique("i") + text[0] * 256)[:256].strip()
        schedule = make_schedule(tenant, key, name=(text[0] * 200).strip())
        run = make_run(tenant, key, schedule_id=key, retry_of=key)
        assert workspace.storage.schedules.upsert(schedule) == schedule
        assert workspace.storage.runs.create(run) == run
        assert workspace.storage.run_summary_service.project(run, now=at()) is not None
        record = rich_audit_record(tenant, key, schedule_id=key, run_id=key)
        assert workspace.storage.audit.append(record) == record
        snapshot = rich_impact_set(tenant, snapshot_id=key)
        assert workspace.storage.impact_snapshots.upsert(tenant, snapshot, run_id=key) == key
        assert tuple(workspace.storage.runs.get_runs_by_schedule(tenant, key, 5)) == (run,)
        assert workspace.storage.run_summaries.get_required(tenant, key).counters.total == 1
        assert tuple(workspace.storage.impact_snapshots.list_by_run(tenant, key)) == (snapshot,)

    def test_lists_follow_code_points_not_language_and_not_utf_16(
        self, workspace: SchedulerWorkspace
    ) -> None:
        for text in reversed(EDGE_TEXTS):
            workspace.storage.schedules.upsert(workspace.schedule(text, name=text))
        found = all_pages(
            lambda token: workspace.storage.schedules.list(
                workspace.tenant, ScheduleQueryOptions(limit=4, page_token=token)
            )
        )
        assert [schedule.name for schedule in found] == list(EDGE_TEXTS) == sorted(EDGE_TEXTS)

    @pytest.mark.parametrize("instant", [EARLIEST, EARLIEST.replace(microsecond=1000), LATEST, at(0.001)])
    def test_the_limits_of_time_come_back_and_are_found(
        self, workspace: SchedulerWorkspace, instant: datetime
    ) -> None:
        run = make_run(workspace.tenant, workspace.id("a"), created_at=instant, schedule_id="s")
        workspace.storage.runs.create(run)
        record = workspace.storage.audit.append(workspace.record("a", occurred_at=instant))
        snapshot = workspace.snapshot("a", generated_at=instant)
        workspace.storage.impact_snapshots.upsert(workspace.tenant, snapshot)
        assert tuple(workspace.storage.runs.get_pending_runs(workspace.tenant)) == (run,)
        assert tuple(workspace.storage.audit.list(workspace.tenant)) == (record,)
        assert workspace.storage.impact_snapshots.purge_generated(instant, tenant_id=workspace.tenant) == 1

    def test_counters_of_64_bits_come_back(self, workspace: SchedulerWorkspace) -> None:
        full = RunStats.model_validate(dict.fromkeys(RunStats.model_fields, INT64_MAX))
        run = workspace.storage.runs.create(workspace.run(stats=full, schedule_id=workspace.id("s")))
        assert workspace.storage.runs.get_required(workspace.tenant, run.id).stats == full
        summary = workspace.storage.run_summary_service.project(run, now=at())
        assert summary is not None
        assert workspace.storage.run_summaries.get(workspace.tenant, workspace.id("s")) == summary
        assert summary.counters.total_deltas == INT64_MAX

    def test_digits_below_a_millisecond_never_reach_the_store(self, workspace: SchedulerWorkspace) -> None:
        run = workspace.storage.runs.create(workspace.run(created_at=at().replace(microsecond=1999)))
        assert run.created_at == at(0.001)
        assert workspace.storage.runs.get(workspace.tenant, run.id) == run

    def test_text_with_nul_and_numbers_beyond_64_bits_are_no_models(
        self, workspace: SchedulerWorkspace
    ) -> None:
        for change in ({"name": "a\x00b"}, {"created_by": "a\x00"}, {"subscribers": ("\ud800",)}):
            with pytest.raises(pydantic.ValidationError):
                workspace.schedule(**change)
        with pytest.raises(pydantic.ValidationError):
            RunStats(candidates=INT64_MAX + 1)
        with pytest.raises(ValidationError):
            workspace.storage.runs.get(workspace.tenant, "a\x00b")

    def test_the_order_of_insertion_leaves_no_trace(self, workspace: SchedulerWorkspace) -> None:
        numbers = list(range(8))
        for owner, order in ((workspace, numbers), (workspace.elsewhere, numbers[::-1])):
            for number in order:
                owner.storage.schedules.upsert(owner.schedule(str(number)))
                owner.storage.audit.append(owner.record(str(number), occurred_at=at(number // 3)))
        mine, theirs = (
            [item.name for item in workspace.storage.schedules.list(tenant)]
            for tenant in (workspace.tenant, workspace.foreign)
        )
        assert mine == theirs
        records = [
            [item.id.partition("@")[0] for item in workspace.storage.audit.list(tenant)]
            for tenant in (workspace.tenant, workspace.foreign)
        ]
        assert records[0] == records[1]
