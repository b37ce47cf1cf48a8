"""Hypothesis strategies of models that follow rules of the domain, over the full range of their values.

What has no such rules is derived from the annotations; see :mod:`drawing`.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

from hypothesis import strategies as st

from twinstore.models.fields import INT64_MAX
from twinstore.scheduler.audit import AuditRecord
from twinstore.scheduler.enums import RunState, RunTrigger, ScheduleMode, SelectorScope
from twinstore.scheduler.impact_snapshots import ImpactImage, ImpactSet
from twinstore.scheduler.policy_jobs import PolicyRunJob
from twinstore.scheduler.run_summaries import WINDOW, RunSnapshot, RunSummary
from twinstore.scheduler.runs import Attestation, DeltaSummary, Run, RunReason, RunStats, TopFinding
from twinstore.scheduler.schedules import Schedule, ScheduleLimits, ScheduleNotify, ScheduleOnlyIf
from twinstore.scheduler.selectors import LabelFilter, Selector
from twinstore.testing.drawing import models
from twinstore.testing.scalars import (
    EARLIEST,
    built,
    counts,
    digests,
    filled_texts,
    ids,
    instants,
    names,
    optional,
    string_sets,
    texts,
)
from twinstore.testing.scheduler.builders import UNSET_IN_NEW_JOBS

__all__ = [
    "audit_records",
    "impact_sets",
    "policy_jobs",
    "run_stats",
    "run_summaries",
    "runs",
    "schedules",
    "selectors",
]

# Inside the calendar in which a time rule can be computed for some years to come.
FIRST_FIRING: Final = datetime(1, 1, 2, tzinfo=UTC)
LAST_FIRING: Final = datetime(9990, 1, 1, tzinfo=UTC)
CRONS: Final = ("* * * * *", "0 * * * *", "*/15 2 * * 1-5", "30 4 1 1 *", "0 0 29 2 *")
ZONES: Final = ("UTC", "Europe/Vienna", "America/St_Johns", "Pacific/Apia", "Australia/Lord_Howe")


def label_filters() -> st.SearchStrategy[list[LabelFilter]]:
    """Return label filters with unique keys."""
    return st.lists(models(LabelFilter), max_size=3, unique_by=lambda item: item.key)


def selectors(tenant_id: str | None = None) -> st.SearchStrategy[Selector]:
    """Return selectors of every scope, with and without their tenant."""
    narrowed = built(
        Selector,
        scope=st.just(SelectorScope.ALL_IMAGES),
        tenant_id=st.sampled_from([None, tenant_id]),
        namespaces=string_sets(),
        labels=label_filters().map(tuple),
    )
    filled = built(
        Selector,
        scope=st.sampled_from(SelectorScope),
        tenant_id=st.sampled_from([None, tenant_id]),
        namespaces=string_sets().map(lambda values: ("ns", *values)),
        repositories=string_sets().map(lambda values: ("repo", *values)),
        digests=st.lists(digests(), min_size=1, max_size=2).map(tuple),
        include_tags=string_sets(),
        labels=label_filters().filter(bool).map(tuple),
        resolves_tags=st.booleans(),
    )
    return narrowed | filled


@st.composite
def schedules(draw: st.DrawFn, tenant_id: str = "tenant", schedule_id: str | None = None) -> Schedule:
    """Return schedules; an enabled one can always fire."""
    created_at = draw(instants(FIRST_FIRING, LAST_FIRING))
    values = {
        "id": schedule_id or draw(ids()),
        "tenant_id": tenant_id,
        "name": draw(names()),
        "enabled": draw(st.booleans()),
        "when_cron": draw(st.sampled_from(CRONS)),
        "timezone": draw(st.sampled_from(ZONES)),
        "mode": draw(st.sampled_from(ScheduleMode)),
        "selection": draw(selectors(tenant_id)),
        "only_if": draw(models(ScheduleOnlyIf)),
        "notify": draw(models(ScheduleNotify)),
        "limits": draw(models(ScheduleLimits)),
        "subscribers": draw(string_sets()),
        "created_at": created_at,
        "created_by": draw(filled_texts()),
        "updated_at": draw(instants(created_at, LAST_FIRING)),
        "updated_by": draw(filled_texts()),
    }
    return Schedule.model_validate(values)


@st.composite
def run_stats(draw: st.DrawFn, maximum: int = INT64_MAX) -> RunStats:
    """Return counters up to a maximum."""
    values = {name: draw(counts(maximum)) for name in RunStats.model_fields}
    values["deduped"] = min(values["deduped"], values["candidates"])
    values["completed"] = min(values["completed"], values["queued"])
    return RunStats.model_validate(values)


@st.composite
def run_reasons(draw: st.DrawFn) -> RunReason:
    """Return reasons."""
    start, end = sorted([draw(instants()), draw(instants())])
    return RunReason(
        manual_reason=draw(optional(texts())),
        conselier_export_id=draw(optional(texts())),
        excitor_export_id=draw(optional(texts())),
        cursor=draw(optional(texts())),
        impact_window_from=draw(st.sampled_from([start, None])),
        impact_window_to=draw(st.sampled_from([end, None])),
    )


@st.composite
def deltas(draw: st.DrawFn) -> DeltaSummary:
    """Return changes of one image."""
    quarter = INT64_MAX // 4
    parts = [draw(counts(quarter)) for _ in range(4)]
    return DeltaSummary(
        image_digest=draw(digests()),
        new_findings=sum(parts) + draw(st.integers(0, 3)),
        new_criticals=parts[0],
        new_high=parts[1],
        new_medium=parts[2],
        new_low=parts[3],
        kev_hits=draw(string_sets()),
        top_findings=tuple(draw(st.lists(models(TopFinding), max_size=3))),
        report_url=draw(optional(texts())),
        attestation=draw(optional(models(Attestation))),
        detected_at=draw(optional(instants())),
    )


@st.composite
def run_instants(draw: st.DrawFn, state: RunState) -> dict[str, datetime | None]:
    """Return the three instants of a run as its state asks for them."""
    moments = sorted(draw(st.lists(instants(), min_size=3, max_size=3)))
    created_at, started_at, finished_at = (moment.replace(microsecond=0) for moment in moments)
    may_have_started = state is RunState.RUNNING or (state.terminal and draw(st.booleans()))
    return {
        "created_at": created_at,
        "started_at": started_at if may_have_started else None,
        "finished_at": finished_at if state.terminal else None,
    }


@st.composite
def runs(
    draw: st.DrawFn,
    tenant_id: str = "tenant",
    run_id: str | None = None,
    states: tuple[RunState, ...] = tuple(RunState),
) -> Run:
    """Return runs in the given states; only ``planning`` and ``queued`` can be created."""
    state = draw(st.sampled_from(states))
    values = {
        "id": run_id or draw(ids()),
        "tenant_id": tenant_id,
        "schedule_id": draw(optional(ids())),
        "trigger": draw(st.sampled_from(RunTrigger)),
        "state": state,
        "stats": draw(run_stats()),
        "reason": draw(optional(run_reasons())),
        "error": draw(filled_texts()) if state is RunState.ERROR else None,
        "deltas": draw(st.lists(deltas(), max_size=2, unique_by=lambda delta: delta.image_digest)),
        "retry_of": draw(optional(texts())),
        **draw(run_instants(state)),
    }
    return Run.model_validate(values)


@st.composite
def impact_sets(draw: st.DrawFn, tenant_id: str = "tenant") -> ImpactSet:
    """Return snapshots without an own id."""
    images = draw(st.lists(models(ImpactImage), max_size=3, unique_by=lambda item: item.image_digest))
    return ImpactSet(
        selector=draw(selectors(tenant_id)),
        images=tuple(images),
        usage_only=draw(st.booleans()),
        generated_at=draw(instants()),
        total=max(len(images), draw(counts())),
    )


def audit_records(tenant_id: str = "tenant", audit_id: str | None = None) -> st.SearchStrategy[AuditRecord]:
    """Return audit records."""
    key = {} if audit_id is None else {"id": st.just(audit_id)}
    return models(AuditRecord, tenant_id=st.just(tenant_id), **key)


@st.composite
def run_summaries(draw: st.DrawFn, tenant_id: str = "tenant", schedule_id: str | None = None) -> RunSummary:
    """Return summaries whose window is empty, partly filled or full."""
    drawn = draw(st.lists(run_snapshots(), max_size=4, unique_by=lambda item: item.run_id))
    window = [*drawn, *fillers(WINDOW - len(drawn))] if draw(st.booleans()) else drawn
    return RunSummary.of(tenant_id, schedule_id or draw(ids()), window, draw(instants()))


@st.composite
def run_snapshots(draw: st.DrawFn) -> RunSnapshot:
    """Return entries of a window; twenty of them never exceed 64 bits in sum."""
    state = draw(st.sampled_from(RunState))
    values = {
        "run_id": draw(ids()),
        "trigger": draw(st.sampled_from(RunTrigger)),
        "state": state,
        "stats": draw(run_stats(INT64_MAX // WINDOW)),
        "error": draw(filled_texts()) if state is RunState.ERROR else None,
        **draw(run_instants(state)),
    }
    return RunSnapshot.model_validate(values)


def fillers(number: int) -> list[RunSnapshot]:
    """Return that many entries, older than any other."""
    return [
        RunSnapshot(
            run_id=f"filler-{index}",
            trigger=RunTrigger.CRON,
            state=RunState.QUEUED,
            created_at=EARLIEST + timedelta(milliseconds=index),
        )
        for index in range(number)
    ]


def policy_jobs(tenant_id: str = "tenant", job_id: str | None = None) -> st.SearchStrategy[PolicyRunJob]:
    """Return policy jobs as they may be created: pending, and without a trace of an attempt."""
    new = {name: st.just(PolicyRunJob.model_fields[name].default) for name in UNSET_IN_NEW_JOBS}
    key = {} if job_id is None else {"id": st.just(job_id)}
    # Not before the instant at which calls of the kit look for something to do and find nothing.
    due = instants(datetime(3, 1, 1, tzinfo=UTC))
    return models(PolicyRunJob, tenant_id=st.just(tenant_id), available_at=due, **key, **new)
