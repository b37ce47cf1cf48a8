"""What every repository of schedules must do, and what the query of due ones must answer."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest

from twinstore.errors import ConflictError, DuplicateError, NotFoundError, ValidationError
from twinstore.scheduler.catalog import SCHEDULES, TRIGGERS
from twinstore.scheduler.schedules import ScheduleQueryOptions, SoftDeletion
from twinstore.testing.base import needs
from twinstore.testing.instants import at
from twinstore.testing.scheduler.builders import rich_schedule
from twinstore.testing.scheduler.cases import SchedulerCases
from twinstore.testing.workspace import outcomes

if TYPE_CHECKING:
    from twinstore.scheduler.schedules import Schedule
    from twinstore.testing.scheduler.workspace import SchedulerWorkspace

__all__ = ["DueScheduleContract", "ScheduleRepositoryContract"]


def stored(workspace: SchedulerWorkspace, name: str = "a", /, **changes: object) -> Schedule:
    """Store a schedule and return it."""
    return workspace.storage.schedules.upsert(workspace.schedule(name, **changes))


def deleted(workspace: SchedulerWorkspace, name: str = "a", seconds: float = 10) -> Schedule:
    """Store and soft-delete a schedule; return it as it was before."""
    schedule = stored(workspace, name)
    assert workspace.storage.schedules.soft_delete(workspace.tenant, schedule.id, "eve", at(seconds))
    return schedule


def listed(workspace: SchedulerWorkspace, **options: object) -> list[str]:
    """Return the names of the listed schedules."""
    chosen = ScheduleQueryOptions(**options)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]  # passed on as given
    return [schedule.name for schedule in workspace.storage.schedules.list(workspace.tenant, chosen)]


class ScheduleRepositoryContract(SchedulerCases):
    """Create, read, update, soft delete and restore."""

    def test_an_unknown_schedule_is_absent_everywhere(self, workspace: SchedulerWorkspace) -> None:
        schedules, missing = workspace.storage.schedules, workspace.id("missing")
        assert schedules.get(workspace.tenant, missing) is None
        assert schedules.get(workspace.tenant, missing, include_deleted=True) is None
        assert schedules.get_deletion(workspace.tenant, missing) is None
        assert schedules.soft_delete(workspace.tenant, missing, "eve", at()) is False
        assert schedules.restore(workspace.tenant, missing, "eve", at()) is False
        assert tuple(schedules.list(workspace.tenant)) == ()
        with pytest.raises(NotFoundError) as absence:
            schedules.get_required(workspace.tenant, f" {missing} ")
        assert (absence.value.entity, absence.value.key) == ("schedules", missing)

    @pytest.mark.parametrize("taken", ["name", "id of another tenant"])
    def test_a_schedule_without_a_next_instant_is_refused_for_that_first(
        self, workspace: SchedulerWorkspace, taken: str
    ) -> None:
        first = stored(workspace if taken == "name" else workspace.elsewhere)
        late = datetime(9999, 12, 31, tzinfo=UTC)
        key = workspace.id("late") if taken == "name" else first.id
        endless = workspace.schedule("late", created_at=late, updated_at=late).evolve(name=first.name, id=key)
        with pytest.raises(ValidationError, match="no next instant"):
            workspace.storage.schedules.upsert(endless)

    def test_ids_are_trimmed_before_they_are_compared(self, workspace: SchedulerWorkspace) -> None:
        schedule = stored(workspace)
        assert workspace.storage.schedules.get(f" {workspace.tenant} ", f" {schedule.id} ") == schedule

    def test_upsert_replaces_all_but_owner_and_creation(self, workspace: SchedulerWorkspace) -> None:
        first = stored(workspace)
        second = rich_schedule(
            workspace.tenant, first.id, created_at=at(1), created_by="mallory", updated_at=at(9)
        )
        expected = second.evolve(created_at=first.created_at, created_by=first.created_by)
        assert workspace.storage.schedules.upsert(second) == expected
        assert workspace.storage.schedules.get(workspace.tenant, first.id) == expected
        assert workspace.count(SCHEDULES) == 1

    def test_upsert_again_gives_the_same_result(self, workspace: SchedulerWorkspace) -> None:
        schedule = rich_schedule(workspace.tenant, workspace.id("a"))
        results = {workspace.storage.schedules.upsert(schedule).updated_at for _ in range(3)}
        assert results == {schedule.updated_at}
        assert workspace.storage.schedules.get(workspace.tenant, schedule.id) == schedule
        assert (workspace.count(SCHEDULES), workspace.count(TRIGGERS)) == (1, 1)

    def test_an_update_before_the_stored_creation_is_refused(self, workspace: SchedulerWorkspace) -> None:
        schedule = stored(workspace)
        earlier = schedule.evolve(created_at=at(-100), updated_at=at(-50), name="earlier")
        with pytest.raises(ValidationError):
            workspace.storage.schedules.upsert(earlier)
        assert workspace.storage.schedules.get(workspace.tenant, schedule.id) == schedule

    def test_an_expected_instant_must_be_the_stored_one(self, workspace: SchedulerWorkspace) -> None:
        first = stored(workspace)
        second = first.evolve(name="b", updated_at=at(5))
        schedules = workspace.storage.schedules
        assert schedules.upsert(second, expected_updated_at=first.updated_at) == second
        with pytest.raises(ConflictError) as stale:
            schedules.upsert(second.evolve(name="c"), expected_updated_at=first.updated_at)
        assert not isinstance(stale.value, DuplicateError)
        assert schedules.get(workspace.tenant, first.id) == second

    def test_an_expectation_without_a_stored_schedule_is_a_conflict(
        self, workspace: SchedulerWorkspace
    ) -> None:
        with pytest.raises(ConflictError):
            workspace.storage.schedules.upsert(workspace.schedule(), expected_updated_at=at())
        assert (workspace.count(SCHEDULES), workspace.count(TRIGGERS)) == (0, 0)

    def test_an_expectation_is_compared_in_whole_milliseconds(self, workspace: SchedulerWorkspace) -> None:
        first = stored(workspace, updated_at=at(0.001))
        second = first.evolve(name="b", updated_at=at(1))
        expected = at(0.001).replace(microsecond=1999)
        assert workspace.storage.schedules.upsert(second, expected_updated_at=expected) == second

    def test_a_name_is_unique_within_its_tenant_only(self, workspace: SchedulerWorkspace) -> None:
        stored(workspace, "a", name="same")
        stored(workspace.elsewhere, "a", name="same")
        with pytest.raises(DuplicateError):
            stored(workspace, "b", name="same")
        assert (workspace.count(SCHEDULES), workspace.count(TRIGGERS)) == (1, 1)

    def test_renaming_to_a_taken_name_changes_nothing(self, workspace: SchedulerWorkspace) -> None:
        stored(workspace, "a")
        second = stored(workspace, "b")
        with pytest.raises(DuplicateError):
            workspace.storage.schedules.upsert(second.evolve(name="a", updated_at=at(5)))
        assert workspace.storage.schedules.get(workspace.tenant, second.id) == second

    def test_names_differing_in_case_or_composition_are_different(
        self, workspace: SchedulerWorkspace
    ) -> None:
        names = sorted(["a", "A", "\u00e9", "e\u0301", "a b", "a  b"])
        for number, name in enumerate(names):
            stored(workspace, str(number), name=name)
        assert listed(workspace) == names

    def test_an_id_of_another_tenant_is_taken_and_its_owner_not_revealed(
        self, workspace: SchedulerWorkspace
    ) -> None:
        schedule = stored(workspace.elsewhere)
        intruder = workspace.schedule("x").evolve(id=schedule.id)
        with pytest.raises(DuplicateError) as refusal:
            workspace.storage.schedules.upsert(intruder)
        assert workspace.foreign not in refusal.value.message.replace(schedule.id, "")
        assert workspace.storage.schedules.get(workspace.foreign, schedule.id) == schedule
        assert workspace.count(SCHEDULES) == 0

    def test_soft_delete_disables_and_marks(self, workspace: SchedulerWorkspace) -> None:
        schedule = stored(workspace)
        schedules = workspace.storage.schedules
        assert schedules.soft_delete(workspace.tenant, schedule.id, " eve ", at(10)) is True
        expected = schedule.evolve(enabled=False, updated_at=at(10), updated_by="eve")
        assert schedules.get(workspace.tenant, schedule.id) is None
        assert schedules.get(workspace.tenant, schedule.id, include_deleted=True) == expected
        assert schedules.get_required(workspace.tenant, schedule.id, include_deleted=True) == expected
        assert schedules.get_deletion(workspace.tenant, schedule.id) == SoftDeletion(
            deleted_at=at(10), deleted_by="eve"
        )
        with pytest.raises(NotFoundError):
            schedules.get_required(workspace.tenant, schedule.id)

    def test_the_instants_of_a_deletion_keep_their_milliseconds(self, workspace: SchedulerWorkspace) -> None:
        schedule = stored(workspace)
        schedules = workspace.storage.schedules
        assert schedules.soft_delete(workspace.tenant, schedule.id, "eve", at(10.007))
        deletion = schedules.get_deletion(workspace.tenant, schedule.id)
        assert deletion == SoftDeletion(deleted_at=at(10.007), deleted_by="eve")
        row = workspace.probe.read(SCHEDULES, (schedule.id,))
        assert row is not None
        assert (row.markers["deletedAt"], row.document["updatedAt"]) == (at(10.007), at(10.007))
        assert schedules.restore(workspace.tenant, schedule.id, "zoe", at(10.008))
        assert schedules.get_required(workspace.tenant, schedule.id).updated_at == at(10.008)

    def test_soft_delete_again_changes_nothing(self, workspace: SchedulerWorkspace) -> None:
        schedule = deleted(workspace)
        before = workspace.probe.read(SCHEDULES, (schedule.id,))
        assert (
            workspace.storage.schedules.soft_delete(workspace.tenant, schedule.id, "mallory", at(99)) is False
        )
        assert workspace.probe.read(SCHEDULES, (schedule.id,)) == before

    def test_an_instant_before_the_last_change_is_refused(self, workspace: SchedulerWorkspace) -> None:
        schedules = workspace.storage.schedules
        schedule = stored(workspace, updated_at=at(20))
        with pytest.raises(ValidationError):
            schedules.soft_delete(workspace.tenant, schedule.id, "eve", at(19.999))
        assert schedules.get(workspace.tenant, schedule.id) == schedule
        assert schedules.soft_delete(workspace.tenant, schedule.id, "eve", at(20)) is True
        with pytest.raises(ValidationError):
            schedules.restore(workspace.tenant, schedule.id, "eve", at(19))
        assert schedules.get_deletion(workspace.tenant, schedule.id) is not None

    def test_a_deleted_schedule_is_listed_on_request_only(self, workspace: SchedulerWorkspace) -> None:
        stored(workspace, "a")
        deleted(workspace, "b")
        stored(workspace, "c", enabled=False)
        assert listed(workspace) == ["a", "c"]
        assert listed(workspace, include_disabled=False) == ["a"]
        assert listed(workspace, include_deleted=True) == ["a", "b", "c"]
        assert listed(workspace, include_deleted=True, include_disabled=False) == ["a"]

    def test_upsert_of_a_deleted_schedule_is_a_conflict(self, workspace: SchedulerWorkspace) -> None:
        schedule = deleted(workspace)
        with pytest.raises(ConflictError) as conflict:
            workspace.storage.schedules.upsert(schedule.evolve(updated_at=at(30)))
        assert not isinstance(conflict.value, DuplicateError)
        assert workspace.storage.schedules.get(workspace.tenant, schedule.id) is None

    def test_the_name_of_a_deleted_schedule_is_free(self, workspace: SchedulerWorkspace) -> None:
        old = deleted(workspace, "a")
        new = stored(workspace, "b", name=old.name)
        assert listed(workspace) == [old.name]
        with pytest.raises(DuplicateError):
            workspace.storage.schedules.restore(workspace.tenant, old.id, "eve", at(50))
        assert workspace.storage.schedules.get_deletion(workspace.tenant, old.id) is not None
        assert workspace.storage.schedules.get(workspace.tenant, new.id) == new

    def test_two_deleted_schedules_may_share_a_name(self, workspace: SchedulerWorkspace) -> None:
        for name in ("a", "b"):
            schedule = stored(workspace, name, name="same")
            assert workspace.storage.schedules.soft_delete(workspace.tenant, schedule.id, "eve", at(10))
        assert listed(workspace, include_deleted=True) == ["same", "same"]

    @pytest.mark.parametrize("enabled", [True, False])
    def test_restore_brings_a_schedule_back(self, workspace: SchedulerWorkspace, *, enabled: bool) -> None:
        schedule = deleted(workspace)
        schedules = workspace.storage.schedules
        assert schedules.restore(workspace.tenant, schedule.id, "zoe", at(20), enabled=enabled) is True
        expected = schedule.evolve(enabled=enabled, updated_at=at(20), updated_by="zoe")
        assert schedules.get(workspace.tenant, schedule.id) == expected
        assert schedules.get_deletion(workspace.tenant, schedule.id) is None
        assert schedules.restore(workspace.tenant, schedule.id, "zoe", at(30)) is False
        assert schedules.get(workspace.tenant, schedule.id) == expected

    def test_a_restored_schedule_is_disabled_unless_asked(self, workspace: SchedulerWorkspace) -> None:
        schedule = deleted(workspace)
        assert workspace.storage.schedules.restore(workspace.tenant, schedule.id, "zoe", at(20))
        assert workspace.storage.schedules.get_required(workspace.tenant, schedule.id).enabled is False

    def test_restore_of_a_living_schedule_changes_nothing(self, workspace: SchedulerWorkspace) -> None:
        schedule = stored(workspace)
        assert (
            workspace.storage.schedules.restore(workspace.tenant, schedule.id, "zoe", at(20), enabled=False)
            is False
        )
        assert workspace.storage.schedules.get(workspace.tenant, schedule.id) == schedule

    def test_deletion_and_restore_may_alternate_repeatedly(self, workspace: SchedulerWorkspace) -> None:
        schedule = stored(workspace)
        schedules = workspace.storage.schedules
        for second in range(1, 7, 2):
            assert schedules.soft_delete(workspace.tenant, schedule.id, "eve", at(second))
            assert schedules.restore(workspace.tenant, schedule.id, "zoe", at(second + 1), enabled=True)
        assert schedules.get_required(workspace.tenant, schedule.id).updated_at == at(6)
        assert workspace.count(TRIGGERS) == 1

    @pytest.mark.parametrize("bad", ["", "  ", "a\x00b", "a\nb", "x" * 257])
    def test_an_unacceptable_id_is_named_before_the_store_is_asked(
        self, workspace: SchedulerWorkspace, bad: str
    ) -> None:
        schedules = workspace.storage.schedules
        for call in (schedules.get, schedules.get_required, schedules.get_deletion):
            with pytest.raises(ValidationError, match="schedule_id"):
                call(workspace.tenant, bad)
        with pytest.raises(ValidationError, match="schedule_id"):
            schedules.soft_delete(workspace.tenant, bad, "eve", at())

    def test_a_naive_instant_or_blank_actor_is_refused(self, workspace: SchedulerWorkspace) -> None:
        schedule = stored(workspace)
        schedules, naive = workspace.storage.schedules, at(10).replace(tzinfo=None)
        with pytest.raises(ValidationError, match="deleted_at"):
            schedules.soft_delete(workspace.tenant, schedule.id, "eve", naive)
        with pytest.raises(ValidationError, match="deleted_by"):
            schedules.soft_delete(workspace.tenant, schedule.id, " ", at(10))
        with pytest.raises(ValidationError, match="restored_by"):
            schedules.restore(workspace.tenant, schedule.id, "", at(10))
        with pytest.raises(ValidationError, match="expected_updated_at"):
            schedules.upsert(schedule, expected_updated_at=naive)
        with pytest.raises(ValidationError, match="now"):
            schedules.get_due_schedules(naive)
        assert schedules.get(workspace.tenant, schedule.id) == schedule

    def test_something_that_is_no_schedule_is_refused(self, workspace: SchedulerWorkspace) -> None:
        with pytest.raises(ValidationError, match="schedule"):
            workspace.storage.schedules.upsert(workspace.run())  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]  # the point of the test

    def test_a_schedule_without_a_further_instant_is_refused_as_a_whole(
        self, workspace: SchedulerWorkspace
    ) -> None:
        end = at().replace(year=9999, month=12, day=31)
        with pytest.raises(ValidationError):
            stored(workspace, updated_at=end)
        assert (workspace.count(SCHEDULES), workspace.count(TRIGGERS)) == (0, 0)
        assert stored(workspace, updated_at=end, enabled=False).updated_at == end

    @needs("transactions")
    def test_of_concurrent_writers_with_one_name_exactly_one_wins(
        self, workspace: SchedulerWorkspace
    ) -> None:
        competitors = [workspace.schedule(str(number), name="same") for number in range(6)]
        results = workspace.race(lambda storage, schedule: storage.schedules.upsert(schedule), competitors)
        assert outcomes(results) == {"DuplicateError": 5, "ok": 1}
        assert (workspace.count(SCHEDULES), workspace.count(TRIGGERS)) == (1, 1)

    @needs("transactions")
    def test_of_concurrent_writers_with_one_expectation_exactly_one_wins(
        self, workspace: SchedulerWorkspace
    ) -> None:
        first = stored(workspace)
        competitors = [first.evolve(name=f"rival {number}", updated_at=at(number)) for number in range(1, 7)]
        results = workspace.race(
            lambda storage, competitor: storage.schedules.upsert(
                competitor, expected_updated_at=first.updated_at
            ),
            competitors,
        )
        assert outcomes(results) == {"ConflictError": 5, "ok": 1}
        winner = next(result for result in results if not isinstance(result, Exception))
        assert workspace.storage.schedules.get(workspace.tenant, first.id) == winner

    @needs("transactions")
    def test_concurrent_creations_of_the_same_schedule_all_succeed(
        self, workspace: SchedulerWorkspace
    ) -> None:
        schedule = workspace.schedule()
        results = workspace.race(lambda storage, same: storage.schedules.upsert(same), [schedule] * 6)
        assert results == [schedule] * 6
        assert (workspace.count(SCHEDULES), workspace.count(TRIGGERS)) == (1, 1)

    @needs("transactions")
    def test_of_concurrent_deletions_exactly_one_returns_true(self, workspace: SchedulerWorkspace) -> None:
        schedule = stored(workspace)
        results = workspace.race(
            lambda storage, by: storage.schedules.soft_delete(workspace.tenant, schedule.id, by, at(5)),
            "abcdef",
        )
        assert sorted(results, key=bool) == [False] * 5 + [True]


# The query of due schedules covers all tenants.

HOUR = 3600


class DueScheduleContract(SchedulerCases):
    """Due: enabled, not deleted, and its instant reached."""

    def test_nothing_is_due_without_schedules(self, isolated_workspace: SchedulerWorkspace) -> None:
        assert isolated_workspace.storage.schedules.get_due_schedules(at()).items == ()

    def test_a_schedule_is_due_from_its_very_instant(self, isolated_workspace: SchedulerWorkspace) -> None:
        schedule = stored(isolated_workspace, "a")
        due = isolated_workspace.storage.triggers.get_required(
            isolated_workspace.tenant, schedule.id
        ).next_fire_at
        assert due is not None
        just_before = due.replace(minute=59, hour=due.hour - 1, second=59, microsecond=999_000)
        assert isolated_workspace.storage.schedules.get_due_schedules(just_before).items == ()
        assert isolated_workspace.storage.schedules.get_due_schedules(due).items == (schedule,)

    def test_due_schedules_of_all_tenants_come_in_order(self, isolated_workspace: SchedulerWorkspace) -> None:
        rows: list[tuple[datetime | None, str, str, Schedule]] = []
        for workspace in sorted(
            [isolated_workspace, isolated_workspace.elsewhere],
            key=lambda workspace: workspace.tenant,
            reverse=True,
        ):
            for name, cron in (("b", "0 * * * *"), ("late", "30 15 * * *"), ("a", "0 * * * *")):
                schedule = stored(workspace, name, when_cron=cron)
                trigger = workspace.storage.triggers.get_required(workspace.tenant, schedule.id)
                rows.append((trigger.next_fire_at, trigger.tenant_id, trigger.id, schedule))
        due = isolated_workspace.storage.schedules.get_due_schedules(at(4 * HOUR)).items
        assert due == tuple(row[3] for row in sorted(rows, key=lambda row: row[:3]))
        for limit in (1, 3, 6, 7):
            assert (
                isolated_workspace.storage.schedules.get_due_schedules(at(4 * HOUR), limit=limit).items
                == due[:limit]
            )

    def test_disabled_and_deleted_schedules_are_never_due(
        self, isolated_workspace: SchedulerWorkspace
    ) -> None:
        stored(isolated_workspace, "disabled", enabled=False)
        gone = stored(isolated_workspace, "gone")
        kept = stored(isolated_workspace, "kept")
        assert isolated_workspace.storage.schedules.soft_delete(
            isolated_workspace.tenant, gone.id, "eve", at(1)
        )
        assert isolated_workspace.storage.schedules.get_due_schedules(at(4 * HOUR)).items == (kept,)
        assert isolated_workspace.storage.schedules.get_due_schedules(at(4 * HOUR), limit=1).items == (kept,)

    def test_a_schedule_that_may_not_fire_is_not_due_whatever_its_trigger_says(
        self, isolated_workspace: SchedulerWorkspace
    ) -> None:
        kept, disabled, deleted = (
            stored(isolated_workspace, name) for name in ("kept", "disabled", "deleted")
        )
        # Only a copy can bring a pair out of step.
        isolated_workspace.probe.alter(SCHEDULES, (disabled.id,), {"enabled": False})
        deletion = {"enabled": False, "deletedAt": at(1), "deletedBy": "eve"}
        isolated_workspace.probe.alter(SCHEDULES, (deleted.id,), deletion)
        assert isolated_workspace.storage.schedules.get_due_schedules(at(4 * HOUR)).items == (kept,)
        assert isolated_workspace.storage.schedules.get_due_schedules(at(4 * HOUR), limit=1).items == (kept,)

    def test_asking_changes_nothing(self, isolated_workspace: SchedulerWorkspace) -> None:
        schedule = stored(isolated_workspace, "a")
        before = isolated_workspace.storage.triggers.get(isolated_workspace.tenant, schedule.id)
        first = isolated_workspace.storage.schedules.get_due_schedules(at(4 * HOUR))
        assert isolated_workspace.storage.schedules.get_due_schedules(at(4 * HOUR)) == first
        assert isolated_workspace.storage.triggers.get(isolated_workspace.tenant, schedule.id) == before

    @pytest.mark.parametrize("limit", [0, -1, True, 1.5, "1", None])
    def test_due_schedules_are_not_listed_with_a_limit_below_one(
        self, workspace: SchedulerWorkspace, limit: int
    ) -> None:
        with pytest.raises(ValidationError, match="limit"):
            workspace.storage.schedules.get_due_schedules(at(), limit=limit)
