"""The kit must be able to fail where ranges are copied: each guard of ledger and writer removed in turn."""

# ruff: noqa: ANN401, SLF001  # faults are planted inside, where types do not help

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from tests.kit.mutants import Mutant, Patch, case, replacing
from twinstore.documents import DocumentWriter, bulk
from twinstore.ledger import ledger
from twinstore.ledger.catalog import JOBS
from twinstore.ledger.models import RangeState
from twinstore.ledger.rows import change_model
from twinstore.scheduler.catalog import SCHEDULES
from twinstore.testing import CopyStateContract
from twinstore.testing.scheduler import SCHEDULER_EXAMPLES, SchedulerContract, SchedulerWorkspace
from twinstore.testing.scheduler.calls import populate


def rows_are_committed_one_by_one(patch: Patch) -> None:
    write = DocumentWriter.write

    def at_once(self: Any, records: Any) -> None:
        for record in records:
            write(self, [record])
            unit = self._unit.unit
            unit.store.end(unit, unit._staged)

    patch.setattr(DocumentWriter, "write", at_once)


def everything_is_committed_at_the_end(patch: Patch) -> None:
    rollback = DocumentWriter.__init__

    def remembered(self: Any, unit: Any, *arguments: Any) -> None:
        unit.unit.rollback = unit.unit.commit
        rollback(self, unit, *arguments)

    patch.setattr(DocumentWriter, "__init__", remembered)


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


def others_are_never_dead(patch: Patch) -> None:
    patch.setattr(ledger.RangeLedger, "_is_dead", lambda *_: False)


def others_are_always_dead(patch: Patch) -> None:
    patch.setattr(ledger.RangeLedger, "_is_dead", lambda *_: True)


def batches_ignore_their_size(patch: Patch) -> None:
    patch.setattr(bulk, "batched", lambda items, _: iter(filter(None, [list(items)])))


def filled(workspace: SchedulerWorkspace) -> SchedulerWorkspace:
    populate(workspace)
    return workspace


class SchedulerCopies(CopyStateContract):
    """What is kept of copies of the scheduler."""

    module = SCHEDULER_EXAMPLES


MUTANTS: Final = [
    Mutant(
        "rows are committed one by one",
        rows_are_committed_one_by_one,
        case("test_a_failure_after_everything_was_written_leaves_no_row"),
    ),
    Mutant(
        "rows are committed one by one, and the ledger refuses",
        rows_are_committed_one_by_one,
        case("test_a_range_that_the_ledger_refuses_leaves_no_row"),
    ),
    Mutant(
        "what was not committed is committed",
        everything_is_committed_at_the_end,
        case("test_what_was_not_committed_is_rolled_back"),
    ),
    Mutant(
        "the fence is not compared",
        comparing_less(fence=False),
        case("test_a_worker_of_the_same_name_is_distinguished_by_its_fence", of=SchedulerCopies),
    ),
    Mutant(
        "the worker is not compared",
        comparing_less(worker=False),
        case("test_an_overtaken_worker_finishes_nothing", of=SchedulerCopies),
    ),
    Mutant(
        "the state is not compared",
        comparing_less(state=False),
        case(
            "test_a_duplicate_of_a_finished_range_neither_changes_its_tally_nor_opens_it", of=SchedulerCopies
        ),
    ),
    Mutant(
        "a commit locks the job",
        a_commit_locks_the_job,
        case("test_busy_commits_do_not_prevent_renewing_the_lease", of=SchedulerCopies),
    ),
    Mutant(
        "nobody is ever dead",
        others_are_never_dead,
        case("test_the_ranges_of_a_dead_worker_are_taken_last", of=SchedulerCopies),
    ),
    Mutant(
        "everybody is dead",
        others_are_always_dead,
        case("test_a_sign_of_life_keeps_the_ranges_of_a_worker", of=SchedulerCopies),
    ),
    Mutant(
        "ranges never fail",
        replacing(ledger, "MAX_ATTEMPTS", 99),
        case("test_a_range_that_is_given_back_too_often_has_failed", of=SchedulerCopies),
    ),
    Mutant(
        "ranges that kill their worker never fail",
        replacing(ledger, "MAX_DEATHS", 99),
        case("test_a_range_whose_worker_dies_too_often_has_failed", of=SchedulerCopies),
    ),
    Mutant(
        "a worker that stops has died",
        replacing(ledger.RangeLedger, "sign_off", ledger.RangeLedger.leave),
        case(
            "test_a_worker_that_stops_in_order_gives_its_ranges_back_and_no_death_counts", of=SchedulerCopies
        ),
    ),
    Mutant(
        "lines outlive their range",
        replacing(ledger.RangeLedger, "_forget_lines", lambda *_: None),
        case("test_lines_are_stored_with_their_range_and_forgotten_when_it_is_opened", of=SchedulerCopies),
    ),
    Mutant(
        "batches ignore their size",
        batches_ignore_their_size,
        lambda workspace: SchedulerContract().test_batches_are_never_larger_than_asked(
            filled(workspace), SCHEDULES, 2
        ),
    ),
]
