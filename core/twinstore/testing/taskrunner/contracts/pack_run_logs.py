"""What every store of logs of pack runs must do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

from twinstore.errors import ConflictError, NotFoundError, ValidationError
from twinstore.models.fields import INT64_MAX
from twinstore.taskrunner.catalog import PACK_RUN_LOGS, PACK_RUNS
from twinstore.taskrunner.enums import LogLevel
from twinstore.testing.base import needs
from twinstore.testing.instants import at
from twinstore.testing.taskrunner.builders import make_draft, make_log_entry, rich_log_entry
from twinstore.testing.taskrunner.cases import TaskRunnerCases
from twinstore.testing.workspace import outcomes

if TYPE_CHECKING:
    from twinstore.taskrunner.pack_run_logs import PackRunLogEntry
    from twinstore.taskrunner.storage import TaskRunnerStorage
    from twinstore.testing.taskrunner.cases import TaskRunnerWorkspace

__all__ = ["PackRunLogContract"]

WRITERS: Final = 6
ENTRIES: Final = 5


def entries_of(run_id: str, numbers: range, **changes: object) -> list[PackRunLogEntry]:
    """Return entries with these numbers."""
    return [make_log_entry(run_id, number, message=str(number), **changes) for number in numbers]


class PackRunLogContract(TaskRunnerCases):
    """Entries stand under the numbers of their writer, once; they are read in order and removed by age."""

    def test_an_append_that_is_repeated_writes_nothing(self, workspace: TaskRunnerWorkspace) -> None:
        run, logs, tenant = workspace.created(), workspace.storage.pack_run_logs, workspace.tenant
        entries = [*entries_of(run.run_id, range(1, 4)), rich_log_entry(run.run_id, 9)]
        assert logs.append(entries, tenant_id=tenant) == 4
        stamp = workspace.stamp(PACK_RUN_LOGS, (run.run_id, 1))
        assert logs.append(entries, tenant_id=tenant) == 0
        more = [*entries, *entries_of(run.run_id, range(4, 6)), entries[0]]
        assert logs.append(more, tenant_id=tenant) == 2
        assert workspace.stamp(PACK_RUN_LOGS, (run.run_id, 1)) == stamp
        assert [entry.sequence for entry in logs.read(run.run_id, tenant_id=tenant)] == [1, 2, 3, 4, 5, 9]
        assert logs.append([], tenant_id=tenant) == 0

    def test_other_content_under_a_number_is_refused_with_the_whole_call(
        self, workspace: TaskRunnerWorkspace
    ) -> None:
        run, logs, tenant = workspace.created(), workspace.storage.pack_run_logs, workspace.tenant
        entry = make_log_entry(run.run_id)
        logs.append([entry], tenant_id=tenant)
        for changes in (
            {"message": "b"},
            {"metadata": {"a": "1"}},
            {"timestamp": at(1)},
            {"level": "warn"},
            {"step_id": "x"},
            {"event_type": "step.started "},
        ):
            with pytest.raises(ConflictError) as refusal:
                logs.append([*entries_of(run.run_id, range(2, 4)), entry.evolve(**changes)], tenant_id=tenant)
            assert (refusal.value.entity, refusal.value.key) == ("pack_run_logs", f"{run.run_id}:1")
        assert logs.read(run.run_id, tenant_id=tenant) == (entry,)

    @needs("transactions")
    def test_entries_of_several_runs_are_appended_together_or_not_at_all(
        self, workspace: TaskRunnerWorkspace
    ) -> None:
        one, other, logs = workspace.created("b"), workspace.created("a"), workspace.storage.pack_run_logs
        mixed = [make_log_entry(run.run_id, number) for number in (1, 2) for run in (one, other)]
        assert logs.append(mixed, tenant_id=workspace.tenant) == 4
        absent = make_log_entry(workspace.id("missing"))
        with pytest.raises(NotFoundError):
            logs.append([make_log_entry(one.run_id, 3), absent], tenant_id=workspace.tenant)
        taken = make_log_entry(other.run_id, message="other")
        with pytest.raises(ConflictError):
            logs.append([make_log_entry(one.run_id, 3), taken], tenant_id=workspace.tenant)
        assert logs.last_sequence(one.run_id, tenant_id=workspace.tenant) == 2

    def test_entries_are_numbered_by_the_store_where_the_writer_does_not(
        self, workspace: TaskRunnerWorkspace
    ) -> None:
        run, logs, tenant = workspace.created(), workspace.storage.pack_run_logs, workspace.tenant
        assert logs.last_sequence(run.run_id, tenant_id=tenant) == 0
        draft = make_draft(level=LogLevel.WARN, step_id="a", metadata={" k ": " v "})
        first = logs.append_next(run.run_id, draft, tenant_id=tenant)
        assert (first.sequence, first.metadata) == (1, {"k": " v "})
        logs.append([make_log_entry(run.run_id, 7)], tenant_id=tenant)
        last = logs.append_next(run.run_id, draft, tenant_id=tenant)
        assert last.sequence == 8 == logs.last_sequence(run.run_id, tenant_id=tenant)
        assert logs.read(run.run_id, after_sequence=7, tenant_id=tenant) == (last,)
        logs.append([make_log_entry(run.run_id, INT64_MAX)], tenant_id=tenant)
        with pytest.raises(ConflictError):
            logs.append_next(run.run_id, draft, tenant_id=tenant)
        with pytest.raises(NotFoundError):
            logs.append_next(workspace.id("missing"), draft, tenant_id=tenant)

    def test_an_append_leaves_its_run_as_it_is(self, workspace: TaskRunnerWorkspace) -> None:
        run = workspace.created()
        before = workspace.probe.read(PACK_RUNS, (run.run_id,))
        workspace.storage.pack_run_logs.append_next(run.run_id, make_draft(), tenant_id=workspace.tenant)
        after = workspace.probe.read(PACK_RUNS, (run.run_id,))
        assert before is not None
        assert after is not None
        assert workspace.storage.pack_runs.get(run.run_id, tenant_id=workspace.tenant) == run

    def test_writers_at_once_get_numbers_of_their_own(self, workspace: TaskRunnerWorkspace) -> None:
        run, tenant = workspace.created(), workspace.tenant

        def write(storage: TaskRunnerStorage, writer: int) -> list[int]:
            drafts = [make_draft(message=f"{writer}:{number}") for number in range(ENTRIES)]
            logs = storage.pack_run_logs
            return [logs.append_next(run.run_id, draft, tenant_id=tenant).sequence for draft in drafts]

        results = workspace.race(write, range(WRITERS))
        assert outcomes(results) == {"ok": WRITERS}
        given = [result for result in results if isinstance(result, list)]
        # Of one writer in its order; together each number once and none left out.
        assert all(numbers == sorted(numbers) for numbers in given)
        assert sorted(number for numbers in given for number in numbers) == list(
            range(1, WRITERS * ENTRIES + 1)
        )
        stored = workspace.storage.pack_run_logs.read(run.run_id, tenant_id=tenant)
        assert [entry.sequence for entry in stored] == list(range(1, WRITERS * ENTRIES + 1))

    def test_writers_of_the_same_entries_write_each_once(self, workspace: TaskRunnerWorkspace) -> None:
        run, tenant = workspace.created(), workspace.tenant
        entries = entries_of(run.run_id, range(1, 6))

        def write(storage: TaskRunnerStorage, part: slice) -> int:
            return storage.pack_run_logs.append(entries[part], tenant_id=tenant)

        results = workspace.race(write, [slice(3), slice(2, 5), slice(5)] * 2)
        counts = [result for result in results if isinstance(result, int)]
        assert len(counts) == 6
        assert sum(counts) == 5
        assert workspace.storage.pack_run_logs.read(run.run_id, tenant_id=tenant) == tuple(entries)

    def test_of_different_contents_under_one_number_one_is_stored(
        self, workspace: TaskRunnerWorkspace
    ) -> None:
        run, tenant = workspace.created(), workspace.tenant

        def write(storage: TaskRunnerStorage, writer: int) -> int:
            entries = entries_of(run.run_id, range(1, 3), event_type=f"writer.{writer}")
            return storage.pack_run_logs.append(entries, tenant_id=tenant)

        assert outcomes(workspace.race(write, range(WRITERS))) == {"ConflictError": WRITERS - 1, "ok": 1}
        stored = workspace.storage.pack_run_logs.read(run.run_id, tenant_id=tenant)
        assert [entry.sequence for entry in stored] == [1, 2]
        assert len({entry.event_type for entry in stored}) == 1

    def test_a_log_is_read_after_a_number_and_in_a_window_of_time(
        self, workspace: TaskRunnerWorkspace
    ) -> None:
        run, logs, tenant = workspace.created(), workspace.storage.pack_run_logs, workspace.tenant
        # Against the order of the numbers, and in ties.
        instants = [at(3), at(2), at(2), at(1), at(2)]
        entries = tuple(
            make_log_entry(run.run_id, number, timestamp=instant)
            for number, instant in enumerate(instants, start=1)
        )
        logs.append(entries, tenant_id=tenant)
        assert logs.read(run.run_id, limit=2, tenant_id=tenant) == entries[:2]
        assert logs.read(run.run_id, after_sequence=2, limit=2, tenant_id=tenant) == entries[2:4]
        window = logs.read_window(run.run_id, at(1), at(3), tenant_id=tenant)
        assert [entry.sequence for entry in window] == [4, 2, 3, 5]
        assert logs.read_window(run.run_id, at(1), at(3), limit=2, tenant_id=tenant) == window[:2]
        assert logs.read_window(run.run_id, at(3), at(3), tenant_id=tenant) == ()
        for bad in ({"limit": 0}, {"after_sequence": -1}, {"after_sequence": INT64_MAX + 1}):
            with pytest.raises(ValidationError):
                logs.read(run.run_id, tenant_id=tenant, **bad)

    def test_a_log_is_removed_by_age_the_oldest_first(self, isolated_workspace: TaskRunnerWorkspace) -> None:
        run, logs = isolated_workspace.created(), isolated_workspace.storage.pack_run_logs
        tenant = isolated_workspace.tenant
        logs.append(
            [make_log_entry(run.run_id, number, timestamp=at(number)) for number in range(1, 6)],
            tenant_id=tenant,
        )
        assert logs.purge(at(3), batch_size=2) == 3
        assert [entry.sequence for entry in logs.read(run.run_id, tenant_id=tenant)] == [4, 5]
        assert logs.purge(at(3)) == 0
        # Numbers go on after what is left, and a number that went may be written again.
        assert logs.append_next(run.run_id, make_draft(), tenant_id=tenant).sequence == 6
        with pytest.raises(ValidationError):
            logs.purge(at(3), batch_size=0)
