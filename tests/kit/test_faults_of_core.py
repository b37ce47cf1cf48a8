"""Remove each rule that core keeps for every driver, and see the case of the kit fail that forbids it.

Faults of drivers are in faults.txt; see faults.py.
"""

# ruff: noqa: ANN401  # faults are planted inside, where types do not help

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Final

import hypothesis
import pytest

from tests.drivers.mongo.deployment import mongo_deployments
from tests.drivers.postgres.deployment import postgres_deployments
from twinstore.access import errors, guard, nested_units
from twinstore.access.scope import Scope
from twinstore.access.unit_state import Lifetime, UnitState
from twinstore.catalog.conditions import Before, Equals
from twinstore.catalog.row import Row
from twinstore.documents import access as documents
from twinstore.ledger import ledger, models
from twinstore.ledger.catalog import JOBS
from twinstore.ledger.models import RangeState
from twinstore.ledger.rows import change_model
from twinstore.scheduler import queries
from twinstore.scheduler.catalog import RUNS
from twinstore.scheduler.enums import RunState
from twinstore.scheduler.module import MODULE
from twinstore.scheduler.repositories import run_summaries as summaries
from twinstore.scheduler.repositories import triggers
from twinstore.scheduler.rules import run_summaries as summary_rules
from twinstore.scheduler.rules import runs as run_rules
from twinstore.scheduler.rules import schedules as schedule_rules
from twinstore.scheduler.storage import SchedulerStorage
from twinstore.testing import CopyStateContract
from twinstore.testing.contracts.tenancy import OtherTenant
from twinstore.testing.scheduler import SCHEDULER_EXAMPLES, SchedulerContract, SchedulerWorkspace
from twinstore.testing.scheduler.calls import store_one_of_each
from twinstore_memory import rows
from twinstore_memory.testing import MemoryProbe, memory_deployments

Patch = pytest.MonkeyPatch
# Where hypothesis keeps what a test was decorated with.
SETTINGS: Final = "_hypothesis_internal_use_settings"
RUN: Final = SCHEDULER_EXAMPLES.of(RUNS)
GET_RUN: Final = next(call for call in SchedulerContract.tenant_calls() if call.name == "runs.get")


@dataclass(frozen=True, slots=True)
class Fault:
    """What is wrong, what makes it so, and the case that must fail."""

    name: str
    plant: Callable[[Patch], None]
    case: Callable[[SchedulerWorkspace], object]


def replacing(owner: Any, name: str, value: Any) -> Callable[[Patch], None]:
    """Return what puts a value in the place of another one."""
    return lambda patch: patch.setattr(owner, name, value)


def case(
    name: str, /, *arguments: Any, of: type = SchedulerContract, **named: Any
) -> Callable[[SchedulerWorkspace], object]:
    """Return what performs a case of a contract, by its name, with what it is given besides the workspace."""
    return lambda workspace: getattr(of(), name)(workspace, *arguments, **named)


@contextmanager
def workspace_in_memory() -> Iterator[SchedulerWorkspace]:
    """Open the scheduler on a separate store."""
    with memory_deployments(MODULE) as deployment, deployment.open() as storage:
        assert isinstance(storage, SchedulerStorage)
        yield SchedulerWorkspace(deployment, storage)


class SchedulerCopies(CopyStateContract):
    """What is kept of copies of the scheduler."""

    module = SCHEDULER_EXAMPLES


def comparing_less(*, worker: bool = True, fence: bool = True, state: bool = True) -> Callable[[Patch], None]:
    """Compare less than worker, fence and state before a range is committed."""

    def owned(stored: Any, claim: Any) -> bool:
        return (
            (not worker or stored.worker == claim.worker)
            and (not fence or stored.fence == claim.fence)
            and (not state or stored.state is RangeState.COPYING)
        )

    return replacing(ledger, "is_owned", owned)


def a_commit_locks_the_job(patch: Patch) -> None:
    finish = ledger.RangeLedger.finish

    def locking(self: Any, access: Any, claim: Any, tally: Any) -> None:
        change_model(access, JOBS, (claim.job_id,), lambda job, _: job)
        finish(self, access, claim, tally)

    patch.setattr(ledger.RangeLedger, "finish", locking)


def recomputed_always(patch: Patch) -> None:
    patch.setattr(
        schedule_rules,
        "synchronised",
        lambda trigger, stored: schedule_rules.recalculated(trigger, stored, stored.schedule.updated_at),
    )


def recalculated_in_whole_seconds(patch: Patch) -> None:
    recalculated = schedule_rules.recalculated
    patch.setattr(
        schedule_rules,
        "recalculated",
        lambda before, stored, now: recalculated(before, stored, now.replace(microsecond=0)),
    )


def due_by_the_trigger_alone(patch: Patch) -> None:
    """Return the schedules of all due triggers, whether they may fire or not."""

    def all_of_them(triggers: Any, schedules: Any) -> Any:
        return zip(triggers, (row.model for row in schedules), strict=False)

    patch.setattr("twinstore.scheduler.repositories.schedules.active", all_of_them)


FAULTS: Final = [
    Fault(
        "a session admits any tenant",
        replacing(Scope, "admit", lambda _, tenant: tenant.strip()),
        lambda workspace: SchedulerContract().test_a_session_admits_its_own_tenant_only(
            foreign_workspace=workspace,
            unchanged=OtherTenant(workspace.foreign, store_one_of_each(workspace.elsewhere)),
            call=GET_RUN,
        ),
    ),
    Fault(
        "a unit goes on after an error of the store",
        replacing(guard, "WRITE_ERRORS", ()),
        case("test_an_error_of_the_store_makes_the_unit_unusable", name="run"),
    ),
    Fault(
        "a session outlives its end",
        replacing(UnitState, "check", lambda _: None),
        case("test_a_session_that_has_ended_refuses_every_call"),
    ),
    Fault(
        "a closed storage goes on",
        replacing(Lifetime, "check", lambda _: None),
        case("test_a_closed_storage_refuses_every_call"),
    ),
    Fault(
        "units nest",
        replacing(nested_units, "current_context", object),
        case("test_a_second_unit_in_the_same_thread_is_refused_and_the_first_goes_on"),
    ),
    Fault(
        "units of other threads are refused",
        replacing(nested_units, "current_context", lambda: 1),
        case("test_units_of_two_storages_and_of_two_threads_are_independent"),
    ),
    Fault(
        "an absent key is named as it was given",
        replacing(
            errors,
            "not_found",
            lambda entity, key, driver, found=errors.not_found: found(entity, f" {key} ", driver),
        ),
        case("test_an_absent_row_is_nothing_or_an_error_with_the_normalised_key", RUN),
    ),
    Fault(
        "the probe cannot tell writes apart",
        replacing(MemoryProbe, "stamp", lambda *_: None),
        case("test_a_stamp_changes_with_a_write_and_with_nothing_else"),
    ),
    Fault(
        "any move is allowed",
        replacing(run_rules, "run_move_allowed", lambda *_: True),
        case("test_a_forbidden_move_is_refused", RunState.RUNNING, RunState.QUEUED),
    ),
    Fault(
        "counters fall",
        replacing(run_rules, "_check_counters", lambda *_: None),
        case("test_no_counter_falls", "deltas"),
    ),
    Fault(
        "late updates count",
        replacing(summary_rules, "supersedes", lambda *_: True),
        case("test_a_late_or_repeated_update_changes_nothing_but_the_instant"),
    ),
    Fault(
        "whatever a change returns is written",
        replacing(summaries, "checked", lambda change, *_: change),
        case("test_a_change_that_returns_another_summary_writes_nothing", "another tenant", stored=True),
    ),
    Fault(
        "a trigger is computed at every write",
        recomputed_always,
        case("test_unrelated_fields_leave_the_trigger_alone"),
    ),
    Fault(
        "now is taken in whole seconds",
        recalculated_in_whole_seconds,
        case("test_recalculate_looks_at_the_milliseconds_of_now"),
    ),
    Fault(
        "any worker fires what one has claimed",
        replacing(schedule_rules, "check_claim", lambda *_: None),
        case("test_a_worker_that_dies_loses_its_claim_with_the_lease"),
    ),
    Fault(
        "a firing leaves its claim",
        replacing(triggers, "unclaimed", lambda trigger, before: Row(trigger, before.storage)),
        case("test_a_claim_fires_once_and_ends_with_that"),
    ),
    Fault(
        "fences begin again",
        replacing(triggers, "unclaimed", lambda trigger, _: Row(trigger)),
        case("test_a_claim_fires_once_and_ends_with_that"),
    ),
    Fault(
        "what others hold is claimed",
        replacing(queries, "NotAfter", lambda *_: Equals("enabled", value=True)),
        case("test_a_claim_has_holder_end_and_fence_and_readers_see_nothing_of_it"),
    ),
    Fault(
        "stale expectations are met",
        replacing(schedule_rules, "_check_expectation", lambda *_: None),
        case("test_an_expected_instant_must_be_the_stored_one"),
    ),
    Fault(
        "a schedule is due one millisecond late",
        replacing(queries, "AtMost", Before),
        case("test_a_schedule_is_due_from_its_very_instant"),
    ),
    Fault(
        "schedules are due by their triggers alone",
        due_by_the_trigger_alone,
        case("test_a_schedule_that_may_not_fire_is_not_due_whatever_its_trigger_says"),
    ),
]
# What makes copies by several workers safe, on whichever store the ledger is.
GUARDS: Final = [
    Fault(
        "the fence is not compared",
        comparing_less(fence=False),
        case("test_a_worker_of_the_same_name_is_distinguished_by_its_fence", of=SchedulerCopies),
    ),
    Fault(
        "the worker is not compared",
        comparing_less(worker=False),
        case("test_an_overtaken_worker_finishes_nothing", of=SchedulerCopies),
    ),
    Fault(
        "the state is not compared",
        comparing_less(state=False),
        case(
            "test_a_duplicate_of_a_finished_range_neither_changes_its_tally_nor_opens_it", of=SchedulerCopies
        ),
    ),
    Fault(
        "a commit locks the job",
        a_commit_locks_the_job,
        case("test_busy_commits_do_not_prevent_renewing_the_lease", of=SchedulerCopies),
    ),
    Fault(
        "nobody is ever dead",
        replacing(ledger.RangeLedger, "_dead", lambda *_: frozenset()),
        case("test_the_ranges_of_a_dead_worker_are_taken_last", of=SchedulerCopies),
    ),
    Fault(
        "everybody is dead",
        replacing(ledger.RangeLedger, "_dead", lambda *found: frozenset(found[-1])),
        case("test_a_sign_of_life_keeps_the_ranges_of_a_worker", of=SchedulerCopies),
    ),
    Fault(
        "ranges never fail",
        replacing(ledger, "MAX_ATTEMPTS", 99),
        case("test_a_range_that_is_given_back_too_often_has_failed", of=SchedulerCopies),
    ),
    Fault(
        "ranges that kill their worker never fail",
        replacing(models, "MAX_DEATHS", 99),
        case("test_a_range_whose_workers_die_is_cut_until_one_row_is_left", of=SchedulerCopies),
    ),
    Fault(
        "a worker that stops has died",
        replacing(ledger.RangeLedger, "sign_off", ledger.RangeLedger.leave),
        case(
            "test_a_worker_that_stops_in_order_gives_its_ranges_back_and_no_death_counts", of=SchedulerCopies
        ),
    ),
    Fault(
        "lines of an earlier claim stay",
        replacing(ledger.Ledger, "_may_have_lines", lambda book, claim: claim in book._stored_early),  # noqa: SLF001  # what is left of it
        case("test_lines_of_an_attempt_that_failed_are_replaced", of=SchedulerCopies),
    ),
    Fault(
        "lines stored early stay for the next try",
        replacing(ledger.Ledger, "_may_have_lines", lambda _, claim: claim.fence > 1),
        case("test_lines_of_an_attempt_that_failed_are_replaced", of=SchedulerCopies),
    ),
    Fault(
        "lines outlive their range",
        replacing(ledger.RangeLedger, "_forget_lines", lambda *_: None),
        case("test_lines_are_stored_with_their_range_and_forgotten_when_it_is_opened", of=SchedulerCopies),
    ),
]


@pytest.mark.parametrize("fault", [*FAULTS, *GUARDS], ids=lambda fault: fault.name)
def test_the_case_accepts_core_as_it_is_and_catches_the_fault(
    fault: Fault, monkeypatch: pytest.MonkeyPatch
) -> None:
    with workspace_in_memory() as workspace:
        fault.case(workspace)
    with workspace_in_memory() as workspace:
        fault.plant(monkeypatch)
        with pytest.raises((Exception, pytest.fail.Exception)):
            fault.case(workspace)


@pytest.mark.long
@pytest.mark.parametrize("driver", ["mongo", "postgres"])
@pytest.mark.parametrize("fault", GUARDS, ids=lambda fault: fault.name)
def test_the_case_catches_the_fault_of_a_ledger_on_a_server(
    fault: Fault, driver: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    make: Any = mongo_deployments if driver == "mongo" else postgres_deployments
    factory = make(request.getfixturevalue(f"{driver}_server"))
    with factory(MODULE) as deployment, deployment.open() as storage:
        assert isinstance(storage, SchedulerStorage)
        storage.bulk.ledger_initializer.ensure_migrations()
        workspace = SchedulerWorkspace(deployment, storage)
        fault.case(workspace)
        fault.plant(monkeypatch)
        with pytest.raises((Exception, pytest.fail.Exception)):
            fault.case(workspace)


def test_any_row_is_drawn_often_enough_to_miss_a_field(monkeypatch: pytest.MonkeyPatch) -> None:
    def without_one_field(*arguments: Any) -> Any:
        row = rows.encode(*arguments)
        return replace(
            row, document={name: value for name, value in row.document.items() if name != "retryOf"}
        )

    monkeypatch.setattr(documents, "encode", without_one_field)
    drawing = SchedulerContract.test_any_row_comes_back
    # That a row is found counts, and not that it is made small, which takes many times as long.
    given: hypothesis.settings = getattr(drawing, SETTINGS)
    found = hypothesis.settings(given, phases=[hypothesis.Phase.generate])
    monkeypatch.setattr(drawing, SETTINGS, found)
    with workspace_in_memory() as workspace, pytest.raises((Exception, pytest.fail.Exception)):
        SchedulerContract().test_any_row_comes_back(workspace=workspace, example=RUN)
