"""The models state their rules as data: each rule refuses what it should, and nothing else checks."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator
from typing import Final, get_args, get_origin

import pydantic
import pytest

import twinstore
from twinstore.models.canonical import CanonicalModel, describe_failure
from twinstore.models.collections import Ordered
from twinstore.models.rules import FieldTypes
from twinstore.scheduler.enums import GraphJobStatus, PolicyRunJobStatus, RunState, SelectorScope
from twinstore.scheduler.graph_job_store import GraphJobResponse
from twinstore.scheduler.run_summaries import RunSummaryCounters
from twinstore.scheduler.runs import DeltaSummary, RunReason, RunStats
from twinstore.testing.instants import at
from twinstore.testing.scalars import digest_text
from twinstore.testing.scheduler.builders import (
    make_impact_set,
    make_run,
    make_run_summary,
    make_schedule,
    make_selector,
    make_trigger,
)
from twinstore.testing.scheduler.examples import make_lock
from twinstore.testing.scheduler.graph_jobs import (
    graph_job_event,
    graph_moved,
    make_graph_build_job,
    make_graph_overlay_job,
)
from twinstore.testing.scheduler.policy_builders import as_dispatched, as_ended, as_submitted, make_policy_job
from twinstore.testing.taskrunner.builders import make_pack_run, rich_approval

PLANNED: Final = make_run("t-1", "r-1")
RUNNING: Final = make_run("t-1", "r-1", state=RunState.RUNNING)
FAILED: Final = make_run("t-1", "r-1", state=RunState.ERROR)
COMPLETED: Final = make_run("t-1", "r-1", state=RunState.COMPLETED)
SELECTOR: Final = make_selector()
SUMMARY: Final = make_run_summary("t-1", "s-1", [PLANNED])
BUILD: Final = make_graph_build_job("t-1", "j")
OVERLAY: Final = make_graph_overlay_job("t-1", "j")
EVENT: Final = graph_job_event(BUILD, "e")
APPROVED: Final = rich_approval("t-1", "p-1", "gate")
ENDS: Final = "completed, failed and canceled"
Case = tuple[CanonicalModel, dict[str, object], str]

JOB = make_policy_job("t-1", "j-1")
BROKEN: Final[list[Case]] = [
    (RunStats(), {"deduped": 1}, "deduped should not exceed candidates"),
    (RunStats(), {"completed": 1}, "completed should not exceed queued"),
    (
        RunReason(impact_window_from=at(1)),
        {"impact_window_to": at(0)},
        "impactWindowFrom should not be after impactWindowTo",
    ),
    (make_lock("acme", "a"), {"acquired_at": at(1)}, "expiresAt should not be before acquiredAt"),
    (
        DeltaSummary(image_digest=digest_text(1), new_findings=3, new_high=1, new_medium=1, new_low=1),
        {"new_criticals": 1},
        "the counters by severity should sum to at most newFindings",
    ),
    (PLANNED, {"error": "broke"}, "error should be present exactly in state error"),
    (FAILED, {"error": None}, "error should be present exactly in state error"),
    (
        PLANNED,
        {"finished_at": at(1)},
        "finishedAt should be present exactly in the states completed, error and cancelled",
    ),
    (RUNNING, {"started_at": None}, "startedAt should be present in state running"),
    (PLANNED, {"started_at": at(1)}, "startedAt should be absent in the states planning and queued"),
    (RUNNING, {"started_at": at(-1)}, "startedAt should not be before createdAt"),
    (COMPLETED, {"finished_at": at(1)}, "finishedAt should not be before startedAt or createdAt"),
    (FAILED, {"finished_at": at(-1)}, "finishedAt should not be before startedAt or createdAt"),
    (make_schedule("t-1", "s-1"), {"updated_at": at(-1)}, "updatedAt should not be before createdAt"),
    (
        make_schedule("t-1", "s-1", selection=make_selector(tenant_id="t-1")),
        {"tenant_id": "t-2"},
        "selection.tenantId should equal tenantId or be absent",
    ),
    (
        SELECTOR,
        {"scope": SelectorScope.BY_NAMESPACE},
        "Scope 'by-namespace' needs at least one entry in namespaces",
    ),
    (
        SELECTOR,
        {"scope": SelectorScope.BY_REPOSITORY},
        "Scope 'by-repo' needs at least one entry in repositories",
    ),
    (SELECTOR, {"scope": SelectorScope.BY_DIGEST}, "Scope 'by-digest' needs at least one entry in digests"),
    (SELECTOR, {"scope": SelectorScope.BY_LABELS}, "Scope 'by-labels' needs at least one entry in labels"),
    (
        make_trigger("t-1", "s-1"),
        {"next_fire_at": None},
        "nextFireAt should be present exactly when enabled is true",
    ),
    (
        make_trigger("t-1", "s-1"),
        {"enabled": False},
        "nextFireAt should be present exactly when enabled is true",
    ),
    (JOB, {"lease_owner": "w"}, "leaseOwner and leaseExpiresAt should be present together or not at all"),
    (
        JOB,
        {"lease_owner": "w", "lease_expires_at": at(1)},
        "a lease should be present exactly in status dispatching",
    ),
    (as_dispatched(JOB), {"last_attempt_at": None}, "lastAttemptAt should be present in status dispatching"),
    (
        as_submitted(JOB),
        {"submitted_at": None},
        "submittedAt should be present in the statuses submitted and completed",
    ),
    (
        as_submitted(JOB),
        {"completed_at": at(1)},
        "completedAt should be present exactly in the statuses completed and failed",
    ),
    (
        as_ended(JOB, PolicyRunJobStatus.CANCELLED),
        {"cancelled_at": None},
        "cancelledAt should be present exactly in status cancelled",
    ),
    (
        as_ended(JOB, PolicyRunJobStatus.FAILED),
        {"last_error": None},
        "lastError should be present in status failed",
    ),
    (make_impact_set(), {"total": 0}, "total should be at least the number of images"),
    (SUMMARY, {"last_run": None}, "lastRun should be the newest entry of recent"),
    (SUMMARY, {"counters": RunSummaryCounters()}, "counters should be those of recent"),
    (BUILD, {"completed_at": at(9)}, f"completedAt should be present exactly in the statuses {ENDS}"),
    (OVERLAY, {"completed_at": at(9)}, f"completedAt should be present exactly in the statuses {ENDS}"),
    (graph_moved(BUILD, GraphJobStatus.FAILED), {"error": None}, "error should be present in status failed"),
    (graph_moved(OVERLAY, GraphJobStatus.FAILED), {"error": ""}, "error should be present in status failed"),
    (EVENT, {"tenant": "t-2"}, "tenant should be that of the job"),
    (EVENT.payload, {"job_type": "overlay"}, "jobType should be that of job"),
    (EVENT.payload, {"status": "pending"}, "status should be that of job"),
    (GraphJobResponse.of(BUILD), {"kind": "overlay"}, "kind should be that of payload"),
    (GraphJobResponse.of(BUILD), {"status": "pending"}, "status should be that of payload"),
    (make_pack_run("t-1", "p-1"), {"updated_at": at(-1)}, "updatedAt should not be before createdAt"),
    (APPROVED, {"actor_id": None}, "actorId should be present in the states approved and rejected"),
    (
        APPROVED,
        {"completed_at": None},
        "completedAt should be present exactly where the state is not pending",
    ),
]


@pytest.mark.parametrize(("model", "changes", "sentence"), BROKEN)
def test_a_model_that_contradicts_itself_is_refused(
    model: CanonicalModel, changes: dict[str, object], sentence: str
) -> None:
    with pytest.raises(pydantic.ValidationError) as caught:
        model.evolve(**changes)
    expected = f"{type(model).__name__} document: {sentence}"
    assert describe_failure(type(model), caught.value) == expected


def models(base: type[CanonicalModel] = CanonicalModel) -> set[type[CanonicalModel]]:
    """Return the models of the library."""
    for found in pkgutil.walk_packages(twinstore.__path__, "twinstore."):
        importlib.import_module(found.name)
    return {model for model in subclasses(base) if model.__module__.startswith("twinstore.")}


def subclasses(base: type[CanonicalModel]) -> Iterator[type[CanonicalModel]]:
    for found in base.__subclasses__():
        yield found
        yield from subclasses(found)


def test_each_rule_is_broken_by_a_document() -> None:
    broken = {(type(model), sentence) for model, _, sentence in BROKEN}
    for model in models():
        for rule in model.rules:
            if "{" in rule.message:  # with the words of the document
                assert any(case is model for case, _ in broken)
            else:
                assert (model, rule.message) in broken


def test_no_model_has_a_check_between_fields_beside_its_rules() -> None:
    assert {type(model) for model, _, _ in BROKEN} <= models()
    for model in models():
        validators = model.__pydantic_decorators__.model_validators
        after = [name for name, validator in validators.items() if validator.info.mode != "before"]
        assert after == (["_keep_rules"] if model.rules else []), model


def test_lists_of_models_are_ordered_by_data_only() -> None:
    ordered = 0
    for field in (field for model in models() for field in model.model_fields.values()):
        if get_origin(field.annotation) is tuple and FieldTypes(get_args(field.annotation)[:1]).models:
            assert all(isinstance(item, Ordered) for item in field.metadata), field
            ordered += len(field.metadata)
    assert ordered >= 5
