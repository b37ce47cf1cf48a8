"""What every store of execution logs must do."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import pytest

from twinstore.errors import ConflictError, NotFoundError, ValidationError
from twinstore.models.fields import INT64_MAX
from twinstore.scheduler.catalog import EXECUTION_LOGS, RUNS
from twinstore.scheduler.enums import RunState
from twinstore.testing.base import needs
from twinstore.testing.instants import at
from twinstore.testing.scheduler.builders import make_run, moved
from twinstore.testing.scheduler.cases import SchedulerCases
from twinstore.testing.scheduler.examples import make_log_entry
from twinstore.testing.workspace import outcomes

if TYPE_CHECKING:
    from collections.abc import Iterable

    from twinstore.scheduler.execution_logs import ExecutionLogEntry
    from twinstore.scheduler.runs import Run
    from twinstore.scheduler.storage import SchedulerStorage
    from twinstore.testing.scheduler.workspace import SchedulerWorkspace

__all__ = ["ExecutionLogContract"]


def started(workspace: SchedulerWorkspace, name: str = "a") -> Run:
    """Store a run that is planned."""
    return workspace.storage.runs.create(workspace.run(name))


def unnumbered(run: Run, *messages: str) -> list[ExecutionLogEntry]:
    """Return entries of a run whose numbers are still to be assigned."""
    return [make_log_entry(run.tenant_id, run.id, sequence=None, message=text) for text in messages]


def shown(entries: Iterable[ExecutionLogEntry]) -> list[tuple[int | None, str]]:
    """Return numbers and messages."""
    return [(entry.sequence, entry.message) for entry in entries]


class ExecutionLogContract(SchedulerCases):
    """Entries are numbered below their run, listed in order, removed by age or with the run."""

    def test_entries_are_numbered_in_the_order_given_and_listed_by_number(
        self, workspace: SchedulerWorkspace
    ) -> None:
        run, logs = started(workspace), workspace.storage.execution_logs
        first = logs.append(unnumbered(run, "a", "b"))
        second = logs.append(unnumbered(run, "c"))
        assert shown([*first, *second]) == [(1, "a"), (2, "b"), (3, "c")]
        assert logs.list(workspace.tenant, run.id) == (*first, *second)
        assert logs.append([]) == ()

    def test_a_list_begins_after_a_number_and_ends_at_its_limit(self, workspace: SchedulerWorkspace) -> None:
        run, logs = started(workspace), workspace.storage.execution_logs
        stored = logs.append(unnumbered(run, *"abcde"))
        assert logs.list(workspace.tenant, run.id, limit=2) == stored[:2]
        assert logs.list(workspace.tenant, run.id, after_sequence=2, limit=2) == stored[2:4]
        assert logs.list(workspace.tenant, run.id, after_sequence=5) == ()
        assert logs.list(workspace.tenant, workspace.id("missing")) == ()
        assert logs.list(workspace.foreign, run.id) == ()
        for bad in ({"limit": 0}, {"after_sequence": -1}, {"after_sequence": INT64_MAX + 1}):
            with pytest.raises(ValidationError):
                logs.list(workspace.tenant, run.id, **bad)

    def test_an_entry_that_is_stored_already_is_returned_and_not_written_again(
        self, workspace: SchedulerWorkspace
    ) -> None:
        run, logs = started(workspace), workspace.storage.execution_logs
        (entry,) = logs.append(unnumbered(run, "a"))
        key = (run.id, 1)
        stamp = workspace.stamp(EXECUTION_LOGS, key)
        assert logs.append([entry, entry]) == (entry, entry)
        assert shown(logs.append([entry, *unnumbered(run, "b")])) == [(1, "a"), (2, "b")]
        assert workspace.stamp(EXECUTION_LOGS, key) == stamp
        assert shown(logs.list(workspace.tenant, run.id)) == [(1, "a"), (2, "b")]

    def test_other_content_under_a_number_is_a_conflict_and_nothing_is_appended(
        self, workspace: SchedulerWorkspace
    ) -> None:
        run, logs = started(workspace), workspace.storage.execution_logs
        (entry,) = logs.append(unnumbered(run, "a"))
        for changes in ({"message": "b"}, {"data": {"a": 1}}, {"logged_at": at(1)}, {"logger": "x"}):
            with pytest.raises(ConflictError) as refusal:
                logs.append([*unnumbered(run, "new"), entry.evolve(**changes)])
            assert (refusal.value.entity, refusal.value.key) == ("execution_logs", f"{run.id}:1")
        assert logs.list(workspace.tenant, run.id) == (entry,)

    @needs("transactions")
    def test_entries_of_several_runs_are_appended_together_or_not_at_all(
        self, workspace: SchedulerWorkspace
    ) -> None:
        one, other, logs = started(workspace, "b"), started(workspace, "a"), workspace.storage.execution_logs
        mixed = [*unnumbered(one, "1"), *unnumbered(other, "2"), *unnumbered(one, "3")]
        stored = logs.append(mixed)
        assert shown(stored) == [(1, "1"), (1, "2"), (2, "3")]
        missing = make_run(workspace.tenant, workspace.id("missing"))
        with pytest.raises(NotFoundError):
            logs.append([*unnumbered(one, "4"), *unnumbered(missing, "5")])
        with pytest.raises(ConflictError):
            logs.append([*unnumbered(other, "4"), stored[0].evolve(message="other")])
        assert workspace.count(EXECUTION_LOGS) == 3

    def test_entries_of_several_tenants_are_refused(self, workspace: SchedulerWorkspace) -> None:
        run, theirs = started(workspace), started(workspace.elsewhere)
        with pytest.raises(ValidationError, match="2 tenants"):
            workspace.storage.execution_logs.append([*unnumbered(run, "a"), *unnumbered(theirs, "b")])
        with pytest.raises(ValidationError, match="entries should be a sequence"):
            workspace.storage.execution_logs.append(cast("list[ExecutionLogEntry]", None))
        assert workspace.count(EXECUTION_LOGS) == 0

    def test_a_run_that_is_absent_or_foreign_has_no_log(self, workspace: SchedulerWorkspace) -> None:
        theirs, logs = started(workspace.elsewhere), workspace.storage.execution_logs
        for run in (theirs.evolve(tenant_id=workspace.tenant), make_run(workspace.tenant, "missing")):
            with pytest.raises(NotFoundError) as absence:
                logs.append(unnumbered(run, "a"))
            assert (absence.value.entity, absence.value.key) == ("runs", run.id)
        assert workspace.elsewhere.count(EXECUTION_LOGS) == 0

    def test_no_entry_follows_the_highest_number(self, workspace: SchedulerWorkspace) -> None:
        run, logs = started(workspace), workspace.storage.execution_logs
        (last,) = logs.append([make_log_entry(run.tenant_id, run.id, sequence=INT64_MAX)])
        with pytest.raises(ConflictError):
            logs.append(unnumbered(run, "a"))
        assert logs.list(workspace.tenant, run.id) == (last,)

    @needs("transactions")
    def test_rivals_get_numbers_without_a_gap_and_none_twice(self, workspace: SchedulerWorkspace) -> None:
        run = started(workspace)

        def append(storage: SchedulerStorage, name: str) -> tuple[ExecutionLogEntry, ...]:
            return storage.execution_logs.append(unnumbered(run, f"{name}1", f"{name}2"))

        results = workspace.race(append, "abcdef")
        assert outcomes(results) == {"ok": 6}
        found = workspace.storage.execution_logs.list(workspace.tenant, run.id)
        assert [entry.sequence for entry in found] == list(range(1, 13))
        # Those of one call follow each other.
        assert all(one.message[0] == two.message[0] for one, two in zip(found[::2], found[1::2], strict=True))

    def test_the_log_of_a_run_goes_with_it(self, workspace: SchedulerWorkspace) -> None:
        gone, kept, storage = started(workspace), started(workspace, "kept"), workspace.storage
        for run in (gone, kept):
            storage.execution_logs.append(unnumbered(run, "a", "b"))
        storage.runs.update(moved(gone, RunState.CANCELLED))
        assert storage.runs.purge_finished(at(10_000), tenant_id=workspace.tenant) == 1
        assert (workspace.count(RUNS), workspace.count(EXECUTION_LOGS)) == (1, 2)
        assert storage.execution_logs.list(workspace.tenant, gone.id) == ()

    def test_entries_are_purged_by_the_instant_at_which_they_were_logged(
        self, workspace: SchedulerWorkspace
    ) -> None:
        run, logs = started(workspace), workspace.storage.execution_logs
        entries = [make_log_entry(run.tenant_id, run.id, sequence=n, logged_at=at(n)) for n in (3, 1, 2)]
        logs.append(entries)
        assert logs.purge(at(2), tenant_id=workspace.tenant) == 2
        assert logs.purge(at(2), tenant_id=workspace.tenant) == 0
        assert [entry.sequence for entry in logs.list(workspace.tenant, run.id)] == [3]
        # The next number follows the highest one that is there.
        assert shown(logs.append(unnumbered(run, "on"))) == [(4, "on")]
