"""What every store of pack runs, of their logs and of the records of their outputs must do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

from twinstore.errors import (
    ConflictError,
    DocumentDecodeError,
    DuplicateError,
    InvalidTransitionError,
    NotFoundError,
    TwinstoreError,
    ValidationError,
)
from twinstore.models.canonical import CanonicalJsonSerializer
from twinstore.models.fields import INT64_MAX
from twinstore.taskrunner.catalog import PACK_ARTIFACTS, PACK_RUN_LOGS, PACK_RUNS
from twinstore.taskrunner.enums import LogLevel, PackArtifactStatus, PackRunStepKind, PackRunStepStatus
from twinstore.taskrunner.pack_runs import PackRunQueryOptions, PackRunStep
from twinstore.taskrunner.state_factory import PackRunStateFactory, PackRunStepPlan
from twinstore.taskrunner.states import STEP_MOVES
from twinstore.testing.base import needs
from twinstore.testing.instants import at
from twinstore.testing.scalars import EDGE_TEXTS
from twinstore.testing.taskrunner.builders import (
    PLAN,
    make_artifact,
    make_draft,
    make_log_entry,
    make_step,
    rich_log_entry,
)
from twinstore.testing.taskrunner.cases import TaskRunnerCases
from twinstore.testing.workspace import outcomes

if TYPE_CHECKING:
    from twinstore.taskrunner.pack_run_logs import PackRunLogEntry
    from twinstore.taskrunner.storage import TaskRunnerStorage
    from twinstore.testing.taskrunner.cases import TaskRunnerWorkspace

__all__ = ["PackArtifactContract", "PackRunLogContract", "PackRunStateContract"]

POLICY: Final = {"max_attempts": 2, "backoff_seconds": 30}
PENDING, RUNNING, SUCCEEDED, FAILED, SKIPPED = PackRunStepStatus
PAIRS: Final = [(origin, target) for origin in PackRunStepStatus for target in PackRunStepStatus]


def step_in(status: PackRunStepStatus, **changes: object) -> PackRunStep:
    """Return a step that came into a status at the first second, after one failure."""
    moved = None if status is PENDING else at(1)
    return make_step("a", **{"status": status, "attempts": 1, "last_transition_at": moved, **changes})


def step_to(status: PackRunStepStatus, **changes: object) -> PackRunStep:
    """Return the step as it is after the move to a status in the tenth second."""
    attempts = 2 if status == FAILED else 1
    return step_in(status, **{"attempts": attempts, "last_transition_at": at(10), **changes})


# What is wrong with a move that is allowed, by what it says.
BROKEN_MOVES: Final = {
    "no instant": (step_in(PENDING), step_to(RUNNING, last_transition_at=None)),
    "an instant before the last move": (step_in(RUNNING), step_to(SUCCEEDED, last_transition_at=at(0.999))),
    "before the next attempt": (step_in(PENDING, next_attempt_at=at(10.001)), step_to(RUNNING)),
    "attempts of a start": (step_in(PENDING), step_to(RUNNING, attempts=2)),
    "a reason of success": (step_in(RUNNING), step_to(SUCCEEDED, status_reason="x")),
    "a next attempt after success": (step_in(RUNNING), step_to(SUCCEEDED, next_attempt_at=at(11))),
    "attempts of success": (step_in(RUNNING), step_to(SUCCEEDED, attempts=2)),
    "a failure that is not counted": (step_in(RUNNING), step_to(FAILED, attempts=1)),
    "failed with an attempt left": (step_in(RUNNING, attempts=0), step_to(FAILED, attempts=1)),
    "again without an attempt left": (step_in(RUNNING), step_to(PENDING, attempts=2)),
    "again too early": (step_in(RUNNING, attempts=0), step_to(PENDING, next_attempt_at=at(39.999))),
    "an attempt without a move": (step_in(RUNNING), step_in(RUNNING, attempts=2)),
    "an instant without a move": (step_in(RUNNING), step_in(RUNNING, last_transition_at=at(2))),
    "a change of a final step": (step_in(SUCCEEDED), step_in(SUCCEEDED, status_reason="x")),
}
GOOD_MOVES: Final = {
    "start": (step_in(PENDING), step_to(RUNNING)),
    "start when the pause is over": (step_in(PENDING, next_attempt_at=at(10)), step_to(RUNNING)),
    "success": (step_in(RUNNING, status_reason="x", next_attempt_at=at(1)), step_to(SUCCEEDED)),
    "failure, again": (step_in(RUNNING, attempts=0), step_to(PENDING, next_attempt_at=at(40))),
    "failure, the last": (step_in(RUNNING), step_to(FAILED)),
    "skipped": (step_in(PENDING), step_to(SKIPPED, status_reason="condition is false")),
    "resumed": (step_in(FAILED), step_to(PENDING)),
    "another reason": (step_in(PENDING), step_in(PENDING, status_reason="policy-pending")),
}


class PackRunStateContract(TaskRunnerCases):
    """Runs are saved as a whole, while each step moves as the state machine lets it."""

    @pytest.mark.parametrize("case", GOOD_MOVES)
    def test_a_step_moves_as_the_state_machine_lets_it(
        self, workspace: TaskRunnerWorkspace, case: str
    ) -> None:
        before, after = GOOD_MOVES[case]
        run = workspace.created(failure_policy=POLICY, steps=(before,))
        saved = run.evolve(updated_at=at(10), steps=(after,))
        assert workspace.storage.pack_runs.save(saved, expected_updated_at=run.updated_at) == saved
        assert workspace.storage.pack_runs.get(run.run_id, tenant_id=workspace.tenant) == saved

    @pytest.mark.parametrize("case", BROKEN_MOVES)
    def test_a_move_that_breaks_a_condition_is_refused(
        self, workspace: TaskRunnerWorkspace, case: str
    ) -> None:
        before, after = BROKEN_MOVES[case]
        run = workspace.created(failure_policy=POLICY, steps=(before,))
        with pytest.raises(InvalidTransitionError) as refusal:
            workspace.storage.pack_runs.save(run.evolve(updated_at=at(10), steps=(after,)))
        assert (refusal.value.entity, refusal.value.key) == ("pack_runs", run.run_id)
        assert workspace.storage.pack_runs.get(run.run_id, tenant_id=workspace.tenant) == run

    def test_every_move_that_is_not_listed_is_refused(self, workspace: TaskRunnerWorkspace) -> None:
        found: set[tuple[PackRunStepStatus, PackRunStepStatus]] = set()
        for number, (origin, target) in enumerate(PAIRS):
            run = workspace.created(str(number), failure_policy=POLICY, steps=(step_in(origin),))
            allowed = target in STEP_MOVES[origin]
            # A failure that is repeated is the only move whose form depends on where it starts.
            again = (
                {"attempts": 2, "next_attempt_at": at(40)} if (origin, target) == (RUNNING, PENDING) else {}
            )
            try:
                workspace.storage.pack_runs.save(run.evolve(steps=(step_to(target, **again),)))
            except InvalidTransitionError as error:
                reported = (error.from_state, error.to_state)
                assert reported == (origin.value, target.value)
                continue
            assert allowed
            found.add((origin, target))
        listed = {(origin, target) for origin, targets in STEP_MOVES.items() for target in targets}
        assert found == listed - {(RUNNING, PENDING)}  # no attempt is left for it here

    def test_steps_may_be_added_and_never_disappear(self, workspace: TaskRunnerWorkspace) -> None:
        run = workspace.created(steps=(make_step("m"),))
        more = run.evolve(steps=(make_step("m[1]::a"), make_step("m"), make_step("m[0]::a")))
        assert [step.step_id for step in more.steps] == ["m", "m[0]::a", "m[1]::a"]
        store = workspace.storage.pack_runs
        assert store.save(more) == more == store.get(run.run_id, tenant_id=workspace.tenant)
        with pytest.raises(ValidationError, match=r"m\[0\]::a"):
            store.save(run)
        assert store.get(run.run_id, tenant_id=workspace.tenant) == more

    def test_a_save_inserts_what_is_absent_and_writes_nothing_that_is_equal(
        self, workspace: TaskRunnerWorkspace
    ) -> None:
        run, store = workspace.run(), workspace.storage.pack_runs
        assert store.save(run) == run == store.get_required(run.run_id, tenant_id=workspace.tenant)
        stamp = workspace.stamp(PACK_RUNS, (run.run_id,))
        assert store.save(run) == run
        assert store.save(run, expected_updated_at=run.updated_at) == run
        assert workspace.stamp(PACK_RUNS, (run.run_id,)) == stamp
        with pytest.raises(DuplicateError):
            store.create(run)

    def test_what_identifies_a_run_never_changes(self, workspace: TaskRunnerWorkspace) -> None:
        run, store = workspace.created(), workspace.storage.pack_runs
        for changes in ({"plan_hash": "other"}, {"created_at": at(-1)}):
            with pytest.raises(ValidationError):
                store.save(run.evolve(**changes))
        for tenant in (None, workspace.foreign):
            with pytest.raises(DuplicateError):
                store.save(run.evolve(tenant_id=tenant))
        assert store.get(run.run_id, tenant_id=workspace.tenant) == run

    def test_a_save_that_expects_another_state_is_refused(self, workspace: TaskRunnerWorkspace) -> None:
        run, store = workspace.created(), workspace.storage.pack_runs
        first = run.evolve(updated_at=at(1), plan={"name": "first"})
        assert store.save(first, expected_updated_at=run.updated_at) == first
        with pytest.raises(ConflictError):
            store.save(run.evolve(updated_at=at(2)), expected_updated_at=run.updated_at)
        with pytest.raises(ConflictError):
            store.save(workspace.run("absent"), expected_updated_at=at())
        # Else two writers who compare could both be right, and the second would not see the first.
        with pytest.raises(ValidationError, match="updatedAt should be later"):
            store.save(first.evolve(plan={}), expected_updated_at=first.updated_at)
        assert store.get(run.run_id, tenant_id=workspace.tenant) == first
        assert store.get(workspace.id("absent"), tenant_id=workspace.tenant) is None

    def test_of_writers_that_compare_one_wins(self, workspace: TaskRunnerWorkspace) -> None:
        run = workspace.created()

        def save(storage: TaskRunnerStorage, number: int) -> object:
            mine = run.evolve(updated_at=at(1 + number), plan={"writer": number})
            return storage.pack_runs.save(mine, expected_updated_at=run.updated_at)

        results = workspace.race(save, range(8))
        assert outcomes(results) == {"ConflictError": 7, "ok": 1}
        (winner,) = [result for result in results if not isinstance(result, TwinstoreError)]
        assert workspace.storage.pack_runs.get(run.run_id, tenant_id=workspace.tenant) == winner

    def test_no_step_moves_twice(self, workspace: TaskRunnerWorkspace) -> None:
        run = workspace.created(failure_policy=POLICY, steps=(step_in(RUNNING),))

        def end(storage: TaskRunnerStorage, status: PackRunStepStatus) -> object:
            return storage.pack_runs.save(run.evolve(updated_at=at(20), steps=(step_to(status),)))

        results = workspace.race(end, [SUCCEEDED, FAILED] * 3)
        stored = workspace.storage.pack_runs.get_required(run.run_id, tenant_id=workspace.tenant)
        (ended,) = stored.steps
        # A caller that asks for the same end as the winner finds it done.
        assert outcomes(results) == {"InvalidTransitionError": 3, "ok": 3}
        assert ended.status in {SUCCEEDED, FAILED}

    def test_a_plan_is_kept_in_canonical_form(self, workspace: TaskRunnerWorkspace) -> None:
        run = workspace.created(plan=PLAN)
        stored = workspace.storage.pack_runs.get_required(run.run_id, tenant_id=workspace.tenant)
        assert CanonicalJsonSerializer.serialize(stored) == CanonicalJsonSerializer.serialize(run)

    def test_a_gate_says_what_it_waits_for(self, workspace: TaskRunnerWorkspace) -> None:
        plans = (
            PackRunStepPlan(step_id="approve", kind=PackRunStepKind.GATE_APPROVAL, approval_id="release"),
            PackRunStepPlan(step_id="check", kind=PackRunStepKind.GATE_POLICY, gate_message="clean?"),
            PackRunStepPlan(step_id="build"),
            PackRunStepPlan(step_id="off", kind=PackRunStepKind.GATE_APPROVAL, enabled=False),
        )
        run = PackRunStateFactory.create_initial(
            workspace.id("made"), "hash", PLAN, plans, at(), requested_at=at(1), tenant_id=workspace.tenant
        )
        assert workspace.storage.pack_runs.create(run) == run
        stored = workspace.storage.pack_runs.get_required(run.run_id, tenant_id=workspace.tenant)
        assert [(step.step_id, step.status, step.status_reason) for step in stored.steps] == [
            ("approve", PENDING, "requires-approval"),
            ("build", PENDING, None),
            ("check", PENDING, "requires-policy"),
            ("off", SKIPPED, "disabled"),
        ]

    def test_a_list_is_narrowed_to_a_time_both_bounds_excluded(self, workspace: TaskRunnerWorkspace) -> None:
        for number in range(4):
            workspace.created(str(number), updated_at=at(number))
        options = PackRunQueryOptions(updated_after=at(0), updated_before=at(3))
        found = workspace.storage.pack_runs.list(options, tenant_id=workspace.tenant)
        assert [run.updated_at for run in found] == [at(2), at(1)]
        first = workspace.storage.pack_runs.list(
            PackRunQueryOptions(updated_after=at(0), limit=1), tenant_id=workspace.tenant
        )
        token = first.next_page_token
        with pytest.raises(ValidationError):
            workspace.storage.pack_runs.list(
                PackRunQueryOptions(updated_after=at(1), page_token=token), tenant_id=workspace.tenant
            )

    def test_a_save_replaces_an_unreadable_run(self, workspace: TaskRunnerWorkspace) -> None:
        runs = workspace.storage.pack_runs
        state = runs.create(workspace.run())
        workspace.probe.poison(PACK_RUNS, (state.run_id,), "no such thing")
        with pytest.raises(DocumentDecodeError):
            runs.save(state, expected_updated_at=state.updated_at)
        assert runs.save(state) == state
        assert runs.get(state.run_id, tenant_id=workspace.tenant) == state
        # That of another tenant stays out of sight.
        workspace.probe.poison(PACK_RUNS, (state.run_id,), "no such thing")
        with pytest.raises(DuplicateError):
            runs.save(state.evolve(tenant_id=workspace.foreign))


WRITERS: Final = 6
ENTRIES: Final = 5


def entries_of(run_id: str, numbers: range, **changes: object) -> list[PackRunLogEntry]:
    """Return entries with these numbers."""
    return [make_log_entry(run_id, number, message=str(number), **changes) for number in numbers]


class PackRunLogContract(TaskRunnerCases):
    """Entries are stored under the numbers of their writer, once, read in order and removed by age."""

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
        # For each writer in its order; together each number once and none missing.
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
        # Numbers continue after the remaining ones, and a deleted number may be written again.
        assert logs.append_next(run.run_id, make_draft(), tenant_id=tenant).sequence == 6
        with pytest.raises(ValidationError):
            logs.purge(at(3), batch_size=0)


# What each status needs.
WHOLE: Final = {
    PackArtifactStatus.COPIED: {"stored_path": "s3://x"},
    PackArtifactStatus.MATERIALIZED: {"type": "object"},
    PackArtifactStatus.SKIPPED: {"notes": "empty"},
}
LACKING: Final = {
    "copied": {"notes": "x"},
    "skipped": {"stored_path": "x"},
    "materialized": {"type": "file", "stored_path": "x", "notes": "x"},
}


class PackArtifactContract(TaskRunnerCases):
    """A run has one record for each name, which is final after its first move."""

    @pytest.mark.parametrize("status", WHOLE)
    def test_a_pending_record_moves_once(
        self, workspace: TaskRunnerWorkspace, status: PackArtifactStatus
    ) -> None:
        run, store = workspace.created(), workspace.storage.pack_artifacts
        pending = make_artifact(run.run_id, "report")
        assert store.upload(pending, tenant_id=workspace.tenant) == pending
        with_notes = pending.evolve(notes="soon")
        assert store.upload(with_notes, tenant_id=workspace.tenant) == with_notes
        moved = pending.evolve(status=status, captured_at=at(1), **WHOLE[status])
        assert store.upload(moved, tenant_id=workspace.tenant) == moved
        stamp = workspace.stamp(PACK_ARTIFACTS, (run.run_id, "report"))
        assert store.upload(moved, tenant_id=workspace.tenant) == moved
        assert workspace.stamp(PACK_ARTIFACTS, (run.run_id, "report")) == stamp
        for other in (pending, moved.evolve(captured_at=at(2))):
            with pytest.raises(InvalidTransitionError):
                store.upload(other, tenant_id=workspace.tenant)
        assert store.list(run.run_id, tenant_id=workspace.tenant) == (moved,)

    @pytest.mark.parametrize("status", LACKING)
    def test_a_record_has_what_its_status_needs(self, workspace: TaskRunnerWorkspace, status: str) -> None:
        run, store = workspace.created(), workspace.storage.pack_artifacts
        with pytest.raises(ValidationError):
            store.upload(
                make_artifact(run.run_id, "report", status=status, **LACKING[status]),
                tenant_id=workspace.tenant,
            )
        assert store.list(run.run_id, tenant_id=workspace.tenant) == ()

    def test_records_are_listed_by_name_each_run_for_itself(self, workspace: TaskRunnerWorkspace) -> None:
        one, other, store = workspace.created("a"), workspace.created("b"), workspace.storage.pack_artifacts
        for run in (one, other):
            for name in reversed(EDGE_TEXTS):
                store.upload(make_artifact(run.run_id, name), tenant_id=workspace.tenant)
        found = store.list(one.run_id, tenant_id=workspace.tenant)
        assert [(item.run_id, item.name) for item in found] == [
            (one.run_id, name) for name in sorted(EDGE_TEXTS)
        ]

    def test_a_record_needs_its_run(self, workspace: TaskRunnerWorkspace) -> None:
        store = workspace.storage.pack_artifacts
        with pytest.raises(NotFoundError):
            store.upload(make_artifact(workspace.id("missing"), "report"), tenant_id=workspace.tenant)
        assert store.list(workspace.id("missing"), tenant_id=workspace.tenant) == ()

    def test_of_uploads_at_once_one_is_stored(self, workspace: TaskRunnerWorkspace) -> None:
        run = workspace.created()

        def upload(storage: TaskRunnerStorage, number: int) -> object:
            record = make_artifact(run.run_id, "report", status="copied", stored_path=f"s3://{number}")
            return storage.pack_artifacts.upload(record, tenant_id=workspace.tenant)

        results = workspace.race(upload, range(8))
        assert outcomes(results) == {"InvalidTransitionError": 7, "ok": 1}
        (winner,) = [result for result in results if not isinstance(result, TwinstoreError)]
        assert workspace.storage.pack_artifacts.list(run.run_id, tenant_id=workspace.tenant) == (winner,)
