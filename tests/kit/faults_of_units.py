"""The kit must be able to fail: a memory driver with one fault is caught by the contract that forbids it."""

# ruff: noqa: ANN401  # faults are planted inside, where types do not help

from __future__ import annotations

from threading import Barrier, get_ident
from typing import Any, Final

from tests.kit.mutants import Mutant, Patch, case, replacing
from twinstore.access import guard, nested_units
from twinstore.access.scope import Scope
from twinstore.access.unit_state import UnitState
from twinstore.catalog.conditions import Before, Equals
from twinstore.catalog.row import Row
from twinstore.documents import access
from twinstore.documents import access as documents
from twinstore.documents.rows import sort_value
from twinstore.scheduler import queries
from twinstore.scheduler.catalog import RUNS
from twinstore.scheduler.enums import RunState
from twinstore.scheduler.repositories import run_summaries as summaries
from twinstore.scheduler.repositories import triggers
from twinstore.scheduler.rules import run_summaries as summary_rules
from twinstore.scheduler.rules import runs as run_rules
from twinstore.scheduler.rules import schedules as schedule_rules
from twinstore.testing.contracts.paging import FilledLists
from twinstore.testing.contracts.tenancy import OtherTenant
from twinstore.testing.scheduler import SchedulerContract, SchedulerWorkspace
from twinstore.testing.scheduler.calls import populate, store_one_of_each
from twinstore.testing.scheduler.contracts.transactions import count_up
from twinstore_memory import rows, store, unit
from twinstore_memory.unit import MemoryUnit

CONCURRENCY = 8
RUNS_LISTING = next(listing for listing in SchedulerContract.listings() if listing.name == "runs.list")
GET_RUN = next(call for call in SchedulerContract.tenant_calls() if call.name == "runs.get")
LIST_OF_RUNS = next(
    touch for touch in SchedulerContract.touches() if touch.method == "list" and touch.entity.name == "runs"
)


def commit_instead(patch: Patch) -> None:
    patch.setattr(store.Unit, "rollback", lambda self: None if self.state.closed else self._end(self._staged))


def dirty_writes(patch: Patch) -> None:
    put = store.Unit.put

    def at_once(self: store.Unit, *arguments: Any) -> None:
        put(self, *arguments)
        self.store.end(self, self._staged)

    patch.setattr(store.Unit, "put", at_once)


def no_claims(patch: Patch) -> None:
    """Let all concurrent writers read before any of them writes."""
    get, barrier, met = store.Unit.get, Barrier(CONCURRENCY), set[int]()

    def together(self: store.Unit, *arguments: Any) -> object:
        found = get(self, *arguments)
        if len(met) < CONCURRENCY and get_ident() not in met:
            met.add(get_ident())
            barrier.wait(60)
        return found

    patch.setattr(store.MemoryDatabase, "lock", lambda *_: None)
    patch.setattr(store.Unit, "get", together)


def no_snapshots(patch: Patch) -> None:
    """Let units read what others commit, and wait for them instead of losing."""
    begin = store.MemoryDatabase.begin

    def not_isolated(
        self: store.MemoryDatabase, *, read_only: bool = False, isolated: bool = False
    ) -> store.Unit:
        del isolated
        return begin(self, read_only=read_only)

    patch.setattr(store.MemoryDatabase, "begin", not_isolated)


def last_writer_wins(patch: Patch) -> None:
    patch.setattr(store.TableContents, "has_entry", lambda *_: False)


def ties_by_insertion(patch: Patch) -> None:
    def ordered(found: Any, query: Any) -> list[Any]:
        kept = [row for row in found if access.matches(row, query)]
        first = query.order[0]
        return sorted(
            kept, key=lambda row: access.order_value(sort_value(row, first)), reverse=first.descending
        )

    patch.setattr(access, "ordered", ordered)


def broken_rows_are_skipped(patch: Patch) -> None:
    seen = MemoryUnit.rows

    def healthy(*arguments: Any) -> list[Any]:
        return [row for row in seen(*arguments) if "foreign" not in row.document]

    patch.setattr(MemoryUnit, "rows", healthy)


def recomputed_always(patch: Patch) -> None:
    patch.setattr(
        schedule_rules,
        "synchronised",
        lambda trigger, stored: schedule_rules.recalculated(trigger, stored, stored.schedule.updated_at),
    )


def names_stay_taken(patch: Patch) -> None:
    def unique(row: rows.DocumentRow) -> tuple[object, ...]:
        return tuple(
            (index, rows.unique_value(index, tuple(map(row.value, index.names))))
            for index in row.entity.uniques
        )

    patch.setattr(rows.DocumentRow, "unique", property(unique))


def exported_twice(patch: Patch) -> None:
    original = unit.covers
    patch.setattr(unit, "covers", lambda within, row: original(within, row) or row.key == within.upper)


def populated(workspace: SchedulerWorkspace) -> SchedulerWorkspace:
    populate(workspace)
    return workspace


MUTANTS: Final = [
    Mutant(
        "rows of other tenants are found",
        replacing(MemoryUnit, "_sees", lambda *_: True),
        lambda workspace: SchedulerContract().test_rows_of_another_tenant_do_not_exist(
            workspace, OtherTenant(workspace.foreign, store_one_of_each(workspace.elsewhere)), GET_RUN
        ),
    ),
    Mutant(
        "a session admits any tenant",
        replacing(Scope, "admit", lambda _, tenant: tenant.strip()),
        lambda workspace: SchedulerContract().test_a_session_admits_its_own_tenant_only(
            foreign_workspace=workspace,
            unchanged=OtherTenant(workspace.foreign, store_one_of_each(workspace.elsewhere)),
            call=GET_RUN,
        ),
    ),
    Mutant(
        "a unit commits what failed",
        commit_instead,
        case("test_any_exception_rolls_everything_back", error=ZeroDivisionError),
    ),
    Mutant(
        "a unit goes on after an error of the store",
        replacing(guard, "WRITE_ERRORS", ()),
        case("test_an_error_of_the_store_makes_the_unit_unusable", name="run"),
    ),
    Mutant(
        "writes are visible before the commit",
        dirty_writes,
        case("test_everything_is_committed_together"),
    ),
    Mutant(
        "a session outlives its end",
        replacing(UnitState, "check", lambda _: None),
        case("test_a_session_that_has_ended_refuses_every_call"),
    ),
    Mutant(
        "any move is allowed",
        replacing(run_rules, "run_move_allowed", lambda *_: True),
        case("test_a_forbidden_move_is_refused", RunState.RUNNING, RunState.QUEUED),
    ),
    Mutant(
        "counters fall",
        replacing(run_rules, "_check_counters", lambda *_: None),
        case("test_no_counter_falls", "deltas"),
    ),
    Mutant(
        "late updates count",
        replacing(summary_rules, "supersedes", lambda *_: True),
        case("test_a_late_or_repeated_update_changes_nothing_but_the_instant"),
    ),
    Mutant(
        "whatever a change returns is written",
        replacing(summaries, "checked", lambda change, *_: change),
        case("test_a_change_that_returns_another_summary_writes_nothing", "another tenant", stored=True),
    ),
    Mutant(
        "a trigger is computed at every write",
        recomputed_always,
        case("test_unrelated_fields_leave_the_trigger_alone"),
    ),
    Mutant(
        "whoever has claimed a schedule fires it",
        replacing(schedule_rules, "check_claim", lambda *_: None),
        case("test_a_worker_that_dies_loses_its_claim_with_the_lease"),
    ),
    Mutant(
        "a firing leaves its claim",
        replacing(triggers, "unclaimed", lambda trigger, before: Row(trigger, before.storage)),
        case("test_a_claim_fires_once_and_ends_with_that"),
    ),
    Mutant(
        "fences begin again",
        replacing(triggers, "unclaimed", lambda trigger, _: Row(trigger)),
        case("test_a_claim_fires_once_and_ends_with_that"),
    ),
    Mutant(
        "what others hold is claimed",
        replacing(queries, "NotAfter", lambda *_: Equals("enabled", value=True)),
        case("test_a_claim_has_holder_end_and_fence_and_readers_see_nothing_of_it"),
    ),
    Mutant(
        "stale expectations are met",
        replacing(schedule_rules, "_check_expectation", lambda *_: None),
        case("test_an_expected_instant_must_be_the_stored_one"),
    ),
    Mutant(
        "names of deleted schedules stay taken",
        names_stay_taken,
        case("test_the_name_of_a_deleted_schedule_is_free"),
    ),
    Mutant(
        "ties follow the insertion",
        ties_by_insertion,
        lambda workspace: SchedulerContract().test_all_pages_make_the_whole_list_in_order(
            FilledLists(workspace.deployment, workspace.storage), RUNS_LISTING, 3
        ),
    ),
    Mutant(
        "broken rows are skipped",
        broken_rows_are_skipped,
        case("test_a_broken_row_is_named_without_its_content_and_left_alone", LIST_OF_RUNS),
    ),
    Mutant(
        "identical records are written again",
        replacing(documents, "content", lambda _: object()),
        case("test_an_identical_record_is_not_written_again"),
    ),
    Mutant(
        "rivals do not wait for each other",
        no_claims,
        case("test_of_concurrent_creations_of_one_id_exactly_one_wins"),
    ),
    Mutant(
        "a unit reads what others commit meanwhile",
        no_snapshots,
        case("test_a_unit_reads_one_state_and_its_own_writes"),
    ),
    Mutant(
        "a unit that read before others wrote overwrites them",
        last_writer_wins,
        case("test_a_write_of_a_row_that_was_changed_since_the_unit_began_is_refused", name="run"),
    ),
    Mutant(
        "of two open units the second writer wins",
        no_snapshots,
        case("test_of_two_open_units_that_write_one_row_the_first_one_commits", name="run"),
    ),
    Mutant(
        "what threads read and write back is lost",
        no_snapshots,
        case(
            "test_what_many_threads_read_and_write_back_through_transact_is_all_confirmed_and_kept",
            write=count_up,
        ),
    ),
    Mutant(
        "units nest",
        replacing(nested_units, "current_context", object),
        case("test_a_second_unit_in_the_same_thread_is_refused_and_the_first_goes_on"),
    ),
    Mutant(
        "units of other threads are refused",
        replacing(nested_units, "current_context", lambda: 1),
        case("test_units_of_two_storages_and_of_two_threads_are_independent"),
    ),
    Mutant(
        "a schedule is due one millisecond late",
        replacing(queries, "AtMost", Before),
        case("test_a_schedule_is_due_from_its_very_instant"),
    ),
    Mutant(
        "a range includes its upper key",
        exported_twice,
        lambda workspace: SchedulerContract().test_ranges_cover_every_key_once_and_in_order(
            populated(workspace), RUNS, 1
        ),
    ),
]
