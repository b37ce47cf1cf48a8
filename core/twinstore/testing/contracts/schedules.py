"""What every repository of schedules must do."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from twinstore.errors import ConflictError, DuplicateError, NotFoundError, ValidationError
from twinstore.scheduler.catalog import SCHEDULES, TRIGGERS
from twinstore.scheduler.schedules import ScheduleQueryOptions, SoftDeletion
from twinstore.testing.base import Contract, needs
from twinstore.testing.bench import outcomes
from twinstore.testing.builders import at, rich_schedule

if TYPE_CHECKING:
    from twinstore.scheduler.schedules import Schedule
    from twinstore.testing.bench import Bench

__all__ = ["ScheduleRepositoryContract"]


def stored(bench: Bench, name: str = "a", /, **changes: object) -> Schedule:
    """Store a schedule and return it."""
    return bench.storage.schedules.upsert(bench.schedule(name, **changes))


def deleted(bench: Bench, name: str = "a", seconds: float = 10) -> Schedule:
    """Store and soft-delete a schedule; return it as it was before."""
    schedule = stored(bench, name)
    assert bench.storage.schedules.soft_delete(bench.tenant, schedule.id, "eve", at(seconds))
    return schedule


def listed(bench: Bench, **options: object) -> list[str]:
    """Return the names of the listed schedules."""
    chosen = ScheduleQueryOptions(**options)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]  # passed on as given
    return [schedule.name for schedule in bench.storage.schedules.list(bench.tenant, chosen)]


class ScheduleRepositoryContract(Contract):
    """Create, read, update, soft delete and restore."""

    def test_an_unknown_schedule_is_absent_everywhere(self, bench: Bench) -> None:
        schedules, missing = bench.storage.schedules, bench.id("missing")
        assert schedules.get(bench.tenant, missing) is None
        assert schedules.get(bench.tenant, missing, include_deleted=True) is None
        assert schedules.get_deletion(bench.tenant, missing) is None
        assert schedules.soft_delete(bench.tenant, missing, "eve", at()) is False
        assert schedules.restore(bench.tenant, missing, "eve", at()) is False
        assert tuple(schedules.list(bench.tenant)) == ()
        with pytest.raises(NotFoundError) as absence:
            schedules.get_required(bench.tenant, f" {missing} ")
        assert (absence.value.entity, absence.value.key) == ("schedules", missing)

    def test_ids_are_trimmed_before_they_are_compared(self, bench: Bench) -> None:
        schedule = stored(bench)
        assert bench.storage.schedules.get(f" {bench.tenant} ", f" {schedule.id} ") == schedule

    def test_upsert_replaces_all_but_owner_and_creation(self, bench: Bench) -> None:
        first = stored(bench)
        second = rich_schedule(
            bench.tenant, first.id, created_at=at(1), created_by="mallory", updated_at=at(9)
        )
        expected = second.evolve(created_at=first.created_at, created_by=first.created_by)
        assert bench.storage.schedules.upsert(second) == expected
        assert bench.storage.schedules.get(bench.tenant, first.id) == expected
        assert bench.count(SCHEDULES) == 1

    def test_upsert_again_gives_the_same_result(self, bench: Bench) -> None:
        schedule = rich_schedule(bench.tenant, bench.id("a"))
        results = {bench.storage.schedules.upsert(schedule).updated_at for _ in range(3)}
        assert results == {schedule.updated_at}
        assert bench.storage.schedules.get(bench.tenant, schedule.id) == schedule
        assert (bench.count(SCHEDULES), bench.count(TRIGGERS)) == (1, 1)

    def test_an_update_before_the_stored_creation_is_refused(self, bench: Bench) -> None:
        schedule = stored(bench)
        earlier = schedule.evolve(created_at=at(-100), updated_at=at(-50), name="earlier")
        with pytest.raises(ValidationError):
            bench.storage.schedules.upsert(earlier)
        assert bench.storage.schedules.get(bench.tenant, schedule.id) == schedule

    def test_an_expected_instant_must_be_the_stored_one(self, bench: Bench) -> None:
        first = stored(bench)
        second = first.evolve(name="b", updated_at=at(5))
        schedules = bench.storage.schedules
        assert schedules.upsert(second, expected_updated_at=first.updated_at) == second
        with pytest.raises(ConflictError) as stale:
            schedules.upsert(second.evolve(name="c"), expected_updated_at=first.updated_at)
        assert not isinstance(stale.value, DuplicateError)
        assert schedules.get(bench.tenant, first.id) == second

    def test_an_expectation_without_a_stored_schedule_is_a_conflict(self, bench: Bench) -> None:
        with pytest.raises(ConflictError):
            bench.storage.schedules.upsert(bench.schedule(), expected_updated_at=at())
        assert (bench.count(SCHEDULES), bench.count(TRIGGERS)) == (0, 0)

    def test_an_expectation_is_compared_in_whole_milliseconds(self, bench: Bench) -> None:
        first = stored(bench, updated_at=at(0.001))
        second = first.evolve(name="b", updated_at=at(1))
        expected = at(0.001).replace(microsecond=1999)
        assert bench.storage.schedules.upsert(second, expected_updated_at=expected) == second

    def test_a_name_is_unique_within_its_tenant_only(self, bench: Bench) -> None:
        stored(bench, "a", name="same")
        stored(bench.elsewhere, "a", name="same")
        with pytest.raises(DuplicateError):
            stored(bench, "b", name="same")
        assert (bench.count(SCHEDULES), bench.count(TRIGGERS)) == (1, 1)

    def test_renaming_to_a_taken_name_changes_nothing(self, bench: Bench) -> None:
        stored(bench, "a")
        second = stored(bench, "b")
        with pytest.raises(DuplicateError):
            bench.storage.schedules.upsert(second.evolve(name="a", updated_at=at(5)))
        assert bench.storage.schedules.get(bench.tenant, second.id) == second

    def test_names_differing_in_case_or_composition_are_different(self, bench: Bench) -> None:
        names = sorted(["a", "A", "\u00e9", "e\u0301", "a b", "a  b"])
        for number, name in enumerate(names):
            stored(bench, str(number), name=name)
        assert listed(bench) == names

    def test_an_id_of_another_tenant_is_taken_and_its_owner_not_revealed(self, bench: Bench) -> None:
        schedule = stored(bench.elsewhere)
        intruder = bench.schedule("x").evolve(id=schedule.id)
        with pytest.raises(DuplicateError) as refusal:
            bench.storage.schedules.upsert(intruder)
        assert bench.foreign not in refusal.value.message.replace(schedule.id, "")
        assert bench.storage.schedules.get(bench.foreign, schedule.id) == schedule
        assert bench.count(SCHEDULES) == 0

    def test_soft_delete_disables_and_marks(self, bench: Bench) -> None:
        schedule = stored(bench)
        schedules = bench.storage.schedules
        assert schedules.soft_delete(bench.tenant, schedule.id, " eve ", at(10)) is True
        expected = schedule.evolve(enabled=False, updated_at=at(10), updated_by="eve")
        assert schedules.get(bench.tenant, schedule.id) is None
        assert schedules.get(bench.tenant, schedule.id, include_deleted=True) == expected
        assert schedules.get_required(bench.tenant, schedule.id, include_deleted=True) == expected
        assert schedules.get_deletion(bench.tenant, schedule.id) == SoftDeletion(
            deleted_at=at(10), deleted_by="eve"
        )
        with pytest.raises(NotFoundError):
            schedules.get_required(bench.tenant, schedule.id)

    def test_the_instants_of_a_deletion_keep_their_milliseconds(self, bench: Bench) -> None:
        schedule = stored(bench)
        schedules = bench.storage.schedules
        assert schedules.soft_delete(bench.tenant, schedule.id, "eve", at(10.007))
        deletion = schedules.get_deletion(bench.tenant, schedule.id)
        assert deletion == SoftDeletion(deleted_at=at(10.007), deleted_by="eve")
        row = bench.probe.read(SCHEDULES, (schedule.id,))
        assert row is not None
        assert (row.markers["deletedAt"], row.document["updatedAt"]) == (at(10.007), at(10.007))
        assert schedules.restore(bench.tenant, schedule.id, "zoe", at(10.008))
        assert schedules.get_required(bench.tenant, schedule.id).updated_at == at(10.008)

    def test_soft_delete_again_changes_nothing(self, bench: Bench) -> None:
        schedule = deleted(bench)
        before = bench.probe.read(SCHEDULES, (schedule.id,))
        assert bench.storage.schedules.soft_delete(bench.tenant, schedule.id, "mallory", at(99)) is False
        assert bench.probe.read(SCHEDULES, (schedule.id,)) == before

    def test_an_instant_before_the_last_change_is_refused(self, bench: Bench) -> None:
        schedules = bench.storage.schedules
        schedule = stored(bench, updated_at=at(20))
        with pytest.raises(ValidationError):
            schedules.soft_delete(bench.tenant, schedule.id, "eve", at(19.999))
        assert schedules.get(bench.tenant, schedule.id) == schedule
        assert schedules.soft_delete(bench.tenant, schedule.id, "eve", at(20)) is True
        with pytest.raises(ValidationError):
            schedules.restore(bench.tenant, schedule.id, "eve", at(19))
        assert schedules.get_deletion(bench.tenant, schedule.id) is not None

    def test_a_deleted_schedule_is_listed_on_request_only(self, bench: Bench) -> None:
        stored(bench, "a")
        deleted(bench, "b")
        stored(bench, "c", enabled=False)
        assert listed(bench) == ["a", "c"]
        assert listed(bench, include_disabled=False) == ["a"]
        assert listed(bench, include_deleted=True) == ["a", "b", "c"]
        assert listed(bench, include_deleted=True, include_disabled=False) == ["a"]

    def test_upsert_of_a_deleted_schedule_is_a_conflict(self, bench: Bench) -> None:
        schedule = deleted(bench)
        with pytest.raises(ConflictError) as conflict:
            bench.storage.schedules.upsert(schedule.evolve(updated_at=at(30)))
        assert not isinstance(conflict.value, DuplicateError)
        assert bench.storage.schedules.get(bench.tenant, schedule.id) is None

    def test_the_name_of_a_deleted_schedule_is_free(self, bench: Bench) -> None:
        old = deleted(bench, "a")
        new = stored(bench, "b", name=old.name)
        assert listed(bench) == [old.name]
        with pytest.raises(DuplicateError):
            bench.storage.schedules.restore(bench.tenant, old.id, "eve", at(50))
        assert bench.storage.schedules.get_deletion(bench.tenant, old.id) is not None
        assert bench.storage.schedules.get(bench.tenant, new.id) == new

    def test_two_deleted_schedules_may_share_a_name(self, bench: Bench) -> None:
        for name in ("a", "b"):
            schedule = stored(bench, name, name="same")
            assert bench.storage.schedules.soft_delete(bench.tenant, schedule.id, "eve", at(10))
        assert listed(bench, include_deleted=True) == ["same", "same"]

    @pytest.mark.parametrize("enabled", [True, False])
    def test_restore_brings_a_schedule_back(self, bench: Bench, *, enabled: bool) -> None:
        schedule = deleted(bench)
        schedules = bench.storage.schedules
        assert schedules.restore(bench.tenant, schedule.id, "zoe", at(20), enabled=enabled) is True
        expected = schedule.evolve(enabled=enabled, updated_at=at(20), updated_by="zoe")
        assert schedules.get(bench.tenant, schedule.id) == expected
        assert schedules.get_deletion(bench.tenant, schedule.id) is None
        assert schedules.restore(bench.tenant, schedule.id, "zoe", at(30)) is False
        assert schedules.get(bench.tenant, schedule.id) == expected

    def test_a_restored_schedule_is_disabled_unless_asked(self, bench: Bench) -> None:
        schedule = deleted(bench)
        assert bench.storage.schedules.restore(bench.tenant, schedule.id, "zoe", at(20))
        assert bench.storage.schedules.get_required(bench.tenant, schedule.id).enabled is False

    def test_restore_of_a_living_schedule_changes_nothing(self, bench: Bench) -> None:
        schedule = stored(bench)
        assert (
            bench.storage.schedules.restore(bench.tenant, schedule.id, "zoe", at(20), enabled=False) is False
        )
        assert bench.storage.schedules.get(bench.tenant, schedule.id) == schedule

    def test_deletion_and_restore_may_be_repeated_in_turn(self, bench: Bench) -> None:
        schedule = stored(bench)
        schedules = bench.storage.schedules
        for second in range(1, 7, 2):
            assert schedules.soft_delete(bench.tenant, schedule.id, "eve", at(second))
            assert schedules.restore(bench.tenant, schedule.id, "zoe", at(second + 1), enabled=True)
        assert schedules.get_required(bench.tenant, schedule.id).updated_at == at(6)
        assert bench.count(TRIGGERS) == 1

    @pytest.mark.parametrize("bad", ["", "  ", "a\x00b", "a\nb", "x" * 257])
    def test_an_unacceptable_id_is_named_before_the_store_is_asked(self, bench: Bench, bad: str) -> None:
        schedules = bench.storage.schedules
        for call in (schedules.get, schedules.get_required, schedules.get_deletion):
            with pytest.raises(ValidationError, match="schedule_id"):
                call(bench.tenant, bad)
        with pytest.raises(ValidationError, match="schedule_id"):
            schedules.soft_delete(bench.tenant, bad, "eve", at())

    def test_a_naive_instant_or_blank_actor_is_refused(self, bench: Bench) -> None:
        schedule = stored(bench)
        schedules, naive = bench.storage.schedules, at(10).replace(tzinfo=None)
        with pytest.raises(ValidationError, match="deleted_at"):
            schedules.soft_delete(bench.tenant, schedule.id, "eve", naive)
        with pytest.raises(ValidationError, match="deleted_by"):
            schedules.soft_delete(bench.tenant, schedule.id, " ", at(10))
        with pytest.raises(ValidationError, match="restored_by"):
            schedules.restore(bench.tenant, schedule.id, "", at(10))
        with pytest.raises(ValidationError, match="expected_updated_at"):
            schedules.upsert(schedule, expected_updated_at=naive)
        with pytest.raises(ValidationError, match="now"):
            schedules.get_due_schedules(naive)
        assert schedules.get(bench.tenant, schedule.id) == schedule

    def test_something_that_is_no_schedule_is_refused(self, bench: Bench) -> None:
        with pytest.raises(ValidationError, match="schedule"):
            bench.storage.schedules.upsert(bench.run())  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]  # the point of the test

    def test_a_schedule_without_a_further_instant_is_refused_as_a_whole(self, bench: Bench) -> None:
        end = at().replace(year=9999, month=12, day=31)
        with pytest.raises(ValidationError):
            stored(bench, updated_at=end)
        assert (bench.count(SCHEDULES), bench.count(TRIGGERS)) == (0, 0)
        assert stored(bench, updated_at=end, enabled=False).updated_at == end

    @needs("transactions")
    def test_of_rivals_with_one_name_exactly_one_wins(self, bench: Bench) -> None:
        rivals = [bench.schedule(str(number), name="same") for number in range(6)]
        results = bench.race(lambda storage, schedule: storage.schedules.upsert(schedule), rivals)
        assert outcomes(results) == {"DuplicateError": 5, "ok": 1}
        assert (bench.count(SCHEDULES), bench.count(TRIGGERS)) == (1, 1)

    @needs("transactions")
    def test_of_rivals_with_one_expectation_exactly_one_wins(self, bench: Bench) -> None:
        first = stored(bench)
        rivals = [first.evolve(name=f"rival {number}", updated_at=at(number)) for number in range(1, 7)]
        results = bench.race(
            lambda storage, rival: storage.schedules.upsert(rival, expected_updated_at=first.updated_at),
            rivals,
        )
        assert outcomes(results) == {"ConflictError": 5, "ok": 1}
        winner = next(result for result in results if not isinstance(result, Exception))
        assert bench.storage.schedules.get(bench.tenant, first.id) == winner

    @needs("transactions")
    def test_rivals_creating_the_same_schedule_all_succeed(self, bench: Bench) -> None:
        schedule = bench.schedule()
        results = bench.race(lambda storage, same: storage.schedules.upsert(same), [schedule] * 6)
        assert results == [schedule] * 6
        assert (bench.count(SCHEDULES), bench.count(TRIGGERS)) == (1, 1)

    @needs("transactions")
    def test_of_rivals_deleting_exactly_one_is_told_so(self, bench: Bench) -> None:
        schedule = stored(bench)
        results = bench.race(
            lambda storage, by: storage.schedules.soft_delete(bench.tenant, schedule.id, by, at(5)), "abcdef"
        )
        assert sorted(results, key=bool) == [False] * 5 + [True]
